package tracesim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"testbed/emu/clock"
	"testbed/policies"
	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// sim is a run in progress.
type sim struct {
	cfg      Config
	coflows  []workloads.Coflow
	report   func(Progress)
	result   Result
	capacity []float64 // bit/s
	needs    policies.Knowledge
	when     policies.When

	now      clock.Moment
	arrivals []int // places in coflows of those to come, in order
	active   []*coflow
	view     policies.View
	schedule policies.Schedule
	sharer   rates.Sharer
	demands  []*rates.Demand // of active
	classes  *classes        // nil unless shared
	swept    []bool          // memory of sweeping
	ceilings ceilings
	paths    map[path][]topo.LinkID
	pilots   []pilot
	flows    []policies.FlowState // memory of View's
	ended    []end                // memory of harvest
	finished int                  // coflows

	// What the decision in force says.
	pending  bool          // something that When names has happened since
	wake     time.Duration // 0 for none
	watching bool          // it told what to watch
	stepping bool          // of longest flows too: every multiple is gone through
	free     bool          // some flows have no ceiling: their rates change whenever a flow ends
	shared   bool          // rates are those of classes, not of demands
	joint    bool          // what MADD gives is kept for all flows of a coflow at once

	decided time.Duration // when the last decision was
	idled   time.Duration // the last multiple that was gone through without one, if stepping
	moved   clock.Moment  // when something was last seen moving, or arrived

	counter *counter // nil where nothing is counted
}

type path struct {
	src, dst topo.HostID
	spine    int
}

type pilot struct {
	c     *coflow
	place int
}

// coflow is one that has arrived and not ended.
type coflow struct {
	at     int // place in the coflows of the run
	flows  []workloads.Flow
	demand *rates.Demand
	state  policies.CoflowState
	sizes  *sizes
	bits   []float64 // of the flows, by place

	started bool
	shown   bool         // the scheduler has seen it
	news    bool         // something of what the scheduler sees has changed
	sent    float64      // bits, of all flows
	most    float64      // bits, of one flow, when look was called last or a flow has ended since
	ended   clock.Moment // the last end of a flow
	watch   units.Bytes  // 0 for never
	longest units.Bytes  // watch for most

	joined bool // its flows are in classes
	gone   bool // it has ended

	// Rates by place: what agents were last told, and are to be told now. telling are the
	// places where one of the two is not 0.
	told, tell []float64
	telling    []int32

	// Of the rates in force, as computed at base:
	base    clock.Moment
	rate    float64 // bit/s, of all flows
	soonest float64 // ns from base to the first end of a flow
	last    float64 // ns from base to the end of the last flow; NaN if not computed
	pilots  float64 // ns from base to the end of the last pilot; NaN if not computed
	fastest float64 // bit/s, of one flow

	limit   float64      // bits, that most was not above at
	limited clock.Moment // base, or later
}

func newSim(cfg Config, coflows []workloads.Coflow, report func(Progress)) *sim {
	s := &sim{
		cfg: cfg, coflows: coflows, report: report,
		needs: cfg.Scheduler.Needs(), when: cfg.Scheduler.When(),
		paths: map[path][]topo.LinkID{}, decided: -1, idled: -1,
	}
	for _, c := range cfg.Capacity {
		s.capacity = append(s.capacity, float64(c))
	}
	for i := range coflows {
		s.arrivals = append(s.arrivals, i)
	}
	slices.SortFunc(s.arrivals, func(a, b int) int {
		return cmp.Or(cmp.Compare(coflows[a].Arrival, coflows[b].Arrival), cmp.Compare(coflows[a].ID, coflows[b].ID))
	})
	s.result.Coflows = make([]Coflow, len(coflows))
	s.view = policies.View{Fabric: cfg.Fabric, Capacity: cfg.Capacity, Hosts: make([]policies.HostState, cfg.Fabric.Hosts())}
	for h := range s.view.Hosts {
		s.view.Hosts[h].LastReport, s.view.Hosts[h].NextReport = -1, -1
	}
	if cfg.Quantum > 0 && s.when.Every == 0 {
		s.when.Every = cfg.Quantum
	}
	// Those need every flow's own rate, or what it has left.
	s.joint = s.needs&policies.Sizes != 0 && s.needs&(policies.Flows|policies.MostSent) == 0 && !s.when.Pilots && cfg.Interval == 0
	if cfg.Interval > 0 {
		s.counter = newCounter(cfg.Interval, cfg.Fabric.Hosts())
	}
	return s
}

