package coflow

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// The racks of ShuffleWatcher's evaluation: 10 hosts share 500 Mbps, 50 Mbps each, on a network without
// oversubscription. Flows within a rack, and those of a rack with fewer, use the rest of their links.
func TestRackLimit(t *testing.T) {
	f := fabric(t, topo.LeafSpine{
		Leaves: 3, Spines: 2, HostsPerLeaf: 10, HostLink: 250 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
	})
	w := newWorld(f)
	c := policies.CoflowState{ID: 1}
	add := func(src, dst topo.HostID) {
		id := workloads.FlowID(len(c.Flows) + 1)
		c.Flows = append(c.Flows, policies.FlowState{ID: id, Src: src, Dst: dst, Path: f.Path(src, dst, uint32(id))})
	}
	var want []float64
	for h := range topo.HostID(10) {
		add(h, 10+h)
		want = append(want, 50)
	}
	add(0, 1)   // shares a link with one of 50 Mbps
	add(20, 21) // alone
	add(22, 0)  // to a rack that nothing else enters, at the speed of its links
	want = append(want, 200, 250, 250)
	down := f.Path(24, 25, 0)[0]
	w.Capacity[down] = 0
	add(24, 25)
	want = append(want, 0)
	w.Coflows = []policies.CoflowState{c}
	var s policies.Schedule
	RackLimit{Share: 0.2}.Decide(w.CoflowView, &s)
	var got []float64
	for _, r := range s.Steps[0].Rates {
		got = append(got, r.Rate/1e6)
	}
	if d := cmp.Diff(want, got, near); d != "" {
		t.Errorf("Mbit/s (-want +got):\n%s", d)
	}
}
