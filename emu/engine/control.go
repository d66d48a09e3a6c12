package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
)

// Control is how the coordinator reaches hosts.
type Control struct {
	// Latency is how long after a decision's moment its ceilings take effect: reports
	// to the coordinator, its computing and its answers together. A coflow's flows
	// start at once with ceiling 0 and wait for it, as agents that register with a
	// coordinator do. 0 is at once.
	Latency time.Duration
}

// Stats count what a coordinator does, for a table of how it scales.
type Stats struct {
	// Intervals are the multiples of When.Every at which coflows were unfinished; 0
	// under a policy that has no interval.
	Intervals int
	// Decisions are how often the coflow policy was asked, Flushes those in which
	// some host's ceilings changed, and Told the hosts whose did, over all decisions.
	// Ceilings are told to the host that sends.
	Decisions, Flushes, Told int
	// Updates are reports of agents. A host reports at the end of an interval if a
	// flow that it sends ended in it, and, where the policy is asked at every interval
	// or watches what coflows have sent (Schedule.Watch), if flows that it sends are
	// unfinished: at most once in an interval. Without intervals every flow's end is one.
	Updates int
	// Late are decisions that were carried out When.Every or more after the multiple
	// at which they were due. On the fluid model there are none.
	Late int
}

// Stats are the counts up to the newest step.
func (e *Engine) Stats() Stats { return e.control.stats }

// Interval is the coflow policy's, When.Every.
func (e *Engine) Interval() time.Duration { return e.control.when.Every }

// control is the sub-machine that asks the coflow policy: when, with what View,
// and what becomes of its answer.
type control struct {
	when  policies.When
	needs policies.Knowledge

	// due is when a decision is due because of what has happened, wake because the
	// policy asked for it, tick when it is to be seen whether an interval needs one:
	// NextNever for none. tick is unset while there are no coflows.
	due, wake, tick time.Duration
	watching        bool // the newest schedule says what to watch
	reports         bool // hosts with unfinished flows report in every interval

	capacity []float64 // bit/s, by LinkID
	memory   []int64   // Schedule.Memory
	schedule policies.Schedule
	sharer   rates.Sharer
	view     policies.View
	flows    []policies.FlowState // of view
	demands  []*rates.Demand      // parallel to view.Coflows
	left     []units.Rate         // of links, by LinkID
	rounded  []*flow              // whose rate is more than its ceiling
	delayed  []delayed            // ceilings on their way, by time

	stats   Stats
	tallied int64   // the newest multiple of When.Every that stats know of, as its factor
	told    []int   // the newest decision that told a host, by HostID
	sending []int   // unfinished flows that a host sends, by HostID
	senders int     // hosts that send any
	ended   []int64 // the newest interval in which a flow that a host sends ended, by HostID
	// enders are the hosts of the interval that is not over.
	enders []topo.HostID
}

const unset time.Duration = -1

// delayed is a ceiling on its way to a host.
type delayed struct {
	at      time.Duration
	flow    *flow
	ceiling units.Rate
}

func (e *Engine) initControl() error {
	c := &e.control
	c.when, c.needs = e.cfg.Coflow.When(), e.cfg.Coflow.Needs()
	switch {
	case c.when.Every < 0:
		return fmt.Errorf("engine: coflow policy %T: interval %v: want 0 or more", e.cfg.Coflow, c.when.Every)
	case c.when.Every == 0 && !c.when.Coflows:
		return fmt.Errorf("engine: coflow policy %T is asked neither when a coflow arrives nor at intervals: nothing would ever be sent", e.cfg.Coflow)
	case c.needs&policies.Blind != 0 && c.needs&(policies.Sizes|policies.MostSent) != 0:
		return fmt.Errorf("engine: coflow policy %T declares to be Blind and needs what flows have sent or have left: leave out one of the two", e.cfg.Coflow)
	case e.cfg.Control.Latency < 0:
		return fmt.Errorf("engine: control latency %v: want 0 or more", e.cfg.Control.Latency)
	}
	c.due, c.wake, c.tick, c.tallied = NextNever, NextNever, unset, -1
	for _, r := range e.cfg.Capacity {
		c.capacity = append(c.capacity, float64(r))
	}
	c.left = make([]units.Rate, len(e.cfg.Capacity))
	c.told, c.sending, c.ended = make([]int, len(e.hosts)), make([]int, len(e.hosts)), make([]int64, len(e.hosts))
	for h := range c.ended {
		c.ended[h] = -1
	}
	return nil
}

