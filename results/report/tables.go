package report

import (
	"fmt"
	"slices"
	"strings"

	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// none stands for a missing value.
const none = "–"

// table is one table before it is drawn.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string
	cols  []tables.Column // layout on a terminal; missing columns are numbers
	apart bool            // the arms have different items: no average is marked as the lowest
}

// intervals returns sentences on the intervals of paired speed-ups: on looks, and on run-to-run noise.
func (r *Report) intervals() (all []string) {
	if r.in.Looks != nil {
		all = append(all, r.in.Looks.String())
	}
	repeats := 0 // the smallest number of any comparison
	for i := range r.Summary.Arms {
		for _, m := range r.in.metrics() {
			f := m.get(&r.Summary.Arms[i])
			if f != nil && f.Paired != nil && f.Paired.GeoMeanCI.Known() && (repeats == 0 || f.Paired.Repeats < repeats) {
				repeats = f.Paired.Repeats
			}
		}
	}
	if repeats > 0 && !r.in.FluidModel {
		all = append(all, r.in.Noise.Sentence(repeats))
	}
	return all
}

// pairedColumn is the column of paired speed-ups, whose cells may be broken into lines.
func pairedColumn() tables.Column { return tables.Column{Wrap: 20} }

// best marks the lowest average of a table.
const best = "★"

// notSignificant explains intervals of paired speed-ups.
const notSignificant = "A paired speed-up whose 95 % interval includes 1 is not significant."

// fewPairs explains the cells of paired speed-ups without an interval.
var fewPairs = fmt.Sprintf("%s: %s, too few for an interval.", metrics.FewPairsMark, metrics.FewPairs)

// legend explains the marks that the tables contain, in one line; "" without marks.
func legend(all []table, style tables.Style) string {
	contains := func(mark string) bool {
		return slices.ContainsFunc(all, func(t table) bool {
			return slices.ContainsFunc(t.rows, func(row []string) bool {
				return slices.ContainsFunc(row, func(c string) bool { return strings.Contains(c, mark) })
			})
		})
	}
	var out []string
	if contains(best + " ") {
		out = append(out, style.Text(best)+" lowest average.", notSignificant)
	}
	if contains(metrics.FewPairsMark) {
		out = append(out, fewPairs)
	}
	return strings.Join(out, " ")
}

// tables returns those of the metrics that some arm has items for, void or not.
func (r *Report) tables() []table {
	var out []table
	for _, m := range allMetrics() {
		any := false
		for _, a := range r.in.Arms {
			any = any || len(a.items(m)) > 0
		}
		if any {
			t := r.table(m)
			switch m.Key {
			case "cct":
				t.notes = append(t.notes, r.fluidNotes()...)
			case "fct":
				t.notes = append(append(t.notes, r.setupNotes()...), r.flowErrorNotes()...)
			}
			out = append(out, t)
		}
	}
	out = append(out, r.taskTables()...)
	out = append(out, r.placementTables()...)
	out = append(out, r.failureTables()...)
	return out
}

// columns are the optional columns that some arm fills.
type columns struct {
	speedup, repeats, fluid, verdict bool
	best                             float64 // the lowest average, in microseconds; 0 for none
}

