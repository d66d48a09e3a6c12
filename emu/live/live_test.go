package live

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/hosts/disk"
	"testbed/policies"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/samples"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// rig is a testbed of two racks over two spines with a backend on it.
type rig struct {
	*Backend
	fabric   *topo.Fabric
	captures string
}

func newRig(t *testing.T, hostLink units.Rate, disks []units.Rate) *rig {
	t.Helper()
	return newRigOf(t, hostLink, disks, nil, 0)
}

// newRigOf also captures links, named by patterns, and reports what policies need.
func newRigOf(t *testing.T, hostLink units.Rate, disks []units.Rate, patterns []string, needs policies.Facts) *rig {
	t.Helper()
	return newRigWith(t, hostLink, disks, patterns, nil, func(c *Config) { c.Needs = needs })
}

// newRigWith also changes links, and what the backend runs on.
func newRigWith(t *testing.T, hostLink units.Rate, disks []units.Rate, patterns []string, changes []topo.LinkChange, change func(*Config)) *rig {
	t.Helper()
	netnstest.Require(t)
	shape := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 3, HostLink: hostLink, Oversubscription: units.Ratio{Num: 3, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500, Links: changes}
	f, err := shape.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Compile("live", f, plan.Options{Seed: 1, Congestion: "cubic"})
	owned, err := deploy.Create(t.Context(), filepath.Join(t.TempDir(), "state"), deploy.State{ID: "live", Kind: deploy.KindRun, Shape: shape, Namespaces: p.Namespaces()})
	if err != nil {
		t.Fatal(err)
	}
	x := kernel.NewExecutor(owned.PinDir())
	cleanup := func(what string, f func() error) {
		t.Cleanup(func() {
			if err := f(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	cleanup("remove", func() error { return owned.Remove(context.Background(), kernel.Reaper{}) })
	cleanup("close", x.Close)
	d, err := deploy.Apply(t.Context(), p, x)
	if err != nil {
		t.Fatal(err)
	}
	cleanup("destroy", func() error { return d.Destroy(context.Background()) })
	var links []topo.LinkID
	for _, pattern := range patterns {
		found, err := f.FindLinks(pattern)
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, found...)
	}
	r := &rig{fabric: f, captures: t.TempDir()}
	cfg := Config{Fabric: f, Pins: owned.PinDir(), Meta: pcap.Meta{Tool: "test", RunID: "live", Run: 77, Arm: "a"},
		Captures: r.captures, Samples: filepath.Join(t.TempDir(), samples.File), Links: links, Snaplen: 160, Ring: units.MiB, Disks: t.TempDir(), DiskRates: disks, DiskSize: 100 * units.MB,
		Heartbeat: 100 * time.Millisecond, Congestion: "cubic", Settings: DefaultSettings(f)}
	change(&cfg)
	r.Backend, err = Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cleanup("close backend", r.Close)
	return r
}

func (r *rig) do(t *testing.T, cmds ...engine.Command) {
	t.Helper()
	if err := r.Do(t.Context(), cmds); err != nil {
		t.Fatal(err)
	}
}

// until awaits an event, within ten seconds on real processors.
func (r *rig) until(t *testing.T, want engine.Event) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(10*time.Second))
	defer cancel()
	for {
		now, evs, err := r.Await(ctx, engine.NextNever)
		if err != nil {
			t.Fatalf("waiting for %+v: %v", want, err)
		}
		for _, ev := range evs {
			if f, ok := want.(engine.TransferFinished); ok && ev == f {
				return now
			}
			if b, ok := want.(engine.BlockDurable); ok && ev == b {
				return now
			}
		}
	}
}

func (r *rig) finish(t *testing.T) (Measured, flows.Result) {
	t.Helper()
	m, err := r.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	res, err := flows.Reduce(t.Context(), r.captures, flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m, res
}

func TestStartWithoutTestbed(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: time.Second}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Config{Fabric: f, Pins: t.TempDir(), Heartbeat: time.Second, Settings: DefaultSettings(f)})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one that says the namespace is not there", err)
	}
}

func TestCapturesHoldWhatInterfacesCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, 50*units.Mbps, nil)
	f := workloads.Flow{ID: 1, Src: 0, Dst: 4, Size: 500 * units.KB}
	r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: 9, Host: 0, Parts: 1, Size: f.Size},
		engine.StartTransfer{Coflow: 9, Flow: f, Ceiling: policies.NoLimit})
	r.until(t, engine.TransferFinished{Flow: 1})
	m, res := r.finish(t)
	for h, c := range res.Captures {
		var got uint64
		for _, i := range c.Interfaces {
			if i.Name == "eth0" {
				got = uint64(i.Out.Bytes + i.In.Bytes + i.Other.Bytes)
			}
		}
		if got != m.Counted[h] || m.Dropped[h] != 0 {
			t.Errorf("%s: %d bytes captured, %d counted, %d packets dropped", c.Host, got, m.Counted[h], m.Dropped[h])
		}
	}
	if len(res.Coflows) != 1 || len(res.Problems) != 0 || res.Coflows[0].Size != f.Size {
		t.Fatalf("records %+v", res.Records)
	}
	// 500 KB in frames of 1514 bytes for 1448 of payload, at 50 Mbps, is 83.7 ms.
	if cct := res.Coflows[0].CCT(); cct < 80*time.Millisecond {
		t.Errorf("CCT %v is less than the wire takes", cct)
	}
}

// Under simultaneous setup a connection stands before its coflow's mark, a flow that the policy
// holds back is held on it, one that was not foreseen opens its own, and all have records.
func TestSimultaneousSetup(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		f := func(id, src, dst int) workloads.Flow {
			return workloads.Flow{ID: workloads.FlowID(id), Src: topo.HostID(src), Dst: topo.HostID(dst), Size: 100 * units.KB}
		}
		held, free, mate, sudden, unused := f(1, 0, 4), f(2, 1, 4), f(3, 2, 4), f(4, 0, 5), f(5, 1, 5)
		r := newRigWith(t, 50*units.Mbps, nil, nil, nil, func(c *Config) {
			c.Settings.SetupMode = SetupSimultaneous
			c.Foreseen = []workloads.Coflow{{ID: 1, Flows: []workloads.Flow{held, free, mate}}, {ID: 3, Arrival: time.Minute, Flows: []workloads.Flow{unused}}}
		})
		start := func(coflow workloads.CoflowID, f workloads.Flow, ceiling units.Rate) engine.Command {
			return engine.StartTransfer{Coflow: coflow, Flow: f, Hash: workloads.FlowHash(0, f.ID), Ceiling: ceiling}
		}
		r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: 1, Host: 0, Parts: 3, Size: 300 * units.KB},
			start(1, held, 0), start(1, free, policies.NoLimit), start(1, mate, policies.NoLimit))
		r.until(t, engine.TransferFinished{Flow: 3})
		<-time.After(200 * time.Millisecond)
		r.do(t, engine.SetCeiling{Flow: 1, Ceiling: policies.NoLimit},
			engine.Mark{Kind: engine.MarkCoflow, ID: 2, Host: 0, Parts: 1, Size: sudden.Size}, start(2, sudden, policies.NoLimit))
		r.until(t, engine.TransferFinished{Flow: 4})
		_, res := r.finish(t)
		if len(res.Problems) > 0 || len(res.Flows) != 4 || len(res.Coflows) != 2 {
			t.Fatalf("records %+v", res.Records)
		}
		late := false
		for i, f := range res.Flows {
			tr := res.Trails[slices.IndexFunc(res.Trails, func(t flows.Trail) bool { return t.Member == uint32(f.Flow) })]
			before := tr.SetUp < f.Arrival
			if before != (f.Flow != 4) || tr.FirstSent < f.Arrival {
				t.Errorf("flow %d: connected at %v, arrived at %v, sent first at %v", f.Flow, tr.SetUp, f.Arrival, tr.FirstSent)
			}
			if f.Flow == 1 && f.Start-f.Arrival < 200*time.Millisecond {
				t.Errorf("held for 200ms, it began %v after its arrival", f.Start-f.Arrival)
			}
			late = late || f.Resent != 0 || f.Flow == 1 && f.Setup > 100*time.Millisecond // late acknowledgements cause retransmissions
			t.Logf("flow %d: connected %v after its arrival, sent first %v after it, setup %v, %d packets again", f.Flow, tr.SetUp-f.Arrival, f.Start-f.Arrival, res.Flows[i].Setup, f.Resent)
		}
		return !late
	})
}

