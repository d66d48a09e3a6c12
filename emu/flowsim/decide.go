package flowsim

import (
	"fmt"
	"math"
	"slices"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// decide calls the scheduler and applies its answer.
func (s *sim) decide() error {
	if s.shared {
		s.classes.update(s)
	}
	s.show()
	s.schedule.Reset()
	s.Policy.Decide(&s.view, &s.schedule)
	if err := s.Check(&s.view, &s.schedule); err != nil {
		return err
	}
	for _, id := range s.schedule.Pilots {
		c, place := s.find(id)
		if c == nil {
			return fmt.Errorf("pilot %d: no such flow is unfinished", id)
		}
		if !c.demand.Pilot(place) {
			c.demand.MakePilot(place)
			c.news = true
			c.AddPilot()
		}
	}
	s.result.Decisions++
	s.Accept(s.now.Round(), &s.schedule)
	for i, c := range s.active {
		if s.Take(&s.schedule, i, &c.Coflow) {
			c.news = true
			s.result.Coflows[c.at].QueuedSent = s.bytesBy(c)
		}
	}
	if err := s.share(); err != nil {
		return err
	}
	if s.counter != nil {
		s.counter.decided(s)
	}
	return nil
}

// show updates the View.
func (s *sim) show() {
	s.view.Now = s.now.Round()
	sizes, progress := s.Needs.Has(policies.Sizes), s.Needs.Has(policies.Progress)
	s.flows = s.flows[:0]
	for i, c := range s.active {
		st := &c.State
		all, pilots := s.Shows(&c.Coflow)
		shows := all || pilots
		if !c.news && !shows && st.Flows == nil {
			continue
		}
		if c.news {
			c.news = false
			if progress {
				st.Sent = s.bytesBy(c)
			}
			if sizes {
				st.Remaining = st.Size - st.Sent
			}
			if s.Needs.Has(policies.MostSent) {
				c.look(s.now)
				st.MostSent = c.mostBytes()
			}
			if s.Needs.Has(policies.Links) {
				st.Links = c.demand.Links(s.Needs)
			}
		}
		st.Flows = nil
		if shows {
			first := len(s.flows)
			s.flows = c.appendFlows(s.flows, all, s.Needs)
			st.Flows = s.flows[first:len(s.flows):len(s.flows)]
		}
		s.view.Coflows[i] = *st
	}
}

// appendFlows lists the unfinished flows, all or the pilots.
func (c *coflow) appendFlows(out []policies.FlowState, all bool, shown policies.Facts) []policies.FlowState {
	left := c.State.PilotsLeft
	for p := range c.flows {
		if c.demand.Ended(p) || !all && !c.demand.Pilot(p) {
			continue
		}
		if !all {
			if left == 0 {
				break
			}
			left--
		}
		fl := &c.flows[p]
		f := policies.FlowState{ID: fl.ID, Src: fl.Src, Dst: fl.Dst, Path: c.demand.Path(p), Pilot: c.demand.Pilot(p),
			Sent: min(units.Bytes(float64(fl.Size)-c.demand.Bits(p)/8+nearlyWhole), fl.Size-1)}
		if shown.Has(policies.Sizes) {
			f.Size, f.Remaining = fl.Size, fl.Size-f.Sent
		}
		if !shown.Has(policies.Progress) {
			f.Sent = 0
		}
		out = append(out, f)
	}
	return out
}

// find returns the place of an unfinished flow.
func (s *sim) find(id workloads.FlowID) (*coflow, int) {
	for _, c := range s.active {
		if id < c.flows[0].ID || id > c.flows[len(c.flows)-1].ID {
			continue
		}
		if p := c.demand.Place(id); p >= 0 && !c.demand.Ended(p) {
			return c, p
		}
	}
	return nil, 0
}

// share computes the rates of the decision.
func (s *sim) share() error {
	free := slices.ContainsFunc(s.schedule.Steps, func(st policies.Step) bool { return st.Rule == policies.Free })
	s.free = free
	if free && s.joint {
		// Flows that the network shares are kept one by one.
		s.joint = false
		for _, c := range s.active {
			c.demand.Separate()
		}
	}
	if s.enterClasses() {
		return nil
	}
	s.list()
	if free {
		return s.ceilings.set(s)
	}
	return s.compute(&s.schedule)
}

// list collects the demands of the active coflows.
func (s *sim) list() {
	s.demands = s.demands[:0]
	for _, c := range s.active {
		s.demands = append(s.demands, c.demand)
	}
}

// refill recomputes the rates of flows without a rate cap, as the network does by itself
// when a flow ends.
func (s *sim) refill() error {
	s.list()
	return s.ceilings.refill(s)
}

// compute sets the rates of a schedule.
func (s *sim) compute(sch *policies.Schedule) error {
	if err := s.allocator.Share(sch, s.demands, s.capacity, s.Needs, false); err != nil {
		return err
	}
	s.measureChanged()
	return nil
}

// measureChanged measures the coflows whose rates have changed. The others are measured only if a
// flow of theirs can end before the next decision: only then their base matters, which is that of
// the last decision. If a decision need not follow the end of a flow, all are measured.
func (s *sim) measureChanged() {
	lazy := s.Triggers.Flows && !s.free
	const rounding = 1e-6 // error of an outdated base
	until := far          // the first flow ends before
	for _, c := range s.active {
		if !lazy || c.shares != c.demand.Shares() {
			s.measure(c)
			c.shares = c.demand.Shares()
		}
		until = min(until, c.soonest*(1+rounding)-s.now.Since(c.base))
	}
	until += float64(s.Step) + max(together, float64(s.cfg.Resolution))
	for _, c := range s.active {
		if c.base != s.now && c.soonest*(1-rounding)-s.now.Since(c.base) <= until {
			s.measure(c)
		}
	}
}

// ceilings keeps the rates of the flows that have a rate cap while those without share the
// rest, if a schedule has both. A flow that one step leaves free has no rate cap from
// another.
type ceilings struct {
	fixed []fixed
	open  []open
	again policies.Schedule // these, and Free for the others
}

type fixed struct {
	c     *coflow
	place int32
	rate  float64
}

// open is a part of a coflow whose flows have no rate cap.
type open struct {
	c    *coflow
	part policies.Part
}

// set applies a schedule in which some flows have a rate cap.
func (k *ceilings) set(s *sim) error {
	if err := s.allocator.Share(&s.schedule, s.demands, s.capacity, s.Needs, true); err != nil {
		return err
	}
	k.fixed, k.open = k.fixed[:0], k.open[:0]
	for _, c := range s.active {
		var pilots, others bool
		rates := c.demand.Rates()
		for _, p := range c.demand.Moving() {
			switch r := rates[p]; {
			case !math.IsInf(r, 1):
				k.fixed = append(k.fixed, fixed{c, p, r})
			case c.demand.Pilot(int(p)):
				pilots = true
			default:
				others = true
			}
		}
		if pilots {
			k.open = append(k.open, open{c, policies.Pilots})
		}
		if others {
			k.open = append(k.open, open{c, policies.Others})
		}
	}
	return k.refill(s)
}

// refill shares the remaining capacity among the flows without a rate cap.
func (k *ceilings) refill(s *sim) error {
	place := make(map[*coflow]int, len(s.active))
	for i, c := range s.active {
		place[c] = i
	}
	k.again.Reset()
	var rates []policies.FlowRate
	k.fixed = slices.DeleteFunc(k.fixed, func(f fixed) bool { return f.c.demand.Ended(int(f.place)) })
	for _, f := range k.fixed {
		rates = append(rates, policies.FlowRate{Flow: f.c.flows[f.place].ID, Rate: f.rate})
	}
	k.again.Steps = append(k.again.Steps, policies.Step{Rule: policies.Explicit, Rates: rates})
	for _, o := range k.open {
		if i, active := place[o.c]; active {
			k.again.Steps = append(k.again.Steps, policies.Step{Rule: policies.Free, Coflows: []int{i}, Part: o.part})
		}
	}
	return s.compute(&k.again)
}
