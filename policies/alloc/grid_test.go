package alloc

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Rates equal those of a demand without a grid even if there are more core paths than a grid
// supports: each host has its own rack, and each rack its own uplink and downlink, of
// different capacities.
func TestCorePaths(t *testing.T) {
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
			if rule == policies.Proportional { // it raises the rates of earlier steps
				even := all(policies.EqualSplit, 0)
				even.Budget = 1
				sch = policies.Schedule{Budgets: []float64{.5}, Steps: []policies.Step{even, all(rule, 0)}}
			}
			t.Run(fmt.Sprint(hosts, " ", rule), func(t *testing.T) {
				with, without := NewDemand(flows, len(capacity)), NewDemand(flows, len(capacity))
				without.grid = nil
				if with.grid == nil || (with.grid.inner != nil) != counted {
					t.Fatalf("core paths supported: %v, want %v", with.grid != nil && with.grid.inner != nil, counted)
				}
				sum := 0.0
				for range 2 {
					for _, d := range []*Demand{with, without} {
						var s Allocator
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

// Rates and residual capacities equal those of demands without a grid if flows are counted
// by core path: many senders and few receivers, or vice versa, whose flows end one by one
// and host by host.
func TestMinSideCounts(t *testing.T) {
	var grid, plain Allocator
	counted := 0
	rapid.Check(t, func(t *rapid.T) {
		in := &instance{net: network{3, 6}}
		hosts := in.net.racks * in.net.hosts
		for l := range in.net.links() {
			in.capacity = append(in.capacity, rapid.SampledFrom([]float64{0, 1e8, 1e9, 1e9, 1e9, 1e9, 2.5e9, 1e11, 1e11}).Draw(t, fmt.Sprint("capacity ", l)))
		}
		id := workloads.FlowID(0)
		for range rapid.IntRange(1, 3).Draw(t, "coflows") {
			many, minSideCounts := rapid.IntRange(12, hosts).Draw(t, "many"), rapid.IntRange(1, 6).Draw(t, "few")
			at, sends := rapid.IntRange(0, hosts-minSideCounts).Draw(t, "at"), rapid.Bool().Draw(t, "many send")
			var flows []Flow
			for p := range many * minSideCounts {
				src, dst := p/minSideCounts, at+p%minSideCounts
				if !sends {
					src, dst = at+p/many, p%many
				}
				flows = append(flows, Flow{ID: id, Size: 1e6, Links: in.net.path(src, dst)})
				id++
			}
			in.coflows = append(in.coflows, flows)
			in.ended, in.pilots = append(in.ended, make([]bool, len(flows))), append(in.pilots, make([]bool, len(flows)))
		}
		with, without := in.demands(true), in.demands(false)
		for range rapid.IntRange(1, 6).Draw(t, "decisions") {
			in.drawSteps(t, []policies.Rule{policies.EqualSplit, policies.MaxMin})
			in.sch.Steps = append(in.sch.Steps, all(policies.MaxMin, in.sch.Order(len(in.coflows))...))
			in.share(t, &grid, with)
			in.share(t, &plain, without)
			in.compare(t, with, without)
			for l, c := range in.capacity {
				if a, b := grid.free[l], plain.free[l]; math.Abs(a-b) > 1e-12*c {
					t.Fatalf("link %d: residual capacity %v bit/s with grids, %v without", l, a, b)
				}
			}
			for c, d := range with {
				if d.grid != nil && d.grid.minSideCounts != nil {
					counted++
				}
				host := topo.LinkID(2*rapid.IntRange(0, hosts-1).Draw(t, "host") + rapid.IntRange(0, 1).Draw(t, "receives"))
				one := rapid.IntRange(0, 2).Draw(t, "one only") > 0
				for i := range in.coflows[c] {
					path := in.coflows[c][i].Links
					if (path[0] == host || path[len(path)-1] == host) && !in.ended[c][i] && d.Unfinished() > 1 {
						in.ended[c][i] = true
						d.End(i)
						without[c].End(i)
						if one {
							break
						}
					}
				}
			}
		}
	})
	if counted == 0 {
		t.Error("no flows were counted by their ways")
	}
}