// A flow whose connection does not stand yet when it comes opens another, and a note says so.
func TestSetupThatIsTooLate(t *testing.T) {
	f := workloads.Flow{ID: 1, Src: 0, Dst: 4, Size: 100 * units.KB}
	r := newRigWith(t, 50*units.Mbps, nil, nil, nil, func(c *Config) {
		c.Settings.SetupMode, c.Settings.SetupAhead = SetupSimultaneous, 0
		c.Foreseen = []workloads.Coflow{{ID: 1, Arrival: time.Hour, Flows: []workloads.Flow{f}}}
	})
	r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: 1, Host: 0, Parts: 1, Size: f.Size},
		engine.StartTransfer{Coflow: 1, Flow: f, Ceiling: policies.NoLimit})
	r.until(t, engine.TransferFinished{Flow: 1})
	m, res := r.finish(t)
	if len(res.Problems) > 0 || len(res.Flows) != 1 {
		t.Errorf("records %+v", res.Records)
	}
	if !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.HasPrefix(n, "1 flows came before their connections stood") }) {
		t.Errorf("notes %q do not say that a flow was set up serially", m.Notes)
	}
}

// A flow whose ceiling is 0 sends nothing, not even a SYN, and one that is
// paused stops after what its socket holds.
func TestPause(t *testing.T) {
	r := newRig(t, 20*units.Mbps, nil)
	sent := func() units.Bytes {
		c, _, err := r.sampler.host(0)
		if err != nil {
			t.Fatal(err)
		}
		return c.tx
	}
	rest := func(d time.Duration) {
		<-time.After(netnstest.Patience(d))
	}
	f := workloads.Flow{ID: 1, Src: 0, Dst: 4, Size: 2 * units.MB}
	r.do(t, engine.StartTransfer{Coflow: 1, Flow: f, Ceiling: 0})
	rest(100 * time.Millisecond)
	if n := sent(); n != r.counted[0].tx {
		t.Fatalf("a flow of ceiling 0 sent %d bytes", n-r.counted[0].tx)
	}
	r.do(t, engine.SetCeiling{Flow: 1, Ceiling: policies.NoLimit})
	rest(200 * time.Millisecond)
	r.do(t, engine.SetCeiling{Flow: 1, Ceiling: 0})
	at := sent()
	if at-r.counted[0].tx < 100*units.KB {
		t.Fatalf("only %v left in 200 ms at 20 Mbps", at-r.counted[0].tx)
	}
	rest(300 * time.Millisecond)
	stopped := sent()
	set := r.cfg.Settings
	if after, most := stopped-at, set.SendBuffer+r.fabric.Link(0).Rate.BytesIn(set.Quantum); after > most {
		t.Errorf("%v left after the pause, more than %v", after, most)
	}
	rest(200 * time.Millisecond)
	if n := sent(); n != stopped {
		t.Errorf("a paused flow sent another %d bytes", n-stopped)
	}
	r.do(t, engine.SetCeiling{Flow: 1, Ceiling: policies.NoLimit})
	r.until(t, engine.TransferFinished{Flow: 1})
}

