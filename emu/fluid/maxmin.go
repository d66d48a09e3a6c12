package fluid

import (
	"math"
	"slices"

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
	uses    []use // each resource at most once
	fluids  float64
	ceiling float64 // of each fluid, bit/s; +Inf for none
	members []*fluid
	listed  int // index in Backend.classes; -1 if not in it

	// Of a listed class:
	bottleneck int32   // the full resource that limits its rate; none if its ceiling limits it
	place      int32   // index in limits of its bottleneck
	weighed    float64 // fluids, as of the newest filling
	safe       float64 // rate up to which none of its resources fills up that is not watched
	rising     bool    // its rate is not final, and it has no bottleneck
	round      uint64  // last round in which it was taken from its bottleneck
	at         []place // by use
	clock      *clock  // of its fluids: that of its bottleneck, or its own
	own        clock   // while no resource limits it
}

// place is where a class is listed for one of its uses: in resource.on, and in resource.row of its
// bottleneck, or none.
type place struct {
	on, row int32
}

// none stands for no resource.
const none = -1

// sharing holds the max-min fair rates of the listed classes under their ceilings.
//
// A resource that limits classes has a level, the rate of all of them, so that a change of rates
// is a change of levels. The load that these classes put on other resources is kept as a row of sums.
// An update therefore costs the number of levels and sums that change, not that of classes or fluids.
//
// Most resources limit nothing: only those that do, or did and are still nearly full, are watched.
// The others share out what they have left: each class on them may rise up to a safe rate, and
// they are looked at again if one rises above it.
type sharing struct {
	maxmin.Filling // by resource; Load is kept of watched resources only
	resources      []resource
	round          uint64

	// Of an update:
	limited []int32  // resources whose level may have changed
	moved   []*class // whose clock may have changed

	// Of a round:
	touched  []int32  // watched resources whose load changes
	loose    []*class // that rise, or rose, without a bottleneck
	rising   int      // number of loose classes and touched resources that are not final
	suspects []*class // above their safe rates
}

// resource is a link or a disk.
type resource struct {
	clock   clock      // of the fluids of limits
	level   float64    // rate of limits; +Inf for none
	on      []crossing // the listed classes that use it
	limits  []*class   // the classes whose bottleneck it is
	weight  float64    // number of crossings of the fluids of limits
	row     []spill    // what limits put on other watched resources
	safe    float64    // at most the lowest safe rate of limits
	ceiling float64    // at most the lowest ceiling of limits
	beside  float64    // while it is watched: at least the highest rate of the other classes on it
	watched bool
	rising  bool    // its level is not final
	low     float64 // rounding error of Load
	reached uint64  // last round that touched it
	checked uint64  // last round that compared its load with its capacity
	updated uint64  // first round of the last update that touched it
	divided uint64  // last round that computed part
	part    float64 // capacity for each fluid on it
}

// crossing is a class that uses a resource, with the resource's index in the class's uses.
type crossing struct {
	class *class
	use   int32
}

// spill is the number of crossings of a resource by the fluids that another one limits, in a number
// of classes. 0 classes is an unused entry.
type spill struct {
	resource, classes int32
	weight            float64
}

const (
	// rateTolerance is the relative difference up to which two rates count as equal, because
	// sums are rounded.
	rateTolerance = 1e-12
	// nearlyFull is the share of its capacity above which a resource that limits nothing is still watched.
	nearlyFull = 0.9
)

// init sets the capacities, which the caller may change later.
func (s *sharing) init(capacity []float64) {
	n := len(capacity)
	s.Capacity, s.Load, s.Weight, s.resources = capacity, make([]float64, n), make([]float64, n), make([]resource, n)
	for r := range s.resources {
		s.resources[r].level = math.Inf(1)
	}
}

// list and unlist add and remove a class.
func (s *sharing) list(c *class) {
	c.at, c.bottleneck, c.weighed, c.round = slices.Grow(c.at[:0], len(c.uses)), none, 0, 0
	for i, u := range c.uses {
		on := &s.resources[u.resource].on
		c.at = append(c.at, place{int32(len(*on)), none})
		*on = append(*on, crossing{c, int32(i)})
	}
}

