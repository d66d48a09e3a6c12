package live

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/policies"
	"testbed/policies/catalog"
	schedulers "testbed/policies/tasks"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// taskEngine returns an engine that runs jobs on a rig under hdfs, with a ceiling on no flow.
func taskEngine(t *testing.T, r *rig, cfg *engine.TaskConfig) *engine.Engine {
	t.Helper()
	coflow, err := catalog.Coflow("fair", nil)
	if err != nil {
		t.Fatal(err)
	}
	placement, err := catalog.Placement("hdfs", nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Fabric: r.fabric, Capacity: plan.PayloadCapacity(r.fabric), Coflow: coflow, Placement: placement, Heartbeat: r.cfg.Heartbeat, Alpha: 0.2, Seed: 1,
		DiskRate: r.cfg.DiskRates[0], DiskSize: r.cfg.DiskSize, Tasks: cfg, IDs: workloads.IDs{Coflow: 1, Flow: 1, Block: workloads.BlockID(len(cfg.Stored) + 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// progressWatch is a scheduler that notes the progress of attempts at the heartbeats of their hosts.
type progressWatch struct {
	policies.TaskScheduler
	policies.TaskInstance
	seen map[jobs.AttemptID][]float64
}

func (w progressWatch) Needs() policies.Facts {
	return w.TaskScheduler.Needs() | policies.EveryHeartbeat | policies.TaskProgress
}

func (w progressWatch) New() policies.TaskInstance {
	w.TaskInstance = w.TaskScheduler.New()
	return w
}

func (w progressWatch) Assign(v *policies.TaskView, a *policies.Assignment) {
	for _, j := range v.Jobs {
		for _, r := range j.Running {
			if r.Host == v.Host {
				w.seen[r.ID] = append(w.seen[r.ID], r.Progress)
			}
		}
	}
	w.TaskInstance.Assign(v, a)
}

// Two jobs of maps and reduces run on packets, and their captures alone show each attempt, which
// transfers served it, and that nothing else was on the wire. The progress of attempts never falls.
func TestMapReduceOnPackets(t *testing.T) {
	t.Parallel()
	const maps, reduces, block, output = 6, 2, 500 * units.KB, 60 * units.KB
	watch := progressWatch{schedulers.DefaultFIFO(), nil, map[jobs.AttemptID][]float64{}}
	cfg := engine.TaskConfig{Slots: [jobs.TaskKinds]int{1, 1}, Scheduler: watch, Settings: tracker.DefaultSettings(),
		Output: workloads.Block{Size: 200 * units.KB, Replicas: 2, Packet: 16 * units.KB, Window: 4}}
	for id := range jobs.JobID(2) {
		m, r := jobs.Stage{Kind: jobs.Map}, jobs.Stage{Kind: jobs.Reduce, From: []int{0}}
		for range maps {
			b := workloads.BlockID(1 + len(cfg.Stored))
			// All replicas are on two hosts, so that some maps read over the network.
			cfg.Stored = append(cfg.Stored, engine.StoredBlock{Block: b, Size: block, Hosts: []topo.HostID{0, 4}})
			m.Tasks = append(m.Tasks, jobs.Task{Input: b, InputSize: block, Rate: 40 * units.Mbps, Output: slices.Repeat([]units.Bytes{output}, reduces)})
		}
		for range reduces {
			r.Tasks = append(r.Tasks, jobs.Task{SortRate: 80 * units.Mbps, Rate: 40 * units.Mbps, Writes: maps * output})
		}
		cfg.Jobs = append(cfg.Jobs, jobs.Job{ID: 1 + id, Submit: time.Duration(id) * 300 * time.Millisecond, Stages: []jobs.Stage{m, r}})
	}
	r := newTaskRig(t, block, func(c *Config) { c.Stored, c.DiskRead = cfg.Stored, 200*units.Mbps })
	e := taskEngine(t, r, &cfg)
	var arrivals []engine.Arrival
	for _, j := range cfg.Jobs {
		arrivals = append(arrivals, engine.Arrival{At: j.Submit, Event: engine.JobArrived{Job: j.ID}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(20*time.Second))
	defer cancel()
	if err := engine.Run(ctx, e, r, arrivals, nil); err != nil {
		t.Fatal(err)
	}
	between := [jobs.TaskKinds]int{}
	for id, seen := range watch.seen {
		if !slices.IsSorted(seen) || seen[0] < 0 || seen[len(seen)-1] > 1 {
			t.Errorf("%v: progress %v: must not fall, from 0 to 1", id, seen)
		}
		for _, done := range seen {
			if done > 0 && done < 1 {
				between[id.Task.Stage]++
			}
		}
	}
	if between[jobs.Map] == 0 || between[jobs.Reduce] == 0 {
		t.Errorf("%v samples of progress between 0 and 1: want some of maps and of reduces", between)
	}
	r.deletions.Wait()
	// Spilled outputs are gone, and blocks have their replicas.
	files, err := filepath.Glob(filepath.Join(r.cfg.Disks, "*", "blk_-*"))
	if err != nil || len(files) > 0 {
		t.Errorf("outputs %v are left, %v", files, err)
	}
	_, res := r.finish(t)
	if len(res.Problems)+len(res.Failed) > 0 {
		t.Fatalf("problems %v, failures %v", res.Problems, res.Failed)
	}
	if len(res.Jobs) != 2 || len(res.Coflows) != 2 || len(res.Blocks) != 2*reduces*2 {
		t.Errorf("%d jobs, %d shuffles and %d output blocks", len(res.Jobs), len(res.Coflows), len(res.Blocks))
	}
	for _, j := range res.Jobs {
		if j.Tasks != maps+reduces || j.Input != maps*block || j.JobTime() < (40*units.Mbps).TimeToSend(block) {
			t.Errorf("job %+v", j)
		}
	}
	if len(res.Attempts) != 2*(maps+reduces) {
		t.Errorf("%d attempts", len(res.Attempts))
	}
	inputs, fetched := map[flows.TaskTransfer]units.Bytes{}, map[flows.TaskTransfer]units.Bytes{}
	var shuffled units.Bytes
	for _, f := range res.Flows {
		to := flows.TaskTransfer{Job: f.Task.Job, Stage: f.Task.Stage, Task: f.Task.Task, Attempt: f.Task.Attempt}
		if f.Task.Outputs == 0 {
			inputs[to] += f.Size
			continue
		}
		fetched[to] += f.Size
		shuffled += f.Size
		if f.Size != units.Bytes(f.Task.Outputs)*output {
			t.Errorf("flow %d carries %v in %d outputs", f.Flow, f.Size, f.Task.Outputs)
		}
	}
	remote := 0
	for _, a := range res.Attempts {
		id := flows.TaskTransfer{Job: a.Job, Stage: a.Stage, Task: a.Task, Attempt: a.Attempt}
		if a.Outcome != flows.Committed || a.Slot != 0 || a.Start > a.InputEnd || a.InputEnd > a.Computed || a.Computed > a.End {
			t.Errorf("attempt %+v", a)
		}
		if a.Kind == flows.ReduceTask {
			if a.Input != maps*output || fetched[id] > a.Input || a.Locality != "" || a.Compute < a.InputEnd || a.Computed-a.Compute < (40*units.Mbps).TimeToSend(maps*output)*3/2 {
				t.Errorf("reduce %+v, %v of its input on the wire", a, fetched[id])
			}
			continue
		}
		want := block
		if a.Locality == flows.NodeLocal {
			want = 0
		} else {
			remote++
		}
		if inputs[id] != want || a.InputEnd-a.Start < (40*units.Mbps).TimeToSend(block)*99/100 {
			t.Errorf("map %+v, %v of its input on the wire", a, inputs[id])
		}
	}
	var coflows units.Bytes
	for _, c := range res.Coflows {
		coflows += c.Size
	}
	if coflows != shuffled || shuffled == 0 || remote == 0 {
		t.Errorf("%v in shuffles, %v in fetches; %d remote reads", coflows, shuffled, remote)
	}
}
