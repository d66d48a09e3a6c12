package coflow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coflow/ports"
	"testbed/topo/units"
)

// Saath (Jajoo, Gandhi, Hu and Koh, CoNEXT 2017) knows no sizes. It uses Aalo's queues, but
// a coflow leaves a queue as soon as one flow has sent its part of the threshold. Inside a
// queue the coflow with the least contention goes first. All flows of a coflow are served
// or none, except with idle capacity (Conserve). A coflow that stays in a queue past its
// deadline goes before all others.
type Saath struct {
	Queues
	Interval time.Duration // δ, as in Aalo
	// PerFlow splits a queue's threshold evenly among the flows of a coflow at arrival. The
	// coflow moves to the next queue when one flow has sent its part. Otherwise the total
	// bytes sent count, as in Aalo. A threshold belongs to the queue after it.
	PerFlow bool
	// FIFO orders a queue by arrival. Otherwise coflows are ordered by contention, the
	// number of other coflows in the queue with unfinished flows at the same ports, ties by
	// arrival.
	FIFO bool
	// Deadline is D. A coflow is overdue after a time in its queue of D × the number of
	// coflows in the queue when it entered, including itself, × the minimum time that it
	// needs to pass the queue. Overdue coflows go first, the longest overdue before others.
	// 0 is never.
	Deadline float64
	// Dynamics moves coflows up. When some flows have ended, the others are assumed to be
	// as long as the median of the ended ones. The coflow is in the queue of the remaining
	// bytes so estimated, if that is a higher one, until it has sent more than estimated.
	// The paper uses the flow with the most remaining bytes; Saath uses their mean, because
	// it does not see individual flows.
	Dynamics bool
	// Conserve gives idle capacity to coflows that were not served as a whole, in the same
	// order.
	Conserve bool
}

// DefaultSaath returns the paper's settings.
func DefaultSaath() Saath {
	return Saath{Queues: DefaultQueues(), Interval: DefaultInterval, PerFlow: true, Deadline: 2, Dynamics: true, Conserve: true}
}

// Needs returns MostSent and Links.
func (Saath) Needs() policies.Facts { return policies.MostSent | policies.Links }

// Triggers requests a decision at every multiple of Interval, or at events if it is 0.
func (a Saath) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true, Every: a.Interval}
}

// New returns the policy itself, since an instance remembers nothing.
func (a Saath) New() policies.CoflowInstance { return a }

// Decide serves overdue coflows, then the queues in order of priority. The label of a
// coflow (CoflowState.Queue) is its queue + K × the number of coflows in the queue when it
// entered, so that its deadline is known while it stays.
func (a Saath) Decide(v *policies.CoflowView, s *policies.Schedule) {
	ends, count := a.Thresholds(s), max(a.Count, 1)
	queue, in := s.Ints(len(v.Coflows)), s.Ints(count)
	for i := range v.Coflows {
		c := &v.Coflows[i]
		sent := int64(c.Sent)
		if a.PerFlow {
			sent = product(int64(c.MostSent), int64(c.Width), 1)
		}
		q := ends.Below(sent)
		leaves, moves := a.leaveThreshold(c, ends, q), int64(0)
		if left, ok := estimate(c); ok && a.Dynamics {
			by := q
			q = min(q, ends.Below(left))
			if by > 0 {
				moves = raiseThreshold(c, ends, q)
			}
		}
		switch {
		case a.PerFlow:
			s.Watch, s.WatchMost = append(s.Watch, moves), append(s.WatchMost, leaves)
		case leaves > 0 && (moves == 0 || leaves < moves):
			s.Watch = append(s.Watch, leaves)
		default:
			s.Watch = append(s.Watch, moves)
		}
		queue[i] = q
		in[q]++
	}
	deadline := s.Counts(len(v.Coflows))
	for i := range v.Coflows {
		c, q := &v.Coflows[i], queue[i]
		label, since := c.Queue, c.Since
		if label < count || label%count != q {
			label, since = q+count*in[q], v.Now
		}
		s.Queues = append(s.Queues, label)
		deadline[i] = math.MaxInt64
		if a.Deadline > 0 {
			deadline[i] = add(int64(since), float64(a.Deadline*float64(label/count))*minTime(v, c, ends, q))
		}
		if d := deadline[i]; d > int64(v.Now) && d < math.MaxInt64 && (s.Wake == 0 || time.Duration(d) < s.Wake) {
			s.Wake = time.Duration(d)
		}
	}
	o := s.Order(len(v.Coflows))
	contention := s.Ints(len(v.Coflows))
	if !a.FIFO {
		contention = ports.Contentions(v, s, queue)
	}
	overdue := func(i int) int64 {
		if deadline[i] > int64(v.Now) {
			return math.MaxInt64
		}
		return deadline[i]
	}
	slices.SortFunc(o, func(x, y int) int {
		if by := cmp.Compare(overdue(x), overdue(y)); by != 0 {
			return by
		}
		return cmp.Or(cmp.Compare(queue[x], queue[y]), cmp.Compare(contention[x], contention[y]), cmp.Compare(x, y))
	})
	s.Serve(policies.SlowestRate, o)
	if a.Conserve && len(o) > 0 {
		s.Steps = append(s.Steps, policies.Step{Coflows: o, Rule: policies.Greedy, Only: policies.Skipped})
	}
}

