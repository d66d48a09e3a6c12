package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// DefaultFlowTolerance is the default of Input.FlowTolerance.
const DefaultFlowTolerance = 0.05

// earlyMark marks a figure that may be early by more than Input.FlowTolerance.
const earlyMark = "†"

func (in Input) flowTolerance() float64 { return cmp.Or(in.FlowTolerance, DefaultFlowTolerance) }

// shortFlows reports whether a flow's own error is beyond the tolerance.
func (in Input) shortFlows() bool {
	for _, a := range in.Arms {
		for _, rep := range a.Repeats {
			if rep.FlowErrors != nil && rep.FlowErrors.Beyond(rep.Records, in.flowTolerance()) {
				return true
			}
		}
	}
	return false
}

// shortFlowsCheck is the name of the check of repeats whose median flow may be too early.
const shortFlowsCheck = "short-flows"

// judgeShortFlows returns in with the repeats degraded whose median FCT would be larger by more than
// the tolerance if no bucket had been full when a flow started.
func (in Input) judgeShortFlows() Input {
	in.Arms = slices.Clone(in.Arms)
	for i := range in.Arms {
		in.Arms[i].Repeats = slices.Clone(in.Arms[i].Repeats)
		for k := range in.Arms[i].Repeats {
			rep := &in.Arms[i].Repeats[k]
			if rep.FlowErrors == nil || in.FluidModel || rep.Verdict.Level == verdict.Void {
				continue
			}
			is := metrics.Summarize(metrics.FCTs(k, rep.Records)).P50
			was := metrics.Summarize(rep.FlowErrors.Later(k, rep.Records)).P50
			if float64(was-is) <= in.flowTolerance()*float64(was) {
				continue
			}
			early := units.Percent(float64(was-is)/float64(was), 1)
			rep.Verdict.Level = max(rep.Verdict.Level, verdict.Degraded)
			rep.Verdict.Checks = append(slices.Clone(rep.Verdict.Checks), verdict.Check{
				Name: shortFlowsCheck, Level: verdict.Degraded, Value: "median FCT up to " + early + " early",
				Pass: "≤ " + units.Percent(in.flowTolerance(), 0), Void: "-",
				Reason: "the median flow is so short that it passes full token buckets, up to " + early +
					" earlier than links that store and forward: use fabric.link_model: store-and-forward, or larger flows",
			})
		}
	}
	return in
}

// flowErrors returns the errors of the first repeat whose captures state them; nil without one.
func (in Input) flowErrors() *summary.FlowErrorSummary {
	for _, a := range in.Arms {
		for _, rep := range a.Repeats {
			if rep.FlowErrors != nil {
				return &summary.FlowErrorSummary{Tolerance: in.flowTolerance(), Sizes: rep.FlowErrors.Sizes()}
			}
		}
	}
	return nil
}

// markEarly finds the statistics of FCT that would be larger by more than the tolerance if no bucket
// had been full when a flow started.
func (r *Report) markEarly() {
	for i := range r.Summary.Arms {
		f := r.Summary.Arms[i].FCT
		if f == nil {
			continue
		}
		var all, later []metrics.Item
		for k, rep := range r.in.Arms[i].Repeats {
			all = append(all, metrics.FCTs(k, rep.Records)...)
			if rep.FlowErrors != nil {
				later = append(later, rep.FlowErrors.Later(k, rep.Records)...)
			} else {
				later = append(later, metrics.FCTs(k, rep.Records)...)
			}
		}
		is, was := metrics.Summarize(all), metrics.Summarize(later)
		for _, s := range []struct {
			key     string
			is, was time.Duration
		}{{"mean_us", is.Mean, was.Mean}, {"p50_us", is.P50, was.P50}, {"p95_us", is.P95, was.P95}, {"p99_us", is.P99, was.P99}} {
			if float64(s.was-s.is) > r.Summary.FlowErrors.Tolerance*float64(s.was) {
				f.Early = append(f.Early, s.key)
			}
		}
	}
}

// early marks a cell of a statistic that Metric.Early names.
func early(f *summary.Metric, key, cell string) string {
	if slices.Contains(f.Early, key) {
		return cell + earlyMark
	}
	return cell
}

// flowErrorNotes states the errors of short flows below the table of FCT.
func (r *Report) flowErrorNotes() []string {
	e := r.Summary.FlowErrors
	if e == nil || !r.in.shortFlows() {
		return nil
	}
	var paths []string
	for _, p := range []struct {
		where string
		of    func(metrics.SizeError) *float64
	}{{"within a rack ", func(s metrics.SizeError) *float64 { return s.Rack }}, {"across racks ", func(s metrics.SizeError) *float64 { return s.Racks }}} {
		var sizes []string
		for _, s := range e.Sizes {
			if x := p.of(s); x != nil {
				sizes = append(sizes, fmt.Sprintf("%v %s", s.Size, units.Percent(*x, 1)))
			}
		}
		if len(sizes) > 0 {
			paths = append(paths, p.where+strings.Join(sizes, ", "))
		}
	}
	out := []string{"Short flows: on idle links, whose token buckets are full, a flow ends early, relative to links that store and forward each frame: " + strings.Join(paths, "; ") + "."}
	if slices.ContainsFunc(r.Summary.Arms, func(a summary.Arm) bool { return a.FCT != nil && len(a.FCT.Early) > 0 }) {
		out = append(out, fmt.Sprintf("%s: may be early by more than %s, if every flow found its links idle. Larger flows have smaller errors.", earlyMark, units.Percent(e.Tolerance, 0)))
	}
	return out
}
