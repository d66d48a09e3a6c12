package wasm

import (
	"fmt"
	"testing"

	"testbed/emu/wasm/wasmtest"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// BenchmarkDecision measures a decision of the example. On the Facebook trace, one has 4 coflows on 850 links in all.
func BenchmarkDecision(b *testing.B) {
	f, err := topo.BigSwitch(150, units.Gbps)
	if err != nil {
		b.Fatal(err)
	}
	x := opened(b, wasmtest.SEBF(b)).New()
	for _, n := range []struct{ coflows, links int }{{0, 0}, {1, 1}, {4, 200}, {20, 30}} {
		v := &policies.CoflowView{Cluster: &policies.Cluster{Now: 1e9, Fabric: f}}
		for _, l := range f.Links() {
			v.Capacity = append(v.Capacity, l.Rate)
		}
		for i := range n.coflows {
			c := policies.CoflowState{ID: workloads.CoflowID(i)}
			for l := range n.links {
				c.Links = append(c.Links, policies.LinkState{Link: topo.LinkID(l), Flows: 10, Begun: true, Remaining: units.Bytes(9e7 + 1000*i + l)})
			}
			v.Coflows = append(v.Coflows, c)
		}
		b.Run(fmt.Sprintf("coflows=%d/links=%d", n.coflows, n.links), func(b *testing.B) {
			var s policies.Schedule
			for b.Loop() {
				s.Reset()
				if x.Decide(v, &s); s.Err != nil {
					b.Fatal(s.Err)
				}
			}
		})
	}
}
