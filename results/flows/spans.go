package flows

import (
	"math"
	"slices"
)

// spans records time spans of one kind: the longest ones, in order of time, and the total
// length of the others.
type spans struct {
	least    int64     // length of the shortest span of a full list; 0 while it is not full
	shortest int       // index of that span
	list     []stretch // the longest spans
	rest     int64     // total length of the others, ns
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

// rank finds the shortest span of the list.
func (s *spans) rank() {
	s.least = math.MaxInt64
	for i, v := range s.list {
		if d := v.to - v.from; d < s.least {
			s.shortest, s.least = i, d
		}
	}
}
