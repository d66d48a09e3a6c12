package fluid

import (
	"cmp"
	"math"
	"slices"
)

// use is one resource that a class of fluids draws on: a link or a disk, by its
// place in the table of capacities, and how often one fluid crosses it.
type use struct {
	resource int32
	times    float64
}

// class is a set of fluids that draw on the same resources under the same
// ceiling, and so have the same rate.
type class struct {
	uses    []use
	fluids  float64 // how many
	ceiling float64 // of each, bit/s; +Inf for none
	rate    float64 // of each, bit/s: the answer

	listed int // place in the backend's list of classes, -1 when not on it
}

// sharing computes max-min fair rates under ceilings. It holds nothing but
// memory that is used again from one call to the next.
type sharing struct {
	load    []float64 // by resource: rate of its fluids that have their final rate
	weight  []float64 // by resource: crossings of its fluids that do not
	members []int32   // classes of all resources, end to end
	start   []int32   // by resource: where its members begin; one more at the end
	frozen  []bool    // by class
	limited []int32   // classes with a ceiling, lowest first
	heap    []level
}

// level is the rate at which a resource fills up if nothing before it does.
type level struct {
	rate     float64
	resource int32
}

// rates sets the rate of every class: the max-min fair allocation under the
// classes' ceilings, by progressive filling. All fluids' rates rise together;
// one stops when it meets its ceiling or when a resource it draws on is full. A
// fluid that crosses a resource k times loads it with k times its rate.
//
// A class that draws on nothing gets its ceiling. Ties between ceilings and
// resources need no order: either way the rate is the same.
func (s *sharing) rates(classes []*class, capacity []float64) {
	s.load = zeroed(s.load, len(capacity))
	if s.underCeilings(classes, capacity) {
		return
	}
	s.index(classes, capacity)
	left := len(classes)
	freeze := func(c int32, rate float64) {
		cl := classes[c]
		cl.rate, s.frozen[c] = rate, true
		for _, u := range cl.uses {
			w := u.times * cl.fluids
			s.load[u.resource] += float64(w * rate)
			s.weight[u.resource] -= w
		}
		left--
	}
	limited := s.limited
	for left > 0 {
		for len(limited) > 0 && s.frozen[limited[0]] {
			limited = limited[1:]
		}
		ceiling := math.Inf(1)
		if len(limited) > 0 {
			ceiling = classes[limited[0]].ceiling
		}
		full := s.nextFull(capacity)
		if ceiling <= full.rate {
			if len(limited) == 0 {
				break // nothing limits the rest: they draw on nothing
			}
			freeze(limited[0], ceiling)
			continue
		}
		for _, c := range s.members[s.start[full.resource]:s.start[full.resource+1]] {
			if !s.frozen[c] {
				freeze(c, full.rate)
			}
		}
	}
	for c, cl := range classes {
		if !s.frozen[c] {
			cl.rate = cl.ceiling
		}
	}
}

// underCeilings gives every class its ceiling if all have one and together they
// fit, which is how a coflow scheduler leaves the network: the answer is then
// known without filling.
func (s *sharing) underCeilings(classes []*class, capacity []float64) bool {
	for _, cl := range classes {
		if math.IsInf(cl.ceiling, 1) && len(cl.uses) > 0 {
			return false
		}
		for _, u := range cl.uses {
			s.load[u.resource] += float64(u.times * cl.fluids * cl.ceiling)
		}
	}
	for r, l := range s.load {
		if l > capacity[r] {
			return false
		}
	}
	for _, cl := range classes {
		cl.rate = cl.ceiling
	}
	return true
}

// index lists the classes on each resource and fills the heap and the weights.
func (s *sharing) index(classes []*class, capacity []float64) {
	n := len(capacity)
	s.load = zeroed(s.load, n)
	s.weight = zeroed(s.weight, n)
	s.start = zeroed(s.start, n+2)
	s.frozen = zeroed(s.frozen, len(classes))
	s.limited = s.limited[:0]
	for c, cl := range classes {
		for _, u := range cl.uses {
			s.start[u.resource+2]++
			s.weight[u.resource] += u.times * cl.fluids
		}
		if !math.IsInf(cl.ceiling, 1) {
			s.limited = append(s.limited, int32(c))
		}
	}
	for r := range n {
		s.start[r+2] += s.start[r+1]
	}
	s.members = slices.Grow(s.members[:0], int(s.start[n+1]))[:s.start[n+1]]
	for c, cl := range classes {
		for _, u := range cl.uses {
			at := &s.start[u.resource+1] // becomes the end, which is where the next begins
			s.members[*at] = int32(c)
			*at++
		}
	}
	slices.SortFunc(s.limited, func(a, b int32) int {
		return cmp.Or(cmp.Compare(classes[a].ceiling, classes[b].ceiling), cmp.Compare(a, b))
	})
	s.heap = s.heap[:0]
	for r := range n {
		if s.weight[r] > 0 {
			s.heap = append(s.heap, level{capacity[r] / s.weight[r], int32(r)})
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
}

// nextFull is the resource that fills up first and the rate at which it does.
// The level of a resource only rises as fluids on it stop, so a level in the
// heap is a lower bound and is brought up to date when it comes to the top.
func (s *sharing) nextFull(capacity []float64) level {
	for len(s.heap) > 0 {
		top := &s.heap[0]
		r := top.resource
		if s.weight[r] < 0.5 { // whole crossings: none left
			last := len(s.heap) - 1
			s.heap[0] = s.heap[last]
			s.heap = s.heap[:last]
			s.sink(0)
			continue
		}
		rate := max(capacity[r]-s.load[r], 0) / s.weight[r]
		if rate <= top.rate {
			return *top
		}
		top.rate = rate
		s.sink(0)
		if s.heap[0].resource == r {
			return s.heap[0]
		}
	}
	return level{rate: math.Inf(1)}
}

func (s *sharing) sink(i int) {
	h := s.heap
	for {
		kid := 2*i + 1
		if kid >= len(h) {
			return
		}
		if kid+1 < len(h) && before(h[kid+1], h[kid]) {
			kid++
		}
		if !before(h[kid], h[i]) {
			return
		}
		h[i], h[kid] = h[kid], h[i]
		i = kid
	}
}

func before(a, b level) bool {
	return a.rate < b.rate || a.rate == b.rate && a.resource < b.resource
}

// zeroed is a slice of n zeros, in the memory of s if it is large enough.
func zeroed[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	s = s[:n]
	clear(s)
	return s
}
