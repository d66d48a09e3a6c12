package live

import (
	"testing"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// The paths that are measured contain every link.
func TestProbedPaths(t *testing.T) {
	for _, shape := range []topo.LeafSpine{
		{Leaves: 3, Spines: 2, HostsPerLeaf: 2, Delay: time.Millisecond},
		{Leaves: 2, Spines: 3, HostsPerLeaf: 1},
		{Leaves: 1, HostsPerLeaf: 4},
		{Leaves: 1, HostsPerLeaf: 1},
	} {
		shape.HostLink, shape.Uplink, shape.Queue.Time, shape.MTU = 50*units.Mbps, 50*units.Mbps, 20*time.Millisecond, 1500
		f, err := shape.Build()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, p := range probedPaths(f) {
			for _, l := range p.Links {
				seen[l] = true
			}
			if want := time.Duration(2*len(p.Links)) * shape.Delay; p.Planned != want {
				t.Errorf("%v: %v planned, want %v", p.Links, p.Planned, want)
			}
		}
		if want := len(f.Links()); len(seen) != want && f.Hosts() > 1 {
			t.Errorf("%+v: paths contain %d links of %d", shape, len(seen), want)
		}
	}
}
