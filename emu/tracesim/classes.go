package tracesim

import (
	"math"
	"slices"

	"testbed/policies"
	"testbed/topo"
)

// classes are the flows of all coflows where none has a ceiling, by their paths:
// flows of one path have the same max-min fair rate at all times. So a class keeps
// one count of the bits that each of its flows has been served, and a flow ends when
// that has risen by its size. When a flow ends, only links that were full at its
// rate or later are filled anew, since progressive filling below it stays what it was.
type classes struct {
	of   map[*topo.LinkID]int32 // by the first link of the path, which is kept once
	path []int32                // stride links of each class, none where there are fewer

	// By class:
	flows  []float64 // unfinished
	rate   []float64 // bit/s of each flow
	served []float64 // bits of each flow, at
	at     []float64 // ns since base
	done   []float64 // ns since base until its first flow ends
	queue  [][]member
	rising []bool // while filling

	first []float64 // the least done of every block of classes
	stale []bool    // by block: first is to be found anew

	// By link:
	capacity []float64
	load     []float64 // bit/s of flows that have stopped rising
	weight   []float64 // flows that rise
	level    []float64 // rate at which it was full; -1 for one that has not filled up
	members  [][]int32 // classes that cross it

	base  clock
	heap  []mark
	up    []int32 // classes that rise
	ended []member
}

const (
	stride = 4  // most links of a path through a fabric
	block  = 64 // classes
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
// done here, which it is where all flows are, and nothing that the scheduler sees
// must be kept flow by flow.
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
	if n < len(s.active) || s.needs&(policies.Sizes|policies.Flows) != 0 || s.cfg.Quantum > 0 {
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
		load: make([]float64, n+1), weight: make([]float64, n+1), level: make([]float64, n+1), members: make([][]int32, n+1), base: s.now}
}

// join adds a coflow's flows.
func (k *classes) join(s *sim, c *coflow) {
	now := s.now.since(k.base)
	none := int32(len(k.capacity))
	for p := range c.flows {
		if c.demand.Ended(p) {
			continue
		}
		links := s.path(s.cfg.Fabric, c.flows[p])
		i, known := k.of[&links[0]]
		if !known {
			i = int32(len(k.flows))
			k.of[&links[0]] = i
			for j := range stride {
				l := none
				if j < len(links) {
					l = int32(links[j])
					k.members[l] = append(k.members[l], i)
				}
				k.path = append(k.path, l)
			}
			k.flows, k.rate, k.served, k.at = append(k.flows, 0), append(k.rate, 0), append(k.served, 0), append(k.at, 0)
			k.done, k.queue, k.rising = append(k.done, far), append(k.queue, nil), append(k.rising, false)
			if int(i)/block == len(k.first) {
				k.first, k.stale = append(k.first, far), append(k.stale, false)
			}
		}
		if k.flows[i] == 0 {
			k.served[i], k.rate[i] = 0, 0
		}
		k.serve(i, now)
		if !c.started && !slices.ContainsFunc(links, func(l topo.LinkID) bool { return k.capacity[l] == 0 }) {
			c.started = true
			s.result.Coflows[c.at].Start = s.now.round()
		}
		k.flows[i]++
		k.queue[i] = push(k.queue[i], member{k.served[i] + c.demand.Left[p], c, int32(p)})
	}
}

// serve brings what a class has served up to date.
func (k *classes) serve(i int32, now float64) {
	k.served[i] += k.rate[i] * (now - k.at[i]) / 1e9
	k.at[i] = now
}

// restart computes all rates, and counts time from here.
func (k *classes) restart(now clock) {
	ns := now.since(k.base)
	k.base = now
	clear(k.load)
	clear(k.weight)
	k.up = k.up[:0]
	for i := range k.flows {
		if k.flows[i] == 0 {
			k.at[i] = 0
			continue
		}
		k.serve(int32(i), ns)
		k.at[i] = 0
		k.rate[i] = -1 // so that done is computed anew
		if from := k.served[i]; from > staleServed {
			for j := range k.queue[i] {
				k.queue[i][j].end -= from
			}
			k.served[i] = 0
		}
		k.rise(int32(i))
	}
	k.fill(0)
}

// rise lets a class rise from nothing.
func (k *classes) rise(i int32) {
	k.rising[i] = true
	k.up = append(k.up, i)
	n := k.flows[i]
	for _, l := range k.path[stride*i : stride*i+stride] {
		k.weight[l] += n
	}
}

