package coflow

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"testbed/policies"
)

// Ordered serves coflows in increasing order of a key, ties by ID: the family of FIFO,
// SCF, NCF, LCF, SRTF and SEBF. Its zero value is FIFO with MADD, which knows sizes.
//
// The names and keys are those of the simulator CoflowSim, the allocation that of Varys
// (Chowdhury, Zhong and Stoica, SIGCOMM 2014). Where those count only the ports of a
// non-blocking switch, Ordered counts every link of a flow's path, so an oversubscribed
// uplink can be a bottleneck.
type Ordered struct {
	By Key
	// Initial ranks a coflow by its state at arrival rather than by its remaining bytes.
	// It has no effect on keys that do not change: Arrival, LargestFlow and Width.
	Initial bool
	Sharing
}

// Key is the quantity by which coflows are ordered.
type Key uint8

// The keys. All except Arrival and Width need sizes.
const (
	Arrival     Key = iota // first in, first out (FIFO)
	LargestFlow            // length: the size of the largest flow at arrival (SCF, shortest first)
	Width                  // the smaller number of senders and receivers at arrival (NCF, narrowest first)
	Bytes                  // the bytes of all flows (LCF, lightest first)
	Bottleneck             // the effective bottleneck: the minimum time of the coflow alone (SEBF, SRTF)
)

// Sharing defines how coflows share the network in a given order.
type Sharing struct {
	Allocation Allocation
	Backfill   Backfill
	// Priorities is the number of priority classes of the network, for MaxMin. Each class
	// except the last serves one coflow, in order; the last serves all others, which share
	// max-min fairly, as a transport over DiffServ would. 0 is one class for each coflow.
	Priorities int
	Pace       Pace
}

// Allocation defines how the flows of a coflow share the capacity that earlier coflows
// leave.
type Allocation uint8

// The allocations. Only MADD needs sizes.
const (
	// MADD slows all flows of a coflow down so that they end with the last of them. A
	// coflow that needs a link without residual capacity is skipped (policies.MADD).
	MADD Allocation = iota
	// Greedy gives one flow after another all residual capacity of its path. It leaves no
	// capacity that a flow could use.
	Greedy
	// EqualSplit gives every flow of the coflow its equal share of the tightest link on its
	// path, in one pass.
	EqualSplit
	// MaxMin gives max-min fair rates to the coflow's flows.
	MaxMin
)

// Backfill defines the use of the capacity that the allocation leaves.
type Backfill uint8

// The backfills.
const (
	// TopUp serves one flow after another, in the order of the coflows: work conserving.
	TopUp Backfill = iota
	// TopUpServed is TopUp for coflows that MADD has not skipped, as in the Varys
	// prototype.
	TopUpServed
	// FairShare is the backfill of CoflowSim. Each flow of the coflows that MADD has
	// skipped gets its equal share of the tightest link on its path, in one pass over all
	// of them. The rest goes to one flow after another, in order of arrival. CoflowSim
	// itself uses an order of random deadlines for that; its copy in Ximulator uses
	// arrival.
	FairShare
	// None leaves the capacity idle.
	None
	// Proportional is the backfill of the Varys paper. The residual capacity of a sender's
	// link is divided among the flows that have a rate, in proportion to it, as far as
	// their receivers' links allow. The residual capacity of those links, and of links
	// between, is divided in proportion too. A coflow that MADD has skipped gets nothing.
	Proportional
)

// Pace defines when an ordering policy decides. Its zero value is at each arrival and end
// of a coflow and at each end of a flow.
type Pace struct {
	CoflowsOnly bool          // no decision at the end of a flow; excludes Every
	Every       time.Duration // δ: decisions only at multiples of this interval; 0 is immediately
}

func (p Pace) when() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: !p.CoflowsOnly, Every: p.Every}
}

// Needs returns Sizes if the key or the allocation depends on them. Only the remaining bottleneck
// depends on links.
func (o Ordered) Needs() (needs policies.Facts) {
	if o.Allocation == MADD || o.By != Arrival && o.By != Width {
		needs |= policies.Sizes
	}
	if o.By == Bottleneck && !o.Initial {
		needs |= policies.Links
	}
	return needs
}

// Triggers returns the events of Pace.
func (o Ordered) Triggers() policies.Triggers { return o.Pace.when() }

// New returns the policy itself, since an instance remembers nothing.
func (o Ordered) New() policies.CoflowInstance { return o }

