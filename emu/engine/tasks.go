package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/emu/engine/tracker"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// TaskConfig describes the jobs of tasks of a run, and the slots that they get.
type TaskConfig struct {
	Jobs      []jobs.Job // in order of submission
	Scheduler policies.TaskScheduler
	Slots     [jobs.TaskKinds]int // of each host, by jobs.TaskKind
	Resources jobs.Resources      // of each host; 0 for no limit
	// Space is the room on each host for outputs that later stages fetch; 0 for no limit.
	Space units.Bytes
	// Stored are the input blocks of all jobs.
	Stored []StoredBlock
	// Output describes the blocks that tasks write: their largest size, replicas, packet and window.
	Output workloads.Block
	// Stragglers slows attempts; nil slows none. Read and Write are the rates of each disk, by which it limits those
	// attempts; 0 for no limit.
	Stragglers  *jobs.Stragglers
	Read, Write units.Rate
	tracker.Settings
}

// tasks is the sub-machine of jobs of tasks. The tracker decides which attempts run and what they
// fetch; tasks carries this out through coflows, blocks and commands to hosts.
//
// An attempt reads its block as a coflow of one flow, or from its own disk, at the rate at which it
// computes. The fetches of the attempts of a stage are the flows of one open coflow. Outputs that its
// own host stores reach an attempt at once, as from the page cache.
//
// IDs of shuffles and of output blocks are the same under all policies, so that arms can be compared
// in pairs.
type tasks struct {
	*core
	*TaskConfig // nil for none
	tracker     *tracker.Tracker
	coflows     *coflows
	blocks      *blocks

	byID     map[jobs.JobID]*jobs.Job
	after    map[jobs.JobID][]jobs.JobID // the jobs that follow each
	thinking []thinking                  // by time
	shuffles map[shuffleID]workloads.CoflowID
	first    map[jobs.TaskID]workloads.BlockID // the first block that attempt 0 of a task writes
	stride   workloads.BlockID                 // from the blocks of an attempt to those of the next one
	running  map[jobs.AttemptID]*taskAttempt
	cached   bool                              // the input blocks are in memory
	shows    bool                              // the scheduler sees the progress of attempts
	reads    map[workloads.FlowID]*taskAttempt // transfers of input blocks
	local    map[workloads.FlowID]bool         // reads from a host's own disk, also those that were stopped
	flows    map[tracker.FetchID]workloads.FlowID
	fetchers map[workloads.FlowID]*taskAttempt // that fetch, if their progress is shown
	writes   map[workloads.BlockID]*taskAttempt
	served   map[jobs.JobID]map[jobs.AttemptID]units.Rate // at which hosts serve the outputs of stragglers
	events   []tracker.Event                              // that the tracker has not seen yet
	later    []later                                      // by time
}

// later are commands that have not reached their host yet: the start of an attempt with those about it that followed, or the
// stop of one.
type later struct {
	at     time.Duration
	starts bool
	id     jobs.AttemptID
	host   topo.HostID
	cmds   []tracker.Command
}

// thinking is a job that is submitted later, because the one that it follows has ended.
type thinking struct {
	at  time.Duration
	job jobs.JobID
}

// shuffleID identifies the stage that fetches.
type shuffleID struct {
	job   jobs.JobID
	stage int
}

// taskAttempt is what hosts do for an attempt.
type taskAttempt struct {
	tracker.StartAttempt
	task    *jobs.Task
	slow    jobs.Slowdown
	block   workloads.BlockID // the first that it writes
	reading bool
	read    workloads.FlowID // the newest transfer of its input block
	reads   int              // number of these transfers
	working bool             // its host has computed or spilled for it
	sorting bool             // Compute is the sort
	sort    time.Duration    // on an unloaded slot, without slow
	process time.Duration    // computing after the sort, the same
	unsaved int              // blocks that are not durable yet
	saved   []savedBlock     // blocks that are
	progress
}

