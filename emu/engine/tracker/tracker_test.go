package tracker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/policies"
	"testbed/policies/tasks"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Jobs of maps alone, of maps and reduces, and of reduces that write run to their ends.
func TestWorkloadRuns(t *testing.T) {
	f := fabric(3, 4)
	for _, test := range []struct {
		name    string
		reduces int
		change  func(*Config)
	}{
		{"maps", 0, func(*Config) {}},
		{"reduces", 3, func(*Config) {}},
		{"barrier", 3, func(c *Config) { c.Barrier = true }},
		{"one output a fetch", 3, func(c *Config) { c.Batch = 1 }},
		{"whole hosts", 3, func(c *Config) { c.Batch = 0 }},
		{"out of band", 3, func(c *Config) { c.OutOfBand = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config(f, fair())
			c.Blocks = blocksOn(f, 600)
			test.change(&c)
			s := newSim(t, c, 3*time.Second)
			s.audit = true
			for i := range 10 {
				j := mapReduce(jobs.JobID(i+1), time.Duration(i)*5*time.Second, workloads.BlockID(i*60), 60, test.reduces, 1000)
				for k := range j.Stages[len(j.Stages)-1].Tasks {
					j.Stages[len(j.Stages)-1].Tasks[k].Writes = 1e6
				}
				s.submit(j)
			}
			s.run(time.Hour)
			for j, how := range s.ended {
				if how != "done" {
					t.Errorf("job %d: %s", j, how)
				}
			}
			if local := s.near[policies.NodeLocal]; local < 300 {
				t.Errorf("%d of 600 maps are node-local, want at least 300", local)
			}
			if len(s.committed) != 600+10*test.reduces {
				t.Errorf("%d tasks committed", len(s.committed))
			}
		})
	}
}

// POLICIES.md, 4.13, vector 9: two jobs of 100 s of maps and 100 s of reduces each on the whole
// cluster take 300 s with FIFO and 400 s with fair sharing.
func TestBatchOfTwoJobs(t *testing.T) {
	for _, test := range []struct {
		name string
		s    order
		want time.Duration
	}{{"fifo", fifo(), 300 * time.Second}, {"fair", fair(), 400 * time.Second}} {
		f := fabric(1, 1)
		c := config(f, test.s)
		c.Slots = [2]int{2, 2}
		c.OutOfBand = true
		c.Blocks = blocksOn(f, 4)
		s := newSim(t, c, time.Second)
		s.mapTime, s.redTime = 100*time.Second, 100*time.Second
		s.submit(mapReduce(1, 0, 0, 2, 2, 0))
		s.submit(mapReduce(2, 0, 2, 2, 2, 0))
		s.run(time.Hour)
		if got := max(s.endedAt[1], s.endedAt[2]); got != test.want {
			t.Errorf("%s: the batch took %v, want %v", test.name, got, test.want)
		}
	}
}

// POLICIES.md, 1.8, vector e: a reduce with 5 parallel fetches and 8 finished maps on 2 hosts has 2
// fetches in flight.
func TestOneFetchPerHost(t *testing.T) {
	f := fabric(1, 3)
	c := config(f, fifo())
	c.Slots, c.Batch, c.Barrier = [2]int{4, 1}, 1, true
	c.Blocks = map[workloads.BlockID][]topo.HostID{}
	for b := range workloads.BlockID(8) {
		c.Blocks[b] = []topo.HostID{topo.HostID(b / 4)}
	}
	k := must(New(c))
	j := mapReduce(1, 0, 0, 8, 1, 100)
	must(k.Step(0, JobSubmitted{j}, Heartbeat{Host: 0}, Heartbeat{Host: 1}))
	var evs []Event
	for i := range 8 {
		a := jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}}
		evs = append(evs, ComputeDone{a}, OutputSpilled{a})
	}
	must(k.Step(time.Second, evs...))
	fetches := 0
	for _, cmd := range must(k.Step(2*time.Second, Heartbeat{Host: 2})) {
		if _, ok := cmd.(StartFetch); ok {
			fetches++
		}
	}
	if fetches != 2 {
		t.Errorf("%d fetches, want 2", fetches)
	}
}

