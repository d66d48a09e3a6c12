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
type steadyRate struct {
	rate       units.Rate // that is wanted
	from, to   time.Duration
	base, last units.Bytes
}

// wrote is told how much has been written by a time from the beginning, after
// each write.
func (s *steadyRate) wrote(n units.Bytes, at time.Duration) {
	if s.from == 0 && at >= settling {
		s.from, s.base = at, n
	}
	s.to, s.last = at, n
}

// off is the rate over the wanted one, less 1; nil if too little was written.
func (s *steadyRate) off() *float64 {
	if s.rate == 0 || s.from == 0 || s.to-s.from < leastSteady {
		return nil
	}
	off := float64(s.last-s.base)*8/(s.to-s.from).Seconds()/float64(s.rate) - 1
	return &off
}
