package flows

import "testbed/hosts/wire"

// hop is the additional state of a connection of a block's pipeline: its
// acknowledgements, and the times of its pipeline packets.
type hop struct {
	acks coverage // server → client
	read ackReader
	end  int64 // time of the packet that completes the acknowledgements; 0 before

	packet  int64 // size of a pipeline packet in bytes; 0 until the header is known
	packets int64
	total   int64 // length of the stream in bytes
	// picks are the numbers, from 0, of the packets whose times are recorded. For each of
	// them: when its first byte was seen, when all bytes up to its last one had been seen,
	// and when its acknowledgement was seen (Unix ns).
	picks              []int64
	first, last, acked []int64
}

// begin selects the packets whose times are recorded: every nth and the last two.
func (h *hop) begin(head wire.Header, points int) {
	if head.Kind != wire.KindBlock || head.Packet == 0 {
		return
	}
	h.packet, h.total = int64(head.Packet), streamLen(head)
	h.packets = int64(wire.Packets(head.Size-head.Resumes(), uint64(head.Packet)))
	step := max(1, (h.packets+int64(points)-1)/int64(points))
	for i := int64(0); i < h.packets-2; i += step {
		h.picks = append(h.picks, i)
	}
	for i := max(0, h.packets-2); i < h.packets; i++ {
		h.picks = append(h.picks, i)
	}
}

// data records the progress of the data.
func (h *hop) data(c *conn, stamp int64) {
	payload := int64(c.header.Len()) + wire.TargetsSize
	for top := c.sent.end(); len(h.first) < len(h.picks) && top > payload+h.picks[len(h.first)]*h.packet; {
		h.first = append(h.first, stamp)
	}
	for len(h.last) < len(h.picks) && c.sent.next >= min(h.total, payload+(h.picks[len(h.last)]+1)*h.packet) {
		h.last = append(h.last, stamp)
	}
	h.answered(stamp)
}

// answered records the progress of the acknowledgements by counting them: the first
// confirms the set-up, each later one a packet. Keep-alives are not counted.
func (h *hop) answered(stamp int64) {
	if len(h.acked) == len(h.picks) {
		return
	}
	bytes := h.acks.next
	if h.read.failed {
		bytes = min(bytes, h.read.failing)
	}
	for n := bytes/wire.AckSize - 1 - int64(len(h.read.alive)); len(h.acked) < len(h.picks) && n > h.picks[len(h.acked)]; {
		h.acked = append(h.acked, stamp)
	}
}

// acknowledgement processes a segment from the server.
func (h *hop) acknowledgement(c *conn, f *frame, stamp int64) {
	if !c.hasAcks {
		switch {
		case f.flags&flagSYN != 0:
			c.hasAcks, h.acks.base = true, f.seq+1
		case c.noSYN && len(f.payload) >= wire.AckSize:
			// The stream begins with the acknowledgement of the set-up.
			if ack, _, err := wire.ParseAck(f.payload); err == nil && ack == (wire.Ack{}) {
				c.hasAcks, h.acks.base = true, f.seq
			}
		}
	}
	if !c.hasAcks || f.length == 0 {
		return
	}
	off := h.acks.place(f.seq)
	h.read.add(off, f.payload)
	h.acks.add(off, f.length)
	h.answered(stamp)
	c.checkAcks(stamp)
}
