package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/scripts/suite"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// smallJob is the largest number of tasks of a small job, as in the report.
const smallJob = 10

// figures are those of an arm relative to another, by repeat.
type figures struct {
	all, small    []float64 // saved of the average job time in %, of all jobs and of small ones
	p75, p90      []float64 // percentiles over small jobs of what each saved, in %
	slowest, left spread    // slowest task over the median of stages of small jobs, of the arm and of the other one
	bytes         []float64 // payload that tasks read and fetched from other hosts
	relativeBytes []float64 // that over the other arm's
}

// spread is a ratio of stages: the mean over stages, and the 95th percentile, by repeat.
type spread struct{ mean, p95 []float64 }

func (s *spread) add(ratios []float64) {
	if len(ratios) > 0 {
		s.mean = append(s.mean, stat.Mean(ratios, nil))
		s.p95 = append(s.p95, metrics.Quantile(0.95, slices.Sorted(slices.Values(ratios))))
	}
}

// sample is an arm in one repeat.
type sample struct {
	times map[workloads.JobID]float64 // of jobs, in s
	small map[workloads.JobID]bool
	tasks map[jobs.TaskID]*task // of small jobs
	bytes float64
}

// task is from when to when a task was under way: the launch of its first attempt, and the end of the one that committed.
type task struct {
	launched, ended time.Duration
	committed       bool
}

func samplesOf(run *rundir.Run, arm string) map[int]*sample {
	out := map[int]*sample{}
	at := func(k schema.Key) *sample {
		if out[k.Repeat] == nil {
			out[k.Repeat] = &sample{times: map[workloads.JobID]float64{}, small: map[workloads.JobID]bool{}, tasks: map[jobs.TaskID]*task{}}
		}
		return out[k.Repeat]
	}
	for _, j := range run.Jobs {
		if j.Arm == arm {
			s := at(j.Key)
			s.times[j.Job], s.small[j.Job] = j.JobTime.Seconds(), *j.Tasks <= smallJob
		}
	}
	for i := range run.Attempts {
		if a := &run.Attempts[i]; a.Arm == arm && at(a.Key).small[a.Job] {
			at(a.Key).attempt(a)
		}
	}
	for i := range run.Flows {
		if f := &run.Flows[i]; f.Arm == arm && f.Job != nil && !f.Failed {
			at(f.Key).bytes += float64(f.Size)
		}
	}
	return out
}

// attempt adds an attempt of a small job.
func (s *sample) attempt(a *schema.Attempt) {
	id := jobs.TaskID{Job: a.Job, Stage: a.Stage, Index: a.Task}
	k := s.tasks[id]
	if k == nil {
		k = &task{launched: a.Start}
		s.tasks[id] = k
	}
	k.launched = min(k.launched, a.Start)
	if a.Outcome == flows.Committed {
		k.ended, k.committed = a.End, true
	}
}

// slowest returns the time of the slowest task over the median, of each stage of at least two tasks. A task that was
// rescued by a backup counts from its first launch, not from that of the backup.
func (s *sample) slowest() (ratios []float64) {
	took := map[[2]int][]float64{}
	for id, k := range s.tasks {
		if of := [2]int{int(id.Job), id.Stage}; k.committed {
			took[of] = append(took[of], (k.ended - k.launched).Seconds())
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(took), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		if times := took[of]; len(times) > 1 {
			slices.Sort(times)
			ratios = append(ratios, times[len(times)-1]/metrics.Median(times))
		}
	}
	return ratios
}

func figuresOf(run *rundir.Run, base, arm string) (f figures) {
	with, without := samplesOf(run, arm), samplesOf(run, base)
	for _, repeat := range slices.Sorted(maps.Keys(without)) {
		a, b := with[repeat], without[repeat]
		if a == nil || b == nil || len(a.times) != len(b.times) {
			continue // a void arm
		}
		var all, small [2]float64
		var gains []float64
		for _, j := range slices.Sorted(maps.Keys(b.times)) {
			is, was := a.times[j], b.times[j]
			all[0], all[1] = all[0]+is, all[1]+was
			if b.small[j] {
				small[0], small[1] = small[0]+is, small[1]+was
				gains = append(gains, 100*(1-is/was))
			}
		}
		slices.Sort(gains)
		f.all, f.small = append(f.all, 100*(1-all[0]/all[1])), append(f.small, 100*(1-small[0]/small[1]))
		f.p75, f.p90 = append(f.p75, metrics.Quantile(0.75, gains)), append(f.p90, metrics.Quantile(0.9, gains))
		f.slowest.add(a.slowest())
		f.left.add(b.slowest())
		f.bytes, f.relativeBytes = append(f.bytes, a.bytes), append(f.relativeBytes, a.bytes/b.bytes)
	}
	return f
}

// claimed is a figure with its name in the IDs of claims.
type claimed struct {
	name   string
	values []float64
}

func (f figures) claimed() []claimed {
	return []claimed{
		{"all", f.all}, {"small", f.small}, {"p75", f.p75}, {"p90", f.p90},
		{"slowest", f.slowest.mean}, {"slowest-p95", f.slowest.p95}, {"left", f.left.mean}, {"left-p95", f.left.p95},
		{"bytes", f.relativeBytes},
	}
}

// cells returns a row of the table.
func (f figures) cells() []string {
	const percent = "%.1f %% [%.1f, %.1f]"
	return []string{
		suite.Interval(f.all, percent), suite.Interval(f.small, percent), mean(f.p75, "%.0f %%"), mean(f.p90, "%.0f %%"),
		mean(f.left.mean, "%.2f") + " → " + mean(f.slowest.mean, "%.2f"), mean(f.left.p95, "%.2f") + " → " + mean(f.slowest.p95, "%.2f"),
		suite.Interval(f.relativeBytes, "%.2f× [%.2f, %.2f]"),
	}
}

func mean(list []float64, format string) string {
	if len(list) == 0 {
		return "–"
	}
	return fmt.Sprintf(format, metrics.OverRepeats(list).Value)
}
