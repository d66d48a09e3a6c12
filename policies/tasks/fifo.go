package tasks

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// FIFO orders jobs by priority, then by a discipline, then by submission (Hadoop's JobQueueTaskScheduler).
// The disciplines are those of the FAIR report's comparison of intermediate space. No running task is stopped
// for another job: a discipline decides only which job gets the next slot.
type FIFO struct {
	By Discipline
	// Of ByLevel: a job is in the first of Levels levels until its attempts have used LevelTime of slot time,
	// and each further level lasts LevelFactor times as long as the one before. The last one has no end.
	Levels      int
	LevelTime   time.Duration
	LevelFactor float64
}

// Discipline is an order of the jobs of a priority.
type Discipline uint8

// The disciplines.
const (
	BySubmission Discipline = iota
	BySize                  // shortest job first: by TaskJob.Input, which does not shrink as the job proceeds
	ByLevel                 // multi-level queues: by level, which a job leaves for the next one as it uses slots
)

// DefaultLevels returns multi-level queues, which are off. The report has no values; ours put a job of Facebook
// with up to about 25 maps into the first level, and one with up to about 250 into the second.
func DefaultLevels() FIFO { return FIFO{Levels: 3, LevelTime: 10 * time.Minute, LevelFactor: 10} }

func (p FIFO) start(d *decision) queue {
	d.scan(nil)
	q := fifo{d: d, order: byPriority(d.v, d.a.Ints(len(d.v.Jobs)))}
	if p.By == BySubmission {
		return q
	}
	keys := d.a.Counts(len(d.v.Jobs))
	for i := range keys {
		if j := &d.v.Jobs[i]; p.By == BySize {
			keys[i] = int64(j.Input)
		} else {
			keys[i] = p.level(slotTime(j, d.v.Now))
		}
	}
	slices.SortFunc(q.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(d.v.Jobs[b].Priority, d.v.Jobs[a].Priority), cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b))
	})
	return q
}

// level returns the level of a job that has used slots for a time, from 0.
func (p FIFO) level(used time.Duration) int64 {
	level, length := 0, float64(p.LevelTime)
	for left := float64(used); level < p.Levels-1 && left >= length; level++ {
		left -= length
		length *= p.LevelFactor
	}
	return int64(level)
}

// slotTime returns the time that attempts of a job have used slots.
func slotTime(j *policies.TaskJob, now time.Duration) (used time.Duration) {
	for i := range j.Stages {
		used += j.Stages[i].Busy
	}
	for i := range j.Running {
		used += now - j.Running[i].Start
	}
	return used
}

// byPriority fills order with all jobs, highest priority first. TaskView.Jobs is by submission.
func byPriority(v *policies.TaskView, order []int) []int {
	sorted := true
	for i := range order {
		order[i] = i
		sorted = sorted && (i == 0 || v.Jobs[i-1].Priority >= v.Jobs[i].Priority)
	}
	if !sorted {
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(v.Jobs[b].Priority, v.Jobs[a].Priority), cmp.Compare(a, b))
		})
	}
	return order
}

type fifo struct {
	d     *decision
	order []int
}

func (fifo) kinds() [][]jobs.TaskKind             { return mapsFirst }
func (q fifo) jobs([]jobs.TaskKind) iter.Seq[int] { return slices.Values(q.order) }
func (fifo) launched(int, *policies.StageState)   {}
func (fifo) starving(int) bool                    { return false }
func (fifo) finish()                              {}
