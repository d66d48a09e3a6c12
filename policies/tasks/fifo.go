package tasks

import (
	"cmp"
	"iter"
	"slices"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// FIFO orders jobs by priority, then by submission (Hadoop's JobQueueTaskScheduler).
type FIFO struct{}

func (FIFO) start(d *decision) queue {
	d.scan(nil)
	return fifo{d: d, order: byPriority(d.v, d.a.Ints(len(d.v.Jobs)))}
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
func (fifo) finish() []int64                      { return nil }