// savedBlock is a durable block of an attempt that has not committed.
type savedBlock struct {
	blockEnded
	at time.Duration
}

func newTasks(shared *core, c *coflows, b *blocks) (tasks, error) {
	x := tasks{core: shared, TaskConfig: shared.cfg.Tasks, coflows: c, blocks: b,
		byID: map[jobs.JobID]*jobs.Job{}, after: map[jobs.JobID][]jobs.JobID{}, shuffles: map[shuffleID]workloads.CoflowID{}, first: map[jobs.TaskID]workloads.BlockID{},
		running: map[jobs.AttemptID]*taskAttempt{}, reads: map[workloads.FlowID]*taskAttempt{}, local: map[workloads.FlowID]bool{},
		fetchers: map[workloads.FlowID]*taskAttempt{}, flows: map[tracker.FetchID]workloads.FlowID{}, writes: map[workloads.BlockID]*taskAttempt{},
		served: map[jobs.JobID]map[jobs.AttemptID]units.Rate{}}
	if x.TaskConfig == nil {
		return x, nil
	}
	x.shows = x.Scheduler != nil && x.Scheduler.Needs().TaskProgress
	stored := map[workloads.BlockID][]topo.HostID{}
	sizes := map[workloads.BlockID]units.Bytes{}
	var errs []error
	for _, b := range x.Stored {
		x.cached = x.cached || b.Cached
		if stored[b.Block] != nil || len(b.Hosts) == 0 || b.Size <= 0 {
			errs = append(errs, fmt.Errorf("engine: input block %d of %v on hosts %v: must have a positive size and a host, and be listed once", b.Block, b.Size, b.Hosts))
		}
		stored[b.Block], sizes[b.Block] = b.Hosts, b.Size
	}
	for i := range x.Jobs {
		if err := x.number(&x.Jobs[i], sizes); err != nil {
			errs = append(errs, err)
		}
	}
	var watcher func(*policies.TaskView, *policies.Assignment)
	if o := x.core.cfg.Watcher; o != nil {
		watcher = o.Tasks
	}
	t, err := tracker.New(tracker.Config{Watcher: watcher, Fabric: x.core.cfg.Fabric, Scheduler: x.Scheduler, Slots: x.Slots, Resources: x.Resources, Space: x.Space,
		Blocks: stored, Cluster: x.cluster, Seed: x.core.cfg.Seed, Settings: x.Settings})
	x.tracker = t
	return x, errors.Join(append(errs, err)...)
}

// number assigns the IDs of a job's shuffles and output blocks, and checks its sizes.
func (x *tasks) number(j *jobs.Job, stored map[workloads.BlockID]units.Bytes) error {
	var errs []error
	if x.byID[j.ID] != nil {
		errs = append(errs, fmt.Errorf("engine: job %d occurs twice", j.ID))
	}
	if before := x.byID[j.After]; j.After != 0 {
		if before == nil || j.Submit < before.Submit {
			errs = append(errs, fmt.Errorf("engine: job %d follows job %d: must be one before it in the list, submitted earlier", j.ID, j.After))
		}
		x.after[j.After] = append(x.after[j.After], j.ID)
	}
	x.byID[j.ID] = j
	for s, st := range j.Stages {
		if len(st.From) > 0 {
			x.shuffles[shuffleID{j.ID, s}] = x.next.Coflow
			x.next.Coflow++
		}
		for i, task := range st.Tasks {
			if len(st.From) == 0 && task.InputSize > 0 && stored[task.Input] != task.InputSize {
				errs = append(errs, fmt.Errorf("engine: task %d of stage %d of job %d reads block %d of %v: hosts store %v of it", i, s, j.ID, task.Input, task.InputSize, stored[task.Input]))
			}
			if task.Writes == 0 {
				continue
			}
			if x.core.cfg.Placement == nil || x.Output.Size <= 0 {
				errs = append(errs, fmt.Errorf("engine: task %d of stage %d of job %d writes %v: this needs a placement policy and a positive size of blocks", i, s, j.ID, task.Writes))
				continue
			}
			x.first[jobs.TaskID{Job: j.ID, Stage: s, Index: i}] = x.next.Block + x.stride
			x.stride += workloads.BlockID((task.Writes + x.Output.Size - 1) / x.Output.Size)
		}
	}
	return errors.Join(errs...)
}

