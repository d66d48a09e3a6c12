package metrics

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Resamples of the bootstrap: fewer for many clusters, whose interval is narrow, so
// that a report stays quick.
const (
	mostResamples  = 2000
	leastResamples = 200
	drawsInAll     = 20_000_000
)

// leastError is the least standard error of a resample, as a fraction of that of all
// clusters. A resample of nothing but equal clusters has none, and would by itself
// make an interval endless.
const leastError = 0.2

// statistic is a figure of the clusters' sums which does not change where all sums
// are the same number of times as large.
type statistic struct {
	of func(sums []float64) float64
	// gradient is of by each of the sums.
	gradient func(sums, into []float64)
}

// logRatio is the logarithm of sum a over sum b.
func logRatio(a, b int) statistic {
	return statistic{
		func(s []float64) float64 { return math.Log(s[a] / s[b]) },
		func(s, into []float64) { into[a], into[b] = 1/s[a], -1/s[b] },
	}
}

// average is sum a over sum n.
func average(a, n int) statistic {
	return statistic{
		func(s []float64) float64 { return s[a] / s[n] },
		func(s, into []float64) { into[a], into[n] = 1/s[n], -s[a]/(s[n]*s[n]) },
	}
}

// less is x without y.
func (x statistic) less(y statistic) statistic {
	return statistic{
		func(s []float64) float64 { return x.of(s) - y.of(s) },
		func(s, into []float64) {
			other := make([]float64, len(into))
			x.gradient(s, into)
			y.gradient(s, other)
			for i := range into {
				into[i] -= other[i]
			}
		},
	}
}

// sample is clusters of items, each with its sums, and draws of them. A cluster is
// drawn whole, as often as there are clusters, with replacement.
type sample struct {
	clusters [][]float64
	rng      *rand.Rand
	count    int
}

func newSample(clusters [][]float64, items int, seed uint64) *sample {
	return &sample{clusters, rand.New(rand.NewPCG(seed, uint64(items))), min(mostResamples, max(leastResamples, drawsInAll/items))}
}

// draw tells how often each cluster is drawn.
func (s *sample) draw(into []int) {
	clear(into)
	for range into {
		into[s.rng.IntN(len(into))]++
	}
}

// sums are those of all clusters, each as often as it was drawn.
func (s *sample) sums(drawn []int, into []float64) {
	clear(into)
	for i, c := range s.clusters {
		if k := float64(drawn[i]); k > 0 {
			for j, x := range c {
				into[j] += float64(k * x)
			}
		}
	}
}

// deviation is the standard error of a statistic, by what each cluster moves it.
func (s *sample) deviation(gradient []float64, drawn []int) float64 {
	var sum float64
	for i, c := range s.clusters {
		k := float64(drawn[i])
		if k == 0 {
			continue
		}
		var move float64
		for j, x := range c {
			move += float64(gradient[j] * x)
		}
		sum += float64(k * float64(move*move))
	}
	n := float64(len(s.clusters))
	return math.Sqrt(sum * n / (n - 1))
}

// intervals are the 95 % intervals of statistics. Each takes others' draws, one call
// for each resample, as well.
//
// Each end is the farther one of two bootstraps (Efron and Tibshirani, An
// Introduction to the Bootstrap, 1993, chapters 12 and 13): of bootstrap-t, which
// knows that a resample without the few large clusters also knows less of how far
// off it is, and of percentiles that are widened for few clusters as Student's
// distribution is (Hesterberg, The American Statistician, 2015). Either alone is too
// narrow where times are skewed. Of fewer than LeastPairs clusters bootstrap-t says
// next to nothing and is left out.
func (s *sample) intervals(stats []statistic, also func(drawn []int)) []Interval {
	n := len(s.clusters)
	student := n >= LeastPairs
	out := make([]Interval, len(stats))
	drawn := make([]int, n)
	width := 0
	if n > 0 {
		width = len(s.clusters[0])
	}
	sums, gradient := make([]float64, width), make([]float64, width)
	for i := range drawn {
		drawn[i] = 1
	}
	s.sums(drawn, sums)
	value, off := make([]float64, len(stats)), make([]float64, len(stats))
	for k, x := range stats {
		value[k] = x.of(sums)
		if student {
			clear(gradient)
			x.gradient(sums, gradient)
			off[k] = s.deviation(gradient, drawn)
		}
	}
	values, ts := make([][]float64, len(stats)), make([][]float64, len(stats))
	for range s.count {
		s.draw(drawn)
		s.sums(drawn, sums)
		for k, x := range stats {
			v := x.of(sums)
			values[k] = append(values[k], v)
			if off[k] > 0 {
				clear(gradient)
				x.gradient(sums, gradient)
				ts[k] = append(ts[k], (v-value[k])/max(s.deviation(gradient, drawn), leastError*off[k]))
			}
		}
		if also != nil {
			also(drawn)
		}
	}
	for k := range stats {
		out[k] = percentiles(values[k], n)
		if off[k] > 0 {
			slices.Sort(ts[k])
			out[k].Low = min(out[k].Low, value[k]-float64(Quantile(0.975, ts[k])*off[k]))
			out[k].High = max(out[k].High, value[k]-float64(Quantile(0.025, ts[k])*off[k]))
		}
	}
	return out
}

// percentiles is the interval that holds 95 % of the values of resamples, and more
// of few clusters. It sorts the values.
func percentiles(values []float64, clusters int) Interval {
	slices.Sort(values)
	tail := 0.025
	if n := float64(clusters); clusters > 1 {
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(tail)
		tail = distuv.UnitNormal.CDF(t * math.Sqrt(n/(n-1)))
	}
	return Interval{Quantile(tail, values), Quantile(1-tail, values)}
}

// exp is the interval of what the interval of a logarithm is of.
func (i Interval) exp() Interval { return Interval{math.Exp(i.Low), math.Exp(i.High)} }
