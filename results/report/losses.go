package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Sources of counts of dropped packets.
const (
	DropsKernel   = "kernel"   // counted by the queues of links, for packets of all kinds
	DropsCaptures = "captures" // estimated, for packets with payload (flows.LinkSeries.Drops)
)

// LossSummary is the dropped and retransmitted packets in all repeats of an arm.
type LossSummary struct {
	Source  string      `json:"source"`          // DropsKernel, or DropsCaptures if any repeat has an estimate
	Dropped int         `json:"dropped_packets"` // by queues of all links
	Links   []LinkDrops `json:"links"`           // links with drops, most drops first
	Resent  int         `json:"resent_packets"`  // with payload, by the senders of all transfers
}

// LinkDrops is the number of packets that the queue ahead of one directed link dropped.
type LinkDrops struct {
	Link    string `json:"link"`
	Dropped int    `json:"dropped_packets"`
}

// losses returns the losses of an arm; nil if the load of links is unknown.
func (a Arm) losses() *LossSummary {
	out := &LossSummary{Source: DropsKernel, Links: []LinkDrops{}}
	at := map[string]int{}
	known := false
	for _, rep := range a.Repeats {
		out.Resent += rep.Resent
		for _, l := range rep.Links {
			known = true
			if !l.Counted {
				out.Source = DropsCaptures
			}
			out.Dropped += l.Drops
			at[l.Name] += l.Drops
		}
	}
	if !known {
		return nil
	}
	for name, n := range at {
		if n > 0 {
			out.Links = append(out.Links, LinkDrops{name, n})
		}
	}
	slices.SortFunc(out.Links, func(x, y LinkDrops) int {
		return cmp.Or(cmp.Compare(y.Dropped, x.Dropped), cmp.Compare(x.Link, y.Link))
	})
	return out
}

// dropsOf returns the source of a link's count.
func dropsOf(counted bool) string {
	if counted {
		return DropsKernel
	}
	return DropsCaptures
}

// dropsCell returns a count as tables print it.
func dropsCell(n int, counted bool) string {
	if counted {
		return strconv.Itoa(n)
	}
	return estimated + strconv.Itoa(n)
}

// estimated marks figures that are estimates.
const estimated = "≈"

// mostDropping is the number of links in a line of losses.
const mostDropping = 3

// lossLines returns a line for each arm that lost or retransmitted packets.
func (r *Report) lossLines() (lines []string) {
	for _, a := range r.Summary.Arms {
		l := a.Losses
		if l == nil || l.Dropped+l.Resent == 0 {
			continue
		}
		what, where := "packets dropped in queues", ""
		if l.Source == DropsCaptures {
			what = "payload packets lost after the hosts' own queues, estimated from captures"
		}
		for i, x := range l.Links {
			if i == mostDropping {
				where += ", …"
				break
			}
			if i > 0 {
				where += ", "
			}
			where += x.Link + " " + grouped(x.Dropped)
		}
		if where != "" {
			where = " (" + where + ")"
		}
		lines = append(lines, fmt.Sprintf("losses: %s: %s %s%s, %s retransmitted", a.Name, grouped(l.Dropped), what, where, grouped(l.Resent)))
	}
	return lines
}

// grouped returns a count with its digits in groups of three, such as 1,234.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
