package suite

import (
	"math"
	"testing"
	"time"

	"testbed/emu/flowsim"
	"testbed/emu/flowsim/comparison"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/topo/units"
	"testbed/workloads"
)

// builder makes runs of two arms, a and b.
type builder struct{ *rundir.Run }

func newRun() builder {
	return builder{&rundir.Run{Summary: summary.Run{Arms: []summary.Arm{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}}
}

func (b builder) job(arm string, repeat int, id workloads.JobID, tasks int, from, to time.Duration) *schema.Job {
	b.Jobs = append(b.Jobs, schema.Job{Key: schema.Key{Arm: arm, Repeat: repeat}, Job: id, Tasks: &tasks, Arrival: from, End: to, JobTime: to - from})
	return &b.Jobs[len(b.Jobs)-1]
}

func (b builder) attempt(arm string, repeat int, id workloads.JobID, task int, start, end time.Duration, outcome, locality string) {
	b.Attempts = append(b.Attempts, schema.Attempt{Key: schema.Key{Arm: arm, Repeat: repeat}, Job: id, Task: task, Kind: flows.MapTask, Start: start, End: end, Outcome: outcome, Locality: locality})
}

func (b builder) flow(arm string, repeat int, of *workloads.JobID, src, dst string, size units.Bytes, failed bool) {
	b.Flows = append(b.Flows, schema.Flow{Key: schema.Key{Arm: arm, Repeat: repeat}, Job: of, Src: src, Dst: dst, Size: size, Failed: failed})
}

// of returns a figure of a quantity.
func of(name, as, statistic string, more ...func(*figure)) *figure {
	f := &figure{name: name, of: quantityOf(name), as: as}
	if !f.isStatistic(statistic) {
		panic(statistic)
	}
	for _, m := range more {
		m(f)
	}
	return f
}

func small(f *figure) { f.mostTasks = 10 }

// measured evaluates a figure of an arm relative to a base, and returns its average, NaN for none.
func measured(t *testing.T, f *figure, base, arm string, runs ...*rundir.Run) float64 {
	t.Helper()
	base, arm = f.arms(pair{base: base, arm: arm})
	r, err := f.measure(runs, runs[:1], base, arm)
	if err != nil {
		t.Fatal(err)
	}
	if r.none {
		return math.NaN()
	}
	return r.Value
}

// Figures of jobs compare the same jobs, count small ones apart, and leave out a repeat that an arm lacks.
func TestFiguresOfJobs(t *testing.T) {
	const s = time.Second
	run := newRun()
	run.job("a", 1, 1, 5, 0, s) // the other arm lacks it
	for arm, took := range map[string]time.Duration{"a": 4 * s, "b": s} {
		j, crossed, input := run.job(arm, 0, 1, 10, 0, took), units.Bytes(50*took.Seconds()), 100*units.Bytes(1)
		j.Profile, j.CrossRack, j.Input = "scan", &crossed, &input
		run.job(arm, 0, 2, 10, s, 5*s)
		run.job(arm, 0, 3, 11, 0, 8*s)
	}
	one := workloads.JobID(1)
	for arm, took := range map[string]time.Duration{"a": 2 * s, "b": 3 * s} { // a reduce fetches
		run.attempt(arm, 0, 2, 0, s, 5*s, flows.Committed, "")
		a := &run.Attempts[len(run.Attempts)-1]
		fetched := a.Start + took
		a.Kind, a.Stage, a.InputEnd = flows.ReduceTask, 1, &fetched
	}
	run.attempt("a", 0, 1, 0, 0, s, flows.Committed, "")
	run.attempt("a", 0, 1, 1, 0, s, flows.Committed, "")
	run.attempt("a", 0, 1, 2, 5*s, 6*s, flows.Committed, "") // a backup after 5 s
	run.attempt("a", 0, 1, 2, 0, 6*s, flows.Killed, "")
	run.attempt("a", 0, 3, 0, 0, s, flows.Committed, "") // of a large job
	run.attempt("a", 0, 3, 1, 0, 9*s, flows.Committed, "")
	run.attempt("b", 0, 1, 0, s, 2*s, flows.Committed, "")
	run.attempt("b", 0, 1, 1, s, 4*s, flows.Committed, "")
	run.attempt("b", 0, 1, 2, 0, 9*s, flows.Killed, "")
	run.flow("a", 0, &one, "h0-00", "h1-00", 200, false)
	run.flow("b", 0, &one, "h0-00", "h1-00", 50, false)
	run.flow("b", 0, &one, "h0-00", "h0-01", 250, false) // within its rack
	run.flow("b", 0, &one, "h0-00", "h0-01", 500, true)
	run.flow("b", 0, nil, "h0-00", "h1-00", 500, false) // of no task
	for _, tt := range []struct {
		f    *figure
		want float64
	}{
		{of("job_time", "saved", "mean"), 100 * 3. / 16},
		{of("job_time", "ratio", "mean"), 13. / 16},
		{of("job_time", "saved", "mean", small), 100 * 3. / 8},
		{of("job_time", "saved", "p75", small), 75 * 0.75},
		{of("job_time", "saved", "p90", small), 75 * 0.9},
		{of("job_time", "speedup", "max"), 4},
		{of("job_time", "paired", "mean"), 16. / 13},
		{of("job_time", "paired", "mean", func(f *figure) { f.profiles = []string{"scan"} }), 4},
		{of("job_time", "saved", "mean", func(f *figure) { f.mostMaps = 1 }), 0}, // job 2, without attempts, and job 3 of b
		{of("job_time", "value", "mean", small), 2.5},
		{of("slowest_task", "value", "mean", small), 1.5},
		{of("slowest_task", "base", "mean", small), 6},
		{of("slowest_task", "base", "p95"), 6 - 0.05*(6-1.8)},
		{of("straggler_time", "value", "mean", small), 100 * 1. / 5},
		{of("straggler_time", "base", "mean", small), 100 * 5. / 8},
		{of("straggler_time", "base", "mean"), 100 * (5 + 4.) / 16},
		{of("fetch_time", "added", "median", small), 50},
		{of("job_time", "value", "mean", func(f *figure) { f.leastTasks = 11 }), 8},
		{of("task_bytes", "ratio", "mean"), 1.5},
		{of("task_bytes", "value", "mean"), 300e-6},
		{of("cross_rack_bytes", "saved", "mean"), 75},
		{of("cross_rack_input", "value", "mean"), 0.5},
		{of("task_bytes", "ratio", "mean", func(f *figure) { f.over = overFirst }), 1},
	} {
		if got := measured(t, tt.f, "a", "b", run.Run); !(math.Abs(got-tt.want) < 1e-9) {
			t.Errorf("%s %s %s: %v, want %v", tt.f.name, tt.f.as, tt.f.statistic, got, tt.want)
		}
	}
	for _, f := range []*figure{of("job_time", "saved", "mean"), of("job_time", "paired", "mean"), of("makespan", "ratio", "mean"), of("node_local", "value", "mean")} {
		if got := measured(t, f, "a", "c", run.Run); !math.IsNaN(got) {
			t.Errorf("%s %s of an arm without jobs: %v", f.name, f.as, got)
		}
		if got := measured(t, f, "a", "d", run.Run); !math.IsNaN(got) {
			t.Errorf("%s %s of an unknown arm: %v", f.name, f.as, got)
		}
	}
	if _, err := of("slowdown", "value", "mean").measure([]*rundir.Run{run.Run}, nil, "", "a"); err == nil {
		t.Error("slowdowns of jobs without one: no error")
	}
}

// Shares and makespans are those of an arm, by repeat, over all runs.
func TestFiguresByRepeat(t *testing.T) {
	first, second := newRun(), newRun()
	first.job("a", 0, 1, 1, 2, 10)
	first.job("a", 0, 2, 1, 1, 5)
	first.job("b", 0, 1, 1, 1, 4)
	first.job("a", 1, 1, 1, 0, 6)
	first.job("b", 1, 1, 1, 0, 4)
	first.attempt("a", 0, 1, 0, 2, 10, flows.Committed, flows.NodeLocal)
	first.attempt("a", 0, 2, 0, 1, 5, flows.Committed, flows.OffRack)
	first.attempt("a", 1, 1, 0, 0, 6, flows.Committed, flows.NodeLocal)
	first.attempt("a", 0, 2, 1, 1, 5, flows.Committed, "")
	second.job("a", 0, 1, 1, 0, 1)
	second.attempt("a", 0, 1, 0, 0, 1, flows.Committed, flows.RackLocal)
	second.attempt("a", 0, 1, 1, 0, 1, flows.Killed, flows.NodeLocal)
	second.attempt("a", 0, 1, 1, 0, 1, flows.Committed, flows.NodeLocal)
	if got := measured(t, of("node_local", "value", "mean"), "", "a", first.Run, second.Run); got != 75 { // 2 of 4, and all of 1
		t.Errorf("node-local maps of both runs: %v %%, want 75", got)
	}
	// Job 1 of repeat 0 runs from 2 to 10, and the other from 1 to 5: both from 2 to 5.
	if got := measured(t, of("node_local", "value", "mean", func(f *figure) { f.allRun = true }), "", "a", first.Run); got != 100 {
		t.Errorf("node-local maps while all jobs run: %v %%, want 100", got)
	}
	if got := measured(t, of("makespan", "speedup", "mean"), "a", "b", first.Run); got != 2.25 { // 9/3 and 6/4
		t.Errorf("speed-up of the makespan %v, want 2.25", got)
	}
}

// The map of job 1 leaves 30 bytes from 2 to 6 s, and that of job 2 in the same repeat 10 bytes from 4 to 8 s.
func TestSpace(t *testing.T) {
	const s = time.Second
	run := newRun()
	for job, ends := range []struct {
		read, end time.Duration
		fetched   units.Bytes
	}{{2 * s, 6 * s, 30}, {4 * s, 8 * s, 10}} {
		id := workloads.JobID(job + 1)
		run.job("a", 0, id, 2, 0, ends.end)
		run.attempt("a", 0, id, 0, 0, ends.read, flows.Committed, flows.NodeLocal)
		run.Attempts[len(run.Attempts)-1].Input = 100
		run.attempt("a", 0, id, 0, ends.read, ends.end, flows.Committed, "")
		last := &run.Attempts[len(run.Attempts)-1]
		last.Stage, last.Input = 1, ends.fetched
	}
	run.job("a", 1, 1, 1, 0, s) // has no reduce
	if got := measured(t, of("space_peak", "value", "mean"), "", "a", run.Run); got != 40e-6 {
		t.Errorf("peak %v MB, want 40 bytes", got)
	}
	if got, want := measured(t, of("space_mean", "value", "mean"), "", "a", run.Run), (4*30.+4*10)/8*1e-6; math.Abs(got-want) > 1e-15 {
		t.Errorf("average %v MB, want %v", got, want)
	}
}

// Throughput counts the jobs of a profile that end before the first user has no job left.
func TestThroughput(t *testing.T) {
	run := newRun()
	job := func(arm, user, profile string, end time.Duration) {
		j := run.job(arm, 0, workloads.JobID(len(run.Jobs)), 1, 0, end*time.Hour)
		j.User, j.Profile = user, profile
	}
	// Until 4: two scans.
	job("a", "u1", "scan", 2)
	job("a", "u1", "scan", 4)
	job("a", "u1", "compute", 3)
	job("a", "u1", "compute", 5)
	job("a", "u2", "scan", 6)
	// Until 2: two scans.
	job("b", "u1", "scan", 1)
	job("b", "u1", "scan", 2)
	job("b", "u1", "compute", 5)
	job("b", "u2", "scan", 6)
	scans := func(f *figure) { f.profiles = []string{"scan"} }
	if got := measured(t, of("throughput", "ratio", "mean", scans), "a", "b", run.Run); got != 2 {
		t.Errorf("throughput of %v: want twice", got)
	}
}

// Figures of summaries are exact, and a drop is what the base has more.
func TestFiguresOfSummaries(t *testing.T) {
	share, missed := 0.25, 4
	run := newRun()
	run.Summary.Arms[0].Placement = &summary.Placement{Cv: &summary.Cv{Median: 0.5}, DiskImbalance: metrics.Average{Sum: share, N: 1}}
	run.Summary.Arms[1].Placement = &summary.Placement{Cv: &summary.Cv{Median: 0.2}}
	run.Summary.Arms[1].Coordinator = &summary.Decisions{Interval: 1, Intervals: 16, Missed: &missed}
	run.Summary.Arms[1].Estimates = []summary.Estimate{{Of: "straggle", Error: &share, Realized: &share}, {Of: "wait_us", SizeRange: &summary.SizeRange{LeastTasks: 11, MostTasks: 100}, Last: 2e6}}
	one := func(x float64) metrics.Average { return metrics.Average{Sum: x, N: 1} }
	tasks := &summary.Tasks{Backups: &summary.Backups{ExtraOf: []summary.ExtraOf{
		{SizeRange: summary.SizeRange{MostTasks: 10}, ShareOfExtra: one(0.5)},
		{SizeRange: summary.SizeRange{MostTasks: 50}, ShareOfExtra: one(0.3)},
		{ShareOfExtra: one(0.2)},
	}}}
	tasks.Bytes.ReadCrossRack = one(2e6)
	run.Summary.Arms[1].Tasks = tasks
	most := func(n int) func(*figure) { return func(f *figure) { f.mostTasks = n } }
	for _, tt := range []struct {
		f    *figure
		want float64
	}{
		{of("backup_share", "value", "mean", most(50)), 80}, {of("backup_share", "value", "mean"), 100},
		{of("estimated_wait", "value", "mean", most(100)), 2}, {of("tasks.bytes.read_cross_rack", "value", "mean"), 2},
		{of("placement.cv.median", "drop", "mean"), 0.3}, {of("placement.disk_imbalance", "base", "mean"), 25}, {of("missed_intervals", "value", "mean"), 25},
		{of("estimate_error", "value", "mean", func(f *figure) { f.estimate = "straggle" }), 25},
	} {
		if got := measured(t, tt.f, "a", "b", run.Run); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%s %s: %v, want %v", tt.f.name, tt.f.as, got, tt.want)
		}
	}
	if got := measured(t, of("placement.disk_imbalance", "value", "mean"), "a", "b", run.Run); !math.IsNaN(got) {
		t.Errorf("imbalance of disks without capacity: %v", got)
	}
	if got := hindsight(&run.Summary.Arms[1]); got["straggle"] != "0.2500" || got["wait"] != "2s,2s" {
		t.Errorf("estimates that are given: %v", got)
	}
}

// Of coflows of 10 flows each, two pilot flows of 10 estimate 100 instead of 80, one of 5 estimates 50 instead of
// 100, and the third coflow has none. Errors of 0.25 and -0.5: 0.375 on average, and 0.375 from their mean, -0.125.
func TestSizeError(t *testing.T) {
	r := &comparison.Run{Coflows: []flowsim.Coflow{{Width: 10, Size: 80, Pilots: 2, PilotSent: 20}, {Width: 10, Size: 100, Pilots: 1, PilotSent: 5}, {Width: 10, Size: 7}}}
	for statistic, want := range map[string]float64{"mean": 0.375, "deviation": 0.375, "median": 0.375, "p90": 0.475} {
		if got, _ := sizeError(nil, r, of("size_error", "value", statistic)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", statistic, got, want)
		}
	}
	if got, _ := sizeError(nil, &comparison.Run{}, of("size_error", "value", "mean")); !math.IsNaN(got) {
		t.Errorf("of no coflows: %v", got)
	}
}

// soonLearned is the quantity learned of coflows.
func soonLearned(all []flowsim.Coflow) (float64, error) {
	return quantityOf("learned").trace(nil, &comparison.Run{Coflows: all}, of("learned", "value", "mean"))
}

// Coflows of 8 flows that are in their last queue after 0.5 % and 50 % of their CCT, and a thin one after 90 %. The pilot
// flows of the first end after half of its CCT, the second has none, and the third is thin: nothing to learn.
func TestLearned(t *testing.T) {
	const s = time.Second
	all := []flowsim.Coflow{
		{Width: 8, Size: 10, Arrival: 10 * s, Finish: 110 * s, Queued: 10*s + 500*time.Millisecond},
		{Width: 8, Size: 10, Finish: 100 * s, Queued: 50 * s},
		{Width: 7, Size: 10, Finish: 100 * s, Queued: 90 * s},
	}
	if got, _ := soonLearned(all); math.Abs(got-100./3) > 1e-9 {
		t.Errorf("by queues %v %%", got)
	}
	all[0].Pilots, all[0].Sampled = 1, 60*s
	all[2].Pilots, all[2].Sampled = 1, 50*s
	if got, _ := soonLearned(all); math.Abs(got-200./3) > 1e-9 {
		t.Errorf("by pilots %v %%", got)
	}
	all[0].SampledSent, all[1].QueuedSent = 4, 10
	// 50 % of the time and 40 % of the bytes of one coflow of three.
	for name, want := range map[string]float64{"learning_time": 50. / 3, "learning_bytes": 40. / 3} {
		got, _ := quantityOf(name).trace(nil, &comparison.Run{Coflows: all}, of(name, "value", "mean"))
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s %v %%, want %v", name, got, want)
		}
	}
}

