package flowsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"testbed/emu/simtime"
	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/policies/coordinator"
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
	coordinator.Coordinator

	now       simtime.Moment
	arrivals  []int // places in coflows of future arrivals, in order
	active    []*coflow
	view      policies.CoflowView
	schedule  policies.Schedule
	allocator alloc.Allocator
	demands   []*alloc.Demand // of active
	classes   *classes        // nil unless shared
	swept     []bool          // memory of sweeping
	ceilings  ceilings
	paths     map[path][]topo.LinkID
	flows     []policies.FlowState // memory of View's
	ended     []end                // memory of harvest
	finished  int                  // coflows
	memory    units.Bytes          // of active, by MemoryOf

	// The decision in force.
	free   bool // some flows have no rate cap: their rates change whenever a flow ends
	shared bool // rates are those of classes, not of demands
	joint  bool // rates of MADD are kept for all flows of a coflow together

	stale bool           // a flow has ended at this event; shares of its coflow are -1
	moved simtime.Moment // last time at which a flow moved or a coflow arrived

	counter *counter // nil if not counted
}

type path struct {
	src, dst topo.HostID
	spine    int
}

// coflow is one that has arrived and not ended.
type coflow struct {
	coordinator.Coflow
	at     int // place in the coflows of the run
	flows  []workloads.Flow
	demand *alloc.Demand
	sizes  *sizes
	bits   []float64 // of the flows, by place

	started bool
	news    bool           // state that the scheduler sees has changed
	sent    float64        // bits, of all flows
	most    float64        // bits, of one flow, at the last call of look or a later end of a flow
	ended   simtime.Moment // the last end of a flow

	joined bool // its flows are in classes
	shares int  // demand.Shares when rate was computed; -1 if a flow has ended since

	// Rates by place: known are those of the last message to agents, moving those of now.
	// messages are the places where one of the two is not 0.
	known, moving []float64
	messages      []int32
	told          int // demand.Shares of the last message

	// Of the rates in force, as computed at base:
	base    simtime.Moment
	rate    float64 // bit/s, of all flows
	soonest float64 // ns from base to the first end of a flow
	last    float64 // ns from base to the end of the last flow; NaN if not computed
	pilots  float64 // ns from base to the end of the last pilot; NaN if not computed
	fastest float64 // bit/s, of one flow

	limit   float64        // bits, upper bound of most at
	limited simtime.Moment // base, or later
}

func newSim(cfg Config, c coordinator.Coordinator, coflows []workloads.Coflow, report func(Progress)) *sim {
	s := &sim{cfg: cfg, Coordinator: c, coflows: coflows, report: report, paths: map[path][]topo.LinkID{}}
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
	s.view = policies.CoflowView{Cluster: &policies.Cluster{Fabric: cfg.Fabric, Capacity: cfg.Capacity, Hosts: make([]policies.HostState, cfg.Fabric.Hosts())}}
	for h := range s.view.Hosts {
		s.view.Hosts[h].LastReport, s.view.Hosts[h].NextReport = -1, -1
	}
	// These need every flow's own rate, or its remaining bits.
	s.joint = s.Needs.Has(policies.Sizes) && !s.Needs.Has(policies.Flows) && !s.Needs.Has(policies.MostSent) && !s.Triggers.Pilots && cfg.Interval == 0
	if cfg.Interval > 0 {
		s.counter = &counter{coordinator.NewCounter(cfg.Interval, cfg.Fabric.Hosts())}
	}
	return s
}

// always reports whether every multiple of the scheduler's interval is processed.
func (s *sim) always() bool {
	return s.Triggers.Every > 0 && (!s.Watching || s.WatchingMost)
}