// POLICIES.md, 4.13, vector 6, without the scheduler's part: with 6 reduces running and 2 computing, the
// others wait in the order in which they have fetched.
func TestComputingIsLimited(t *testing.T) {
	f := fabric(1, 1)
	o := fifo()
	o.computing = 2
	c := config(f, o)
	c.Slots = [2]int{1, 6}
	c.Blocks = blocksOn(f, 1)
	k := must(New(c))
	must(k.Step(0, JobSubmitted{mapReduce(1, 0, 0, 1, 6, 100)}, Heartbeat{Host: 0}))
	m := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}
	must(k.Step(1, ComputeDone{m}, OutputSpilled{m}))
	var fetches []FetchID
	for _, cmd := range must(k.Step(2, Heartbeat{Host: 0})) {
		if f, ok := cmd.(StartFetch); ok {
			fetches = append(fetches, f.ID)
		}
	}
	if len(fetches) != 6 {
		t.Fatalf("%d fetches, want 6", len(fetches))
	}
	computing := func(evs ...Event) (out []int) {
		for _, cmd := range must(k.Step(k.now+1, evs...)) {
			if c, ok := cmd.(Compute); ok {
				out = append(out, c.Attempt.Task.Index)
			}
		}
		return out
	}
	got := fmt.Sprint(
		computing(FetchEnded{fetches[3]}, FetchEnded{fetches[0]}, FetchEnded{fetches[5]}, FetchEnded{fetches[1]}),
		computing(ComputeDone{jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: 1, Index: 0}}}),
		computing(AttemptFailed{jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: 1, Index: 3}}, "disk"}),
	)
	if want := "[3 0] [5] [1]"; got != want {
		t.Errorf("computing: %s, want %s", got, want)
	}
	var phases []policies.Phase
	for _, a := range k.view.Jobs[0].Running {
		phases = append(phases, a.Phase)
	}
	if want := []policies.Phase{policies.Computing, policies.Copying, policies.Copying, policies.Computing}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

// The FAIR report's option to admit reduces to computing by memory: 6 reduces of 2 GB fetch on a host of 5 GB, of
// which two compute. The third gets the memory that ends first, although a map could use a part of it before.
func TestComputingByMemory(t *testing.T) {
	f := fabric(1, 1)
	s := tasks.Scheduler{Order: tasks.FIFO{}, Splitting: tasks.Splitting{Factor: 3, PerJob: 6, ByMemory: true}}
	c := config(f, s)
	c.Slots, c.Resources = [2]int{2, 2}, jobs.Resources{Memory: 5 * units.GB}
	c.Blocks = blocksOn(f, 3)
	k := must(New(c))
	j, later := mapReduce(1, 0, 0, 1, 6, 100), mapReduce(2, 0, 1, 2, 0, 0)
	for i := range j.Stages[1].Tasks {
		j.Stages[1].Tasks[i].Need.Memory = 2 * units.GB
	}
	later.Stages[0].Tasks[0].Need.Memory = units.GB
	later.Stages[0].Tasks[1].Need.Memory = 2 * units.GB
	must(k.Step(0, JobSubmitted{j}, Heartbeat{Host: 0}))
	m := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}
	must(k.Step(1, ComputeDone{m}, OutputSpilled{m}))
	var got []string
	step := func(evs ...Event) {
		for _, cmd := range must(k.Step(k.now+1, evs...)) {
			switch cmd := cmd.(type) {
			case StartFetch:
				got = append(got, "fetch")
			case Compute:
				got = append(got, fmt.Sprint("compute ", cmd.Attempt.Task.Index))
			case StartAttempt:
				if cmd.Kind == jobs.Map {
					got = append(got, "map")
				}
			}
		}
	}
	step(Heartbeat{Host: 0})
	step(FetchEnded{1}, FetchEnded{2}, FetchEnded{3}, FetchEnded{4})
	step(JobSubmitted{later}, Heartbeat{Host: 0}) // 1 GB is free, and promised
	step(ComputeDone{jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: 1, Index: 0}}})
	want := []string{"fetch", "fetch", "fetch", "fetch", "fetch", "fetch", "compute 0", "compute 1", "compute 2"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	audit(t, k)
}

