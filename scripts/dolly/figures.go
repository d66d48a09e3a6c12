package main

import (
	"fmt"
	"maps"
	"slices"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/scripts/suite"
	"testbed/workloads"
)

// smallJob is the largest number of tasks of a small job, as in the report.
const smallJob = 10

// figures are those of an arm relative to another, by repeat.
type figures struct {
	all, small    []float64 // saved of the average job time in %, of all jobs and of small ones
	p75, p90      []float64 // percentiles over small jobs of what each saved, in %
	slowest       []float64 // slowest task over the median, the average over stages of small jobs
	baseSlowest   []float64 // that of the other arm
	bytes         []float64 // payload that tasks read and fetched from other hosts
	relativeBytes []float64 // that over the other arm's
}

// sample is an arm in one repeat.
type sample struct {
	times map[workloads.JobID]float64 // of jobs, in s
	small map[workloads.JobID]bool
	took  map[[2]int][]float64 // times of committed tasks of small jobs, by job and stage, in s
	bytes float64
}

func samplesOf(run *rundir.Run, arm string) map[int]*sample {
	out := map[int]*sample{}
	at := func(k schema.Key) *sample {
		if out[k.Repeat] == nil {
			out[k.Repeat] = &sample{times: map[workloads.JobID]float64{}, small: map[workloads.JobID]bool{}, took: map[[2]int][]float64{}}
		}
		return out[k.Repeat]
	}
	for _, j := range run.Jobs {
		if j.Arm == arm {
			s := at(j.Key)
			s.times[j.Job], s.small[j.Job] = j.JobTime.Seconds(), *j.Tasks <= smallJob
		}
	}
	for _, a := range run.Attempts {
		if a.Arm == arm && a.Outcome == flows.Committed && at(a.Key).small[a.Job] {
			of := [2]int{int(a.Job), a.Stage}
			at(a.Key).took[of] = append(at(a.Key).took[of], a.Time.Seconds())
		}
	}
	for i := range run.Flows {
		if f := &run.Flows[i]; f.Arm == arm && f.Job != nil && !f.Failed {
			at(f.Key).bytes += float64(f.Size)
		}
	}
	return out
}

// slowest returns the average over stages of at least two tasks.
func (s *sample) slowest() float64 {
	sum, n := 0.0, 0
	for _, of := range slices.SortedFunc(maps.Keys(s.took), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		if took := s.took[of]; len(took) > 1 {
			sum += float64(slices.Max(took) / metrics.Median(took))
			n++
		}
	}
	return sum / float64(max(1, n))
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
		f.slowest, f.baseSlowest = append(f.slowest, a.slowest()), append(f.baseSlowest, b.slowest())
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
	return []claimed{{"all", f.all}, {"small", f.small}, {"p75", f.p75}, {"p90", f.p90}, {"slowest", f.slowest}, {"bytes", f.relativeBytes}}
}

// cells returns a row of the table.
func (f figures) cells() []string {
	const percent = "%.1f %% [%.1f, %.1f]"
	return []string{suite.Interval(f.all, percent), suite.Interval(f.small, percent), mean(f.p75, "%.0f %%"), mean(f.p90, "%.0f %%"), mean(f.baseSlowest, "%.2f") + " → " + mean(f.slowest, "%.2f"),
		suite.Interval(f.relativeBytes, "%.2f× [%.2f, %.2f]")}
}

func mean(list []float64, format string) string {
	if len(list) == 0 {
		return "–"
	}
	return fmt.Sprintf(format, metrics.OverRepeats(list).Value)
}
