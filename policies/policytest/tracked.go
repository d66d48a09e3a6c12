package policytest

import (
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/engine/tracker"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Job is a job of a TaskCluster: maps, and reduces that fetch from all of them.
type Job struct {
	ID            jobs.JobID
	User          string
	Priority      int
	Submit        time.Duration
	Maps, Reduces int             // at least 1 map
	Blocks        [][]topo.HostID // hosts that store the input of each map; nil for maps without input
	Need          jobs.Resources  // of each task
	Length        time.Duration   // of each attempt
	// Slow makes the first attempt of each Slow-th task of a stage take 8 × Length; 0 makes none slow.
	Slow int
}

// TaskCluster is a small cluster with the job tracker of the engine, of which Config is the configuration. It executes
// the commands of the tracker without a network: work takes a set time. Hosts send heartbeats in turn, each
// with the progress of all attempts.
type TaskCluster struct {
	tracker.Config
	Between time.Duration // time between two heartbeats
	// Ended are the jobs that are done or have failed, in that order.
	Ended []jobs.JobID

	cluster policies.Cluster
	jobs    map[jobs.JobID]*Job
	tracker *tracker.Tracker
	due     []happening // by time
	running []execution
	host    topo.HostID
}

// happening is an event at a time.
type happening struct {
	at time.Duration
	ev tracker.Event
}

// execution is an attempt on a host.
type execution struct {
	tracker.StartAttempt
	start, length time.Duration
}

// NewTaskCluster returns a cluster on a fabric, with slots of one map and one reduce per host and
// a heartbeat every 100 ms.
func NewTaskCluster(f *topo.Fabric, list []Job) *TaskCluster {
	c := &TaskCluster{Between: 100 * time.Millisecond, jobs: map[jobs.JobID]*Job{}}
	c.Config = tracker.Config{
		Fabric: f, Slots: [jobs.TaskKinds]int{1, 1}, Blocks: map[workloads.BlockID][]topo.HostID{}, Settings: tracker.DefaultSettings(),
	}
	c.cluster = policies.Cluster{Fabric: f, Hosts: make([]policies.HostState, f.Hosts()), Racks: make([]policies.RackState, f.Racks())}
	for _, l := range f.Links() {
		c.cluster.Capacity = append(c.cluster.Capacity, l.Rate)
	}
	for i := range list {
		j := &list[i]
		c.jobs[j.ID] = j
		c.at(j.Submit, tracker.JobSubmitted{Job: c.spec(j)})
	}
	return c
}

// spec returns the job of the tracker, and stores its input.
func (c *TaskCluster) spec(j *Job) *jobs.Job {
	maps, reduces := make([]jobs.Task, j.Maps), make([]jobs.Task, j.Reduces)
	for i := range maps {
		maps[i] = jobs.Task{Need: j.Need, Output: make([]units.Bytes, j.Reduces)}
		for r := range maps[i].Output {
			maps[i].Output[r] = 32 * units.MB / units.Bytes(j.Reduces)
		}
		if i < len(j.Blocks) {
			maps[i].Input, maps[i].InputSize = workloads.BlockID(len(c.Blocks)), 64*units.MB
			c.Blocks[maps[i].Input] = j.Blocks[i]
		}
	}
	for i := range reduces {
		reduces[i].Need = j.Need
	}
	out := &jobs.Job{ID: j.ID, User: j.User, Priority: j.Priority, Profile: j.User, Stages: []jobs.Stage{{Kind: jobs.Map, Tasks: maps}}}
	if j.Reduces > 0 {
		out.Stages = append(out.Stages, jobs.Stage{Kind: jobs.Reduce, From: []int{0}, Tasks: reduces})
	}
	return out
}

// TaskClusters generates random clusters with up to six users, some with hosts that are lost and come back and some with
// limited resources. IDs have gaps and are not in order of submission.
func TaskClusters() *rapid.Generator[*TaskCluster] {
	return rapid.Custom(func(t *rapid.T) *TaskCluster {
		base := baseCluster(t)
		fillHosts(t, base)
		var list []Job
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 1))
		anyHost := func() topo.HostID { return topo.HostID(r.IntN(base.Fabric.Hosts())) }
		ids := rapid.Permutation([]int{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "IDs")
		resources := rapid.Bool().Draw(t, "resources")
		slots := [jobs.TaskKinds]int{rapid.IntRange(1, 5).Draw(t, "map slots"), rapid.IntRange(0, 3).Draw(t, "reduce slots")}
		for i := range rapid.IntRange(0, 8).Draw(t, "jobs") {
			j := Job{
				ID: jobs.JobID(ids[i]), User: rapid.SampledFrom([]string{"ann", "bob", "cy", "dee", "eve", ""}).Draw(t, "user"),
				Priority: rapid.IntRange(0, 1).Draw(t, "priority"), Submit: time.Duration(rapid.Int64Range(0, 5e9).Draw(t, "submit")),
				Maps: rapid.IntRange(1, 12).Draw(t, "maps"), Reduces: min(rapid.IntRange(0, 6).Draw(t, "reduces"), 6*slots[jobs.Reduce]),
				Length: rapid.SampledFrom([]time.Duration{1, 3e8, 1e9, 4e9}).Draw(t, "length"), Slow: rapid.IntRange(0, 4).Draw(t, "slow"),
			}
			if resources {
				j.Need.CPU = float64(rapid.IntRange(0, 30).Draw(t, "CPU")) / 10
				j.Need.Memory = units.Bytes(rapid.Int64Range(0, 4e9).Draw(t, "memory"))
			}
			if rapid.IntRange(0, 5).Draw(t, "placed") > 0 {
				for range j.Maps {
					j.Blocks = append(j.Blocks, []topo.HostID{anyHost(), anyHost()})
				}
			}
			list = append(list, j)
		}
		c := NewTaskCluster(base.Fabric, list)
		c.cluster, c.Slots = *base, slots
		c.cluster.Now = 0
		c.Between = rapid.SampledFrom([]time.Duration{2e7, 1e8, 1e9}).Draw(t, "between")
		if resources {
			c.Resources.CPU = float64(rapid.IntRange(0, 2).Draw(t, "cores") * 3)
			c.Resources.Memory = units.Bytes(rapid.IntRange(0, 1).Draw(t, "host memory")) * 8 * units.GB
		}
		for h := range c.cluster.Hosts {
			if s := &c.cluster.Hosts[h]; s.Lost {
				s.Lost = false
				at := time.Duration(rapid.SampledFrom([]int64{0, 0, 1e9, 3e9}).Draw(t, "lost at"))
				c.at(at, tracker.HostLost{Host: topo.HostID(h)})
				c.at(at+time.Duration(rapid.Int64Range(1e9, 1e10).Draw(t, "back after")), tracker.HostBack{Host: topo.HostID(h)})
			}
		}
		return c
	})
}

