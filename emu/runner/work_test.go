package runner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/fidelity"
	"testbed/policies/catalog"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

const taskWork = `
name: tasks
fabric: {leaves: 4, spines: 1, hosts_per_leaf: 3, host_link: 40Mbps, oversubscription: "3:1", queue: 20ms, zone_racks: 2}
disk: {write: 3MB/s, size: 64MB}
workload:
  - {kind: writers, count: 2, blocks: 2, block: 1MB, packet: 16KB, start: 1s}
  - {kind: tasks, generator: mix, jobs: 12, gap: 500ms, block: 1MB, maps: 1-6, users: 3}
tasks: {map_slots: 3, cores: 4, memory: 1GB, output_space: 32MB, slowstart: 0.5, shuffle: barrier, output: {packet: 16KB, replicas: 2}}
arms:
  - {name: fifo, coflow: fair, placement: hdfs, tasks: fifo}
  - {name: fair, coflow: fair, placement: uniform, tasks: {name: fair, with: [{delay: {t1: 1s, t2: 1s}}]}}
repeat: 2
`

func workOf(t *testing.T, text string, repeat int) (*run, work) {
	t.Helper()
	r, err := newRun(loadText(t, text), Options{}, rundir.Fluid)
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.drawn(repeat)
	if err != nil {
		t.Fatal(err)
	}
	return r, *w
}

