package coflow

import (
	"cmp"
	"slices"
	"time"

	"testbed/policies"
)

// SEBF is the policy of Varys (Chowdhury, Zhong and Stoica, SIGCOMM 2014): smallest
// effective bottleneck first, with minimum allocation for desired duration (MADD).
// Coflows are ordered by their remaining effective bottleneck, ties by ID. Each gets the
// rates at which all its flows end together with the capacity that earlier coflows leave,
// or none if a link that it needs is full. The rest is backfilled in the same order. SEBF
// decides at every arrival and end of a coflow and at every end of a flow. This is the
// zero value; all of it can be changed.
//
// The paper ranks by the bottleneck at arrival in some places and by the remaining one in
// others. Its prototype uses the remaining one, which is the default here.
type SEBF struct {
	Initial bool // rank by the bottleneck at arrival
	Sharing
	Deadline Deadline
}

// Deadline is Varys' mode with admission control. A coflow is admitted at arrival if it
// can meet its deadline without delaying those admitted before. Admitted coflows get the
// rates at which they end at their deadlines, and more only if no other coflow can use the
// capacity. Rejected coflows follow, with MADD and then greedily in order of the key.
// SEBF's Allocation and Backfill are ignored. CoflowState.Queue stores whether a coflow
// was admitted.
type Deadline struct {
	// Factor sets the deadline of a coflow, after its arrival, to a multiple of its minimum
	// completion time (CoflowState.Bound). 0 disables deadlines.
	Factor float64
	// Padding is the safety margin at admission: the fraction added to the estimated
	// demand. Varys' prototype uses 0.1.
	Padding float64
	// Least is the minimum completion time assumed for any coflow; one with a shorter
	// deadline is rejected. Varys' prototype uses 200 ms.
	Least time.Duration
	// RejectedLast gives rejected coflows only the capacity that admitted ones cannot use
	// at all. Otherwise they get all that admitted ones do not need to meet their
	// deadlines.
	RejectedLast bool
}

// DefaultDeadline returns the settings of Varys' prototype, except Factor, which is 0.
func DefaultDeadline() Deadline { return Deadline{Padding: 0.1, Least: 200 * time.Millisecond} }

// The values of CoflowState.Queue in the mode with deadlines.
const (
	Rejected = 1
	Admitted = 2
)

func (p SEBF) ordered() Ordered {
	return Ordered{By: Bottleneck, Initial: p.Initial, Sharing: p.Sharing}
}

// Needs returns Sizes and Links: SEBF is clairvoyant.
func (p SEBF) Needs() policies.Facts { return policies.Sizes | policies.Links }

// Triggers returns the events of Pace.
func (p SEBF) Triggers() policies.Triggers { return p.Pace.when() }

// New returns the policy itself, since an instance remembers nothing.
func (p SEBF) New() policies.CoflowInstance { return p }

// Decide orders the coflows by their bottleneck as Ordered does, or serves them by
// deadline.
func (p SEBF) Decide(v *policies.CoflowView, s *policies.Schedule) {
	if p.Deadline.Factor == 0 {
		p.ordered().Decide(v, s)
		return
	}
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	s.Queues = slices.Grow(s.Queues, n)[:n]
	p.Deadline.admit(v, s)

	// Admitted coflows by deadline, admitted ones past it by key, and rejected ones.
	inTime, late, rejected := s.Ints(n)[:0], s.Ints(n)[:0], s.Ints(n)[:0]
	for i := range v.Coflows {
		switch c := &v.Coflows[i]; {
		case s.Queues[i] == Rejected:
			rejected = append(rejected, i)
		case p.Deadline.left(v, c) <= 0:
			late = append(late, i)
		default:
			inTime = append(inTime, i)
		}
	}
	slices.SortFunc(inTime, func(a, b int) int {
		x, y := &v.Coflows[a], &v.Coflows[b]
		return cmp.Or(cmp.Compare(p.Deadline.left(v, x), p.Deadline.left(v, y)), cmp.Compare(x.ID, y.ID))
	})
	rank(v, s, late, Bottleneck, p.Initial)
	rank(v, s, rejected, Bottleneck, p.Initial)
	for k, i := range inTime {
		s.Steps = append(s.Steps, policies.Step{Coflows: inTime[k : k+1], Rule: policies.MADD, Within: p.Deadline.left(v, &v.Coflows[i])})
	}
	// Coflows that cannot meet their deadline get the residual capacity first: as early as
	// they can if the estimate was too low or rounded, and whatever moves if a link is down.
	for _, rule := range []policies.Rule{policies.MADD, policies.Greedy} {
		if len(inTime) > 0 {
			s.Steps = append(s.Steps, policies.Step{Coflows: inTime, Rule: rule, Only: policies.Skipped})
		}
	}
	s.Serve(policies.MADD, late)
	s.Serve(policies.Greedy, late)
	serveRejected := func() {
		s.Serve(policies.MADD, rejected)
		s.Serve(policies.Greedy, rejected)
	}
	if !p.Deadline.RejectedLast {
		serveRejected()
	}
	s.Serve(policies.Greedy, inTime)
	if p.Deadline.RejectedLast {
		serveRejected()
	}
}

// left returns the time until the coflow's deadline; 0 or less if it has passed.
func (d Deadline) left(v *policies.CoflowView, c *policies.CoflowState) time.Duration {
	return c.Arrival + d.of(c) - v.Now
}

// of returns the time from the coflow's arrival to its deadline.
func (d Deadline) of(c *policies.CoflowState) time.Duration {
	const longest = 1 << 61 // about 73 years: adding an arrival time does not overflow
	if t := float64(d.Factor * float64(c.Bound)); t < longest {
		return time.Duration(t)
	}
	return longest
}

// admit sets s.Queues. New coflows are admitted, in order of arrival, if they can meet
// their deadline with the capacity that admitted ones leave.
func (d Deadline) admit(v *policies.CoflowView, s *policies.Schedule) {
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

// fits reports whether the coflow, with Padding, ends within a number of seconds.
func (d Deadline) fits(c *policies.CoflowState, free []float64, seconds float64) bool {
	for _, l := range c.Links {
		if l.Remaining > 0 && float64((1+d.Padding)*float64(8*float64(l.Remaining))) > float64(free[l.Link]*seconds) {
			return false
		}
	}
	return true
}
