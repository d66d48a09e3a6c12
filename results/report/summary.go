package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"testbed/results/metrics"
	"testbed/results/verdict"
)

// Format is the version of Summary. It changes when a key changes its meaning or
// goes; new keys may come without.
const Format = 1

// Sources of records.
const (
	SourcePackets    = "packets"
	SourceFluidModel = "fluid model"
)

// Summary is a run's figures, as in summary.json. Times are microseconds.
type Summary struct {
	Format   int          `json:"format"`
	RunID    string       `json:"run_id"`
	Scenario string       `json:"scenario"`
	Source   string       `json:"source"`   // "packets" or "fluid model"
	Baseline string       `json:"baseline"` // the arm that speed-ups are over
	Arms     []ArmSummary `json:"arms"`
	// ScaleCheck is there where the run was asked for one.
	ScaleCheck *ScaleCheck `json:"scale_check,omitempty"`
	// Partial is there where the run was cut short.
	Partial *Partial `json:"partial,omitempty"`
}

// ArmSummary is one arm.
type ArmSummary struct {
	Name    string `json:"name"`
	Repeats int    `json:"repeats"`
	// Verdict is the worst of Verdicts, which are of the repeats in order. Both
	// are absent from the fluid model's summaries, which have no packets to judge.
	Verdict  *verdict.Level    `json:"verdict,omitempty"`
	Verdicts []verdict.Verdict `json:"verdicts,omitempty"`
	// Problems are the records' own, with the repeat in front.
	Problems []string `json:"problems"`
	// Failures are absent where nothing failed.
	Failures *FailureCount `json:"failures,omitempty"`
	// The metrics are absent where the verdict is void or nothing was measured.
	CCT       *Metric `json:"cct,omitempty"`
	FCT       *Metric `json:"fct,omitempty"`
	WriteTime *Metric `json:"write_time,omitempty"`
	// Where it is known which blocks belong together, and of what: see metrics.Asked.
	RequestTime *Metric             `json:"request_time,omitempty"`
	JobTime     *Metric             `json:"job_time,omitempty"`
	JobBins     map[string]*Metric  `json:"job_time_by_bin,omitempty"` // by number
	Placement   *PlacementSummary   `json:"placement,omitempty"`       // of runs with blocks
	Coordinator *CoordinatorSummary `json:"coordinator,omitempty"`     // where there is a record
	// Of packets, where the captures state the fabric, and of arms that are not void:
	Time           *TimeSummary    `json:"time,omitempty"`
	Traffic        *TrafficSummary `json:"traffic,omitempty"`
	Links          *LinkSummary    `json:"links,omitempty"`
	MedianSlowdown *float64        `json:"median_slowdown,omitempty"` // of CCT over what the coflow takes alone
}

// Void tells whether the arm may show no figure.
func (a ArmSummary) Void() bool { return a.Verdict != nil && *a.Verdict == verdict.Void }

// Metric is the distribution of one completion time over the items of all
// repeats of an arm.
type Metric struct {
	N       int              `json:"n"`
	MeanUS  float64          `json:"mean_us"`
	P50US   float64          `json:"p50_us"`
	P95US   float64          `json:"p95_us"`
	P99US   float64          `json:"p99_us"`
	MinUS   float64          `json:"min_us"`
	MaxUS   float64          `json:"max_us"`
	Repeats *RepeatSpread    `json:"between_repeats,omitempty"` // of two repeats or more
	Speedup *float64         `json:"speedup,omitempty"`         // of averages, over the baseline
	Paired  *PairedSpeedup   `json:"paired,omitempty"`          // item by item, over the baseline
	Fluid   *FluidPrediction `json:"fluid,omitempty"`
	mean    time.Duration
	p50     time.Duration
	p95     time.Duration
	p99     time.Duration
	fluid   time.Duration
}

// RepeatSpread is how far the averages of repeats lie apart.
type RepeatSpread struct {
	Repeats  int     `json:"repeats"`
	MinUS    float64 `json:"min_us"`
	MaxUS    float64 `json:"max_us"`
	StdDevUS float64 `json:"std_dev_us"` // of the sample
	Relative float64 `json:"relative"`   // std_dev over the mean of the averages
}

// PairedSpeedup is the ratio of the baseline's time to the arm's for the same
// item. Intervals are [low, high] at 95 %, by a bootstrap over the
// clusters.
type PairedSpeedup struct {
	Pairs    int `json:"pairs"`
	Clusters int `json:"clusters"` // of pairs, drawn as one: repeats of an item, flows of a coflow, blocks of a client
	Unpaired int `json:"unpaired"` // items that only one of the arms has
	// MeanRatio is the ratio of the averages over the pairs.
	MeanRatio   float64    `json:"mean_ratio"`
	MeanRatioCI [2]float64 `json:"mean_ratio_ci"`
	Median      float64    `json:"median"`
	MedianCI    [2]float64 `json:"median_ci"`
	GeoMean     float64    `json:"geo_mean"`
	GeoMeanCI   [2]float64 `json:"geo_mean_ci"`
}

