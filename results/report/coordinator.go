package report

import (
	"fmt"
	"slices"
	"time"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/topo/units"
)

// CoordinatorSummary sums Coordinator over the repeats of an arm.
type CoordinatorSummary struct {
	Repeats    int     `json:"repeats"` // with a record
	IntervalUS float64 `json:"interval_us"`
	Intervals  int     `json:"intervals"`
	Decisions  int     `json:"decisions"`
	Flushes    int     `json:"flushes"`
	HostsTold  int     `json:"hosts_told"`
	Updates    int     `json:"updates"`
	// Only for packets:
	Missed *int          `json:"missed,omitempty"`
	Took   *DecisionTime `json:"took,omitempty"`
}

// DecisionTime is the distribution of the time of decisions.
type DecisionTime struct {
	MeanUS         float64 `json:"mean_us"`
	P99US          float64 `json:"p99_us"`
	MaxUS          float64 `json:"max_us"`
	mean, p99, max time.Duration
}

// coordinator sums over an arm's repeats; nil if none has a record.
func (in Input) coordinator(a Arm) *CoordinatorSummary {
	out := &CoordinatorSummary{}
	var took []metrics.Item
	missed := 0
	for _, r := range a.Repeats {
		c := r.Coordinator
		if c == nil {
			continue
		}
		out.Repeats++
		out.IntervalUS = micros(c.Interval)
		out.Intervals += c.Intervals
		out.Decisions += c.Decisions
		out.Flushes += c.Flushes
		out.HostsTold += c.HostsTold
		out.Updates += c.Updates
		missed += c.Missed
		for _, d := range c.Took {
			took = append(took, metrics.Item{Time: d})
		}
	}
	if out.Repeats == 0 {
		return nil
	}
	if !in.FluidModel {
		out.Missed = &missed
		if d := metrics.Summarize(took); d.N > 0 {
			out.Took = &DecisionTime{MeanUS: micros(d.Mean), P99US: micros(d.P99), MaxUS: micros(d.Max), mean: d.Mean, p99: d.P99, max: d.Max}
		}
	}
	return out
}

// coordinatorTable returns the table of the coordinators' work; none if no arm has a
// record.
func (r *Report) coordinatorTable() []table {
	has := func(a ArmSummary) bool { return a.Coordinator != nil }
	if !slices.ContainsFunc(r.Summary.Arms, has) {
		return nil
	}
	t := table{title: "Coordinator", head: []string{"arm", "interval", "intervals", "decisions", "flushes", "hosts notified", "updates"}, cols: []tables.Column{tables.Names()},
		notes: []string{"Sums over the repeats. Flushes: decisions that changed the rate cap of any host. Hosts notified: hosts with a changed rate cap, over all decisions. Updates: reports from hosts that the policy needs, at most one per host and interval."}}
	if !r.in.FluidModel {
		t.head = append(t.head, "missed", "decision", "P99", "max")
		t.notes[0] += " Missed: decisions that took longer than the interval, or were an interval or more late. Decision: average time of a decision."
	}
	per := func(n, of int) string {
		if of == 0 {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
	}
	for _, a := range r.Summary.Arms {
		row := make([]string, len(t.head))
		for i := range row {
			row[i] = none
		}
		row[0] = a.Name
		if c := a.Coordinator; c != nil {
			if c.IntervalUS > 0 {
				row[1], row[2] = units.Human(time.Duration(c.IntervalUS*float64(time.Microsecond))), fmt.Sprint(c.Intervals)
			}
			row[3], row[4], row[5], row[6] = fmt.Sprint(c.Decisions), per(c.Flushes, c.Decisions), fmt.Sprint(c.HostsTold), fmt.Sprint(c.Updates)
			if c.Missed != nil && c.IntervalUS > 0 {
				row[7] = per(*c.Missed, c.Intervals)
			}
			if c.Took != nil {
				row[8], row[9], row[10] = units.Human(c.Took.mean), units.Human(c.Took.p99), units.Human(c.Took.max)
			}
		}
		t.rows = append(t.rows, row)
	}
	return []table{t}
}
