package fidelity

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"testbed/results/samples"
	"testbed/topo/units"
)

// Sampled is what the samples of a trial show. It depends on the file of samples alone.
type Sampled struct {
	Zero     time.Time // the wall clock at the start of the trial
	Links    []Link
	Queues   []Queue       // that held or dropped packets
	Lateness time.Duration // 99th percentile of the scheduling probe
	Stall    time.Duration // its maximum
	// Waiting are the periods in which links had packets waiting at every reading, by name of the link, in
	// order of time.
	Waiting map[string][]Period
}

// Period is a time since the start of the trial.
type Period struct{ From, To time.Duration }

// ReadSampled reads a file of samples. found is false, without an error, if there is none.
func ReadSampled(path string) (out Sampled, found bool, err error) {
	r, err := samples.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	x := newSampling(r.Head)
	for s, err := range r.All() {
		if err == nil {
			err = x.add(s)
		}
		if err != nil {
			return out, false, fmt.Errorf("samples: %w", err)
		}
	}
	return x.end(), true, nil
}

// reading is what a link's queue had released, held and dropped at one moment.
type reading struct {
	at            time.Duration
	sent, waiting units.Bytes
	dropped       int64
	hasSent       bool
}

// sampling turns samples into what they show. Samples come in order of time of their object, those of a reading of
// a link next to each other, and those of a round of readings between two samples of samples.Look.
type sampling struct {
	samples.Head
	id       map[string]int // of links
	now      []reading      // the newest, by link
	last     []*reading     // the one before, by link; nil before the first
	round    []int          // the links that were read in this round
	number   int64          // of the round
	follow   []int          // links whose spacing is judged from this look on
	busy     map[int]reading
	begun    map[int]bool // spells of this look
	watched  []*watching
	queues   []Queue // by link
	all      []saturated
	partly   []saturated
	waiting  [][]Period
	lateness *hdrhistogram.Histogram // µs
}

// saturated is what a link delivered, and could have, in spells in which it must have been busy.
type saturated struct {
	spells           int
	delivered, could units.Bytes
	pieces           []float64 // of links that are watched: Link.Pieces
	windows          windows
}

func newSampling(h samples.Head) *sampling {
	n := len(h.Links)
	x := &sampling{Head: h, id: make(map[string]int, n), now: make([]reading, n), last: make([]*reading, n), number: samples.OutsideOfLooks,
		busy: map[int]reading{}, begun: map[int]bool{}, queues: make([]Queue, n), all: make([]saturated, n),
		partly: make([]saturated, n), waiting: make([][]Period, n),
		lateness: hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)}
	for i, l := range h.Links {
		x.id[l.Name] = i
		x.queues[i] = Queue{Link: l.Name, Limit: l.Queue, Frame: h.Frame}
	}
	return x
}

func (x *sampling) add(s samples.Sample) error {
	switch {
	case s.Object == samples.Links && s.Metric == samples.Look:
		x.endRound()
		x.number = s.Value
		return nil
	case s.Object == samples.Machine && s.Metric == samples.Lateness:
		if x.lateness.RecordValue(s.Value) != nil {
			return x.lateness.RecordValue(x.lateness.HighestTrackableValue())
		}
		return nil
	}
	link, ok := x.id[s.Object]
	if !ok {
		return nil // of flows
	}
	r := &x.now[link]
	switch s.Metric {
	case samples.Followed:
		x.follow = append(x.follow, link)
	case samples.Dropped:
		r.dropped = s.Value
	case samples.SentBytes:
		r.sent, r.hasSent = units.Bytes(s.Value), true
	case samples.QueueBytes: // the last of a reading
		if !r.hasSent {
			return fmt.Errorf("%s has a queue at %v and no bytes sent before", s.Object, s.At)
		}
		r.at, r.waiting = s.At, units.Bytes(s.Value)
		x.note(link)
		x.round = append(x.round, link)
	}
	return nil
}