// FluidPrediction compares with the fluid model, over the items that both have.
type FluidPrediction struct {
	N      int     `json:"n"`
	MeanUS float64 `json:"mean_us"`
	Ratio  float64 `json:"ratio"` // measured average over predicted average
}

// micros is d in microseconds; its three decimals are exact.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// round6 keeps figures that come from exp and log the same on every machine.
func round6(x float64) float64 { return math.Round(x*1e6) / 1e6 }

func (in Input) summarize(i int) ArmSummary {
	arm := in.Arms[i]
	s := ArmSummary{Name: arm.Name, Repeats: len(arm.Repeats), Problems: []string{}, Failures: arm.failures()}
	for k, r := range arm.Repeats {
		if !in.FluidModel {
			s.Verdicts = append(s.Verdicts, r.Verdict)
		}
		for _, p := range r.Records.Problems {
			s.Problems = append(s.Problems, fmt.Sprintf("repeat %d: %s", k, p))
		}
	}
	if !in.FluidModel {
		level := arm.level()
		s.Verdict = &level
	}
	if s.Void() {
		return s
	}
	for k, m := range in.metrics() {
		m.set(&s, in.metric(i, m, in.Seed+uint64(k)))
	}
	s.Placement = in.placement(i)
	s.Coordinator = in.coordinator(arm)
	if !in.FluidModel {
		in.summarizeTiming(&s, arm)
	}
	return s
}

// metric is the i-th arm's figures, or nil where nothing was measured.
func (in Input) metric(i int, m metric, seed uint64) *Metric {
	arm, base := in.Arms[i], in.Arms[0]
	items := arm.items(m)
	d := metrics.Summarize(items)
	if d.N == 0 {
		return nil
	}
	out := &Metric{
		N: d.N, MeanUS: micros(d.Mean), P50US: micros(d.P50), P95US: micros(d.P95), P99US: micros(d.P99), MinUS: micros(d.Min), MaxUS: micros(d.Max),
		mean: d.Mean, p50: d.P50, p95: d.P95, p99: d.P99,
	}
	if s := metrics.SpreadOf(items); s.Repeats > 1 {
		out.Repeats = &RepeatSpread{Repeats: s.Repeats, MinUS: micros(s.Min), MaxUS: micros(s.Max), StdDevUS: micros(s.StdDev), Relative: round6(s.Relative)}
	}
	if i > 0 && (in.FluidModel || base.level() != verdict.Void) {
		baseline := base.items(m)
		if ratio, ok := metrics.Speedup(metrics.Summarize(baseline), d); ok {
			ratio = round6(ratio)
			out.Speedup = &ratio
		}
		if p := metrics.Pair(baseline, items, seed); p.N > 0 {
			ci := func(v metrics.Interval) [2]float64 { return [2]float64{round6(v.Low), round6(v.High)} }
			out.Paired = &PairedSpeedup{Pairs: p.N, Clusters: p.Clusters, Unpaired: p.Unpaired, MeanRatio: round6(p.MeanRatio), MeanRatioCI: ci(p.MeanRatioCI), Median: round6(p.Median), MedianCI: ci(p.MedianCI), GeoMean: round6(p.GeoMean), GeoMeanCI: ci(p.GeoMeanCI)}
		}
	}
	if !in.FluidModel {
		out.compare(arm, m, items)
	}
	return out
}

// compare fills in the fluid model's prediction.
func (out *Metric) compare(arm Arm, m metric, items []metrics.Item) {
	type key struct{ repeat, id int }
	predicted := map[key]metrics.Item{}
	for k, r := range arm.Repeats {
		if r.Fluid != nil {
			for _, item := range m.items(k, *r.Fluid) {
				predicted[key{k, item.ID}] = item
			}
		}
	}
	var fluid, measured []metrics.Item
	for _, item := range items {
		if p, ok := predicted[key{item.Repeat, item.ID}]; ok {
			fluid, measured = append(fluid, p), append(measured, item)
		}
	}
	f, d := metrics.Summarize(fluid), metrics.Summarize(measured)
	if f.N == 0 || f.Mean <= 0 {
		return
	}
	out.fluid = f.Mean
	out.Fluid = &FluidPrediction{N: f.N, MeanUS: micros(f.Mean), Ratio: round6(float64(d.Mean) / float64(f.Mean))}
}

// JSON writes the summary.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r.Summary)
}
