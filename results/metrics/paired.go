package metrics

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Resamples of the bootstrap: fewer for many pairs, whose interval is narrow, so
// that a report stays quick.
const (
	mostResamples  = 2000
	leastResamples = 200
	drawsInAll     = 20_000_000
)

// Interval is a 95 % confidence interval.
type Interval struct{ Low, High float64 }

// Paired compares two arms item by item: each ratio is the baseline's time over
// the arm's for the same coflow, flow or block of the same repeat, so more than 1
// is faster than the baseline.
type Paired struct {
	N        int // pairs
	Unpaired int // items that only one arm has, or whose time is not positive
	Median   float64
	GeoMean  float64
	// MedianCI and GeoMeanCI are percentile bootstrap intervals (Efron, 1979)
	// over the pairs. They take pairs as independent: flows of one coflow, or one
	// coflow in several repeats, are not quite, and then the truth is wider.
	MedianCI, GeoMeanCI Interval
}

type pairKey struct{ repeat, id int }

// Pair compares arm with base. With N 0 the rest means nothing. The same items
// and seed give the same intervals.
func Pair(base, arm []Item, seed uint64) Paired {
	times := make(map[pairKey]float64, len(base))
	for _, b := range base {
		times[pairKey{b.Repeat, b.ID}] = float64(b.Time)
	}
	var p Paired
	var logs []float64
	matched := 0
	for _, a := range arm {
		b, ok := times[pairKey{a.Repeat, a.ID}]
		if !ok {
			p.Unpaired++
			continue
		}
		matched++
		if b <= 0 || a.Time <= 0 {
			p.Unpaired++
			continue
		}
		logs = append(logs, math.Log(b/float64(a.Time)))
	}
	p.Unpaired += len(base) - matched
	p.N = len(logs)
	if p.N == 0 {
		return p
	}
	slices.Sort(logs)
	p.Median = math.Exp(Quantile(0.5, logs))
	p.GeoMean = math.Exp(stat.Mean(logs, nil))
	p.MedianCI, p.GeoMeanCI = bootstrap(logs, seed)
	return p
}

// bootstrap is the intervals of median and mean of ascending logarithms, as
// ratios.
func bootstrap(logs []float64, seed uint64) (median, mean Interval) {
	n := len(logs)
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	count := min(mostResamples, max(leastResamples, drawsInAll/n))
	medians, means := make([]float64, count), make([]float64, count)
	times := make([]int32, n) // how often each value was drawn
	for k := range count {
		clear(times)
		for range n {
			times[rng.IntN(n)]++
		}
		// Logs ascend, so one walk finds the middle ranks of the resample.
		low, high := (n-1)/2, n/2
		sum, below := 0.0, 0
		for i, c := range times {
			if c == 0 {
				continue
			}
			sum += float64(float64(c) * logs[i])
			next := below + int(c)
			if below <= low && low < next {
				medians[k] += logs[i] / 2
			}
			if below <= high && high < next {
				medians[k] += logs[i] / 2
			}
			below = next
		}
		means[k] = sum / float64(n)
	}
	return interval(medians), interval(means)
}

func interval(logs []float64) Interval {
	slices.Sort(logs)
	return Interval{math.Exp(Quantile(0.025, logs)), math.Exp(Quantile(0.975, logs))}
}
