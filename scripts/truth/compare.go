package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/verdict"
	"testbed/workloads"
)

// within is the largest difference between two times that counts as equal.
const within = 0.02

// items are the completion times that are compared, by name.
var items = []struct{ name, key string }{
	{"CCT", "cct"}, {"FCT", "fct"}, {"write", "write_time"}, {"job", "job_time"},
}

// differences are the ratios of the times of equal items of two runs, over all arms that pass in both.
type differences struct {
	arms        int
	ratios      []float64 // ascending
	least, most float64   // ratio of averages, over the arms
	beyond      int       // arms whose interval of that ratio excludes 1
}

func (d *differences) add(base, arm []metrics.Item) {
	type key struct{ repeat, id int }
	times := map[key]float64{}
	for _, i := range base {
		times[key{i.Repeat, i.ID}] = i.Time.Seconds()
	}
	for _, i := range arm {
		if was := times[key{i.Repeat, i.ID}]; was > 0 {
			d.ratios = append(d.ratios, i.Time.Seconds()/was)
		}
	}
	slices.Sort(d.ratios)
	p := metrics.Pair(arm, base, 1, nil) // the ratio of the arm's time to the base's
	if p.N == 0 {
		return
	}
	if d.arms++; d.arms == 1 {
		d.least, d.most = p.MeanRatio, p.MeanRatio
	}
	d.least, d.most = min(d.least, p.MeanRatio), max(d.most, p.MeanRatio)
	if !p.MeanRatioCI.Holds(1) {
		d.beyond++
	}
}

// pool adds the differences of other runs.
func (d *differences) pool(o differences) {
	if o.arms == 0 {
		return
	}
	if d.arms == 0 {
		d.least, d.most = o.least, o.most
	}
	d.least, d.most = min(d.least, o.least), max(d.most, o.most)
	d.arms, d.beyond = d.arms+o.arms, d.beyond+o.beyond
	d.ratios = append(d.ratios, o.ratios...)
	slices.Sort(d.ratios)
}

// pooled returns a row for each metric over the scenarios whose names begin with prefix.
func pooled(rows []row, prefix string) (out []row) {
	for _, m := range items {
		all := row{scenario: prefix + "*", metric: m.name}
		for _, r := range rows {
			if r.metric == m.name && strings.HasPrefix(r.scenario, prefix) {
				all.virtual.pool(r.virtual)
				all.again.pool(r.again)
			}
		}
		if all.virtual.arms+all.again.arms > 0 {
			out = append(out, all)
		}
	}
	return out
}

// cells are arms, ratio of averages, ratios of items, share within 2 % and arms beyond their interval.
func (d *differences) cells() string {
	if d.arms == 0 {
		return "0 | – | – | – | –"
	}
	equal := 0
	for _, x := range d.ratios {
		if math.Abs(x-1) <= within {
			equal++
		}
	}
	q := func(p float64) float64 { return metrics.Quantile(p, d.ratios) }
	return fmt.Sprintf("%d | %.3f–%.3f | %.2f, %.3f, %.2f | %.0f %% | %d",
		d.arms, d.least, d.most, q(0.05), q(0.5), q(0.95), 100*float64(equal)/float64(len(d.ratios)), d.beyond)
}

// row compares the runs of a scenario in one kind of time: real again, and virtual, each with real.
type row struct {
	scenario, metric string
	again, virtual   differences
}

func compareRuns(name string, dirs [3]string) ([]row, error) {
	var runs [3]*rundir.Run
	for i, dir := range dirs {
		if dir == "" {
			continue
		}
		r, err := rundir.Open(dir)
		if err != nil {
			return nil, err
		}
		runs[i] = r
	}
	real := runs[0]
	if real == nil {
		return nil, nil
	}
	var out []row
	for _, m := range items {
		x := row{scenario: name, metric: m.name}
		for _, arm := range real.Arms() {
			if !passes(real, arm) {
				continue
			}
			if passes(runs[1], arm) {
				x.again.add(real.Times(m.key, arm), runs[1].Times(m.key, arm))
			}
			if passes(runs[2], arm) {
				x.virtual.add(real.Times(m.key, arm), runs[2].Times(m.key, arm))
			}
		}
		if x.again.arms+x.virtual.arms > 0 {
			out = append(out, x)
		}
	}
	return out, nil
}

