package main

import (
	"cmp"
	"slices"

	"testbed/policies/external/messages"
)

func init() { coflows = &SmallestFirst{} }

// SmallestFirst serves the coflow with the fewest remaining bytes first; the others get the capacity that it leaves: the same
// decisions as the policy {name: lcf, allocation: greedy} of testbed.
type SmallestFirst struct{}

// Start returns what the policy needs to know, and when it decides.
func (*SmallestFirst) Start(*messages.Hello) ([]string, messages.Triggers) {
	return []string{"sizes"}, messages.Triggers{Coflows: true, Flows: true}
}

// Decide orders the coflows, ties by ID.
func (*SmallestFirst) Decide(v *messages.View, s *messages.Schedule) {
	order := []int{}
	for i := range v.Coflows {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(x.Remaining, y.Remaining), cmp.Compare(x.ID, y.ID))
	})
	s.Steps = append(s.Steps, messages.Step{Rule: "greedy", Coflows: order})
}
