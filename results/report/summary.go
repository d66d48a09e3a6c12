package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
)

// Format is the version of Summary. It changes when a key is removed or changes its
// meaning; new keys do not change it.
const Format = 1

// Sources of records.
const (
	SourcePackets    = "packets"
	SourceVirtual    = "packets in virtual time"
	SourceFluidModel = "fluid model"
)

// Sources returns all sources.
func Sources() []string { return []string{SourcePackets, SourceVirtual, SourceFluidModel} }

// Summary is a run's figures, as in summary.json. Times are microseconds.
type Summary struct {
	Format   int          `json:"format"`
	RunID    string       `json:"run_id"`
	Scenario string       `json:"scenario"`
	Source   string       `json:"source"`   // one of Sources
	Baseline string       `json:"baseline"` // the arm that speed-ups are relative to
	Arms     []ArmSummary `json:"arms"`
	// Noise is the run-to-run noise of the machine from a calibration; nil if there is
	// none. See metrics.Noise.
	Noise *metrics.Noise `json:"noise,omitempty"`
	// FlowErrors are the errors of short flows, for packets whose captures state the links' token buckets.
	FlowErrors *FlowErrorSummary `json:"flow_errors,omitempty"`
	// ScaleCheck is present if the run included a scale check.
	ScaleCheck *ScaleCheck `json:"scale_check,omitempty"`
	// Partial is present if the run was cut short.
	Partial *Partial `json:"partial,omitempty"`
	// Looks are the looks at intervals that decided the number of repeats; absent if it was fixed.
	Looks *metrics.Looks `json:"looks,omitempty"`
	// Rows are the numbers of rows of the tables that were written with the summary, by file.
	Rows map[string]int `json:"rows,omitempty"`
}

// ArmSummary is one arm.
type ArmSummary struct {
	Name    string `json:"name"`
	Repeats int    `json:"repeats"`
	// Numbers are those of the repeats; absent if they are 0 to Repeats - 1, as those of a whole run.
	Numbers metrics.Numbers `json:"repeat_numbers,omitempty"`
	// Unmodelled are the keys that the arm changes, if the fluid model knows none of them: nothing is compared then.
	Unmodelled []string `json:"not_modelled,omitempty"`
	// Verdict is the worst of Verdicts, which has one verdict for each repeat in order.
	// Both are absent in summaries of the fluid model, which has no packets to judge.
	Verdict  *verdict.Level    `json:"verdict,omitempty"`
	Verdicts []verdict.Verdict `json:"verdicts,omitempty"`
	// Problems are the problems of the records, each prefixed with its repeat.
	Problems []string `json:"problems"`
	// Failures is absent if nothing failed.
	Failures *FailureCount `json:"failures,omitempty"`
	// The metrics are absent if the verdict is void or nothing was measured.
	CCT       *Metric `json:"cct,omitempty"`
	FCT       *Metric `json:"fct,omitempty"`
	WriteTime *Metric `json:"write_time,omitempty"`
	// The following need a record of which blocks belong together: see metrics.WorkloadMeta.
	RequestTime *Metric            `json:"request_time,omitempty"`
	JobTime     *Metric            `json:"job_time,omitempty"`
	JobBins     map[string]*Metric `json:"job_time_by_bin,omitempty"`   // by number
	JobSizes    map[string]*Metric `json:"job_time_by_tasks,omitempty"` // by the least number of tasks of the class
	summary.Arm
}

// Void reports whether the arm's figures are withheld.
func (a ArmSummary) Void() bool { return a.Verdict != nil && *a.Verdict == verdict.Void }

// Metric is the distribution of one completion time over the items of all
// repeats of an arm.
type Metric struct {
	N int `json:"n"`
	// Of is the number of items that completed, if some of them have no record.
	Of      int              `json:"of,omitempty"`
	MeanUS  float64          `json:"mean_us"`
	P50US   float64          `json:"p50_us"`
	P95US   float64          `json:"p95_us"`
	P99US   float64          `json:"p99_us"`
	MinUS   float64          `json:"min_us"`
	MaxUS   float64          `json:"max_us"`
	Repeats *RepeatSpread    `json:"between_repeats,omitempty"` // with two repeats or more
	Speedup *float64         `json:"speedup,omitempty"`         // ratio of averages, relative to the baseline
	Paired  *PairedSpeedup   `json:"paired,omitempty"`          // item by item, relative to the baseline
	Fluid   *FluidPrediction `json:"fluid,omitempty"`
	// Early names the statistics of FCT that may be early by more than FlowErrorSummary.Tolerance.
	Early []string `json:"early,omitempty"`
	// apart states how the items differ from those of the baseline; "" if they do not. There is no
	// Speedup then.
	apart string
	mean  time.Duration
	p50   time.Duration
	p95   time.Duration
	p99   time.Duration
	fluid time.Duration
}

// RepeatSpread is the spread of the repeats' averages.
type RepeatSpread struct {
	Repeats  int     `json:"repeats"`
	MinUS    float64 `json:"min_us"`
	MaxUS    float64 `json:"max_us"`
	StdDevUS float64 `json:"std_dev_us"` // sample standard deviation
	Relative float64 `json:"relative"`   // std_dev_us over the mean of the averages
}

// PairedSpeedup is the ratio of the baseline's time to the arm's for the same
// item. Intervals are [low, high] at 95 %, over clusters and repeats, and null with fewer
// than metrics.LeastPairs clusters.
type PairedSpeedup struct {
	Pairs    int `json:"pairs"`
	Clusters int `json:"clusters"` // independent groups of pairs: repeats of an item, flows of a coflow, blocks of a client
	Unpaired int `json:"unpaired"` // items that only one of the arms has
	Repeats  int `json:"repeats"`  // that have pairs
	// MeanRatio is the ratio of the averages over the pairs.
	MeanRatio   float64          `json:"mean_ratio"`
	MeanRatioCI metrics.Interval `json:"mean_ratio_ci"`
	Median      float64          `json:"median"`
	MedianCI    metrics.Interval `json:"median_ci"`
	GeoMean     float64          `json:"geo_mean"`
	GeoMeanCI   metrics.Interval `json:"geo_mean_ci"`
}

