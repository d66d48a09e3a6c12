package tasks

import (
	"math"
	"slices"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/workloads/jobs"
)

// Speculation launches backups of tasks that run slowly. Its zero value is off.
type Speculation struct {
	By Method
	clone.LATE
	Mantri clone.Mantri
}

// Method selects the tasks that get backups.
type Method int

const (
	NoSpeculation Method = iota
	// ByLATE launches backups on slots for which no task is pending (Zaharia and others, Improving MapReduce Performance in
	// Heterogeneous Environments, OSDI 2008).
	ByLATE
	// ByHadoop is the same with the tests of Hadoop 0.21 for slow tasks and hosts, and its cap.
	ByHadoop
	// ByMantri also restarts or copies tasks while others wait for slots (Ananthanarayanan and others, Reining in the
	// Outliers in Map-Reduce Clusters using Mantri, OSDI 2010).
	ByMantri
)

// DefaultSpeculation returns LATE, with its settings and those of Mantri.
func DefaultSpeculation() Speculation {
	return Speculation{By: ByLATE, LATE: clone.DefaultLATE(), Mantri: clone.DefaultMantri()}
}

// speculate launches backups on the slots of the host that are left.
func (f *filler) speculate(s Speculation) {
	if s.By == ByMantri {
		f.mantri(s.Mantri, false)
		return
	}
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		for f.open([]jobs.TaskKind{k}) && !f.waits(k) {
			if !f.admits(s) {
				return
			}
			task, stage := f.slowest(s, k)
			if stage == nil {
				break
			}
			f.backup(task, stage)
		}
	}
}

// waits reports whether a task of a kind is pending.
func (f *filler) waits(k jobs.TaskKind) bool {
	for i := range f.v.Counts {
		if f.pending(k, i) > 0 {
			return true
		}
	}
	return false
}

// admits reports whether the number of backups is below the cap, and the host is not slow.
func (f *filler) admits(s Speculation) bool {
	if !f.surveyed {
		f.surveyed = true
		f.survey(s)
	}
	slots := f.slots()
	all := slots[jobs.Map] + slots[jobs.Reduce]
	if s.By == ByHadoop {
		return !f.slow && clone.Hadoop{}.Admits(f.backups, all, f.active)
	}
	return !f.slow && s.Admits(f.backups, all)
}

// survey counts the backups and the tasks that run, and finds out whether the host is slow: by the work that hosts have
// done, or, for Hadoop, by the mean times of the attempts that have committed on them.
func (f *filler) survey(s Speculation) {
	work := f.a.Floats(len(f.v.Slots))
	for h := range f.v.Slots {
		work[h] = float64(f.v.Slots[h].Committed)
	}
	for i := range f.v.Jobs {
		attempts, tasks := 0, 0
		for _, x := range f.v.Jobs[i].Running {
			work[x.Host] += x.Progress
			if !x.Killing && !x.Spare {
				attempts++
			}
		}
		for j := range f.v.Jobs[i].Stages {
			tasks += f.v.Jobs[i].Stages[j].Running
		}
		f.active += tasks
		f.backups += max(0, attempts-tasks)
	}
	if s.By == ByHadoop {
		for h := range f.v.Slots {
			work[h] = math.NaN()
			if x := &f.v.Slots[h]; x.Committed > 0 {
				work[h] = x.CommittedTime.Seconds() / float64(x.Committed)
			}
		}
	}
	mine := work[f.v.Host]
	up := work[:0]
	for h, w := range work {
		if !f.v.Slots[h].Lost && !math.IsNaN(w) {
			up = append(up, w)
		}
	}
	if s.By == ByHadoop {
		f.slow = clone.Hadoop{}.SlowHost(mine, up)
	} else {
		f.slow = s.SlowHost(mine, up)
	}
}

// slowTask reports whether a task is slow, by its progress rate and those of its stage.
func (s Speculation) slowTask(rate float64, stage []float64) bool {
	if s.By == ByHadoop {
		return clone.Hadoop{}.SlowTask(rate, stage)
	}
	return s.SlowTask(rate, stage)
}

// slowest returns the task of a kind of which the host is to launch a backup: of the slow tasks that have one attempt, the
// one with the longest time left. A nil stage is none.
func (f *filler) slowest(s Speculation, k jobs.TaskKind) (best jobs.TaskID, of *policies.StageState) {
	longest := -1.
	for i := range f.v.Jobs {
		j := &f.v.Jobs[i]
		for n := range j.Stages {
			st := &j.Stages[n]
			if st.Kind != k || st.Running == 0 || !f.fits(st) {
				continue
			}
			var rates []float64
			for r := range j.Running {
				x := &j.Running[r]
				elapsed := f.v.Now - x.Start
				if x.ID.Task.Stage != n || elapsed < s.After || !f.alone(j, x) {
					continue
				}
				if rates == nil {
					rates = f.rates(j, n, func(x *policies.AttemptState) (float64, bool) { return x.Progress, f.v.Now-x.Start >= s.After })
				}
				if left := clone.TimeLeft(x.Progress, elapsed).Seconds(); left > longest && s.slowTask(clone.ProgressRate(x.Progress, elapsed), rates) {
					longest, best, of = left, x.ID.Task, st
				}
			}
		}
	}
	return best, of
}

// alone reports whether an attempt is the only one of its task, and on another host.
func (f *filler) alone(j *policies.TaskJob, x *policies.AttemptState) bool {
	return !x.Spare && !f.killing(x) && x.Host != f.v.Host && !slices.Contains(f.a.Backup, x.ID.Task) &&
		!slices.ContainsFunc(j.Running, func(y policies.AttemptState) bool { return y.ID.Task == x.ID.Task && y.ID != x.ID })
}

// rates returns the progress rates of a stage: of the attempts that have committed, and of running ones that count. With
// running ones alone, the last task of a stage would never be slow.
func (f *filler) rates(j *policies.TaskJob, stage int, progress func(*policies.AttemptState) (share float64, counts bool)) []float64 {
	ended := j.Stages[stage].Durations
	out := f.a.Floats(len(ended) + len(j.Running))[:0]
	for _, d := range ended {
		out = append(out, clone.ProgressRate(1, d))
	}
	for i := range j.Running {
		if x := &j.Running[i]; x.ID.Task.Stage == stage && !x.Killing && !x.Spare {
			if share, counts := progress(x); counts {
				out = append(out, clone.ProgressRate(share, f.v.Now-x.Start))
			}
		}
	}
	return out
}

// backup launches a backup.
func (f *filler) backup(task jobs.TaskID, st *policies.StageState) {
	f.a.Backup = append(f.a.Backup, task)
	f.backups++
	f.take(st)
}
