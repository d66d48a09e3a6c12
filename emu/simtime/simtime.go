// Package simtime represents points in simulated time.
//
// It does not read the machine's clock.
package simtime

import (
	"math"
	"time"
)

// Moment is a point in time since the start of the run: whole nanoseconds and a fraction of one.
// A float64 alone would be coarser than a thousandth of a nanosecond after a few hours. The zero
// value is the start.
type Moment struct {
	Whole time.Duration
	Frac  float64 // of a nanosecond, in [0, 1)
}

// Since returns the time from o to m in ns.
func (m Moment) Since(o Moment) float64 { return float64(m.Whole-o.Whole) + (m.Frac - o.Frac) }

// Until returns the time from m to t in ns, negative if t has passed.
func (m Moment) Until(t time.Duration) float64 { return float64(t-m.Whole) - m.Frac }

// Plus returns m plus a number of ns. It must be at least 0, and the sum must fit into a Duration.
func (m Moment) Plus(ns float64) Moment {
	whole, frac := math.Modf(ns)
	frac += m.Frac
	if frac >= 1 {
		whole, frac = whole+1, frac-1
	}
	return Moment{m.Whole + time.Duration(whole), frac}
}

// Round returns the nearest whole nanosecond.
func (m Moment) Round() time.Duration {
	if m.Frac >= 0.5 {
		return m.Whole + 1
	}
	return m.Whole
}

// Up returns the first multiple of step at or after m. A multiple that m has passed by at most
// slack ns also counts.
func (m Moment) Up(step time.Duration, slack float64) time.Duration {
	n := m.Whole / step * step
	if m.Whole == n && m.Frac <= slack {
		return n
	}
	return n + step
}
