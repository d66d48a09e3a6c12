package fidelity

import (
	"time"

	"testbed/topo/units"
)

// A sender that TCP limits to a few packets in its host's queue never has the backlog that sampleLinks
// requires, whether or not the link gets its rate. For such a link, the samples of a spell show that it
// always had packets to send. The bytes that it sent in the spell, and the gaps between its packets, are
// then judged, even if the link carried little.

// watching is a link that had packets waiting at every look so far.
type watching struct {
	link  int
	first time.Duration
	last  time.Duration
	begun units.Bytes // sent by first
	sent  units.Bytes // by last
	looks int
	// pieces are what was delivered over what could have been, each in as many looks
	// as PieceFrames take; the last began at cut, with cutSent sent.
	pieces  []part
	cut     time.Duration
	cutSent units.Bytes
}

const (
	leastLooks = 8 // of a spell that counts
	// longestGap ends a spell: over a longer time between two looks nothing can be
	// said of the link.
	longestGap = 40 * time.Millisecond
)

// look reports whether a link that is watched still waits, and records its spell if not. read reports whether it was
// read in this round: a link that is idle has no samples.
func (x *sampling) look(w *watching, read bool) bool {
	r := x.reading(w.link)
	if !read || !Waits(r.waiting, x.Frame) || r.at-w.last > longestGap {
		x.record(w)
		return false
	}
	w.last, w.sent = r.at, r.sent
	w.looks++
	x.piece(w)
	return true
}

// piece ends a piece of a spell if it is long enough.
func (x *sampling) piece(w *watching) {
	could := x.Links[w.link].Rate.BytesIn(w.last - w.cut)
	if could < PieceFrames*x.Frame {
		return
	}
	w.pieces = append(w.pieces, part{w.cut, w.last, w.sent - w.cutSent, could})
	w.cut, w.cutSent = w.last, w.sent
}

func (x *sampling) record(w *watching) {
	if w.looks < leastLooks {
		return
	}
	x.waiting[w.link] = append(x.waiting[w.link], Period{w.first, w.last})
	s := &x.partly[w.link]
	s.spells++
	for _, p := range w.pieces {
		s.pieces = append(s.pieces, p.share())
		s.windows.add(p, judgeWaiting)
	}
	s.delivered += w.sent - w.begun
	s.could += x.Links[w.link].Rate.BytesIn(w.last - w.first)
}
