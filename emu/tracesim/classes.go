package tracesim

import (
	"cmp"
	"math"
	"slices"

	"testbed/emu/clock"
	"testbed/policies"
	"testbed/topo"
)

// classes are the flows of all coflows where one rule that tells them apart by nothing
// else shares everything among them, by their paths: flows of one path have the same
// rate at all times. So a class keeps one count of the bits that each of its flows has
// been served, and a flow ends when that has risen by its size. When a flow ends, only
// rates that may change are computed anew. By rule Free, max-min fairness, these are
// those of links that were full at its rate or later, since progressive filling below
// it stays what it was; by rule Even those of the links it crossed.
type classes struct {
	rule  policies.Rule          // Free or Even
	of    map[*topo.LinkID]int32 // by the first link of the path, which is kept once
	class []class
	queue [][]member // by class: its flows, a heap by their ends
	done  []float64  // by class: ns since base until its first flow ends
	first []float64  // the least done of every block of classes
	stale []bool     // by block: first is to be found anew

	// By link:
	capacity []float64
	members  [][]int32 // classes that cross it
	filling            // for rule Free
	even               // for rule Even

	// What the scheduler sees of a coflow is all brought up to date when it is asked, or
	// if that is whenever a flow ends, its rate is: follows.
	follows bool
	parts   [][]part     // by class, if follows: the coflows it is of
	joined  clock.Moment // when a coflow joined last
	news    bool         // flows have joined that tell has not seen begin

	base  clock.Moment
	ended []member
}

// filling is what progressive filling keeps, by link.
type filling struct {
	load   []float64 // bit/s of flows that have stopped rising
	weight []float64 // flows that rise
	level  []float64 // rate at which it was full; -1 for one that has not filled up
	heap   []mark
}

// part is the flows of a class that are a coflow's.
type part struct {
	c     *coflow
	flows float64 // unfinished
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

// sweeping is the rule by which a schedule serves all coflows as one, where it is one
// that classes have.
func (s *sim) sweeping() (policies.Rule, bool) {
	sch := &s.schedule
	if len(sch.Budgets) > 0 || len(sch.Steps) == 0 {
		return 0, false
	}
	rule, n := sch.Steps[0].Rule, 0
	if rule != policies.Free && (rule != policies.Even || len(sch.Steps) > 1) {
		return 0, false
	}
	s.swept = append(s.swept[:0], make([]bool, len(s.active))...)
	for i := range sch.Steps {
		st := &sch.Steps[i]
		if st.Rule != rule || st.Part != policies.All || st.Only != policies.Everyone || st.Budget != 0 || st.Within != 0 || len(st.Rates) > 0 {
			return 0, false
		}
		for _, at := range st.Coflows {
			if at < 0 || at >= len(s.active) || s.swept[at] {
				return 0, false
			}
			s.swept[at] = true
			n++
		}
	}
	return rule, n == len(s.active)
}

// enterClasses puts a schedule of one rule for everything into force; it tells whether
// that is done here, which it is where nothing that the scheduler sees must be kept flow
// by flow, and it is asked at no intervals. By rule Even rates are those of the last
// decision, so that it must be asked whenever a flow ends, and nobody may want to know
// of each flow's own.
func (s *sim) enterClasses() bool {
	rule, all := s.sweeping()
	if !all || s.needs&(policies.Sizes|policies.Flows) != 0 || s.when.Every > 0 || rule == policies.Even && (!s.when.Flows || s.counter != nil) {
		s.leaveClasses()
		return false
	}
	if s.shared && s.classes.rule != rule {
		s.leaveClasses()
	}
	if !s.shared {
		s.shared = true
		s.classes = newClasses(s, rule)
	}
	joined := false
	for _, c := range s.active {
		if !c.joined {
			c.joined, joined = true, true
			s.classes.join(s, c)
		}
	}
	switch {
	case !joined:
	case rule == policies.Free:
		s.classes.restart(s)
	default:
		s.classes.spread(s.now)
	}
	return true
}

// leaveClasses goes back to rates flow by flow.
func (s *sim) leaveClasses() {
	if !s.shared {
		return
	}
	s.classes.count(s)
	s.shared, s.classes = false, nil
	for _, c := range s.active {
		c.joined = false
	}
}

func newClasses(s *sim, rule policies.Rule) *classes {
	n := len(s.capacity)
	k := &classes{rule: rule, of: map[*topo.LinkID]int32{}, capacity: s.capacity, members: make([][]int32, n), follows: s.when.Flows, base: s.now}
	if rule == policies.Free {
		k.filling = filling{load: make([]float64, n), weight: make([]float64, n), level: make([]float64, n)}
	} else {
		k.even = even{flows: make([]float64, n), share: make([]float64, n), touched: make([]bool, n)}
	}
	return k
}

// join adds a coflow's flows.
func (k *classes) join(s *sim, c *coflow) {
	now := s.now.Since(k.base)
	c.base, c.rate = s.now, 0
	k.joined, k.news = s.now, true
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
			k.class, k.queue, k.done, k.parts = append(k.class, x), append(k.queue, nil), append(k.done, far), append(k.parts, nil)
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
		x.next = k.queue[i][0].end
		k.await(i, x)
		if k.follows {
			k.add(i, c, 1)
			c.rate += x.rate
		}
		if k.rule == policies.Even {
			k.touch(x, 1)
		}
	}
}

// add counts flows of a coflow in a class, or takes them off.
func (k *classes) add(i int32, c *coflow, flows float64) {
	parts := k.parts[i]
	for j := len(parts) - 1; j >= 0; j-- {
		if parts[j].c != c {
			continue
		}
		if parts[j].flows += flows; parts[j].flows == 0 {
			k.parts[i] = slices.Delete(parts, j, j+1)
		}
		return
	}
	k.parts[i] = append(parts, part{c, flows})
}

