package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

func TestRebin(t *testing.T) {
	s := flows.LinkSeries{Rate: 8 * units.Mbps, Interval: 4 * time.Millisecond, Bytes: []units.Bytes{1000, 2000, 4000, 0, 100}, Queue: []units.Bytes{5, 7, 3, 0, 9}}
	for _, tt := range []struct {
		ask, interval time.Duration
		bytes, queue  []units.Bytes
		use           []float64
	}{
		{time.Millisecond, 4 * time.Millisecond, s.Bytes, s.Queue, []float64{0.25, 0.5, 1, 0, 0.025}},
		{8 * time.Millisecond, 8 * time.Millisecond, []units.Bytes{3000, 4000, 100}, []units.Bytes{7, 3, 9}, []float64{0.375, 0.5, 0.0125}},
		{10 * time.Millisecond, 12 * time.Millisecond, []units.Bytes{7000, 100}, []units.Bytes{7, 9}, []float64{7. / 12, 0.1 / 12}},
		{time.Second, time.Second, []units.Bytes{7100}, []units.Bytes{9}, []float64{0.0071}},
	} {
		got := Rebin(s, tt.ask)
		if got.Interval != tt.interval || !cmp.Equal(got.Bytes, tt.bytes) || !cmp.Equal(got.Queue, tt.queue) {
			t.Errorf("Rebin(%v) = %+v", tt.ask, got)
		}
		if d := cmp.Diff(tt.use, Utilisation(got)); d != "" {
			t.Errorf("Rebin(%v): utilisation (-want +got):\n%s", tt.ask, d)
		}
	}
	if len(s.Bytes) != 5 || s.Bytes[0] != 1000 {
		t.Errorf("Rebin changed what it was given: %v", s.Bytes)
	}
}

func TestUseOf(t *testing.T) {
	s := flows.LinkSeries{Rate: 8 * units.Mbps, Interval: time.Millisecond, Bytes: []units.Bytes{1000, 500}, Queue: []units.Bytes{0, 77}, Drops: 2, Counted: true}
	if got, want := UseOf(s, 10*time.Millisecond), (LinkUse{Mean: 0.15, Peak: 1, Queue: 77, Drops: 2, Counted: true}); got != want {
		t.Errorf("UseOf = %+v, want %+v", got, want)
	}
	if got := UseOf(flows.LinkSeries{}, 0); got != (LinkUse{}) {
		t.Errorf("UseOf nothing = %+v", got)
	}
}

func TestBottleneckLinks(t *testing.T) {
	shape := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}
	kinds := func(change func(*topo.LeafSpine)) map[topo.LinkKind]int {
		s := shape
		change(&s)
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		out := map[topo.LinkKind]int{}
		for _, l := range BottleneckLinks(f) {
			out[f.Link(l).Kind]++
		}
		return out
	}
	edge, core := map[topo.LinkKind]int{topo.HostUp: 4, topo.HostDown: 4}, map[topo.LinkKind]int{topo.LeafUp: 4, topo.LeafDown: 4}
	for _, tt := range []struct {
		name   string
		want   map[topo.LinkKind]int
		change func(*topo.LeafSpine)
	}{
		{"full bisection", edge, func(s *topo.LeafSpine) { s.Uplink = 10 * units.Mbps }},
		{"oversubscribed", core, func(s *topo.LeafSpine) { s.Uplink = 9 * units.Mbps }},
		{"one slow downlink", core, func(s *topo.LeafSpine) {
			s.Uplink, s.Links = 10*units.Mbps, []topo.LinkChange{{Link: "spine0>leaf1", Rate: units.Mbps}}
		}},
		{"one rack", map[topo.LinkKind]int{topo.HostUp: 2, topo.HostDown: 2}, func(s *topo.LeafSpine) { s.Leaves, s.Spines = 1, 0 }},
	} {
		if d := cmp.Diff(tt.want, kinds(tt.change)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// Utilisations of 0.2, 0.4 and 0.6 have a Cv of 0.408; an interval without traffic does
// not count.
func TestLinkCvs(t *testing.T) {
	series := func(bytes ...units.Bytes) flows.LinkSeries {
		return flows.LinkSeries{Rate: 8 * units.Mbps, Interval: time.Millisecond, Bytes: bytes}
	}
	all := []flows.LinkSeries{series(200, 0, 300), series(999, 999, 999, 999), series(400), series(600, 0, 300)}
	got := LinkCvs(all, []topo.LinkID{0, 2, 3})
	want := []float64{math.Sqrt(2./3) / 2, math.Sqrt(0.5)}
	if len(got) != 2 || math.Abs(got[0]-want[0]) > 1e-12 || math.Abs(got[1]-want[1]) > 1e-12 {
		t.Errorf("LinkCvs = %v, want %v", got, want)
	}
	if m := Median([]float64{5, 1, 2}); m != 2 || Median(nil) != 0 {
		t.Errorf("Median = %v", m)
	}
}
