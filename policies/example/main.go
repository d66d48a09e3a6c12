// Command example is testbed with one more policy: a module of one's own that has the whole command line.
package main

import (
	"cmp"
	"os"
	"slices"

	"testbed/emu/cli"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/topo/units"
)

func main() {
	catalog.Register(catalog.RoleCoflow, catalog.Fields(catalog.Entry{Name: "smallest", Doc: "fewest remaining bytes first; knows sizes", Holds: true},
		SmallestFirst{}, func(p *SmallestFirst) []catalog.Param {
			return []catalog.Param{{Name: "least", To: &p.Least, Max: int64(1000 * units.GB), Doc: "coflows with less left are equal"}}
		}))
	os.Exit(cli.Process())
}

// SmallestFirst serves the coflow with the fewest remaining bytes first; the others get the capacity that it leaves.
// Coflows with less than Least left are equal, and served by ID.
type SmallestFirst struct{ Least units.Bytes }

// Needs returns Sizes: without it Remaining is 0.
func (SmallestFirst) Needs() policies.Facts { return policies.Sizes }

// Triggers requests a decision whenever a coflow arrives or a flow or coflow ends.
func (SmallestFirst) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true}
}

// New returns the policy itself, since an instance remembers nothing.
func (p SmallestFirst) New() policies.CoflowInstance { return p }

// Decide sorts the coflows. Each flow then gets the capacity of its path that the flows before it leave.
func (p SmallestFirst) Decide(v *policies.CoflowView, s *policies.Schedule) {
	order := s.Order(len(v.Coflows))
	slices.SortFunc(order, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(max(x.Remaining, p.Least), max(y.Remaining, p.Least)), cmp.Compare(x.ID, y.ID))
	})
	s.Serve(policies.Greedy, order)
}
