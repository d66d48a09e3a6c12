package flows

import (
	"slices"
	"time"

	"testbed/hosts/wire"
)

// span is the bytes from lo up to but not including hi of a stream.
type span struct{ lo, hi int64 }

// coverage tells which bytes of one direction of a TCP connection have been
// seen. Offsets count from 0, the byte after the SYN, and do not wrap.
type coverage struct {
	next  int64  // bytes [0, next) have been seen
	base  uint32 // sequence number of offset 0
	ahead []span // what has been seen beyond next: disjoint, not adjacent, ascending
	// given are bytes before next that were never seen: see maxHoles. A stream with
	// any is not whole.
	given int64
}

// maxHoles bounds the gaps of one stream that are remembered, and with them its
// memory: one more, and the first gap is given up. TCP itself leaves a few at a time;
// more are packets that the capture lost.
const maxHoles = 1 << 10

// covers tells whether all of the first n bytes have been seen.
func (c *coverage) covers(n int64) bool { return c.next >= n && c.given == 0 }

// place is the offset of a sequence number: the one nearest to next. It is right
// while segments are less than 2 GiB away from next, which TCP's window
// (at most 1 GiB, RFC 7323) ensures.
func (c *coverage) place(seq uint32) int64 {
	return c.next + int64(int32(seq-c.base-uint32(c.next)))
}

// add marks the n bytes at offset off as seen and returns how many of them had
// not been. Bytes before offset 0, as in a keep-alive probe, do not count.
func (c *coverage) add(off int64, n int) (fresh int64) {
	s := span{max(off, c.next), off + int64(n)}
	if s.lo >= s.hi {
		return 0
	}
	fresh = s.hi - s.lo
	if len(c.ahead) == 0 && s.lo == c.next { // the common case
		c.next = s.hi
		return fresh
	}
	// The spans [i, j) overlap s or touch it: s swallows them.
	i, _ := slices.BinarySearchFunc(c.ahead, s.lo, func(a span, lo int64) int {
		if a.hi < lo {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(c.ahead) && c.ahead[j].lo <= s.hi; j++ {
		fresh -= max(0, min(s.hi, c.ahead[j].hi)-max(s.lo, c.ahead[j].lo))
		c.ahead[j].lo = min(c.ahead[j].lo, s.lo)
		s = span{c.ahead[j].lo, max(s.hi, c.ahead[j].hi)}
	}
	c.ahead = slices.Replace(c.ahead, i, j, s)
	if c.ahead[0].lo <= c.next {
		c.next = c.ahead[0].hi
		c.ahead = slices.Delete(c.ahead, 0, 1)
	}
	if len(c.ahead) > maxHoles {
		c.given += c.ahead[0].lo - c.next
		c.next = c.ahead[0].hi
		c.ahead = slices.Delete(c.ahead, 0, 1)
	}
	return fresh
}

// end is the offset after the last byte seen.
func (c *coverage) end() int64 {
	if len(c.ahead) > 0 {
		return c.ahead[len(c.ahead)-1].hi
	}
	return c.next
}

// seen is how many bytes have been seen.
func (c *coverage) seen() int64 {
	n := c.next - c.given
	for _, s := range c.ahead {
		n += s.hi - s.lo
	}
	return n
}

// prefix collects the first bytes of a stream, the transfer header, from however
// many segments carry them.
type prefix struct {
	bytes  [wire.Size]byte
	have   uint64 // bit i: bytes[i] is there
	parts  int    // segments that brought bytes of it
	resent int    // segments that brought some again
	cut    bool   // some were on the wire, but not in the capture
}

// The bits of prefix.have are exactly enough.
var _ [64]byte = [wire.Size]byte{}

func (p *prefix) whole() bool { return p.have == ^uint64(0) }

// add takes the captured payload of a segment of n bytes at offset off.
func (p *prefix) add(off int64, payload []byte, n int) {
	if off >= wire.Size || off+int64(n) <= 0 {
		return
	}
	fresh, again := false, false
	for i := max(off, 0); i < min(off+int64(n), wire.Size); i++ {
		bit := uint64(1) << i
		if p.have&bit != 0 {
			again = true
			continue
		}
		if i-off >= int64(len(payload)) {
			p.cut = true
			break
		}
		p.bytes[i] = payload[i-off]
		p.have |= bit
		fresh = true
	}
	if fresh {
		p.parts++
	}
	if again {
		p.resent++
	}
}

// plausible tells whether what there is of a header could be one.
func (p *prefix) plausible() bool {
	magic := wire.Header{Kind: wire.KindFlow, Sent: time.Unix(0, 0)}.Append(nil)[:4]
	for i, b := range magic {
		if p.have&(1<<i) != 0 && p.bytes[i] != b {
			return false
		}
	}
	return true
}
