// Package alloc computes the rates of a policies.Schedule. It is the only implementation of
// the allocation rules, for the engine on packets and for simulations.
//
// This package makes no decisions: a policy decides the order of coflows and their rules.
package alloc

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"testbed/policies"
)

// negligible is the fraction of a link's capacity below which its residual capacity is
// rounding error and counts as 0. Rates of rule Explicit may exceed the residual capacity,
// and coflows of rule MADD their Within, by the same fraction.
const negligible = 1e-9

// Allocator computes rates. Its zero value is ready to use. It holds only memory for reuse. It
// must not be used by several goroutines at the same time.
type Allocator struct {
	demands []*Demand

	// Values by link, with one more at the end for the link none, whose capacity is
	// infinite: it pads short paths.
	capacity []float64
	floor    []float64 // negligible residual capacity
	free     []float64 // residual capacity after the steps so far
	whole    []float64 // what the step could use of an idle link
	avail    []float64 // residual capacity for the step: free, if it has no budget
	within   []float64 // memory for avail of a step with a budget
	before   []float64 // within at the start of the step
	n        []float64 // number of flows being served, or their bits; 0 between steps
	used     []float64 // capacity taken in the step; 0 between steps

	part  []float64 // capacity within the budget of the step
	share []float64 // rate that the link allows one flow

	budgets []float64 // residual budgets: those of the first by link, those of the second, ...
	begun   []uint64  // links for which budgets holds a value, in the same order
	every   []int32   // all links
	links   lists     // see linksOf
	taken   lists     // links of the coflows that a step serves
	parts   []float64 // Schedule.Budgets
	bound   []uint64  // see bindLink
	lazy    bool      // the step applies the budget to a link when it reaches the link
	owned   bool      // own is valid for all steps that are bound together
	spent   []bool    // by budget: a step has used it
	again   bool      // a later step has the same budget

	capacityVersion *int // identifies the capacities: a new pointer when they change

	outcomes []outcome // by coflow
	named    []int     // by coflow: 1 + the last step that names it
	pool     []parts   // by coflow: parts that steps of rule Free serve
	list     []int32   // indices of the flows being served

	offers     []uint64  // see offer: idle or own
	idle, own  []uint64  // links with residual capacity (free); links with residual capacity for the step
	some       []uint64  // links with capacity at the start
	lasting    bool      // idle contains all links with residual capacity, and few others
	last       bool      // the last step: residual capacity need not be updated
	cols, rows []uint64  // see pick, alive
	give, got  []float64 // see draw
	giveInside []float64
	gotInside  []float64
	sums       []float64 // see drawSorted
	order      []int32
	tally      []int32   // see countInside
	takers     []*Demand // demands of a step of rule EqualSplit

	fill filling

	keeps bool // the schedule is keepable
	chain      // valid if keeps is set
	gift  gift // of the step for one demand
}

// outcome is the result of the last MADD or SlowestRate step for a coflow.
type outcome uint8

const (
	unseen outcome = iota
	skipped
	served
)

// Share sets the rates of all demands according to the steps of sch. demands are parallel
// to the coflows of the View for which sch was made. capacity is in bit/s, by LinkID. knows
// is the policy's declared knowledge.
//
// It is an error if a rule needs more knowledge, a step names an unknown coflow or flow, a
// rate or budget is out of bounds, or a flow crosses no link, so that nothing limits its
// rate. After an error all rates are 0.
//
// Flows of rule Free get max-min fair shares of the capacity that all other steps leave.
// With ceilings set, they get +Inf instead, for a transport that shares this capacity
// itself.
func (s *Allocator) Share(sch *policies.Schedule, demands []*Demand, capacity []float64, knows policies.Facts, ceilings bool) error {
	known := s.known(capacity)
	err := s.check(sch, demands, capacity, known, knows)
	s.keeps = err == nil && keepable(sch, ceilings)
	for _, d := range demands {
		if d.steps = 0; !s.keeps {
			d.stop()
		}
	}
	if err == nil {
		s.start(sch, demands, capacity, known)
		err = s.steps(sch, ceilings)
	}
	for _, d := range demands {
		switch {
		case err != nil:
			d.stop()
			s.cut()
		case s.keeps:
			d.complete()
		default:
			d.settle()
		}
	}
	s.demands = nil
	return err
}

