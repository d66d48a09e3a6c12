package fidelity

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/verdict"
)

// TCP is what TCP did in the transfers between hosts, by their packets and by what the kernel reported of their connections.
type TCP struct {
	// Packets are those with payload. Resent carried bytes that were sent before, and Repeated bytes that the
	// receiver's interface had received before. Dropped are all packets that full queues dropped, and Duplicates
	// those that reached a receiver's TCP when it had their bytes.
	Packets, Resent, Repeated, Dropped, Duplicates int
	// Shortest is the transfer with the most packets for its bytes.
	Shortest Segmented
	// Nearest are the least round-trip times of transfers over each switch.
	Nearest []Nearest
	// Limits are how long receivers' windows and send buffers kept back data of each service.
	Limits []Limit
}

// Segmented is a transfer of at least LeastSegments full segments, with the packets that carried bytes for the first time and
// those that its bytes need.
type Segmented struct {
	From, To        string
	Packets, Needed int
}

// LeastSegments is the size of transfers whose packets are counted.
const LeastSegments = 50

func (s Segmented) ratio() float64 { return float64(s.Packets) / float64(max(s.Needed, 1)) }

// Note counts a transfer.
func (t *TCP) Note(s Segmented) {
	if s.Needed >= LeastSegments && s.ratio() > t.Shortest.ratio() {
		t.Shortest = s
	}
}

// Nearest is the least excess of a round-trip time over its plan, from payload to acknowledgement, among transfers over a switch.
type Nearest struct {
	Node      string
	Excess    time.Duration
	Transfers int
}

// Limit sums up the connections to a service of a host: the time in which they had data to send, and for how long of it the
// host's window or the send buffer kept data back.
type Limit struct {
	Service, Host        string
	Connections          int
	Busy, Window, Buffer time.Duration
}

// Minima of measurements that are judged.
const (
	minResent  = 20                     // packets
	minNearest = 5                      // transfers over a switch
	minLimited = 200 * time.Millisecond // of the connections to a service of a host
)

// retransmission judges whether full queues explain what was sent again. What is received twice has the nearer cause. TCP
// itself sends the end of a burst again if no acknowledgement comes within two round trips (RFC 8985, section 7), as
// behind a queue that has just filled: the receiver then has the bytes, and counts them.
func retransmission(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "retransmission", Level: verdict.Pass, Value: "no packets",
		Pass: fmt.Sprintf("≤ %d packets, or %g %% of the packets that queues dropped, more than these; ≤ %d or %g %% of all received twice", minResent, 100*th.ResentPass, minResent, 100*th.RepeatedPass),
		Void: fmt.Sprintf("more, by > %g %% of all packets", 100*th.ResentVoid)}
	t := s.TCP
	if t.Packets == 0 {
		return c
	}
	c.Value = fmt.Sprintf("%d packets of %d sent again, %d dropped by queues, %d received twice, and %d by TCP", t.Resent, t.Packets, t.Dropped, t.Repeated, t.Duplicates)
	if len(s.Lossy) > 0 {
		c.Value += "; not judged: links were cut by faults"
		return c
	}
	of := float64(t.Packets)
	judge := func(n int, pass float64, reason string) {
		if level := grade(n <= minResent || float64(n) <= pass, float64(n) > th.ResentVoid*of); level > c.Level {
			c.Level, c.Reason = level, reason
		}
	}
	judge(t.Repeated-t.Duplicates, th.RepeatedPass*of,
		fmt.Sprintf("%d of %d packets reached a host that had received them before, and its TCP had not: hosts lose packets after they arrive, as by a filter of a socket or of a cgroup", t.Repeated-t.Duplicates, t.Packets))
	judge(t.Resent-t.Duplicates-t.Dropped, th.ResentPass*float64(t.Dropped),
		fmt.Sprintf("%d packets were sent again that TCP had not received, and queues dropped %d: something else loses packets", t.Resent-t.Duplicates, t.Dropped))
	return c
}

