package fluid_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

const (
	ms  = time.Millisecond
	mb  = units.MB
	inf = policies.NoLimit
)

// racks returns a fabric with host links of 1 Gbps and one spine.
func racks(t testing.TB, leaves, hostsPerLeaf int, oversubscription int64) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: leaves, Spines: 1, HostsPerLeaf: hostsPerLeaf, HostLink: units.Gbps,
		Oversubscription: units.Ratio{Num: oversubscription, Den: 1}, Queue: topo.Queue{Time: ms}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func do(t testing.TB, b *fluid.Backend, cmds ...engine.Command) {
	t.Helper()
	if err := b.Do(t.Context(), cmds); err != nil {
		t.Fatal(err)
	}
}

func await(t testing.TB, b *fluid.Backend, wake time.Duration) (time.Duration, []engine.Event) {
	t.Helper()
	now, evs, err := b.Await(t.Context(), wake)
	if err != nil {
		t.Fatal(err)
	}
	return now, evs
}

// wants calls Await and compares its time and events with the expected ones.
func wants(t testing.TB, b *fluid.Backend, wake, at time.Duration, want ...engine.Event) {
	t.Helper()
	now, evs := await(t, b, wake)
	if d := cmp.Diff(want, evs); now != at || d != "" {
		t.Errorf("at %v, want %v; events (-want +got):\n%s", now, at, d)
	}
}

func start(id workloads.FlowID, src, dst topo.HostID, size units.Bytes, ceiling units.Rate) engine.Command {
	return engine.StartTransfer{Coflow: 1, Flow: workloads.Flow{ID: id, Src: src, Dst: dst, Size: size}, Ceiling: ceiling}
}

func progress(flowsAndBytes ...int) engine.Event {
	var p engine.TransferProgressed
	for i := 0; i < len(flowsAndBytes); i += 2 {
		p.Flows = append(p.Flows, workloads.FlowID(flowsAndBytes[i]))
		p.Received = append(p.Received, units.Bytes(flowsAndBytes[i+1]))
	}
	return p
}

func finished(id workloads.FlowID) engine.Event { return engine.TransferFinished{Flow: id} }

func TestTransfers(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress})
	do(t, b, start(2, 0, 2, 4*mb, inf), start(1, 0, 1, 8*mb, inf), engine.Mark{Kind: engine.MarkCoflow})
	wants(t, b, 10*ms, 10*ms, progress(1, 625000, 2, 625000))
	wants(t, b, engine.NextNever, 64*ms, progress(1, 4000000, 2, 4000000), finished(2))
	do(t, b, engine.SetCeiling{Flow: 1, Ceiling: 100 * units.Mbps}, engine.SetCeiling{Flow: 2, Ceiling: 5})
	wants(t, b, 144*ms, 144*ms, progress(1, 5000000))
	do(t, b, engine.SetCeiling{Flow: 1, Ceiling: 0})
	wants(t, b, 1000*ms, 1000*ms)
	wants(t, b, 500*ms, 1000*ms) // wake in the past
	do(t, b, engine.SetCeiling{Flow: 1, Ceiling: inf})
	wants(t, b, engine.NextNever, 1024*ms, progress(1, 8000000), finished(1))
}

// Completions at one time are returned together, after the progress and in order of ID,
// regardless of the order of the commands; a heartbeat at that time comes last.
func TestOneMomentIsOneBatch(t *testing.T) {
	b := fluid.New(racks(t, 1, 6, 1), fluid.Config{Needs: policies.Progress, Heartbeat: 8 * ms})
	do(t, b, start(9, 0, 3, mb, inf), start(4, 1, 4, mb, inf), start(7, 2, 5, 2*mb, inf))
	beat := func(h topo.HostID, rx, tx units.Bytes) engine.Event { return engine.Heartbeat{Host: h, Rx: rx, Tx: tx} }
	wants(t, b, engine.NextNever, 8*ms, progress(4, 1000000, 7, 1000000, 9, 1000000), finished(4), finished(9),
		beat(0, 0, mb), beat(1, 0, mb), beat(2, 0, mb), beat(3, mb, 0), beat(4, mb, 0), beat(5, mb, 0))
	wants(t, b, 10*ms, 10*ms, progress(7, 1250000))
	wants(t, b, 30*ms, 16*ms, progress(7, 2000000), finished(7),
		beat(0, 0, mb), beat(1, 0, mb), beat(2, 0, 2*mb), beat(3, mb, 0), beat(4, mb, 0), beat(5, 2*mb, 0))
	now, evs := await(t, b, 30*ms)
	if now != 24*ms || len(evs) != 6 {
		t.Errorf("at %v: %v, want the heartbeats of 24ms", now, evs)
	}
	wants(t, b, 30*ms, 30*ms)
}