// always tells whether every multiple of the scheduler's interval is gone through.
func (s *sim) always() bool { return s.cfg.Scheduler.When().Every > 0 && (!s.watching || s.stepping) }

func (s *sim) run(ctx context.Context) error {
	for len(s.arrivals) > 0 || len(s.active) > 0 {
		const often = 64 // events between two looks at the context
		if s.result.Events%often == 0 && ctx.Err() != nil {
			return fmt.Errorf("stopped with %s unfinished: %w", s.unfinished(), context.Cause(ctx))
		}
		stop, err := s.next()
		if err != nil {
			return err
		}
		s.result.Events++
		if err := s.advance(stop); err != nil {
			return err
		}
		if s.counter != nil {
			s.counter.settle()
		}
		if err := s.arrive(); err != nil {
			return err
		}
		if len(s.active) == 0 {
			s.pending, s.wake = false, 0
			continue
		}
		if s.due() {
			if err := s.decide(); err != nil {
				return err
			}
		}
	}
	if s.counter != nil {
		s.result.Coordinator = s.counter.end()
	}
	return nil
}

// far is a time in ns at which nothing happens.
var far = math.Inf(1)

// next is the moment at which something happens next.
func (s *sim) next() (clock.Moment, error) {
	exact := far // ns from now to what happens between whole nanoseconds
	whole := time.Duration(math.MaxInt64)
	if len(s.arrivals) > 0 {
		whole = s.coflows[s.arrivals[0]].Arrival
	}
	if len(s.active) > 0 {
		if s.wake > 0 {
			whole = min(whole, s.multiple(clock.Moment{Whole: s.wake}))
		}
		if s.pending || s.always() {
			// What is acted upon at once has been: this is for a later multiple.
			due := s.now.Up(s.when.Every, together/2)
			if last := max(s.decided, s.idled); due <= last {
				due = last + s.when.Every
			}
			whole = min(whole, due)
		}
		if s.watching && !s.always() {
			whole = min(whole, s.crossing())
		}
		ns := s.ending()
		switch {
		case math.IsInf(ns, 1):
		case s.when.Every > 0 && (!s.free || s.cfg.Quantum > 0):
			if ns < farthest {
				step := s.when.Every
				if s.free {
					step = s.cfg.Quantum
				}
				whole = min(whole, s.now.Plus(max(ns, 0)).Up(step, together/2))
			}
		default:
			exact = max(ns, 0)
		}
	}
	if exact > farthest && whole == math.MaxInt64 {
		return clock.Moment{}, s.stuck("nothing moves and nothing is due")
	}
	stop := clock.Moment{Whole: whole}
	// The end of a flow in the half nanosecond before is moved there, as emu/fluid
	// has it.
	if until := s.now.Until(whole); exact < until-0.5 {
		stop = s.now.Plus(exact)
	} else if until < 0 {
		stop = s.now
	}
	if stop.Whole > s.cfg.MaxTime {
		return clock.Moment{}, fmt.Errorf("the next event is at %v, later than the most a run may take, %v; unfinished are %s", stop.Whole, s.cfg.MaxTime, s.unfinished())
	}
	if len(s.arrivals) == 0 && !s.moving() && stop.Since(s.moved) > float64(s.cfg.MaxIdle) {
		return clock.Moment{}, s.stuck(fmt.Sprintf("nothing has moved for %v", s.cfg.MaxIdle))
	}
	return stop, nil
}

// farthest is a time in ns that no run reaches.
const farthest = 1e18

// multiple is the first moment at or after c at which the scheduler can be asked.
func (s *sim) multiple(c clock.Moment) time.Duration {
	if s.when.Every > 0 {
		return c.Up(s.when.Every, together/2)
	}
	if c.Frac > 0 {
		return c.Whole + 1
	}
	return c.Whole
}