// markHost returns the host that marks the moments of a job.
func (x *tasks) markHost(id jobs.JobID) topo.HostID {
	return x.living(topo.HostID(workloads.Stream(x.core.cfg.Seed, "job", int(id)).IntN(len(x.hosts))))
}

func (x *tasks) note(evs ...tracker.Event) { x.events = append(x.events, evs...) }

// due reports whether the tracker has something to do now.
func (x *tasks) due() bool {
	return len(x.events) > 0 || x.nextWake() <= x.now
}

// nextWake returns the time at which the tracker must be called, or a job be submitted, even without events.
func (x *tasks) nextWake() time.Duration {
	if x.tracker == nil {
		return NextNever
	}
	wake := x.tracker.NextWake()
	if len(x.thinking) > 0 {
		wake = min(wake, x.thinking[0].at)
	}
	if len(x.later) > 0 {
		wake = min(wake, x.later[0].at)
	}
	return wake
}

// instance returns that of the scheduler; nil without jobs.
func (x *tasks) instance() policies.TaskInstance {
	if x.tracker == nil {
		return nil
	}
	return x.tracker.Instance()
}

// delay keeps commands back that have not reached their host, and reports whether it did. No command overtakes another.
func (x *tasks) delay(cmd tracker.Command) bool {
	add := func(after time.Duration, l later) bool {
		if l.at = x.now + after; len(x.later) > 0 {
			l.at = max(l.at, x.later[len(x.later)-1].at)
		}
		x.later = append(x.later, l)
		return true
	}
	// start returns the start of an attempt that has not reached its host; nil if it has.
	start := func(id jobs.AttemptID) *later {
		i := slices.IndexFunc(x.later, func(l later) bool { return l.starts && l.id == id })
		if i < 0 {
			return nil
		}
		return &x.later[i]
	}
	follows := func(id jobs.AttemptID) bool {
		l := start(id)
		if l != nil {
			l.cmds = append(l.cmds, cmd)
		}
		return l != nil
	}
	switch cmd := cmd.(type) {
	case tracker.StartAttempt:
		return (cmd.After > 0 || len(x.later) > 0) && add(cmd.After, later{starts: true, id: cmd.Attempt, host: cmd.Host, cmds: []tracker.Command{cmd}})
	case tracker.StopAttempt:
		if cmd.After > 0 {
			return add(cmd.After, later{host: cmd.Host, cmds: []tracker.Command{cmd}})
		}
		if l := start(cmd.Attempt); l != nil { // the host never knows of it
			l.starts, l.cmds = false, nil
		}
	case tracker.ReadFrom:
		if l := start(cmd.Attempt); l != nil {
			first := l.cmds[0].(tracker.StartAttempt)
			first.Source, first.Locality = cmd.Source, x.locality(cmd.Host, cmd.Source)
			l.cmds[0] = first
			return true
		}
	case tracker.StopFetch:
		for i := range x.later {
			x.later[i].cmds = slices.DeleteFunc(x.later[i].cmds, func(c tracker.Command) bool {
				f, ok := c.(tracker.StartFetch)
				return ok && f.ID == cmd.ID
			})
		}
	case tracker.StartFetch:
		return follows(cmd.Attempt)
	case tracker.InputFetched:
		return follows(cmd.Attempt)
	case tracker.Compute:
		return follows(cmd.Attempt)
	case tracker.WriteOutput:
		return follows(cmd.Attempt)
	}
	return false
}

