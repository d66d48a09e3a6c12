package alloc

import (
	"math"
	"math/bits"
	"slices"

	"testbed/policies"
)

// Most decisions differ little from the one before: a flow has ended. This file finds the steps of
// a schedule that give a demand the same rates again. What a step gives a demand depends only on
// the demand's unfinished flows and on the residual capacities of their links before the step. A
// memo stores these, and the results. While the steps serve the demands in the same order as in
// the last decision, Allocator.dirty contains the links whose residual capacities differ from
// those at the same point of the last decision, so a demand that crosses none of them needs no
// further test.
//
// Without it (keeps never set), trace simulate of the public Facebook trace takes 1.2 to 1.6 times the
// processor time under aalo, saath and fifo, 1.04 times under philae, and the same under sebf, because what
// MADD gives changes with every bit that a flow receives.

// memo stores one step of a decision for a demand. Its identity includes the position of the step
// among those that serve the demand.
type memo struct {
	capacityVersion *int // Allocator.capacityVersion at that time; nil if nothing is stored
	flowsVersion    int  // Demand.flowsVersion at that time
	rule            policies.Rule
	part            policies.Part
	budget          float64 // fraction of the capacity; -1 without a budget
	last            bool    // after is unknown

	had     []float64  // by slot of crossed links: residual capacity before the step
	after   []residual // links that the step used
	outcome outcome
	gift    gift
	changed bool // gift differs from that of the last decision
}

// charged is the links that a step with a budget used, with the residual capacity afterwards.
type charged struct {
	links []residual
	steps int // of the chain, so far
}

// residual is the residual capacity of a link after a step.
type residual struct {
	link int32
	left float64
}

// gift is the rates that a step gives to flows of a demand: one form of three.
type gift struct {
	p     parts
	took  []took    // rates of single flows
	equal float64   // rate of all flows of p, if it is above 0
	share []float64 // by slot: see layer; none if it is empty
}

// took is the rate of a flow.
type took struct {
	place int32
	rate  float64
}

func (g *gift) begin(p parts) { g.p, g.took, g.equal, g.share = p, g.took[:0], 0, g.share[:0] }

func (g *gift) same(o *gift) bool {
	return g.p == o.p && g.equal == o.equal && slices.Equal(g.took, o.took) && slices.Equal(g.share, o.share)
}

// receive adds the rates of a gift.
func (d *Demand) receive(g *gift) {
	switch {
	case len(g.share) > 0:
		d.lay(g.p, g.share)
	case g.equal > 0:
		d.raiseAll(g.p, g.equal)
	default:
		for i := range g.took {
			d.add(g.took[i].place, g.took[i].rate)
		}
	}
}

// chain is the steps of a decision, demand by demand, in the order in which they are served.
type chain struct {
	memos, old []*memo // of this decision, and of the last
	linked     bool    // they are the same so far, so that dirty is valid
	dirty      []uint64
	within     []uint64 // dirty for the residual capacities of a step with a budget
	of         []uint64 // dirty or within

	charged, charges []charged // by step with a budget, in the last decision and in this
	step             int       // number of steps with a budget so far

	was, is []stamped // by link: see mark
	stamp   int
	spare   []residual
}

type stamped struct {
	left  float64
	stamp int
}

// keepable reports whether a schedule is one whose steps are stored: each serves one demand after
// another, at most once with each budget. Flows of rule Free have a rate of their own only with ceilings.
func keepable(sch *policies.Schedule, ceilings bool) bool {
	budget := 0
	for i := range sch.Steps {
		st := &sch.Steps[i]
		switch st.Rule {
		case policies.Greedy:
		case policies.Free:
			if !ceilings {
				return false
			}
		case policies.ExclusivePorts, policies.SlowestRate:
			if st.Budget > 0 {
				return false
			}
		case policies.EqualSplit:
			if st.Budget > 0 || len(st.Coflows) != 1 {
				return false
			}
		default:
			return false
		}
		if st.Budget > 0 {
			if st.Budget <= budget {
				return false
			}
			budget = st.Budget
		}
	}
	return true
}

