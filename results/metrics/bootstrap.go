package metrics

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Resamples of the bootstrap: fewer for many clusters, whose interval is narrow, to limit
// the time of a report.
const (
	mostResamples  = 2000
	leastResamples = 200
	drawsInAll     = 20_000_000
)

// leastError is the smallest standard error of a resample, as a fraction of that of all
// clusters. A resample of equal clusters has none and would make the interval infinite.
const leastError = 0.2

// noiseFreedom is the number of degrees of freedom of a calibrated noise. The noise of
// another workload may differ from the calibrated one by a factor, so it counts for less
// than the number of pairs that it was measured with.
const noiseFreedom = 4

// statistic is a function of the clusters' sums that is invariant when all sums are
// multiplied by one number.
type statistic struct {
	of func(sums []float64) float64
	// gradient is the derivative of the function with respect to each sum.
	gradient func(sums, into []float64)
	// weight is the sum that determines the weight of a cluster.
	weight int
}

// logRatio returns the logarithm of sum a over sum b.
func logRatio(a, b int) statistic {
	return statistic{
		func(s []float64) float64 { return math.Log(s[a] / s[b]) },
		func(s, into []float64) { into[a], into[b] = 1/s[a], -1/s[b] },
		a,
	}
}

// average returns sum a over sum n.
func average(a, n int) statistic {
	return statistic{
		func(s []float64) float64 { return s[a] / s[n] },
		func(s, into []float64) { into[a], into[n] = 1/s[n], -s[a]/(s[n]*s[n]) },
		n,
	}
}

// less returns x minus y.
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
		x.weight,
	}
}

// cell has the sums of the items that one cluster has in one repeat.
type cell struct {
	cluster, repeat int // from 0
	sums            []float64
}

// sample is a set of clusters with their sums. The bootstrap draws whole clusters with
// replacement, as many as there are.
type sample struct {
	cells    []cell
	clusters [][]float64
	total    []float64
	repeats  int
	nested   bool    // each cluster is in one repeat, which stands for a block
	tail     float64 // probability beyond each end of an interval
	rng      *rand.Rand
	count    int
}

// newSample returns the sample of items whose sums, all of one length, are added by
// cluster and repeat. Clusters are numbered from 0; repeats have any number.
func newSample(items []cell, seed uint64) *sample {
	s := &sample{
		rng:   rand.New(rand.NewPCG(seed, uint64(len(items)))),
		count: min(mostResamples, max(leastResamples, drawsInAll/max(1, len(items)))),
		tail:  tail,
	}
	if len(items) == 0 {
		return s
	}
	width := len(items[0].sums)
	s.total = make([]float64, width)
	number := map[int]int{}
	at := map[[2]int]int{}
	for _, x := range items {
		r, ok := number[x.repeat]
		if !ok {
			r = len(number)
			number[x.repeat] = r
		}
		for len(s.clusters) <= x.cluster {
			s.clusters = append(s.clusters, make([]float64, width))
		}
		key := [2]int{x.cluster, r}
		i, ok := at[key]
		if !ok {
			i = len(s.cells)
			at[key] = i
			s.cells = append(s.cells, cell{x.cluster, r, make([]float64, width)})
		}
		for j, v := range x.sums {
			s.cells[i].sums[j] += v
			s.clusters[x.cluster][j] += v
			s.total[j] += v
		}
	}
	s.repeats = len(number)
	return s
}

// draw fills in the number of times that each cluster is drawn.
func (s *sample) draw(into []int) {
	clear(into)
	for range into {
		into[s.rng.IntN(len(into))]++
	}
}

// sums adds the sums of all clusters, each as often as it was drawn.
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

// dot returns the sum of products.
func dot(a, b []float64) float64 {
	var sum float64
	for i, x := range a {
		sum += float64(x * b[i])
	}
	return sum
}

// deviation returns the standard error of a statistic from the influence of each cluster.
func (s *sample) deviation(gradient []float64, drawn []int) float64 {
	var sum float64
	for i, c := range s.clusters {
		if k := float64(drawn[i]); k > 0 {
			move := dot(gradient, c)
			sum += float64(k * float64(move*move))
		}
	}
	n := float64(len(s.clusters))
	return math.Sqrt(sum * n / (n - 1))
}

// jackknife returns the standard error of a statistic by leaving out each cluster in turn.
// It does not shrink if few clusters have most of the items, as wide coflows have most of
// the flows (CV3 of MacKinnon, Nielsen and Webb, Journal of Econometrics 232, 2023).
func (s *sample) jackknife(x statistic) float64 {
	n := float64(len(s.clusters))
	value, rest := x.of(s.total), make([]float64, len(s.total))
	var sum float64
	for _, c := range s.clusters {
		for j := range rest {
			rest[j] = s.total[j] - c[j]
		}
		d := x.of(rest) - value
		sum += float64(d * d)
	}
	return math.Sqrt(sum * (n - 1) / n)
}

// betweenRuns returns the variance of a statistic between runs, for one repeat: the part
// of the difference between repeats that the clusters within repeats do not explain
// (two-way analysis of variance; one-way if clusters are nested in repeats). It is 0 for one repeat.
func (s *sample) betweenRuns(x statistic) float64 {
	runs, within := s.variances(x)
	return max(0, runs-within)
}

