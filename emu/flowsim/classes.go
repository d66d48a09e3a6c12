package flowsim

import (
	"cmp"
	"math"
	"slices"

	"testbed/emu/simtime"
	"testbed/policies"
	"testbed/policies/alloc/maxmin"
	"testbed/topo"
)

// classes groups the flows of all coflows by path, for a rule that shares the network among
// all flows and distinguishes them by their paths alone: flows of one path have the same
// rate at all times. A class therefore keeps one count of the bits that each of its flows
// has been served, and a flow ends when the count has risen by its size. When a flow ends,
// only rates that may change are recomputed. For rule Free, max-min fairness, these are the
// levels of links that were full at its rate or later, since progressive filling below it is
// unchanged; for rule EqualSplit the rates on the links that it crossed.
type classes struct {
	rule  policies.Rule          // Free or EqualSplit
	of    map[*topo.LinkID]int32 // by the first link of the path, which is kept once
	class []class
	queue [][]flow  // by class: its flows, a heap by their ends
	room  []flow    // memory of queues
	done  []float64 // for rule EqualSplit, by class: ns since base until its first flow ends
	first []float64 // the smallest done of every block of classes
	stale []bool    // by block: first must be recomputed

	coflows []*coflow // that have joined, by their place in the coflows of the run

	// By link:
	capacity []float64
	members  [][]int32 // classes that cross it
	levels             // for rule Free
	even               // for rule EqualSplit

	// What the scheduler sees of a coflow is updated when it is called; if that is whenever
	// a flow ends, the coflow's rate is updated instead: follows.
	follows bool
	parts   [][]part       // by class, if follows: its coflows
	joined  simtime.Moment // when a coflow joined last
	news    bool           // flows have joined since the last update

	base  simtime.Moment
	ended []flow
}

// part is the flows of a class that belong to one coflow.
type part struct {
	c     *coflow
	flows float64 // unfinished
}

// class fills one cache line.
type class struct {
	flows  float64 // unfinished
	rate   float64 // bit/s of each flow
	served float64 // bits of each flow, at
	at     float64 // ns since base; for rule Free, bits of its bottleneck
	next   float64 // served when its first flow ends
	path   [most]int32
	links  uint8
	rising bool // for rule Free: it has no bottleneck yet
}

const (
	most  = 4  // links of a path through a fabric
	block = 64 // classes
	// staleAfter, in ns from base, and staleServed, in bits, bound the counters before
	// counting restarts: float64 is still precise below them.
	staleAfter  = 1 << 36
	staleServed = 1 << 36
)

// flow is a flow that ends when its class has served Key bits. Value is the place of its
// coflow in the coflows of the run, then its place in the coflow.
type flow = maxmin.Entry[int64]

func flowOf(end float64, c *coflow, place int) flow {
	return flow{Key: end, Value: int64(c.at)<<32 | int64(place)}
}

// flow returns a flow's coflow and place.
func (k *classes) flow(f flow) (c *coflow, place int) {
	return k.coflows[f.Value>>32], int(f.Value & math.MaxUint32)
}

