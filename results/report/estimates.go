package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// EstimateSummary compares the estimates of one quantity with what was realized in the same repeats.
type EstimateSummary struct {
	Of         string `json:"of"` // straggle, alone_bps, shared_bps or wait_us
	*SizeRange        // of the jobs; nil for all
	// Last is the last estimate, and Realized what was realized, averages of the repeats: the rates of metrics.Copies, and for
	// straggle the share of metrics.Straggling. A wait is not realized.
	Last     float64  `json:"last"`
	Least    float64  `json:"least"` // over time, averages of the repeats
	Most     float64  `json:"most"`
	Realized *float64 `json:"realized,omitempty"`
	// Error is the relative error of the estimates, as an absolute value: an average over the time from the first estimate to
	// the last task, and over the repeats.
	Error *float64 `json:"error,omitempty"`
}

// realized is what the attempts and transfers of a repeat show.
type realized struct {
	estimates  []summary.EstimateSample
	copies     [jobs.SizeClasses]metrics.Copies
	straggling metrics.Straggling
	end        time.Duration // of the last attempt
}

// quantity is something that is estimated.
type quantity struct {
	of    string
	class int // of jobs, -1 for all
	get   func(summary.EstimateSample) float64
	// real returns what was realized; 0 if nothing was.
	real func(realized) float64
}

func quantities() []quantity {
	all := []quantity{{"straggle", -1, func(s summary.EstimateSample) float64 { return s.Straggle },
		func(r realized) float64 { return r.straggling.Share() }}}
	rate := func(f metrics.Fetches) float64 {
		if f.Busy <= 0 {
			return 0
		}
		return float64(8*f.Size) / f.Busy.Seconds()
	}
	for class := range jobs.SizeClasses {
		all = append(all,
			quantity{"alone_bps", class, func(s summary.EstimateSample) float64 { return float64(s.Copies[class].Alone) },
				func(r realized) float64 { return rate(r.copies[class].Alone) }},
			quantity{"shared_bps", class, func(s summary.EstimateSample) float64 { return float64(s.Copies[class].Shared) },
				func(r realized) float64 { return rate(r.copies[class].Shared) }},
			quantity{of: "wait_us", class: class,
				get: func(s summary.EstimateSample) float64 { return micros(s.Copies[class].Wait) }})
	}
	return all
}

// bounds returns the smallest and the largest estimate over time, of rates and waits once there are fetches to learn them from.
func bounds(of []summary.EstimateSample, q quantity) (low, high float64) {
	low = math.Inf(1)
	for _, s := range of {
		x := q.get(s)
		known := x > 0
		if q.real == nil { // no wait is learned without rates
			known = s.Copies[q.class].Alone > 0
		}
		if known {
			low, high = min(low, x), max(high, x)
		}
	}
	return low, high
}

// meanError returns the relative error of estimates, averaged over the time from the first one to end; false without any.
func meanError(of []summary.EstimateSample, get func(summary.EstimateSample) float64, is float64,
	end time.Duration) (float64, bool) {
	sum, over := 0., 0.
	for i, s := range of {
		until := end
		if i+1 < len(of) {
			until = min(end, of[i+1].At)
		}
		if x := get(s); x > 0 && until > s.At {
			t := (until - s.At).Seconds()
			sum, over = sum+t*math.Abs(x-is)/is, over+t
		}
	}
	return sum / over, over > 0
}

// estimates compares those of the arm's repeats; nil if there are none.
func (a Arm) estimates() (out []EstimateSummary) {
	var list []realized
	for _, r := range a.Repeats {
		if r.Coordinator == nil || len(r.Coordinator.Estimates) == 0 {
			continue
		}
		x := realized{estimates: r.Coordinator.Estimates, straggling: metrics.StragglingOf(r.Records.Attempts)}
		if c := metrics.ClonesOf(&r.Records); c != nil {
			x.copies = c.Copies
		}
		for i := range r.Records.Attempts {
			x.end = max(x.end, r.Records.Attempts[i].End)
		}
		list = append(list, x)
	}
	mean := func(list []float64) float64 { return metrics.Round6(metrics.OverRepeats(list).Value) }
	for _, q := range quantities() {
		var last, least, most, shown, errs []float64
		for _, r := range list {
			newest := r.estimates[len(r.estimates)-1]
			x := q.get(newest)
			low, high := bounds(r.estimates, q)
			if q.real == nil {
				if newest.Copies[q.class].Alone > 0 { // no wait is learned without rates
					last, least, most = append(last, x), append(least, low), append(most, high)
				}
				continue
			}
			is := q.real(r)
			if is <= 0 {
				continue
			}
			if err, ok := meanError(r.estimates, q.get, is, r.end); ok && x > 0 {
				last, shown, errs = append(last, x), append(shown, is), append(errs, err)
				least, most = append(least, low), append(most, high)
			}
		}
		if len(last) == 0 {
			continue
		}
		s := EstimateSummary{Of: q.of, Last: mean(last), Least: mean(least), Most: mean(most)}
		if q.class >= 0 {
			size := sizeRange(q.class)
			s.SizeRange = &size
		}
		if len(errs) > 0 {
			is, err := mean(shown), mean(errs)
			s.Realized, s.Error = &is, &err
		}
		out = append(out, s)
	}
	return out
}

// estimateTables returns the table of estimates; none without any.
func (r *Report) estimateTables() []table {
	t := table{title: "Estimates of the task scheduler", head: []string{"arm", "of", "job size", "last", "range", "realized", "error"}, cols: []tables.Column{tables.Names(), {Left: true}, {Left: true}}}
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		for _, e := range a.Estimates {
			name, show := estimateNames[e.Of].name, estimateNames[e.Of].show
			row := []string{a.Name, name, "all", show(e.Last), show(e.Least) + " – " + show(e.Most), none, none}
			if e.SizeRange != nil {
				row[2] = jobs.SizeName(jobs.SizeClass(e.LeastTasks))
			}
			if e.Realized != nil {
				row[5], row[6] = show(*e.Realized), units.Percent(*e.Error, 1)
			}
			t.rows = append(t.rows, row)
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	return []table{t}
}

// estimateNames are the names of EstimateSummary.Of in the report.
var estimateNames = map[string]struct {
	name string
	show func(float64) string
}{
	"straggle":   {"p", func(x float64) string { return fmt.Sprintf("%.3f", x) }},
	"alone_bps":  {"B", func(x float64) string { return units.Short(x, "bps") }},
	"shared_bps": {"αB", func(x float64) string { return units.Short(x, "bps") }},
	"wait_us":    {"ω", summary.Micros.Show},
}

// estimateDefinitions returns the definitions of estimateTables.
func (r *Report) estimateDefinitions() []string {
	if !slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return len(a.Estimates) > 0 }) {
		return nil
	}
	return []string{"Estimates of the task scheduler: p, the share of attempts that progress at less than half the median rate of their stage; B and αB, the payload rates of fetches of cloned tasks alone, and of those that share a copy; ω, the wait for a copy that no other attempt fetches. last: the estimate at the end. range: the smallest and the largest estimate over time. realized: what all attempts and transfers of the repeat show. error: the absolute value of the relative error, averaged over the time from the first estimate to the last task. All are averages of the repeats."}
}