// Of 4 intervals, in which 6 agents report in total, one needs no new rates; relative to a policy under which 3 report.
func TestCoordinatorPerInterval(t *testing.T) {
	runs := []comparison.Run{
		{Policy: "a", Coordinator: flowsim.Coordinator{Intervals: 4, Updates: 6, Unflushed: 1}},
		{Policy: "b", Coordinator: flowsim.Coordinator{Intervals: 4, Updates: 3}},
	}
	tr := &traced{out: &comparison.Outcome{Runs: runs}}
	for want, f := range map[float64]*figure{
		1.5: of("agents", "value", "mean"), 25: of("no_rates", "value", "mean"), 2: of("agents", "ratio", "mean"),
	} {
		if r, err := f.measureTrace(tr, "b", "a"); err != nil || r.Value != want || !r.exact {
			t.Errorf("%s %s: %+v, %v, want %v", f.name, f.as, r, err, want)
		}
	}
}

// A job of tasks has its profile, and one of a bin that of the bin.
func TestProfileOfBin(t *testing.T) {
	bin, tasks := 3, 1
	for want, j := range map[string]schema.Job{
		"bin3": {Bin: &bin}, "": {}, "scan": {Profile: "scan", Tasks: &tasks},
	} {
		if got := profileOf(&j); got != want {
			t.Errorf("%+v: %q, want %q", j, got, want)
		}
	}
}

func TestReadShare(t *testing.T) {
	tasks := &summary.Tasks{}
	tasks.Bytes.ReadCrossRack, tasks.Bytes.FetchedCrossRack = metrics.Average{Sum: 1, N: 1}, metrics.Average{Sum: 3, N: 1}
	a := &summary.Arm{Declared: summary.Declared{Tasks: tasks}}
	if got := quantityOf("cross_rack_read_share").arm(a, nil); got == nil || *got != 25 {
		t.Errorf("share of reads %v, want 25 %%", got)
	}
}