// UnmarshalJSON reads a paired speed-up. It drops intervals of too few clusters, which
// older versions wrote.
func (p *PairedSpeedup) UnmarshalJSON(data []byte) error {
	type plain PairedSpeedup
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	if p.Clusters < metrics.LeastPairs {
		p.MeanRatioCI, p.MedianCI, p.GeoMeanCI = metrics.Interval{}, metrics.Interval{}, metrics.Interval{}
	}
	return nil
}

// String returns the geometric mean with its interval, or with metrics.FewPairsMark.
func (p *PairedSpeedup) String() string { return p.estimate().String() }

// estimate returns the geometric mean.
func (p *PairedSpeedup) estimate() metrics.Estimate {
	return metrics.Estimate{Value: p.GeoMean, CI: p.GeoMeanCI}
}

// FluidPrediction compares the arm with the fluid model, for the items that both have.
type FluidPrediction struct {
	N      int     `json:"n"`
	MeanUS float64 `json:"mean_us"`
	Ratio  float64 `json:"ratio"` // measured average over predicted average
	// Explained is the ratio that set-up, retransmission, latency and resent packets explain, and Note
	// states the likeliest cause if Ratio is outside it by more than Input.FluidMargin. Only for CCT.
	Explained float64 `json:"explained,omitempty"`
	Note      string  `json:"note,omitempty"`
}

// micros returns d in microseconds; its three decimals are exact.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (in Input) summarize(i int) ArmSummary {
	arm := in.Arms[i]
	s := ArmSummary{Name: arm.Name, Repeats: len(arm.Repeats), Numbers: arm.Numbers, Unmodelled: arm.Unmodelled, Problems: []string{}, Failures: arm.failures()}
	for k, r := range arm.Repeats {
		if !in.FluidModel {
			s.Verdicts = append(s.Verdicts, r.Verdict)
		}
		for _, p := range r.Records.Problems {
			s.Problems = append(s.Problems, fmt.Sprintf("repeat %d: %s", arm.Numbers.Of(k), p))
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
	s.Compute(arm.Repeats, arm.Numbers, !in.FluidModel, in.linkInterval())
	return s
}

// comparable reports whether the i-th arm is compared with the baseline.
func (in Input) comparable(i int) bool {
	void := func(a Arm) bool { return !in.FluidModel && a.level() == verdict.Void }
	return i > 0 && len(in.Arms[i].Unmodelled) == 0 && !void(in.Arms[0]) && !void(in.Arms[i])
}

// paired compares the i-th arm with the baseline, item by item.
func (in Input) paired(i int, m metric, seed uint64) metrics.Paired {
	pairs := metrics.Block{Base: in.Arms[0].items(m), Arm: in.Arms[i].items(m)}
	return metrics.PairBlocks([]metrics.Block{pairs}, seed, in.Noise.Of(m.key), in.Looks)
}

// Look makes a look at the intervals, and reports whether more repeats are needed.
func (in Input) Look() bool {
	var all []metrics.Seen
	for k, m := range in.metrics() {
		if _, ok := in.Looks.Until[m.key]; !ok {
			continue
		}
		for i, arm := range in.Arms {
			if !in.comparable(i) {
				continue
			}
			if p := in.paired(i, m, in.Seed+uint64(k)); p.N > 0 {
				all = append(all, metrics.Seen{Arm: arm.Name, Key: m.key, Paired: p})
			}
		}
	}
	return in.Looks.Look(all)
}

// metric returns the figures of the i-th arm, or nil if nothing was measured.
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
	if n, of := arm.completed(m); n < of {
		out.Of = of
	}
	if s := metrics.SpreadOf(items); s.Repeats > 1 {
		out.Repeats = &RepeatSpread{Repeats: s.Repeats, MinUS: micros(s.Min), MaxUS: micros(s.Max), StdDevUS: micros(s.StdDev), Relative: metrics.Round6(s.Relative)}
	}
	if in.comparable(i) {
		baseline := base.items(m)
		if both := metrics.Common(baseline, items); both != len(baseline) || both != len(items) {
			out.apart = fmt.Sprintf("%s completed %d %s and %s %d, of which %d are the same", base.Name, len(baseline), m.noun, arm.Name, len(items), both)
		} else if ratio, ok := metrics.Speedup(metrics.Summarize(baseline), d); ok {
			ratio = metrics.Round6(ratio)
			out.Speedup = &ratio
		}
		if p := in.paired(i, m, seed); p.N > 0 {
			out.Paired = &PairedSpeedup{Pairs: p.N, Clusters: p.Clusters, Unpaired: p.Unpaired, Repeats: p.Repeats, MeanRatio: metrics.Round6(p.MeanRatio), MeanRatioCI: p.MeanRatioCI.Round6(),
				Median: metrics.Round6(p.Median), MedianCI: p.MedianCI.Round6(), GeoMean: metrics.Round6(p.GeoMean), GeoMeanCI: p.GeoMeanCI.Round6()}
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
			for _, item := range m.items(arm.Numbers.Of(k), *r.Fluid) {
				predicted[key{item.Repeat, item.ID}] = item
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
	out.Fluid = &FluidPrediction{N: f.N, MeanUS: micros(f.Mean), Ratio: metrics.Round6(float64(d.Mean) / float64(f.Mean))}
}

// JSON writes the summary.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r.Summary)
}
