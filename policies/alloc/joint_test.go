package alloc

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// A Joint demand sends exactly as another demand, for every flow, from the first Share to the
// end of the last flow.
func TestJointEqualsFlowByFlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ports = 4
		capacity := make([]float64, 2*ports)
		for l := range capacity {
			capacity[l] = float64(rapid.SampledFrom([]int{0, 1e6, 3e6, 1e7}).Draw(t, "capacity"))
		}
		var plain, joint []*Demand
		var order []int
		next := workloads.FlowID(0)
		for c := range rapid.IntRange(1, 4).Draw(t, "coflows") {
			var flows []Flow
			for range rapid.IntRange(1, 12).Draw(t, "flows") {
				from, to := rapid.IntRange(0, ports-1).Draw(t, "from"), rapid.IntRange(0, ports-1).Draw(t, "to")
				flows = append(flows, Flow{ID: next, Size: units.Bytes(rapid.IntRange(1, 1e6).Draw(t, "size")), Links: []topo.LinkID{topo.LinkID(from), topo.LinkID(ports + to)}})
				next++
			}
			plain, joint = append(plain, NewDemand(flows, len(capacity))), append(joint, NewDemand(flows, len(capacity)))
			joint[c].Join()
			order = append(order, c)
		}
		steps := []policies.Step{{Coflows: order, Rule: policies.MADD}}
		switch rapid.IntRange(0, 2).Draw(t, "backfill") {
		case 1:
			steps = append(steps, policies.Step{Coflows: order, Rule: policies.Greedy})
		case 2:
			steps = append(steps, policies.Step{Coflows: order, Rule: policies.EqualSplit, Only: policies.Skipped}, policies.Step{Coflows: order, Rule: policies.Greedy, Part: policies.All})
		}
		sch := policies.Schedule{Steps: steps}
		near := func(what string, c, p int, got, want, of float64) {
			if math.Abs(got-want) > 1e-7*of {
				t.Fatalf("coflow %d, flow %d: %s %v, want %v", c, p, what, got, want)
			}
		}
		var one, other Allocator
		for {
			if err := one.Share(&sch, plain, capacity, policies.Sizes, false); err != nil {
				t.Fatal(err)
			}
			if err := other.Share(&sch, joint, capacity, policies.Sizes, false); err != nil {
				t.Fatal(err)
			}
			soonest := math.Inf(1)
			for c, d := range plain {
				soonest = min(soonest, d.Soonest())
				rates := make([]float64, len(d.Left))
				if joint[c].Following() > 0 {
					for p := range rates {
						if !joint[c].Ended(p) {
							rates[p] = joint[c].Bits(p) / joint[c].Lasts()
						}
					}
				}
				for _, p := range joint[c].Moving() {
					rates[p] = joint[c].Rates()[p]
				}
				sum := 0.0
				for p, want := range d.Rates() {
					near("rate", c, p, rates[p], want, 1e7)
					sum += rates[p]
				}
				for _, p := range joint[c].Moving() {
					sum -= rates[p]
				}
				near("all that follow", c, -1, joint[c].Follows(), sum, 1e7)
			}
			if math.IsInf(soonest, 1) {
				return
			}
			// Some steps end between the ends of flows.
			part := rapid.SampledFrom([]float64{1, 1, 1, 0.3}).Draw(t, "part")
			for c, d := range plain {
				d.Advance(soonest * part / 2)
				d.Advance(soonest * part / 2)
				joint[c].Advance(soonest * part / 2)
				joint[c].Advance(soonest * part / 2)
				for p := range d.Left {
					near("left", c, p, joint[c].Bits(p), d.Left[p], 8e6)
					if !d.Ended(p) && d.Left[p] < 1e-3 {
						d.End(p)
						joint[c].End(p)
					}
				}
				want := d.Links(policies.Sizes)
				for i, l := range joint[c].Links(policies.Sizes) {
					if w := want[i]; l.Link != w.Link || l.Flows != w.Flows || max(l.Remaining, w.Remaining)-min(l.Remaining, w.Remaining) > 1 {
						t.Fatalf("coflow %d: link %+v, want %+v", c, l, w)
					}
				}
			}
		}
	})
}