// arrive carries out the commands that reach their hosts.
func (x *tasks) arrive() error {
	for len(x.later) > 0 && x.later[0].at <= x.now {
		l := x.later[0]
		x.later = x.later[1:]
		for _, cmd := range l.cmds {
			if err := x.carryOut(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// step submits the jobs that are due, lets the tracker process the events so far, and carries out its
// commands.
func (x *tasks) step() error {
	for ; len(x.thinking) > 0 && x.thinking[0].at <= x.now; x.thinking = x.thinking[1:] {
		if err := x.jobArrived(x.thinking[0].job); err != nil {
			return err
		}
	}
	evs := x.events
	x.events = nil
	cmds, err := x.tracker.Step(x.now, evs...)
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if err := x.do(cmd); err != nil {
			return err
		}
	}
	return x.arrive() // after what the tracker makes of the events: a start may read from a host that is lost
}

// do carries out a command, now or when it reaches its host.
func (x *tasks) do(cmd tracker.Command) error {
	if x.delay(cmd) {
		return nil
	}
	return x.carryOut(cmd)
}

// carryOut carries out a command. Some are about attempts that have failed, of which the tracker does not
// know yet.
func (x *tasks) carryOut(cmd tracker.Command) error {
	switch cmd := cmd.(type) {
	case tracker.Decided:
		x.command(Decided{TaskRole, cmd.Answer, cmd.Latency})
	case tracker.StartAttempt:
		return x.start(cmd)
	case tracker.ReadFrom:
		if a := x.running[cmd.Attempt]; a != nil {
			x.stopReading(a)
			return x.readFrom(a, cmd.Source)
		}
	case tracker.StartFetch:
		return x.fetch(cmd)
	case tracker.StopFetch:
		if flow, ok := x.flows[cmd.ID]; ok {
			x.forget(cmd.ID, flow)
			x.coflows.stop(flow, "its attempt has ended, or its outputs are lost")
		}
	case tracker.InputFetched:
		if a := x.running[cmd.Attempt]; a != nil {
			x.mark(a, wire.InputComplete, cmd.Size, "")
		}
	case tracker.Compute:
		if a := x.running[cmd.Attempt]; a != nil {
			x.compute(a, cmd.Size)
		}
	case tracker.WriteOutput:
		if a := x.running[cmd.Attempt]; a != nil {
			return x.write(a, cmd.Size)
		}
	case tracker.Commit:
		a := x.running[cmd.Attempt]
		delete(x.running, cmd.Attempt)
		x.mark(a, wire.AttemptCommitted, 0, "")
	case tracker.Copied:
		a := x.running[cmd.Attempt]
		delete(x.running, cmd.Attempt)
		x.discardSaved(a)
		x.mark(a, wire.AttemptCopied, 0, "")
	case tracker.StopAttempt:
		x.stopped(cmd)
	case tracker.DropOutputs:
		x.command(DropOutputs{Job: cmd.Job})
	case tracker.JobDone:
		x.endJob(cmd.Job, wire.JobDone, "")
	case tracker.JobFailed:
		x.endJob(cmd.Job, wire.JobFailed, cmd.Why)
	}
	return nil
}

// jobArrived submits a job.
func (x *tasks) jobArrived(id jobs.JobID) error {
	j := x.byID[id]
	if j == nil {
		return fmt.Errorf("job %d arrived: it is not one of the run", id)
	}
	m := MarkTask{Moment: wire.JobSubmitted, Host: x.markHost(id), User: j.User, Profile: j.Profile}
	m.Attempt.Task.Job = id
	for _, st := range j.Stages {
		m.Parts += len(st.Tasks)
		for _, t := range st.Tasks {
			m.Size += t.InputSize
		}
	}
	x.command(m)
	x.note(tracker.JobSubmitted{Job: j})
	return nil
}

// endJob closes what is left of a job, and lets those that follow it think. All its attempts have ended.
func (x *tasks) endJob(id jobs.JobID, how wire.Moment, why string) {
	for s := range x.byID[id].Stages {
		if c, ok := x.shuffles[shuffleID{id, s}]; ok && x.coflows.open[c] != nil {
			x.coflows.closed(c)
		}
	}
	m := MarkTask{Moment: how, Host: x.markHost(id), Why: why}
	m.Attempt.Task.Job = id
	x.command(m, DropOutputs{Job: id})
	delete(x.served, id)
	for _, next := range x.after[id] {
		t := thinking{x.now + x.byID[next].Submit - x.byID[id].Submit, next}
		at, _ := slices.BinarySearchFunc(x.thinking, t, func(a, b thinking) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.job, b.job)) })
		x.thinking = slices.Insert(x.thinking, at, t)
	}
}

