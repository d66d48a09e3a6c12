package tasks

import (
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Reads selects the copy of an output that a copy of a task fetches, where both were cloned (Dolly, section 4).
type Reads int

const (
	// FirstCopy lets all fetch the first copy, and stops the others (contention cloning, CC).
	FirstCopy Reads = iota
	// ExclusiveCopy lets the k-th copy of a task fetch the k-th copy of each output (contention avoidance cloning, CAC).
	ExclusiveCopy
	// DelayedCopy lets each wait for a copy that no other one reads, at most until Cloning.Wait of its class after the first copy. Then the
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

// learned is what Dolly has learned.
type learned struct {
	// waits are the newest estimates of ω, by class of jobs.
	waits [jobs.SizeClasses]struct {
		known    bool
		at, wait time.Duration
	}
	// Of PeriodicEstimates: the number of the period plus 1, 0 for none, the attempts that were judged and that straggled up
	// to its start, and p.
	period            int64
	judged, straggled int
	straggle          float64
}

// enoughJudged is the number of judged attempts below which a period has no estimate of p. It is ours.
const enoughJudged = 100

// period returns the number of the period of a time, plus 1.
func (p Cloning) period(at time.Duration) int64 { return int64(at/max(p.LearnEvery, 1)) + 1 }

// endPeriod estimates p at the first decision after the end of a period.
func (x *cloning) endPeriod() {
	h, l, now := x.d.v.History, &x.d.learned, x.period(x.d.v.Now)
	if x.Learn != PeriodicEstimates || h == nil || l.period == now {
		return
	}
	p := x.Straggle
	if l.period > 0 {
		judged := h.Judged - l.judged
		if judged < enoughJudged {
			return
		}
		p = float64(h.Straggled-l.straggled) / float64(judged)
	}
	l.period, l.judged, l.straggled, l.straggle = now, h.Judged, h.Straggled, p
}

// Keep returns how long other copies of a task may continue: ω, if later stages of the job are cloned or not decided
// yet; else they are of no use.
func (s *instance) Keep(_ *policies.TaskView, j *policies.TaskJob, stage int) time.Duration {
	if !s.Cloning.On || s.Cloning.Reads == FirstCopy {
		return 0
	}
	at := slices.IndexFunc(s.jobs, func(x jobMemory) bool { return x.id == j.ID })
	if at < 0 || stage < 0 || stage >= len(s.jobs[at].copies) || s.jobs[at].copies[stage].each <= 1 {
		return 0
	}
	for _, later := range s.jobs[at].copies[stage+1:] {
		if later.each == 1 {
			continue
		}
		if s.Cloning.Reads == ExclusiveCopy {
			return unlimitedWait
		}
		return s.Cloning.wait(&s.learned, jobs.SizeClass(tasksOf(j)))
	}
	return 0
}

// Estimates returns those that Dolly has learned.
func (s *instance) Estimates(v *policies.TaskView) (e policies.Estimates, ok bool) {
	if !s.Cloning.On || s.Cloning.Learn == GivenEstimates || v.History == nil {
		return e, false
	}
	e.Straggle = s.Cloning.straggle(v.History, &s.learned)
	for class := range e.Copies {
		h := &v.History.Copies[class]
		alone, shared := fetchRate(h.Alone), fetchRate(h.Shared)
		wait := s.Cloning.wait(&s.learned, class)
		e.Copies[class] = policies.CopyEstimates{Alone: bitsPerSecond(alone), Shared: bitsPerSecond(shared), Wait: wait}
	}
	return e, true
}

func bitsPerSecond(bytes float64) units.Rate { return units.Rate(math.Round(8 * bytes)) }

// fetchRate returns the mean rate of fetches in bytes per second; 0 for too few of them.
func fetchRate(f policies.Fetched) float64 {
	if f.Count < enough || f.Busy <= 0 {
		return 0
	}
	return float64(f.Size) / f.Busy.Seconds()
}

// fetchRates returns the rates that the fetches of a stage will have alone, and with others; 0 if they are not known. ByFlows has them
// for the number of flows on their links, or for the nearest number that was observed, of equally near ones the smaller.
func (x *cloning) fetchRates(h *policies.CopyHistory, st, before *policies.StageState) (alone, shared float64) {
	alone, shared = fetchRate(h.Alone), fetchRate(h.Shared)
	if !x.ByFlows {
		return alone, shared
	}
	level := policies.FlowLevel(x.flows(st, before))
	near := func(get func(level int) policies.Fetched, all float64) float64 {
		for off := range policies.FlowLevels {
			for _, l := range []int{level - off, level + off} {
				if l < 0 || l >= policies.FlowLevels {
					continue
				}
				if rate := fetchRate(get(l)); rate > 0 {
					return rate
				}
			}
		}
		return all
	}
	return near(func(l int) policies.Fetched { return h.ByFlows[l].Alone }, alone), near(func(l int) policies.Fetched { return h.ByFlows[l].Shared }, shared)
}

// flows returns the number of flows on the busier of the two links of a fetch of a stage: those of a task at the same time, or one
// for each task that fetches an output of the stage before; and the mean of the other fetches of a host.
func (x *cloning) flows(st, before *policies.StageState) int {
	readers := (st.Outputs*st.Tasks + before.Tasks - 1) / max(before.Tasks, 1)
	hosts := 0
	for h := range x.d.v.Slots {
		if !x.d.v.Slots[h].Lost {
			hosts++
		}
	}
	return max(min(st.Outputs, fetchesAtOnce), readers) + x.d.v.History.Fetches/max(hosts, 1)
}

// tasksOf returns the number of tasks of a job.
func tasksOf(j *policies.TaskJob) (n int) {
	for i := range j.Stages {
		n += j.Stages[i].Tasks
	}
	return n
}

// Source returns the copy to fetch, by Reads.
func (s *instance) Source(c *policies.CopyChoice) int {
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

// recent reports whether an estimate of ω at a time is still used.
func (x *cloning) recent(at time.Duration) bool {
	if x.Learn == PeriodicEstimates {
		return x.period(at) == x.period(x.d.v.Now)
	}
	return x.d.v.Now <= at+x.LearnEvery
}

// learnWait estimates ω for the class of a job, when the copies of a stage that fetches are decided, from what was observed of
// the class. It needs the time of tasks of the stage before.
func (x *cloning) learnWait(job, stage, copies int) {
	j := &x.d.v.Jobs[job]
	class := jobs.SizeClass(tasksOf(j))
	w := &x.d.learned.waits[class]
	if stage == 0 || x.d.v.History == nil || w.known && x.recent(w.at) {
		return
	}
	h, before := &x.d.v.History.Copies[class], &j.Stages[stage-1]
	fetches := h.Alone.Count + h.Shared.Count
	alone, shared := x.fetchRates(h, &j.Stages[stage], before)
	if len(h.Lags) < enough || len(h.Computing) < enough || alone == 0 || len(before.Durations) == 0 {
		return
	}
	size := float64(h.Alone.Size+h.Shared.Size) / float64(fetches) // mean of a fetch
	c := clone.Copying{Read: time.Duration(size / alone * float64(time.Second)), Shared: 0.5, Lags: h.Lags, Computing: h.Computing, Copies: copies,
		Outputs: math.Ceil(float64(j.Stages[stage].Outputs) / fetchesAtOnce)}
	if shared > 0 {
		c.Shared = min(max(shared/alone, 0.01), 1)
	}
	times := slices.Sorted(slices.Values(before.Durations))
	w.known, w.at, w.wait = true, x.d.v.Now, c.Wait(times[len(times)/2])
}
