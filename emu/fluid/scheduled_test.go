package fluid_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/policies/coflow"
	schedulers "testbed/policies/tasks"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// taskCluster is a run of jobs of tasks on hosts with one slot of each kind, in one rack. Disks write
// at 400 Mbps and do not limit reads. Hosts report every second.
type taskCluster struct {
	hosts     int
	scheduler schedulers.Scheduler
	jobs      []jobs.Job
	on        chosen // replicas of output blocks
	faults    []fault.Fault
}

// moments are the times of all marks of attempts and jobs. Of a job, the attempt has only the job.
type moments map[wire.Moment]map[jobs.AttemptID]time.Duration

// last returns the time of the last of a kind of moments of a job.
func (m moments) last(of wire.Moment, job jobs.JobID) (last time.Duration) {
	for id, at := range m[of] {
		if id.Task.Job == job {
			last = max(last, at)
		}
	}
	return last
}

// run runs the jobs to their end and checks that the run replays from its log. Input block i is
// stored on hosts i and i + 1, modulo the number of hosts.
func (c taskCluster) run(t *testing.T) moments {
	t.Helper()
	f := racks(t, 1, c.hosts, 1)
	steps, err := fault.Compile(f, c.faults)
	if err != nil {
		t.Fatal(err)
	}
	tasks := &engine.TaskConfig{Jobs: c.jobs, Scheduler: c.scheduler, Slots: [jobs.TaskKinds]int{1, 1}, Settings: tracker.DefaultSettings(),
		Output: workloads.Block{Size: 64 * mb, Replicas: len(c.on), Packet: 64000, Window: 8}}
	var arrivals []engine.Arrival
	for _, j := range c.jobs {
		arrivals = append(arrivals, engine.Arrival{At: j.Submit, Event: engine.JobArrived{Job: j.ID}})
		for _, task := range j.Stages[0].Tasks {
			tasks.Stored = append(tasks.Stored, engine.StoredBlock{Block: task.Input, Size: task.InputSize, Hosts: []topo.HostID{topo.HostID(int(task.Input) % c.hosts), topo.HostID((int(task.Input) + 1) % c.hosts)}})
		}
	}
	const disk = 400 * units.Mbps
	cfg := engine.Config{Fabric: f, Coflow: coflow.Fair{}, Placement: c.on, DiskRate: disk, Heartbeat: time.Second, Alpha: 0.2, Seed: 5, Tasks: tasks,
		IDs: workloads.IDs{Coflow: 1, Flow: 1, Block: workloads.BlockID(len(tasks.Stored))}}
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: disk, Heartbeat: time.Second, Stored: tasks.Stored, Faults: steps, Detect: 3 * time.Second})
	out := moments{}
	runAndReplay(t, cfg, b, arrivals, func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		for _, cmd := range cmds {
			if m, ok := cmd.(engine.MarkTask); ok {
				if out[m.Moment] == nil {
					out[m.Moment] = map[jobs.AttemptID]time.Duration{}
				}
				out[m.Moment][m.Attempt] = now
			}
		}
		return nil
	})
	return out
}

// mapsOnly returns a job of maps, each of which reads a block for the given time, at 1 MB/s.
func mapsOnly(id jobs.JobID, first workloads.BlockID, n int, each time.Duration, writes units.Bytes) jobs.Job {
	st := jobs.Stage{Kind: jobs.Map}
	for i := range n {
		st.Tasks = append(st.Tasks, jobs.Task{Input: first + workloads.BlockID(i), InputSize: units.Bytes(each / time.Microsecond), Rate: 8 * units.Mbps, Writes: writes})
	}
	return jobs.Job{ID: id, User: string('a' + rune(id)), Stages: []jobs.Stage{st}}
}

// Each of 8 hosts runs 2 of the 16 maps: it starts the first at its heartbeat at 1 s and reads until
// 9 s. All write 2 MB to the one disk of host 0, at 50 Mbps each, until 9.32 s. The second wave is 9 s
// later, from the heartbeat at 10 s.
func TestLoneMapOnlyJob(t *testing.T) {
	got := taskCluster{hosts: 8, scheduler: schedulers.DefaultFIFO(), on: chosen{0}, jobs: []jobs.Job{mapsOnly(1, 0, 16, 8*time.Second, 2*mb)}}.run(t)
	for what, x := range map[string]struct {
		of   wire.Moment
		want []time.Duration
	}{
		"started":   {wire.AttemptStarted, []time.Duration{time.Second, 10 * time.Second}},
		"read":      {wire.InputComplete, []time.Duration{9 * time.Second, 18 * time.Second}},
		"committed": {wire.AttemptCommitted, []time.Duration{9320 * ms, 18320 * ms}},
	} {
		times := map[time.Duration]int{}
		for _, at := range got[x.of] {
			times[at]++
		}
		if len(got[x.of]) != 16 || times[x.want[0]] != 8 || times[x.want[1]] != 8 {
			t.Errorf("%s: %v, want 8 attempts at each of %v", what, got[x.of], x.want)
		}
	}
	if end := got.last(wire.JobDone, 1); end != 18320*ms || len(got[wire.AttemptKilled])+len(got[wire.AttemptFailed]) > 0 {
		t.Errorf("job done at %v, want 18.32s without failures", end)
	}
}

