package fluid

import (
	"cmp"
	"math"
	"slices"

	"testbed/policies/alloc/maxmin"
)

// use is a resource that a class of fluids uses, and how often one fluid crosses it. The
// resource is a link or a disk, as an index of Backend.capacity.
type use struct {
	resource int32
	times    float64
}

// class is a set of fluids with the same resources and the same ceiling, and therefore
// the same rate.
type class struct {
	uses    []use // each resource at most once
	fluids  float64
	ceiling float64 // of each fluid, bit/s; +Inf for none
	rate    float64 // of each fluid, bit/s: the result

	members    []*fluid
	listed     int     // index in Backend.classes; -1 if not in it
	at         []int32 // of a listed class: index in sharing.on for each of uses
	bottleneck int32   // the full resource that limits rate; none if the ceiling limits it
	round      uint64  // last round of sharing.update that computed rate
}

// none stands for no resource.
const none = -1

// sharing computes max-min fair rates under ceilings: of all classes (rates), or only of
// the classes that a change affects (update).
type sharing struct {
	maxmin.Filling         // by resource
	members        []int32 // classes of all resources, concatenated
	first          []int32 // by resource: start of its classes in members
	last           []int32 // by resource: end of its classes in members
	frozen         []bool  // by class
	limited        []int32 // classes with a ceiling, lowest first
	full           []level // resources that limited classes, and the rate of each
	every          []int32 // all resources

	on      [][]crossing // by resource: the listed classes that use it
	round   uint64       // number of calls of update
	reached []uint64     // by resource: last round that touched it
	touched []int32      // resources of this round
	part    []*class     // classes of this round
}

// crossing is a class that uses a resource, with the resource's index in the class's uses.
type crossing struct {
	class *class
	use   int32
}

// level is the rate at which a resource is full.
type level struct {
	rate     float64
	resource int32
}

// rates sets the rate of every class: the max-min fair allocation under the
// classes' ceilings, by progressive filling. The rates of all fluids rise together;
// a fluid's rate is final when it reaches its ceiling or when a resource that it uses is
// full. A fluid that crosses a resource k times loads it with k times its rate.
//
// A class without resources gets its ceiling. The order of ties between ceilings and
// resources does not affect the rates.
func (s *sharing) rates(classes []*class, capacity []float64) {
	s.size(capacity)
	clear(s.Load)
	if s.underCeilings(classes, capacity) {
		return
	}
	clear(s.Load)
	s.fill(classes, s.every)
}

// size allocates the tables for the resources.
func (s *sharing) size(capacity []float64) {
	n := len(capacity)
	s.Capacity = capacity
	if len(s.every) == n {
		return
	}
	s.Load, s.Weight = make([]float64, n), make([]float64, n)
	s.first, s.last = make([]int32, n), make([]int32, n)
	s.on, s.reached = make([][]crossing, n), make([]uint64, n)
	s.every = make([]int32, n)
	for r := range s.every {
		s.every[r] = int32(r)
	}
}

// fill sets the rates of the given classes, which use only the given resources. On entry
// the load of these resources is that of all other classes; on return, that of all classes.
func (s *sharing) fill(classes []*class, resources []int32) {
	s.index(classes, resources)
	left := len(classes)
	freeze := func(c int32, rate float64, by int32) {
		cl := classes[c]
		cl.rate, cl.bottleneck, s.frozen[c] = rate, by, true
		for _, u := range cl.uses {
			w := u.times * cl.fluids
			s.Load[u.resource] += float64(w * rate)
			s.Weight[u.resource] -= w
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
		resource, rate := s.Next()
		if ceiling <= rate {
			if len(limited) == 0 {
				break // the remaining classes use no resource
			}
			freeze(limited[0], ceiling, none)
			continue
		}
		s.full = append(s.full, level{rate: rate, resource: resource})
		for _, c := range s.members[s.first[resource]:s.last[resource]] {
			if !s.frozen[c] {
				freeze(c, rate, resource)
			}
		}
	}
	for c, cl := range classes {
		if !s.frozen[c] {
			cl.rate, cl.bottleneck = cl.ceiling, none
		}
	}
}

// underCeilings sets every class's rate to its ceiling and reports true, if all classes
// have a ceiling and no resource is overloaded. Coflow schedulers usually set such
// ceilings; progressive filling is then unnecessary.
func (s *sharing) underCeilings(classes []*class, capacity []float64) bool {
	for _, cl := range classes {
		if math.IsInf(cl.ceiling, 1) && len(cl.uses) > 0 {
			return false
		}
		for _, u := range cl.uses {
			s.Load[u.resource] += float64(u.times * cl.fluids * cl.ceiling)
		}
	}
	for r, l := range s.Load {
		if l > capacity[r] {
			return false
		}
	}
	for _, cl := range classes {
		cl.rate, cl.bottleneck = cl.ceiling, none
	}
	return true
}

// index lists the classes on each resource, computes the weights and starts the filling.
func (s *sharing) index(classes []*class, resources []int32) {
	s.frozen = zeroed(s.frozen, len(classes))
	s.limited, s.full = s.limited[:0], s.full[:0]
	for _, r := range resources {
		s.Weight[r], s.last[r] = 0, 0
	}
	for c, cl := range classes {
		for _, u := range cl.uses {
			s.last[u.resource]++ // a count, until first is known
			s.Weight[u.resource] += u.times * cl.fluids
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
	s.Start(resources)
}

// list and unlist add and remove a class in the lists by resource that update uses.
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

// rateTolerance is the relative difference up to which two rates count as equal, because
// sums are rounded.
const rateTolerance = 1e-12

// update updates the rates of listed classes after classes have changed or were listed,
// and after fluids that used the given resources have left. The result equals that of
// rates: an allocation is max-min fair if and only if every fluid is at its
// ceiling or uses a full resource, its bottleneck, on which no fluid has a higher rate
// (Bertsekas and Gallager, Data Networks, 6.5.2). So a class keeps its rate as long as
// the rates on its bottleneck do not change. The classes for which they may change are
// filled again, with the rates of all others fixed. If one of the others then has a
// higher rate on a bottleneck than the classes that it limits, the class is added to
// the recomputed classes and the step repeats.
//
// It gives up and returns false if it would compute the rates of more than most classes,
// counting repetitions. part and touched contain the classes and resources of the round.
func (s *sharing) update(changed []*class, resources []int32, capacity []float64, most int) bool {
	s.Capacity = capacity
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
	seen := 0 // resources of touched whose classes were examined
	work := 0 // number of class rates computed, including repetitions
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
			s.Load[r] = 0
			for _, x := range s.on[r] {
				if c := x.class; c.round != s.round {
					s.Load[r] += float64(c.uses[x.use].times * c.fluids * c.rate)
				}
			}
		}
		s.fill(s.part, s.touched)
		before := len(s.part)
		for _, f := range s.full {
			for _, x := range s.on[f.resource] {
				if c := x.class; c.round != s.round && c.rate > f.rate*(1+rateTolerance) {
					s.take(c)
				}
			}
		}
		if len(s.part) == before {
			return true
		}
	}
}

// take adds a class and its resources to this round; touch adds a resource.
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

// zeroed returns a slice of n zeros, in the memory of s if that is large enough.
func zeroed[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	s = s[:n]
	clear(s)
	return s
}
