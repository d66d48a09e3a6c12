package fidelity

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/topo/units"
)

// part is what a link delivered, and could have, in a part of a spell.
type part struct {
	from, to         time.Duration // since the start of the trial
	delivered, could units.Bytes
}

func (p part) share() float64 { return float64(p.delivered) / float64(p.could) }

// windows finds the windows of a link in which it delivered the least and the most of its
// rate, for each length of WindowLengths, while the link is followed. It keeps
// the parts of the longest window.
type windows struct {
	parts     []part // ascending
	low, high []Window
}

// judge returns the share of its rate that a link delivered in parts of a window of some
// length: at most high and at least low. ok is false if the parts do not suffice.
type judge func(parts []part, length time.Duration) (low, high float64, ok bool)

// add adds a part and judges the windows that end with it.
func (w *windows) add(p part, by judge) {
	if w.low == nil {
		w.low, w.high = make([]Window, len(WindowLengths)), make([]Window, len(WindowLengths))
	}
	longest := slices.Max(WindowLengths[:])
	w.parts = append(w.parts[w.from(p.to-longest):], p)
	for i, length := range WindowLengths {
		low, high, ok := by(w.parts[w.from(p.to-length):], length)
		if !ok {
			continue
		}
		at := p.to - length
		if w.low[i].Length == 0 || high < w.low[i].Share {
			w.low[i] = Window{Length: length, At: at, Share: high}
		}
		if w.high[i].Length == 0 || low > w.high[i].Share {
			w.high[i] = Window{Length: length, At: at, Share: low}
		}
	}
}

// from returns the index of the first part that does not begin before a time.
func (w *windows) from(t time.Duration) int {
	i, _ := slices.BinarySearchFunc(w.parts, t, func(p part, t time.Duration) int { return cmp.Compare(p.from, t) })
	return i
}

// found returns the extreme windows of all lengths for which one could be judged.
func (w *windows) found() (low, high []Window) {
	none := func(x Window) bool { return x.Length == 0 }
	return slices.DeleteFunc(w.low, none), slices.DeleteFunc(w.high, none)
}

const (
	// followed is the minimum share of a window in which a link must have been followed.
	// The sampler follows a link for about half of the time.
	followed = 0.25
	// windowFrames is the minimum length of what was followed, in frames' time: the error
	// of counting whole frames is then 1.7 % (standard deviation, two spells).
	windowFrames = 50
	// deviations of the error of counting whole frames are allowed for in what a link delivered at least: the
	// largest of hundreds of windows counts. What it delivered at most has bounds far wider than the error.
	deviations = 3
)

// judgeBusy judges a link of some rate that was certainly busy in all parts: by their sum.
func judgeBusy(rate units.Rate, frame units.Bytes) judge {
	return func(parts []part, length time.Duration) (low, high float64, ok bool) {
		var all part
		for _, p := range parts {
			all.delivered += p.delivered
			all.could += p.could
		}
		frames := float64(all.could) / float64(frame)
		if float64(all.could) < followed*float64(rate.BytesIn(length)) || frames < windowFrames {
			return 0, 0, false
		}
		off := deviations * CountError * math.Sqrt(float64(spells(parts))) / frames
		return all.share() - off, all.share(), true
	}
}

// spells returns the number of spells that parts are of.
func spells(parts []part) (n int) {
	for i, p := range parts {
		if i == 0 || p.from != parts[i-1].to {
			n++
		}
	}
	return n
}

// judgeWaiting judges a link that may have been idle for moments between samples: by the
// quartiles of its pieces, as Link does.
func judgeWaiting(parts []part, length time.Duration) (low, high float64, ok bool) {
	shares := make([]float64, len(parts))
	for i, p := range parts {
		shares[i] = p.share()
	}
	if !EnoughPieces(length, len(shares), spells(parts)) {
		return 0, 0, false
	}
	slices.Sort(shares)
	return shares[len(shares)/4], shares[len(shares)-1-len(shares)/4], true
}
