package conversations

import "slices"

// span is the sequence numbers in [lo, hi).
type span struct{ lo, hi int64 }

// coverage is the set of sequence numbers seen in one direction. Offsets count from the SYN,
// or from one below the first seen, and do not wrap.
type coverage struct {
	base   uint32 // sequence number of offset 0
	high   int64  // one above the highest seen
	spans  []span // disjoint, not adjacent, ascending
	begun  bool
	filled int64 // bytes of gaps dropped to bound memory
}

// begin makes seq offset 0.
func (c *coverage) begin(seq uint32) { c.base, c.begun = seq, true }

// place returns the offset of a sequence number: the one nearest to the highest seen.
func (c *coverage) place(seq uint32) int64 {
	return c.high + int64(int32(seq-c.base-uint32(c.high)))
}

// add marks [lo, hi) as seen and returns the number of new sequence numbers. Beyond holes
// gaps, the lowest counts as seen.
func (c *coverage) add(lo, hi int64, holes int) (fresh int64) {
	if lo >= hi {
		return 0
	}
	c.high = max(c.high, hi)
	s := span{lo, hi}
	fresh = hi - lo
	if n := len(c.spans); n > 0 && c.spans[n-1].hi == lo { // the common case
		c.spans[n-1].hi = hi
		return fresh
	}
	// The spans [i, j) overlap s or touch it: s absorbs them.
	i, _ := slices.BinarySearchFunc(c.spans, lo, func(a span, lo int64) int {
		if a.hi < lo {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(c.spans) && c.spans[j].lo <= hi; j++ {
		fresh -= max(0, min(hi, c.spans[j].hi)-max(lo, c.spans[j].lo))
		s = span{min(s.lo, c.spans[j].lo), max(s.hi, c.spans[j].hi)}
	}
	c.spans = slices.Replace(c.spans, i, j, s)
	if len(c.spans) > holes+1 {
		c.filled += c.spans[1].lo - c.spans[0].hi
		c.spans[1].lo = c.spans[0].lo
		c.spans = slices.Delete(c.spans, 0, 1)
	}
	return fresh
}
