package summary

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"testbed/results/metrics"
)

// Metric is the distribution of one completion time over the items of all
// repeats of an arm.
type Metric struct {
	N       int              `json:"n" csv:"n" column:"n"`
	Of      int              `json:"of,omitempty"`
	MeanUS  float64          `json:"mean_us" csv:"mean_us" column:"mean_us"`
	P50US   float64          `json:"p50_us" csv:"p50_us" column:"p50_us"`
	P95US   float64          `json:"p95_us" csv:"p95_us" column:"p95_us"`
	P99US   float64          `json:"p99_us" csv:"p99_us" column:"p99_us"`
	MinUS   float64          `json:"min_us" csv:"min_us" column:"min_us"`
	MaxUS   float64          `json:"max_us" csv:"max_us" column:"max_us"`
	Repeats *RepeatSpread    `json:"between_repeats,omitempty"`
	Speedup *float64         `json:"speedup,omitempty" unit:"times" csv:"speedup" column:"speedup"`
	Paired  *PairedSpeedup   `json:"paired,omitempty"`
	Fluid   *FluidPrediction `json:"fluid,omitempty"`
	Early   []string         `json:"early,omitempty"`
}

// Metric returns the field of a completion time, by its key (metrics.Times).
func (a *Declared) Metric(key string) **Metric {
	v := reflect.ValueOf(a).Elem()
	for field, at := range v.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == key {
			return at.Addr().Interface().(**Metric)
		}
	}
	panic("no field of summary.Declared has the key " + key)
}

// TimeColumns returns the figures of a Metric that tables of completion times have, in the order of their columns.
func TimeColumns() (out []*Figure) {
	for _, f := range declared().times {
		if f.CSV != "" {
			out = append(out, f)
		}
	}
	return out
}

// Cells returns the values of TimeColumns; "" for unknown ones, which are all of a nil Metric.
func (m *Metric) Cells() (out []string) {
	for _, f := range TimeColumns() {
		cell := ""
		if m != nil {
			if x, ok := f.In(reflect.ValueOf(m).Elem()); ok {
				cell = strconv.FormatFloat(x, 'f', -1, 64)
			}
		}
		out = append(out, cell)
	}
	return out
}

// RepeatSpread is the spread of the repeats' averages, with two repeats or more.
type RepeatSpread struct {
	Repeats  int     `json:"repeats"`
	MinUS    float64 `json:"min_us"`
	MaxUS    float64 `json:"max_us"`
	StdDevUS float64 `json:"std_dev_us"`
	Relative float64 `json:"relative" unit:"share" csv:"between_repeats"`
}

// PairedSpeedup is the ratio of the baseline's time to the arm's for the same item. Intervals are those of 95 %, over
// clusters and repeats, and null with fewer than metrics.LeastPairs clusters.
type PairedSpeedup struct {
	Pairs       int              `json:"pairs" csv:"pairs"`
	Clusters    int              `json:"clusters" csv:"clusters"`
	Unpaired    int              `json:"unpaired" csv:"unpaired"`
	Repeats     int              `json:"repeats"`
	MeanRatio   float64          `json:"mean_ratio" unit:"times" csv:"mean_ratio"`
	MeanRatioCI metrics.Interval `json:"mean_ratio_ci" unit:"times" csv:"mean_ratio"`
	Median      float64          `json:"median" unit:"times" csv:"median"`
	MedianCI    metrics.Interval `json:"median_ci" unit:"times" csv:"median"`
	GeoMean     float64          `json:"geo_mean" unit:"times" csv:"geo_mean" column:"paired"`
	GeoMeanCI   metrics.Interval `json:"geo_mean_ci" unit:"times" csv:"geo_mean" column:"paired"`
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
func (p *PairedSpeedup) String() string { return p.Estimate().String() }

// Estimate returns the geometric mean.
func (p *PairedSpeedup) Estimate() metrics.Estimate {
	return metrics.Estimate{Value: p.GeoMean, CI: p.GeoMeanCI}
}

// FluidPrediction compares the arm with the fluid model, for the items that both have.
type FluidPrediction struct {
	N         int     `json:"n"`
	MeanUS    float64 `json:"mean_us" csv:"fluid_mean_us"`
	Ratio     float64 `json:"ratio" unit:"times" csv:"fluid_ratio"`
	Explained float64 `json:"explained,omitempty" unit:"times"`
	Note      string  `json:"note,omitempty"`
}
