// Package jobs describes jobs of tasks: what each task reads, computes, sends to later stages and
// writes. It reads traces of jobs and generates jobs from a seed.
//
// Task schedulers, not this package, decide where and when tasks run.
package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// JobID numbers the jobs of a workload from 1, in order of submission. Jobs of tasks and other jobs
// are numbered apart.
type JobID = workloads.JobID

// Job is a graph of stages; MapReduce is the chain of two.
type Job struct {
	ID JobID
	// User owns the job: the pool of a fair scheduler, or a user of DRF and ShuffleWatcher.
	User     string
	Priority int // higher is sooner; FIFO orders by it first
	// Profile names the program, from which a scheduler may learn: jobs of one profile
	// have similar ratios of shuffle to input.
	Profile string
	// Submit is the submission since the start of the run. After is the job that must have ended before,
	// 0 for none: a closed loop. The job is then submitted Submit − Submit(After) after that end, which
	// is the think time; its Submit is that of a run in which jobs take no time.
	Submit time.Duration
	After  JobID
	Stages []Stage // at least one; a stage fetches from earlier ones only
}

// Order sorts jobs by submission, ties in the order of the list, and numbers them from 1. Before, After
// counts jobs in the order of the list, from 1.
func Order(list []Job) {
	for i := range list {
		list[i].ID = JobID(i + 1)
	}
	slices.SortStableFunc(list, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	now := make([]JobID, len(list)+1)
	for i, j := range list {
		now[j.ID] = JobID(i + 1)
	}
	for i := range list {
		list[i].ID, list[i].After = JobID(i+1), now[list[i].After]
	}
}

// TaskKind is the kind of slot that a task takes.
type TaskKind int

const (
	Map TaskKind = iota
	Reduce
)

// TaskKinds is the number of kinds.
const TaskKinds = 2

// Stage is a set of tasks that run the same program on different input.
type Stage struct {
	Kind TaskKind
	// From are the indices of the stages whose outputs each task fetches; if it is empty, each
	// task reads one block.
	From []int
	// Pattern selects the tasks of these stages from which a task fetches.
	Pattern Pattern
	Tasks   []Task // at least one
}

// Pattern is a pattern of communication between the tasks of two stages (Dolly, NSDI 2013, figure 13).
type Pattern int

const (
	AllToAll  Pattern = iota // each task fetches from all tasks of the stage before
	ManyToOne                // each fetches from tasks of its own, next to each other, so that each output is fetched once
	OneToOne                 // each fetches from the task with its index; both stages have equally many
)

// Patterns returns the names of the patterns, by value.
func Patterns() []string { return []string{"all-to-all", "many-to-one", "one-to-one"} }

func (p Pattern) String() string { return Patterns()[p] }

// Fetches reports whether task to of n fetches from task from of the m tasks of an earlier stage.
func (p Pattern) Fetches(from, m, to, n int) bool { return p == AllToAll || from*n/m == to }

// Most returns the number of tasks of m, the most of all, from which one of n tasks fetches.
func (p Pattern) Most(m, n int) int {
	if p == AllToAll {
		return m
	}
	return (m + n - 1) / n
}

// fits returns an error unless n tasks can fetch from m by the pattern.
func (p Pattern) fits(m, n int) error {
	switch {
	case p == OneToOne && n != m:
		return fmt.Errorf("%v: %d tasks fetch from %d: must be equally many", p, n, m)
	case p == ManyToOne && n > m:
		return fmt.Errorf("%v: %d tasks fetch from %d: must be at most as many", p, n, m)
	}
	return nil
}

// Task is a unit of work on one slot. It names no host.
type Task struct {
	// Input is the block that a task of a stage without From reads, stored before the run.
	Input workloads.BlockID
	// InputSize is the size of Input.
	InputSize units.Bytes
	// Rate is the rate at which an unloaded slot consumes input: of a map while it reads, of a
	// reduce after it has sorted. SortRate is that of the sort, of a stage with From. Of
	// either, 0 means immediately.
	Rate, SortRate units.Rate
	// Output is the number of bytes for each task of each later stage that fetches from this
	// one, in order of stages and tasks; empty if there is none, and 0 for tasks that do not fetch from
	// this one by the pattern of their stage. Equal tasks may share the slice, so it must not be modified.
	Output []units.Bytes
	// Writes is the number of bytes of replicated output that the task writes.
	Writes units.Bytes
	Need   Resources
}

// Resources are those of a task, or of a host.
type Resources struct {
	CPU    float64 // cores
	Memory units.Bytes
}

// TaskID identifies a task of a workload. Stage and Index count from 0.
type TaskID struct {
	Job          JobID
	Stage, Index int
}

// AttemptID identifies one execution of a task: N counts from 0.
type AttemptID struct {
	Task TaskID
	N    int
}

func (a AttemptID) String() string {
	return fmt.Sprintf("attempt %d of task %d.%d of job %d", a.N, a.Task.Stage, a.Task.Index, a.Task.Job)
}

// Compare orders attempts by job, stage, index and number.
func (a AttemptID) Compare(b AttemptID) int {
	return cmp.Or(cmp.Compare(a.Task.Job, b.Task.Job), cmp.Compare(a.Task.Stage, b.Task.Stage), cmp.Compare(a.Task.Index, b.Task.Index), cmp.Compare(a.N, b.N))
}
