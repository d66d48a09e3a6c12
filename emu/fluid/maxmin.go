package fluid

import (
	"math"

	"testbed/policies/alloc/maxmin"
)

// use is a resource that a class of fluids uses, and how often one fluid crosses it. The
// resource is a link or a disk, as an index of Backend.capacity.
type use struct {
	resource, times int32
}

// class is a set of fluids with the same resources and the same ceiling, and therefore
// the same rate.
type class struct {
	uses       []use // each resource at most once
	fluids     float64
	ceiling    float64 // of each fluid, bit/s; +Inf for none
	rate       float64 // of each fluid, bit/s: the result
	counted    float64 // bit/s: the load that it puts on a resource for each crossing
	bottleneck int32   // the full resource that limits rate; none if the ceiling limits it
	rising     bool    // in a filling: its rate is not final
	round      uint64  // last round in which it rose

	members []*fluid
	listed  int     // index in Backend.classes; -1 if not in it
	at      []int32 // of a listed class: index in resource.on for each of uses
}

// none stands for no resource.
const none = -1

// sharing holds the max-min fair rates of the listed classes under their ceilings.
type sharing struct {
	maxmin.Filling // by resource
	resources      []resource
	round          uint64 // number of calls of update

	// Of a round:
	touched  []int32  // resources whose load or classes change
	part     []*class // classes whose rates are computed
	rising   int      // number of them that are not final
	ceilings []maxmin.Entry[int32]
}

// resource is a link or a disk.
type resource struct {
	on      []crossing // the listed classes that use it
	limits  []*class   // the classes whose bottleneck it is; some may have left
	low     float64    // rounding error of Load
	reached uint64     // last round that touched it
}

// crossing is a class that uses a resource, with the resource's index in the class's uses.
type crossing struct {
	class *class
	use   int32
}

// init sets the capacities, which the caller may change later.
func (s *sharing) init(capacity []float64) {
	n := len(capacity)
	s.Capacity, s.Load, s.Weight, s.resources = capacity, make([]float64, n), make([]float64, n), make([]resource, n)
}

// list and unlist add and remove a class.
func (s *sharing) list(c *class) {
	c.at = c.at[:0]
	for i, u := range c.uses {
		on := &s.resources[u.resource].on
		c.at = append(c.at, int32(len(*on)))
		*on = append(*on, crossing{c, int32(i)})
	}
}

func (s *sharing) unlist(c *class) {
	for i, u := range c.uses {
		s.add(u, -c.counted)
		on := &s.resources[u.resource].on
		end := len(*on) - 1
		moved := (*on)[end]
		(*on)[c.at[i]] = moved
		moved.class.at[moved.use] = c.at[i]
		(*on)[end] = crossing{}
		*on = (*on)[:end]
	}
	c.counted = 0
}

// add adds load to a resource. The sum of Load and low is exact up to about 1e-30 of the
// largest load, so that a load does not drift over millions of changes.
func (s *sharing) add(u use, load float64) {
	x, was := float64(float64(u.times)*load), s.Load[u.resource]
	sum := was + x
	part := sum - was
	s.Load[u.resource] = sum
	s.resources[u.resource].low += (was - (sum - part)) + (x - part)
}

// rateTolerance is the relative difference up to which two rates count as equal, because
// sums are rounded.
const rateTolerance = 1e-12

