package tracker

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func fabric(leaves, hosts int) *topo.Fabric {
	return must(topo.LeafSpine{Leaves: leaves, Spines: 1, HostsPerLeaf: hosts, HostLink: 10 * units.Mbps,
		Oversubscription: units.Ratio{Num: 2, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build())
}

// order is a scheduler that launches tasks of the first job in an order, nearest first. Each launch
// changes the number of attempts that the order sees.
type order struct {
	computing int // limit for reduces; 0 for no other limit than slots
	before    func(v *policies.TaskView, running []int, a, b int) bool
	every     bool

	byMemory, pausing bool
}

func (o order) Needs() policies.Facts {
	if o.every {
		return policies.EveryHeartbeat | policies.Attempts
	}
	return policies.Attempts
}

func (o order) Slots(n [jobs.TaskKinds]int) policies.Limits {
	l := policies.Limits{Running: n, Computing: n, ByMemory: o.byMemory, Pausing: o.pausing}
	if o.computing > 0 {
		l.Computing[jobs.Reduce] = o.computing
	}
	return l
}

func (o order) New() policies.TaskInstance { return o }

func (o order) Assign(v *policies.TaskView, a *policies.Assignment) {
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		running := make([]int, len(v.Jobs))
		left := make([][][policies.Localities]int, len(v.Jobs))
		for j := range v.Jobs {
			for _, st := range v.Jobs[j].Stages {
				left[j] = append(left[j], st.Pending)
			}
			for _, r := range v.Jobs[j].Running {
				if r.Kind == k {
					running[j]++
				}
			}
		}
	slots:
		for range v.Slots[v.Host].Free(k) {
			best := -1
			for j := range v.Jobs {
				if _, _, ok := first(v, left, j, k); ok && (best < 0 || o.before(v, running, j, best)) {
					best = j
				}
			}
			if best < 0 {
				break slots
			}
			s, l, _ := first(v, left, best, k)
			left[best][s][l]--
			running[best]++
			a.Launch = append(a.Launch, policies.Launch{Job: best, Stage: s, Locality: l})
		}
	}
}

// first returns the first stage of a job with a pending task of a kind, and its locality.
func first(v *policies.TaskView, left [][][policies.Localities]int, j int, k jobs.TaskKind) (int, policies.Locality, bool) {
	for s, st := range v.Jobs[j].Stages {
		for l, n := range left[j][s] {
			if st.Kind == k && n > 0 && v.Slots[v.Host].HasRoom(st.Output) {
				return s, policies.Locality(l), true
			}
		}
	}
	return 0, 0, false
}

func fifo() order {
	return order{before: func(_ *policies.TaskView, _ []int, a, b int) bool { return a < b }}
}

func fair() order {
	return order{before: func(_ *policies.TaskView, running []int, a, b int) bool {
		return running[a] < running[b] || running[a] == running[b] && a < b
	}}
}

// happening is an event of the toy executor: for the tracker, or an action.
type happening struct {
	at time.Duration
	n  int
	ev Event
	do func()
}

func (a happening) before(b happening) bool { return a.at < b.at || a.at == b.at && a.n < b.n }

// sim is a toy executor: a queue of events with durations, without a network. It checks each command
// against what it knows of the hosts.
type sim struct {
	t         rapid.TB
	k         *Tracker
	cfg       Config
	jobs      map[jobs.JobID]*jobs.Job
	now       time.Duration
	queue     heap[happening]
	n         int
	beat      time.Duration
	mapTime   time.Duration
	redTime   time.Duration
	latency   time.Duration    // of a fetch
	varied    bool             // attempts take 0.2 to 2.2 times as long
	spoil     func(Event) bool // an event that does not happen as expected
	skipBeat  func(topo.HostID) bool
	atCopy    func(Copied)
	down      map[topo.HostID]bool
	doomed    map[topo.HostID]bool // down, and not yet noticed by the tracker
	running   map[jobs.AttemptID]*execution
	used      map[topo.HostID][2]int
	computing map[topo.HostID][2]int
	fetches   map[FetchID]StartFetch
	outputs   map[jobs.AttemptID]topo.HostID // outputs that exist
	committed map[jobs.TaskID]jobs.AttemptID
	copies    map[jobs.AttemptID]bool // attempts that have made copies
	failedAt  map[jobs.AttemptID]time.Duration
	launches  map[jobs.TaskID]int
	failures  map[jobs.TaskID]int
	unfetched map[jobs.AttemptID]int
	ended     map[jobs.JobID]string
	endedAt   map[jobs.JobID]time.Duration
	evicted   []jobs.JobID
	near      [policies.Localities]int
	log       func(string)
	steps     int
	commands  int
	audit     bool
	spent     time.Duration // by the tracker
}

type execution struct {
	StartAttempt
	stopped   bool // asked to stop
	fetched   bool // has all its input
	dead      bool // its host has crashed
	computing bool
	kind      jobs.TaskKind
	got       map[jobs.TaskID]bool
	sources   map[topo.HostID]FetchID
}

func newSim(t rapid.TB, c Config, beat time.Duration) *sim {
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{t: t, k: k, cfg: c, jobs: map[jobs.JobID]*jobs.Job{}, beat: beat, mapTime: 10 * time.Second, redTime: 10 * time.Second, latency: 100 * time.Millisecond,
		down: map[topo.HostID]bool{}, doomed: map[topo.HostID]bool{}, running: map[jobs.AttemptID]*execution{}, used: map[topo.HostID][2]int{}, computing: map[topo.HostID][2]int{}, fetches: map[FetchID]StartFetch{},
		outputs: map[jobs.AttemptID]topo.HostID{}, committed: map[jobs.TaskID]jobs.AttemptID{}, copies: map[jobs.AttemptID]bool{}, failedAt: map[jobs.AttemptID]time.Duration{}, launches: map[jobs.TaskID]int{}, failures: map[jobs.TaskID]int{},
		unfetched: map[jobs.AttemptID]int{}, ended: map[jobs.JobID]string{}, endedAt: map[jobs.JobID]time.Duration{}}
	for h := range c.Fabric.Hosts() {
		s.after(beat*time.Duration(h)/time.Duration(c.Fabric.Hosts()), func() { s.heartbeat(topo.HostID(h)) })
	}
	return s
}

func (s *sim) submit(j *jobs.Job) {
	s.jobs[j.ID] = j
	s.post(j.Submit-s.now, JobSubmitted{j})
}

func (s *sim) post(in time.Duration, ev Event) {
	s.n++
	s.queue.push(happening{s.now + in, s.n, ev, nil})
}

func (s *sim) after(in time.Duration, do func()) {
	s.n++
	s.queue.push(happening{s.now + in, s.n, nil, do})
}

func (s *sim) heartbeat(h topo.HostID) {
	if s.done() {
		return
	}
	s.after(s.beat, func() { s.heartbeat(h) })
	if !s.down[h] && (s.skipBeat == nil || !s.skipBeat(h)) {
		s.post(0, Heartbeat{Host: h})
	}
}

func (s *sim) done() bool { return len(s.ended) == len(s.jobs) && s.k.Idle() }

// run runs until all jobs have ended, or an end that no run should reach.
func (s *sim) run(end time.Duration) {
	for len(s.queue) > 0 || s.k.NextWake() < Never {
		next := s.k.NextWake()
		if len(s.queue) > 0 {
			next = min(next, s.queue[0].at)
		}
		if s.now = max(s.now, next); s.now > end {
			s.t.Fatalf("not done at %v: %s", s.now, s.k.Unfinished())
		}
		var evs []Event
		for len(s.queue) > 0 && s.queue[0].at <= s.now {
			h := s.queue.pop()
			_, failure := h.ev.(FetchFailed) // what it changes must not be visible to earlier events of a step
			if (h.do != nil || failure) && len(evs) > 0 {
				s.step(evs...)
				evs = nil
			}
			if h.do != nil {
				h.do()
			} else if s.happens(h.ev) {
				evs = append(evs, h.ev)
			}
		}
		if len(evs) > 0 || s.k.NextWake() <= s.now {
			s.step(evs...)
		}
	}
	if !s.done() {
		s.t.Fatalf("not done at %v: %s", s.now, s.k.Unfinished())
	}
	s.empty()
}

// happens reports whether an event of the queue still happens, and applies it.
func (s *sim) happens(ev Event) bool {
	alive := func(id jobs.AttemptID) *execution {
		if x := s.running[id]; x != nil && !x.stopped && !x.dead {
			return x
		}
		return nil
	}
	if s.spoil != nil && s.spoil(ev) {
		return false
	}
	switch ev := ev.(type) {
	case InputRead:
		return alive(ev.Attempt) != nil
	case ComputeDone:
		return alive(ev.Attempt) != nil
	case OutputSpilled:
		x := alive(ev.Attempt)
		if x != nil {
			s.outputs[ev.Attempt] = x.Host
		}
		return x != nil
	case OutputWritten:
		return alive(ev.Attempt) != nil
	case AttemptFailed:
		x := alive(ev.Attempt)
		if x == nil {
			return false
		}
		s.fail(ev.Attempt)
		s.leave(x)
		s.failedAt[ev.Attempt] = s.now
	case AttemptStopped:
		x := s.running[ev.Attempt]
		if x == nil || x.dead {
			return false
		}
		s.leave(x)
	case FetchEnded:
		f, x := s.land(ev.ID)
		if x == nil {
			return false
		}
		for _, o := range f.Outputs {
			if x.got[o.Attempt.Task] {
				s.t.Errorf("%v: %v has fetched %v twice", s.now, f.Attempt, o.Attempt)
			}
			x.got[o.Attempt.Task] = true
		}
	case FetchFailed:
		f, x := s.land(ev.ID)
		if x == nil {
			return false
		}
		for _, o := range f.Outputs {
			if s.unfetched[o.Attempt]++; s.unfetched[o.Attempt] == s.cfg.FetchFailures && s.published(o.Attempt) && s.outputs[o.Attempt] == f.Source {
				delete(s.outputs, o.Attempt)
				if !s.available(o.Attempt.Task) && s.ended[o.Attempt.Task.Job] == "" {
					s.failures[o.Attempt.Task]++
				}
			}
		}
	}
	return true
}

// land ends a fetch. It returns no execution if the fetch was stopped, or its host has crashed.
func (s *sim) land(id FetchID) (StartFetch, *execution) {
	f, ok := s.fetches[id]
	if !ok || s.running[f.Attempt].dead {
		return f, nil
	}
	x := s.running[f.Attempt]
	delete(s.fetches, id)
	delete(x.sources, f.Source)
	return f, x
}

// fail counts a failure of an attempt, unless its task is done.
func (s *sim) fail(id jobs.AttemptID) {
	if s.ended[id.Task.Job] == "" && s.k.jobs[id.Task.Job].stages[id.Task.Stage].tasks[id.Task.Index].status != done {
		s.failures[id.Task]++
	}
}

// published reports whether an attempt has committed or copied its output.
func (s *sim) published(id jobs.AttemptID) bool { return s.committed[id.Task] == id || s.copies[id] }

// available reports whether a host has the output of a task.
func (s *sim) available(task jobs.TaskID) bool {
	for id := range s.outputs {
		if id.Task == task && s.published(id) {
			return true
		}
	}
	return false
}

// leave ends an execution.
func (s *sim) leave(x *execution) {
	delete(s.running, x.Attempt)
	u, c := s.used[x.Host], s.computing[x.Host]
	u[x.kind]--
	if x.computing {
		c[x.kind]--
	}
	s.used[x.Host], s.computing[x.Host] = u, c
}

func (s *sim) step(evs ...Event) {
	begin := time.Now()
	cmds, err := s.k.Step(s.now, evs...)
	s.spent += time.Since(begin)
	if err != nil {
		s.t.Fatalf("%v: %v: %v", s.now, evs, err)
	}
	s.steps++
	s.commands += len(cmds)
	for _, c := range cmds {
		if s.log != nil {
			s.log(fmt.Sprintf("%v %T%+v", s.now, c, c))
		}
		s.do(c)
	}
	if s.audit {
		audit(s.t, s.k)
	}
}

// do carries out a command, and checks it.
func (s *sim) do(c Command) {
	switch c := c.(type) {
	case StartAttempt:
		if s.down[c.Host] && !s.doomed[c.Host] {
			s.t.Errorf("%v: %v starts on the lost host %d", s.now, c.Attempt, c.Host)
		}
		n := s.launches[c.Attempt.Task]
		if c.Attempt.N < n {
			s.t.Errorf("%v: %v is not a new attempt", s.now, c.Attempt)
		}
		s.failures[c.Attempt.Task] += c.Attempt.N - n // attempts without a replica to read
		s.launches[c.Attempt.Task] = c.Attempt.N + 1
		x := &execution{StartAttempt: c, kind: c.Kind, dead: s.down[c.Host], got: map[jobs.TaskID]bool{}, sources: map[topo.HostID]FetchID{}}
		s.running[c.Attempt] = x
		u := s.used[c.Host]
		if u[c.Kind]++; u[c.Kind]-s.k.hosts[c.Host].paused[c.Kind] > s.k.limits.Running[c.Kind] {
			s.t.Errorf("%v: %d attempts of kind %d on host %d", s.now, u[c.Kind], c.Kind, c.Host)
		}
		s.used[c.Host] = u
		s.near[c.Locality]++
		st := &s.jobs[c.Attempt.Task.Job].Stages[c.Attempt.Task.Stage]
		if len(st.From) == 0 {
			s.compute(x)
			if c.Source >= 0 {
				s.post(s.mapTime/2, InputRead{c.Attempt})
			}
		}
	case ReadFrom:
		if s.down[c.Source] && !s.doomed[c.Source] {
			s.t.Errorf("%v: %v reads from the lost host %d", s.now, c.Attempt, c.Source)
		}
	case StartFetch:
		x := s.running[c.Attempt]
		if x == nil || x.stopped || x.Host != c.Host {
			s.t.Fatalf("%v: fetch for %v, which does not run", s.now, c.Attempt)
		}
		if _, twice := x.sources[c.Source]; twice || len(x.sources) >= s.cfg.Fetches {
			s.t.Errorf("%v: %v fetches from host %d, in addition to %v", s.now, c.Attempt, c.Source, x.sources)
		}
		var sum units.Bytes
		for _, o := range c.Outputs {
			if at, ok := s.outputs[o.Attempt]; !ok || at != c.Source || !s.published(o.Attempt) {
				s.t.Errorf("%v: %v fetches %v from host %d, which does not have it", s.now, c.Attempt, o.Attempt, c.Source)
			}
			sum += o.Size
		}
		if sum != c.Size || c.Size <= 0 || s.cfg.Batch > 0 && len(c.Outputs) > s.cfg.Batch {
			s.t.Errorf("%v: fetch %+v", s.now, c)
		}
		x.sources[c.Source] = c.ID
		s.fetches[c.ID] = c
		if s.doomed[c.Source] {
			s.post(s.latency, FetchFailed{c.ID, "connection reset"})
		} else {
			s.post(s.latency, FetchEnded{c.ID})
		}
	case StopFetch:
		f, ok := s.fetches[c.ID]
		if !ok {
			return // it ended in the same step
		}
		delete(s.fetches, c.ID)
		if x := s.running[f.Attempt]; x != nil {
			delete(x.sources, f.Source)
		}
	case Compute:
		x := s.running[c.Attempt]
		if x == nil || x.stopped || x.computing || !x.fetched {
			s.t.Fatalf("%v: %v computes, which does not run, lacks input or computes already", s.now, c.Attempt)
		}
		want := 0
		j, id := s.jobs[c.Attempt.Task.Job], c.Attempt.Task
		for _, from := range j.Stages[id.Stage].From {
			at := id.Index // in Output
			for between := from + 1; between < id.Stage; between++ {
				if slices.Contains(j.Stages[between].From, from) {
					at += len(j.Stages[between].Tasks)
				}
			}
			for _, k := range j.Stages[from].Tasks {
				if k.Output[at] > 0 {
					want++
				}
			}
		}
		if len(x.got) != want {
			s.t.Errorf("%v: %v computes with %d of %d outputs", s.now, c.Attempt, len(x.got), want)
		}
		s.compute(x)
	case InputFetched:
		x := s.running[c.Attempt]
		if x == nil || x.stopped || x.fetched {
			s.t.Errorf("%v: %v has all its input, but does not fetch", s.now, c.Attempt)
			return
		}
		x.fetched = true
	case WriteOutput:
		s.post(s.redTime/10, OutputWritten{c.Attempt})
	case Commit:
		x := s.running[c.Attempt]
		if x == nil || x.stopped {
			s.t.Fatalf("%v: %v commits, which does not run", s.now, c.Attempt)
		}
		if old, again := s.committed[c.Attempt.Task]; again {
			if s.available(c.Attempt.Task) || s.last(c.Attempt.Task) {
				s.t.Errorf("%v: %v commits after %v", s.now, c.Attempt, old)
			}
		}
		s.committed[c.Attempt.Task] = c.Attempt
		s.leave(x)
	case Copied:
		x := s.running[c.Attempt]
		if x == nil || x.stopped || !s.available(c.Attempt.Task) || s.last(c.Attempt.Task) {
			s.t.Fatalf("%v: %v makes a copy: must run, and another attempt have committed an output", s.now, c.Attempt)
		}
		s.copies[c.Attempt] = true
		s.leave(x)
		if s.atCopy != nil {
			s.atCopy(c)
		}
	case StopAttempt:
		x := s.running[c.Attempt]
		if x == nil || x.stopped {
			if x == nil && !s.down[c.Host] && s.failedAt[c.Attempt] != s.now {
				s.t.Errorf("%v: %v stopped, which does not run", s.now, c.Attempt)
			}
			return
		}
		x.stopped = true
		s.post(s.latency, AttemptStopped{c.Attempt})
	case DropOutputs:
		s.evicted = append(s.evicted, c.Job)
		for id := range s.outputs {
			if id.Task.Job == c.Job {
				delete(s.outputs, id)
			}
		}
	case JobDone:
		s.end(c.Job, "done")
	case JobFailed:
		s.end(c.Job, c.Why)
	default:
		s.t.Fatalf("unknown command %T", c)
	}
}

// last reports whether no other stage needs the output of a task.
func (s *sim) last(id jobs.TaskID) bool {
	return len(s.jobs[id.Job].Stages[id.Stage].Tasks[id.Index].Output) == 0
}

func (s *sim) compute(x *execution) {
	x.computing = true
	c := s.computing[x.Host]
	if c[x.kind]++; c[x.kind] > s.k.limits.Computing[x.kind] {
		s.t.Errorf("%v: %d attempts of kind %d compute on host %d", s.now, c[x.kind], x.kind, x.Host)
	}
	s.computing[x.Host] = c
	in := s.mapTime
	if x.kind == jobs.Reduce {
		in = s.redTime
	}
	if s.varied {
		id := x.Attempt
		in = time.Duration(float64(in) * (0.2 + 2*workloads.Stream(1, "time", int(id.Task.Job), id.Task.Stage, id.Task.Index, id.N).Float64()))
	}
	s.post(in, ComputeDone{x.Attempt})
	if !s.last(x.Attempt.Task) {
		s.post(in, OutputSpilled{x.Attempt})
	}
}

func (s *sim) end(j jobs.JobID, how string) {
	if s.ended[j] != "" {
		s.t.Errorf("%v: job %d ends twice: %s, %s", s.now, j, s.ended[j], how)
	}
	s.ended[j], s.endedAt[j] = how, s.now
	if how == "done" {
		spec := s.jobs[j]
		for i, st := range spec.Stages {
			for n := range st.Tasks {
				id := jobs.TaskID{Job: j, Stage: i, Index: n}
				if _, ok := s.committed[id]; !ok && s.last(id) {
					s.t.Errorf("%v: job %d is done without task %v", s.now, j, id)
				}
			}
		}
	}
}

// crash takes a host down. The tracker notices after a delay.
func (s *sim) crash(h topo.HostID, notice, back time.Duration, empty bool) {
	if s.down[h] {
		return
	}
	s.down[h], s.doomed[h] = true, true
	for _, id := range sorted(s.running) {
		if x := s.running[id]; x.Host == h {
			x.dead = true
		}
	}
	for _, id := range slices.Sorted(keys(s.fetches)) {
		if f := s.fetches[id]; f.Source == h && f.Host != h {
			s.post(s.latency/2, FetchFailed{id, "connection reset"})
		}
	}
	s.after(notice, func() {
		delete(s.doomed, h)
		for id, at := range s.outputs {
			if at == h {
				delete(s.outputs, id)
			}
		}
		for _, id := range sorted(s.running) {
			if a, _ := s.k.attempt(id); a != nil && a.Host != h && a.source == h && !a.read && !slices.ContainsFunc(a.st.replicas[a.i], func(r topo.HostID) bool {
				return r != h && s.k.live(r) && !slices.Contains(a.tried, r)
			}) {
				s.fail(id)
			}
		}
		s.step(HostLost{h})
		for _, id := range sorted(s.running) {
			if x := s.running[id]; x.Host == h {
				s.leave(x)
			}
		}
	})
	s.after(notice+back, func() {
		delete(s.down, h)
		s.step(HostBack{h, empty})
	})
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func sorted(m map[jobs.AttemptID]*execution) []jobs.AttemptID {
	ids := slices.Collect(keys(m))
	slices.SortFunc(ids, jobs.AttemptID.Compare)
	return ids
}

// empty checks that nothing is left after a run.
func (s *sim) empty() {
	k := s.k
	if len(s.running) > 0 || len(s.fetches) > 0 || len(k.fetch) > 0 || len(k.stopping) > 0 || len(k.jobs) > 0 || len(k.order) > 0 || k.launchable != [2]int{} || len(k.view.Jobs) > 0 {
		s.t.Errorf("left: %d attempts, %d fetches, %d and %d in the tracker, %d jobs, launchable %v", len(s.running), len(s.fetches), len(k.fetch), len(k.stopping), len(k.jobs), k.launchable)
	}
	for h := range k.hosts {
		if x, slots := &k.hosts[h], k.slots[h]; len(x.attempts) > 0 || x.computing != [2]int{} || len(x.queue[0])+len(x.queue[1]) > 0 || x.stored != 0 || len(x.near.local) > 0 ||
			slots.Used != [2]int{} || slots.Need != (jobs.Resources{}) {
			s.t.Errorf("host %d: left %+v, %+v", h, x, slots)
		}
	}
	for r := range k.racks {
		if len(k.racks[r].local) > 0 {
			s.t.Errorf("rack %d: left %+v", r, k.racks[r])
		}
	}
}

// mapReduce returns a job of maps, each with one input block, and reduces that fetch size from each map.
func mapReduce(id jobs.JobID, submit time.Duration, first workloads.BlockID, maps, reduces int, size units.Bytes) *jobs.Job {
	j := &jobs.Job{ID: id, Submit: submit, Stages: []jobs.Stage{{Kind: jobs.Map}}}
	for i := range maps {
		k := jobs.Task{Input: first + workloads.BlockID(i), InputSize: 1e6}
		for range reduces {
			k.Output = append(k.Output, size)
		}
		j.Stages[0].Tasks = append(j.Stages[0].Tasks, k)
	}
	if reduces > 0 {
		j.Stages = append(j.Stages, jobs.Stage{Kind: jobs.Reduce, From: []int{0}, Tasks: make([]jobs.Task, reduces)})
	}
	return j
}

// blocksOn places blocks on three hosts each, at random but always the same.
func blocksOn(f *topo.Fabric, n int) map[workloads.BlockID][]topo.HostID {
	out := map[workloads.BlockID][]topo.HostID{}
	for b := range n {
		r := workloads.Stream(1, "test-blocks", b)
		var hosts []topo.HostID
		for _, h := range r.Perm(f.Hosts())[:min(3, f.Hosts())] {
			hosts = append(hosts, topo.HostID(h))
		}
		out[workloads.BlockID(b)] = hosts
	}
	return out
}

func config(f *topo.Fabric, s policies.TaskScheduler) Config {
	return Config{Fabric: f, Scheduler: s, Slots: [2]int{2, 1}, Seed: 1, Settings: DefaultSettings()}
}
