package coflow

import (
	"testbed/policies"
	"testbed/policies/alloc/maxmin"
	"testbed/topo"
	"testbed/topo/units"
)

// RackLimit is per-flow fairness under a rate limiter for each rack and direction: what leaves a rack, and what enters
// it, is at most Share of the capacity of the rack's links to all spines. Flows have max-min fair rates within the
// limits and the links. ShuffleWatcher (USENIX ATC 2014) gave racks of a network without oversubscription the
// capacity of oversubscribed ones in this way. It limits flows: blocks that are written are none.
type RackLimit struct {
	Share float64 // of the capacity of the links of a rack
}

// Needs returns Flows: rates depend on arrivals and ends of flows alone.
func (RackLimit) Needs() policies.Facts { return policies.Flows }

// Triggers requests a decision whenever the number of flows under a limit may change.
func (RackLimit) Triggers() policies.Triggers { return policies.Triggers{Coflows: true, Flows: true} }

// New returns the policy itself, since an instance remembers nothing.
func (p RackLimit) New() policies.CoflowInstance { return p }

// Decide gives all flows explicit rates.
func (p RackLimit) Decide(v *policies.CoflowView, s *policies.Schedule) {
	links, flows := len(v.Capacity), 0
	for i := range v.Coflows {
		flows += len(v.Coflows[i].Flows)
	}
	if flows == 0 {
		return
	}
	n := links + 2*v.Fabric.Racks() // limiters are links after the others, those of a rack side by side
	fill := maxmin.Filling{Capacity: s.Floats(n), Load: s.Floats(n), Weight: s.Floats(n)}
	for l, c := range v.Capacity {
		fill.Capacity[l] = float64(c)
		if k, ok := limiter(v.Fabric, topo.LinkID(l)); ok {
			fill.Capacity[links+k] += float64(p.Share * float64(c))
		}
	}
	rates, paths, on := make([]policies.FlowRate, 0, flows), make([][]int32, 0, flows), make([][]int32, n)
	for i := range v.Coflows {
		for _, f := range v.Coflows[i].Flows {
			var path []int32
			for _, l := range f.Path {
				path = append(path, int32(l))
				if k, ok := limiter(v.Fabric, l); ok {
					path = append(path, int32(links+k))
				}
			}
			for _, l := range path {
				fill.Weight[l]++
				on[l] = append(on[l], int32(len(rates)))
			}
			rates, paths = append(rates, policies.FlowRate{Flow: f.ID, Rate: float64(units.MaxRate)}), append(paths, path)
		}
	}
	all := make([]int32, n)
	for l := range all {
		all[l] = int32(l)
	}
	fill.Start(all)
	for l, rate := fill.Next(); l >= 0; l, rate = fill.Next() {
		for _, at := range on[l] {
			if paths[at] == nil {
				continue // it has stopped before
			}
			rates[at].Rate = rate
			for _, k := range paths[at] {
				fill.Load[k] += rate
				fill.Weight[k]--
			}
			paths[at] = nil
		}
	}
	s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: rates})
}

// limiter returns the number of the limiter of a link to or from a spine.
func limiter(f *topo.Fabric, l topo.LinkID) (k int, ok bool) {
	switch link := f.Link(l); link.Kind {
	case topo.LeafUp:
		return 2 * int(link.Rack), true
	case topo.LeafDown:
		return 2*int(link.Rack) + 1, true
	default:
		return 0, false
	}
}