// NextWake is when the engine must be stepped though nothing has happened:
// NextNever if it need not be. Its step may be later, as on packets it is.
func (e *Engine) NextWake() time.Duration {
	c := &e.control
	next := min(e.dueBlocks(), e.jobs.next())
	if len(e.coflows.active) == 0 {
		return next
	}
	next = min(next, c.due, c.wake, c.tick)
	if len(c.delayed) > 0 {
		next = min(next, c.delayed[0].at)
	}
	return next
}

// multiple is the first multiple of the policy's interval that is not before t;
// without intervals, t.
func (c *control) multiple(t time.Duration) time.Duration { return multipleOf(c.when.Every, t) }

func multipleOf(d, t time.Duration) time.Duration {
	if d == 0 || t%d == 0 {
		return t
	}
	if t > NextNever-d {
		return NextNever
	}
	return t - t%d + d
}

// want makes a decision due because of what has happened.
func (e *Engine) want(happened bool) {
	if happened {
		e.control.due = min(e.control.due, e.control.multiple(e.now))
	}
}

// needed tells whether the policy must be asked now: urgently, which waits for no
// interval, or because it is due.
func (e *Engine) needed(urgent bool) bool {
	c := &e.control
	if len(e.coflows.active) == 0 {
		c.due, c.wake, c.tick = NextNever, NextNever, unset
		return false
	}
	if c.tick == unset {
		if c.tick = NextNever; c.when.Every > 0 {
			c.tick = c.multiple(e.now)
		}
	}
	since := min(c.due, c.wake)
	if c.tick <= e.now && c.tick < since {
		if !c.watching || slices.ContainsFunc(e.coflows.active, (*coflow).passed) {
			since = c.tick
		} else {
			c.tick = e.nextTick()
		}
	}
	if since <= e.now && c.when.Every > 0 && e.now-since >= c.when.Every {
		c.stats.Late++
	}
	return urgent || since <= e.now
}

// passed tells whether a coflow has sent more than the policy wants to know of.
func (c *coflow) passed() bool { return c.watch > 0 && int64(c.sent) > c.watch }

// nextTick is the first multiple of the interval after now at which a decision
// can be needed though nothing happens: where the policy watches what coflows
// send, none can pass that before its flows have had the time at their ceilings.
func (e *Engine) nextTick() time.Duration {
	c := &e.control
	if c.when.Every == 0 {
		return NextNever
	}
	next := c.multiple(e.now + 1)
	if !c.watching || e.cfg.Control.Latency > 0 { // older ceilings may still hold
		return next
	}
	soonest := math.Inf(1) // ns
	for _, x := range e.coflows.active {
		if x.watch > 0 && x.speed > 0 {
			soonest = min(soonest, 8e9*float64(x.watch-int64(x.sent))/x.speed)
		}
	}
	const never = 1e18 // 31 years: no run is so long
	if soonest > never {
		return NextNever
	}
	const careful = 1 - 1e-9 // for rounding of rates and counts
	return max(next, c.multiple(e.now+max(0, time.Duration(careful*soonest)-1)))
}

