package flows

import "testbed/hosts/wire"

// hop is what a connection of a block's pipeline has besides: its acknowledgements,
// and the moments of its pipeline packets.
type hop struct {
	acks coverage // server → client
	read ackReader
	end  int64 // packet that completes the acknowledgements; 0 for not yet

	packet  int64 // bytes; 0 until the header is known
	packets int64
	total   int64   // of the stream
	picks   []int64 // packets whose moments are kept, from 0
	first   []int64 // first byte seen, of each pick
	last    []int64 // all up to its last byte seen
	acked   []int64 // acknowledgement seen
}

// begin chooses the packets whose moments are kept: every so many, and the last two.
func (h *hop) begin(head wire.Header, points int) {
	if head.Kind != wire.KindBlock || head.Packet == 0 {
		return
	}
	h.packet, h.total = int64(head.Packet), streamLen(head)
	h.packets = int64(wire.Packets(head.Size-head.Offset, uint64(head.Packet)))
	step := max(1, (h.packets+int64(points)-1)/int64(points))
	for i := int64(0); i < h.packets-2; i += step {
		h.picks = append(h.picks, i)
	}
	for i := max(0, h.packets-2); i < h.packets; i++ {
		h.picks = append(h.picks, i)
	}
}

// data notes how far the data have come.
func (h *hop) data(c *conn, stamp int64) {
	const payload = wire.Size + wire.TargetsSize
	for top := c.sent.end(); len(h.first) < len(h.picks) && top > payload+h.picks[len(h.first)]*h.packet; {
		h.first = append(h.first, stamp)
	}
	for len(h.last) < len(h.picks) && c.sent.next >= min(h.total, payload+(h.picks[len(h.last)]+1)*h.packet) {
		h.last = append(h.last, stamp)
	}
	h.answered(stamp)
}

// answered notes how far the acknowledgements have come. They are counted: the first
// is of the set-up, then one for each packet, and keep-alives between them.
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

// acknowledgement takes a segment of the server.
func (h *hop) acknowledgement(c *conn, f *frame, stamp int64) {
	if !c.hasAcks {
		switch {
		case f.flags&flagSYN != 0:
			c.hasAcks, h.acks.base = true, f.seq+1
		case c.noSYN && len(f.payload) >= wire.AckSize:
			// The set-up's is the first.
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
