package report

import (
	"fmt"
	"slices"
	"strings"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/results/verdict"
)

// none stands where there is nothing to say.
const none = "–"

// table is one metric's table, before it is drawn.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string
	cols  []tables.Column // how they give way on a terminal; those left out are numbers
	apart bool            // the arms do not have the same items: no average is the best
}

// best marks the least average of a table.
const best = "★"

// tables are those of the metrics that some arm has items for, void or not.
func (r *Report) tables() []table {
	var out []table
	for _, m := range allMetrics() {
		any := false
		for _, a := range r.in.Arms {
			any = any || len(a.items(m)) > 0
		}
		if any {
			out = append(out, r.table(m))
		}
	}
	out = append(out, r.placementTables()...)
	out = append(out, r.failureTables()...)
	return out
}

// columns are those that some arm fills.
type columns struct {
	speedup, repeats, fluid, verdict bool
	best                             float64 // the least average, in microseconds; 0 is not marked
}

func (r *Report) table(m metric) table {
	t := table{title: m.name}
	cols := columns{speedup: len(r.Summary.Arms) > 1, verdict: !r.in.FluidModel}
	counts := map[float64]bool{} // items a repeat
	apart, few := false, false
	for i := range r.Summary.Arms {
		if f := m.get(&r.Summary.Arms[i]); f != nil {
			cols.repeats = cols.repeats || f.Repeats != nil
			cols.fluid = cols.fluid || f.Fluid != nil
			counts[float64(f.N)/float64(r.Summary.Arms[i].Repeats)] = true
			if p := f.Paired; p != nil {
				apart = apart || p.Unpaired > 0 && r.Summary.Arms[i].Repeats == r.Summary.Arms[0].Repeats
				few = few || p.Clusters < metrics.LeastPairs
			}
		}
	}
	add := func(head string, c tables.Column) { t.head, t.cols = append(t.head, head), append(t.cols, c) }
	add("arm", tables.Names())
	add("n", tables.Column{Drop: 5})
	add("average", tables.Column{})
	add("P50", tables.Column{Drop: 4})
	add("P95", tables.Column{Drop: 7})
	add("P99", tables.Column{Drop: 2})
	if cols.repeats {
		add("repeats ±", tables.Column{Drop: 3})
	}
	if cols.speedup {
		add("speed-up", tables.Column{Drop: 8})
		add("paired [95 %]", tables.Column{})
	}
	if cols.fluid {
		add("fluid average", tables.Column{Drop: 1})
		add("measured/fluid", tables.Column{Drop: 6, Short: "vs fluid"})
	}
	if cols.verdict {
		add("verdict", tables.Column{Left: true})
	}
	apart = apart || len(counts) > 1
	t.apart = apart
	if !apart {
		cols.best = r.best(m)
	}
	for i := range r.Summary.Arms {
		t.rows = append(t.rows, r.row(i, m, cols))
	}
	if apart {
		t.notes = append(t.notes, "The arms do not have the same items: their averages are over different sets; the paired speed-up is not.")
	}
	if few {
		t.notes = append(t.notes, fmt.Sprintf("Paired: of fewer than %d coflows or writers of blocks, counting one's repeats as one, nothing can be concluded; the interval is too narrow.", metrics.LeastPairs))
	}
	if base := r.Summary.Arms[0]; cols.speedup && base.Void() {
		t.notes = append(t.notes, fmt.Sprintf("The baseline %s is void: there is no speed-up to state.", base.Name))
	}
	return t
}

// best is the least average of the arms, 0 where there are not several.
func (r *Report) best(m metric) float64 {
	n, least := 0, 0.0
	for i := range r.Summary.Arms {
		if f := m.get(&r.Summary.Arms[i]); f != nil {
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
	if f == nil {
		void(5)
	} else {
		average := human(f.mean)
		if cols.best > 0 && f.MeanUS == cols.best {
			average = best + " " + average
		}
		row = append(row, fmt.Sprint(f.N), average, human(f.p50), human(f.p95), human(f.p99))
	}
	if cols.repeats {
		if f == nil || f.Repeats == nil {
			void(1)
		} else {
			row = append(row, fmt.Sprintf("%.1f %%", 100*f.Repeats.Relative))
		}
	}
	if cols.speedup {
		row = append(row, speedups(i, a, f)...)
	}
	if cols.fluid {
		if f == nil || f.Fluid == nil {
			void(2)
		} else {
			row = append(row, human(f.fluid), fmt.Sprintf("%.3f", f.Fluid.Ratio))
		}
	}
	if cols.verdict {
		row = append(row, r.mark(i))
	}
	return row
}

func speedups(i int, a *ArmSummary, f *Metric) []string {
	switch {
	case a.Void():
		return []string{"void", "void"}
	case f != nil && i == 0:
		return []string{"baseline", none}
	}
	average, paired := none, none
	if f != nil && f.Speedup != nil {
		average = fmt.Sprintf("%.2f×", *f.Speedup)
	}
	if f != nil && f.Paired != nil {
		paired = fmt.Sprintf("%.2f× [%.2f, %.2f]", f.Paired.GeoMean, f.Paired.GeoMeanCI[0], f.Paired.GeoMeanCI[1])
	}
	return []string{average, paired}
}

// mark is the verdict of an arm and, where there is something to say of it, the number
// of that below the tables.
func (r *Report) mark(i int) string {
	level := *r.Summary.Arms[i].Verdict
	if !r.Summary.Arms[i].explained() {
		return level.String()
	}
	n := 0
	for k := range r.Summary.Arms[:i+1] {
		if r.Summary.Arms[k].explained() {
			n++
		}
	}
	return fmt.Sprintf("%s [%d]", level, n)
}

// explained tells whether the verdict of an arm is not a pass, or not that of the first
// try of every repeat.
func (a *ArmSummary) explained() bool {
	return a.Verdict != nil && (*a.Verdict != verdict.Pass || slices.ContainsFunc(a.Verdicts, func(v verdict.Verdict) bool { return len(v.Earlier) > 0 }))
}

// reasons are why arms are not a pass, or why they were tried again: a heading each and
// the checks under it.
func (r *Report) reasons() (out []reason) {
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		if !a.explained() {
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
		return "pass; earlier tries were not, and are in none of its figures"
	case verdict.Void:
		return "void, so none of its figures are shown"
	case verdict.Degraded:
		return "degraded, so its figures are doubtful"
	}
	return "unverified, so nothing vouches for its figures"
}

// failed are the checks of an arm that are not a pass, those of earlier tries included.
func failed(a *ArmSummary) []string {
	var out []string
	for k, v := range a.Verdicts {
		for n, e := range v.Earlier {
			out = append(out, failedChecks(fmt.Sprintf("repeat %d, try %d", k, n+1), e)...)
		}
		where := fmt.Sprintf("repeat %d", k)
		if n := len(v.Earlier); n > 0 {
			where += fmt.Sprintf(", try %d, which counts", n+1)
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
		out = append(out, fmt.Sprintf("%s: %s, without a check that says why", where, v.Level))
	}
	return out
}

// source is the line that says where the figures come from.
func (r *Report) source() string {
	if r.in.FluidModel {
		return "Source: FLUID MODEL. These figures are computed, not measured: there were no packets, so there is no fidelity verdict."
	}
	return "Source: captured packets."
}
