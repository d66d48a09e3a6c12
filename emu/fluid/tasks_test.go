package fluid_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// attempt returns the first attempt of the i-th task of job 1.
func attempt(i int) jobs.AttemptID { return jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}} }

// stored returns blocks of 1 MB, each on one host.
func stored(hosts ...topo.HostID) (out []engine.StoredBlock) {
	for i, h := range hosts {
		out = append(out, engine.StoredBlock{Block: workloads.BlockID(i), Size: mb, Hosts: []topo.HostID{h}})
	}
	return out
}

func compute(i int, h topo.HostID, d time.Duration) engine.Command {
	return engine.Compute{Attempt: attempt(i), Host: h, Time: d}
}

func spill(i int, h topo.HostID, size units.Bytes) engine.Command {
	return engine.SpillOutput{Attempt: attempt(i), Host: h, Size: size}
}

func stopTask(i int, h topo.HostID) engine.Command {
	return engine.StopTask{Attempt: attempt(i), Host: h}
}

// read returns the read of a stored block of the host's own disk, and fetch that of another host's,
// by a task that consumes at a rate.
func read(id workloads.FlowID, h topo.HostID, block workloads.BlockID, rate units.Rate) engine.Command {
	return engine.ReadDisk{ID: id, Host: h, Block: block, Size: mb, Task: &engine.TaskTransfer{Attempt: attempt(int(id)), Rate: rate}}
}

func fetch(id workloads.FlowID, src, dst topo.HostID, block workloads.BlockID, rate, ceiling units.Rate) engine.Command {
	return engine.StartTransfer{Flow: workloads.Flow{ID: id, Src: src, Dst: dst, Size: mb}, Ceiling: ceiling, Read: &block, Task: &engine.TaskTransfer{Attempt: attempt(int(id)), Rate: rate}}
}

// slowing returns a read or fetch of a task that consumes at another rate after some bytes, and that is served at a rate.
func slowing(c engine.Command, onset units.Bytes, slow, served units.Rate) engine.Command {
	switch c := c.(type) {
	case engine.ReadDisk:
		c.Task.Onset, c.Task.Slow, c.Task.Served = onset, slow, served
	case engine.StartTransfer:
		c.Task.Onset, c.Task.Slow, c.Task.Served = onset, slow, served
	}
	return c
}

func computed(i int) engine.Event { return engine.TaskComputed{Attempt: attempt(i)} }
func spilled(i int) engine.Event  { return engine.OutputSpilled{Attempt: attempt(i)} }

// ending is an event with its time.
type ending struct {
	At time.Duration
	Ev engine.Event
}

// until runs a backend up to a time and returns all events except progress.
func until(t testing.TB, b *fluid.Backend, end time.Duration) (out []ending) {
	t.Helper()
	for {
		now, evs := await(t, b, end)
		for _, ev := range evs {
			if _, progress := ev.(engine.TransferProgressed); !progress {
				out = append(out, ending{now, ev})
			}
		}
		if now >= end && len(evs) == 0 {
			return out
		}
	}
}

// Computing takes its time, from the moment of the command. What ends at one moment is in one batch,
// in order of ID: flows, blocks, attempts that have computed, spilled outputs.
func TestCompute(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{DiskRate: 400 * units.Mbps})
	do(t, b, compute(9, 0, 100*ms), compute(3, 1, 0), compute(2, 0, 0), engine.MarkTask{Moment: wire.AttemptStarted, Attempt: attempt(2)},
		engine.Mark{Kind: engine.MarkCoflowClosed}, engine.Mark{Kind: engine.MarkFlowStopped}, engine.Mark{Kind: engine.MarkBlockStopped})
	wants(t, b, engine.NextNever, 0, computed(2), computed(3))
	wants(t, b, 80*ms, 80*ms)
	do(t, b, compute(2, 0, 20*ms), spill(5, 1, mb), spill(4, 2, mb), block(7, 3, mb, 3), start(1, 0, 1, mb, 400*units.Mbps), compute(6, 3, 1))
	wants(t, b, engine.NextNever, 80*ms+1, computed(6))
	wants(t, b, engine.NextNever, 100*ms, progress(1, int(mb)), finished(1), engine.BlockDurable{Block: 7}, computed(2), computed(9), spilled(4), spilled(5))
	const long = 300*time.Hour + 1 // the time is exact
	do(t, b, compute(9, 0, long))
	wants(t, b, engine.NextNever, 100*ms+long, computed(9))
	if _, _, err := b.Await(t.Context(), engine.NextNever); err == nil {
		t.Error("nothing computes: no error")
	}
}