// view is the cluster as a policy with the given needs may see it. A decision of
// the coflow policy sees it too; what is in it is used again for the next.
func (e *Engine) view(needs policies.Knowledge) *policies.View {
	v := &e.control.view
	*v = policies.View{
		Now: e.now, Fabric: e.cfg.Fabric, Capacity: e.cfg.Capacity, DiskRate: e.cfg.DiskRate,
		Hosts: slices.Grow(v.Hosts[:0], len(e.hosts)), Racks: slices.Grow(v.Racks[:0], len(e.racks)), Coflows: v.Coflows[:0], Memory: e.control.memory,
	}
	e.showReports(v, needs)
	if needs&policies.LinkLoad != 0 {
		v.Placements = e.recentPlacements()
	}
	e.control.flows = e.control.flows[:0]
	for _, c := range e.coflows.active {
		v.Coflows = append(v.Coflows, e.state(c, needs))
	}
	return v
}

// Blind tells that no policy looks at what flows have received before they end, so
// that a backend need not tell of it (TransferProgressed): the coflow policy has
// declared it, and the placement policy asks for no sizes.
func (e *Engine) Blind() bool {
	const looks = policies.Sizes | policies.MostSent
	return e.control.needs&policies.Blind != 0 && (e.cfg.Placement == nil || e.cfg.Placement.Needs()&looks == 0)
}

// state is what a policy with the given needs sees of a coflow.
func (e *Engine) state(c *coflow, needs policies.Knowledge) policies.CoflowState {
	knows := needs&policies.Sizes != 0
	blind := e.Blind()
	s := policies.CoflowState{
		ID: c.id, Arrival: c.arrival, Width: len(c.all), Senders: c.senders, Receivers: c.receivers, Left: len(c.flows),
		Sent: c.sent, MostSent: c.mostSent, Queue: c.queue, Since: c.since, Links: c.demand.Links(knows),
		Finished: len(c.finished), Pilots: c.pilots, PilotsLeft: c.pilotsLeft, PilotSent: c.pilotSent,
	}
	if n := len(c.finished); n > 0 {
		s.Median = c.finished[(n-1)/2]
	}
	if blind {
		s.Sent, s.MostSent = 0, 0
	}
	if knows {
		s.Remaining = c.remaining
	}
	if knows || needs&policies.Totals != 0 {
		s.Size, s.Largest, s.Bound = c.size, c.largest, c.bound
	}
	all := needs&policies.Flows != 0 || needs&policies.NewFlows != 0 && !c.seen
	if !all && (needs&policies.PilotFlows == 0 || c.pilotsLeft == 0) {
		return s
	}
	first := len(e.control.flows)
	for _, f := range c.flows {
		if !all && !f.pilot {
			continue
		}
		fs := policies.FlowState{ID: f.ID, Src: f.Src, Dst: f.Dst, Path: f.path, Pilot: f.pilot, Sent: f.sent}
		if knows {
			fs.Size, fs.Remaining = f.Size, f.remaining()
		}
		if blind {
			fs.Sent = 0
		}
		e.control.flows = append(e.control.flows, fs)
	}
	s.Flows = e.control.flows[first:len(e.control.flows):len(e.control.flows)]
	return s
}

// decide asks the policy and appends what changes.
func (e *Engine) decide(cmds []Command) ([]Command, error) {
	c := &e.control
	c.stats.Decisions++
	v := e.view(c.needs)
	s := &c.schedule
	s.Reset()
	e.cfg.Coflow.Schedule(v, s)
	if err := e.accept(v, s); err != nil {
		return nil, fmt.Errorf("coflow policy %T: %w", e.cfg.Coflow, err)
	}
	c.demands = c.demands[:0]
	for _, x := range e.coflows.active {
		c.demands = append(c.demands, x.demand)
	}
	if err := c.sharer.Share(s, c.demands, c.capacity, c.needs, true); err != nil {
		return nil, fmt.Errorf("coflow policy %T: %w", e.cfg.Coflow, err)
	}
	e.ceilings()
	cmds = e.command(cmds)
	c.due, c.wake = NextNever, NextNever
	if s.Wake > e.now {
		c.wake = c.multiple(s.Wake)
	}
	c.tick = e.nextTick()
	return cmds, nil
}

