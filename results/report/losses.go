package report

import (
	"fmt"
	"strconv"

	"testbed/results/summary"
)

// dropsOf returns the source of a link's count.
func dropsOf(counted bool) string {
	if counted {
		return summary.DropsKernel
	}
	return summary.DropsCaptures
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
		if l.Source == summary.DropsCaptures {
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