func (s *sim) run(ctx context.Context) error {
	for len(s.arrivals) > 0 || len(s.active) > 0 {
		const often = 64 // events between two checks of the context
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
			s.counter.Settle()
		}
		if err := s.arrive(); err != nil {
			return err
		}
		if len(s.active) == 0 {
			s.Reset()
			continue
		}
		if s.due() {
			if err := s.decide(); err != nil {
				return err
			}
		} else if s.stale {
			s.remeasure()
		}
		s.stale = false
	}
	if s.counter != nil {
		s.result.Coordinator = s.counter.Messages(s.now.Round())
	}
	return nil
}

// far is a time in ns at which nothing happens.
var far = math.Inf(1)

// next returns the time of the next event.
func (s *sim) next() (simtime.Moment, error) {
	exact := far // ns from now to the next event between whole nanoseconds
	whole := time.Duration(math.MaxInt64)
	if len(s.arrivals) > 0 {
		whole = s.coflows[s.arrivals[0]].Arrival
	}
	if len(s.active) > 0 {
		whole = min(whole, s.Requested())
		if s.always() {
			whole = min(whole, s.Next())
		} else if s.Watching {
			whole = min(whole, s.crossing())
		}
		ns := s.ending()
		switch {
		case math.IsInf(ns, 1):
		case s.Step > 0 && (!s.free || s.cfg.Quantum > 0):
			if ns < farthest {
				step := s.Step
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
		return simtime.Moment{}, s.stuck("nothing moves and nothing is due")
	}
	stop := simtime.Moment{Whole: whole}
	// The end of a flow in the half nanosecond before is moved to this time, as in
	// emu/fluid.
	if until := s.now.Until(whole); exact < until-0.5 {
		stop = s.now.Plus(exact)
	} else if until < 0 {
		stop = s.now
	}
	if stop.Whole > s.cfg.MaxTime {
		return simtime.Moment{}, fmt.Errorf("the next event is at %v, later than the most a run may take, %v; unfinished are %s", stop.Whole, s.cfg.MaxTime, s.unfinished())
	}
	if len(s.arrivals) == 0 && !s.moving() && stop.Since(s.moved) > float64(s.cfg.MaxIdle) {
		return simtime.Moment{}, s.stuck(fmt.Sprintf("nothing has moved for %v", s.cfg.MaxIdle))
	}
	return stop, nil
}

// farthest is a time in ns that no run reaches.
const farthest = 1e18

// crossing returns the first multiple at which a coflow may have passed its watch.
func (s *sim) crossing() time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, c := range s.active {
		if c.Watch == 0 {
			continue
		}
		bits := 8*(float64(c.Watch)+1-nearlyWhole) - c.sent
		if bits <= 0 {
			first = min(first, max(s.now.Up(s.Step, together/2), s.Decided+s.Step))
			continue
		}
		if ns := bits / c.rate * 1e9; ns < farthest {
			first = min(first, max(s.now.Plus(ns).Up(s.Step, together/2), s.Decided+s.Step))
		}
	}
	return first
}

// look computes the bits that the longest flow has sent.
func (c *coflow) look(now simtime.Moment) {
	left, most := c.demand.Left, c.most
	bits := c.bits[:len(left)]
	for _, p := range c.demand.Moving() {
		if sent := bits[p] - left[p]; sent > most {
			most = sent
		}
	}
	c.most, c.limit, c.limited = most, most, now
}

// atMost returns an upper bound of the bits that any flow has sent.
func (c *coflow) atMost(now simtime.Moment) float64 {
	return (c.limit + c.fastest*now.Since(c.limited)/1e9) * (1 + imprecision)
}

// mostBytes returns the bytes of the longest flow that the scheduler sees.
func (c *coflow) mostBytes() units.Bytes { return units.Bytes(c.most/8 + nearlyWhole) }

// ending returns the time in ns until the first end of a flow that matters: to the
// scheduler, to the rates of others, or because its coflow ends with it.
func (s *sim) ending() float64 {
	if s.shared {
		return s.classes.soonest(s.now)
	}
	if s.always() && !s.free {
		return far // it is detected at the next multiple
	}
	first := far
	flows := s.Triggers.Flows || s.free
	for _, c := range s.active {
		ns := c.soonest
		if !flows {
			ns = c.end()
			if s.Triggers.Pilots && c.State.PilotsLeft > 0 {
				ns = min(ns, c.pilotsEnd())
			}
		}
		if ns < far {
			first = min(first, ns-s.now.Since(c.base))
		}
	}
	return first
}

// end returns the time in ns from base at which the coflow ends at the current rates.
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
		if left < c.State.PilotsLeft {
			c.pilots = far
		}
	}
	return c.pilots
}

