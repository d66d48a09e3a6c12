package tracker

import (
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// copies are the copies of a task's output besides that of the attempt that committed first, if a policies.Fetcher
// lets further attempts end.
type copies struct {
	first, until time.Duration // see policies.CopyChoice
	more         []outputCopy  // that are complete, by end
}

// outputCopy is a complete copy of a task's output.
type outputCopy struct {
	n         int32 // the attempt
	at        topo.HostID
	unfetched int32 // failed fetches of it
}

// copy returns the complete copy that an attempt made on a host; nil if there is none.
func (k *task) copy(n int32, at topo.HostID) *outputCopy {
	switch {
	case k.status != done || k.at < 0:
		return nil
	case k.n == n && k.at == at:
		return &k.outputCopy
	case k.copies != nil:
		if i := slices.IndexFunc(k.copies.more, func(c outputCopy) bool { return c.n == n && c.at == at }); i >= 0 {
			return &k.copies.more[i]
		}
	}
	return nil
}

// complete returns the complete copies, by end.
func (k *task) complete() []outputCopy {
	if k.status != done || k.at < 0 {
		return nil
	}
	all := []outputCopy{k.outputCopy}
	if k.copies != nil {
		all = append(all, k.copies.more...)
	}
	return all
}

// keep decides what becomes of the other attempts of a task that has just committed: they are stopped, or continue
// as spare ones that make copies of its output.
func (t *Tracker) keep(st *stage, i int32) {
	k := &st.tasks[i]
	k.copies = nil
	keep := t.keepTime(st, k)
	for _, a := range slices.Clone(k.attempts) {
		if keep <= 0 || !a.complete() {
			t.stop(a, "another attempt has committed", false)
		}
	}
	if len(k.attempts) == 0 {
		return
	}
	k.copies = &copies{first: t.now, until: Never}
	if keep < Never-t.now {
		k.copies.until = t.now + keep
		t.keeping.push(kept{k.copies.until, st, i})
	}
	for _, to := range st.to {
		to.choosing = true
	}
	for _, a := range k.attempts {
		a.Spare = true
		t.shown(a)
	}
}

// keepTime returns how long the other attempts of a task may continue.
func (t *Tracker) keepTime(st *stage, k *task) time.Duration {
	if t.fetcher == nil || len(k.attempts) == 0 || len(st.to) == 0 || st.job.over {
		return 0
	}
	t.look(k.at)
	return t.fetcher.Keep(&t.view, &t.view.Jobs[st.job.place], st.index)
}

// kept is the end of the time in which attempts of a task may make copies.
type kept struct {
	until time.Duration
	st    *stage
	i     int32
}

// over reports whether the time has no effect any more.
func (a kept) over() bool {
	k := &a.st.tasks[a.i]
	return a.st.job.over || k.status != done || k.copies == nil || k.copies.until != a.until
}

func (a kept) before(b kept) bool {
	if a.until != b.until {
		return a.until < b.until
	}
	x, y := jobs.AttemptID{Task: a.st.id(a.i)}, jobs.AttemptID{Task: b.st.id(b.i)}
	return x.Compare(y) < 0
}

// endKeeping stops the attempts whose time to make copies is over. Those that wait for a copy choose again.
func (t *Tracker) endKeeping() error {
	for len(t.keeping) > 0 && t.keeping[0].until <= t.now {
		if x := t.keeping.pop(); !x.over() {
			t.stopSpare(x.st, x.i)
			t.chooseAgain(x.st, x.i)
		}
	}
	return t.bad
}

// stopSpare stops the attempts that make copies of an output.
func (t *Tracker) stopSpare(st *stage, i int32) {
	k := &st.tasks[i]
	if len(k.attempts) > 0 && len(k.copies.more) == 0 {
		t.observeLag(st.job, -1)
	}
	t.stopAll(k, "no further copy of its output is needed")
}

// stopStarved stops the attempts that make copies and wait for an output that is lost, and that no task needs which is not
// done: it is not computed again for a copy.
func (t *Tracker) stopStarved(j *job) {
	for _, st := range j.stages {
		for i := range st.tasks {
			if k := &st.tasks[i]; k.copies != nil && k.status == done && slices.ContainsFunc(k.attempts, func(a *attempt) bool { return !a.complete() }) {
				t.stopSpare(st, int32(i))
				t.chooseAgain(st, int32(i))
			}
		}
	}
}

// stopUseless stops the attempts that make copies for a stage all of whose tasks are done, and which no other stage needs.
func (t *Tracker) stopUseless(st *stage) {
	for _, from := range st.From {
		up := st.job.stages[from]
		if slices.ContainsFunc(up.to, func(to *stage) bool { return to.count[done] < len(to.tasks) }) {
			continue
		}
		for i := range up.tasks {
			if k := &up.tasks[i]; k.copies != nil && k.status == done {
				t.stopSpare(up, int32(i))
			}
		}
	}
}

// copied adds the copy of a spare attempt that has ended its work.
func (t *Tracker) copied(a *attempt) {
	st, k := a.st, a.task()
	t.command(Copied{Attempt: a.ID, Host: a.Host})
	t.end(a, isCopy)
	c := outputCopy{n: int32(a.ID.N), at: a.Host}
	k.copies.more = append(k.copies.more, c)
	if len(k.copies.more) == 1 {
		t.observeLag(st.job, t.now-k.copies.first)
	}
	t.publish(st, a.i, c)
}

// choose lets an attempt choose the copy of a task's output that it fetches, unless it has one or has chosen. i is
// the task of the stage From[from]. It reports whether there is now something more to fetch.
func (t *Tracker) choose(a *attempt, from, i int32) bool {
	up := a.st.job.stages[a.st.From[from]]
	k := &up.tasks[i]
	bit := int32(a.st.base[from]) + i
	if k.status != done || k.at < 0 || k.copies == nil || a.has(int(from), i) || a.isFetching(from, i) {
		return false
	}
	all := slices.DeleteFunc(k.complete(), func(c outputCopy) bool { return t.hosts[c.at].lost })
	if len(all) == 0 {
		return false // they are about to be lost
	}
	if n, ok := a.chosen[bit]; ok && slices.ContainsFunc(all, func(c outputCopy) bool { return c.n == n }) {
		return false
	}
	delete(a.chosen, bit)
	c := &t.choice
	*c = policies.CopyChoice{Now: t.now, First: k.copies.first, Until: k.copies.until, Copies: c.Copies[:0], Running: len(k.attempts)}
	others := a.task().attempts
	c.Fetchers = len(others)
	c.Rank = max(0, slices.Index(others, a))
	for _, x := range all {
		readers := 0
		for _, b := range others {
			if n, ok := b.chosen[bit]; ok && b != a && n == x.n && b.Phase == policies.Copying && !b.has(int(from), i) {
				readers++
			}
		}
		c.Copies = append(c.Copies, policies.OutputCopy{Readers: readers})
	}
	pick := t.fetcher.Source(c)
	switch {
	case pick == -1 && (c.Running > 0 || t.now < c.Until):
		return false
	case pick < 0 || pick >= len(all):
		if t.bad == nil {
			t.bad = fmt.Errorf("%s: %v fetches copy %d of the output of %+v, %+v: must be an index of Copies, or -1 to wait for a further copy or for Until", t.cfg.Name, a.ID, pick, up.id(i), *c)
		}
		return false
	}
	if a.chosen == nil {
		a.chosen = map[int32]int32{}
	}
	a.chosen[bit] = all[pick].n
	s := a.st.bySource[all[pick].at]
	o := output{from, i, all[pick].n}
	for int(s) >= len(a.sources) {
		a.sources = append(a.sources, fetching{})
	}
	// It may have been passed over.
	a.sources[s].next = min(a.sources[s].next, int32(slices.Index(a.st.sources[s].outputs, o)))
	t.supply(a, s)
	return true
}

// isFetching reports whether the output of a task of the stage From[from] is on its way, even if that copy has been given up.
func (a *attempt) isFetching(from, i int32) bool {
	return slices.ContainsFunc(a.flights, func(f *fetch) bool {
		return slices.ContainsFunc(f.outputs, func(o output) bool { return o.from == from && o.task == i })
	})
}

// chooseAgain lets all attempts that wait for the output of a task choose, after its copies have changed.
func (t *Tracker) chooseAgain(st *stage, i int32) {
	if st.tasks[i].copies == nil || st.job.over {
		return
	}
	for _, to := range st.to {
		from := int32(slices.Index(to.From, st.index))
		t.offer(to, func(a *attempt) { t.choose(a, from, i) })
	}
}

// chooseAll lets an attempt choose among the copies of all outputs, after it has begun or other attempts of its task have ended.
func (t *Tracker) chooseAll(a *attempt) {
	if !a.st.choosing || a.st.job.over {
		return
	}
	for from, s := range a.st.From {
		for i := range a.st.job.stages[s].tasks {
			t.choose(a, int32(from), int32(i))
		}
	}
}

// chooseFreed lets the other attempts of a task choose copies that an attempt no longer fetches.
func (t *Tracker) chooseFreed(a *attempt, outputs []output) {
	if !a.st.choosing {
		return
	}
	for _, o := range outputs {
		for _, b := range slices.Clone(a.task().attempts) {
			if b != a && b.fetching() && t.choose(b, o.from, o.task) {
				t.fetchMore(b)
			}
		}
	}
}

// offer calls f for each attempt of a stage that fetches, and lets it fetch more.
func (t *Tracker) offer(to *stage, f func(*attempt)) {
	for n := 0; n < len(to.copying); {
		a := to.copying[n]
		f(a)
		t.fetchMore(a)
		if n < len(to.copying) && to.copying[n] == a { // an attempt that has everything leaves the list
			n++
		}
	}
}

// loseCopies loses the copies of the output of a task that is done on hosts that match. It reports whether none is left.
func (t *Tracker) loseCopies(st *stage, i int32, on func(topo.HostID) bool) bool {
	k := &st.tasks[i]
	if k.at < 0 {
		return false
	}
	lost := on(k.at)
	if x := k.copies; x != nil {
		n := len(x.more)
		x.more = slices.DeleteFunc(x.more, func(c outputCopy) bool {
			if on(c.at) {
				t.store(c.at, -outputOf(&st.Tasks[i]))
			}
			return on(c.at)
		})
		if lost && len(x.more) > 0 {
			t.loseOutput(st, i)
			st.lost--
			k.outputCopy = x.more[0]
			x.more = slices.Delete(x.more, 0, 1)
			t.holds(st, i, k.at, 1)
			t.places(st, k.at, 1)
			lost = false
			n++
		}
		if !lost && len(x.more) < n {
			t.chooseAgain(st, i)
		}
	}
	if lost {
		t.loseOutput(st, i)
	}
	return lost
}

// dropCopies frees the space of all copies of a task's output.
func (t *Tracker) dropCopies(st *stage, i int32) {
	for _, c := range st.tasks[i].complete() {
		t.store(c.at, -outputOf(&st.Tasks[i]))
	}
}