// crossing is the first multiple at which a coflow may have passed its watch.
func (s *sim) crossing() time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, c := range s.active {
		if c.watch == 0 {
			continue
		}
		bits := 8*(float64(c.watch)+1-nearlyWhole) - c.sent
		if bits <= 0 {
			first = min(first, max(s.now.Up(s.when.Every, together/2), s.decided+s.when.Every))
			continue
		}
		if ns := bits / c.rate * 1e9; ns < farthest {
			first = min(first, max(s.now.Plus(ns).Up(s.when.Every, together/2), s.decided+s.when.Every))
		}
	}
	return first
}

// look finds out what the longest flow has sent.
func (c *coflow) look(now clock.Moment) {
	left, most := c.demand.Left, c.most
	bits := c.bits[:len(left)]
	for _, p := range c.demand.Moving() {
		if sent := bits[p] - left[p]; sent > most {
			most = sent
		}
	}
	c.most, c.limit, c.limited = most, most, now
}

// atMost is what no flow has sent more than.
func (c *coflow) atMost(now clock.Moment) float64 {
	return (c.limit + c.fastest*now.Since(c.limited)/1e9) * (1 + imprecision)
}

// mostBytes is what the scheduler is told of the longest flow.
func (c *coflow) mostBytes() units.Bytes { return units.Bytes(c.most/8 + nearlyWhole) }

// ending is how many ns from now the first end of a flow is that matters: to the
// scheduler, to the rates of others, or because its coflow ends with it.
func (s *sim) ending() float64 {
	if s.shared {
		return s.classes.soonest(s.now)
	}
	if s.always() && !s.free {
		return far // it is found out at the next multiple
	}
	first := far
	flows := s.when.Flows || s.free
	for _, c := range s.active {
		ns := c.soonest
		if !flows {
			ns = c.end()
			if s.when.Pilots && c.state.PilotsLeft > 0 {
				ns = min(ns, c.pilotsEnd())
			}
		}
		if ns < far {
			first = min(first, ns-s.now.Since(c.base))
		}
	}
	return first
}

// end is how many ns from base the coflow ends if rates stay what they are.
func (c *coflow) end() float64 {
	if math.IsNaN(c.last) {
		c.last = far
		moving, following := c.demand.Moving(), c.demand.Following()
		if len(moving)+following == c.demand.Unfinished() {
			c.last = longest(c.demand, moving)
			if following > 0 {
				c.last = max(c.last, c.demand.Lasts()*1e9)
			}
		}
	}
	return c.last
}

func (c *coflow) pilotsEnd() float64 {
	if math.IsNaN(c.pilots) {
		left := 0
		c.pilots = 0
		rates := c.demand.Rates()
		for _, p := range c.demand.Moving() {
			if c.demand.Pilot(int(p)) {
				left++
				c.pilots = max(c.pilots, c.demand.Left[p]/rates[p]*1e9)
			}
		}
		if left < c.state.PilotsLeft {
			c.pilots = far
		}
	}
	return c.pilots
}

func longest(d *rates.Demand, moving []int32) float64 {
	most, rates := 0.0, d.Rates()
	for _, p := range moving {
		most = max(most, d.Left[p]/rates[p])
	}
	return most * d.Scale() * 1e9
}

// measure brings what is derived from a coflow's rates up to date.
func (s *sim) measure(c *coflow) {
	c.limit, c.limited = c.atMost(s.now), s.now
	c.base, c.last, c.pilots = s.now, math.NaN(), math.NaN()
	total, fastest := c.demand.Follows(), 0.0
	left, rate := 1.0, 0.0 // of the flow that ends first
	ls, rs := c.demand.Left, c.demand.Rates()
	rs = rs[:len(ls)]
	for _, p := range c.demand.Moving() {
		l, r := ls[p], rs[p]
		total += r
		if r > fastest {
			fastest = r
		}
		if l*rate < left*r {
			left, rate = l, r
		}
	}
	c.rate, c.fastest = total, fastest
	c.soonest = far
	if rate > 0 {
		c.soonest = left * c.demand.Scale() / rate * 1e9
	}
	if c.demand.Following() > 0 {
		c.soonest = min(c.soonest, c.demand.Lasts()*1e9)
	}
	if c.soonest == far {
		return
	}
	c.rate = max(c.rate, math.SmallestNonzeroFloat64) // it moves
	if !c.started {
		c.started = true
		s.result.Coflows[c.at].Start = s.now.Round()
	}
}

