package suite

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"testbed/emu/runner"
	"testbed/results/compare"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/tracestats"
	"testbed/workloads"
)

// figure is a statistic of a quantity of an arm, or its relation to another arm.
type figure struct {
	name, title string // in the file
	of          *quantity
	as          string
	statistic   string // mean, median, max, deviation, geo-mean or a percentile such as p75
	quantile    float64
	base, arm   string // "" for those of the pair
	over        string // "", or what takes the place of the base: overFirst or overFluid
	exact       bool   // needs no interval
	// Filters of jobs and coflows, and of attempts.
	profiles            []string
	leastTasks          int
	mostTasks, mostMaps int
	bin                 string
	allRun              bool
	estimate            string
}

// relation is a way to compare an arm with its base.
type relation struct {
	name, unit, doc string
	of              func(arm, base float64) float64 // nil if it needs other figures than one of each arm
}

// relations are the values of the key as.
var relations = []relation{
	{"value", "", "the figure of the arm alone", nil},
	{"base", "", "the figure of the base alone", nil},
	{"ratio", "×", "arm over base", func(arm, base float64) float64 { return arm / base }},
	{"speedup", "×", "base over arm", func(arm, base float64) float64 { return base / arm }},
	{"saved", "%", "what the arm saves of the base", func(arm, base float64) float64 { return 100 * (1 - arm/base) }},
	{"added", "%", "what the arm has more than the base", func(arm, base float64) float64 { return 100 * (arm/base - 1) }},
	{"drop", "", "base minus arm", func(arm, base float64) float64 { return base - arm }},
	{"paired", "×", "base over arm, with an interval over pairs of jobs; the jobs of each repeat are others", nil},
	{"compared", "×", "base over arm with the interval that testbed compare prints, over pairs of items", nil},
	{"difference", "", "largest difference to the references of the variants", nil},
}

