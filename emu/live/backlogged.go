package live

import (
	"slices"
	"time"

	"testbed/emu/fidelity"
	"testbed/topo"
	"testbed/topo/units"
)

// A sender that TCP limits to a few packets in its host's queue never has the backlog that sampleLinks
// requires, whether or not the link gets its rate. For such a link, the samples of a spell show that it
// always had packets to send. The bytes that it sent in the spell, and the gaps between its packets, are
// then judged, even if the link carried little.

// watching is a link that had packets waiting at every look so far.
type watching struct {
	link  topo.LinkID
	first time.Time
	last  time.Time
	begun units.Bytes // sent by first
	sent  units.Bytes // by last
	looks int
	// pieces are what was delivered over what could have been, each in as many looks
	// as fidelity.PieceFrames take; the last began at cut, with cutSent sent.
	pieces  []part
	cut     time.Time
	cutSent units.Bytes
}

// Spell is a time in which a link had packets waiting at every look.
type Spell struct{ From, To time.Time }

const (
	waitingFrames = 2 // that wait for a link at every look
	leastLooks    = 8 // of a spell that counts
	// longestGap ends a spell: over a longer time between two looks nothing can be
	// said of the link.
	longestGap = 40 * time.Millisecond
)

// waits reports whether a sample shows enough backlog.
func (s *sampler) waits(r reading) bool {
	return r.Backlog >= waitingFrames*s.frame()
}

// watch chooses the links to follow in addition to those that are certainly busy: links of hosts, a few
// at a time, in turn.
func (s *sampler) watch(waiting []reading, most int) []*watching {
	var out []*watching
	for i := range waiting {
		if len(out) == most {
			break
		}
		r := waiting[(i+s.turn)%len(waiting)]
		out = append(out, &watching{link: r.link, first: r.at, last: r.at, begun: r.Bytes, sent: r.Bytes, looks: 1, cut: r.at, cutSent: r.Bytes})
	}
	s.turn += len(out)
	return out
}

// look reads the links being watched, keeps those that still wait and records the
// spells of the others.
func (s *sampler) look(watched []*watching, seen map[string]readings) ([]*watching, error) {
	for i, w := range watched {
		at, q, err := s.shaper(seen, s.ports[w.link])
		if err != nil {
			return nil, err
		}
		if s.waits(reading{w.link, at, q}) && at.Sub(w.last) <= longestGap {
			w.last, w.sent = at, q.Bytes
			w.looks++
			s.piece(w)
			continue
		}
		s.record(w)
		watched[i] = nil
	}
	return slices.DeleteFunc(watched, func(w *watching) bool { return w == nil }), nil
}

// piece ends a piece of a spell if it is long enough.
func (s *sampler) piece(w *watching) {
	could := s.fabric.Link(w.link).Rate.BytesIn(w.last.Sub(w.cut))
	if could < fidelity.PieceFrames*s.frame() {
		return
	}
	w.pieces = append(w.pieces, part{w.cut, w.last, w.sent - w.cutSent, could})
	w.cut, w.cutSent = w.last, w.sent
}

func (s *sampler) record(w *watching) {
	if w.looks >= leastLooks {
		s.spells[w.link] = append(s.spells[w.link], Spell{w.first, w.last})
		x := &s.watched[w.link]
		x.spells++
		for _, p := range w.pieces {
			x.pieces = append(x.pieces, p.share())
			x.windows.add(p, s.zero, judgeWaiting)
		}
		x.delivered += w.sent - w.begun
		x.could += s.fabric.Link(w.link).Rate.BytesIn(w.last.Sub(w.first))
	}
}
