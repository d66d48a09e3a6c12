package rates

import (
	"fmt"
	"math"
	"testing"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Rates are those of a demand without a grid also where paths take more ways between
// their ends than a grid counts: each host its own rack, each rack its own way up and
// down, of other capacities.
func TestWays(t *testing.T) {
	for hosts, counted := range map[int]bool{40: true, 257: false} {
		var flows []Flow
		for src := range hosts {
			for dst := range hosts {
				flows = append(flows, Flow{ID: workloads.FlowID(len(flows)), Size: 1e6, Links: []topo.LinkID{
					topo.LinkID(src), topo.LinkID(hosts + src), topo.LinkID(2*hosts + dst), topo.LinkID(3*hosts + dst)}})
			}
		}
		capacity := idle(4*hosts, 1e9)
		for h := range hosts {
			capacity[hosts+h] *= .3 + .1*float64(h%9)
			capacity[2*hosts+h] *= .25 + .1*float64(h%7)
		}
		for _, rule := range rules {
			sch := policies.Schedule{Steps: []policies.Step{all(rule, 0)}}
			if rule == policies.Proportional { // what there is more of what was given
				even := all(policies.Even, 0)
				even.Budget = 1
				sch = policies.Schedule{Budgets: []float64{.5}, Steps: []policies.Step{even, all(rule, 0)}}
			}
			t.Run(fmt.Sprint(hosts, " ", rule), func(t *testing.T) {
				with, without := NewDemand(flows, len(capacity)), NewDemand(flows, len(capacity))
				without.grid = nil
				if with.grid == nil || (with.grid.inner != nil) != counted {
					t.Fatalf("ways counted: %v, want %v", with.grid != nil && with.grid.inner != nil, counted)
				}
				sum := 0.0
				for range 2 {
					for _, d := range []*Demand{with, without} {
						var s Sharer
						if err := s.Share(&sch, []*Demand{d}, capacity, policies.Sizes, false); err != nil {
							t.Fatal(err)
						}
						d.Moving()
					}
					for i, r := range with.Rates() {
						if w := without.Rates()[i]; math.Abs(r-w) > 1e-12*1e9 {
							t.Fatalf("flow at %d has %v bit/s, without a grid %v", i, r, w)
						}
						sum += r
					}
					for i := 0; i < len(flows); i += 3 {
						with.End(i)
						without.End(i)
					}
				}
				if sum == 0 && rule != policies.Free {
					t.Error("no flow moves")
				}
			})
		}
	}
}