func (s *sharing) unlist(c *class) {
	s.unload(c)
	s.detach(c)
	for i, u := range c.uses {
		on := &s.resources[u.resource].on
		end := len(*on) - 1
		moved := (*on)[end]
		(*on)[c.at[i].on] = moved
		moved.class.at[moved.use].on = c.at[i].on
		(*on)[end] = crossing{}
		*on = (*on)[:end]
	}
}

// rateOf returns the rate of each fluid of a class.
func (s *sharing) rateOf(c *class) float64 {
	if c.bottleneck != none {
		return s.resources[c.bottleneck].level
	}
	return c.ceiling
}

// clockOf returns the clock of the fluids of a class.
func (s *sharing) clockOf(c *class) *clock {
	if c.bottleneck != none {
		return &s.resources[c.bottleneck].clock
	}
	return &c.own
}

// loadOf returns the load of a resource.
func (s *sharing) loadOf(r int32) (load float64) {
	for _, x := range s.resources[r].on {
		load += float64(x.class.weigh(x.use) * s.rateOf(x.class))
	}
	return load
}

// weigh returns how often the fluids of a class cross one of its resources.
func (c *class) weigh(use int32) float64 { return float64(c.uses[use].times) * c.weighed }

// add adds load to a resource. The sum of Load and low is exact up to about 1e-30 of the
// largest load, so that a load does not drift over millions of changes.
func (s *sharing) add(r int32, x float64) {
	was := s.Load[r]
	sum := was + x
	part := sum - was
	s.Load[r] = sum
	s.resources[r].low += (was - (sum - part)) + (x - part)
}

// unload takes the load of a class from its resources.
func (s *sharing) unload(c *class) {
	rate := s.rateOf(c)
	if c.weighed == 0 || math.IsInf(rate, 1) { // then it crosses no watched resource
		return
	}
	for i, u := range c.uses {
		if s.resources[u.resource].watched {
			s.add(u.resource, -float64(c.weigh(int32(i))*rate))
		}
	}
}

// attach makes a resource the bottleneck of a class, and detach leaves it without one. A class that
// rises still does.
func (s *sharing) attach(c *class, r int32) {
	x := &s.resources[r]
	c.bottleneck, c.place, c.rising = r, int32(len(x.limits)), false
	x.limits = append(x.limits, c)
	x.safe, x.ceiling = min(x.safe, c.safe), min(x.ceiling, c.ceiling)
	if len(x.limits) == 1 {
		x.safe, x.ceiling = c.safe, c.ceiling
	}
	for i, u := range c.uses {
		switch {
		case u.resource == r:
			x.weight += c.weigh(int32(i))
		case s.resources[u.resource].watched:
			s.spill(c, int32(i))
		}
	}
}

func (s *sharing) detach(c *class) {
	if c.bottleneck == none {
		return
	}
	x := &s.resources[c.bottleneck]
	end := len(x.limits) - 1
	x.limits[c.place] = x.limits[end]
	x.limits[c.place].place = c.place
	x.limits[end] = nil
	x.limits = x.limits[:end]
	for i, u := range c.uses {
		if u.resource == c.bottleneck {
			x.weight -= c.weigh(int32(i))
		} else {
			s.unspill(c, int32(i))
		}
	}
	c.bottleneck = none
}

// spill counts a use of a watched resource in the row of the class's bottleneck.
func (s *sharing) spill(c *class, use int32) {
	row := &s.resources[c.bottleneck].row
	at := int32(none)
	for i := range *row {
		switch e := &(*row)[i]; {
		case e.classes == 0:
			at = int32(i)
		case e.resource == c.uses[use].resource:
			e.classes, e.weight, c.at[use].row = e.classes+1, e.weight+c.weigh(use), int32(i)
			return
		}
	}
	if at == none {
		at = int32(len(*row))
		*row = append(*row, spill{})
	}
	(*row)[at] = spill{c.uses[use].resource, 1, c.weigh(use)}
	c.at[use].row = at
}

func (s *sharing) unspill(c *class, use int32) {
	if at := c.at[use].row; at != none {
		e := &s.resources[c.bottleneck].row[at]
		e.classes, e.weight, c.at[use].row = e.classes-1, e.weight-c.weigh(use), none
	}
}
