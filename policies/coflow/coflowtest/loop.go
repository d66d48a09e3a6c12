package coflowtest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Job is a coflow with its arrival time.
type Job = struct {
	At    time.Duration
	Flows []Flow
}

// Loop simulates coflows under a policy, with flows as fluids, from event to event, to the
// nanosecond. It is simple on purpose.
type Loop struct {
	T      interface{ Fatalf(string, ...any) }
	Fabric *topo.Fabric
	Policy policies.CoflowScheduler
	Skip   bool          // skip decisions that Schedule.Watch declares unnecessary
	Until  time.Duration // end of the simulation; 0: when all coflows have ended
	// Observe, if not nil, is called for every decision.
	Observe func(v *policies.CoflowView, s *policies.Schedule)

	Decisions int // number of calls of the policy
}

type running struct {
	place            int
	job              Job
	state            policies.CoflowState
	demand           *alloc.Demand
	sizes            []units.Bytes // sizes of ended flows
	seen             bool
	watch, watchMost int64
}

// Run returns the completion time of every coflow, 0 for those unfinished at Until.
func (l *Loop) Run(jobs []Job) []time.Duration {
	const huge = time.Duration(math.MaxInt64)
	if l.Until == 0 {
		l.Until = huge
	}
	cct := make([]time.Duration, len(jobs))
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(jobs[a].At, jobs[b].At) })
	v := NewView(l.Fabric)
	var capacity []float64
	for _, rate := range v.Capacity {
		capacity = append(capacity, float64(rate))
	}
	when, needs := l.Policy.Triggers(), l.Policy.Needs()
	var (
		active  []*running
		s       policies.Schedule
		share   alloc.Allocator
		now     time.Duration
		wake    time.Duration
		decided = time.Duration(-1)
		pending bool
	)
	up := func(t time.Duration) time.Duration {
		if when.Every > 0 {
			return (t + when.Every - 1) / when.Every * when.Every
		}
		return t
	}
	policy := l.Policy.New()
	for len(order) > 0 || len(active) > 0 {
		next := huge
		if len(order) > 0 {
			next = jobs[order[0]].At
		}
		for _, c := range active {
			for _, p := range c.demand.Moving() {
				next = min(next, now+max(time.Duration(math.Ceil(c.demand.Left[p]/c.demand.Rates()[p]*1e9)), 1))
			}
		}
		if wake > now {
			next = min(next, up(wake))
		}
		if when.Every > 0 && len(active) > 0 {
			next = min(next, up(now+1))
		}
		if next == huge {
			l.T.Fatalf("at %v no flow has a rate and no event is due, %d unfinished", now, len(active))
		}
		if next > l.Until {
			break
		}
		seconds := (next - now).Seconds()
		now = next
		for i := 0; i < len(active); i++ {
			c := active[i]
			moving := slices.Clone(c.demand.Moving())
			c.demand.Advance(seconds)
			for _, p := range moving {
				if c.demand.Left[p] > c.demand.Rates()[p]*1e-9 {
					continue
				}
				c.demand.End(int(p))
				c.sizes = append(c.sizes, c.job.Flows[p].Bytes)
				if c.demand.Pilot(int(p)) {
					c.state.PilotsLeft--
					c.state.PilotSent += c.job.Flows[p].Bytes
				}
				pending = true
			}
			if c.demand.Unfinished() == 0 {
				cct[c.place] = now - c.job.At
				active = slices.Delete(active, i, i+1)
				i--
			}
		}
		for len(order) > 0 && jobs[order[0]].At <= now {
			active = append(active, newRunning(v, order[0], jobs[order[0]]))
			order, pending = order[1:], true
		}
		due := pending || wake > decided && up(wake) <= now
		if when.Every > 0 {
			passed := func(c *running) bool {
				c.measure()
				return c.watch > 0 && int64(c.state.Sent) > c.watch || c.watchMost > 0 && int64(c.state.MostSent) > c.watchMost
			}
			silent := l.Skip && len(s.Watch)+len(s.WatchMost) > 0
			due = now%when.Every == 0 && (due || !silent || slices.ContainsFunc(active, passed))
		}
		if !due || len(active) == 0 {
			continue
		}
		v.Now, v.Coflows = now, v.Coflows[:0]
		var demands []*alloc.Demand
		for _, c := range active {
			v.Coflows = append(v.Coflows, c.show(needs))
			demands = append(demands, c.demand)
		}
		s.Reset()
		policy.Decide(v, &s)
		l.Decisions++
		if l.Observe != nil {
			l.Observe(v, &s)
		}
		pending, wake, decided = false, s.Wake, now
		for i, c := range active {
			c.seen, c.watch, c.watchMost = true, 0, 0
			if len(s.Queues) > 0 && s.Queues[i] != c.state.Queue {
				c.state.Queue, c.state.Since = s.Queues[i], now
			}
			if len(s.Watch) > 0 {
				c.watch = s.Watch[i]
			}
			if len(s.WatchMost) > 0 {
				c.watchMost = s.WatchMost[i]
			}
			for _, id := range s.Pilots {
				if p := c.demand.Place(id); p >= 0 {
					c.demand.MakePilot(p)
					c.state.Pilots++
					c.state.PilotsLeft++
				}
			}
		}
		if err := share.Share(&s, demands, capacity, needs, false); err != nil {
			l.T.Fatalf("at %v: %v", now, err)
		}
	}
	return cct
}

func newRunning(v *policies.CoflowView, place int, j Job) *running {
	c := &running{place: place, job: j}
	c.state, c.demand = Arrive(v, workloads.CoflowID(place+1), j.Flows)
	c.state.Arrival, c.state.Since = j.At, j.At
	return c
}

// measure updates the bytes sent.
func (c *running) measure() {
	var sum, most float64
	for p, d := range c.job.Flows {
		sent := 8*float64(d.Bytes) - c.demand.Left[p]
		if c.demand.Ended(p) {
			sent = 8 * float64(d.Bytes)
		}
		sum, most = sum+sent, max(most, sent)
	}
	c.state.Sent, c.state.MostSent = units.Bytes(sum/8+1e-6), units.Bytes(most/8+1e-6)
}

// show returns the state that a policy with the given needs sees.
func (c *running) show(needs policies.Facts) policies.CoflowState {
	c.measure()
	s := c.state
	s.Left, s.Finished = c.demand.Unfinished(), len(c.sizes)
	if slices.Sort(c.sizes); len(c.sizes) > 0 {
		s.Median = c.sizes[(len(c.sizes)-1)/2]
	}
	s.Links = slices.Clone(c.demand.Links(needs))
	if !needs.Has(policies.Totals) {
		s.Size, s.Largest, s.Bound = 0, 0, 0
	}
	if s.Remaining = 0; needs.Has(policies.Sizes) {
		s.Remaining = s.Size - s.Sent
	}
	all := needs.Has(policies.NewFlows) && !c.seen
	if all || needs.Has(policies.PilotFlows) {
		for p, d := range c.job.Flows {
			if c.demand.Ended(p) || !all && !c.demand.Pilot(p) {
				continue
			}
			s.Flows = append(s.Flows, policies.FlowState{ID: c.demand.ID(p), Src: d.Src, Dst: d.Dst, Path: c.demand.Path(p), Pilot: c.demand.Pilot(p)})
		}
	}
	return s
}
