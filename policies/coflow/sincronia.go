package coflow

import (
	"cmp"
	"math"
	"slices"

	"testbed/policies"
)

// Sincronia puts coflows in the order of BSSI, bottleneck-select-scale-iterate
// (Agarwal et al., SIGCOMM 2018), with the weight 1 for each, and serves them in
// that order. From the last place to the first: of the link that carries the most,
// the coflow with the largest demand over its weight on it goes last; the others'
// weights fall by what they have on that link in proportion.
//
// The paper's schedule is offline, for coflows that are all there, and its online
// version works in epochs with a linear program. Here, as a simplification, BSSI
// is run on what is left of the coflows whenever one arrives or ends. Any
// allocation that keeps the order and leaves nothing idle will do for the paper's
// bound (offline, within 4 times the best average); Greedy is the simplest. A
// link's demand counts in time, bytes over capacity; a link that is down counts
// for nothing. Where two links carry the same, the one with the lower ID is the
// bottleneck.
type Sincronia struct {
	Sharing
	// EarlierLast settles a tie for the last place to the disadvantage of the coflow
	// with the lower ID, as the authors' code does; otherwise that goes first.
	EarlierLast bool
	// Always runs BSSI in every decision, not only where a coflow has come or gone.
	Always bool
}

// DefaultSincronia is the order with a greedy allocation.
func DefaultSincronia() Sincronia { return Sincronia{Sharing: Sharing{Allocation: Greedy}} }

// Needs is the flows' sizes.
func (Sincronia) Needs() policies.Knowledge { return policies.Sizes }

// When is what Pace says.
func (p Sincronia) When() policies.When { return p.Pace.when() }

// Schedule orders the coflows and shares the network among them. Between arrivals
// and ends of coflows the order is that of CoflowState.Queue, from 1, and
// View.Memory how many coflows it was made for.
func (p Sincronia) Schedule(v *policies.View, s *policies.Schedule) {
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	var order []int
	if !p.Always && len(v.Memory) == 1 && v.Memory[0] == int64(n) && !slices.ContainsFunc(v.Coflows, unplaced) {
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
		s.Memory = s.Counts(1)
		s.Memory[0] = int64(n)
	}
	p.share(s, order, n)
	if p.Pace.Every > 0 && p.Allocation != MADD && !p.Always {
		s.Watch = unwatched(s.Watch, n)
	}
}

func unplaced(c policies.CoflowState) bool { return c.Queue <= 0 }

// bssi is the order, by places in the View.
func (p Sincronia) bssi(v *policies.View, s *policies.Schedule) []int {
	n := len(v.Coflows)
	// Of a link, total is what the coflows without a place yet have on it, in
	// bytes; of a coflow, weight is what is left of its dual.
	total, weight, on := s.Counts(len(v.Capacity)), s.Floats(n), s.Counts(n)
	links := s.Ints(len(v.Capacity)) // that carry something and are up
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
		// The bottleneck. Links on which nothing is left are dropped on the way.
		at, longest := -1, quotient{0, 1}
		used := 0
		for _, l := range links {
			if total[l] == 0 {
				continue
			}
			links[used] = l
			used++
			// All links of one capacity is the common case, and this the inner loop.
			q := quotient{total[l], int64(v.Capacity[l])}
			if q.rate == longest.rate && q.bytes < longest.bytes {
				continue
			}
			if c := q.compare(longest); c > 0 || c == 0 && l < at {
				at, longest = l, q
			}
		}
		links = links[:used]

		// The coflow that goes last: order[:left] are those without a place, by place.
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
			falls := weight[c]
			for _, i := range order[:left] {
				weight[i] = max(weight[i]-float64(falls*float64(on[i]))/float64(on[c]), 0)
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

// later tells whether coflow a goes after b, by weight over demand and, for a tie
// or where there is no demand, by ID.
func (p Sincronia) later(v *policies.View, weight []float64, on []int64, a, b int) bool {
	if on[a] > 0 && on[b] > 0 {
		if x, y := weight[a]/float64(on[a]), weight[b]/float64(on[b]); x != y {
			return x < y
		}
	}
	return (v.Coflows[a].ID > v.Coflows[b].ID) != p.EarlierLast
}

// linkOf is what a coflow has to do with a link, nil for nothing.
func linkOf(c *policies.CoflowState, link int) *policies.LinkState {
	n := len(c.Links)
	if n == 0 {
		return nil
	}
	// Links are in order and different, so a coflow that crosses nearly all has this
	// one nearly where its number says.
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
