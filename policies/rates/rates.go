// Package rates computes the rates a policies.Schedule stands for: the one
// implementation of every rule, for the engine on packets and for simulations.
//
// It decides nothing: which coflow comes when and by which rule is the policy's.
package rates

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"testbed/policies"
)

// nothing is the part of a link's capacity below which what is left of it is
// taken for the rounding of floating point: nothing is left then. By the same part
// rates of rule Explicit may pass what there is, and flows of rule MADD their
// Within.
const nothing = 1e-9

// Sharer computes rates. Its zero value is ready; it holds nothing but memory that
// is used again. It is for one goroutine.
type Sharer struct {
	demands []*Demand

	// By link, with one more at the end, whose capacity is infinite: it fills up
	// paths that are short.
	capacity []float64
	floor    []float64 // what is nothing
	free     []float64 // what steps have left
	whole    []float64 // what the step could have of an idle link
	avail    []float64 // what the step has of free: free itself, if it has no budget
	within   []float64 // avail of a step with a budget
	before   []float64 // the same when the step began
	n        []float64 // flows, or bits, of what is being served; 0 between steps
	used     []float64 // what is taken of it; 0 between steps

	part  []float64 // capacity within the budget of the step
	share []float64 // what one flow can have

	budgets []float64 // what is left of them: those of the first, by link, of the second, ...
	begun   []uint64  // links of these that budgets says anything of, in the same order
	every   []int32   // all links
	links   lists     // see linksOf
	taken   lists     // links of the coflows that a step serves
	parts   []float64 // Schedule.Budgets
	bound   []uint64  // see bindLink
	lazy    bool      // the step binds links when it comes to them
	owned   bool      // own is what the steps bound at once may have something of
	spent   []bool    // by budget: a step has taken of it
	again   bool      // the step's budget is that of a later one too

	era *int // another one for other capacities

	fates []fate  // by coflow
	named []int   // by coflow: one more than the last step to name it
	pool  []parts // by coflow: served by a step of rule Free
	list  []int32 // places of the flows being served

	offers     []uint64  // see offer: idle or own
	idle, own  []uint64  // what has something left of free; what the step has something of
	some       []uint64  // what has something left at first
	lasting    bool      // idle names all that have something left, and few others
	varies     bool      // what is left follows from what flows have left: it never comes again
	last       bool      // what the step takes is of no use to any other
	cols, rows []uint64  // see pick, alive
	news       []uint64  // of cols, those that are not barren
	other      []uint64  // see survey
	opened     []int32   // columns that had nothing left when they were recorded
	give, got  []float64 // see draw
	giveInside []float64
	gotInside  []float64
	sums       []float64 // see drawSorted
	order      []int32
	tally      []int32   // see countInside
	takers     []*Demand // of a step of rule Even

	fill filling
}

// fate is what the last MADD or Equal step to look at a coflow did with it.
type fate uint8

const (
	unseen fate = iota
	skipped
	served
)

// Share sets the rates of all demands, which are parallel to the coflows of the
// View that s was made for, by the schedule's steps. capacity is in bit/s, by
// LinkID. knows is what the policy declared: a rule that needs more is an error, as
// is a step that names a coflow or flow that is not there, or a rate or budget out of
// bounds, or a flow that crosses no link: nothing would limit it. After an error all
// rates are 0. Flows of rule Free get their max-min fair share of what all other steps
// leave; with ceilings true they get +Inf instead, for a transport that finds it out by
// itself.
func (s *Sharer) Share(sch *policies.Schedule, demands []*Demand, capacity []float64, knows policies.Knowledge, ceilings bool) error {
	for _, d := range demands {
		d.stop()
	}
	known := s.known(capacity)
	err := s.check(sch, demands, capacity, known, knows)
	if err == nil {
		s.start(sch, demands, capacity, known)
		err = s.steps(sch, ceilings)
	}
	for _, d := range demands {
		if err != nil {
			d.stop()
		}
		d.settle()
	}
	s.demands = nil
	return err
}

