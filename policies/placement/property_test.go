package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// steered returns policies that choose by link loads, and uniform, with given settings.
func steered(form Form, c Constraints) map[string]policies.Placer {
	s := DefaultSteering()
	s.Form, s.Constraints = form, c
	leaf := Estimate{Grace: 0.5, LeafCounters: true}
	return map[string]policies.Placer{
		"sinbad":       Sinbad{Steering: s, Estimate: DefaultEstimate()},
		"sinbad, path": Sinbad{Steering: s, Estimate: DefaultEstimate(), WholePath: true},
		"sinbad, leaf": Sinbad{Steering: s, Estimate: leaf, NoDiskCap: true},
		"least-loaded": LeastLoaded{s, DefaultEstimate()},
		"power-of-two": PowerOfTwo{s, leaf},
		"oracle":       Oracle{s},
		"uniform":      Uniform{TwoRacks: form == Literal, Constraints: c},
	}
}

// randomView returns a random cluster with loads, used disks and zones.
func randomView(t *rapid.T) *policies.PlacementView {
	racks, hosts := rapid.IntRange(1, 6).Draw(t, "racks"), rapid.IntRange(1, 5).Draw(t, "hosts per rack")
	spines := 1
	if racks == 1 {
		spines, hosts = 0, hosts+1
	}
	f, err := topo.LeafSpine{Leaves: racks, Spines: spines, HostsPerLeaf: hosts, HostLink: mbs(100),
		Oversubscription: units.Ratio{Num: rapid.Int64Range(1, 4).Draw(t, "oversubscription"), Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	v := &policies.PlacementView{Cluster: &policies.Cluster{Fabric: f, Now: 10 * time.Second, DiskRate: mbs(rapid.Int64Range(0, 2).Draw(t, "disk") * 30)}}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
		v.Load = append(v.Load, units.Rate(rapid.Int64Range(0, int64(l.Rate)).Draw(t, "load")))
	}
	for range f.Hosts() {
		v.Hosts = append(v.Hosts, policies.HostState{LastReport: 10 * time.Second, NextReport: 11 * time.Second, Disk: 100 * units.GB,
			Used: units.Bytes(rapid.Int64Range(0, 100).Draw(t, "used")) * units.GB, Rx: mbs(rapid.Int64Range(0, 100).Draw(t, "rx")),
			Lost: rapid.IntRange(0, 9).Draw(t, "lost") == 0})
	}
	for range racks {
		v.Zone = append(v.Zone, rapid.IntRange(0, 2).Draw(t, "zone"))
		v.Racks = append(v.Racks, policies.RackState{Rx: mbs(rapid.Int64Range(0, 100).Draw(t, "rack rx"))})
	}
	return v
}

// Replicas are on different hosts and satisfy the constraints whenever that is possible.
func TestConstraintsAreSatisfied(t *testing.T) {
	steeredOnce := 0
	rapid.Check(t, func(t *rapid.T) {
		v := randomView(t)
		f := v.Fabric
		c := Constraints{Tolerance: rapid.SampledFrom([]int{5, 10, 40, NoTolerance}).Draw(t, "tolerance"), Faults: rapid.IntRange(0, 3).Draw(t, "faults"), Partitions: rapid.IntRange(0, 3).Draw(t, "partitions")}
		b := block(topo.HostID(rapid.IntRange(0, f.Hosts()-1).Draw(t, "client")), units.GB, rapid.IntRange(1, min(4, f.Hosts())).Draw(t, "replicas"))
		form := Form(rapid.IntRange(0, 3).Draw(t, "form"))
		seed := rapid.Uint64().Draw(t, "seed")
		limit := c.balance(v)
		for name, p := range steered(form, c) {
			hosts, err := p.Place(v, b, random(seed))
			if err != nil {
				continue // TestContract checks whether an error is allowed
			}
			if again := place2(t, p, v, b, seed); !slices.Equal(again, hosts) {
				t.Fatalf("%s: same seed, %v and %v", name, hosts, again)
			}
			w := criteria{form: DefaultSteering().form(f), candidates: 1}
			if form != Auto && f.Racks() > 1 {
				w.form = form
			}
			if name == "uniform" && w.form == SameRack {
				w.form = Edge // uniform has no form SameRack
			}
			_, possible, err := c.choose(v, b, shuffled(v, random(seed)), w)
			if err != nil {
				t.Fatal(err)
			}
			racks, zones := map[topo.RackID]int{}, map[int]bool{}
			for i, h := range hosts {
				if slices.Contains(hosts[:i], h) {
					t.Fatalf("%s: host %d twice in %v", name, h, hosts)
				}
				if possible && h != b.Client && !limit.allows(&v.Hosts[h]) {
					t.Fatalf("%s: host %d of %v exceeds the storage limit", name, h, hosts)
				}
				racks[f.RackOf(h)]++
				zones[v.Zone[f.RackOf(h)]] = true
			}
			if !possible {
				continue
			}
			steeredOnce++
			kinds := slices.Compact(slices.Sorted(slices.Values(v.Zone)))
			if want := min(c.Faults+1, b.Replicas, f.Racks()); len(racks) < want {
				t.Fatalf("%s: %v in %d racks, want %d", name, hosts, len(racks), want)
			}
			if want := min(c.Partitions, b.Replicas, len(kinds)); len(zones) < want {
				t.Fatalf("%s: %v in %d zones, want %d", name, hosts, len(zones), want)
			}
			home := f.RackOf(b.Client)
			local := slices.Contains(hosts, b.Client)
			for r, n := range racks {
				if r == home && local {
					n--
					if c.Faults > 0 && w.form != Edge && n > 0 {
						t.Fatalf("%s: %v: the writer's rack holds another replica", name, hosts)
					}
				}
				if w.form == Literal && n > 1 || w.form == SameRack && n > 2 {
					t.Fatalf("%s, form %d: %d replicas of %v in rack %d", name, w.form, n, hosts, r)
				}
			}
		}
	})
	if steeredOnce < 50 {
		t.Errorf("the constraints were satisfiable only %d times: the sample is too small", steeredOnce)
	}
}

func place2(t *rapid.T, p policies.Placer, v *policies.PlacementView, b workloads.Block, seed uint64) []topo.HostID {
	hosts, err := p.Place(v, b, random(seed))
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

// Every host and rack is equally likely in a tie, independently of its number.
func TestTiesAreFair(t *testing.T) {
	const draws = 3000
	for _, form := range []Form{Literal, SameRack, Edge} {
		for name, p := range steered(form, DefaultConstraints()) {
			v := cluster(t, 6, 3, 2)
			v.Racks, v.Load = make([]policies.RackState, 6), make([]units.Rate, len(v.Capacity))
			if name == "uniform" && form == SameRack {
				continue
			}
			drawn := make([]int, 18)
			for seed := range uint64(draws) {
				for _, h := range place(t, p, v, block(4, units.MB, 3), seed)[1:] {
					drawn[h]++
				}
			}
			for h, n := range drawn {
				want := 2 * draws / 15 // remote hosts
				if form == Edge {
					if want = 2 * draws / 17; h == 3 || h == 5 {
						continue // in the writer's rack, which gets at most one of them
					}
				}
				if r := v.Fabric.RackOf(topo.HostID(h)); r != 1 && (n < want*8/10 || n > want*12/10) {
					t.Errorf("%s, form %d: host %d drawn %d times, want about %d", name, form, h, n, want)
				}
			}
		}
	}
}

// BenchmarkPlace measures a decision with 3,000 hosts in 150 racks, as in Sinbad's
// simulations.
func BenchmarkPlace(b *testing.B) {
	v := cluster(b, 150, 20, 5)
	v.Now, v.DiskRate = 10*time.Second, mbs(50)
	v.Racks, v.Load, v.LargestBlock = make([]policies.RackState, 150), make([]units.Rate, len(v.Capacity)), 256*units.MB
	rng := rand.New(rand.NewPCG(1, 2))
	for h := range v.Hosts {
		v.Hosts[h].LastReport = 9*time.Second + time.Duration(rng.Int64N(1e9))
		v.Hosts[h].NextReport = v.Hosts[h].LastReport + time.Second
		v.Hosts[h].Rx, v.Hosts[h].Used = mbs(rng.Int64N(100)), units.Bytes(rng.Int64N(20))*units.GB
	}
	for i := range 300 { // blocks placed within a second
		v.Placements = append(v.Placements, policies.Placement{At: 9*time.Second + time.Duration(i)*3*time.Millisecond, Size: 256 * units.MB,
			Hosts: []topo.HostID{topo.HostID(rng.IntN(3000)), topo.HostID(rng.IntN(3000)), topo.HostID(rng.IntN(3000))}})
	}
	named := DefaultSinbad()
	named.Hosts = "h?-*,h??-*,h1??-*"
	cases := map[string]policies.Placer{"hdfs": DefaultHDFS(), "sinbad, hosts": named, "uniform": DefaultUniform()}
	for _, form := range []Form{Literal, SameRack, Edge} {
		for name, p := range steered(form, DefaultConstraints()) {
			cases[fmt.Sprintf("%s, form %d", name, form)] = p
		}
	}
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run("policy="+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if _, err := cases[name].Place(v, block(topo.HostID(i%3000), 256*units.MB, 3), random(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
