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

// update computes the rates of listed classes after changes: classes that were listed or whose
// fluids changed, and resources that a class or one of its fluids has left. If the capacity of a
// resource has changed, all its classes count as changed.
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
//
// A round assumes that resources that are not watched do not fill up. If one does, it is
// watched from then on, and another round begins.
func (s *sharing) update(changed []*class, resources []int32) {
	s.limited, s.moved = s.limited[:0], s.moved[:0]
	s.begin()
	first := s.round
	for _, r := range resources {
		if s.resources[r].watched {
			s.touch(r)
		}
	}
	for _, c := range changed {
		if c.listed >= 0 {
			s.loosen(c)
			c.safe = -1
		}
	}
	for {
		s.raiseLimited(0)
		s.Start(s.touched)
		s.fill()
		for _, r := range s.touched {
			if x := &s.resources[r]; x.updated < first {
				x.updated = first
				s.limited = append(s.limited, r)
			}
		}
		s.moved = append(s.moved, s.loose...)
		full := s.check()
		if len(full) == 0 {
			return
		}
		s.begin()
		for _, r := range full {
			s.watch(r)
		}
		for _, r := range full {
			for _, x := range s.resources[r].on {
				if s.keeps(x.class) {
					s.raise(x.class)
				}
			}
		}
	}
}

func (s *sharing) begin() {
	s.round++
	s.touched, s.loose, s.suspects = s.touched[:0], s.loose[:0], s.suspects[:0]
}

// touch adds a watched resource to the round.
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
		x := &s.resources[r]
		x.rising = true
		s.rising++
		if x.weight == 0 {
			continue
		}
		s.Weight[r] += x.weight
		s.add(r, -float64(x.weight*x.level))
		for _, e := range x.row {
			if e.classes > 0 {
				s.touch(e.resource)
				s.Weight[e.resource] += e.weight
				s.add(e.resource, -float64(e.weight*x.level))
			}
		}
	}
}

// loosen makes a class rise without a bottleneck, once in a round. The caller calls raiseLimited.
func (s *sharing) loosen(c *class) {
	if c.round == s.round {
		return
	}
	if c.bottleneck != none {
		s.touch(c.bottleneck)
	}
	s.unload(c)
	s.detach(c)
	c.weighed = c.fluids
	c.round, c.rising = s.round, true
	s.loose = append(s.loose, c)
	s.rising++
	for i, u := range c.uses {
		if s.resources[u.resource].watched {
			s.touch(u.resource)
			s.Weight[u.resource] += c.weigh(int32(i))
		}
	}
}

// fill finds the levels of the resources of touched, and the rates of the loose classes.
func (s *sharing) fill() {
	for s.rising > 0 {
		r, rate := s.Next()
		if r < 0 {
			break
		}
		switch x := &s.resources[r]; {
		case !x.rising: // by rounding, a class rises above a level that is final
			s.hold(r)
		case !s.raiseFaster(r, rate) && !s.reachCeilings(r, rate) && !s.gather(r, rate):
			s.finish(r, x, rate)
		}
	}
	for _, r := range s.touched { // those that limit nothing any more
		if x := &s.resources[r]; x.rising {
			x.rising, x.level = false, math.Inf(1)
			s.rising--
		}
	}
	for _, c := range s.loose { // those that no watched resource limits
		if c.rising {
			s.settle(c)
		}
	}
}

// finish makes the level of a resource final.
func (s *sharing) finish(r int32, x *resource, rate float64) {
	x.level, x.rising = rate, false
	s.rising--
	s.Weight[r] -= x.weight
	s.add(r, float64(x.weight*rate))
	for _, e := range x.row {
		if e.classes > 0 {
			s.Weight[e.resource] -= e.weight
			s.add(e.resource, float64(e.weight*rate))
			s.resources[e.resource].beside = max(s.resources[e.resource].beside, rate)
		}
	}
	if rate > x.safe {
		x.safe = math.Inf(1)
		for _, c := range x.limits {
			if rate > c.safe {
				s.suspects = append(s.suspects, c)
			} else {
				x.safe = min(x.safe, c.safe)
			}
		}
	}
}

