package policytest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// ToyJob is a job of a TaskCluster: maps, and reduces that may start when a map has ended.
type ToyJob struct {
	ID            jobs.JobID
	User          string
	Priority      int
	Submit        time.Duration
	Maps, Reduces int             // at least 1 map
	Blocks        [][]topo.HostID // hosts that store the input of each map; missing for input without a place
	Need          jobs.Resources  // of each task
	Length        time.Duration   // of each attempt
	// Slow makes the first attempt of each Slow-th task of a stage take 8 × Length; 0 makes none slow.
	Slow int
}

// TaskCluster is a small cluster whose hosts send heartbeats in turn. It executes the decisions
// of a policies.TaskInstance.
type TaskCluster struct {
	// Slots are the slots of each host before the policy changes them, and Capacity what a host
	// has for tasks.
	Slots    [jobs.TaskKinds]int
	Capacity jobs.Resources
	Between  time.Duration // time between two heartbeats
	// Ended are the jobs that have ended, in that order.
	Ended []jobs.JobID

	cluster policies.Cluster
	limits  policies.Limits
	needs   policies.Needs
	jobs    []*toyJob // unfinished, by submission, ties by ID; some are not submitted yet
	host    topo.HostID
	lost    []bool
	done    []policies.SlotState // by host: the fields on attempts that have ended
	history policies.History
	fetcher policies.Fetcher // nil if the instance is none
}

type toyJob struct {
	ToyJob
	stages  [jobs.TaskKinds][]toyTask
	ended   [jobs.TaskKinds][]time.Duration // of attempts
	running []policies.AttemptState
}

type toyTask struct {
	attempts int // launched so far
	running  int // attempts
	done     bool
	// Of a task with Spare attempts: when it was done, when they are stopped, and whether there is no second copy yet.
	first, until time.Duration
	alone        bool
}

// NewTaskCluster returns a cluster on a fabric, with slots of one map and one reduce per host and
// a heartbeat every 100 ms.
func NewTaskCluster(f *topo.Fabric, list []ToyJob) *TaskCluster {
	c := &TaskCluster{Slots: [jobs.TaskKinds]int{1, 1}, Between: 100 * time.Millisecond, lost: make([]bool, f.Hosts()), done: make([]policies.SlotState, f.Hosts())}
	c.cluster = policies.Cluster{Fabric: f, Hosts: make([]policies.HostState, f.Hosts()), Racks: make([]policies.RackState, f.Racks())}
	for _, l := range f.Links() {
		c.cluster.Capacity = append(c.cluster.Capacity, l.Rate)
	}
	for _, j := range list {
		c.jobs = append(c.jobs, &toyJob{ToyJob: j, stages: [jobs.TaskKinds][]toyTask{make([]toyTask, j.Maps), make([]toyTask, j.Reduces)}})
	}
	slices.SortFunc(c.jobs, func(a, b *toyJob) int { return cmp.Or(cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID)) })
	return c
}

// TaskClusters generates random clusters with up to six users, some with lost hosts and some with
// limited resources. IDs have gaps and are not in order of submission.
func TaskClusters() *rapid.Generator[*TaskCluster] {
	return rapid.Custom(func(t *rapid.T) *TaskCluster {
		base := baseCluster(t)
		fillHosts(t, base)
		var list []ToyJob
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 1))
		ids := rapid.Permutation([]int{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "IDs")
		resources := rapid.Bool().Draw(t, "resources")
		for i := range rapid.IntRange(0, 8).Draw(t, "jobs") {
			j := ToyJob{ID: jobs.JobID(ids[i]), User: rapid.SampledFrom([]string{"ann", "bob", "cy", "dee", "eve", ""}).Draw(t, "user"),
				Priority: rapid.IntRange(0, 1).Draw(t, "priority"), Submit: time.Duration(rapid.Int64Range(0, 5e9).Draw(t, "submit")),
				Maps: rapid.IntRange(1, 12).Draw(t, "maps"), Reduces: rapid.IntRange(0, 6).Draw(t, "reduces"), Length: time.Duration(rapid.Int64Range(1, 4e9).Draw(t, "length")), Slow: rapid.IntRange(0, 4).Draw(t, "slow")}
			if resources {
				j.Need = jobs.Resources{CPU: float64(rapid.IntRange(0, 30).Draw(t, "CPU")) / 10, Memory: units.Bytes(rapid.Int64Range(0, 4e9).Draw(t, "memory"))}
			}
			if rapid.IntRange(0, 5).Draw(t, "placed") > 0 {
				for range j.Maps {
					j.Blocks = append(j.Blocks, []topo.HostID{topo.HostID(r.IntN(base.Fabric.Hosts())), topo.HostID(r.IntN(base.Fabric.Hosts()))})
				}
			}
			list = append(list, j)
		}
		c := NewTaskCluster(base.Fabric, list)
		c.cluster = *base
		c.cluster.Now = 0
		c.Between = time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "between"))
		c.Slots = [jobs.TaskKinds]int{rapid.IntRange(0, 5).Draw(t, "map slots"), rapid.IntRange(0, 3).Draw(t, "reduce slots")}
		if resources {
			c.Capacity = jobs.Resources{CPU: float64(rapid.IntRange(0, 2).Draw(t, "cores") * 3), Memory: units.Bytes(rapid.IntRange(0, 1).Draw(t, "host memory")) * 8 * units.GB}
		}
		for h := range c.lost {
			c.lost[h] = c.cluster.Hosts[h].Lost
		}
		return c
	})
}

