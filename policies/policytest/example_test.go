package policytest_test

import (
	"cmp"
	"slices"
	"testing"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/workloads/jobs"
)

// Smallest first

// SmallestFirst serves the coflow with the fewest remaining bytes first; the others get
// the capacity that it leaves.
type SmallestFirst struct{}

// Needs returns Sizes: without it Remaining is 0.
func (SmallestFirst) Needs() policies.Facts { return policies.Sizes }

// Triggers requests a decision whenever a coflow arrives or a flow or coflow ends.
func (SmallestFirst) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true}
}

// New returns the policy itself, since an instance remembers nothing.
func (SmallestFirst) New() policies.CoflowInstance { return SmallestFirst{} }

// Decide sorts the coflows. Each flow then gets the capacity of its path that the flows
// before it leave.
func (SmallestFirst) Decide(v *policies.CoflowView, s *policies.Schedule) {
	order := s.Order(len(v.Coflows))
	slices.SortFunc(order, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(x.Remaining, y.Remaining), cmp.Compare(x.ID, y.ID))
	})
	s.Serve(policies.Greedy, order)
}

// end

func TestSmallestFirst(t *testing.T) { policytest.Scheduler(t, SmallestFirst{}) }

// Oldest job first

// Oldest launches the pending tasks of the oldest job first.
type Oldest struct{}

// Needs returns 0.
func (Oldest) Needs() policies.Facts { return 0 }

// Slots changes nothing.
func (Oldest) Slots(n [jobs.TaskKinds]int) policies.Limits {
	return policies.Limits{Running: n, Computing: n}
}

// New returns the policy itself, since an instance remembers nothing.
func (Oldest) New() policies.TaskInstance { return Oldest{} }

// Assign fills the free slots of v.Host.
func (Oldest) Assign(v *policies.TaskView, a *policies.Assignment) {
	s := v.Slots[v.Host] // a copy
	for i := range v.Jobs {
		for j := range v.Jobs[i].Stages {
			st := &v.Jobs[i].Stages[j]
			for l, n := range st.Pending {
				for ; n > 0 && s.Fits(st.Kind, st.Need); n-- {
					s.Add(st.Kind, st.Need)
					a.Launch = append(a.Launch, policies.Launch{Job: i, Stage: j, Locality: policies.Locality(l)})
				}
			}
		}
	}
}

// end

func TestOldest(t *testing.T) { policytest.Tasks(t, Oldest{}) }
