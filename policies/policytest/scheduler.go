package policytest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/coordinator"
	"testbed/topo"
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

// coflowInstances are instances of one policy. All but elsewhere see the moments of the same cluster: twin those of first,
// but its Views stay as they were; informed also what Needs does not declare; renamed other IDs, and is nil for a policy
// that depends on their values. The other cluster is that of elsewhere, which is called between the others, to detect
// state that they share.
type coflowInstances struct{ first, elsewhere, twin, informed, renamed policies.CoflowInstance }

// CheckScheduler checks the contract at every moment of a cluster, and then without coflows.
func CheckScheduler(s policies.CoflowScheduler, c, other *Cluster) error {
	return checkScheduler(s, c, other, true)
}

// CheckSchedulerByID is CheckScheduler for a policy that derives random draws from IDs.
func CheckSchedulerByID(s policies.CoflowScheduler, c, other *Cluster) error {
	return checkScheduler(s, c, other, false)
}

func checkScheduler(s policies.CoflowScheduler, c, other *Cluster, renamed bool) error {
	rules, err := coordinator.New(s, 0, true)
	if err != nil {
		return err
	}
	needs, when := rules.Needs, rules.Triggers
	x := coflowInstances{first: s.New(), elsewhere: s.New(), twin: s.New(), informed: s.New()}
	if renamed {
		x.renamed = s.New()
	}
	for round := 1; ; round++ {
		taken, err := x.checkMoment(c, other, &rules)
		if err == nil {
			err = checkEmpty(s.New(), c.View(needs), &rules)
		}
		if err != nil {
			return fmt.Errorf("decision %d: %w", round, err)
		}
		if s.Needs() != needs || s.Triggers() != when {
			return fmt.Errorf("decision %d: methods Needs and Triggers returned %v and %+v, before %v and %+v", round, s.Needs(), s.Triggers(), needs, when)
		}
		c.Take(taken)
		if !c.Next() {
			return checkEmpty(x.first, c.View(needs), &rules)
		}
	}
}

// checkMoment checks the contract at the current moment and returns the schedule.
func (x *coflowInstances) checkMoment(c, other *Cluster, rules *coordinator.Coordinator) (*policies.Schedule, error) {
	needs := rules.Needs
	shown, before := c.View(needs), c.View(needs)
	var answer policies.Schedule
	x.first.Decide(shown, &answer)
	if !reflect.DeepEqual(shown, before) {
		return nil, errors.New("method Decide modified the View")
	}
	if err := checkSchedule(c.View(needs|policies.Flows), &answer, rules); err != nil {
		return nil, err
	}
	if err := checkPilots(shown, &answer); err != nil {
		return nil, err
	}
	first := copyOf(&answer)
	scribble(&answer) // the caller owns the schedule
	overwrite(shown)
	elsewhere := other.View(needs)
	var ignored policies.Schedule
	x.elsewhere.Decide(elsewhere, &ignored)
	overwrite(elsewhere)
	repeat := func(problem string, x policies.CoflowInstance, v *policies.CoflowView, want *policies.Schedule) error {
		var answer policies.Schedule
		x.Decide(v, &answer)
		if got := copyOf(&answer); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s: %v, before %v", problem, describe(got), describe(want))
		}
		return nil
	}
	err := repeat("two instances with the same Views return different schedules", x.twin, clone(before), first)
	if err != nil {
		return nil, err
	}
	err = repeat("method Decide depends on facts that Needs does not declare", x.informed, unmasked(c, before), first)
	if err != nil || x.renamed == nil {
		return first, err
	}
	want := copyOf(first)
	for i := range want.Pilots {
		want.Pilots[i] = newFlowID(want.Pilots[i])
	}
	for i := range want.Steps {
		for j := range want.Steps[i].Rates {
			want.Steps[i].Rates[j].Flow = newFlowID(want.Steps[i].Rates[j].Flow)
		}
	}
	return first, repeat("method Decide depends on the values of IDs, not only on their order", x.renamed, rename(before), want)
}

// checkEmpty checks a decision for a View without its coflows.
func checkEmpty(x policies.CoflowInstance, v *policies.CoflowView, rules *coordinator.Coordinator) error {
	v.Coflows = nil
	var answer policies.Schedule
	x.Decide(v, &answer)
	if err := checkSchedule(v, &answer, rules); err != nil {
		return fmt.Errorf("without coflows: %w", err)
	}
	return nil
}