// Use sets the limits of the hosts' slots, which the policy decides, and returns a new instance of it. If that is a
// policies.Fetcher, it decides whether attempts continue.
func (c *TaskCluster) Use(s policies.TaskScheduler) policies.TaskInstance {
	x := s.New()
	c.limits, c.needs = s.Slots(c.Slots), s.Needs()
	c.fetcher, _ = x.(policies.Fetcher)
	return x
}

// Unfinished returns the number of jobs that have not ended, submitted or not.
func (c *TaskCluster) Unfinished() int { return len(c.jobs) }

// Now returns the time of the current heartbeat.
func (c *TaskCluster) Now() time.Duration { return c.cluster.Now }

// straggles reports whether an attempt is slow.
func (j *toyJob) straggles(id jobs.AttemptID) bool {
	return j.Slow > 0 && id.N == 0 && (id.Task.Index+1)%j.Slow == 0
}

// length returns how long an attempt takes.
func (j *toyJob) length(id jobs.AttemptID) time.Duration {
	if j.straggles(id) {
		return 8 * j.Length
	}
	return j.Length
}

// commit counts an attempt that is the first of its task to end, and all those of the task in the history.
func (c *TaskCluster) commit(j *toyJob, x policies.AttemptState) {
	tasks := j.stages[x.Kind]
	task, took := &tasks[x.ID.Task.Index], c.cluster.Now-x.Start
	task.done, task.first = true, c.cluster.Now
	j.ended[x.Kind] = append(j.ended[x.Kind], took)
	c.done[x.Host].Committed++
	c.done[x.Host].CommittedTime += took
	for _, y := range j.running {
		if y.ID.Task != x.ID.Task || len(tasks) == 1 {
			continue
		}
		c.history.Judged++
		c.done[y.Host].Judged++
		if j.straggles(y.ID) {
			c.history.Straggled++
			c.done[y.Host].Straggled++
		}
	}
	if x.Kind != jobs.Reduce || !slices.ContainsFunc(j.stages[jobs.Map], func(t toyTask) bool { return t.attempts > 1 }) {
		return
	}
	h := j.copies(c)
	for range j.Maps {
		level := &h.ByFlows[policies.FlowLevel(j.Maps)]
		fetched, of, busy := &h.Alone, &level.Alone, 100*time.Millisecond
		if task.attempts > 1 {
			fetched, of, busy = &h.Shared, &level.Shared, 2*busy
		}
		fetched.Add(32*units.MB, busy)
		of.Add(32*units.MB, busy)
	}
	h.Computing = newest(append(h.Computing, j.Length/2))
}

// copies returns the history of copies of jobs of this size.
func (j *toyJob) copies(c *TaskCluster) *policies.CopyHistory {
	return &c.history.Copies[jobs.SizeClass(j.Maps+j.Reduces)]
}

// newest returns the part of a history that is kept.
func newest(list []time.Duration) []time.Duration {
	return list[max(0, len(list)-policies.HistoryLength):]
}

// lag records the lag of the second copy of a task's output; -1 if there will be none.
func (t *toyTask) lag(h *policies.CopyHistory, lag time.Duration) {
	if t.alone {
		t.alone = false
		h.Lags = newest(append(h.Lags, lag))
	}
}

// keep marks the attempts of a task that has just been done and that the policy lets continue.
func (c *TaskCluster) keep(j *toyJob, of jobs.TaskID) {
	if c.fetcher == nil || of.Stage != int(jobs.Map) || j.Reduces == 0 {
		return
	}
	v := c.View(c.needs)
	at := slices.IndexFunc(v.Jobs, func(x policies.TaskJob) bool { return x.ID == j.ID })
	task := &j.stages[of.Stage][of.Index]
	if wait := c.fetcher.Keep(v, &v.Jobs[at], of.Stage); wait > 0 {
		task.until = c.cluster.Now + wait
		for i := range j.running {
			if x := &j.running[i]; x.ID.Task == of && !x.Killing {
				x.Spare, task.alone = true, true
			}
		}
	}
}

