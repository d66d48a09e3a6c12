package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/emu/engine/tracker"
	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/policies/coordinator"
	"testbed/topo"
	"testbed/topo/units"
)

// Control describes the communication between coordinator and hosts.
type Control struct {
	// Latency is the time from a decision until its rate caps take effect: reports to the
	// coordinator, its computation and its replies together. The flows of a new coflow start
	// immediately with rate cap 0 and wait for it, as agents that register with a coordinator
	// do. 0 is immediately.
	Latency time.Duration
}

// Stats counts the work of a coordinator, to show how it scales.
type Stats struct {
	// Intervals is the number of multiples of Triggers.Every with unfinished coflows; 0 for a
	// policy without an interval.
	Intervals int
	// Decisions is the number of calls of the coflow policy, and Flushes the number of
	// decisions that changed the rate caps of any host. The third count is the number of hosts
	// whose rate caps changed, summed over all decisions. Rate caps are sent to the sending
	// host.
	Decisions, Flushes, Told int
	// Updates is the number of reports of hosts, as in coordinator.Messages. A failed flow is
	// not reported.
	Updates int
	// Late is the number of decisions that were executed Triggers.Every or more after they were
	// due. On the fluid model it is 0.
	Late int
}

// Stats returns the counts up to the newest step.
func (e *Engine) Stats() Stats {
	c := &e.control
	m := c.counter.Messages(e.now)
	return Stats{
		Intervals: int(c.counter.Multiples(e.now)), Decisions: int(c.counter.Decisions()),
		Flushes: int(m.Flushes), Told: int(m.Told), Updates: int(m.Updates), Late: c.late,
	}
}

// Estimates returns what the task scheduler has estimated: tracker.Tracker.Estimates.
func (e *Engine) Estimates() []tracker.EstimateSample {
	if e.tasks.tracker == nil {
		return nil
	}
	return e.tasks.tracker.Estimates()
}

// Interval returns the coflow policy's Triggers.Every.
func (e *Engine) Interval() time.Duration { return e.control.Triggers.Every }

// control is the sub-machine that calls the coflow policy: it decides when, builds the View,
// and applies the schedule.
type control struct {
	coordinator.Coordinator
	urgent bool // a link, a route or a host has changed in the current step

	capacity  []float64 // bit/s, by LinkID
	schedule  policies.Schedule
	allocator alloc.Allocator
	view      policies.CoflowView
	flows     []policies.FlowState // flows of view
	demands   []*alloc.Demand      // parallel to view.Coflows
	left      []units.Rate         // residual capacity, by LinkID
	rounded   []*flow              // flows whose rate was rounded down
	caps      transit[rateCap]     // of flows
	arrives   time.Duration        // of the rate caps of the newest decision

	counter *coordinator.Counter
	late    int // Stats.Late
}

// rateCap is a new rate cap of a flow.
type rateCap struct {
	flow    *flow
	ceiling units.Rate
}

func (e *Engine) initControl() error {
	c := &e.control
	var err error
	if c.Coordinator, err = coordinator.New(e.cfg.Coflow, 0, false); err != nil {
		return fmt.Errorf("engine: %s: %w", e.policy("coflow"), err)
	}
	if e.cfg.Watcher != nil {
		c.Needs = Observed(c.Needs)
	}
	if e.cfg.Control.Latency < 0 {
		return fmt.Errorf("engine: control latency %v: must be 0 or more", e.cfg.Control.Latency)
	}
	for _, r := range e.cfg.Capacity {
		c.capacity = append(c.capacity, float64(r))
	}
	c.left = make([]units.Rate, len(e.cfg.Capacity))
	c.counter = coordinator.NewCounter(c.Triggers.Every, len(e.hosts))
	return nil
}

// NextWake returns the time at which the engine needs a step even without events, NextNever
// for none. The step may be later, as it is on packets.
func (e *Engine) NextWake() time.Duration {
	c := &e.control
	next := min(e.blocks.nextWake(), e.writers.next(), e.tasks.nextWake(), e.forks())
	if len(e.coflows.active) == 0 {
		return next
	}
	return min(next, c.Requested(), c.Next(), c.caps.next())
}

// needed reports whether a decision is necessary now: urgent ones do not wait for the
// interval, others are due.
func (e *Engine) needed() bool {
	c := &e.control
	if len(e.coflows.active) == 0 {
		c.Reset()
		return false
	}
	since := c.Due(e.now, e.passes)
	if since <= e.now && c.Triggers.Every > 0 && e.now-since >= c.Triggers.Every {
		c.late++
	}
	return c.urgent || since <= e.now
}