// check finds the mistakes that can be told before any rate is known.
// Capacities that are known were right.
func (s *Sharer) check(sch *policies.Schedule, demands []*Demand, capacity []float64, known bool, knows policies.Knowledge) error {
	links := len(capacity)
	for l, c := range capacity {
		if known {
			break
		}
		if !(c >= 0) || math.IsInf(c, 0) {
			return fmt.Errorf("the capacity of link %d is %v bit/s: want 0 or more, and finite", l, c)
		}
	}
	for c, d := range demands {
		if int(d.none) != links {
			return fmt.Errorf("coflow %d of the view is on a fabric of %d links: want the %d whose capacities are given", c, d.none, links)
		}
		if d.mistake != nil {
			return fmt.Errorf("coflow %d of the view: %w", c, d.mistake)
		}
		if d.unlimited > 0 {
			return fmt.Errorf("coflow %d of the view: flow %d crosses no link, so that nothing limits its rate: want every unfinished flow to cross one", c, d.ID(d.free()))
		}
	}
	for b, part := range sch.Budgets {
		if !(part >= 0 && part <= 1) {
			return fmt.Errorf("schedule: budget %d is %v of the links: want 0 to 1", b, part)
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

func (s *Sharer) checkStep(sch *policies.Schedule, i, coflows int, knows policies.Knowledge) error {
	st := &sch.Steps[i]
	switch {
	case st.Rule > policies.Explicit:
		return errors.New("there is no such rule: want one of policies.Free to policies.Explicit")
	case st.Part > policies.Chosen:
		return fmt.Errorf("there is no part %d of a coflow: want policies.All, Pilots, Others or Chosen", st.Part)
	case st.Only > policies.Served:
		return fmt.Errorf("there is no choice %d of coflows: want policies.Everyone, Skipped or Served", st.Only)
	case st.Budget < 0 || st.Budget > len(sch.Budgets):
		return fmt.Errorf("budget %d of %d: want one more than a place in Schedule.Budgets, or 0 for none", st.Budget, len(sch.Budgets))
	case st.Budget > 0 && st.Rule == policies.Free:
		return errors.New("flows that only the transport limits keep no budget: want 0, or another rule, such as MaxMin")
	case st.Within < 0 || st.Within > 0 && st.Rule != policies.MADD:
		return fmt.Errorf("within %v: want a time of 0 or more, and that of rule MADD alone", st.Within)
	case len(st.Rates) > 0 && st.Rule != policies.Explicit:
		return fmt.Errorf("%d rates of flows: want them with rule Explicit alone", len(st.Rates))
	case st.Rule == policies.MADD && knows&policies.Sizes == 0:
		return errors.New("the rule needs the sizes of flows, which the policy does not declare: add policies.Sizes to its Needs")
	}
	if st.Rule == policies.Explicit {
		return nil
	}
	for _, c := range st.Coflows {
		if c < 0 || c >= coflows {
			return fmt.Errorf("coflow %d of the view: there are %d", c, coflows)
		}
		if s.named[c] == i+1 {
			return fmt.Errorf("coflow %d of the view is named twice: want each once in a step", c)
		}
		s.named[c] = i + 1
	}
	return nil
}

// free is the place of an unfinished flow that crosses no link.
func (d *Demand) free() int {
	for i := range d.Left {
		if !d.Ended(i) && d.path[i*d.stride] == d.none {
			return i
		}
	}
	return -1
}

// sized is a slice of n zeros, in the same memory if that does.
func sized[E any](s []E, n int) []E {
	s = roomy(s, n)
	clear(s)
	return s
}

// roomy is a slice of n, of anything, in the same memory if that does.
func roomy[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n, n+n/2)
	}
	return s[:n]
}

// known tells whether capacities are those of the last start.
func (s *Sharer) known(capacity []float64) bool {
	return len(s.capacity) == len(capacity)+1 && slices.Equal(s.capacity[:len(capacity)], capacity)
}

func (s *Sharer) start(sch *policies.Schedule, demands []*Demand, capacity []float64, known bool) {
	s.demands = demands
	n := len(capacity)
	if !known {
		for _, v := range []*[]float64{&s.capacity, &s.floor, &s.free, &s.part, &s.within, &s.before, &s.share} {
			*v = roomy(*v, n+1)
		}
		s.some, s.era = sized(s.some, words(n)), new(int)
		s.every = roomy(s.every, n)
		for l := range s.every {
			s.every[l] = int32(l)
		}
		for l, c := range capacity {
			s.capacity[l], s.floor[l] = c, c*nothing
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
	s.varies = false
	s.parts = sch.Budgets
	s.budgets, s.begun = roomy(s.budgets, n*len(sch.Budgets)), sized(s.begun, words(n)*len(sch.Budgets))
	s.spent = sized(s.spent, len(sch.Budgets))
	s.fates = sized(s.fates, len(demands))
	s.pool = sized(s.pool, len(demands))
}

func (s *Sharer) steps(sch *policies.Schedule, ceilings bool) error {
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
		s.freely(ceilings)
	}
	return nil
}

func (s *Sharer) step(st *policies.Step) error {
	switch st.Rule {
	case policies.MaxMin:
		s.maxmin(st)
	case policies.Even:
		s.even(st)
	case policies.Proportional:
		s.proportional(st)
	case policies.Greedy, policies.Whole:
		s.offer(st)
		for _, c := range st.Coflows {
			if s.takes(st, c) {
				s.flows(s.demands[c], st)
			}
		}
	case policies.MADD, policies.Equal:
		s.lasting = false
		s.varies = s.varies || st.Rule == policies.MADD
		for _, c := range st.Coflows {
			if d := s.demands[c]; s.takes(st, c) && d.serves(of(st.Part)) > 0 {
				s.fates[c] = s.together(d, st)
			}
		}
	case policies.Explicit:
		s.lasting, s.varies = false, true
		return s.explicit(st.Rates)
	default:
		return fmt.Errorf("rule %d is not known", st.Rule)
	}
	return nil
}

// takes tells whether a step serves a coflow.
func (s *Sharer) takes(st *policies.Step, c int) bool {
	switch st.Only {
	case policies.Skipped:
		return s.fates[c] == skipped
	case policies.Served:
		return s.fates[c] == served
	}
	return true
}

// open tells whether the step has something left of a link.
func (s *Sharer) open(l int32) bool { return s.avail[l] > s.floor[l] }

// least is what the step has of a path.
func (s *Sharer) least(path []int32) float64 {
	least := math.Inf(1)
	for _, l := range path {
		if !s.open(l) {
			return 0
		}
		least = min(least, s.avail[l])
	}
	return least
}

// grant gives a flow a rate and takes it from what the step has.
func (s *Sharer) grant(d *Demand, place int32, path []int32, rate float64) {
	d.add(place, rate)
	for _, l := range path {
		s.avail[l] = max(s.avail[l]-rate, 0)
	}
}

// route is a flow's path, filled up with none.
func (d *Demand) route(place int32) []int32 {
	return d.path[int(place)*d.stride : (int(place)+1)*d.stride]
}

// flows is rules Greedy and Whole for one coflow.
func (s *Sharer) flows(d *Demand, st *policies.Step) {
	p, whole := of(st.Part), st.Rule == policies.Whole
	if d.serves(p) == 0 {
		return
	}
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
			rate = s.alike(path, d.none)
		} else {
			rate = s.least(path)
		}
		if rate > 0 {
			s.grant(d, i, path, rate)
		}
	}
}

