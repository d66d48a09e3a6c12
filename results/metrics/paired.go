package metrics

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// LeastPairs is the smallest number of clusters with a confidence interval. With fewer, a
// bootstrap underestimates the variance and its intervals are too narrow.
const LeastPairs = 8

// FewPairs stands in place of an interval for fewer than LeastPairs clusters, and
// FewPairsMark does in the cells of tables.
var (
	FewPairs     = fmt.Sprintf("fewer than %d independent pairs", LeastPairs)
	FewPairsMark = fmt.Sprintf("<%d pairs", LeastPairs)
)

// Interval is a 95 % confidence interval of a ratio. The zero Interval means that there are
// fewer than LeastPairs clusters. In JSON it is [low, high], or null for none.
type Interval struct{ Low, High float64 }

// Known reports whether there is an interval.
func (i Interval) Known() bool { return i != Interval{} }

// Holds reports whether x is within the interval, including its ends. An unknown interval
// excludes nothing.
func (i Interval) Holds(x float64) bool { return !i.Known() || i.Low <= x && x <= i.High }

// String returns the interval with two decimals, or FewPairs.
func (i Interval) String() string { return i.Decimals(2) }

// Decimals returns the interval with n decimals, or FewPairs.
func (i Interval) Decimals(n int) string {
	if !i.Known() {
		return FewPairs
	}
	return fmt.Sprintf("[%.*f, %.*f]", n, i.Low, n, i.High)
}

// Round6 rounds to six decimals: results of exp and log are then equal on all machines.
func (i Interval) Round6() Interval {
	return Interval{Round6(i.Low), Round6(i.High)}
}

