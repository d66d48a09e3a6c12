package tracesim

import (
	"slices"

	"testbed/emu/clock"
)

// harvest advances a coflow by so many ns and takes off the flows that end within
// slack of that; it tells whether the coflow has ended.
func (s *sim) harvest(c *coflow, from clock.Moment, ns, slack float64) bool {
	d := c.demand
	s.ended = s.ended[:0]
	seconds, reach, scale := ns/1e9, (ns+slack)/1e9, d.Scale()
	if d.Following() > 0 {
		s.harvestFollowing(c, ns, slack)
	}
	sent, lefts, rates := c.sent, d.Left, d.Rates()
	for _, p := range d.Moving() {
		left, rate := lefts[p]*scale, rates[p]
		if left <= rate*reach || left-rate*seconds <= imprecision*8*float64(c.flows[p].Size) {
			s.ended = append(s.ended, end{p, min(left/rate*1e9, ns)})
			sent += left
		} else {
			sent += rate * seconds
		}
	}
	c.sent = sent
	d.Advance(seconds)
	for _, e := range s.ended {
		at := s.now
		if e.ns < ns-slack {
			at = from.Plus(e.ns)
		}
		s.endFlow(c, int(e.place), at)
	}
	if c.state.Left == 0 {
		s.endCoflow(c)
		return true
	}
	s.measure(c)
	return false
}

// harvestFollowing is harvest for the flows that follow one pace, and end together.
func (s *sim) harvestFollowing(c *coflow, ns, slack float64) {
	d := c.demand
	lasts := d.Lasts() * 1e9
	if lasts > ns+slack && lasts-ns > imprecision*lasts {
		c.sent += d.Follows() * ns / 1e9
		return
	}
	for p, rate := range d.Rates() {
		if rate == 0 && !d.Ended(p) {
			s.ended = append(s.ended, end{int32(p), min(lasts, ns)})
			c.sent += d.Bits(p)
		}
	}
}

// end is a flow that ends so many ns after the moment before.
type end struct {
	place int32
	ns    float64
}

// endFlow takes one flow off.
func (s *sim) endFlow(c *coflow, place int, at clock.Moment) {
	if q := s.cfg.Quantum; q > 0 {
		at = clock.Moment{Whole: at.Up(q, together/2)}
	}
	if at.Since(c.ended) > 0 {
		c.ended = at
	}
	s.result.FlowEnds++
	size := c.flows[place].Size
	if c.demand.Pilot(place) {
		c.state.PilotsLeft--
		c.state.PilotSent += size
		if c.state.PilotsLeft == 0 {
			r := &s.result.Coflows[c.at]
			r.Sampled, r.SampledSent = at.Round(), s.bytesBy(c)
			s.pending = s.pending || s.when.Pilots
		}
	}
	c.demand.SetLeft(place, 0)
	c.demand.End(place)
	c.most = max(c.most, 8*float64(size))
	c.state.Left--
	c.state.Finished++
	c.state.Median = c.sizes.end(size)
	if s.when.Flows {
		s.pending = true
	}
	if s.counter != nil {
		s.counter.ended(c.flows[place].Src, at)
	}
}

// endCoflow takes off a coflow whose flows have all ended.
func (s *sim) endCoflow(c *coflow) {
	i := slices.Index(s.active, c)
	s.active = slices.Delete(s.active, i, i+1)
	s.view.Coflows = slices.Delete(s.view.Coflows, i, i+1)
	r := &s.result.Coflows[c.at]
	r.Finish = c.ended.Round()
	r.Queue, r.Queued, r.Pilots, r.PilotSent = c.state.Queue, c.state.Since, c.state.Pilots, c.state.PilotSent
	s.result.Makespan = max(s.result.Makespan, r.Finish)
	s.finished++
	if s.when.Coflows {
		s.pending = true
	}
	if s.report != nil {
		s.report(Progress{Now: s.now.Round(), Coflows: len(s.coflows), Arrived: len(s.coflows) - len(s.arrivals), Finished: s.finished,
			Events: s.result.Events, Decisions: s.result.Decisions})
	}
}
