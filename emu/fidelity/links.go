package fidelity

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/results/verdict"
	"testbed/topo/units"
)

// Link compares the bytes that one directed link delivered with those that its rate
// allows, in periods in which it was continuously busy: at every sample its queue held at
// least as much as the link can send until the next sample.
type Link struct {
	Name             string
	Frame            units.Bytes // frame of MTU size
	Spells           int
	Delivered, Could units.Bytes // in all of them, frames
	// Pieces is set if less is known: the link had packets queued at every sample of
	// the periods, 8 ms apart, but may have been idle for a moment between samples.
	// Each piece of a period, of at least PieceFrames frames' time, has the ratio of
	// delivered to possible bytes. In most pieces the link was continuously busy.
	Pieces []float64 `json:",omitempty"`
	// Low and High are the windows of each of WindowLengths in which the link delivered the
	// least and the most; a window in which too little is known is not judged. With Pieces
	// they are the better quartiles of the pieces in the window.
	Low  []Window `json:",omitempty"`
	High []Window `json:",omitempty"`
}

// WindowLengths are the lengths of the windows in which a link is judged by itself.
var WindowLengths = [2]time.Duration{250 * time.Millisecond, time.Second}

// WindowBounds bound what a link delivers in a window, relative to its rate. PiecesLo is the
// lower bound for pass of a link that is known by its pieces.
type WindowBounds struct {
	Pass, Void Range
	PiecesLo   float64
}

func (b WindowBounds) grade(l Link, share float64) verdict.Level {
	if len(l.Pieces) > 0 {
		b.Pass.Lo = b.PiecesLo
	}
	return grade(b.Pass.has(share), !b.Void.has(share))
}

// Window is an extreme window of a link: its length, its start since the zero of the run,
// and the share of the link's rate that was delivered in it.
type Window struct {
	Length, At time.Duration
	Share      float64
}

// PieceFrames is the minimum length of a Link's pieces, in frames' time: the error of a
// piece from counting whole frames is then 2 % (standard deviation).
const PieceFrames = 20

// A link that is known by its pieces is judged by their quartiles. With 16 pieces the
// error from counting whole frames is 0.7 % (standard deviation). A single period may
// have idle moments throughout, for example because its senders are at a rate cap.
const (
	minPieces  = 16
	minPeriods = 2
	// minWindowPieces is the minimum in the shortest window, which may have a single period.
	minWindowPieces = 8
)

// EnoughPieces reports whether pieces of some periods suffice to judge a link in a window of
// some length, one of WindowLengths.
func EnoughPieces(length time.Duration, pieces, periods int) bool {
	if length == WindowLengths[0] {
		return pieces >= minWindowPieces
	}
	return pieces >= minPieces && periods >= minPeriods
}

// share returns the share of its rate that the link delivered: for pieces the median, if
// that passes. Otherwise some pieces may have been idle for a moment, and the better
// quartile decides: the link is too slow, or too fast, if three quarters of its pieces
// are.
func (l Link) share(pass Range) float64 {
	if len(l.Pieces) == 0 {
		return float64(l.Delivered) / float64(l.Could)
	}
	p := slices.Sorted(slices.Values(l.Pieces))
	low, middle, high := p[len(p)/4], p[len(p)/2], p[len(p)-1-len(p)/4]
	switch {
	case middle < pass.Lo:
		return min(high, 1)
	case middle > pass.Hi:
		return max(low, 1)
	}
	return middle
}

// CountError is the error of counting whole frames, in frames per period: the standard deviation of the
// difference of two uniform errors is 0.41, and not all frames are full. It grows with the square root of the
// number of periods.
const CountError = 0.6

// enough reports whether the link was sampled for long enough to be judged: counting whole frames must have an
// error of 0.2 % or less.
func (l Link) enough() bool {
	if len(l.Pieces) > 0 {
		return EnoughPieces(0, len(l.Pieces), l.Spells)
	}
	return l.Frame > 0 && float64(l.Could)/float64(l.Frame) >= CountError/0.002*math.Sqrt(float64(l.Spells))
}

// Spacing counts the gaps between packets on one link that should be evenly spaced, and
// the correct ones among them.
type Spacing struct {
	Link       string
	Gaps, Good int
	// Poorest is the window of at most WindowLengths[0] with the smallest share of good gaps.
	Poorest Gaps
}

// Gaps are the gaps of a link in a window that starts at At since the zero of the run.
type Gaps struct {
	At, Length time.Duration
	Gaps, Good int
}

const minGaps = 200 // of a link that is judged