// alike is what the step has of a path that is as good as idle to one flow, else 0.
func (s *Sharer) alike(p []int32, none int32) float64 {
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
	if least < rate*(1-nothing) {
		return 0
	}
	return least
}

// untouched tells whether a link is left whole.
func (s *Sharer) untouched(l int32) bool { return s.avail[l] >= s.whole[l]*(1-nothing) }

// together is rules MADD and Equal for one coflow.
func (s *Sharer) together(d *Demand, st *policies.Step) fate {
	p := of(st.Part)
	for slot, l := range d.links {
		if d.crossing(slot, p) > 0 && !s.open(l) {
			return skipped
		}
	}
	if st.Rule == policies.Equal {
		s.equal(d, p)
		return served
	}
	return s.madd(d, p, st.Within.Seconds())
}

func (s *Sharer) equal(d *Demand, p parts) {
	rate := math.Inf(1)
	for slot, l := range d.links {
		if n := d.crossing(slot, p); n > 0 {
			rate = min(rate, s.avail[l]/float64(n))
		}
	}
	for slot, l := range d.links {
		s.avail[l] = max(s.avail[l]-float64(d.crossing(slot, p))*rate, 0)
	}
	if len(d.moving) == 0 && rate > 0 {
		d.moving = d.places(p, d.moving)
		for _, i := range d.moving {
			d.rate[i] = rate
		}
		return
	}
	s.list = d.places(p, s.list)
	to := d.reserve(len(s.list))
	for _, i := range s.list {
		to.raise(i, rate)
	}
	d.raised(to)
}

