package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"testbed/emu/calibration"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/safefile"
)

// Bounds of the number of pairs of a noise calibration, and its default, with which a false
// positive rate of 5 % is known to within about 10 %.
const (
	DefaultNoisePairs = 40
	LeastNoisePairs   = metrics.LeastPairs
	MostNoisePairs    = 1000
)

// mostVoid bounds the pairs that are run again because one of their runs was void, relative
// to the requested pairs.
const mostVoid = 1

// noiseTrace has 12 coflows of 83 flows, which arrive within 1.1 s. Their widths vary by a
// factor of 18 and their sizes by a factor of 17, as in clusters.
const noiseTrace = `12 12
1 0 4 8 3 0 1 1 6:0.128
2 100 6 8 6 0 1 3 5 3 10:0.217 4:0.364 9:0.105
3 200 3 4 8 2 2 1:0.087 3:0.036
4 300 2 6 5 4 7:0.069 9:0.16 10:0.061 2:0.071
5 400 2 9 1 2 10:0.066 8:0.041
6 500 2 0 10 3 1:0.075 8:0.103 5:0.037
7 600 3 1 0 4 3 7:0.08 9:0.038 5:0.077
8 700 2 0 3 1 4:0.053
9 800 1 6 2 7:0.035 1:0.052
10 900 1 6 4 8:0.111 4:0.05 11:0.02 5:0.04
11 1000 2 2 6 2 8:0.131 5:0.192
12 1100 4 10 8 6 9 4 11:0.181 3:0.07 0:0.074 7:0.123
`

// noiseScenario has two identical arms of about two seconds each. The seed is the pair's.
const noiseScenario = `name: noise
fabric: {leaves: 3, spines: 1, hosts_per_leaf: 4, host_link: 10Mbps, oversubscription: "2:1"}
disk: {write: 600KB/s, size: 64MB}
workload:
  - {kind: trace, path: noise.txt, mb: MB}
  - {kind: writers, count: 8, blocks: 2, block: 128KB, replicas: 2, packet: 8KB, window: 1, spread: 600ms}
arms:
  - {name: first, coflow: fair, placement: hdfs}
  - {name: second, coflow: fair, placement: hdfs}
seed: %d
`

// NoiseOptions state how the noise from run to run is measured.
type NoiseOptions struct {
	Pairs     int    // disjoint pairs of identical runs; 0 is DefaultNoisePairs
	Dir       string // for run directories, "" is "."
	StateRoot string // of emu/deploy
	Version   string // of the tool
	// Calibration is the machine's, which sets the buckets of links; nil is the defaults.
	Calibration *calibration.Calibration
	// Progress is called with the current measurement and the fraction of the whole that is
	// done, 0 to 1; it may be nil.
	Progress func(what string, done float64)
}

// Check reports what is wrong with the options.
func (o NoiseOptions) Check() error {
	if o.Pairs != 0 && (o.Pairs < LeastNoisePairs || o.Pairs > MostNoisePairs) {
		return fmt.Errorf("%d pairs: must be %d to %d", o.Pairs, LeastNoisePairs, MostNoisePairs)
	}
	return nil
}

// Noise runs pairs of identical runs on packets and measures their difference, and how
// often the intervals of reports call it significant. It needs root. A pair with a void
// run is run again with another seed; too many of them are an error. The error of an
// interrupted measurement wraps the context's cause.
func Noise(ctx context.Context, o NoiseOptions) (_ *calibration.Noise, err error) {
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("calibrate noise: %w", err)
	}
	if o.Pairs == 0 {
		o.Pairs = DefaultNoisePairs
	}
	start := time.Now()
	m := &machine{o: Options{Dir: o.Dir, StateRoot: o.StateRoot, Version: o.Version}.withDefaults(), c: &calibration.Calibration{}}
	if err := m.own(ctx); err != nil {
		return nil, fmt.Errorf("calibrate noise: %w", err)
	}
	defer func() { err = errors.Join(err, m.leave(ctx)) }()
	var pairs []noisePair
	void, why := 0, ""
	for len(pairs) < o.Pairs {
		if o.Progress != nil {
			text := fmt.Sprintf("noise, pair %d of %d", len(pairs)+1, o.Pairs)
			if void > 0 {
				text += fmt.Sprintf(", %d void", void)
			}
			o.Progress(text, float64(len(pairs))/float64(o.Pairs))
		}
		p, reason, err := m.noisePair(ctx, uint64(len(pairs)+void+1), o.Calibration)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("calibrate noise: %w", context.Cause(ctx))
		}
		if err != nil {
			return nil, fmt.Errorf("calibrate noise, pair %d: %w", len(pairs)+1, err)
		}
		if reason != "" {
			void, why = void+1, reason
			if void > mostVoid*o.Pairs {
				return nil, fmt.Errorf("calibrate noise: %d of %d pairs have a void run, the last because %s: the machine is too busy (run again on a quiet machine)", void, void+len(pairs), why)
			}
			continue
		}
		pairs = append(pairs, p)
	}
	out := judgeNoise(pairs)
	out.Date, out.Void, out.Took = start.UTC().Truncate(time.Second), void, time.Since(start).Round(100*time.Millisecond)
	return out, nil
}

// noiseMetrics are the completion times whose noise is measured, by their keys.
var noiseMetrics = []string{"cct", "fct", "write_time", "request_time"}

// noisePair holds the items of two identical runs, by metric.
type noisePair map[string][2][]metrics.Item

