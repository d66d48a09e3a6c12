package coflow

import (
	"cmp"
	"slices"
	"time"

	"testbed/policies"
)

// SEBF is the smallest-effective-bottleneck-first order with minimum allocation
// for desired duration (MADD) of Varys (Chowdhury, Zhong and Stoica, SIGCOMM
// 2014). Coflows go in order of the time their bottleneck still needs, ties by
// ID; each gets, of what those before it left, the rates at which all of its
// flows end together, or nothing, where a link it needs is full. What that leaves
// is handed out in the same order, at every arrival and end of a coflow and end of
// a flow. All of it can be set; the zero value is what is said here.
//
// The paper ranks by the bottleneck at arrival or by what remains, depending on
// where one looks; its prototype by what remains, as is the default here.
type SEBF struct {
	Initial bool // rank by the bottleneck at arrival
	Sharing
	Deadline Deadline
}

// Deadline is Varys' mode with admission control: a coflow is admitted at arrival
// if it can end in time without delay to those admitted before, which then have
// the rates at which they end when they must, and no more while others want the
// rest. The others run behind them, by MADD and then greedily in order of the key;
// SEBF's Allocation and Backfill are not used. Whether a coflow was admitted shows
// as its queue.
type Deadline struct {
	// Factor makes a coflow's deadline: so many times the time it takes alone, from
	// its arrival on. 0 is no deadlines.
	Factor float64
	// Padding is what part an estimate is taken to be short of what is needed; Varys'
	// prototype says 0.1.
	Padding float64
	// Least is the shortest time any coflow is thought to take; Varys' prototype says
	// 200 ms. A coflow with a shorter deadline is rejected.
	Least time.Duration
	// RejectedLast serves what is rejected only where admitted coflows leave capacity
	// they cannot use at all; otherwise rejected ones have what the admitted do not
	// need to end in time.
	RejectedLast bool
}

// DefaultDeadline is Varys' prototype's, but for the factor.
func DefaultDeadline() Deadline { return Deadline{Padding: 0.1, Least: 200 * time.Millisecond} }

// The queues of coflows in the mode with deadlines.
const (
	Rejected = 1
	Admitted = 2
)

func (p SEBF) ordered() Ordered {
	return Ordered{By: Bottleneck, Initial: p.Initial, Sharing: p.Sharing}
}

// Needs is the flows' sizes: SEBF is clairvoyant.
func (p SEBF) Needs() policies.Knowledge { return policies.Sizes }

// When is what Pace says.
func (p SEBF) When() policies.When { return p.Pace.when() }

// Schedule is that of Ordered by the bottleneck, but in the mode with deadlines.
func (p SEBF) Schedule(v *policies.View, s *policies.Schedule) {
	if p.Deadline.Factor == 0 {
		p.ordered().Schedule(v, s)
		return
	}
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	s.Queues = slices.Grow(s.Queues, n)[:n]
	p.Deadline.admit(v, s)

	// In time, in order of their deadlines; late, in order of the key; rejected.
	places, late, rejected := s.Ints(n)[:0], s.Ints(n)[:0], s.Ints(n)[:0]
	for i := range v.Coflows {
		switch c := &v.Coflows[i]; {
		case s.Queues[i] == Rejected:
			rejected = append(rejected, i)
		case p.Deadline.left(v, c) <= 0:
			late = append(late, i)
		default:
			places = append(places, i)
		}
	}
	slices.SortFunc(places, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(p.Deadline.left(v, x), p.Deadline.left(v, y)), cmp.Compare(x.ID, y.ID))
	})
	rank(v, s, late, Bottleneck, p.Initial)
	rank(v, s, rejected, Bottleneck, p.Initial)
	step := func(places []int, rule policies.Rule, only policies.Only) {
		if len(places) > 0 {
			s.Steps = append(s.Steps, policies.Step{Coflows: places, Rule: rule, Only: only})
		}
	}
	for k, i := range places {
		s.Steps = append(s.Steps, policies.Step{Coflows: places[k : k+1], Rule: policies.MADD, Within: p.Deadline.left(v, &v.Coflows[i])})
	}
	// What cannot end in time, because a link is down or the estimate was short, has
	// the rest first.
	step(places, policies.Greedy, policies.Skipped)
	step(late, policies.MADD, policies.Everyone)
	step(late, policies.Greedy, policies.Everyone)
	behind := func() {
		step(rejected, policies.MADD, policies.Everyone)
		step(rejected, policies.Greedy, policies.Everyone)
	}
	if !p.Deadline.RejectedLast {
		behind()
	}
	step(places, policies.Greedy, policies.Everyone)
	if p.Deadline.RejectedLast {
		behind()
	}
}

// left is the time until the coflow's deadline, 0 or less where it has passed.
func (d Deadline) left(v *policies.View, c *policies.CoflowState) time.Duration {
	return c.Arrival + d.of(c) - v.Now
}

// of is the time from the coflow's arrival to its deadline.
func (d Deadline) of(c *policies.CoflowState) time.Duration {
	const longest = 1 << 61 // about 73 years: no sum of it and an arrival wraps
	if t := float64(d.Factor * float64(c.Bound)); t < longest {
		return time.Duration(t)
	}
	return longest
}

// admit fills in s.Queues: coflows that are new, in order of arrival, are admitted
// if they can end in time with what those admitted have left.
func (d Deadline) admit(v *policies.View, s *policies.Schedule) {
	free := s.Floats(len(v.Capacity)) // bit/s
	for l, r := range v.Capacity {
		free[l] = float64(r)
	}
	take := func(c *policies.CoflowState) {
		if left := d.left(v, c).Seconds(); left > 0 {
			for _, l := range c.Links {
				free[l.Link] -= 8 * float64(l.Remaining) / left
			}
		}
	}
	for i := range v.Coflows {
		s.Queues[i] = v.Coflows[i].Queue
		if s.Queues[i] == Admitted {
			take(&v.Coflows[i])
		}
	}
	for i := range v.Coflows {
		c := &v.Coflows[i]
		if s.Queues[i] == Admitted || s.Queues[i] == Rejected {
			continue
		}
		s.Queues[i] = Rejected
		left := d.left(v, c)
		if left >= d.Least && left > 0 && d.fits(c, free, left.Seconds()) {
			s.Queues[i] = Admitted
			take(c)
		}
	}
}

// fits tells whether the coflow, with its padding, ends within so many seconds.
func (d Deadline) fits(c *policies.CoflowState, free []float64, seconds float64) bool {
	for _, l := range c.Links {
		if l.Remaining > 0 && float64((1+d.Padding)*float64(8*float64(l.Remaining))) > float64(free[l.Link]*seconds) {
			return false
		}
	}
	return true
}