// passes returns the earliest time at which a coflow can have passed its watch threshold: now if
// one has. Before, none can pass its threshold earlier than its rate caps allow.
func (e *Engine) passes() time.Duration {
	soonest := math.Inf(1) // ns
	for _, x := range e.coflows.active {
		if x.Watch > 0 && x.State.Sent > x.Watch {
			return e.now
		}
		if x.Watch > 0 && x.speed > 0 {
			soonest = min(soonest, 8e9*float64(x.Watch-x.State.Sent)/x.speed)
		}
	}
	if c := &e.control; c.arrives > c.Decided || len(c.caps) > 0 { // older rate caps may still be in force
		return e.now + 1
	}
	const never = 1e18 // 31 years, longer than any run
	if soonest > never {
		return NextNever
	}
	const careful = 1 - 1e-9 // for rounding of rates and counts
	return e.now + max(1, time.Duration(careful*soonest)-1)
}

// view returns the View of the coflow policy. Its memory is reused for the next View.
func (e *Engine) view() *policies.CoflowView {
	c := &e.control
	c.view = policies.CoflowView{Cluster: e.cluster(c.Needs), Coflows: c.view.Coflows[:0]}
	c.flows = c.flows[:0]
	for _, x := range e.coflows.active {
		c.view.Coflows = append(c.view.Coflows, e.state(x))
	}
	return &c.view
}

// state returns the state of a coflow for the coflow policy.
func (e *Engine) state(c *coflow) policies.CoflowState {
	needs := e.control.Needs
	sizes, progress := needs.Has(policies.Sizes), needs.Has(policies.Progress)
	s := c.State
	s.Left, s.Finished = len(c.flows), len(c.finished)
	if needs.Has(policies.Links) {
		s.Links = c.demand.Links(needs)
	}
	if n := len(c.finished); n > 0 {
		s.Median = c.finished[(n-1)/2]
	}
	if !progress {
		s.Sent = 0
	}
	if !needs.Has(policies.MostSent) {
		s.MostSent = 0
	}
	if !sizes {
		s.Remaining = 0
	}
	if !needs.Has(policies.Totals) {
		s.Size, s.Largest, s.Bound = 0, 0, 0
	}
	all, pilots := e.control.Shows(&c.Coflow)
	if !all && !pilots {
		return s
	}
	first := len(e.control.flows)
	for _, f := range c.flows {
		if !all && !f.pilot {
			continue
		}
		fs := policies.FlowState{ID: f.ID, Src: f.Src, Dst: f.Dst, Path: f.path, Pilot: f.pilot, Sent: f.sent}
		if sizes {
			fs.Size, fs.Remaining = f.Size, f.remaining()
		}
		if !progress {
			fs.Sent = 0
		}
		e.control.flows = append(e.control.flows, fs)
	}
	s.Flows = e.control.flows[first:len(e.control.flows):len(e.control.flows)]
	return s
}

// decide calls the policy and appends the resulting commands.
func (e *Engine) decide() error {
	c := &e.control
	v := e.view()
	s := &c.schedule
	s.Reset()
	c.Policy.Decide(v, s)
	if e.cfg.Watcher != nil {
		e.cfg.Watcher.Coflow(v, s)
	}
	if s.Err != nil {
		return s.Err // it names the policy
	}
	if err := e.accept(v, s); err != nil {
		return fmt.Errorf("%s: %w", e.policy("coflow"), err)
	}
	if s.Answer != nil {
		e.command(Decided{CoflowRole, s.Answer, s.Latency})
	}
	c.arrives = c.caps.arrival(e.now, e.cfg.Control.Latency+s.Latency)
	c.demands = c.demands[:0]
	for _, x := range e.coflows.active {
		c.demands = append(c.demands, x.demand)
	}
	if err := c.allocator.Share(s, c.demands, c.capacity, c.Needs, true); err != nil {
		return fmt.Errorf("%s: %w", e.policy("coflow"), err)
	}
	e.ceilings()
	e.setCaps()
	if c.Watching {
		c.Defer(e.passes())
	}
	return nil
}

// accept applies the parts of a schedule other than its steps.
func (e *Engine) accept(v *policies.CoflowView, s *policies.Schedule) error {
	c := &e.control
	if err := c.Check(v, s); err != nil {
		return err
	}
	for _, id := range s.Pilots {
		f := e.coflows.byFlow[id]
		if f == nil {
			return fmt.Errorf("schedule: pilot flow %d is not running", id)
		}
		if f.pilot {
			continue
		}
		f.pilot = true
		f.coflow.AddPilot()
		f.coflow.demand.MakePilot(f.place)
	}
	c.Accept(e.now, s)
	c.counter.Decided(e.now, c.Reports)
	for i, x := range e.coflows.active {
		c.Take(s, i, &x.Coflow)
	}
	return nil
}