// The FAIR report's option that copies pause: job 1 has 7 maps of 100 s on 3 slots, and its reduce has the only reduce slot after
// the first maps. It pauses once it has fetched their outputs, so that the reduce of job 2 does not wait 200 s for
// the maps of job 1. Job 1 loses no time, and fetches nothing again.
func TestPausedCopies(t *testing.T) {
	for _, test := range []struct {
		pausing bool
		ends    [2]time.Duration // of jobs 1 and 2
	}{{false, [2]time.Duration{310 * time.Second, 320 * time.Second}}, {true, [2]time.Duration{310 * time.Second, 111 * time.Second}}} {
		f := fabric(1, 1)
		o := fair()
		o.pausing = test.pausing
		c := config(f, o)
		c.Slots, c.OutOfBand, c.Blocks = [2]int{3, 1}, true, blocksOn(f, 8)
		s := newSim(t, c, time.Second)
		s.audit, s.latency, s.mapTime, s.redTime = true, time.Millisecond, 100*time.Second, 10*time.Second
		fetched := 0
		s.log = func(line string) {
			if strings.Contains(line, "StartFetch") {
				fetched += strings.Count(line, "Attempt:") - 1 // outputs
			}
		}
		s.submit(mapReduce(1, 0, 0, 7, 1, 100))
		s.submit(mapReduce(2, 0, 7, 1, 1, 100))
		s.run(time.Hour)
		for i, want := range test.ends {
			if got := s.endedAt[jobs.JobID(i+1)]; (got - want).Abs() > 2*time.Second {
				t.Errorf("pausing %t: job %d ends at %v, want %v", test.pausing, i+1, got, want)
			}
		}
		if fetched != 7+1 {
			t.Errorf("pausing %t: %d outputs are fetched, want each of 8 once", test.pausing, fetched)
		}
	}
}

// Errors of a configuration, a job and the caller.
func TestErrors(t *testing.T) {
	f := fabric(1, 2)
	if _, err := New(Config{Fabric: f, Scheduler: fifo(), Slots: [2]int{-1, 1}}); err == nil || strings.Count(err.Error(), "\n") < 3 {
		t.Errorf("New: %v, want several errors", err)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New without a fabric succeeded")
	}
	a := func(stage, index, n int) jobs.AttemptID {
		return jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: stage, Index: index}, N: n}
	}
	bad := mapReduce(1, 0, 0, 1, 1, 10)
	bad.Stages[0].Tasks[0].Output = nil
	bad.Stages[1].From = []int{1}
	bad.Stages = append(bad.Stages, jobs.Stage{Kind: 7})
	for _, test := range []struct {
		ev   Event
		want string
	}{
		{JobSubmitted{}, "missing"},
		{JobSubmitted{&jobs.Job{ID: 1}}, "no stages"},
		{JobSubmitted{bad}, "unknown kind"},
		{JobSubmitted{mapReduce(1, 0, 9, 1, 0, 0)}, "no replica"},
		{Heartbeat{Host: 2}, "unknown host"},
		{Heartbeat{Host: 0, Progress: []Progress{{a(0, 0, 0), 2}}}, "must be in"},
		{HostLost{-1}, "unknown host"}, {HostBack{Host: 3}, "unknown host"},
		{FetchEnded{1}, "unknown fetch"}, {FetchFailed{ID: 0}, "unknown fetch"},
		{InputRead{a(0, 0, 0)}, "unknown"}, {ComputeDone{a(5, 0, 0)}, "unknown"}, {AttemptStopped{a(0, 7, 0)}, "unknown"}, {AttemptFailed{a(0, 0, -1), ""}, "unknown"},
		{nil, "unknown event"},
	} {
		c := config(f, fifo())
		c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}}
		k := must(New(c))
		if _, err := k.Step(0, test.ev); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.ev, err, test.want)
		}
	}
	for _, a := range []policies.Assignment{
		{Kill: []jobs.AttemptID{{N: 1}}},
		{Launch: []policies.Launch{{}, {}}},
	} {
		c := config(f, answers{a})
		c.Slots[0], c.Name = 1, "tasks policy mine"
		c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}, 1: {0}}
		k := must(New(c))
		_, err := k.Step(0, JobSubmitted{mapReduce(1, 0, 0, 2, 0, 0)}, Heartbeat{Host: 0})
		if err == nil || !strings.Contains(err.Error(), "tasks policy mine: host 0: ") {
			t.Errorf("assignment %+v: %v", a, err)
		}
	}
	k := must(New(config(f, fifo())))
	j := mapReduce(1, 0, 0, 1, 0, 0)
	j.Stages[0].Tasks[0].InputSize = 0 // a task that reads nothing runs anywhere
	if _, err := k.Step(1, JobSubmitted{j}); err != nil {
		t.Error(err)
	}
	if _, err := k.Step(1, JobSubmitted{j}); err == nil {
		t.Error("a job was submitted twice")
	}
	k = must(New(config(f, fifo())))
	must(k.Step(2))
	if _, err := k.Step(1); err == nil {
		t.Error("time went back")
	}
	for _, l := range []policies.Launch{{Job: 1}, {Stage: 1}, {Locality: 3}, {Locality: policies.OffRack}, {Locality: -1}} {
		c := config(f, answers{policies.Assignment{Launch: []policies.Launch{l}}})
		c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}}
		k := must(New(c))
		if _, err := k.Step(0, JobSubmitted{mapReduce(1, 0, 0, 1, 0, 0)}, Heartbeat{Host: 0}); err == nil {
			t.Errorf("launch %+v succeeded", l)
		}
	}
}

