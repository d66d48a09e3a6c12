package coflow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// job is a coflow to come.
type job struct {
	at    time.Duration
	flows []demandOf
}

// loop lets coflows pass under a policy, flows as fluids, from one event to the
// next, to the nanosecond. It is plain on purpose.
type loop struct {
	t      interface{ Fatalf(string, ...any) }
	fabric *topo.Fabric
	policy policies.Scheduler
	skip   bool // leaves out the decisions that Schedule.Watch says are needless
	until  time.Duration
	// observe, which may be nil, sees every decision.
	observe func(v *policies.View, s *policies.Schedule)

	decisions int
}

type running struct {
	place            int
	job              job
	state            policies.CoflowState
	demand           *rates.Demand
	sizes            []units.Bytes // of flows that have ended
	seen             bool
	watch, watchMost int64
}

// run returns the completion time of every coflow, 0 for those unfinished at until.
func (l *loop) run(jobs []job) []time.Duration {
	const huge = time.Duration(math.MaxInt64)
	if l.until == 0 {
		l.until = huge
	}
	cct := make([]time.Duration, len(jobs))
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(jobs[a].at, jobs[b].at) })
	var capacity []float64
	v := &policies.View{Fabric: l.fabric}
	for _, link := range l.fabric.Links() {
		capacity, v.Capacity = append(capacity, float64(link.Rate)), append(v.Capacity, link.Rate)
	}
	when, needs := l.policy.When(), l.policy.Needs()
	var (
		active  []*running
		s       policies.Schedule
		share   rates.Sharer
		now     time.Duration
		wake    time.Duration
		decided = time.Duration(-1)
		pending bool
		memory  []int64
	)
	up := func(t time.Duration) time.Duration {
		if when.Every > 0 {
			return (t + when.Every - 1) / when.Every * when.Every
		}
		return t
	}
	for len(order) > 0 || len(active) > 0 {
		next := huge
		if len(order) > 0 {
			next = jobs[order[0]].at
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
			l.t.Fatalf("at %v nothing moves and nothing is due, %d unfinished", now, len(active))
		}
		if next > l.until {
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
				c.sizes = append(c.sizes, c.job.flows[p].bytes)
				if c.demand.Pilot(int(p)) {
					c.state.PilotsLeft--
					c.state.PilotSent += c.job.flows[p].bytes
				}
				pending = true
			}
			if c.demand.Unfinished() == 0 {
				cct[c.place] = now - c.job.at
				active = slices.Delete(active, i, i+1)
				i--
			}
		}
		for len(order) > 0 && jobs[order[0]].at <= now {
			active = append(active, newRunning(l.fabric, order[0], jobs[order[0]]))
			order, pending = order[1:], true
		}
		due := pending || wake > decided && up(wake) <= now
		if when.Every > 0 {
			passed := func(c *running) bool {
				c.measure()
				return c.watch > 0 && int64(c.state.Sent) > c.watch || c.watchMost > 0 && int64(c.state.MostSent) > c.watchMost
			}
			silent := l.skip && len(s.Watch)+len(s.WatchMost) > 0
			due = now%when.Every == 0 && (due || !silent || slices.ContainsFunc(active, passed))
		}
		if !due || len(active) == 0 {
			continue
		}
		v.Now, v.Memory, v.Coflows = now, memory, v.Coflows[:0]
		var demands []*rates.Demand
		for _, c := range active {
			v.Coflows = append(v.Coflows, c.show(needs))
			demands = append(demands, c.demand)
		}
		s.Reset()
		l.policy.Schedule(v, &s)
		l.decisions++
		if l.observe != nil {
			l.observe(v, &s)
		}
		pending, wake, decided = false, s.Wake, now
		if s.Memory != nil {
			memory = slices.Clone(s.Memory)
		}
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
			l.t.Fatalf("at %v: %v", now, err)
		}
	}
	return cct
}

func newRunning(f *topo.Fabric, place int, j job) *running {
	c := &running{place: place, job: j}
	v := view(f, j.flows)
	c.state = v.Coflows[0]
	c.state.ID, c.state.Arrival, c.state.Since = workloads.CoflowID(place+1), j.at, j.at
	var flows []rates.Flow
	for i, d := range j.flows {
		flows = append(flows, rates.Flow{ID: workloads.FlowID(1000*(place+1) + i), Size: d.bytes, Links: f.Path(d.src, d.dst, uint32(i))})
	}
	c.demand = rates.NewDemand(flows, len(f.Links()))
	return c
}

// measure brings what has been sent up to date.
func (c *running) measure() {
	var sum, most float64
	for p, d := range c.job.flows {
		sent := 8*float64(d.bytes) - c.demand.Left[p]
		if c.demand.Ended(p) {
			sent = 8 * float64(d.bytes)
		}
		sum, most = sum+sent, max(most, sent)
	}
	c.state.Sent, c.state.MostSent = units.Bytes(sum/8+1e-6), units.Bytes(most/8+1e-6)
}

// show is what a policy with the given needs sees.
func (c *running) show(needs policies.Knowledge) policies.CoflowState {
	c.measure()
	s := c.state
	s.Left, s.Finished = c.demand.Unfinished(), len(c.sizes)
	if slices.Sort(c.sizes); len(c.sizes) > 0 {
		s.Median = c.sizes[(len(c.sizes)-1)/2]
	}
	s.Links = slices.Clone(c.demand.Links(needs&policies.Sizes != 0))
	if needs&(policies.Sizes|policies.Totals) == 0 {
		s.Size, s.Largest, s.Bound = 0, 0, 0
	}
	if s.Remaining = 0; needs&policies.Sizes != 0 {
		s.Remaining = s.Size - s.Sent
	}
	all := needs&policies.NewFlows != 0 && !c.seen
	if all || needs&policies.PilotFlows != 0 {
		for p, d := range c.job.flows {
			if c.demand.Ended(p) || !all && !c.demand.Pilot(p) {
				continue
			}
			s.Flows = append(s.Flows, policies.FlowState{ID: c.demand.ID(p), Src: d.src, Dst: d.dst, Path: c.demand.Path(p), Pilot: c.demand.Pilot(p)})
		}
	}
	return s
}

// view is what there is to see of coflows that have just arrived.
func view(f *topo.Fabric, coflows ...[]demandOf) *policies.View { return viewOf(f, coflows...).View }
