package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	tables "testbed/results/table"
	"testbed/topo/units"
	"testbed/workloads"
)

func (a *app) traceInfoCmd() *cobra.Command {
	var in traceInput
	var perMB time.Duration
	var width widthFlag
	cmd := &cobra.Command{
		Use: "info FILE", Short: "Describe a trace: sizes, widths, arrivals, ports, bins",
		Long: `Info prints the number of coflows and flows of a trace, the distribution of bytes over
coflows and ports, quantiles, and the four bins of published evaluations. Quantiles are
interpolated linearly between the two nearest ranks. The lower bound of a coflow is the
time that its busiest port needs for it alone, at --per-mb. FILE may be -, standard input.`,
		Example: `  testbed trace info FB2010-1Hr-150-0.txt
  testbed trace info FB2010-1Hr-150-0.txt --json | jq '.bins'
  testbed trace convert matrix.cm -o - --to flows | testbed trace info -`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if perMB <= 0 {
				return usageError{fmt.Errorf("--per-mb %v: must be above 0, such as %v", perMB, workloads.DefaultPerMB)}
			}
			if err := width.check(); err != nil {
				return err
			}
			t, format, remarks, err := a.readTrace(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			out := struct {
				Format  workloads.TraceFormat `json:"format"`
				Remarks []string              `json:"remarks,omitempty"`
				workloads.TraceStats
			}{format, remarks, t.Stats(perMB)}
			return a.print(out, func(w io.Writer) error {
				for _, r := range remarks {
					if _, err := fmt.Fprintf(a.stderr, "%s: %s\n", t.Name, r); err != nil {
						return err
					}
				}
				return drawStats(w, format, out.TraceStats, width.style(a))
			})
		},
	}
	in.add(cmd)
	addPerMB(cmd, &perMB, "for lower bounds and the busiest ports")
	width.add(cmd)
	return cmd
}

func drawStats(w io.Writer, format workloads.TraceFormat, s workloads.TraceStats, style tables.Style) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	unused := ""
	if n := len(s.UnusedPorts); n > 0 {
		unused = fmt.Sprintf(" (not %s", joinInts(s.UnusedPorts[:min(n, 8)]))
		if n > 8 {
			unused += fmt.Sprintf(" and %d more", n-8)
		}
		unused += ")"
	}
	line("trace", "%s, format %s", s.Trace, format)
	line("coflows", "%s of %s flows", grouped(float64(s.Coflows)), grouped(float64(s.Flows)))
	line("ports", "%s, used %s%s", grouped(float64(s.Ports)), grouped(float64(s.PortsUsed)), unused)
	both := fmt.Sprintf("%s bytes (%s)", grouped(float64(s.BytesAtMB)), units.Short(float64(s.BytesAtMB), "B"))
	if s.BytesAtMiB != nil {
		both = fmt.Sprintf("%s with a MB of 10⁶ bytes, %s with one of 2²⁰", prefixed(float64(s.BytesAtMB), 1000, "B"), prefixed(float64(*s.BytesAtMiB), 1024, "iB"))
	}
	line("size", "%s MB: %s; mean %s MB a coflow", grouped(s.Size), both, grouped(s.MeanSize))
	line("arrivals", "%s to %s ms", grouped(s.First), grouped(s.Last))
	if g := s.Gaps; g != nil {
		line("gaps", "min %s, P50 %s, mean %s, max %s ms", grouped(g.Min), grouped(g.P50), grouped(g.Mean), grouped(g.Max))
	}
	for _, p := range []struct {
		name string
		workloads.PortStat
	}{{"ports send", s.Send}, {"ports receive", s.Receive}} {
		line(p.name, "mean %s MB, max %s MB: port %d, %s at %v a MB", grouped(p.Mean), grouped(p.Max), p.Port, secondsOf(p.Time), s.PerMB)
	}
	for _, c := range []struct {
		name string
		workloads.CoflowStat
	}{{"largest", s.Largest}, {"widest", s.Widest}} {
		line(c.name, "coflow %d: %s MB (%s of bytes), %d × %d ports, %s flows, arrives at %s ms",
			c.ID, grouped(c.Size), shareOf(c.Share), c.Mappers, c.Reducers, grouped(float64(c.Flows)), grouped(c.Arrival))
	}
	for _, t := range s.Top[min(1, len(s.Top)):] {
		line(fmt.Sprintf("largest %d", t.Coflows), "%s of bytes", shareOf(t.Share))
	}
	line("thin", "%d coflows of one flow, %d of at most %d", s.SingleFlow, s.Thin, workloads.ThinCoflow)
	line("one port", "%d coflows of one mapper, %d of one reducer", s.OneMapper, s.OneReducer)
	line("equal flows", "%d coflows; %d in which a reducer fetches unevenly", s.EqualFlows, s.Uneven)
	line("local flows", "%s in %d coflows, %s MB (%s): from a port to itself", grouped(float64(s.Local.Flows)), s.Local.Coflows, grouped(s.Local.Size), shareOf(s.Local.Share))
	b.WriteByte('\n')
	if _, err := io.WriteString(w, style.Text(b.String())); err != nil {
		return err
	}
	if err := drawQuantiles(w, "per coflow", s.Quantiles, style); err != nil {
		return err
	}
	bins := tables.Table{Head: []string{"bin", "coflows", "of coflows", "MB", "of bytes"}, Columns: []tables.Column{{Left: true}}}
	for _, r := range s.Bins {
		bins.Rows = append(bins.Rows, []string{r.Bin, grouped(float64(r.Coflows)), shareOf(r.CoflowShare), grouped(r.Size), shareOf(r.Share)})
	}
	return drawTable(w, bins, style)
}