// Run runs a policy for a number of heartbeats, or until all jobs have ended. It passes each decision to watch, before it
// takes effect.
func (c *TaskCluster) Run(t rapid.TB, s policies.TaskScheduler, heartbeats int, watch func(*policies.TaskView, *policies.Assignment)) {
	t.Helper()
	c.Watcher = watch
	err := c.start(s)
	for n := 0; err == nil && n < heartbeats && c.Unfinished() > 0; n++ {
		err = c.next()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Unfinished returns the number of jobs that have not ended, submitted or not.
func (c *TaskCluster) Unfinished() int { return len(c.jobs) - len(c.Ended) }

// Now returns the time of the current heartbeat.
func (c *TaskCluster) Now() time.Duration { return c.cluster.Now }

// Instance returns the instance of the run.
func (c *TaskCluster) Instance() policies.TaskInstance { return c.tracker.Instance() }

// start begins a run of a policy.
func (c *TaskCluster) start(s policies.TaskScheduler) (err error) {
	c.Scheduler = s
	c.Cluster = func(needs policies.Facts) *policies.Cluster {
		v := cloneCluster(&c.cluster)
		maskCluster(v, needs)
		return v
	}
	c.tracker, err = tracker.New(c.Config)
	return err
}

// next advances to the heartbeat of the next host that is not lost.
func (c *TaskCluster) next() error {
	now := c.cluster.Now + c.Between
	for {
		at, evs := max(c.tracker.NextWake(), c.cluster.Now), []tracker.Event(nil)
		event := len(c.due) > 0 && c.due[0].at <= at
		if event {
			at, evs = c.due[0].at, []tracker.Event{c.due[0].ev}
		}
		if at > now {
			break
		}
		if event {
			c.due = c.due[1:]
		}
		if err := c.step(at, evs...); err != nil {
			return err
		}
	}
	for range c.cluster.Hosts {
		if c.host = (c.host + 1) % topo.HostID(len(c.cluster.Hosts)); !c.cluster.Hosts[c.host].Lost {
			break
		}
	}
	if c.cluster.Hosts[c.host].Lost {
		return c.step(now)
	}
	beat := tracker.Heartbeat{Host: c.host}
	for _, x := range c.running {
		done := min(float64(now-x.start)/float64(x.length), 1)
		beat.Progress = append(beat.Progress, tracker.Progress{Attempt: x.Attempt, Done: done})
	}
	return c.step(now, beat)
}

// at adds an event.
func (c *TaskCluster) at(at time.Duration, ev tracker.Event) {
	i := len(c.due)
	for i > 0 && c.due[i-1].at > at {
		i--
	}
	c.due = slices.Insert(c.due, i, happening{at, ev})
}

// step steps the tracker and executes its commands. It ignores events about what has ended.
func (c *TaskCluster) step(now time.Duration, evs ...tracker.Event) error {
	c.cluster.Now = now
	for _, ev := range evs {
		switch ev := ev.(type) {
		case tracker.HostLost:
			c.cluster.Hosts[ev.Host].Lost = true
			c.running = slices.DeleteFunc(c.running, func(x execution) bool { return x.Host == ev.Host })
		case tracker.HostBack:
			c.cluster.Hosts[ev.Host].Lost = false
		}
	}
	cmds, err := c.tracker.Step(now, evs...)
	for _, cmd := range cmds {
		c.do(cmd)
	}
	return err
}

// do executes a command.
func (c *TaskCluster) do(cmd tracker.Command) {
	now := c.cluster.Now
	length := func(id jobs.AttemptID) time.Duration {
		j := c.jobs[id.Task.Job]
		if j.Slow > 0 && id.N == 0 && (id.Task.Index+1)%j.Slow == 0 {
			return 8 * j.Length
		}
		return j.Length
	}
	leave := func(id jobs.AttemptID) {
		c.running = slices.DeleteFunc(c.running, func(x execution) bool { return x.Attempt == id })
	}
	switch cmd := cmd.(type) {
	case tracker.StartAttempt:
		id, takes := cmd.Attempt, length(cmd.Attempt)
		c.running = append(c.running, execution{cmd, now, takes})
		if cmd.Kind == jobs.Map {
			c.at(now+takes/2, tracker.InputRead{Attempt: id})
			c.at(now+takes, tracker.ComputeDone{Attempt: id})
			c.at(now+takes, tracker.OutputSpilled{Attempt: id})
		}
	case tracker.ReadFrom:
		c.at(now+length(cmd.Attempt)/2, tracker.InputRead{Attempt: cmd.Attempt})
	case tracker.StartFetch:
		c.at(now+length(cmd.Attempt)/10, tracker.FetchEnded{ID: cmd.ID})
	case tracker.Compute:
		i := slices.IndexFunc(c.running, func(x execution) bool { return x.Attempt == cmd.Attempt })
		x := c.running[i]
		c.at(max(x.start+x.length, now+x.length/4), tracker.ComputeDone{Attempt: cmd.Attempt})
	case tracker.Commit:
		leave(cmd.Attempt)
	case tracker.Copied:
		leave(cmd.Attempt)
	case tracker.StopAttempt:
		leave(cmd.Attempt)
		c.at(now+c.Between, tracker.AttemptStopped{Attempt: cmd.Attempt})
	case tracker.JobDone:
		c.Ended = append(c.Ended, cmd.Job)
	case tracker.JobFailed:
		c.Ended = append(c.Ended, cmd.Job)
	}
}
