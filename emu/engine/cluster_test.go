package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Placing a block describes no coflow, and of the hosts only those on which the step has
// placed blocks.
func TestPlacingDescribesNoCoflow(t *testing.T) {
	var described [][]topo.HostID // by call of Place, the hosts described since the previous one
	place := func(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) ([]topo.HostID, error) {
		var hosts []topo.HostID
		for h := range v.Hosts {
			if v.Hosts[h].Writing >= 0 {
				hosts = append(hosts, topo.HostID(h))
			}
			v.Hosts[h].Writing = -1
		}
		described = append(described, hosts)
		return []topo.HostID{b.Client, 3}[:b.Replicas], nil
	}
	e := newEngine(t, testConfig(t, always(free), placeFunc(place)))
	for i := range 20 {
		step(t, e, time.Duration(i), coflowOf(workloads.CoflowID(i), workloads.Flow{ID: workloads.FlowID(i), Src: 0, Dst: 2, Size: 1000}))
	}
	view := e.control.view.Coflows
	if len(view) != 20 {
		t.Fatalf("%d coflows in the View", len(view))
	}
	for i := range view {
		view[i].ID = -1
	}
	step(t, e, time.Second, writerOf(block(1, 0, 2)), writerOf(block(2, 1, 2)), writerOf(block(3, 2, 2)))
	if again := slices.IndexFunc(view, func(c policies.CoflowState) bool { return c.ID != -1 }); again >= 0 {
		t.Errorf("placing blocks described coflow %d again", again)
	}
	want := [][]topo.HostID{{0, 1, 2, 3}, {0, 3}, {1, 3}}
	if !slices.EqualFunc(described, want, slices.Equal) {
		t.Errorf("hosts described before each placement: %v, want %v", described, want)
	}
}

// A Cluster that is kept up to date by placements and events equals a new one.
func TestClusterIsCurrent(t *testing.T) {
	var e *Engine
	calls := 0
	place := func(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) ([]topo.HostID, error) {
		calls++
		for h, shown := range v.Hosts {
			if want := e.hostState(topo.HostID(h), policies.LinkLoad|policies.DiskUse); shown != want {
				t.Errorf("call %d at %v: host %d is %+v, want %+v", calls, v.Now, h, shown, want)
			}
		}
		return []topo.HostID{b.Client, 3}, nil
	}
	c := testConfig(t, always(free), placeFunc(place))
	c.DiskSize = 1e6
	e = newEngine(t, c)
	step(t, e, time.Second, writerOf(block(1, 0, 2), block(2, 0, 2)), writerOf(block(3, 1, 2)),
		Heartbeat{Host: 3, Rx: 1e6, Disk: &DiskReport{Used: 5000}}, writerOf(block(4, 2, 2)), BlockDurable{1}, writerOf(block(5, 0, 2)))
	step(t, e, 2*time.Second, BlockFailed{Block: 2, Why: "disk full"}, writerOf(block(6, 1, 2)), HostBack{Host: 2, DiskLost: true}, writerOf(block(7, 1, 2)))
	if got := e.cluster(policies.LinkLoad).Hosts[3].Rx; calls != 7 || got == 0 {
		t.Errorf("%d calls, load of host 3 %v", calls, got)
	}
}

// BenchmarkPlaceBlock measures a step that places a block while coflows are active.
func BenchmarkPlaceBlock(b *testing.B) {
	for _, coflows := range []int{0, 1000} {
		b.Run(fmt.Sprintf("coflows=%d", coflows), func(b *testing.B) {
			f := must(topo.LeafSpine{Leaves: 10, Spines: 2, HostsPerLeaf: 10, HostLink: units.Gbps,
				Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build())
			place := placeFunc(func(_ *policies.PlacementView, b workloads.Block, _ *rand.Rand) ([]topo.HostID, error) {
				return []topo.HostID{b.Client, (b.Client + 10) % 100}, nil
			})
			e := must(New(Config{Fabric: f, Coflow: always(free), Placement: place, Heartbeat: time.Second, Alpha: 0.2, Seed: 1}))
			for i := range coflows {
				c := workloads.Coflow{ID: workloads.CoflowID(i)}
				for j := range 4 {
					c.Flows = append(c.Flows, workloads.Flow{ID: workloads.FlowID(4*i + j), Src: topo.HostID((i + j) % 100), Dst: topo.HostID((i + 7*j + 13) % 100), Size: 1e9})
				}
				must(e.Step(0, CoflowArrived{Coflow: c}))
			}
			id := workloads.BlockID(0)
			b.ReportAllocs()
			for b.Loop() {
				id++
				now := time.Duration(id) * time.Millisecond
				client := topo.HostID(id % 100)
				must(e.Step(now, writerOf(block(id, client, 2))))
				must(e.Step(now, BlockDurable{id}, Heartbeat{Host: client}, Heartbeat{Host: (client + 10) % 100}))
			}
		})
	}
}
