package flows

import (
	"math"

	"testbed/hosts/wire"
)

// segment is the minimum distance between checkpoints in bytes, about the payload of one
// packet.
const segment = 1460

// checkpoints are the times at which a stream reached certain offsets: the end of its
// header, multiples of a step, and its end. The offsets depend only on the header, so
// that they are the same at both ends.
type checkpoints struct {
	at    int64 // next offset; math.MaxInt64 if there is none
	total int64
	step  int64
	head  int64   // length of the header
	times []int64 // when each offset was reached, Unix ns
}

// newCheckpoints returns about points checkpoints for the stream that begins with a header.
func newCheckpoints(h wire.Header, points int) checkpoints {
	total, head := streamLen(h), int64(h.Len())
	return checkpoints{total: total, step: max(segment, (total-1)/int64(points)+1), head: head, at: head}
}

// after returns the checkpoint that follows the one at the given offset.
func (p *checkpoints) after(at int64) int64 {
	next := at + p.step
	if at == p.head { // the end of the header, which is not a multiple of step
		next = p.step
	}
	switch {
	case at >= p.total:
		return math.MaxInt64
	case next > p.total || next < at:
		return p.total
	default:
		return next
	}
}

// pass records that the stream has reached an offset.
func (p *checkpoints) pass(reached, stamp int64) {
	if p.times == nil {
		p.times = make([]int64, 0, (p.total-1)/p.step+2)
	}
	for p.at <= reached {
		p.times = append(p.times, stamp)
		p.at = p.after(p.at)
	}
}