// The path that policies are shown is the one packets take: each flow crosses the
// spine that its hash names.
func TestFlowsTakeThePathPoliciesSee(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		r := newRig(t, 50*units.Mbps, nil)
		if r.fabric.Spines() != 2 {
			t.Fatalf("%d spines", r.fabric.Spines())
		}
		want := make([]units.Bytes, len(r.fabric.Links()))
		const flows = 12
		for i := range flows {
			f := workloads.Flow{ID: workloads.FlowID(i), Src: topo.HostID(i % 3), Dst: topo.HostID(3 + i%3), Size: units.Bytes(20+i) * units.KB}
			hash := uint32(i/3) * 7
			for _, l := range r.fabric.Path(f.Src, f.Dst, hash) {
				want[l] += f.Size
			}
			r.do(t, engine.StartTransfer{Coflow: 1, Flow: f, Hash: hash, Ceiling: policies.NoLimit})
		}
		for n := 0; n < flows; {
			_, evs, err := r.Await(t.Context(), engine.NextNever)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range evs {
				if _, ok := ev.(engine.TransferFinished); ok {
					n++
				}
			}
		}
		more := false
		for id, p := range r.sampler.ports {
			if l := r.fabric.Link(topo.LinkID(id)); l.Kind != topo.LeafUp || l.Rack != 0 {
				continue // rack 1 sends acknowledgements only
			}
			r.sampler.mu.Lock()
			q, err := r.sampler.shaper(map[string]readings{}, p, topo.LinkID(id))
			r.sampler.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			// Headers and what goes the other way add a tenth; another flow would add more. So do
			// retransmissions on a busy machine, but a flow elsewhere is then missing here.
			t.Logf("%s sent %v, want %v and its headers", r.fabric.LinkName(topo.LinkID(id)), q.Bytes, want[id])
			if q.Bytes < want[id] {
				t.Error("that is too little")
			}
			more = more || q.Bytes > want[id]+want[id]/8+2*units.KB
		}
		return !more
	})
}

// The block's write time is that of its slowest replica's disk, within a tenth.
func TestSlowDiskSetsTheWriteTime(t *testing.T) {
	const link = 50 * units.Mbps
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		disks := slices.Repeat([]units.Rate{10 * link}, 6)
		disks[4] = link / 10
		r := newRig(t, link, disks)
		b := workloads.Block{ID: 3, Client: 0, Size: 1 * units.MB, Replicas: 3, Packet: 64 * units.KB, Window: 4}
		r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: 3, Host: 0, Parts: 3, Size: b.Size},
			engine.StartChain{Block: b, Targets: []topo.HostID{0, 4, 5}, Hashes: []uint32{1, 2, 3}})
		r.until(t, engine.BlockDurable{Block: 3})
		_, res := r.finish(t)
		if len(res.Blocks) != 1 || len(res.Problems) > 0 {
			t.Fatalf("blocks %+v, problems %v", res.Blocks, res.Problems)
		}
		want := disks[4].TimeToSend(b.Size)
		ratio := float64(res.Blocks[0].WriteTime()) / float64(want)
		t.Logf("write time %v, the slow disk alone %v: ratio %.3f", res.Blocks[0].WriteTime(), want, ratio)
		return ratio >= 0.9 && ratio <= 1.1
	})
}

