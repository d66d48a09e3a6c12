package flows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
)

// TaskMoment is a moment of a job of tasks or of an attempt, as a mark on the wire or the engine
// states it.
type TaskMoment struct {
	wire.Moment
	At                   time.Duration
	Job                  workloads.JobID
	Stage, Task, Attempt int
	Host                 string
	Kind                 string      // MapTask or ReduceTask
	Locality             string      // "" for an attempt that reads no block
	Size                 units.Bytes // of the input of the job or attempt
	Why                  string      // reason of a failure or kill
	// Of the job, when it is submitted.
	Tasks         int
	User, Profile string
}

// id orders attempts.
func (m TaskMoment) id() [4]int { return [4]int{int(m.Job), m.Stage, m.Task, m.Attempt} }

// name describes the subject of a moment.
func (m TaskMoment) name() string {
	if m.OfJob() {
		return fmt.Sprintf("job %d", m.Job)
	}
	return fmt.Sprintf("attempt %d of task %d of stage %d of job %d", m.Attempt, m.Task, m.Stage, m.Job)
}

// AddTasks adds the records of jobs and attempts that have ended, from their moments in order of time,
// the failures of jobs, and the problems of moments that do not fit together.
func (r *Records) AddTasks(moments []TaskMoment) {
	var t TaskRecorder
	for _, m := range moments {
		t.Add(r, m)
	}
	t.End(r)
}

// TaskRecorder turns moments of jobs of tasks into records one by one, as AddTasks does: a day of a
// cluster has a million. Its zero value is ready.
type TaskRecorder struct {
	jobs     map[workloads.JobID]*JobRecord
	attempts map[[4]int]*runningAttempt // all that have begun; those that have ended map to ended
	ended    runningAttempt
}

// runningAttempt is an attempt with the moments that it has had.
type runningAttempt struct {
	AttemptRecord
	seen [wire.Moments]bool
}

// Add adds a moment, which is not before the previous one.
func (t *TaskRecorder) Add(r *Records, m TaskMoment) {
	problemf := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	if t.jobs == nil {
		t.jobs, t.attempts = map[workloads.JobID]*JobRecord{}, map[[4]int]*runningAttempt{}
		t.ended.Outcome = Committed
	}
	j, a := t.jobs[m.Job], t.attempts[m.id()]
	switch begins := m.Moment == wire.JobSubmitted || m.Moment == wire.AttemptStarted; {
	case begins && (m.OfJob() && j != nil || !m.OfJob() && a != nil):
		problemf("%s: %v twice: the first counts", m.name(), m.Moment)
		return
	case !begins && (m.OfJob() && j == nil || !m.OfJob() && a == nil):
		problemf("%s: %v at %v, but its beginning is not marked", m.name(), m.Moment, m.At)
		return
	case !begins && (m.OfJob() && j.End > 0 || !m.OfJob() && a.Outcome != ""):
		problemf("%s: %v at %v, after its end", m.name(), m.Moment, m.At)
		return
	}
	switch m.Moment {
	case wire.JobSubmitted:
		t.jobs[m.Job] = &JobRecord{Job: m.Job, Arrival: m.At, User: m.User, Profile: m.Profile, Tasks: m.Tasks, Input: m.Size}
	case wire.JobDone:
		j.End = m.At
		r.Jobs = append(r.Jobs, *j)
	case wire.JobFailed:
		j.End = m.At
		r.Failed = append(r.Failed, Failure{Kind: FailedJob, Job: m.Job, Host: m.Host, At: m.At, Why: m.Why})
	case wire.AttemptStarted:
		a = &runningAttempt{AttemptRecord: AttemptRecord{Job: m.Job, Stage: m.Stage, Task: m.Task, Attempt: m.Attempt, Kind: m.Kind, Host: m.Host, Locality: m.Locality, Input: m.Size, Start: m.At}}
		if m.Locality != "" {
			a.Compute = m.At
		}
		t.attempts[m.id()] = a
	case wire.InputComplete:
		a.InputEnd, a.Input, a.Locality = m.At, m.Size, m.Locality
	case wire.ComputeStarted:
		a.Compute = m.At
	case wire.Computed:
		a.Computed = m.At
	case wire.AttemptCommitted, wire.AttemptCopied, wire.AttemptKilled, wire.AttemptFailed:
		a.End, a.Why = m.At, m.Why
		a.Outcome = map[wire.Moment]string{wire.AttemptCommitted: Committed, wire.AttemptCopied: Copied, wire.AttemptKilled: Killed, wire.AttemptFailed: Failed}[m.Moment]
		r.Attempts = append(r.Attempts, a.AttemptRecord)
		t.attempts[m.id()] = &t.ended
		before := []wire.Moment{wire.InputComplete, wire.Computed}
		if a.Locality == "" && a.Input > 0 { // it has fetched outputs
			before = append(before, wire.ComputeStarted)
		}
		for _, before := range before {
			if (m.Moment == wire.AttemptCommitted || m.Moment == wire.AttemptCopied) && !a.seen[before] {
				problemf("%s: %v at %v, but not %v before", m.name(), m.Moment, m.At, before)
			}
		}
	}
	if a != nil && !m.OfJob() {
		a.seen[m.Moment] = true
	}
}

