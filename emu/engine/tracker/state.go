package tracker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// job is an unfinished job, or one that has ended while its attempts are being stopped.
type job struct {
	*jobs.Job
	at      time.Duration // of its submission
	place   int           // index into Tracker.order, view.Jobs and view.Counts; -1 if it is not in them yet
	count   policies.TaskCount
	stages  []*stage
	over    bool
	shuffle *policies.ShuffleState // that schedulers see; nil if they need none
	// evicted marks a job that launches nothing until another has ended.
	evicted bool
}

// stage is a stage of a job. Its state for schedulers is state, which is updated by refresh.
type stage struct {
	job   *job
	index int
	*jobs.Stage
	tasks []task
	count [3]int // of tasks, by status
	lost  int    // tasks that are done, but whose output is lost
	state *policies.StageState
	shown int // tasks that may be launched

	// above are all stages on which this one depends, and below those that depend on it, also
	// through others; to are those that fetch from it.
	above, below, to []*stage
	// chained marks a stage whose attempts could block the slots that an earlier stage needs: it
	// fetches from a stage of its kind, or from one that fetches.
	chained bool

	replicas       [][]topo.HostID // of each task's input, of a stage that reads
	byHost, byRack []bucket
	first          int32 // no earlier task is pending

	need     []int    // tasks of each stage of From whose outputs a task fetches
	base     []int    // by stage of From: the number of outputs of those before it
	offset   []int    // by stage of From: where jobs.Task.Output is for the first task
	outputs  int      // that a task fetches
	sources  []source // hosts that have outputs
	bySource map[topo.HostID]int32
	copying  []*attempt // attempts that fetch, by launch
	choosing bool       // some outputs have had copies

	rates  []observed // of ended attempts, until all tasks are done
	median float64    // of these rates
}

type status uint8

const (
	pending status = iota
	running
	done
)

// task is the state of a task.
type task struct {
	status     status
	launched   int32      // attempts so far
	failures   int32      // attempts that failed
	outputCopy            // the output of the attempt that was committed; at is -1 if no host has it
	copies     *copies    // nil if there are no further ones, and no attempt makes them
	attempts   []*attempt // that run and are not being stopped, by launch
}

// id returns the ID of a task.
func (st *stage) id(i int32) jobs.TaskID {
	return jobs.TaskID{Job: st.job.ID, Stage: st.index, Index: int(i)}
}

func (st *stage) fetches() bool { return len(st.From) > 0 }

// submitted adds a job.
func (t *Tracker) submitted(spec *jobs.Job) error {
	if spec == nil {
		return errors.New("job submitted: it is missing")
	}
	if t.jobs[spec.ID] != nil || t.ended[spec.ID] {
		return fmt.Errorf("job %d has already been submitted", spec.ID)
	}
	if err := t.check(spec); err != nil {
		return err
	}
	j := &job{Job: spec, at: t.now, place: -1, stages: make([]*stage, len(spec.Stages))}
	user, known := t.users[j.User]
	if !known {
		user = len(t.users)
		t.users[j.User], t.view.Users = user, user+1
	}
	j.count.User = user
	states := make([]policies.StageState, len(spec.Stages))
	for s := range spec.Stages {
		j.stages[s] = t.newStage(j, s, &states[s])
	}
	for _, st := range j.stages {
		for _, up := range st.above {
			up.below = append(up.below, st)
		}
		t.index(st)
		t.refresh(st)
	}
	j.shuffle = t.shuffleOf(j, t.needs)
	at, _ := slices.BinarySearchFunc(t.order, j, func(a, b *job) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ID, b.ID)) })
	t.order = slices.Insert(t.order, at, j)
	t.view.Jobs = slices.Insert(t.view.Jobs, at, policies.TaskJob{ID: j.ID, User: j.User, Priority: j.Priority, Profile: j.Profile, Submit: t.now,
		Input: inputOf(spec), Stages: states, Shuffle: j.shuffle})
	t.view.Counts = slices.Insert(t.view.Counts, at, j.count)
	t.renumber(at)
	t.jobs[j.ID] = j
	return nil
}

