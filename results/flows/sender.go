package flows

import "testbed/topo/units"

// sender is what a connection's packets tell at the interface of its client. Fields
// are in the order that puts what every packet needs into one cache line, and the
// round-trip times that are being measured into those behind it.
type sender struct {
	acked    int64 // offset up to which the data are acknowledged
	ackedAt  int64 // when it last rose
	busyFrom int64 // first payload since nothing was under way

	quietFrom  int64 // 0 while something is under way
	recoverTo  int64 // offset; 0 outside a recovery
	heardAt    int64 // when the receiver last sent anything; before that, the latest SYN
	closedFrom int64 // 0 while the window is open
	rtt        roundTrips

	recoverFrom int64
	syn, setUp  int64
	resentBytes units.Bytes

	quiet, recovery, stalled, closed spans

	_ [48]byte // up to a whole number of cache lines
}

// payload takes a packet that was sent, with the bytes from off to end of which
// fresh had not been sent before.
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
	if end <= s.acked { // needlessly
		return
	}
	if s.recoverTo == 0 {
		s.recoverFrom = max(s.ackedAt, s.busyFrom)
	}
	s.recoverTo = max(s.recoverTo, end)
}

// acknowledged takes a packet of the receiver that acknowledges all before to; top is
// the offset after the last byte that was sent, and total the length of the stream, 0
// while it is not known.
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

// connecting takes a SYN; again tells that it is not the first.
func (s *sender) connecting(stamp int64, again bool, o *settings) {
	switch {
	case !again:
		s.syn = stamp
	case s.setUp != 0:
		return // its answer was lost later
	default:
		s.stalled.add(s.heardAt, stamp, o.spans)
	}
	s.heardAt = stamp
}

// receiver is what a connection's packets tell at the interface of its server.
type receiver struct {
	at        int64 // of the packet before
	reordered int
	latest    uint16 // IP identification of the packet sent last, of those seen
	begun     bool
}

// payload takes a packet that was received, at offset off with fresh bytes not
// received before; top is the offset after the last byte received before it.
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