// segments judges whether transfers were cut into full segments.
func segments(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "segments", Level: verdict.Pass, Value: "no transfer long enough",
		Pass: fmt.Sprintf("≤ %.2f packets for each full segment of a transfer", th.SegmentsPass), Void: fmt.Sprintf("> %.2f", th.SegmentsVoid)}
	at := s.TCP.Shortest
	if at.Needed == 0 {
		return c
	}
	c.Level = grade(at.ratio() <= th.SegmentsPass, at.ratio() > th.SegmentsVoid)
	c.Value = fmt.Sprintf("%.3f at worst", at.ratio())
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("a transfer from %s to %s took %d packets, and %d full segments hold its bytes: segments are shorter than the MTU allows", at.From, at.To, at.Packets, at.Needed)
	}
	return c
}

// flowControl judges for how long anything but the network kept back data.
func flowControl(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "flow-control", Level: verdict.Pass, Value: "no connection busy",
		Pass: fmt.Sprintf("≤ %g %% of the time with data to send", 100*th.LimitedPass), Void: fmt.Sprintf("> %g %%", 100*th.LimitedVoid)}
	worst, judged, skipped := -1.0, 0, skips{}
	for _, l := range s.TCP.Limits {
		if l.Busy < minLimited || skipped.disk(s, Disk{Host: l.Host}) {
			continue
		}
		judged += l.Connections
		share, what := float64(l.Window)/float64(l.Busy), "the receive windows of "+l.Host
		if l.Buffer > l.Window {
			share, what = float64(l.Buffer)/float64(l.Busy), "the send buffers of connections to "+l.Host
		}
		if share > worst {
			worst = share
			c.Level = grade(share <= th.LimitedPass, share > th.LimitedVoid)
			c.Reason = fmt.Sprintf("%s kept back data of %s for %.2g %% of the time: a host reads slower than the scenario states, or something made windows or buffers smaller",
				what, l.Service, 100*share)
		}
	}
	if worst >= 0 {
		c.Value = fmt.Sprintf("%.2g %% at worst of %d connections", 100*worst, judged)
	}
	c.Value += skipped.String()
	if c.Level == verdict.Pass {
		c.Reason = ""
	}
	return c
}

// nearest returns the least round trips over switches with enough transfers, the longest first.
func (t TCP) nearest() []Nearest {
	return slices.SortedFunc(func(yield func(Nearest) bool) {
		for _, n := range t.Nearest {
			if n.Transfers >= minNearest && !yield(n) {
				return
			}
		}
	}, func(a, b Nearest) int { return cmp.Or(cmp.Compare(b.Excess, a.Excess), cmp.Compare(a.Node, b.Node)) })
}

// Plausibility compares what a repeat took on average with the fluid model.
type Plausibility struct {
	What      string // such as "CCT"
	N         int    // number of items that both have
	Ratio     float64
	Explained float64 // the ratio that set-up, retransmission, latency and resent packets explain, at least 1
	Cause     string  `json:",omitempty"` // the likeliest one of the rest
}

func (p Plausibility) unexplained() float64 { return p.Ratio / max(p.Explained, 1) }

// fluidModel judges whether transport explains what transfers took.
func fluidModel(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "fluid-model", Level: verdict.Pass, Value: "nothing compared",
		Pass: fmt.Sprintf("average ≤ %g times what transport explains", th.FluidPass), Void: fmt.Sprintf("> %g times", th.FluidVoid)}
	var worst Plausibility
	for _, p := range s.Plausibility {
		if worst.N == 0 || p.unexplained() > worst.unexplained() {
			worst = p
		}
	}
	if worst.N == 0 {
		return c
	}
	by := worst.unexplained()
	c.Level = grade(by <= th.FluidPass, by > th.FluidVoid)
	c.Value = fmt.Sprintf("%s %.3g times the fluid model's, %.3g explained", worst.What, worst.Ratio, max(worst.Explained, 1))
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("the average %s is %.3g times that of the fluid model, and set-up, retransmission and latency explain %.3g times", worst.What, worst.Ratio, max(worst.Explained, 1))
		if worst.Cause != "" {
			c.Reason += "; " + worst.Cause
		}
	}
	return c
}
