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
	uses    []use // each resource at most once
	fluids  float64
	ceiling float64 // of each fluid, bit/s; +Inf for none
	rate    float64 // of each fluid, bit/s: the answer

	members    []*fluid
	listed     int     // place in the backend's list of classes, -1 when not on it
	at         []int32 // parallel to uses: places in sharing.on, of a listed class
	bottleneck int32   // the resource whose filling up held rate; none where that was its ceiling
	round      uint64  // the newest of sharing.around that computed rate
}

// none is no resource.
const none = -1

// sharing computes max-min fair rates under ceilings, of all classes (rates) or of
// those that a change reaches (around).
type sharing struct {
	load    []float64 // by resource: rate of its fluids that have their final rate
	weight  []float64 // by resource: crossings of its fluids that do not
	members []int32   // classes of all resources, end to end
	first   []int32   // by resource: where its members begin
	last    []int32   // by resource: where they end
	frozen  []bool    // by class
	limited []int32   // classes with a ceiling, lowest first
	heap    []level
	full    []level // resources that held classes, and at which rate
	every   []int32 // all resources

	on      [][]crossing // by resource: the listed classes that draw on it
	round   uint64       // of around
	reached []uint64     // by resource: the newest round that touched it
	touched []int32      // resources of this round
	part    []*class     // classes of this round
}

// crossing is a class that draws on a resource, by its place in the class's uses.
type crossing struct {
	class *class
	use   int32
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
	s.size(len(capacity))
	clear(s.load)
	if s.underCeilings(classes, capacity) {
		return
	}
	clear(s.load)
	s.fill(classes, s.every, capacity)
}

// size makes room for so many resources.
func (s *sharing) size(n int) {
	if len(s.every) == n {
		return
	}
	s.load, s.weight = make([]float64, n), make([]float64, n)
	s.first, s.last = make([]int32, n), make([]int32, n)
	s.on, s.reached = make([][]crossing, n), make([]uint64, n)
	s.every = make([]int32, n)
	for r := range s.every {
		s.every[r] = int32(r)
	}
}

// fill sets the rates of some classes, which draw on no other resources than those
// given. The load of these says what others take of them, and then what all do.
func (s *sharing) fill(classes []*class, resources []int32, capacity []float64) {
	s.index(classes, resources, capacity)
	left := len(classes)
	freeze := func(c int32, rate float64, by int32) {
		cl := classes[c]
		cl.rate, cl.bottleneck, s.frozen[c] = rate, by, true
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
			freeze(limited[0], ceiling, none)
			continue
		}
		s.full = append(s.full, full)
		for _, c := range s.members[s.first[full.resource]:s.last[full.resource]] {
			if !s.frozen[c] {
				freeze(c, full.rate, full.resource)
			}
		}
	}
	for c, cl := range classes {
		if !s.frozen[c] {
			cl.rate, cl.bottleneck = cl.ceiling, none
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
		cl.rate, cl.bottleneck = cl.ceiling, none
	}
	return true
}

// index lists the classes on each resource and fills the heap and the weights.
func (s *sharing) index(classes []*class, resources []int32, capacity []float64) {
	s.frozen = zeroed(s.frozen, len(classes))
	s.limited, s.heap, s.full = s.limited[:0], s.heap[:0], s.full[:0]
	for _, r := range resources {
		s.weight[r], s.last[r] = 0, 0
	}
	for c, cl := range classes {
		for _, u := range cl.uses {
			s.last[u.resource]++ // until first is known, how many
			s.weight[u.resource] += u.times * cl.fluids
		}
		if !math.IsInf(cl.ceiling, 1) {
			s.limited = append(s.limited, int32(c))
		}
	}
	members := int32(0)
	for _, r := range resources {
		s.first[r] = members
		members += s.last[r]
		s.last[r] = s.first[r]
		if s.weight[r] > 0 {
			s.heap = append(s.heap, level{max(capacity[r]-s.load[r], 0) / s.weight[r], r})
		}
	}
	s.members = slices.Grow(s.members[:0], int(members))[:members]
	for c, cl := range classes {
		for _, u := range cl.uses {
			at := &s.last[u.resource]
			s.members[*at] = int32(c)
			*at++
		}
	}
	slices.SortFunc(s.limited, func(a, b int32) int {
		return cmp.Or(cmp.Compare(classes[a].ceiling, classes[b].ceiling), cmp.Compare(a, b))
	})
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
}

// list and unlist keep the classes on each resource for around.
func (s *sharing) list(c *class) {
	c.at = c.at[:0]
	for i, u := range c.uses {
		c.at = append(c.at, int32(len(s.on[u.resource])))
		s.on[u.resource] = append(s.on[u.resource], crossing{c, int32(i)})
	}
}

func (s *sharing) unlist(c *class) {
	for i, u := range c.uses {
		on := s.on[u.resource]
		end := len(on) - 1
		moved := on[end]
		on[c.at[i]] = moved
		moved.class.at[moved.use] = c.at[i]
		on[end] = crossing{}
		s.on[u.resource] = on[:end]
	}
}

// equal is how much, relatively, a rate may be above another and be the same but for
// the rounding of sums.
const equal = 1e-12

// around brings the rates of listed classes up to date after some classes have
// changed, or were listed, and others that drew on some resources were. The answer is
// that of rates: an allocation is max-min fair if and only if every fluid is at its
// ceiling or draws on a full resource, its bottleneck, on which none has more
// (Bertsekas and Gallager, Data Networks, 6.5.2). So a class keeps its rate as long as
// nothing of what its bottleneck carries changes. Those for which that may not hold
// are shared out anew beside the others. Where one of the others then has more on a
// bottleneck than the classes it holds, it has to give way, and joins them.
//
// It gives up, and tells so, where that comes to computing the rates of more classes
// than most. What it has worked on is in part and touched.
func (s *sharing) around(changed []*class, resources []int32, capacity []float64, most int) bool {
	s.round++
	s.part, s.touched = s.part[:0], s.touched[:0]
	for _, r := range resources {
		s.touch(r)
	}
	for _, c := range changed {
		if c.listed >= 0 {
			s.take(c)
		}
	}
	seen := 0 // of touched, whose classes were looked at
	work := 0 // classes whose rates were computed, each time counted
	for {
		for ; seen < len(s.touched); seen++ {
			r := s.touched[seen]
			for _, x := range s.on[r] {
				if x.class.bottleneck == r {
					s.take(x.class)
				}
			}
		}
		if work += len(s.part); work > most {
			return false
		}
		for _, r := range s.touched {
			s.load[r] = 0
			for _, x := range s.on[r] {
				if c := x.class; c.round != s.round {
					s.load[r] += float64(c.uses[x.use].times * c.fluids * c.rate)
				}
			}
		}
		s.fill(s.part, s.touched, capacity)
		before := len(s.part)
		for _, f := range s.full {
			for _, x := range s.on[f.resource] {
				if c := x.class; c.round != s.round && c.rate > f.rate*(1+equal) {
					s.take(c)
				}
			}
		}
		if len(s.part) == before {
			return true
		}
	}
}

// take makes a class one of this round's, and touch a resource.
func (s *sharing) take(c *class) {
	if c.round == s.round {
		return
	}
	c.round = s.round
	s.part = append(s.part, c)
	for _, u := range c.uses {
		s.touch(u.resource)
	}
}

func (s *sharing) touch(r int32) {
	if s.reached[r] != s.round {
		s.reached[r] = s.round
		s.touched = append(s.touched, r)
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
