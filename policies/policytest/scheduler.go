package policytest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/policies/coordinator"
	"testbed/workloads"
)

// Scheduler fails t if the policy breaks the contract of policies.CoflowScheduler at any
// moment of several random clusters.
func Scheduler(t rapid.TB, s policies.CoflowScheduler) {
	t.Helper()
	check(t, s, true)
}

// SchedulerByID is Scheduler for a policy that derives random draws from IDs. Its
// decisions may change when coflows and flows are renumbered.
func SchedulerByID(t rapid.TB, s policies.CoflowScheduler) {
	t.Helper()
	check(t, s, false)
}

func check(t rapid.TB, s policies.CoflowScheduler, renamed bool) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		c, other := Clusters().Draw(t, "cluster"), Clusters().Draw(t, "other cluster")
		if err := checkScheduler(s, c, other, renamed); err != nil {
			t.Fatalf("%T: %v", s, err)
		}
	})
}

// coflowInstances are instances of one policy. The engine of a cluster carries out the decisions of first. All but
// elsewhere see its Views: twin those of first, but its Views stay as they were; informed also what Needs does not
// declare; renamed other IDs, and is nil for a policy that depends on their values. The instance elsewhere sees the View
// of another cluster between the others, to detect state that they share.
type coflowInstances struct {
	first, elsewhere, twin, informed, renamed policies.CoflowInstance

	policy   policies.CoflowScheduler
	needs    policies.Facts
	triggers policies.Triggers
	away     *policies.CoflowView // of elsewhere
	last     *policies.CoflowView // of the newest decision
}

// CheckScheduler checks the contract at every moment of a cluster, and then without coflows.
func CheckScheduler(s policies.CoflowScheduler, c, other *Cluster) error {
	return checkScheduler(s, c, other, true)
}

// CheckSchedulerByID is CheckScheduler for a policy that derives random draws from IDs.
func CheckSchedulerByID(s policies.CoflowScheduler, c, other *Cluster) error {
	return checkScheduler(s, c, other, false)
}

func checkScheduler(s policies.CoflowScheduler, c, other *Cluster, renamed bool) error {
	x := &coflowInstances{
		first: s.New(), elsewhere: s.New(), twin: s.New(), informed: s.New(),
		policy: s, needs: s.Needs(), triggers: s.Triggers(),
	}
	if renamed {
		x.renamed = s.New()
	}
	drives := coflowPolicy{x.needs, x.triggers, false, func(*policies.CoflowView, *policies.Schedule) {}}
	once := *other
	once.rounds = 0
	err := once.Run(drives, x.needs, func(v, _ *policies.CoflowView, _ *policies.Schedule) error {
		x.away = v
		return nil
	})
	if err != nil {
		return err
	}
	hidden := everything
	if flows := x.needs & policies.Flows; flows != 0 { // a policy that sees flows once, or its pilot flows alone, sees no others
		hidden = everything&^policies.Flows | flows
	}
	drives.unlimited, drives.decide = policies.IsUnlimited(s), x.decide
	if err := c.Run(drives, hidden, x.compare); err != nil {
		return err
	}
	return x.checkEmpty(x.first)
}

// decide lets the first instance decide.
func (x *coflowInstances) decide(v *policies.CoflowView, out *policies.Schedule) {
	shown := clone(v)
	var answer policies.Schedule
	x.first.Decide(shown, &answer)
	*out = *copyOf(&answer)
	out.Err = cmp.Or(answer.Err, checkRates(&answer), checkPilots(v, &answer))
	if !reflect.DeepEqual(shown, v) {
		out.Err = errors.New("method Decide modified the View")
	}
	scribble(&answer) // the caller owns the schedule
	overwrite(shown)
}

