package report

import (
	"bytes"
	"fmt"
	"strings"

	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/results/verdict"
)

// Scaled is the report of the same arms on the same workload with all rates and sizes
// divided by a factor, and all times unchanged.
type Scaled struct {
	By     string // the factor, such as "2"
	Report *Report
}

// checkScale compares the speed-ups of both halves. The check is inconclusive if an arm of
// either half is void or if there are too few items.
func (in Input) checkScale() *summary.ScaleCheck {
	half := in.Scaled.Report
	c := &summary.ScaleCheck{By: in.Scaled.By, RunID: half.in.RunID, Outcome: summary.ScaleInvariant, Reasons: []string{}, Compared: []summary.ScaleMove{}}
	if !in.FluidModel {
		worst := verdict.Pass
		for _, a := range half.in.Arms {
			worst = max(worst, a.level())
		}
		c.Level = &worst
		for _, side := range []struct {
			where string
			arms  []Arm
		}{{"at full scale", in.Arms}, {"scaled", half.in.Arms}} {
			for _, a := range side.arms {
				if a.level() == verdict.Void {
					c.Reasons = append(c.Reasons, fmt.Sprintf("%s is void %s", a.Name, side.where))
				}
			}
		}
	}
	for i := range in.Arms {
		if len(half.in.Arms) != len(in.Arms) || half.in.Arms[i].Name != in.Arms[i].Name {
			c.Reasons = append(c.Reasons, "the halves have different arms")
			break
		}
	}
	if len(in.Arms) < 2 {
		c.Reasons = append(c.Reasons, "there is only one arm, so there is no speed-up")
	}
	if len(c.Reasons) > 0 {
		c.Outcome = summary.ScaleUnknown
		return c
	}
	for k, m := range allMetrics() {
		name := map[int]string{0: "cct", 2: "write_time"}[k]
		if name == "" {
			continue // flow times follow those of their coflows
		}
		for i := 1; i < len(in.Arms); i++ {
			compareScale(c, in.Arms[i].Name, name, metrics.CompareScale(in.Arms[0].alone(m), in.Arms[i].alone(m), half.in.Arms[0].alone(m), half.in.Arms[i].alone(m), in.Seed+uint64(k), in.Noise.Of(name)))
		}
	}
	concludeScale(c)
	return c
}

func compareScale(c *summary.ScaleCheck, arm, metric string, s metrics.Scale) {
	if s.N == 0 {
		return
	}
	estimate := func(e metrics.Estimate) metrics.Estimate {
		return metrics.Estimate{Value: metrics.Round6(e.Value), CI: e.CI.Round6()}
	}
	for _, x := range []struct {
		name string
		metrics.Moved
	}{{"average", s.Average}, {"paired", s.Paired}} {
		m := summary.ScaleMove{Arm: arm, Metric: metric, Speedup: x.name, Pairs: s.N, Full: estimate(x.Full), Scaled: estimate(x.Scaled), Ratio: estimate(x.Ratio)}
		switch {
		case s.Clusters < metrics.LeastPairs:
			m.Outcome = summary.ScaleUnknown
		case x.Within():
			m.Outcome = summary.ScaleInvariant
		default:
			m.Outcome = summary.NotScaleInvariant
		}
		c.Compared = append(c.Compared, m)
	}
}

// conclude sets the outcome of all comparisons: a single significant change decides it;
// otherwise one comparison with too few pairs makes the check inconclusive.
func concludeScale(c *summary.ScaleCheck) {
	if len(c.Compared) == 0 {
		c.Outcome, c.Reasons = summary.ScaleUnknown, append(c.Reasons, "the halves have no coflow or block in common")
		return
	}
	few := false
	for _, m := range c.Compared {
		if m.Outcome == summary.NotScaleInvariant {
			c.Outcome = summary.NotScaleInvariant
			return
		}
		few = few || m.Outcome == summary.ScaleUnknown
	}
	if few {
		c.Outcome = summary.ScaleUnknown
		c.Reasons = append(c.Reasons, fmt.Sprintf("a comparison has %s (use more coflows or blocks)", metrics.FewPairs))
	}
}

// sentence returns the outcome in one line.
func scaleSentence(c *summary.ScaleCheck) string {
	s := fmt.Sprintf("Scale check with rates and sizes divided by %s: %s", c.By, c.Outcome)
	if len(c.Reasons) > 0 {
		s += ": " + strings.Join(c.Reasons, "; ")
	}
	return s + "."
}

// scaleNote explains the table to its readers.
const scaleNote = "Ratio: the speed-up at reduced scale over the speed-up at full scale, item by item. It is unchanged if its 95 % interval includes 1 or if it is within 0.05 % of 1 (rounding). " +
	"One of twenty comparisons is expected to change by chance."

// table returns one row for each comparison.
func scaleTable(c *summary.ScaleCheck) table {
	t := table{title: "Scale check", head: []string{"arm", "metric", "speed-up", "n", "full scale [95 %]", "scaled [95 %]", "ratio [95 %]", "outcome"},
		cols: []tables.Column{tables.Names(), {Left: true}, {Left: true}, {Drop: 3}, {Drop: 2, Wrap: 20}, {Drop: 1, Wrap: 20}, pairedColumn(), {Left: true}}}
	for _, m := range c.Compared {
		outcome := map[summary.Scaling]string{summary.ScaleInvariant: "invariant", summary.NotScaleInvariant: "changed", summary.ScaleUnknown: "too few pairs"}[m.Outcome]
		name := map[string]string{"cct": "CCT", "write_time": "write time"}[m.Metric]
		t.rows = append(t.rows, []string{m.Arm, name, m.Speedup, fmt.Sprint(m.Pairs), m.Full.String(), m.Scaled.String(),
			strings.Replace(m.Ratio.Decimals(3), "×", "", 1), outcome})
	}
	return t
}

func scaleTerminal(c *summary.ScaleCheck, b *bytes.Buffer, style tables.Style) error {
	b.WriteByte('\n')
	if err := style.Paragraph(b, "", "", scaleSentence(c)); err != nil || len(c.Compared) == 0 {
		return err
	}
	if err := scaleTable(c).text(b, style); err != nil {
		return err
	}
	return style.Paragraph(b, "", "", scaleNote)
}

func (r *Report) scaleMarkdown(b *bytes.Buffer, c *summary.ScaleCheck) error {
	fmt.Fprintf(b, "\n## Scale check\n\n%s The scaled half is run %s, in the directory scaled.\n", plain(scaleSentence(c)), plain(c.RunID))
	if len(c.Compared) == 0 {
		return nil
	}
	t := scaleTable(c)
	for _, row := range t.rows {
		row[0] = plain(row[0])
	}
	b.WriteByte('\n')
	if err := t.markdown(b); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s\n", plain(scaleNote))
	return nil
}

// alone returns items that are each a cluster of their own, with their repeats: an item is
// compared with itself at another scale, and what it shares with others is the same there.
func (a Arm) alone(m metric) []metrics.Item {
	items := a.items(m)
	for i := range items {
		items[i].Cluster = items[i].ID
	}
	return items
}
