package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"testbed/emu/inspect"
)

// inspectWidth is the columns of a terminal that the tables of inspect fit in.
const inspectWidth = 100

// drawSnapshot writes what stands out, the switches and the links, in that
// order, so that the end is what a small terminal loses.
func drawSnapshot(w io.Writer, s snapshot) error {
	over := "over " + s.Interval.Round(time.Millisecond).String()
	if s.Total {
		over = "since it was built, " + s.Interval.Round(time.Second).String() + " ago"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Testbed %s at %s, %s\n", s.Testbed, s.At.Format("15:04:05"), over)
	for _, line := range highlights(s.Summary) {
		b.WriteString(clipRunes(line, inspectWidth) + "\n")
	}
	groups := []struct {
		title string
		head  []string
		rows  [][]string
	}{
		{title: "Uplinks", head: linkHead},
		{title: "Host links", head: linkHead},
		{title: "Switches", head: []string{"switch", "in", "out", "backlog", "drops"}},
	}
	for _, l := range s.Links {
		g := &groups[1]
		if l.Uplink() {
			g = &groups[0]
		}
		g.rows = append(g.rows, linkRow(l))
	}
	for _, x := range s.Switches {
		groups[2].rows = append(groups[2].rows, []string{x.Name, short(float64(x.In), "bps"), short(float64(x.Out), "bps"), short(float64(x.Backlog), "B"), dropped(x.DroppedAll, x.Dropped)})
	}
	for _, g := range groups {
		if len(g.rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", g.title)
		if err := drawColumns(&b, g.head, g.rows); err != nil {
			return err
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ") // cells are padded, also the last
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

// highlights is the summary in words, a line each.
func highlights(s inspect.Summary) []string {
	busiest := "no link sent anything"
	if s.Busiest != "" {
		busiest = fmt.Sprintf("busiest %s at %s", s.Busiest, percent(s.Utilisation))
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
	}{{"down", s.Down}, {"not at the plan's rate", s.OffPlan}, {"counters began anew, so figures are too low", s.Reset}} {
		if len(n.links) > 0 {
			lines = append(lines, fmt.Sprintf("%d %s: %s", len(n.links), n.what, strings.Join(n.links, " ")))
		}
	}
	return lines
}

var linkHead = []string{"link", "rate", "util", "pkt/s", "backlog", "drops", "limit", "state"}

func linkRow(l inspect.Link) []string {
	rate, util := short(float64(l.Rate), "bps"), percent(l.Utilisation)
	if !l.Shaped {
		rate, util = "none", "–"
	}
	if l.OffPlan() {
		rate += " (plan " + short(float64(l.Plan), "bps") + ")"
	}
	backlog := short(float64(l.Backlog), "B")
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
	return []string{l.Name, rate, util, short(l.PacketRate, ""), backlog, dropped(l.DroppedAll, l.Dropped), short(float64(l.Limit), "B"), state}
}

// dropped is a total and, where there is any, what came to it in the interval.
func dropped(all, now uint64) string {
	s := short(float64(all), "")
	if now > 0 {
		s += " +" + short(float64(now), "")
	}
	return s
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + "%" }

// short is a number in three digits with the prefix it needs, for columns of a
// known width: "8.33M".
func short(x float64, unit string) string {
	prefix := ""
	for _, p := range []string{"K", "M", "G", "T"} {
		if x < 999.5 {
			break
		}
		x, prefix = x/1000, p
	}
	digits := 0
	switch {
	case x < 9.995 && prefix != "":
		digits = 2
	case x < 99.95 && prefix != "":
		digits = 1
	}
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s + prefix + unit
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

// drawColumns draws a table without lines, names to the left and figures to the
// right.
func drawColumns(w io.Writer, head []string, rows [][]string) error {
	align := make([]tw.Align, len(head))
	for i := range align {
		align[i] = tw.AlignRight
	}
	align[0] = tw.AlignLeft
	cells := tw.CellAlignment{PerColumn: align}
	t := tablewriter.NewTable(w,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off, ShowHeader: tw.Off},
				Lines:      tw.LinesNone,
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(cells),
		tablewriter.WithRowAlignmentConfig(cells),
		tablewriter.WithPadding(tw.Padding{Left: "", Right: "  ", Overwrite: true}),
	)
	t.Header(head)
	if err := t.Bulk(rows); err != nil {
		return err
	}
	return t.Render()
}

func clipRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