// leaveThreshold returns the bytes sent beyond which a coflow, or with PerFlow its longest
// flow, leaves queue q for a lower one; 0 if it never does.
func (a Saath) leaveThreshold(c *policies.CoflowState, ends []int64, q int) int64 {
	end := int64(0)
	if q < len(ends) {
		end = ends[q]
	}
	if a.PerFlow && end > 0 {
		// A flow moves the coflow when it has sent the quotient, rounded up.
		end = (end-1)/int64(max(c.Width, 1)) + 1
	}
	return threshold(end)
}

// raiseThreshold returns the bytes sent beyond which a coflow leaves queue q for a higher
// one, or one byte less. In the first queue, it is the estimated total. The estimate of the
// remaining bytes decreases as the coflow sends, while no other flow ends.
func raiseThreshold(c *policies.CoflowState, ends []int64, q int) int64 {
	total := product(int64(c.Median), int64(c.Width), 1)
	if q > 0 {
		total -= product(ends[q-1], int64(c.Left), int64(c.Width))
	}
	return max(total-1, 1)
}

// threshold returns the bytes beyond which a coflow has reached end; 0 for no end. It is at
// least 1, because a threshold of 0 means none.
func threshold(end int64) int64 {
	if end == 0 {
		return 0
	}
	return max(end-1, 1)
}

// estimate returns the estimated bytes that are compared with a queue's threshold, if each
// flow is as long as the median of the ended ones: the mean remaining bytes of an
// unfinished flow × the number of flows at arrival. ok is false if no flow has ended, or if
// more was sent than such flows contain: then they are longer by an unknown amount. Short
// flows end first, so otherwise a coflow with different flows would seem about to end and
// go before all others.
func estimate(c *policies.CoflowState) (left int64, ok bool) {
	if c.Finished == 0 || c.Left == 0 {
		return 0, false
	}
	left = product(int64(c.Median), int64(c.Width), 1) - int64(c.Sent)
	return product(max(left, 0), int64(c.Width), int64(c.Left)), left > 0
}

// minTime returns the minimum time in nanoseconds in which a coflow can pass queue q alone,
// with equal rates: the queue's span per flow × the flows at the coflow's busiest port. The
// span of the last queue is taken as its lower threshold.
func minTime(v *policies.CoflowView, c *policies.CoflowState, ends []int64, q int) float64 {
	span := float64(0)
	switch n := len(ends); {
	case n == 0:
		return math.Inf(1)
	case q == 0:
		span = float64(ends[0])
	case q < n:
		span = float64(ends[q] - ends[q-1])
	default:
		span = float64(ends[n-1])
	}
	span /= float64(max(c.Width, 1))
	longest, flows, last := 0.0, 0, units.Rate(0)
	at := ports.Of(c, ports.Count(v))
	for i := range at {
		l := &at[i]
		rate := v.Capacity[l.Link]
		if rate <= 0 || rate == last && l.Flows <= flows {
			continue // fast path: ports of equal capacity
		}
		longest, flows, last = max(longest, float64(8e9*span)*float64(l.Flows)/float64(rate)), l.Flows, rate
	}
	if longest == 0 {
		return math.Inf(1) // all its ports are down
	}
	return longest
}

// add returns t plus ns nanoseconds, at most math.MaxInt64.
func add(t int64, ns float64) int64 {
	if !(ns < math.MaxInt64/2) {
		return math.MaxInt64
	}
	return t + int64(ns)
}
