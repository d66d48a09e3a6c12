package comparison

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"testbed/results/table"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
)

// Terminal writes the figures for a terminal: times of all policies, then averages by bin, then
// the coordinator's counts if enabled.
func (o *Outcome) Terminal(w io.Writer, s table.Style) error {
	for i, t := range o.tables() {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := s.Paragraph(w, "", "", t.title); err != nil {
			return err
		}
		fitted, err := t.Draw(w, s)
		if err != nil {
			return err
		}
		for _, n := range fitted.Notes() {
			if err := s.Paragraph(w, "", "", n); err != nil {
				return err
			}
		}
	}
	return nil
}

// Markdown writes the same figures as Terminal.
func (o *Outcome) Markdown(w io.Writer) error {
	for i, t := range o.tables() {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s\n\n", t.title); err != nil {
			return err
		}
		if err := t.Markdown(w); err != nil {
			return err
		}
	}
	return nil
}

// csvHead are the columns of CSV: times in seconds.
var csvHead = []string{"policy", "coflows", "average_s", "p50_s", "p90_s", "p95_s", "p99_s", "makespan_s", "over_bound",
	"sn_average_s", "ln_average_s", "sw_average_s", "lw_average_s", "speedup_of_averages", "speedup_mean", "speedup_p50", "speedup_p90", "events", "decisions", "took_s"}

