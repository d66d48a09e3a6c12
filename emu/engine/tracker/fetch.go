package tracker

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// source is a host from which tasks of a stage fetch.
type source struct {
	host    topo.HostID
	outputs []output // by end of their attempts; lost ones stay
}

// output is the output of an attempt.
type output struct {
	from int32 // index into stage.From
	task int32
	n    int32 // the attempt
}

// fetching is how far an attempt has fetched from a source.
type fetching struct {
	state    fetchState
	next     int32 // the first output that it has not fetched
	failures int32 // in a row
}

type fetchState uint8

const (
	idle      fetchState = iota // nothing is left
	ready                       // in attempt.ready
	flying                      // a fetch is in flight
	penalized                   // in Tracker.due
)

// turn is the place of a source in the random order in which an attempt fetches.
type turn struct {
	key    uint64
	source int32
}

func (a turn) before(b turn) bool {
	return a.key < b.key || a.key == b.key && a.source < b.source
}

// penalty is the time until which an attempt fetches nothing from a source.
type penalty struct {
	end    time.Duration
	n      FetchID // the fetch that failed
	a      *attempt
	source int32
}

func (a penalty) before(b penalty) bool { return a.end < b.end || a.end == b.end && a.n < b.n }

// fetch is a fetch in flight.
type fetch struct {
	id      FetchID
	a       *attempt
	source  int32
	begin   int32 // fetching.next before it
	outputs []output
	size    units.Bytes
	start   time.Duration
	shared  bool // another attempt of the task has fetched one of these copies meanwhile
	flows   int  // on the busier of its two links when it began
}

// beginFetching makes a new attempt fetch what is available.
func (t *Tracker) beginFetching(a *attempt) {
	st, id := a.st, a.ID
	a.key = workloads.Stream(t.cfg.Seed, "fetch", int(id.Task.Job), id.Task.Stage, id.Task.Index, id.N).Uint64()
	a.missing = st.outputs
	a.got = make([]uint64, (st.outputs+63)/64)
	for from, up := range st.From {
		if st.Pattern == jobs.AllToAll {
			break
		}
		for i := range st.job.stages[up].tasks {
			if !st.reads(from, int32(i), a.i) {
				a.receive(output{int32(from), int32(i), 0})
			}
		}
	}
	st.copying = append(st.copying, a)
	t.chooseAll(a)
	for s := range st.sources {
		t.supply(a, int32(s))
	}
	t.fetchMore(a)
}

// publish makes a complete copy of a task's output available to later stages.
func (t *Tracker) publish(st *stage, i int32, c outputCopy) {
	for _, to := range st.to {
		s, ok := to.bySource[c.at]
		if !ok {
			s = int32(len(to.sources))
			to.sources = append(to.sources, source{host: c.at})
			to.bySource[c.at] = s
		}
		from := int32(slices.Index(to.From, st.index))
		to.sources[s].outputs = append(to.sources[s].outputs, output{from, i, c.n})
		t.offer(to, func(a *attempt) {
			t.choose(a, from, i)
			t.supply(a, s)
		})
	}
}

// supply lists a source for an attempt that it has something for.
func (t *Tracker) supply(a *attempt, s int32) {
	for int(s) >= len(a.sources) {
		a.sources = append(a.sources, fetching{})
	}
	if p := &a.sources[s]; p.state == idle && t.advance(a, s) {
		p.state = ready
		a.ready.push(turn{mix(a.key ^ mix(uint64(a.st.sources[s].host))), s})
	}
}

// mix is a permutation of 64-bit numbers that looks random (Steele et al., SplitMix, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// advance skips outputs that an attempt has, that are lost, or that are empty for it, which it then
// has without a transfer. It reports whether another one is left.
func (t *Tracker) advance(a *attempt, s int32) bool {
	src, p := &a.st.sources[s], &a.sources[s]
	if t.hosts[src.host].lost {
		return false
	}
	for int(p.next) < len(src.outputs) {
		o := src.outputs[p.next]
		if a.wants(src, o) {
			if a.sizeOf(o) > 0 {
				return true
			}
			a.receive(o)
		}
		p.next++
	}
	return false
}