// A byte takes 26⅔ ns at 300 Mbps. The clock keeps the fraction; only the reported
// time is rounded.
func TestRoundingDoesNotAccumulate(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress})
	var now time.Duration
	const n = 3000
	for i := range n {
		do(t, b, start(workloads.FlowID(i), 0, 1, 1, 300*units.Mbps))
		now, _ = await(t, b, engine.NextNever)
	}
	if want := n * 80 / 3 * time.Nanosecond; now != want {
		t.Errorf("%d transfers of 26⅔ ns end at %v, want %v", n, now, want)
	}
}

func block(id workloads.BlockID, client topo.HostID, size units.Bytes, targets ...topo.HostID) engine.Command {
	return engine.StartChain{Block: workloads.Block{ID: id, Client: client, Size: size, Replicas: len(targets), Packet: 64000, Window: 80},
		Targets: targets, Hashes: make([]uint32, len(targets))}
}

// Blocks are assigned to a host's disks round-robin, on hosts with slow disks too. With
// two disks, a block shares its disk with every second other block.
func TestDisksInTurn(t *testing.T) {
	for disks, want := range map[int][]time.Duration{1: {80 * ms, 80 * ms, 80 * ms, 80 * ms}, 2: {40 * ms, 40 * ms, 40 * ms, 40 * ms}, 4: {20 * ms, 20 * ms, 20 * ms, 20 * ms}, 3: {40 * ms, 20 * ms, 20 * ms, 40 * ms}} {
		b := fluid.New(racks(t, 2, 2, 1), fluid.Config{Needs: policies.Progress, DiskRate: 400 * units.Mbps, Disks: disks})
		for id := range workloads.BlockID(4) {
			do(t, b, block(id, 2, mb, 2))
		}
		got := make([]time.Duration, 4)
		for n := 0; n < 4; {
			now, evs := await(t, b, engine.NextNever)
			for _, ev := range evs {
				if d, ok := ev.(engine.BlockDurable); ok {
					got[d.Block] = now
					n++
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d disks (-want +got):\n%s", disks, d)
		}
	}
}

func TestChains(t *testing.T) {
	disk := 400 * units.Mbps
	for _, tt := range []struct {
		name   string
		fabric *topo.Fabric
		disk   units.Rate
		cmds   []engine.Command
		want   map[workloads.BlockID]time.Duration
	}{
		{"writer alone, no disk", racks(t, 2, 2, 1), 0, []engine.Command{block(1, 0, mb, 0)}, map[workloads.BlockID]time.Duration{1: 0}},
		{"writer alone", racks(t, 2, 2, 1), disk, []engine.Command{block(1, 0, mb, 0)}, map[workloads.BlockID]time.Duration{1: 20 * ms}},
		{"network is the bottleneck", racks(t, 2, 2, 1), 0, []engine.Command{block(1, 0, mb, 0, 2, 3)}, map[workloads.BlockID]time.Duration{1: 8 * ms}},
		{"disk is the bottleneck", racks(t, 2, 2, 1), disk, []engine.Command{block(1, 0, mb, 0, 2, 3)}, map[workloads.BlockID]time.Duration{1: 20 * ms}},
		{"client stores nothing", racks(t, 2, 2, 1), disk, []engine.Command{block(1, 0, mb, 2)}, map[workloads.BlockID]time.Duration{1: 20 * ms}},
		// Two blocks share host 2's disk: 40 ms, and after the end of the shorter block,
		// the rest at the full rate.
		{"shared disk", racks(t, 2, 2, 1), disk, []engine.Command{block(2, 0, mb, 0, 2), block(1, 1, 2*mb, 1, 2)},
			map[workloads.BlockID]time.Duration{1: 60 * ms, 2: 40 * ms}},
		// Each rack's uplink carries 500 Mbps. The pipeline 0 → 2 → 1 → 3 leaves
		// rack 0 twice and rack 1 once, so it moves at 250 Mbps.
		{"uplink crossed twice", racks(t, 2, 2, 4), 0, []engine.Command{block(1, 0, mb, 2, 1, 3)}, map[workloads.BlockID]time.Duration{1: 32 * ms}},
		// A concurrent flow gets the same rate: 2x + x = 500 Mbps; then it is alone.
		{"beside a flow", racks(t, 2, 2, 4), 0, []engine.Command{block(1, 0, mb, 2, 1, 3), start(5, 1, 3, mb, inf)},
			map[workloads.BlockID]time.Duration{1: 48 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fluid.New(tt.fabric, fluid.Config{Needs: policies.Progress, DiskRate: tt.disk})
			do(t, b, tt.cmds...)
			got := map[workloads.BlockID]time.Duration{}
			for len(got) < len(tt.want) {
				now, evs := await(t, b, engine.NextNever)
				for _, ev := range evs {
					if d, ok := ev.(engine.BlockDurable); ok {
						got[d.Block] = now
					}
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Config.Carried reports the bytes of all links at heartbeats: the block crosses from
// rack 0 to rack 1 once and stays there.
func TestCarried(t *testing.T) {
	f := racks(t, 2, 2, 1)
	var times []time.Duration
	var got [][]float64
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, Heartbeat: 4 * ms, Carried: func(now time.Duration, bytes []float64) {
		times, got = append(times, now), append(got, slices.Clone(bytes))
	}})
	do(t, b, block(1, 0, mb, 0, 2, 3))
	for range 3 {
		if _, _, err := b.Await(t.Context(), 12*ms); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]time.Duration{4 * ms, 8 * ms, 12 * ms}, times); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	spine, crosses := f.SpineFor(0, 2, 0)
	want := make([]float64, len(f.Links()))
	for _, l := range []topo.LinkID{f.HostUp(0), f.HostDown(2), f.HostUp(2), f.HostDown(3)} {
		want[l] = float64(mb)
	}
	if !crosses {
		t.Fatal("hosts 0 and 2 are in one rack")
	}
	want[f.LeafUp(0, spine)], want[f.LeafDown(1, spine)] = float64(mb), float64(mb)
	for i, part := range []float64{0.5, 1, 1} {
		for l := range want {
			if math.Abs(got[i][l]-part*want[l]) > 1 {
				t.Errorf("at %v %s carried %v bytes, want %v", times[i], f.LinkName(topo.LinkID(l)), got[i][l], part*want[l])
			}
		}
	}
}

// With Config.Payload, transfers share the payload capacity, also after a fault has
// changed a link's rate or a host's processor share, and the engine is notified of
// that capacity. Heartbeats and Carried count bytes on the wire.
func TestPayloadCapacity(t *testing.T) {
	f := racks(t, 1, 2, 1)
	half := func(rate units.Rate) units.Rate { return rate / 2 }
	wire := make([]float64, 2)
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, Payload: half, Heartbeat: 4 * ms, Carried: func(_ time.Duration, bytes []float64) {
		wire[0], wire[1] = bytes[f.HostUp(0)], bytes[f.HostDown(1)]
	}, Faults: fault.Timeline{
		{At: 8 * ms, Action: fault.SetRate{Link: f.HostUp(0), Rate: 500 * units.Mbps}},
		{At: 16 * ms, Action: fault.SetRate{Link: f.HostUp(0), Rate: units.Gbps}},
		{At: 16 * ms, Action: fault.SetCPU{Host: 0, Share: 0.1}},
	}})
	do(t, b, start(1, 0, 1, mb, policies.NoLimit))
	// 1 MB of payload: 8 ms at 500 Mbps carry half of it, 8 ms at 250 Mbps a quarter,
	// and the last quarter takes 40 ms at 50 Mbps.
	var changes []units.Rate
	var sent []units.Bytes
	for {
		now, evs, err := b.Await(t.Context(), engine.NextNever)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			switch ev := ev.(type) {
			case engine.LinkChanged:
				changes = append(changes, ev.Rate)
			case engine.Heartbeat:
				if ev.Host == 0 {
					sent = append(sent, ev.Tx)
				}
			case engine.TransferFinished:
				if now != 56*ms {
					t.Errorf("1 MB ended at %v, want 56ms", now)
				}
				if d := cmp.Diff([]units.Rate{250 * units.Mbps, 500 * units.Mbps}, changes); d != "" {
					t.Errorf("rates that the engine was notified of (-want +got):\n%s", d)
				}
				if sent[0] != mb/2 || math.Abs(wire[0]-float64(2*mb)) > 1e5 || wire[0] != wire[1] {
					t.Errorf("bytes on the wire: %v after 4 ms, %.0f and %.0f at the end, want %v and about %v", sent[0], wire[0], wire[1], mb/2, 2*mb)
				}
				return
			}
		}
	}
}

// Config.Sent reports what each link has carried up to every whole second, between events too, and up to Settle.
func TestSent(t *testing.T) {
	f := racks(t, 2, 2, 1)
	var at []time.Duration
	var up []float64 // of host 0
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, Sent: func(now time.Duration, bytes []float64) {
		at, up = append(at, now), append(up, math.Round(bytes[f.HostUp(0)]))
		if x, y := bytes[f.HostUp(0)], bytes[f.HostDown(1)]; x != y {
			t.Errorf("at %v: host 0 has sent %v bytes, and host 1 has received %v", now, x, y)
		}
	}})
	second := units.Bytes(f.Link(f.HostUp(0)).Rate / 8)
	do(t, b, start(1, 0, 1, 2*second, inf), start(2, 0, 1, second/2, inf), block(1, 2, mb, 2, 3))
	for range 3 {
		if _, _, err := b.Await(t.Context(), engine.NextNever); err != nil {
			t.Fatal(err)
		}
	}
	b.Settle()
	whole := float64(second)
	wantAt, want := []time.Duration{0, time.Second, 2 * time.Second, 2500 * ms}, []float64{0, whole, 2 * whole, 2.5 * whole}
	if !slices.Equal(at, wantAt) || !slices.Equal(up, want) {
		t.Errorf("host 0 has sent %v bytes at %v, want %v at %v", up, at, want, wantAt)
	}
}

