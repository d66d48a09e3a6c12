package tasks

import (
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/workloads/jobs"
)

// Reads selects the copy of an output that a copy of a task fetches, where both were cloned (Dolly, section 4).
type Reads int

const (
	// FirstCopy lets all fetch the first copy, and stops the others (contention cloning, CC).
	FirstCopy Reads = iota
	// ExclusiveCopy lets the k-th copy of a task fetch the k-th copy of each output (contention avoidance cloning, CAC).
	ExclusiveCopy
	// DelayedCopy lets each wait for a copy that no other one reads, at most until Cloning.Wait after the first copy. Then the
	// attempts that still make copies are stopped, and it fetches the copy with fewest readers (delay assignment).
	DelayedCopy
)

const (
	// unlimitedWait is how long attempts may make copies under ExclusiveCopy: longer than any run.
	unlimitedWait = time.Duration(math.MaxInt64 / 4)
	// enough is the number of samples below which the given ω is used. It is ours.
	enough = 20
	// fetchesAtOnce is the number of outputs that a task fetches at the same time, Hadoop's parallel copies.
	fetchesAtOnce = 5
)

// waitHead is the number of elements of what learnWait remembers: for each class of jobs the time of the newest estimate plus
// 1 ns, 0 for none, and ω.
const waitHead = 2 * jobs.SizeClasses

// Keep returns how long other copies of a task may continue: ω, if later stages of the job are cloned or not decided
// yet; else they are of no use.
func (s Scheduler) Keep(v *policies.TaskView, j *policies.TaskJob, stage int) time.Duration {
	if !s.Cloning.On || s.Cloning.Reads == FirstCopy || len(v.Memory) < ownMemory {
		return 0
	}
	memory := v.Memory[ownMemory:]
	memory = memory[s.Shuffle.size(memory):]
	memory = memory[:s.Cloning.size(memory)]
	if len(memory) < cloneHead {
		return 0
	}
	waits, memory := memory[1:cloneHead], memory[cloneHead:]
	id, copies, rest, ok := nextJob(memory)
	for ok && id != int64(j.ID) {
		id, copies, rest, ok = nextJob(rest)
	}
	if !ok || stage < 0 || len(copies) != 2*len(j.Stages) || stage >= len(j.Stages) || copies[2*stage] <= 1 {
		return 0
	}
	for later := stage + 1; later < len(j.Stages); later++ {
		if copies[2*later] == 1 {
			continue
		}
		if s.Cloning.Reads == ExclusiveCopy {
			return unlimitedWait
		}
		if class := jobs.SizeClass(tasksOf(j)); s.Cloning.Learn && waits[2*class] > 0 {
			return time.Duration(max(waits[2*class+1], 0))
		}
		return s.Cloning.Wait
	}
	return 0
}

// tasksOf returns the number of tasks of a job.
func tasksOf(j *policies.TaskJob) (n int) {
	for i := range j.Stages {
		n += j.Stages[i].Tasks
	}
	return n
}

// Source returns the copy to fetch, by Reads.
func (s Scheduler) Source(c *policies.CopyChoice) int {
	fewest := 0
	for i := range c.Copies {
		if c.Copies[i].Readers < c.Copies[fewest].Readers {
			fewest = i
		}
	}
	switch s.Cloning.Reads {
	case ExclusiveCopy:
		if c.Rank >= 0 && c.Rank < len(c.Copies) {
			return c.Rank
		}
		if c.Running > 0 {
			return -1
		}
		return fewest
	case DelayedCopy:
		if c.Copies[fewest].Readers > 0 && c.Now < c.Until {
			return -1
		}
		return fewest
	default:
		return 0
	}
}

// learnWait estimates ω for the class of a job, when the copies of a stage that fetches are decided, from what was observed of
// the class. It needs the time of tasks of the stage before.
func (x *cloning) learnWait(job, stage, copies int) {
	j := &x.d.v.Jobs[job]
	class := jobs.SizeClass(tasksOf(j))
	at := x.waits[2*class : 2*class+2]
	if stage == 0 || x.d.v.History == nil || at[0] > 0 && x.d.v.Now < time.Duration(at[0])+x.LearnEvery {
		return
	}
	h, before := &x.d.v.History.Copies[class], &j.Stages[stage-1]
	fetches := h.Alone.Count + h.Shared.Count
	if len(h.Lags) < enough || len(h.Computing) < enough || h.Alone.Count < enough || h.Alone.Size <= 0 || len(before.Durations) == 0 {
		return
	}
	// Seconds a byte of fetches with and without others, and the mean size of a fetch.
	alone, size := h.Alone.Busy.Seconds()/float64(h.Alone.Size), float64(h.Alone.Size+h.Shared.Size)/float64(fetches)
	c := clone.Copying{Read: time.Duration(alone * size * float64(time.Second)), Shared: 0.5, Lags: h.Lags, Computing: h.Computing, Copies: copies,
		Outputs: math.Ceil(float64(before.Tasks) / fetchesAtOnce)}
	if h.Shared.Count >= enough && h.Shared.Busy > 0 {
		c.Shared = min(max(alone*float64(h.Shared.Size)/h.Shared.Busy.Seconds(), 0.01), 1)
	}
	times := slices.Sorted(slices.Values(before.Durations))
	at[0], at[1] = int64(x.d.v.Now)+1, int64(c.Wait(times[len(times)/2]))
}
