// Package tracestats summarizes the completion times of a trace's coflows under one scheduler
// as in the literature: averages and percentiles, by bin, and the speed-up of one scheduler
// over another, coflow by coflow.
//
// It needs no captures: the coflows may be simulated. Package metrics summarizes
// measurements on packets, with confidence intervals.
package tracestats

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/results/metrics"
	"testbed/topo/units"
	"testbed/workloads"
)

// Coflow is a completed coflow.
type Coflow struct {
	ID      workloads.CoflowID
	Arrival time.Duration // since the start of the trace
	CCT     time.Duration
	Bound   time.Duration // lower bound of its CCT when it is alone; 0 if unknown
	Width   int           // flows
	Size    units.Bytes
	Largest units.Bytes // largest flow
}

// Summary describes coflows. Times are averages and percentiles of CCT; percentiles are
// interpolated linearly (metrics.Quantile).
type Summary struct {
	Coflows  int           `json:"coflows"`
	Average  time.Duration `json:"average_ns"`
	P50      time.Duration `json:"p50_ns"`
	P90      time.Duration `json:"p90_ns"`
	P95      time.Duration `json:"p95_ns"`
	P99      time.Duration `json:"p99_ns"`
	Makespan time.Duration `json:"makespan_ns"` // from time 0 to the end of the last coflow
	// OverBound is the average of CCT/Bound over coflows with a known bound.
	OverBound float64 `json:"over_bound"`
	Bins      [4]Bin  `json:"bins"` // by workloads.Bin: SN, LN, SW, LW
}

// Summarize returns the summary of coflows, split by bins.
func Summarize(all []Coflow, bins Bins) Summary {
	s := Summary{Coflows: len(all)}
	s.Bins = split(all, func(c Coflow) int { return int(bins.Of(c)) }, func(i int) string { return workloads.Bin(i).String() })
	if len(all) == 0 {
		return s
	}
	ccts := make([]float64, len(all))
	var sum, over float64
	bounded := 0
	for i, c := range all {
		ns := float64(c.CCT)
		ccts[i] = ns
		sum += ns
		s.Makespan = max(s.Makespan, c.Arrival+c.CCT)
		if c.Bound > 0 {
			bounded++
			over += ns / float64(c.Bound)
		}
	}
	slices.Sort(ccts)
	at := func(p float64) time.Duration { return nearest(metrics.Quantile(p, ccts)) }
	s.Average, s.P50, s.P90, s.P95, s.P99 = nearest(sum/float64(len(all))), at(0.5), at(0.9), at(0.95), at(0.99)
	if bounded > 0 {
		s.OverBound = over / float64(bounded)
	}
	return s
}

func nearest(ns float64) time.Duration { return time.Duration(math.Round(ns)) }

// Speedup is the speed-up of coflows relative to another scheduler.
type Speedup struct {
	Coflows int `json:"coflows"`
	// Averages is the ratio of the two average CCTs.
	Averages float64 `json:"averages"`
	// Mean, P50 and P90 are those of the ratios of each coflow's CCTs.
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
}

// Faster returns the speed-up of arm over base: CCT under base over CCT under arm. Both must
// have the same coflows.
func Faster(base, arm []Coflow) (Speedup, error) {
	if len(base) != len(arm) {
		return Speedup{}, fmt.Errorf("%d and %d coflows: must be the same coflows", len(base), len(arm))
	}
	of := make(map[workloads.CoflowID]time.Duration, len(base))
	for _, c := range base {
		of[c.ID] = c.CCT
	}
	s := Speedup{Coflows: len(arm)}
	ratios := make([]float64, 0, len(arm))
	var b, a float64
	for _, c := range arm {
		was, ok := of[c.ID]
		if !ok {
			return Speedup{}, fmt.Errorf("coflow %d is in only one of them: must be the same coflows", c.ID)
		}
		if c.CCT <= 0 || was <= 0 {
			return Speedup{}, fmt.Errorf("coflow %d takes %v and %v: times must be positive", c.ID, was, c.CCT)
		}
		b, a = b+float64(was), a+float64(c.CCT)
		ratios = append(ratios, float64(was)/float64(c.CCT))
		s.Mean += float64(was) / float64(c.CCT)
	}
	if len(ratios) == 0 {
		return s, nil
	}
	slices.Sort(ratios)
	s.Averages, s.Mean = b/a, s.Mean/float64(len(ratios))
	s.P50, s.P90 = metrics.Quantile(0.5, ratios), metrics.Quantile(0.9, ratios)
	return s, nil
}
