// Package tracker implements the job tracker as a state machine. It owns jobs, their stages and
// tasks, attempts, slots and the outputs that stages send to each other. At each heartbeat it asks a
// policies.TaskScheduler which tasks to launch. It has no clock, socket, goroutine or random source
// of its own: the same events at the same times give the same commands.
//
// An attempt whose stage reads blocks begins to compute when it is launched:
//
//	launched → reading, computing → (input read) → computed → spilled or written → committed
//
// An attempt whose stage fetches waits for its input, and for its turn to compute:
//
//	launched → fetching → queued → computing → computed → spilled or written → committed
//
// The first attempt of a task to commit wins, and the others are stopped.
//
// This package moves no bytes. It draws no workload and decides no scheduling.
package tracker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Never is the NextWake of a tracker that only waits for events.
const Never = time.Duration(math.MaxInt64)

// Config describes the cluster and the scheduler of a tracker.
type Config struct {
	Fabric    *topo.Fabric
	Scheduler policies.TaskScheduler
	Name      string // of the scheduler, in errors
	// Slots is the number of slots of each host, by jobs.TaskKind. The scheduler converts it to
	// limits.
	Slots     [jobs.TaskKinds]int
	Resources jobs.Resources // of each host; 0 for no limit
	// Space is the room on each host for outputs that later stages fetch; 0 for no limit. It is
	// shown to the scheduler, and enforced if Settings.Evict is set.
	Space units.Bytes
	// Blocks are the hosts of the replicas of input blocks.
	Blocks map[workloads.BlockID][]topo.HostID
	// Cluster returns the state of the cluster that a scheduler with these needs may know, at the
	// time of the current step. If it is nil, the scheduler sees the fabric and the lost hosts.
	Cluster func(policies.Facts) *policies.Cluster
	// Watcher is notified of each decision; nil for none. The views then have StageState.Pending.
	Watcher func(*policies.TaskView, *policies.Assignment)
	// Seed is the seed of the choice of replicas and of the order of fetches. Draws are keyed by
	// job, task and attempt, so that arms can be compared in pairs.
	Seed uint64
	Settings
}

// Tracker is the job tracker. Its zero value is not usable: call New.
type Tracker struct {
	cfg    Config
	limits policies.Limits
	needs  policies.Facts
	// asksPending is set if the scheduler is a policies.PendingAsker without a watcher.
	asksPending bool
	now         time.Duration
	cmds        []Command

	jobs     map[jobs.JobID]*job         // unfinished
	ended    map[jobs.JobID]bool         // finished and failed ones, about which events may still arrive
	order    []*job                      // unfinished, by submission, ties by ID: parallel to view.Jobs
	users    map[string]int              // policies.TaskCount.User, by name
	hosts    []host                      // by HostID
	racks    []place                     // by RackID
	fetch    map[FetchID]*fetch          // in flight
	last     FetchID                     // the newest
	due      heap[penalty]               // penalties, by end
	keeping  heap[kept]                  // of attempts that make copies, by end
	stopping map[jobs.AttemptID]*attempt // that have not left their slots
	freed    []topo.HostID               // hosts on which tasks have ended in this step
	none     []refusal                   // launches without a replica in this heartbeat
	picks    []pick                      // launches of this heartbeat

	// launchable is the number of tasks that may be launched, by kind.
	launchable [jobs.TaskKinds]int

	scheduler policies.TaskInstance
	fetcher   policies.Fetcher // nil if only one attempt of a task can end
	choice    policies.CopyChoice
	history   policies.History
	// estimator is nil if the scheduler estimates nothing; samples are its estimates, by time.
	estimator policies.Estimator
	samples   []EstimateSample
	bad       error // the first invalid choice

	slots  []policies.SlotState // by HostID
	view   policies.TaskView    // its Slots are t.slots, or only that of its Host
	answer policies.Assignment
	own    policies.Cluster
}

// host is the state of a host.
type host struct {
	lost      bool
	wiped     bool                       // its input blocks are gone
	attempts  []*attempt                 // on its slots, by launch
	computing [jobs.TaskKinds]int        // attempts that compute
	queue     [jobs.TaskKinds][]*attempt // attempts that wait until they may compute
	paused    [jobs.TaskKinds]int        // attempts without a slot
	// promised is the memory that the first attempt of a queue waits for, which no other task gets meanwhile.
	promised [jobs.TaskKinds]units.Bytes
	stored   units.Bytes // outputs for later stages, stored or of running attempts
	near     place
	fetching int // fetches under way to it
	serving  int // fetches under way from it
}

