package live

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/results/tooltest"
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

// A host that does not answer is noticed and does not hold up the start, and captures and counters have no packets of the
// measurement.
func TestRoundTripsOfABrokenFabric(t *testing.T) {
	tooltest.Need(t, "ip", "nsenter")
	netnstest.Require(t)
	var begun time.Time
	r := newRigWith(t, 50*units.Mbps, nil, nil, nil, func(c *Config) {
		if out, err := exec.Command("nsenter", "--net="+filepath.Join(c.Pins, "leaf0"), "ip", "route", "add", "blackhole", "10.0.1.1/32").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		begun = time.Now()
	})
	if took, most := time.Since(begun), netnstest.Patience(3*time.Second); took > most {
		t.Errorf("the start took %v, want %v at most", took, most)
	}
	m, res := r.finish(t)
	answered := 0
	resend := map[string]bool{} // hosts that answer h0-01 send their answers again
	for _, p := range m.RoundTrips {
		broken := slices.Contains([]string{p.From, p.To}, "h0-01")
		if broken && (p.Before > 0 || p.After > 0) {
			t.Errorf("%+v, want no answer", p)
		}
		if broken {
			resend[p.From], resend[p.To] = true, true
		}
		if p.Before > 0 && p.After > 0 {
			answered++
		}
	}
	if answered == 0 {
		t.Errorf("no round trip was measured: %+v", m.RoundTrips)
	}
	for _, c := range res.Captures {
		for _, face := range c.Interfaces {
			if n := face.Out.Packets + face.In.Packets; n > 0 && face.Name == "eth0" && !resend[c.Host] {
				t.Errorf("%s: its capture has %d packets", c.Host, n)
			}
		}
	}
}
