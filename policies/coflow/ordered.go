package coflow

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"testbed/policies"
)

// Ordered serves coflows in order of a key, the smallest first, ties by ID: the
// family of FIFO, SCF, NCF, LCF, SRTF and SEBF. Its zero value is FIFO with MADD,
// which knows sizes.
//
// The names and keys are those of the simulator CoflowSim, the allocation that of
// Varys (Chowdhury, Zhong and Stoica, SIGCOMM 2014). Where theirs are ports of a
// non-blocking switch, every link of a flow's path counts here, so an
// oversubscribed uplink can be a bottleneck.
type Ordered struct {
	By Key
	// Initial ranks a coflow by what it was at arrival rather than by what is left
	// of it. It changes nothing for keys that cannot change: Arrival, LargestFlow
	// and Width.
	Initial bool
	Sharing
}

// Key is what coflows are put in order by.
type Key uint8

// The keys. All but Arrival and Width need sizes.
const (
	Arrival     Key = iota // first in, first out (FIFO)
	LargestFlow            // the size of the largest flow at arrival (SCF, shortest first)
	Width                  // senders or receivers at arrival, the fewer of them (NCF, narrowest first)
	Bytes                  // over all flows (LCF, lightest first)
	Bottleneck             // the time the coflow takes alone (SEBF, SRTF)
)

// Sharing is how coflows in order share the network.
type Sharing struct {
	Allocation Allocation
	Backfill   Backfill
	// Priorities is for MaxMin: with it, the network has so many priority classes,
	// at least 1; all but the last hold one coflow each, the first in order, and the
	// last all the others, which share max-min fairly. It is what a transport over
	// DiffServ makes of an order. 0 is a class for each coflow.
	Priorities int
	Pace       Pace
}

// Allocation is how a coflow's flows share what those before it have left.
type Allocation uint8

// The allocations. Only MADD needs sizes.
const (
	// MADD slows all flows of a coflow down to end with the last of them; a coflow
	// that needs a link on which nothing is left is skipped (policies.MADD).
	MADD Allocation = iota
	// Greedy gives flow after flow all that is left of its path: nothing is left
	// that a flow could use.
	Greedy
	// Even gives every flow of the coflow its equal share of the tightest link on
	// its path, in one pass.
	Even
	// MaxMin is max-min fairness among the coflow's flows.
	MaxMin
)

// Backfill is what becomes of the capacity that the allocation leaves.
type Backfill uint8

// The backfills.
const (
	// TopUp hands it out flow by flow, in the order of the coflows: work-conserving.
	TopUp Backfill = iota
	// TopUpServed is TopUp for coflows that MADD has not skipped, as in the Varys
	// prototype.
	TopUpServed
	// FairShare is CoflowSim's: each flow of the coflows that MADD has skipped gets
	// its equal share of the tightest link on its path, in one pass over all of
	// them; what is left goes to all flows one by one, in order of arrival.
	// CoflowSim itself takes, for that, an order of random deadlines; Ximulator's
	// copy of it that of arrival.
	FairShare
	// None leaves it idle.
	None
	// Proportional is the Varys paper's: what is left of a sender's link is for the flows
	// that have a rate, in proportion to it, as far as their receivers' links allow; of
	// these, and of links between, their flows have shares in proportion too. A coflow that
	// MADD has skipped gets nothing.
	Proportional
)

// Pace is when an ordering policy decides. Its zero value is at each arrival and
// end of a coflow and at each end of a flow.
type Pace struct {
	CoflowsOnly bool          // not at the ends of flows; not together with Every
	Every       time.Duration // at the multiples of this interval alone, δ; 0 at once
}

func (p Pace) when() policies.When {
	return policies.When{Coflows: true, Flows: !p.CoflowsOnly, Every: p.Every}
}

// Needs is the flows' sizes, where the key or the allocation takes them.
func (o Ordered) Needs() policies.Knowledge {
	if o.Allocation == MADD || o.By != Arrival && o.By != Width {
		return policies.Sizes
	}
	return 0
}

// When is what Pace says.
func (o Ordered) When() policies.When { return o.Pace.when() }

// Schedule orders the coflows and shares the network among them.
func (o Ordered) Schedule(v *policies.View, s *policies.Schedule) {
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

// unwatched says of n coflows that no decision is needed because of what they send.
func unwatched(watch []int64, n int) []int64 {
	watch = slices.Grow(watch, n)[:n]
	clear(watch)
	return watch
}

// static tells that bytes that move change no decision: only coflows and flows
// that come and go do.
func (o Ordered) static() bool {
	return o.Allocation != MADD && (o.Initial || o.By != Bytes && o.By != Bottleneck)
}

// rank puts places of the View, which are in order, in order of a key.
func rank(v *policies.View, s *policies.Schedule, places []int, by Key, initial bool) {
	if by == Arrival {
		return
	}
	// keys are bytes, and rates to divide them by where capacities are not all one.
	keys, rates := s.Counts(len(v.Coflows)), s.Counts(len(v.Coflows))
	for _, i := range places {
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
	slices.SortFunc(places, func(a, b int) int {
		x, y := quotient{keys[a], rates[a]}, quotient{keys[b], rates[b]}
		return cmp.Or(x.compare(y), cmp.Compare(v.Coflows[a].ID, v.Coflows[b].ID))
	})
}

// quotient is bytes over a rate, a time that is compared exactly. Over the rate
// 0, which stands for a link without capacity, it is longer than any other.
type quotient struct{ bytes, rate int64 }

// compare multiplies the two quotients out to 128 bits.
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

// bottleneck is the longest that any link takes to carry what is left of a coflow
// alone. Over a link that is down it is the same for all: no time is long enough.
func bottleneck(v *policies.View, c *policies.CoflowState) quotient {
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

// share appends the steps that serve the coflows in order. n is the number of
// coflows of the View, in order of arrival.
func (h Sharing) share(s *policies.Schedule, order []int, n int) {
	switch h.Allocation {
	case MADD:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.MADD})
	case Greedy:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy})
		return // nothing is left
	case Even, MaxMin:
		rule := policies.Even
		if h.Allocation == MaxMin {
			rule = policies.MaxMin
		}
		for i := 0; i < len(order); {
			next := i + 1
			if h.Priorities > 0 && next >= h.Priorities {
				next = len(order)
			}
			s.Steps = append(s.Steps, policies.Step{Coflows: order[i:next], Rule: rule})
			i = next
		}
	}
	switch h.Backfill {
	case TopUp:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy})
	case TopUpServed:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy, Only: policies.Served})
	case Proportional:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Proportional})
	case FairShare:
		s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Even, Only: policies.Skipped},
			policies.Step{Coflows: s.Order(n), Rule: policies.Greedy})
	}
}
