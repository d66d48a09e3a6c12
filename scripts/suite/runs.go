package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
)

// Backend is a run on one backend.
type Backend struct {
	Name string
	*rundir.Run
	Summary *report.Summary
}

// Backends runs a scenario with assignments to its variables on the fluid model and, if packets is true and
// Fluid is not, on packets, and writes the verdicts of the arms on packets to the report. If an arm is void,
// the error is ErrVoid, and the runs have their figures.
func (o *Options) Backends(ctx context.Context, r *Report, packets bool, scenario string, repeat int, set ...string) ([]Backend, error) {
	args := []string{"--set", fmt.Sprintf("repeat=%d", repeat)}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	fluid, measured, void := o.Both(ctx, packets, scenario, args...)
	if fluid == nil {
		return nil, void
	}
	var out []Backend
	for _, s := range []*report.Summary{fluid, measured} {
		if s == nil {
			continue
		}
		run, err := rundir.Open(o.Program().RunDir(s))
		if err != nil {
			return nil, err
		}
		name := "fluid model"
		if s == measured {
			name = "packets"
		}
		out = append(out, Backend{name, run, s})
	}
	if measured == nil {
		return out, void
	}
	var rows [][]string
	for i, a := range measured.Arms {
		row := []string{a.Name, VerdictOf(a), "–", "–"}
		if base := fluid.Arms[i].JobTime; a.JobTime != nil && base != nil {
			row[2], row[3] = MS(a.JobTime.MeanUS), fmt.Sprintf("%.3f", a.JobTime.MeanUS/base.MeanUS)
		}
		rows = append(rows, row)
	}
	r.Say("Run directories %s (packets) and %s (fluid model), %d repeats.\n", measured.RunID, fluid.RunID, repeat)
	return out, errors.Join(void, r.Draw([]string{"arm", "verdict", "average job time", "relative to the fluid model"}, rows))
}

// Makespans returns the time from the first submission to the last end of a job under an arm divided by that
// under another, by repeat; none if an arm is void. Runs are evaluated together.
func Makespans(runs []*rundir.Run, arm, base string) (ratios []float64) {
	spans := map[string]map[int][2]time.Duration{arm: {}, base: {}} // first and last, by repeat
	for _, run := range runs {
		for _, j := range run.Jobs {
			of := spans[j.Arm]
			if of == nil {
				continue
			}
			span, ok := of[j.Repeat]
			if !ok || j.Arrival < span[0] {
				span[0] = j.Arrival
			}
			span[1] = max(span[1], j.End)
			of[j.Repeat] = span
		}
	}
	long := func(s [2]time.Duration) float64 { return float64(s[1] - s[0]) }
	for repeat := range len(spans[base]) {
		if span, ok := spans[arm][repeat]; ok {
			ratios = append(ratios, long(span)/long(spans[base][repeat]))
		}
	}
	return ratios
}

// Over records the average of a figure of each repeat as that of a claim, and returns it. Without values, of a void
// arm, it records nothing and returns NaN.
func (c *Claims) Over(id string, values []float64) metrics.Estimate {
	if len(values) == 0 {
		return metrics.Estimate{Value: math.NaN()}
	}
	e := metrics.OverRepeats(values)
	c.Measured(id, e.Value, e.CI)
	return e
}

// Ratios divides by repeat; there are none if a repeat is missing in one of the lists.
func Ratios(list, by []float64) (out []float64) {
	for i := range list {
		if len(by) == len(list) {
			out = append(out, list[i]/by[i])
		}
	}
	return out
}

// Interval formats the average over repeats and its 95 % interval; a dash without repeats.
func Interval(list []float64, format string) string {
	if len(list) == 0 {
		return "–"
	}
	e := metrics.OverRepeats(list)
	return fmt.Sprintf(format, e.Value, e.CI.Low, e.CI.High)
}
