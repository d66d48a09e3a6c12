package coflow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo/units"
)

// Saath (Jajoo, Gandhi, Hu and Koh, CoNEXT 2017) knows no sizes. Its queues are
// Aalo's, but a coflow leaves one as soon as a single flow has sent its part of the
// threshold; inside a queue the coflow that contends with the fewest others goes
// first; and a coflow is served as a whole or, but for what would stay idle, not at
// all. A coflow that is long in one queue goes before all others.
type Saath struct {
	Queues
	Interval time.Duration // δ, as Aalo's
	// PerFlow splits a queue's threshold evenly among the flows a coflow has at
	// arrival, and moves it on when one of them has sent that much. Otherwise what the
	// coflow has sent together counts, as in Aalo. Bytes sent up to a queue's end but
	// without it belong to it.
	PerFlow bool
	// FIFO orders a queue by arrival. Otherwise it is by contention, the number of
	// other coflows in the queue that have unfinished flows at the same ports, the
	// least first, ties by arrival.
	FIFO bool
	// Deadline is D: a coflow is overdue when it has been in a queue for D times the
	// number of coflows it found there, itself included, times the least time it
	// needs to get through. Overdue ones go first, the longest overdue before others.
	// 0 is never.
	Deadline float64
	// Dynamics moves coflows up: when some flows have ended, the others are taken to
	// be as long as the median of those, and the coflow is in the queue of what that
	// leaves to be sent, if that is a higher one, until it has sent more than that. The
	// paper goes by the flow that has most left; here it is their mean, since flows are
	// not seen one by one.
	Dynamics bool
	// Conserve gives coflows that were not served as a whole what is left idle, in
	// the same order.
	Conserve bool
}

// DefaultSaath is the paper's.
func DefaultSaath() Saath {
	return Saath{Queues: DefaultQueues(), Interval: DefaultInterval, PerFlow: true, Deadline: 2, Dynamics: true, Conserve: true}
}

// Needs is nothing.
func (Saath) Needs() policies.Knowledge { return policies.MostSent }

// When is every interval; between them, rates change where a coflow or a flow ends.
func (a Saath) When() policies.When {
	return policies.When{Coflows: true, Flows: true, Every: a.Interval}
}

// Schedule serves overdue coflows, then the queues, the first one first. The label
// of a coflow is its queue plus K times the number of coflows it found there, so
// that its deadline is known for as long as it stays.
func (a Saath) Schedule(v *policies.View, s *policies.Schedule) {
	ends, count := a.limits(s), max(a.Count, 1)
	queue, in := s.Ints(len(v.Coflows)), s.Ints(count)
	for i := range v.Coflows {
		c := &v.Coflows[i]
		sent := int64(c.Sent)
		if a.PerFlow {
			sent = product(int64(c.MostSent), int64(c.Width), 1)
		}
		q := from(ends, sent)
		leaves, moves := a.leaves(c, ends, q), int64(0)
		if left, ok := estimate(c); ok && a.Dynamics {
			by := q
			q = min(q, from(ends, left))
			if by > 0 {
				moves = moved(c, ends, q)
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
			deadline[i] = add(int64(since), float64(a.Deadline*float64(label/count))*through(v, c, ends, q))
		}
		if d := deadline[i]; d > int64(v.Now) && d < math.MaxInt64 && (s.Wake == 0 || time.Duration(d) < s.Wake) {
			s.Wake = time.Duration(d)
		}
	}
	o := s.Order(len(v.Coflows))
	contention := s.Ints(len(v.Coflows))
	if !a.FIFO {
		contention = contentions(v, s, queue)
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
	if len(o) == 0 {
		return
	}
	s.Steps = append(s.Steps, policies.Step{Coflows: o, Rule: policies.Equal})
	if a.Conserve {
		s.Steps = append(s.Steps, policies.Step{Coflows: o, Rule: policies.Greedy, Only: policies.Skipped})
	}
}

// leaves is what a coflow, or with PerFlow its longest flow, passes when it leaves
// queue q by what it has sent, 0 if it never does.
func (a Saath) leaves(c *policies.CoflowState, ends []int64, q int) int64 {
	end := int64(0)
	if q < len(ends) {
		end = ends[q]
	}
	if a.PerFlow && end > 0 {
		// One flow moves the coflow on when it has sent the quotient, rounded up.
		end = (end-1)/int64(max(c.Width, 1)) + 1
	}
	return passes(end)
}

// moved is what a coflow passes when it leaves queue q for a higher one because so
// little is left of it, or a byte before; from the first queue, when it has sent all
// that was estimated. The more it sends the less is left by the estimate, while no
// other flow ends.
func moved(c *policies.CoflowState, ends []int64, q int) int64 {
	whole := product(int64(c.Median), int64(c.Width), 1)
	if q > 0 {
		whole -= product(ends[q-1], int64(c.Left), int64(c.Width))
	}
	return max(whole-1, 1)
}

// passes is what bytes pass when they reach the end, 0 for no end. The first byte
// cannot be told from none: where it would do, the second does.
func passes(end int64) int64 {
	if end == 0 {
		return 0
	}
	return max(end-1, 1)
}

// estimate is what a coflow's threshold is compared with where its flows are as long
// as the median of those that have ended: what an unfinished one then has left,
// on average, times the flows at arrival. ok is false where none has ended, and where
// more was sent than such flows have: then they are longer, by nobody knows how much.
// Short flows end first, so that without this a coflow whose flows differ would be
// taken for one that is about to end, and go before all others.
func estimate(c *policies.CoflowState) (left int64, ok bool) {
	if c.Finished == 0 || c.Left == 0 {
		return 0, false
	}
	left = product(int64(c.Median), int64(c.Width), 1) - int64(c.Sent)
	return product(max(left, 0), int64(c.Width), int64(c.Left)), left > 0
}

// through is the least time in nanoseconds in which a coflow could send its part
// of queue q at equal rates, alone: what the queue spans, by flow, times the flows
// at its busiest port. The last queue counts as if it had an end.
func through(v *policies.View, c *policies.CoflowState, ends []int64, q int) float64 {
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
	longest, flows, like := 0.0, 0, units.Rate(0)
	ports := atPorts(c, portCount(v))
	for i := range ports {
		l := &ports[i]
		rate := v.Capacity[l.Link]
		if rate <= 0 || rate == like && l.Flows <= flows {
			continue // ports of one capacity are the common case
		}
		longest, flows, like = max(longest, float64(8e9*span)*float64(l.Flows)/float64(rate)), l.Flows, rate
	}
	if longest == 0 {
		return math.Inf(1) // nothing it has to do with moves
	}
	return longest
}

// add is t and so many nanoseconds, at most the end of time.
func add(t int64, ns float64) int64 {
	if !(ns < math.MaxInt64/2) {
		return math.MaxInt64
	}
	return t + int64(ns)
}
