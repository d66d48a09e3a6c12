// Command dolly compares Dolly (Ananthanarayanan and others, NSDI 2013), which starts copies of the tasks of small jobs, with
// speculation by LATE, Hadoop and Mantri, on packets and on the fluid model. It prints each figure next to the report's,
// the range that is expected here, and the reason (claims.yaml). docs/dolly.md explains the results.
//
// Run it from the root of the repository:
//
//	make suite-dolly
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
	"time"

	"testbed/scripts/suite"
	"testbed/workloads/jobs"
)

// dolly is one run of the suite.
type dolly struct {
	suite.Options
	*suite.Report
	claims *suite.Claims
}

// pair is two arms of a scenario that are compared.
type pair struct{ id, name, base, arm string }

// variant is a scenario with assignments to its variables.
type variant struct {
	id, name string
	set      []string
}

// oracle is the ID of the variant that is given the p that the runs of the one named learned had, and the last ω that it learned.
const oracle, learned = "oracle", "learned"

// part is one experiment: all pairs of all variants. Its claims are <part>/<id>- and the name of a figure, where the id is that
// of the variant and that of the pair.
type part struct {
	name, title, doc string
	scenario         string
	packets          bool // runs on packets too
	repeat           int  // at most, 0 for no limit; parts on packets have more on the fluid model alone
	times            int  // as many repeats as asked for, 0 for one
	pairs            []pair
	set              []string // assignments of all variants
	variants         []variant
}

func (p *part) assignments(v variant) []string { return slices.Concat(p.set, v.set) }

// id returns the part of the ID of claims between the slash and the figure.
func (p *part) id(v variant, x pair) string { return both(v.id, "-", x.id) }

// both joins two names, of which one may be empty.
func both(a, separator, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}

const small, reads, cluster = "small.yaml", "reads.yaml", "cluster.yaml"

// ours is the pair of cluster.yaml.
var ours = []pair{{"", "", "base", "dolly"}}

// readers are the pairs of reads.yaml.
var readers = []pair{{"first", "the first copy (CC)", "late", "first"}, {"exclusive", "the k-th copy (CAC)", "late", "exclusive"}, {"delay", "delay assignment", "late", "delay"},
	{"cac", "CAC over CC", "first", "exclusive"}, {"wait", "delay assignment over CC", "first", "delay"}}

// twelve has the slots of the report's hosts. tenTasks are jobs of ten tasks alone, which come as seldom as the budget of 30
// slots needs: it has room for one stage of ten tasks with three copies.
var (
	twelve   = []string{"map_slots=9", "reduce_slots=3"}
	tenTasks = append([]string{"smallest=10", "largest=10", "utilization=0.002"}, twelve...)
)

const overLATE = "Dolly over LATE, at the scale of the part cluster"

