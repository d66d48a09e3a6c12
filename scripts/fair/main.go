// Command fair compares the task schedulers of the FAIR report (Zaharia and others, Job Scheduling for
// Multi-User MapReduce Clusters, UCB/EECS-2009-55): FIFO, FAIR, delay scheduling, killing and copy-compute
// splitting, on packets and on the fluid model. It prints each figure next to the report's, the range that
// is expected at this scale, and the reason (claims.yaml). docs/fair.md explains the results.
//
// Run it from the root of the repository:
//
//	make suite-fair
//
// The parts on packets need root; -fluid leaves packets out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/scripts/suite"
)

// fair is one run of the suite.
type fair struct {
	suite.Options
	*suite.Report
	program suite.Program
	claims  *suite.Claims
	trace   string // path of SWIM-FB-2009; empty for none
}

// part is one experiment.
type part struct {
	name, title, doc string
	packets          bool                               // runs on packets too
	run              func(*fair, context.Context) error // nil if the suite does not have it yet
}

var parts = []part{
	{name: "locality", title: "small jobs with and without delay scheduling", packets: true, run: (*fair).locality,
		doc: "32 hosts with one replica of each block. Locality is the share of maps that read a block of their own host."},
	{name: "sticky", title: "equal jobs that keep their slots", run: (*fair).sticky,
		doc: "25 hosts with 4 map slots and three replicas. Equal jobs arrive within a few seconds; counted are the maps that start while all of them run."},
	{name: "response", title: "one job on an idle cluster", run: (*fair).response,
		doc: "32 hosts with one replica of each block; a job of 16 maps and one reduce."},
	{name: "biasing", title: "IO-rate biasing", run: (*fair).biasing,
		doc: "100 hosts with 4 map slots; 10 workers who scan and 10 who compute, each with one job at a time, all of one file of 16 blocks. Counted are the jobs that end while all workers have jobs."},
	{name: "single", title: "one large job with and without copy-compute splitting", run: (*fair).single,
		doc: "25 hosts with 2 reduce slots; 300 maps and 150 reduces, three waves."},
	{name: "slowdown", title: "the report's simulation", run: (*fair).slowdown,
		doc: "10 hosts with one map and one reduce slot, 30 jobs, one a minute on average. The slowdown of a job is its time divided by its time alone."},
	{name: "batch", title: "a batch of large jobs under FIFO and FAIR", packets: true, run: (*fair).batch,
		doc: "16 hosts, 5 jobs of 32 maps and 15 reduces, submitted at once."},
	{name: "macro", title: "the macro benchmark", run: (*fair).macro,
		doc: "25 hosts with 2 map slots and 1 reduce slot, an eighth of the maps of the report."},
	{name: "swim", title: "a day at Facebook", run: (*fair).swim,
		doc: "The jobs of SWIM-FB-2009 on 600 hosts with 4 map slots and 2 reduce slots, 5:1 oversubscribed. Small jobs have up to 25 maps."},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func main() {
	var o suite.Options
	o.Flags("fair", partNames())
	trace := flag.String("trace", "", "`file` with the trace SWIM-FB-2009, for the part swim (default: without that part)")
	o.FluidFlag()
	suite.Main("fair", func(ctx context.Context, stdout io.Writer) error { return run(ctx, o, *trace, stdout) })
}

func run(ctx context.Context, o suite.Options, trace string, stdout io.Writer) error {
	chosen, err := o.Chosen(partNames())
	if err != nil {
		return err
	}
	if err := o.NeedRoot(slices.ContainsFunc(parts, func(p part) bool { return p.packets && slices.Contains(chosen, p.name) })); err != nil {
		return err
	}
	f := &fair{Options: o, program: o.Program(), trace: trace}
	if f.claims, err = suite.ReadClaims(o.Claims, partNames()); err != nil {
		return err
	}
	if f.Report, err = o.Begin(stdout); err != nil {
		return err
	}
	var run []suite.Part
	for _, p := range parts {
		switch {
		case p.run == nil:
			f.claims.Skip(p.name+"/", "the suite does not have this part yet")
		case slices.Contains(chosen, p.name):
			run = append(run, suite.Part{Name: p.name, Title: p.title, Run: func(ctx context.Context) error {
				f.Say("%s\n", p.doc)
				if f.claims.Backend = "fluid model"; p.packets && !f.Fluid {
					f.claims.Backend = "packets"
				}
				return p.run(f, ctx)
			}})
		}
	}
	return f.Run(ctx, f.claims, run)
}

// simulate runs a scenario of this directory on the fluid model, with assignments to its variables.
func (f *fair) simulate(ctx context.Context, scenario string, repeat int, set ...string) (*rundir.Run, error) {
	both, err := f.both(ctx, false, scenario, repeat, set...)
	if err != nil {
		return nil, err
	}
	return both[0].Run, nil
}

// both runs a scenario of this directory on the fluid model and, if packets is true and -fluid is not given, on
// packets. The last run is the one that claims judge. If an arm is void, the error is ErrVoid.
func (f *fair) both(ctx context.Context, packets bool, scenario string, repeat int, set ...string) ([]suite.Backend, error) {
	return f.Backends(ctx, f.Report, packets, filepath.Join("scripts", "fair", scenario), repeat, set...)
}

// runs are run directories that are evaluated together.
type runs []*rundir.Run

// jobs returns the times of an arm's jobs that are chosen. Jobs of different runs are different.
func (r runs) jobs(arm string, chosen func(*schema.Job) bool) (items []metrics.Item) {
	const apart = 1 << 20 // more than the jobs of a run
	for i, run := range r {
		for j := range run.Jobs {
			if job := &run.Jobs[j]; job.Arm == arm && (chosen == nil || chosen(job)) {
				id := i*apart + int(job.Job)
				// A repeat draws its own jobs, so that the same number is another job.
				items = append(items, metrics.Item{Repeat: job.Repeat, ID: id, Time: job.JobTime, Cluster: job.Repeat*len(r)*apart + id})
			}
		}
	}
	return items
}

// seed is the seed of confidence intervals.
const seed = 1

// ratio records the average time under one arm divided by that under another.
func (f *fair) ratio(id string, base, arm []metrics.Item) {
	p := metrics.Pair(base, arm, seed, nil)
	f.claims.Measured(id, p.MeanRatio, p.MeanRatioCI)
}

// node returns the share of node-local maps among the committed maps of an arm that are chosen, in %, by
// repeat.
func (r runs) node(arm string, chosen func(*schema.Attempt) bool) (shares []float64) {
	local, all := map[int]float64{}, map[int]float64{}
	for _, run := range r {
		for i := range run.Attempts {
			a := &run.Attempts[i]
			if a.Arm != arm || a.Locality == "" || a.Outcome != flows.Committed || chosen != nil && !chosen(a) {
				continue
			}
			if all[a.Repeat]++; a.Locality == flows.NodeLocal {
				local[a.Repeat]++
			}
		}
	}
	for repeat := range len(all) {
		shares = append(shares, 100*local[repeat]/all[repeat])
	}
	return shares
}

// makespans returns the time from the first submission to the last end under an arm divided by that
// under another, by repeat; none if an arm is void.
func (r runs) makespans(arm, base string) []float64 { return suite.Makespans(r, arm, base) }

// over records the average of a figure of each repeat, and returns it. A void arm has none.
func (f *fair) over(id string, values []float64) float64 { return f.claims.Over(id, values).Value }

// locality measures the node-local maps of small jobs.
func (f *fair) locality(ctx context.Context) error {
	var small runs
	var rows [][]string
	var void error
	for _, size := range []struct{ maps, jobs, gap string }{{"3", "100", "200ms"}, {"10", "60", "400ms"}, {"100", "12", "3s"}} {
		both, err := f.both(ctx, true, "locality.yaml", f.Repeat, "maps="+size.maps, "jobs="+size.jobs, "gap="+size.gap)
		if both == nil {
			return err
		}
		void = errors.Join(void, err)
		for _, b := range both {
			one := runs{b.Run}
			p := metrics.Pair(one.jobs("fair", nil), one.jobs("delay", nil), seed, nil)
			rows = append(rows, []string{size.maps, b.Name, average(one.node("fair", nil)), average(one.node("delay", nil)),
				metrics.Estimate{Value: p.MeanRatio, CI: p.MeanRatioCI}.String()})
		}
		judged := runs{both[len(both)-1].Run}
		f.over("locality/"+size.maps+"-none", judged.node("fair", nil))
		f.over("locality/"+size.maps+"-delay", judged.node("delay", nil))
		if size.maps != "100" {
			small = append(small, judged...)
		}
	}
	f.over("locality/small-none", small.node("fair", nil))
	f.over("locality/small-delay", small.node("delay", nil))
	if err := f.Draw([]string{"maps a job", "on", "node-local under FAIR", "with delay scheduling", "job time, FAIR relative to delay"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, size := range []struct{ maps, workers int }{{3, 400}, {10, 120}, {100, 12}} {
		const each = 6 // jobs of a worker
		busy, err := f.simulate(ctx, "throughput.yaml", f.Repeat, fmt.Sprintf("maps=%d", size.maps), fmt.Sprintf("workers=%d", size.workers), fmt.Sprintf("jobs=%d", each*size.workers))
		if err != nil {
			return err
		}
		gain := throughput(busy, "delay", "fair", "filter")
		f.over(fmt.Sprintf("locality/%d-throughput", size.maps), gain)
		rows = append(rows, []string{fmt.Sprint(size.maps), fmt.Sprint(size.workers), metrics.OverRepeats(gain).String()})
	}
	return errors.Join(void, f.Draw([]string{"maps a job", "workers", "throughput of a busy cluster on the fluid model, delay relative to FAIR"}, rows))
}

// throughput returns the jobs per time of a profile under an arm divided by that under another, by repeat,
// up to the time at which the first user has no job left.
func throughput(run *rundir.Run, arm, base, profile string) (ratios []float64) {
	type user struct {
		schema.Key
		name, profile string
	}
	last := map[user]time.Duration{} // end of each user's last job
	for _, j := range run.Jobs {
		u := user{j.Key, j.User, j.Profile}
		last[u] = max(last[u], j.End)
	}
	until := map[schema.Key]time.Duration{}
	repeats := 0
	for u, end := range last {
		if first, ok := until[u.Key]; !ok || end < first {
			until[u.Key] = end
		}
		repeats = max(repeats, u.Repeat+1)
	}
	rates := map[string][]float64{arm: make([]float64, repeats), base: make([]float64, repeats)}
	for _, j := range run.Jobs {
		if rate := rates[j.Arm]; rate != nil && j.Profile == profile && j.End <= until[j.Key] {
			rate[j.Repeat] += 1 / until[j.Key].Hours()
		}
	}
	for repeat := range repeats {
		ratios = append(ratios, rates[arm][repeat]/rates[base][repeat])
	}
	return ratios
}

// response measures the time of one job on an idle cluster.
func (f *fair) response(ctx context.Context) error {
	run, err := f.simulate(ctx, "response.yaml", 2*f.Repeat) // a repeat has one job: the report has 8 runs
	if err != nil {
		return err
	}
	r := runs{run}
	f.ratio("response/time", r.jobs("fair", nil), r.jobs("delay", nil))
	none, delay := f.over("response/none", r.node("fair", nil)), f.over("response/delay", r.node("delay", nil))
	f.Say("Node-local maps: %s, with delay scheduling %s.\n", percent(none), percent(delay))
	return nil
}

// biasing compares delay scheduling of all jobs with that of those that are bound by reads.
func (f *fair) biasing(ctx context.Context) error {
	run, err := f.simulate(ctx, "biasing.yaml", f.Repeat)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, profile := range []string{"scan", "compute"} {
		row := []string{profile}
		for _, base := range []string{"none", "untuned"} {
			gain := throughput(run, "biasing", base, profile)
			f.over("biasing/"+profile+"-"+base, gain)
			row = append(row, metrics.OverRepeats(gain).String())
		}
		rows = append(rows, row)
	}
	return f.Draw([]string{"jobs", "throughput relative to no delay", "relative to delay for all"}, rows)
}

// single measures the gain of copy-compute splitting for one job.
func (f *fair) single(ctx context.Context) error {
	run, err := f.simulate(ctx, "single.yaml", f.Repeat)
	if err != nil {
		return err
	}
	gains := runs{run}.makespans("splitting", "fair")
	for i := range gains {
		gains[i] = 100 * (1 - gains[i])
	}
	f.Say("Splitting reduces the time of the job by %s.\n", percent(f.over("single/gain", gains)))
	return nil
}

// full returns a function that reports whether an attempt starts while all jobs of its arm and repeat run.
func full(run *rundir.Run) func(*schema.Attempt) bool {
	spans := map[schema.Key][2]time.Duration{} // from the last arrival to the first end
	for _, j := range run.Jobs {
		span, ok := spans[j.Key]
		if !ok {
			span[1] = j.End
		}
		spans[j.Key] = [2]time.Duration{max(span[0], j.Arrival), min(span[1], j.End)}
	}
	return func(a *schema.Attempt) bool {
		span := spans[a.Key]
		return span[0] <= a.Start && a.Start < span[1]
	}
}

// sticky measures the node-local maps of equal jobs that keep the slots that they first got, and compares
// them with the closed form, in which each slot has an owner at random.
func (f *fair) sticky(ctx context.Context) error {
	const (
		replicas, slots = 3, 4 // of a block, and of a host
		maps            = 2800 // of all jobs, 180 GB as in the report
		arrive          = 10 * time.Second
	)
	var rows [][]string
	var delayed [][]float64
	for _, jobs := range []int{5, 10, 20, 50} {
		run, err := f.simulate(ctx, "sticky.yaml", f.Repeat, fmt.Sprintf("jobs=%d", jobs), fmt.Sprintf("maps=%d", maps/jobs), fmt.Sprintf("gap=%v", arrive/time.Duration(jobs)))
		if err != nil {
			return err
		}
		r := runs{run}
		local := f.over(fmt.Sprintf("sticky/formula-%d", jobs), r.node("fair", full(run)))
		if jobs == 5 || jobs == 50 {
			f.over(fmt.Sprintf("sticky/locality-%d", jobs), r.node("fair", nil))
		}
		delay, gain := r.node("delay", nil), r.makespans("fair", "delay")
		if jobs > 5 {
			delayed = append(delayed, delay)
			f.over(fmt.Sprintf("sticky/throughput-%d", jobs), gain)
		}
		formula := 100 * (1 - math.Pow(1-1/float64(jobs), replicas*slots))
		rows = append(rows, []string{fmt.Sprint(jobs), percent(formula), percent(local), percent(metrics.OverRepeats(r.node("fair", nil)).Value), percent(metrics.OverRepeats(delay).Value),
			metrics.OverRepeats(gain).String()})
	}
	f.over("sticky/delay-locality", means(delayed))
	return f.Draw([]string{"jobs", "closed form", "node-local, all jobs run", "whole run", "with delay scheduling", "throughput with delay relative to without"}, rows)
}

// means returns the average of figures by repeat.
func means(figures [][]float64) []float64 {
	out := make([]float64, len(figures[0]))
	for _, of := range figures {
		for i, x := range of {
			out[i] += x / float64(len(figures))
		}
	}
	return out
}

// slowdown compares job times with those of the jobs alone.
func (f *fair) slowdown(ctx context.Context) error {
	// Slowdowns vary much between the draws of 30 jobs: the report has 20 runs of each scheduler.
	repeat := 4 * f.Repeat
	busy, err := f.simulate(ctx, "slowdown.yaml", repeat)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(busy.Jobs, func(j schema.Job) bool { return j.Slowdown == nil }) {
		return fmt.Errorf("%s: jobs without a slowdown: raise limits.alone", busy.Dir)
	}
	slow := func(arm string) (items []metrics.Item, mean, most float64) {
		var ratios []float64
		items = runs{busy}.jobs(arm, func(j *schema.Job) bool {
			ratios = append(ratios, *j.Slowdown)
			return true
		})
		for i, ratio := range ratios {
			mean, most = mean+ratio/float64(len(ratios)), max(most, ratio)
			items[i].Time = time.Duration(ratio * float64(time.Second)) // a slowdown of 1 as 1 s
		}
		return items, mean, most
	}
	items := map[string][]metrics.Item{}
	var rows [][]string
	for _, arm := range []string{"fifo", "fair", "kill", "splitting"} {
		var mean, most float64
		items[arm], mean, most = slow(arm)
		if arm == "fifo" {
			f.claims.Exact("slowdown/fifo-max", most)
		}
		batch := metrics.OverRepeats(runs{busy}.makespans(arm, "fifo"))
		rows = append(rows, []string{arm, fmt.Sprintf("%.2f", mean), fmt.Sprintf("%.1f", most), fmt.Sprintf("%.3f", batch.Value)})
	}
	f.ratio("slowdown/fair", items["fifo"], items["fair"])
	f.ratio("slowdown/kill", items["fair"], items["kill"])
	f.ratio("slowdown/splitting", items["fair"], items["splitting"])
	f.ratio("slowdown/kill-splitting", items["kill"], items["splitting"])
	f.over("slowdown/batch", runs{busy}.makespans("fair", "fifo"))
	return f.Draw([]string{"scheduler", "mean slowdown", "largest", "time of the batch relative to FIFO"}, rows)
}

// gains returns the time until all jobs have ended under FAIR relative to FIFO, minus 1, in %, by repeat.
func (r runs) gains() []float64 {
	gains := r.makespans("fair", "fifo")
	for k := range gains {
		gains[k] = 100 * (gains[k] - 1)
	}
	return gains
}

// batch compares the time until all jobs have ended.
func (f *fair) batch(ctx context.Context) error {
	both, void := f.both(ctx, true, "batch.yaml", f.Repeat)
	if both == nil {
		return void
	}
	for i, b := range both {
		gains := runs{b.Run}.gains()
		if i == len(both)-1 {
			f.over("batch/gain", gains)
		}
		if len(gains) > 0 {
			f.Say("On %s the batch takes %s longer under FAIR than under FIFO.\n", b.Name, average(gains))
		}
	}
	return void
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", x) }

// average returns the average over repeats, and a dash for a void arm, which has none.
func average(shares []float64) string {
	if len(shares) == 0 {
		return "–"
	}
	return percent(metrics.OverRepeats(shares).Value)
}

// macro compares the response times of the macro benchmark's jobs.
func (f *fair) macro(ctx context.Context) error {
	run, err := f.simulate(ctx, "macro.yaml", f.Repeat)
	if err != nil {
		return err
	}
	r := runs{run}
	small := func(j *schema.Job) bool { return j.Profile == "bm0" || j.Profile == "bm1" }
	// The gain of splitting for small jobs varies much between schedules.
	pair, err := f.simulate(ctx, "macro-splitting.yaml", 5*f.Repeat)
	if err != nil {
		return err
	}
	f.ratio("macro/fair", r.jobs("fifo", small), r.jobs("fair", small))
	f.ratio("macro/splitting", r.jobs("fifo", small), r.jobs("fair-split", small))
	f.ratio("macro/fair-splitting", runs{pair}.jobs("fair", small), runs{pair}.jobs("fair-split", small))
	f.ratio("macro/fifo-splitting", r.jobs("fifo", nil), r.jobs("fifo-split", nil))
	f.ratio("macro/delay", r.jobs("fair-split", nil), r.jobs("fair-split-delay", nil))
	most := 0.0
	arm := map[[2]int]time.Duration{}
	for _, x := range r.jobs("fair-split", nil) {
		arm[[2]int{x.Repeat, x.ID}] = x.Time
	}
	for _, x := range r.jobs("fifo", nil) {
		most = max(most, float64(x.Time)/float64(arm[[2]int{x.Repeat, x.ID}]))
	}
	f.claims.Exact("macro/splitting-max", most)
	none, delay := f.over("macro/locality-none", r.node("fair-split", nil)), f.over("macro/locality-delay", r.node("fair-split-delay", nil))
	f.Say("Node-local maps under FAIR with splitting: %s, with delay scheduling %s.\n", percent(none), percent(delay))
	var rows [][]string
	for _, name := range []string{"fifo", "fair", "fifo-split", "fair-split", "fair-split-delay"} {
		row := []string{name}
		for _, chosen := range []func(*schema.Job) bool{small, nil} {
			p := metrics.Pair(r.jobs("fifo", chosen), r.jobs(name, chosen), seed, nil)
			row = append(row, metrics.Estimate{Value: p.MeanRatio, CI: p.MeanRatioCI}.String())
		}
		rows = append(rows, row)
	}
	return f.Draw([]string{"scheduler", "speed-up of small jobs over FIFO", "of all jobs"}, rows)
}

// swim runs the day of the trace once: all its repeats would have the same jobs.
func (f *fair) swim(ctx context.Context) error {
	if f.trace == "" {
		const why = "needs the trace SWIM-FB-2009, which is not part of this project: -trace SWIM-FB-2009-0.tsv"
		f.claims.Skip("swim/", why)
		f.Say("Not run: %s.\n", why)
		return nil
	}
	derived, err := filepath.Abs(filepath.Join(f.Dir, "swim.yaml"))
	if err != nil {
		return err
	}
	if _, err := f.program.Command(ctx, "workload", "jobs", "derive", f.trace, "-o", derived); err != nil {
		return err
	}
	run, err := f.simulate(ctx, "swim.yaml", 1, "jobs="+derived)
	if err != nil {
		return err
	}
	r := runs{run}
	if n := len(r.jobs("fifo", nil)); n != swimJobs {
		f.claims.Skip("swim/", fmt.Sprintf("the claims are about the whole trace SWIM-FB-2009 with %d jobs: %s has %d", swimJobs, f.trace, n))
	}
	maps := mapsOf(run, "fifo")
	small := func(j *schema.Job) bool { return maps[repeatJob{j.Repeat, int(j.Job)}] <= 25 }
	ofSmall := func(a *schema.Attempt) bool { return maps[repeatJob{a.Repeat, int(a.Job)}] <= 25 }
	f.ratio("swim/fair", r.jobs("fifo", small), r.jobs("fair", small))
	f.claims.Exact("swim/locality-none", r.node("fair", ofSmall)[0])
	f.claims.Exact("swim/locality-delay", r.node("delay", ofSmall)[0])
	var rows [][]string
	for _, arm := range []string{"fifo", "fair", "delay", "delay-split"} {
		row := []string{arm}
		for _, chosen := range []func(*schema.Job) bool{nil, small} {
			var sum time.Duration
			items := r.jobs(arm, chosen)
			for _, x := range items {
				sum += x.Time
			}
			row = append(row, fmt.Sprintf("%.2f", (sum/time.Duration(len(items))).Seconds()))
		}
		rows = append(rows, append(row, percent(r.node(arm, nil)[0]), percent(r.node(arm, ofSmall)[0]), fmt.Sprintf("%.4f", r.makespans(arm, "fifo")[0])))
	}
	return f.Draw([]string{"scheduler", "mean job time, s", "of small jobs, s", "node-local maps", "of small jobs", "makespan relative to FIFO"}, rows)
}

// swimJobs is the number of jobs of SWIM-FB-2009.
const swimJobs = 5894

// repeatJob identifies a job of a run.
type repeatJob struct{ repeat, job int }

// mapsOf returns the numbers of maps of the jobs of an arm.
func mapsOf(run *rundir.Run, arm string) map[repeatJob]int {
	maps := map[repeatJob]int{}
	for i := range run.Attempts {
		if a := &run.Attempts[i]; a.Arm == arm && a.Kind == flows.MapTask && a.Outcome == flows.Committed {
			maps[repeatJob{a.Repeat, int(a.Job)}]++
		}
	}
	return maps
}
