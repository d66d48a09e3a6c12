package coflow

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
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

// Needs returns Sizes and Links.
func (Sincronia) Needs() policies.Facts { return policies.Sizes | policies.Links }

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
	n, words := len(v.Coflows), (len(v.Coflows)+63)/64
	// total is the demand of coflows without a place, and users the set of coflows with
	// demand, by link; weight is the remaining weight (the dual), and on the demand on the
	// bottleneck, by coflow.
	total := demands{v.Capacity, s.Counts(len(v.Capacity)), s.Ints((len(v.Capacity) + block - 1) / block)}
	for b := range total.longest {
		total.longest[b] = stale
	}
	users := s.Words(words * len(v.Capacity))
	weight, on := s.Floats(n), s.Counts(n)
	most := int64(math.MaxInt64) / int64(n)
	bytes := func(l *policies.LinkState) int64 { return min(max(int64(l.Remaining), 0), most) }
	left := s.Words(words) // coflows without a place
	for i := range v.Coflows {
		weight[i] = 1
		left[i/64] |= 1 << (i % 64)
		for j := range v.Coflows[i].Links {
			l := &v.Coflows[i].Links[j]
			if b := bytes(l); b > 0 && v.Capacity[l.Link] > 0 {
				total.bytes[l.Link] += b
				users[int(l.Link)*words+i/64] |= 1 << (i % 64)
			}
		}
	}
	order := s.Ints(n)
	for place := n - 1; place >= 0; place-- {
		at := total.bottleneck()

		// Select the coflow that goes last: the one with the smallest ratio of weight to
		// demand on the bottleneck.
		among := left
		if at >= 0 {
			among = users[at*words:][:words]
		}
		last, least := -1, 0.0
		for w, set := range among {
			for set &= left[w]; set != 0; set &= set - 1 {
				i := w*64 + bits.TrailingZeros64(set)
				ratio := 0.0
				if at >= 0 {
					on[i] = bytes(linkOf(&v.Coflows[i], at))
					ratio = weight[i] / float64(on[i])
				}
				if last < 0 || ratio < least || ratio == least && (v.Coflows[i].ID > v.Coflows[last].ID) != p.EarlierLast {
					last, least = i, ratio
				}
			}
		}
		order[place] = last
		left[last/64] &^= 1 << (last % 64)
		if at < 0 {
			continue
		}
		scale := weight[last]
		for w, set := range among {
			for set &= left[w]; set != 0; set &= set - 1 {
				i := w*64 + bits.TrailingZeros64(set)
				weight[i] = max(weight[i]-float64(scale*float64(on[i]))/float64(on[last]), 0)
			}
		}
		for j := range v.Coflows[last].Links {
			l := &v.Coflows[last].Links[j]
			total.decrease(l.Link, bytes(l))
		}
	}
	return order
}

// demands finds the link with the longest demand. Demands only decrease, so the longest of a block
// of links stays the longest until it decreases.
type demands struct {
	capacity []units.Rate // by link
	bytes    []int64      // by link; 0 or less on a link that is down
	longest  []int        // by block: the link with the longest demand, or none or stale
}

// Values of demands.longest that are no links, and the number of links of a block.
const (
	none  = -1
	stale = -2
	block = 64
)

// decrease subtracts from the demand on a link.
func (d *demands) decrease(l topo.LinkID, bytes int64) {
	d.bytes[l] -= bytes
	if at := &d.longest[l/block]; *at == int(l) {
		*at = stale
	}
}

// bottleneck returns the link with the longest demand, the lowest ID of several, or none.
func (d *demands) bottleneck() int {
	at, most := none, quotient{0, 1}
	for b, l := range d.longest {
		if l == stale {
			l = d.longestFrom(b * block)
			d.longest[b] = l
		}
		if l == none {
			continue
		}
		if q := (quotient{d.bytes[l], int64(d.capacity[l])}); q.compare(most) > 0 {
			at, most = l, q
		}
	}
	return at
}

// longestFrom returns the link with the longest demand of the block that begins with a link.
func (d *demands) longestFrom(first int) int {
	at, most := none, quotient{0, 1}
	bytes := d.bytes[first:min(first+block, len(d.bytes))]
	rates := d.capacity[first:][:len(bytes)]
	for i, b := range bytes {
		if b <= most.bytes && int64(rates[i]) == most.rate {
			continue // links of one capacity are the common case
		}
		if q := (quotient{b, int64(rates[i])}); b > 0 && q.compare(most) > 0 {
			at, most = first+i, q
		}
	}
	return at
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
