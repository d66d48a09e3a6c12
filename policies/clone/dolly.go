package clone

import (
	"cmp"
	"math"
	"slices"
)

// Dolly decides how many copies of each task of a job start at the same time (Ananthanarayanan and others, Effective
// Straggler Mitigation: Attack of the Clones, NSDI 2013, section 3).
type Dolly struct {
	// Straggle is p, the probability that a task runs at less than half the median progress rate of its stage.
	Straggle float64
	// Risk is ε, the accepted probability that a job straggles: that all copies of one of its tasks do.
	Risk float64
	// Budget is β, the share of all slots that copies of cloned tasks may use.
	Budget float64
	// Utilization is τ, the share of all slots in use beyond which no task is cloned.
	Utilization float64
}

// DefaultDolly returns the paper's settings. It measures p, about 0.1 in its traces.
func DefaultDolly() Dolly { return Dolly{Straggle: 0.1, Risk: 0.05, Budget: 0.05, Utilization: 0.8} }

// MaxCopies is the largest number of copies of a task.
const MaxCopies = 100

// rounding is the part of a number by which rounding errors may raise it.
const rounding = 1e-12

// Copies returns the number of copies of each of n tasks, the original one included, with which the job straggles with at
// most the probability Risk: ⌈ln(1−(1−ε)^(1/n)) ÷ ln p⌉. It is 1, for no cloning, if nothing straggles, or everything does.
func (d Dolly) Copies(n int) int {
	if n < 1 || !(d.Straggle > 0 && d.Straggle < 1) || !(d.Risk < 1) {
		return 1
	}
	one := -math.Expm1(math.Log1p(-max(d.Risk, 0)) / float64(n)) // accepted probability of one task
	c := math.Log(one)/math.Log(d.Straggle) - rounding
	return int(min(max(math.Ceil(c), 1), MaxCopies))
}

// Admission is the rule for the copies of a stage when there is no room for all of them (section 3.2, and the
// evaluation of admission control).
type Admission int

const (
	// AllOrNothing clones no task of the stage.
	AllOrNothing Admission = iota
	// Preemption kills copies of larger jobs (Victims), if that gives all tasks of the stage their copies.
	Preemption
	// Partial gives each task of the stage as many copies as there is room for.
	Partial
	// FCFS gives the tasks their copies one after the other, until there is no room.
	FCFS
)

// Room returns the number of slots that are left for copies of cloned tasks, negative if more are taken. reserved are
// for such copies, and used are in use.
func (d Dolly) Room(reserved, used, slots int) int {
	most := func(share float64) int { return int(share * float64(slots) * (1 + rounding)) }
	return min(most(d.Budget)-reserved, most(d.Utilization)-used)
}

// Admit returns the copies of n tasks that start in a room: each is the largest number of copies of a task, 1 for no
// cloning, and total that of all tasks, given to the first ones (CopiesOf). Preemption is as AllOrNothing.
func (a Admission) Admit(room, copies, n int) (each, total int) {
	switch {
	case copies <= 1:
		return 1, 0
	case a == Partial:
		copies = min(copies, room/max(n, 1))
		total = copies * n
	case a == FCFS:
		if total = min(copies*n, room); total%copies == 1 {
			total-- // one copy of a task is no clone
		}
	case copies*n <= room:
		total = copies * n
	}
	if copies <= 1 || total <= 1 {
		return 1, 0
	}
	return copies, total
}

// CopiesOf returns the number of copies of a task, counted from 0, by an answer of Admit.
func CopiesOf(task, each, total int) int { return max(1, min(each, total-each*task)) }

// Cloned is a job with cloned tasks.
type Cloned struct {
	Tasks int // of the job
	Frees int // slots for copies that killing its clones frees
}

// Victims returns the jobs whose clones make room for a smaller job with a number of tasks, by index: the largest first,
// of equal ones the last. It is empty if the clones of all larger jobs do not free need slots.
func Victims(jobs []Cloned, tasks, need int) (victims []int) {
	for i, j := range jobs {
		if j.Tasks > tasks && j.Frees > 0 {
			victims = append(victims, i)
		}
	}
	slices.SortFunc(victims, func(a, b int) int { return cmp.Or(cmp.Compare(jobs[b].Tasks, jobs[a].Tasks), cmp.Compare(b, a)) })
	for n, i := range victims {
		if need -= jobs[i].Frees; need <= 0 {
			return victims[:n+1]
		}
	}
	return nil
}

// priorWeight is the number of attempts for which the given probability of a straggler counts. It is ours.
const priorWeight = 100

// Learned returns the estimate of p from attempts that were judged: their share of stragglers, with the given p as
// that of 100 further attempts.
func (d Dolly) Learned(straggled, judged int) float64 {
	return (priorWeight*d.Straggle + float64(straggled)) / (priorWeight + float64(judged))
}