// accept takes what a schedule says besides its steps.
func (e *Engine) accept(v *policies.View, s *policies.Schedule) error {
	active := e.coflows.active
	if n := len(s.Queues); n != 0 && n != len(active) {
		return fmt.Errorf("queues of %d coflows: want those of all %d, or none", n, len(active))
	}
	if n := len(s.Watch); n != 0 && n != len(active) {
		return fmt.Errorf("watches %d coflows: want all %d, or none", n, len(active))
	}
	watches := func(bytes int64) bool { return bytes > 0 }
	if e.control.needs&policies.Blind != 0 && slices.ContainsFunc(s.Watch, watches) {
		return errors.New("watches what coflows have sent, and declares to be Blind: leave out one of the two")
	}
	for _, id := range s.Pilots {
		f := e.coflows.byFlow[id]
		if f == nil {
			return fmt.Errorf("pilot flow %d, which is not running", id)
		}
		if f.pilot {
			continue
		}
		f.pilot = true
		f.coflow.pilots++
		f.coflow.pilotsLeft++
		f.coflow.demand.MakePilot(f.place)
	}
	for i, x := range active {
		x.seen, x.watch = true, 0
		if len(s.Queues) > 0 && s.Queues[i] != x.queue {
			x.queue, x.since = s.Queues[i], e.now
		}
		if len(s.Watch) > 0 {
			x.watch = s.Watch[i]
		}
	}
	e.control.watching = len(s.Watch) > 0 && len(s.WatchMost) == 0 // the longest flow is not watched here
	if e.control.when.Every > 0 && (!e.control.watching || slices.ContainsFunc(s.Watch, watches)) {
		e.control.reports = true
	}
	if s.Memory != nil {
		e.control.memory = append(e.control.memory[:0], s.Memory...)
	}
	return nil
}

// ceilings makes whole bits per second of rates. They are rounded down, to 1 at
// least, and then the bits that this leaves are given back one to a flow, in order,
// where all links of its path have one: no link's capacity is lost to rounding.
func (e *Engine) ceilings() {
	c := &e.control
	copy(c.left, e.cfg.Capacity)
	c.rounded = c.rounded[:0]
	for _, x := range e.coflows.active {
		moving, rates := x.demand.Moving(), x.demand.Rates()
		for _, place := range moving {
			f, r := x.all[place], rates[place]
			if r >= float64(policies.NoLimit) {
				f.want = policies.NoLimit
				continue
			}
			f.want = max(units.Rate(r), 1)
			if float64(f.want) < r {
				c.rounded = append(c.rounded, f)
			}
			for _, l := range f.path {
				c.left[l] -= f.want
			}
		}
	}
	for _, f := range c.rounded {
		if slices.ContainsFunc(f.path, func(l topo.LinkID) bool { return c.left[l] < 1 }) {
			continue
		}
		f.want++
		for _, l := range f.path {
			c.left[l]--
		}
	}
}

