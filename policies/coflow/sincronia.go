package coflow

import (
	"cmp"
	"math"
	"slices"

	"testbed/policies"
)

// Sincronia serves coflows in the order of bottleneck-select-scale-iterate (BSSI; Agarwal
// et al., SIGCOMM 2018), each with weight 1. BSSI fills the places from last to first. It
// selects the link with the largest demand. The coflow with the largest ratio of demand
// on that link to weight goes last. The weights of the others decrease in proportion to
// their demand on the link.
//
// The paper's schedule is offline, for coflows that have all arrived, and its online
// version uses epochs and a linear program. Sincronia simplifies this: it runs BSSI on the
// remaining bytes whenever a coflow arrives or ends. The paper's bound (offline, within 4
// times the best average) holds for any work-conserving allocation that preserves the
// order; Greedy is the simplest. Demand is measured in time, bytes divided by capacity. A
// link that is down is ignored. If two links have equal demand, the one with the lower ID
// is the bottleneck.
type Sincronia struct {
	Sharing
	// EarlierLast gives the last place in a tie to the coflow with the lower ID, as the
	// authors' code does. Otherwise that coflow goes first.
	EarlierLast bool
	// Always runs BSSI in every decision, not only after a coflow has arrived or ended.
	Always bool
}

// DefaultSincronia returns Sincronia with greedy allocation.
func DefaultSincronia() Sincronia { return Sincronia{Sharing: Sharing{Allocation: Greedy}} }

// Needs returns Sizes.
func (Sincronia) Needs() policies.Needs { return policies.Needs{Sizes: true} }

// Triggers returns the events of Pace.
func (p Sincronia) Triggers() policies.Triggers { return p.Pace.when() }

// New returns an instance.
func (p Sincronia) New() policies.CoflowInstance { return &sincronia{Sincronia: p} }

// sincronia remembers the number of coflows in its order, in which a coflow's place from 1 is CoflowState.Queue.
type sincronia struct {
	Sincronia
	placed int
}

// Decide orders the coflows and shares the network among them.
func (p *sincronia) Decide(v *policies.CoflowView, s *policies.Schedule) {
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	var order []int
	if !p.Always && p.placed == n && !slices.ContainsFunc(v.Coflows, unplaced) {
		order = s.Order(n)
		slices.SortFunc(order, func(a, b int) int {
			x, y := &v.Coflows[a], &v.Coflows[b]
			return cmp.Or(cmp.Compare(x.Queue, y.Queue), cmp.Compare(x.ID, y.ID))
		})
	} else {
		order = p.bssi(v, s)
		s.Queues = slices.Grow(s.Queues, n)[:n]
		for at, i := range order {
			s.Queues[i] = at + 1
		}
		p.placed = n
	}
	p.share(s, order, n)
	if p.Pace.Every > 0 && p.Allocation != MADD && !p.Always {
		s.Watch = unwatched(s.Watch, n)
	}
}

func unplaced(c policies.CoflowState) bool { return c.Queue <= 0 }

// bssi returns the order as indices into View.Coflows.
func (p Sincronia) bssi(v *policies.CoflowView, s *policies.Schedule) []int {
	n := len(v.Coflows)
	// total is the demand of coflows without a place, in bytes, by link; weight is the
	// remaining weight (the dual), and on the demand on the bottleneck, by coflow.
	total, weight, on := s.Counts(len(v.Capacity)), s.Floats(n), s.Counts(n)
	links := s.Ints(len(v.Capacity)) // links that are up and have demand
	most := int64(math.MaxInt64) / int64(n)
	bytes := func(l *policies.LinkState) int64 { return min(max(int64(l.Remaining), 0), most) }
	used := 0
	for i := range v.Coflows {
		weight[i] = 1
		c := &v.Coflows[i]
		for j := range c.Links {
			l := &c.Links[j]
			if b := bytes(l); b > 0 && v.Capacity[l.Link] > 0 {
				if total[l.Link] == 0 {
					links[used] = int(l.Link)
					used++
				}
				total[l.Link] += b
			}
		}
	}
	links = links[:used]

	order := s.Order(n)
	for left := n; left > 1; left-- {
		// Select the bottleneck, and drop links without demand.
		at, longest := -1, quotient{0, 1}
		used := 0
		for _, l := range links {
			if total[l] == 0 {
				continue
			}
			links[used] = l
			used++
			// Fast path of the inner loop: links of equal capacity.
			q := quotient{total[l], int64(v.Capacity[l])}
			if q.rate == longest.rate && q.bytes < longest.bytes {
				continue
			}
			if c := q.compare(longest); c > 0 || c == 0 && l < at {
				at, longest = l, q
			}
		}
		links = links[:used]

		// Select the coflow that goes last. order[:left] are those without a place.
		last := -1
		for k, i := range order[:left] {
			on[i] = 0
			if at >= 0 {
				if l := linkOf(&v.Coflows[i], at); l != nil {
					on[i] = bytes(l)
				}
			}
			if at >= 0 && on[i] == 0 {
				continue
			}
			if last < 0 || p.later(v, weight, on, i, order[last]) {
				last = k
			}
		}
		c := order[last]
		if at >= 0 {
			scale := weight[c]
			for _, i := range order[:left] {
				weight[i] = max(weight[i]-float64(scale*float64(on[i]))/float64(on[c]), 0)
			}
			for j := range v.Coflows[c].Links {
				if l := &v.Coflows[c].Links[j]; v.Capacity[l.Link] > 0 {
					total[l.Link] -= bytes(l)
				}
			}
		}
		copy(order[last:left], order[last+1:left])
		order[left-1] = c
	}
	return order
}

// later reports whether coflow a goes after b, by the ratio of weight to demand. Ties, and
// coflows without demand, are ordered by ID.
func (p Sincronia) later(v *policies.CoflowView, weight []float64, on []int64, a, b int) bool {
	if on[a] > 0 && on[b] > 0 {
		if x, y := weight[a]/float64(on[a]), weight[b]/float64(on[b]); x != y {
			return x < y
		}
	}
	return (v.Coflows[a].ID > v.Coflows[b].ID) != p.EarlierLast
}

// linkOf returns a coflow's state on a link, nil if it does not use the link.
func linkOf(c *policies.CoflowState, link int) *policies.LinkState {
	n := len(c.Links)
	if n == 0 {
		return nil
	}
	// Links are sorted and distinct, which bounds the position of this one. The bounds are
	// tight for a coflow that crosses nearly all links.
	lo, hi := max(0, n-1-(int(c.Links[n-1].Link)-link)), min(n, link-int(c.Links[0].Link)+1)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if int(c.Links[mid].Link) < link {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < n && int(c.Links[lo].Link) == link {
		return &c.Links[lo]
	}
	return nil
}