// Round6 rounds to six decimals.
func Round6(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// MarshalJSON writes [low, high], or null.
func (i Interval) MarshalJSON() ([]byte, error) {
	if !i.Known() {
		return []byte("null"), nil
	}
	return json.Marshal([2]float64{i.Low, i.High})
}

// UnmarshalJSON reads [low, high], or null.
func (i *Interval) UnmarshalJSON(data []byte) error {
	var ends [2]float64
	if err := json.Unmarshal(data, &ends); err != nil {
		return err
	}
	*i = Interval{ends[0], ends[1]}
	return nil
}

// Deviations are standard deviations of the logarithms of the ratios that Paired has:
// 0.01 is about 1 %.
type Deviations struct {
	MeanRatio float64 `json:"mean_ratio"`
	Median    float64 `json:"median"`
	GeoMean   float64 `json:"geo_mean"`
}

// Paired compares two arms item by item: each ratio is the baseline's time over the arm's
// time for the same coflow, flow or block of the same repeat. Above 1 the arm is faster than
// the baseline.
type Paired struct {
	N        int // pairs
	Clusters int // clusters of the pairs, by Item.Cluster
	Repeats  int // repeats with pairs
	Unpaired int // items that only one arm has, or whose time is not positive
	// MeanRatio is the ratio of the averages over the pairs, GeoMean the geometric
	// mean of their ratios.
	MeanRatio, Median, GeoMean float64
	// The intervals are over clusters and repeats. Clusters are resampled whole: with all
	// their repeats, and a coflow with all its flows; see bootstrap and, for the median,
	// medianInterval. Differences between repeats and a calibrated noise widen them; see
	// widen. With one repeat and no calibrated noise they are conditional on these two runs.
	// Clusters are assumed independent. Those that share links at the same time are not
	// entirely, and then the true interval is wider. Nor does an interval cover coflows
	// larger than those it was computed from: if these gain more than others, the error of
	// the ratio of averages is larger than MeanRatioCI shows. Fewer than LeastPairs clusters
	// have no interval.
	MeanRatioCI, MedianCI, GeoMeanCI Interval
	// Errors are standard errors from the clusters alone, without the differences between
	// runs; 0 for fewer than LeastPairs clusters.
	Errors Deviations
	// Variances are those of GeoMean. Of averages over items of skewed sizes, they would predict too few repeats.
	Variances Variances
}

// Block is the items of both arms in runs of one workload. Items of equal numbers in different blocks are
// different items.
type Block struct{ Base, Arm []Item }

type pairKey struct{ repeat, id int }

// pair is the times of one item in both arms.
type pair struct {
	base, arm, log  float64 // log is the logarithm of base over arm
	cluster, repeat int
	id, block       int
}

// Common returns the number of items that both arms have.
func Common(base, arm []Item) (n int) {
	has := make(map[pairKey]bool, len(base))
	for _, b := range base {
		has[pairKey{b.Repeat, b.ID}] = true
	}
	for _, a := range arm {
		if has[pairKey{a.Repeat, a.ID}] {
			n++
		}
	}
	return n
}

// Pair compares arm with base. With N 0 the other fields are undefined. Noise is the
// calibrated difference between identical runs, beyond the part that their clusters explain;
// nil if unknown. The same items, in any order, and seed give the same intervals.
func Pair(base, arm []Item, seed uint64, noise *Deviations) Paired {
	return PairBlocks([]Block{{base, arm}}, seed, noise, nil)
}

// PairBlocks compares the arms as Pair does, with the pairs of all blocks. Of several blocks, the interval includes the
// differences between blocks in place of those between repeats. After looks, intervals are wider.
func PairBlocks(blocks []Block, seed uint64, noise *Deviations, looks *Looks) Paired {
	p, pairs := pairUp(blocks...)
	if p.N > 0 {
		p.intervals(pairs, seed, noise, looks.tail())
	}
	return p
}

// pairUp returns everything except the intervals, and the pairs in ascending order of their
// logarithms with their clusters numbered from 0.
func pairUp(blocks ...Block) (p Paired, pairs []pair) {
	for k, of := range blocks {
		times := make(map[pairKey]float64, len(of.Base))
		for _, b := range of.Base {
			times[pairKey{b.Repeat, b.ID}] = float64(b.Time)
		}
		matched := 0
		for _, a := range of.Arm {
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
			pairs = append(pairs, pair{b, float64(a.Time), math.Log(b / float64(a.Time)), a.Cluster, a.Repeat, a.ID, k})
		}
		p.Unpaired += len(of.Base) - matched
	}
	p.N = len(pairs)
	if p.N == 0 {
		return p, nil
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.log, y.log), cmp.Compare(x.cluster, y.cluster), cmp.Compare(x.repeat, y.repeat), cmp.Compare(x.id, y.id),
			cmp.Compare(x.block, y.block))
	})
	// Clusters are numbered in order of appearance.
	number := map[[2]int]int{}
	for i := range pairs {
		key := [2]int{pairs[i].block, pairs[i].cluster}
		n, ok := number[key]
		if !ok {
			n = len(number)
			number[key] = n
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
	return p, pairs
}

// intervals fills in the intervals from pairs in ascending order of their logarithms.
func (p *Paired) intervals(pairs []pair, seed uint64, noise *Deviations, tail float64) {
	logs := make([]float64, len(pairs))
	for i, x := range pairs {
		logs[i] = x.log
	}
	m := Quantile(0.5, logs)
	cells := make([]cell, len(pairs))
	repeats, blocks := map[[2]int]bool{}, map[int]bool{}
	for _, x := range pairs {
		repeats[[2]int{x.block, x.repeat}], blocks[x.block] = true, true
	}
	p.Repeats = len(repeats)
	nested := len(blocks) > 1
	for i, x := range pairs {
		above := 0.5
		switch {
		case x.log > m:
			above = 1
		case x.log < m:
			above = 0
		}
		run := x.repeat
		if nested {
			run = x.block
		}
		cells[i] = cell{x.cluster, run, []float64{x.base, x.arm, x.log, 1, above}}
	}
	s := newSample(cells, seed)
	s.nested, s.tail = nested, tail
	if noise != nil {
		// A block averages the noise of its repeats.
		share := math.Sqrt(float64(s.repeats) / float64(p.Repeats))
		noise = &Deviations{noise.MeanRatio * share, noise.Median * share, noise.GeoMean * share}
	}
	stats := []statistic{logRatio(0, 1), average(2, 3)}
	out := s.bootstrap(stats)
	if out == nil {
		return
	}
	p.Errors.MeanRatio, p.Errors.GeoMean = s.jackknife(stats[0]), s.jackknife(stats[1])
	p.Variances = s.parts(stats[1], p.Errors.GeoMean)
	var of [3]*float64
	if noise != nil {
		of = [3]*float64{&noise.MeanRatio, &noise.GeoMean, &noise.Median}
	}
	for k, ci := range []*Interval{&p.MeanRatioCI, &p.GeoMeanCI} {
		*ci = out[k].widen(stats[k].of(s.total), s.betweenRuns(stats[k]), s.repeats, of[k], tail).exp()
	}
	i, deviation, between := s.medianInterval(average(4, 3), logs)
	p.Errors.Median = deviation
	p.MedianCI = i.widen(m, between, s.repeats, of[2], tail).exp()
}

// medianInterval returns the interval of a median over clusters, its standard error from
// the shorter side of the interval, and its variance between runs; logs are ascending
// logarithms. Above is the share of pairs above the median: its jackknife interval becomes
// one of the median through the pairs' quantiles (Woodruff, Journal of the American
// Statistical Association 47, 1952).
func (s *sample) medianInterval(above statistic, logs []float64) (i Interval, deviation, between float64) {
	t := student(float64(len(s.clusters)-1), s.tail)
	half := t * s.jackknife(above)
	i = Interval{Quantile(0.5-half, logs), Quantile(0.5+half, logs)}
	if half > 0 {
		slope := (i.High - i.Low) / (2 * min(half, 0.5))
		between = s.betweenRuns(above) * slope * slope
		m := Quantile(0.5, logs)
		deviation = min(m-i.Low, i.High-m) / t
	}
	return i, deviation, between
}