// End adds the problems of what has not ended, and puts the records in order.
func (t *TaskRecorder) End(r *Records) {
	problemf := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	for _, j := range t.jobs {
		if j.End == 0 {
			problemf("job %d has no end", j.Job)
		}
	}
	for _, a := range t.attempts {
		if a.Outcome == "" {
			problemf("attempt %d of task %d of stage %d of job %d has no end", a.Attempt, a.Task, a.Stage, a.Job)
		}
	}
	r.fetchedTwice(problemf)
	slices.Sort(r.Problems)
	assignSlots(r.Attempts)
	slices.SortFunc(r.Jobs, func(a, b JobRecord) int { return cmp.Compare(a.Job, b.Job) })
	slices.SortFunc(r.Attempts, func(a, b AttemptRecord) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt))
	})
	slices.SortStableFunc(r.Failed, func(a, b Failure) int { return cmp.Compare(a.At, b.At) })
}

// fetchedTwice reports outputs of tasks that an attempt has fetched twice, from the same copy or from two.
func (r *Records) fetchedTwice(problemf func(format string, args ...any)) {
	type output struct {
		job                                       workloads.JobID
		stage, task, attempt, fromStage, fromTask int
	}
	seen := map[output]workloads.FlowID{}
	for i := range r.Flows {
		f := &r.Flows[i]
		t := f.Task
		if t == nil || t.Outputs == 0 {
			continue
		}
		k := output{t.Job, t.Stage, t.Task, t.Attempt, t.FromStage, t.FromTask}
		if first, twice := seen[k]; twice {
			problemf("attempt %d of task %d of stage %d of job %d fetched the output of task %d of stage %d twice, with flows %d and %d", t.Attempt, t.Task, t.Stage, t.Job, t.FromTask, t.FromStage, first, f.Flow)
			continue
		}
		seen[k] = f.Flow
	}
}

// assignSlots numbers slots: each attempt gets the lowest one of its kind on its host that is free at its
// start.
func assignSlots(attempts []AttemptRecord) {
	slices.SortFunc(attempts, func(a, b AttemptRecord) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Start, b.Start), cmp.Compare(a.Job, b.Job),
			cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt))
	})
	var ends []time.Duration // of the newest attempt on each slot
	for i := range attempts {
		a := &attempts[i]
		if i == 0 || a.Host != attempts[i-1].Host || a.Kind != attempts[i-1].Kind {
			ends = ends[:0]
		}
		a.Slot = slices.IndexFunc(ends, func(end time.Duration) bool { return end <= a.Start })
		if a.Slot < 0 {
			a.Slot = len(ends)
			ends = append(ends, 0)
		}
		ends[a.Slot] = a.End
	}
}
