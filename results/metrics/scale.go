package metrics

import "math"

// LeastPairs is the fewest clusters of items from which anything is concluded: a bootstrap
// of fewer knows too little of how items vary, and its intervals are too narrow.
const LeastPairs = 8

// LeastMove is the largest move of a speed-up, as a fraction of it, that is not
// looked at. Sizes are whole bytes, rates whole bits a second and times whole
// nanoseconds, so scaling is exact only to within rounding. On the fluid model,
// where nothing else differs, that moves no speed-up of the quickstart by more
// than 0.0001 %; but a policy's decision may turn on a bit, and with it a few
// completions by a few milliseconds.
const LeastMove = 0.0005

// Estimate is a figure with its 95 % interval.
type Estimate struct {
	Value float64
	CI    Interval
}

// Moved is a speed-up at two scales, and the second over the first.
type Moved struct {
	Full, Scaled, Ratio Estimate
}

// Within tells whether the move is not told from none: 1 is in the interval of
// the ratio, or the ratio is within LeastMove of it.
func (m Moved) Within() bool {
	return m.Ratio.CI.Low <= 1 && 1 <= m.Ratio.CI.High || math.Abs(m.Ratio.Value-1) <= LeastMove
}

// Scale compares the speed-up of an arm over a base at full scale with that of
// the same items at another scale.
type Scale struct {
	N        int // items that both arms have at both scales; the rest are left out
	Clusters int // that these are of, by Item.Cluster
	Unpaired int // items that one of the four has and another has not
	// Average is the speed-up of averages, as Speedup has it, and Paired the
	// geometric mean of the items' own, as Pair has it, over the N items.
	Average, Paired Moved
}

// CompareScale compares speed-ups at two scales. With fewer Clusters than LeastPairs nothing
// can be concluded, and with N 0 the rest means nothing.
//
// All intervals are bootstraps as in Pair over the items, each drawn with its
// four times together: an item that is slow at both scales says nothing about
// scale, so the interval of the ratio is of the items' own moves, and is not the
// distance of two intervals. Items of one cluster are drawn as one, as in Pair.
// Clusters are taken as independent. Those of one run are not quite, and then the
// truth is wider. The same items and seed give the same intervals.
func CompareScale(base, arm, scaledBase, scaledArm []Item, seed uint64) Scale {
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
	var cluster []int       // of times
	number := map[int]int{} // of clusters, as they come up
	for _, a := range arm { // in an order that does not change
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
			times, cluster = append(times, t), append(cluster, number[a.Cluster])
		}
	}
	s.N, s.Clusters = len(times), len(number)
	if s.Unpaired = len(all) - s.N; s.N == 0 {
		return s
	}
	clusters := make([][]float64, s.Clusters)
	for i := range clusters {
		clusters[i] = make([]float64, 7)
	}
	for i, t := range times {
		for j, v := range [7]float64{t[0], t[1], t[2], t[3], math.Log(t[0] / t[1]), math.Log(t[2] / t[3]), 1} {
			clusters[cluster[i]][j] += v
		}
	}
	sums := make([]float64, 7)
	for _, c := range clusters {
		for j, v := range c {
			sums[j] += v
		}
	}
	full, scaled, pairedFull, pairedScaled := logRatio(0, 1), logRatio(2, 3), average(4, 6), average(5, 6)
	stats := []statistic{full, scaled, scaled.less(full), pairedFull, pairedScaled, pairedScaled.less(pairedFull)}
	out := newSample(clusters, s.N, seed).intervals(stats, nil)
	for i, e := range [6]*Estimate{&s.Average.Full, &s.Average.Scaled, &s.Average.Ratio, &s.Paired.Full, &s.Paired.Scaled, &s.Paired.Ratio} {
		*e = Estimate{math.Exp(stats[i].of(sums)), out[i].exp()}
	}
	return s
}