// variances returns the variance of a statistic over repeats, for one repeat, and the part of it that the clusters
// within repeats explain.
func (s *sample) variances(x statistic) (runs, within float64) {
	if s.repeats < 2 {
		return 0, 0
	}
	gradient := make([]float64, len(s.total))
	x.gradient(s.total, gradient)
	moves, weights := make([]float64, s.repeats), make([]float64, s.repeats)
	for _, c := range s.cells {
		moves[c.repeat] += dot(gradient, c.sums)
		weights[c.repeat] += c.sums[x.weight]
	}
	n, r := float64(len(s.clusters)), float64(s.repeats)
	for _, m := range moves {
		runs += float64(m * m)
	}
	runs *= r * r / (r - 1)
	if s.nested {
		return runs, r * s.within(gradient, moves, weights, x.weight)
	}
	var rest float64
	for _, c := range s.cells {
		of := s.clusters[c.cluster]
		e := dot(gradient, c.sums) - dot(gradient, of)*c.sums[x.weight]/of[x.weight] - moves[c.repeat]*c.sums[x.weight]/weights[c.repeat]
		rest += float64(e * e)
	}
	return runs, rest * n * r * r / ((n - 1) * (r - 1))
}

// within returns the sum of the variances of the influences of repeats that the clusters nested in them
// explain. A repeat with one cluster has none.
func (s *sample) within(gradient, moves, weights []float64, weight int) (sum float64) {
	clusters := make([]float64, s.repeats)
	for _, c := range s.cells {
		clusters[c.repeat]++
	}
	for _, c := range s.cells {
		if n := clusters[c.repeat]; n > 1 {
			e := dot(gradient, c.sums) - moves[c.repeat]*c.sums[weight]/weights[c.repeat]
			sum += float64(e*e) * n / (n - 1)
		}
	}
	return sum
}

// widen adds the differences between runs to an interval around a value: the variance
// between runs over the number of repeats, moderated by a calibrated noise (Smyth,
// Statistical Applications in Genetics and Molecular Biology 3, 2004). Independent errors
// add as squares on each side (Zou and Donner, Statistics in Medicine 27, 2008). With one
// repeat and no calibrated noise the interval stays unchanged: it is conditional on these
// runs.
func (i Interval) widen(value, variance float64, repeats int, noise *float64, tail float64) Interval {
	freedom := float64(repeats - 1)
	sum := variance * freedom
	if noise != nil {
		freedom += noiseFreedom
		sum += noiseFreedom * *noise * *noise
	}
	if sum <= 0 {
		return i
	}
	half := student(freedom, tail) * math.Sqrt(sum/freedom/float64(repeats))
	return Interval{value - math.Hypot(value-i.Low, half), value + math.Hypot(i.High-value, half)}
}

// tail is the probability beyond each end of a 95 % interval.
const tail = 0.025

// student returns the value of Student's t distribution that is exceeded with a probability.
func student(freedom, tail float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1 - tail)
}

// bootstrap returns confidence intervals of statistics over clusters, conditional on
// the runs; nil for fewer than LeastPairs clusters.
//
// Each end is the farther one of two bootstraps (Efron and Tibshirani, An Introduction to
// the Bootstrap, 1993, chapters 12 and 13). In bootstrap-t, a resample without the few large
// clusters has a larger error. The percentiles are widened for few clusters like Student's
// t distribution (Hesterberg, The American Statistician 69, 2015). Either alone is too
// narrow for skewed times.
func (s *sample) bootstrap(stats []statistic) []Interval {
	n, out := len(s.clusters), make([]Interval, len(stats))
	if n < LeastPairs {
		return nil
	}
	drawn := make([]int, n)
	sums, gradient := make([]float64, len(s.total)), make([]float64, len(s.total))
	for i := range drawn {
		drawn[i] = 1
	}
	value, off := make([]float64, len(stats)), make([]float64, len(stats))
	for k, x := range stats {
		value[k] = x.of(s.total)
		clear(gradient)
		x.gradient(s.total, gradient)
		off[k] = s.deviation(gradient, drawn)
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
	}
	for k := range stats {
		out[k] = percentiles(values[k], n, s.tail)
		if off[k] > 0 {
			slices.Sort(ts[k])
			out[k].Low = min(out[k].Low, value[k]-float64(Quantile(1-s.tail, ts[k])*off[k]))
			out[k].High = max(out[k].High, value[k]-float64(Quantile(s.tail, ts[k])*off[k]))
		}
	}
	return out
}

// percentiles returns the interval between the tails of the values of resamples, and a wider one
// for few clusters. It sorts the values.
func percentiles(values []float64, clusters int, tail float64) Interval {
	slices.Sort(values)
	n := float64(clusters)
	tail = distuv.UnitNormal.CDF(-student(n-1, tail) * math.Sqrt(n/(n-1)))
	return Interval{Quantile(tail, values), Quantile(1-tail, values)}
}

// exp returns the interval of a figure whose logarithm has interval i.
func (i Interval) exp() Interval { return Interval{math.Exp(i.Low), math.Exp(i.High)} }
