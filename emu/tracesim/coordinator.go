package tracesim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/clock"
	"testbed/topo"
	"testbed/workloads"
)

// Coordinator counts what a scheduler's master would send and be sent, by intervals
// of Config.Interval: the load that the scalability table of Philae (ATC 2019,
// arXiv 2108.11255) is about. An agent is a host that sends; each tells of its own
// flows. An interval counts from its beginning and without its end.
type Coordinator struct {
	Interval time.Duration `json:"interval_ns"` // 0: nothing was counted
	// Intervals is in how many a coflow was unfinished. The other counts are of these.
	Intervals int64 `json:"intervals"`
	// Updates is the sum over the intervals of the agents that report in them. An agent
	// reports in an interval if one of its flows ends in it. Where the scheduler goes by
	// what coflows have sent, an agent also reports if it has an unfinished flow: that
	// is, from the first decision on in which When.Every is set and Schedule.Watch and
	// WatchMost are empty, or above 0 for some coflow.
	Updates int64 `json:"updates"`
	// Silent is in how many intervals no agent reports.
	Silent int64 `json:"silent"`
	// Flushes is how many decisions change the rate of some unfinished flow, one that
	// is let go, paused or freed included, and Told the sum over these of the agents
	// that have such a flow. The end of a flow is no change. A flow without a ceiling
	// has one rate, none, whatever the network gives it.
	Flushes int64 `json:"flushes"`
	Told    int64 `json:"hosts_told"`
	// Unflushed is in how many intervals no decision does.
	Unflushed int64 `json:"unflushed"`
}

// counter counts for Coordinator.
type counter struct {
	sum      Coordinator
	left     []int   // unfinished flows, by sending host
	reported []int64 // the last interval in which the host's report is counted
	from     []int64 // of a host with unfinished flows: since when it reports regularly
	hosts    int     // with unfinished flows
	regular  bool    // agents with unfinished flows report in every interval
	begun    int64   // the interval since which hosts is above 0
	waiting  int64   // the interval since which that is so and reports are regular
	ends     []flowEnd

	busy, heard, flushed union

	changed []int64 // by host: the last decision that changed something
	now     int64   // the decision
}

// union counts the members of intervals that come in order of their ends.
type union struct{ last, n int64 }

func (u *union) add(from, to int64) {
	if from = max(from, u.last+1); from <= to {
		u.n += to - from + 1
		u.last = to
	}
}

type flowEnd struct {
	host     topo.HostID
	interval int64
}

func newCounter(interval time.Duration, hosts int) *counter {
	k := &counter{sum: Coordinator{Interval: interval}, left: make([]int, hosts), reported: make([]int64, hosts), from: make([]int64, hosts), changed: make([]int64, hosts)}
	for h := range hosts {
		k.reported[h] = -1
	}
	k.busy.last, k.heard.last, k.flushed.last = -1, -1, -1
	return k
}

// interval is the number of the one in which a moment is.
func (k *counter) interval(at clock.Moment) int64 {
	if at.Frac >= 1-together {
		at.Whole++
	}
	return int64(at.Whole / k.sum.Interval)
}

func (k *counter) arrived(flows []workloads.Flow, at clock.Moment) {
	now := k.interval(at)
	for _, f := range flows {
		if k.left[f.Src]++; k.left[f.Src] == 1 {
			k.from[f.Src] = now
			if k.hosts++; k.hosts == 1 {
				k.begun, k.waiting = now, now
			}
		}
	}
}

// ended notes the end of a flow; settle counts what was noted.
func (k *counter) ended(src topo.HostID, at clock.Moment) {
	k.ends = append(k.ends, flowEnd{src, k.interval(at)})
}

func (k *counter) settle() {
	slices.SortStableFunc(k.ends, func(a, b flowEnd) int { return cmp.Compare(a.interval, b.interval) })
	for _, e := range k.ends {
		k.left[e.host]--
		if !k.regular {
			k.heard.add(e.interval, e.interval)
			if k.reported[e.host] < e.interval {
				k.reported[e.host] = e.interval
				k.sum.Updates++
			}
		}
		if k.left[e.host] > 0 {
			continue
		}
		k.regularly(e.host, e.interval)
		if k.hosts--; k.hosts == 0 {
			k.busy.add(k.begun, e.interval)
			if k.regular {
				k.heard.add(k.waiting, e.interval)
			}
		}
	}
	k.ends = k.ends[:0]
}

// regularly counts a host's regular reports up to an interval.
func (k *counter) regularly(h topo.HostID, to int64) {
	if from := max(k.from[h], k.reported[h]+1); k.regular && from <= to {
		k.sum.Updates += to - from + 1
		k.reported[h] = to
	}
}

// decided counts a decision.
func (k *counter) decided(s *sim) {
	at := k.interval(s.now)
	regular := k.regular || s.cfg.Scheduler.When().Every > 0 && (!s.watching || slices.ContainsFunc(s.active, func(c *coflow) bool { return c.watch > 0 || c.longest > 0 }))
	if regular != k.regular {
		for h := range k.from {
			k.from[h] = at
		}
		k.waiting, k.regular = at, regular
	}
	k.now++
	told := k.sum.Told
	for _, c := range s.active {
		k.tell(s, c)
	}
	if s.free && !s.shared {
		for _, f := range s.ceilings.fixed {
			c := f.c
			c.tell[f.place] = f.rate
		}
	}
	for _, c := range s.active {
		for _, p := range c.telling {
			if c.tell[p] == c.told[p] {
				continue
			}
			c.told[p] = c.tell[p]
			if h := c.flows[p].Src; k.changed[h] != k.now && !c.demand.Ended(int(p)) {
				k.changed[h] = k.now
				k.sum.Told++
			}
		}
		// What is not told of now has a rate of 0.
		n := 0
		for _, p := range c.telling {
			if c.tell[p] != 0 {
				c.tell[p] = 0
				c.telling[n] = p
				n++
			}
		}
		c.telling = c.telling[:n]
	}
	if k.sum.Told > told {
		k.sum.Flushes++
		k.flushed.add(at, at)
	}
}

// tell lists what the agents are to be told of a coflow: what they were told the
// last time, and what moves now.
func (k *counter) tell(s *sim, c *coflow) {
	if c.told == nil {
		c.told, c.tell = make([]float64, len(c.flows)), make([]float64, len(c.flows))
	}
	add := func(p int32, rate float64) {
		if c.told[p] == 0 {
			c.telling = append(c.telling, p)
		}
		c.tell[p] = rate
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

// end is the count.
func (k *counter) end() Coordinator {
	k.sum.Intervals = k.busy.n
	k.sum.Silent = k.busy.n - k.heard.n
	k.sum.Unflushed = k.busy.n - k.flushed.n
	return k.sum
}