// wants reports whether an attempt needs an output and can fetch it.
func (a *attempt) wants(src *source, o output) bool {
	k := &a.st.job.stages[a.st.From[o.from]].tasks[o.task]
	if k.copy(o.n, src.host) == nil || a.has(int(o.from), o.task) {
		return false
	}
	if k.copies == nil || a.sizeOf(o) == 0 {
		return true
	}
	n, ok := a.chosen[int32(a.st.base[o.from])+o.task]
	return ok && n == o.n
}

// sizeOf returns the size of an output for an attempt.
func (a *attempt) sizeOf(o output) units.Bytes {
	up := a.st.job.stages[a.st.From[o.from]]
	return up.Tasks[o.task].Output[a.st.offset[o.from]+int(a.i)]
}

// receive adds an output to those that an attempt has.
func (a *attempt) receive(o output) {
	bit := a.st.base[o.from] + int(o.task)
	if a.got[bit/64]>>(bit%64)&1 == 0 {
		a.got[bit/64] |= 1 << (bit % 64)
		a.missing--
		a.size += a.sizeOf(o)
	}
}

// reads reports whether a task fetches the output of task i of the stage From[from], by the pattern.
func (st *stage) reads(from int, i, to int32) bool {
	return st.Pattern.Fetches(int(i), len(st.job.stages[st.From[from]].tasks), int(to), len(st.tasks))
}

// has reports whether an attempt has the output of a task of the stage From[from], or does not fetch it.
func (a *attempt) has(from int, i int32) bool {
	bit := a.st.base[from] + int(i)
	return a.got[bit/64]>>(bit%64)&1 == 1
}

// fetchMore starts the fetches that the limits allow. An attempt that has everything continues.
func (t *Tracker) fetchMore(a *attempt) {
	waits := t.cfg.Barrier && !a.st.closed()
	if a.Paused && (waits && a.missing > 0 || !t.unpause(a)) {
		return
	}
	if a.missing == 0 {
		t.enqueue(a)
		return
	}
	if waits {
		t.pause(a)
		return
	}
	for len(a.flights) < t.cfg.Fetches && len(a.ready) > 0 {
		s := a.ready.pop().source
		a.sources[s].state = idle
		if t.advance(a, s) {
			t.startFetch(a, s)
		}
	}
	if a.missing == 0 {
		t.enqueue(a)
		return
	}
	t.pause(a)
}

// closed reports whether all tasks from which a stage fetches are done.
func (st *stage) closed() bool {
	for _, from := range st.From {
		if up := st.job.stages[from]; up.count[done] < len(up.tasks) {
			return false
		}
	}
	return true
}

// startFetch fetches outputs from a source that has at least one.
func (t *Tracker) startFetch(a *attempt, s int32) {
	src, p := &a.st.sources[s], &a.sources[s]
	t.last++
	f := &fetch{id: t.last, a: a, source: s, begin: p.next, start: t.now}
	cmd := StartFetch{ID: f.id, Attempt: a.ID, Host: a.Host, Source: src.host}
	for t.advance(a, s) && (t.cfg.Batch == 0 || len(f.outputs) < t.cfg.Batch) {
		o := src.outputs[p.next]
		f.outputs = append(f.outputs, o)
		id := a.st.job.stages[a.st.From[o.from]].id(o.task)
		size := a.sizeOf(o)
		cmd.Outputs = append(cmd.Outputs, Output{Size: size})
		cmd.Outputs[len(cmd.Outputs)-1].Attempt.Task, cmd.Outputs[len(cmd.Outputs)-1].Attempt.N = id, int(o.n)
		f.size += size
		p.next++
	}
	cmd.Size = f.size
	p.state = flying
	a.flights = append(a.flights, f)
	f.share()
	to, up := &t.hosts[a.Host], &t.hosts[src.host]
	to.fetching, up.serving = to.fetching+1, up.serving+1
	f.flows = max(to.fetching, up.serving)
	t.fetch[f.id] = f
	t.history.Fetches = len(t.fetch)
	t.command(cmd)
}