func (s *sim) moving() bool {
	if s.shared {
		return s.classes.soonest(s.now) < far
	}
	for _, c := range s.active {
		if c.rate > 0 {
			return true
		}
	}
	return false
}

// advance lets time pass until stop, and takes off what has ended by then.
func (s *sim) advance(stop clock.Moment) error {
	from := s.now
	s.now = stop
	if s.shared {
		s.classes.advance(s)
		return nil
	}
	ns := stop.Since(from)
	if ns <= 0 && stop != from {
		return nil
	}
	ends := false
	for i := 0; i < len(s.active); i++ {
		c := s.active[i]
		if c.rate == 0 {
			continue
		}
		s.moved, c.news = stop, true
		before := from.Since(c.base)
		slack := max(together, float64(s.cfg.Resolution))
		if c.soonest-before > ns+slack && !s.imprecise(c, before+ns) {
			c.sent += c.rate * ns / 1e9
			c.demand.Advance(ns / 1e9)
			continue
		}
		ends = true
		if s.harvest(c, from, ns, slack) {
			i--
		}
	}
	if ends && s.free && len(s.active) > 0 {
		return s.refill()
	}
	return nil
}

// imprecise tells whether a flow of c may be done within the precision of its
// size, so many ns after base.
func (s *sim) imprecise(c *coflow, ns float64) bool {
	return c.soonest-ns <= imprecision*c.soonest
}

// due tells whether the scheduler is to be asked now.
func (s *sim) due() bool {
	at := clock.Moment{Whole: s.now.Round()}
	if e := s.when.Every; e > 0 && (s.now.Frac != 0 || s.now.Whole%e != 0 || s.now.Whole == s.decided) {
		return false
	}
	if s.pending || s.always() && !s.stepping || s.wake > 0 && at.Whole >= s.wake {
		return true
	}
	if s.watching {
		for _, c := range s.active {
			if c.watch > 0 && s.bytesBy(c) > c.watch {
				return true
			}
			if c.longest > 0 && c.atMost(s.now)/8+2*nearlyWhole > float64(c.longest) {
				if c.look(s.now); c.mostBytes() > c.longest {
					return true
				}
			}
		}
	}
	if s.stepping {
		s.idle()
	}
	return false
}

// idle goes through a multiple without a decision. One would change no rate, and so
// nothing but base: that is left as it is until a flow is about to end, so that ends
// are those of a run with all decisions, to the bit.
func (s *sim) idle() {
	s.idled = s.now.Whole
	for _, c := range s.active {
		const rounding = 1e-6 // of what base is too old for
		if c.rate > 0 && c.soonest*(1-rounding)-s.now.Since(c.base) <= 2*float64(s.when.Every) {
			s.measure(c)
		}
	}
}

// bytesBy is what the scheduler is told has been received of a coflow: whole bytes,
// and of every unfinished flow not the last.
func (s *sim) bytesBy(c *coflow) units.Bytes {
	return min(units.Bytes(c.sent/8+nearlyWhole), s.result.Coflows[c.at].Size-units.Bytes(c.state.Left))
}

func (s *sim) unfinished() string {
	flows := 0
	for _, c := range s.active {
		flows += c.state.Left
	}
	return fmt.Sprintf("%d coflows with %d flows", len(s.active), flows)
}

// stuck explains why waiting would not end.
func (s *sim) stuck(why string) error {
	if s.shared {
		s.classes.count(s)
	}
	const most = 10
	var names []string
	for i, c := range s.active {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(s.active)-most))
			break
		}
		names = append(names, fmt.Sprintf("coflow %d (%d of %d flows left, %v of %v received, queue %d)", c.state.ID, c.state.Left, c.state.Width, s.bytesBy(c), s.result.Coflows[c.at].Size, c.state.Queue))
	}
	return errors.New("deadlock: " + why + ": unfinished are " + strings.Join(names, ", ") + ": the scheduler must let at least one of them send, or say when to ask it again")
}
