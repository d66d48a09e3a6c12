package fluid_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/placement"
	schedulers "testbed/policies/tasks"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// A run with a coflow and writers ends, replays from its log, and is reproducible. The
// coflow keeps rack 1 busy; Sinbad avoids that rack, the default placement does not.
func TestCoflowsAndBlocksTogether(t *testing.T) {
	f := racks(t, 4, 5, 5)
	heartbeat := 100 * ms
	var w workloads.Workload
	hot := workloads.Coflow{ID: 1}
	for i := range 5 {
		hot.Flows = append(hot.Flows, workloads.Flow{ID: workloads.FlowID(i), Src: f.HostIn(2, i), Dst: f.HostIn(1, i), Size: 60 * mb})
	}
	w.Coflows = []workloads.Coflow{hot}
	wr := workloads.Writer{ID: 1, Client: 0, Start: heartbeat + ms}
	for i := range 20 {
		wr.Blocks = append(wr.Blocks, workloads.Block{ID: workloads.BlockID(i), Writer: 1, Size: 4 * mb, Replicas: 3, Packet: 64000, Window: 80})
	}
	w.Writers = []workloads.Writer{wr}
	run := func(p policies.Placer) (log []byte, inHotRack int, end time.Duration) {
		cfg := engine.Config{Fabric: f, Coflow: coflow.Fair{}, Placement: p, DiskRate: units.Gbps, Heartbeat: heartbeat, Alpha: 0.2, Seed: 5}
		e, err := engine.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		l := engine.NewLog(&buf)
		observe := func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
			end = now
			for _, c := range cmds {
				if c, ok := c.(engine.StartChain); ok && f.RackOf(c.Targets[1]) == 1 {
					inHotRack++
				}
			}
			return l.Observe(now, evs, cmds)
		}
		b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: cfg.DiskRate, Heartbeat: heartbeat})
		if err := engine.Run(t.Context(), e, b, engine.Arrivals(w), observe); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		again, err := engine.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := engine.Replay(t.Context(), bytes.NewReader(buf.Bytes()), again); err != nil || got.Differs != nil || got.Unfinished != "" {
			t.Errorf("replay: %+v, %v", got, err)
		}
		return buf.Bytes(), inHotRack, end
	}
	log, hdfs, hdfsEnd := run(placement.DefaultHDFS())
	if again, _, _ := run(placement.DefaultHDFS()); !bytes.Equal(log, again) {
		t.Error("two runs of the same workload differ")
	}
	_, sinbad, sinbadEnd := run(placement.DefaultSinbad())
	t.Logf("blocks of 20 in the busy rack and end of the run: HDFS %d, %v; Sinbad %d, %v", hdfs, hdfsEnd, sinbad, sinbadEnd)
	// Sinbad places a few blocks there: the blocks of one interval use up the expected
	// capacity of the idle racks before their next report.
	if sinbad >= hdfs || sinbadEnd >= hdfsEnd {
		t.Errorf("Sinbad is not better than HDFS")
	}
}

// With a decision interval, blocks are placed only at its multiples. Every block of every
// writer is written, or fails if its client is lost while its request waits. The run
// replays from its log.
func TestRequestsWait(t *testing.T) {
	f := racks(t, 4, 5, 5)
	const q = 2 * time.Second
	var w workloads.Workload
	for i := range 6 {
		wr := workloads.Writer{ID: workloads.WriterID(i), Client: f.HostIn(topo.RackID(i%4), i/4), Start: time.Duration(i) * 700 * ms}
		for j := range 1 + i%3 {
			wr.Blocks = append(wr.Blocks, workloads.Block{ID: workloads.BlockID(10*i + j), Writer: wr.ID, Client: wr.Client, Size: 4 * mb, Replicas: 3, Packet: 64000, Window: 80})
		}
		w.Writers = append(w.Writers, wr)
	}
	waits := placement.DefaultSinbad()
	waits.Interval = q
	cfg := engine.Config{Fabric: f, Coflow: coflow.Fair{}, Placement: waits, DiskRate: units.Gbps, Heartbeat: 100 * ms, Alpha: 0.2, Seed: 5}
	marked, placed, durable, failed := map[int]time.Duration{}, 0, 0, 0
	observe := func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		for _, ev := range evs {
			if _, ok := ev.(engine.BlockDurable); ok {
				durable++
			}
		}
		for _, c := range cmds {
			switch c := c.(type) {
			case engine.Mark:
				if c.Kind == engine.MarkBlockFailed {
					failed++
				} else {
					marked[c.ID] = now
				}
			case engine.StartChain:
				placed++
				requestedAt, ok := marked[int(c.Block.ID)]
				if !ok || now%q != 0 || now-requestedAt >= q {
					t.Errorf("block %d requested at %v is placed at %v", c.Block.ID, requestedAt, now)
				}
			}
		}
		return nil
	}
	// The last writer's host crashes while its first request waits.
	faults, err := fault.Compile(f, []fault.Fault{{At: 3600 * ms, Kind: fault.HostCrash, Host: w.Writers[5].Client}})
	if err != nil {
		t.Fatal(err)
	}
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, Heartbeat: cfg.Heartbeat, DiskRate: cfg.DiskRate, Faults: faults, Detect: 100 * ms, Silence: time.Second, Convergence: ms})
	runAndReplay(t, cfg, b, engine.Arrivals(w), observe)
	if placed != 9 || durable != 9 || failed != 3 {
		t.Errorf("placed %d, durable %d, failed %d, want 9, 9 and the 3 of the crashed writer", placed, durable, failed)
	}
}

