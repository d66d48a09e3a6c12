package alloc

import (
	"fmt"
	"testing"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// wide returns coflows of senders × receivers flows between the hosts of a network, sorted
// by sender and receiver. Each coflow starts at different hosts.
func wide(net network, coflows, senders, receivers int) []*Demand {
	var ds []*Demand
	hosts := net.racks * net.hosts
	id := workloads.FlowID(0)
	for c := range coflows {
		var from, to []int
		for h := range hosts {
			if (h+7*c)%hosts < senders {
				from = append(from, h)
			}
			if (h+11*c)%hosts < receivers {
				to = append(to, h)
			}
		}
		var flows []Flow
		for _, s := range from {
			for _, d := range to {
				flows = append(flows, Flow{ID: id, Size: units.Bytes(1e6 * (1 + (s*31+d*17+c)%5)), Links: net.path(s, d)})
				id++
			}
		}
		ds = append(ds, NewDemand(flows, net.links()))
	}
	return ds
}

// BenchmarkShare measures a decision for coflows of a given number of flows.
func BenchmarkShare(b *testing.B) {
	for _, size := range []struct {
		name              string
		net               network
		coflows, from, to int
	}{
		{"ports=150/coflows=1", network{1, 150}, 1, 146, 145},
		{"ports=150/coflows=10", network{1, 150}, 10, 146, 145},
		{"ports=150/coflows=100", network{1, 150}, 100, 40, 40},
		{"ports=900/coflows=10", network{1, 900}, 10, 200, 100},
		{"ports=3000/coflows=10", network{1, 3000}, 10, 200, 100},
		{"racks=15,ports=150/coflows=10", network{15, 10}, 10, 146, 145},
	} {
		ds := wide(size.net, size.coflows, size.from, size.to)
		flows := 0
		for _, d := range ds {
			flows += d.Flows()
		}
		capacity := idle(size.net.links(), 1e9)
		for l := 2 * size.net.racks * size.net.hosts; l < len(capacity); l++ {
			capacity[l] = 1e9 * float64(size.net.hosts) / 2
		}
		for _, rule := range rules {
			b.Run(fmt.Sprintf("rule=%v/%s", rule, size.name), func(b *testing.B) {
				var s Allocator
				var sch policies.Schedule
				sch.Steps = []policies.Step{{Rule: rule, Coflows: sch.Order(len(ds))}}
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Share(&sch, ds, capacity, policies.Sizes, false); err != nil {
						b.Fatal(err)
					}
				}
				moving := 0
				for _, d := range ds {
					moving += len(d.Moving())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(max(moving, 1)), "ns/moving")
				b.ReportMetric(float64(moving), "moving")
			})
		}
	}
}

// BenchmarkDemand measures the work between decisions: time passes, the next completion is
// computed, a flow ends.
func BenchmarkDemand(b *testing.B) {
	for _, rule := range []policies.Rule{policies.Greedy, policies.EqualSplit} {
		for _, shown := range []policies.Facts{policies.Progress, policies.Sizes} {
			b.Run(fmt.Sprintf("rule=%v/sizes=%v", rule, shown.Has(policies.Sizes)), func(b *testing.B) {
				ds := wide(network{1, 150}, 1, 146, 145)
				var s Allocator
				sch := &policies.Schedule{Steps: []policies.Step{all(rule, 0)}}
				if err := s.Share(sch, ds, idle(302, 1e9), 0, false); err != nil {
					b.Fatal(err)
				}
				ds[0].Links(shown)
				b.ReportAllocs()
				for b.Loop() {
					ds[0].Advance(1e-12 * ds[0].Soonest())
					ds[0].Links(shown)
				}
			})
		}
	}
}
