package tracesim

import (
	"math"
	"time"
)

// clock is a moment since the start of the run, as whole nanoseconds and a
// fraction of one in [0, 1): a float64 alone would be coarser than a thousandth
// of a nanosecond after a few hours.
type clock struct {
	whole time.Duration
	frac  float64
}

// since is the time from o to c in ns.
func (c clock) since(o clock) float64 { return float64(c.whole-o.whole) + (c.frac - o.frac) }

// until is the time from c to t in ns, negative if t has passed.
func (c clock) until(t time.Duration) float64 { return float64(t-c.whole) - c.frac }

// plus is c and so many ns, at most farthest.
func (c clock) plus(ns float64) clock {
	whole, frac := math.Modf(ns)
	frac += c.frac
	if frac >= 1 {
		whole, frac = whole+1, frac-1
	}
	return clock{c.whole + time.Duration(whole), frac}
}

// round is the nearest whole nanosecond.
func (c clock) round() time.Duration {
	if c.frac >= 0.5 {
		return c.whole + 1
	}
	return c.whole
}

// up is the first multiple of step that is not before c, or that c is past by no
// more than together.
func (c clock) up(step time.Duration) time.Duration {
	n := c.whole / step * step
	if c.whole == n && c.frac <= together/2 {
		return n
	}
	return n + step
}
