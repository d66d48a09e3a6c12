package policytest_test

import (
	"cmp"
	"slices"
	"testing"

	"testbed/policies"
	"testbed/policies/policytest"
)

// Smallest first

// SmallestFirst serves the coflow with the fewest remaining bytes first; the others get
// the capacity that it leaves.
type SmallestFirst struct{}

// Needs returns Sizes: without it Remaining is 0.
func (SmallestFirst) Needs() policies.Needs { return policies.Needs{Sizes: true} }

// Triggers requests a decision whenever a coflow arrives or a flow or coflow ends.
func (SmallestFirst) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true}
}

// Schedule sorts the coflows. Each flow then gets the capacity of its path that the flows
// before it leave.
func (SmallestFirst) Schedule(v *policies.CoflowView, s *policies.Schedule) {
	order := s.Order(len(v.Coflows))
	slices.SortFunc(order, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(x.Remaining, y.Remaining), cmp.Compare(x.ID, y.ID))
	})
	s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy})
}

// end

func TestSmallestFirst(t *testing.T) { policytest.Scheduler(t, SmallestFirst{}) }