func (s *Sharer) madd(d *Demand, p parts, within float64) fate {
	if d.is && p == pilots|others {
		return s.pace(d, within)
	}
	bits, scale := d.left(p), d.Scale()
	takes := 0.0 // seconds
	for slot, l := range d.links {
		if v := bits[slot]; v > 0 {
			takes = max(takes, v*scale/s.avail[l])
		}
	}
	switch {
	case within > 0 && takes > within*(1+nothing):
		return skipped
	case takes == 0: // all has been received
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

// explicit takes rates as they are. The errors of all are told by the first.
func (s *Sharer) explicit(rates []policies.FlowRate) error {
	c := 0
	for _, r := range rates {
		if !(r.Rate >= 0) || math.IsInf(r.Rate, 0) {
			return fmt.Errorf("flow %d gets %v bit/s: want 0 or more, and finite", r.Flow, r.Rate)
		}
		// Flows of one coflow tend to follow one another.
		place := -1
		for range s.demands {
			if place = s.demands[c].Place(r.Flow); place >= 0 {
				break
			}
			c = (c + 1) % len(s.demands)
		}
		if place < 0 || s.demands[c].Ended(place) {
			return fmt.Errorf("flow %d gets %v bit/s: no unfinished flow has that ID", r.Flow, r.Rate)
		}
		d := s.demands[c]
		d.add(int32(place), r.Rate)
		for _, l := range d.route(int32(place)) {
			s.avail[l] -= r.Rate
			if s.avail[l] < -s.floor[l] {
				return fmt.Errorf("flow %d gets %v bit/s: that is %v bit/s more than is left of link %d", r.Flow, r.Rate, -s.avail[l], l)
			}
		}
	}
	for l := range s.avail {
		s.avail[l] = max(s.avail[l], 0)
	}
	return nil
}

// release puts the flows of a step of rule Free into the pool, which is served when
// all other steps are.
func (s *Sharer) release(st *policies.Step) {
	for _, c := range st.Coflows {
		if s.takes(st, c) {
			s.pool[c] |= of(st.Part)
		}
	}
}

// freely serves the pool.
func (s *Sharer) freely(ceilings bool) {
	if !ceilings {
		s.offer(&policies.Step{})
		s.fill.start(s)
		for c, p := range s.pool {
			if s.reaches(s.demands[c], p) {
				s.fill.join(s.demands[c], p)
			}
		}
		s.fill.run(s)
		return
	}
	for c, p := range s.pool {
		if p == 0 {
			continue
		}
		d := s.demands[c]
		s.list = d.places(p, s.list)
		to := d.reserve(len(s.list))
		for _, i := range s.list {
			to.raise(i, math.Inf(1))
		}
		d.raised(to)
	}
}

func (s *Sharer) maxmin(st *policies.Step) {
	p := of(st.Part)
	s.offer(st)
	s.fill.start(s)
	for _, c := range st.Coflows {
		if s.takes(st, c) && s.reaches(s.demands[c], p) {
			s.fill.join(s.demands[c], p)
		}
	}
	s.fill.run(s)
}