// Next advances to the heartbeat of the next host that is not lost. Attempts whose time is over
// have ended then, and other attempts of their tasks are killed, unless the policy lets them continue. Killed ones are gone
// at the next heartbeat of their host.
func (c *TaskCluster) Next() {
	c.cluster.Now += c.Between
	for range c.lost {
		if c.host = (c.host + 1) % topo.HostID(len(c.lost)); !c.lost[c.host] {
			break
		}
	}
	for _, j := range c.jobs {
		var done []jobs.TaskID
		for _, x := range j.running {
			if task := j.task(x); !x.Killing && !task.done && c.over(j, x) {
				c.commit(j, x)
				done = append(done, x.ID.Task)
			}
		}
		j.running = slices.DeleteFunc(j.running, func(x policies.AttemptState) bool {
			gone := x.Killing && x.Host == c.host || !x.Killing && c.over(j, x)
			if gone {
				task := j.task(x)
				task.running--
				if x.Spare && !x.Killing {
					task.lag(j.copies(c), c.cluster.Now-task.first)
				}
			}
			return gone
		})
		for _, id := range done {
			c.keep(j, id)
		}
	}
	c.jobs = slices.DeleteFunc(c.jobs, func(j *toyJob) bool {
		for i := range j.running {
			x := &j.running[i]
			if task := j.task(*x); task.done && !x.Killing && (!x.Spare || c.cluster.Now >= task.until) {
				x.Killing = true
				task.lag(j.copies(c), -1)
			}
			x.Progress = min(float64(c.cluster.Now-x.Start)/float64(j.length(x.ID)), 1)
			if x.Phase == policies.Copying && x.Progress > 0.3 {
				x.Phase = policies.Queued
			} else if x.Phase == policies.Queued && c.computing(x.Host) < max(c.limits.Computing[jobs.Reduce], 1) {
				x.Phase = policies.Computing
			}
		}
		for _, tasks := range j.stages {
			if slices.ContainsFunc(tasks, func(t toyTask) bool { return !t.done }) {
				return false
			}
		}
		c.Ended = append(c.Ended, j.ID)
		return true
	})
}

// task returns the task of an attempt.
func (j *toyJob) task(x policies.AttemptState) *toyTask {
	return &j.stages[x.ID.Task.Stage][x.ID.Task.Index]
}

// over reports whether the time of an attempt is over.
func (c *TaskCluster) over(j *toyJob, x policies.AttemptState) bool {
	return c.cluster.Now-x.Start >= j.length(x.ID)
}

// computing returns the reduces that compute on a host.
func (c *TaskCluster) computing(h topo.HostID) (n int) {
	for _, j := range c.jobs {
		for _, x := range j.running {
			if x.Host == h && x.Kind == jobs.Reduce && x.Phase == policies.Computing {
				n++
			}
		}
	}
	return n
}

// submitted returns the unfinished jobs that are submitted.
func (c *TaskCluster) submitted() []*toyJob {
	n := 0
	for n < len(c.jobs) && c.jobs[n].Submit <= c.cluster.Now {
		n++
	}
	return c.jobs[:n]
}

// View returns the View of the current heartbeat for a policy with the given needs.
func (c *TaskCluster) View(needs policies.Needs) *policies.TaskView {
	v := &policies.TaskView{Cluster: cloneCluster(&c.cluster), Host: c.host}
	maskCluster(v.Cluster, needs)
	for h := range c.lost {
		s := policies.SlotState{Total: c.limits.Running, Capacity: c.Capacity, Space: -1, Committed: c.done[h].Committed, CommittedTime: c.done[h].CommittedTime, Lost: c.lost[h]}
		if needs.History {
			s.Judged, s.Straggled = c.done[h].Judged, c.done[h].Straggled
		}
		v.Slots = append(v.Slots, s)
	}
	if needs.History {
		h := c.history
		for i := range h.Copies {
			h.Copies[i].Lags, h.Copies[i].Computing = slices.Clone(h.Copies[i].Lags), slices.Clone(h.Copies[i].Computing)
		}
		v.History = &h
	}
	for _, j := range c.submitted() {
		out := policies.TaskJob{ID: j.ID, User: j.User, Priority: j.Priority, Submit: j.Submit, Input: units.Bytes(j.Maps) * 64 * units.MB,
			Running: slices.Clone(j.running)}
		for k := range jobs.TaskKinds {
			if len(j.stages[k]) > 0 {
				out.Stages = append(out.Stages, j.describe(c, jobs.TaskKind(k)))
			}
		}
		if needs.Shuffle {
			out.Shuffle = j.shuffle(c, needs)
		}
		if !needs.TaskProgress {
			for i := range out.Running {
				out.Running[i].Progress = 0
			}
			for i := range out.Stages {
				out.Stages[i].Durations = nil
			}
		}
		for _, x := range j.running {
			s := &v.Slots[x.Host]
			s.Used[x.Kind]++
			s.Need.CPU += j.Need.CPU
			s.Need.Memory += j.Need.Memory
		}
		v.Jobs = append(v.Jobs, out)
	}
	v.Count()
	return v
}

