package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"testbed/results/htmlreport"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// Setting is one property of a run, such as "kernel" and "6.12.5".
type Setting struct{ Key, Value string }

// Page writes the whole report as one self-contained HTML file with charts.
func (r *Report) Page(w io.Writer) error {
	var doc bytes.Buffer
	if err := r.JSON(&doc); err != nil {
		return err
	}
	d := htmlreport.Data{RunID: r.in.RunID, Scenario: r.in.Scenario, Source: r.source(), Result: r.Summary.Sentence(),
		Written: r.in.Written, Resolved: r.in.Resolved, Fabric: r.in.Fabric, Simulated: r.in.FluidModel,
		Summary: doc.Bytes(), Human: units.Human, LinkInterval: r.in.linkInterval()}
	if r.in.Partial != nil {
		d.Partial = r.in.Partial.String()
	}
	for i, a := range r.in.Arms {
		s := &r.Summary.Arms[i]
		arm := htmlreport.Arm{Name: a.Name, Void: s.Void(), Numbers: a.Numbers}
		if s.Verdict != nil {
			arm.Level = s.Verdict.String()
		}
		for _, rep := range a.Repeats {
			arm.Repeats = append(arm.Repeats, htmlreport.Repeat{Records: rep.Records, Timing: rep.Timing, Links: rep.Links, Slots: rep.Slots, Fabric: rep.Fabric, Progress: rep.Progress})
		}
		d.Arms = append(d.Arms, arm)
		if len(s.Problems) > 0 {
			d.Problems = append(d.Problems, htmlreport.List{Heading: a.Name, Items: s.Problems})
		}
	}
	for _, m := range allMetrics() {
		if r.measured(m) {
			d.Headline = append(d.Headline, r.headline(m))
		}
	}
	for _, t := range append(r.taskTables(), r.placementTables()...) {
		d.Headline = append(d.Headline, plainTable(t))
	}
	if len(d.Headline) > 0 && len(d.Arms) > 1 {
		t := &d.Headline[0]
		t.Notes = append(t.Notes[:len(t.Notes):len(t.Notes)], "Best: the lowest value of its column, marked if all arms have the same items.", notSignificant)
		if slices.ContainsFunc(t.Rows, func(row []htmlreport.Cell) bool {
			return slices.ContainsFunc(row, func(c htmlreport.Cell) bool { return strings.Contains(c.Text, metrics.FewPairsMark) })
		}) {
			t.Notes = append(t.Notes, fewPairs)
		}
	}
	for _, t := range r.failureTables() {
		d.Failures = append(d.Failures, plainTable(t))
	}
	if c := r.Summary.ScaleCheck; c != nil {
		t := plainTable(scaleTable(c))
		t.Lead = fmt.Sprintf("%s The scaled half is run %s, in the directory scaled.", scaleSentence(c), c.RunID)
		t.Notes = append(t.Notes, scaleNote)
		d.Scale = &t
	}
	for _, reason := range r.reasons() {
		d.Reasons = append(d.Reasons, htmlreport.List{Heading: reason.heading, Items: reason.checks})
	}
	if !r.in.FluidModel {
		d.Checks = r.checkTable()
	}
	d.Definitions = r.definitionLines(r.Summary.Baseline)
	for _, s := range r.in.Manifest {
		d.Manifest = append(d.Manifest, htmlreport.Setting(s))
	}
	return htmlreport.Write(w, d)
}

// measured reports whether any arm has items for a metric, void or not.
func (r *Report) measured(m metric) bool {
	for _, a := range r.in.Arms {
		if len(a.items(m)) > 0 {
			return true
		}
	}
	return false
}

// keys maps each column to its key in summary.json, below the metric. Of the times, the lowest is the best.
var keys = map[string]string{
	"n":              "n",
	"average":        "mean_us",
	"P50":            "p50_us",
	"P95":            "p95_us",
	"P99":            "p99_us",
	"repeats ±":      "between_repeats.relative",
	"speed-up":       "speedup",
	"paired [95 %]":  "paired.geo_mean",
	"fluid average":  "fluid.mean_us",
	"measured/fluid": "fluid.ratio",
}