// Spills and block writes share a disk. 1 MB takes 20 ms at 400 Mbps.
func TestSpill(t *testing.T) {
	cmds := []engine.Command{spill(1, 2, mb), spill(4, 2, 0), spill(2, 2, 2*mb), block(3, 2, 3*mb, 2), spill(5, 1, mb)}
	durable := engine.BlockDurable{Block: 3}
	for _, tt := range []struct {
		name  string
		rate  units.Rate
		disks int
		want  []ending
	}{
		// Thirds for 60 ms, halves for 40 ms, and the last 1 MB of the block alone.
		{"one disk", 400 * units.Mbps, 1, []ending{{0, spilled(4)}, {20 * ms, spilled(5)}, {60 * ms, spilled(1)}, {100 * ms, spilled(2)}, {120 * ms, durable}}},
		// The first spill and the block share a disk for 40 ms.
		{"two disks", 400 * units.Mbps, 2, []ending{{0, spilled(4)}, {20 * ms, spilled(5)}, {40 * ms, spilled(1)}, {40 * ms, spilled(2)}, {80 * ms, durable}}},
		{"no limit", 0, 1, []ending{{0, durable}, {0, spilled(1)}, {0, spilled(2)}, {0, spilled(4)}, {0, spilled(5)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, DiskRate: tt.rate, Disks: tt.disks})
			do(t, b, cmds...)
			if d := gocmp.Diff(tt.want, until(t, b, time.Second)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Spills cross no link, leave reads alone, and do not count as disk use.
func TestSpillsUseOnlyTheDisk(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, DiskRate: 400 * units.Mbps, ReadRate: 400 * units.Mbps, Heartbeat: 30 * ms, Stored: stored(0)})
	do(t, b, spill(1, 0, mb), read(2, 0, 0, 0), start(3, 0, 1, 5*mb/2, inf))
	got := until(t, b, 29*ms)
	if d := gocmp.Diff([]ending{{20 * ms, finished(2)}, {20 * ms, finished(3)}, {20 * ms, spilled(1)}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	_, evs := await(t, b, 30*ms)
	want := engine.Heartbeat{Host: 0, Tx: 5 * mb / 2, Disk: &engine.DiskReport{}}
	if d := gocmp.Diff(engine.Event(want), evs[0]); d != "" {
		t.Errorf("heartbeat (-want +got):\n%s", d)
	}
}

// A transfer of a task flows at the lowest of its ceiling, the rate of the task and its shares of
// links and disk. 1 MB takes 8 ms at 1 Gbps and 80 ms at 100 Mbps.
func TestTaskRates(t *testing.T) {
	const r100, r200, r400 = 100 * units.Mbps, 200 * units.Mbps, 400 * units.Mbps
	slow := func(h topo.HostID, share float64, at time.Duration) fault.Step {
		return fault.Step{At: at, Action: fault.SetCPU{Host: h, Share: share}}
	}
	for _, tt := range []struct {
		name   string
		read   units.Rate // of disks
		faults fault.Timeline
		cmds   []engine.Command
		want   []ending
	}{
		{"below the link", 0, nil, []engine.Command{fetch(1, 0, 1, 0, r100, inf)}, []ending{{80 * ms, finished(1)}}},
		{"above the link", 0, nil, []engine.Command{fetch(1, 0, 1, 0, 4*units.Gbps, inf)}, []ending{{8 * ms, finished(1)}}},
		{"no limit", 0, nil, []engine.Command{fetch(1, 0, 1, 0, 0, inf)}, []ending{{8 * ms, finished(1)}}},
		{"below the ceiling", 0, nil, []engine.Command{fetch(1, 0, 1, 0, r100, r200)}, []ending{{80 * ms, finished(1)}}},
		{"above the ceiling", 0, nil, []engine.Command{fetch(1, 0, 1, 0, r200, r100)}, []ending{{80 * ms, finished(1)}}},
		{"above the source's disk", r200, nil, []engine.Command{fetch(1, 0, 1, 0, r400, inf)}, []ending{{40 * ms, finished(1)}}},
		{"alone on its disk", 0, nil, []engine.Command{read(1, 0, 0, r100)}, []ending{{80 * ms, finished(1)}}},
		{"no disk, no rate", 0, nil, []engine.Command{read(1, 0, 0, 0)}, []ending{{0, finished(1)}}},
		{"above its disk", r200, nil, []engine.Command{read(1, 0, 0, r400)}, []ending{{40 * ms, finished(1)}}},
		// 200 and 800 Mbps on one link, then 200 Mbps.
		{"rest of the link", 0, nil, []engine.Command{fetch(1, 0, 1, 0, r200, inf), fetch(2, 0, 2, 0, 0, inf)}, []ending{{10 * ms, finished(2)}, {40 * ms, finished(1)}}},
		// A third of 400 Mbps each would be more than 100 Mbps: 100, 150 and 150 Mbps until
		// 2 and 3 end at 8/150 s; the first needs 80 ms.
		{"rest of the disk", r400, nil, []engine.Command{read(1, 0, 0, r100), read(2, 0, 0, r200), fetch(3, 0, 1, 0, 0, inf)},
			[]ending{{53333333, finished(2)}, {53333333, finished(3)}, {80 * ms, finished(1)}}},
		// 0.8 MB at 100 Mbps until 64 ms, 0.1 MB at 25 Mbps until 96 ms, 0.1 MB again at 100 Mbps.
		{"slow processor of the reader", 0, fault.Timeline{slow(1, 0.25, 64*ms), slow(1, 1, 96*ms)}, []engine.Command{fetch(1, 0, 1, 0, r100, inf)}, []ending{{104 * ms, finished(1)}}},
		{"slow processor, own disk", r400, fault.Timeline{slow(0, 0.25, 64*ms), slow(0, 1, 96*ms)}, []engine.Command{read(1, 0, 0, r100)}, []ending{{104 * ms, finished(1)}}},
		// 0.75 MB at 100 Mbps, and the rest at 10 Mbps.
		{"slows down", 0, nil, []engine.Command{slowing(fetch(1, 0, 1, 0, r100, inf), 750_000, 10*units.Mbps, 0)}, []ending{{260 * ms, finished(1)}}},
		{"slows down, own disk", r400, nil, []engine.Command{slowing(read(1, 0, 0, r100), 750_000, 10*units.Mbps, 0)}, []ending{{260 * ms, finished(1)}}},
		// The link limits it before and after: its rate does not change.
		{"slows down to more than the link", 0, nil, []engine.Command{slowing(fetch(1, 0, 1, 0, 4*units.Gbps, inf), 750_000, 2*units.Gbps, 0)}, []ending{{8 * ms, finished(1)}}},
		// 0.4 MB at 100 Mbps, 0.35 MB at 25 Mbps, 0.25 MB at 2.5 Mbps.
		{"slows down on a slow processor", 0, fault.Timeline{slow(1, 0.25, 32*ms)}, []engine.Command{slowing(fetch(1, 0, 1, 0, r100, inf), 750_000, 10*units.Mbps, 0)}, []ending{{944 * ms, finished(1)}}},
		// 300 and 100 Mbps of a disk until 20 ms; then the first leaves 390 Mbps.
		{"leaves others more when it slows down", r400, nil, []engine.Command{slowing(read(1, 0, 0, 100*units.Mbps), 250_000, 10*units.Mbps, 0), read(2, 0, 0, 0)},
			[]ending{{20*ms + 5128205, finished(2)}, {620 * ms, finished(1)}}},
		{"served below the ceiling", 0, nil, []engine.Command{slowing(fetch(1, 0, 1, 0, 0, r200), 0, 0, r100)}, []ending{{80 * ms, finished(1)}}},
		{"served above the ceiling", 0, nil, []engine.Command{slowing(fetch(1, 0, 1, 0, 0, r100), 0, 0, r200)}, []ending{{80 * ms, finished(1)}}},
		{"served without a ceiling", 0, nil, []engine.Command{slowing(fetch(1, 0, 1, 0, 0, inf), 0, 0, r100)}, []ending{{80 * ms, finished(1)}}},
		// The processor of the source slows only its links, to 250 Mbps.
		{"slow processor of the source", 0, fault.Timeline{slow(0, 0.25, 0)}, []engine.Command{fetch(1, 0, 1, 0, r100, inf)}, []ending{{80 * ms, finished(1)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, ReadRate: tt.read, Stored: stored(0), Faults: tt.faults})
			await(t, b, 0) // applies faults at 0
			do(t, b, tt.cmds...)
			if d := gocmp.Diff(tt.want, until(t, b, time.Second)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A ceiling set later applies while it is below the rate of the task.
func TestTaskRateUnderChangingCeiling(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, Stored: stored(0)})
	do(t, b, fetch(1, 0, 1, 0, 200*units.Mbps, 0))
	wants(t, b, 10*ms, 10*ms)
	ceiling := func(r units.Rate) { do(t, b, engine.SetCeiling{Flow: 1, Ceiling: r}) }
	ceiling(inf)
	wants(t, b, 14*ms, 14*ms, progress(1, 100_000))
	ceiling(100 * units.Mbps)
	wants(t, b, 22*ms, 22*ms, progress(1, 200_000))
	ceiling(0)
	wants(t, b, 30*ms, 30*ms)
	ceiling(units.Gbps)
	wants(t, b, engine.NextNever, 62*ms, progress(1, 1_000_000), finished(1))
}

// Stored blocks are on the disks of a host round-robin, before the blocks that are written.
func TestStored(t *testing.T) {
	cfg := fluid.Config{DiskRate: 400 * units.Mbps, ReadRate: 400 * units.Mbps, Disks: 2, Stored: stored(0, 0, 0)}
	b := fluid.New(racks(t, 1, 4, 1), cfg)
	// Blocks 0 and 2 are on one disk; the spill is on the other one, which the written block 9 follows.
	do(t, b, read(1, 0, 0, 0), read(2, 0, 1, 0), fetch(3, 0, 1, 2, 0, inf), spill(4, 0, mb), block(9, 0, mb, 0))
	wants(t, b, engine.NextNever, 20*ms, progress(2, int(mb)), finished(2), engine.BlockDurable{Block: 9}, spilled(4))
	do(t, b, read(5, 0, 9, 0)) // on the disk of blocks 0 and 2: a third for 30 ms
	wants(t, b, engine.NextNever, 50*ms, progress(1, int(mb), 3, int(mb)), finished(1), finished(3))
	wants(t, b, engine.NextNever, 60*ms, progress(5, int(mb)), finished(5))
	// Disks do not limit reads of blocks in memory, which take a place in the turn of the disks all the same.
	cfg.Stored[0].Cached = true
	b = fluid.New(racks(t, 1, 4, 1), cfg)
	do(t, b, read(1, 0, 0, 200*units.Mbps), read(2, 0, 2, 0), fetch(3, 0, 1, 0, 200*units.Mbps, inf))
	wants(t, b, engine.NextNever, 20*ms, progress(2, int(mb)), finished(2))
	wants(t, b, engine.NextNever, 40*ms, progress(1, int(mb), 3, int(mb)), finished(1), finished(3))
	for _, bad := range [][]engine.StoredBlock{stored(4), stored(-1), append(stored(1), stored(1)...)} {
		if _, _, err := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, Stored: bad}).Await(t.Context(), ms); err == nil || !strings.Contains(err.Error(), "stored block 0 on hosts") {
			t.Errorf("stored %v: error %v", bad, err)
		}
	}
}

// No event follows the stop of an attempt, and the others get its share. A stopped or dropped output
// can be spilled again.
func TestStopTask(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, DiskRate: 400 * units.Mbps})
	do(t, b, compute(1, 0, 50*ms), compute(2, 0, 50*ms), spill(1, 0, mb), spill(3, 0, mb), stopTask(8, 0))
	wants(t, b, 20*ms, 20*ms)
	do(t, b, stopTask(1, 0), engine.DropOutputs{Job: 1})
	wants(t, b, engine.NextNever, 30*ms, spilled(3))
	wants(t, b, engine.NextNever, 50*ms, computed(2))
	again := []engine.Command{spill(3, 0, 0)}
	if err := b.Do(t.Context(), again); err == nil {
		t.Error("spilled twice")
	}
	for _, drop := range []engine.Command{stopTask(3, 0), engine.DropOutputs{Job: 1}} {
		do(t, b, drop)
		do(t, b, again...)
		wants(t, b, engine.NextNever, 50*ms, spilled(3))
	}
	do(t, b, engine.DropOutputs{Job: 2})
	if err := b.Do(t.Context(), again); err == nil {
		t.Error("dropped the output of another job")
	}
	do(t, b, stopTask(2, 0), compute(2, 0, 0), stopTask(2, 0))
	wants(t, b, 60*ms, 60*ms)
}

// A crash ends what a host computes, spills and reads from its disks. Work that the engine starts
// before it notices is lost too. After the return the host works again.
func TestTasksOfACrashedHost(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{DiskRate: 400 * units.Mbps, ReadRate: 400 * units.Mbps, Stored: stored(0, 0, 0, 1), Detect: 50 * ms,
		Faults: fault.Timeline{{At: 10 * ms, Action: fault.Crash{Host: 0}}, {At: 100 * ms, Action: fault.Return{Host: 0}}}})
	work := func(i int) {
		do(t, b, compute(i, 0, 30*ms), spill(i, 0, mb), read(workloads.FlowID(i), 0, 0, 0))
	}
	work(1)
	do(t, b, compute(2, 1, 30*ms), spill(2, 1, mb), read(2, 1, 3, 0))
	wants(t, b, 15*ms, 10*ms)
	work(3)
	got := until(t, b, 150*ms)
	want := []ending{{20 * ms, finished(2)}, {20 * ms, spilled(2)}, {30 * ms, computed(2)}, {60 * ms, engine.HostLost{Host: 0}}, {100 * ms, engine.HostBack{Host: 0}}}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	do(t, b, stopTask(1, 0), engine.StopRead{ID: 1, Host: 0})
	work(4)
	want = []ending{{170 * ms, finished(4)}, {170 * ms, spilled(4)}, {180 * ms, computed(4)}}
	if d := gocmp.Diff(want, until(t, b, time.Second)); d != "" {
		t.Errorf("after the return (-want +got):\n%s", d)
	}
}

// An attempt computes at the share of its host's processor, whenever it started. Disks are not
// slowed.
func TestComputeOnASlowProcessor(t *testing.T) {
	cpu := func(at time.Duration, share float64) fault.Step {
		return fault.Step{At: at, Action: fault.SetCPU{Host: 0, Share: share}}
	}
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, DiskRate: 400 * units.Mbps, Faults: fault.Timeline{cpu(40*ms, 0.25), cpu(80*ms, 0.5), cpu(100*ms, 1)}})
	do(t, b, compute(1, 0, 100*ms), compute(2, 1, 100*ms), compute(3, 0, 49*ms))
	if got := until(t, b, 44*ms); got != nil {
		t.Errorf("events %v", got)
	}
	do(t, b, compute(4, 0, 10*ms), compute(5, 0, 0), spill(6, 0, mb))
	// Attempt 1 has 60 ms left at 40 ms, 50 ms at 80 ms, 40 ms at 100 ms. Attempt 3 has 9 ms left at
	// 40 ms. Attempt 4 has 1 ms left at 80 ms.
	want := []ending{{44 * ms, computed(5)}, {64 * ms, spilled(6)}, {76 * ms, computed(3)}, {82 * ms, computed(4)}, {100 * ms, computed(2)}, {140 * ms, computed(1)}}
	if d := gocmp.Diff(want, until(t, b, time.Second)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A processor that has almost stopped does not lose its work.
func TestComputeOnAStoppedProcessor(t *testing.T) {
	cpu := func(at time.Duration, share float64) fault.Step {
		return fault.Step{At: at, Action: fault.SetCPU{Host: 0, Share: share}}
	}
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, Faults: fault.Timeline{cpu(40*ms, 1e-300), cpu(time.Hour, 1)}})
	do(t, b, compute(1, 0, 100*ms))
	if d := gocmp.Diff([]ending{{time.Hour + 60*ms, computed(1)}}, until(t, b, 2*time.Hour)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// While a job is unfinished, heartbeats are worth waiting for, but not for ever.
func TestWaitForHeartbeats(t *testing.T) {
	b := fluid.New(racks(t, 1, 2, 1), fluid.Config{Heartbeat: 20 * time.Minute})
	mark := func(m wire.Moment) { do(t, b, engine.MarkTask{Moment: m, Attempt: attempt(0)}) }
	mark(wire.JobSubmitted)
	do(t, b, start(1, 0, 1, mb, 0)) // paused
	beat := func(at time.Duration) {
		t.Helper()
		wants(t, b, engine.NextNever, at, engine.Heartbeat{Host: 0}, engine.Heartbeat{Host: 1})
	}
	beat(20 * time.Minute)
	mark(wire.AttemptStarted)
	beat(40 * time.Minute)
	beat(60 * time.Minute)
	beat(80 * time.Minute)
	const want = "heartbeats have started nothing of 1 unfinished job for 1h0m0s"
	if _, _, err := b.Await(t.Context(), engine.NextNever); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	mark(wire.JobFailed)
	if _, _, err := b.Await(t.Context(), engine.NextNever); err == nil || !strings.Contains(err.Error(), "deadlock") {
		t.Errorf("error %v after the end of the job", err)
	}
}

// With a resolution, ends wait for its next multiple or for another event, and bytes are counted once.
func TestResolution(t *testing.T) {
	f := racks(t, 2, 3, 2)
	cfg := fluid.Config{DiskRate: 400 * units.Mbps, Resolution: 5 * ms}
	b := fluid.New(f, cfg)
	do(t, b, start(1, 0, 1, mb, inf), compute(1, 0, ms), compute(2, 0, 5*ms), spill(3, 0, mb/8), block(4, 2, mb, 2))
	wants(t, b, engine.NextNever, 5*ms, computed(1), computed(2), spilled(3))
	wants(t, b, 9*ms, 9*ms, progress(1, int(mb)), finished(1))
	wants(t, b, engine.NextNever, 20*ms, engine.BlockDurable{Block: 4})

	cfg.Heartbeat = 10 * time.Second
	b = fluid.New(f, cfg)
	rng := rand.New(rand.NewPCG(3, 4))
	rx, tx := make([]units.Bytes, 6), make([]units.Bytes, 6)
	const n = 200
	for i := range n {
		src, size := rng.IntN(6), units.Bytes(rng.IntN(int(mb)))+1
		dst := (src + 1 + rng.IntN(5)) % 6
		tx[src], rx[dst] = tx[src]+size, rx[dst]+size
		if i%4 == 0 {
			do(t, b, block(workloads.BlockID(i), topo.HostID(src), size, topo.HostID(dst)))
		} else if i%4 == 1 && size > 2 {
			do(t, b, engine.StartTransfer{Flow: workloads.Flow{ID: workloads.FlowID(i), Src: topo.HostID(src), Dst: topo.HostID(dst), Size: size}, Ceiling: inf,
				Task: &engine.TaskTransfer{Rate: 200 * units.Mbps, Onset: size / 2, Slow: 10 * units.Mbps}})
		} else {
			do(t, b, start(workloads.FlowID(i), topo.HostID(src), topo.HostID(dst), size, inf))
		}
	}
	for _, at := range drain(t, b, n, 0) {
		if at%(5*ms) != 0 {
			t.Errorf("an end at %v", at)
		}
	}
	_, evs := await(t, b, 10*time.Second)
	for h, ev := range evs[:6] {
		if hb := ev.(engine.Heartbeat); hb.Rx != rx[h] || hb.Tx != tx[h] {
			t.Errorf("%+v, want %d and %d bytes", hb, rx[h], tx[h])
		}
	}
}

func TestDoRefusesTasks(t *testing.T) {
	for _, tt := range []struct {
		name string
		cmd  engine.Command
		want string
	}{
		{"compute on an unknown host", compute(1, 4, ms), "compute attempt 0 of task 0.1 of job 1 on host 4 for 1ms: expected a host of the fabric"},
		{"compute on a negative host", compute(1, -1, ms), "expected a host of the fabric"},
		{"compute for a negative time", compute(1, 0, -1), "a time of 0 or more"},
		{"compute twice", compute(0, 1, ms), "compute attempt 0 of task 0.0 of job 1: already computing"},
		{"spill on an unknown host", spill(1, 4, 1), "spill the output of attempt 0 of task 0.1 of job 1, 1B, on host 4 at 0: expected a host of the fabric"},
		{"spill of a negative size", spill(1, 0, -1), "a size and a rate of 0 or more"},
		{"spill at a negative rate", engine.SpillOutput{Attempt: attempt(1), Size: 1, Rate: -1}, "on host 0 at -1: expected"},
		{"spill twice at once", spill(0, 1, 1), "attempt 0 of task 0.0 of job 1: already spilled"},
		{"spill a stored output", spill(7, 1, 1), "already spilled"},
		{"flow with a negative rate", fetch(1, 0, 1, 0, -1, inf), "start flow 1 of 1MB, which a task consumes at -1"},
		{"read with a negative rate", read(1, 0, 0, -1), "expected rates of 0 or more"},
		{"read that never slows down", slowing(read(1, 0, 0, 100), mb, 10, 0), "after 1000000 bytes at 10"},
		{"read that slows down from no rate", slowing(read(1, 0, 0, 0), 1, 10, 0), "a later one after some bytes of the flow"},
		{"read that slows down to no rate", slowing(read(1, 0, 0, 100), 1, 0, 0), "after 1 bytes at 0"},
		{"read that slows down at no byte", slowing(read(1, 0, 0, 100), 0, 10, 0), "after 0 bytes at 10"},
		{"flow served at a negative rate", slowing(fetch(1, 0, 1, 0, 0, inf), 0, 0, -1), "that is served at -1"},
		{"read a block that is not stored", read(1, 1, 0, 0), "the host does not store this block"},
		{"fetch a block that is not stored", fetch(1, 0, 1, 5, 0, inf), "the host does not store this block"},
		{"read on an unknown host", read(1, 4, 0, 0), "expected a host of the fabric"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, DiskRate: units.Mbps, Stored: stored(0)})
			do(t, b, spill(7, 0, 0), compute(0, 0, ms), spill(0, 0, mb))
			wants(t, b, 0, 0, spilled(7))
			if err := b.Do(t.Context(), []engine.Command{tt.cmd}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			// It has changed nothing.
			wants(t, b, engine.NextNever, ms, computed(0))
			do(t, b, compute(1, 0, 0), spill(1, 0, 0), read(1, 0, 0, 0))
		})
	}
}

