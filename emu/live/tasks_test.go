package live

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// attempts of job 1: of a map, and of a reduce.
var (
	mapAttempt    = jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: 3}, N: 1}
	reduceAttempt = jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: 1}}
)

// newTaskRig stores block 3 on hosts 1 and 4.
func newTaskRig(t *testing.T, size units.Bytes, change func(*Config)) *rig {
	return newRigWith(t, 50*units.Mbps, slices.Repeat([]units.Rate{40 * units.Mbps}, 6), nil, nil, func(c *Config) {
		c.Stored = []engine.StoredBlock{{Block: 3, Size: size, Hosts: []topo.HostID{1, 4}}}
		if change != nil {
			change(c)
		}
	})
}

// event awaits the first event for which match is true, and returns its time.
func (r *rig) event(t *testing.T, match func(engine.Event) bool) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(10*time.Second))
	defer cancel()
	for {
		now, evs, err := r.Await(ctx, engine.NextNever)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(evs, match) {
			return now
		}
	}
}

func is(want engine.Event) func(engine.Event) bool {
	return func(ev engine.Event) bool {
		switch ev.(type) {
		case engine.TransferProgressed, engine.Heartbeat, engine.RackReport, engine.LinkLoads:
			return false // not comparable
		}
		return ev == want
	}
}

// taskRead is the read of block 3 from host 1, of a map on host 0.
func taskRead(size units.Bytes, rate units.Rate) engine.StartTransfer {
	c := readCommand(7, 1, 0, size)
	c.Task = &engine.TaskTransfer{Attempt: mapAttempt, Rate: rate}
	return c
}

func readMark(size units.Bytes) engine.Mark {
	return engine.Mark{Kind: engine.MarkCoflow, ID: 7, Host: 0, Parts: 1, Size: size}
}