// land removes a fetch that is no longer in flight.
func (t *Tracker) land(f *fetch) {
	delete(t.fetch, f.id)
	t.history.Fetches = len(t.fetch)
	t.hosts[f.a.Host].fetching--
	t.hosts[f.a.st.sources[f.source].host].serving--
	f.a.flights = remove(f.a.flights, f)
	f.a.sources[f.source].state = idle
}

// stopFetch stops a fetch whose attempt has ended or whose outputs are lost.
func (t *Tracker) stopFetch(f *fetch) {
	t.land(f)
	t.command(StopFetch{ID: f.id, Host: f.a.Host, Source: f.a.st.sources[f.source].host})
}

// inFlight returns a fetch. It returns nil if the fetch has ended, and an error if there never was one.
func (t *Tracker) inFlight(id FetchID) (*fetch, error) {
	if id < 1 || id > t.last {
		return nil, fmt.Errorf("fetch %d: unknown fetch", id)
	}
	return t.fetch[id], nil
}

// fetchEnded records that the outputs of a fetch have arrived.
func (t *Tracker) fetchEnded(id FetchID) error {
	f, err := t.inFlight(id)
	if f == nil {
		return err
	}
	t.land(f)
	t.observeFetch(f)
	f.a.sources[f.source].failures = 0
	for _, o := range f.outputs {
		f.a.receive(o)
	}
	t.supply(f.a, f.source)
	t.fetchMore(f.a)
	t.chooseFreed(f.a, f.outputs)
	return nil
}

// fetchFailed makes an attempt wait before it fetches from a host again, and counts a failure of each
// output.
func (t *Tracker) fetchFailed(ev FetchFailed) error {
	f, err := t.inFlight(ev.ID)
	if f == nil {
		return err
	}
	t.land(f)
	a, p := f.a, &f.a.sources[f.source]
	p.next = min(p.next, f.begin)
	p.failures++
	p.state = penalized
	wait := min(float64(t.cfg.Penalty)*math.Pow(t.cfg.Growth, float64(p.failures)), float64(t.cfg.MaxPenalty))
	t.due.push(penalty{end: t.now + min(time.Duration(wait), Never-1-t.now), n: f.id, a: a, source: f.source})
	host := a.st.sources[f.source].host
	for _, o := range f.outputs {
		t.unfetched(a.st, o, host, ev.Why)
		if a.st.job.over {
			return nil
		}
	}
	if a.fetching() {
		for _, o := range f.outputs {
			t.choose(a, o.from, o.task)
		}
		t.fetchMore(a)
	}
	return nil
}

// fetching reports whether an attempt still fetches.
func (a *attempt) fetching() bool { return !a.Killing && a.Phase == policies.Copying }

// unfetched counts a failed fetch of an output from a host. After several, its task runs again.
func (t *Tracker) unfetched(to *stage, o output, host topo.HostID, why string) {
	up := to.job.stages[to.From[o.from]]
	c := up.tasks[o.task].copy(o.n, host)
	if c == nil {
		return
	}
	if c.unfetched++; int(c.unfetched) < t.cfg.FetchFailures {
		return
	}
	if !t.loseCopies(up, o.task, func(h topo.HostID) bool { return h == host }) {
		return // there are others
	}
	t.failTask(up, o.task, fmt.Sprintf("its output on %s could not be fetched: %s", t.cfg.Fabric.HostName(host), why))
	if !to.job.over {
		t.restore(to)
		t.stopStarved(to.job)
	}
}

// endPenalties lets attempts fetch again from the hosts whose penalties have ended.
func (t *Tracker) endPenalties() {
	for len(t.due) > 0 && t.due[0].end <= t.now {
		p := t.due.pop()
		if !p.a.fetching() || p.a.job().over || int(p.source) >= len(p.a.sources) {
			continue
		}
		p.a.sources[p.source].state = idle
		t.supply(p.a, p.source)
		t.fetchMore(p.a)
	}
}
