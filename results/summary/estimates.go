package summary

import (
	"math"
	"time"

	"testbed/results/metrics"
	"testbed/workloads/jobs"
)

// Estimate compares the estimates of one quantity with what was realized in the same repeats, of which all are averages.
type Estimate struct {
	Of         string `json:"of"` // straggle, alone_bps, shared_bps or wait_us
	Name       string `json:"-" head:"of" left:"true"`
	*SizeRange        // of the jobs; nil for all
	Jobs       string `json:"-" head:"job size" left:"true"`
	// Last is the last estimate, and Realized what was realized: the rates of metrics.Copies, and for straggle the share
	// of metrics.Straggling. A wait is not realized.
	Last         float64  `json:"last"`
	LastText     string   `json:"-" head:"last"`
	Least        float64  `json:"least"` // over time
	Most         float64  `json:"most"`
	Range        string   `json:"-" head:"range"`
	Realized     *float64 `json:"realized,omitempty"`
	RealizedText string   `json:"-" head:"realized"`
	// Error is the relative error of the estimates, as an absolute value: an average over the time from the first estimate
	// to the last task.
	Error *float64 `json:"error,omitempty" unit:"share" head:"error"`
}

// realized is what the attempts and transfers of a repeat show.
type realized struct {
	estimates  []EstimateSample
	copies     [jobs.SizeClasses]metrics.Copies
	straggling metrics.Straggling
	end        time.Duration // of the last attempt
}

// quantity is something that is estimated.
type quantity struct {
	of, name string
	unit     Unit
	class    int // of jobs, -1 for all
	get      func(EstimateSample) float64
	// real returns what was realized; 0 if nothing was.
	real func(realized) float64
}

func quantities() []quantity {
	all := []quantity{{
		"straggle", "p", Index, -1,
		func(s EstimateSample) float64 { return s.Straggle },
		func(r realized) float64 { return r.straggling.Share() },
	}}
	for class := range jobs.SizeClasses {
		all = append(all,
			quantity{
				"alone_bps", "B", BitRate, class,
				func(s EstimateSample) float64 { return float64(s.Copies[class].Alone) },
				func(r realized) float64 { return value(rate(r.copies[class].Alone)) },
			},
			quantity{
				"shared_bps", "αB", BitRate, class,
				func(s EstimateSample) float64 { return float64(s.Copies[class].Shared) },
				func(r realized) float64 { return value(rate(r.copies[class].Shared)) },
			},
			quantity{
				"wait_us", "ω", Micros, class,
				func(s EstimateSample) float64 { return micros(s.Copies[class].Wait) },
				nil,
			})
	}
	return all
}

// bounds returns the smallest and the largest estimate over time, of rates and waits once there are fetches to learn them from.
func bounds(of []EstimateSample, q quantity) (low, high float64) {
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
func meanError(of []EstimateSample, get func(EstimateSample) float64, is float64,
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

// estimatesOf compares those of the arm's repeats; nil if there are none.
func estimatesOf(repeats []Repeat) (out []Estimate) {
	var list []realized
	for _, r := range repeats {
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
		s := Estimate{Of: q.of, Name: q.name, Jobs: "all", Last: mean(last), Least: mean(least), Most: mean(most)}
		s.LastText, s.Range = q.unit.Show(s.Last), q.unit.Show(s.Least)+" – "+q.unit.Show(s.Most)
		if q.class >= 0 {
			size := SizeRangeOf(q.class)
			s.SizeRange, s.Jobs = &size, jobs.SizeName(q.class)
		}
		if len(errs) > 0 {
			is, err := mean(shown), mean(errs)
			s.Realized, s.RealizedText, s.Error = &is, q.unit.Show(is), &err
		}
		out = append(out, s)
	}
	return out
}
