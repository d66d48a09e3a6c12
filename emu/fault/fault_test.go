package fault

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo"
	"testbed/topo/units"
)

func fabric(t rapid.TB) *topo.Fabric {
	f, err := topo.LeafSpine{Leaves: 3, Spines: 2, HostsPerLeaf: 2, HostLink: 100 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func both(f *topo.Fabric, r topo.RackID, s int) []topo.LinkID {
	return []topo.LinkID{f.LeafUp(r, s), f.LeafDown(r, s)}
}

// TestIdle checks that a fault is idle only if the timeline is the same without it. One that
// ends another's effect, or overrides a part of it, is not idle.
func TestIdle(t *testing.T) {
	f := fabric(t)
	const s = time.Second
	slower := Fault{Kind: LinkRate, Name: "slower", At: s, For: 4 * s, Rate: 10 * units.Mbps, Links: []topo.LinkID{0}}
	asBuilt := Fault{Kind: LinkRate, Name: "as built", At: 2 * s, For: s, Rate: 100 * units.Mbps, Links: []topo.LinkID{0}}
	cut := Fault{Kind: LinkDown, Name: "cut", At: s, For: 4 * s, Links: []topo.LinkID{2, 3}}
	within := Fault{Kind: LinkDown, Name: "within", At: 2 * s, For: s, Links: []topo.LinkID{2, 3}}
	working := Fault{Kind: SlowCPU, Name: "working", At: s, Host: 1, Share: 1}
	for _, tt := range []struct {
		name   string
		faults []Fault
		want   []int
	}{
		{"none", nil, nil},
		{"rates", []Fault{slower, {Kind: SlowCPU, At: s, Host: 1, Share: 0.99}}, nil},
		{"the rate as built", []Fault{asBuilt, cut}, []int{0}},
		{"the rate as built within another", []Fault{asBuilt, slower}, nil},
		{"a cut within a cut", []Fault{cut, within}, nil},
		{"all of the processor", []Fault{slower, working, {Kind: SlowCPU, At: 5 * s, Host: 1, Share: 0.5}}, []int{1}},
	} {
		if got, err := Idle(f, tt.faults); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if _, err := Idle(f, []Fault{{Kind: LinkRate, Links: []topo.LinkID{0}}}); err == nil || !strings.Contains(err.Error(), "must be positive") {
		t.Errorf("a rate of 0: %v", err)
	}
}

func TestCompile(t *testing.T) {
	f := fabric(t)
	up, down := f.HostUp(1), f.HostDown(1)
	const s = time.Second
	for _, tt := range []struct {
		name   string
		faults []Fault
		want   string
	}{
		{"for a while", []Fault{{Kind: LinkDown, Name: "a", At: s, For: 2 * s, Links: []topo.LinkID{up, down}}},
			"1s SetLink{2 false} a; 1s SetLink{3 false} a; 3s SetLink{2 true} a; 3s SetLink{3 true} a"},
		{"for good", []Fault{{Kind: HostCrash, Name: "a", At: s, Host: 1}},
			"1s SetLink{2 false} a; 1s SetLink{3 false} a; 1s Crash{1 false} a"},
		{"flap", []Fault{{Kind: LinkFlap, Name: "a", Down: s, Up: 2 * s, Times: 2, Links: []topo.LinkID{2, 3}}},
			"0s SetLink{2 false} a; 0s SetLink{3 false} a; 1s SetLink{2 true} a; 1s SetLink{3 true} a; 3s SetLink{2 false} a; 3s SetLink{3 false} a; 4s SetLink{2 true} a; 4s SetLink{3 true} a"},
		{"held by two", []Fault{{Kind: LinkDown, Name: "a", At: s, For: 2 * s, Links: []topo.LinkID{2, 3}}, {Kind: HostCrash, Name: "b", At: 2 * s, For: 2 * s, Host: 1, DiskLost: true}},
			"1s SetLink{2 false} a; 1s SetLink{3 false} a; 2s Crash{1 true} b; 4s SetLink{2 true} b; 4s SetLink{3 true} b; 4s Return{1 true} b"},
		{"the last rate wins and the first is there again after it", []Fault{
			{Kind: LinkRate, Name: "a", At: 0, For: 4 * s, Rate: 10 * units.Mbps, Links: []topo.LinkID{0}}, {Kind: LinkRate, Name: "b", At: s, For: s, Rate: 20 * units.Mbps, Links: []topo.LinkID{0}}},
			"0s SetRate{0 10Mbps} a; 1s SetRate{0 20Mbps} b; 2s SetRate{0 10Mbps} b; 4s SetRate{0 100Mbps} a"},
		{"one ends as another begins", []Fault{{Kind: LinkDown, Name: "a", For: s, Links: []topo.LinkID{2, 3}}, {Kind: LinkDown, Name: "b", At: s, For: s, Links: []topo.LinkID{2, 3}}},
			"0s SetLink{2 false} a; 0s SetLink{3 false} a; 2s SetLink{2 true} b; 2s SetLink{3 true} b"},
		{"a disk lost in the first of two crashes in a row", []Fault{{Kind: HostCrash, Name: "a", For: 2 * s, Host: 1, DiskLost: true}, {Kind: HostCrash, Name: "b", At: s, For: 2 * s, Host: 1}},
			"0s SetLink{2 false} a; 0s SetLink{3 false} a; 0s Crash{1 true} a; 3s SetLink{2 true} b; 3s SetLink{3 true} b; 3s Return{1 true} b"},
		{"slow", []Fault{{Kind: SlowDisk, Name: "a", For: s, Host: 1, Rate: 8 * units.Mbps}, {Kind: SlowCPU, Name: "b", For: s, Host: 2, Share: 0.25}},
			"0s SetDisk{1 8Mbps} a; 0s SetCPU{2 0.25} b; 1s SetDisk{1 0bps} a; 1s SetCPU{2 1} b"},
		{"reports", []Fault{{Kind: LateReports, Name: "a", For: 4 * s, Hosts: []topo.HostID{1, 2}, By: s}, {Kind: LostReports, Name: "b", At: s, For: s, Hosts: []topo.HostID{2}},
			{Kind: LateReports, Name: "c", At: 3 * s, Hosts: []topo.HostID{1}, By: 2 * s}},
			"0s SetReports{1 false 1s} a; 0s SetReports{2 false 1s} a; 1s SetReports{2 true 0s} b; 2s SetReports{2 false 1s} b; 3s SetReports{1 false 2s} c; 4s SetReports{2 false 0s} a"},
		{"spine", []Fault{{Kind: SpineDown, Name: "a", Spine: 1}},
			"0s SetLink{14 false} a; 0s SetLink{15 false} a; 0s SetLink{18 false} a; 0s SetLink{19 false} a; 0s SetLink{22 false} a; 0s SetLink{23 false} a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps, err := Compile(f, tt.faults)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range steps {
				name := strings.TrimPrefix(fmt.Sprintf("%T", s.Action), "fault.")
				got = append(got, fmt.Sprintf("%v %s%v %s", s.At, name, s.Action, s.Why))
			}
			if g := strings.Join(got, "; "); g != tt.want {
				t.Errorf("Compile() =\n%s, want\n%s", g, tt.want)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	f := fabric(t)
	for _, tt := range []struct {
		name string
		x    Fault
		want string
	}{
		{"one direction", Fault{Kind: LinkDown, Links: []topo.LinkID{2}}, "in one direction only"},
		{"no link", Fault{Kind: LinkRate, Rate: 1}, "no link"},
		{"no such link", Fault{Kind: LinkRate, Rate: 1, Links: []topo.LinkID{999}}, "link 999"},
		{"no such host", Fault{Kind: HostCrash, Host: 6}, "host 6"},
		{"no such spine", Fault{Kind: SpineDown, Spine: 2}, "spine 2"},
		{"no rate", Fault{Kind: SlowDisk}, "rate 0bps"},
		{"no share", Fault{Kind: SlowCPU}, "share 0"},
		{"small share", Fault{Kind: SlowCPU, Share: MinShare / 2}, "must be 0.01 to 1"},
		{"no flap", Fault{Kind: LinkFlap, Links: []topo.LinkID{2, 3}}, "0 times"},
		{"before the start", Fault{Kind: HostCrash, At: -1}, "must not be negative"},
		{"reports of no host", Fault{Kind: LostReports}, "no host"},
		{"reports of an unknown host", Fault{Kind: LateReports, By: 1, Hosts: []topo.HostID{0, 6}}, "host 6"},
		{"not late", Fault{Kind: LateReports, Hosts: []topo.HostID{0}}, "by 0s"},
		{"no kind", Fault{Kind: "fire"}, `unknown kind "fire"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Compile(f, []Fault{tt.x}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Compile() = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestTimelineMatchesFaults executes the timeline and compares the state, at every time,
// with that of the faults taken one by one.
func TestTimelineMatchesFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fabric(t)
		var faults []Fault
		tick := func(name string, least int) time.Duration {
			return time.Duration(rapid.IntRange(least, 6).Draw(t, name))
		}
		for i := range rapid.IntRange(0, 7).Draw(t, "faults") {
			x := Fault{Name: fmt.Sprint(i), At: tick("at", 0), For: tick("for", 0), Kind: rapid.SampledFrom([]Kind{LinkDown, LinkFlap, LinkRate, HostCrash, SlowDisk, SlowCPU, SpineDown, LostReports, LateReports}).Draw(t, "kind"), By: tick("by", 1),
				Host: topo.HostID(rapid.IntRange(0, 1).Draw(t, "host")), Spine: rapid.IntRange(0, 1).Draw(t, "spine"),
				Rate: units.Rate(rapid.IntRange(1, 3).Draw(t, "rate")), Share: float64(rapid.IntRange(1, 3).Draw(t, "share")) / 4,
				Down: tick("down", 1), Up: tick("up", 1), Times: rapid.IntRange(1, 3).Draw(t, "times")}
			x.Links = rapid.SampledFrom([][]topo.LinkID{{0, 1}, {2, 3}, both(f, 0, 0), both(f, 1, 1)}).Draw(t, "links")
			x.Hosts = rapid.SampledFrom([][]topo.HostID{{0}, {1}, {0, 1}}).Draw(t, "hosts")
			faults = append(faults, x)
		}
		steps, err := Compile(f, faults)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(steps, func(a, b Step) int { return int(a.At - b.At) }) {
			t.Fatalf("steps out of order: %v", steps)
		}
		holds := func(x Fault, at time.Duration) bool {
			if x.Kind == LinkFlap {
				since := at - x.At
				return since >= 0 && since < (x.Down+x.Up)*time.Duration(x.Times) && since%(x.Down+x.Up) < x.Down
			}
			return x.At <= at && (x.For == 0 || at < x.At+x.For)
		}
		s := untouched(f)
		for at := time.Duration(0); at < 60; at++ {
			for len(steps) > 0 && steps[0].At <= at {
				if steps[0].Why == "" {
					t.Fatalf("step without a reason: %v", steps[0])
				}
				switch a := steps[0].Action.(type) {
				case SetLink:
					if s.down[a.Link] == !a.Up {
						t.Fatalf("%v changes nothing", a)
					}
					s.down[a.Link] = !a.Up
				case SetRate:
					s.rate[a.Link] = a.Rate
				case Crash:
					if s.crashed[a.Host] || !s.down[f.HostUp(a.Host)] || !s.down[f.HostDown(a.Host)] {
						t.Fatalf("%v of a host that is crashed or linked", a)
					}
					s.crashed[a.Host] = true
				case Return:
					if !s.crashed[a.Host] {
						t.Fatalf("%v of a host that is there", a)
					}
					s.crashed[a.Host] = false
				case SetDisk:
					s.disk[a.Host] = a.Rate
				case SetCPU:
					s.cpu[a.Host] = a.Share
				case SetReports:
					s.lost[a.Host], s.by[a.Host] = a.Lost, a.By
				}
				steps = steps[1:]
			}
			for l := range s.down {
				want := false
				for _, x := range faults {
					link := f.Link(topo.LinkID(l))
					onHost := link.Kind == topo.HostUp || link.Kind == topo.HostDown
					cut := (x.Kind == LinkDown || x.Kind == LinkFlap) && slices.Contains(x.Links, topo.LinkID(l)) ||
						x.Kind == HostCrash && onHost && link.Host == x.Host || x.Kind == SpineDown && !onHost && link.Spine == x.Spine
					want = want || cut && holds(x, at)
				}
				if s.down[l] != want {
					t.Fatalf("at %d: link %s down is %v, want %v", at, f.LinkName(topo.LinkID(l)), s.down[l], want)
				}
			}
			for h := range s.crashed {
				crashed, disk, cpu := false, units.Rate(0), 1.0
				latestDisk, latestCPU := time.Duration(-1), time.Duration(-1)
				lost, by, latestBy := false, time.Duration(0), time.Duration(-1)
				for _, x := range faults {
					if !holds(x, at) || !slices.Contains(x.Hosts, topo.HostID(h)) {
						continue
					}
					lost = lost || x.Kind == LostReports
					if x.Kind == LateReports && x.At >= latestBy {
						by, latestBy = x.By, x.At
					}
				}
				if lost {
					by = 0
				}
				if s.lost[h] != lost || s.by[h] != by {
					t.Fatalf("at %d: reports of host %d are lost %v, late by %d, want %v, %d", at, h, s.lost[h], s.by[h], lost, by)
				}
				for _, x := range faults {
					if int(x.Host) != h || !holds(x, at) {
						continue
					}
					crashed = crashed || x.Kind == HostCrash
					if x.Kind == SlowDisk && x.At >= latestDisk {
						disk, latestDisk = x.Rate, x.At
					}
					if x.Kind == SlowCPU && x.At >= latestCPU {
						cpu, latestCPU = x.Share, x.At
					}
				}
				if s.crashed[h] != crashed || s.disk[h] != disk || s.cpu[h] != cpu {
					t.Fatalf("at %d: host %d is crashed %v, disk %v, cpu %v, want %v, %v, %v", at, h, s.crashed[h], s.disk[h], s.cpu[h], crashed, disk, cpu)
				}
			}
		}
	})
}

func TestHarms(t *testing.T) {
	f := fabric(t)
	quiet := []Fault{{Kind: LostReports, Hosts: []topo.HostID{1}}, {Kind: LateReports, By: 1, Hosts: []topo.HostID{2}}}
	for _, tt := range []struct {
		faults []Fault
		want   bool
	}{{nil, false}, {quiet, false}, {append(quiet, Fault{Kind: SlowDisk, Rate: 1}), true}} {
		steps, err := Compile(f, tt.faults)
		if got := steps.Harms(); err != nil || got != tt.want {
			t.Errorf("%v harms: %v, %v, want %v", tt.faults, got, err, tt.want)
		}
	}
}

func TestRoutes(t *testing.T) {
	f := fabric(t)
	r := NewRoutes(f)
	spines := func(src, dst topo.RackID, want ...int) {
		t.Helper()
		if got := r.Spines(src, dst); !slices.Equal(got, want) {
			t.Errorf("Spines(%d, %d) = %v, want %v", src, dst, got, want)
		}
	}
	spines(0, 1, 0, 1)
	for _, l := range both(f, 1, 0) {
		r.SetLink(l, false)
	}
	spines(1, 0, 1)    // its own link: at once
	spines(0, 1, 0, 1) // another leaf's link: not before Propagate
	for _, l := range both(f, 1, 0) {
		r.Propagate(l)
	}
	spines(0, 1, 1)
	spines(0, 2, 0, 1) // to a rack that the spine still reaches
	for _, hash := range []uint32{0, 1, 2, 3, 6, 7} {
		if s, ok := r.Spine(0, 2, hash); !ok || s != 1 {
			t.Errorf("Spine(hash %d) = %d, %v, want 1", hash, s, ok)
		}
	}
	if s, _ := r.Spine(0, 4, 6); s != 0 {
		t.Errorf("a flow that the fault does not touch moves to spine %d", s)
	}
	for _, l := range both(f, 1, 1) {
		r.SetLink(l, false)
		r.Propagate(l)
	}
	spines(0, 1, 0, 1) // no path left: all own spines
	spines(1, 0)
	if s, _ := r.Spine(2, 0, 1); s != 1 {
		t.Errorf("a leaf without a spine moves its flow to %d", s)
	}
	for _, l := range append(both(f, 1, 0), both(f, 1, 1)...) {
		r.SetLink(l, true)
		r.Propagate(l)
	}
	spines(0, 1, 0, 1)
}