func passes(r *rundir.Run, arm string) bool {
	if r == nil {
		return false
	}
	level, ok := r.Level(arm)
	return ok && level == verdict.Pass
}

func write(w io.Writer, rows []row) error {
	head := "arms | averages | p5, p50, p95 | within 2 % | beyond"
	_, err := fmt.Fprintf(w, "| scenario | metric | virtual: %s | real again: %s |\n|%s\n", head, head, strings.Repeat(" --- |", 12))
	for _, r := range rows {
		if err == nil {
			_, err = fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.scenario, r.metric, r.virtual.cells(), r.again.cells())
		}
	}
	return err
}

// equalArms is the seed of the drawn scenario of equal arms: one with a spine, so that all seeds have the same paths.
const equalArms = 4

// runEqualArms compares two arms that differ in their names alone, trial by trial: of the same repeat, whose
// seeds are equal, and of different repeats, whose workloads and paths are equal.
func (o *options) runEqualArms(ctx context.Context, w io.Writer) error {
	under := filepath.Join(o.dir, fmt.Sprintf("equal-%d", o.aa))
	file, err := draw(under, equalArms, o.aa)
	if err != nil {
		return err
	}
	dir, err := o.made(ctx, filepath.Join(under, virtual), virtual, "run", file)
	if err != nil || dir == "" {
		return err
	}
	r, err := rundir.Open(dir)
	if err != nil {
		return err
	}
	for _, m := range items[:2] {
		fair, same := r.Times(m.key, r.Arms()[0]), r.Times(m.key, r.Arms()[1])
		var equal [3]int
		for i := range o.aa {
			significant(&equal, ofRepeats(fair, []int{i}), ofRepeats(same, []int{i}), i)
		}
		_, err := fmt.Fprintf(w, "%s, equal seeds: %s\n", m.name, shares(equal, o.aa))
		for _, repeats := range []int{1, 2, 3, 5, 10} {
			if err != nil || 2*repeats > o.aa {
				break
			}
			var n [3]int
			for draw := range equalDraws {
				all := workloads.Stream(equalArms, "equal-arms", repeats, draw).Perm(o.aa)
				significant(&n, ofRepeats(fair, all[:repeats]), ofRepeats(same, all[repeats:2*repeats]), draw)
			}
			_, err = fmt.Fprintf(w, "%s, other seeds, %d repeats: %s\n", m.name, repeats, shares(n, equalDraws))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// equalDraws is the number of comparisons of trials with different seeds, which are drawn from those that ran.
const equalDraws = 400

// significant counts the intervals of a comparison that exclude 1: of the ratio of averages, the median and the geometric
// mean.
func significant(n *[3]int, base, arm []metrics.Item, seed int) {
	p := metrics.Pair(base, arm, uint64(seed), nil)
	for i, ci := range []metrics.Interval{p.MeanRatioCI, p.MedianCI, p.GeoMeanCI} {
		if !ci.Holds(1) {
			n[i]++
		}
	}
}

func shares(n [3]int, of int) string {
	share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of)) }
	return fmt.Sprintf("of %d comparisons, significant: ratio of averages %s, median %s, geometric mean %s", of,
		share(n[0]), share(n[1]), share(n[2]))
}

// ofRepeats returns the items of the repeats, as those of repeats 0, 1, …
func ofRepeats(all []metrics.Item, repeats []int) (out []metrics.Item) {
	for _, i := range all {
		if at := slices.Index(repeats, i.Repeat); at >= 0 {
			i.Repeat = at
			out = append(out, i)
		}
	}
	return out
}