// noisePair runs a pair; void is the reason why it does not count, empty if it does.
func (m *machine) noisePair(ctx context.Context, seed uint64, c *calibration.Calibration) (_ noisePair, void string, err error) {
	if err := safefile.WriteData(filepath.Join(m.dir, "noise.txt"), []byte(noiseTrace)); err != nil {
		return nil, "", err
	}
	s, err := scenario.Parse(filepath.Join(m.dir, "noise.yaml"), fmt.Appendf(nil, noiseScenario, seed), scenario.Options{Catalog: catalog.All()})
	if err != nil {
		return nil, "", err
	}
	dir := filepath.Join(m.dir, "runs")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out, err := runner.Execute(ctx, s, runner.Options{Out: dir, StateRoot: m.o.StateRoot, Version: m.o.Version, Calibration: c})
	if err != nil {
		return nil, "", err
	}
	for _, a := range out.Report.Summary.Arms {
		if a.Void() {
			return nil, notPassed(out), nil
		}
	}
	r, err := rundir.Open(out.Dir)
	if err != nil {
		return nil, "", err
	}
	p := noisePair{}
	for _, key := range noiseMetrics {
		p[key] = [2][]metrics.Item{r.Times(key, "first"), r.Times(key, "second")}
	}
	return p, "", nil
}

// noiseStatistics are the statistics of a pairing that reports print.
var noiseStatistics = []struct {
	key       string
	of        func(metrics.Paired) (float64, metrics.Interval)
	deviation func(*metrics.Deviations) *float64
}{
	{"mean_ratio", func(p metrics.Paired) (float64, metrics.Interval) { return p.MeanRatio, p.MeanRatioCI }, func(d *metrics.Deviations) *float64 { return &d.MeanRatio }},
	{"median", func(p metrics.Paired) (float64, metrics.Interval) { return p.Median, p.MedianCI }, func(d *metrics.Deviations) *float64 { return &d.Median }},
	{"geo_mean", func(p metrics.Paired) (float64, metrics.Interval) { return p.GeoMean, p.GeoMeanCI }, func(d *metrics.Deviations) *float64 { return &d.GeoMean }},
}

// judgeNoise computes all figures of pairs, which must not be empty.
func judgeNoise(pairs []noisePair) *calibration.Noise {
	out := &calibration.Noise{Noise: metrics.Noise{Pairs: len(pairs), Total: map[string]metrics.Deviations{}, Between: map[string]metrics.Deviations{}}}
	for _, key := range noiseMetrics {
		pair := func(i int, noise *metrics.Deviations) metrics.Paired {
			return metrics.Pair(pairs[i][key][0], pairs[i][key][1], uint64(i), noise)
		}
		alone := make([]metrics.Paired, len(pairs))
		var halves [2][]metrics.Paired
		for i := range pairs {
			alone[i] = pair(i, nil)
			halves[i%2] = append(halves[i%2], alone[i])
		}
		total, between := noiseOf(alone)
		out.Total[key], out.Between[key] = total, between
		var other [2]metrics.Deviations
		for i := range other {
			_, other[i] = noiseOf(halves[1-i])
		}
		widened := make([]metrics.Paired, len(pairs))
		for i := range pairs {
			widened[i] = pair(i, &other[i%2])
		}
		for _, s := range noiseStatistics {
			out.Figures = append(out.Figures, calibration.FalsePositives{Metric: key, Statistic: s.key, Pairs: len(pairs),
				Alone: shareOf(alone, s.of), Widened: shareOf(widened, s.of), Deviation: *s.deviation(&total), Between: *s.deviation(&between)})
		}
	}
	return out
}

// noiseOf returns the standard deviation of the logarithm of each statistic about 0, its
// value for identical runs, and the part that its standard errors do not explain.
func noiseOf(pairs []metrics.Paired) (total, between metrics.Deviations) {
	for _, s := range noiseStatistics {
		var squares, within []float64
		for _, p := range pairs {
			v, _ := s.of(p)
			e := *s.deviation(&p.Errors)
			squares, within = append(squares, math.Pow(math.Log(v), 2)), append(within, e*e)
		}
		*s.deviation(&total) = math.Sqrt(stat.Mean(squares, nil))
		*s.deviation(&between) = math.Sqrt(unexplained(squares, within))
	}
	return total, between
}

// unexplained returns the variance that, added to the variances within pairs, makes the
// average of the squares divided by their variances 1 (Paule and Mandel, Journal of
// Research of the National Bureau of Standards 87, 1982). A pair with a timeout has a large
// variance and little weight.
func unexplained(squares, within []float64) float64 {
	excess := func(between float64) float64 { // falls as between grows
		var sum float64
		for i, v := range squares {
			if x := within[i] + between; v > 0 {
				sum += v / x
			}
		}
		return sum - float64(len(squares))
	}
	low, high := 0.0, slices.Max(squares)
	if !(excess(low) > 0) {
		return 0
	}
	for range 60 {
		if middle := (low + high) / 2; excess(middle) > 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// shareOf counts the intervals that exclude 1.
func shareOf(pairs []metrics.Paired, of func(metrics.Paired) (float64, metrics.Interval)) calibration.Share {
	var out calibration.Share
	var widths []float64
	for _, p := range pairs {
		_, ci := of(p)
		if !ci.Holds(1) {
			out.Excluded++
		}
		if ci.Known() {
			widths = append(widths, math.Log(ci.High/ci.Low)/2)
		}
	}
	slices.Sort(widths)
	if len(widths) > 0 {
		out.Width = metrics.Quantile(0.5, widths)
	}
	out.Rate, out.CI = float64(out.Excluded)/float64(len(pairs)), binomial(out.Excluded, len(pairs))
	return out
}

// binomial returns the 95 % interval of a share, k of n (Clopper and Pearson, Biometrika
// 26, 1934).
func binomial(k, n int) [2]float64 {
	ci := [2]float64{0, 1}
	if k > 0 {
		ci[0] = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(0.025)
	}
	if k < n {
		ci[1] = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(0.975)
	}
	return ci
}
