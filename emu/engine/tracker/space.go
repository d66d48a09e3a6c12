package tracker

import (
	"cmp"
	"fmt"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Evict is what happens where outputs exceed Config.Space (FAIR report, section on intermediate space).
type Evict uint8

const (
	// NoEviction leaves space to the scheduler, which sees what is left of it.
	NoEviction Evict = iota
	// EvictLatest launches no task whose output has no room on its host. If this stops all jobs, the
	// one that was submitted last loses its attempts and outputs, and launches nothing until another
	// job has ended. The space that a job takes does not matter: to evict the largest would keep large
	// jobs from ever ending.
	EvictLatest
	// EvictLeast is EvictLatest, applied to the job with the lowest share of tasks that are done, ties by
	// submission.
	EvictLeast
)

// EvictNames are the names of rules in settings, by Evict.
func EvictNames() []string { return []string{"none", "latest", "least-progress"} }

// room reports whether a host has the room for the output of a task, if space is enforced.
func (t *Tracker) room(h topo.HostID, output units.Bytes) bool {
	return t.cfg.Evict == NoEviction || t.cfg.Space == 0 || output == 0 || t.hosts[h].stored+output <= t.cfg.Space
}

// relieve evicts a job, or fails one, if no job can continue because outputs take all space. A job fails
// whose outputs exceed the space although no other job has any, or attempts.
func (t *Tracker) relieve() {
	if t.cfg.Evict == NoEviction || !t.outOfSpace() {
		return
	}
	var holders []*job
	for _, j := range t.order {
		if j.stored() > 0 || j.runs() {
			holders = append(holders, j)
		}
	}
	switch len(holders) {
	case 0: // a single output exceeds the space of each host
		for _, j := range slices.Clone(t.order) {
			if slices.ContainsFunc(j.stages, func(st *stage) bool { return st.shown > 0 && st.state.Output > t.cfg.Space }) {
				t.failJob(j, fmt.Sprintf("the output of a task exceeds the space of a host, %v", t.cfg.Space))
			}
		}
	case 1:
		t.failJob(holders[0], fmt.Sprintf("its outputs exceed the space of the cluster, %v on each host", t.cfg.Space))
	default:
		slices.Reverse(holders) // latest first
		if t.cfg.Evict == EvictLeast {
			slices.SortStableFunc(holders, func(a, b *job) int { return cmp.Compare(a.progress(), b.progress()) })
		}
		t.evict(holders[0])
	}
}

// outOfSpace reports whether nothing proceeds, and a task waits only for room for its
// output.
func (t *Tracker) outOfSpace() bool {
	for h := range t.hosts {
		for _, a := range t.hosts[h].attempts {
			if a.Killing || a.Phase != policies.Copying || len(a.flights) > 0 || !slices.ContainsFunc(a.st.above, func(up *stage) bool { return up.count[pending] > 0 }) {
				return false
			}
		}
	}
	refused := false
	for _, j := range t.order {
		for _, st := range j.stages {
			if st.shown == 0 {
				continue
			}
			for h := range t.slots {
				if !t.slots[h].Fits(st.Kind, st.state.Need) {
					continue
				}
				if t.room(topo.HostID(h), st.state.Output) {
					return false
				}
				refused = true
			}
		}
	}
	return refused
}

// evict makes a job begin again once another has ended.
func (t *Tracker) evict(j *job) {
	j.evicted = true
	for _, st := range j.stages {
		for i := range st.tasks {
			t.stopAll(&st.tasks[i], "evicted for its outputs' space")
			if st.tasks[i].status == running {
				t.set(st, int32(i), pending)
			}
		}
	}
	t.command(DropOutputs{Job: j.ID})
	t.loseOutputs(j, func(topo.HostID) bool { return true })
	for _, st := range j.stages {
		t.refresh(st)
	}
}

// readmit lets evicted jobs continue.
func (t *Tracker) readmit() {
	for _, j := range t.order {
		if j.evicted {
			j.evicted = false
			for _, st := range j.stages {
				t.refresh(st)
			}
		}
	}
}

// stored returns the size of a job's outputs, stored or of running attempts.
func (j *job) stored() (sum units.Bytes) {
	for _, st := range j.stages {
		for i := range st.tasks {
			k := &st.tasks[i]
			n := len(k.complete())
			if k.status == running {
				n = 1
			}
			sum += units.Bytes(n) * outputOf(&st.Tasks[i])
		}
	}
	return sum
}

// runs reports whether a job has attempts: they may hold the slots that a job needs whose outputs take the space.
func (j *job) runs() bool {
	return slices.ContainsFunc(j.stages, func(st *stage) bool {
		return slices.ContainsFunc(st.tasks, func(k task) bool { return len(k.attempts) > 0 })
	})
}

// progress returns the share of a job's tasks that are done.
func (j *job) progress() float64 {
	tasks, ended := 0, 0
	for _, st := range j.stages {
		tasks, ended = tasks+len(st.tasks), ended+st.count[done]
	}
	return float64(ended) / float64(tasks)
}

// largestOutput returns the size of the largest output of a task of a stage.
func largestOutput(st *jobs.Stage) (most units.Bytes) {
	for i := range st.Tasks {
		most = max(most, outputOf(&st.Tasks[i]))
	}
	return most
}
