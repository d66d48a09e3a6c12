package tracker

import (
	"cmp"
	"fmt"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// pick is a task to launch.
type pick struct {
	job   *job
	stage int
	near  policies.Locality
}

// refusal is a launch that failed at once, because no replica of the input is left.
type refusal struct {
	st *stage
	i  int32
}

// heartbeat records what a host reports and fills its free slots.
func (t *Tracker) heartbeat(ev Heartbeat) error {
	if !t.known(ev.Host) {
		return fmt.Errorf("heartbeat of host %d: unknown host", ev.Host)
	}
	for _, p := range ev.Progress {
		if !(p.Done >= 0 && p.Done <= 1) {
			return fmt.Errorf("heartbeat of host %d: attempt %v has progress %v: must be in [0, 1]", ev.Host, p.Attempt, p.Done)
		}
		if err := t.attempted(p.Attempt, func(a *attempt) { a.Progress, a.reported = p.Done, t.now; t.shown(a) }); err != nil {
			return err
		}
	}
	return t.assign(ev.Host)
}

// assign asks the scheduler to fill the free slots of a host. It does not ask if nothing can be
// launched, unless the scheduler needs every heartbeat.
func (t *Tracker) assign(h topo.HostID) error {
	if t.hosts[h].lost {
		return nil
	}
	t.unblock(h)
	can := t.needs.Has(policies.EveryHeartbeat)
	for k := range t.launchable {
		can = can || t.fits(h, jobs.TaskKind(k))
	}
	if !can {
		return nil
	}
	t.look(h)
	t.answer.Reset()
	if t.asksPending {
		t.scheduler.Assign(&t.view, &t.answer)
	} else {
		t.show(h)
		t.scheduler.Assign(&t.view, &t.answer)
		if t.cfg.Watcher != nil {
			t.cfg.Watcher(&t.view, &t.answer)
		}
		t.hide(h)
	}
	if t.answer.Answer != nil {
		t.command(Decided{t.answer.Answer, t.answer.Latency})
	}
	if t.answer.Err != nil {
		return t.answer.Err // it names the policy
	}
	err := t.apply(h, &t.answer)
	t.answer.Latency = 0 // for commands that are not part of an answer
	if err != nil {
		return fmt.Errorf("%s: host %d: %w", t.cfg.Name, h, err)
	}
	t.relieve()
	if n := len(t.samples); n == 0 || t.now >= t.samples[n-1].At+sampleEvery {
		t.sample()
	}
	return nil
}

// ActsOnHeartbeat reports whether a Heartbeat of a host with the current state can cause commands.
func (t *Tracker) ActsOnHeartbeat(h topo.HostID) bool {
	if t.hosts[h].lost {
		return false
	}
	if t.needs.Has(policies.EveryHeartbeat) {
		return true
	}
	for k := range t.launchable {
		if t.fits(h, jobs.TaskKind(k)) || t.blocked(h, jobs.TaskKind(k)) != nil {
			return true
		}
	}
	return false
}

// fits reports whether a host has a free slot for a task that may be launched.
func (t *Tracker) fits(h topo.HostID, k jobs.TaskKind) bool {
	return t.launchable[k] > 0 && t.slots[h].Free(k) > 0
}

// apply carries out an assignment.
func (t *Tracker) apply(h topo.HostID, a *policies.Assignment) error {
	// Launches are indices of jobs, which change when a job fails.
	t.picks = t.picks[:0]
	free := [jobs.TaskKinds]int{}
	for k := range free {
		free[k] = t.slots[h].Free(jobs.TaskKind(k))
	}
	for _, l := range a.Launch {
		if l.Job < 0 || l.Job >= len(t.order) || l.Stage < 0 || l.Stage >= len(t.order[l.Job].stages) || l.Locality < 0 || l.Locality >= policies.Localities {
			return fmt.Errorf("launch %+v of %d jobs: no such stage or locality", l, len(t.order))
		}
		j := t.order[l.Job]
		k := j.stages[l.Stage].Kind
		if free[k]--; free[k] < 0 {
			return fmt.Errorf("launch %+v: no slot of kind %d is free", l, k)
		}
		t.picks = append(t.picks, pick{j, l.Stage, l.Locality})
	}
	for _, p := range t.picks {
		st := p.job.stages[p.stage]
		i := int32(-1)
		if st.mayBegin() {
			i = t.nearest(st, h, p.near)
		}
		if i < 0 {
			return fmt.Errorf("launch of a task of job %d, stage %d at locality %d: none is pending", p.job.ID, p.stage, p.near)
		}
		if t.room(h, st.state.Output) {
			t.launch(st, i, h)
		}
	}
	for _, r := range t.none {
		if !r.st.job.over {
			t.failTask(r.st, r.i, fmt.Sprintf("no replica of block %d is left", r.st.Tasks[r.i].Input))
		}
	}
	t.none = t.none[:0]
	for _, id := range a.Backup {
		if err := t.backup(id, h, &free); err != nil {
			return fmt.Errorf("backup: %w", err)
		}
	}
	// Killed tasks were not pending for the scheduler, so launches come first.
	for _, id := range a.Kill {
		if err := t.attempted(id, func(a *attempt) { t.kill(a, "the scheduler took its slot") }); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
	}
	return nil
}

// backup starts one more attempt of a running task on a host, if it can run at the moment.
func (t *Tracker) backup(id jobs.TaskID, h topo.HostID, free *[jobs.TaskKinds]int) error {
	st, err := t.stageOf(id)
	if st == nil {
		return err // nil if a launch has failed the job
	}
	i := int32(id.Index)
	k := &st.tasks[i]
	if len(k.attempts) == 0 || k.status == done {
		return fmt.Errorf("%v: it has no attempt, or is done", id)
	}
	if slices.ContainsFunc(t.hosts[h].attempts, func(a *attempt) bool { return a.st == st && a.i == i }) {
		return fmt.Errorf("%v: the host has an attempt of it", id)
	}
	if free[st.Kind]--; free[st.Kind] < 0 {
		return fmt.Errorf("%v: no slot of kind %d is free", id, st.Kind)
	}
	if st.mayBegin() && t.readable(st, i) && t.room(h, st.state.Output) {
		t.launch(st, i, h)
	}
	return nil
}

// readable reports whether a task has no input block, or a replica of it is left.
func (t *Tracker) readable(st *stage, i int32) bool {
	return st.fetches() || st.Tasks[i].InputSize <= 0 || slices.ContainsFunc(st.replicas[i], t.live)
}

// launch starts an attempt of a task on a host.
func (t *Tracker) launch(st *stage, i int32, h topo.HostID) {
	k := &st.tasks[i]
	n := int(k.launched)
	k.launched++
	a := &attempt{st: st, i: i, AttemptState: policies.AttemptState{
		ID: jobs.AttemptID{Task: st.id(i), N: n}, Kind: st.Kind, Host: h, Locality: policies.OffRack, Start: t.now, Phase: policies.Computing,
	}}
	a.source = -1
	t.set(st, i, running)
	cmd := StartAttempt{Attempt: a.ID, Kind: st.Kind, Host: h, Source: -1, After: t.answer.Latency}
	if !st.fetches() && st.Tasks[i].InputSize > 0 {
		if a.source, a.Locality = t.replica(a); a.source < 0 {
			t.none = append(t.none, refusal{st, i})
			return
		}
		a.tried = append(a.tried, a.source)
		cmd.Input, cmd.Size, cmd.Source = st.Tasks[i].Input, st.Tasks[i].InputSize, a.source
	}
	cmd.Locality = a.Locality
	k.attempts = append(k.attempts, a)
	t.hosts[h].attempts = append(t.hosts[h].attempts, a)
	slots, need := &t.slots[h], st.Tasks[i].Need
	slots.Used[st.Kind]++
	slots.Need.CPU += need.CPU
	if !st.fetches() || !t.limits.ByMemory {
		slots.Need.Memory += need.Memory
	}
	t.store(h, outputOf(&st.Tasks[i]))
	t.places(st, h, 1)
	if st.fetches() {
		a.Phase = policies.Copying
	} else {
		t.hosts[h].computing[st.Kind]++
	}
	if t.needs.Has(policies.Attempts) {
		list := &t.view.Jobs[st.job.place].Running
		at, _ := slices.BinarySearchFunc(*list, a.AttemptState, byLaunch)
		*list = slices.Insert(*list, at, a.AttemptState)
	}
	t.command(cmd)
	if st.fetches() {
		t.beginFetching(a)
	}
}

// replica chooses the replica of an attempt's input: on its own host, else in its rack, else elsewhere,
// at random from a source keyed by the attempt. It excludes those from which it has read; -1 is none. Attempts
// of a task read different replicas if there are enough, so that a slow source does not slow down all of them.
func (t *Tracker) replica(a *attempt) (topo.HostID, policies.Locality) {
	others := a.task().attempts
	if h, near := t.replicaBut(a, func(h topo.HostID) bool {
		return slices.ContainsFunc(others, func(b *attempt) bool { return b != a && b.source == h })
	}); h >= 0 || len(others) == 0 {
		return h, near
	}
	return t.replicaBut(a, func(topo.HostID) bool { return false })
}

// replicaBut chooses a replica that is not on an excluded host.
func (t *Tracker) replicaBut(a *attempt, excluded func(topo.HostID) bool) (topo.HostID, policies.Locality) {
	var at [policies.Localities][]topo.HostID
	for _, h := range a.st.replicas[a.i] {
		switch {
		case !t.live(h) || slices.Contains(a.tried, h) || excluded(h):
		case h == a.Host:
			return h, policies.NodeLocal
		case t.rackOf(h) == t.rackOf(a.Host):
			at[policies.RackLocal] = append(at[policies.RackLocal], h)
		default:
			at[policies.OffRack] = append(at[policies.OffRack], h)
		}
	}
	for l, hosts := range at {
		switch len(hosts) {
		case 0:
			continue
		case 1:
			return hosts[0], policies.Locality(l)
		}
		id := a.ID
		draw := workloads.Stream(t.cfg.Seed, "replica", int(id.Task.Job), id.Task.Stage, id.Task.Index, id.N, len(a.tried))
		return hosts[draw.IntN(len(hosts))], policies.Locality(l)
	}
	return -1, policies.OffRack
}

// unblock stops an attempt on a host that waits for tasks which may find no slot, if no slot of its
// kind is free anywhere and a task could use it: the newest of those that only fetch. Without it, jobs
// of several stages that fetch could wait for each other forever. In MapReduce, reduces wait for maps,
// which need other slots and wait for nothing.
func (t *Tracker) unblock(h topo.HostID) {
	for k := range t.launchable {
		if a := t.blocked(h, jobs.TaskKind(k)); a != nil {
			t.kill(a, "it waited for tasks that found no free slot")
		}
	}
}

// blocked returns the attempt that unblock stops; nil for none.
func (t *Tracker) blocked(h topo.HostID, k jobs.TaskKind) (last *attempt) {
	if t.launchable[k] == 0 {
		return nil
	}
	for _, a := range t.hosts[h].attempts {
		if a.Kind == k && !a.Killing && a.Phase == policies.Copying && a.st.blocked() {
			last = a
		}
	}
	if last != nil && slices.ContainsFunc(t.slots, func(s policies.SlotState) bool { return s.Free(k) > 0 }) {
		return nil
	}
	return last
}

// byLaunch orders the attempts of a job.
func byLaunch(a, b policies.AttemptState) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), a.ID.Compare(b.ID))
}
