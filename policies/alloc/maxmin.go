package alloc

import (
	"math"
	"math/bits"

	"testbed/policies"
	"testbed/policies/alloc/maxmin"
)

// filling computes max-min fair rates for the flows of demands by progressive filling. The
// rate of a flow is the minimum level on its path.
type filling struct {
	maxmin.Filling
	level   []float64 // by link: the rate at which it was full, +Inf if it is not full
	members []member
}

// member is a demand in a filling, with the parts to be served.
type member struct {
	d *Demand
	p parts
}

// maxmin applies rule MaxMin.
func (s *Allocator) maxmin(st *policies.Step) {
	s.offer(st)
	for _, c := range st.Coflows {
		if s.takes(st, c) {
			s.join(s.demands[c], of(st.Part))
		}
	}
	s.runFilling()
}

// join adds the flows of some parts of a demand to the filling, if they may have residual
// capacity.
func (s *Allocator) join(d *Demand, p parts) {
	if p != 0 && s.reaches(d, p) {
		s.fill.members = append(s.fill.members, member{d, p})
	}
}

// runFilling computes and sets the rates of the filling's members, and removes them.
func (s *Allocator) runFilling() {
	f := &s.fill
	if len(f.members) == 0 {
		return
	}
	links := s.every
	if len(f.members) == 1 {
		links = f.members[0].d.links
	}
	n := len(s.avail)
	f.Capacity, f.Load, f.Weight, f.level = roomy(f.Capacity, n), roomy(f.Load, n), roomy(f.Weight, n), roomy(f.level, n)
	for _, l := range links {
		f.Capacity[l], f.Load[l], f.Weight[l], f.level[l] = 0, 0, 0, math.Inf(1)
		if s.open(l) {
			f.Capacity[l] = s.avail[l]
		}
	}
	f.Load[n-1], f.Weight[n-1], f.level[n-1] = 0, 0, math.Inf(1)
	for _, m := range f.members {
		for slot, l := range m.d.links {
			f.Weight[l] += float64(m.d.crossing(slot, m.p))
		}
	}
	f.Start(links)
	for l, rate := f.Next(); l >= 0; l, rate = f.Next() {
		for _, m := range f.members {
			f.stop(m, l, rate)
		}
		f.level[l], f.Weight[l] = rate, 0
	}
	for _, m := range f.members {
		s.spread(m.d, m.p, f.level, false)
	}
	for _, l := range links {
		if s.used[l] = 0; !s.last && s.open(l) {
			s.avail[l] = max(f.Capacity[l]-f.Load[l], 0)
			if !math.IsInf(f.level[l], 1) {
				s.avail[l] = 0
			}
		}
	}
	s.used[n-1] = 0
	clear(f.members)
	f.members = f.members[:0]
}

// stop removes the rising flows of a member on a full link from the links on their paths.
func (f *filling) stop(m member, l int32, rate float64) {
	d, slot := m.d, m.d.slot[l]
	if int(slot) == len(d.links) {
		return
	}
	g := d.grid
	if g == nil || g.core {
		for _, place := range d.on(slot) {
			if d.in(place, m.p) {
				f.stopFlow(d.route(place), rate)
			}
		}
		return
	}
	// Flows that have stopped already change only links that are full.
	if r := g.rowOf[slot]; r >= 0 {
		for v := range g.width {
			for b := g.of(int(r)*g.width+v, m.p); b != 0; b &= b - 1 {
				f.remove(g.cols[v*64+bits.TrailingZeros64(b)], rate)
			}
		}
		return
	}
	c := int(g.colOf[slot])
	for w, rows := range g.down[c*g.height:][:g.height] {
		for ; rows != 0; rows &= rows - 1 {
			r := w*64 + bits.TrailingZeros64(rows)
			if g.of(r*g.width+c/64, m.p)>>(c%64)&1 != 0 {
				f.remove(g.rows[r], rate)
			}
		}
	}
}

// stopFlow removes a flow from the links on its path, unless it has stopped already.
func (f *filling) stopFlow(path []int32, rate float64) {
	for _, l := range path {
		if !math.IsInf(f.level[l], 1) {
			return
		}
	}
	for _, l := range path {
		f.remove(l, rate)
	}
}

// remove removes a flow that has stopped from a link.
func (f *filling) remove(l int32, rate float64) {
	f.Load[l] += rate
	f.Weight[l]--
}