// check returns the first error that does not depend on rates. Known capacities have been
// checked before.
func (s *Allocator) check(sch *policies.Schedule, demands []*Demand, capacity []float64, known bool, knows policies.Facts) error {
	links := len(capacity)
	for l, c := range capacity {
		if known {
			break
		}
		if !(c >= 0) || math.IsInf(c, 0) {
			return fmt.Errorf("capacity of link %d: %v bit/s: must be finite and 0 or more", l, c)
		}
	}
	for c, d := range demands {
		if int(d.none) != links {
			return fmt.Errorf("coflow %d of the view: its fabric has %d links, but %d capacities are given", c, d.none, links)
		}
		if d.invalid != nil {
			return fmt.Errorf("coflow %d of the view: %w", c, d.invalid)
		}
		if d.unlimited > 0 {
			return fmt.Errorf("coflow %d of the view: flow %d crosses no link: every unfinished flow must cross one that limits its rate", c, d.ID(d.free()))
		}
	}
	for b, part := range sch.Budgets {
		if !(part >= 0 && part <= 1) {
			return fmt.Errorf("schedule: budget %d is %v: must be from 0 to 1", b, part)
		}
	}
	s.named = sized(s.named, len(demands))
	for i := range sch.Steps {
		if err := s.checkStep(sch, i, len(demands), knows); err != nil {
			return fmt.Errorf("schedule: step %d (%v): %w", i, sch.Steps[i].Rule, err)
		}
	}
	return nil
}

func (s *Allocator) checkStep(sch *policies.Schedule, i, coflows int, knows policies.Facts) error {
	st := &sch.Steps[i]
	switch {
	case st.Rule > policies.Explicit:
		return errors.New("unknown rule: must be one of policies.Free to policies.Explicit")
	case st.Part > policies.Chosen:
		return fmt.Errorf("unknown part %d: must be policies.All, Pilots, Others or Chosen", st.Part)
	case st.Only > policies.Served:
		return fmt.Errorf("unknown selection %d of coflows: must be policies.Everyone, Skipped or Served", st.Only)
	case st.Budget < 0 || st.Budget > len(sch.Budgets):
		return fmt.Errorf("budget %d of %d: must be 1 + an index into Schedule.Budgets, or 0 for none", st.Budget, len(sch.Budgets))
	case st.Budget > 0 && st.Rule == policies.Free:
		return errors.New("a budget cannot limit free flows: use budget 0, or another rule such as MaxMin")
	case st.Within < 0 || st.Within > 0 && st.Rule != policies.MADD:
		return fmt.Errorf("within %v: must be 0, or more with rule MADD", st.Within)
	case len(st.Rates) > 0 && st.Rule != policies.Explicit:
		return fmt.Errorf("%d rates of flows: must be given only with rule Explicit", len(st.Rates))
	case st.Rule == policies.MADD && !knows.Has(policies.Sizes):
		return errors.New("the rule needs flow sizes, which the policy does not declare: name Sizes in its Needs")
	}
	if st.Rule == policies.Explicit {
		return nil
	}
	for _, c := range st.Coflows {
		if c < 0 || c >= coflows {
			return fmt.Errorf("coflow %d: the view has only %d coflows", c, coflows)
		}
		if s.named[c] == i+1 {
			return fmt.Errorf("coflow %d of the view occurs twice: each must occur once in a step", c)
		}
		s.named[c] = i + 1
	}
	return nil
}

