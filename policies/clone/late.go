package clone

import (
	"math"
	"slices"
	"time"
)

// LATE are the thresholds of Longest Approximate Time to End (Zaharia and others, Improving MapReduce Performance in
// Heterogeneous Environments, OSDI 2008, section 4). Among slow tasks, the one with the longest time left gets a backup.
type LATE struct {
	// Cap is SpeculativeCap, the share of all slots at which no more backups are launched.
	Cap float64
	// HostPercentile is SlowNodeThreshold, from 0 to 1: hosts with less work done than this percentile of all hosts
	// get no backups.
	HostPercentile float64
	// TaskPercentile is SlowTaskThreshold, from 0 to 1: tasks are slow that progress at less than this percentile of
	// their stage.
	TaskPercentile float64
	// After is the time that an attempt must have run. The paper has no value, Hadoop has this one.
	After time.Duration
}

// DefaultLATE returns the paper's thresholds and Hadoop's age.
func DefaultLATE() LATE {
	return LATE{Cap: 0.1, HostPercentile: 0.25, TaskPercentile: 0.25, After: time.Minute}
}

// Admits reports whether one more backup may be launched while a number of them runs.
func (l LATE) Admits(backups, slots int) bool { return float64(backups) < l.Cap*float64(slots) }

// SlowHost reports whether a host is slow, by the work that it and all hosts have done, in tasks. It sorts all.
func (l LATE) SlowHost(work float64, all []float64) bool {
	slices.Sort(all)
	return work < percentile(all, l.HostPercentile)
}

// SlowTask reports whether a task is slow, by its progress rate and those of its stage. It sorts stage.
func (l LATE) SlowTask(rate float64, stage []float64) bool {
	slices.Sort(stage)
	return rate < percentile(stage, l.TaskPercentile)
}

// Hadoop is the speculation of Hadoop 0.21, which deviates from LATE: it compares with means and standard deviations, and
// its cap has a minimum. The age and the choice among slow tasks are those of LATE.
type Hadoop struct{}

// Admits reports whether one more backup may be launched while a number of them runs, of a number of running tasks: up to 10
// of them, 1 % of the slots, or 10 % of the running tasks, whichever is most.
func (Hadoop) Admits(backups, slots, running int) bool {
	return float64(backups) < max(10, 0.01*float64(slots), 0.1*float64(running))
}

// SlowHost reports whether a host is slow: its mean time of an attempt exceeds the mean of all hosts by more than their
// standard deviation.
func (Hadoop) SlowHost(took float64, all []float64) bool {
	mean, deviation := moments(all)
	return took-mean > deviation*(1+rounding)
}

// SlowTask reports whether a task is slow: its progress rate is below the mean of its stage by more than their standard
// deviation, or than a third of the mean.
func (Hadoop) SlowTask(rate float64, stage []float64) bool {
	mean, deviation := moments(stage)
	return mean-rate > min(deviation, mean/3)*(1+rounding)
}

// moments returns the mean and the standard deviation of values; NaN if there are none.
func moments(values []float64) (mean, deviation float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		deviation += float64((v-mean)*(v-mean)) / n
	}
	if n == 0 {
		mean = math.NaN()
	}
	return mean, math.Sqrt(deviation)
}

// ProgressRate returns progress, from 0 to 1, for each second of the time that it took; 0 for no time.
func ProgressRate(progress float64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return progress / elapsed.Seconds()
}

// TimeLeft returns the time that an attempt needs for the rest if it keeps its progress rate; the longest time without
// progress.
func TimeLeft(progress float64, elapsed time.Duration) time.Duration {
	left := (1 - progress) / progress * float64(elapsed)
	if !(left < math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(max(0, left))
}

// percentile returns a percentile of ascending values, from 0 to 1, with linear interpolation; NaN if there are none.
// With the nearest value in place of it, no task of a stage of four or fewer could ever be slow.
func percentile(ascending []float64, p float64) float64 {
	if len(ascending) == 0 {
		return math.NaN()
	}
	at := min(max(p, 0), 1) * float64(len(ascending)-1)
	i := int(at)
	low, high := ascending[i], ascending[min(i+1, len(ascending)-1)]
	return low + (at-float64(i))*(high-low)
}
