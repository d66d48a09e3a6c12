// Command shufflewatcher compares ShuffleWatcher (Ahmad and others, USENIX ATC 2014) with the task schedulers that
// it wraps, FAIR, delay scheduling and DRF, on packets and on the fluid model. It prints each figure next to the
// report's, the range that is expected here, and the reason (claims.yaml). docs/shufflewatcher.md explains the
// results.
//
// Run it from the root of the repository:
//
//	make suite-shufflewatcher
//
// The parts on packets need root; -fluid leaves packets out.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/rundir"
	"testbed/scripts/suite"
)

// watcher is one run of the suite.
type watcher struct {
	suite.Options
	*suite.Report
	claims *suite.Claims
}

// variant is a comparison of ShuffleWatcher with the scheduler that it wraps. Its claims are <part>/<id>-bytes,
// -throughput and -time, and -relative where rows are compared.
type variant struct {
	id, name string
	set      []string // assignments to variables of the scenario
}

// assignments returns those of a variant, after those of all.
func (p *part) assignments(v variant) []string { return slices.Concat(p.set, v.set) }

// part is one experiment.
type part struct {
	name, title, doc string
	scenario         string
	packets          bool     // runs on packets too
	repeat           int      // at most, 0 for no limit
	relative         bool     // compares bytes with those of the first row
	set              []string // assignments of all variants
	variants         []variant
}

const small, cluster = "small.yaml", "cluster.yaml"

var parts = []part{
	{name: "shuffle", title: "ShuffleWatcher over delay scheduling", scenario: small, packets: true, variants: []variant{{"delay", "5:1", nil}},
		doc: "25 hosts in 5 racks, 5:1 oversubscribed, one user with 400 jobs."},
	{name: "full", title: "without oversubscription", scenario: small, packets: true, set: []string{"oversubscription=1:1"}, variants: []variant{{"delay", "1:1", nil}},
		doc: "The same jobs on the same hosts, whose links limit them and not those between racks."},
	{name: "over", title: "ShuffleWatcher over other schedulers", scenario: small, set: []string{"delay=none"}, variants: []variant{
		{"fair", "FAIR", nil}, {"drf", "DRF", []string{"order=drf"}}},
		doc: "The scenario of the first part."},
	{name: "cluster", title: "the report's cluster", scenario: cluster, repeat: 3, variants: []variant{
		{"fair", "FAIR", nil}, {"delay", "FAIR with delay scheduling", []string{"delay=time"}}, {"drf", "DRF", []string{"order=drf"}}},
		doc: "100 hosts in 10 racks, 30 users with 12 jobs each on average, of up to 400 blocks."},
	{name: "ablation", title: "parts of ShuffleWatcher", scenario: small, relative: true, set: []string{"delay=none"}, variants: []variant{
		{"nass", "NASS", []string{"sarp=false", "samp=off"}}, {"sarp", "NASS and SARP", []string{"samp=off"}}, {"samp", "NASS, SARP and SAMP", nil}},
		doc: "Over FAIR, on the scenario of the first part."},
	{name: "jobs", title: "jobs per user", scenario: small, set: []string{"delay=none"}, variants: []variant{
		{"1", "1", []string{"users=400"}}, {"9", "9", []string{"users=44"}}, {"12", "12", []string{"users=33"}}, {"18", "18", []string{"users=22"}}, {"50", "50", []string{"users=8"}}},
		doc: "Over FAIR: the same 400 jobs of more users. ShuffleWatcher chooses among the jobs of one user."},
	{name: "mix", title: "mixes of jobs", scenario: small, set: []string{"delay=none"}, variants: []variant{
		{"20-20-60", "20/20/60", []string{"heavy=20", "medium=20", "light=60"}}, {"40-20-40", "40/20/40", nil}, {"60-20-20", "60/20/20", []string{"heavy=60", "medium=20", "light=20"}}},
		doc: "Over FAIR, with these shares of jobs with heavy, medium and light shuffle."},
	{name: "rules", title: "rules of SAMP", scenario: small, relative: true, variants: []variant{
		{"first", "first-increase", nil}, {"prefix", "best-prefix", []string{"samp=best-prefix"}}, {"subset", "best-subset", []string{"samp=best-subset"}}},
		doc: "Over delay scheduling, on the scenario of the first part."},
	{name: "minimum", title: "a local minimum of SAMP", scenario: cluster, repeat: 3, relative: true, set: []string{"delay=time", "heavy=0", "medium=1", "light=0", "users=4", "jobs=60"}, variants: []variant{
		{"first", "first-increase", nil}, {"prefix", "best-prefix", []string{"samp=best-prefix"}}, {"subset", "best-subset", []string{"samp=best-subset"}}},
		doc: "Large jobs with medium shuffle on 10 racks: the second rack raises the planned bytes, and all racks together halve them."},
	{name: "settings", title: "settings and knowledge", scenario: small, relative: true, variants: []variant{
		{"default", "defaults: 0.5, 3, 0.8", nil}, {"completion-0.2", "map completion 0.2", []string{"map_completion=0.2"}}, {"completion-0.9", "map completion 0.9", []string{"map_completion=0.9"}},
		{"intervals-1", "1 interval", []string{"netsat_intervals=1"}}, {"intervals-10", "10 intervals", []string{"netsat_intervals=10"}},
		{"share-0.5", "threshold 0.5", []string{"netsat_share=0.5"}}, {"share-0.95", "threshold 0.95", []string{"netsat_share=0.95"}},
		{"any", "links of any rack", []string{"netsat=any"}}, {"both", "links in both directions", []string{"netsat=both"}}, {"actual", "actual load", []string{"netsat_load=actual"}},
		{"given", "given classes", []string{"ratios=given"}}, {"perfect", "perfect shuffle ratios", []string{"ratios=perfect"}}},
		doc: "Over delay scheduling, on the scenario of the first part. The report gives no figures for them."},
}