// unmasked returns the View shown with all hidden facts, except the flows that NewFlows
// and PilotFlows hide.
func unmasked(c *Cluster, shown *policies.CoflowView) *policies.CoflowView {
	v := c.View(everything)
	declared := slices.ContainsFunc(shown.Coflows, func(x policies.CoflowState) bool { return len(x.Flows) > 0 })
	for i := range v.Coflows {
		if declared {
			v.Coflows[i].Flows = slices.DeleteFunc(v.Coflows[i].Flows, func(f policies.FlowState) bool {
				return !slices.ContainsFunc(shown.Coflows[i].Flows, func(s policies.FlowState) bool { return s.ID == f.ID })
			})
		}
	}
	return v
}

// checkSchedule rejects schedules that are invalid for a View. It uses the View's Flows
// only for rates and pilot flows.
func checkSchedule(v *policies.CoflowView, s *policies.Schedule, rules *coordinator.Coordinator) error {
	n := len(v.Coflows)
	for i, b := range s.Budgets {
		if !(b >= 0 && b <= 1) { // also rejects NaN
			return fmt.Errorf("budget %d is %v: must be from 0 to 1", i, b)
		}
	}
	flows := map[workloads.FlowID]*policies.FlowState{}
	for i := range v.Coflows {
		for j := range v.Coflows[i].Flows {
			f := &v.Coflows[i].Flows[j]
			flows[f.ID] = f
		}
	}
	used := make([]float64, len(v.Capacity)) // sum of Explicit rates, by LinkID
	for i, step := range s.Steps {
		if err := checkStep(step, n, len(s.Budgets), rules.Needs); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		seen := map[workloads.FlowID]bool{}
		for _, r := range step.Rates {
			f := flows[r.Flow]
			switch {
			case f == nil:
				return fmt.Errorf("step %d: rate for flow %d, which is unknown or has ended", i, r.Flow)
			case seen[r.Flow]:
				return fmt.Errorf("step %d: two rates for flow %d", i, r.Flow)
			case !(r.Rate >= 0 && r.Rate < math.Inf(1)):
				return fmt.Errorf("step %d: rate %v for flow %d: must be a number of 0 or more", i, r.Rate, r.Flow)
			}
			seen[r.Flow] = true
			for _, l := range f.Path {
				used[l] += r.Rate
			}
		}
	}
	for l, rate := range used {
		if most := float64(v.Capacity[l]); rate > most*(1+1e-9) {
			return fmt.Errorf("the rates exceed the capacity of link %s: %v of %v bit/s", v.Fabric.LinkName(topo.LinkID(l)), rate, most)
		}
	}
	return rules.Check(v, s)
}

func checkStep(step policies.Step, coflows, budgets int, needs policies.Facts) error {
	switch {
	case step.Rule > policies.Explicit:
		return fmt.Errorf("unknown rule %d", step.Rule)
	case step.Part > policies.Chosen:
		return fmt.Errorf("unknown part %d", step.Part)
	case step.Only > policies.Served:
		return fmt.Errorf("unknown selection %d of coflows", step.Only)
	case step.Budget < 0 || step.Budget > budgets:
		return fmt.Errorf("budget %d of %d: must be 0 for none, or from 1", step.Budget, budgets)
	case step.Budget > 0 && step.Rule == policies.Free:
		return errors.New("rule Free with a budget: free flows have no rate cap that could keep it")
	case step.Rule == policies.MADD && !needs.Has(policies.Sizes):
		return errors.New("rule MADD needs Sizes, which Needs does not declare")
	case step.Within < 0 || step.Within > 0 && step.Rule != policies.MADD:
		return fmt.Errorf("within %v: must be 0, or more with rule MADD", step.Within)
	case len(step.Rates) > 0 && step.Rule != policies.Explicit:
		return errors.New("rates are set but the rule is not Explicit")
	}
	seen := make([]bool, coflows)
	for _, i := range step.Coflows {
		if i < 0 || i >= coflows || seen[i] {
			return fmt.Errorf("coflow index %d of %d: must be in range and occur once", i, coflows)
		}
		seen[i] = true
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