// settle makes the rate of a class that rises its ceiling.
func (s *sharing) settle(c *class) {
	c.rising = false
	s.freeze(c, c.ceiling)
}

// hold gives the classes on a resource that rise its final level.
func (s *sharing) hold(r int32) {
	x := &s.resources[r]
	for _, y := range x.on {
		if c := y.class; s.rises(c) {
			s.uncover(c)
			s.attach(c, r)
			s.freeze(c, x.level)
		}
	}
}

// freeze makes the rate of a loose class that rises final.
func (s *sharing) freeze(c *class, rate float64) {
	s.rising--
	for i, u := range c.uses {
		if x := &s.resources[u.resource]; x.watched {
			w := c.weigh(int32(i))
			s.Weight[u.resource] -= w
			s.add(u.resource, float64(w*rate))
			x.beside = max(x.beside, rate)
		}
	}
	if rate > c.safe {
		s.suspects = append(s.suspects, c)
	}
}

// rises reports whether the rate of a class is not final.
func (s *sharing) rises(c *class) bool {
	if c.bottleneck != none {
		return s.resources[c.bottleneck].rising
	}
	return c.rising
}

// raiseFaster raises the classes that use a resource, have kept their rates and are faster than a
// rate, with all that this affects, and reports whether there are any.
func (s *sharing) raiseFaster(r int32, rate float64) bool {
	x := &s.resources[r]
	if x.beside <= rate*(1+rateTolerance) {
		return false
	}
	x.beside = 0
	touched, loose := len(s.touched), len(s.loose)
	for _, y := range x.on {
		switch c := y.class; {
		case s.rises(c):
		case s.keeps(c) && s.rateOf(c) > rate*(1+rateTolerance):
			s.raise(c)
		default:
			x.beside = max(x.beside, s.rateOf(c))
		}
	}
	return s.rise(touched, loose)
}

// keeps reports whether a class keeps its rate in this round, as far as is known.
func (s *sharing) keeps(c *class) bool {
	if c.bottleneck != none {
		return s.resources[c.bottleneck].reached != s.round
	}
	return c.round != s.round
}

// raise makes a class rise that has kept its rate, with its bottleneck.
func (s *sharing) raise(c *class) {
	if c.bottleneck != none {
		s.touch(c.bottleneck)
	} else {
		s.loosen(c)
	}
}

// rise continues a filling after resources were touched and classes loosened, from indices of touched and loose on,
// and reports whether there are any.
func (s *sharing) rise(touched, loose int) bool {
	if len(s.touched) == touched && len(s.loose) == loose {
		return false
	}
	s.raiseLimited(touched)
	for _, r := range s.touched[touched:] {
		s.Rise(r)
		for _, e := range s.resources[r].row {
			if e.classes > 0 {
				s.Rise(e.resource)
			}
		}
	}
	for _, c := range s.loose[loose:] {
		for _, u := range c.uses {
			if s.resources[u.resource].watched {
				s.Rise(u.resource)
			}
		}
	}
	return true
}

// reachCeilings gives the classes that a resource limits and whose ceilings are at most a rate these ceilings,
// and reports whether there are any.
func (s *sharing) reachCeilings(r int32, rate float64) bool {
	x := &s.resources[r]
	if x.ceiling > rate {
		return false
	}
	x.ceiling = math.Inf(1)
	any := false
	for i := len(x.limits) - 1; i >= 0; i-- {
		if c := x.limits[i]; c.ceiling <= rate {
			any = true
			s.uncover(c)
			s.settle(c)
		} else {
			x.ceiling = min(x.ceiling, c.ceiling)
		}
	}
	return any
}

// uncover takes a class that rises from its bottleneck, if it has one.
func (s *sharing) uncover(c *class) {
	if c.bottleneck == none {
		return
	}
	s.detach(c)
	c.round, c.rising = s.round, true
	s.loose = append(s.loose, c)
	s.rising++
}

