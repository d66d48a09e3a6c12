package tracesim

import (
	"math"
	"slices"

	"testbed/emu/clock"
	"testbed/policies"
	"testbed/topo"
)

// classes are the flows of all coflows where none has a ceiling, by their paths:
// flows of one path have the same max-min fair rate at all times. So a class keeps
// one count of the bits that each of its flows has been served, and a flow ends when
// that has risen by its size. When a flow ends, only links that were full at its
// rate or later are filled anew, since progressive filling below it stays what it was.
type classes struct {
	of    map[*topo.LinkID]int32 // by the first link of the path, which is kept once
	class []class
	queue [][]member // by class: its flows, a heap by their ends
	done  []float64  // by class: ns since base until its first flow ends
	first []float64  // the least done of every block of classes
	stale []bool     // by block: first is to be found anew

	// By link:
	capacity []float64
	load     []float64 // bit/s of flows that have stopped rising
	weight   []float64 // flows that rise
	level    []float64 // rate at which it was full; -1 for one that has not filled up
	members  [][]int32 // classes that cross it

	base  clock.Moment
	heap  []mark
	ended []member
}

// class fills a line of the cache.
type class struct {
	flows  float64 // unfinished
	rate   float64 // bit/s of each flow
	served float64 // bits of each flow, at
	at     float64 // ns since base
	next   float64 // served when its first flow ends
	path   [most]int32
	links  uint8
	rising bool // while filling
}

const (
	most  = 4  // links of a path through a fabric
	block = 64 // classes
	// staleAfter is how many ns from base, and staleServed how many bits, are counted
	// before counting begins anew: where a float64 is still precise.
	staleAfter  = 1 << 36
	staleServed = 1 << 36
)

// member is a flow that ends when its class has served end bits.
type member struct {
	end   float64
	c     *coflow
	place int32
}

// mark is a level below which a link does not fill up.
type mark struct {
	level float64
	link  int32
}

// enterClasses puts into force that every flow is free; it tells whether that is
// done here, which it is where all flows are, nothing that the scheduler sees must be
// kept flow by flow, and it is asked at no intervals.
func (s *sim) enterClasses() bool {
	served := make([]bool, len(s.active))
	n := 0
	for i := range s.schedule.Steps {
		st := &s.schedule.Steps[i]
		if st.Rule != policies.Free {
			continue
		}
		for _, at := range st.Coflows {
			if st.Part != policies.All || st.Only != policies.Everyone || st.Budget != 0 || at < 0 || at >= len(s.active) || served[at] {
				return s.leaveClasses()
			}
			served[at] = true
			n++
		}
	}
	if n < len(s.active) || s.needs&(policies.Sizes|policies.Flows) != 0 || s.when.Every > 0 {
		return s.leaveClasses()
	}
	if !s.shared {
		s.shared = true
		s.classes = newClasses(s)
	}
	joined := false
	for _, c := range s.active {
		if !c.joined {
			c.joined, joined = true, true
			s.classes.join(s, c)
		}
	}
	if joined {
		s.classes.restart(s.now)
	}
	return true
}

// leaveClasses goes back to rates flow by flow. What is left of flows is up to date.
func (s *sim) leaveClasses() bool {
	s.shared, s.classes = false, nil
	for _, c := range s.active {
		c.joined = false
	}
	return false
}

func newClasses(s *sim) *classes {
	n := len(s.capacity)
	return &classes{of: map[*topo.LinkID]int32{}, capacity: s.capacity,
		load: make([]float64, n), weight: make([]float64, n), level: make([]float64, n), members: make([][]int32, n), base: s.now}
}