// begin begins a decision. known states that the capacities are those of the last.
func (k *chain) begin(links int, known bool) {
	k.memos, k.old = k.old[:0], k.memos
	k.charges, k.charged, k.step = k.charged, k.charges[:k.step], 0
	k.linked = known
	k.dirty, k.within = sized(k.dirty, words(links)), sized(k.within, words(links))
	k.of = k.dirty
	if len(k.was) != links+1 {
		k.was, k.is = make([]stamped, links+1), make([]stamped, links+1)
	}
}

// cut makes the next decision the first, after one that was not completed.
func (k *chain) cut() { k.memos = k.memos[:0] }

// serve serves a demand in a step: coflow c.
func (s *Allocator) serve(c int, st *policies.Step) {
	d, p := s.demands[c], of(st.Part)
	if d.serves(p) == 0 {
		return
	}
	if !s.keeps {
		s.gift.begin(p)
		if o := s.compute(d, st, &s.gift); o != unseen {
			s.outcomes[c] = o
		}
		d.receive(&s.gift)
		return
	}
	k, m := &s.chain, d.memo()
	part, last := -1.0, s.last && st.Rule == policies.EqualSplit
	if st.Budget > 0 {
		part = s.parts[st.Budget-1]
	}
	again := m.capacityVersion == s.capacityVersion && m.rule == st.Rule && m.part == st.Part &&
		m.budget == part && (!m.last || last)
	if !again {
		m.capacityVersion = nil
	}
	k.linked = k.linked && again && len(k.memos) < len(k.old) && k.old[len(k.memos)] == m
	k.memos = append(k.memos, m)
	switch {
	case again && m.flowsVersion == d.flowsVersion && s.unchanged(d, m, st):
		m.changed = false
		s.repeat(m, st)
	default:
		m.rule, m.part, m.budget, m.last = st.Rule, st.Part, part, last
		s.renew(d, m, st)
	}
	if m.outcome != unseen {
		s.outcomes[c] = m.outcome
	}
}

// memo returns the memo of the next step that serves the demand.
func (d *Demand) memo() *memo {
	if d.steps == len(d.memos) {
		d.memos = append(d.memos, new(memo))
	}
	d.steps++
	return d.memos[d.steps-1]
}

// release stores that flows of some parts have no rate cap. Those that end meanwhile lose it. A decision of fair that
// changes no flow, for 100 coflows at 150, 900 and 3,000 ports, takes 10, 14 and 25 µs, and 3.1, 1.8 and 8.2 ms without it.
func (m *memo) release(p parts) {
	m.changed = m.rule != policies.Free || m.gift.p != p
	m.capacityVersion, m.rule, m.outcome = nil, policies.Free, unseen
	m.gift.begin(p)
	m.gift.equal = math.Inf(1)
}

// unchanged reports whether the residual capacities of a demand's links are those before the same
// step of the last decision. Links without residual capacity are all alike.
func (s *Allocator) unchanged(d *Demand, m *memo, st *policies.Step) bool {
	for w, links := range d.crossed {
		if s.linked {
			links &= s.of[w]
		}
		if links == 0 {
			continue
		}
		if s.lazy {
			s.bindWord(st, w, links)
		}
		for ; links != 0; links &= links - 1 {
			l := int32(w*64 + bits.TrailingZeros64(links))
			if now, had := s.avail[l], m.had[d.slot[l]]; now != had && (now > s.floor[l] || had > s.floor[l]) {
				return false
			}
		}
	}
	return true
}

// repeat sets the residual capacities after a step that gives the same rates as before.
func (s *Allocator) repeat(m *memo, st *policies.Step) {
	for i := range m.after {
		l, left := m.after[i].link, m.after[i].left
		if s.lazy {
			s.bindLink(st, l)
		}
		if s.avail[l] = left; left <= s.floor[l] && st.Rule != policies.SlowestRate {
			unset(s.offers, l)
		}
	}
}

