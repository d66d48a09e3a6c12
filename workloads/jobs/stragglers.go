package jobs

import (
	"math"
	"slices"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Stragglers describes how much slower some attempts of tasks are than others. Draws depend on the seed, the attempt and,
// for Sticky, its host and start, and on nothing else of the policy. nil slows none. The paper on Dolly
// (NSDI 2013) reports that the slowest task of a job takes 6 to 8 times as long as the median. The distributions are a choice
// of this project: docs/job-runtime.md has their ratios.
type Stragglers struct {
	// Probability is that of an attempt to straggle: its rates are divided by a factor that is uniform in Factor. Those of
	// the others are divided by one that is uniform from 1 - Spread to 1 + Spread.
	Probability, Spread float64
	Factor              [2]float64
	// MidTask is the share of stragglers that slow down after a uniform part of their work. The others are slow from
	// the start.
	MidTask float64
	// Sticky is the share of Probability that hosts contribute, not attempts: all attempts that start on a host in a
	// Window, counted from the start of the run, straggle if the host does.
	Sticky float64
	Window time.Duration
	// Shape, if positive, replaces all above: the factor of each attempt is from a Pareto distribution of this shape, from
	// 1 up, and at most Most. It applies from the start.
	Shape, Most float64
}

// Slowdown is what one attempt draws. The zero value is not valid; Factor 1 changes nothing.
type Slowdown struct {
	Factor float64 // it divides the rates of the attempt, and is above 0
	Onset  float64 // share of its work from which Factor applies, 0 to below 1; before, rates are unchanged
	// Straggles reports that Factor is that of a straggler. With a Pareto distribution, that is an attempt with less than
	// half the median rate, by the definition of the paper.
	Straggles bool
}

// Of returns the slowdown of an attempt that starts on a host at a time since the start of the run.
func (s *Stragglers) Of(seed uint64, id AttemptID, on topo.HostID, start time.Duration) Slowdown {
	if s == nil {
		return Slowdown{Factor: 1}
	}
	r := workloads.Stream(seed, "straggler", int(id.Task.Job), id.Task.Stage, id.Task.Index, id.N)
	u := r.Float64()
	if s.Shape > 0 {
		median := math.Pow(2, 1/s.Shape)
		f := min(s.Most, math.Pow(1-u, -1/s.Shape))
		return Slowdown{Factor: f, Straggles: f > 2*median}
	}
	// All are drawn, so that a setting does not change the draws of another.
	uniform := func(from, to float64) float64 { return from + float64((to-from)*r.Float64()) }
	slow := Slowdown{Factor: uniform(s.Factor[0], s.Factor[1]), Straggles: true}
	usual := Slowdown{Factor: uniform(1-s.Spread, 1+s.Spread)}
	if mid, onset := r.Float64() < s.MidTask, r.Float64(); mid {
		slow.Onset = onset
	}
	own := s.Probability * (1 - s.Sticky)
	if u < own || s.Sticky > 0 && s.hostStraggles(seed, on, start, own) {
		return slow
	}
	return usual
}

// hostStraggles reports whether a host straggles at a time. Attempts straggle by themselves with probability own, so that
// the probability of either is Probability.
func (s *Stragglers) hostStraggles(seed uint64, h topo.HostID, at time.Duration, own float64) bool {
	return workloads.Stream(seed, "straggling-host", int(h), int(at/s.Window)).Float64() < (s.Probability-own)/(1-own)
}

// SlowestToMedian returns how much longer than the median the slowest of equal tasks takes, each with one attempt on a
// host of its own: the median and the mean over random jobs of n tasks.
func (s *Stragglers) SlowestToMedian(seed uint64, n int) (median, mean float64) {
	const trials = 2000
	ratios, times := make([]float64, trials), make([]float64, n)
	for i := range ratios {
		for k := range times {
			slow := s.Of(seed, AttemptID{Task: TaskID{Job: JobID(i + 1), Index: k}}, topo.HostID(i*n+k), 0)
			times[k] = slow.Onset + float64((1-slow.Onset)*slow.Factor)
		}
		slices.Sort(times)
		ratios[i] = times[n-1] / ((times[(n-1)/2] + times[n/2]) / 2)
		mean += ratios[i] / trials
	}
	slices.Sort(ratios)
	return ratios[trials/2], mean
}

// Rate returns the rate that Factor leaves of a rate, at least 1.
func (s Slowdown) Rate(r units.Rate) units.Rate {
	return max(1, units.Rate(min(float64(r)/s.Factor, math.MaxInt64/2)))
}

// Takes returns the time that a part of the work takes: all is the time of all work on an unloaded slot without Factor,
// done what precedes the part, and part the part itself.
func (s Slowdown) Takes(done, part, all time.Duration) time.Duration {
	full := s.unslowed(done, part, all)
	return full + time.Duration(math.Round(float64(part-full)*s.Factor))
}

// Share returns the share of a part of the work that is done when a share of the time Takes has passed.
func (s Slowdown) Share(passed float64, done, part, all time.Duration) float64 {
	if part <= 0 {
		return passed
	}
	full := float64(s.unslowed(done, part, all))
	at := passed * float64(s.Takes(done, part, all))
	if at > full {
		at = full + (at-full)/s.Factor
	}
	return min(1, at/float64(part))
}

// unslowed returns how much of a part of the work precedes Onset.
func (s Slowdown) unslowed(done, part, all time.Duration) time.Duration {
	return max(0, min(part, time.Duration(s.Onset*float64(all))-done))
}
