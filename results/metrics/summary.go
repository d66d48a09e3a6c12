// Package metrics turns records into figures: completion times of coflows, flows
// and block writes, their distributions, speed-ups over a baseline arm, and how
// far repeats lie apart. Its functions are pure: the same records and the same
// seed give the same figures.
//
// It does not judge whether records may be believed (results/verdict) and prints
// nothing (results/report).
package metrics

import (
	"hash/fnv"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"testbed/results/flows"
	"testbed/topo"
)

// Item is the completion time of one coflow, flow or block.
type Item struct {
	Repeat int // from 0
	ID     int // the same in every arm that runs the same workload
	Time   time.Duration
	// Cluster is what the item belongs to that is drawn as one by the bootstrap: of
	// a coflow itself, whatever the repeat; of a flow its coflow, since flows that wait
	// for each other tell the same thing several times; of a block its Writer, which
	// writes one after the other.
	Cluster int
}

// CCTs are the coflow completion times of one repeat, in order of coflow. A
// coflow with a failed flow has none, and background coflows are left out.
func CCTs(repeat int, r flows.Records) []Item {
	failed := failedOf(r, flows.FailedFlow, func(f flows.Failure) int { return int(f.Coflow) })
	items := make([]Item, 0, len(r.Coflows))
	for _, c := range r.Coflows {
		if !failed[int(c.Coflow)] && !c.Background {
			items = append(items, Item{repeat, int(c.Coflow), c.CCT(), int(c.Coflow)})
		}
	}
	return items
}

// FCTs are the flow completion times of one repeat, in order of flow. A flow that
// was given up has none, also if its last byte came in after that, and those of
// background coflows are left out.
func FCTs(repeat int, r flows.Records) []Item {
	failed := failedOf(r, flows.FailedFlow, func(f flows.Failure) int { return int(f.Flow) })
	items := make([]Item, 0, len(r.Flows))
	for _, f := range r.Flows {
		if !failed[int(f.Flow)] && !f.Background {
			items = append(items, Item{repeat, int(f.Flow), f.FCT(), int(f.Coflow)})
		}
	}
	return items
}

// WriteTimes are the block write times of one repeat, in order of block. A block
// that was given up has none; one that lost replicas has.
func WriteTimes(repeat int, r flows.Records) []Item {
	failed := failedOf(r, flows.FailedBlock, func(f flows.Failure) int { return int(f.Block) })
	items := make([]Item, 0, len(r.Blocks))
	for _, b := range r.Blocks {
		if !failed[int(b.Block)] {
			items = append(items, Item{repeat, int(b.Block), b.WriteTime(), Writer(b.Client)})
		}
	}
	return items
}

// Writer is the Cluster of the blocks that a client writes. Captures do not tell
// several writers on one host apart: they are one.
func Writer(client string) int {
	if rack, place, ok := topo.ParseHostName(client); ok {
		return int(rack)<<16 | place
	}
	h := fnv.New32a()
	h.Write([]byte(client))
	return -1 - int(h.Sum32())
}

// failedOf are the IDs of what failed of one kind.
func failedOf(r flows.Records, kind string, id func(flows.Failure) int) map[int]bool {
	failed := map[int]bool{}
	for _, f := range r.Failed {
		if f.Kind == kind {
			failed[id(f)] = true
		}
	}
	return failed
}

// Summary describes a distribution of completion times. With N 0 the rest is 0
// and means nothing.
type Summary struct {
	N                       int
	Mean                    time.Duration
	P50, P95, P99, Min, Max time.Duration
}

// Summarize describes items.
func Summarize(items []Item) Summary {
	if len(items) == 0 {
		return Summary{}
	}
	x := make([]float64, len(items))
	for i, item := range items {
		x[i] = float64(item.Time)
	}
	slices.Sort(x)
	return Summary{
		N:    len(x),
		Mean: duration(stat.Mean(x, nil)),
		P50:  duration(Quantile(0.50, x)),
		P95:  duration(Quantile(0.95, x)),
		P99:  duration(Quantile(0.99, x)),
		Min:  duration(x[0]),
		Max:  duration(x[len(x)-1]),
	}
}

func duration(ns float64) time.Duration { return time.Duration(math.Round(ns)) }

// Quantile is the p-quantile of ascending values by linear interpolation between
// the two nearest ranks, at rank p·(n−1) counted from 0. That is definition 7 of
// Hyndman and Fan (The American Statistician, 1996) and what numpy.percentile
// does by default; gonum's LinInterp is another (definition 4). It is NaN for no
// values.
func Quantile(p float64, ascending []float64) float64 {
	n := len(ascending)
	if n == 0 {
		return math.NaN()
	}
	rank := min(max(p, 0), 1) * float64(n-1)
	low := int(rank)
	if low == n-1 {
		return ascending[low]
	}
	return ascending[low] + float64((rank-float64(low))*(ascending[low+1]-ascending[low]))
}

// Speedup is how many times faster the average of arm is than that of base; ok
// is false where one of them has none, or the arm's is 0.
func Speedup(base, arm Summary) (ratio float64, ok bool) {
	if base.N == 0 || arm.N == 0 || arm.Mean <= 0 {
		return 0, false
	}
	return float64(base.Mean) / float64(arm.Mean), true
}

// Cv is the coefficient of variation: the population's standard deviation over
// its mean. It is 0 for no values or a mean of 0. Link utilisations are compared
// by it (Chowdhury, Kandula and Stoica, SIGCOMM 2013).
func Cv(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	mean, deviation := stat.PopMeanStdDev(values, nil)
	if mean == 0 {
		return 0
	}
	return deviation / mean
}

// Spread tells how far the averages of repeats lie apart.
type Spread struct {
	Repeats  int
	Min, Max time.Duration
	StdDev   time.Duration // of the sample; 0 for fewer than two repeats
	Relative float64       // StdDev over the mean of the averages
}

// SpreadOf compares the averages of the repeats among items. Repeats without an
// item do not count.
func SpreadOf(items []Item) Spread {
	byRepeat := map[int][]float64{}
	for _, item := range items {
		byRepeat[item.Repeat] = append(byRepeat[item.Repeat], float64(item.Time))
	}
	var means []float64
	for _, x := range byRepeat {
		slices.Sort(x) // floating-point sums depend on the order
		means = append(means, stat.Mean(x, nil))
	}
	if len(means) == 0 {
		return Spread{}
	}
	slices.Sort(means)
	s := Spread{Repeats: len(means), Min: duration(means[0]), Max: duration(means[len(means)-1])}
	if len(means) > 1 {
		mean, deviation := stat.MeanStdDev(means, nil)
		s.StdDev = duration(deviation)
		if mean > 0 {
			s.Relative = deviation / mean
		}
	}
	return s
}