// renew computes a step of a demand, and stores it.
func (s *Allocator) renew(d *Demand, m *memo, st *policies.Step) {
	k := &s.chain
	k.stamp++
	for i := range m.after {
		k.was[m.after[i].link] = stamped{m.after[i].left, k.stamp}
	}
	valid := m.capacityVersion != nil && k.linked
	m.had = roomy(m.had, len(d.links)+1)
	for w, links := range d.crossed {
		if valid {
			links &= k.of[w]
		}
		if links == 0 {
			continue
		}
		if s.lazy {
			s.bindWord(st, w, links)
		}
		for ; links != 0; links &= links - 1 {
			l := int32(w*64 + bits.TrailingZeros64(links))
			had := &m.had[d.slot[l]]
			if valid && k.was[l].stamp != k.stamp {
				k.was[l] = stamped{*had, k.stamp}
			}
			*had = s.avail[l]
		}
	}
	m.capacityVersion, m.flowsVersion = s.capacityVersion, d.flowsVersion
	s.gift.begin(of(st.Part))
	m.outcome = s.compute(d, st, &s.gift)
	m.changed = !m.gift.same(&s.gift)
	m.gift, s.gift = s.gift, m.gift

	k.spare = k.spare[:0]
	add := func(l int32) {
		if k.is[l].stamp != k.stamp && l != d.none {
			k.is[l].stamp = k.stamp
			k.spare = append(k.spare, residual{l, s.avail[l]})
		}
	}
	switch {
	case m.last:
	case st.Rule == policies.EqualSplit || st.Rule == policies.SlowestRate && m.outcome == served:
		for w, links := range d.crossed {
			for ; links != 0; links &= links - 1 {
				add(int32(w*64 + bits.TrailingZeros64(links)))
			}
		}
	default:
		for i := range m.gift.took {
			for _, l := range d.route(m.gift.took[i].place) {
				add(l)
			}
		}
	}
	if valid {
		for _, r := range k.spare {
			old := m.had[d.slot[r.link]]
			if k.was[r.link].stamp == k.stamp {
				old = k.was[r.link].left
			}
			k.mark(r.link, r.left != old)
		}
		for _, r := range m.after {
			if k.is[r.link].stamp != k.stamp {
				k.mark(r.link, s.availOf(st, r.link) != r.left)
			}
		}
	}
	m.after, k.spare = k.spare, m.after
}

// availOf returns the residual capacity of a link for the step.
func (s *Allocator) availOf(st *policies.Step, l int32) float64 {
	if s.lazy {
		s.bindLink(st, l)
	}
	return s.avail[l]
}

// mark records whether the residual capacity of a link differs from that at the same point of the
// last decision.
func (k *chain) mark(l int32, differs bool) {
	if differs {
		set(k.of, l)
	} else {
		unset(k.of, l)
	}
}

// bound begins a step with a budget.
func (k *chain) bound() {
	copy(k.within, k.dirty)
	k.of = k.within
	k.charges = slices.Grow(k.charges[:k.step], 1)[:k.step+1]
	k.charges[k.step].links = k.charges[k.step].links[:0]
}

// charge stores the residual capacity of a link that a step with a budget has used.
func (k *chain) charge(l int32, left float64) {
	k.charges[k.step].links = append(k.charges[k.step].links, residual{l, left})
	k.is[l].stamp = k.stamp
}

// unbound completes a step with a budget; free is the residual capacity.
func (k *chain) unbound(free []float64) {
	now := &k.charges[k.step]
	now.steps = len(k.memos)
	k.of = k.dirty
	k.linked = k.linked && k.step < len(k.charged) && k.charged[k.step].steps == now.steps
	if k.linked {
		for _, r := range k.charged[k.step].links {
			k.was[r.link] = stamped{r.left, k.stamp}
			if k.is[r.link].stamp != k.stamp {
				k.mark(r.link, free[r.link] != r.left)
			}
		}
		for _, r := range now.links {
			k.mark(r.link, k.was[r.link].stamp != k.stamp || k.was[r.link].left != r.left)
		}
	}
	k.step++
}

// complete sets the rates of demands whose gifts differ from those of the last decision.
func (d *Demand) complete() {
	same := d.steps == d.gifts && d.gifts >= 0
	for _, m := range d.memos[:d.steps] {
		same = same && !m.changed
	}
	if same {
		return
	}
	d.stop()
	for _, m := range d.memos[:d.steps] {
		d.receive(&m.gift)
	}
	d.gifts = d.steps
	d.settle()
}