// mark marks a moment of an attempt. size is that of its input.
func (x *tasks) mark(a *taskAttempt, m wire.Moment, size units.Bytes, why string) {
	x.command(MarkTask{Moment: m, Host: x.living(a.Host), Attempt: a.Attempt, Kind: a.Kind, Locality: a.Locality, Reads: a.Source >= 0, Size: size, Why: why})
}

func (x *tasks) start(cmd tracker.StartAttempt) error {
	id := cmd.Attempt
	st := &x.byID[id.Task.Job].Stages[id.Task.Stage]
	a := &taskAttempt{StartAttempt: cmd, task: &st.Tasks[id.Task.Index], slow: x.Stragglers.Of(x.core.cfg.Seed, id, cmd.Host, x.now), block: x.first[id.Task] + x.stride*workloads.BlockID(id.N)}
	x.running[id] = a
	x.mark(a, wire.AttemptStarted, cmd.Size, "")
	switch {
	case cmd.Source >= 0:
		return x.readFrom(a, cmd.Source)
	case len(st.From) == 0: // it has no input
		x.inputRead(a)
	}
	return nil
}

// readFrom starts the transfer of an attempt's input block.
func (x *tasks) readFrom(a *taskAttempt, source topo.HostID) error {
	id := a.Attempt
	a.Source, a.Locality = source, x.locality(a.Host, source)
	block := a.Input
	ids := x.assign()
	a.read, a.reading = ids.Flow, true
	a.arriving = nil
	a.reads++
	x.reads[a.read] = a
	task := x.consumption(a)
	if source == a.Host {
		x.local[a.read] = true
		x.command(ReadDisk{ID: a.read, Host: a.Host, Block: block, Size: a.Size, Task: task})
		return nil
	}
	hash := taskHash(x.core.cfg.Seed, "task-read", id, a.reads)
	return x.coflows.arrived(workloads.Coflow{ID: ids.Coflow, Flows: []workloads.Flow{{ID: a.read, Src: source, Dst: a.Host, Size: a.Size}}},
		origin{hash: hash, read: &block, task: task})
}

// consumption returns the rates at which an attempt consumes its input block. An attempt that is slowed has a slow disk too.
func (x *tasks) consumption(a *taskAttempt) *TaskTransfer {
	t := &TaskTransfer{Attempt: a.Attempt, Rate: a.task.Rate}
	if a.slow.Factor == 1 {
		return t
	}
	if x.Read > 0 && !x.cached && (t.Rate == 0 || t.Rate > x.Read) {
		t.Rate = x.Read
	}
	switch onset := units.Bytes(a.slow.Onset * float64(a.Size)); {
	case t.Rate == 0:
	case onset == 0:
		t.Rate = a.slow.Rate(t.Rate)
	default:
		t.Onset, t.Slow = onset, a.slow.Rate(t.Rate)
	}
	return t
}

func (x *tasks) locality(of, from topo.HostID) policies.Locality {
	switch f := x.core.cfg.Fabric; {
	case of == from:
		return policies.NodeLocal
	case f.RackOf(of) == f.RackOf(from):
		return policies.RackLocal
	}
	return policies.OffRack
}