// refill computes anew the rates of at least so much.
func (k *classes) refill(least, now float64) {
	least *= 1 - 1e-12
	k.up = k.up[:0]
	for l, level := range k.level[:len(k.capacity)] {
		if level < least {
			continue
		}
		for _, i := range k.members[l] {
			if k.rate[i] < least || k.rising[i] || k.flows[i] == 0 {
				continue
			}
			rate := k.flows[i] * k.rate[i]
			for _, l := range k.path[stride*i : stride*i+stride] {
				k.load[l] -= rate
			}
			k.rise(i)
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
	none := len(k.capacity)
	k.weight[none], k.load[none] = 0, 0
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
			if k.rising[i] {
				k.stop(i, top.level, now)
			}
		}
		k.weight[l] = 0
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
func (k *classes) stop(i int32, rate, now float64) {
	k.rising[i] = false
	// A rate that is other by rounding alone stays what it was.
	const same = 1e-15
	if old := k.rate[i]; math.Abs(rate-old) <= same*old {
		rate = old
	} else {
		if old > 0 {
			k.serve(i, now)
		}
		k.at[i], k.rate[i] = now, rate
		k.await(i)
	}
	n := k.flows[i]
	all := n * rate
	for _, l := range k.path[stride*i : stride*i+stride] {
		k.load[l] += all
		k.weight[l] -= n
	}
}

// await computes when the first flow of a class ends.
func (k *classes) await(i int32) {
	k.done[i] = far
	if len(k.queue[i]) > 0 && k.rate[i] > 0 {
		k.done[i] = k.at[i] + max(k.queue[i][0].end-k.served[i], 0)/k.rate[i]*1e9
	}
	k.stale[i/block] = true
}

// soonest is how many ns from now the first flow ends.
func (k *classes) soonest(now clock) float64 {
	first := far
	for _, d := range k.first {
		first = min(first, d)
	}
	return first - now.since(k.base)
}

// advance takes off the flows that have ended by now, and computes the rates of
// the others.
func (k *classes) advance(s *sim) {
	now := s.now.since(k.base)
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
			k.serve(i, now)
			reach := k.served[i] + k.rate[i]*slack/1e9
			before := len(k.ended)
			for len(k.queue[i]) > 0 {
				m := k.queue[i][0]
				if m.end > reach && m.end-k.served[i] > imprecision*8*float64(m.c.flows[m.place].Size) {
					break
				}
				k.ended = append(k.ended, m)
				k.queue[i] = pop(k.queue[i])
			}
			n := float64(len(k.ended) - before)
			k.flows[i] -= n
			for _, l := range k.path[stride*i : stride*i+stride] {
				k.load[l] -= n * k.rate[i]
			}
			least = min(least, k.rate[i])
			k.await(i)
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
	now := s.now.since(k.base)
	left := make(map[*coflow]float64, len(s.active))
	for i := range k.queue {
		if k.flows[i] == 0 {
			continue
		}
		k.serve(int32(i), now)
		for _, m := range k.queue[i] {
			l := max(m.end-k.served[i], 0)
			left[m.c] += l
			m.c.demand.SetLeft(int(m.place), l)
			m.c.most = max(m.c.most, 8*float64(m.c.flows[m.place].Size)-l)
		}
	}
	for _, c := range s.active {
		if c.joined {
			c.news = true
			c.sent = 8*float64(s.result.Coflows[c.at].Size) - left[c]
		}
	}
}

// sentBy is how many bits of a coflow have been received.
func (k *classes) sentBy(s *sim, c *coflow) float64 {
	if !c.joined {
		return c.sent
	}
	now, left := s.now.since(k.base), 0.0
	for i := range k.queue {
		for _, m := range k.queue[i] {
			if m.c == c {
				left += max(m.end-k.served[i]-k.rate[i]*(now-k.at[i])/1e9, 0)
			}
		}
	}
	return 8*float64(s.result.Coflows[c.at].Size) - left
}

// rateOf is the rate of all flows of a coflow, in bit/s.
func (k *classes) rateOf(c *coflow) float64 {
	sum := 0.0
	for i := range k.queue {
		for _, m := range k.queue[i] {
			if m.c == c {
				sum += k.rate[i]
			}
		}
	}
	return sum
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
