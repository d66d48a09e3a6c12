package policytest_test

import (
	"cmp"
	"slices"
	"testing"

	"testbed/policies"
	"testbed/policies/policytest"
)

// Smallest first

// SmallestFirst lets the coflow with the fewest bytes left have the links it
// needs; what it leaves, the engine hands to the others in order.
type SmallestFirst struct{}

// Needs asks for sizes: without them Remaining is 0.
func (SmallestFirst) Needs() policies.Knowledge { return policies.Sizes }

// Allocate grants each flow nothing of its own, in order of importance: the
// engine then gives the first all that its path has, and so on.
func (SmallestFirst) Allocate(v *policies.View) []policies.Grant {
	order := make([]int, len(v.Coflows))
	left := make([]int64, len(v.Coflows))
	for i, c := range v.Coflows {
		order[i] = i
		for _, f := range c.Flows {
			left[i] += int64(f.Remaining)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(left[a], left[b]), cmp.Compare(v.Coflows[a].ID, v.Coflows[b].ID))
	})
	var grants []policies.Grant
	for _, i := range order {
		for _, f := range v.Coflows[i].Flows {
			grants = append(grants, policies.Grant{Flow: f.ID, Ceiling: 0})
		}
	}
	return grants
}

// end

func TestSmallestFirst(t *testing.T) { policytest.Allocator(t, SmallestFirst{}) }