// number returns x as in summary.json.
func number(x float64) string {
	b, err := json.Marshal(x)
	if err != nil {
		return ""
	}
	return string(b)
}

// headline returns a metric's table, each figure with its place in summary.json.
func (r *Report) headline(m metric) htmlreport.Table {
	t := r.table(m)
	out := htmlreport.Table{Title: t.title, Head: t.head, Notes: t.notes}
	best := map[string]float64{}
	count := map[string]int{}
	for i := range r.Summary.Arms {
		for head, key := range keys {
			x, ok := r.Summary.Arms[i].Get(m.key + "." + key)
			if ok && strings.HasSuffix(key, "_us") && head != "fluid average" {
				if low, had := best[head]; !had || x < low {
					best[head] = x
				}
				count[head]++
			}
		}
	}
	// The verdict is second: a narrow screen shows the first columns.
	last := len(t.head) - 1
	ahead := last > 1 && t.head[last] == "verdict"
	if ahead {
		out.Head = slices.Insert(slices.Clone(t.head[:last]), 1, "verdict")
	}
	for i, row := range t.rows {
		a := &r.Summary.Arms[i]
		var cells []htmlreport.Cell
		for j, s := range row {
			head := t.head[j]
			c := htmlreport.Cell{Text: s}
			if key, ok := keys[head]; ok {
				c.Figure, c.Arm, c.Metric = true, a.Name, m.key+"."+key
				if x, ok := a.Get(c.Metric); ok {
					if head == "average" {
						c.Text = summary.Micros.Show(x) // other forms may mark the best in it
					}
					c.Value = number(x)
					c.Best = !t.apart && count[head] > 1 && x == best[head]
				}
			}
			if head == "verdict" && a.Verdict != nil {
				c.Arm, c.Metric, c.Value, c.Level = a.Name, "verdict", a.Verdict.String(), a.Verdict.String()
			}
			if ahead && j == last {
				cells = slices.Insert(cells, 1, c)
			} else {
				cells = append(cells, c)
			}
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// plainTable converts a table: words are aligned left, numbers right.
func plainTable(t table) htmlreport.Table {
	out := htmlreport.Table{Title: t.title, Head: t.head, Notes: t.notes}
	for _, row := range t.rows {
		var cells []htmlreport.Cell
		for _, s := range row {
			cells = append(cells, htmlreport.Cell{Text: s, Figure: s != "" && strings.ContainsAny(s[:1], "0123456789-") && !strings.ContainsAny(s, "abcdefghijklmnopqrstuvwxyz")})
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// checkTable returns every check of every repeat, passed or not.
func (r *Report) checkTable() *htmlreport.Table {
	t := &htmlreport.Table{Title: "Every check of every repeat", Head: []string{"arm", "repeat", "check", "measured", "pass", "void", "verdict"}}
	add := func(arm, repeat string, level verdict.Level, cells ...string) {
		row := []htmlreport.Cell{{Text: arm}, {Text: repeat, Figure: true}}
		for _, c := range cells {
			row = append(row, htmlreport.Cell{Text: c})
		}
		t.Rows = append(t.Rows, append(row, htmlreport.Cell{Text: level.String(), Level: level.String()}))
	}
	all := func(arm, repeat string, v verdict.Verdict) {
		for _, c := range v.Checks {
			add(arm, repeat, c.Level, c.Name, c.Value, c.Pass, c.Void)
		}
		if len(v.Checks) == 0 {
			add(arm, repeat, v.Level, "none", none, none, none)
		}
	}
	for _, a := range r.Summary.Arms {
		for i, v := range a.Verdicts {
			k := a.Numbers.Of(i)
			repeat := fmt.Sprint(k)
			for n, e := range v.Earlier {
				all(a.Name, fmt.Sprintf("%d, attempt %d", k, n+1), e)
			}
			if n := len(v.Earlier); n > 0 {
				repeat = fmt.Sprintf("%d, attempt %d", k, n+1)
			}
			all(a.Name, repeat, v)
		}
	}
	return t
}
