package fluid_test

import (
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// far returns a fabric of two racks of two hosts with a delay of 2 ms on every link, but
// 5 ms on one.
func far(t *testing.T) *topo.Fabric {
	t.Helper()
	five := 5 * ms
	f, err := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Uplink: units.Gbps, Queue: topo.Queue{Time: ms}, MTU: 1500,
		Delay: 2 * ms, Links: []topo.LinkChange{{Link: "leaf1>h1-01", Delay: &five}}}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A transfer ends one propagation delay of its path after its last byte was sent. Its
// links are free before that, and a transfer sent later may arrive earlier.
func TestLastByteTravels(t *testing.T) {
	b := fluid.New(far(t), fluid.Config{Needs: policies.Progress})
	do(t, b, start(0, 0, 3, mb, inf)) // 8 ms, plus a delay of 2+2+2+5 ms
	wants(t, b, engine.NextNever, 8*ms, progress(0, 999_999))
	do(t, b, start(1, 0, 1, mb/8, inf)) // 1 ms at the full rate, plus a delay of 2+2 ms
	wants(t, b, engine.NextNever, 9*ms, progress(1, 124_999))
	wants(t, b, engine.NextNever, 13*ms, progress(1, 125_000), finished(1))
	wants(t, b, 15*ms, 15*ms)
	wants(t, b, engine.NextNever, 19*ms, progress(0, 1_000_000), finished(0))
	if _, _, err := b.Await(t.Context(), engine.NextNever); err == nil {
		t.Error("Await without pending events returned no error")
	}
}

// Simultaneous arrivals are reported in order of ID, regardless of the order of sending.
func TestArrivalsTogether(t *testing.T) {
	b := fluid.New(far(t), fluid.Config{Needs: policies.Progress})
	do(t, b, start(5, 0, 3, mb/8, inf)) // sent at 1 ms, delay 11 ms
	do(t, b, start(2, 2, 1, mb, inf))   // sent at 8 ms, delay 8 ms
	wants(t, b, 1*ms, 1*ms, progress(2, 125_000, 5, 124_999))
	do(t, b, start(3, 1, 0, mb, inf)) // sent at 9 ms, delay 4 ms: arrives at 13 ms
	wants(t, b, engine.NextNever, 8*ms, progress(2, 999_999, 3, 875_000))
	wants(t, b, engine.NextNever, 9*ms, progress(3, 999_999))
	wants(t, b, engine.NextNever, 12*ms, progress(5, 125_000), finished(5))
	wants(t, b, engine.NextNever, 13*ms, progress(3, 1_000_000), finished(3))
	wants(t, b, engine.NextNever, 16*ms, progress(2, 1_000_000), finished(2))
}

// A block is durable when its last byte has crossed all hops of its pipeline.
func TestBlockTravels(t *testing.T) {
	b := fluid.New(far(t), fluid.Config{Needs: policies.Progress})
	do(t, b, engine.StartChain{Block: workloads.Block{ID: 4, Client: 0, Size: mb, Replicas: 2}, Targets: []topo.HostID{1, 3}, Hashes: []uint32{0, 0}})
	wants(t, b, engine.NextNever, 8*ms)
	wants(t, b, engine.NextNever, (8+4+11)*time.Millisecond, engine.BlockDurable{Block: 4})
}