// partNames returns the parts; the last is not a comparison.
func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return append(names, placement)
}

func main() {
	var o suite.Options
	o.Flags("shufflewatcher", partNames())
	o.FluidFlag()
	suite.Main("shufflewatcher", func(ctx context.Context, stdout io.Writer) error { return run(ctx, o, stdout) })
}

func run(ctx context.Context, o suite.Options, stdout io.Writer) error {
	w := &watcher{Options: o}
	var list []suite.Part
	for _, p := range parts {
		list = append(list, suite.Part{Name: p.name, Title: p.title, Packets: p.packets, Run: func(ctx context.Context) error { return w.compare(ctx, p) }})
	}
	list = append(list, suite.Part{Name: placement, Title: "placement alone", Run: w.placement})
	return o.RunParts(ctx, stdout, list, func(r *suite.Report, c *suite.Claims) { w.Report, w.claims = r, c })
}

// compare runs the variants of a part and records their claims.
func (w *watcher) compare(ctx context.Context, p part) error {
	w.Say("%s\n", p.doc)
	if w.claims.Backend = "fluid model"; p.packets && !w.Fluid {
		w.claims.Backend = "packets"
	}
	header := []string{"ShuffleWatcher", "on", "bytes across racks saved", "throughput", "job time", "map reads across racks", "fetched across racks", "racks of maps", "reduces at data"}
	if p.relative {
		header = append(header, "bytes relative to the first row")
	}
	repeat := w.Repeat
	if p.repeat > 0 {
		repeat = min(repeat, p.repeat)
	}
	var rows [][]string
	var void error
	var first []float64 // bytes of the first row
	for _, v := range p.variants {
		both, err := w.Backends(ctx, w.Report, p.packets, filepath.Join("scripts", "shufflewatcher", p.scenario), repeat, p.assignments(v)...)
		if both == nil {
			return err
		}
		void = errors.Join(void, err)
		for i, b := range both {
			f := figuresOf(b.Run)
			if i == len(both)-1 {
				id := p.name + "/" + v.id
				w.claims.Over(id+"-bytes", f.saved)
				w.claims.Over(id+"-throughput", f.throughput)
				w.claims.Over(id+"-time", f.time)
			}
			row := append([]string{v.name, b.Name}, f.cells()...)
			if p.relative {
				if first == nil {
					first = f.bytes
				}
				relative := suite.Ratios(f.bytes, first)
				w.claims.Over(p.name+"/"+v.id+"-relative", relative)
				row = append(row, suite.Interval(relative, "%.3f× [%.3f, %.3f]"))
			}
			rows = append(rows, row)
		}
	}
	return errors.Join(void, w.Draw(header, rows))
}

