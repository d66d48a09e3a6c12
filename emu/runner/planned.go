package runner

import (
	"cmp"
	"fmt"
	"time"

	"testbed/emu/scenario"
	"testbed/results/metrics"
	"testbed/results/summary"
)

// Number of repeats that a plan states.
const (
	plannedEffect  = 0.1  // difference of a time from the baseline's that the repeats show
	mostPlanned    = 1000 // as a scenario allows
	leastOfThePlan = 2    // repeats of a first run
)

// PlannedRepeats is a number of repeats that shows a difference with a probability of 80 % or more.
type PlannedRepeats struct {
	Metric  string  `json:"metric"`
	Effect  float64 `json:"effect_percent"`
	Repeats int     `json:"repeats"`       // 0 for more than a scenario can have
	Arm     string  `json:"arm,omitempty"` // of a first run, with the most repeats
	From    string  `json:"from"`          // the noise calibration or the first run
}

func (p PlannedRepeats) String() string {
	text := fmt.Sprintf("%.0f %% of %s (geometric mean of pairs) shows with a probability of 80 %% at %d repeats", p.Effect, p.Metric, p.Repeats)
	if p.Repeats == 0 {
		text = fmt.Sprintf("%.0f %% of %s may not show at any number of repeats: the items' own ratios differ too much, more items are needed",
			p.Effect, p.Metric)
	}
	if p.Arm != "" {
		text += ", of arm " + p.Arm
	}
	return text + " (" + p.From + ")"
}

// PlanRepeats sets the numbers of repeats that show a difference: by the variation in a first run of the scenario, or, with
// from "", by a noise calibration, for items like its own. There are none without either.
func (f *Forecast) PlanRepeats(s *scenario.Scenario, from string, noise *metrics.Noise) error {
	f.Planned = nil
	looks := looksOf(s)
	add := func(p PlannedRepeats) {
		p.Effect = 100 * plannedEffect
		f.Planned = append(f.Planned, p)
	}
	if from == "" {
		for _, x := range []struct {
			key string
			n   int
		}{{"cct", f.Coflows}, {"write_time", f.Blocks}} {
			if x.n > 0 && noise.Of(x.key) != nil {
				add(PlannedRepeats{
					Metric:  x.key,
					Repeats: noise.RepeatsFor(x.key, 1+plannedEffect, looks, mostPlanned),
					From:    "noise calibration of " + noise.Date.Format(time.DateOnly) + ", for items like its own",
				})
			}
		}
		return nil
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("plan from %s: %w", from, fmt.Errorf(format, args...))
	}
	was, err := loadRecorded(from)
	if err != nil {
		return fail("%w", err)
	}
	differs, err := scenario.WorkloadDiffers(was, s)
	if err != nil {
		return fail("%w", err)
	}
	for _, d := range differs {
		if d.Key != "seed" {
			return fail("%s: %s there, %s here: make a first run of this scenario", d.Key, valueText(d.A), valueText(d.B))
		}
	}
	r, err := Compare([]string{from}, CompareOptions{})
	if err != nil {
		return fail("%w", err)
	}
	if r.Runs[0].Backend == summary.SourceFluidModel {
		noise = nil
	}
	for _, m := range []string{"cct", "fct", "write_time", "request_time", "job_time"} {
		var most PlannedRepeats
		for _, c := range r.Comparisons {
			for _, x := range c.Figures {
				if string(x.Metric) != m || x.Pairs == 0 {
					continue
				}
				if x.Repeats < leastOfThePlan || !x.GeoMean.CI.Known() {
					return fail("%s of %s: %d repeats of %d items: must be %d repeats and %d items or more", m, c.Arm.Arm, x.Repeats, x.Clusters,
						leastOfThePlan, metrics.LeastPairs)
				}
				n := x.Variances.RepeatsFor(1+plannedEffect, noise.Of(m), looks, mostPlanned)
				if most.Arm == "" || most.Repeats > 0 && (n == 0 || n > most.Repeats) {
					most = PlannedRepeats{Metric: m, Repeats: n, Arm: c.Arm.Arm, From: "run " + cmp.Or(r.Runs[0].ID, from)}
				}
			}
		}
		if most.Arm != "" {
			add(most)
		}
	}
	if len(f.Planned) == 0 {
		return fail("no arm can be compared with the baseline")
	}
	return nil
}
