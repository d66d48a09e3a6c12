package fluid

import "math"

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