// A host's counters include every hop of a pipeline: a relaying host sends the bytes
// that it receives.
func TestHeartbeatsCountChains(t *testing.T) {
	b := fluid.New(racks(t, 2, 2, 1), fluid.Config{Heartbeat: 4 * ms, Needs: policies.LinkLoad | policies.Progress})
	do(t, b, block(1, 0, mb, 0, 2, 3))
	half := mb / 2
	wants(t, b, engine.NextNever, 4*ms, engine.Heartbeat{Host: 0, Tx: half}, engine.Heartbeat{Host: 1},
		engine.Heartbeat{Host: 2, Rx: half, Tx: half}, engine.Heartbeat{Host: 3, Rx: half},
		engine.RackReport{Rack: 0, Tx: half}, engine.RackReport{Rack: 1, Rx: half})
	wants(t, b, engine.NextNever, 8*ms, engine.BlockDurable{Block: 1}, engine.Heartbeat{Host: 0, Tx: mb}, engine.Heartbeat{Host: 1},
		engine.Heartbeat{Host: 2, Rx: mb, Tx: mb}, engine.Heartbeat{Host: 3, Rx: mb},
		engine.RackReport{Rack: 0, Tx: mb}, engine.RackReport{Rack: 1, Rx: mb})
}

func TestWaitsThatWouldNotEnd(t *testing.T) {
	for _, heartbeat := range []time.Duration{0, ms} {
		b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, Heartbeat: heartbeat})
		if _, _, err := b.Await(t.Context(), engine.NextNever); err == nil || !strings.Contains(err.Error(), "nothing runs and nothing is due") {
			t.Errorf("nothing to wait for: %v", err)
		}
		do(t, b, start(3, 0, 1, mb, 0), start(5, 2, 3, 8, 0))
		_, _, err := b.Await(t.Context(), engine.NextNever)
		for _, want := range []string{"deadlock", "flow 3 (h0-00 to h0-01, 1MB of 1MB left, ceiling 0bps)", "flow 5 (h0-02 to h0-03, 8B of 8B"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("all paused: %v, want %q in it", err, want)
			}
		}
		if now, _ := await(t, b, ms/2); now != ms/2 {
			t.Errorf("waits until %v, want %v", now, ms/2)
		}
	}
	b := fluid.New(racks(t, 1, 40, 1), fluid.Config{Needs: policies.Progress})
	for i := range 20 {
		do(t, b, start(workloads.FlowID(i), topo.HostID(i), topo.HostID(i+20), mb, 0))
	}
	if _, _, err := b.Await(t.Context(), engine.NextNever); err == nil || !strings.Contains(err.Error(), "and 10 more") {
		t.Errorf("many paused: %v", err)
	}
}

