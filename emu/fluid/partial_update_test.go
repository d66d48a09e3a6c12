package fluid

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// rackFabric is a fabric of 5:1 racks under one spine.
func rackFabric(t testing.TB, leaves, hostsPerLeaf int) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: leaves, Spines: 1, HostsPerLeaf: hostsPerLeaf, HostLink: units.Gbps,
		Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkRates compares every stored rate with the slow model, and the load of every
// resource with the sum of its rates.
func checkRates(t interface{ Fatalf(string, ...any) }, b *Backend) {
	n := network{capacity: b.capacity, classes: b.classes}
	fluids, of := n.fluids()
	load := make([]float64, len(b.capacity))
	for i, want := range slowMaxMin(fluids, b.capacity) {
		cl := b.classes[of[i]]
		if rate := b.shares.rateOf(cl); math.Abs(rate-want) > tolerance*want {
			t.Fatalf("class %d of %d, using %v: rate %v, want %v", of[i], len(b.classes), cl.uses, rate, want)
		}
		for r, times := range fluids[i].times {
			load[r] += times * want
		}
	}
	for r, l := range load {
		if x := &b.shares.resources[r]; x.watched && math.Abs(b.shares.Load[r]-l) > tolerance*b.capacity[r] {
			t.Fatalf("resource %d carries %v, stored load %v", r, l, b.shares.Load[r])
		}
	}
	for _, list := range [][]*fluid{b.flows, b.chains, slices.Collect(maps.Values(b.tasks.spilling))} {
		for _, f := range list {
			want := 0.0
			if f.in != nil {
				want = b.shares.rateOf(f.in)
			}
			rate := f.rate()
			if rate != want || f.clock != nil && (f.clock.fluids[f.place] != f || f.clock.queued == 0 != (want == 0)) {
				t.Fatalf("fluid %d: rate %v, at %d of its clock, rate of its class %v", f.id, rate, f.place, want)
			}
			if left, onset := f.leftAt(b.clock), 8*float64(f.size-f.size/3); f.slow > 0 && (f.turn > 0 && left < onset-1 || f.turn == 0 && left > onset+1) {
				t.Fatalf("fluid %d: %v bits of %v left, slows down when %v are: %v", f.id, left, f.size, onset, f.turn == 0)
			}
			if most := float64(f.most); f.most > 0 && rate > most {
				t.Fatalf("fluid %d: rate %v above %v, at which it is served or written", f.id, rate, most)
			}
			if most := float64(f.consumes) * b.faults.share[f.dst]; f.consumes > 0 && rate > most || rate > float64(f.ceiling) && f.ceiling != policies.NoLimit {
				t.Fatalf("fluid %d: rate %v above %v, at which its task consumes, or its ceiling %v", f.id, rate, most, f.ceiling)
			}
		}
	}
}

