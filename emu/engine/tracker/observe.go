package tracker

import (
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// EstimateSample is what the scheduler estimates from At on.
type EstimateSample struct {
	At time.Duration
	policies.Estimates
}

// sampleEvery is the shortest time between two samples of estimates.
const sampleEvery = time.Second

// sample notes the estimates if they have changed.
func (t *Tracker) sample() {
	if t.estimator == nil {
		return
	}
	e, ok := t.estimator.Estimates(&t.view)
	if n := len(t.samples); ok && (n == 0 || t.samples[n-1].Estimates != e) {
		t.samples = append(t.samples, EstimateSample{t.now, e})
	}
}

// Estimates returns what the scheduler has estimated so far, at most once a second and as it is now; none if it estimates
// nothing.
func (t *Tracker) Estimates() []EstimateSample {
	t.sample()
	return t.samples
}

// observed is the progress rate of an attempt that has ended, and its host.
type observed struct {
	rate float64 // bytes of input per second
	host topo.HostID
}

// observe notes the progress rate of an attempt that has ended, or is being stopped, for policies.History.
func (t *Tracker) observe(a *attempt, progress float64, elapsed time.Duration) {
	st := a.st
	if !t.needs.Has(policies.TaskHistory) || elapsed <= 0 || len(st.tasks) < 2 {
		return
	}
	x := observed{progress * max(1, float64(st.inputOf(a.i))) / elapsed.Seconds(), a.Host}
	if st.median > 0 {
		t.compare(st, x)
	} else {
		st.rates = append(st.rates, x)
	}
}

// judge compares the attempts of a stage all of whose tasks are done.
func (t *Tracker) judge(st *stage) {
	if st.median > 0 || len(st.rates) == 0 {
		return
	}
	rates := make([]float64, len(st.rates))
	for i, x := range st.rates {
		rates[i] = x.rate
	}
	slices.Sort(rates)
	n := len(rates)
	st.median = (rates[(n-1)/2] + rates[n/2]) / 2
	for _, x := range st.rates {
		t.compare(st, x)
	}
	st.rates = nil
}

// compare counts an attempt, which has straggled if it was slower than half the median of its stage.
func (t *Tracker) compare(st *stage, x observed) {
	slots, straggled := &t.slots[x.host], 0
	if x.rate < st.median/2 {
		straggled = 1
	}
	slots.Judged, t.history.Judged = slots.Judged+1, t.history.Judged+1
	slots.Straggled, t.history.Straggled = slots.Straggled+straggled, t.history.Straggled+straggled
}

// inputOf returns the input of a task: its block, or the outputs that it fetches.
func (st *stage) inputOf(i int32) (sum units.Bytes) {
	if !st.fetches() {
		return st.Tasks[i].InputSize
	}
	for from, s := range st.From {
		for n := range st.job.stages[s].Tasks {
			sum += st.job.stages[s].Tasks[n].Output[st.offset[from]+int(i)]
		}
	}
	return sum
}

// copyHistory returns the observations of jobs of the size of a job.
func (t *Tracker) copyHistory(j *job) *policies.CopyHistory {
	tasks := 0
	for _, st := range j.stages {
		tasks += len(st.tasks)
	}
	return &t.history.Copies[jobs.SizeClass(tasks)]
}

// newest appends a sample, and drops the oldest ones beyond the length of a history.
func newest(list []time.Duration, x time.Duration) []time.Duration {
	if len(list) == policies.HistoryLength {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, x)
}

// observeLag notes the time between the first and the second copy of an output; -1 if there was no second one.
func (t *Tracker) observeLag(j *job, lag time.Duration) {
	if t.needs.Has(policies.TaskHistory) {
		h := t.copyHistory(j)
		h.Lags = newest(h.Lags, lag)
	}
}

// observeComputing notes the time from the last fetch of an attempt to its commit.
func (t *Tracker) observeComputing(a *attempt) {
	if t.needs.Has(policies.TaskHistory) && a.st.fetches() {
		h := t.copyHistory(a.job())
		h.Computing = newest(h.Computing, t.now-a.fetched)
	}
}

// observeFetch notes a fetch of outputs that have copies.
func (t *Tracker) observeFetch(f *fetch) {
	if !t.needs.Has(policies.TaskHistory) || !f.a.st.choosing || f.a.job().over {
		return
	}
	h := t.copyHistory(f.a.job())
	level := &h.ByFlows[policies.FlowLevel(f.flows)]
	to, of := &h.Alone, &level.Alone
	if f.shared {
		to, of = &h.Shared, &level.Shared
	}
	to.Add(f.size, t.now-f.start)
	of.Add(f.size, t.now-f.start)
}

// share marks a fetch, and those of other attempts of its task that fetch the same copies at the same time.
func (f *fetch) share() {
	if !f.a.st.choosing {
		return
	}
	for _, b := range f.a.task().attempts {
		if b == f.a {
			continue
		}
		for _, g := range b.flights {
			if slices.ContainsFunc(g.outputs, func(o output) bool { return slices.Contains(f.outputs, o) }) {
				f.shared, g.shared = true, true
			}
		}
	}
}
