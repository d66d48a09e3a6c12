package flows

import "testbed/topo/units"

// sender is the state of a connection at its client's interface. The fields needed for
// every packet share one cache line; the packets being timed follow.
type sender struct {
	acked    int64 // offset up to which the data are acknowledged
	ackedAt  int64 // when acked last rose
	busyFrom int64 // first payload after nothing was in flight

	quietFrom  int64 // start of the current quiet span; 0 while bytes are in flight
	recoverTo  int64 // offset whose acknowledgement ends the recovery; 0 outside one
	heardAt    int64 // last packet from the receiver; before the first, the latest SYN
	closedFrom int64 // when the window closed; 0 while it is open
	rtt        roundTrips

	recoverFrom int64
	syn, setUp  int64
	resentBytes units.Bytes

	quiet, recovery, stalled, closed spans

	_ [48]byte // pads to a multiple of the cache line
}

// payload processes a sent packet with the bytes from off to end, of which fresh bytes
// had not been sent before.
func (s *sender) payload(off, end, fresh, stamp int64, o *settings) {
	switch {
	case s.quietFrom != 0:
		s.quiet.add(s.quietFrom, stamp, o.spans)
		s.quietFrom, s.busyFrom = 0, stamp
	case s.busyFrom == 0:
		s.busyFrom = stamp
	}
	again := end - max(off, 0) - fresh
	if again == 0 {
		s.rtt.sent(end, stamp)
		return
	}
	s.resentBytes += units.Bytes(again)
	s.rtt.resent(off)
	if end <= s.acked { // a spurious retransmission
		return
	}
	if s.recoverTo == 0 {
		s.recoverFrom = max(s.ackedAt, s.busyFrom)
	}
	s.recoverTo = max(s.recoverTo, end)
}

// acknowledged processes a packet from the receiver that acknowledges all bytes before
// to. top is the offset after the last byte sent, total the length of the stream (0
// while unknown), and closed reports whether the packet announces a window of zero.
func (s *sender) acknowledged(to, top, total, stamp int64, closed bool, o *settings) {
	if s.recoverTo != 0 {
		if from := max(s.heardAt, s.recoverFrom); stamp-from > s.rtt.most {
			s.stalled.add(from, stamp, o.spans)
		}
	}
	s.heardAt = stamp
	switch {
	case closed && s.closedFrom == 0:
		s.closedFrom = stamp
	case !closed && s.closedFrom != 0:
		s.closed.add(s.closedFrom, stamp, o.spans)
		s.closedFrom = 0
	}
	if to <= s.acked {
		return
	}
	s.acked, s.ackedAt = to, stamp
	s.rtt.acknowledged(to, stamp)
	if s.recoverTo != 0 && to >= s.recoverTo {
		s.recovery.add(s.recoverFrom, stamp, o.spans)
		s.recoverTo = 0
	}
	if to >= top && (total == 0 || top < total) && s.quietFrom == 0 {
		s.quietFrom = stamp
	}
}

// connecting processes a SYN; again reports whether it is a retransmission.
func (s *sender) connecting(stamp int64, again bool, o *settings) {
	switch {
	case !again:
		s.syn = stamp
	case s.setUp != 0:
		return // the SYN-ACK was captured here but lost later
	default:
		s.stalled.add(s.heardAt, stamp, o.spans)
	}
	s.heardAt = stamp
}

// receiver is the state of a connection at its server's interface.
type receiver struct {
	at        int64 // time of the previous packet
	reordered int
	latest    uint16 // latest IP identification seen, in the order of sending
	begun     bool
}

// payload processes a received packet at offset off with fresh new bytes. top is the
// offset after the last byte received before it.
func (r *receiver) payload(off, top, fresh, stamp int64, ident uint16, o *settings) {
	if r.begun && off < top && fresh > 0 {
		switch age := int16(ident - r.latest); {
		case age < 0, age == 0 && stamp-r.at <= o.reorder:
			r.reordered++
		}
	}
	if !r.begun || int16(ident-r.latest) > 0 {
		r.latest, r.begun = ident, true
	}
	r.at = stamp
}
