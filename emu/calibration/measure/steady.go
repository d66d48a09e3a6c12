package measure

import (
	"time"

	"testbed/topo/units"
)

const (
	// settling is the beginning of a write that steadyRate excludes: two slices of 100 ms,
	// of which the kernel's throttle does not limit the first.
	settling = 200 * time.Millisecond
	// leastSteady is the minimum duration of the rest, so that one write more or less is a
	// few percent of it.
	leastSteady = 400 * time.Millisecond
)

// steadyRate measures the rate of writing after its beginning. The zero value
// measures nothing.
//
// It is the slope of the bytes written over time, by least squares. The kernel's throttle
// passes a slice's bytes at the beginning of each slice. The difference between two single
// writes is therefore off by up to a slice, 5 % in two seconds, which is no error of the
// rate.
type steadyRate struct {
	rate     units.Rate // the nominal rate
	from, to time.Duration
	n        float64
	// Means of the times and of the bytes written by then, and the sums of products of their
	// deviations (Welford, Technometrics 1962).
	at, bytes, atAt, atBytes float64
}

// wrote records that n bytes have been written at a time from the beginning. It is called
// after each write.
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

// off returns the rate divided by the nominal one, less 1; nil if too little was written.
func (s *steadyRate) off() *float64 {
	if s.rate == 0 || s.to-s.from < leastSteady {
		return nil
	}
	off := 8*s.atBytes/s.atAt/float64(s.rate) - 1
	return &off
}