// A block for which no target has room fails, after each was reported as full. A block for which one
// target has no room is written to the others. The run continues.
func TestFullDiskCostsItsReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, 50*units.Mbps, slices.Repeat([]units.Rate{100 * units.Mbps}, 6))
	large := workloads.Block{ID: 3, Client: 0, Size: 200 * units.MB, Replicas: 2, Packet: 64 * units.KB, Window: 4} // on disks of 100 MB
	r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: 3, Host: 0, Parts: 2, Size: large.Size}, engine.StartChain{Block: large, Targets: []topo.HostID{1, 4}, Hashes: []uint32{1, 2}})
	var full []topo.HostID
	why := ""
	for why == "" {
		for _, ev := range r.events(t) {
			switch ev := ev.(type) {
			case engine.ReplicaLost:
				if !ev.Full {
					t.Errorf("%+v, want a host that is full", ev)
				}
				full = append(full, ev.Host)
			case engine.BlockFailed:
				why = ev.Why
			}
		}
	}
	if !slices.Equal(full, []topo.HostID{4, 1}) && !slices.Equal(full, []topo.HostID{1, 4}) || !strings.Contains(why, "is full") {
		t.Errorf("full are %v, and the block failed because of %q", full, why)
	}
	r.do(t, engine.StopChain{Block: 3}, engine.Mark{Kind: engine.MarkBlockFailed, ID: 3, Host: 0, Parts: 2, Size: large.Size})
	// Host 4 is filled, with room for less than a block.
	if _, err := r.volumes[4].Create(77, 99_900*units.KB); err != nil {
		t.Fatal(err)
	}
	b := workloads.Block{ID: 4, Client: 0, Size: 400 * units.KB, Replicas: 3, Packet: 16 * units.KB, Window: 2}
	r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: 4, Host: 0, Parts: 3, Size: b.Size}, engine.StartChain{Block: b, Targets: []topo.HostID{1, 4, 5}, Hashes: []uint32{1, 2, 3}})
	r.sees(t, engine.ReplicaLost{Block: 4, Host: 4, Full: true})
	r.sees(t, engine.BlockDurable{Block: 4})
	_, res := r.finish(t)
	if len(res.Blocks) != 1 || res.Blocks[0].Block != 4 {
		t.Errorf("captures show the blocks %+v, want block 4: problems %v", res.Blocks, res.Problems)
	}
}

// events are the next ones, within ten seconds.
func (r *rig) events(t *testing.T) []engine.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(10*time.Second))
	defer cancel()
	_, evs, err := r.Await(ctx, engine.NextNever)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

// A block moves at the rate of the slowest part of its pipeline, wherever that is:
// within a tenth, as its packets show. All else is five times as fast.
func TestPipelineMovesAtItsSlowest(t *testing.T) {
	longtest.Skip(t, "writes through pipelines at several rates, 7 s")
	const fast, slow = 50 * units.Mbps, 10 * units.Mbps
	// The client is h0-00, and the pipeline goes on to h1-00, h1-01 and h0-01.
	targets := []topo.HostID{3, 4, 1}
	for _, tt := range []struct {
		name  string
		links []string
		disk  topo.HostID // -1 for none
	}{
		{"the client's link", []string{"h0-00>leaf0"}, -1},
		{"the uplink of the first hop", []string{"leaf0>spine*"}, -1},
		{"the link of a later hop", []string{"h1-00>leaf1"}, -1},
		{"the disk of one replica", nil, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			netnstest.Timing(t, func(t *testing.T) bool {
				disks := slices.Repeat([]units.Rate{2 * fast}, 6)
				var changes []topo.LinkChange
				for _, l := range tt.links {
					changes = append(changes, topo.LinkChange{Link: l, Rate: slow})
				}
				if tt.disk >= 0 {
					disks[tt.disk] = slow
				}
				r := newRigWith(t, fast, disks, nil, changes, func(*Config) {})
				want := slow
				if tt.disk < 0 {
					want = plan.Payload(slow, r.fabric.Shape().MTU)
				}
				b := workloads.Block{ID: 3, Client: 0, Size: 1600 * units.KB, Replicas: 3, Packet: 16 * units.KB, Window: 10}
				r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: 3, Host: 0, Parts: 3, Size: b.Size},
					engine.StartChain{Block: b, Targets: targets, Hashes: []uint32{1, 2, 3}})
				r.until(t, engine.BlockDurable{Block: 3})
				_, res := r.finish(t)
				if len(res.Blocks) != 1 || len(res.Problems) > 0 {
					t.Fatalf("blocks %+v, problems %v", res.Blocks, res.Problems)
				}
				got := units.RateOf(b.Size, res.Blocks[0].WriteTime())
				ratio := float64(got) / float64(want)
				t.Logf("%v in %v: %v, the slowest part has %v: ratio %.3f", b.Size, res.Blocks[0].WriteTime(), got, want, ratio)
				return ratio >= 0.9 && ratio <= 1.1
			})
		})
	}
}