// follow brings what has been sent of a coflow up to date.
func (c *coflow) follow(now clock.Moment) {
	if c.base != now {
		c.sent += c.rate * now.Since(c.base) / 1e9
		c.base = now
	}
}

// serve brings what a class has served up to date.
func (x *class) serve(now float64) {
	x.served += x.rate * (now - x.at) / 1e9
	x.at = now
}

// restart computes all rates, and counts time from here.
func (k *classes) restart(s *sim) {
	ns := s.now.Since(k.base)
	k.base = s.now
	clear(k.load)
	clear(k.weight)
	for _, c := range s.active {
		if k.follows && c.joined {
			c.follow(s.now)
			c.rate = 0 // so that it is added up anew
		}
	}
	for i := range k.class {
		x := &k.class[i]
		if x.flows == 0 {
			x.at, x.rate = 0, 0
			continue
		}
		x.serve(ns)
		x.at, x.rate = 0, 0 // so that done is computed anew
		k.await(int32(i), x)
		if from := x.served; from > staleServed {
			for j := range k.queue[i] {
				k.queue[i][j].end -= from
			}
			x.served = 0
		}
		x.next = k.queue[i][0].end
		if k.rule == policies.Free {
			k.rise(x)
		}
	}
	if k.rule == policies.Free {
		k.fill(s.now)
	} else {
		k.spreadAll(s.now)
	}
}

// rise lets a class rise from nothing.
func (k *classes) rise(x *class) {
	x.rising = true
	for _, l := range x.path[:x.links] {
		k.weight[l] += x.flows
	}
}

// refill computes anew the rates of at least so much.
func (k *classes) refill(least float64, now clock.Moment) {
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
func (k *classes) fill(now clock.Moment) {
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
}

// stop sets the rate of a class that rises.
func (k *classes) stop(i int32, x *class, rate float64, now clock.Moment) {
	x.rising = false
	// A rate that is other by rounding alone stays what it was.
	const same = 1e-15
	if old := x.rate; math.Abs(rate-old) <= same*old {
		rate = old
	} else {
		k.set(i, x, rate, now)
	}
	n := x.flows
	all := n * rate
	for _, l := range x.path[:x.links] {
		k.load[l] += all
		k.weight[l] -= n
	}
}

// set sets a class's rate.
func (k *classes) set(i int32, x *class, rate float64, now clock.Moment) {
	if k.follows {
		for _, p := range k.parts[i] {
			p.c.follow(now)
			p.c.rate += p.flows * (rate - x.rate)
		}
	}
	x.serve(now.Since(k.base))
	x.rate = rate
	k.await(i, x)
}

// await computes when the first flow of a class ends.
func (k *classes) await(i int32, x *class) {
	done := far
	if x.rate > 0 && x.flows > 0 {
		done = x.at + max(x.next-x.served, 0)/x.rate*1e9
	}
	old, b := k.done[i], i/block
	k.done[i] = done
	if done <= k.first[b] {
		k.first[b] = done
	} else if old == k.first[b] {
		k.stale[b] = true
	}
}

// refresh finds the first end of every block whose first it no longer is.
func (k *classes) refresh() {
	for b, stale := range k.stale {
		if stale {
			k.stale[b] = false
			k.first[b] = slices.Min(k.done[b*block : min((b+1)*block, len(k.done))])
		}
	}
}

// soonest is how many ns from now the first flow ends.
func (k *classes) soonest(now clock.Moment) float64 {
	k.refresh()
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
	k.refresh()
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
				if k.follows {
					m.c.follow(s.now)
					m.c.sent += m.end - x.served
					m.c.rate -= x.rate
					k.add(i, m.c, -1)
				}
			}
			n := float64(len(k.ended) - before)
			x.flows -= n
			if k.rule == policies.Even {
				k.touch(x, -n)
			} else {
				for _, l := range x.path[:x.links] {
					k.load[l] -= n * x.rate
				}
			}
			least = min(least, x.rate)
			k.await(i, x)
		}
	}
	if len(k.ended) > 0 || k.soonest(s.now) < far {
		s.moved = s.now
	}
	slices.SortFunc(k.ended, func(a, b member) int { return cmp.Or(cmp.Compare(a.c.at, b.c.at), cmp.Compare(a.place, b.place)) })
	if !k.follows && slices.ContainsFunc(k.ended, func(m member) bool { return m.c.demand.Pilot(int(m.place)) }) {
		k.count(s) // by the end of its pilots a coflow is measured
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
		k.restart(s)
	case len(k.ended) == 0:
	case k.rule == policies.Even:
		k.spread(s.now)
	default:
		k.refill(least, s.now)
	}
	clear(k.ended)
}

// tell brings what the scheduler sees up to date.
func (k *classes) tell(s *sim) {
	if !k.follows || k.news || s.needs&(policies.MostSent|policies.NewFlows|policies.PilotFlows) != 0 {
		k.count(s)
		return
	}
	for _, c := range s.active {
		if c.joined {
			c.follow(s.now)
			c.news = true
		}
	}
}

// count brings what is left of flows, and what has been sent, up to date.
func (k *classes) count(s *sim) {
	k.news = k.news && s.now.Since(k.joined) <= 0
	now := s.now.Since(k.base)
	for _, c := range s.active {
		if c.joined {
			c.news = true
			c.sent, c.base = 8*float64(s.result.Coflows[c.at].Size), s.now
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
