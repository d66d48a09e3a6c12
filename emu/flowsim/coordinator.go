package flowsim

import (
	"math"
	"time"

	"testbed/emu/simtime"
	"testbed/policies/coordinator"
	"testbed/topo"
	"testbed/workloads"
)

// Coordinator is the load of a scheduler's coordinator, by intervals of Config.Interval.
type Coordinator = coordinator.Messages

// counter computes Coordinator.
type counter struct{ *coordinator.Counter }

// whole returns the time of a moment for the counter.
func whole(at simtime.Moment) time.Duration {
	if at.Frac >= 1-together {
		at.Whole++
	}
	return at.Whole
}

func (k counter) arrived(flows []workloads.Flow, at simtime.Moment) {
	for _, f := range flows {
		k.Arrived(f.Src, whole(at))
	}
}

// ended records the end of a flow; Settle counts the recorded ends.
func (k counter) ended(src topo.HostID, at simtime.Moment) { k.Ended(src, whole(at), true) }

// decided counts a decision. Agents of a coflow get no message if its rates are those of the last
// message.
func (k counter) decided(s *sim) {
	k.Decided(whole(s.now), s.Reports)
	same := func(c *coflow) bool { return !s.free && !s.shared && c.told == c.demand.Shares() }
	for _, c := range s.active {
		if !same(c) {
			list(s, c)
		}
	}
	if s.free && !s.shared {
		for _, f := range s.ceilings.fixed {
			c := f.c
			c.moving[f.place] = f.rate
		}
	}
	for _, c := range s.active {
		if same(c) {
			continue
		}
		if c.told = -1; !s.free && !s.shared {
			c.told = c.demand.Shares()
		}
		for _, p := range c.messages {
			if c.moving[p] == c.known[p] {
				continue
			}
			c.known[p] = c.moving[p]
			if !c.demand.Ended(int(p)) {
				k.Notify(c.flows[p].Src)
			}
		}
		// Flows without a rate now have rate 0.
		n := 0
		for _, p := range c.messages {
			if c.moving[p] != 0 {
				c.moving[p] = 0
				c.messages[n] = p
				n++
			}
		}
		c.messages = c.messages[:n]
	}
}

// list lists the flows of a coflow whose rates the agents know: those of the last
// message, and those that move now.
func list(s *sim, c *coflow) {
	if c.known == nil {
		c.known, c.moving = make([]float64, len(c.flows)), make([]float64, len(c.flows))
	}
	add := func(p int32, rate float64) {
		if c.known[p] == 0 {
			c.messages = append(c.messages, p)
		}
		c.moving[p] = rate
	}
	if s.shared {
		for p := range c.flows {
			if !c.demand.Ended(p) {
				add(int32(p), math.Inf(1))
			}
		}
		return
	}
	rates := c.demand.Rates()
	for _, p := range c.demand.Moving() {
		rate := rates[p]
		if s.free {
			rate = math.Inf(1)
		}
		add(p, rate)
	}
}