// free returns the index of an unfinished flow that crosses no link, -1 without any.
func (d *Demand) free() int {
	for i := range d.Left {
		if !d.Ended(i) && d.path[i*d.stride] == d.none {
			return i
		}
	}
	return -1
}

// sized returns a slice of n zeros, in the memory of s if that is large enough.
func sized[E any](s []E, n int) []E {
	s = roomy(s, n)
	clear(s)
	return s
}

// roomy is like sized, with arbitrary content.
func roomy[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n, n+n/2)
	}
	return s[:n]
}

// known reports whether capacities are those of the previous start.
func (s *Allocator) known(capacity []float64) bool {
	return len(s.capacity) == len(capacity)+1 && slices.Equal(s.capacity[:len(capacity)], capacity)
}

func (s *Allocator) start(sch *policies.Schedule, demands []*Demand, capacity []float64, known bool) {
	s.demands = demands
	n := len(capacity)
	if !known {
		for _, v := range []*[]float64{&s.capacity, &s.floor, &s.free, &s.part, &s.within, &s.before, &s.share} {
			*v = roomy(*v, n+1)
		}
		s.some, s.capacityVersion = sized(s.some, words(n)), new(int)
		s.every = roomy(s.every, n)
		for l := range s.every {
			s.every[l] = int32(l)
		}
		for l, c := range capacity {
			s.capacity[l], s.floor[l] = c, c*negligible
			if c > s.floor[l] {
				set(s.some, int32(l))
			}
		}
		s.floor[n] = 0
		for _, v := range [][]float64{s.capacity, s.within, s.part, s.share} {
			v[n] = math.Inf(1)
		}
	}
	copy(s.free, s.capacity)
	s.n, s.used = sized(s.n, n+1), sized(s.used, n+1)
	s.idle, s.lasting = append(s.idle[:0], s.some...), true
	s.parts = sch.Budgets
	s.budgets, s.begun = roomy(s.budgets, n*len(sch.Budgets)), sized(s.begun, words(n)*len(sch.Budgets))
	s.spent = sized(s.spent, len(sch.Budgets))
	s.outcomes = sized(s.outcomes, len(demands))
	s.pool = sized(s.pool, len(demands))
	if s.keeps {
		s.begin(n, known)
	} else if !known {
		s.cut()
	}
}

func (s *Allocator) steps(sch *policies.Schedule, ceilings bool) error {
	free := false
	for i := 0; i < len(sch.Steps); {
		st := &sch.Steps[i]
		if st.Rule == policies.Free {
			free = true
			s.release(st)
			i++
			continue
		}
		same := sameBudget(sch.Steps[i:])
		s.avail, s.whole = s.free, s.capacity
		if st.Budget > 0 {
			s.again = slices.ContainsFunc(sch.Steps[i+same:], func(o policies.Step) bool { return o.Budget == st.Budget })
			s.bind(sch.Steps[i:i+same], sch.Budgets[st.Budget-1])
		}
		for range same {
			s.last = i == len(sch.Steps)-1 && !free
			if err := s.step(&sch.Steps[i]); err != nil {
				return fmt.Errorf("schedule: step %d (%v): %w", i, sch.Steps[i].Rule, err)
			}
			i++
		}
		if st.Budget > 0 {
			s.unbind(st)
		}
	}
	if free {
		s.avail, s.last = s.free, true
		s.serveFree(ceilings)
	}
	return nil
}

func (s *Allocator) step(st *policies.Step) error {
	switch st.Rule {
	case policies.MaxMin:
		s.maxmin(st)
	case policies.Proportional:
		s.proportional(st)
	case policies.EqualSplit:
		s.offer(st)
		if !s.keeps {
			s.even(st)
			return nil
		}
		s.serveEach(st)
	case policies.Greedy, policies.ExclusivePorts:
		s.offer(st)
		s.serveEach(st)
	case policies.MADD, policies.SlowestRate:
		s.lasting = false
		s.serveEach(st)
	case policies.Explicit:
		s.lasting = false
		return s.explicit(st.Rates)
	default:
		return fmt.Errorf("rule %d is not known", st.Rule)
	}
	return nil
}

