// Package figures computes the data of figures, for the report page (results/htmlreport) and for
// figures in papers (results/plot): distributions, speed-ups, schedules, time by cause, link
// loads and their imbalance, and the spread of repeats. Both show the same numbers because
// both take them from here; they choose only how many points to draw, colours and layout.
//
// It computes no statistics that results/metrics has, reads no files and draws nothing.
package figures

import (
	"cmp"
	"slices"
	"time"

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo/units"
)

// Times returns the times of items, ascending.
func Times(items []metrics.Item) []time.Duration {
	out := make([]time.Duration, len(items))
	for i, x := range items {
		out[i] = x.Time
	}
	slices.Sort(out)
	return out
}

// Step is one step of a distribution: a value, and the shares of all values below the step
// and up to it.
type Step[T cmp.Ordered] struct {
	Value      T
	Below, End float64
}

// Steps returns the distribution of ascending values without the first hidden ones, which
// still count in the shares. With more values than most, a step covers several values, and
// the error of a share is at most 1/most.
func Steps[T cmp.Ordered](ascending []T, hidden, most int) []Step[T] {
	n, shown := len(ascending), len(ascending)-hidden
	count := min(shown, most)
	out := make([]Step[T], 0, count)
	y := float64(hidden) / float64(n)
	for k := 1; k <= count; k++ {
		rank := hidden + k*shown/count // of the last value of this step
		s := Step[T]{Value: ascending[rank-1], Below: y, End: float64(rank) / float64(n)}
		out, y = append(out, s), s.End
	}
	return out
}

// Speedup is the speed-up of a coflow relative to the same coflow in the baseline.
type Speedup struct {
	Ratio          float64 // time in the baseline over time in the arm
	Size           units.Bytes
	Coflow, Repeat int
}

// Place identifies an item of an arm.
type Place struct{ Repeat, ID int }

// Speedups pairs the coflows of an arm with the same coflows in the baseline, as metrics.Pair
// does, in the order of the arm.
func Speedups(baseline, arm []metrics.Item, sizes map[Place]units.Bytes) []Speedup {
	base := make(map[Place]time.Duration, len(baseline))
	for _, x := range baseline {
		base[Place{x.Repeat, x.ID}] = x.Time
	}
	var out []Speedup
	for _, x := range arm {
		k := Place{x.Repeat, x.ID}
		if b := base[k]; b > 0 && x.Time > 0 {
			out = append(out, Speedup{float64(b) / float64(x.Time), sizes[k], x.ID, x.Repeat})
		}
	}
	return out
}

// ByArrival sorts coflows as in a schedule.
func ByArrival(coflows []flows.CoflowRecord) {
	slices.SortStableFunc(coflows, func(a, b flows.CoflowRecord) int {
		return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Coflow, b.Coflow))
	})
}

// Breakdown is the time of some items, divided by cause.
type Breakdown struct {
	N   int // items
	Sum map[breakdown.Cause]time.Duration
}

// Add adds an item.
func (b *Breakdown) Add(shares []breakdown.Share) {
	if b.Sum == nil {
		b.Sum = map[breakdown.Cause]time.Duration{}
	}
	b.N++
	for _, s := range shares {
		b.Sum[s.Cause] += s.Time
	}
}

// Of returns the part of a cause in the average time of an item.
func (b Breakdown) Of(c breakdown.Cause) time.Duration { return b.Sum[c] / time.Duration(max(1, b.N)) }

// LongestFirst sorts the flows of a coflow by size, and returns them.
func LongestFirst(list []*metrics.Progress) []*metrics.Progress {
	slices.SortStableFunc(list, func(a, b *metrics.Progress) int { return cmp.Compare(b.Size, a.Size) })
	return list
}

// Received returns the share of a transfer that was received at a moment.
func Received(m metrics.Moment, size units.Bytes) float64 {
	if size <= 0 {
		return 1
	}
	return float64(m.Bytes) / float64(size)
}

// Together returns the bytes that all transfers have received at each moment of any
// transfer, interpolated linearly between the moments of each.
func Together(list []*metrics.Progress) []metrics.Moment {
	var at []time.Duration
	for _, t := range list {
		for _, m := range t.Moments {
			at = append(at, m.At)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	out := make([]metrics.Moment, len(at))
	for i := range at {
		out[i].At = at[i]
	}
	for _, t := range list {
		k := 0 // moments before this one are past
		for i := range out {
			for k < len(t.Moments) && t.Moments[k].At <= out[i].At {
				k++
			}
			switch {
			case k == 0:
			case k == len(t.Moments):
				out[i].Bytes += t.Moments[k-1].Bytes
			default:
				a, b := t.Moments[k-1], t.Moments[k]
				out[i].Bytes += a.Bytes + units.Bytes(float64(b.Bytes-a.Bytes)*(float64(out[i].At-a.At)/float64(b.At-a.At)))
			}
		}
	}
	return out
}

// End returns the time of the last moment of a transfer.
func End(t *metrics.Progress) time.Duration { return t.Moments[len(t.Moments)-1].At }

// RoundBin returns the shortest bin of 1, 2 or 5 times a power of ten that divides a time
// into at most a number of bins.
func RoundBin(end time.Duration, most int) time.Duration {
	for bin := time.Microsecond; ; bin *= 10 {
		for _, m := range []time.Duration{1, 2, 5} {
			if end/(bin*m) < time.Duration(most) {
				return bin * m
			}
		}
	}
}