// gather makes a resource the bottleneck of the other classes on it that rise, except for those with
// ceilings of at most a rate, which get these. It reports whether there are any of the latter.
func (s *sharing) gather(r int32, rate float64) (any bool) {
	x := &s.resources[r]
	if s.Weight[r]-x.weight < 0.5 { // whole crossings: none
		return false
	}
	for _, y := range x.on {
		c := y.class
		if c.bottleneck == r || !s.rises(c) {
			continue
		}
		s.uncover(c)
		if c.ceiling <= rate {
			any = true
			s.settle(c)
			continue
		}
		s.rising--
		s.attach(c, r)
	}
	return any
}

// check shares out what the resources that are not watched have left to the classes that are
// above their safe rates. It returns those that are overfull.
func (s *sharing) check() (full []int32) {
	for _, c := range s.suspects {
		c.safe = math.Inf(1)
	}
	for _, c := range s.suspects {
		if math.IsInf(s.rateOf(c), 1) { // it fills up one of its resources
			c.safe = -1
			if r := s.tightest(c); r != none {
				full = append(full, r)
			}
			continue
		}
		for _, u := range c.uses {
			if s.shareOut(u.resource) {
				full = append(full, u.resource)
			}
		}
	}
	for _, r := range s.touched {
		if x := &s.resources[r]; x.watched && len(x.limits) == 0 && s.Load[r] < nearlyFull*s.Capacity[r] {
			s.unwatch(r)
		}
	}
	for _, c := range s.suspects {
		if c.bottleneck != none {
			x := &s.resources[c.bottleneck]
			x.safe = min(x.safe, c.safe)
		}
	}
	return full
}

// tightest returns the resource of a class with the least capacity for each of its fluids, or none.
func (s *sharing) tightest(c *class) (tightest int32) {
	tightest = none
	least := math.Inf(1)
	for _, u := range c.uses {
		x := &s.resources[u.resource]
		if x.divided != s.round {
			weight := 0.0
			for _, y := range x.on {
				weight += y.class.weigh(y.use)
			}
			x.divided, x.part = s.round, s.Capacity[u.resource]/weight
		}
		if x.part < least {
			tightest, least = u.resource, x.part
		}
	}
	return tightest
}

// shareOut lets the classes of a resource that is not watched rise by what it has left, and reports whether
// it is overfull.
func (s *sharing) shareOut(r int32) bool {
	x := &s.resources[r]
	if x.watched || x.checked == s.round {
		return false
	}
	x.checked = s.round
	load, weight := 0.0, 0.0
	for _, y := range x.on {
		w := y.class.weigh(y.use)
		load, weight = load+float64(w*s.rateOf(y.class)), weight+w
	}
	if load > s.Capacity[r]*(1+rateTolerance) {
		return true
	}
	left := max(s.Capacity[r]-load, 0) / weight
	for _, y := range x.on {
		c := y.class
		c.safe = min(c.safe, s.rateOf(c)+left)
		if c.bottleneck != none {
			b := &s.resources[c.bottleneck]
			b.safe = min(b.safe, c.safe)
		}
	}
	return false
}

// watch makes a resource one that may limit classes. The caller raises those on it.
func (s *sharing) watch(r int32) {
	x := &s.resources[r]
	if x.watched {
		return
	}
	x.watched, x.beside, s.Load[r], x.low = true, math.Inf(1), 0, 0
	s.touch(r)
	for _, y := range x.on {
		c := y.class
		if rate := s.rateOf(c); !math.IsInf(rate, 1) {
			s.add(r, float64(c.weigh(y.use)*rate))
		}
		if c.bottleneck != none {
			s.spill(c, y.use)
		}
	}
}

// unwatch ends the watch of a resource.
func (s *sharing) unwatch(r int32) {
	x := &s.resources[r]
	x.watched = false
	for _, y := range x.on {
		s.unspill(y.class, y.use)
	}
	s.shareOut(r)
}
