package flows

import (
	"testbed/hosts/wire"
)

// ackBytes returns the length in bytes of a hop's acknowledgement stream without keep-alives.
func ackBytes(h wire.Header) uint64 {
	return wire.AckBytes(h.Size-h.Resumes(), uint64(h.Packet))
}

// ackReader finds the last acknowledgement of a hop and counts keep-alives. It ignores
// acknowledgements that were captured only in part.
type ackReader struct {
	alive   map[int64]struct{} // offsets of keep-alives
	latest  uint32             // highest packet number acknowledged
	at      int64              // offset of that acknowledgement
	known   bool
	failed  bool  // a failed acknowledgement ends the stream
	failing int64 // its offset
}

// mostAlive is the maximum number of keep-alives recorded for a hop: enough for hours.
const mostAlive = 1 << 16

// add processes the captured payload at an offset of the stream. Acknowledgements begin
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

// after returns the offset of the end of the last packet's acknowledgement. ok is false if
// that acknowledgement was not captured.
func (r *ackReader) after(last uint64) (end int64, ok bool) {
	return r.at + wire.AckSize, r.known && uint64(r.latest) == last
}