// ceilings rounds rates to rate caps in whole bits per second. It rounds down, to at least
// 1, then adds 1 to each rounded flow, in order, while all links of its path have residual
// capacity. No link thus loses capacity by rounding.
func (e *Engine) ceilings() {
	c := &e.control
	copy(c.left, e.cfg.Capacity)
	c.rounded = c.rounded[:0]
	for _, x := range e.coflows.active {
		moving, rates := x.demand.Moving(), x.demand.Rates()
		for _, place := range moving {
			f, r := x.all[place], rates[place]
			if r >= float64(policies.NoLimit) {
				f.newCeiling = policies.NoLimit
				continue
			}
			f.newCeiling = max(units.Rate(r), 1)
			if float64(f.newCeiling) < r {
				c.rounded = append(c.rounded, f)
			}
			for _, l := range f.path {
				c.left[l] -= f.newCeiling
			}
		}
	}
	for _, f := range c.rounded {
		if slices.ContainsFunc(f.path, func(l topo.LinkID) bool { return c.left[l] < 1 }) {
			continue
		}
		f.newCeiling++
		for _, l := range f.path {
			c.left[l]--
		}
	}
}

// setCaps sends the commands for changed rate caps, by coflow and flow.
func (e *Engine) setCaps() {
	c := &e.control
	if c.arrives > e.now {
		e.start(0)
	}
	setCap := func(f *flow, ceiling units.Rate) {
		if f.ceiling == ceiling {
			return
		}
		f.ceiling = ceiling
		c.counter.Notify(f.Src)
		switch {
		case c.arrives > e.now:
			c.caps = append(c.caps, sent[rateCap]{c.arrives, rateCap{f, ceiling}})
		case f.started:
			e.command(SetCeiling{Flow: f.ID, Ceiling: ceiling})
		}
	}
	for _, x := range e.coflows.active {
		moving := x.demand.Moving()
		// Both lists are sorted by place: flows that could send before, and can now.
		previous := x.sending
		x.speed = 0
		for _, place := range moving {
			for len(previous) > 0 && previous[0] < place {
				e.pause(x, previous[0], setCap)
				previous = previous[1:]
			}
			if len(previous) > 0 && previous[0] == place {
				previous = previous[1:]
			}
			f := x.all[place]
			setCap(f, f.newCeiling)
			x.speed += e.fastest(f)
		}
		for _, place := range previous {
			e.pause(x, place, setCap)
		}
		x.sending = append(x.sending[:0], moving...)
	}
	e.start(1)
}

// pause sets the rate cap of a flow that could send before to 0.
func (e *Engine) pause(x *coflow, place int32, setCap func(*flow, units.Rate)) {
	if f := x.all[place]; !f.ended {
		setCap(f, 0)
	}
}

// fastest returns the maximum rate of a flow, in bit/s.
func (e *Engine) fastest(f *flow) float64 {
	most := f.ceiling
	if most == policies.NoLimit {
		for _, l := range f.path {
			most = min(most, e.cfg.Capacity[l])
		}
	}
	return float64(most)
}

// start starts the flows of waiting coflows with the newest rate caps times factor, which is
// 0 while these are in transit or unknown.
func (e *Engine) start(factor units.Rate) {
	for _, x := range e.coflows.waiting {
		for _, f := range x.flows {
			if !f.started {
				e.coflows.startFlow(f, factor*f.ceiling)
			}
		}
	}
	e.coflows.waiting = e.coflows.waiting[:0]
}

// release appends the commands for rate caps that have reached their hosts.
func (e *Engine) release() {
	for r := range e.control.caps.arrived(e.now) {
		if !r.flow.ended {
			e.command(SetCeiling{Flow: r.flow.ID, Ceiling: r.ceiling})
		}
	}
}

// coflowBegan counts the flows of sending hosts.
func (e *Engine) coflowBegan(n coflowBegan) {
	e.control.CoflowChanged(e.now)
	for _, h := range n.from {
		e.control.counter.Arrived(h, e.now)
	}
}

// flowEnded requests the decisions that the end of a flow requires, and counts its report.
func (e *Engine) flowEnded(n flowEnded) {
	if n.free {
		return
	}
	c := &e.control
	c.FlowEnded(e.now, n.lastPilot)
	c.counter.Ended(n.src, e.now, !n.failed)
	c.counter.Settle()
}
