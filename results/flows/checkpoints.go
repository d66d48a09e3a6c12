package flows

import (
	"math"

	"testbed/hosts/wire"
)

// segment is the least distance of two checkpoints, bytes: about what one packet
// carries.
const segment = 1460

// checkpoints are the moments at which a stream had come to certain offsets: the end
// of its header, multiples of a step, and its end. The header alone decides which,
// so that they are the same at both ends.
type checkpoints struct {
	at    int64 // the next of them; never reached where there is none
	total int64
	step  int64
	times []int64 // of those reached, Unix ns
}

// newCheckpoints are those of a stream of total bytes, about points of them.
func newCheckpoints(total int64, points int) checkpoints {
	return checkpoints{total: total, step: max(segment, (total-1)/int64(points)+1), at: wire.Size}
}

// after is the checkpoint that follows one.
func (p *checkpoints) after(at int64) int64 {
	next := at + p.step
	if at == wire.Size { // the only one before the end that is no multiple of step
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

// pass notes that a stream has come to an offset.
func (p *checkpoints) pass(reached, stamp int64) {
	if p.times == nil {
		p.times = make([]int64, 0, (p.total-1)/p.step+2)
	}
	for p.at <= reached {
		p.times = append(p.times, stamp)
		p.at = p.after(p.at)
	}
}
