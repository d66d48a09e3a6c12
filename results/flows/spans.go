package flows

import "slices"

// spans are stretches of time of one kind, in order: the longest of them, and how
// long all the others were together.
type spans struct {
	list     []stretch
	shortest int // index into a list that is full
	rest     int64
}

// stretch is a Span in Unix nanoseconds.
type stretch struct{ from, to int64 }

func (s *spans) add(from, to int64, most int) {
	if to <= from {
		return
	}
	if len(s.list) < most {
		s.list = append(s.list, stretch{from, to})
		if len(s.list) == most {
			s.rank()
		}
		return
	}
	old := s.list[s.shortest]
	if to-from <= old.to-old.from {
		s.rest += to - from
		return
	}
	s.rest += old.to - old.from
	s.list = append(slices.Delete(s.list, s.shortest, s.shortest+1), stretch{from, to})
	s.rank()
}

// rank finds the shortest.
func (s *spans) rank() {
	s.shortest = 0
	for i, v := range s.list {
		if v.to-v.from < s.list[s.shortest].to-s.list[s.shortest].from {
			s.shortest = i
		}
	}
}