func longest(d *alloc.Demand, moving []int32) float64 {
	most, rates := 0.0, d.Rates()
	for _, p := range moving {
		most = max(most, d.Left[p]/rates[p])
	}
	return most * d.Scale() * 1e9
}

// measure updates the values derived from a coflow's rates.
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
	s.began(c)
}

// remeasure measures the coflows of which flows have ended without a decision.
func (s *sim) remeasure() {
	for _, c := range s.active {
		if c.shares < 0 {
			s.measure(c)
			c.shares = c.demand.Shares()
		}
	}
}

// began records the start of a coflow, if it has one now.
func (s *sim) began(c *coflow) {
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

// advance lets time pass until stop, and removes the flows that have ended by then.
func (s *sim) advance(stop simtime.Moment) error {
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

// imprecise reports whether a flow of c may end within the precision of its size, a time in
// ns after base.
func (s *sim) imprecise(c *coflow, ns float64) bool {
	return c.soonest-ns <= imprecision*c.soonest
}

// due reports whether the scheduler must be called now.
func (s *sim) due() bool {
	if s.Step > 0 && (s.now.Frac != 0 || s.now.Whole%s.Step != 0) {
		return false
	}
	now := s.now.Round()
	return s.Due(now, s.passes) <= now
}

// passes returns now if a coflow has passed its watch, and otherwise a later time.
func (s *sim) passes() time.Duration {
	now := s.now.Round()
	for _, c := range s.active {
		if c.Watch > 0 && s.bytesBy(c) > c.Watch {
			return now
		}
		if c.WatchMost > 0 && c.atMost(s.now)/8+2*nearlyWhole > float64(c.WatchMost) {
			if c.look(s.now); c.mostBytes() > c.WatchMost {
				return now
			}
		}
	}
	if s.WatchingMost {
		s.idle()
	}
	return now + 1
}

// event returns the current time for the coordinator: in whole nanoseconds, and after a decision
// at the same multiple, because each has at most one.
func (s *sim) event() time.Duration {
	if s.Step == 0 {
		return s.now.Round()
	}
	return max(s.now.Up(1, 0), s.Decided+1)
}

// idle processes a multiple without a decision. A decision would change no rate, and
// therefore only base, which is left unchanged until a flow is about to end, so that ends
// equal those of a run with all decisions, to the bit.
func (s *sim) idle() {
	for _, c := range s.active {
		const rounding = 1e-6 // error of an outdated base
		if c.rate > 0 && c.shares >= 0 && c.soonest*(1-rounding)-s.now.Since(c.base) <= 2*float64(s.Step) {
			s.measure(c)
		}
	}
}

// bytesBy returns the received bytes of a coflow that the scheduler sees: whole bytes,
// without the last one of every unfinished flow.
func (s *sim) bytesBy(c *coflow) units.Bytes {
	return min(units.Bytes(c.sent/8+nearlyWhole), s.result.Coflows[c.at].Size-units.Bytes(c.State.Left))
}

func (s *sim) unfinished() string {
	flows := 0
	for _, c := range s.active {
		flows += c.State.Left
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
		names = append(names, fmt.Sprintf("coflow %d (%d of %d flows left, %v of %v received, queue %d)", c.State.ID, c.State.Left, c.State.Width, s.bytesBy(c), s.result.Coflows[c.at].Size, c.State.Queue))
	}
	return errors.New("deadlock: " + why + ": unfinished are " + strings.Join(names, ", ") + ": the scheduler must let at least one of them send, or request another call")
}