// taskHash selects the path of a transfer of an attempt. Like those of readers, these flows get their
// IDs during the run, so that no draw may be keyed by them.
func taskHash(seed uint64, purpose string, id jobs.AttemptID, more ...int) func(workloads.FlowID) uint32 {
	key := append(make([]int, 0, 8), int(id.Task.Job), id.Task.Stage, id.Task.Index, id.N)
	hash := max(1, workloads.Stream(seed, purpose, append(key, more...)...).Uint32())
	return func(workloads.FlowID) uint32 { return hash }
}

// stopReading ends the transfer of an attempt's input block, if it runs.
func (x *tasks) stopReading(a *taskAttempt) {
	if !a.reading {
		return
	}
	a.reading = false
	delete(x.reads, a.read)
	if x.local[a.read] {
		x.command(StopRead{ID: a.read, Host: a.Host})
	} else {
		x.coflows.stop(a.read, "its attempt has ended, or reads elsewhere")
	}
}

// knows reports whether a flow is or was a read from the own disk of an attempt's host.
func (x *tasks) knows(id workloads.FlowID) bool { return x.local[id] }

// readEnded ends a transfer of an input block. Tracker and backend know themselves which transfers
// ended with a lost host.
func (x *tasks) readEnded(id workloads.FlowID, failed bool, why string) {
	a := x.reads[id]
	if a == nil {
		return // it has been stopped
	}
	delete(x.reads, id)
	a.reading = false
	switch {
	case x.lostOf(a.Host) >= 0: // reported at the same moment
	case !failed:
		x.inputRead(a)
	case x.lostOf(a.Source) < 0:
		x.note(tracker.ReadFailed{Attempt: a.Attempt, Why: why})
	}
}

// inputRead ends the computing of an attempt that has consumed its input block, or has none.
func (x *tasks) inputRead(a *taskAttempt) {
	a.got, a.arriving = a.Size, nil
	x.mark(a, wire.InputComplete, a.Size, "")
	x.note(tracker.InputRead{Attempt: a.Attempt})
	x.computed(a)
}

// computed ends the computing of an attempt.
func (x *tasks) computed(a *taskAttempt) {
	a.computed = true
	x.mark(a, wire.Computed, 0, "")
	x.note(tracker.ComputeDone{Attempt: a.Attempt})
	var size units.Bytes
	for _, n := range a.task.Output {
		size += n
	}
	switch {
	case size > 0:
		a.working = true
		spill := SpillOutput{Attempt: a.Attempt, Host: a.Host, Size: size}
		if x.Write > 0 && a.slow.Factor > 1 {
			spill.Rate = a.slow.Rate(x.Write)
		}
		x.command(spill)
		x.serveSlowly(a)
	case len(a.task.Output) > 0:
		x.note(tracker.OutputSpilled{Attempt: a.Attempt})
	}
}

// serveSlowly limits the rate at which the host of a straggler serves its output.
func (x *tasks) serveSlowly(a *taskAttempt) {
	if !a.slow.Straggles || x.Read <= 0 {
		return
	}
	job := a.Attempt.Task.Job
	if x.served[job] == nil {
		x.served[job] = map[jobs.AttemptID]units.Rate{}
	}
	x.served[job][a.Attempt] = a.slow.Rate(x.Read)
}

// servedAt returns the rate at which a host serves outputs one after another; 0 for no limit.
func (x *tasks) servedAt(outputs []tracker.Output) units.Rate {
	var size units.Bytes
	var takes time.Duration
	for _, o := range outputs {
		size += o.Size
		if r := x.served[o.Attempt.Task.Job][o.Attempt]; r > 0 {
			takes += min(r.TimeToSend(o.Size), NextNever/2-takes)
		}
	}
	if takes == 0 {
		return 0
	}
	return max(1, units.RateOf(size, takes))
}