func (r *Report) table(m metric) table {
	t := table{title: m.Heading()}
	cols := columns{speedup: len(r.Summary.Arms) > 1, verdict: !r.in.FluidModel}
	counts := map[float64]bool{} // items per repeat
	for i := range r.Summary.Arms {
		if f := m.get(&r.Summary.Arms[i]); f != nil {
			cols.repeats = cols.repeats || f.Repeats != nil
			cols.fluid = cols.fluid || f.Fluid != nil
			counts[float64(f.N)/float64(r.Summary.Arms[i].Repeats)] = true
			if apart := r.in.apart(i, m); apart != "" {
				t.notes = append(t.notes, fmt.Sprintf("%s, so their averages are not comparable; paired speed-ups compare the same ones.", apart))
			}
		}
	}
	add := func(head string, c tables.Column) { t.head, t.cols = append(t.head, head), append(t.cols, c) }
	add("arm", tables.Names())
	items := tables.Column{Drop: 5}
	if slices.ContainsFunc(r.in.Arms, func(a Arm) bool { n, of := a.completed(m); return n < of }) {
		items.Drop = 0
	}
	add("n", items)
	add("average", tables.Column{})
	add("P50", tables.Column{Drop: 4})
	add("P95", tables.Column{Drop: 7})
	add("P99", tables.Column{Drop: 2})
	if cols.repeats {
		add("repeats ±", tables.Column{Drop: 3})
	}
	if cols.speedup {
		add("speed-up", tables.Column{Drop: 8})
		add("paired [95 %]", pairedColumn())
	}
	if cols.fluid {
		add("fluid average", tables.Column{Drop: 1})
		add("measured/fluid", tables.Column{Drop: 6, Short: "vs fluid"})
	}
	if cols.verdict {
		add("verdict", tables.Column{Left: true})
	}
	t.apart = len(t.notes) > 0 || len(counts) > 1
	if !t.apart {
		cols.best = r.best(m)
	}
	for i := range r.Summary.Arms {
		t.rows = append(t.rows, r.row(i, m, cols))
	}
	if t.apart && len(t.notes) == 0 {
		t.notes = append(t.notes, "The arms completed different items, so their averages are not comparable.")
	}
	for _, a := range r.Summary.Arms {
		if len(a.Unmodelled) > 0 {
			t.notes = append(t.notes, fmt.Sprintf("The fluid model does not model %s, in which alone %s differs from the baseline: run it on packets.", strings.Join(a.Unmodelled, " and "), a.Name))
		}
	}
	if base := r.Summary.Arms[0]; cols.speedup && base.Void() {
		t.notes = append(t.notes, fmt.Sprintf("The baseline %s is void, so there are no speed-ups.", base.Name))
	}
	return t
}

// best returns the lowest average of the arms that the model covers; 0 with fewer than two averages.
func (r *Report) best(m metric) float64 {
	n, least := 0, 0.0
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		if f := m.get(a); f != nil && len(a.Unmodelled) == 0 {
			if n++; n == 1 || f.MeanUS < least {
				least = f.MeanUS
			}
		}
	}
	if n < 2 {
		return 0
	}
	return least
}

func (r *Report) row(i int, m metric, cols columns) []string {
	a := &r.Summary.Arms[i]
	f := m.get(a)
	row := []string{a.Name}
	void := func(cells int) {
		for range cells {
			if a.Void() {
				row = append(row, "void")
			} else {
				row = append(row, none)
			}
		}
	}
	n, of := r.in.Arms[i].completed(m)
	count := fmt.Sprint(n)
	if n < of {
		count = fmt.Sprintf("%d of %d", n, of)
	}
	switch {
	case f == nil && n < of:
		row = append(row, count)
		void(4)
	case f == nil:
		void(5)
	default:
		average := summary.Micros.Show(f.MeanUS)
		if cols.best > 0 && f.MeanUS == cols.best && len(a.Unmodelled) == 0 {
			average = best + " " + average
		}
		row = append(row, count, early(f, "mean_us", average), early(f, "p50_us", summary.Micros.Show(f.P50US)),
			early(f, "p95_us", summary.Micros.Show(f.P95US)), early(f, "p99_us", summary.Micros.Show(f.P99US)))
	}
	if cols.repeats {
		if f == nil || f.Repeats == nil {
			void(1)
		} else {
			row = append(row, units.Percent(f.Repeats.Relative, 1))
		}
	}
	if cols.speedup {
		row = append(row, speedups(i, a, f)...)
	}
	if cols.fluid {
		if f == nil || f.Fluid == nil {
			void(2)
		} else {
			row = append(row, summary.Micros.Show(f.Fluid.MeanUS), fmt.Sprintf("%.3f", f.Fluid.Ratio))
		}
	}
	if cols.verdict {
		row = append(row, r.mark(i))
	}
	return row
}