// After any random start, end, pause or change, the partially updated rates equal those
// of the slow model.
func TestUpdateAgreesWithSlow(t *testing.T) {
	f := rackFabric(t, 3, 3)
	var everyHost []topo.HostID
	for h := range topo.HostID(f.Hosts()) {
		everyHost = append(everyHost, h)
	}
	rapid.Check(t, func(t *rapid.T) {
		var faults fault.Timeline
		if rapid.Bool().Draw(t, "faults") {
			faults = fault.Timeline{
				{At: 20 * time.Millisecond, Action: fault.SetRate{Link: f.LeafUp(1, 0), Rate: 100 * units.Mbps}},
				{At: 30 * time.Millisecond, Action: fault.SetCPU{Host: 1, Share: 0.1}},
				{At: 40 * time.Millisecond, Action: fault.SetDisk{Host: 2, Rate: 50 * units.Mbps}},
				{At: 50 * time.Millisecond, Action: fault.Crash{Host: 0}},
				{At: 55 * time.Millisecond, Action: fault.SetCPU{Host: 1, Share: 1}},
				{At: 60 * time.Millisecond, Action: fault.SetLink{Link: f.LeafDown(2, 0)}},
				{At: 80 * time.Millisecond, Action: fault.SetLink{Link: f.LeafDown(2, 0), Up: true}},
			}
		}
		b := New(f, Config{Needs: policies.Progress, DiskRate: units.Rate(rapid.SampledFrom([]int{0, 3e8}).Draw(t, "disk")),
			ReadRate: units.Rate(rapid.SampledFrom([]int{0, 2e8}).Draw(t, "reads")), Disks: 2, Stored: []engine.StoredBlock{{Block: -1, Hosts: everyHost}}, Heartbeat: 7 * time.Millisecond, Faults: faults, Silence: time.Second})
		host := rapid.IntRange(0, f.Hosts()-1)
		ceiling := rapid.SampledFrom([]units.Rate{policies.NoLimit, policies.NoLimit, 0, 33 * units.Mbps, 200 * units.Mbps, 90_000_001})
		rate := rapid.SampledFrom([]units.Rate{0, 33 * units.Mbps, 150 * units.Mbps, 2 * units.Gbps})
		var now time.Duration
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			var cmd engine.Command
			size := units.Bytes(rapid.SampledFrom([]int{1, 40_000, 700_000, 5_000_000}).Draw(t, "size"))
			kind := rapid.IntRange(0, 9).Draw(t, "kind")
			transfer := func(size units.Bytes) *engine.TaskTransfer {
				x := &engine.TaskTransfer{Rate: rate.Draw(t, "rate"), Served: rapid.SampledFrom([]units.Rate{0, 0, 50 * units.Mbps}).Draw(t, "served")}
				if x.Rate > 0 && size > 1 && rapid.Bool().Draw(t, "slows down") {
					x.Onset, x.Slow = size/3, x.Rate/units.Rate(rapid.SampledFrom([]int{1, 8}).Draw(t, "factor"))
				}
				return x
			}
			task := func(i int) jobs.AttemptID { return jobs.AttemptID{N: i} }
			switch {
			case kind == 0 && len(b.flows) > 0:
				cmd = engine.SetCeiling{Flow: workloads.FlowID(rapid.SampledFrom(b.flows).Draw(t, "flow").id), Ceiling: ceiling.Draw(t, "ceiling")}
			case kind == 1 && len(b.flows) > 0:
				cmd = engine.StopTransfer{Flow: workloads.FlowID(rapid.SampledFrom(b.flows).Draw(t, "flow").id)}
			case kind == 2 && len(b.chains) > 0:
				cmd = engine.StopChain{Block: workloads.BlockID(rapid.SampledFrom(b.chains).Draw(t, "block").id)}
			case kind == 3:
				hosts := rapid.Permutation(seq(f.Hosts())).Draw(t, "targets")
				c := engine.StartChain{Block: workloads.Block{ID: workloads.BlockID(i), Client: topo.HostID(hosts[0]), Size: size}}
				for _, h := range hosts[:rapid.IntRange(1, 4).Draw(t, "replicas")] {
					c.Targets, c.Hashes = append(c.Targets, topo.HostID(h)), append(c.Hashes, 0)
				}
				cmd = c
			case kind == 4:
				cmd = engine.SpillOutput{Attempt: task(i), Host: topo.HostID(host.Draw(t, "on")), Size: size, Rate: rate.Draw(t, "rate")}
			case kind == 5 && i > 0:
				cmd = engine.StopTask{Attempt: task(rapid.IntRange(0, i-1).Draw(t, "task"))}
			case kind == 6:
				cmd = engine.ReadDisk{ID: workloads.FlowID(i), Host: topo.HostID(host.Draw(t, "on")), Block: -1, Size: size, Task: transfer(size)}
			case kind == 7:
				cmd = engine.Compute{Attempt: task(i), Host: topo.HostID(host.Draw(t, "on")), Time: time.Duration(size)}
			default:
				src := host.Draw(t, "src")
				dst := (src + rapid.IntRange(1, f.Hosts()-1).Draw(t, "to")) % f.Hosts()
				c := engine.StartTransfer{Flow: workloads.Flow{ID: workloads.FlowID(i), Src: topo.HostID(src), Dst: topo.HostID(dst), Size: size}, Ceiling: ceiling.Draw(t, "ceiling")}
				if kind == 8 {
					block := workloads.BlockID(-1)
					c.Read, c.Task = &block, transfer(size)
				}
				cmd = c
			}
			if err := b.Do(t.Context(), []engine.Command{cmd}); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 2).Draw(t, "waits") {
				var err error
				if now, _, err = b.Await(t.Context(), now+time.Duration(rapid.IntRange(0, 10).Draw(t, "ms"))*time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			if b.stale {
				b.share()
			}
			checkRates(t, b)
		}
	})
}

