package report

import (
	"fmt"
	"io"
	"strconv"

	"testbed/results/metrics"
	"testbed/topo/words"
)

// HeadlineCSV writes one row for each arm and metric: the figures of Summary in its units,
// in columns named as its keys. A void arm has its verdict and no figures. Missing figures
// are empty. The columns are in the package documentation.
func (r *Report) HeadlineCSV(w io.Writer) error {
	c := words.NewCSV(w)
	if err := c.Write(headlineColumns); err != nil {
		return err
	}
	if err := r.headlines(c.Write); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// headlines calls do for each row of HeadlineCSV.
func (r *Report) headlines(do func(row []string) error) error {
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		level := SourceFluidModel
		if a.Verdict != nil {
			level = a.Verdict.String()
		}
		for _, m := range r.in.metrics() {
			f := m.get(a)
			if f == nil && (!a.Void() || !r.measured(m)) {
				continue // nothing was measured
			}
			if err := do(append([]string{a.Name, m.key, level, strconv.Itoa(a.Repeats)}, f.cells()...)); err != nil {
				return err
			}
		}
	}
	return nil
}

var headlineColumns = []string{"arm", "metric", "verdict", "repeats", "n", "mean_us", "p50_us", "p95_us", "p99_us", "min_us", "max_us", "between_repeats",
	"speedup", "pairs", "clusters", "unpaired", "mean_ratio", "mean_ratio_low", "mean_ratio_high", "median", "median_low", "median_high",
	"geo_mean", "geo_mean_low", "geo_mean_high", "fluid_mean_us", "fluid_ratio"}

// cells returns the figures in the order of headlineColumns, from n on.
func (f *Metric) cells() []string {
	out := make([]string, len(headlineColumns)-4)
	if f == nil {
		return out
	}
	next := 0
	add := func(values ...any) {
		for _, v := range values {
			switch v := v.(type) {
			case float64:
				out[next] = strconv.FormatFloat(v, 'f', -1, 64)
			case metrics.Interval: // two cells, empty for none
				if v.Known() {
					out[next], out[next+1] = strconv.FormatFloat(v.Low, 'f', -1, 64), strconv.FormatFloat(v.High, 'f', -1, 64)
				}
				next++
			default:
				out[next] = fmt.Sprint(v)
			}
			next++
		}
	}
	add(f.N, f.MeanUS, f.P50US, f.P95US, f.P99US, f.MinUS, f.MaxUS)
	if f.Repeats != nil {
		add(f.Repeats.Relative)
	} else {
		next++
	}
	if f.Speedup != nil {
		add(*f.Speedup)
	} else {
		next++
	}
	if p := f.Paired; p != nil {
		add(p.Pairs, p.Clusters, p.Unpaired, p.MeanRatio, p.MeanRatioCI, p.Median, p.MedianCI, p.GeoMean, p.GeoMeanCI)
	} else {
		next += 12
	}
	if f.Fluid != nil {
		add(f.Fluid.MeanUS, f.Fluid.Ratio)
	}
	return out
}
