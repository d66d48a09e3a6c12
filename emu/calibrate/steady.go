package calibrate

import (
	"time"

	"testbed/topo/units"
)

const (
	// settling is the beginning of a write that steadyRate leaves out: two slices
	// of 100 ms, of which the kernel's throttle gives the first away.
	settling = 200 * time.Millisecond
	// leastSteady is how long the rest must be, so that one write more or less in
	// it is a few percent.
	leastSteady = 400 * time.Millisecond
)

// steadyRate measures the rate of writing after its beginning. The zero value
// measures nothing.
//
// It is the slope of the line through what was written at each moment, by least
// squares. The kernel's throttle lets a slice's bytes through at the beginning of each
// slice: between two single writes there is up to a slice more or less than the rate
// has, 5 % in two seconds, which says nothing of the rate.
type steadyRate struct {
	rate     units.Rate // that is wanted
	from, to time.Duration
	n        float64
	// Means of the moments and of the bytes written by then, and the sums of products of
	// their deviations (Welford, Technometrics 1962).
	at, bytes, atAt, atBytes float64
}

// wrote is told how much has been written by a time from the beginning, after
// each write.
func (s *steadyRate) wrote(n units.Bytes, at time.Duration) {
	if at < settling {
		return
	}
	if s.n == 0 {
		s.from = at
	}
	s.to = at
	s.n++
	x, y := at.Seconds(), float64(n)
	dx := x - s.at
	s.at += dx / s.n
	s.bytes += (y - s.bytes) / s.n
	s.atAt += float64(dx * (x - s.at))
	s.atBytes += float64(dx * (y - s.bytes))
}

// off is the rate over the wanted one, less 1; nil if too little was written.
func (s *steadyRate) off() *float64 {
	if s.rate == 0 || s.to-s.from < leastSteady {
		return nil
	}
	off := 8*s.atBytes/s.atAt/float64(s.rate) - 1
	return &off
}