// compare lets the other instances decide after the first one, whose schedule the engine has accepted.
func (x *coflowInstances) compare(v, full *policies.CoflowView, taken *policies.Schedule) error {
	x.last = v
	away, want := clone(x.away), copyOf(taken)
	x.elsewhere.Decide(away, &policies.Schedule{})
	overwrite(away)
	repeat := func(problem string, x policies.CoflowInstance, v *policies.CoflowView) error {
		var answer policies.Schedule
		x.Decide(v, &answer)
		if got := copyOf(&answer); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s: %v, before %v", problem, describe(got), describe(want))
		}
		return nil
	}
	if err := repeat("two instances with the same Views return different schedules", x.twin, clone(v)); err != nil {
		return err
	}
	if err := repeat("method Decide depends on facts that Needs does not declare", x.informed, full); err != nil {
		return err
	}
	if x.renamed != nil {
		for i := range want.Pilots {
			want.Pilots[i] = newFlowID(want.Pilots[i])
		}
		for i := range want.Steps {
			for j := range want.Steps[i].Rates {
				want.Steps[i].Rates[j].Flow = newFlowID(want.Steps[i].Rates[j].Flow)
			}
		}
		if err := repeat("method Decide depends on the values of IDs, not only on their order", x.renamed, rename(v)); err != nil {
			return err
		}
	}
	if needs, when := x.policy.Needs(), x.policy.Triggers(); needs != x.needs || when != x.triggers {
		return fmt.Errorf("methods Needs and Triggers returned %v and %+v, before %v and %+v", needs, when, x.needs, x.triggers)
	}
	return x.checkEmpty(x.policy.New())
}

// checkEmpty checks a decision for the newest View without its coflows.
func (x *coflowInstances) checkEmpty(of policies.CoflowInstance) error {
	v := clone(x.last)
	v.Coflows = nil
	var answer policies.Schedule
	of.Decide(v, &answer)
	rules := coordinator.Coordinator{Needs: x.needs}
	err := rules.Check(v, &answer)
	if err == nil {
		err = new(alloc.Allocator).Share(&answer, nil, make([]float64, len(v.Capacity)), x.needs, true)
	}
	if err != nil {
		return fmt.Errorf("without coflows: %w", err)
	}
	return nil
}

// checkRates rejects several rates of one flow in a step, whose sum the engine would use.
func checkRates(s *policies.Schedule) error {
	for i, step := range s.Steps {
		seen := map[workloads.FlowID]bool{}
		for _, r := range step.Rates {
			if seen[r.Flow] {
				return fmt.Errorf("step %d: two rates for flow %d", i, r.Flow)
			}
			seen[r.Flow] = true
		}
	}
	return nil
}

// checkPilots rejects pilot flows that the policy did not see or that already are pilot
// flows.
func checkPilots(shown *policies.CoflowView, s *policies.Schedule) error {
	for i, id := range s.Pilots {
		var found *policies.FlowState
		for c := range shown.Coflows {
			for f := range shown.Coflows[c].Flows {
				if shown.Coflows[c].Flows[f].ID == id {
					found = &shown.Coflows[c].Flows[f]
				}
			}
		}
		switch {
		case found == nil:
			return fmt.Errorf("pilot flow %d: not in the View", id)
		case found.Pilot || slices.Contains(s.Pilots[:i], id):
			return fmt.Errorf("flow %d becomes a pilot flow twice", id)
		}
	}
	return nil
}

// copyOf returns a deep copy of a schedule without its scratch memory. Empty slices become nil.
func copyOf(s *policies.Schedule) *policies.Schedule {
	c := &policies.Schedule{Wake: s.Wake}
	c.Budgets, c.Queues, c.Watch, c.WatchMost, c.Pilots = cloned(s.Budgets), cloned(s.Queues), cloned(s.Watch), cloned(s.WatchMost), cloned(s.Pilots)
	for _, step := range s.Steps {
		step.Coflows, step.Rates = cloned(step.Coflows), cloned(step.Rates)
		c.Steps = append(c.Steps, step)
	}
	return c
}

func cloned[E any](s []E) []E { return append([]E(nil), s...) }

// scribble overwrites a policy's schedule.
func scribble(s *policies.Schedule) {
	fill(s.Budgets, math.NaN())
	fill(s.Queues, -1)
	fill(s.Watch, -1)
	fill(s.WatchMost, -1)
	fill(s.Pilots, -1)
	for _, step := range s.Steps {
		fill(step.Coflows, -1)
		fill(step.Rates, policies.FlowRate{Flow: -1, Rate: -1})
	}
	fill(s.Steps, policies.Step{Rule: 255})
}

func fill[E any](s []E, with E) {
	for i := range s {
		s[i] = with
	}
}

// describe returns a schedule as text for error messages.
func describe(s *policies.Schedule) string {
	return fmt.Sprintf("steps %+v, budgets %v, queues %v, watch %v and %v, pilots %v, wake %v",
		s.Steps, s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, s.Wake)
}
