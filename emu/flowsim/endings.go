package flowsim

import (
	"slices"

	"testbed/emu/simtime"
)

// harvest advances a coflow by a time in ns and removes the flows that end within slack of
// it; it reports whether the coflow has ended.
func (s *sim) harvest(c *coflow, from simtime.Moment, ns, slack float64) bool {
	d := c.demand
	s.ended = s.ended[:0]
	seconds, reach, scale := ns/1e9, (ns+slack)/1e9, d.Scale()
	if d.Following() > 0 {
		s.harvestFollowing(c, ns, slack)
	}
	sent, lefts, rates := c.sent, d.Left, d.Rates()
	for _, p := range d.Moving() {
		left, rate := lefts[p]*scale, rates[p]
		if left > rate*reach && left-rate*seconds > imprecision*8*float64(c.flows[p].Size) {
			sent += rate * seconds
			continue
		}
		sent += left
		s.ended = append(s.ended, end{p, min(left/rate*1e9, ns)})
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
	if c.State.Left == 0 {
		s.endCoflow(c)
		return true
	}
	c.shares, s.stale = -1, true
	return false
}

// harvestFollowing is harvest for flows that share one pace, and end together.
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

// end is a flow that ends after a time in ns from the previous event.
type end struct {
	place int32
	ns    float64
}

// endFlow removes one flow.
func (s *sim) endFlow(c *coflow, place int, at simtime.Moment) {
	if q := s.cfg.Quantum; q > 0 {
		at = simtime.Moment{Whole: at.Up(q, together/2)}
	}
	if at.Since(c.ended) > 0 {
		c.ended = at
	}
	s.result.FlowEnds++
	size := c.flows[place].Size
	lastPilot := false
	if c.demand.Pilot(place) {
		if lastPilot = c.PilotEnded(size); lastPilot {
			r := &s.result.Coflows[c.at]
			r.Sampled, r.SampledSent = at.Round(), s.bytesBy(c)
		}
	}
	c.demand.Begin(place)
	c.demand.End(place)
	c.most = max(c.most, 8*float64(size))
	c.State.Left--
	c.State.Finished++
	c.State.Median = c.sizes.end(size)
	s.FlowEnded(s.event(), lastPilot)
	if s.counter != nil {
		s.counter.ended(c.flows[place].Src, at)
	}
}

// endCoflow removes a coflow whose flows have all ended.
func (s *sim) endCoflow(c *coflow) {
	i := slices.Index(s.active, c)
	s.active = slices.Delete(s.active, i, i+1)
	s.view.Coflows = slices.Delete(s.view.Coflows, i, i+1)
	s.memory -= s.memoryOf(c.at)
	r := &s.result.Coflows[c.at]
	r.Finish = c.ended.Round()
	r.Queue, r.Queued, r.Pilots, r.PilotSent = c.State.Queue, c.State.Since, c.State.Pilots, c.State.PilotSent
	s.result.Makespan = max(s.result.Makespan, r.Finish)
	s.finished++
	s.CoflowChanged(s.event())
	if s.report != nil {
		s.report(Progress{Now: s.now.Round(), Coflows: len(s.coflows), Arrived: len(s.coflows) - len(s.arrivals), Finished: s.finished,
			Events: s.result.Events, Decisions: s.result.Decisions})
	}
}