// fetch starts a flow of a shuffle.
func (x *tasks) fetch(cmd tracker.StartFetch) error {
	if cmd.Source == cmd.Host {
		x.running[cmd.Attempt].fetched(cmd.Size)
		x.note(tracker.FetchEnded{ID: cmd.ID})
		return nil
	}
	id := cmd.Attempt
	shuffle := x.shuffles[shuffleID{id.Task.Job, id.Task.Stage}]
	if x.coflows.open[shuffle] == nil {
		x.coflows.opened(shuffle, cmd.Host)
	}
	flow := x.next.Flow
	x.next.Flow++
	x.flows[cmd.ID] = flow
	if x.shows {
		x.fetchers[flow] = x.running[id]
	}
	from := cmd.Outputs[0].Attempt
	hash := taskHash(x.core.cfg.Seed, "task-fetch", id, from.Task.Stage, from.Task.Index, from.N)
	return x.coflows.join(shuffle, workloads.Flow{ID: flow, Src: cmd.Source, Dst: cmd.Host, Size: cmd.Size},
		origin{hash: hash, fetch: cmd.ID, task: &TaskTransfer{Attempt: id, From: &from, Outputs: len(cmd.Outputs), Served: x.servedAt(cmd.Outputs)}})
}

func (x *tasks) forget(id tracker.FetchID, flow workloads.FlowID) {
	if a := x.fetchers[flow]; a != nil {
		delete(a.arriving, flow)
		delete(x.fetchers, flow)
	}
	delete(x.flows, id)
}

// flowEnded ends a transfer from another host.
func (x *tasks) flowEnded(n flowEnded) {
	if n.fetch == 0 {
		x.readEnded(n.id, n.failed, n.why)
		return
	}
	id := n.fetch
	if _, runs := x.flows[id]; !runs {
		return // it has been stopped
	}
	fetcher := x.fetchers[n.id]
	x.forget(id, n.id)
	switch {
	case !n.failed:
		fetcher.fetched(n.size)
		x.note(tracker.FetchEnded{ID: id})
	case x.lostOf(n.src, n.dst) < 0:
		x.note(tracker.FetchFailed{ID: id, Why: n.why})
	}
}

// compute sorts and processes the outputs that an attempt has fetched.
func (x *tasks) compute(a *taskAttempt, size units.Bytes) {
	x.mark(a, wire.ComputeStarted, size, "")
	a.sort, a.process = timeFor(a.task.SortRate, size), timeFor(a.task.Rate, size)
	if a.sort > 0 {
		a.sorting = true
		x.computePart(a)
		return
	}
	x.sorted(a)
}

// sorted lets an attempt process what it has sorted. It writes its output meanwhile.
func (x *tasks) sorted(a *taskAttempt) {
	a.sorting, a.share, a.processing = false, 0, true
	x.note(tracker.OutputBegun{Attempt: a.Attempt})
	if a.process == 0 {
		x.computed(a)
		return
	}
	x.computePart(a)
}

// computePart lets an attempt sort, or process what it has sorted.
func (x *tasks) computePart(a *taskAttempt) {
	a.working, a.share = true, 0
	x.command(Compute{Attempt: a.Attempt, Host: a.Host, Time: a.slow.Takes(a.part())})
}

// part returns the work before the current Compute of an attempt, of this and of both, on an unloaded slot.
func (a *taskAttempt) part() (before, current, all time.Duration) {
	all = a.sort + a.process
	if a.sorting {
		return 0, a.sort, all
	}
	return a.sort, a.process, all
}

// timeFor returns the time to process some bytes; 0 at rate 0, which is no limit.
func timeFor(r units.Rate, n units.Bytes) time.Duration {
	if r <= 0 {
		return 0
	}
	return r.TimeToSend(n)
}

// taskComputed ends a Compute. The attempt may have ended in the meantime.
func (x *tasks) taskComputed(ev TaskComputed) {
	switch a := x.running[ev.Attempt]; {
	case a == nil:
	case a.sorting:
		x.sorted(a)
	default:
		x.computed(a)
	}
}

func (x *tasks) outputSpilled(ev OutputSpilled) {
	if x.running[ev.Attempt] != nil {
		x.note(tracker.OutputSpilled{Attempt: ev.Attempt})
	}
}