// join adds a coflow's flows.
func (k *classes) join(s *sim, c *coflow) {
	now := s.now.Since(k.base)
	for p := range c.flows {
		if c.demand.Ended(p) {
			continue
		}
		links := s.path(s.cfg.Fabric, c.flows[p])
		i, known := k.of[&links[0]]
		if !known {
			i = int32(len(k.class))
			k.of[&links[0]] = i
			x := class{links: uint8(len(links))}
			for j, l := range links {
				x.path[j] = int32(l)
				k.members[l] = append(k.members[l], i)
			}
			k.class, k.queue, k.done = append(k.class, x), append(k.queue, nil), append(k.done, far)
			if int(i)/block == len(k.first) {
				k.first, k.stale = append(k.first, far), append(k.stale, false)
			}
		}
		x := &k.class[i]
		if x.flows == 0 {
			x.served, x.rate = 0, 0
		}
		x.serve(now)
		if !c.started && !slices.ContainsFunc(links, func(l topo.LinkID) bool { return k.capacity[l] == 0 }) {
			c.started = true
			s.result.Coflows[c.at].Start = s.now.Round()
		}
		x.flows++
		k.queue[i] = push(k.queue[i], member{x.served + c.demand.Left[p], c, int32(p)})
	}
}

// serve brings what a class has served up to date.
func (x *class) serve(now float64) {
	x.served += x.rate * (now - x.at) / 1e9
	x.at = now
}

// restart computes all rates, and counts time from here.
func (k *classes) restart(now clock.Moment) {
	ns := now.Since(k.base)
	k.base = now
	clear(k.load)
	clear(k.weight)
	for i := range k.class {
		x := &k.class[i]
		if x.flows == 0 {
			x.at, x.rate = 0, 0
			continue
		}
		x.serve(ns)
		x.at, x.rate = 0, -1 // so that done is computed anew
		if from := x.served; from > staleServed {
			for j := range k.queue[i] {
				k.queue[i][j].end -= from
			}
			x.served = 0
		}
		x.next = k.queue[i][0].end
		k.rise(x)
	}
	k.fill(0)
}

// rise lets a class rise from nothing.
func (k *classes) rise(x *class) {
	x.rising = true
	for _, l := range x.path[:x.links] {
		k.weight[l] += x.flows
	}
}

// refill computes anew the rates of at least so much.
func (k *classes) refill(least, now float64) {
	least *= 1 - 1e-12
	for l, level := range k.level {
		if level < least {
			continue
		}
		for _, i := range k.members[l] {
			x := &k.class[i]
			if x.rate < least || x.rising || x.flows == 0 {
				continue
			}
			x.rising = true
			rate := x.flows * x.rate
			for _, l := range x.path[:x.links] {
				k.load[l] -= rate
				k.weight[l] += x.flows
			}
		}
	}
	for l, level := range k.level {
		if level >= least {
			k.level[l] = -1
		}
	}
	k.fill(now)
}

// fill raises the rates of the classes that rise until links stop them.
func (k *classes) fill(now float64) {
	k.heap = k.heap[:0]
	for l, w := range k.weight {
		if w > 0 {
			k.level[l] = -1
			k.heap = append(k.heap, mark{max(k.capacity[l]-k.load[l], 0) / w, int32(l)})
		}
	}
	for i := len(k.heap)/2 - 1; i >= 0; i-- {
		sink(k.heap, i)
	}
	for len(k.heap) > 0 {
		top := k.heap[0]
		l := top.link
		if k.weight[l] < 0.5 { // whole flows: none left
			last := len(k.heap) - 1
			k.heap[0] = k.heap[last]
			k.heap = k.heap[:last]
			sink(k.heap, 0)
			continue
		}
		// Others that stop let a link fill up later, never earlier.
		if level := max(k.capacity[l]-k.load[l], 0) / k.weight[l]; level > top.level {
			k.heap[0].level = level
			sink(k.heap, 0)
			if k.heap[0].link != l {
				continue
			}
			top.level = level
		}
		k.level[l] = top.level
		for _, i := range k.members[l] {
			if x := &k.class[i]; x.rising {
				k.stop(i, x, top.level, now)
			}
		}
	}
	for i, stale := range k.stale {
		if stale {
			k.stale[i] = false
			least := far
			for _, d := range k.done[i*block : min((i+1)*block, len(k.done))] {
				least = min(least, d)
			}
			k.first[i] = least
		}
	}
}

