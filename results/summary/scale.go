package summary

import (
	"testbed/results/metrics"
	"testbed/results/verdict"
)

// FlowErrorSummary states by how much flows that have their path to themselves end early,
// because token buckets are full after an idle period.
type FlowErrorSummary struct {
	// Tolerance is the error beyond which Metric.Early names a statistic, relative to the time
	// over links that store and forward.
	Tolerance float64             `json:"tolerance"`
	Sizes     []metrics.SizeError `json:"sizes"`
}

// ScaleCheck reports whether speed-ups depend on the scale of the emulation.
type ScaleCheck struct {
	By       string      `json:"by"` // rates and sizes were divided by it
	RunID    string      `json:"run_id"`
	Outcome  Scaling     `json:"outcome"`
	Reasons  []string    `json:"reasons"` // why the check is inconclusive
	Compared []ScaleMove `json:"compared"`
	// Level is the worst verdict of the scaled half; absent for the fluid model.
	Level *verdict.Level `json:"scaled_verdict,omitempty"`
}

// Scaling is the outcome of a scale check.
type Scaling string

// The outcomes.
const (
	ScaleInvariant    Scaling = "scale-invariant within the interval"
	NotScaleInvariant Scaling = "not scale-invariant"
	ScaleUnknown      Scaling = "nothing is concluded"
)

// ScaleMove is one speed-up relative to the baseline at both scales. Each estimate is a
// value and its 95 % confidence interval; Ratio is Scaled over Full, item by item.
type ScaleMove struct {
	Arm     string           `json:"arm"`
	Metric  string           `json:"metric"`  // "cct" or "write_time"
	Speedup string           `json:"speedup"` // "average", or "paired", the geometric mean
	Pairs   int              `json:"pairs"`   // items that both arms have at both scales
	Full    metrics.Estimate `json:"full"`
	Scaled  metrics.Estimate `json:"scaled"`
	Ratio   metrics.Estimate `json:"ratio"`
	Outcome Scaling          `json:"outcome"`
}

// Worst returns the worst verdict of the scaled half; pass if it has none.
func (c *ScaleCheck) Worst() verdict.Level {
	if c.Level == nil {
		return verdict.Pass
	}
	return *c.Level
}
