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
	orders   transit[order]                               // of the scheduler, to hosts
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
	x := tasks{
		core: shared, TaskConfig: shared.cfg.Tasks, coflows: c, blocks: b,
		byID:     map[jobs.JobID]*jobs.Job{},
		after:    map[jobs.JobID][]jobs.JobID{},
		shuffles: map[shuffleID]workloads.CoflowID{},
		first:    map[jobs.TaskID]workloads.BlockID{},
		running:  map[jobs.AttemptID]*taskAttempt{},
		reads:    map[workloads.FlowID]*taskAttempt{},
		local:    map[workloads.FlowID]bool{},
		flows:    map[tracker.FetchID]workloads.FlowID{},
		fetchers: map[workloads.FlowID]*taskAttempt{},
		writes:   map[workloads.BlockID]*taskAttempt{},
		served:   map[jobs.JobID]map[jobs.AttemptID]units.Rate{},
	}
	if x.TaskConfig == nil {
		return x, nil
	}
	x.shows = x.Scheduler != nil && x.Scheduler.Needs().Has(policies.TaskProgress)
	stored := map[workloads.BlockID][]topo.HostID{}
	sizes := map[workloads.BlockID]units.Bytes{}
	var errs []error
	for _, b := range x.Stored {
		x.cached = x.cached || b.Cached
		if stored[b.Block] != nil || len(b.Hosts) == 0 || b.Size <= 0 {
			errs = append(errs, fmt.Errorf(
				"engine: input block %d of %v on hosts %v: must have a positive size and a host, and be listed once",
				b.Block, b.Size, b.Hosts))
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
	t, err := tracker.New(tracker.Config{
		Watcher:   watcher,
		Fabric:    x.core.cfg.Fabric,
		Scheduler: x.Scheduler,
		Name:      x.core.policy("tasks"),
		Slots:     x.Slots,
		Resources: x.Resources,
		Space:     x.Space,
		Blocks:    stored,
		Cluster:   x.cluster,
		Seed:      x.core.cfg.Seed,
		Settings:  x.Settings,
	})
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
			errs = append(errs, fmt.Errorf(
				"engine: job %d follows job %d: must be one before it in the list, submitted earlier", j.ID, j.After))
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
				errs = append(errs, fmt.Errorf(
					"engine: task %d of stage %d of job %d reads block %d of %v: hosts store %v of it",
					i, s, j.ID, task.Input, task.InputSize, stored[task.Input]))
			}
			if task.Writes == 0 {
				continue
			}
			if x.core.cfg.Placement == nil || x.Output.Size <= 0 {
				errs = append(errs, fmt.Errorf(
					"engine: task %d of stage %d of job %d writes %v: this needs a placement policy and a positive size "+
						"of blocks",
					i, s, j.ID, task.Writes))
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
	return min(wake, x.orders.next())
}

// instance returns that of the scheduler; nil without jobs.
func (x *tasks) instance() policies.TaskInstance {
	if x.tracker == nil {
		return nil
	}
	return x.tracker.Instance()
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
		at, _ := slices.BinarySearchFunc(x.thinking, t, func(a, b thinking) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.job, b.job))
		})
		x.thinking = slices.Insert(x.thinking, at, t)
	}
}

// mark marks a moment of an attempt. size is that of its input.
func (x *tasks) mark(a *taskAttempt, m wire.Moment, size units.Bytes, why string) {
	x.command(MarkTask{
		Moment:   m,
		Host:     x.living(a.Host),
		Attempt:  a.Attempt,
		Kind:     a.Kind,
		Locality: a.Locality,
		Reads:    a.Source >= 0,
		Size:     size,
		Why:      why,
	})
}

func (x *tasks) start(cmd tracker.StartAttempt) error {
	id := cmd.Attempt
	st := &x.byID[id.Task.Job].Stages[id.Task.Stage]
	a := &taskAttempt{
		StartAttempt: cmd,
		task:         &st.Tasks[id.Task.Index],
		slow:         x.Stragglers.Of(x.core.cfg.Seed, id, cmd.Host, x.now),
		block:        x.first[id.Task] + x.stride*workloads.BlockID(id.N),
	}
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