// taskOp is one command about an attempt, and its stop.
type taskOp struct {
	kind     string // compute, spill or read
	host     topo.HostID
	size     int64      // in bytes, or ns of computing
	rate     units.Rate // of a read or spill; 0 for no limit
	onset    int64      // bytes of a read after which the rate is slow; 0 for none
	slow     units.Rate
	from, to time.Duration
}

// slowTasks returns the end of each operation that ends, by its index. It steps from one change of
// any rate to the next. speed returns the share of a processor, 0 of a crashed host.
func slowTasks(ops []taskOp, changes []time.Duration, speed func(topo.HostID, float64) float64, disk float64) map[int]float64 {
	left, lost, ends := make([]float64, len(ops)), make([]bool, len(ops)), map[int]float64{}
	for i, o := range ops {
		if left[i] = float64(o.size); o.kind != "compute" {
			left[i] *= 8e9 // so that all rates are per ns
		}
		changes = append(changes, o.from, o.to)
	}
	for now := 0.0; ; {
		next := math.Inf(1)
		for _, c := range changes {
			if at := float64(c); at > now {
				next = min(next, at)
			}
		}
		if math.IsInf(next, 1) {
			return ends
		}
		users := map[string][]int{} // of each disk, for writes and for reads
		rate := make([]float64, len(ops))
		for i, o := range ops {
			if float64(o.from) > now || float64(o.to) <= now || lost[i] || ends[i] > 0 {
				continue
			}
			switch share := speed(o.host, now); {
			case share == 0:
				lost[i] = true
			case o.kind == "compute":
				rate[i] = share
			default:
				rate[i] = math.Inf(1) // a limit for now
				switch {
				case o.onset > 0 && left[i] <= 8e9*float64(o.size-o.onset):
					rate[i] = float64(o.slow) * share
				case o.rate > 0:
					rate[i] = float64(o.rate) * share
				}
				name := fmt.Sprint(o.kind, o.host)
				users[name] = append(users[name], i)
			}
		}
		for _, on := range users {
			slices.SortFunc(on, func(i, j int) int { return cmp.Compare(rate[i], rate[j]) })
			rest := disk
			for k, i := range on { // lowest limit first
				rate[i] = min(rate[i], rest/float64(len(on)-k))
				rest -= rate[i]
			}
		}
		for i := range ops {
			if rate[i] > 0 {
				next = min(next, now+left[i]/rate[i])
				if turn := 8e9 * float64(ops[i].size-ops[i].onset); ops[i].onset > 0 && left[i] > turn {
					next = min(next, now+(left[i]-turn)/rate[i])
				}
			}
		}
		for i, o := range ops {
			turn := 8e9 * float64(o.size-o.onset)
			before := left[i] > turn
			left[i] -= rate[i] * (next - now)
			if o.onset > 0 && before && left[i] <= turn+1e-3*rate[i] {
				left[i] = turn
			}
			if rate[i] > 0 && left[i] <= 1e-3*rate[i] {
				ends[i] = max(next, math.SmallestNonzeroFloat64)
			}
		}
		now = next
	}
}

