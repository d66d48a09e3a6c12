package fluid

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/longtest"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// crossTraffic is a backend with four flows for each host, all between different racks, and a
// fifth of them with a ceiling. Each flow that ends is followed by another.
type crossTraffic struct {
	t      testing.TB
	b      *Backend
	rng    *rand.Rand
	flows  int // started
	cmds   []engine.Command
	shares int // computations of rates
	// Of all computations: the classes that rose alone and the resources whose levels were computed.
	classes, resources int
}

func newCrossTraffic(t testing.TB, racks int) *crossTraffic {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: racks, Spines: 4, HostsPerLeaf: 20, HostLink: units.Gbps,
		Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	x := &crossTraffic{t: t, b: New(f, Config{}), rng: rand.New(rand.NewPCG(3, 4))}
	for range 4 * f.Hosts() {
		x.start()
	}
	return x
}

func (x *crossTraffic) start() {
	hosts := x.b.fabric.Hosts()
	src := x.rng.IntN(hosts)
	dst := (src/20*20 + 20 + x.rng.IntN(hosts-20)) % hosts
	ceiling := policies.NoLimit
	if x.rng.IntN(5) == 0 {
		ceiling = 20 * units.Mbps
	}
	x.cmds = append(x.cmds, engine.StartTransfer{
		Flow: workloads.Flow{
			ID: workloads.FlowID(x.flows), Src: topo.HostID(src), Dst: topo.HostID(dst),
			Size: 1e6 + units.Bytes(x.rng.IntN(9e6)),
		},
		Ceiling: ceiling,
		Hash:    x.rng.Uint32(),
	})
	x.flows++
}

// step goes on to the next end of a flow.
func (x *crossTraffic) step() {
	if err := x.b.Do(x.t.Context(), x.cmds); err != nil {
		x.t.Fatal(err)
	}
	x.cmds = x.cmds[:0]
	_, evs, err := x.b.Await(x.t.Context(), engine.NextNever)
	if err != nil {
		x.t.Fatal(err)
	}
	x.shares++
	x.classes, x.resources = x.classes+len(x.b.shares.moved), x.resources+len(x.b.shares.limited)
	for _, ev := range evs {
		if _, ends := ev.(engine.TransferFinished); ends {
			x.start()
		}
	}
}

// The work of an event among busy uplinks stays near the number of levels that change: those of most
// bottlenecks, which share classes, directly or through others, with that of the flow that ends. 42 and 135
// rates change.
func TestWorkOfEvent(t *testing.T) {
	longtest.Computes(t) // and allocates more under the race detector
	const events = 1000
	for _, tt := range []struct {
		racks, classes, resources, allocs int
	}{
		{racks: 5, classes: 5, resources: 7, allocs: 14},
		{racks: 15, classes: 5, resources: 22, allocs: 14},
	} {
		x := newCrossTraffic(t, tt.racks)
		x.step() // of all flows
		*x = crossTraffic{t: t, b: x.b, rng: x.rng, flows: x.flows, cmds: x.cmds}
		allocs := int(testing.AllocsPerRun(events, x.step))
		classes, resources := x.classes/x.shares, x.resources/x.shares
		if classes > tt.classes || resources > tt.resources || allocs > tt.allocs {
			t.Errorf("%d racks: %d classes, levels of %d resources, %d allocations; want at most %d, %d, %d",
				tt.racks, classes, resources, allocs, tt.classes, tt.resources, tt.allocs)
		}
	}
}

// BenchmarkConcurrency ends a flow and starts another between as many hosts as stated.
func BenchmarkConcurrency(b *testing.B) {
	for _, racks := range []int{5, 15, 50, 150} {
		b.Run(fmt.Sprintf("hosts=%d", 20*racks), func(b *testing.B) {
			x := newCrossTraffic(b, racks)
			x.step()
			*x = crossTraffic{t: b, b: x.b, rng: x.rng, flows: x.flows, cmds: x.cmds}
			b.ReportAllocs()
			for b.Loop() {
				x.step()
			}
			b.ReportMetric(float64(x.classes)/float64(x.shares), "classes/op")
			b.ReportMetric(float64(x.resources)/float64(x.shares), "resources/op")
		})
	}
}