// Input blocks are those that tasks read, with IDs above those of writers, on different hosts with
// room. They are the same for every arm and differ between repeats.
func TestStoredBlocks(t *testing.T) {
	r, w := workOf(t, taskWork, 0)
	var got []workloads.BlockID
	used := make([]units.Bytes, r.fabric.Hosts())
	for i, b := range w.stored {
		if int(b.Block) != 4+i || b.Size != units.MB || len(b.Hosts) != 3 {
			t.Errorf("stored block %+v at place %d", b, i)
		}
		racks := map[topo.RackID]bool{}
		for k, h := range b.Hosts {
			if slices.Contains(b.Hosts[:k], h) {
				t.Errorf("block %d twice on host %d", b.Block, h)
			}
			used[h] += b.Size
			racks[r.fabric.RackOf(h)] = true
		}
		if len(racks) != 2 {
			t.Errorf("block %d in %d racks, want 2", b.Block, len(racks))
		}
		got = append(got, b.Block)
	}
	var read []workloads.BlockID
	for _, j := range w.tasks {
		for _, task := range j.Stages[0].Tasks {
			read = append(read, task.Input)
		}
	}
	slices.Sort(read)
	if !slices.Equal(got, read) {
		t.Errorf("stored %v, read %v", got, read)
	}
	if next := w.NextIDs(); next.Block != workloads.BlockID(4+len(w.stored)) {
		t.Errorf("next block %d", next.Block)
	}
	if _, again := workOf(t, strings.Replace(taskWork, "tasks: fifo", "tasks: drf", 1), 0); !cmp.Equal(again.stored, w.stored) || !cmp.Equal(again.tasks, w.tasks) {
		t.Error("other policies have other jobs or blocks")
	}
	if _, more := workOf(t, strings.Replace(taskWork, "blocks: 2", "blocks: 3", 1), 0); !cmp.Equal(w.stored[0].Hosts, more.stored[0].Hosts) || more.stored[0].Block != 6 {
		t.Errorf("with more writers: %+v, want the hosts of %+v", more.stored[0], w.stored[0])
	}
	if _, cached := workOf(t, strings.Replace(taskWork, "{map_slots", "{input: {cached: true}, map_slots", 1), 0); w.stored[0].Cached || !cached.stored[0].Cached {
		t.Error("only with tasks.input.cached are blocks in memory")
	}
	if _, other := workOf(t, taskWork, 1); cmp.Equal(other.stored, w.stored) {
		t.Error("another repeat has the same blocks")
	}

	// Nearly full: no disk overflows.
	n := len(w.stored)
	size := units.Bytes(3*n/r.fabric.Hosts()+3) * units.MB
	tight, w := workOf(t, strings.NewReplacer("size: 64MB", "size: "+size.String(), "maps: 1-6", "maps: 1-6, profiles: [{name: scan, keep_map: 0}]").Replace(taskWork), 0)
	if len(w.stored) != n {
		t.Fatalf("%d blocks, want %d", len(w.stored), n)
	}
	clear(used)
	for _, b := range w.stored {
		for _, h := range b.Hosts {
			if used[h] += b.Size; used[h] > tight.s.Spec.Disk.HostSize() {
				t.Errorf("host %d stores %v on disks of %v", h, used[h], tight.s.Spec.Disk.HostSize())
			}
		}
	}
	full := tight.idleCluster()
	for h := range full.Hosts {
		full.Hosts[h].Disk = 2 * units.MB
	}
	p, err := catalog.Placement("hdfs", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storedBlocks(full, p, w.tasks, 3, 1); err == nil || !strings.Contains(err.Error(), "store input block ") || !strings.Contains(err.Error(), "raise disk.size") {
		t.Errorf("full disks: %v", err)
	}
}

// Every placement policy stores the blocks of an idle cluster.
func TestStoredBlocksUnderEveryPlacement(t *testing.T) {
	for _, name := range catalog.All().Names(catalog.RolePlacement) {
		if _, w := workOf(t, strings.Replace(taskWork, "slowstart: 0.5", "input: {placement: "+name+", replicas: 2}", 1), 0); len(w.stored) == 0 || len(w.stored[0].Hosts) != 2 {
			t.Errorf("%s: %d blocks", name, len(w.stored))
		}
	}
}

func TestTaskConfig(t *testing.T) {
	r, w := workOf(t, taskWork, 0)
	c, err := r.arms[1].trial(0, w).taskConfig()
	if err != nil {
		t.Fatal(err)
	}
	settings := tracker.DefaultSettings()
	settings.Slowstart, settings.Barrier = 0.5, true
	want := &engine.TaskConfig{Jobs: w.tasks, Scheduler: c.Scheduler, Slots: [jobs.TaskKinds]int{3, 2}, Resources: jobs.Resources{CPU: 4, Memory: units.GB},
		Space: 32 * units.MB, Stored: w.stored, Output: workloads.Block{Size: units.MB, Replicas: 2, Packet: 16 * units.KB, Window: 6}, Settings: settings}
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	fair, err := catalog.Task("fair", map[string]any{"with": []any{map[string]any{"delay": map[string]any{"t1": time.Second, "t2": time.Second}}}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(fair, c.Scheduler); d != "" {
		t.Errorf("scheduler (-want +got):\n%s", d)
	}
	r, w = workOf(t, strings.Replace(taskWork, "tasks: {map_slots: 3, cores: 4, memory: 1GB, output_space: 32MB, slowstart: 0.5, shuffle: barrier, output: {packet: 16KB, replicas: 2}}", "tasks: {output: {packet: 16KB}}", 1), 0)
	if c, err = r.arms[0].trial(0, w).taskConfig(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(tracker.DefaultSettings(), c.Settings); d != "" {
		t.Errorf("default settings (-tracker +scenario):\n%s", d)
	}
}

// Jobs arrive when they are submitted, among the other arrivals.
func TestArrivalsOfTasks(t *testing.T) {
	_, w := workOf(t, taskWork, 0)
	var submitted []jobs.JobID
	writers := 0
	var last time.Duration
	for _, a := range w.arrivals() {
		if a.At < last {
			t.Errorf("arrival at %v after one at %v", a.At, last)
		}
		last = a.At
		switch ev := a.Event.(type) {
		case engine.JobArrived:
			submitted = append(submitted, ev.Job)
			if at := w.tasks[ev.Job-1].Submit; at != a.At {
				t.Errorf("job %d arrives at %v, submitted at %v", ev.Job, a.At, at)
			}
		case engine.WriterArrived:
			writers++
		}
	}
	if len(submitted) != 12 || !slices.IsSorted(submitted) || writers != 2 {
		t.Errorf("jobs %v and %d writers arrive", submitted, writers)
	}
}

// A forecast without a simulation counts jobs, tasks and bytes.
func TestPreviewOfTasks(t *testing.T) {
	_, w := workOf(t, taskWork, 0)
	p, err := Preview(loadText(t, taskWork))
	if err != nil {
		t.Fatal(err)
	}
	st := jobs.Describe(w.tasks, nil)
	want := &TaskForecast{Jobs: 12, Maps: len(w.stored), Reduces: st.Reduces, Input: int64(len(w.stored)) * int64(units.MB), Shuffled: st.Shuffled, Written: st.Written}
	if d := cmp.Diff(want, p.Tasks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := p.String(); !strings.HasPrefix(got, "0 coflows of 0 flows and 4 blocks, and 12 jobs of ") || !strings.Contains(got, " reduces, which read ") {
		t.Error(got)
	}
	if got := strings.Join(p.Notes, "\n"); !strings.Contains(got, "workload[1]: generator mix: 12 jobs of ") {
		t.Error(got)
	}
}

// The cross-check compares the engine with the mark of the end of a read, also of one without packets, and
// the mark with the last packet, after which it may be by the lag that it states. Other flows are compared
// with their last packet, and so is an input block without a mark.
func TestTransfersOfTasks(t *testing.T) {
	const s = time.Second
	input := &flows.TaskTransfer{Job: 1}
	rec := func(end time.Duration) flows.Records {
		return flows.Records{Flows: []flows.FlowRecord{{Flow: 1, End: end}, {Flow: 2, End: end, Task: input}, {Flow: 3, End: end, Task: &flows.TaskTransfer{Job: 1, Outputs: 2}}, {Flow: 4, End: end, Task: input}}}
	}
	zero := time.Unix(100, 0)
	res := flows.Result{Records: rec(s), Zero: zero.Add(s), Consumed: []flows.Consumed{
		{Job: 1, Flow: 7, At: s / 2, Lag: s},                 // the read failed, and the attempt read flow 2
		{Job: 1, Flow: 2, At: 2 * s, Lag: 3 * s},             // of attempt 0
		{Job: 1, Flow: 8, At: 4 * s, Attempt: 1},             // local
		{Job: 1, Flow: 9, At: 5 * s, Attempt: 2, Lag: 2 * s}, // the attempt was stopped
	}}
	seen := rec(6 * s)
	seen.Attempts = []flows.AttemptRecord{{Job: 1, Start: s, InputEnd: 7 * s}, {Job: 1, Attempt: 1, Start: 2 * s, InputEnd: 8 * s}, {Job: 1, Attempt: 2}}
	want := []fidelity.Transfer{
		{Name: "the input of attempt 0 of task 0 of stage 0 of job 1", Completion: 6 * s, Wire: 3 * s, Engine: 7 * s},
		{Name: "the input of attempt 1 of task 0 of stage 0 of job 1", Completion: 6 * s, Wire: 5 * s, Engine: 8 * s},
		{Name: "flow 1 of coflow 0", Completion: s, Wire: 2 * s, Engine: 6 * s},
		{Name: "input flow 2", Completion: s, Wire: 2 * s, Engine: 3 * s, Lag: 3 * s},
		{Name: "flow 3 of coflow 0", Completion: s, Wire: 2 * s, Engine: 6 * s},
		{Name: "flow 4 of coflow 0", Completion: s, Wire: 2 * s, Engine: 6 * s},
	}
	if d := cmp.Diff(want, transfers(res, seen, zero)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
