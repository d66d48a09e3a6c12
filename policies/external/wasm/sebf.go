//go:build wasip1

package main

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// SEBF is smallest effective bottleneck first (Varys, SIGCOMM 2014): the same decisions as the policy sebf of testbed.
type SEBF struct {
	rate  int64 // of all links; 0 if they differ
	keys  []key
	order []int
}

// key is what coflows are ordered by.
type key struct {
	quotient
	id    int64
	index int // in View.Coflows
}

func init() {
	policy, needs = &SEBF{}, `["sizes","links"]`
}

// Start ignores the fabric: capacities are in the View.
func (*SEBF) Start([]byte) {}

// Decide orders the coflows by their bottleneck, ties by ID.
func (p *SEBF) Decide(v *View, s *Schedule) {
	if v.Changed {
		if p.rate = v.Capacity[0]; slices.Max(v.Capacity) != slices.Min(v.Capacity) {
			p.rate = 0
		}
	}
	p.keys, p.order = p.keys[:0], p.order[:0]
	for i := range v.Coflows {
		c := &v.Coflows[i]
		k := key{quotient{0, 1}, c.ID, i}
		switch {
		case len(c.Links) == 0:
		case p.rate > 0:
			k.quotient = quotient{most(c.LinkRemaining), p.rate}
		default:
			k.quotient = bottleneck(v.Capacity, c)
		}
		p.keys = append(p.keys, k)
	}
	slices.SortFunc(p.keys, func(a, b key) int {
		if a.rate == b.rate && a.bytes != b.bytes {
			return cmp.Compare(a.bytes, b.bytes)
		}
		return cmp.Or(a.compare(b.quotient), cmp.Compare(a.id, b.id))
	})
	for i := range p.keys {
		p.order = append(p.order, p.keys[i].index)
	}
	if len(p.order) > 0 {
		s.Step("madd", p.order)
		s.Step("greedy", p.order)
	}
}

// most returns the largest of numbers that are not negative. Eight a turn: each turn counts as work, which costs more than
// a comparison.
func most(numbers []int64) (m int64) {
	var n int64
	for ; len(numbers) >= 8; numbers = numbers[8:] {
		_ = numbers[7]
		m = max(m, numbers[0], numbers[1], numbers[2], numbers[3])
		n = max(n, numbers[4], numbers[5], numbers[6], numbers[7])
	}
	for _, x := range numbers {
		m = max(m, x)
	}
	return max(m, n)
}

// quotient is bytes divided by a rate: a time. With rate 0 it is longer than any other.
type quotient struct{ bytes, rate int64 }

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

// bottleneck returns the longest time that a link needs for the remaining bytes of the coflow.
func bottleneck(capacity []int64, c *Coflow) quotient {
	q := quotient{0, 1}
	for i, remaining := range c.LinkRemaining {
		rate := capacity[c.Links[i]]
		if rate == q.rate && remaining <= q.bytes {
			continue
		}
		if rate <= 0 {
			return quotient{math.MaxInt64, 0}
		}
		if at := (quotient{remaining, rate}); at.compare(q) > 0 {
			q = at
		}
	}
	return q
}
