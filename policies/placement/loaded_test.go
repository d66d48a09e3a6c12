package placement

import (
	"errors"
	"slices"
	"testing"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

func TestUniformShapes(t *testing.T) {
	v := cluster(t, 5, 4, 1)
	twoRacks := DefaultUniform()
	twoRacks.TwoRacks = true
	hosts, racks, home := map[topo.HostID]int{}, map[topo.RackID]int{}, 0
	for seed := range uint64(2000) {
		got := place(t, DefaultUniform(), v, block(6, units.MB, 3), seed)
		f := v.Fabric
		if got[0] != 6 || f.RackOf(got[1]) == 1 && f.RackOf(got[2]) == 1 {
			t.Fatalf("seed %d: %v", seed, got)
		}
		for _, h := range got[1:] {
			hosts[h]++
			if f.RackOf(h) == 1 {
				home++
			}
		}
		got = place(t, twoRacks, v, block(6, units.MB, 3), seed)
		a, b := f.RackOf(got[1]), f.RackOf(got[2])
		if got[0] != 6 || a == 1 || b == 1 || a == b {
			t.Fatalf("seed %d: two racks %v", seed, got)
		}
		racks[a]++
		racks[b]++
	}
	// There are 19·18/2 pairs of hosts, less the 3 inside the writer's rack.
	for h := range topo.HostID(20) {
		if n := hosts[h]; h != 6 && (n < 150 || n > 280) {
			t.Errorf("host %d drawn %d times, want about 210", h, n)
		}
	}
	if home == 0 {
		t.Error("the writer's rack never holds a second replica")
	}
	for _, r := range []topo.RackID{0, 2, 3, 4} {
		if n := racks[r]; n < 900 || n > 1100 {
			t.Errorf("rack %d drawn %d times of 2000, want about 1000", r, n)
		}
	}
	// Two racks cannot hold three replicas in different racks: the last one is in the other rack.
	small := cluster(t, 2, 3, 1)
	if got := place(t, twoRacks, small, block(0, units.MB, 3), 1); small.Fabric.RackOf(got[2]) != 1 {
		t.Errorf("two racks: %v", got)
	}
}

// Between two reports LeastLoaded places all blocks on the same hosts, while Sinbad
// chooses others.
func TestLeastLoadedRepeatsHosts(t *testing.T) {
	v := counted(t)
	repeats := DefaultLeastLoaded()
	repeats.LeafCounters = true
	first := place(t, repeats, v, block(0, 20*units.MB, 3), 1)
	if want := []topo.HostID{0, 4, 5}; !slices.Equal(first, want) {
		t.Fatalf("hosts %v, want %v", first, want)
	}
	next := with(v, 20*units.MB, first...)
	if got := place(t, repeats, next, block(0, 20*units.MB, 3), 1); !slices.Equal(got, first) {
		t.Errorf("the next block on %v, want %v again", got, first)
	}
	if got, want := place(t, byLeaf(Auto), next, block(0, 20*units.MB, 3), 1), []topo.HostID{0, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("Sinbad's next block on %v, want %v", got, want)
	}
	// Form Edge includes the rack links on the path: host 4 of rack 2 is best with 40 MB/s.
	repeats.Form = Edge
	v.Hosts[1].Rx = mbs(70)
	if got, want := place(t, repeats, v, block(0, units.MB, 2), 1), []topo.HostID{0, 4}; !slices.Equal(got, want) {
		t.Errorf("form Edge on %v, want %v", got, want)
	}
}

// Power of two chooses the least loaded host often and the most loaded one never.
func TestPowerOfTwo(t *testing.T) {
	v := cluster(t, 10, 2, 1)
	for h := range v.Hosts {
		v.Hosts[h].Rx = mbs(int64(40 + h))
	}
	v.Hosts[11].Rx, v.Hosts[12].Rx = 0, mbs(99)
	p := DefaultPowerOfTwo()
	p.Form = Edge
	drawn := map[topo.HostID]int{}
	const draws = 1000
	for seed := range uint64(draws) {
		drawn[place(t, p, v, block(0, units.MB, 2), seed)[1]]++
	}
	// There are 18 candidates: the best is one of two with probability 2/18.
	if n := drawn[11]; n < 70 || n > 160 {
		t.Errorf("the best host drawn %d times of %d, want about 111", n, draws)
	}
	if drawn[12] != 0 {
		t.Errorf("the worst host drawn %d times", drawn[12])
	}
	if len(drawn) < 15 {
		t.Errorf("only %d hosts are ever drawn", len(drawn))
	}
}

// The oracle uses the current traffic of links instead of reports, and includes blocks
// placed at this moment.
func TestOracle(t *testing.T) {
	v := counted(t)
	p := DefaultOracle()
	if _, err := p.Place(v, block(0, units.MB, 3), random(1)); !errors.Is(err, ErrNoLoads) {
		t.Errorf("without loads: %v", err)
	}
	v.Load = make([]units.Rate, len(v.Capacity))
	for r, mb := range []int64{0, 5, 40, 20} {
		v.Load[v.Fabric.LeafDown(topo.RackID(r), 0)] = mbs(mb)
	}
	v.Load[v.Fabric.HostDown(2)] = mbs(5)
	first := place(t, p, v, block(0, units.MB, 3), 1)
	if want := []topo.HostID{0, 3, 2}; !slices.Equal(first, want) {
		t.Errorf("hosts %v, want %v", first, want)
	}
	next := with(v, units.MB, first...)
	if got := place(t, p, next, block(0, units.MB, 3), 1); next.Fabric.RackOf(got[1]) != 3 {
		t.Errorf("the next at the same moment on %v, want rack 3", got)
	}
	next.Now++
	if got := place(t, p, next, block(0, units.MB, 3), 1); !slices.Equal(got, first) {
		t.Errorf("later on %v, want %v", got, first)
	}
}

// Every policy and its fallback obey the host patterns, which are never relaxed.
func TestHostsAreNeverRelaxed(t *testing.T) {
	const only = "h1-*,h3-00"
	in := []topo.HostID{2, 3, 6}
	c := DefaultConstraints()
	c.Hosts = only
	s := DefaultSteering()
	s.Hosts = only
	hdfs := DefaultHDFS()
	hdfs.Hosts = only
	v := counted(t)
	v.Load = make([]units.Rate, len(v.Capacity))
	sinbad := DefaultSinbad()
	sinbad.Steering = s
	small := sinbad
	small.Threshold = units.GB
	for _, p := range []policies.Placer{hdfs, Uniform{Constraints: c}, Uniform{TwoRacks: true, Constraints: c}, sinbad, small,
		LeastLoaded{s, DefaultEstimate()}, PowerOfTwo{s, DefaultEstimate()}, Oracle{s}} {
		for seed := range uint64(30) {
			got := place(t, p, v, block(topo.HostID(seed%8), units.MB, 3), seed)
			if slices.Sort(got); !slices.Equal(got, in) {
				t.Fatalf("%T: hosts %v, want %v", p, got, in)
			}
		}
		if _, err := p.Place(v, block(0, units.MB, 4), random(1)); !errors.Is(err, ErrNoRoom) {
			t.Errorf("%T: four replicas on three hosts: %v", p, err)
		}
	}
	for _, bad := range []string{"h9-*", "[", ",", "h0-00,"} {
		hdfs.Hosts, s.Hosts = bad, bad
		for _, p := range []policies.Placer{hdfs, PowerOfTwo{s, DefaultEstimate()}, Uniform{Constraints: Constraints{Hosts: bad}}} {
			if got, err := p.Place(v, block(0, units.MB, 1), random(1)); err == nil {
				t.Errorf("%T with hosts %q: %v, want an error", p, bad, got)
			}
		}
	}
}