var parts = []part{
	{name: "small", title: "Dolly on packets", scenario: small, packets: true, variants: []variant{{"", "", nil}},
		pairs: []pair{{"late", "over LATE", "late", "dolly"}, {"none", "over no mitigation", "none", "dolly"}, {"baseline", "LATE over none", "none", "late"}},
		doc:   "25 hosts with 40 slots; jobs of up to 40 tasks with the shares of Facebook's bins; one attempt of ten is 6 to 10 times as slow."},
	{name: "reads", title: "copies that clones fetch", scenario: reads, packets: true, repeat: 3, variants: []variant{{"", "", nil}},
		pairs: readers,
		doc:   "Bing's bins, with fetches of 30 % of a small job's time, over LATE."},
	{name: "fetches", title: "copies that clones fetch, with shorter fetches", scenario: reads, times: 2, pairs: readers, variants: []variant{
		{"3", "3 % of the time", []string{"share=0.03"}}, {"10", "10 %", []string{"share=0.1"}}},
		doc: "The scenario of the part reads, with fetches of 3 and 10 % of a small job's time: contention for copies costs less."},
	{name: "cluster", title: "the report's workloads", scenario: cluster, repeat: 3, pairs: ours, variants: []variant{
		{"late", "Facebook, over LATE", nil}, {"mantri", "Facebook, over Mantri", []string{"base=mantri", "with=mantri"}}, {"hadoop", "Facebook, over Hadoop's speculation", []string{"base=hadoop", "with=hadoop"}},
		{"none", "Facebook, over no mitigation", []string{"base=none", "with=none"}}, {"alone", "Facebook, Dolly alone over LATE", []string{"with=none"}},
		{"eager", "Facebook, over LATE after one task time", []string{"late_after=6400ms"}},
		{"twelve", "Facebook, 12 slots, over LATE", append([]string{"utilization=0.005"}, twelve...)}, {"ten", "ten tasks, 12 slots, over LATE", tenTasks}, {"ten-mantri", "ten tasks, 12 slots, over Mantri", append([]string{"base=mantri", "with=mantri"}, tenTasks...)},
		{"bing-late", "Bing, over LATE", []string{"workload=bing"}}, {"bing-mantri", "Bing, over Mantri", []string{"workload=bing", "base=mantri", "with=mantri"}}},
		doc: "50 hosts with 24 slots on 1 Gbps; jobs of up to 150 tasks. Rows with 12 slots have fewer jobs at a time, and some only jobs of ten tasks. Dolly leaves tasks that it does not copy to the speculation of the other arm."},
	{name: "budget", title: "the budget", scenario: cluster, repeat: 3, pairs: ours, variants: []variant{
		{"2", "2 %", []string{"budget=0.02"}}, {"3", "3 %", []string{"budget=0.03"}}, {"5", "5 %", nil}, {"8", "8 %", []string{"budget=0.08"}}, {"12", "12 %", []string{"budget=0.12"}}},
		doc: overLATE + ", with these shares of the slots for copies."},
	{name: "admission", title: "jobs for which the budget has no room", scenario: cluster, repeat: 3, pairs: ours, set: []string{"workload=bing"}, variants: []variant{
		{"all", "all copies of a stage, or none", nil}, {"preempt", "clones of larger jobs are killed", []string{"admission=preempt"}},
		{"partial", "as many for each task as fit", []string{"admission=partial"}}, {"fcfs", "first come, first served", []string{"admission=fcfs"}}},
		doc: overLATE + ", with Bing's bins."},
	{name: "stragglers", title: "other stragglers", scenario: cluster, repeat: 3, pairs: ours, variants: []variant{
		{"5", "5 % of attempts", []string{"probability=0.05", "straggle=0.05"}}, {"20", "20 %", []string{"probability=0.2", "straggle=0.2"}},
		{"slower", "12 %, 6 to 12 times as slow", []string{"probability=0.12", "factor=6-12", "straggle=0.12"}}, {"pareto", "factors of a Pareto distribution", []string{"tail=pareto"}}},
		doc: overLATE + "."},
	{name: "blacklist", title: "blacklists of hosts", scenario: cluster, repeat: 3, pairs: ours, set: []string{"base=none", "with=none", "cloning=none", "reads=first"}, variants: []variant{
		{"independent", "stragglers by attempt, p_b 0.3", []string{"blacklist=0.3"}}, {"sticky-0.3", "a fifth by host, p_b 0.3", []string{"sticky=0.2", "blacklist=0.3"}},
		{"sticky-0.5", "a fifth by host, p_b 0.5", []string{"sticky=0.2", "blacklist=0.5"}}, {"half", "half by host, p_b 0.3", []string{"sticky=0.5", "blacklist=0.3"}}},
		doc: "No mitigation but blacklists, over none; a host is slow for five minutes, and a window has 30 s."},
	{name: "phases", title: "jobs of six phases", scenario: cluster, repeat: 3, pairs: ours, set: []string{"workload=bing"}, variants: []variant{
		{"2", "two", nil}, {"6", "six", []string{"phases=6", "map_slots=6", "reduce_slots=6"}}},
		doc: overLATE + ", with Bing's bins."},
	{name: "calm", title: "without stragglers", scenario: cluster, repeat: 3, pairs: ours, set: []string{"probability=0", "base=none", "with=none"}, variants: []variant{
		{"delay", "delay assignment", nil}, {"first", "the first copy", []string{"reads=first"}}},
		doc: "Dolly over no mitigation, where there is nothing to mitigate: the cost of its copies."},
	{name: "estimates", title: "estimates", scenario: cluster, repeat: 3, pairs: ours, variants: []variant{
		{"given", "p and ω given", nil}, {learned, "learned", []string{"estimates=learned"}}, {oracle, "p as realized and the last ω given", nil}, {"wrong", "learned, from p = 0.3 and ω = 20 s", []string{"estimates=learned", "straggle=0.3", "wait=20s"}}},
		doc: overLATE + "."},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func main() {
	var o suite.Options
	o.Flags("dolly", partNames())
	o.FluidFlag()
	suite.Main("dolly", func(ctx context.Context, stdout io.Writer) error { return run(ctx, o, stdout) })
}

func run(ctx context.Context, o suite.Options, stdout io.Writer) error {
	d := &dolly{Options: o}
	var list []suite.Part
	for _, p := range parts {
		list = append(list, suite.Part{Name: p.name, Title: p.title, Packets: p.packets, Run: func(ctx context.Context) error { return d.compare(ctx, p) }})
	}
	return o.RunParts(ctx, stdout, list, func(r *suite.Report, c *suite.Claims) { d.Report, d.claims = r, c })
}

// compare runs the variants of a part and records their claims.
func (d *dolly) compare(ctx context.Context, p part) error {
	d.Say("%s Shares are those of the average time that are saved; small jobs have at most %d tasks.\n", p.doc, smallJob)
	if d.claims.Backend = "fluid model"; p.packets && !d.Fluid {
		d.claims.Backend = "packets"
	}
	repeat := d.Repeat * max(1, p.times)
	switch {
	case p.packets && d.Fluid:
		repeat *= 4 // without packets they take a second each
	case p.repeat > 0:
		repeat = min(repeat, p.repeat)
	}
	var rows [][]string
	var void error
	var known []string // of oracle
	for _, v := range p.variants {
		if v.id == oracle {
			v.set = known
			d.Say("%s: %s.\n", v.name, strings.Join(known, ", "))
		}
		on, err := d.Backends(ctx, d.Report, p.packets, filepath.Join("scripts", "dolly", p.scenario), repeat, p.assignments(v)...)
		if on == nil {
			return err
		}
		void = errors.Join(void, err)
		if v.id == learned {
			var errs map[string]float64
			known, errs = hindsight(on[0], p.pairs[0].arm)
			for of, err := range errs {
				d.claims.Exact(p.name+"/"+learned+"-error-"+of, err)
			}
		}
		for _, x := range p.pairs {
			id := p.name + "/" + p.id(v, x) + "-"
			if p.packets && d.Fluid {
				d.claims.Skip(id+"wire", "needs packets")
			}
			var modelled figures
			for i, b := range on {
				f := figuresOf(b.Run, x.base, x.arm)
				wire := "–"
				if i == 0 {
					modelled = f
				} else {
					ratio := suite.Ratios(f.bytes, modelled.bytes)
					d.claims.Over(id+"wire", ratio)
					wire = suite.Interval(ratio, "%.3f× [%.3f, %.3f]")
				}
				if i == len(on)-1 {
					for _, c := range f.claimed() {
						d.claims.Over(id+c.name, c.values)
					}
				}
				rows = append(rows, slices.Concat([]string{both(v.name, ", ", x.name), b.Name}, f.cells(), []string{extra(b, x.base) + " → " + extra(b, x.arm), wire}))
			}
		}
	}
	return errors.Join(void, d.Draw([]string{"comparison", "on", "all jobs", "small jobs", "75th percentile of a small job", "90th", "slowest : median of small jobs", "95th percentile of it", "bytes of tasks", "slot time of backups", "bytes relative to the fluid model"}, rows))
}

// errorsOf are the estimates of which claims state errors.
var errorsOf = map[string]string{"straggle": "p", "alone_bps": "alone", "shared_bps": "shared"}

// hindsight returns assignments that give an arm perfect estimates: the p that was realized, and the last ω of
// each class of jobs, for classes without one that of the next. errs are the relative errors of the estimates, in %, of small
// jobs where they depend on the size.
func hindsight(b suite.Backend, arm string) (set []string, errs map[string]float64) {
	errs = map[string]float64{}
	var waits []string
	for _, a := range b.Summary.Arms {
		if a.Name != arm {
			continue
		}
		for _, e := range a.Estimates {
			if name := errorsOf[e.Of]; name != "" && e.Error != nil && (e.SizeRange == nil || e.MostTasks == smallJob) {
				errs[name] = 100 * *e.Error
			}
			switch {
			case e.Of == "straggle" && e.Realized != nil:
				set = append(set, fmt.Sprintf("straggle=%.4f", *e.Realized))
			case e.Of == "wait_us":
				for class := jobs.SizeClass(e.LeastTasks); len(waits) <= class; {
					waits = append(waits, time.Duration(e.Last*float64(time.Microsecond)).Round(time.Millisecond).String())
				}
			}
		}
	}
	if len(waits) > 0 {
		set = append(set, "wait="+strings.Join(waits, ","))
	}
	return set, errs
}

// extra returns the share of the slot time of an arm that attempts used which did not commit, of tasks with several.
func extra(b suite.Backend, arm string) string {
	for _, a := range b.Summary.Arms {
		if a.Name == arm && a.Tasks != nil && a.Tasks.Backups != nil {
			return fmt.Sprintf("%.1f %%", 100*a.Tasks.Backups.ExtraShare)
		}
	}
	return "0 %"
}
