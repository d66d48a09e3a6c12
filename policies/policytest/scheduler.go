package policytest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Scheduler fails t if the policy breaks the contract of policies.Scheduler at any
// moment of a number of random clusters.
func Scheduler(t rapid.TB, s policies.Scheduler) {
	t.Helper()
	check(t, s, true)
}

// SchedulerByID is Scheduler for a policy that draws luck from IDs, and so may
// decide otherwise where the same coflows and flows have others.
func SchedulerByID(t rapid.TB, s policies.Scheduler) {
	t.Helper()
	check(t, s, false)
}

func check(t rapid.TB, s policies.Scheduler, renamed bool) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		c, other := Clusters().Draw(t, "cluster"), Clusters().Draw(t, "other cluster")
		if err := checkScheduler(s, c, other, renamed); err != nil {
			t.Fatalf("%T: %v", s, err)
		}
	})
}

// CheckScheduler checks the contract at every moment of a cluster. A View of the
// other one is shown between two questions: what the policy remembers of it would
// show.
func CheckScheduler(s policies.Scheduler, c, other *Cluster) error {
	return checkScheduler(s, c, other, true)
}

func checkScheduler(s policies.Scheduler, c, other *Cluster, renamed bool) error {
	needs, when := s.Needs(), s.When()
	if when.Every < 0 || when.Every == 0 && !when.Coflows {
		return fmt.Errorf("method When answers %+v: want it asked when coflows arrive or at intervals of more than 0", when)
	}
	for round := 1; ; round++ {
		taken, err := checkMoment(s, c, other, renamed)
		if err != nil {
			return fmt.Errorf("decision %d: %w", round, err)
		}
		if s.Needs() != needs || s.When() != when {
			return fmt.Errorf("decision %d: methods Needs and When answer %b and %+v, before %b and %+v", round, s.Needs(), s.When(), needs, when)
		}
		c.Take(taken)
		if !c.Next() {
			return nil
		}
	}
}

// checkMoment checks the contract at the present moment and returns the schedule.
func checkMoment(s policies.Scheduler, c, other *Cluster, renamed bool) (*policies.Schedule, error) {
	needs := s.Needs()
	shown := c.View(needs)
	before := clone(shown)
	var answer policies.Schedule
	s.Schedule(shown, &answer)
	if !reflect.DeepEqual(shown, before) {
		return nil, errors.New("method Schedule wrote to the View")
	}
	if err := CheckSchedule(c.View(needs|policies.Flows), &answer, needs); err != nil {
		return nil, err
	}
	if err := checkPilots(shown, &answer); err != nil {
		return nil, err
	}
	first := copyOf(&answer)
	scribble(&answer) // the answer is the caller's
	if !reflect.DeepEqual(shown, before) {
		return nil, errors.New("the schedule shares memory with the View: want what it has copied from there")
	}
	again := func(what string, v *policies.View, want *policies.Schedule) error {
		answer.Reset()
		s.Schedule(v, &answer)
		got := copyOf(&answer)
		if reflect.DeepEqual(got, want) {
			return nil
		}
		return fmt.Errorf("%s: %v, before %v", what, describe(got), describe(want))
	}
	if err := again("asked twice, Schedule answers differently", shown, first); err != nil {
		return nil, err
	}
	var elsewhere policies.Schedule
	s.Schedule(other.View(needs), &elsewhere)
	if err := again("Schedule remembers another View", shown, first); err != nil {
		return nil, err
	}
	if err := again("Schedule looks at what Needs does not declare", unmasked(c, shown), first); err != nil {
		return nil, err
	}
	if renamed && len(shown.Memory) == 0 { // memory may hold IDs
		want := copyOf(first)
		for i := range want.Pilots {
			want.Pilots[i] = newFlowID(want.Pilots[i])
		}
		for i := range want.Steps {
			for j := range want.Steps[i].Rates {
				want.Steps[i].Rates[j].Flow = newFlowID(want.Steps[i].Rates[j].Flow)
			}
		}
		answer.Reset()
		s.Schedule(rename(shown), &answer)
		got := copyOf(&answer)
		if got.Memory, want.Memory = nil, nil; !reflect.DeepEqual(got, want) {
			return nil, fmt.Errorf("method Schedule depends on what the IDs are, not only on their order: %v, before %v", describe(got), describe(want))
		}
	}
	empty := *shown
	empty.Coflows = nil
	answer.Reset()
	s.Schedule(&empty, &answer)
	if err := CheckSchedule(&empty, &answer, needs); err != nil {
		return nil, fmt.Errorf("without coflows: %w", err)
	}
	return first, nil
}

