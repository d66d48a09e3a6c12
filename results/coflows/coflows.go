// Package coflows summarises the completion times of a trace's coflows under one
// scheduler as the literature reports them: averages and percentiles, by bin, and
// how much faster one scheduler is than another, coflow by coflow.
//
// It needs no captures: its coflows may be simulated. What packets showed is summarised
// by package metrics, with intervals.
package coflows

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/results/metrics"
	"testbed/topo/units"
	"testbed/workloads"
)

// Coflow is one that has ended.
type Coflow struct {
	ID      workloads.CoflowID
	Arrival time.Duration // since the start of the trace
	CCT     time.Duration
	Bound   time.Duration // the least time it takes alone; 0 where it is not known
	Width   int           // flows
	Size    units.Bytes
	Largest units.Bytes // flow
}

// Summary describes coflows. Times are averages and percentiles of CCT; percentiles
// are interpolated linearly (metrics.Quantile).
type Summary struct {
	Coflows  int           `json:"coflows"`
	Average  time.Duration `json:"average_ns"`
	P50      time.Duration `json:"p50_ns"`
	P90      time.Duration `json:"p90_ns"`
	P95      time.Duration `json:"p95_ns"`
	P99      time.Duration `json:"p99_ns"`
	Makespan time.Duration `json:"makespan_ns"` // from time 0 to the end of the last coflow
	// OverBound is the average of CCT/Bound over coflows whose bound is known.
	OverBound float64 `json:"over_bound"`
	Bins      [4]Bin  `json:"bins"` // by workloads.Bin: SN, LN, SW, LW
}

// Summarize describes coflows, which bins splits.
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

// Speedup tells how much faster coflows are than under another scheduler.
type Speedup struct {
	Coflows int `json:"coflows"`
	// Averages is the ratio of the two average CCTs.
	Averages float64 `json:"averages"`
	// Mean, P50 and P90 are of the ratios of each coflow's CCTs.
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
}

// Faster is the speed-up of arm over base: CCT under base over CCT under arm. Both
// must hold the same coflows.
func Faster(base, arm []Coflow) (Speedup, error) {
	if len(base) != len(arm) {
		return Speedup{}, fmt.Errorf("%d coflows beside %d: want the same ones", len(base), len(arm))
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
			return Speedup{}, fmt.Errorf("coflow %d is in one of them only: want the same coflows", c.ID)
		}
		if c.CCT <= 0 || was <= 0 {
			return Speedup{}, fmt.Errorf("coflow %d takes %v and %v: want positive times", c.ID, was, c.CCT)
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
