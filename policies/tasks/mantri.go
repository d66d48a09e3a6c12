package tasks

import (
	"cmp"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/workloads/jobs"
)

// mantri adds copies of slow tasks, or restarts them, on the slots of the host that are left: of the kinds for which tasks
// wait, or of the others. A restart is a backup and a kill of the attempt that runs.
func (f *filler) mantri(m clone.Mantri, waiting bool) {
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		for f.open([]jobs.TaskKind{k}) && f.waits(k) == waiting {
			j, task, action := f.slowestFor(m, k, waiting)
			if action == clone.NoAction {
				break
			}
			if f.backup(task, &j.Stages[task.Stage]); action == clone.Restart {
				f.a.Kill = append(f.a.Kill, f.best(j, task).ID)
			}
		}
	}
}

// copiesOf returns the attempts of a stage of a job, by task, that are neither being killed nor spare.
func (f *filler) copiesOf(j *policies.TaskJob, stage int) (out []*policies.AttemptState) {
	for i := range j.Running {
		if x := &j.Running[i]; x.ID.Task.Stage == stage && !x.Spare && !f.killing(x) {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b *policies.AttemptState) int { return cmp.Compare(a.ID.Task.Index, b.ID.Task.Index) })
	return out
}

// cut splits the attempts of the first task off a list.
func cut(list []*policies.AttemptState) (task, others []*policies.AttemptState) {
	n := 1
	for n < len(list) && list[n].ID.Task == list[0].ID.Task {
		n++
	}
	return list[:n], list[n:]
}

// consumed returns the share of its input that an attempt has consumed: of a reduce, the last third of its progress. Fetching
// and sorting say little about the rest, which can take much longer.
func consumed(x *policies.AttemptState) float64 {
	if x.Kind == jobs.Reduce {
		return max(3*x.Progress-2, 0)
	}
	return x.Progress
}

// judged reports whether an attempt has run for Interval, and has its input if it fetches.
func (f *filler) judged(m clone.Mantri, x *policies.AttemptState) bool {
	return f.v.Now-x.Start >= m.Interval && (x.Kind == jobs.Map || consumed(x) > 0)
}

// slowestFor returns the task of a kind with the longest time left, of those with an action on the host: all its attempts are
// judged, and none runs here.
func (f *filler) slowestFor(m clone.Mantri, k jobs.TaskKind, waiting bool) (of *policies.TaskJob, best jobs.TaskID, action clone.Action) {
	most := -1.
	for i := range f.v.Jobs {
		j := &f.v.Jobs[i]
		for n := range j.Stages {
			st := &j.Stages[n]
			// Tasks that Dolly has cloned need no other copies.
			if st.Kind != k || st.Running == 0 || f.cloning.each(i, n) > 1 || !f.fits(st) {
				continue
			}
			var rates []float64
			for copies, rest := []*policies.AttemptState(nil), f.copiesOf(j, n); len(rest) > 0; {
				copies, rest = cut(rest)
				id := copies[0].ID.Task
				if slices.Contains(f.a.Backup, id) || slices.ContainsFunc(copies, func(x *policies.AttemptState) bool { return !f.judged(m, x) }) ||
					slices.ContainsFunc(j.Running, func(x policies.AttemptState) bool { return x.ID.Task == id && x.Host == f.v.Host }) {
					continue
				}
				left, restarts := f.leastLeft(copies), 0
				for _, x := range copies {
					restarts = max(restarts, x.ID.N)
				}
				if rates == nil {
					rates = f.rates(j, n, func(x *policies.AttemptState) (float64, bool) { return consumed(x), f.judged(m, x) })
				}
				if a := m.Act(waiting, left, rates, len(copies), restarts); a != clone.NoAction && left.Seconds() > most {
					most, of, best, action = left.Seconds(), j, id, a
				}
			}
		}
	}
	return of, best, action
}

// leastLeft returns the time that the fastest of the attempts of a task still needs.
func (f *filler) leastLeft(copies []*policies.AttemptState) time.Duration {
	return f.timeLeft(slices.MinFunc(copies, func(a, b *policies.AttemptState) int { return cmp.Compare(f.timeLeft(a), f.timeLeft(b)) }))
}

func (f *filler) timeLeft(x *policies.AttemptState) time.Duration {
	return clone.TimeLeft(consumed(x), f.v.Now-x.Start)
}

// prune kills all but the fastest copies of each task, once the newest of them has run for Interval. Copies of Dolly go on.
func (f *filler) prune(m clone.Mantri) {
	for i := range f.v.Jobs {
		j := &f.v.Jobs[i]
		for n := range j.Stages {
			if f.cloning.each(i, n) > 1 {
				continue
			}
			for copies, rest := []*policies.AttemptState(nil), f.copiesOf(j, n); len(rest) > 0; {
				if copies, rest = cut(rest); len(copies) <= m.Copies ||
					slices.ContainsFunc(copies, func(x *policies.AttemptState) bool { return f.v.Now-x.Start < m.Interval }) {
					continue
				}
				slices.SortStableFunc(copies, func(a, b *policies.AttemptState) int { return cmp.Compare(f.timeLeft(a), f.timeLeft(b)) })
				for _, x := range copies[max(m.Copies, 1):] {
					f.a.Kill = append(f.a.Kill, x.ID)
				}
			}
		}
	}
}
