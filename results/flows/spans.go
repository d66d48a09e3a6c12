package flows

import (
	"math"
	"slices"
)

// spans are stretches of time of one kind, in order: the longest of them, and how
// long all the others were together.
type spans struct {
	least    int64 // of a list that is full: its shortest, and where that is
	shortest int
	list     []stretch
	rest     int64
}

// stretch is a Span in Unix nanoseconds.
type stretch struct{ from, to int64 }

func (s *spans) add(from, to int64, most int) {
	if to <= from {
		return
	}
	if s.least == 0 {
		s.list = append(s.list, stretch{from, to})
		if len(s.list) == most {
			s.rank()
		}
		return
	}
	if to-from <= s.least {
		s.rest += to - from
		return
	}
	s.rest += s.least
	s.list = append(slices.Delete(s.list, s.shortest, s.shortest+1), stretch{from, to})
	s.rank()
}

// rank finds the shortest.
func (s *spans) rank() {
	s.least = math.MaxInt64
	for i, v := range s.list {
		if d := v.to - v.from; d < s.least {
			s.shortest, s.least = i, d
		}
	}
}