// A backup runs on another host and reads another replica than the attempts of its task, as long as there is one.
// The first attempt to commit stops the others, and backups that cannot run are ignored or are errors.
func TestBackups(t *testing.T) {
	f := fabric(2, 2)
	c := config(f, answers{})
	c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0, 1}}
	k := must(New(c))
	must(k.Step(0, JobSubmitted{mapReduce(1, 0, 0, 1, 1, 10)}))
	task := jobs.TaskID{Job: 1}
	backup := func(id jobs.TaskID, h topo.HostID) error { return k.backup(id, h, &[jobs.TaskKinds]int{1, 1}) }
	st := k.jobs[1].stages[0]
	k.launch(st, 0, 0)
	for _, h := range []topo.HostID{2, 3} {
		if err := backup(task, h); err != nil {
			t.Fatal(err)
		}
	}
	var sources []topo.HostID
	for _, a := range st.tasks[0].attempts {
		sources = append(sources, a.source)
	}
	if !slices.Equal(sources[:2], []topo.HostID{0, 1}) || len(sources) != 3 {
		t.Errorf("attempts read from %v, want host 0, then host 1, then either", sources)
	}
	for _, x := range []struct {
		id   jobs.TaskID
		h    topo.HostID
		free int
		want string
	}{
		{jobs.TaskID{Job: 2}, 1, 1, "unknown task"}, {jobs.TaskID{Job: 1, Stage: 2}, 1, 1, "unknown task"}, {jobs.TaskID{Job: 1, Index: -1}, 1, 1, "unknown task"},
		{jobs.TaskID{Job: 1, Stage: 1}, 1, 1, "no attempt"}, {task, 3, 1, "has an attempt"}, {task, 1, 0, "no slot"},
	} {
		if err := k.backup(x.id, x.h, &[jobs.TaskKinds]int{x.free, x.free}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("backup of %v on host %d: %v, want %q", x.id, x.h, err, x.want)
		}
	}
	n := st.tasks[0].attempts[1].ID
	cmds := must(k.Step(time.Second, ComputeDone{n}, OutputSpilled{n}))
	stopped := 0
	for _, cmd := range cmds {
		if s, ok := cmd.(StopAttempt); ok && !s.Failed && s.Attempt.Task == task && s.Attempt != n {
			stopped++
		}
	}
	if st.tasks[0].status != done || st.tasks[0].n != int32(n.N) || stopped != 2 {
		t.Errorf("%d attempts were stopped, winner %d: want 2, and %d", stopped, st.tasks[0].n, n.N)
	}
	if k.slots[2].Committed != 1 || k.slots[0].Committed != 0 {
		t.Errorf("slots %+v, want one commit on host 2", k.slots)
	}
	// A backup whose block no host stores any more is ignored, and is no failure of the task.
	k = must(New(c))
	must(k.Step(0, JobSubmitted{mapReduce(1, 0, 0, 1, 0, 0)}))
	st = k.jobs[1].stages[0]
	k.launch(st, 0, 2)
	must(k.Step(1, InputRead{st.tasks[0].attempts[0].ID}, HostLost{0}, HostLost{1}))
	if err := backup(task, 3); err != nil || len(st.tasks[0].attempts) != 1 || st.tasks[0].failures != 0 {
		t.Errorf("backup without replicas: %v, %d attempts, %d failures", err, len(st.tasks[0].attempts), st.tasks[0].failures)
	}
}

// counter counts the calls of a scheduler.
type counter struct {
	order
	calls *int
}

func (c counter) New() policies.TaskInstance { return c }

func (c counter) Assign(v *policies.TaskView, a *policies.Assignment) {
	*c.calls++
	c.order.Assign(v, a)
}

