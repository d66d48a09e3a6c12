package tasks

import (
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/workloads/jobs"
)

// Cloning is Dolly: it starts several copies of each task of small jobs and uses the first one to end (Ananthanarayanan
// and others, Effective Straggler Mitigation: Attack of the Clones, NSDI 2013). Its zero value is off.
type Cloning struct {
	On bool
	clone.Dolly
	Admission clone.Admission
	Reads     Reads
	// Wait is ω of DelayedCopy, by class of jobs (jobs.SizeClass): how long copies of a task that fetch wait for a copy of an output
	// that no other one reads.
	Wait [jobs.SizeClasses]time.Duration
	// Learn estimates Straggle and Wait from policies.History, as far as it has enough samples.
	Learn Learning
	// LearnEvery is the time between two estimates of Wait for jobs of a size, and the period of PeriodicEstimates. The paper's is an hour, for
	// days of jobs.
	LearnEvery time.Duration
	// ByFlows estimates the rates of fetches for the number of flows with which those of a stage will share their links.
	ByFlows bool
}

// Learning is how Straggle and Wait are estimated.
type Learning int

const (
	// GivenEstimates are the given values.
	GivenEstimates Learning = iota
	// LearnedEstimates estimate Straggle at each decision from all that was observed, with the given value as that of some attempts.
	LearnedEstimates
	// PeriodicEstimates estimate Straggle at the end of each period from the attempts judged in it, as the paper does each hour. A period with
	// few of them counts with the next one. Wait has one estimate in each period.
	PeriodicEstimates
)

// DefaultCloning returns Dolly's settings. The paper measured ω from 2.5 to 4.7 s for its smallest jobs.
func DefaultCloning() Cloning {
	return Cloning{On: true, Dolly: clone.DefaultDolly(), Wait: SameWaits(3 * time.Second), LearnEvery: 10 * time.Second}
}

// needs returns what cloning needs to know.
func (p Cloning) needs() (needs policies.Facts) {
	if !p.On {
		return 0
	}
	needs = policies.EveryHeartbeat
	if p.Learn != GivenEstimates {
		needs |= policies.TaskProgress | policies.TaskHistory
	}
	if p.Admission == clone.Preemption {
		needs |= policies.TaskProgress
	}
	return needs
}

// SameWaits returns Cloning.Wait with the same ω for all classes of jobs.
func SameWaits(ω time.Duration) (all [jobs.SizeClasses]time.Duration) {
	for class := range all {
		all[class] = ω
	}
	return all
}

// cloning is Dolly during one decision.
type cloning struct {
	Cloning // with the estimate of Straggle
	d       *decision
}

// copies are the results of clone.Admission.Admit for a stage; 0 as long as none of its tasks has been launched.
type copies struct{ each, total int }

// begin returns Dolly for one decision; nil if it is off.
func (p Cloning) begin(d *decision) *cloning {
	if !p.On {
		return nil
	}
	x := &cloning{Cloning: p, d: d}
	x.endPeriod()
	x.Straggle = p.straggle(d.v.History, &d.learned)
	for i := range d.jobs {
		if n := len(d.v.Jobs[i].Stages); len(d.jobs[i].copies) != n {
			d.jobs[i].copies = make([]copies, n)
		}
	}
	return x
}

// straggle returns p, from what was observed if it is learned.
func (p Cloning) straggle(h *policies.History, l *learned) float64 {
	switch {
	case p.Learn == LearnedEstimates && h != nil:
		return p.Learned(h.Straggled, h.Judged)
	case p.Learn == PeriodicEstimates && l.period > 0:
		return l.straggle
	}
	return p.Straggle
}

// wait returns ω of a class of jobs: the learned one, once there is one.
func (p Cloning) wait(l *learned, class int) time.Duration {
	if w := &l.waits[class]; p.Learn != GivenEstimates && w.known {
		return w.wait
	}
	return p.Wait[class]
}

// each returns the largest number of copies of the tasks of a stage; 0 before it is decided.
func (x *cloning) each(job, stage int) int {
	if x == nil || stage < 0 || stage >= len(x.d.jobs[job].copies) {
		return 0
	}
	return x.d.jobs[job].copies[stage].each
}