// inputOf returns the size of all blocks that the tasks of a job read.
func inputOf(j *jobs.Job) (sum units.Bytes) {
	for s := range j.Stages {
		if len(j.Stages[s].From) > 0 {
			continue
		}
		for i := range j.Stages[s].Tasks {
			sum += j.Stages[s].Tasks[i].InputSize
		}
	}
	return sum
}

// check returns all errors of a job.
func (t *Tracker) check(j *jobs.Job) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("job %d: "+format, append([]any{j.ID}, args...)...))
	}
	if len(j.Stages) == 0 {
		bad("it has no stages")
	}
	outputs := make([]int, len(j.Stages)) // that a task of each stage has
	for s := range j.Stages {
		st := &j.Stages[s]
		for i, from := range st.From {
			if from < 0 || from >= s || slices.Contains(st.From[:i], from) {
				bad("stage %d fetches from stage %d: must be an earlier stage, named once", s, from)
				continue
			}
			outputs[from] += len(st.Tasks)
		}
		if len(st.Tasks) == 0 {
			bad("stage %d has no tasks", s)
		}
		if st.Kind < 0 || st.Kind >= jobs.TaskKinds {
			bad("stage %d: unknown kind %d", s, st.Kind)
		} else if t.limits.Running[st.Kind] == 0 {
			bad("stage %d: no host has slots of kind %d", s, st.Kind)
		}
	}
	for s := range j.Stages {
		for i := range j.Stages[s].Tasks {
			k := &j.Stages[s].Tasks[i]
			if len(k.Output) != outputs[s] {
				bad("task %d.%d has %d outputs: must have %d", s, i, len(k.Output), outputs[s])
			}
			if k.InputSize < 0 || k.Writes < 0 || k.Need.CPU < 0 || k.Need.Memory < 0 || slices.ContainsFunc(k.Output, func(b units.Bytes) bool { return b < 0 }) {
				bad("task %d.%d has a negative size", s, i)
			}
			if len(j.Stages[s].From) > 0 || k.InputSize <= 0 {
				continue
			}
			replicas := t.cfg.Blocks[k.Input]
			if len(replicas) == 0 {
				bad("task %d.%d: its input block %d has no replica", s, i, k.Input)
			}
			for _, h := range replicas {
				if !t.known(h) {
					bad("task %d.%d: its input block %d is on host %d, which is not of the fabric", s, i, k.Input, h)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// newStage returns a stage of a job, whose earlier stages exist.
func (t *Tracker) newStage(j *job, s int, state *policies.StageState) *stage {
	spec := &j.Job.Stages[s]
	st := &stage{job: j, index: s, Stage: spec, tasks: make([]task, len(spec.Tasks)), state: state}
	st.count[pending] = len(spec.Tasks)
	state.Kind, state.Tasks, state.Anywhere = spec.Kind, len(spec.Tasks), st.fetches()
	if t.cfg.Evict != NoEviction && t.cfg.Space > 0 {
		state.Output = largestOutput(spec)
	}
	for i := range spec.Tasks {
		need := spec.Tasks[i].Need
		state.Need.CPU = max(state.Need.CPU, need.CPU)
		if !st.fetches() || !t.limits.ByMemory {
			state.Need.Memory = max(state.Need.Memory, need.Memory)
		}
		st.tasks[i].at = -1
	}
	for _, from := range spec.From {
		up := j.stages[from]
		offset := 0
		for _, other := range up.to {
			offset += len(other.tasks)
		}
		st.offset = append(st.offset, offset)
		up.to = append(up.to, st)
		st.need = append(st.need, t.slowstart(len(up.tasks)))
		st.base = append(st.base, st.outputs)
		st.outputs += len(up.tasks)
		state.Outputs += spec.Pattern.Most(len(up.tasks), len(st.tasks))
		st.chained = st.chained || up.Kind == st.Kind || up.fetches()
		for _, up := range append(slices.Clone(up.above), up) {
			if !slices.Contains(st.above, up) {
				st.above = append(st.above, up)
			}
		}
	}
	if st.fetches() {
		st.bySource = map[topo.HostID]int32{}
		return st
	}
	st.replicas = make([][]topo.HostID, len(spec.Tasks))
	for i := range spec.Tasks {
		if spec.Tasks[i].InputSize > 0 {
			st.replicas[i] = t.cfg.Blocks[spec.Tasks[i].Input]
		}
	}
	return st
}

// slowstart returns the number of n tasks that must be done before their outputs are fetched. A
// product that exceeds a whole number by a rounding error counts as that number.
func (t *Tracker) slowstart(n int) int {
	return int(math.Ceil(float64(t.cfg.Slowstart*float64(n)) - 1e-9))
}

// mayBegin reports whether tasks of a stage may be launched.
func (st *stage) mayBegin() bool {
	for i, from := range st.From {
		if st.job.stages[from].count[done] < st.need[i] {
			return false
		}
	}
	return !st.blocked() && !st.job.evicted
}

// blocked reports whether attempts of a chained stage would wait for tasks that have no slot. If they
// were on the last slots, these tasks would never run.
func (st *stage) blocked() bool {
	return st.chained && slices.ContainsFunc(st.above, func(up *stage) bool { return up.count[pending] > 0 })
}

// set changes the status of a task.
func (t *Tracker) set(st *stage, i int32, to status) {
	k := &st.tasks[i]
	from := k.status
	if from == to {
		return
	}
	k.status = to
	st.count[from]--
	st.count[to]++
	if from == pending {
		t.unpend(st, i)
	} else if to == pending {
		t.pend(st, i)
	}
	t.refresh(st)
	for _, later := range st.below {
		t.refresh(later)
	}
}

// refresh updates what schedulers see of a stage.
func (t *Tracker) refresh(st *stage) {
	shown := 0
	if !st.job.over && st.mayBegin() {
		shown = st.count[pending]
	}
	t.launchable[st.Kind] += shown - st.shown
	c := &st.job.count
	c.Pending[st.Kind] += shown - st.shown
	c.Running[st.Kind] += st.count[running] - st.state.Running
	if st.job.place >= 0 && !st.job.over {
		t.view.Counts[st.job.place] = *c
	}
	st.shown = shown
	st.state.Done, st.state.Running, st.state.Waiting = st.count[done], st.count[running], st.count[pending]
	st.state.Pending = [policies.Localities]int{policies.OffRack: shown}
}

// renumber updates the places of the jobs from one on.
func (t *Tracker) renumber(from int) {
	for i := from; i < len(t.order); i++ {
		t.order[i].place = i
	}
}

// endJob removes a job and stops all its attempts, because of why. Its outputs are no longer needed.
func (t *Tracker) endJob(j *job, why string) {
	for _, st := range j.stages {
		for i := range st.tasks {
			t.stopAll(&st.tasks[i], why)
			t.dropCopies(st, int32(i))
		}
	}
	j.over = true
	for _, st := range j.stages {
		t.refresh(st)
		t.unindex(st)
	}
	t.order = slices.Delete(t.order, j.place, j.place+1)
	t.view.Jobs = slices.Delete(t.view.Jobs, j.place, j.place+1)
	t.view.Counts = slices.Delete(t.view.Counts, j.place, j.place+1)
	t.renumber(j.place)
	delete(t.jobs, j.ID)
	t.ended[j.ID] = true
	t.readmit()
}

// failJob gives up a job.
func (t *Tracker) failJob(j *job, why string) {
	if !j.over {
		t.endJob(j, "its job failed")
		t.command(JobFailed{Job: j.ID, Why: why})
	}
}

// endIfDone ends a job if all stages from which no other fetches are done.
func (t *Tracker) endIfDone(j *job) {
	for _, st := range j.stages {
		if len(st.to) == 0 && st.count[done] < len(st.tasks) {
			return
		}
	}
	for _, st := range j.stages {
		if j.Profile != "" && st.Kind == jobs.Map && !st.fetches() {
			c := t.view.EndedProfiles[j.Profile]
			c.Add(st.state.Consumption)
			t.view.EndedProfiles[j.Profile] = c
		}
	}
	t.endJob(j, "its job is done")
	t.command(JobDone{Job: j.ID})
}

// outputOf returns the size of a task's output for later stages.
func outputOf(k *jobs.Task) (sum units.Bytes) {
	for _, b := range k.Output {
		sum += b
	}
	return sum
}
