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

// SEBF is the smallest-effective-bottleneck-first order with minimum allocation
// for desired duration (MADD) of Varys (Chowdhury, Zhong and Stoica, SIGCOMM
// 2014). Coflows go in order of the time their bottleneck still needs, ties by
// ID; each gets, of what those before it left, the rates at which all of its
// flows end together. A coflow that needs a link on which nothing is left is
// skipped: its flows get no grant.
//
// Two things differ from the paper. Its bottlenecks are the ports of a
// non-blocking switch; here every link of a flow's path counts, so an
// oversubscribed uplink can be one. And the bottleneck is that of the bytes
// remaining, not of the bytes at arrival, as in the authors' prototype.
type SEBF struct{}

// Needs is the flows' sizes: SEBF is clairvoyant.
func (SEBF) Needs() policies.Knowledge { return policies.Sizes }

// quotient is bytes over a rate, a time that is compared exactly. Over the rate
// 0, which stands for a link without capacity, it is longer than any other.
type quotient struct{ bytes, rate uint64 }

// compare multiplies the two quotients out to 128 bits.
func (a quotient) compare(b quotient) int {
	ahi, alo := bits.Mul64(a.bytes, b.rate)
	bhi, blo := bits.Mul64(b.bytes, a.rate)
	return cmp.Or(cmp.Compare(ahi, bhi), cmp.Compare(alo, blo))
}

// demand is what one coflow still has to carry over each link. It is a table
// over all links of which only those in used are non-zero, so that it is
// emptied in the time it took to fill.
type demand struct {
	bytes []uint64
	used  []int
}

func (d *demand) fill(c *policies.CoflowState) {
	for _, l := range d.used {
		d.bytes[l] = 0
	}
	d.used = d.used[:0]
	most := most(c)
	for i := range c.Flows {
		f := &c.Flows[i]
		left := remaining(f, most)
		for _, l := range f.Path {
			if d.bytes[l] == 0 {
				d.used = append(d.used, int(l))
			}
			d.bytes[l] += left
		}
	}
}

// remaining is what a flow has still to send: at least 1 byte, so that an
// unfinished flow never counts for nothing, and at most what its coflow's share
// keeps from wrapping the sum.
func remaining(f *policies.FlowState, most uint64) uint64 {
	return min(uint64(max(f.Remaining, 1)), most)
}

// most is what a flow may count for so that the sum over its coflow cannot wrap.
func most(c *policies.CoflowState) uint64 {
	return math.MaxInt64 / uint64(max(len(c.Flows), 1))
}

// bottleneck is the longest any link takes to carry the demand at the given
// rates.
func (d *demand) bottleneck(rate []units.Rate) quotient {
	q := quotient{0, 1}
	for _, l := range d.used {
		if at := (quotient{d.bytes[l], uint64(max(rate[l], 0))}); at.compare(q) > 0 {
			q = at
		}
	}
	return q
}

// Allocate returns the grants in order of priority, the flows of a coflow by ID.
func (SEBF) Allocate(v *policies.View) []policies.Grant {
	type ranked struct {
		coflow     *policies.CoflowState
		bottleneck quotient
	}
	d := demand{bytes: make([]uint64, len(v.Capacity))}
	order := make([]ranked, len(v.Coflows))
	flows := 0
	for i := range v.Coflows {
		d.fill(&v.Coflows[i])
		order[i] = ranked{&v.Coflows[i], d.bottleneck(v.Capacity)}
		flows += len(v.Coflows[i].Flows)
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(a.bottleneck.compare(b.bottleneck), cmp.Compare(a.coflow.ID, b.coflow.ID))
	})
	free := slices.Clone(v.Capacity)
	grants := make([]policies.Grant, 0, flows)
	for _, r := range order {
		d.fill(r.coflow)
		g := d.bottleneck(free)
		if g.rate == 0 {
			continue // a link it needs is full
		}
		grants = madd(grants, r.coflow, g, free)
	}
	return grants
}

// madd appends the grants at which all flows of the coflow end after the time
// g, and takes them from free. g must be the coflow's bottleneck over free.
//
// Rates are whole bits per second, so they are first rounded down, which cannot
// overfill a link, and then the bits that rounding left are given back one to a
// flow, in order, where all links of its path have one: no flow is stopped by
// rounding alone, and flows of equal size differ by one bit per second at most.
func madd(grants []policies.Grant, c *policies.CoflowState, g quotient, free []units.Rate) []policies.Grant {
	most := most(c)
	var rounded []int // flows whose exact rate is not whole
	first := len(grants)
	for i := range c.Flows {
		f := &c.Flows[i]
		if len(f.Path) == 0 {
			grants = append(grants, policies.Grant{Flow: f.ID, Ceiling: policies.NoLimit})
			continue
		}
		// rate = remaining/g. remaining ≤ g.bytes, so it is at most g.rate.
		hi, lo := bits.Mul64(remaining(f, most), g.rate)
		rate, rest := bits.Div64(hi, lo, g.bytes)
		if rest > 0 {
			rounded = append(rounded, i)
		}
		for _, l := range f.Path {
			free[l] -= units.Rate(rate)
		}
		grants = append(grants, policies.Grant{Flow: f.ID, Ceiling: units.Rate(rate)})
	}
	for _, i := range rounded {
		path := c.Flows[i].Path
		if slices.ContainsFunc(path, func(l topo.LinkID) bool { return free[l] == 0 }) {
			continue
		}
		for _, l := range path {
			free[l]--
		}
		grants[first+i].Ceiling++
	}
	return grants
}
