package tracker

import (
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// attempt is an attempt on a slot. Its state for schedulers has a copy in view.Jobs.
type attempt struct {
	policies.AttemptState
	st *stage
	i  int32 // its task

	source topo.HostID   // from which it reads; -1 if it reads nothing
	tried  []topo.HostID // from which it has read, source last
	read   bool          // has read its input block

	isComputed, spilled, writing, written bool

	key     uint64      // of the order in which it fetches from hosts
	sources []fetching  // by index into stage.sources
	ready   heap[turn]  // sources that have something to fetch
	flights []*fetch    // fetches in flight
	got     []uint64    // outputs that it has, a set of bits
	missing int         // number of outputs that it does not have
	size    units.Bytes // of the outputs that it has

	chosen   map[int32]int32 // by output as in got: the attempt whose copy it fetches, of outputs with copies
	reported time.Duration   // of Progress
	fetched  time.Duration   // all its input
}

func (a *attempt) job() *job   { return a.st.job }
func (a *attempt) task() *task { return &a.st.tasks[a.i] }

// stageOf returns the stage of a task; nil if its job has ended.
func (t *Tracker) stageOf(id jobs.TaskID) (*stage, error) {
	j := t.jobs[id.Job]
	switch {
	case j == nil && t.ended[id.Job]:
		return nil, nil
	case j == nil || id.Stage < 0 || id.Stage >= len(j.stages) || id.Index < 0 || id.Index >= len(j.stages[id.Stage].tasks):
		return nil, fmt.Errorf("%v: unknown task", id)
	}
	return j.stages[id.Stage], nil
}

// attempt returns an attempt of an unfinished job that is not being stopped. It returns nil if the
// attempt has ended, and an error if there never was one.
func (t *Tracker) attempt(id jobs.AttemptID) (*attempt, error) {
	st, err := t.stageOf(id.Task)
	if st == nil {
		return nil, err
	}
	k := &st.tasks[id.Task.Index]
	for _, a := range k.attempts {
		if a.ID.N == id.N {
			return a, nil
		}
	}
	if id.N < 0 || id.N >= int(k.launched) {
		return nil, fmt.Errorf("%v: unknown attempt", id)
	}
	return nil, nil
}

// attempted applies f to an attempt, unless it has ended or is being stopped.
func (t *Tracker) attempted(id jobs.AttemptID, f func(*attempt)) error {
	a, err := t.attempt(id)
	if a != nil {
		f(a)
	}
	return err
}

// shown updates what schedulers see of an attempt.
func (t *Tracker) shown(a *attempt) {
	if a.job().over {
		return
	}
	list := t.view.Jobs[a.job().place].Running
	if at, ok := slices.BinarySearchFunc(list, a.AttemptState, byLaunch); ok {
		list[at] = a.AttemptState
	}
}

// working applies f to an attempt that computes, unless it has ended or is being stopped.
func (t *Tracker) working(id jobs.AttemptID, f func(*attempt)) error {
	a, err := t.attempt(id)
	if a == nil {
		return err
	}
	if a.Phase != policies.Computing {
		return fmt.Errorf("%v has computed: it must wait for its input and for Compute", id)
	}
	f(a)
	return nil
}

// computed records that an attempt has processed its input.
func (t *Tracker) computed(a *attempt) {
	a.isComputed = true
	t.write(a)
	t.commitIfComplete(a)
}

// write makes an attempt write its replicated output.
func (t *Tracker) write(a *attempt) {
	if size := a.st.Tasks[a.i].Writes; size > 0 && !a.writing && a.Phase == policies.Computing {
		a.writing = true
		t.command(WriteOutput{Attempt: a.ID, Host: a.Host, Size: size})
	}
}

// commitIfComplete commits an attempt that has ended its work.
func (t *Tracker) commitIfComplete(a *attempt) {
	spec := &a.st.Tasks[a.i]
	if !a.isComputed || len(spec.Output) > 0 && !a.spilled || spec.Writes > 0 && !a.written {
		return
	}
	st, k := a.st, a.task()
	if k.status == done && k.at >= 0 {
		t.copied(a)
		return
	}
	if k.status == done { // its output was lost, and no attempt needed it
		st.lost--
	}
	t.command(Commit{Attempt: a.ID, Host: a.Host})
	t.end(a, isCommitted)
	k.outputCopy = outputCopy{n: int32(a.ID.N), at: a.Host}
	t.keep(st, a.i)
	t.holds(st, a.i, a.Host, 1)
	t.set(st, a.i, done)
	if st.count[done] == len(st.tasks) {
		t.judge(st)
	}
	if len(st.to) == 0 {
		t.endIfDone(st.job)
	} else {
		t.publish(st, a.i, k.outputCopy)
	}
	if !st.job.over && st.count[done] == len(st.tasks) {
		t.stopUseless(st)
	}
}

// ending is how an attempt ends.
type ending uint8

const (
	isStopped   ending = iota // its output is dropped
	isCommitted               // its output is that of its task
	isCopy                    // its output is a copy of it
)

// end removes an attempt from its slot.
func (t *Tracker) end(a *attempt, how ending) {
	t.withdraw(a)
	delete(t.stopping, a.ID)
	h, spec := &t.hosts[a.Host], &a.st.Tasks[a.i]
	h.attempts = remove(h.attempts, a)
	slots := &t.slots[a.Host]
	if a.Paused {
		h.paused[a.Kind]--
	} else {
		slots.Used[a.Kind]--
	}
	slots.Need.CPU -= spec.Need.CPU
	if !a.st.fetches() || !t.limits.ByMemory || a.Phase == policies.Computing {
		slots.Need.Memory -= spec.Need.Memory
	}
	if len(h.attempts) == 0 {
		slots.Need.CPU = 0 // without the rounding errors of the sum
	}
	if how == isCommitted {
		t.observeComputing(a)
	}
	if how == isStopped {
		t.store(a.Host, -outputOf(spec))
	}
	if how != isCommitted {
		t.places(a.st, a.Host, -1)
	}
	if a.Phase == policies.Computing {
		h.computing[a.Kind]--
	}
	for k := range h.queue { // all, because memory has no kind
		t.grant(a.Host, jobs.TaskKind(k))
	}
	t.wake(a.Host)
	if t.cfg.OutOfBand && !slices.Contains(t.freed, a.Host) {
		t.freed = append(t.freed, a.Host)
	}
	used := policies.Consumption{Read: a.consumed(), Busy: t.now - a.Start}
	if how != isStopped {
		used.Input, used.Output = used.Read, outputOf(spec)
		slots.Committed++
		t.observe(a, 1, used.Busy)
		slots.CommittedTime += used.Busy
	}
	if profile := a.job().Profile; profile != "" && a.Kind == jobs.Map && !a.st.fetches() {
		c := t.view.Profiles[profile]
		c.Add(used)
		t.view.Profiles[profile] = c
	}
	if a.job().over {
		return
	}
	list := &t.view.Jobs[a.job().place].Running
	if at, ok := slices.BinarySearchFunc(*list, a.AttemptState, byLaunch); ok {
		*list = slices.Delete(*list, at, at+1)
	}
	a.st.state.Add(used)
	if how != isStopped && t.needs.Has(policies.TaskProgress) {
		a.st.state.Durations = append(a.st.state.Durations, used.Busy)
	}
}

// consumed returns the input that an attempt has consumed, as far as the tracker knows.
func (a *attempt) consumed() units.Bytes {
	switch size := a.st.Tasks[a.i].InputSize; {
	case a.st.fetches():
		return a.size
	case a.read || a.isComputed:
		return size
	default:
		return units.Bytes(float64(float64(size) * a.Progress))
	}
}

// withdraw ends all that an attempt does for its task: it fetches nothing any more, and is none of its
// attempts.
func (t *Tracker) withdraw(a *attempt) {
	k := a.task()
	k.attempts = remove(k.attempts, a)
	for _, f := range slices.Clone(a.flights) {
		t.stopFetch(f)
	}
	if a.st.fetches() {
		a.st.copying = remove(a.st.copying, a)
		h := &t.hosts[a.Host]
		h.queue[a.Kind] = remove(h.queue[a.Kind], a)
	}
}

// stop stops an attempt, which keeps its slot until it has left it. failed reports whether it cannot
// continue.
func (t *Tracker) stop(a *attempt, why string, failed bool) {
	t.withdraw(a)
	if a.Progress > 0 && !failed {
		t.observe(a, a.Progress, a.reported-a.Start)
	}
	a.Killing = true
	t.stopping[a.ID] = a
	t.shown(a)
	t.command(StopAttempt{Attempt: a.ID, Host: a.Host, Why: why, Failed: failed, After: t.answer.Latency})
}

// stopAll stops all attempts of a task, which are no longer needed.
func (t *Tracker) stopAll(k *task, why string) {
	for len(k.attempts) > 0 {
		t.stop(k.attempts[0], why, false)
	}
}

// kill stops an attempt. Its task is pending again, unless it has other attempts.
func (t *Tracker) kill(a *attempt, why string) {
	t.stop(a, why, false)
	t.retry(a.st, a.i)
}

// retry makes a task pending again that has no attempts. Lost outputs that the task needs, or that only
// an ended attempt had, are computed again. Copies that an ended attempt fetched or made concern the others.
func (t *Tracker) retry(st *stage, i int32) {
	k := &st.tasks[i]
	switch {
	case st.job.over:
		return
	case k.status == done:
		t.chooseAgain(st, i)
		return
	case len(k.attempts) == 0:
		t.set(st, i, pending)
	}
	t.restore(st)
	for _, b := range slices.Clone(k.attempts) {
		if b.fetching() {
			t.chooseAll(b)
			t.fetchMore(b)
		}
	}
}

// failed counts a failure of an attempt, unless its task is done.
func (t *Tracker) failed(a *attempt, why string) {
	if a.task().status == done {
		t.retry(a.st, a.i)
	} else {
		t.failTask(a.st, a.i, why)
	}
}

// failTask counts a failure of a task, which may fail its job.
func (t *Tracker) failTask(st *stage, i int32, why string) {
	k := &st.tasks[i]
	if k.failures++; int(k.failures) >= t.cfg.Attempts {
		t.failJob(st.job, fmt.Sprintf("task %d of stage %d failed %d times, most recently: %s", i, st.index, k.failures, why))
		return
	}
	t.retry(st, i)
}

// attemptFailed records that an attempt has failed and left its slot.
func (t *Tracker) attemptFailed(ev AttemptFailed) error {
	a, err := t.attempt(ev.Attempt)
	if a == nil {
		if err == nil {
			err = t.attemptStopped(ev.Attempt) // it failed before it was stopped
		}
		return err
	}
	t.end(a, isStopped)
	t.failed(a, ev.Why)
	return nil
}

// attemptStopped frees the slot of a stopped attempt.
func (t *Tracker) attemptStopped(id jobs.AttemptID) error {
	a, err := t.attempt(id)
	if err != nil {
		return err
	}
	if a != nil {
		return fmt.Errorf("%v stopped: it must have been asked to", id)
	}
	if a := t.stopping[id]; a != nil {
		t.end(a, isStopped)
	}
	return nil
}

// readAgain makes an attempt read its input from another replica. If none is left, it fails.
func (t *Tracker) readAgain(a *attempt, why string) {
	if a.source < 0 || a.read {
		return
	}
	next, near := t.replica(a)
	if next < 0 {
		why = fmt.Sprintf("no replica of block %d is left: %s", a.st.Tasks[a.i].Input, why)
		t.stop(a, why, true)
		t.failed(a, why)
		return
	}
	a.source, a.Locality = next, near
	a.tried = append(a.tried, next)
	t.shown(a)
	t.command(ReadFrom{Attempt: a.ID, Host: a.Host, Source: next})
}

// enqueue lets an attempt that has all its input compute, as soon as it may.
func (t *Tracker) enqueue(a *attempt) {
	for len(a.flights) > 0 { // of outputs that were given up and computed again
		t.stopFetch(a.flights[0])
	}
	h := &t.hosts[a.Host]
	a.Phase = policies.Queued
	a.st.copying = remove(a.st.copying, a)
	a.sources, a.ready, a.chosen, a.fetched = nil, heap[turn]{}, nil, t.now
	h.queue[a.Kind] = append(h.queue[a.Kind], a)
	t.shown(a)
	t.command(InputFetched{Attempt: a.ID, Host: a.Host, Size: a.size})
	t.grant(a.Host, a.Kind)
}

// grant lets the first attempts of a host's queue compute, as far as the limits allow.
func (t *Tracker) grant(id topo.HostID, kind jobs.TaskKind) {
	h, slots := &t.hosts[id], &t.slots[id]
	slots.Need.Memory -= h.promised[kind]
	h.promised[kind] = 0
	for len(h.queue[kind]) > 0 && h.computing[kind] < t.limits.Computing[kind] {
		a := h.queue[kind][0]
		if t.limits.ByMemory {
			need := a.st.Tasks[a.i].Need.Memory
			slots.Need.Memory += need
			if slots.Capacity.Memory > 0 && slots.Need.Memory > slots.Capacity.Memory {
				if h.promised == [jobs.TaskKinds]units.Bytes{} {
					h.promised[kind] = need
				} else {
					slots.Need.Memory -= need // two promises could exclude each other for good
				}
				return
			}
		}
		h.queue[kind] = slices.Delete(h.queue[kind], 0, 1)
		h.computing[kind]++
		a.Phase = policies.Computing
		t.shown(a)
		t.command(Compute{Attempt: a.ID, Host: id, Size: a.size})
	}
}

// pause takes the slot of an attempt that has nothing to fetch, if attempts pause, and gives it to a paused one that has.
func (t *Tracker) pause(a *attempt) {
	if !t.limits.Pausing || a.Paused || !t.idles(a) {
		return
	}
	t.setPaused(a, true)
	t.wake(a.Host)
	if a.Paused && t.hosts[a.Host].paused[a.Kind] > t.limits.Running[a.Kind] { // none has taken it
		t.setPaused(a, false)
	}
}

// idles reports whether an attempt has nothing to fetch and nothing else to do.
func (t *Tracker) idles(a *attempt) bool {
	waits := t.cfg.Barrier && !a.st.closed()
	return a.fetching() && len(a.flights) == 0 && a.missing > 0 && (len(a.ready) == 0 || waits)
}

// unpause gives a paused attempt with something to fetch or to do a slot: a free one, or that of an attempt that idles.
func (t *Tracker) unpause(a *attempt) bool {
	if a.missing > 0 && len(a.ready) == 0 {
		return false
	}
	if t.slots[a.Host].Free(a.Kind) <= 0 {
		h := &t.hosts[a.Host]
		at := slices.IndexFunc(h.attempts, func(o *attempt) bool { return o.Kind == a.Kind && !o.Paused && t.idles(o) })
		if at < 0 {
			return false
		}
		t.setPaused(h.attempts[at], true)
	}
	t.setPaused(a, false)
	return true
}

func (t *Tracker) setPaused(a *attempt, paused bool) {
	n := 1
	if !paused {
		n = -1
	}
	a.Paused = paused
	t.hosts[a.Host].paused[a.Kind] += n
	t.slots[a.Host].Used[a.Kind] -= n
	t.shown(a)
}

// wake lets the paused attempts of a host fetch, in the order of their launches, as far as slots are free.
func (t *Tracker) wake(id topo.HostID) {
	if t.hosts[id].paused == [jobs.TaskKinds]int{} {
		return
	}
	for _, a := range slices.Clone(t.hosts[id].attempts) {
		if a.Paused && a.fetching() {
			t.fetchMore(a)
		}
	}
}

// remove returns a list without an element that occurs in it at most once.
func remove[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
