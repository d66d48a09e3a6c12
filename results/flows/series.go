package flows

import (
	"time"

	"testbed/topo/units"
)

const (
	// leastInterval is the interval of a series that is not too long for it.
	leastInterval = time.Millisecond
	// parts is into how many an interval is divided until the zero of the records is
	// known, which is when intervals begin: a packet within one part of the border of
	// two intervals may be counted in the other.
	parts = 4
)

// series counts bytes over time in steps that double whenever there would be more
// than a bound of them.
type series struct {
	width int64 // of a step, ns; steps begin at multiples of it
	most  int   // steps
	first int64 // number of the first step: its stamp over width
	steps []int64
	from  int64 // of the step that was counted in last, for the packets that follow
	last  int   // that step; -1 before the first packet
}

func newSeries(intervals int) series {
	return series{width: int64(leastInterval) / parts, most: (intervals + 1) * parts, last: -1}
}

// number is the step of a stamp.
func (s *series) number(stamp int64) int64 {
	n := stamp / s.width
	if stamp%s.width < 0 {
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

// find makes last the step of a stamp.
func (s *series) find(stamp int64) {
	if len(s.steps) == 0 {
		s.first = s.number(stamp)
	}
	n := s.number(stamp)
	for max(n, s.first+int64(len(s.steps))-1)-min(n, s.first) >= int64(s.most) {
		s.double()
		n = s.number(stamp)
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

// double makes steps twice as long.
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

// span is from the start of the first step to the end of the last, Unix ns.
func (s *series) span() (from, to int64) {
	return s.first * s.width, (s.first + int64(len(s.steps))) * s.width
}

// into adds what s counted from zero on, in intervals from there, to sums: a share of
// it, 1/of, whose remainders are carried on so that none is lost.
func (s *series) into(sums []units.Bytes, zero, interval, of int64) {
	var rest int64
	for i, v := range s.steps {
		if v == 0 {
			continue
		}
		at := (s.first+int64(i))*s.width + s.width/2 - zero
		if at < 0 || at/interval >= int64(len(sums)) {
			continue
		}
		rest += v
		sums[at/interval] += units.Bytes(rest / of)
		rest %= of
	}
}