// stop sets a class's rate.
func (k *classes) stop(i int32, x *class, rate, now float64) {
	x.rising = false
	// A rate that is other by rounding alone stays what it was.
	const same = 1e-15
	if old := x.rate; math.Abs(rate-old) <= same*old {
		rate = old
	} else {
		if old > 0 {
			x.serve(now)
		}
		x.at, x.rate = now, rate
		k.await(i, x)
	}
	n := x.flows
	all := n * rate
	for _, l := range x.path[:x.links] {
		k.load[l] += all
		k.weight[l] -= n
	}
}

// await computes when the first flow of a class ends.
func (k *classes) await(i int32, x *class) {
	done := far
	if x.rate > 0 && x.flows > 0 {
		done = x.at + max(x.next-x.served, 0)/x.rate*1e9
	}
	k.done[i] = done
	k.stale[i/block] = true
}

// soonest is how many ns from now the first flow ends.
func (k *classes) soonest(now clock.Moment) float64 {
	first := far
	for _, d := range k.first {
		first = min(first, d)
	}
	return first - now.Since(k.base)
}

// advance takes off the flows that have ended by now, and computes the rates of
// the others.
func (k *classes) advance(s *sim) {
	now := s.now.Since(k.base)
	slack := max(together, float64(s.cfg.Resolution))
	k.ended = k.ended[:0]
	least := far
	for b, d := range k.first {
		if d > now+slack {
			continue
		}
		for i := int32(b * block); i < int32(min((b+1)*block, len(k.done))); i++ {
			if k.done[i] > now+slack {
				continue
			}
			x := &k.class[i]
			x.serve(now)
			reach := x.served + x.rate*slack/1e9
			before := len(k.ended)
			for len(k.queue[i]) > 0 {
				m := k.queue[i][0]
				if m.end > reach && m.end-x.served > imprecision*8*float64(m.c.flows[m.place].Size) {
					x.next = m.end
					break
				}
				k.ended = append(k.ended, m)
				k.queue[i] = pop(k.queue[i])
			}
			n := float64(len(k.ended) - before)
			x.flows -= n
			for _, l := range x.path[:x.links] {
				k.load[l] -= n * x.rate
			}
			least = min(least, x.rate)
			k.await(i, x)
		}
	}
	if k.soonest(s.now) < far {
		s.moved = s.now
	}
	for _, m := range k.ended {
		m.c.news = true
		s.endFlow(m.c, int(m.place), s.now)
	}
	for _, m := range k.ended {
		if m.c.state.Left == 0 && !m.c.gone {
			m.c.gone = true
			s.endCoflow(m.c)
		}
	}
	switch {
	case now > staleAfter:
		k.restart(s.now)
	case len(k.ended) > 0:
		k.refill(least, now)
	}
	clear(k.ended)
}

// tell brings what is left of flows, and what has been sent, up to date.
func (k *classes) tell(s *sim) {
	now := s.now.Since(k.base)
	for _, c := range s.active {
		if c.joined {
			c.news = true
			c.sent = 8 * float64(s.result.Coflows[c.at].Size)
		}
	}
	for i := range k.class {
		x := &k.class[i]
		if x.flows == 0 {
			continue
		}
		x.serve(now)
		for _, m := range k.queue[i] {
			left := max(m.end-x.served, 0)
			m.c.sent -= left
			m.c.demand.SetLeft(int(m.place), left)
			m.c.most = max(m.c.most, 8*float64(m.c.flows[m.place].Size)-left)
		}
	}
}

func push(h []member, m member) []member {
	h = append(h, m)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].end <= h[i].end {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	return h
}

func pop(h []member) []member {
	last := len(h) - 1
	h[0], h[last] = h[last], member{}
	h = h[:last]
	for i := 0; ; {
		kid := 2*i + 1
		if kid >= len(h) {
			return h
		}
		if kid+1 < len(h) && h[kid+1].end < h[kid].end {
			kid++
		}
		if h[i].end <= h[kid].end {
			return h
		}
		h[i], h[kid] = h[kid], h[i]
		i = kid
	}
}

func sink(h []mark, i int) {
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

func before(a, b mark) bool { return a.level < b.level || a.level == b.level && a.link < b.link }
