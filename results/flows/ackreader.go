package flows

import (
	"testbed/hosts/wire"
)

// ackBytes is the length of the acknowledgements of a hop, keep-alives aside.
func ackBytes(h wire.Header) uint64 {
	return wire.AckBytes(h.Size-min(h.Offset, h.Size), uint64(h.Packet))
}

// ackReader finds the last acknowledgement of a hop among those that were captured
// whole, and counts keep-alives.
type ackReader struct {
	alive   map[int64]struct{} // offsets of keep-alives
	latest  uint32             // the highest packet acknowledged
	at      int64              // offset of that acknowledgement
	known   bool
	failed  bool // a failed acknowledgement ends the stream
	failing int64
}

// mostAlive bounds the keep-alives of one hop that are remembered: those of hours.
const mostAlive = 1 << 16

// add takes the captured payload at an offset of the stream. Acknowledgements begin
// at multiples of their size, up to a failed one.
func (r *ackReader) add(off int64, payload []byte) {
	skip := int64(0)
	if rest := off % wire.AckSize; rest != 0 {
		skip = (wire.AckSize - rest) % wire.AckSize
	}
	if off < 0 || skip > int64(len(payload)) {
		return
	}
	for off, b := off+skip, payload[skip:]; len(b) >= wire.AckSize && (!r.failed || off < r.failing); off, b = off+wire.AckSize, b[wire.AckSize:] {
		ack, _, err := wire.ParseAck(b)
		switch {
		case err != nil:
		case ack.Failed:
			r.failed, r.failing = true, off
		case ack.Alive && len(r.alive) < mostAlive:
			if r.alive == nil {
				r.alive = map[int64]struct{}{}
			}
			r.alive[off] = struct{}{}
		case ack.Alive:
		case !r.known || ack.Seq > r.latest:
			r.latest, r.at, r.known = ack.Seq, off, true
		}
	}
}

// after is the offset behind the acknowledgement of the last packet.
func (r *ackReader) after(last uint64) (int64, bool) {
	return r.at + wire.AckSize, r.known && uint64(r.latest) == last
}
