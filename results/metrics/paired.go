package metrics

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Interval is a 95 % confidence interval.
type Interval struct{ Low, High float64 }

// Holds tells whether x is within the interval, its ends included.
func (i Interval) Holds(x float64) bool { return i.Low <= x && x <= i.High }

// Paired compares two arms item by item: each ratio is the baseline's time over
// the arm's for the same coflow, flow or block of the same repeat, so more than 1
// is faster than the baseline.
type Paired struct {
	N        int // pairs
	Clusters int // that the pairs are of, by Item.Cluster
	Unpaired int // items that only one arm has, or whose time is not positive
	// MeanRatio is the ratio of the averages over the pairs, GeoMean the geometric
	// mean of their ratios.
	MeanRatio, Median, GeoMean float64
	// The intervals are bootstraps over the clusters, which are drawn whole: with all
	// their repeats, and of a coflow with all its flows; the median's are percentiles,
	// of the others see intervals. Clusters are taken as independent. Those that
	// share links at the same time are not quite, and then the truth is wider. Nor does an interval know of
	// coflows larger than all it was made of: where these gain more than others, the
	// ratio of averages is farther off than MeanRatioCI tells. Of fewer than LeastPairs
	// clusters they are too narrow to conclude anything from.
	MeanRatioCI, MedianCI, GeoMeanCI Interval
}

type pairKey struct{ repeat, id int }

// pair is the times of one item in both arms.
type pair struct {
	base, arm, log  float64 // log is of base over arm
	cluster, repeat int
	id              int
}

// Pair compares arm with base. With N 0 the rest means nothing. The same items,
// in any order, and seed give the same intervals.
func Pair(base, arm []Item, seed uint64) Paired {
	times := make(map[pairKey]float64, len(base))
	for _, b := range base {
		times[pairKey{b.Repeat, b.ID}] = float64(b.Time)
	}
	var p Paired
	var pairs []pair
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
		pairs = append(pairs, pair{b, float64(a.Time), math.Log(b / float64(a.Time)), a.Cluster, a.Repeat, a.ID})
	}
	p.Unpaired += len(base) - matched
	p.N = len(pairs)
	if p.N == 0 {
		return p
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.log, y.log), cmp.Compare(x.cluster, y.cluster), cmp.Compare(x.repeat, y.repeat), cmp.Compare(x.id, y.id))
	})
	// Clusters are numbered as they come up.
	number := map[int]int{}
	for i := range pairs {
		n, ok := number[pairs[i].cluster]
		if !ok {
			n = len(number)
			number[pairs[i].cluster] = n
		}
		pairs[i].cluster = n
	}
	p.Clusters = len(number)
	logs := make([]float64, p.N)
	var sumBase, sumArm float64
	for i, x := range pairs {
		logs[i] = x.log
		sumBase += x.base
		sumArm += x.arm
	}
	p.MeanRatio = sumBase / sumArm
	p.Median = math.Exp(Quantile(0.5, logs))
	p.GeoMean = math.Exp(stat.Mean(logs, nil))
	p.bootstrap(pairs, seed)
	return p
}

// bootstrap fills in the intervals, of pairs whose logarithms ascend.
func (p *Paired) bootstrap(pairs []pair, seed uint64) {
	clusters := make([][]float64, p.Clusters)
	for i := range clusters {
		clusters[i] = make([]float64, 4)
	}
	for _, x := range pairs {
		for j, v := range [4]float64{x.base, x.arm, x.log, 1} {
			clusters[x.cluster][j] += v
		}
	}
	var medians []float64
	out := newSample(clusters, len(pairs), seed).intervals([]statistic{logRatio(0, 1), average(2, 3)}, func(drawn []int) {
		medians = append(medians, median(pairs, drawn))
	})
	p.MeanRatioCI, p.GeoMeanCI, p.MedianCI = out[0].exp(), out[1].exp(), percentiles(medians, p.Clusters).exp()
}

// median is the middle logarithm of pairs whose logarithms ascend and whose clusters
// were drawn so often.
func median(pairs []pair, drawn []int) float64 {
	n := 0
	for _, x := range pairs {
		n += drawn[x.cluster]
	}
	low, high := (n-1)/2, n/2
	below := 0
	var sum float64
	for _, x := range pairs {
		next := below + drawn[x.cluster]
		if below <= low && low < next {
			sum += x.log / 2
		}
		if below <= high && high < next {
			return sum + x.log/2
		}
		below = next
	}
	return sum
}
