package coflow

import (
	"cmp"
	"math"
	"slices"

	"testbed/policies"
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
	demands
	uses []use // memory of bssi, like demands
}

// use is the demand of a coflow on a link.
type use struct {
	link, coflow int32
	next         int32 // index of another use of the link, 0 for none
	bytes        int64
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
func (p *sincronia) bssi(v *policies.CoflowView, s *policies.Schedule) []int {
	n := len(v.Coflows)
	p.reset(v.Capacity)
	// weight is the remaining weight (the dual) of a coflow without a place, negative for the
	// others. Uses from begin on are those of a coflow.
	weight, begin := s.Floats(n), s.Ints(n+1)
	begin[0] = 1
	for i := range v.Coflows {
		weight[i], begin[i+1] = 1, begin[i]+len(v.Coflows[i].Links)
	}
	p.uses = slices.Grow(p.uses[:0], begin[n])[:begin[n]]
	uses, demands, most := p.uses, p.links, int64(math.MaxInt64)/int64(n)
	for i := range v.Coflows {
		links := v.Coflows[i].Links
		to := uses[begin[i]:][:len(links)]
		for j := range links {
			l := &links[j]
			b, d := min(max(int64(l.Remaining), 0), most), &demands[l.Link]
			to[j] = use{int32(l.Link), int32(i), d.first, b}
			d.bytes += b
			d.first = int32(begin[i] + j)
		}
	}
	order := s.Ints(n)
	for place := n - 1; place >= 0; place-- {
		at := p.bottleneck()
		if at == none { // the other coflows have no demand
			rest := order[:0]
			for i, w := range weight {
				if w >= 0 {
					rest = append(rest, i)
				}
			}
			slices.SortFunc(rest, func(a, b int) int {
				if p.later(v, a, b) {
					return 1
				}
				return -1
			})
			return order
		}
		// Select the coflow that goes last: the one with the smallest ratio of weight to
		// demand on the bottleneck.
		var last *use
		least := math.Inf(1)
		first := p.links[at].first
		for k := first; k > 0; k = uses[k].next {
			u := &uses[k]
			if weight[u.coflow] < 0 || u.bytes == 0 {
				continue
			}
			ratio := weight[u.coflow] / float64(u.bytes)
			if ratio < least || ratio == least && p.later(v, int(u.coflow), int(last.coflow)) {
				last, least = u, ratio
			}
		}
		c := last.coflow
		order[place] = int(c)
		scale := weight[c]
		weight[c] = -1
		for k := first; k > 0; k = uses[k].next {
			u := &uses[k]
			if w := weight[u.coflow]; w >= 0 {
				weight[u.coflow] = max(w-float64(scale*float64(u.bytes))/float64(last.bytes), 0)
			}
		}
		p.decrease(uses[begin[c]:begin[c+1]])
	}
	return order
}

// later reports whether coflow a goes after b in a tie.
func (p Sincronia) later(v *policies.CoflowView, a, b int) bool {
	return (v.Coflows[a].ID > v.Coflows[b].ID) != p.EarlierLast
}

// demands finds the link with the longest demand. Demands only decrease, so the longest of a block
// of links stays the longest until it decreases.
type demands struct {
	links   []demand
	longest []longest // by block
}

// demand is that of all coflows without a place on a link.
type demand struct {
	quotient
	first int32 // index of a use of the link, 0 for none
}

// longest is a link that had the longest demand of its block when that was searched last, or none.
type longest struct {
	link  int
	bytes int64 // its demand at that time
}

const none, block = -1, 64 // no link; the number of links of a block

// reset sets all demands to 0.
func (d *demands) reset(capacity []units.Rate) {
	d.links, d.longest = d.links[:0], d.longest[:0]
	for l, c := range capacity {
		if l%block == 0 {
			d.longest = append(d.longest, longest{l, -1})
		}
		d.links = append(d.links, demand{quotient{0, int64(c)}, 0})
	}
}

// decrease subtracts the demands of a coflow.
func (d *demands) decrease(uses []use) {
	links := d.links
	for i := range uses {
		links[uses[i].link].bytes -= uses[i].bytes
	}
}

// bottleneck returns the link with the longest demand, the lowest ID of several, or none.
func (d *demands) bottleneck() int {
	at, most := none, quotient{0, 1}
	for b := range d.longest {
		l := &d.longest[b]
		if l.link != none && d.links[l.link].bytes != l.bytes {
			*l = d.search(b * block)
		}
		if l.link != none && d.links[l.link].compare(most) > 0 {
			at, most = l.link, d.links[l.link].quotient
		}
	}
	return at
}

// search returns the longest of the block that begins with a link. A link that is down has no demand.
func (d *demands) search(first int) longest {
	at, most := none, quotient{0, 1}
	links := d.links[first:min(first+block, len(d.links))]
	for i := range links {
		q := &links[i].quotient
		if q.bytes <= most.bytes && q.rate == most.rate {
			continue // links of one capacity are the common case
		}
		if q.bytes > 0 && q.rate > 0 && q.compare(most) > 0 {
			at, most = first+i, *q
		}
	}
	return longest{at, most.bytes}
}