// sweeping returns the rule by which a schedule serves all coflows as one, if it is one
// that classes implement.
func (s *sim) sweeping() (policies.Rule, bool) {
	sch := &s.schedule
	if len(sch.Budgets) > 0 || len(sch.Steps) == 0 {
		return 0, false
	}
	rule, n := sch.Steps[0].Rule, 0
	if rule != policies.Free && (rule != policies.EqualSplit || len(sch.Steps) > 1) {
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

// enterClasses applies a schedule of one rule for all coflows, and reports whether it did.
// It does if nothing that the scheduler sees must be kept flow by flow, and the scheduler
// has no interval. With rule EqualSplit rates are those of the last decision, so the scheduler
// must be called whenever a flow ends, and no component may need the rate of each flow.
func (s *sim) enterClasses() bool {
	rule, all := s.sweeping()
	if !all || s.Needs.Has(policies.Sizes) || s.Needs.Has(policies.Flows) || s.Step > 0 || rule == policies.EqualSplit && (!s.Triggers.Flows || s.counter != nil) {
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

// leaveClasses returns to rates flow by flow.
func (s *sim) leaveClasses() {
	if !s.shared {
		return
	}
	s.classes.count(s)
	s.shared, s.classes = false, nil
	for _, c := range s.active {
		c.joined, c.shares = false, -1
	}
}

func newClasses(s *sim, rule policies.Rule) *classes {
	n := len(s.capacity)
	k := &classes{rule: rule, of: map[*topo.LinkID]int32{}, coflows: make([]*coflow, len(s.coflows)), capacity: s.capacity, members: make([][]int32, n), follows: s.Triggers.Flows, base: s.now}
	if rule == policies.Free {
		k.levels = newLevels(s.capacity)
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
	k.coflows[c.at] = c
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
			k.class, k.queue, k.parts = append(k.class, x), append(k.queue, k.newQueue()), append(k.parts, nil)
			k.bonds, k.done = append(k.bonds, bond{link: -1}), append(k.done, far)
			if int(i)/block == len(k.first) {
				k.first, k.stale = append(k.first, far), append(k.stale, false)
			}
		}
		x := &k.class[i]
		if x.flows == 0 {
			x.served, x.rate = 0, 0
		}
		k.serve(i, now)
		if !c.started && !slices.ContainsFunc(links, func(l topo.LinkID) bool { return k.capacity[l] == 0 }) {
			c.started = true
			s.result.Coflows[c.at].Start = s.now.Round()
		}
		x.flows++
		k.queue[i] = maxmin.Push(k.queue[i], flowOf(x.served+c.demand.Left[p], c, p))
		x.next = k.queue[i][0].Key
		if k.follows {
			k.add(i, c, 1)
			c.rate += x.rate
		}
		if k.rule == policies.EqualSplit {
			k.awaitClass(i, x)
			k.touch(x, 1)
		}
	}
}

// newQueue returns an empty queue. Most classes have few flows.
func (k *classes) newQueue() []flow {
	const flows, queues = 2, 512
	if len(k.room) == 0 {
		k.room = make([]flow, flows*queues)
	}
	queue := k.room[:0:flows]
	k.room = k.room[flows:]
	return queue
}

// add adds flows of a coflow to a class, or removes them.
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

// follow updates the bytes that a coflow has sent.
func (c *coflow) follow(now simtime.Moment) {
	if c.base != now {
		c.sent += c.rate * now.Since(c.base) / 1e9
		c.base = now
	}
}

// serve updates the bits that a class has been served.
func (k *classes) serve(i int32, now float64) {
	x := &k.class[i]
	if k.rule == policies.Free {
		if l := k.bonds[i].link; l >= 0 {
			bits := k.served(l, now)
			x.served, x.at = x.served+(bits-x.at), bits
		}
		return
	}
	x.served += x.rate * (now - x.at) / 1e9
	x.at = now
}

// restart computes all rates, and restarts the count of time.
func (k *classes) restart(s *sim) {
	ns := s.now.Since(k.base)
	k.base = s.now
	for _, c := range s.active {
		if k.follows && c.joined {
			c.follow(s.now)
			c.rate = 0 // it is summed again
		}
	}
	for i := range k.class {
		k.serve(int32(i), ns)
	}
	if k.rule == policies.Free {
		k.levels.clear()
	}
	for i := range k.class {
		x := &k.class[i]
		if x.at, x.rate = 0, 0; x.flows == 0 { // done is recomputed
			continue
		}
		if k.rule == policies.EqualSplit {
			k.awaitClass(int32(i), x)
		}
		if from := x.served; from > staleServed {
			for j := range k.queue[i] {
				k.queue[i][j].Key -= from
			}
			x.served = 0
		}
		x.next = k.queue[i][0].Key
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

// rise makes a class rise from 0.
func (k *classes) rise(x *class) {
	x.rising = true
	for _, l := range x.path[:x.links] {
		k.Weight[l] += x.flows
	}
}

// set sets a class's rate.
func (k *classes) set(i int32, x *class, rate float64, now simtime.Moment) {
	k.serve(i, now.Since(k.base))
	k.setRate(i, rate, now)
	k.awaitClass(i, x)
}

// setRate notes a class's rate and adds it to the rates of its coflows.
func (k *classes) setRate(i int32, rate float64, now simtime.Moment) {
	x := &k.class[i]
	if k.follows {
		for _, p := range k.parts[i] {
			p.c.follow(now)
			p.c.rate += p.flows * (rate - x.rate)
		}
	}
	x.rate = rate
}

// awaitClass computes when the first flow of a class ends, for rule EqualSplit.
func (k *classes) awaitClass(i int32, x *class) {
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

// refresh finds the first end of every block whose first end is stale.
func (k *classes) refresh() {
	for b, stale := range k.stale {
		if stale {
			k.stale[b] = false
			k.first[b] = slices.Min(k.done[b*block : min((b+1)*block, len(k.done))])
		}
	}
}

// soonest returns the time in ns until the first flow ends.
func (k *classes) soonest(now simtime.Moment) float64 {
	first := far
	if k.rule == policies.Free {
		first = slices.Min(k.due)
	} else {
		k.refresh()
		for _, d := range k.first {
			first = min(first, d)
		}
	}
	return first - now.Since(k.base)
}

// advance removes the flows that have ended by now, and recomputes the rates of the
// others.
func (k *classes) advance(s *sim) {
	now := s.now.Since(k.base)
	slack := max(together, float64(s.cfg.Resolution))
	k.ended = k.ended[:0]
	least := far
	if k.rule == policies.Free {
		for l, due := range k.due {
			if due <= now+slack {
				least = min(least, k.level[l])
				k.endOn(int32(l), s.now, now, slack)
			}
		}
	} else {
		k.refresh()
		for b, d := range k.first {
			if d > now+slack {
				continue
			}
			for i := int32(b * block); i < int32(min((b+1)*block, len(k.done))); i++ {
				if k.done[i] > now+slack {
					continue
				}
				k.touch(&k.class[i], -k.end(i, s.now, now, slack))
				k.awaitClass(i, &k.class[i])
			}
		}
	}
	if len(k.ended) > 0 || k.soonest(s.now) < far {
		s.moved = s.now
	}
	slices.SortFunc(k.ended, func(a, b flow) int { return cmp.Compare(a.Value, b.Value) })
	pilot := func(f flow) bool {
		c, place := k.flow(f)
		return c.demand.Pilot(place)
	}
	if !k.follows && slices.ContainsFunc(k.ended, pilot) {
		k.count(s) // by the end of its pilots a coflow is measured
	}
	for _, f := range k.ended {
		c, place := k.flow(f)
		c.news = true
		s.endFlow(c, place, s.now)
	}
	for _, f := range k.ended {
		if c, _ := k.flow(f); c != nil && c.State.Left == 0 {
			k.coflows[c.at] = nil
			s.endCoflow(c)
		}
	}
	switch {
	case now > staleAfter:
		k.restart(s)
	case len(k.ended) == 0:
	case k.rule == policies.EqualSplit:
		k.spread(s.now)
	default:
		k.refill(least, s.now)
	}
}

// end removes the first flow of a class, which is due, and those that end within slack of now, and returns their
// number.
func (k *classes) end(i int32, at simtime.Moment, now, slack float64) float64 {
	k.serve(i, now)
	x := &k.class[i]
	rate, before := k.rateOf(i), len(k.ended)
	reach := x.served + rate*slack/1e9
	for len(k.queue[i]) > 0 {
		f := k.queue[i][0]
		c, place := k.flow(f)
		if len(k.ended) > before && f.Key > reach && f.Key-x.served > imprecision*8*float64(c.flows[place].Size) {
			x.next = f.Key
			break
		}
		k.ended = append(k.ended, f)
		k.queue[i] = maxmin.Pop(k.queue[i])
		if k.follows {
			c.follow(at)
			c.sent += f.Key - x.served
			c.rate -= rate
			k.add(i, c, -1)
		}
	}
	n := float64(len(k.ended) - before)
	x.flows -= n
	return n
}

// update brings the scheduler's view up to date.
func (k *classes) update(s *sim) {
	if !s.Needs.Has(policies.Progress) {
		now := s.now.Since(k.base)
		for i := range k.class {
			k.serve(int32(i), now)
		}
		return
	}
	if !k.follows || k.news || s.Needs.Has(policies.MostSent) || s.Needs&policies.Flows != 0 {
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

// count updates the remaining bits of flows, and the bits sent.
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
		k.serve(int32(i), now)
		for _, f := range k.queue[i] {
			c, place := k.flow(f)
			left := max(f.Key-x.served, 0)
			c.sent -= left
			c.demand.SetLeft(place, left)
			c.most = max(c.most, 8*float64(c.flows[place].Size)-left)
		}
	}
}