func speedups(i int, a *summary.Arm, f *summary.Metric) []string {
	switch {
	case a.Void():
		return []string{"void", "void"}
	case f != nil && i == 0:
		return []string{"baseline", none}
	case len(a.Unmodelled) > 0:
		return []string{"not modelled", none}
	}
	average, paired := none, none
	if f != nil && f.Speedup != nil {
		average = early(f, "mean_us", fmt.Sprintf("%.2f×", *f.Speedup))
	}
	if f != nil && f.Paired != nil {
		paired = early(f, "mean_us", f.Paired.String())
	}
	return []string{average, paired}
}

// mark returns the verdict of an arm and, if it is explained, the number of the
// explanation below the tables.
func (r *Report) mark(i int) string {
	level := *r.Summary.Arms[i].Verdict
	if !doubted(&r.Summary.Arms[i]) {
		return level.String()
	}
	n := 0
	for k := range r.Summary.Arms[:i+1] {
		if doubted(&r.Summary.Arms[k]) {
			n++
		}
	}
	return fmt.Sprintf("%s [%d]", level, n)
}

// doubted reports whether the verdict of an arm needs an explanation: it is not pass, or
// an earlier attempt of a repeat was not.
func doubted(a *summary.Arm) bool {
	return a.Verdict != nil && (*a.Verdict != verdict.Pass || slices.ContainsFunc(a.Verdicts, func(v verdict.Verdict) bool { return len(v.Earlier) > 0 }))
}

// reasons explains the verdicts of arms that did not pass or needed several attempts: a
// heading for each arm and the checks that failed.
func (r *Report) reasons() (out []reason) {
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		if !doubted(a) {
			continue
		}
		_, number, _ := strings.Cut(r.mark(i), " ")
		out = append(out, reason{heading: fmt.Sprintf("%s %s is %s:", number, a.Name, explain(*a.Verdict)), checks: failed(a)})
	}
	return out
}

type reason struct {
	heading string
	checks  []string
}

func explain(l verdict.Level) string {
	switch l {
	case verdict.Pass:
		return "pass; earlier attempts did not pass, and no figure includes them"
	case verdict.Void:
		return "void, so its figures are withheld"
	case verdict.Degraded:
		return "degraded, so its figures may be inaccurate"
	}
	return "unverified, because it has no fidelity record"
}

// failed returns the checks of an arm that did not pass, including earlier attempts.
func failed(a *summary.Arm) []string {
	var out []string
	for i, v := range a.Verdicts {
		k := a.Numbers.Of(i)
		for n, e := range v.Earlier {
			out = append(out, failedChecks(fmt.Sprintf("repeat %d, attempt %d", k, n+1), e)...)
		}
		where := fmt.Sprintf("repeat %d", k)
		if n := len(v.Earlier); n > 0 {
			where += fmt.Sprintf(", attempt %d (used for the figures)", n+1)
		}
		out = append(out, failedChecks(where, v)...)
	}
	return out
}

func failedChecks(where string, v verdict.Verdict) (out []string) {
	for _, c := range v.Checks {
		if c.Level == verdict.Pass {
			continue
		}
		line := fmt.Sprintf("%s: %s is %s: %s (pass: %s; void: %s)", where, c.Name, c.Level, c.Value, c.Pass, c.Void)
		if c.Reason != "" {
			line += ": " + c.Reason
		}
		out = append(out, line)
	}
	if len(out) == 0 && v.Level != verdict.Pass {
		out = append(out, fmt.Sprintf("%s: %s, without a check that states the reason", where, v.Level))
	}
	return out
}

// source returns the line that names the source of the figures.
func (r *Report) source() string {
	if r.in.FluidModel {
		return "Source: FLUID MODEL. The figures are computed, not measured on packets, so there is no fidelity verdict."
	}
	if r.in.VirtualTime {
		return "Source: captured packets, in virtual time."
	}
	return "Source: captured packets."
}
