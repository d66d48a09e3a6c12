package tasks

import (
	"cmp"
	"iter"
	"slices"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// DRF is dominant resource fairness (NSDI 2011) over cores and memory: the next task is one of
// the user with the lowest dominant share, which is the larger of its shares of all cores and of
// all memory. A user whose tasks do not fit on the host is passed over. Ties go to the user with
// fewer running tasks, then to the one whose first job was submitted earlier. A user's jobs are
// in the order of FIFO.
//
// A resource counts only if every host that is up states a capacity. Tasks that still run on
// lost hosts count.
type DRF struct{}

func (DRF) start(d *decision) queue {
	q := &drf{d: d}
	d.scan(&q.users)
	q.sort(d, byPriority(d.v, d.a.Ints(len(d.v.Jobs))))
	n := len(q.all)
	q.cpu, q.memory, q.running, q.order = d.a.Floats(n), d.a.Floats(n), d.a.Ints(n), d.a.Ints(n)
	for i := range q.order {
		q.order[i] = i
	}
	for i := range d.v.Jobs {
		for j := range d.v.Jobs[i].Stages {
			st := &d.v.Jobs[i].Stages[j]
			q.add(q.of(i), st.Running, st.Need)
		}
	}
	cpu, memory := true, true // every host has a capacity
	for h := range d.v.Slots {
		if s := &d.v.Slots[h]; !s.Lost {
			q.totalCPU += s.Capacity.CPU
			q.totalMemory += float64(s.Capacity.Memory)
			cpu, memory = cpu && s.Capacity.CPU > 0, memory && s.Capacity.Memory > 0
		}
	}
	if !cpu {
		q.totalCPU = 0
	}
	if !memory {
		q.totalMemory = 0
	}
	return q
}

type drf struct {
	users
	d                     *decision
	cpu, memory           []float64 // used, by user
	running               []int     // tasks, by user
	totalCPU, totalMemory float64   // of the cluster; 0 if a resource does not count
	order                 []int     // of users
}

func (q *drf) add(user, tasks int, need jobs.Resources) {
	q.running[user] += tasks
	q.cpu[user] += float64(float64(tasks) * need.CPU)
	q.memory[user] += float64(tasks) * float64(need.Memory)
}

// share returns the dominant share of a user.
func (q *drf) share(user int) float64 {
	share := 0.0
	if q.totalCPU > 0 {
		share = q.cpu[user] / q.totalCPU
	}
	if q.totalMemory > 0 {
		share = max(share, q.memory[user]/q.totalMemory)
	}
	return share
}

func (*drf) kinds() [][]jobs.TaskKind { return bothKinds }

func (q *drf) jobs([]jobs.TaskKind) iter.Seq[int] {
	slices.SortFunc(q.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(q.share(a), q.share(b)), cmp.Compare(q.running[a], q.running[b]), cmp.Compare(a, b))
	})
	return func(yield func(int) bool) {
		for _, p := range q.order {
			for _, i := range q.users.jobs(p) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

func (q *drf) launched(job int, st *policies.StageState) { q.add(q.of(job), 1, st.Need) }
func (*drf) starving(int) bool                           { return false }
func (*drf) finish()                                     {}