// command tells hosts what has changed, coflow by coflow and flow by flow.
func (e *Engine) command(cmds []Command) []Command {
	c := &e.control
	if e.cfg.Control.Latency > 0 {
		cmds = e.start(cmds, 0)
	}
	told := c.stats.Told
	tell := func(f *flow, ceiling units.Rate) {
		if f.ceiling == ceiling {
			return
		}
		f.ceiling = ceiling
		if c.told[f.Src] != c.stats.Decisions {
			c.told[f.Src] = c.stats.Decisions
			c.stats.Told++
		}
		switch {
		case e.cfg.Control.Latency > 0:
			c.delayed = append(c.delayed, delayed{e.now + e.cfg.Control.Latency, f, ceiling})
		case f.started:
			cmds = append(cmds, SetCeiling{Flow: f.ID, Ceiling: ceiling})
		}
	}
	for _, x := range e.coflows.active {
		moving := x.demand.Moving()
		// Both lists are in order of place: those that were let send, and are.
		before := x.sending
		x.speed = 0
		for _, place := range moving {
			for len(before) > 0 && before[0] < place {
				e.pause(x, before[0], tell)
				before = before[1:]
			}
			if len(before) > 0 && before[0] == place {
				before = before[1:]
			}
			f := x.all[place]
			tell(f, f.want)
			x.speed += e.fastest(f)
		}
		for _, place := range before {
			e.pause(x, place, tell)
		}
		x.sending = append(x.sending[:0], moving...)
	}
	if c.stats.Told > told {
		c.stats.Flushes++
	}
	return e.start(cmds, 1)
}

// pause stops a flow that was let send and is not any more.
func (e *Engine) pause(x *coflow, place int32, tell func(*flow, units.Rate)) {
	if f := x.all[place]; !f.ended {
		tell(f, 0)
	}
}

// fastest is what a flow can send at most, in bit/s.
func (e *Engine) fastest(f *flow) float64 {
	most := f.ceiling
	if most == policies.NoLimit {
		for _, l := range f.path {
			most = min(most, e.cfg.Capacity[l])
		}
	}
	return float64(most)
}

// start starts the flows of coflows that have not been, with the newest ceilings
// times factor, which is 0 while those are on their way or not known.
func (e *Engine) start(cmds []Command, factor units.Rate) []Command {
	for _, x := range e.coflows.waiting {
		for _, f := range x.flows {
			f.started = true
			cmds = append(cmds, StartTransfer{Coflow: x.id, Flow: f.Flow, Hash: f.hash, Ceiling: factor * f.ceiling, Read: x.reader.block()})
		}
	}
	e.coflows.waiting = e.coflows.waiting[:0]
	return cmds
}

// release tells hosts the ceilings that have come through by now.
func (e *Engine) release(cmds []Command) []Command {
	c := &e.control
	n := 0
	for ; n < len(c.delayed) && c.delayed[n].at <= e.now; n++ {
		if d := c.delayed[n]; !d.flow.ended {
			cmds = append(cmds, SetCeiling{Flow: d.flow.ID, Ceiling: d.ceiling})
		}
	}
	c.delayed = slices.Delete(c.delayed, 0, n)
	return cmds
}

// sends counts a flow that a host sends.
func (c *control) sends(h topo.HostID) {
	if c.sending[h]++; c.sending[h] == 1 {
		c.senders++
	}
}

// sent counts the end of a flow that a host sends, which it reports if it finished.
func (e *Engine) sent(h topo.HostID, finished bool) {
	c := &e.control
	if c.sending[h]--; c.sending[h] == 0 {
		c.senders--
	}
	if !finished {
		return
	}
	if c.when.Every == 0 {
		c.stats.Updates++
		return
	}
	if k := int64(c.multiple(e.now) / c.when.Every); c.ended[h] != k {
		c.ended[h] = k
		c.enders = append(c.enders, h)
		c.stats.Updates++
	}
}

// tally counts the intervals that are over before or, with the present moment's
// events told, at a time.
func (e *Engine) tally(before time.Duration) {
	c := &e.control
	if c.when.Every == 0 {
		return
	}
	newest := int64((before+c.when.Every-1)/c.when.Every) - 1 // below before
	over := int(newest - c.tallied)
	if over <= 0 {
		return
	}
	c.tallied = newest
	if len(e.coflows.active) > 0 {
		c.stats.Intervals += over
		if c.reports {
			c.stats.Updates += over * c.senders
			for _, h := range c.enders {
				if c.sending[h] > 0 {
					c.stats.Updates-- // it has reported the end
				}
			}
		}
	}
	c.enders = c.enders[:0]
}