// Random attempts on a few hosts with one disk each end when slowTasks says so, under crashes, slow
// processors and stops. A slow disk of each host serves either spills or reads.
func TestTasksAgreeWithSlow(t *testing.T) {
	const rate, never = 100 * units.Mbps, 100 * time.Second
	f := racks(t, 1, 3, 1)
	ended, either := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		whole := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(rt, name)) * ms
		}
		slowed, crashed := whole("slow", 400), whole("crash", 400)
		normal, back := slowed+ms+whole("normal", 400), crashed+ms+whole("back", 200)
		faults := fault.Timeline{{At: slowed, Action: fault.SetCPU{Host: 1, Share: 0.3}}, {At: normal, Action: fault.SetCPU{Host: 1, Share: 1}},
			{At: crashed, Action: fault.Crash{Host: 2}}, {At: back, Action: fault.Return{Host: 2}}}
		slices.SortStableFunc(faults, func(a, b fault.Step) int { return cmp.Compare(a.At, b.At) })
		speed := func(h topo.HostID, now float64) float64 {
			switch {
			case h == 1 && now >= float64(slowed) && now < float64(normal):
				return 0.3
			case h == 2 && now >= float64(crashed) && now < float64(back):
				return 0
			}
			return 1
		}
		var ops []taskOp
		for range rapid.IntRange(1, 25).Draw(rt, "operations") {
			o := taskOp{kind: rapid.SampledFrom([]string{"compute", "spill", "read"}).Draw(rt, "kind"), host: topo.HostID(rapid.IntRange(0, 2).Draw(rt, "host")),
				size: rapid.Int64Range(1, 2e6).Draw(rt, "size"), from: whole("from", 500), to: never}
			switch o.kind {
			case "compute":
				o.size = int64(whole("time", 300)) + o.size/1000
			case "read":
				o.rate = rapid.SampledFrom([]units.Rate{0, 10 * units.Mbps, 33_333_333, rate, 2 * rate}).Draw(rt, "rate")
				if o.rate > 0 && o.size > 1 && rapid.Bool().Draw(rt, "slows down") {
					o.onset, o.slow = rapid.Int64Range(1, o.size-1).Draw(rt, "onset"), max(8*units.Mbps, o.rate/units.Rate(rapid.IntRange(1, 8).Draw(rt, "factor")))
				}
			case "spill":
				o.rate = rapid.SampledFrom([]units.Rate{0, 10 * units.Mbps, 2 * rate}).Draw(rt, "rate")
			}
			if rapid.IntRange(0, 3).Draw(rt, "stops") == 0 {
				o.to = o.from + ms + whole("to", 200)
			}
			ops = append(ops, o)
		}
		b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: rate, ReadRate: rate, Faults: faults, Detect: 20 * ms, Stored: stored(0, 1, 2)})
		got := map[int]time.Duration{}
		now := time.Duration(0)
		record := func(evs []engine.Event) {
			for _, ev := range evs {
				i := -1
				switch ev := ev.(type) {
				case engine.TransferFinished:
					i = int(ev.Flow)
				case engine.TaskComputed:
					i = ev.Attempt.Task.Index
				case engine.OutputSpilled:
					i = ev.Attempt.Task.Index
				default:
					continue
				}
				if _, twice := got[i]; twice {
					rt.Fatalf("operation %d ended at %v and %v", i, got[i], now)
				}
				got[i] = now
			}
		}
		for at := time.Duration(0); at <= 3*time.Second; at += ms {
			for last := false; !last; {
				var evs []engine.Event
				var err error
				if now, evs, err = b.Await(t.Context(), at); err != nil {
					rt.Fatal(err)
				}
				record(evs)
				last = now >= at && len(evs) == 0
			}
			for i, o := range ops {
				if o.to == at {
					do(t, b, engine.StopRead{ID: workloads.FlowID(i)}, stopTask(i, o.host))
				}
				if o.from != at {
					continue
				}
				switch o.kind {
				case "compute":
					do(t, b, compute(i, o.host, time.Duration(o.size)))
				case "spill":
					do(t, b, engine.SpillOutput{Attempt: attempt(i), Host: o.host, Size: units.Bytes(o.size), Rate: o.rate})
				default:
					do(t, b, engine.ReadDisk{ID: workloads.FlowID(i), Host: o.host, Block: workloads.BlockID(o.host), Size: units.Bytes(o.size), Task: &engine.TaskTransfer{Rate: o.rate, Onset: units.Bytes(o.onset), Slow: o.slow}})
				}
			}
		}
		want := slowTasks(ops, []time.Duration{slowed, normal, crashed, back}, speed, float64(rate))
		near := func(a, b float64) bool { return math.Abs(a-b) <= 3 }
		for i, o := range ops {
			switch end, ends := want[i]; {
			case ends && (near(end, float64(o.to)) || near(end, float64(crashed))):
				either++ // rounding decides
			case !ends && got[i] != 0 || ends && !near(end, float64(got[i])):
				rt.Errorf("operation %d, %+v: ended at %d ns, want %.3f", i, o, got[i], end)
			case ends:
				ended++
			}
		}
	})
	if ended < 100 || either > ended {
		t.Errorf("%d operations ended and %d were undecided", ended, either)
	}
}