// serveEach serves the coflows of a step one after another.
func (s *Allocator) serveEach(st *policies.Step) {
	for _, c := range st.Coflows {
		if s.takes(st, c) {
			s.serve(c, st)
		}
	}
}

// compute computes what a step gives a demand, and subtracts it from the residual capacity.
func (s *Allocator) compute(d *Demand, st *policies.Step, to *gift) outcome {
	switch st.Rule {
	case policies.EqualSplit:
		s.even(st)
	case policies.MADD, policies.SlowestRate:
		return s.allOrNone(d, st, to)
	default:
		s.flows(d, st)
	}
	return unseen
}

// takes reports whether a step serves a coflow.
func (s *Allocator) takes(st *policies.Step, c int) bool {
	switch st.Only {
	case policies.Skipped:
		return s.outcomes[c] == skipped
	case policies.Served:
		return s.outcomes[c] == served
	}
	return true
}

// open reports whether a link has residual capacity for the step.
func (s *Allocator) open(l int32) bool { return s.avail[l] > s.floor[l] }

// least returns the minimum residual capacity of a path for the step.
func (s *Allocator) least(path []int32) float64 {
	least := math.Inf(1)
	for _, l := range path {
		if !s.open(l) {
			return 0
		}
		least = min(least, s.avail[l])
	}
	return least
}

// grant gives a flow a rate and subtracts it from the residual capacity.
func (s *Allocator) grant(place int32, path []int32, rate float64) {
	s.gift.took = append(s.gift.took, took{place, rate})
	for _, l := range path {
		s.avail[l] = max(s.avail[l]-rate, 0)
	}
}

// route returns a flow's path, padded with none.
func (d *Demand) route(place int32) []int32 {
	return d.path[int(place)*d.stride : (int(place)+1)*d.stride]
}

// flows applies rule Greedy or ExclusivePorts to one coflow.
func (s *Allocator) flows(d *Demand, st *policies.Step) {
	p, whole := of(st.Part), st.Rule == policies.ExclusivePorts
	picks := st.Part != policies.Chosen && d.grid != nil
	if s.lazy && !(picks && !d.grid.core) {
		for _, l := range d.links {
			s.bindLink(st, l)
		}
	}
	switch {
	case picks:
		s.pick(d, p, st)
		return
	case st.Part == policies.Chosen:
		d.chosen = slices.DeleteFunc(d.chosen, func(i int32) bool { return d.Ended(int(i)) })
		s.list = append(s.list[:0], d.chosen...)
	default:
		s.list = d.places(p, s.list)
	}
	for _, i := range s.list {
		path := d.route(i)
		var rate float64
		if whole {
			rate = s.wholeRate(path, d.none)
		} else {
			rate = s.least(path)
		}
		if rate > 0 {
			s.grant(i, path, rate)
		}
	}
}

// wholeRate returns the rate of rule ExclusivePorts for a path; 0 if the path is not free for it.
func (s *Allocator) wholeRate(p []int32, none int32) float64 {
	rate, last := math.Inf(1), p[0]
	for _, l := range p {
		rate = min(rate, s.whole[l])
		if l != none {
			last = l
		}
	}
	if !s.untouched(p[0]) || !s.untouched(last) {
		return 0
	}
	least := s.least(p)
	if least < rate*(1-negligible) {
		return 0
	}
	return least
}

// untouched reports whether a link is unused.
func (s *Allocator) untouched(l int32) bool { return s.avail[l] >= s.whole[l]*(1-negligible) }