// Two equal jobs of two waves each run one after the other under FIFO, and end together under FAIR.
// A map starts at a heartbeat and takes 7.5 s, whether its block is on its host or not.
func TestTwoJobsUnderSchedulers(t *testing.T) {
	list := []jobs.Job{mapsOnly(1, 0, 16, 7500*ms, 0), mapsOnly(2, 16, 16, 7500*ms, 0)}
	for name, x := range map[string]struct {
		scheduler     schedulers.Scheduler
		first, second time.Duration
	}{
		"fifo": {schedulers.DefaultFIFO(), 16500 * ms, 32500 * ms},
		"fair": {schedulers.DefaultFair(), 32500 * ms, 32500 * ms},
	} {
		got := taskCluster{hosts: 8, scheduler: x.scheduler, on: chosen{0}, jobs: list}.run(t)
		if first, second := got.last(wire.JobDone, 1), got.last(wire.JobDone, 2); first != x.first || second != x.second {
			t.Errorf("%s: jobs done at %v and %v, want %v and %v", name, first, second, x.first, x.second)
		}
	}
}

// mapReduce returns a job of 4 maps and 2 reduces. A map reads for 1 s and sends 4 MB to each reduce;
// a reduce sorts for 200 ms, processes for 100 ms, and writes 16 MB.
func mapReduce() jobs.Job {
	j := mapsOnly(1, 0, 4, time.Second, 0)
	for i := range j.Stages[0].Tasks {
		j.Stages[0].Tasks[i].Output = []units.Bytes{4 * mb, 4 * mb}
	}
	reduce := jobs.Task{SortRate: 640 * units.Mbps, Rate: 1280 * units.Mbps, Writes: 16 * mb}
	j.Stages = append(j.Stages, jobs.Stage{Kind: jobs.Reduce, From: []int{0}, Tasks: []jobs.Task{reduce, reduce}})
	return j
}

// The maps read from the heartbeat at 1 s until 2 s and spill 8 MB at 400 Mbps until 2.16 s. At the
// heartbeat at 3 s the reduces start on hosts 0 and 1. Each fetches 3 × 4 MB over its link of 1 Gbps
// until 3.096 s, sorts 16 MB until 3.296 s and processes them until 3.396 s. From the end of the sort,
// both write 16 MB to the disk of host 2, which takes 640 ms.
func TestLoneMapReduceJob(t *testing.T) {
	got := taskCluster{hosts: 4, scheduler: schedulers.DefaultFIFO(), on: chosen{2}, jobs: []jobs.Job{mapReduce()}}.run(t)
	type times struct{ started, input, computing, computed, committed time.Duration }
	for id, want := range map[jobs.TaskID]times{
		{Job: 1, Stage: 0, Index: 3}: {time.Second, 2 * time.Second, 0, 2 * time.Second, 2160 * ms},
		{Job: 1, Stage: 1, Index: 0}: {3 * time.Second, 3096 * ms, 3096 * ms, 3396 * ms, 3936 * ms},
		{Job: 1, Stage: 1, Index: 1}: {3 * time.Second, 3096 * ms, 3096 * ms, 3396 * ms, 3936 * ms},
	} {
		a := jobs.AttemptID{Task: id}
		if got := (times{got[wire.AttemptStarted][a], got[wire.InputComplete][a], got[wire.ComputeStarted][a], got[wire.Computed][a], got[wire.AttemptCommitted][a]}); got != want {
			t.Errorf("%v: %+v, want %+v", a, got, want)
		}
	}
	if end := got.last(wire.JobDone, 1); end != 3936*ms {
		t.Errorf("job done at %v, want 3.936s", end)
	}
}

// A job survives the crash of a host at any moment: its lost attempts and outputs are made again.
// While the processor of a host is slow, its maps take longer.
func TestMapReduceJobUnderFaults(t *testing.T) {
	c := taskCluster{hosts: 4, scheduler: schedulers.DefaultFIFO(), on: chosen{2}, jobs: []jobs.Job{mapReduce()}}
	for at := 100 * ms; at < 4*time.Second; at += 100 * ms {
		c.faults = []fault.Fault{{Kind: fault.HostCrash, Name: "crash", At: at, For: 5 * time.Second, Host: 1}}
		got := c.run(t)
		if end := got.last(wire.JobDone, 1); end < 3936*ms || end > 60*time.Second {
			t.Errorf("crash at %v: job done at %v", at, end)
		}
		if again := len(got[wire.AttemptStarted]) > 6; again != (at > time.Second) {
			t.Errorf("crash at %v: %d attempts started, of 6 tasks", at, len(got[wire.AttemptStarted]))
		}
	}
	c.faults = []fault.Fault{{Kind: fault.SlowCPU, Name: "slow", At: 1500 * ms, For: time.Second, Host: 3, Share: 0.25}}
	got := c.run(t)
	ends := []time.Duration{}
	for id, at := range got[wire.InputComplete] {
		if id.Task.Stage == 0 {
			ends = append(ends, at)
		}
	}
	slices.SortFunc(ends, cmp.Compare[time.Duration])
	// Half of its block is left at 1.5 s, a quarter at 2.5 s.
	if want := []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second, 2750 * ms}; !slices.Equal(ends, want) {
		t.Errorf("maps have read at %v, want %v", ends, want)
	}
}
