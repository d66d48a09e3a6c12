// Package metrics turns records into figures: completion times of coflows, flows and block
// writes, their distributions, speed-ups relative to a baseline arm, and the spread of
// repeats. Its functions are pure: the same records and the same seed give the same figures.
//
// It does not judge whether records can be trusted (results/verdict), and does not print
// (results/report).
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
	// Cluster is the group that the bootstrap draws together: for a coflow itself, in all
	// repeats; for a flow its coflow, since flows that wait for each other repeat the same
	// information; for a block its Writer, which writes blocks one after the other.
	Cluster int
}

// CCTs returns the coflow completion times of one repeat, in order of coflow. A coflow with
// a failed flow has none, except a shuffle, whose fetches are retried; background coflows are
// excluded.
func CCTs(repeat int, r flows.Records) []Item {
	failed := failedCoflows(r)
	items := make([]Item, 0, len(r.Coflows))
	for _, c := range r.Coflows {
		if !failed[int(c.Coflow)] && !c.Background {
			items = append(items, Item{repeat, int(c.Coflow), c.CCT(), int(c.Coflow)})
		}
	}
	return items
}

// FCTs returns the flow completion times of one repeat, in order of flow. A flow that was
// given up has none, even if its last byte arrived later; flows of background coflows are
// excluded, and those of tasks, whose numbers differ between arms.
func FCTs(repeat int, r flows.Records) []Item {
	return flowItems(repeat, r, flows.FlowRecord.FCT)
}

// Setups returns the setup times of the flows of FCTs, which include them.
func Setups(repeat int, r flows.Records) []Item {
	return flowItems(repeat, r, func(f flows.FlowRecord) time.Duration { return f.Setup })
}

func flowItems(repeat int, r flows.Records, of func(flows.FlowRecord) time.Duration) []Item {
	failed := failedOf(r, flows.FailedFlow, func(f flows.Failure) int { return int(f.Flow) })
	items := make([]Item, 0, len(r.Flows))
	for _, f := range r.Flows {
		if !failed[int(f.Flow)] && !f.Background && f.Task == nil {
			items = append(items, Item{repeat, int(f.Flow), of(f), int(f.Coflow)})
		}
	}
	return items
}

// WriteTimes returns the block write times of one repeat, in order of block. A block that
// was given up has none; one that lost replicas has.
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

// CompletedItems returns the numbers of items of a repeat by their name: coflows, blocks and jobs. Coflows
// and blocks of jobs of tasks, which attempts repeat, do not count.
func CompletedItems(r flows.Records) map[string]int {
	if len(r.Attempts) > 0 {
		return map[string]int{"jobs": len(JobTimes(0, r))}
	}
	return map[string]int{"coflows": len(CCTs(0, r)), "blocks": len(WriteTimes(0, r))}
}

// Writer returns the Cluster of the blocks that a client writes. Captures do not
// distinguish several writers on one host: they count as one.
func Writer(client string) int {
	if rack, place, ok := topo.ParseHostName(client); ok {
		return int(rack)<<16 | place
	}
	h := fnv.New32a()
	h.Write([]byte(client))
	return -1 - int(h.Sum32())
}

// failedOf returns the IDs of the failed items of one kind.
func failedOf(r flows.Records, kind string, id func(flows.Failure) int) map[int]bool {
	failed := map[int]bool{}
	for _, f := range r.Failed {
		if f.Kind == kind {
			failed[id(f)] = true
		}
	}
	return failed
}

// failedCoflows returns the IDs of the coflows with a failed flow, except those of shuffles.
func failedCoflows(r flows.Records) map[int]bool {
	failed := failedOf(r, flows.FailedFlow, func(f flows.Failure) int { return int(f.Coflow) })
	if len(failed) > 0 {
		for id := range ShufflesOf(&r) {
			delete(failed, int(id))
		}
	}
	return failed
}

// Summary describes a distribution of completion times. With N 0 the other fields are 0 and
// undefined.
type Summary struct {
	N                       int
	Mean                    time.Duration
	P50, P95, P99, Min, Max time.Duration
}

// Summarize returns the summary of items.
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

// Quantile returns the p-quantile of ascending values by linear interpolation between the
// two nearest ranks, at rank p·(n−1) counted from 0. That is definition 7 of Hyndman and Fan
// (The American Statistician, 1996) and the default of numpy.percentile; gonum's LinInterp
// is definition 4. It is NaN without values.
func Quantile(p float64, ascending []float64) float64 {
	n := len(ascending)
	if n == 0 {
		return math.NaN()
	}
	rank := float64(min(max(p, 0), 1) * float64(n-1)) // not fused with the subtraction below, as on arm64
	low := int(rank)
	if low == n-1 {
		return ascending[low]
	}
	return ascending[low] + float64((rank-float64(low))*(ascending[low+1]-ascending[low]))
}

// Speedup returns the ratio of the average of base to the average of arm; ok is false if
// one of them has no items or the arm's average is 0.
func Speedup(base, arm Summary) (ratio float64, ok bool) {
	if base.N == 0 || arm.N == 0 || arm.Mean <= 0 {
		return 0, false
	}
	return float64(base.Mean) / float64(arm.Mean), true
}

// Cv returns the coefficient of variation: the population standard deviation over the mean.
// It is 0 without values or for a mean of 0. It measures the balance of link utilisations
// (Chowdhury, Kandula and Stoica, SIGCOMM 2013).
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

// Spread is the spread of the averages of repeats.
type Spread struct {
	Repeats  int
	Min, Max time.Duration
	StdDev   time.Duration // sample standard deviation; 0 for fewer than two repeats
	Relative float64       // StdDev over the mean of the averages
}

// SpreadOf compares the averages of the repeats among items. Repeats without items are
// ignored.
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
