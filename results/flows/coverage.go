package flows

import (
	"slices"
	"time"

	"testbed/hosts/wire"
)

// span is the byte range [lo, hi) of a stream.
type span struct{ lo, hi int64 }

// coverage records which bytes of one direction of a TCP connection were captured.
// Offset 0 is the byte after the SYN. Offsets do not wrap.
type coverage struct {
	next  int64  // bytes [0, next) have been seen
	base  uint32 // sequence number of offset 0
	ahead []span // ranges seen beyond next: disjoint, not adjacent, ascending
	// given is the number of bytes before next that were given up without being seen
	// (see maxHoles). A stream with given > 0 is incomplete.
	given int64
}

// maxHoles is the maximum number of gaps recorded per stream, which bounds its memory:
// beyond it, the first gap is given up. TCP leaves only a few gaps at a time, so more
// gaps are packets that the capture lost.
const maxHoles = 1 << 10

// covers reports whether the first n bytes have all been seen.
func (c *coverage) covers(n int64) bool { return c.next >= n && c.given == 0 }

// place returns the offset of a sequence number: of those possible, the one nearest to
// next. It is correct for segments less than 2 GiB away from next, which TCP's maximum
// window of 1 GiB (RFC 7323) guarantees.
func (c *coverage) place(seq uint32) int64 {
	return c.next + int64(int32(seq-c.base-uint32(c.next)))
}

// add marks the n bytes at offset off as seen and returns the number of new ones.
// It ignores bytes before offset 0, such as those of a keep-alive probe.
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
	// The spans [i, j) overlap s or touch it: merge them into s.
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

// end returns the offset after the last byte seen.
func (c *coverage) end() int64 {
	if len(c.ahead) > 0 {
		return c.ahead[len(c.ahead)-1].hi
	}
	return c.next
}

// seen returns the number of bytes seen.
func (c *coverage) seen() int64 {
	n := c.next - c.given
	for _, s := range c.ahead {
		n += s.hi - s.lo
	}
	return n
}

// prefix collects the first bytes of a stream, the transfer header, from any number of
// segments.
type prefix struct {
	bytes  [wire.MaxSize]byte
	have   [2]uint64 // bit i of both: bytes[i] is present
	parts  int       // segments that carried new bytes of it
	resent int       // segments that repeated bytes of it
	cut    bool      // the snapshot length cut off bytes of it
}

// The first word of prefix.have is for the first wire.Size bytes, the second for the extension.
var _ [64]byte = [wire.Size]byte{}

const (
	wholeHeader    = ^uint64(0)
	wholeExtension = uint64(1)<<wire.TaskSize - 1
)

func (p *prefix) whole() bool {
	return p.have[0] == wholeHeader && (p.have[1] == wholeExtension || p.length() == wire.Size)
}

// length returns the length of the header. It is wire.Size until the version is known, and if it
// is unknown.
func (p *prefix) length() int {
	if n, ok := wire.Len(p.bytes[:]); ok {
		return n
	}
	return wire.Size
}

// versioned reports whether the version of the header is present.
func (p *prefix) versioned() bool { return p.have[0]&0x1f == 0x1f }

// add processes a segment of n bytes at offset off, of which payload was captured.
func (p *prefix) add(off int64, payload []byte, n int) {
	end := off + int64(n)
	if off >= wire.MaxSize || end <= 0 {
		return
	}
	fresh, again := false, false
	for i := max(off, 0); i < min(end, wire.MaxSize); i++ {
		known := i < wire.Size || p.versioned() // otherwise it may be payload
		if known && i >= int64(p.length()) {
			break
		}
		word, bit := &p.have[i/64], uint64(1)<<(i%64)
		if *word&bit != 0 {
			again = again || known
			continue
		}
		if i-off >= int64(len(payload)) {
			p.cut = p.cut || known
			break
		}
		p.bytes[i] = payload[i-off]
		*word |= bit
		fresh = fresh || known
	}
	if fresh {
		p.parts++
	}
	if again {
		p.resent++
	}
}

// plausible reports whether the bytes so far could be the start of a header.
func (p *prefix) plausible() bool {
	magic := wire.Header{Kind: wire.KindFlow, Sent: time.Unix(0, 0)}.Append(nil)[:4]
	for i, b := range magic {
		if p.have[0]&(1<<i) != 0 && p.bytes[i] != b {
			return false
		}
	}
	return true
}