// The scheduler is called only if the host has a free slot of a kind for which a task is pending, or if it
// needs every heartbeat.
func TestHeartbeatsThatAssignNothingAreSkipped(t *testing.T) {
	for _, every := range []bool{false, true} {
		calls := 0
		o := fifo()
		o.every = every
		c := config(fabric(1, 2), counter{o, &calls})
		c.Slots = [2]int{1, 1}
		c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}, 1: {0}}
		k := must(New(c))
		m := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}
		var got []int
		for _, evs := range [][]Event{
			{Heartbeat{Host: 0}},                         // no job
			{JobSubmitted{mapReduce(1, 0, 0, 2, 1, 10)}}, // no heartbeat
			{Heartbeat{Host: 0}},                         // launches a map
			{Heartbeat{Host: 0}},                         // no free map slot, no reduce
			{ComputeDone{m}, OutputSpilled{m}},
			{Heartbeat{Host: 0}}, // launches the other map and the reduce
			{Heartbeat{Host: 1}}, // free slots, nothing is pending
			{HostLost{1}},
			{Heartbeat{Host: 1}}, // a lost host
		} {
			calls = 0
			must(k.Step(k.now, evs...))
			got = append(got, calls)
		}
		want := []int{0, 0, 1, 0, 0, 1, 0, 0, 0}
		if every {
			want = []int{1, 0, 1, 1, 0, 1, 1, 0, 0}
		}
		if !slices.Equal(got, want) {
			t.Errorf("every heartbeat %t: calls %v, want %v", every, got, want)
		}
	}
}

// Draws depend on the attempt, and not on the time or on other attempts.
func TestDrawsAreKeyedByAttempt(t *testing.T) {
	f := fabric(2, 6)
	replicas := func(jobs0 int) (out []topo.HostID) {
		c := config(f, fifo())
		c.Slots = [2]int{100, 1}
		c.Blocks = map[workloads.BlockID][]topo.HostID{}
		for b := range workloads.BlockID(20) {
			c.Blocks[b] = []topo.HostID{1, 2, 3, 4, 5}
		}
		k := must(New(c))
		for i := range jobs0 {
			must(k.Step(time.Duration(i), JobSubmitted{mapReduce(jobs.JobID(i+1), 0, 0, 20, 0, 0)}))
		}
		for _, cmd := range must(k.Step(time.Duration(jobs0+1)*time.Minute, JobSubmitted{mapReduce(9, 0, 0, 20, 0, 0)}, Heartbeat{Host: 0})) {
			if a, ok := cmd.(StartAttempt); ok && a.Attempt.Task.Job == 9 {
				out = append(out, a.Source)
			}
		}
		return out
	}
	a, b := replicas(0), replicas(3)
	seen := map[topo.HostID]bool{}
	for _, h := range a {
		seen[h] = true
	}
	if !slices.Equal(a, b) || len(a) != 20 || len(seen) < 4 {
		t.Errorf("replicas %v and %v, want the same, spread over 5 hosts", a, b)
	}
}

// latest is a scheduler that launches tasks of the latest stages first.
type latest struct{ order }

func (l latest) New() policies.TaskInstance { return l }

func (latest) Assign(v *policies.TaskView, a *policies.Assignment) {
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		free := v.Slots[v.Host].Free(k)
		for j := range v.Jobs {
			for s, st := range slices.Backward(v.Jobs[j].Stages) {
				for l, n := range st.Pending {
					for range n {
						if st.Kind == k && free > 0 {
							a.Launch = append(a.Launch, policies.Launch{Job: j, Stage: s, Locality: policies.Locality(l)})
							free--
						}
					}
				}
			}
		}
	}
}

// chain returns a job of stages of one task of the given kinds, each of which fetches from the one before.
func chain(kinds ...jobs.TaskKind) *jobs.Job {
	j := &jobs.Job{ID: 1}
	for s, k := range kinds {
		st := jobs.Stage{Kind: k, Tasks: []jobs.Task{{InputSize: 1000, Output: []units.Bytes{100}}}}
		if s > 0 {
			st.From = []int{s - 1}
		}
		j.Stages = append(j.Stages, st)
	}
	j.Stages[len(kinds)-1].Tasks[0].Output = nil
	return j
}

