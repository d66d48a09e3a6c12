package coflow

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo/units"
)

// Queues are priority queues with exponentially growing thresholds, as in discretized
// coflow-aware least-attained service (Aalo, SIGCOMM 2015). Queue 0 has the highest
// priority and the threshold First; queue i has the threshold First·Growth^i. The last
// queue has no threshold.
type Queues struct {
	Count  int         // K, at least 1
	First  units.Bytes // Q0: the threshold of queue 0
	Growth float64     // E, at least 1
}

// DefaultQueues returns the queues of Aalo, Saath and Philae: 10 queues, with thresholds
// from 10 MiB and growth 10.
func DefaultQueues() Queues { return Queues{Count: 10, First: 10 << 20, Growth: 10} }

// Thresholds are the thresholds of all queues except the last, in order.
type Thresholds []int64

// Thresholds returns the thresholds of the queues, in bytes.
func (q Queues) Thresholds(s *policies.Schedule) Thresholds {
	return thresholds(s, q.Count, float64(q.First), q.Growth)
}

func thresholds(s *policies.Schedule, count int, first, growth float64) Thresholds {
	l := s.Counts(max(count, 1) - 1)
	for i := range l {
		l[i] = math.MaxInt64
		if first < math.MaxInt64 {
			l[i] = int64(math.Round(first))
		}
		first = float64(first * growth)
	}
	return l
}

// UpTo returns the queue of x, where a threshold belongs to the queue that it ends.
func (t Thresholds) UpTo(x int64) int {
	q := 0
	for q < len(t) && t[q] < x {
		q++
	}
	return q
}

// Below returns the queue of x, where a threshold belongs to the queue after it.
func (t Thresholds) Below(x int64) int {
	q := 0
	for q < len(t) && t[q] <= x {
		q++
	}
	return q
}

// FIFO is the time by which coflows are ordered inside a queue.
type FIFO uint8

// The orders inside a queue, ties by the order of the View.
const (
	Entered FIFO = iota // time at which the coflow entered the queue
	Arrived             // arrival of the coflow: the order of IDs
)

// order returns the coflows by queue, inside a queue by FIFO. queue and label are parallel
// to the View's coflows; coflows with a negative queue are left out. A coflow whose label
// differs from its previous one enters its queue now.
func order(v *policies.CoflowView, s *policies.Schedule, queue, label []int, by FIFO) []int {
	o := s.Ints(len(queue))[:0]
	for i, q := range queue {
		if q >= 0 {
			o = append(o, i)
		}
	}
	slices.SortFunc(o, func(a, b int) int {
		in := 0
		if by == Entered {
			in = cmp.Compare(entered(v, label, a), entered(v, label, b))
		}
		return cmp.Or(cmp.Compare(queue[a], queue[b]), in, cmp.Compare(a, b))
	})
	return o
}

func entered(v *policies.CoflowView, label []int, i int) time.Duration {
	if c := &v.Coflows[i]; label[i] == c.Queue {
		return c.Since
	}
	return v.Now
}

// perQueue calls serve for each queue that has coflows, with its coflows. o holds coflows
// sorted by queue.
func perQueue(o, queue []int, serve func(q int, coflows []int)) {
	for len(o) > 0 {
		n := 1
		for n < len(o) && queue[o[n]] == queue[o[0]] {
			n++
		}
		serve(queue[o[0]], o[:n])
		o = o[n:]
	}
}

// weighted calls serve for each queue that has coflows, whose budget is the newest: its part of the weights of these
// queues.
func weighted(s *policies.Schedule, o, queue []int, weight func(q int) float64, serve func(coflows []int)) {
	sum := 0.0
	perQueue(o, queue, func(q int, _ []int) { sum += weight(q) })
	perQueue(o, queue, func(q int, coflows []int) {
		s.Budgets = append(s.Budgets, weight(q)/sum)
		serve(coflows)
	})
}

// product returns a·b/c of nonnegative numbers, rounded down, at most math.MaxInt64. It is
// 0 if c is 0.
func product(a, b, c int64) int64 {
	if c <= 0 || a <= 0 || b <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