// unmasked is a View like the one shown in which nothing is hidden, but that flows
// which NewFlows and PilotFlows do not show are not there.
func unmasked(c *Cluster, shown *policies.View) *policies.View {
	v := c.View(policies.Sizes | policies.LinkLoad | policies.DiskUse | policies.Flows | policies.MostSent)
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

// CheckSchedule looks for what no schedule for a View may say. Of the View, it
// needs Flows only if rates or pilots are given.
func CheckSchedule(v *policies.View, s *policies.Schedule, needs policies.Knowledge) error {
	n := len(v.Coflows)
	for i, b := range s.Budgets {
		if !(b >= 0 && b <= 1) { // or no number
			return fmt.Errorf("budget %d is %v: want 0 to 1", i, b)
		}
	}
	flows := map[workloads.FlowID]*policies.FlowState{}
	for i := range v.Coflows {
		for j := range v.Coflows[i].Flows {
			f := &v.Coflows[i].Flows[j]
			flows[f.ID] = f
		}
	}
	used := make([]float64, len(v.Capacity)) // by Explicit steps
	for i, step := range s.Steps {
		if err := checkStep(step, n, len(s.Budgets), needs); err != nil {
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
				return fmt.Errorf("step %d: rate %v for flow %d: want a number of 0 or more", i, r.Rate, r.Flow)
			}
			seen[r.Flow] = true
			for _, l := range f.Path {
				used[l] += r.Rate
			}
		}
	}
	for l, rate := range used {
		if most := float64(v.Capacity[l]); rate > most*(1+1e-9) {
			return fmt.Errorf("the rates overfill link %s: %v of %v bit/s", v.Fabric.LinkName(topo.LinkID(l)), rate, most)
		}
	}
	switch {
	case len(s.Queues) != 0 && len(s.Queues) != n:
		return fmt.Errorf("%d queues for %d coflows: want one for each, or none", len(s.Queues), n)
	case len(s.Watch) != 0 && len(s.Watch) != n:
		return fmt.Errorf("watches %d of %d coflows: want all, or none", len(s.Watch), n)
	case len(s.WatchMost) != 0 && len(s.WatchMost) != n:
		return fmt.Errorf("watches the longest flow of %d of %d coflows: want all, or none", len(s.WatchMost), n)
	case s.Wake < 0:
		return fmt.Errorf("wake at %v: want 0 or more", s.Wake)
	}
	for i, w := range s.Watch {
		if w < 0 {
			return fmt.Errorf("watches coflow %d for %d bytes: want 0 or more", v.Coflows[i].ID, w)
		}
	}
	for i, w := range s.WatchMost {
		if w < 0 {
			return fmt.Errorf("watches the longest flow of coflow %d for %d bytes: want 0 or more", v.Coflows[i].ID, w)
		}
	}
	return nil
}

func checkStep(step policies.Step, coflows, budgets int, needs policies.Knowledge) error {
	switch {
	case step.Rule > policies.Explicit:
		return fmt.Errorf("unknown rule %d", step.Rule)
	case step.Part > policies.Chosen:
		return fmt.Errorf("unknown part %d", step.Part)
	case step.Only > policies.Served:
		return fmt.Errorf("unknown choice %d of coflows", step.Only)
	case step.Budget < 0 || step.Budget > budgets:
		return fmt.Errorf("budget %d of %d: want 0 for none, or 1 and up", step.Budget, budgets)
	case step.Budget > 0 && step.Rule == policies.Free:
		return errors.New("a budget, which flows that only the transport limits do not keep")
	case step.Rule == policies.MADD && needs&policies.Sizes == 0:
		return errors.New("MADD needs Sizes, which Needs does not declare")
	case step.Within < 0 || step.Within > 0 && step.Rule != policies.MADD:
		return fmt.Errorf("within %v: want 0 or more, and MADD", step.Within)
	case len(step.Rates) > 0 && step.Rule != policies.Explicit:
		return errors.New("rates, though its rule is not Explicit")
	}
	seen := make([]bool, coflows)
	for _, place := range step.Coflows {
		if place < 0 || place >= coflows || seen[place] {
			return fmt.Errorf("coflow at place %d of %d: want each place once", place, coflows)
		}
		seen[place] = true
	}
	return nil
}

// checkPilots looks for pilots that the policy was not shown, or that are pilots
// already.
func checkPilots(shown *policies.View, s *policies.Schedule) error {
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
			return fmt.Errorf("pilot flow %d, which is not shown", id)
		case found.Pilot || slices.Contains(s.Pilots[:i], id):
			return fmt.Errorf("flow %d becomes a pilot twice", id)
		}
	}
	return nil
}

// copyOf is a schedule with memory of its own, and none to work with. What is empty
// is nil, but for Memory.
func copyOf(s *policies.Schedule) *policies.Schedule {
	c := &policies.Schedule{Wake: s.Wake, Memory: slices.Clone(s.Memory)}
	c.Budgets, c.Queues, c.Watch, c.WatchMost, c.Pilots = own(s.Budgets), own(s.Queues), own(s.Watch), own(s.WatchMost), own(s.Pilots)
	for _, step := range s.Steps {
		step.Coflows, step.Rates = own(step.Coflows), own(step.Rates)
		c.Steps = append(c.Steps, step)
	}
	return c
}

func own[E any](s []E) []E { return append([]E(nil), s...) }

// scribble writes over all that a policy answered.
func scribble(s *policies.Schedule) {
	fill(s.Budgets, math.NaN())
	fill(s.Queues, -1)
	fill(s.Watch, -1)
	fill(s.WatchMost, -1)
	fill(s.Pilots, -1)
	fill(s.Memory, -1)
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

// describe is what a policy answered, for a message.
func describe(s *policies.Schedule) string {
	return fmt.Sprintf("steps %+v, budgets %v, queues %v, watch %v and %v, pilots %v, wake %v, memory %v", s.Steps, s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, time.Duration(s.Wake), s.Memory)
}
