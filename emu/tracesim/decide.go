package tracesim

import (
	"fmt"
	"math"
	"slices"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// decide asks the scheduler and puts its answer into force.
func (s *sim) decide() error {
	if s.shared {
		s.classes.tell(s)
	}
	s.show()
	s.schedule.Reset()
	s.cfg.Scheduler.Schedule(&s.view, &s.schedule)
	if err := s.checkSchedule(); err != nil {
		return err
	}
	s.result.Decisions++
	s.decided, s.pending, s.wake = s.now.Round(), false, 0
	if s.schedule.Wake > s.decided {
		s.wake = s.schedule.Wake
	}
	for i, q := range s.schedule.Queues {
		if st := &s.active[i].state; st.Queue != q {
			st.Queue, st.Since = q, s.decided
			s.active[i].news = true
			s.result.Coflows[s.active[i].at].QueuedSent = st.Sent
		}
	}
	if s.schedule.Memory != nil {
		s.view.Memory = append(s.view.Memory[:0], s.schedule.Memory...)
	}
	watch, most := s.schedule.Watch, s.schedule.WatchMost
	heeds := len(most) == 0 || s.needs&policies.MostSent != 0 && s.cfg.Scheduler.When().Every > 0
	s.watching = s.when.Every > 0 && len(watch)+len(most) > 0 && heeds
	s.stepping = s.watching && len(most) > 0
	for i, c := range s.active {
		c.watch, c.longest, c.shown = 0, 0, true
		if s.watching && len(watch) > 0 {
			c.watch = units.Bytes(watch[i])
		}
		if s.watching && len(most) > 0 {
			c.longest = units.Bytes(most[i])
		}
	}
	for _, p := range s.pilots {
		if !p.c.demand.Pilot(p.place) {
			p.c.demand.MakePilot(p.place)
			p.c.news = true
			p.c.state.Pilots++
			p.c.state.PilotsLeft++
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

// show brings the View up to date.
func (s *sim) show() {
	s.view.Now = s.now.Round()
	sizes, longest := s.needs&policies.Sizes != 0, s.needs&policies.MostSent != 0
	s.flows = s.flows[:0]
	for i, c := range s.active {
		st := &c.state
		all := s.needs&policies.Flows != 0 || s.needs&policies.NewFlows != 0 && !c.shown
		shows := all || s.needs&policies.PilotFlows != 0 && st.PilotsLeft > 0
		if !c.news && !shows && st.Flows == nil {
			continue
		}
		if c.news {
			c.news = false
			st.Sent = s.bytesBy(c)
			if sizes {
				st.Remaining = st.Size - st.Sent
			}
			if longest {
				c.look(s.now)
				st.MostSent = c.mostBytes()
			}
			st.Links = c.demand.Links(sizes)
		}
		st.Flows = nil
		if shows {
			first := len(s.flows)
			s.flows = c.appendFlows(s.flows, all, sizes)
			st.Flows = s.flows[first:len(s.flows):len(s.flows)]
		}
		s.view.Coflows[i] = *st
	}
}

// appendFlows lists the unfinished flows, all or the pilots.
func (c *coflow) appendFlows(out []policies.FlowState, all, sizes bool) []policies.FlowState {
	left := c.state.PilotsLeft
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
		if sizes {
			f.Size, f.Remaining = fl.Size, fl.Size-f.Sent
		}
		out = append(out, f)
	}
	return out
}

// checkSchedule finds mistakes in what does not concern rates, and the pilots.
func (s *sim) checkSchedule() error {
	sch := &s.schedule
	for _, n := range []struct {
		name string
		n    int
	}{{"queues", len(sch.Queues)}, {"watches", len(sch.Watch)}, {"watches of longest flows", len(sch.WatchMost)}} {
		if n.n != 0 && n.n != len(s.active) {
			return fmt.Errorf("%d %s for %d coflows: want one for each or none", n.n, n.name, len(s.active))
		}
	}
	for _, watch := range [][]int64{sch.Watch, sch.WatchMost} {
		for i, w := range watch {
			if w < 0 {
				return fmt.Errorf("watch of coflow %d: %d bytes: want 0 or more", s.active[i].state.ID, w)
			}
		}
	}
	s.pilots = s.pilots[:0]
	for _, id := range sch.Pilots {
		c, place := s.find(id)
		if c == nil {
			return fmt.Errorf("pilot %d: no such flow is unfinished", id)
		}
		s.pilots = append(s.pilots, pilot{c, place})
	}
	return nil
}

// find is where an unfinished flow is.
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
		// What the network shares goes flow by flow.
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

// list puts together the demands of the active coflows.
func (s *sim) list() {
	s.demands = s.demands[:0]
	for _, c := range s.active {
		s.demands = append(s.demands, c.demand)
	}
}

// refill computes the rates of flows without a ceiling anew, as the network does by
// itself when a flow ends.
func (s *sim) refill() error {
	s.list()
	return s.ceilings.refill(s)
}

// compute sets the rates of a schedule.
func (s *sim) compute(sch *policies.Schedule) error {
	if err := s.sharer.Share(sch, s.demands, s.capacity, s.needs, false); err != nil {
		return err
	}
	for _, c := range s.active {
		s.measure(c)
	}
	return nil
}

// ceilings keeps the rates of the flows that have a ceiling while those without
// share what is left, where a schedule has both. A flow that one step leaves free
// has no ceiling by another.
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

// open is a part of a coflow whose flows have no ceiling.
type open struct {
	c    *coflow
	part policies.Part
}

// set puts a schedule into force in which some flows have a ceiling.
func (k *ceilings) set(s *sim) error {
	if err := s.sharer.Share(&s.schedule, s.demands, s.capacity, s.needs, true); err != nil {
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

// refill shares what is left among the flows without a ceiling.
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
