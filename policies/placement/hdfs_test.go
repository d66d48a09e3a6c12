package placement

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// cluster returns a View of idle hosts with links of 100 MB/s.
func cluster(t testing.TB, racks, hostsPerRack int, oversubscription int64) *policies.PlacementView {
	t.Helper()
	spines := 1
	if racks == 1 {
		spines = 0
	}
	f, err := topo.LeafSpine{Leaves: racks, Spines: spines, HostsPerLeaf: hostsPerRack, HostLink: mbs(100),
		Oversubscription: units.Ratio{Num: oversubscription, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	v := &policies.PlacementView{Cluster: &policies.Cluster{Fabric: f, Hosts: make([]policies.HostState, f.Hosts())}}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
	}
	for h := range v.Hosts {
		v.Hosts[h] = policies.HostState{LastReport: -1, NextReport: time.Second, Disk: 100 * units.GB}
	}
	return v
}

// mbs returns a rate of n MB/s.
func mbs(n int64) units.Rate { return units.Rate(n) * 8 * units.Mbps }

func block(client topo.HostID, size units.Bytes, replicas int) workloads.Block {
	return workloads.Block{ID: 1, Client: client, Size: size, Replicas: replicas, Packet: 64 * units.KB, Window: 80}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func place(t testing.TB, p policies.Placer, v *policies.PlacementView, b workloads.Block, seed uint64) []topo.HostID {
	t.Helper()
	hosts, err := p.Place(v, b, random(seed))
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

func TestContract(t *testing.T) {
	waits, twoRacks := DefaultSinbad(), DefaultUniform()
	waits.Interval, twoRacks.TwoRacks = time.Second, true
	contract := []policies.Placer{DefaultHDFS(), HDFS{}, Sinbad{Threshold: units.MB, Steering: Steering{Constraints: DefaultConstraints()}}, waits, twoRacks}
	for _, form := range []Form{Auto, Literal, SameRack, Edge} {
		for _, p := range steered(form, DefaultConstraints()) {
			contract = append(contract, p)
		}
	}
	for _, p := range contract {
		policytest.Placer(t, p)
	}
}

func TestHDFSTwoRacks(t *testing.T) {
	v := cluster(t, 2, 2, 1)
	second := map[topo.HostID]int{}
	for seed := range uint64(200) {
		got := place(t, DefaultHDFS(), v, block(0, 64*units.MB, 3), seed)
		if got[0] != 0 || !slices.Contains(got, 2) || !slices.Contains(got, 3) {
			t.Fatalf("seed %d: %v, want 0, then 2 and 3", seed, got)
		}
		second[got[1]]++
	}
	if second[2] < 70 || second[3] < 70 {
		t.Errorf("second replica on %v, want both with similar frequency", second)
	}
}

func TestHDFSSingleRack(t *testing.T) {
	if got := maxPerRack(3, 1); got != 4 {
		t.Errorf("maxPerRack(3, 1) = %d, want 4", got)
	}
	got := place(t, DefaultHDFS(), cluster(t, 1, 5, 1), block(2, 64*units.MB, 3), 1)
	if len(got) != 3 || got[0] != 2 {
		t.Errorf("%v, want three hosts from 2", got)
	}
}

// The second replica's rack is drawn with probability proportional to its number of
// hosts, and the third replica is in the same rack.
func TestHDFSShape(t *testing.T) {
	v := cluster(t, 5, 4, 1)
	racks := map[topo.RackID]int{}
	for seed := range uint64(400) {
		got := place(t, DefaultHDFS(), v, block(6, 64*units.MB, 3), seed)
		f := v.Fabric
		if got[0] != 6 || f.RackOf(got[1]) == 1 || f.RackOf(got[1]) != f.RackOf(got[2]) {
			t.Fatalf("seed %d: %v", seed, got)
		}
		racks[f.RackOf(got[1])]++
	}
	for _, r := range []topo.RackID{0, 2, 3, 4} {
		if racks[r] < 60 || racks[r] > 140 {
			t.Errorf("rack %d drawn %d times of 400, want about 100", r, racks[r])
		}
	}
}

func TestHDFSMaxPerRack(t *testing.T) {
	v := cluster(t, 3, 6, 1)
	for seed := range uint64(100) {
		per := map[topo.RackID]int{}
		for _, h := range place(t, DefaultHDFS(), v, block(0, units.MB, 7), seed) {
			per[v.Fabric.RackOf(h)]++
		}
		for r, n := range per {
			if n > maxPerRack(7, 3) {
				t.Errorf("seed %d: %d replicas in rack %d, want at most %d", seed, n, r, maxPerRack(7, 3))
			}
		}
	}
}

func TestHDFSConsiderLoad(t *testing.T) {
	v := cluster(t, 4, 5, 1)
	for h := range v.Hosts {
		v.Hosts[h].Writing = 1
	}
	v.Hosts[7].Writing = 9 // the average is 1.4
	count := func(p HDFS) (n int) {
		for seed := range uint64(300) {
			if slices.Contains(place(t, p, v, block(0, units.MB, 3), seed), 7) {
				n++
			}
		}
		return n
	}
	if n := count(HDFS{ConsiderLoad: true}); n != 0 {
		t.Errorf("overloaded host chosen %d times", n)
	}
	if n := count(HDFS{}); n == 0 {
		t.Error("without ConsiderLoad the host is never chosen")
	}
	v.Hosts[7].Writing = 2 // 2 is not more than twice 1.05
	if n := count(HDFS{ConsiderLoad: true}); n == 0 {
		t.Error("a host with less than twice the average is never chosen")
	}
}

func TestHDFSRoom(t *testing.T) {
	v := cluster(t, 3, 2, 1)
	v.Hosts[0].Used = v.Hosts[0].Disk // the writer has no room
	b := block(0, units.GB, 3)
	for seed := range uint64(20) {
		if got := place(t, DefaultHDFS(), v, b, seed); got[0] != 1 {
			t.Errorf("seed %d: %v, want the first on the writer's neighbour", seed, got)
		}
	}
	// MinBlocks is relaxed last: room for one block is enough then.
	for h := range v.Hosts {
		v.Hosts[h].Used = v.Hosts[h].Disk - 2*units.GB
	}
	if got := place(t, DefaultHDFS(), v, b, 1); got[0] != 0 {
		t.Errorf("%v, want the writer first", got)
	}
	for h := range v.Hosts {
		v.Hosts[h].Used = v.Hosts[h].Disk - units.GB + 1
	}
	v.Hosts[2].Used = 0
	if got, err := DefaultHDFS().Place(v, b, random(1)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("full disks: %v, %v", got, err)
	}
}

func TestRejectsInvalid(t *testing.T) {
	v := cluster(t, 2, 2, 1)
	for _, p := range []policies.Placer{DefaultHDFS(), DefaultSinbad(), DefaultUniform(), DefaultOracle(), DefaultLeastLoaded(), DefaultPowerOfTwo()} {
		for _, b := range []workloads.Block{block(0, units.MB, 0), block(0, units.MB, 5), block(-1, units.MB, 2), block(4, units.MB, 2)} {
			if got, err := p.Place(v, b, random(1)); err == nil {
				t.Errorf("%T: %d replicas from host %d: %v, want an error", p, b.Replicas, b.Client, got)
			}
		}
	}
	for i, spoil := range []func(*Sinbad){
		func(p *Sinbad) { p.Tolerance = -1 }, func(p *Sinbad) { p.Faults = -1 }, func(p *Sinbad) { p.Partitions = -1 },
		func(p *Sinbad) { p.Form = Edge + 1 }, func(p *Sinbad) { p.Fallback = ToEdge + 1 }, func(p *Sinbad) { p.Grace = -1 },
		func(p *Sinbad) { p.Grace = math.NaN() }, func(p *Sinbad) { p.Fraction = 1.1 }, func(p *Sinbad) { p.Fraction = math.NaN() },
		func(p *Sinbad) { p.Threshold = -1 }, func(p *Sinbad) { p.MinDelta = -1 }, func(p *Sinbad) { p.Interval = -1 }, func(p *Sinbad) { p.Hosts = "[" },
	} {
		p := DefaultSinbad()
		if spoil(&p); p.check() == nil {
			t.Errorf("invalid setting %d accepted: %+v", i, p)
		}
		if _, err := p.Place(v, block(0, 1, 1), random(1)); err == nil {
			t.Errorf("placed with invalid setting %d: %+v", i, p)
		}
	}
	v.Zone = []int{1}
	if _, err := DefaultUniform().Place(v, block(0, 1, 1), random(1)); err == nil {
		t.Error("zones of one rack of two accepted")
	}
}

func TestNearestNextChain(t *testing.T) {
	f := cluster(t, 3, 3, 1).Fabric
	for _, tt := range []struct {
		writer topo.HostID
		hosts  []topo.HostID
		want   []topo.HostID
	}{
		{0, []topo.HostID{0, 4, 5}, []topo.HostID{0, 4, 5}},
		{0, []topo.HostID{4, 0, 5}, []topo.HostID{0, 4, 5}},
		{0, []topo.HostID{7, 4, 1, 8, 5}, []topo.HostID{1, 7, 8, 4, 5}},
		{2, []topo.HostID{7, 4}, []topo.HostID{7, 4}},
		{2, nil, []topo.HostID{}},
	} {
		if got := nearestNextChain(f, tt.writer, tt.hosts); !slices.Equal(got, tt.want) {
			t.Errorf("chain from %d over %v = %v, want %v", tt.writer, tt.hosts, got, tt.want)
		}
	}
}