// shuffle returns the places of the job's data. Each map that is done has put 32 MB on the rack of its first
// replica, or of its number.
func (j *toyJob) shuffle(c *TaskCluster, needs policies.Needs) *policies.ShuffleState {
	f := c.cluster.Fabric
	s := &policies.ShuffleState{Intermediate: make([]units.Bytes, f.Racks()), Maps: make([]int, f.Racks()), Reduces: make([]int, f.Racks())}
	if needs.OracleRatio {
		s.Ratio = 0.5
	}
	for i, t := range j.stages[jobs.Map] {
		rack := i % f.Racks()
		if i < len(j.Blocks) {
			b := policies.PlacedBlock{Size: 64 * units.MB}
			for _, h := range j.Blocks[i] {
				if r := f.RackOf(h); !slices.Contains(b.Racks, r) {
					b.Racks = append(b.Racks, r)
				}
			}
			s.Blocks = append(s.Blocks, b)
			rack = int(b.Racks[0])
		}
		if t.done {
			s.Intermediate[rack] += 32 * units.MB
			s.Maps[rack]++
		}
	}
	for _, x := range j.running {
		if x.Kind == jobs.Map {
			s.Maps[f.RackOf(x.Host)]++
		} else {
			s.Reduces[f.RackOf(x.Host)]++
		}
	}
	return s
}

// describe returns the state of a stage, with distances from the current host.
func (j *toyJob) describe(c *TaskCluster, k jobs.TaskKind) policies.StageState {
	st := policies.StageState{Kind: k, Tasks: len(j.stages[k]), Need: j.Need, Anywhere: k == jobs.Reduce || j.Blocks == nil, Durations: slices.Clone(j.ended[k])}
	if k == jobs.Reduce {
		st.Outputs = j.Maps
	}
	may := k == jobs.Map || slices.ContainsFunc(j.stages[jobs.Map], func(t toyTask) bool { return t.done })
	for i, t := range j.stages[k] {
		switch {
		case t.done:
			st.Done++
			st.Read += 64 * units.MB
			st.Busy += j.Length
		case t.running > 0:
			st.Running++
		default:
			st.Waiting++
			if may {
				st.Pending[j.distance(c, k, i)]++
			}
		}
	}
	return st
}

// distance returns the distance of a task's input from the current host.
func (j *toyJob) distance(c *TaskCluster, k jobs.TaskKind, i int) policies.Locality {
	if k == jobs.Reduce || i >= len(j.Blocks) {
		return policies.OffRack
	}
	l := policies.OffRack
	for _, h := range j.Blocks[i] {
		switch {
		case h == c.host:
			return policies.NodeLocal
		case c.cluster.Fabric.RackOf(h) == c.cluster.Fabric.RackOf(c.host):
			l = policies.RackLocal
		}
	}
	return l
}

// Take executes a valid decision on the current View.
func (c *TaskCluster) Take(a *policies.Assignment) {
	list := c.submitted()
	for _, j := range list {
		for i := range j.running {
			if slices.Contains(a.Kill, j.running[i].ID) {
				j.running[i].Killing = true
			}
		}
	}
	for _, l := range a.Launch {
		j := list[l.Job]
		k := jobs.TaskKind(l.Stage)
		for i := range j.stages[k] {
			if t := &j.stages[k][i]; !t.done && t.running == 0 && j.distance(c, k, i) == l.Locality {
				j.launch(c, k, i, l.Locality)
				break
			}
		}
	}
	for _, id := range a.Backup {
		for _, j := range list {
			if j.ID == id.Job {
				j.launch(c, jobs.TaskKind(id.Stage), id.Index, j.distance(c, jobs.TaskKind(id.Stage), id.Index))
			}
		}
	}
}

// launch starts an attempt of a task on the current host.
func (j *toyJob) launch(c *TaskCluster, k jobs.TaskKind, i int, l policies.Locality) {
	t := &j.stages[k][i]
	phase := policies.Computing
	if k == jobs.Reduce {
		phase = policies.Copying
	}
	j.running = append(j.running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: j.ID, Stage: int(k), Index: i}, N: t.attempts},
		Kind: k, Host: c.host, Locality: l, Start: c.cluster.Now, Phase: phase})
	t.attempts++
	t.running++
}