// Decide orders the coflows and shares the network among them.
func (o Ordered) Decide(v *policies.CoflowView, s *policies.Schedule) {
	if len(v.Coflows) == 0 {
		return
	}
	order := s.Order(len(v.Coflows))
	rank(v, s, order, o.By, o.Initial)
	o.share(s, order, len(v.Coflows))
	if o.Pace.Every > 0 && o.static() {
		s.Watch = unwatched(s.Watch, len(v.Coflows))
	}
}

// unwatched returns n thresholds 0: no decision is needed because of bytes sent.
func unwatched(watch []int64, n int) []int64 {
	watch = slices.Grow(watch, n)[:n]
	clear(watch)
	return watch
}

// static reports whether decisions depend only on arrivals and ends of coflows and flows,
// not on bytes sent.
func (o Ordered) static() bool {
	return o.Allocation != MADD && (o.Initial || o.By != Bytes && o.By != Bottleneck)
}

// rank sorts increasing indices into View.Coflows by a key.
func rank(v *policies.CoflowView, s *policies.Schedule, indices []int, by Key, initial bool) {
	if by == Arrival {
		return
	}
	// keys are bytes, and rates their divisors, if capacities differ.
	keys, rates := s.Counts(len(v.Coflows)), s.Counts(len(v.Coflows))
	for _, i := range indices {
		c := &v.Coflows[i]
		rates[i] = 1
		switch {
		case by == LargestFlow:
			keys[i] = int64(c.Largest)
		case by == Width:
			keys[i] = int64(min(c.Senders, c.Receivers))
		case by == Bytes && initial:
			keys[i] = int64(c.Size)
		case by == Bytes:
			keys[i] = int64(c.Remaining)
		case initial:
			keys[i] = int64(c.Bound)
		default:
			b := bottleneck(v, c)
			keys[i], rates[i] = b.bytes, b.rate
		}
	}
	slices.SortFunc(indices, func(a, b int) int {
		x, y := quotient{keys[a], rates[a]}, quotient{keys[b], rates[b]}
		return cmp.Or(x.compare(y), cmp.Compare(v.Coflows[a].ID, v.Coflows[b].ID))
	})
}

// quotient is bytes divided by a rate: a time that can be compared exactly. With rate 0,
// for a link without capacity, it is longer than any other.
type quotient struct{ bytes, rate int64 }

// compare cross-multiplies the two quotients in 128 bits.
func (a quotient) compare(b quotient) int {
	if a.rate == b.rate {
		return cmp.Compare(a.bytes, b.bytes)
	}
	if a.rate == 0 || b.rate == 0 {
		return cmp.Compare(b.rate, a.rate)
	}
	ahi, alo := bits.Mul64(uint64(a.bytes), uint64(b.rate))
	bhi, blo := bits.Mul64(uint64(b.bytes), uint64(a.rate))
	return cmp.Or(cmp.Compare(ahi, bhi), cmp.Compare(alo, blo))
}

// bottleneck returns the effective bottleneck of a coflow: the longest time that any link
// needs for the coflow's remaining bytes. It is infinite if one of the links is down.
func bottleneck(v *policies.CoflowView, c *policies.CoflowState) quotient {
	q := quotient{0, 1}
	for i := range c.Links {
		l := &c.Links[i]
		at := quotient{max(int64(l.Remaining), 0), int64(v.Capacity[l.Link])}
		if at.rate == q.rate && at.bytes <= q.bytes {
			continue // links of one capacity are the common case
		}
		if at.rate <= 0 {
			return quotient{math.MaxInt64, 0}
		}
		if at.compare(q) > 0 {
			q = at
		}
	}
	return q
}

// share appends the steps that serve the coflows in the given order. n is the number of
// coflows in the View.
func (h Sharing) share(s *policies.Schedule, order []int, n int) {
	switch h.Allocation {
	case MADD:
		s.Serve(policies.MADD, order)
	case Greedy:
		s.Serve(policies.Greedy, order)
		return // no capacity is left
	case EqualSplit, MaxMin:
		rule := policies.EqualSplit
		if h.Allocation == MaxMin {
			rule = policies.MaxMin
		}
		for i := 0; i < len(order); {
			next := i + 1
			if h.Priorities > 0 && next >= h.Priorities {
				next = len(order)
			}
			s.Serve(rule, order[i:next])
			i = next
		}
	}
	switch h.Backfill {
	case TopUp:
		s.Serve(policies.Greedy, order)
	case TopUpServed:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy, Only: policies.Served})
	case Proportional:
		s.Serve(policies.Proportional, order)
	case FairShare:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.EqualSplit, Only: policies.Skipped})
		s.Serve(policies.Greedy, s.Order(n))
	}
}
