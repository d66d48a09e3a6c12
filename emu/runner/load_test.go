package runner

import (
	"math"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Host links are as the captures counted them; uplinks carry what crosses racks,
// evenly over the spines.
func TestMeanLoads(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: 20 * units.Mbps, Oversubscription: units.Ratio{Num: 2, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	var res flows.Result
	eth := flows.Interface{Name: "eth0"}
	eth.Out.Bytes, eth.In.Bytes = 5_000_000, 1_250_000
	res.Captures = []flows.Capture{{Host: "h0-00", Interfaces: []flows.Interface{{Name: "lo"}, eth}}}
	res.Flows = []flows.FlowRecord{
		{Src: "h0-00", Dst: "h1-01", Wire: 2_000_000, End: 4 * time.Second},
		{Src: "h0-00", Dst: "h0-01", Wire: 9_000_000, End: time.Second}, // stays in its rack
	}
	// One hop to the client's own disk, one to the other rack, one within it.
	res.Blocks = []flows.BlockRecord{{Client: "h0-01", Hosts: []string{"h0-01", "h1-00", "h1-01"}, Size: 500_000, End: 3 * time.Second}}
	loads, span, err := meanLoads(f, res)
	if err != nil || span != 4*time.Second {
		t.Fatal(span, err)
	}
	want := map[topo.LinkID]float64{f.HostUp(0): 0.5, f.HostDown(0): 0.125}
	for s := range 2 {
		want[f.LeafUp(0, s)], want[f.LeafDown(1, s)] = 0.25, 0.25 // 1.25 MB of the 5 MB that 10 Mbps carries in 4 s
	}
	for id, got := range loads {
		if math.Abs(got-want[topo.LinkID(id)]) > 1e-9 {
			t.Errorf("%s: load %v, want %v", f.LinkName(topo.LinkID(id)), got, want[topo.LinkID(id)])
		}
	}
	if _, _, err := meanLoads(f, flows.Result{}); err == nil {
		t.Error("a mean over no time")
	}
	res.Captures[0].Host = "h7-00"
	if _, _, err := meanLoads(f, res); err == nil {
		t.Error("a capture of a host that is not there")
	}
}
