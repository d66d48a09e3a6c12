package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"testbed/results/htmlreport"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// Setting is one property of a run, such as "kernel" and "6.12.5".
type Setting struct{ Key, Value string }

// Mark is a moment on the run's clock that charts mark.
type Mark = htmlreport.Mark

// Page writes the whole report as one self-contained HTML file with charts.
func (r *Report) Page(w io.Writer, draw Draw) error {
	var doc bytes.Buffer
	if err := r.JSON(&doc); err != nil {
		return err
	}
	d := htmlreport.Data{RunID: r.in.RunID, Scenario: r.in.Scenario, Source: r.source(), Ran: r.in.Ran, Result: r.Summary.Sentence(),
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
			arm.Repeats = append(arm.Repeats, htmlreport.Repeat{
				Records:  rep.Records,
				Zero:     rep.Zero,
				Samples:  rep.Samples,
				Timing:   rep.Timing,
				Links:    rep.Links,
				Slots:    rep.Slots,
				Fabric:   rep.Fabric,
				Progress: rep.Progress,
			})
		}
		arm.Faults = r.in.Faults[a.Name]
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
	for _, t := range slices.Concat(r.figureTables("fct_slowdown"), r.taskTables(), r.placementTables()) {
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
	if err := r.draw(&d, draw); err != nil {
		return err
	}
	d.Tables = map[string][]htmlreport.Table{}
	for _, t := range r.longTimeTables() {
		section := "time"
		if slices.Contains(t.head, "makespan") {
			section = "traffic"
		}
		if !slices.Contains(t.head, "link") { // the page has a table of all links
			d.Tables[section] = append(d.Tables[section], plainTable(t))
		}
	}
	d.Definitions = r.definitionLines(r.Summary.Baseline)
	for _, s := range r.in.Manifest {
		d.Manifest = append(d.Manifest, htmlreport.Setting(s))
	}
	return htmlreport.Write(w, d)
}

// drawings are the figures of the page that need no script, in its order.
var drawings = []struct {
	section, figure, title, lead string
	arms                         bool // one for each arm
}{
	{"tasks", "job-parts", "Job time by part", "Average job time of each arm. Each moment of a job counts to the first part that applies, " +
		"so the parts add up to its time.", false},
	{"tasks", "locality", "Locality of maps", "Where the replica was that a map read: on its own host, on another host of its rack, or in " +
		"another rack. Maps that committed, by the number of maps of their job.", false},
	{"tasks", "racks", "Saturated links of racks", "Load of the links of each rack to and from the spines.", true},
	{"disks", "disks", "Bytes stored by host", "", true},
	{"time", "breakdown", "Average coflow completion time", "Mean per coflow of an arm, over its repeats.", false},
	{"time", "write-breakdown", "Average block write time", "Mean per block of an arm, over its repeats.", false},
	{"time", "slowest", "Slowest coflows", "", true},
	{"traffic", "bytes", "Bytes between racks", "", false},
}

// draw adds drawings to a page.
func (r *Report) draw(d *htmlreport.Data, draw Draw) error {
	d.Drawings = map[string][]htmlreport.Drawing{}
	run, err := r.run()
	if err != nil {
		return err
	}
	for _, x := range drawings {
		arms := []string{""}
		if x.arms {
			arms = run.Arms()
		}
		for _, arm := range arms {
			if x.arms && run.Arm(arm).Void() || x.section == "tasks" && !r.in.attempts() {
				continue
			}
			svg, notes, err := draw(run, x.figure, arm)
			if err != nil {
				return err
			}
			title := x.title
			if arm != "" {
				title += ", " + arm
			}
			if svg != "" {
				d.Drawings[x.section] = append(d.Drawings[x.section], htmlreport.Drawing{Title: title, Lead: x.lead, SVG: svg, Notes: notes})
			}
		}
	}
	return nil
}

// run returns what these figures read of the run.
func (r *Report) run() (*rundir.Run, error) {
	out := &rundir.Run{Summary: r.Summary}
	out.Coflows = collected(r.coflows(), all)
	out.Blocks = collected(r.blocks(), all)
	out.Jobs = collected(r.jobs(), all)
	out.Links = collected(r.links(), func(l *schema.Load) bool { // of links of hosts, the name
		_, _, between := metrics.RackOfLink(l.Link)
		return between || l.From == 0
	})
	return out, out.MarkFailed()
}

func all[T any](*T) bool { return true }

// collected returns the rows to keep.
func collected[T any](rows iter.Seq[*T], keep func(*T) bool) (out []T) {
	for x := range rows {
		if keep(x) {
			out = append(out, *x)
		}
	}
	return out
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
			x, ok := r.Summary.Arms[i].Get(m.Key + "." + key)
			if ok && strings.HasSuffix(key, "_us") && head != "fluid average" && len(r.Summary.Arms[i].Unmodelled) == 0 {
				if low, had := best[head]; !had || x < low {
					best[head] = x
				}
				count[head]++
			}
		}
	}
	// A narrow screen shows the first columns: the speed-up with its interval, and the verdict.
	first := []int{0}
	for _, head := range []string{"paired [95 %]", "verdict", "speed-up"} {
		if j := slices.Index(t.head, head); j > 0 {
			first = append(first, j)
		}
	}
	order := slices.Clone(first)
	for j := range t.head {
		if !slices.Contains(first, j) {
			order = append(order, j)
		}
	}
	out.Head = nil
	for _, j := range order {
		out.Head = append(out.Head, t.head[j])
	}
	for i, row := range t.rows {
		a := &r.Summary.Arms[i]
		var cells []htmlreport.Cell
		for _, j := range order {
			s, head := row[j], t.head[j]
			c := htmlreport.Cell{Text: s}
			if key, ok := keys[head]; ok {
				c.Figure, c.Arm, c.Metric = true, a.Name, m.Key+"."+key
				if x, ok := a.Get(c.Metric); ok {
					if head == "average" {
						c.Text = summary.Micros.Show(x) // other forms may mark the best in it
					}
					c.Value = number(x)
					c.Best = !t.apart && count[head] > 1 && x == best[head] && len(a.Unmodelled) == 0
				}
			}
			if head == "verdict" && a.Verdict != nil {
				c.Arm, c.Metric, c.Value, c.Level = a.Name, "verdict", a.Verdict.String(), a.Verdict.String()
			}
			cells = append(cells, c)
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// plainTable converts a table.
func plainTable(t table) htmlreport.Table {
	out := htmlreport.Table{Title: t.title, Head: t.head, Notes: t.notes}
	cols := t.drawn().Columns
	for _, row := range t.rows {
		var cells []htmlreport.Cell
		for j, s := range row {
			text, lowest := strings.CutPrefix(s, best+" ")
			cells = append(cells, htmlreport.Cell{Text: text, Best: lowest, Figure: !cols[j].Left})
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// checkTable returns every check of every repeat, passed or not.
func (r *Report) checkTable() *htmlreport.Table {
	t := &htmlreport.Table{Title: "Every check of every repeat", Head: []string{"arm", "repeat", "verdict", "check", "measured", "pass", "void"}}
	add := func(arm, repeat string, level verdict.Level, cells ...string) {
		row := []htmlreport.Cell{{Text: arm}, {Text: repeat, Figure: !strings.Contains(repeat, ",")}, {Text: level.String(), Level: level.String()}}
		for _, c := range cells {
			row = append(row, htmlreport.Cell{Text: c})
		}
		t.Rows = append(t.Rows, row)
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
