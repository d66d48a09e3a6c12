package policytest_test

import (
	"cmp"
	"slices"
	"testing"

	"testbed/policies"
	"testbed/policies/policytest"
)

// Smallest first

// SmallestFirst serves the coflow with the fewest bytes left first; the others
// get what it leaves.
type SmallestFirst struct{}

// Needs asks for sizes: without them Remaining is 0.
func (SmallestFirst) Needs() policies.Knowledge { return policies.Sizes }

// When asks for a decision whenever a coflow arrives or a flow or coflow ends.
func (SmallestFirst) When() policies.When { return policies.When{Coflows: true, Flows: true} }

// Schedule puts the coflows in order; flow by flow, each gets what those before
// it have left of its path.
func (SmallestFirst) Schedule(v *policies.View, s *policies.Schedule) {
	order := s.Order(len(v.Coflows))
	slices.SortFunc(order, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(x.Remaining, y.Remaining), cmp.Compare(x.ID, y.ID))
	})
	s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy})
}

// end

func TestSmallestFirst(t *testing.T) { policytest.Scheduler(t, SmallestFirst{}) }
