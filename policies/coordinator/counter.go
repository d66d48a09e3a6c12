package coordinator

import (
	"cmp"
	"slices"
	"time"

	"testbed/topo"
)

// Messages counts the messages that a coordinator sends and receives, by intervals: the load that
// the scalability table of Philae (ATC 2019, arXiv 2108.11255) reports. An agent is a host that
// sends; each reports its own flows. An interval includes its beginning and excludes its end.
type Messages struct {
	Interval time.Duration `json:"interval_ns"` // 0: none
	// Intervals is the number of intervals with an unfinished coflow. The other counts
	// cover these.
	Intervals int64 `json:"intervals"`
	// Updates is the sum over the intervals of the agents that report in them. An agent
	// reports in an interval if one of its flows ends in it. If the scheduler uses the
	// bytes that coflows have sent (Coordinator.Reports), an agent also reports if it has an
	// unfinished flow. Without intervals, an agent reports the end of every flow.
	Updates int64 `json:"updates"`
	// Silent is the number of intervals in which no agent reports.
	Silent int64 `json:"silent"`
	// Flushes is the number of decisions that change the rate of an unfinished flow,
	// including those that start, pause or release one. hosts_told is the sum over these
	// decisions of the agents with such a flow. The end of a flow is no change. A flow without a rate
	// cap has one rate, none, regardless of its share of the network.
	Flushes int64 `json:"flushes"`
	Told    int64 `json:"hosts_told"`
	// Unflushed is the number of intervals without such a decision.
	Unflushed int64 `json:"unflushed"`
}

// Counter computes Messages. Times are since the start of the run and must not decrease, except
// those of ends between two calls of Settle.
type Counter struct {
	sum      Messages
	left     []int         // unfinished flows, by sending host
	reported []int64       // the last interval in which the host's report is counted
	from     []int64       // for a host with unfinished flows: the interval since which it reports regularly
	hosts    int           // with unfinished flows
	regular  bool          // agents with unfinished flows report in every interval
	begun    time.Duration // time since which hosts is above 0
	waiting  int64         // the interval since which hosts is above 0 and reports are regular
	ends     []flowEnd

	busy, heard, flushed union
	multiples            int64

	notified  []int64       // by host: the last decision that changed something
	decisions int64         // including the current decision
	decided   time.Duration // time of the current decision
	flush     int64         // the last decision with a message
}

// union counts the members of intervals, given in order of their ends.
type union struct{ last, n int64 }

func (u *union) add(from, to int64) {
	if from = max(from, u.last+1); from <= to {
		u.n += to - from + 1
		u.last = to
	}
}

type flowEnd struct {
	host     topo.HostID
	at       time.Duration
	reported bool
}

// NewCounter returns a counter for a number of hosts. Interval 0 is no intervals.
func NewCounter(interval time.Duration, hosts int) *Counter {
	k := &Counter{sum: Messages{Interval: interval}, left: make([]int, hosts), reported: make([]int64, hosts), from: make([]int64, hosts), notified: make([]int64, hosts)}
	for h := range hosts {
		k.reported[h] = -1
	}
	k.busy.last, k.heard.last, k.flushed.last = -1, -1, -1
	return k
}

// interval returns the number of the interval that contains a time.
func (k *Counter) interval(at time.Duration) int64 {
	if k.sum.Interval == 0 {
		return 0
	}
	return int64(at / k.sum.Interval)
}

// before returns the number of multiples of the interval before a time.
func (k *Counter) before(at time.Duration) int64 {
	if at == 0 || k.sum.Interval == 0 {
		return 0
	}
	return k.interval(at-1) + 1
}

// Arrived counts a flow that a host will send.
func (k *Counter) Arrived(host topo.HostID, at time.Duration) {
	now := k.interval(at)
	if k.left[host]++; k.left[host] == 1 {
		k.from[host] = now
		if k.hosts++; k.hosts == 1 {
			k.begun, k.waiting = at, now
		}
	}
}

// Ended records the end of a flow; Settle counts the recorded ends. Without intervals or regular
// reports, the host reports the end only if reported is set.
func (k *Counter) Ended(host topo.HostID, at time.Duration, reported bool) {
	k.ends = append(k.ends, flowEnd{host, at, reported})
}

// Settle counts the recorded ends. It must be called before a later arrival or decision.
func (k *Counter) Settle() {
	slices.SortStableFunc(k.ends, func(a, b flowEnd) int { return cmp.Compare(a.at, b.at) })
	for _, e := range k.ends {
		now := k.interval(e.at)
		k.left[e.host]--
		switch {
		case k.sum.Interval == 0:
			if e.reported {
				k.sum.Updates++
			}
		case !k.regular && e.reported:
			k.heard.add(now, now)
			if k.reported[e.host] < now {
				k.reported[e.host] = now
				k.sum.Updates++
			}
		}
		if k.left[e.host] > 0 {
			continue
		}
		if n := k.regularly(e.host, now); n > 0 {
			k.sum.Updates += n
			k.reported[e.host] = now
		}
		if k.hosts--; k.hosts == 0 {
			k.busy.add(k.interval(k.begun), now)
			k.multiples += k.before(e.at) - k.before(k.begun)
			if k.regular {
				k.heard.add(k.waiting, now)
			}
		}
	}
	k.ends = k.ends[:0]
}

// regularly returns the number of a host's regular reports up to an interval that are not counted.
func (k *Counter) regularly(h topo.HostID, to int64) int64 {
	if !k.regular {
		return 0
	}
	return max(0, to-max(k.from[h], k.reported[h]+1)+1)
}

// Decided counts a decision. Agents report regularly from then on if reports is set: from the
// arrival of their flows on if the decision is the first, before which no flow sends.
func (k *Counter) Decided(at time.Duration, reports bool) {
	k.decisions++
	k.decided = at
	if reports != k.regular && k.sum.Interval > 0 {
		now := k.interval(at)
		if k.decisions > 1 {
			for h := range k.from {
				k.from[h] = now
			}
			k.waiting = now
		}
		k.regular = reports
	}
}

// Notify counts the message of the newest decision to a host, unless it is counted.
func (k *Counter) Notify(host topo.HostID) {
	if k.notified[host] == k.decisions {
		return
	}
	k.notified[host] = k.decisions
	k.sum.Told++
	if now := k.interval(k.decided); k.flush != k.decisions {
		k.flush = k.decisions
		k.sum.Flushes++
		k.flushed.add(now, now)
	}
}

// Decisions returns the number of decisions.
func (k *Counter) Decisions() int64 { return k.decisions }

// Multiples returns the number of multiples of the interval up to now at which a flow was
// unfinished.
func (k *Counter) Multiples(now time.Duration) int64 {
	n := k.multiples
	if k.hosts > 0 {
		n += k.before(now+1) - k.before(k.begun)
	}
	return n
}

// Messages returns the counts up to now.
func (k *Counter) Messages(now time.Duration) Messages {
	sum, busy, heard := k.sum, k.busy, k.heard
	if sum.Interval == 0 {
		return sum
	}
	if k.hosts > 0 {
		to := k.interval(now)
		busy.add(k.interval(k.begun), to)
		if k.regular {
			heard.add(k.waiting, to)
		}
		for h, left := range k.left {
			if left > 0 {
				sum.Updates += k.regularly(topo.HostID(h), to)
			}
		}
	}
	sum.Intervals, sum.Silent, sum.Unflushed = busy.n, busy.n-heard.n, busy.n-k.flushed.n
	return sum
}