// The arms of the scenarios.
const base, watched = "base", "watcher"

// figures are those of ShuffleWatcher relative to the scheduler that it wraps, by repeat.
type figures struct {
	bytes      []float64 // payload of tasks between racks under ShuffleWatcher
	saved      []float64 // of that of the other arm, in %
	throughput []float64 // jobs per time, relative
	time       []float64 // average time of a job, relative
	of         map[string]arm
}

// arm has the averages of an arm.
type arm struct {
	read, fetched  float64 // payload between racks in bytes, of a repeat
	racks, reduces float64 // see metrics.ShuffleFigures
}

func figuresOf(run *rundir.Run) figures {
	f := figures{of: map[string]arm{}}
	crossed := map[string]map[int]float64{base: {}, watched: {}}
	for i := range run.Flows {
		x := &run.Flows[i]
		if x.Job != nil && rack(x.Src) != rack(x.Dst) {
			crossed[x.Arm][x.Repeat] += float64(x.Size)
		}
	}
	times, n := map[string]map[int]float64{base: {}, watched: {}}, map[string]map[int]float64{base: {}, watched: {}}
	for _, j := range run.Jobs {
		times[j.Arm][j.Repeat] += j.JobTime.Seconds()
		n[j.Arm][j.Repeat]++
	}
	for repeat := range len(n[base]) {
		if n[watched][repeat] == 0 || n[base][repeat] == 0 {
			continue // a void arm
		}
		f.bytes = append(f.bytes, crossed[watched][repeat])
		f.saved = append(f.saved, 100*(1-crossed[watched][repeat]/crossed[base][repeat]))
		f.time = append(f.time, times[watched][repeat]/n[watched][repeat]*n[base][repeat]/times[base][repeat])
	}
	f.throughput = suite.Makespans([]*rundir.Run{run}, base, watched)
	for _, a := range run.Summary.Arms {
		if t := a.Tasks; t != nil && t.Shuffle != nil {
			f.of[a.Name] = arm{t.Bytes.ReadCrossRack, t.Bytes.FetchedCrossRack, valueOf(t.Shuffle.MapRacks), valueOf(t.Shuffle.ReducesAtData)}
		}
	}
	return f
}

func valueOf(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// rack returns the rack in the name of a host.
func rack(host string) string {
	name, _, _ := strings.Cut(host, "-")
	return name
}

// cells returns a row of the table, with "base → with ShuffleWatcher" for absolute figures.
func (f figures) cells() []string {
	b, w := f.of[base], f.of[watched]
	return []string{suite.Interval(f.saved, "%.1f %% [%.1f, %.1f]"), suite.Interval(f.throughput, "%.2f× [%.2f, %.2f]"), suite.Interval(f.time, "%.2f× [%.2f, %.2f]"),
		fmt.Sprintf("%.4g → %.4g MB", b.read/1e6, w.read/1e6), fmt.Sprintf("%.4g → %.4g MB", b.fetched/1e6, w.fetched/1e6),
		fmt.Sprintf("%.2f → %.2f", b.racks, w.racks), fmt.Sprintf("%.0f → %.0f %%", 100*b.reduces, 100*w.reduces)}
}