// New checks the configuration and returns a tracker in its initial state.
func New(cfg Config) (*Tracker, error) {
	if cfg.Fabric == nil || cfg.Scheduler == nil {
		return nil, errors.New("tracker: a fabric and a scheduler are required")
	}
	errs := []error{cfg.Settings.check()}
	for k, n := range cfg.Slots {
		if n < 0 {
			errs = append(errs, fmt.Errorf("tracker: %d slots of kind %d: must be 0 or more", n, k))
		}
	}
	if cfg.Resources.CPU < 0 || cfg.Resources.Memory < 0 || cfg.Space < 0 {
		errs = append(errs, fmt.Errorf("tracker: %v cores, memory %v, space %v: must be 0 or more", cfg.Resources.CPU, cfg.Resources.Memory, cfg.Space))
	}
	cfg.Name = cmp.Or(cfg.Name, "tasks policy")
	n := cfg.Fabric.Hosts()
	t := &Tracker{
		cfg: cfg, limits: cfg.Scheduler.Slots(cfg.Slots), needs: cfg.Scheduler.Needs(),
		jobs: map[jobs.JobID]*job{}, ended: map[jobs.JobID]bool{}, fetch: map[FetchID]*fetch{}, users: map[string]int{}, stopping: map[jobs.AttemptID]*attempt{},
		hosts: make([]host, n), racks: make([]place, cfg.Fabric.Racks()),
		own: policies.Cluster{Fabric: cfg.Fabric, Hosts: make([]policies.HostState, n), Racks: make([]policies.RackState, cfg.Fabric.Racks())},
	}
	for k := range cfg.Slots {
		if r, c := t.limits.Running[k], t.limits.Computing[k]; r < 0 || c < 0 || r > 0 && c == 0 {
			errs = append(errs, fmt.Errorf("tracker: %s: %d attempts of kind %d of which %d may compute: must be 0 or more, and some must compute", cfg.Name, r, k, c))
		}
	}
	for _, l := range cfg.Fabric.Links() {
		t.own.Capacity = append(t.own.Capacity, l.Rate)
	}
	t.slots = make([]policies.SlotState, n)
	if t.view.Slots = t.slots; !t.needs.Has(policies.Slots) {
		t.view.Slots = make([]policies.SlotState, n)
	}
	t.view.Profiles, t.view.EndedProfiles = map[string]policies.Consumption{}, map[string]policies.Consumption{}
	for h := range t.slots {
		t.own.Hosts[h].LastReport = -1
		t.slots[h].Total, t.slots[h].Capacity = t.limits.Running, cfg.Resources
		t.store(topo.HostID(h), 0)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t.scheduler = cfg.Scheduler.New()
	t.fetcher, _ = t.scheduler.(policies.Fetcher)
	asker, ok := cfg.Scheduler.(policies.PendingAsker)
	if t.asksPending = ok && asker.AsksPending() && cfg.Watcher == nil; t.asksPending {
		t.view.Near = t.pending
	}
	if t.needs.Has(policies.TaskHistory) {
		t.view.History = &t.history
		t.estimator, _ = t.scheduler.(policies.Estimator)
	}
	return t, nil
}

// Step processes the events up to the time now and returns the resulting commands, in order. An error
// is caused by the caller or by the scheduler; the tracker must not be used after it.
func (t *Tracker) Step(now time.Duration, evs ...Event) ([]Command, error) {
	if now < t.now {
		return nil, fmt.Errorf("tracker: time went back from %v to %v", t.now, now)
	}
	t.now, t.cmds = now, nil
	t.endPenalties()
	if err := t.endKeeping(); err != nil {
		return nil, fmt.Errorf("tracker: at %v: %w", now, err)
	}
	for _, ev := range evs {
		if err := t.event(ev); err != nil {
			return nil, fmt.Errorf("tracker: at %v: %w", now, err)
		}
		if t.bad != nil {
			return nil, fmt.Errorf("tracker: at %v: %w", now, t.bad)
		}
	}
	for i := 0; i < len(t.freed); i++ {
		if err := t.assign(t.freed[i]); err != nil {
			return nil, fmt.Errorf("tracker: at %v: %w", now, err)
		}
	}
	t.freed = t.freed[:0]
	return t.cmds, nil
}

func (t *Tracker) event(ev Event) error {
	switch ev := ev.(type) {
	case JobSubmitted:
		return t.submitted(ev.Job)
	case Heartbeat:
		return t.heartbeat(ev)
	case HostLost:
		return t.hostLost(ev.Host)
	case HostBack:
		return t.hostBack(ev)
	case FetchEnded:
		return t.fetchEnded(ev.ID)
	case FetchFailed:
		return t.fetchFailed(ev)
	case InputRead:
		return t.attempted(ev.Attempt, func(a *attempt) { a.read = true })
	case ReadFailed:
		return t.attempted(ev.Attempt, func(a *attempt) { t.readAgain(a, ev.Why) })
	case OutputBegun:
		return t.working(ev.Attempt, t.write)
	case ComputeDone:
		return t.working(ev.Attempt, t.computed)
	case OutputSpilled:
		return t.working(ev.Attempt, func(a *attempt) { a.spilled = true; t.commitIfComplete(a) })
	case OutputWritten:
		return t.working(ev.Attempt, func(a *attempt) { a.written = true; t.commitIfComplete(a) })
	case AttemptFailed:
		return t.attemptFailed(ev)
	case AttemptStopped:
		return t.attemptStopped(ev.Attempt)
	}
	return fmt.Errorf("unknown event %T", ev)
}

// Instance returns the instance of the scheduler.
func (t *Tracker) Instance() policies.TaskInstance { return t.scheduler }

// NextWake returns the time at which Step must be called even without events.
func (t *Tracker) NextWake() time.Duration {
	wake := Never
	if len(t.due) > 0 {
		wake = t.due[0].end
	}
	for len(t.keeping) > 0 && t.keeping[0].over() {
		t.keeping.pop()
	}
	if len(t.keeping) > 0 {
		wake = min(wake, t.keeping[0].until)
	}
	return wake
}

// Idle reports whether all submitted jobs have ended and all attempts have left their slots.
func (t *Tracker) Idle() bool {
	if len(t.order) > 0 {
		return false
	}
	for h := range t.hosts {
		if len(t.hosts[h].attempts) > 0 {
			return false
		}
	}
	return true
}

// mostNamed is the number of jobs that Unfinished names.
const mostNamed = 3

// Unfinished describes the unfinished work in one line, and what its first jobs wait for.
func (t *Tracker) Unfinished() string {
	var tasks [3]int
	for _, j := range t.order {
		for _, st := range j.stages {
			for s, n := range st.count {
				tasks[s] += n
			}
		}
	}
	all := fmt.Sprintf("%d jobs with %d tasks waiting and %d running", len(t.order), tasks[pending], tasks[running])
	for i, j := range t.order[:min(len(t.order), mostNamed)] {
		all += fmt.Sprintf("%s job %d waits for %s", [...]string{":", ","}[min(i, 1)], j.ID, j.waitsFor())
	}
	return all
}

// waitsFor describes the first unfinished work of a job.
func (j *job) waitsFor() string {
	for _, st := range j.stages {
		for i := range st.tasks {
			if running := st.tasks[i].attempts; len(running) > 0 {
				return fmt.Sprintf("%v, which %s", running[0].ID, running[0].doing())
			}
		}
		if n := st.count[pending]; n > 0 {
			return fmt.Sprintf("slots for %s of stage %d", words.Plural(n, "task", "tasks"), st.index)
		}
	}
	return "its attempts to stop"
}

// doing describes the current work of an attempt.
func (a *attempt) doing() string {
	spec := &a.st.Tasks[a.i]
	switch {
	case a.Paused:
		return "waits for a slot"
	case a.Phase == policies.Copying:
		return "fetches " + words.Plural(a.missing, "output", "outputs")
	case a.Phase == policies.Queued:
		return "waits until it may compute"
	case a.source >= 0 && !a.read:
		return fmt.Sprintf("reads block %d from host %d", spec.Input, a.source)
	case a.writing && !a.written:
		return fmt.Sprintf("writes %v", spec.Writes)
	case a.isComputed:
		return "stores its output"
	}
	return "computes"
}

func (t *Tracker) command(c Command) { t.cmds = append(t.cmds, c) }

// known reports whether the fabric has a host.
func (t *Tracker) known(h topo.HostID) bool { return h >= 0 && int(h) < len(t.hosts) }

// cluster returns what the scheduler sees of the cluster.
func (t *Tracker) cluster() *policies.Cluster {
	if t.cfg.Cluster != nil {
		return t.cfg.Cluster(t.needs)
	}
	t.own.Now = t.now
	return &t.own
}

// look makes the view that of a host.
func (t *Tracker) look(h topo.HostID) {
	if !t.needs.Has(policies.Slots) {
		t.view.Slots[t.view.Host] = policies.SlotState{}
		t.view.Slots[h] = t.slots[h]
	}
	t.view.Cluster, t.view.Host = t.cluster(), h
}

// store changes the space that outputs take on a host.
func (t *Tracker) store(h topo.HostID, by units.Bytes) {
	t.hosts[h].stored += by
	t.slots[h].Space = -1
	if t.cfg.Space > 0 {
		t.slots[h].Space = max(0, t.cfg.Space-t.hosts[h].stored)
	}
}