// note compares the newest reading of a link with the one before, for its queue.
func (x *sampling) note(link int) {
	q, is := &x.queues[link], x.now[link]
	q.Longest = max(q.Longest, is.waiting)
	was := x.last[link]
	x.last[link] = &is
	// Others drop early, or packets of any size, so their drops are no bound.
	if was == nil || is.dropped == was.dropped || !x.Links[link].DropTail || is.sent < was.sent {
		return
	}
	q.Drops++
	if most := is.waiting + is.sent - was.sent + q.Frame; q.AtMost == 0 || most < q.AtMost {
		q.AtMost = most
	}
}

// reading returns the newest reading of a link without what its delay holds.
func (x *sampling) reading(link int) reading {
	r := x.now[link]
	r.waiting = max(0, r.waiting-x.Links[link].Held)
	return r
}

// Lasts reports whether a queue keeps a link of some rate busy for d.
func Lasts(queue units.Bytes, rate units.Rate, d time.Duration) bool { return queue >= rate.BytesIn(d) }

// waitingFrames is the number of frames that wait for a link at every reading of a spell.
const waitingFrames = 2

// Waits reports whether enough packets wait for a link that its spacing can be judged.
func Waits(queue, frame units.Bytes) bool { return queue >= waitingFrames*frame }

// endRound judges the links that were read in a round.
func (x *sampling) endRound() {
	read := make(map[int]bool, len(x.round))
	for _, link := range x.round {
		read[link] = true
	}
	switch {
	case x.number == 0:
		x.endLook()
		for link := range read {
			if r := x.reading(link); Lasts(r.waiting, x.Links[link].Rate, x.Interval) {
				x.busy[link] = r
			}
		}
		for _, link := range x.follow {
			r := x.reading(link)
			x.watched = append(x.watched, &watching{link: link, first: r.at, last: r.at, begun: r.sent, sent: r.sent, looks: 1, cut: r.at, cutSent: r.sent})
		}
	case x.number > 0:
		x.watched = slices.DeleteFunc(x.watched, func(w *watching) bool { return !x.look(w, read[w.link]) })
		for link, was := range x.busy {
			delete(x.busy, link)
			if read[link] {
				x.follows(link, was)
			}
		}
	}
	x.round, x.follow = x.round[:0], x.follow[:0]
}

// endLook ends the spells of a look.
func (x *sampling) endLook() {
	for _, w := range x.watched {
		x.record(w)
	}
	x.watched = x.watched[:0]
	clear(x.busy)
	clear(x.begun)
}

// follows adds what a link sent since a reading at which it had enough in its queue to be busy ever since.
func (x *sampling) follows(link int, was reading) {
	is, rate := x.reading(link), x.Links[link].Rate
	could := rate.BytesIn(is.at - was.at)
	if was.waiting < could {
		return // the sampler ran late, and the queue may have run empty
	}
	s := &x.all[link]
	if !x.begun[link] {
		x.begun[link] = true
		s.spells++
	}
	p := part{was.at, is.at, is.sent - was.sent, could}
	s.delivered += p.delivered
	s.could += p.could
	s.windows.add(p, judgeBusy(rate, x.Frame))
	if Lasts(is.waiting, rate, x.Interval) {
		x.busy[link] = is
	}
}

func (x *sampling) end() Sampled {
	x.endRound()
	x.endLook()
	out := Sampled{Zero: x.Zero, Waiting: map[string][]Period{}, Lateness: time.Duration(x.lateness.ValueAtQuantile(99)) * time.Microsecond,
		Stall: time.Duration(x.lateness.Max()) * time.Microsecond}
	for i, q := range x.queues {
		if q.Longest > 0 || q.Drops > 0 {
			out.Queues = append(out.Queues, q)
		}
		if len(x.waiting[i]) > 0 {
			out.Waiting[q.Link] = x.waiting[i]
		}
	}
	add := func(all []saturated, watched bool) {
		for i, s := range all {
			if s.spells > 0 && watched == (len(s.pieces) > 0) {
				low, high := s.windows.found()
				out.Links = append(out.Links, Link{Name: x.Links[i].Name, Frame: x.Frame, Spells: s.spells,
					Delivered: s.delivered, Could: s.could, Pieces: s.pieces, Low: low, High: high})
			}
		}
	}
	add(x.all, false)
	add(x.partly, true)
	return out
}
