package report

import (
	"cmp"
	"fmt"

	"testbed/results/metrics"
	"testbed/topo/units"
)

// DefaultSetupShare is the default of Input.SetupShare.
const DefaultSetupShare = 0.05

// SetupSummary is the distribution of flow setup (flows.FlowRecord.Setup), which FCT
// includes, over all repeats of an arm, in microseconds.
type SetupSummary struct {
	N      int     `json:"n"`
	MeanUS float64 `json:"mean_us"`
	P50US  float64 `json:"p50_us"`
	P95US  float64 `json:"p95_us"`
	MaxUS  float64 `json:"max_us"`
	Share  float64 `json:"share_of_median_fct"` // P50US over the median FCT
	note   string
}

// setup summarizes the setup of an arm's flows; nil if no flow has an FCT.
func (in Input) setup(arm Arm, fct *Metric) *SetupSummary {
	if fct == nil || fct.P50US <= 0 {
		return nil
	}
	d := metrics.Summarize(arm.items(metric{items: metrics.Setups}))
	out := &SetupSummary{N: d.N, MeanUS: micros(d.Mean), P50US: micros(d.P50), P95US: micros(d.P95), MaxUS: micros(d.Max), Share: metrics.Round6(micros(d.P50) / fct.P50US)}
	if limit := cmp.Or(in.SetupShare, DefaultSetupShare); out.Share > limit {
		out.note = fmt.Sprintf("%s: the median flow setup is %s, %.0f %% of the median FCT (this note appears above %.0f %%). Setup is overhead of the testbed that FCT includes. Larger flows or lower rates reduce its share; \"setup: simultaneous\" in the scenario shortens it.",
			arm.Name, units.Human(d.P50), 100*out.Share, 100*limit)
	}
	return out
}

// setupNotes returns the notes on arms whose setup exceeds the limit.
func (r *Report) setupNotes() (notes []string) {
	for _, a := range r.Summary.Arms {
		if a.Setup != nil && a.Setup.note != "" {
			notes = append(notes, a.Setup.note)
		}
	}
	return notes
}