// paused is a policy that decides every second and lets no coflow send.
type paused struct{}

func (paused) Needs() policies.Facts                           { return 0 }
func (p paused) New() policies.CoflowInstance                  { return p }
func (paused) Triggers() policies.Triggers                     { return policies.Triggers{Every: time.Second} }
func (paused) Decide(*policies.CoflowView, *policies.Schedule) {}

// A run that cannot go on ends with an error about the work that is left, although the engine wakes
// for decisions or heartbeats for ever.
func TestRunsThatCannotGoOn(t *testing.T) {
	f := racks(t, 1, 4, 1)
	job := jobs.Job{ID: 7, Stages: []jobs.Stage{{Kind: jobs.Map, Tasks: []jobs.Task{{Writes: mb}}}}}
	submitted := engine.JobArrived{Job: 7}
	arrived := engine.CoflowArrived{Coflow: workloads.Coflow{ID: 1, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 1, Size: mb}}}}
	const writes = "job 7 waits for attempt 0 of task 0.0 of job 7, which writes 1MB"
	for name, tt := range map[string]struct {
		policy policies.CoflowScheduler
		share  float64 // of the processor of host 0, which limits its links
		arrive []engine.Event
		want   []string
	}{
		"decisions": {paused{}, 1, []engine.Event{arrived},
			[]string{"deadlock: nothing moves", "flow 0 (h0-00 to h0-01", "unfinished: 1 coflows with 1 flows"}},
		"write": {coflow.Fair{}, 1e-300, []engine.Event{submitted},
			[]string{"started nothing of 1 unfinished job for 1h0m0s", "unfinished: 0 coflows with 0 flows and 1 block writes", writes}},
		"decisions and write": {paused{}, 1e-300, []engine.Event{submitted, arrived},
			[]string{"started nothing of 1 unfinished job", writes}},
	} {
		t.Run(name, func(t *testing.T) {
			tasks := &engine.TaskConfig{
				Jobs: []jobs.Job{job}, Slots: [jobs.TaskKinds]int{1, 1}, Scheduler: schedulers.DefaultFIFO(),
				Settings: tracker.DefaultSettings(), Output: workloads.Block{Size: mb, Replicas: 1, Packet: 64000, Window: 8},
			}
			e, err := engine.New(engine.Config{
				Fabric: f, Coflow: tt.policy, Placement: chosen{1}, Heartbeat: time.Second, Alpha: 0.2, Seed: 5, Tasks: tasks,
				IDs: workloads.IDs{Coflow: 2, Flow: 2},
			})
			if err != nil {
				t.Fatal(err)
			}
			faults := fault.Timeline{{Action: fault.SetCPU{Host: 0, Share: tt.share}}}
			b := fluid.New(f, fluid.Config{Needs: policies.Progress, Heartbeat: time.Second, Faults: faults})
			var arrivals []engine.Arrival
			for _, ev := range tt.arrive {
				arrivals = append(arrivals, engine.Arrival{Event: ev})
			}
			err = engine.Run(t.Context(), e, b, arrivals, nil)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}
}