// kill crashes a host after a time, for a time, as a timeline does. The channel receives the result.
func (r *rig) kill(t *testing.T, h topo.HostID, after, lasts time.Duration) <-chan error {
	t.Helper()
	steps, err := fault.Compile(r.fabric, []fault.Fault{{Kind: fault.HostCrash, Name: "kill", At: after, For: lasts, Host: h}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	start := time.Now()
	go func() {
		for _, s := range steps {
			<-time.After(time.Until(start.Add(s.At)))
			if err := r.faults.carryOut(t.Context(), s); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	return ended
}

// A host of a pipeline is killed at ten moments of a block and of the next ones: each block is durable
// on the remaining hosts, or is reported as failed. Nothing hangs, no replica stays partially written,
// and the disks are removed at the end.
func TestKilledDataNode(t *testing.T) {
	longtest.Skip(t, "kills a data node ten times, 7 s")
	var dir string
	r := newRigWith(t, 50*units.Mbps, slices.Repeat([]units.Rate{16 * units.Mbps}, 6), nil, nil, func(c *Config) {
		c.Settings.PeerTimeout, c.Detect, c.DiskCount = 500*time.Millisecond, 300*time.Millisecond, 2
		dir = c.Disks
	})
	targets := []topo.HostID{3, 4, 1}
	const size = 400 * units.KB // 200 ms
	dropped := 0
	for i := range 10 {
		id := workloads.BlockID(i)
		victim := targets[i%3]
		killed := r.kill(t, victim, time.Duration(5+22*i)*time.Millisecond, time.Duration(150+500*(i%2))*time.Millisecond)
		b := workloads.Block{ID: id, Client: 0, Size: size, Replicas: 3, Packet: 16 * units.KB, Window: 2}
		r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: i, Host: 0, Parts: 3, Size: b.Size},
			engine.StartChain{Block: b, Targets: targets, Hashes: []uint32{1, 2, 3}})
		left := slices.Clone(targets)
		ended, back := "", false
		for ended == "" || !back {
			for _, ev := range r.events(t) {
				switch ev := ev.(type) {
				case engine.ReplicaLost:
					if ev.Block == id {
						left = slices.DeleteFunc(left, func(h topo.HostID) bool { return h == ev.Host })
					}
				case engine.BlockDurable:
					ended = "durable"
				case engine.BlockFailed:
					ended = "failed: " + ev.Why
				case engine.HostBack:
					back = back || ev.Host == victim
				}
			}
		}
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		t.Logf("%s killed after %d ms: block %d %s, replicas left %v", r.fabric.HostName(victim), 5+22*i, i, ended, left)
		if ended != "durable" || len(left) < 2 || len(left) == 2 && slices.Contains(left, victim) {
			t.Errorf("block %d with %s killed: %s, left are %v: want it durable on all but the host that was killed", i, r.fabric.HostName(victim), ended, left)
		}
		dropped += len(targets) - len(left)
		for _, h := range left {
			at := slices.IndexFunc(r.volumes[h].Disks(), func(d *disk.Disk) bool {
				info, err := os.Stat(d.Path(id))
				return err == nil && info.Size() == int64(size)
			})
			if at < 0 {
				t.Errorf("block %d: %s has no whole replica", i, r.fabric.HostName(h))
			}
		}
	}
	if dropped < 5 {
		t.Errorf("%d replicas were lost in ten kills: want most of them to hit a block that was being written", dropped)
	}
	if _, res := r.finish(t); len(res.Blocks) != 10 {
		t.Errorf("captures show %d blocks, want 10: problems %v", len(res.Blocks), res.Problems)
	}
	for _, v := range r.volumes {
		for _, d := range v.Disks() {
			files, err := filepath.Glob(filepath.Join(filepath.Dir(d.Path(0)), "*"))
			if err != nil || d.Used() != units.Bytes(len(files))*size {
				t.Errorf("%d files with %v, %v: want whole replicas of %v alone", len(files), d.Used(), err, size)
			}
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("of the disks %v are left, %v", entries, err)
	}
}