// update computes the rates of listed classes after changes: classes that were listed or whose
// fluids or ceilings changed, and resources that a class or one of its fluids has left. If the
// capacity of a resource has changed, all its classes count as changed. part and touched are the
// classes and the resources whose rates and loads it computed.
//
// The rates are those of progressive filling over all classes. The rates of all fluids rise
// together; a fluid's rate is final when it reaches its ceiling or when a resource that it uses
// is full. A fluid that crosses a resource k times loads it with k times its rate. A class
// without resources gets its ceiling.
//
// An allocation is max-min fair if and only if every fluid is at its ceiling or uses a full
// resource, its bottleneck, on which no fluid has a higher rate (Bertsekas and Gallager, Data
// Networks, 6.5.2). So a class keeps its rate as long as the load and the rates on its bottleneck
// do not change, and only the others rise. When a resource fills up on which a class that keeps
// its rate is faster, this class rises as well. That does not affect what is final already: a
// resource that was full earlier has no class as fast. A class rises once in a round, even if the
// rounding of a load makes a resource full below its rate.
func (s *sharing) update(changed []*class, resources []int32) {
	s.round++
	s.part, s.touched, s.ceilings = s.part[:0], s.touched[:0], s.ceilings[:0]
	for _, r := range resources {
		s.touch(r)
	}
	for _, c := range changed {
		if c.listed >= 0 {
			s.raise(c)
		}
	}
	s.raiseLimited(0)
	s.Start(s.touched)
	for s.rising > 0 {
		for len(s.ceilings) > 0 && !s.part[s.ceilings[0].Value].rising {
			s.ceilings = maxmin.Pop(s.ceilings)
		}
		ceiling := math.Inf(1)
		if len(s.ceilings) > 0 {
			ceiling = s.ceilings[0].Key
		}
		r, rate := s.Next()
		switch {
		case r < 0 && len(s.ceilings) == 0: // the remaining classes use no resource
			for _, c := range s.part {
				if c.rising {
					s.finish(c, c.ceiling, none)
				}
			}
		case ceiling <= rate:
			s.finish(s.part[s.ceilings[0].Value], ceiling, none)
		case !s.raiseFaster(r, rate):
			for _, x := range s.resources[r].on {
				if x.class.rising {
					s.finish(x.class, rate, r)
				}
			}
		}
	}
}

// raise makes a class rise from 0, once in a round; touch adds a resource to the round.
func (s *sharing) raise(c *class) {
	if c.round == s.round {
		return
	}
	c.round, c.rising = s.round, true
	if s.rising++; !math.IsInf(c.ceiling, 1) {
		s.ceilings = maxmin.Push(s.ceilings, maxmin.Entry[int32]{Key: c.ceiling, Value: int32(len(s.part))})
	}
	s.part = append(s.part, c)
	for _, u := range c.uses {
		s.touch(u.resource)
		s.Weight[u.resource] += float64(u.times) * c.fluids
		s.add(u, -c.counted)
	}
	c.counted = 0
}

func (s *sharing) touch(r int32) {
	x := &s.resources[r]
	if x.reached == s.round {
		return
	}
	x.reached = s.round
	s.touched = append(s.touched, r)
	load := s.Load[r]
	if s.Load[r] += x.low; len(x.on) == 0 {
		s.Load[r] = 0
	}
	x.low -= s.Load[r] - load
}

// raiseLimited raises the classes that the resources of touched limit, from an index of touched on.
func (s *sharing) raiseLimited(from int) {
	for ; from < len(s.touched); from++ {
		r := s.touched[from]
		for _, c := range s.resources[r].limits {
			if c.listed >= 0 && c.bottleneck == r {
				s.raise(c)
			}
		}
		s.resources[r].limits = s.resources[r].limits[:0]
	}
}

// raiseFaster raises the classes that use a resource, have kept their rates and are faster than a
// rate, with all that this affects, and reports whether there are any.
func (s *sharing) raiseFaster(r int32, rate float64) bool {
	classes, resources := len(s.part), len(s.touched)
	for _, x := range s.resources[r].on {
		if c := x.class; c.round != s.round && c.rate > rate*(1+rateTolerance) {
			s.raise(c)
		}
	}
	if len(s.part) == classes {
		return false
	}
	s.raiseLimited(resources)
	for _, c := range s.part[classes:] {
		for _, u := range c.uses {
			s.Rise(u.resource)
		}
	}
	return true
}

// finish makes the rate of a rising class final.
func (s *sharing) finish(c *class, rate float64, by int32) {
	c.rate, c.bottleneck, c.rising = rate, by, false
	s.rising--
	c.counted = c.fluids * rate
	for _, u := range c.uses {
		s.Weight[u.resource] -= float64(u.times) * c.fluids
		s.add(u, c.counted)
	}
	if by != none {
		limits := &s.resources[by].limits
		*limits = append(*limits, c)
	}
}
