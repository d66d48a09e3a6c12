package flows

import (
	"math"
	"time"

	"testbed/topo/units"
)

const (
	// leastInterval is the minimum interval of a series.
	leastInterval = time.Millisecond
	// parts is the number of steps per interval. Packets are counted in steps because
	// intervals begin at the zero of the records, which is known only at the end: a packet
	// within half a step of the border of two intervals may be counted in the other one.
	parts = 4
)

// series counts bytes over time in steps, whose width doubles whenever their number would
// exceed a bound.
type series struct {
	width int64 // of a step, ns; steps begin at its multiples
	most  int   // maximum number of steps
	first int64 // number of the first step: its start divided by width
	steps []int64
	from  int64 // start of the step that was counted in last, a cache for the next packet
	last  int   // index of that step; -1 if there is none
}

func newSeries(intervals int) series {
	return series{width: int64(leastInterval) / parts, most: steps(intervals), last: -1}
}

// stamps are the timestamps of the earliest and the latest packet of a capture.
type stamps struct{ firstAt, lastAt int64 }

var noStamps = stamps{math.MaxInt64, math.MinInt64}

func (s *stamps) see(stamp int64) {
	s.firstAt, s.lastAt = min(s.firstAt, stamp), max(s.lastAt, stamp)
}

// steps returns the maximum number of steps for a maximum number of intervals, wherever
// these begin.
func steps(intervals int) int { return max(1, intervals-1) * parts }

// widthFor returns the step width of a series with packets from lo to hi.
func widthFor(lo, hi int64, intervals int) int64 {
	width := int64(leastInterval) / parts
	for number(hi, width)-number(lo, width) >= int64(steps(intervals)) {
		width *= 2
	}
	return width
}

// number returns the number of the step that contains a timestamp.
func number(stamp, width int64) int64 {
	n := stamp / width
	if stamp%width < 0 {
		n--
	}
	return n
}

func (s *series) add(stamp int64, bytes int) {
	if since := uint64(stamp - s.from); s.last >= 0 && stamp >= s.from && since < uint64(s.width) {
		s.steps[s.last] += int64(bytes)
		return
	}
	s.find(stamp)
	s.steps[s.last] += int64(bytes)
}

// find sets last and from to the step of a timestamp, which it adds if necessary.
func (s *series) find(stamp int64) {
	if len(s.steps) == 0 {
		s.first = number(stamp, s.width)
	}
	n := number(stamp, s.width)
	for max(n, s.first+int64(len(s.steps))-1)-min(n, s.first) >= int64(s.most) {
		s.double()
		n = number(stamp, s.width)
	}
	if n < s.first {
		s.steps = append(make([]int64, s.first-n), s.steps...)
		s.first = n
	}
	for int64(len(s.steps)) <= n-s.first {
		s.steps = append(s.steps, 0)
	}
	s.last, s.from = int(n-s.first), n*s.width
}

// double merges pairs of steps into steps of twice the width.
func (s *series) double() {
	first := s.first >> 1 // rounds down
	odd := int(s.first & 1)
	steps := s.steps[:0]
	for i := 0; i < len(s.steps); {
		v := s.steps[i]
		i++
		if (len(steps) > 0 || odd == 0) && i < len(s.steps) {
			v += s.steps[i]
			i++
		}
		steps = append(steps, v)
	}
	s.width, s.first, s.steps = 2*s.width, first, steps
}

// into adds the bytes counted from zero on to sums, one element per interval of parts
// steps of the given width, which must not be below s.width.
func (s *series) into(sums []units.Bytes, zero, width int64) {
	for s.width < width {
		s.double()
		s.last = -1
	}
	for i, v := range s.steps {
		if v == 0 {
			continue
		}
		if at := middle((s.first+int64(i)), width) - zero; at >= 0 && at/(width*parts) < int64(len(sums)) {
			sums[at/(width*parts)] += units.Bytes(v)
		}
	}
}

// middle returns the middle of step n.
func middle(n, width int64) int64 { return n*width + width/2 }
