package fidelity

import (
	"fmt"

	"testbed/results/verdict"
	"testbed/topo/units"
)

// Queue compares the drop-tail queue of one directed link with its plan, by what the queue did.
type Queue struct {
	Link  string
	Limit units.Bytes // as planned
	Frame units.Bytes // frame of MTU size
	// Longest is the largest sampled queue.
	Longest units.Bytes
	// Drops counts the intervals between two samples in which the queue dropped packets.
	Drops int `json:",omitempty"`
	// AtMost is an upper bound of the queue's real limit, 0 without Drops. A queue that drops a frame
	// has no room for it. By the next sample it has shrunk by what the link sent at most, so the
	// sampled queue, the bytes sent since the sample before, and one frame exceed the limit. AtMost is
	// the minimum over all intervals with drops.
	AtMost units.Bytes `json:",omitempty"`
}

func queue(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "queue", Level: verdict.Pass, Value: "no queue used",
		Pass: fmt.Sprintf("%g to %g of the planned limit", th.QueuePass.Lo, th.QueuePass.Hi), Void: fmt.Sprintf("< %g or > %g", th.QueueVoid.Lo, th.QueueVoid.Hi)}
	used, dropped, longest, shortest := 0, 0, 0.0, 0.0
	var skipped skips
	for _, q := range s.Queues {
		if q.Limit <= 0 || q.Longest == 0 && q.Drops == 0 || skipped.link(s, q.Link) {
			continue
		}
		used++
		most := float64(q.Longest) / float64(q.Limit)
		longest = max(longest, most)
		if level := grade(most <= th.QueuePass.Hi, most > th.QueueVoid.Hi); level > c.Level {
			c.Level = level
			c.Reason = fmt.Sprintf("the queue of %s held %v, %.2f of its planned limit of %v: it is longer than planned", q.Link, q.Longest, most, q.Limit)
		}
		if q.Drops == 0 {
			continue
		}
		dropped++
		bound := float64(q.AtMost) / float64(q.Limit)
		if dropped == 1 || bound < shortest {
			shortest = bound
		}
		if level := grade(bound >= th.QueuePass.Lo, bound < th.QueueVoid.Lo); level > c.Level {
			c.Level = level
			c.Reason = fmt.Sprintf("the queue of %s dropped packets although %v at most waited, %.2f of its planned limit of %v: it is shorter than planned", q.Link, q.AtMost, bound, q.Limit)
		}
	}
	if used > 0 {
		c.Value = fmt.Sprintf("%.2f of its limit at the longest of %d queues", longest, used)
	}
	if dropped > 0 {
		c.Value += fmt.Sprintf("; drops at %.2f or less in %d", shortest, dropped)
	}
	c.Value += skipped.String()
	return c
}