func delivered(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "delivered", Level: verdict.Pass, Value: "no link saturated",
		Pass: fmt.Sprintf("%.2f to %.2f of the rate", th.DeliveredPass.Lo, th.DeliveredPass.Hi), Void: fmt.Sprintf("< %.2f or > %.2f", th.DeliveredVoid.Lo, th.DeliveredVoid.Hi)}
	links := map[string]bool{}
	worst, link := 1.0, ""
	var skipped skips
	for _, l := range s.Links {
		if !l.enough() || skipped.link(s, l.Name) {
			continue
		}
		links[l.Name] = true
		r := l.share(th.DeliveredPass)
		level := grade(th.DeliveredPass.has(r), !th.DeliveredVoid.has(r))
		if link == "" || level > c.Level || level == c.Level && math.Abs(r-1) > math.Abs(worst-1) {
			c.Level, worst, link = level, r, l.Name
		}
	}
	if link != "" {
		c.Value = fmt.Sprintf("%.3f at worst on %d saturated links", worst, len(links))
	}
	why := ""
	if c.Level != verdict.Pass {
		why = fmt.Sprintf("%s delivered %.1f %% of its rate", link, 100*worst)
	}
	for i, length := range WindowLengths {
		w, level := worstWindow(s, length, th.Windows[i])
		if w.Length == 0 {
			continue
		}
		if link == "" {
			c.Value, link = "no link saturated for long", w.link
		}
		c.Value += fmt.Sprintf(", %.3f in %v", w.Share, length)
		c.Pass += fmt.Sprintf(", %.2f to %.2f in %v", th.Windows[i].Pass.Lo, th.Windows[i].Pass.Hi, length)
		c.Void += fmt.Sprintf(", < %.2f or > %.2f in %v", th.Windows[i].Void.Lo, th.Windows[i].Void.Hi, length)
		if level > c.Level {
			c.Level, why = level, fmt.Sprintf("%s delivered %.1f %% of its rate for %v, at %v", w.link, 100*w.Share, length, round(w.At))
		}
	}
	c.Value += skipped.String()
	if c.Level != verdict.Pass {
		c.Reason = why + " while packets were queued: the machine did not keep up, or the link is not shaped as in the scenario"
	}
	return c
}

// linkWindow is a window of a link.
type linkWindow struct {
	link string
	Window
}

// worstWindow returns the window of one length that is farthest from the rate of its link.
func worstWindow(s Samples, length time.Duration, b WindowBounds) (worst linkWindow, level verdict.Level) {
	var skipped skips
	for _, l := range s.Links {
		if skipped.link(s, l.Name) {
			continue
		}
		for i, w := range slices.Concat(l.Low, l.High) {
			if w.Length != length {
				continue
			}
			// A window with little is not judged as one with much, and the other way round.
			if i < len(l.Low) {
				w.Share = min(w.Share, 1)
			} else {
				w.Share = max(w.Share, 1)
			}
			now := b.grade(l, w.Share)
			if worst.Length == 0 || now > level || now == level && math.Abs(w.Share-1) > math.Abs(worst.Share-1) {
				worst, level = linkWindow{l.Name, w}, now
			}
		}
	}
	return worst, level
}

func spacing(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "packet-spacing", Level: verdict.Pass, Value: "no link saturated",
		Pass: fmt.Sprintf("≥ %.0f %% of gaps as on the wire, %.0f %% in every %v", 100*th.SpacingPass, 100*th.SpacingWindowPass, WindowLengths[0]),
		Void: fmt.Sprintf("< %.0f %%, %.0f %%", 100*th.SpacingVoid, 100*th.SpacingWindowVoid)}
	n, worst, link := 0, 1.0, ""
	poorest, at := Spacing{}, 1.0
	var skipped skips
	for _, l := range s.Spacing {
		if l.Gaps < minGaps || skipped.link(s, l.Link) {
			continue
		}
		n++
		if f := float64(l.Good) / float64(l.Gaps); link == "" || f < worst {
			worst, link = f, l.Link
		}
		if l.Poorest.Gaps == 0 {
			continue
		}
		if f := float64(l.Poorest.Good) / float64(l.Poorest.Gaps); poorest.Link == "" || f < at {
			at, poorest = f, l
		}
	}
	if n == 0 {
		c.Value += skipped.String()
		return c
	}
	c.Level = grade(worst >= th.SpacingPass, worst < th.SpacingVoid)
	c.Value = fmt.Sprintf("%.1f %% at worst on %d saturated links", 100*worst, n)
	where := link
	if poorest.Link != "" {
		c.Value += fmt.Sprintf(", %.1f %% in %v", 100*at, WindowLengths[0])
		if level := grade(at >= th.SpacingWindowPass, at < th.SpacingWindowVoid); level > c.Level {
			c.Level, where = level, fmt.Sprintf("%s at %v", poorest.Link, round(poorest.Poorest.At))
		}
	}
	c.Value += skipped.String()
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("packets on %s arrived in bursts: the machine was late, or segments were not cut to the MTU", where)
	}
	return c
}