// CSV writes one row for each policy. Averages of bins without coflows are empty.
func (o *Outcome) CSV(w io.Writer) error {
	c := words.NewCSV(w)
	if err := c.Write(csvHead); err != nil {
		return err
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	for _, r := range o.Runs {
		s := r.Summary
		row := []string{r.Policy, strconv.Itoa(s.Coflows)}
		for _, d := range []time.Duration{s.Average, s.P50, s.P90, s.P95, s.P99, s.Makespan} {
			row = append(row, number(d.Seconds()))
		}
		row = append(row, number(s.OverBound))
		for _, b := range s.Bins {
			if b.Coflows == 0 {
				row = append(row, "")
				continue
			}
			row = append(row, number(b.Average.Seconds()))
		}
		row = append(row, number(r.Speedup.Averages), number(r.Speedup.Mean), number(r.Speedup.P50), number(r.Speedup.P90),
			strconv.FormatInt(r.Events, 10), strconv.FormatInt(r.Decisions, 10), number(r.Took.Seconds()))
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// CoflowsCSV writes one row for each policy and coflow: the data from which all other figures
// are computed.
func (o *Outcome) CoflowsCSV(w io.Writer) error {
	c := words.NewCSV(w)
	if err := c.Write([]string{"policy", "coflow", "arrival_s", "start_s", "finish_s", "cct_s", "bound_s", "width", "bytes", "largest_flow_bytes", "queue", "queued_s", "pilots", "pilot_bytes", "sampled_s"}); err != nil {
		return err
	}
	number := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'g', -1, 64) }
	for _, r := range o.Runs {
		for _, f := range r.Coflows {
			if err := c.Write([]string{r.Policy, strconv.Itoa(int(f.ID)), number(f.Arrival), number(f.Start), number(f.Finish), number(f.CCT()), number(f.Bound),
				strconv.Itoa(f.Width), strconv.FormatInt(int64(f.Size), 10), strconv.FormatInt(int64(f.Largest), 10),
				strconv.Itoa(f.Queue), number(f.Queued), strconv.Itoa(f.Pilots), strconv.FormatInt(int64(f.PilotSent), 10), number(f.Sampled)}); err != nil {
				return err
			}
		}
	}
	c.Flush()
	return c.Error()
}

type titled struct {
	title string
	table.Table
}

// tables returns all tables.
func (o *Outcome) tables() []titled {
	on := fmt.Sprintf("; ports of %v", o.Rate)
	if o.MB > 0 {
		on += "; " + workloads.MBNote(o.MB)
	}
	if o.Left > 0 {
		on += fmt.Sprintf("; %d coflows inside one port are left out", o.Left)
	}
	times := titled{title: fmt.Sprintf("Coflow completion times of %d coflows with %d flows (%s%s). Speed-ups are relative to %s.", o.Coflows, o.Flows, o.Trace, on, o.Base),
		Table: table.Table{
			Head:    []string{"policy", "average", "P50", "P90", "P95", "P99", "makespan", "over bound", "speed-up", "median", "P90 of ratios"},
			Columns: []table.Column{table.Names(), {}, {}, {}, {}, {}, {Drop: 2}, {Drop: 3}, {}, {Short: "med."}, {Short: "P90 r.", Drop: 1}},
		}}
	bins := titled{title: "Average completion time by bin: short or long by the largest flow, narrow or wide by the number of flows.",
		Table: table.Table{Head: []string{"policy"}, Columns: []table.Column{table.Names()}}}
	for b := range workloads.Bin(4) {
		head := b.String()
		if len(o.Runs) > 0 {
			head += fmt.Sprintf(" (%d)", o.Runs[0].Summary.Bins[b].Coflows)
		}
		bins.Head, bins.Columns = append(bins.Head, head), append(bins.Columns, table.Column{})
	}
	master := titled{Table: table.Table{
		Head:    []string{"policy", "intervals", "agents report", "silent", "agents notified", "unchanged", "decisions"},
		Columns: []table.Column{table.Names(), {}, {}, {}, {}, {}, {Drop: 1}}}}
	cost := titled{title: "Cost of the simulation.", Table: table.Table{
		Head: []string{"policy", "time", "events", "decisions"}, Columns: []table.Column{table.Names(), {}, {}, {}}}}
	for _, r := range o.Runs {
		s := r.Summary
		mark := ""
		if r.Policy == o.Base {
			mark = "base"
		}
		ratio := func(f float64) string {
			if mark != "" {
				return mark
			}
			return fmt.Sprintf("%.2f×", f)
		}
		times.Rows = append(times.Rows, []string{r.Policy, seconds(s.Average), seconds(s.P50), seconds(s.P90), seconds(s.P95), seconds(s.P99), seconds(s.Makespan),
			fmt.Sprintf("%.3f", s.OverBound), ratio(r.Speedup.Averages), ratio(r.Speedup.P50), ratio(r.Speedup.P90)})
		row := []string{r.Policy}
		for _, b := range s.Bins {
			if b.Coflows == 0 {
				row = append(row, "–")
				continue
			}
			row = append(row, seconds(b.Average))
		}
		bins.Rows = append(bins.Rows, row)
		if m := r.Coordinator; m.Intervals > 0 {
			n := float64(m.Intervals)
			master.title = fmt.Sprintf("Coordinator, intervals of %v with unfinished coflows: agents that report and agents notified of new rates, average per interval; and the share of intervals without any (silent, unchanged).", m.Interval)
			master.Rows = append(master.Rows, []string{r.Policy, strconv.FormatInt(m.Intervals, 10), fmt.Sprintf("%.1f", float64(m.Updates)/n), units.Percent(float64(m.Silent)/n, 0),
				fmt.Sprintf("%.1f", float64(m.Told)/n), units.Percent(float64(m.Unflushed)/n, 0), strconv.FormatInt(r.Decisions, 10)})
		}
		cost.Rows = append(cost.Rows, []string{r.Policy, fmt.Sprintf("%.2f s", r.Took.Seconds()), strconv.FormatInt(r.Events, 10), strconv.FormatInt(r.Decisions, 10)})
	}
	out := []titled{times, bins}
	if len(master.Rows) > 0 {
		out = append(out, master)
	}
	return append(out, cost)
}

// seconds formats a time with at most four significant digits.
func seconds(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s >= 1000:
		return fmt.Sprintf("%.0f s", s)
	case s >= 100:
		return fmt.Sprintf("%.1f s", s)
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.1f ms", s*1e3)
}