// launched decides on the copies of a stage's tasks at the launch of the first one.
func (x *cloning) launched(job, stage int) {
	if x == nil || x.each(job, stage) != 0 {
		return
	}
	st := &x.d.v.Jobs[job].Stages[stage]
	c := x.Copies(st.Tasks)
	// Tasks that fetch have no more copies than those before them.
	for before := range stage {
		if n := x.each(job, before); n > 0 {
			c = min(c, n)
		}
	}
	slots := x.d.slots()
	all, used := slots[jobs.Map]+slots[jobs.Reduce], 0
	for h := range x.d.v.Slots {
		if s := &x.d.v.Slots[h]; !s.Lost {
			used += s.Used[jobs.Map] + s.Used[jobs.Reduce]
		}
	}
	reserved := 0
	for i := range x.d.jobs {
		reserved += x.reserved(i)
	}
	room := x.Room(reserved, used, all)
	if missing := c*st.Tasks - room; x.Admission == clone.Preemption && c > 1 && missing > 0 && x.Room(0, used, all) >= c*st.Tasks && x.preempt(job, missing) {
		room = c * st.Tasks
	}
	each, total := x.Admission.Admit(room, c, st.Tasks)
	x.d.jobs[job].copies[stage] = copies{each, total}
	if x.Learn != GivenEstimates && c > 1 {
		x.learnWait(job, stage, c)
	}
}

// reserved returns the slots for copies of a job: of the tasks of cloned stages that have not ended, and of those that have
// while attempts still make copies of their outputs.
func (x *cloning) reserved(job int) (n int) {
	j := &x.d.v.Jobs[job]
	for s := range j.Stages {
		if c := x.each(job, s); c > 1 {
			n += min(x.d.jobs[job].copies[s].total, c*(j.Stages[s].Tasks-j.Stages[s].Done))
		}
	}
	for i := range j.Running {
		if a := &j.Running[i]; a.Spare && !x.d.killing(a) {
			n++
		}
	}
	return n
}

// preempt kills the clones of larger jobs, so that a number of slots is free for copies. The copies of those jobs that go on are
// the first ones that have progressed most. It reports whether there were enough; if not, it kills none.
func (x *cloning) preempt(job, need int) bool {
	list := make([]clone.Cloned, len(x.d.jobs))
	for i := range list {
		j := &x.d.v.Jobs[i]
		list[i].Tasks = tasksOf(j)
		// A job that gets a clone in the same decision keeps it: the clone does not run yet.
		if !slices.ContainsFunc(x.d.a.Backup, func(id jobs.TaskID) bool { return id.Job == j.ID }) {
			list[i].Frees = x.reserved(i)
		}
	}
	victims := clone.Victims(list, list[job].Tasks, need)
	for _, i := range victims {
		j := &x.d.v.Jobs[i]
		for r := range j.Running {
			a := &j.Running[r]
			if !x.d.killing(a) && (a.Spare || x.each(i, a.ID.Task.Stage) > 1 && x.d.best(j, a.ID.Task) != a) {
				x.d.a.Kill = append(x.d.a.Kill, a.ID)
			}
		}
		for s := range j.Stages {
			if x.each(i, s) > 1 {
				x.d.jobs[i].copies[s] = copies{each: 1}
			}
		}
	}
	return len(victims) > 0
}

// best returns the attempt of a task that has progressed most and is not being killed, of equal ones the first.
func (d *decision) best(j *policies.TaskJob, task jobs.TaskID) (best *policies.AttemptState) {
	for i := range j.Running {
		if a := &j.Running[i]; a.ID.Task == task && !d.killing(a) && (best == nil || a.Progress > best.Progress) {
			best = a
		}
	}
	return best
}

// killing reports whether an attempt is being killed, by this decision or before.
func (d *decision) killing(a *policies.AttemptState) bool {
	return a.Killing || slices.Contains(d.a.Kill, a.ID)
}

// runClones starts copies of running tasks that have too few, the jobs in order. They come before other tasks: their
// slots are part of the budget.
func (f *filler) runClones() {
	x := f.cloning
	if x == nil {
		return
	}
	for i := range f.v.Jobs {
		j := &f.v.Jobs[i]
		for r := range j.Running {
			a := &j.Running[r]
			stage := a.ID.Task.Stage
			if x.each(i, stage) <= 1 || a.Killing || a.Spare || slices.Contains(f.a.Backup, a.ID.Task) {
				continue
			}
			st := &j.Stages[stage]
			if f.left[st.Kind] <= 0 || !f.fits(st) {
				continue
			}
			n, here := 0, false
			for _, b := range j.Running {
				if b.ID.Task == a.ID.Task {
					here = here || b.Host == f.v.Host
					if !b.Killing {
						n++
					}
				}
			}
			if !here && n < clone.CopiesOf(a.ID.Task.Index, x.each(i, stage), x.d.jobs[i].copies[stage].total) {
				f.backup(a.ID.Task, st)
			}
		}
	}
}
