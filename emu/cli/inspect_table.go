package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"testbed/emu/inspect"
	tables "testbed/results/table"
	"testbed/topo/units"
)

// drawSnapshot writes the highlights, then the links and the switches, so that a small
// terminal loses the end.
func drawSnapshot(w io.Writer, s inspect.Snapshot, style tables.Style) error {
	over := "over " + s.Interval.Round(time.Millisecond).String()
	if s.Total {
		over = "since it was built, " + s.Interval.Round(time.Second).String() + " ago"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Testbed %s at %s, %s\n", s.Testbed, s.At.Format("15:04:05"), over)
	for _, line := range highlights(s.Summary) {
		if err := style.Paragraph(&b, "", "  ", line); err != nil {
			return err
		}
	}
	groups := []struct {
		title string
		tables.Table
	}{
		{title: "Uplinks", Table: tables.Table{Head: linkHead, Columns: linkColumns}},
		{title: "Host links", Table: tables.Table{Head: linkHead, Columns: linkColumns}},
		{title: "Switches", Table: tables.Table{Head: []string{"switch", "in", "out", "backlog", "drops"}, Columns: []tables.Column{tables.Names()}}},
	}
	for _, l := range s.Links {
		g := &groups[1]
		if l.Uplink() {
			g = &groups[0]
		}
		g.Rows = append(g.Rows, linkRow(l))
	}
	for _, x := range s.Switches {
		groups[2].Rows = append(groups[2].Rows, []string{x.Name, units.Compact(float64(x.In), "bps"), units.Compact(float64(x.Out), "bps"), units.Compact(float64(x.Backlog), "B"), dropped(x.DroppedAll, x.Dropped)})
	}
	for _, g := range groups {
		if len(g.Rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", g.title)
		if err := drawTable(&b, g.Table, style); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mostNamed is the maximum number of links that a highlight names.
const mostNamed = 6

// highlights returns the summary in words, one line each.
func highlights(s inspect.Summary) []string {
	busiest := "no link sent anything"
	if s.Busiest != "" {
		busiest = fmt.Sprintf("busiest %s at %s", s.Busiest, units.Percent(s.Utilisation, 1))
	}
	lines := []string{fmt.Sprintf("%d links, %s; drops %s", s.Links, busiest, dropped(s.DroppedAll, s.Dropped))}
	cv := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%.2f", *v)
	}
	if s.CvUp != nil || s.CvDown != nil {
		lines = append(lines, fmt.Sprintf("Cv of the utilisation of uplinks: %s to the spines, %s from them", cv(s.CvUp), cv(s.CvDown)))
	}
	for _, n := range []struct {
		what  string
		links []string
	}{
		{"down (restore them: testbed fault link-up LINK)", s.Down},
		{"not at the plan's rate (restore it: testbed fault link-rate LINK RATE)", s.OffPlan},
		{"with counters that were reset, so figures are too low", s.Reset},
	} {
		if len(n.links) > 0 {
			names := n.links[:min(mostNamed, len(n.links))]
			line := fmt.Sprintf("%d %s: %s", len(n.links), n.what, strings.Join(names, " "))
			if more := len(n.links) - len(names); more > 0 {
				line += fmt.Sprintf(" and %d more", more)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

var (
	linkHead    = []string{"link", "rate", "util", "pkt/s", "backlog", "drops", "limit", "state"}
	linkColumns = []tables.Column{tables.Names(), {}, {}, {Drop: 2}, {}, {}, {Drop: 1}, {}}
)

func linkRow(l inspect.Link) []string {
	rate, util := units.Compact(float64(l.Rate), "bps"), units.Percent(l.Utilisation, 1)
	if !l.Shaped {
		rate, util = "none", "–"
	}
	if l.OffPlan() {
		rate += " (plan " + units.Compact(float64(l.Plan), "bps") + ")"
	}
	backlog := units.Compact(float64(l.Backlog), "B")
	if l.Wait > 0 {
		backlog += " " + shortTime(l.Wait)
	}
	state := "up"
	if !l.Up {
		state = "down"
	}
	if l.Reset {
		util += "*"
	}
	return []string{l.Name, rate, util, units.Compact(l.PacketRate, ""), backlog, dropped(l.DroppedAll, l.Dropped), units.Compact(float64(l.Limit), "B"), state}
}

// dropped returns a total and the increment in the interval, if any.
func dropped(all, now uint64) string {
	s := units.Compact(float64(all), "")
	if now > 0 {
		s += " +" + units.Compact(float64(now), "")
	}
	return s
}

func shortTime(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e3, 'f', 0, 64) + "µs"
	case d < 100*time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) + "ms"
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 0, 64) + "ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + "s"
}
