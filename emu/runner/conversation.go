package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"testbed/emu/fidelity"
	"testbed/emu/outside"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/results/rundir"
	"testbed/results/safefile"
)

// Files of a trial with a policy outside of the program: its answer to the first message, which a replay reads, and its
// standard error.
func policyFile(p *external.Policy) string   { return p.Role() + ".policy.json" }
func policyErrors(p *external.Policy) string { return p.Role() + ".policy.stderr" }

// conversations are those with a trial's policies outside of the program. Its zero value has none.
type conversations struct {
	t       *trial
	log     string // path of the log of events, next to which their files are; "" keeps none
	packets bool
	list    []outside.Policy
	timed   []*timed
	errors  []io.Closer
}

// open starts a policy and begins the conversation.
func (o *conversations) open(s *external.Policy) error {
	if o.t.talk != nil && s.Role() == catalog.RoleCoflow {
		return s.Open(o.t.talk, o.t.fabric, o.t.seed())
	}
	if o.t.of.backend == rundir.Virtual && s.Module == "" {
		return fmt.Errorf("%v: guests of --time virtual have no programs: use real time, or a WebAssembly module", s)
	}
	with := outside.Options{Dir: o.t.s.Dir(), Read: o.t.s.PolicyFile, Modules: o.t.of.o.modules, Seed: o.t.seed()}
	if o.log != "" {
		file, err := safefile.Create(filepath.Join(filepath.Dir(o.log), policyErrors(s)))
		if err != nil {
			return err
		}
		with.Stderr, o.errors = file, append(o.errors, file)
	}
	p, err := outside.Start(context.Background(), s, with)
	if err != nil {
		return err
	}
	o.list = append(o.list, p)
	talk := &timed{Conversation: p, role: s.Role(), latency: s.Latency}
	switch {
	case o.packets && s.Latency == external.Measured:
		s.Latency = 0 // it passes
	case o.packets:
		o.timed = append(o.timed, talk)
	}
	if err := s.Open(talk, o.t.fabric, o.t.seed()); err != nil || o.log == "" {
		return err
	}
	return writeJSON(filepath.Join(filepath.Dir(o.log), policyFile(s)), s.Hello())
}

// timed is a conversation whose answers are timed.
type timed struct {
	external.Conversation
	role    string
	latency time.Duration
	late    []time.Duration // by which each answer took longer than latency; the first is that to hello
}

// Ask implements external.Conversation.
func (c *timed) Ask(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	took, err := c.Conversation.Ask(line, use)
	c.late = append(c.late, max(0, took-c.latency))
	return took, err
}

// answered returns how late the answers on packets were, by role.
func (o *conversations) answered() (all []fidelity.Answers) {
	for _, c := range o.timed {
		late := slices.Sorted(slices.Values(c.late[1:]))
		if n := len(late); n > 0 {
			all = append(all, fidelity.Answers{Role: c.role, Count: n, Late: late[(99*n+99)/100-1], Most: late[n-1]})
		}
	}
	return all
}

// close ends the conversations. It leaves nothing of the policies.
func (o *conversations) close() error {
	var errs []error
	for _, p := range o.list {
		errs = append(errs, p.Close())
	}
	for _, file := range o.errors {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