func relationOf(name string) *relation {
	i := slices.IndexFunc(relations, func(r relation) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &relations[i]
}

// What takes the place of the base with the key over.
const (
	overFirst = "first variant"
	overFluid = "fluid model"
)

// unit returns the unit of a figure.
func (f *figure) unit() string {
	if unit := relationOf(f.as).unit; unit != "" {
		return unit
	}
	return f.of.unit
}

// heading returns the title of a figure in tables.
func (f *figure) heading() string { return cmp.Or(f.title, strings.ReplaceAll(f.name, "_", " ")) }

// isStatistic reports whether text names a statistic, and sets it.
func (f *figure) isStatistic(text string) bool {
	f.statistic = text
	if p, ok := strings.CutPrefix(text, "p"); ok {
		n, err := strconv.Atoi(p)
		f.quantile = float64(n) / 100
		return err == nil && n > 0 && n < 100
	}
	return slices.Contains([]string{"mean", "median", "max", "deviation", "geo-mean"}, text)
}

// result is a measured figure; none if there is no such figure, as in a void arm.
type result struct {
	metrics.Estimate
	exact, none bool
}

var none = result{none: true}

func exactly(x float64) result {
	return result{Estimate: metrics.Estimate{Value: x}, exact: true, none: math.IsNaN(x) || math.IsInf(x, 0)}
}

// overRepeats returns the average of values by repeat.
func overRepeats(values []float64) result {
	r := exactly(metrics.OverRepeats(values).Value)
	if r.none || len(values) == 0 {
		return none
	}
	return result{Estimate: metrics.OverRepeats(values)}
}

// text formats a result in a table.
func (r result) text(unit string) string {
	if r.none {
		return "–"
	}
	m := Measurement{Value: r.Value, CI: r.CI, Exact: r.exact}
	return m.text(unit)
}

// measure evaluates a figure of runs that are evaluated together. With over, others are the runs that take the place
// of those of the base, with the same arm.
func (f *figure) measure(runs, others []*rundir.Run, base, arm string) (result, error) {
	for _, r := range append(slices.Clone(runs), others...) {
		for _, name := range []string{base, arm} {
			if a := r.Arm(name); name != "" && (a == nil || a.Void()) {
				return none, nil
			}
		}
	}
	relation := relationOf(f.as).of
	switch q := f.of; {
	case f.as == "compared":
		return f.compared(runs[0], base, arm)
	case q.arm != nil:
		x := q.arm(runs[0].Arm(arm), f)
		if x == nil {
			return none, nil
		}
		if relation == nil {
			return exactly(*x), nil
		}
		y := q.arm(runs[0].Arm(base), f)
		if y == nil {
			return none, nil
		}
		return exactly(relation(*x, *y)), nil
	case q.job != nil:
		return f.ofJobs(runs, base, arm)
	default:
		is := q.repeats(runs, arm, f)
		var was series
		switch {
		case f.over != "":
			was = q.repeats(others, arm, f)
		case relation != nil:
			was = q.repeats(runs, base, f)
		}
		var values []float64
		for _, repeat := range sortedKeys(is) {
			if relation == nil {
				values = append(values, is[repeat]/cmp.Or(q.per, 1))
			} else if w, ok := was[repeat]; ok {
				values = append(values, relation(is[repeat], w))
			}
		}
		r := overRepeats(values)
		r.exact = f.exact && !r.none
		return r, nil
	}
}

func sortedKeys[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }

// compared returns the ratio that testbed compare prints.
func (f *figure) compared(run *rundir.Run, base, arm string) (result, error) {
	out, err := runner.Compare([]string{run.Dir}, runner.CompareOptions{Baseline: base, Arms: []string{arm}})
	if err != nil {
		return none, err
	}
	for _, c := range out.Comparisons {
		for _, x := range c.Figures {
			if c.Arm.Arm != arm || string(x.Metric) != f.of.name || x.Pairs == 0 {
				continue
			}
			e := map[string]compare.Estimate{"mean": x.MeanRatio, "median": x.MedianRatio, "geo-mean": x.GeoMean}[f.statistic]
			return result{Estimate: e.Estimate}, nil
		}
	}
	return none, nil
}

// ofJobs evaluates a figure of jobs.
func (f *figure) ofJobs(runs []*rundir.Run, base, arm string) (result, error) {
	is, err := f.of.items(runs, arm, f)
	if err != nil || len(is) == 0 {
		return none, err
	}
	var was []item
	if f.as == "paired" || relationOf(f.as).of != nil {
		if was, err = f.of.items(runs, base, f); err != nil {
			return none, err
		}
	}
	type key struct{ repeat, id int }
	before := map[key]item{}
	n := map[int]int{} // jobs of the base, by repeat
	for _, x := range was {
		before[key{x.Repeat, x.ID}] = x
		n[x.Repeat]++
	}
	if f.as == "paired" {
		bare := func(items []item) (out []metrics.Item) {
			for _, x := range items {
				out = append(out, x.Item)
			}
			return out
		}
		const seed = 1
		p := metrics.Pair(bare(was), bare(is), seed, nil)
		if p.N == 0 {
			return none, nil
		}
		return map[string]result{
			"mean":     {Estimate: metrics.Estimate{Value: p.MeanRatio, CI: p.MeanRatioCI}},
			"median":   {Estimate: metrics.Estimate{Value: p.Median, CI: p.MedianCI}},
			"geo-mean": {Estimate: metrics.Estimate{Value: p.GeoMean, CI: p.GeoMeanCI}},
		}[f.statistic], nil
	}
	slices.SortFunc(is, func(a, b item) int { return cmp.Or(a.Repeat-b.Repeat, a.ID-b.ID) })
	relation := relationOf(f.as).of
	each := map[int][]float64{} // by repeat
	sums := map[int][2]float64{}
	var all []float64
	for _, x := range is {
		y, ok := before[key{x.Repeat, x.ID}]
		if relation != nil && !ok {
			continue
		}
		value := x.value
		if relation != nil {
			value = relation(x.value, y.value)
			all = append(all, relation(float64(x.Time), float64(y.Time)))
		} else {
			all = append(all, value)
		}
		each[x.Repeat] = append(each[x.Repeat], value)
		s := sums[x.Repeat]
		sums[x.Repeat] = [2]float64{s[0] + x.value, s[1] + y.value}
	}
	if len(all) == 0 {
		return none, nil
	}
	if f.statistic == "max" {
		return exactly(slices.Max(all)), nil
	}
	var values []float64
	for _, repeat := range sortedKeys(each) {
		switch of := each[repeat]; {
		case relation != nil && len(of) != n[repeat]: // an arm lacks jobs
		case relation != nil && f.statistic == "mean":
			values = append(values, relation(sums[repeat][0], sums[repeat][1]))
		default:
			values = append(values, f.statisticOf(of))
		}
	}
	return overRepeats(values), nil
}

// measureTrace evaluates a figure of policies in the flow-level simulator.
func (f *figure) measureTrace(t *traced, base, arm string) (result, error) {
	a, b := t.policy(arm), t.policy(base)
	alone := relationOf(f.as).of == nil
	if a == nil || !alone && b == nil {
		return none, nil
	}
	if f.of.trace != nil {
		x, err := f.of.trace(t, a, f)
		if err != nil || alone {
			return exactly(x), err
		}
		y, err := f.of.trace(t, b, f)
		return exactly(relationOf(f.as).of(x, y)), err
	}
	is := f.of.coflows(t, a, f)
	if alone {
		var seconds []float64
		for _, x := range is {
			seconds = append(seconds, x.Time.Seconds())
		}
		if len(seconds) == 0 {
			return none, nil
		}
		return exactly(f.statisticOf(seconds)), nil
	}
	was := f.of.coflows(t, b, f)
	if f.of.name == "shuffle_job_time" {
		const seed = 1
		var err error
		if was, is, _, err = metrics.AaloJobs().Jobs(seed, was, is); err != nil {
			return none, err
		}
	}
	coflows := func(items []metrics.Item) (out []tracestats.Coflow) {
		for _, x := range items {
			out = append(out, tracestats.Coflow{ID: workloads.CoflowID(x.ID), CCT: x.Time})
		}
		return out
	}
	s, err := tracestats.Faster(coflows(was), coflows(is))
	if err != nil || s.Coflows == 0 {
		return none, err
	}
	switch f.statistic {
	case "mean":
		return exactly(s.Averages), nil
	case "median":
		return exactly(s.P50), nil
	case "p90":
		return exactly(s.P90), nil
	}
	return none, fmt.Errorf("%s: no such statistic of coflows", f.statistic)
}