// taskFailed ends an attempt that its host cannot continue.
func (x *tasks) taskFailed(id jobs.AttemptID, why string) {
	a := x.running[id]
	if a == nil {
		return
	}
	x.drop(a, wire.AttemptFailed, why)
	// It must not commit by what was reported before.
	x.events = slices.DeleteFunc(x.events, func(ev tracker.Event) bool {
		switch ev := ev.(type) {
		case tracker.ComputeDone:
			return ev.Attempt == id
		case tracker.OutputSpilled:
			return ev.Attempt == id
		case tracker.OutputWritten:
			return ev.Attempt == id
		}
		return false
	})
	x.note(tracker.AttemptFailed{Attempt: id, Why: why})
}

// write writes the replicated output of an attempt, block by block.
func (x *tasks) write(a *taskAttempt, size units.Bytes) error {
	w := workloads.Writer{Client: a.Host}
	for id := a.block; size > 0; id++ {
		b := x.Output
		b.ID, b.Client, b.Size = id, a.Host, min(size, b.Size)
		size -= b.Size
		w.Blocks = append(w.Blocks, b)
		x.writes[id] = a
	}
	a.unsaved = len(w.Blocks)
	return x.blocks.writerArrived(w)
}

// writerOf returns the attempt that writes a block, its zero value for none.
func (x *tasks) writerOf(id workloads.BlockID) (attempt jobs.AttemptID) {
	if a := x.writes[id]; a != nil {
		attempt = a.Attempt
	}
	return attempt
}

// blockEnded counts a block of an attempt.
func (x *tasks) blockEnded(n blockEnded) {
	a := x.writes[n.id]
	if a == nil {
		return
	}
	delete(x.writes, n.id)
	if !n.failed {
		a.saved = append(a.saved, savedBlock{n, x.now})
	}
	switch a.unsaved--; {
	case n.failed:
		if x.lostOf(a.Host) < 0 {
			x.taskFailed(a.Attempt, fmt.Sprintf("output block %d could not be written", n.id))
		}
	case a.unsaved == 0:
		x.note(tracker.OutputWritten{Attempt: a.Attempt})
	}
}

// stopped ends an attempt that the tracker stops.
func (x *tasks) stopped(cmd tracker.StopAttempt) {
	if a := x.running[cmd.Attempt]; a != nil {
		how := wire.AttemptKilled
		if cmd.Failed {
			how = wire.AttemptFailed
		}
		x.drop(a, how, cmd.Why)
	}
	x.note(tracker.AttemptStopped{Attempt: cmd.Attempt})
}

// drop ends an attempt that was killed or failed, and all that hosts do for it, and deletes the blocks that
// it has written.
func (x *tasks) drop(a *taskAttempt, how wire.Moment, why string) {
	delete(x.running, a.Attempt)
	x.stopReading(a)
	if a.working {
		x.command(StopTask{Attempt: a.Attempt, Host: a.Host})
	}
	for i := range a.task.Writes/max(1, x.Output.Size) + 1 {
		if id := a.block + workloads.BlockID(i); x.writes[id] == a {
			delete(x.writes, id)
			x.blocks.stop(id)
		}
	}
	x.discardSaved(a)
	x.mark(a, how, 0, why)
}

// discardSaved deletes the blocks that an attempt has written, and that are not those of its task.
func (x *tasks) discardSaved(a *taskAttempt) {
	for _, b := range a.saved {
		x.blocks.discard(b.id, b.size, b.hosts, b.at)
	}
}

// hostEnded informs the tracker that everything on a host is lost. It precedes what other machines
// report about it.
func (x *tasks) hostEnded(n hostEnded) {
	if x.tracker == nil {
		return
	}
	x.note(tracker.HostLost{Host: n.host})
	for i := range x.later { // what has not reached the host never will
		l := &x.later[i]
		if l.host != n.host {
			continue
		}
		if !l.starts {
			for _, cmd := range l.cmds {
				x.stopped(cmd.(tracker.StopAttempt))
			}
		}
		l.starts, l.cmds = false, nil
	}
}