func joinInts(list []int) string {
	var words []string
	for _, x := range list {
		words = append(words, strconv.Itoa(x))
	}
	return strings.Join(words, ", ")
}

// shareOf prints a share: with one decimal, and three below 1 %.
func shareOf(x float64) string {
	if x > 0 && x < 0.01 {
		return units.Percent(x, 3)
	}
	return units.Percent(x, 1)
}

// grouped prints a number with its thousands apart: a whole one as it is, else with
// one decimal from 10 on, three below, and more below 0.01.
func grouped(x float64) string {
	decimals := 0
	switch {
	case x == math.Trunc(x):
	case x >= 10:
		decimals = 1
	case math.Abs(x) >= 0.01:
		decimals = 3
	default: // two digits
		decimals = 1 - int(math.Floor(math.Log10(math.Abs(x))))
	}
	whole, frac, dotted := strings.Cut(strconv.FormatFloat(x, 'f', decimals, 64), ".")
	var b strings.Builder
	for i, r := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	if dotted {
		b.WriteString("." + frac)
	}
	return b.String()
}

// prefixed formats an amount of bytes in the largest unit up to T in which it is at least 0.01.
func prefixed(x, base float64, unit string) string {
	const prefixes = "KMGT"
	n := math.Pow(base, float64(len(prefixes)))
	for i := len(prefixes) - 1; i >= 0; i-- {
		if x >= 0.01*n && (i == len(prefixes)-1 || x >= n) {
			return fmt.Sprintf("%.2f %c%s", x/n, prefixes[i], unit)
		}
		n /= base
	}
	return grouped(x) + " bytes"
}

// secondsOf formats a time in ms: in whole seconds from 10 s on.
func secondsOf(ms float64) string {
	if ms < 10_000 {
		return strconv.FormatFloat(ms, 'g', 4, 64) + " ms"
	}
	return grouped(math.Round(ms/1000)) + " s"
}

// drawQuantiles draws a row for each quantity. head is what they are of, as in "per coflow".
func drawQuantiles(w io.Writer, head string, stats []workloads.QuantileStat, style tables.Style) error {
	q := tables.Table{Head: []string{head, "min", "P10", "P25", "P50", "P75", "P90", "P95", "P99", "max", "mean"},
		Columns: []tables.Column{{Left: true}, {}, {Drop: 2}, {Drop: 1}, {}, {Drop: 3}, {}, {}, {}, {}, {}}}
	for _, r := range stats {
		name := r.Name
		if r.Unit != "" {
			name += ", " + r.Unit
		}
		row := []string{name}
		for _, x := range []float64{r.Min, r.P10, r.P25, r.P50, r.P75, r.P90, r.P95, r.P99, r.Max, r.Mean} {
			row = append(row, grouped(x))
		}
		q.Rows = append(q.Rows, row)
	}
	return drawTable(w, q, style)
}