// BenchmarkTasks runs 100,000 attempts on 600 hosts, as many at once as stated: each reads a block of
// its host at its own rate, spills, and computes.
func BenchmarkTasks(b *testing.B) {
	const hosts, attempts = 600, 100_000
	f := racks(b, 30, 20, 5)
	var stored []engine.StoredBlock
	for i := range attempts {
		stored = append(stored, engine.StoredBlock{Block: workloads.BlockID(i), Size: 128 * mb, Hosts: []topo.HostID{topo.HostID(i % hosts)}})
	}
	for _, rates := range []string{"equal", "different"} {
		for _, atOnce := range []int{4 * hosts, attempts} {
			b.Run(fmt.Sprintf("rates=%s/running=%d", rates, atOnce), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					rng := rand.New(rand.NewPCG(1, 2))
					be := fluid.New(f, fluid.Config{DiskRate: 800 * units.Mbps, ReadRate: 800 * units.Mbps, Disks: 2, Stored: stored, Heartbeat: 3 * time.Second})
					read := func(i int) engine.Command {
						rate := 64 * units.Mbps
						if rates == "different" {
							rate += units.Rate(rng.IntN(1e6))
						}
						return engine.ReadDisk{ID: workloads.FlowID(i), Host: topo.HostID(i % hosts), Block: workloads.BlockID(i), Size: 128*mb - units.Bytes(rng.IntN(1e6)), Task: &engine.TaskTransfer{Attempt: attempt(i), Rate: rate}}
					}
					started, ended := 0, 0
					var cmds []engine.Command
					for ; started < atOnce; started++ {
						cmds = append(cmds, read(started))
					}
					for ended < attempts {
						do(b, be, cmds...)
						cmds = cmds[:0]
						_, evs := await(b, be, engine.NextNever)
						for _, ev := range evs {
							switch ev := ev.(type) {
							case engine.TransferFinished:
								i := int(ev.Flow)
								cmds = append(cmds, engine.SpillOutput{Attempt: attempt(i), Host: topo.HostID(i % hosts), Size: 100 * mb})
							case engine.OutputSpilled:
								i := ev.Attempt.Task.Index
								cmds = append(cmds, engine.Compute{Attempt: ev.Attempt, Host: topo.HostID(i % hosts), Time: time.Second + time.Duration(rng.IntN(1e9))})
							case engine.TaskComputed:
								if ended++; started < attempts {
									cmds = append(cmds, read(started))
									started++
								}
							}
						}
					}
				}
			})
		}
	}
}