// goroutines returns a function that counts the goroutines which this test has started, directly or not, and itself, but
// not those of tests that run next to it.
func goroutines(t *testing.T) (running func() int) {
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	mine := regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: .*` + regexp.QuoteMeta(strconv.Quote(t.Name())))
	return func() (n int) {
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Fatal(err)
		}
		for _, m := range mine.FindAllSubmatch(b.Bytes(), -1) {
			k, err := strconv.Atoi(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		return n
	}
}

// awaitGoroutines waits until no more goroutines run than before.
func awaitGoroutines(t *testing.T, running func() int, before int) {
	t.Helper()
	n := running()
	for deadline := time.Now().Add(netnstest.Patience(2 * time.Second)); n > before && time.Now().Before(deadline); n = running() {
		time.Sleep(10 * time.Millisecond)
	}
	if n > before || n == 0 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// left checks that nothing of tasks is left on the disks of hosts but the stored blocks.
func (r *rig) left(t *testing.T) {
	t.Helper()
	r.deletions.Wait()
	files, err := filepath.Glob(filepath.Join(r.cfg.Disks, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for _, s := range r.cfg.Stored {
		stored += len(s.Hosts)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "blk_3" })
	if len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
	var used units.Bytes
	for _, v := range r.volumes {
		used += v.Used()
	}
	if want := units.Bytes(stored) * r.cfg.Stored[0].Size; used != want {
		t.Errorf("disks have %v, want the stored blocks of %v", used, want)
	}
}

// A read of a stored block by its own host is throttled by its disk and the rate of the attempt, reports
// its progress, and puts nothing on the wire except the mark of its end.
func TestLocalReadOfATask(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) bool {
		const size = 2 * units.MB
		r := newTaskRig(t, size, nil)
		ratios := []float64{}
		for i, rate := range []units.Rate{20 * units.Mbps, 80 * units.Mbps} {
			began := time.Since(r.zero)
			flow := workloads.FlowID(20 + i)
			r.do(t, engine.ReadDisk{ID: flow, Host: 4, Block: 3, Size: size, Task: &engine.TaskTransfer{Attempt: mapAttempt, Rate: rate}})
			progress := 0
			end := r.event(t, func(ev engine.Event) bool {
				if p, ok := ev.(engine.TransferProgressed); ok && slices.Contains(p.Flows, flow) {
					progress++
				}
				return ev != nil && is(engine.TransferFinished{Flow: flow})(ev)
			})
			if progress < 2 {
				t.Errorf("at %v, %d reports of progress", rate, progress)
			}
			ratios = append(ratios, float64(min(rate, 40*units.Mbps).TimeToSend(size))/float64(end-began))
		}
		_, res := r.finish(t)
		if len(res.Consumed) != 2 || res.Consumed[0].Flow != 20 || res.Consumed[0].Lag != 0 || res.Consumed[0].Task != 3 {
			t.Errorf("ends of reads %+v", res.Consumed)
		}
		for _, c := range res.Captures {
			for _, i := range c.Interfaces {
				want := 0
				if c.Host == "h1-01" && i.Name == plan.Uplink {
					want = 2 // the marks of the ends
				}
				if i.Out.Packets != want || i.In.Packets > 0 {
					t.Errorf("%s %s carried %v and %v", c.Host, i.Name, i.Out, i.In)
				}
			}
		}
		t.Logf("reads at %.3f of their rates", ratios)
		return !slices.ContainsFunc(ratios, func(x float64) bool { return x < 0.95 || x > 1.02 })
	})
}

// A read over the network is consumed at the rate of its attempt, and back-pressure makes it move at
// that rate on the wire from the beginning: nothing is lost and sent again, and half of the bytes take
// half of the time.
func TestRemoteReadOfATask(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) bool {
		const size, rate = 3 * units.MB, 16 * units.Mbps
		r := newTaskRig(t, size, func(c *Config) { c.DiskRead = 400 * units.Mbps })
		began := time.Since(r.zero)
		r.do(t, readMark(size), taskRead(size, rate))
		end := r.until(t, engine.TransferFinished{Flow: 7})
		_, res := r.finish(t)
		if len(res.Flows) != 1 || len(res.Problems) > 0 {
			t.Fatalf("flows %+v, problems %v", res.Flows, res.Problems)
		}
		f, want := res.Flows[0], flows.TaskTransfer{Job: 1, Task: 3, Attempt: 1}
		if f.Task == nil || *f.Task != want || len(res.Coflows) > 0 {
			t.Errorf("flow of task %+v, want %+v; coflows %v", f.Task, want, res.Coflows)
		}
		if c := res.Consumed; len(c) != 1 || c[0].Flow != 7 || c[0].At < f.End || c[0].Lag < 70*time.Millisecond || c[0].Lag > 200*time.Millisecond {
			t.Errorf("ends of reads %+v, last packet at %v", c, f.End)
		}
		ratio := float64(rate.TimeToSend(size)) / float64(end-began)
		points := res.Trails[0].Received
		ok := ratio > 0.97 && ratio < 1.01 && f.Resent == 0
		for _, p := range points {
			at := p.At - f.Arrival
			if at < 200*time.Millisecond || p.Bytes == points[len(points)-1].Bytes {
				continue
			}
			// What the kernel holds is ahead of the attempt.
			consumed := rate.BytesIn(at)
			if ahead := p.Bytes - consumed; ahead < -30*units.KB || ahead > 180*units.KB {
				t.Logf("after %v, %v are on the wire and %v consumed", at, p.Bytes, consumed)
				ok = false
			}
		}
		mid := points[len(points)/2]
		t.Logf("consumed at %.3f of the rate; at %v, %v ahead; %d packets sent again; %d windows of zero", ratio, mid.At-f.Arrival, mid.Bytes-rate.BytesIn(mid.At-f.Arrival), f.Resent, res.Trails[0].ZeroWindows)
		return ok
	})
}

// Compute takes its time, and twice that on half of a processor.
func TestComputeOfATask(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) bool {
		const d = 400 * time.Millisecond
		r := newTaskRig(t, units.MB, func(c *Config) {
			c.Faults = fault.Timeline{{At: 0, Action: fault.SetCPU{Host: 1, Share: 0.5}, Why: "slow"}}
		})
		time.Sleep(20 * time.Millisecond) // the fault is at time 0
		ok := true
		for i, h := range []topo.HostID{0, 1} {
			began := time.Since(r.zero)
			r.do(t, engine.Compute{Attempt: mapAttempt, Host: h, Time: d})
			took := r.event(t, is(engine.TaskComputed{Attempt: mapAttempt})) - began
			t.Logf("host %d: %v", h, took)
			ok = ok && took >= d*time.Duration(1+i) && took < d*time.Duration(1+i)+20*time.Millisecond
		}
		r.finish(t)
		return ok
	})
}

// A spilled output takes its size by the rate of the disk, and a full disk fails the attempt.
func TestSpillOfATask(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) bool {
		const size = 2 * units.MB
		r := newTaskRig(t, units.MB, nil)
		began := time.Since(r.zero)
		r.do(t, engine.SpillOutput{Attempt: mapAttempt, Host: 2, Size: size})
		took := r.event(t, is(engine.OutputSpilled{Attempt: mapAttempt})) - began
		if got := r.volumes[2].Used(); got != size {
			t.Errorf("the disk has %v, want %v", got, size)
		}
		r.do(t, engine.SpillOutput{Attempt: reduceAttempt, Host: 2, Size: 100 * units.MB})
		r.event(t, func(ev engine.Event) bool {
			f, ok := ev.(engine.TaskFailed)
			return ok && f.Attempt == reduceAttempt && f.Why != ""
		})
		r.do(t, engine.DropOutputs{Job: 1})
		r.left(t)
		m, _ := r.finish(t)
		for _, d := range m.Disks {
			if want := map[string]units.Bytes{"h0-02": size}[d.Host]; d.Written != want {
				t.Errorf("%s wrote %v, want %v", d.Host, d.Written, want)
			}
		}
		ratio := float64((40 * units.Mbps).TimeToSend(size)) / float64(took)
		t.Logf("at %.3f of the rate of the disk", ratio)
		return ratio > 0.95 && ratio < 1.02
	})
}

// Outputs are deleted while the engine goes on, and an output that comes later has their space.
func TestDropOfOutputs(t *testing.T) {
	t.Parallel()
	const size = 60 * units.MB // on disks of 100 MB
	r := newTaskRig(t, units.MB, func(c *Config) { c.DiskRates = slices.Repeat([]units.Rate{10 * units.Gbps}, 6) })
	spill := func(job jobs.JobID) jobs.AttemptID {
		id := jobs.AttemptID{Task: jobs.TaskID{Job: job}}
		r.do(t, engine.SpillOutput{Attempt: id, Host: 2, Size: size})
		return id
	}
	r.event(t, is(engine.OutputSpilled{Attempt: spill(1)}))
	slow := make(chan struct{})
	r.later(func() { <-slow })
	r.do(t, engine.DropOutputs{Job: 1})
	next := spill(2)
	time.Sleep(50 * time.Millisecond)
	if got := r.volumes[2].Used(); got != size {
		t.Errorf("the disk has %v, want the output of %v", got, size)
	}
	close(slow)
	r.event(t, is(engine.OutputSpilled{Attempt: next}))
	r.do(t, engine.DropOutputs{Job: 2})
	r.left(t)
	r.finish(t)
}

// In whatever phase an attempt is stopped, the run ends with no files, goroutines or connections of it,
// no record and no problem.
func TestStopOfATask(t *testing.T) {
	t.Parallel()
	const size = 10 * units.MB
	block := workloads.Block{ID: 9, Client: 0, Size: size, Replicas: 2, Packet: 16 * units.KB, Window: 4}
	from := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}
	fetch := engine.StartTransfer{Coflow: 8, Flow: workloads.Flow{ID: 8, Src: 4, Dst: 0, Size: size}, Hash: 3, Ceiling: policies.NoLimit,
		Task: &engine.TaskTransfer{Attempt: reduceAttempt, From: &from, Outputs: 2}}
	closed := engine.Mark{Kind: engine.MarkCoflowClosed, ID: 8, Host: 0, Parts: 1, Size: size}
	stop := engine.StopTask{Attempt: mapAttempt, Host: 0}
	for _, tt := range []struct {
		name        string
		start, stop []engine.Command
	}{
		{"local read", []engine.Command{engine.ReadDisk{ID: 5, Host: 4, Block: 3, Size: size, Task: &engine.TaskTransfer{Attempt: mapAttempt, Rate: 8 * units.Mbps}}},
			[]engine.Command{engine.StopRead{ID: 5, Host: 4}}},
		{"remote read", []engine.Command{readMark(size), taskRead(size, 8*units.Mbps)},
			[]engine.Command{engine.StopTransfer{Flow: 7, Src: 1, Dst: 0}, engine.Mark{Kind: engine.MarkFlowStopped, ID: 7, Host: 0, Parts: 7, Size: size}}},
		{"fetch", []engine.Command{engine.Mark{Kind: engine.MarkCoflow, ID: 8, Host: 0}, fetch},
			[]engine.Command{engine.StopTransfer{Flow: 8, Src: 4, Dst: 0}, engine.Mark{Kind: engine.MarkFlowStopped, ID: 8, Host: 0, Parts: 8, Size: size}, closed}},
		{"compute", []engine.Command{engine.Compute{Attempt: mapAttempt, Host: 0, Time: time.Hour}}, []engine.Command{stop}},
		{"spill", []engine.Command{engine.SpillOutput{Attempt: mapAttempt, Host: 0, Size: size}}, []engine.Command{stop}},
		{"spilled", []engine.Command{engine.SpillOutput{Attempt: mapAttempt, Host: 0, Size: units.KB}}, []engine.Command{stop}},
		{"output block", []engine.Command{engine.Mark{Kind: engine.MarkWrite, ID: 9, Host: 0, Parts: 2, Size: size}, engine.StartChain{Block: block, Targets: []topo.HostID{0, 4}, Hashes: []uint32{1, 2}}},
			[]engine.Command{engine.StopChain{Block: 9}, engine.Mark{Kind: engine.MarkBlockStopped, ID: 9, Host: 0, Parts: 2, Size: size}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			running := goroutines(t)
			r := newTaskRig(t, size, nil)
			moment := func(m wire.Moment) engine.Command {
				return engine.MarkTask{Moment: m, Host: 0, Attempt: mapAttempt, Reads: true, Locality: policies.RackLocal, Size: size}
			}
			r.do(t, moment(wire.AttemptStarted))
			time.Sleep(netnstest.Patience(50 * time.Millisecond)) // until all that start with a run are done
			before := running()
			r.do(t, tt.start...)
			time.Sleep(200 * time.Millisecond)
			if tt.name != "spilled" && running() == before {
				t.Error("nothing is running")
			}
			r.do(t, append(tt.stop, moment(wire.AttemptKilled))...)
			r.transfer.Wait()
			awaitGoroutines(t, running, before)
			if len(r.byFlow)+len(r.chains) > 0 {
				t.Errorf("flows %v and blocks %v run", r.byFlow, r.chains)
			}
			r.left(t)
			_, evs, err := r.Await(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range evs {
				switch ev.(type) {
				case engine.Heartbeat, engine.TransferProgressed:
				case engine.OutputSpilled: // before it was stopped
				default:
					t.Errorf("event %+v", ev)
				}
			}
			_, res := r.finish(t)
			if len(res.Problems) > 0 || len(res.Failed)+len(res.Flows)+len(res.Coflows)+len(res.Blocks) > 0 {
				t.Errorf("problems %v, records %+v", res.Problems, res.Records)
			}
			if len(res.Attempts) != 1 || res.Attempts[0].Outcome != flows.Killed || res.Attempts[0].Host != "h0-00" || res.Attempts[0].Locality != flows.RackLocal {
				t.Errorf("attempts %+v", res.Attempts)
			}
		})
	}
}

// A crash ends what an attempt does, and the host returns without its output.
func TestCrashOfATask(t *testing.T) {
	longtest.Skip(t, "a crash and a return, 2 s")
	r := newTaskRig(t, units.MB, func(c *Config) {
		c.Detect = 100 * time.Millisecond
		c.Faults = fault.Timeline{{At: 600 * time.Millisecond, Action: fault.Crash{Host: 4}, Why: "crash"},
			{At: 900 * time.Millisecond, Action: fault.Return{Host: 4}, Why: "crash"}}
	})
	spilled := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}
	r.do(t, engine.SpillOutput{Attempt: spilled, Host: 4, Size: units.KB})
	r.event(t, is(engine.OutputSpilled{Attempt: spilled}))
	r.do(t, engine.SpillOutput{Attempt: mapAttempt, Host: 4, Size: 50 * units.MB}, engine.Compute{Attempt: reduceAttempt, Host: 4, Time: time.Hour},
		engine.ReadDisk{ID: 5, Host: 4, Block: 3, Size: units.MB, Task: &engine.TaskTransfer{Attempt: mapAttempt, Rate: 80 * units.Kbps}})
	r.event(t, is(engine.HostBack{Host: 4}))
	r.left(t)
	began := time.Since(r.zero)
	r.do(t, engine.ReadDisk{ID: 6, Host: 4, Block: 3, Size: units.MB, Task: &engine.TaskTransfer{Attempt: mapAttempt}})
	if end := r.until(t, engine.TransferFinished{Flow: 6}); end < began {
		t.Errorf("read until %v, from %v", end, began)
	}
	r.finish(t)
}

func TestStoredBlocksNeedDisks(t *testing.T) {
	r := newTaskRig(t, units.MB, nil)
	for _, s := range []engine.StoredBlock{
		{Block: 4, Size: units.MB, Hosts: []topo.HostID{6}},
		{Block: 5, Size: units.GB, Hosts: []topo.HostID{0}},
		{Block: 3, Size: units.MB, Hosts: []topo.HostID{1}},
	} {
		r.cfg.Stored = []engine.StoredBlock{s}
		if err := r.store(); err == nil {
			t.Errorf("%+v is stored", s)
		}
	}
	if _, err := os.Stat(filepath.Join(r.cfg.Disks, "h1-01", "blk_3")); err != nil {
		t.Error(err)
	}
}

// What does not fit in a header is an error.
func TestTasksInHeaders(t *testing.T) {
	id := func(job jobs.JobID, stage, index, n int) jobs.AttemptID {
		return jobs.AttemptID{Task: jobs.TaskID{Job: job, Stage: stage, Index: index}, N: n}
	}
	from := id(1, 2, 3, 4)
	w, err := taskOf(engine.TaskTransfer{Attempt: id(1, 65535, 1<<32-1, 65535), From: &from, Outputs: 9})
	if want := (wire.Task{Job: 1, Stage: 65535, Index: 1<<32 - 1, Attempt: 65535, FromStage: 2, FromIndex: 3, FromAttempt: 4, Outputs: 9}); err != nil || w != want {
		t.Errorf("%+v, %v, want %+v", w, err, want)
	}
	for _, bad := range []jobs.AttemptID{id(0, 0, 0, 0), id(1<<32, 0, 0, 0), id(1, 1<<16, 0, 0), id(1, 0, 1<<32, 0), id(1, 0, 0, 1<<16), id(1, -1, 0, 0), id(1, 0, -1, 0), id(1, 0, 0, -1)} {
		if _, err := taskOf(engine.TaskTransfer{Attempt: bad}); err == nil {
			t.Errorf("%+v fits", bad)
		}
		if _, err := taskOf(engine.TaskTransfer{Attempt: from, From: &bad, Outputs: 1}); err == nil {
			t.Errorf("%+v fits as a source", bad)
		}
	}
	if _, err := taskOf(engine.TaskTransfer{Attempt: from, From: &from}); err == nil {
		t.Error("a fetch of no output fits")
	}
}

// DropBlock deletes the replicas of a durable block, and of no other.
func TestDropBlock(t *testing.T) {
	const size = 64 * units.KB
	r := newTaskRig(t, units.MB, nil)
	used := func() (out [2]units.Bytes) {
		for i, h := range []topo.HostID{0, 5} {
			out[i] = r.volumes[h].Use().Used
		}
		return out
	}
	before := used()
	for _, id := range []workloads.BlockID{9, 10} {
		block := workloads.Block{ID: id, Client: 0, Size: size, Replicas: 2, Packet: 16 * units.KB, Window: 4}
		r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: int(id), Host: 0, Parts: 2, Size: size},
			engine.StartChain{Block: block, Targets: []topo.HostID{0, 5}, Hashes: []uint32{1, 2}})
		r.event(t, is(engine.BlockDurable{Block: id}))
	}
	if got, want := used(), [2]units.Bytes{before[0] + 2*size, before[1] + 2*size}; got != want {
		t.Fatalf("hosts store %v, want %v", got, want)
	}
	r.do(t, engine.DropBlock{Block: 9, Size: size, Hosts: []topo.HostID{0, 5}})
	r.deletions.Wait()
	if got, want := used(), [2]units.Bytes{before[0] + size, before[1] + size}; got != want {
		t.Errorf("hosts store %v after the deletion of one block, want %v", got, want)
	}
	_, res := r.finish(t)
	if len(res.Problems) > 0 || len(res.Blocks) != 2 {
		t.Errorf("problems %v, blocks %+v", res.Problems, res.Blocks)
	}
}
