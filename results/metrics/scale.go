package metrics

import (
	"fmt"
	"math"
)

// LeastMove is the largest change of a speed-up, as a fraction of it, that is ignored.
// Sizes are whole bytes, rates whole bits per second and times whole nanoseconds, so
// scaling is exact only up to rounding. On the fluid model, where nothing else differs,
// rounding changes no speed-up of the quickstart by more than 0.0001 %. A policy's decision,
// however, may depend on a single bit, and then a few completions move by a few
// milliseconds.
const LeastMove = 0.0005

// Estimate is a ratio with its 95 % confidence interval.
type Estimate struct {
	Value float64  `json:"value"`
	CI    Interval `json:"ci"`
}

// String returns the ratio and its interval with two decimals, or FewPairsMark.
func (e Estimate) String() string { return e.Decimals(2) }

// Decimals returns the ratio and its interval with n decimals, or FewPairsMark.
func (e Estimate) Decimals(n int) string {
	interval := e.CI.Decimals(n)
	if !e.CI.Known() {
		interval = "(" + FewPairsMark + ")"
	}
	return fmt.Sprintf("%.*f× %s", n, e.Value, interval)
}

// Says returns the ratio in words, above 1: "2.82× [1.88, 4.20] faster"; "" without an interval, or if it includes 1.
func (e Estimate) Says() string {
	switch {
	case e.CI.Holds(1):
		return ""
	case e.CI.Low > 1:
		return e.String() + " faster"
	}
	return Estimate{1 / e.Value, Interval{1 / e.CI.High, 1 / e.CI.Low}}.String() + " slower"
}

// Moved is a speed-up at two scales, and the ratio of the second to the first.
type Moved struct {
	Full, Scaled, Ratio Estimate
}

// Within reports whether the change is not significant: the interval of the ratio includes
// 1, or the ratio is within LeastMove of 1.
func (m Moved) Within() bool {
	return m.Ratio.CI.Holds(1) || math.Abs(m.Ratio.Value-1) <= LeastMove
}

// Scale compares the speed-up of an arm relative to a baseline at full scale with the
// speed-up of the same items at another scale.
type Scale struct {
	N        int // items that both arms have at both scales; others are ignored
	Clusters int // clusters of these items, by Item.Cluster
	Unpaired int // items missing in at least one of the four
	// Average is the speed-up of averages, as in Speedup, and Paired the geometric mean of
	// the items' ratios, as in Pair, over the N items.
	Average, Paired Moved
}

// CompareScale compares speed-ups at two scales. With fewer Clusters than LeastPairs there
// is no interval; with N 0 the other fields are undefined. Noise is as in Pair.
//
// Intervals are computed as in Pair, but each item is drawn with its four times together: an
// item that is slow at both scales carries no information about scale. The interval of the
// ratio is therefore that of the items' own changes, not the distance of two intervals.
// Clusters are assumed independent. Those of one run are not entirely, and then the true
// interval is wider. The same items and seed give the same intervals.
func CompareScale(base, arm, scaledBase, scaledArm []Item, seed uint64, noise *Deviations) Scale {
	var four [4]map[pairKey]float64
	all := map[pairKey]bool{}
	for i, items := range [4][]Item{base, arm, scaledBase, scaledArm} {
		four[i] = make(map[pairKey]float64, len(items))
		for _, item := range items {
			key := pairKey{item.Repeat, item.ID}
			all[key] = true
			if item.Time > 0 {
				four[i][key] = float64(item.Time)
			}
		}
	}
	var s Scale
	var times [][4]float64
	var cluster, repeat []int // of times
	number := map[int]int{}   // of clusters, in order of appearance
	for _, a := range arm {   // in a fixed order
		key := pairKey{a.Repeat, a.ID}
		var t [4]float64
		ok := true
		for i := range four {
			var has bool
			t[i], has = four[i][key]
			ok = ok && has
		}
		if ok {
			if _, seen := number[a.Cluster]; !seen {
				number[a.Cluster] = len(number)
			}
			times, cluster, repeat = append(times, t), append(cluster, number[a.Cluster]), append(repeat, a.Repeat)
		}
	}
	s.N, s.Clusters = len(times), len(number)
	if s.Unpaired = len(all) - s.N; s.N == 0 {
		return s
	}
	cells := make([]cell, len(times))
	for i, t := range times {
		cells[i] = cell{cluster[i], repeat[i], []float64{t[0], t[1], t[2], t[3], math.Log(t[0] / t[1]), math.Log(t[2] / t[3]), 1}}
	}
	x := newSample(cells, seed)
	full, scaled, pairedFull, pairedScaled := logRatio(0, 1), logRatio(2, 3), average(4, 6), average(5, 6)
	stats := []statistic{full, scaled, scaled.less(full), pairedFull, pairedScaled, pairedScaled.less(pairedFull)}
	out := x.bootstrap(stats)
	for i, e := range [6]*Estimate{&s.Average.Full, &s.Average.Scaled, &s.Average.Ratio, &s.Paired.Full, &s.Paired.Scaled, &s.Paired.Ratio} {
		value := stats[i].of(x.total)
		e.Value = math.Exp(value)
		if out != nil {
			e.CI = out[i].widen(value, x.betweenRuns(stats[i]), x.repeats, scaleNoise(noise, i), tail).exp()
		}
	}
	return s
}

// scaleNoise returns the calibrated noise of the i-th statistic of CompareScale; nil if it
// is unknown. Changes of speed-ups involve two comparisons.
func scaleNoise(noise *Deviations, i int) *float64 {
	if noise == nil {
		return nil
	}
	of := noise.MeanRatio
	if i >= 3 {
		of = noise.GeoMean
	}
	if i%3 == 2 {
		of *= math.Sqrt2
	}
	return &of
}

// OverRepeats returns the average of one figure of each repeat with its 95 % confidence interval,
// from Student's t distribution. Fewer than three repeats have no interval.
func OverRepeats(values []float64) Estimate {
	const least = 3
	n := float64(len(values))
	var e Estimate
	for _, v := range values {
		e.Value += v / n
	}
	if n < least {
		return e
	}
	var sum float64
	for _, v := range values {
		sum += (v - e.Value) * (v - e.Value)
	}
	half := student(n-1, tail) * math.Sqrt(sum/(n-1)/n)
	e.CI = Interval{e.Value - half, e.Value + half}
	return e
}
