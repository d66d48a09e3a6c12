package topo

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

func TestBigSwitch(t *testing.T) {
	f, err := BigSwitch(1000, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	if f.Hosts() != 1000 || len(f.Links()) != 2000 {
		t.Errorf("%d hosts and %d links, want 1000 and 2000", f.Hosts(), len(f.Links()))
	}
	if d := cmp.Diff([]LinkID{f.HostUp(3), f.HostDown(999)}, f.Path(3, 999, 17)); d != "" {
		t.Errorf("path (-want +got):\n%s", d)
	}
	for _, l := range f.Links() {
		if l.Rate != units.Gbps {
			t.Fatalf("link %s has %v, want 1Gbps", f.LinkName(l.ID), l.Rate)
		}
	}
	for _, bad := range []struct {
		hosts int
		rate  units.Rate
	}{{0, units.Gbps}, {MaxBigSwitch + 1, units.Gbps}, {2, 0}} {
		if _, err := BigSwitch(bad.hosts, bad.rate); err == nil {
			t.Errorf("BigSwitch(%d, %v): no error", bad.hosts, bad.rate)
		}
	}
}