// crowd starts random flows and pipelines on a fabric, as in large clusters: disks limit
// most pipelines, and a few busy racks limit some flows.
func crowd(t testing.TB, f *topo.Fabric, b *Backend, rng *rand.Rand, n int) {
	first := 0
	for b.started.has(first) || b.byBlock[workloads.BlockID(first)] {
		first++
	}
	for id := first; id < first+n; id++ {
		var cmd engine.Command
		if rng.IntN(2) == 0 {
			hosts := rng.Perm(f.Hosts())
			cmd = engine.StartChain{Block: workloads.Block{ID: workloads.BlockID(id), Client: topo.HostID(hosts[0]), Size: 1e6 + units.Bytes(rng.IntN(1e6))},
				Targets: []topo.HostID{topo.HostID(hosts[0]), topo.HostID(hosts[1]), topo.HostID(hosts[2])}, Hashes: []uint32{0, 0, 0}}
		} else {
			dst := f.HostIn(topo.RackID(rng.IntN(3)), rng.IntN(f.Hosts()/f.Racks()))
			src := topo.HostID((int(dst) + 1 + rng.IntN(f.Hosts()-1)) % f.Hosts())
			cmd = engine.StartTransfer{Flow: workloads.Flow{ID: workloads.FlowID(id), Src: src, Dst: dst, Size: 1e6 + units.Bytes(rng.IntN(1e6))}, Ceiling: policies.NoLimit}
		}
		if err := b.Do(t.Context(), []engine.Command{cmd}); err != nil {
			t.Fatal(err)
		}
	}
}

// progress returns the needs of policies that see progress or not.
func progress(shown bool) policies.Facts {
	if shown {
		return policies.Progress
	}
	return 0
}

// On a crowded fabric, completion times agree to the nanosecond (and its rounding)
// between full and partial computation of the rates.
func TestUpdateEndsLikeAll(t *testing.T) {
	f := rackFabric(t, 20, 10)
	ends := func(all, blind bool) map[string]time.Duration {
		b := New(f, Config{DiskRate: 400 * units.Mbps, Heartbeat: 100 * time.Millisecond, Needs: progress(!blind)})
		rng := rand.New(rand.NewPCG(7, 7))
		out := map[string]time.Duration{}
		crowd(t, f, b, rng, 300)
		for round := 0; len(b.flows)+len(b.chains) > 0; round++ {
			if all {
				b.changed = append(b.changed, b.classes...)
			}
			now, evs, err := b.Await(t.Context(), engine.NextNever)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range evs {
				switch ev.(type) {
				case engine.TransferFinished, engine.BlockDurable:
					out[fmt.Sprintf("%#v", ev)] = now
				}
			}
			if round%8 == 0 && round < 800 {
				crowd(t, f, b, rng, 8)
			}
		}
		return out
	}
	want := ends(true, false)
	for name, got := range map[string]map[string]time.Duration{"around": ends(false, false), "around, blind": ends(false, true)} {
		if len(got) != len(want) || len(want) < 1000 {
			t.Fatalf("%s: %d ended, want %d", name, len(got), len(want))
		}
		for ev, at := range want {
			if d := got[ev] - at; d < -1 || d > 1 {
				t.Errorf("%s: %s at %d ns, want %d", name, ev, got[ev], at)
			}
		}
	}
}

// Unused paths are forgotten, and those of paused and running flows and spills are not.
func TestPathsAreForgotten(t *testing.T) {
	f := rackFabric(t, 20, 10)
	b := New(f, Config{DiskRate: units.Mbps})
	do := func(cmd engine.Command) {
		if err := b.Do(t.Context(), []engine.Command{cmd}); err != nil {
			t.Fatal(err)
		}
	}
	flow := func(i, src, dst int, ceiling units.Rate) engine.Command {
		return engine.StartTransfer{Flow: workloads.Flow{ID: workloads.FlowID(i), Src: topo.HostID(src), Dst: topo.HostID(dst), Size: 1e12}, Ceiling: ceiling}
	}
	do(flow(0, 0, 1, 0))
	do(flow(1, 2, 3, policies.NoLimit))
	do(engine.SpillOutput{Host: 4, Size: 1e12})
	kept := []*class{b.flows[0].path, b.flows[1].path, b.tasks.spilling[jobs.AttemptID{}].path}
	id, most := 2, 0
	for src := range f.Hosts() {
		for dst := range f.Hosts() {
			if src == dst {
				continue
			}
			do(flow(id, src, dst, policies.NoLimit))
			do(engine.StopTransfer{Flow: workloads.FlowID(id)})
			id++
			most = max(most, len(b.paths))
		}
	}
	if most != minPaths {
		t.Errorf("up to %d paths are kept, want %d", most, minPaths)
	}
	if again := []*class{b.readClass(0, 1, 0, none), b.readClass(2, 3, 0, none), b.readClass(4, 4, 0, b.disk(4, 0))}; !slices.Equal(again, kept) {
		t.Error("a path in use was forgotten")
	}
}

