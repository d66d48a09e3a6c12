package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"testbed/emu/engine"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/results/pcap"
	"testbed/results/safefile"
)

// fork returns the fork of an arm of a scenario with one. after returns the place of the arm whose policy decides from
// then on. All arms have the needs of all. What can be done before the fork is, since a guest executes instructions
// for it that depend on the arm.
func (t *trial) fork(after func() (int, error)) (*engine.Fork, error) {
	if t.s.Spec.ForkAt == 0 {
		return nil, nil
	}
	f := &engine.Fork{At: t.s.Spec.ForkAt, Unlimited: true}
	first := t.of.arms[0].Policies[catalog.RoleCoflow]
	next := make([]policies.CoflowScheduler, len(t.of.arms)) // by place; nil is the first one
	for i, a := range t.of.arms {
		named := a.Policies[catalog.RoleCoflow]
		p, err := catalog.Coflow(named.Name, named.Params)
		if err != nil {
			return nil, err
		}
		f.Needs |= p.Needs()
		f.Unlimited = f.Unlimited && policies.IsUnlimited(p)
		if !reflect.DeepEqual(named, first) {
			next[i] = p
		}
	}
	f.Policy = func() (policies.CoflowScheduler, error) {
		place, err := after()
		if err != nil {
			return nil, err
		}
		return next[place], nil
	}
	return f, nil
}

// itself is the place of the trial's arm.
func (t *trial) itself() (int, error) { return t.place, nil }

// after is the place of the arm that a trial on packets is from the fork on. A guest learns it then: before, it has
// executed the same instructions for all arms.
func (t *trial) after() (int, error) {
	if forked := t.of.o.forked; forked != nil {
		return forked()
	}
	return t.itself()
}

// holds reports whether the coflow policies of an arm set rate caps.
func (t *trial) holds() bool {
	if t.s.Spec.ForkAt == 0 {
		return catalog.Holds(t.Policies[catalog.RoleCoflow].Name)
	}
	for _, a := range t.of.arms {
		if catalog.Holds(a.Policies[catalog.RoleCoflow].Name) {
			return true
		}
	}
	return false
}

// begins returns the trial as which the guest of a trial begins: up to a fork that of the first arm, otherwise that of
// the first arm that differs in its name alone. A guest executes instructions for a name that depend on it, and losses
// amplify each.
func (t *trial) begins() *trial {
	for _, a := range t.of.arms[:t.place] {
		same := a.Arm
		if same.Name = t.Name; t.s.Spec.ForkAt > 0 || reflect.DeepEqual(same, t.Arm) {
			return a.trial(t.repeat, work{})
		}
	}
	return t
}

// become makes the trial of a guest, which began as begins states, one of the arm that it is.
func (t *trial) become(ctx context.Context) (*trial, error) {
	place, err := t.after()
	if err != nil {
		return t, err
	}
	now := t.of.arms[place].trial(t.repeat, t.work)
	if place == t.place {
		return now, nil
	}
	if err := safefile.MkdirAll(filepath.Dir(now.path())); err != nil {
		return t, err
	}
	if err := os.Rename(t.path(), now.path()); err != nil {
		return t, err
	}
	predicted, err := now.simulate(ctx, "", nil, nil, nil)
	if err != nil {
		return t, fmt.Errorf("fluid model: %w", err)
	}
	return now, writeJSON(now.file(fluidFile), predicted)
}

// relabel states in the captures of a guest of which arm they are.
func (t *trial) relabel() error {
	place, err := t.after()
	if err != nil || place == t.place {
		return err
	}
	list, err := pcap.List(t.file(capturesDir))
	if err != nil {
		return err
	}
	now := t.of.arms[place]
	for _, f := range list {
		err := pcap.Relabel(f.Path, func(m *pcap.Meta) {
			m.Arm, m.ArmIndex, m.Policies = now.Name, now.place, now.policyNames()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// policyNames returns the names of the arm's policies by role.
func (a *arm) policyNames() map[string]string {
	names := map[string]string{}
	for role, p := range a.Policies {
		names[role] = p.Name
	}
	return names
}

// readForked reads the place of an arm from a file, whose size is the same for all places.
func readForked() (int, error) {
	b, err := safefile.Read(guestFork)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
