package fluid_test

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// portFlow is a flow from one port of a switch to another, in MB.
type portFlow struct{ src, dst, mb int }

// Cases computed by hand, at 8 ms per MB on a port: completion times by coflow, in ms,
// under max-min fairness and under SEBF.
func TestTinyCases(t *testing.T) {
	type arrival struct {
		at    time.Duration
		flows []portFlow
	}
	for _, tt := range []struct {
		name       string
		coflows    []arrival
		fair, sebf []int64
	}{
		{"shared sender", []arrival{{0, []portFlow{{0, 1, 8}}}, {0, []portFlow{{0, 2, 4}}}}, []int64{96, 64}, []int64{96, 32}},
		{"shared receiver", []arrival{{0, []portFlow{{0, 2, 8}}}, {0, []portFlow{{1, 2, 4}}}}, []int64{96, 64}, []int64{96, 32}},
		// FAIR: 100 ms alone, then half the rate each. SEBF: the short coflow preempts.
		{"preemption", []arrival{{0, []portFlow{{0, 1, 100}}}, {100 * ms, []portFlow{{0, 2, 10}}}}, []int64{880, 160}, []int64{880, 80}},
		{"late and short", []arrival{{0, []portFlow{{0, 1, 4000}}}, {20480 * ms, []portFlow{{0, 2, 50}}}}, []int64{32400, 800}, []int64{32400, 400}},
		// Two senders share reducer 2's 8 MB and reducer 3's 4 MB.
		{"two by two", []arrival{{0, []portFlow{{0, 2, 4}, {1, 2, 4}, {0, 3, 2}, {1, 3, 2}}}, {0, []portFlow{{0, 3, 6}}}}, []int64{80, 96}, []int64{96, 48}},
		{"same rack", []arrival{{0, []portFlow{{0, 0, 8}}}, {0, []portFlow{{0, 1, 8}}}}, []int64{128, 128}, []int64{64, 128}},
	} {
		const ports = 4
		f := portSwitch(t, ports)
		var coflows []workloads.Coflow
		next := workloads.FlowID(0)
		for i, a := range tt.coflows {
			c := workloads.Coflow{ID: workloads.CoflowID(i), Arrival: a.at}
			for _, fl := range a.flows {
				c.Flows = append(c.Flows, workloads.Flow{ID: next, Src: topo.HostID(fl.src), Dst: topo.HostID(ports + fl.dst), Size: units.Bytes(fl.mb) * mb})
				next++
			}
			coflows = append(coflows, c)
		}
		for policy, want := range map[policies.CoflowScheduler][]int64{coflow.Fair{}: tt.fair, coflow.SEBF{}: tt.sebf} {
			t.Run(fmt.Sprintf("%s/%T", tt.name, policy), func(t *testing.T) {
				cct, _ := completionTimes(t, f, policy, coflows)
				for i, w := range want {
					if got := cct[workloads.CoflowID(i)]; got != time.Duration(w)*ms {
						t.Errorf("coflow %d takes %v, want %v", i+1, got, time.Duration(w)*ms)
					}
				}
			})
		}
	}
}

// bound returns the time that a coflow's bottleneck link needs, rounded to the nearest ns.
func bound(f *topo.Fabric, flows []workloads.Flow) time.Duration {
	load := map[topo.LinkID]int64{}
	most := new(big.Rat)
	for _, fl := range flows {
		for _, l := range f.Path(fl.Src, fl.Dst, 0) {
			load[l] += int64(fl.Size)
			at := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(load[l]), big.NewInt(8e9)), big.NewInt(int64(f.Link(l).Rate)))
			if at.Cmp(most) > 0 {
				most = at
			}
		}
	}
	most.Add(most, big.NewRat(1, 2))
	return time.Duration(new(big.Int).Quo(most.Num(), most.Denom()).Int64())
}

// A lone coflow takes as long as its bottleneck link, to the nanosecond, although
// ceilings are whole bits per second: the bandwidth that rounding leaves on the
// bottleneck is distributed, so the link is never idle. If many links are bottlenecks at
// once, the last bits can block each other: two bits per second of a link may then stay
// idle. Runs of over an hour may deviate by a nanosecond, the precision of the counts.
func TestLoneCoflowTakesItsBottleneck(t *testing.T) {
	fabrics := map[string]*topo.Fabric{"switch": racks(t, 1, 40, 1), "oversubscribed": racks(t, 4, 10, 3)}
	rng := rand.New(rand.NewPCG(3, 4))
	size := map[string]func() units.Bytes{
		"equal": func() units.Bytes { return 1234567 },
		"mixed": func() units.Bytes { return 1 + units.Bytes(rng.Int64N(1e7)) },
		"huge":  func() units.Bytes { return 1e9 + units.Bytes(rng.Int64N(1e11)) },
		"tiny":  func() units.Bytes { return 1 + units.Bytes(rng.Int64N(50)) },
	}
	// One uplink is the bottleneck: sender 0 to all. One downlink: all to 39. Or
	// every third host sends to every third other.
	shape := map[string]func(i int) (src, dst topo.HostID){
		"one sender":   func(i int) (topo.HostID, topo.HostID) { return 0, topo.HostID(1 + i%39) },
		"one receiver": func(i int) (topo.HostID, topo.HostID) { return topo.HostID(i % 39), 39 },
		"shuffle":      func(i int) (topo.HostID, topo.HostID) { return topo.HostID(i / 7 % 13 * 3), topo.HostID(i%7*3 + 1) },
	}
	// Of the slowest link, 1 Gbps: a bit that no flow can use because of its other links,
	// and the rounding tolerance of package alloc, 1e-9.
	const idle = 2e-9
	for _, fname := range slices.Sorted(maps.Keys(fabrics)) {
		for _, sname := range slices.Sorted(maps.Keys(size)) {
			for _, hname := range slices.Sorted(maps.Keys(shape)) {
				f, size, shape := fabrics[fname], size[sname], shape[hname]
				for _, width := range []int{1, 2, 3, 7, 39, 91} {
					c := workloads.Coflow{ID: 1, Arrival: 12345 * time.Nanosecond}
					for i := range width {
						src, dst := shape(i)
						c.Flows = append(c.Flows, workloads.Flow{ID: workloads.FlowID(i), Src: src, Dst: dst, Size: size()})
					}
					cct, _ := completionTimes(t, f, coflow.SEBF{}, []workloads.Coflow{c})
					got, want := cct[1], bound(f, c.Flows)
					slack := time.Duration(0)
					if hname == "shuffle" {
						slack = 1 + time.Duration(idle*float64(want))
					} else if want > time.Hour {
						slack = 1
					}
					if got < want-slack || got > want+slack {
						t.Errorf("%s, %s, %s sizes, width %d: SEBF takes %d ns, want %d", fname, hname, sname, width, got, want)
					}
					if hname != "shuffle" && fname == "switch" {
						// On a single bottleneck link, the order does not affect the end.
						cct, _ := completionTimes(t, f, coflow.Fair{}, []workloads.Coflow{c})
						if got := cct[1]; got != want {
							t.Errorf("%s, %s, %s sizes, width %d: FAIR takes %d ns, want %d", fname, hname, sname, width, got, want)
						}
					}
				}
			}
		}
	}
}
