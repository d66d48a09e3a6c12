package tracker

import (
	"fmt"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// hostLost drops all that a host was doing and stores.
func (t *Tracker) hostLost(id topo.HostID) error {
	if !t.known(id) {
		return fmt.Errorf("host %d lost: unknown host", id)
	}
	h := &t.hosts[id]
	if h.lost {
		return nil
	}
	h.lost = true
	t.own.Hosts[id].Lost = true
	slots := &t.slots[id]
	slots.Lost, slots.Total, slots.Capacity = true, [jobs.TaskKinds]int{}, jobs.Resources{}
	t.reindex()
	t.dropAttempts(id)
	starved := t.dropFetches(id)
	t.dropOutputs(id)
	t.dropReads(id)
	for _, a := range starved {
		if a.fetching() && !a.job().over {
			t.fetchMore(a)
		}
	}
	return nil
}

// hostBack makes a host eligible again.
func (t *Tracker) hostBack(ev HostBack) error {
	if err := t.hostLost(ev.Host); err != nil {
		return err
	}
	h := &t.hosts[ev.Host]
	h.lost, h.wiped = false, h.wiped || ev.DiskLost
	t.own.Hosts[ev.Host].Lost = false
	slots := &t.slots[ev.Host]
	slots.Lost, slots.Total, slots.Capacity = false, t.limits.Running, t.cfg.Resources
	t.reindex()
	return nil
}

// reindex indexes all stages again, after the hosts whose blocks can be read have changed.
func (t *Tracker) reindex() {
	for _, j := range t.order {
		for _, st := range j.stages {
			t.index(st)
		}
	}
}

// dropAttempts ends the attempts on a lost host. They do not count as failures.
func (t *Tracker) dropAttempts(id topo.HostID) {
	lost := slices.Clone(t.hosts[id].attempts)
	for _, a := range lost {
		if !a.Killing {
			t.stop(a, t.cfg.Fabric.HostName(id)+" is lost", true)
		}
	}
	for _, a := range lost {
		t.end(a, isStopped)
		t.retry(a.st, a.i)
	}
}

// dropFetches stops the fetches from a lost host, and returns their attempts.
func (t *Tracker) dropFetches(id topo.HostID) (starved []*attempt) {
	for _, j := range t.order {
		for _, st := range j.stages {
			s, ok := st.bySource[id]
			if !ok {
				continue
			}
			for _, a := range st.copying {
				if i := slices.IndexFunc(a.flights, func(f *fetch) bool { return f.source == s }); i >= 0 {
					t.stopFetch(a.flights[i])
					starved = append(starved, a)
				}
			}
		}
	}
	return starved
}

// dropOutputs loses the outputs on a lost host. Those that are needed are computed again.
func (t *Tracker) dropOutputs(id topo.HostID) {
	for _, j := range t.order {
		t.loseOutputs(j, func(h topo.HostID) bool { return h == id })
	}
}

// loseOutputs loses the outputs of a job on hosts that match. Those that are needed and have no other copy are computed
// again.
func (t *Tracker) loseOutputs(j *job, on func(topo.HostID) bool) {
	lost := false
	for _, st := range j.stages {
		for i := range st.tasks {
			if st.tasks[i].status == done && len(st.to) > 0 && t.loseCopies(st, int32(i), on) {
				lost = true
			}
		}
	}
	for s := len(j.stages) - 1; lost && s >= 0; s-- {
		t.restore(j.stages[s])
	}
	if lost {
		t.stopStarved(j)
	}
}

// dropReads makes the attempts that read from a lost host read elsewhere.
func (t *Tracker) dropReads(id topo.HostID) {
	for h := range t.hosts {
		for _, a := range slices.Clone(t.hosts[h].attempts) {
			if a.source == id && !a.Killing && !a.st.fetches() {
				t.readAgain(a, t.cfg.Fabric.HostName(id)+" is lost")
			}
		}
	}
}

// loseOutput loses the output of a task that is done.
func (t *Tracker) loseOutput(st *stage, i int32) {
	k := &st.tasks[i]
	t.store(k.at, -outputOf(&st.Tasks[i]))
	t.holds(st, i, k.at, -1)
	t.places(st, k.at, -1)
	k.at = -1
	st.lost++
}

// restore makes the tasks pending again whose lost outputs a stage needs, and those that they need in
// turn.
func (t *Tracker) restore(to *stage) {
	for from, s := range to.From {
		up := to.job.stages[s]
		if up.lost == 0 {
			continue
		}
		restored := false
		for i := range up.tasks {
			k := &up.tasks[i]
			if k.status == done && k.at < 0 && to.needs(from, int32(i)) {
				up.lost--
				k.outputCopy, k.copies = outputCopy{n: -1, at: -1}, nil
				t.resume(up, int32(i))
				restored = true
			}
		}
		if restored {
			t.restore(up)
		}
	}
}

// resume makes a task run again whose output is lost: by the attempts that made copies of it, if there are any.
func (t *Tracker) resume(st *stage, i int32) {
	k := &st.tasks[i]
	if len(k.attempts) == 0 {
		t.set(st, i, pending)
		return
	}
	for _, a := range k.attempts {
		a.Spare = false
		t.shown(a)
	}
	t.set(st, i, running)
}

// needs reports whether a task of a stage that is not done needs the output of a task of the stage From[from], which
// is lost. If an attempt of the task has all lost outputs, it does not. Two attempts that have parts of them would
// both wait forever.
func (st *stage) needs(from int, i int32) bool {
	misses := func(a *attempt) bool { return a.Phase == policies.Copying && !a.has(from, i) }
	for to := range st.tasks {
		k := &st.tasks[to]
		if k.status != done && st.reads(from, i, int32(to)) && (len(k.attempts) == 0 || slices.ContainsFunc(k.attempts, misses) && !slices.ContainsFunc(k.attempts, (*attempt).complete)) {
			return true
		}
	}
	return false
}

// complete reports whether an attempt has all outputs that it fetches and that are lost.
func (a *attempt) complete() bool {
	if a.Phase != policies.Copying {
		return true
	}
	for from, s := range a.st.From {
		up := a.st.job.stages[s]
		for i := range up.tasks {
			if k := &up.tasks[i]; up.lost > 0 && k.status == done && k.at < 0 && !a.has(from, int32(i)) {
				return false
			}
		}
	}
	return true
}
