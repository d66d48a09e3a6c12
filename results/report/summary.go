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

// micros returns d in microseconds; its three decimals are exact.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (in Input) summarize(i int) summary.Arm {
	arm := in.Arms[i]
	s := summary.Arm{Name: arm.Name, Repeats: len(arm.Repeats), Numbers: arm.Numbers, Unmodelled: arm.Unmodelled, Problems: []string{}}
	s.Failures = arm.failures()
	for k, r := range arm.Repeats {
		if !in.FluidModel {
			s.Verdicts = append(s.Verdicts, r.Verdict)
		}
		if !r.Zero.IsZero() {
			s.Zeros = append(s.Zeros, r.Zero)
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
	return metrics.PairBlocks([]metrics.Block{pairs}, seed, in.Noise.Of(m.Key), in.Looks)
}

// Look makes a look at the intervals, and reports whether more repeats are needed.
func (in Input) Look() bool {
	var all []metrics.Seen
	for k, m := range in.metrics() {
		if _, ok := in.Looks.Until[m.Key]; !ok {
			continue
		}
		for i, arm := range in.Arms {
			if !in.comparable(i) {
				continue
			}
			if p := in.paired(i, m, in.Seed+uint64(k)); p.N > 0 {
				all = append(all, metrics.Seen{Arm: arm.Name, Key: m.Key, Paired: p})
			}
		}
	}
	return in.Looks.Look(all)
}

// apart states how the items of the i-th arm differ from those of the baseline, of which no ratio of averages is
// stated then; "" if they do not, or are not compared.
func (in Input) apart(i int, m metric) string {
	base, arm := in.Arms[0], in.Arms[i]
	is, was := arm.items(m), base.items(m)
	both := metrics.Common(was, is)
	if !in.comparable(i) || len(is) == 0 || both == len(was) && both == len(is) {
		return ""
	}
	return fmt.Sprintf("%s completed %d %s and %s %d, of which %d are the same", base.Name, len(was), m.Noun+"s", arm.Name,
		len(is), both)
}

// metric returns the figures of the i-th arm, or nil if nothing was measured.
func (in Input) metric(i int, m metric, seed uint64) *summary.Metric {
	arm, base := in.Arms[i], in.Arms[0]
	items := arm.items(m)
	d := metrics.Summarize(items)
	if d.N == 0 {
		return nil
	}
	out := &summary.Metric{
		N: d.N, MeanUS: micros(d.Mean), P50US: micros(d.P50), P95US: micros(d.P95), P99US: micros(d.P99), MinUS: micros(d.Min), MaxUS: micros(d.Max),
	}
	if n, of := arm.completed(m); n < of {
		out.Of = of
	}
	if s := metrics.SpreadOf(items); s.Repeats > 1 {
		out.Repeats = &summary.RepeatSpread{Repeats: s.Repeats, MinUS: micros(s.Min), MaxUS: micros(s.Max), StdDevUS: micros(s.StdDev), Relative: metrics.Round6(s.Relative)}
	}
	if in.comparable(i) {
		ratio, ok := metrics.Speedup(metrics.Summarize(base.items(m)), d)
		if ok && in.apart(i, m) == "" {
			ratio = metrics.Round6(ratio)
			out.Speedup = &ratio
		}
		if p := in.paired(i, m, seed); p.N > 0 {
			out.Paired = &summary.PairedSpeedup{Pairs: p.N, Clusters: p.Clusters, Unpaired: p.Unpaired, Repeats: p.Repeats, MeanRatio: metrics.Round6(p.MeanRatio), MeanRatioCI: p.MeanRatioCI.Round6(),
				Median: metrics.Round6(p.Median), MedianCI: p.MedianCI.Round6(), GeoMean: metrics.Round6(p.GeoMean), GeoMeanCI: p.GeoMeanCI.Round6()}
		}
	}
	if !in.FluidModel {
		compareFluid(out, arm, m, items)
	}
	return out
}

// compare fills in the fluid model's prediction.
func compareFluid(out *summary.Metric, arm Arm, m metric, items []metrics.Item) {
	type key struct{ repeat, id int }
	predicted := map[key]metrics.Item{}
	for k, r := range arm.Repeats {
		if r.Fluid != nil {
			for _, item := range m.Items(arm.Numbers.Of(k), *r.Fluid) {
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
	out.Fluid = &summary.FluidPrediction{N: f.N, MeanUS: micros(f.Mean), Ratio: metrics.Round6(float64(d.Mean) / float64(f.Mean))}
}

// JSON writes the summary.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r.Summary)
}
