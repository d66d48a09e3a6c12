package summary

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// The share of busy time is that of the bottleneck links, and the queue that of the uplink which carried most.
func TestLinks(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 4, HostLink: 8 * units.Mbps, Uplink: 8 * units.Mbps,
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	r := Repeat{Fabric: f, Records: flows.Records{Flows: []flows.FlowRecord{
		{Src: "h0-00", Dst: "h1-00", ResentBytes: 3000}, {Src: "h1-02", Dst: "h0-00", ResentBytes: 500},
		{Src: "h0-01", Dst: "h1-00", ResentBytes: 100}, {Src: "h9-00", Dst: "h1-00", ResentBytes: 7},
	}}}
	for _, l := range f.Links() {
		s := flows.LinkSeries{Link: l.ID, Name: f.LinkName(l.ID), Rate: l.Rate, Interval: time.Second, Counted: true,
			Bytes: make([]units.Bytes, 4), Queue: []units.Bytes{9, 9, 9, 9}}
		if l.Kind == topo.LeafUp && l.Rack == 1 { // busy in one of four seconds
			s.Bytes, s.Queue = []units.Bytes{500 * units.KB, 950 * units.KB, 880 * units.KB, 0}, []units.Bytes{3000, 9000, 5000, 0}
		}
		r.Links = append(r.Links, s)
	}
	a := Declared{Links: linksOf([]Repeat{r, r}, 0), Losses: lossesOf([]Repeat{r, r})}
	got := map[string]float64{}
	for _, key := range []string{"links.busy", "links.busiest_uplink_queue_bytes", "links.links"} {
		got[key], _ = a.Get(key)
	}
	// Of the four links between leaves and the spine, one is busy for 1 s of 4; its queue is 0 in the last second.
	want := map[string]float64{"links.busy": 1. / 16, "links.busiest_uplink_queue_bytes": 4000, "links.links": 4}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]float64{6200, 1000}, a.Losses.ByRack); d != "" {
		t.Errorf("resent bytes by rack (-want +got):\n%s", d)
	}
}
