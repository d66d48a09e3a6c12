package conversations

import "slices"

// span is the sequence numbers in [lo, hi).
type span struct{ lo, hi int64 }

// coverage is the set of sequence numbers seen in one direction. Offsets count from the SYN,
// or from one below the first seen, and do not wrap. Few directions have gaps, so what these
// need is kept apart.
type coverage struct {
	span        // all seen, unless there are gaps; empty at the highest offset at first
	gaps *gaps  // nil until the first gap
	base uint32 // sequence number of offset 0
}

// gaps is the coverage of a direction with gaps.
type gaps struct {
	high   int64  // one above the highest seen
	spans  []span // disjoint, not adjacent, ascending
	filled int64  // bytes of gaps dropped to bound memory
}

// begin makes seq offset 0 and offset high the highest.
func (c *coverage) begin(seq uint32, high int64) { c.base, c.span = seq, span{high, high} }

// high returns the offset above the highest seen.
func (c *coverage) high() int64 {
	if c.gaps != nil {
		return c.gaps.high
	}
	return c.hi
}

// raise makes to the highest offset, if it is higher, without bytes seen.
func (c *coverage) raise(to int64) {
	switch {
	case to <= c.high():
	case c.gaps == nil && c.lo == c.hi:
		c.span = span{to, to}
	default:
		c.withGaps().high = to
	}
}

// place returns the offset of a sequence number: the one nearest to the highest seen.
func (c *coverage) place(seq uint32) int64 {
	high := c.high()
	return high + int64(int32(seq-c.base-uint32(high)))
}

// add marks [lo, hi) as seen and returns the number of new sequence numbers. Beyond holes
// gaps, the lowest counts as seen.
func (c *coverage) add(lo, hi int64, holes int) (fresh int64) {
	if lo >= hi {
		return 0
	}
	if c.gaps == nil && lo <= c.hi && hi >= c.lo { // the common case
		fresh = hi - lo - max(0, min(hi, c.hi)-max(lo, c.lo))
		c.span = span{min(lo, c.lo), max(hi, c.hi)}
		return fresh
	}
	return c.withGaps().add(span{lo, hi}, holes)
}

// withGaps returns the coverage as spans with gaps.
func (c *coverage) withGaps() *gaps {
	if c.gaps == nil {
		c.gaps = &gaps{high: c.hi}
		if c.lo < c.hi {
			c.gaps.spans = append(c.gaps.spans, c.span)
		}
	}
	return c.gaps
}

func (g *gaps) add(s span, holes int) (fresh int64) {
	g.high = max(g.high, s.hi)
	fresh = s.hi - s.lo
	if n := len(g.spans); n > 0 && g.spans[n-1].hi == s.lo { // the common case
		g.spans[n-1].hi = s.hi
		return fresh
	}
	// The spans [i, j) overlap s or touch it: s absorbs them.
	i, _ := slices.BinarySearchFunc(g.spans, s.lo, func(a span, lo int64) int {
		if a.hi < lo {
			return -1
		}
		return 1
	})
	j := i
	for lo, hi := s.lo, s.hi; j < len(g.spans) && g.spans[j].lo <= hi; j++ {
		fresh -= max(0, min(hi, g.spans[j].hi)-max(lo, g.spans[j].lo))
		s = span{min(s.lo, g.spans[j].lo), max(s.hi, g.spans[j].hi)}
	}
	g.spans = slices.Replace(g.spans, i, j, s)
	if len(g.spans) > holes+1 {
		g.filled += g.spans[1].lo - g.spans[0].hi
		g.spans[1].lo = g.spans[0].lo
		g.spans = slices.Delete(g.spans, 0, 1)
	}
	return fresh
}
