package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// Flows from the ports of SourcePort take the requested spine, by packet counters.
func TestSourcePortDecidesTheSpine(t *testing.T) {
	const spines = 4
	b := build(t, shape(2, 2, spines, 100*units.Mbps, 1500), plan.Options{Seed: 7})
	b.sink(2)
	leaf := b.ns("leaf0")
	ports := map[uint16]bool{}
	for s := range spines {
		for _, src := range []topo.HostID{0, 1} {
			want := topo.SpineName(s)
			port, err := SourcePort(leaf, b.HostName(src), b.HostAddr(src), b.HostAddr(2), testPort, want, 20000)
			if err != nil {
				t.Fatal(err)
			}
			ports[port] = true
			before, err := leaf.Links()
			if err != nil {
				t.Fatal(err)
			}
			const size = 100 * units.KB
			if _, err := b.send(flow{src: src, dst: 2, size: size, port: port}); err != nil {
				t.Fatal(err)
			}
			after, err := leaf.Links()
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range after {
				sent := l.Tx.Bytes - before[i].Tx.Bytes
				if strings.HasPrefix(l.Device, "spine") && (sent >= size) != (l.Device == want) {
					t.Errorf("port %d of %s for %s: %s carried %v", port, b.HostName(src), want, l.Device, sent)
				}
			}
		}
	}
	if len(ports) < spines {
		t.Errorf("only ports %v for %d spines", ports, spines)
	}
}

// The seed of the plan alone determines the spine of each flow.
func TestHashSeedIsReproducible(t *testing.T) {
	spines := func(seed uint64) (names []string) {
		b := build(t, shape(2, 1, 4, 100*units.Mbps, 1500), plan.Options{Seed: seed})
		if len(b.notes) > 0 {
			t.Skipf("this kernel lacks it: %q", b.notes)
		}
		for port := range uint16(64) {
			dev, err := b.ns("leaf0").NextHopDevice("h0-00", netip.AddrPortFrom(b.HostAddr(0), 20000+port), netip.AddrPortFrom(b.HostAddr(1), testPort))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, dev)
		}
		return names
	}
	first, again, other := spines(1), spines(1), spines(2)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("two builds with one seed differ:\n%s", diff)
	}
	if slices.Equal(first, other) {
		t.Error("another seed gives the same spines")
	}
	counts := map[string]int{}
	for _, dev := range first {
		counts[dev]++
	}
	if len(counts) != 4 || slices.Max(slices.Collect(func(yield func(int) bool) {
		for _, n := range counts {
			if !yield(n) {
				return
			}
		}
	})) > 32 {
		t.Errorf("64 flows over the spines: %v", counts)
	}
}

func TestNextHopErrors(t *testing.T) {
	b := build(t, shape(2, 1, 1, 50*units.Mbps, 1500), plan.Options{})
	leaf := b.ns("leaf0")
	a, z := netip.AddrPortFrom(b.HostAddr(0), 1), netip.AddrPortFrom(b.HostAddr(1), 2)
	if dev, err := leaf.NextHopDevice("h0-00", a, z); err != nil || dev != "spine0" {
		t.Errorf("NextHopDevice = %q, %v", dev, err)
	}
	if _, err := leaf.NextHopDevice("eth9", a, z); err == nil || !strings.Contains(err.Error(), "existing devices are lo, h0-00, spine0") {
		t.Errorf("through no device: %v", err)
	}
	if _, err := leaf.NextHopDevice("h0-00", a, netip.AddrPortFrom(topo.MarkAddr(), 1)); err == nil {
		t.Error("to a discarded address: no error")
	}
	if _, err := SourcePort(leaf, "h0-00", b.HostAddr(0), b.HostAddr(1), 2, "h0-00", 1); err == nil || !strings.Contains(err.Error(), "4096 ports") {
		t.Errorf("through the wrong device: %v", err)
	}
}
