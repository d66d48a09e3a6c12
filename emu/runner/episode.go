package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/topo/words"
)

// Episode is a trial on the fluid model whose coflow policy is at the other end of a conversation of the caller. It has
// no run directory.
type Episode struct {
	// Arm is the name of the arm, whose coflow policy is replaced; "" is the first. Latency and parameters are those
	// of its policy if that is a process, and otherwise the defaults of one.
	Arm  string
	Talk external.Conversation
}

// Run runs repeat 0 of a scenario and returns what was completed.
func (e Episode) Run(ctx context.Context, s *scenario.Scenario) (rec flows.Records, err error) {
	if s.Spec.ForkAt > 0 {
		return rec, s.Problem("fork_at", "a policy outside of the program cannot decide from fork_at on: remove it")
	}
	r, err := newRun(s, Options{}, rundir.Fluid)
	if err != nil {
		return rec, err
	}
	var names []string
	for _, a := range r.arms {
		names = append(names, a.Name)
	}
	at := max(0, slices.Index(names, e.Arm))
	if e.Arm != "" && names[at] != e.Arm {
		return rec, fmt.Errorf("scenario %s has no arm %q: must be %s", s.Spec.Name, e.Arm, words.Or(names))
	}
	a := r.arms[at]
	if a.Policies[catalog.RoleCoflow].Name != catalog.Exec {
		a.Policies = maps.Clone(a.Policies)
		a.Policies[catalog.RoleCoflow] = scenario.Policy{Name: catalog.Exec, Params: map[string]any{catalog.Exec: []any{"environment"}}}
	}
	w, err := r.drawn(0)
	if err != nil {
		return rec, err
	}
	t := a.trial(0, *w)
	t.talk = e.Talk
	if rec, err = t.simulate(ctx, "", nil, nil, nil); err != nil {
		return rec, err
	}
	meta := t.workloadMeta()
	meta.Join(&rec)
	return rec, nil
}