// Stages that fetch do not take the slots that earlier ones need: neither before these start, nor when
// these must run again.
func TestStagesDoNotBlockEachOther(t *testing.T) {
	for _, crash := range []bool{false, true} {
		f := fabric(1, 3)
		c := config(f, latest{fifo()})
		c.Slots, c.Slowstart = [2]int{1, 1}, 0
		c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0, 1, 2}}
		s := newSim(t, c, 3*time.Second)
		s.audit, s.latency = true, 20*time.Second
		s.submit(chain(jobs.Map, jobs.Reduce, jobs.Reduce, jobs.Map))
		if crash {
			// Of 3 hosts, 2 do not come back: the one that has run stage 1, and another one.
			var watch func()
			watch = func() {
				at := topo.HostID(-1)
				for id, h := range s.outputs {
					if id.Task.Stage == 1 {
						at = h
					}
				}
				var last *execution
				for id, x := range s.running {
					if id.Task.Stage == 2 && !x.stopped {
						last = x
					}
				}
				if at < 0 || last == nil || last.Host == at {
					s.after(time.Second, watch)
					return
				}
				for h := range topo.HostID(3) {
					if h != last.Host {
						s.crash(h, 0, 100*time.Hour, false)
					}
				}
			}
			s.after(0, watch)
		}
		s.run(200 * time.Hour)
		if end := s.endedAt[1]; s.ended[1] != "done" || end > time.Hour || crash && s.launches[jobs.TaskID{Job: 1, Stage: 1}] < 2 {
			t.Errorf("crash %t: job ended at %v: %s, attempts %v", crash, end, s.ended[1], s.launches)
		}
	}
}

// An output that could not be fetched is computed again, with the lost input that it needs.
func TestLostInputOfLostOutput(t *testing.T) {
	c := config(fabric(1, 3), fifo())
	c.FetchFailures = 1
	c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0, 1, 2}}
	k := must(New(c))
	at := func(stage, n int) jobs.AttemptID {
		return jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: stage}, N: n}
	}
	must(k.Step(0, JobSubmitted{chain(jobs.Map, jobs.Reduce, jobs.Map)}, Heartbeat{Host: 0}))
	for i, want := range []bool{false, true, true} {
		if st := k.view.Jobs[0].Stages[i]; st.Anywhere != want {
			t.Errorf("stage %d: input anywhere %v, want %v", i, st.Anywhere, want)
		}
	}
	must(k.Step(1, ComputeDone{at(0, 0)}, OutputSpilled{at(0, 0)}, Heartbeat{Host: 1}))
	must(k.Step(2, FetchEnded{1}))
	must(k.Step(3, ComputeDone{at(1, 0)}, OutputSpilled{at(1, 0)}, Heartbeat{Host: 2}))
	must(k.Step(4, HostLost{0}))
	if st := k.jobs[1].stages; st[0].count[done] != 1 || st[0].lost != 1 {
		t.Errorf("stage 0 counts %v, %d lost: want a lost output that is not needed", st[0].count, st[0].lost)
	}
	must(k.Step(5, FetchFailed{2, "reset"}))
	if st := k.jobs[1].stages; st[0].count[pending] != 1 || st[1].count[pending] != 1 {
		t.Errorf("stages count %v and %v, want a waiting task in each", st[0].count, st[1].count)
	}
}

// What schedulers learn of attempts and stages.
func TestView(t *testing.T) {
	c := config(fabric(1, 2), fifo())
	c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}, 1: {1}}
	k := must(New(c))
	j := mapReduce(1, 0, 0, 2, 0, 0)
	j.User, j.Profile, j.Priority = "ann", "sort", 3
	a, b := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}, jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: 1}}
	must(k.Step(2*time.Second, JobSubmitted{j}, JobSubmitted{mapReduce(2, 0, 0, 1, 0, 0)}, Heartbeat{Host: 0}))
	must(k.Step(5*time.Second, Heartbeat{Host: 0, Progress: []Progress{{a, 0.5}, {b, 0.25}}}))
	v := k.view.Jobs[0]
	if v.ID != 1 || v.User != "ann" || v.Profile != "sort" || v.Priority != 3 || v.Submit != 2*time.Second || len(k.view.Jobs) != 2 {
		t.Errorf("jobs %+v", k.view.Jobs)
	}
	want := []policies.AttemptState{
		{ID: a, Host: 0, Locality: policies.NodeLocal, Start: 2 * time.Second, Phase: policies.Computing, Progress: 0.5},
		{ID: b, Host: 0, Locality: policies.RackLocal, Start: 2 * time.Second, Phase: policies.Computing, Progress: 0.25},
	}
	if !slices.Equal(v.Running, want) {
		t.Errorf("attempts %+v, want %+v", v.Running, want)
	}
	must(k.Step(6*time.Second, AttemptFailed{b, "disk"}, ComputeDone{a}))
	if st := k.view.Jobs[0].Stages[0]; st.Read != 1.25e6 || st.Busy != 8*time.Second || st.Done != 1 || st.Waiting != 1 {
		t.Errorf("stage %+v, want 1.25 MB read in 8 s", st)
	}
	if got, want := k.view.Profiles, map[string]policies.Consumption{"sort": {Read: 1.25e6, Busy: 8 * time.Second, Input: 1e6}}; !maps.Equal(got, want) {
		t.Errorf("profiles %+v, want %+v: job 2 has none", got, want)
	}
	const left = "2 jobs with 2 tasks waiting and 0 running: job 1 waits for slots for 1 task of stage 0, " +
		"job 2 waits for slots for 1 task of stage 0"
	if got := k.Unfinished(); got != left || k.Idle() {
		t.Errorf("unfinished: %q, want %q", got, left)
	}
}

