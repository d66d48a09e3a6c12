package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// The ideal is that of the path's slowest link with headers, plus a round trip; flows that have no FCT do not count.
func TestFlowSlowdowns(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: 80 * units.Mbps, Uplink: 8 * units.Mbps,
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500, Delay: time.Millisecond}.Build()
	if err != nil {
		t.Fatal(err)
	}
	r := flows.Records{Failed: []flows.Failure{{Kind: flows.FailedFlow, Flow: 9}}}
	var ideals []time.Duration
	add := func(dst string, size units.Bytes, times float64, with func(*flows.FlowRecord)) {
		r.Flows = append(r.Flows, flows.FlowRecord{Src: "h0-00", Dst: dst, Size: size})
		x := &r.Flows[len(r.Flows)-1]
		x.Flow = 1
		ideal := Ideals(f, ethernet, r.Flows[len(r.Flows)-1:])[0]
		ideals = append(ideals, ideal)
		x.End = time.Duration(float64(ideal) * times)
		if with != nil {
			with(x)
		}
	}
	add("h1-00", 1448, 2, nil)  // one frame of 1514 bytes at 8 Mbps, and a round trip of 8 ms
	add("h0-01", 14480, 4, nil) // ten frames at 80 Mbps, and a round trip of 4 ms
	add("h0-01", 100_001, 8, nil)
	add("h0-00", 1448, 1, nil) // on its own host: unknown
	add("h1-00", 1448, 9, func(x *flows.FlowRecord) { x.Background = true })
	add("h1-00", 1448, 9, func(x *flows.FlowRecord) { x.Flow = 9 })
	want := []time.Duration{1514*time.Microsecond + 8*time.Millisecond, 1514*time.Microsecond + 4*time.Millisecond, 0, 0}
	want[2] = (units.Rate(80 * units.Mbps)).TimeToSend(ethernet.Wire(100_001)) + 4*time.Millisecond
	if d := cmp.Diff(want, ideals[:4]); d != "" {
		t.Errorf("ideals (-want +got):\n%s", d)
	}
	sizes, slowdowns := FlowSlowdowns(r, ideals)
	got := SlowdownBySize(append(sizes, 1448), append(slowdowns, 4))
	bySize := []SlowdownOf{
		{UpTo: 10 * units.KB, N: 2, P50: 3, P95: 3.9, P99: 3.98},
		{Above: 10 * units.KB, UpTo: 100 * units.KB, N: 1, P50: 4, P95: 4, P99: 4},
		{Above: 100 * units.KB, UpTo: units.MB, N: 1, P50: 8, P95: 8, P99: 8},
	}
	if d := cmp.Diff(bySize, got, cmp.Comparer(func(x, y float64) bool { return Round6(x) == Round6(y) })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got[1].Sizes() != "10KB to 100KB" || (SlowdownOf{Above: units.MB}).Sizes() != "above 1MB" {
		t.Errorf("names %q, %q", got[1].Sizes(), SlowdownOf{Above: units.MB}.Sizes())
	}
}