func TestAwaitStopsWithItsContext(t *testing.T) {
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, _, err := fluid.New(racks(t, 1, 2, 1), fluid.Config{Needs: policies.Progress}).Await(ctx, ms); !errors.Is(err, stop) {
		t.Errorf("Await = %v", err)
	}
}

func TestDoRefuses(t *testing.T) {
	chain := func(targets []topo.HostID, hashes int) engine.Command {
		return engine.StartChain{Block: workloads.Block{ID: 8, Size: mb}, Targets: targets, Hashes: make([]uint32, hashes)}
	}
	for _, tt := range []struct {
		name string
		cmd  engine.Command
		want string
	}{
		{"flow again", start(1, 0, 1, mb, inf), "start flow 1: already started"},
		{"finished flow again", start(0, 0, 1, mb, inf), "start flow 0: already started"},
		{"unknown host", start(2, 0, 4, mb, inf), "expected hosts of the fabric"},
		{"negative host", start(2, -1, 2, mb, inf), "expected hosts of the fabric"},
		{"empty flow", start(2, 0, 1, 0, inf), "a positive size"},
		{"negative ceiling", start(2, 0, 1, 1, -1), "a ceiling of 0 or more"},
		{"ceiling of an unknown flow", engine.SetCeiling{Flow: 6, Ceiling: 1}, "ceiling of flow 6"},
		{"negative new ceiling", engine.SetCeiling{Flow: 1, Ceiling: -1}, "0 or more"},
		{"block again", block(3, 0, mb, 0, 1), "start block 3: already started"},
		{"no targets", chain(nil, 0), "one hash per hop"},
		{"missing hash", chain([]topo.HostID{0, 1}, 1), "one hash per hop"},
		{"target twice", chain([]topo.HostID{1, 1}, 2), "distinct hosts"},
		{"unknown target", chain([]topo.HostID{1, 7}, 2), "distinct hosts of the fabric"},
		{"unknown command", nil, "unknown command <nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress})
			do(t, b, start(0, 0, 1, 1, inf))
			await(t, b, engine.NextNever)
			do(t, b, start(1, 0, 1, mb, inf), block(3, 0, mb, 0, 1))
			if err := b.Do(t.Context(), []engine.Command{tt.cmd}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// drain runs all flows and blocks to their end and returns their end times. It wakes at
// intervals of often, if often is not 0.
func drain(t testing.TB, b *fluid.Backend, n int, often time.Duration) map[engine.Event]time.Duration {
	t.Helper()
	ends := map[engine.Event]time.Duration{}
	last := time.Duration(0)
	for len(ends) < n {
		wake := engine.NextNever
		if often > 0 {
			wake = last + often
		}
		now, evs := await(t, b, wake)
		if now < last {
			t.Fatalf("time went back from %v to %v", last, now)
		}
		last = now
		for _, ev := range evs {
			switch ev.(type) {
			case engine.TransferFinished, engine.BlockDurable, engine.TaskComputed, engine.OutputSpilled:
				ends[ev] = now
			}
		}
	}
	return ends
}

// Renumbering hosts and additional calls of Await do not change the end times.
func TestRenumberedAndPolled(t *testing.T) {
	f := racks(t, 3, 3, 2)
	rapid.Check(t, func(rt *rapid.T) {
		host := rapid.IntRange(0, f.Hosts()-1)
		ceiling := rapid.SampledFrom([]units.Rate{inf, 300 * units.Mbps, 77777777})
		size := rapid.Int64Range(1, 2e7)
		// The permutation acts on racks and on the hosts of a rack, so paths map to paths.
		rackTo := rapid.Permutation([]int{0, 1, 2}).Draw(rt, "racks")
		placeTo := rapid.Permutation([]int{0, 1, 2}).Draw(rt, "places")
		to := func(h topo.HostID) topo.HostID {
			return f.HostIn(topo.RackID(rackTo[f.RackOf(h)]), placeTo[int(h)%3])
		}
		var cmds, renumbered []engine.Command
		n := rapid.IntRange(1, 12).Draw(rt, "transfers")
		for i := range n {
			bytes := units.Bytes(size.Draw(rt, "size"))
			kind := rapid.IntRange(0, 7).Draw(rt, "kind")
			if kind <= 1 {
				hosts := rapid.Permutation([]topo.HostID{0, 1, 2, 3, 4, 5, 6, 7, 8}).Draw(rt, "targets")[:3]
				moved := []topo.HostID{to(hosts[0]), to(hosts[1]), to(hosts[2])}
				cmds = append(cmds, block(workloads.BlockID(i), hosts[0], bytes, hosts...))
				renumbered = append(renumbered, block(workloads.BlockID(i), moved[0], bytes, moved...))
				continue
			}
			src, dst := topo.HostID(host.Draw(rt, "src")), topo.HostID(host.Draw(rt, "dst"))
			if src == dst {
				dst = (dst + 1) % 9
			}
			c := ceiling.Draw(rt, "ceiling")
			var on func(h topo.HostID) engine.Command
			switch kind {
			case 2:
				on = func(h topo.HostID) engine.Command { return compute(i, h, time.Duration(bytes)) }
			case 3:
				on = func(h topo.HostID) engine.Command { return spill(i, h, bytes) }
			case 4:
				on = func(h topo.HostID) engine.Command { return read(workloads.FlowID(i), h, workloads.BlockID(h), c) }
			}
			if on != nil {
				cmds, renumbered = append(cmds, on(src)), append(renumbered, on(to(src)))
				continue
			}
			cmds = append(cmds, start(workloads.FlowID(i), src, dst, bytes, c))
			renumbered = append(renumbered, start(workloads.FlowID(i), to(src), to(dst), bytes, c))
		}
		run := func(cmds []engine.Command, often, heartbeat time.Duration) map[engine.Event]time.Duration {
			b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: 600 * units.Mbps, ReadRate: 500 * units.Mbps, Heartbeat: heartbeat, Stored: stored(0, 1, 2, 3, 4, 5, 6, 7, 8)})
			do(t, b, cmds...)
			return drain(t, b, n, often)
		}
		want := run(cmds, 0, 0)
		for name, got := range map[string]map[engine.Event]time.Duration{
			"renumbered":      run(renumbered, 0, 0),
			"polled":          run(cmds, 1234567, 0),
			"with heartbeats": run(cmds, 0, 3*ms),
		} {
			for ev, at := range want {
				if d := got[ev] - at; d < -1 || d > 1 {
					rt.Errorf("%s: %#v at %d ns, want %d", name, ev, got[ev], at)
				}
			}
		}
	})
}

// BenchmarkAwait runs 10,000 concurrent flows: in each step a ceiling changes, the
// rates are recomputed and the progress of all flows is reported.
func BenchmarkAwait(b *testing.B) {
	for _, kind := range []string{"free", "limited"} {
		b.Run(fmt.Sprintf("ceilings=%s/flows=10000", kind), func(b *testing.B) {
			f := racks(b, 20, 15, 3)
			be := fluid.New(f, fluid.Config{Needs: policies.Progress, Heartbeat: time.Second})
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range 10000 {
				src := rng.IntN(300)
				ceiling := inf
				if kind == "limited" {
					ceiling = units.Rate(1e5 + rng.IntN(5e6))
				}
				do(b, be, start(workloads.FlowID(i), topo.HostID(src), topo.HostID((src+1+rng.IntN(299))%300), 1e15, ceiling))
			}
			now := time.Duration(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				do(b, be, engine.SetCeiling{Flow: workloads.FlowID(i % 10000), Ceiling: units.Rate(1e6 + i)})
				now += 100 * time.Microsecond
				await(b, be, now)
			}
		})
	}
}

// A ceiling that is lowered within lastMoment of a flow's end has no effect; one that is
// lowered a millisecond before the end has.
func TestLastBytesArePastALowerCeiling(t *testing.T) {
	b := fluid.New(racks(t, 1, 6, 1), fluid.Config{Needs: policies.Progress})
	slow := 8 * units.Mbps
	do(t, b, start(0, 0, 1, mb, slow), start(1, 2, 3, mb, slow), start(2, 4, 5, mb, slow))
	wants(t, b, 999*ms, 999*ms, progress(0, 999_000, 1, 999_000, 2, 999_000))
	do(t, b, engine.SetCeiling{Flow: 1, Ceiling: 80 * units.Kbps})
	late := time.Second - 10*time.Microsecond
	wants(t, b, late, late, progress(0, 999_990, 1, 999_009, 2, 999_990))
	do(t, b, engine.SetCeiling{Flow: 0, Ceiling: 1}, engine.SetCeiling{Flow: 2, Ceiling: 0})
	wants(t, b, engine.NextNever, time.Second, progress(0, 1_000_000, 1, 999_010, 2, 1_000_000), finished(0), finished(2))
	wants(t, b, engine.NextNever, 1099*ms, progress(1, 1_000_000), finished(1))
}