// Without policies.Progress, a flow's received bytes are reported only when it ends, and all other
// events are the same at the same times.
func TestBlind(t *testing.T) {
	f := rackFabric(t, 2, 3)
	run := func(blind bool) (out []engine.Event, at []time.Duration) {
		b := New(f, Config{Needs: progress(!blind), Heartbeat: 3 * time.Millisecond})
		for i := range 4 {
			c := engine.StartTransfer{Flow: workloads.Flow{ID: workloads.FlowID(i), Src: topo.HostID(i), Dst: topo.HostID(i+1) % 6, Size: units.Bytes(1e6 * (i + 1))}, Ceiling: policies.NoLimit}
			if err := b.Do(t.Context(), []engine.Command{c}); err != nil {
				t.Fatal(err)
			}
		}
		for len(b.flows) > 0 {
			now, evs, err := b.Await(t.Context(), engine.NextNever)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range evs {
				if p, ok := ev.(engine.TransferProgressed); ok {
					for i, id := range p.Flows {
						ends := slices.ContainsFunc(evs, func(ev engine.Event) bool { return ev == engine.TransferFinished{Flow: id} })
						if blind && !ends || ends && p.Received[i] != units.Bytes(1e6*(id+1)) {
							t.Errorf("at %v: flow %d has %v, ends: %v", now, id, p.Received[i], ends)
						}
					}
					continue
				}
				out, at = append(out, ev), append(at, now)
			}
		}
		return out, at
	}
	evs, at := run(false)
	blindly, when := run(true)
	if !slices.Equal(evs, blindly) || !slices.Equal(at, when) || len(evs) < 8 {
		t.Errorf("blind: %v at %v, want %v at %v", blindly, when, evs, at)
	}
}

// BenchmarkUpdate starts and ends one block in a cluster of 3,000 hosts in 150 racks,
// while the given number of blocks is being written and flows keep ten racks busy.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{250, 1000} {
		b.Run(fmt.Sprintf("blocks=%d/flows=1000", n), func(b *testing.B) {
			f := rackFabric(b, 150, 20)
			be := New(f, Config{DiskRate: 400 * units.Mbps})
			rng := rand.New(rand.NewPCG(1, 2))
			now := time.Duration(0)
			do := func(cmd engine.Command) {
				if err := be.Do(b.Context(), []engine.Command{cmd}); err != nil {
					b.Fatal(err)
				}
			}
			write := func(id int) {
				client := rng.IntN(3000)
				rack := (client/20 + 1 + rng.IntN(149)) % 150
				at := rng.IntN(20)
				do(engine.StartChain{Block: workloads.Block{ID: workloads.BlockID(id), Client: topo.HostID(client), Size: 1e15},
					Targets: []topo.HostID{topo.HostID(client), f.HostIn(topo.RackID(rack), at), f.HostIn(topo.RackID(rack), (at+1)%20)}, Hashes: []uint32{0, 0, 0}})
			}
			for i := range 1000 {
				dst := f.HostIn(topo.RackID(i%10), rng.IntN(20))
				src := topo.HostID((int(dst) + 20 + rng.IntN(2900)) % 3000)
				do(engine.StartTransfer{Flow: workloads.Flow{ID: workloads.FlowID(i), Src: src, Dst: dst, Size: 1e15}, Ceiling: policies.NoLimit})
			}
			for i := range n {
				write(i)
			}
			b.ReportAllocs()
			for i := n; b.Loop(); i++ {
				do(engine.StopChain{Block: workloads.BlockID(i - n)})
				write(i)
				now += time.Millisecond
				if _, _, err := be.Await(b.Context(), now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An idSet has the IDs that were added, also negative ones and those at the ends of pages.
func TestIDSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	s, want := idSet{}, map[int]bool{}
	for range 2000 {
		id := rng.IntN(4*idPage) - 2*idPage
		s.add(id)
		want[id] = true
	}
	for _, id := range []int{-idPage, -1, 0, idPage - 1, idPage, math.MaxInt, math.MinInt} {
		s.add(id)
		want[id] = true
	}
	for id := -3 * idPage; id < 3*idPage; id++ {
		if s.has(id) != want[id] {
			t.Errorf("has(%d) = %v, want %v", id, s.has(id), want[id])
		}
	}
	if !s.has(math.MaxInt) || !s.has(math.MinInt) || s.has(math.MaxInt-1) {
		t.Error("wrong IDs at the ends of the range")
	}
}