// The unfinished work of an attempt has the name of its phase.
func TestUnfinishedNamesWork(t *testing.T) {
	c := config(fabric(1, 2), fifo())
	c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}}
	k := must(New(c))
	j := mapReduce(1, 0, 0, 1, 1, units.MB)
	j.Stages[1].Tasks[0].Writes = 5 * units.MB
	a, b := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}, jobs.AttemptID{Task: jobs.TaskID{Job: 1, Stage: 1}}
	for _, step := range []struct {
		evs  []Event
		want string
	}{
		{[]Event{JobSubmitted{j}}, "slots for 1 task of stage 0"},
		{[]Event{Heartbeat{Host: 0}}, "attempt 0 of task 0.0 of job 1, which reads block 0 from host 0"},
		{[]Event{InputRead{a}}, "attempt 0 of task 0.0 of job 1, which computes"},
		{[]Event{ComputeDone{a}}, "attempt 0 of task 0.0 of job 1, which stores its output"},
		{[]Event{OutputSpilled{a}}, "slots for 1 task of stage 1"},
		{[]Event{Heartbeat{Host: 1}}, "attempt 0 of task 1.0 of job 1, which fetches 1 output"},
		{[]Event{FetchEnded{1}}, "attempt 0 of task 1.0 of job 1, which computes"},
		{[]Event{OutputBegun{b}}, "attempt 0 of task 1.0 of job 1, which writes 5MB"},
	} {
		must(k.Step(k.now, step.evs...))
		if got := k.jobs[1].waitsFor(); got != step.want {
			t.Errorf("after %T: waits for %q, want %q", step.evs[0], got, step.want)
		}
	}
}

// A profile of a completed job has all its maps, and that of a job that runs none.
func TestEndedProfiles(t *testing.T) {
	c := config(fabric(1, 2), fifo())
	c.Blocks = map[workloads.BlockID][]topo.HostID{0: {0}, 1: {0}}
	k := must(New(c))
	j := mapReduce(1, 0, 0, 2, 0, 0)
	j.Profile = "sort"
	of := func(task int) jobs.AttemptID { return jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: task}} }
	must(k.Step(0, JobSubmitted{j}, Heartbeat{Host: 0}))
	must(k.Step(time.Second, ComputeDone{of(0)}))
	if len(k.view.EndedProfiles) != 0 || k.view.Profiles["sort"].Input == 0 {
		t.Errorf("ended profiles %+v of profiles %+v, want none before the end", k.view.EndedProfiles, k.view.Profiles)
	}
	must(k.Step(2*time.Second, ComputeDone{of(1)}))
	if got := k.view.EndedProfiles; len(k.view.Jobs) != 0 || !maps.Equal(got, k.view.Profiles) {
		t.Errorf("%d jobs, ended profiles %+v, want those of all maps, %+v", len(k.view.Jobs), got, k.view.Profiles)
	}
}

type answers struct{ a policies.Assignment }

func (answers) Needs() policies.Facts                                 { return policies.Slots | policies.Attempts }
func (answers) Slots(n [2]int) policies.Limits                        { return policies.Limits{Running: n, Computing: n} }
func (x answers) New() policies.TaskInstance                          { return x }
func (x answers) Assign(_ *policies.TaskView, a *policies.Assignment) { *a = x.a }