// allOrNone applies rule MADD or SlowestRate to one coflow.
func (s *Allocator) allOrNone(d *Demand, st *policies.Step, to *gift) outcome {
	p := of(st.Part)
	if d.is && p == pilots|others && st.Rule == policies.MADD {
		return s.maddJoint(d, st.Within.Seconds())
	}
	for slot, l := range d.links {
		if d.crossing(slot, p) > 0 && !s.open(l) {
			return skipped
		}
	}
	if st.Rule == policies.SlowestRate {
		to.equal = s.equal(d, p)
		return served
	}
	return s.madd(d, p, st.Within.Seconds())
}

// equal applies rule SlowestRate to one coflow, and returns the rate of its flows.
func (s *Allocator) equal(d *Demand, p parts) float64 {
	rate := math.Inf(1)
	for slot, l := range d.links {
		if n := d.crossing(slot, p); n > 0 {
			rate = min(rate, s.avail[l]/float64(n))
		}
	}
	for slot, l := range d.links {
		s.avail[l] = max(s.avail[l]-float64(d.crossing(slot, p))*rate, 0)
	}
	return rate
}

func (s *Allocator) madd(d *Demand, p parts, within float64) outcome {
	bits, scale := d.left(p), d.Scale()
	takes := 0.0 // seconds
	for slot, l := range d.links {
		if v := bits[slot]; v > 0 {
			takes = max(takes, v*scale/s.avail[l])
		}
	}
	switch {
	case within > 0 && takes > within*(1+negligible):
		return skipped
	case takes == 0: // all bytes have been received
		return served
	}
	takes = max(takes, within)
	for slot, l := range d.links {
		s.avail[l] = max(s.avail[l]-bits[slot]*scale/takes, 0)
	}
	to, left := d.reserve(d.serves(p)), d.Left
	s.list = d.places(p, s.list)
	for _, i := range s.list {
		to.raise(i, left[i]*scale/takes)
	}
	d.raised(to)
	return served
}

// explicit applies rule Explicit. It returns the first error.
func (s *Allocator) explicit(rates []policies.FlowRate) error {
	c := 0
	for _, r := range rates {
		if !(r.Rate >= 0) || math.IsInf(r.Rate, 0) {
			return fmt.Errorf("flow %d: rate %v bit/s: must be finite and 0 or more", r.Flow, r.Rate)
		}
		// Flows of one coflow are usually consecutive.
		place := -1
		for range s.demands {
			if place = s.demands[c].Place(r.Flow); place >= 0 {
				break
			}
			c = (c + 1) % len(s.demands)
		}
		if place < 0 || s.demands[c].Ended(place) {
			return fmt.Errorf("flow %d: rate %v bit/s: no unfinished flow has this ID", r.Flow, r.Rate)
		}
		d := s.demands[c]
		d.add(int32(place), r.Rate)
		for _, l := range d.route(int32(place)) {
			s.avail[l] -= r.Rate
			if s.avail[l] < -s.floor[l] {
				return fmt.Errorf("flow %d: rate %v bit/s: exceeds the residual capacity by %v bit/s on link %d", r.Flow, r.Rate, -s.avail[l], l)
			}
		}
	}
	for l := range s.avail {
		s.avail[l] = max(s.avail[l], 0)
	}
	return nil
}

// release adds the flows of a step of rule Free to the pool, which is served after all
// other steps.
func (s *Allocator) release(st *policies.Step) {
	for _, c := range st.Coflows {
		if s.takes(st, c) {
			s.pool[c] |= of(st.Part)
		}
	}
}

// serveFree serves the pool.
func (s *Allocator) serveFree(ceilings bool) {
	if !ceilings {
		s.offer(&policies.Step{})
		for c, p := range s.pool {
			s.join(s.demands[c], p)
		}
		s.runFilling()
		return
	}
	for c, p := range s.pool {
		if p == 0 {
			continue
		}
		d := s.demands[c]
		if s.keeps {
			d.memo().release(p)
			continue
		}
		s.list = d.places(p, s.list)
		to := d.reserve(len(s.list))
		for _, i := range s.list {
			to.raise(i, math.Inf(1))
		}
		d.raised(to)
	}
}
