package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/report"
	"testbed/scripts/suite"
	"testbed/topo/units"
)

// part is one experiment.
type part struct {
	name, title, doc string
	scenario         string
	set              []string // assignments to variables of the scenario, name=value
	// pairs are the arms to compare, the baseline first. The figures of the part are those
	// of the first pair.
	pairs   [][2]string
	packets bool
	fixed   bool // the scenario sets the number of repeats
	run     func(*sinbad, context.Context, part) error
}

// off switches background off: it is the least intensity that a scenario accepts.
const off = "intensity=0.000001"

var parts = []part{
	{name: "rack", title: "racks with 5:1 oversubscription, three of ten hot", packets: true, scenario: "rack.yaml", run: (*sinbad).experiment,
		doc:   "50 hosts. The bottleneck is the links between racks: form V2 compared with HDFS's default, and V1 with uniform placement in two other racks.",
		pairs: [][2]string{{"hdfs", "sinbad-v2"}, {"two-racks", "sinbad-v1"}}},
	{name: "diskless", title: "the same, with disks that are never the bottleneck", packets: true, scenario: "pair.yaml", set: []string{"disk=5MB/s", "packet=32KB", "window=5"}, run: (*sinbad).experiment,
		doc: "The disks are twice as fast as the hosts' links. Pipeline packets have 32 KB, since disks are slower with writes of 4 KB.", pairs: [][2]string{{"hdfs", "sinbad"}}},
	{name: "quiet", title: "the same, without background", packets: true, scenario: "pair.yaml", set: []string{off}, run: (*sinbad).experiment,
		doc: "Only the jobs themselves load the network, so placement has little to avoid.", pairs: [][2]string{{"hdfs", "sinbad"}}},
	{name: "edge", title: "no oversubscription, one rack of five hot", packets: true, scenario: "edge.yaml", run: (*sinbad).experiment,
		doc: "25 hosts. The bottleneck is the links of hosts, as in the paper's cluster: form VE compared with uniform placement.", pairs: [][2]string{{"uniform", "sinbad-ve"}}},
	{name: "hundred", title: "100 hosts in 20 racks", scenario: "pair.yaml", set: []string{"leaves=20", "hot=6", "jobs=16"}, run: (*sinbad).experiment,
		doc: "As with 50 hosts, on the fluid model.", pairs: [][2]string{{"hdfs", "sinbad"}}},
	{name: "large", title: "3,000 machines in 150 racks", scenario: "large.yaml", fixed: true, run: (*sinbad).experiment,
		doc: "The paper's simulation, on the fluid model: write requests are placed every 10 s, those of writers with the fewest remaining blocks first.", pairs: [][2]string{{"hdfs", "sinbad"}}},
	{name: "sensitivity", title: "sensitivity to Δ, α and q", scenario: "pair.yaml", run: (*sinbad).sensitivity,
		doc: "One parameter at a time; the others are Δ = 250 ms, α = 0.2 and q = 0. A disk writes a block in 1.16 s.", pairs: [][2]string{{"hdfs", "sinbad"}}},
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// maxDifference is the largest relative difference between the average write times of an arm
// on packets and on the fluid model for which the report omits the causes of times.
const maxDifference = 0.10

// args returns the arguments of a run of the part.
func (s *sinbad) args(p part, more ...string) []string {
	set := slices.Concat(p.set, more)
	if !p.fixed {
		set = append(set, fmt.Sprintf("repeat=%d", s.Repeat))
	}
	var args []string
	for _, v := range set {
		args = append(args, "--set", v)
	}
	return args
}

// experiment runs a part on the fluid model and, if the part has packets, on these.
func (s *sinbad) experiment(ctx context.Context, p part) error {
	scenario := filepath.Join("scripts", "sinbad", p.scenario)
	fluid, measured, void := s.Both(ctx, p.packets, scenario, s.args(p)...)
	if fluid == nil {
		return void
	}
	computed, err := s.compare(ctx, fluid, p)
	if err != nil {
		return err
	}
	if measured == nil {
		s.take(p, fluid, computed)
		s.Say("Run directory %s (fluid model), %d repeats.\n", fluid.RunID, fluid.Arms[0].Repeats)
		if err := s.arms(fluid, nil); err != nil {
			return err
		}
		return s.pairs(p, computed, nil)
	}
	found, err := s.compare(ctx, measured, p)
	if err != nil {
		return err
	}
	s.take(p, measured, found)
	s.Say("Run directories %s (packets) and %s (fluid model), %d repeats.\n", measured.RunID, fluid.RunID, s.Repeat)
	if err := s.arms(measured, fluid); err != nil {
		return err
	}
	if err := s.pairs(p, found, computed); err != nil {
		return err
	}
	return void
}

// arms writes the averages of every arm and, if fluid is not nil, the write times relative to
// the fluid model.
func (s *sinbad) arms(run, fluid *report.Summary) error {
	var rows [][]string
	var apart []string
	for _, a := range run.Arms {
		if a.WriteTime == nil || a.Placement == nil {
			return fmt.Errorf("arm %s has no blocks", a.Name)
		}
		row := []string{a.Name, suite.VerdictOf(a), suite.MS(a.WriteTime.MeanUS), "–", fmt.Sprintf("%.1f MB", a.Placement.CrossRackWriteBytes/1e6), "–", "–", "–"}
		if fluid != nil {
			if i := slices.IndexFunc(fluid.Arms, func(f report.ArmSummary) bool { return f.Name == a.Name }); i >= 0 && fluid.Arms[i].WriteTime != nil {
				ratio := a.WriteTime.MeanUS / fluid.Arms[i].WriteTime.MeanUS
				row[3] = fmt.Sprintf("%.2f", ratio)
				if math.Abs(ratio-1) > maxDifference {
					apart = append(apart, a.Name)
				}
			}
		}
		if cv := a.Placement.Cv; cv != nil {
			row[5] = fmt.Sprintf("%.2f (%.2f to %.2f)", cv.Median, cv.P5, cv.P95)
		}
		if d := a.Placement.DiskImbalance; d != nil {
			row[6] = units.Percent(*d, 2)
		}
		if b := a.Placement.Bounds; b != nil {
			row[7] = fmt.Sprintf("%.2f / %.2f", b.OverLone, b.OverFluid)
		}
		rows = append(rows, row)
	}
	if err := s.Draw([]string{"arm", "verdict", "block write time", "relative to fluid model", "block bytes between racks", "median Cv (P5 to P95)", "disk imbalance", "relative to LB1 / LB2"}, rows); err != nil {
		return err
	}
	if len(apart) == 0 {
		return nil
	}
	s.Say("The write time on packets differs from the fluid model's by more than %.0f %% for %s. The table shows the time of an average block on packets by cause, in ms. network is the sharing of links, which the fluid model has too, and losses, queues and headers, which it does not have; host is the time taken by the machine.\n", 100*maxDifference, strings.Join(apart, ", "))
	return s.WhereTimeWent(run.Arms, true)
}

// compare compares each pair of arms.
func (s *sinbad) compare(ctx context.Context, run *report.Summary, p part) ([]suite.Comparison, error) {
	var out []suite.Comparison
	for _, pair := range p.pairs {
		c, err := s.program.Compare(ctx, run, pair[0], pair[1])
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// metrics are the metrics of comparisons, with their names in testbed compare.
var metrics = []struct{ key, title string }{{"write_time", "block write time"}, {"request_time", "write request time"}, {"job_time", "job time"}}

// pairs writes the speed-ups of all pairs, next to those of the fluid model if fluid is not
// nil.
func (s *sinbad) pairs(p part, found, fluid []suite.Comparison) error {
	var rows [][]string
	for i, pair := range p.pairs {
		for _, m := range metrics {
			mean, ok := found[i].Mean[m.key]
			if !ok {
				continue
			}
			row := []string{pair[1] + " relative to " + pair[0], m.title, mean.String(), found[i].GeoMean[m.key].String(), "–"}
			if fluid != nil {
				row[4] = fluid[i].Mean[m.key].String()
			}
			rows = append(rows, row)
		}
	}
	s.Say("Speed-ups, T(baseline)/T(policy), with 95 %% confidence intervals: the ratio of averages, and the geometric mean of the pairs' ratios.\n")
	if err := s.Draw([]string{"pair", "metric", "ratio of averages", "geometric mean", "ratio of averages, fluid model"}, rows); err != nil {
		return err
	}
	for i, pair := range p.pairs {
		for _, why := range found[i].Unlike {
			s.Say("%s and %s are not comparable like for like: %s.\n", pair[1], pair[0], why)
		}
	}
	return nil
}

// take records the figures of a part: name/v1 is the write time of the second pair.
func (s *sinbad) take(p part, run *report.Summary, pairs []suite.Comparison) {
	put := func(key string, pair int, metric string) {
		if pair < len(pairs) {
			if r, ok := pairs[pair].Mean[metric]; ok {
				s.claims.Measured(p.name+"/"+key, r.Value, r.CI)
			}
		}
	}
	for _, m := range metrics {
		put(m.key, 0, m.key)
	}
	put("v1", 1, "write_time")
	arm := func(name string) *report.PlacementSummary {
		i := slices.IndexFunc(run.Arms, func(a report.ArmSummary) bool { return a.Name == name })
		if i < 0 {
			return nil
		}
		return run.Arms[i].Placement
	}
	base, policy := arm(p.pairs[0][0]), arm(p.pairs[0][1])
	if base == nil || policy == nil {
		return
	}
	if base.Cv != nil && policy.Cv != nil {
		s.claims.Exact(p.name+"/cv_drop", base.Cv.Median-policy.Cv.Median)
	}
	if policy.DiskImbalance != nil {
		s.claims.Exact(p.name+"/imbalance", 100**policy.DiskImbalance)
	}
	if base.Bounds != nil && base.Bounds.OverFluid > 0 {
		s.claims.Exact(p.name+"/bound", base.Bounds.OverFluid)
	}
}

// sensitivity compares the first pair with one parameter changed at a time.
func (s *sinbad) sensitivity(ctx context.Context, p part) error {
	verb, on := "sim", "on the fluid model"
	if s.measured {
		verb, on = "run", "on packets"
	}
	var rows [][]string
	var void error
	for _, v := range []string{"delta=250ms", "delta=62ms", "delta=125ms", "delta=500ms", "delta=1s", "delta=2s", "alpha=0.1", "alpha=0.5", "alpha=1", "wait=250ms", "wait=1s", "wait=2500ms"} {
		run, err := s.program.Run(ctx, verb, filepath.Join("scripts", "sinbad", p.scenario), s.args(p, v)...)
		if run == nil {
			return err
		}
		void = errors.Join(void, err)
		c, err := s.compare(ctx, run, p)
		if err != nil {
			return err
		}
		row := []string{v}
		for _, m := range metrics {
			row = append(row, c[0].Mean[m.key].String())
		}
		for _, a := range run.Arms {
			row = append(row, suite.VerdictOf(a))
		}
		rows = append(rows, row)
	}
	s.Say("Speed-ups relative to HDFS's default, as ratios of averages, %s. The first row has the defaults. The write request time includes the waiting that wait (q) causes, the block write time does not.\n", on)
	return errors.Join(void, s.Draw([]string{"changed", metrics[0].title, metrics[1].title, metrics[2].title, "verdict, HDFS", "verdict, Sinbad"}, rows))
}
