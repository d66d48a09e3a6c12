package live

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/fidelity"
	"testbed/emu/kernel/netnstest"
	"testbed/results/tooltest"
	"testbed/results/verdict"
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

// Wherever a delay is hidden, and whichever spine the ways back take, the links that the reason singles out contain the delayed
// one. With one spine there are such links for each.
func TestDelayedLinkIsSingledOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := topo.LeafSpine{Leaves: rapid.IntRange(1, 4).Draw(t, "leaves"), Spines: rapid.IntRange(1, 3).Draw(t, "spines"), HostsPerLeaf: rapid.IntRange(1, 4).Draw(t, "hosts"),
			HostLink: 50 * units.Mbps, Uplink: 50 * units.Mbps, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}
		f, err := shape.Build()
		if err != nil {
			t.Fatal(err)
		}
		paths := probedPaths(f)
		if len(paths) == 0 {
			t.Skip("one host")
		}
		delayed := rapid.SampledFrom(rapid.SampledFrom(paths).Draw(t, "path").Links).Draw(t, "link")
		var s fidelity.Samples
		for _, p := range paths {
			r := p.RoundTrip
			r.Before = time.Duration(rapid.IntRange(10, 40).Draw(t, "before")) * time.Microsecond
			r.After = time.Duration(rapid.IntRange(10, 40).Draw(t, "after")) * time.Microsecond
			for _, id := range slices.Concat(f.Path(p.src, p.dst, p.hash), f.Path(p.dst, p.src, rapid.Uint32().Draw(t, "hash back"))) {
				if f.LinkName(id) == delayed {
					r.After += time.Millisecond
				}
			}
			s.RoundTrips = append(s.RoundTrips, r)
		}
		v := fidelity.Judge(s, fidelity.Default())
		c := v.Checks[slices.IndexFunc(v.Checks, func(c verdict.Check) bool { return c.Name == "round-trip" })]
		_, links, ok := strings.Cut(c.Reason, "delays packets (")
		if c.Level != verdict.Degraded || ok && !strings.Contains(links, delayed) || !ok && shape.Spines == 1 {
			t.Errorf("1 ms at %s: %v: %s", delayed, c.Level, c.Reason)
		}
	})
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
