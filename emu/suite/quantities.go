package suite

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"testbed/emu/flowsim"
	"testbed/emu/flowsim/comparison"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/tracestats"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// quantity is what a figure is about. One of its functions is set, which is of runs of scenarios unless it is one of
// traces.
type quantity struct {
	name, unit, doc string
	packets         bool    // exists only on packets
	per             float64 // of a value by repeat in the unit, 0 for 1
	// job returns the value of a job; false if it has none.
	job func(*schema.Job) (float64, bool)
	// repeats returns the value of an arm by repeat, of runs that are evaluated together.
	repeats func([]*rundir.Run, string, *figure) series
	// arm returns a value over all repeats.
	arm func(*report.ArmSummary, *figure) *float64
	// compared is the metric of testbed compare.
	compared bool
	// trace returns a value of a policy in the flow-level simulator, and coflows values of its coflows.
	trace   func(*traced, *comparison.Run, *figure) (float64, error)
	coflows func(*traced, *comparison.Run, *figure) []metrics.Item
}

// series is a value by repeat.
type series map[int]float64

// quantities are all of them; docs/suites.md lists them.
var quantities = []quantity{
	{
		name: "job_time", unit: "s", compared: true,
		doc: "time of a job",
		job: func(j *schema.Job) (float64, bool) { return j.JobTime.Seconds(), true },
	},
	{
		name: "slowdown", unit: "×",
		doc: "time of a job over that of the job alone (limits.alone)",
		job: func(j *schema.Job) (float64, bool) {
			if j.Slowdown == nil {
				return 0, false
			}
			return *j.Slowdown, true
		},
	},
	{
		name: "makespan", unit: "s", per: float64(time.Second),
		doc:     "from the first submission of a job to the last end",
		repeats: makespans,
	},
	{
		name: "throughput", unit: "jobs/h",
		doc:     "jobs that end while all users have jobs",
		repeats: throughput,
	},
	{
		name: "node_local", unit: "%",
		doc:     "committed maps that read a block of their own host",
		repeats: nodeLocal,
	},
	{
		name: "slowest_task", unit: "×",
		doc: "slowest task over the median of its stage, each from its first launch; the statistic is over " +
			"stages of two tasks or more",
		repeats: slowestTask,
	},
	{
		name: "straggler_time", unit: "%",
		doc: "time of the slowest task of each stage beyond the median of the stage, each from its first launch, " +
			"in the time of the jobs",
		repeats: stragglerTime,
	},
	{
		name: "fetch_time", unit: "s",
		doc:     "time from the launch of an attempt that committed to its last fetch; the statistic is over such attempts",
		repeats: fetchTime,
	},
	{
		name: "task_bytes", unit: "MB", per: 1e6,
		doc:     "payload that tasks read and fetched from other hosts",
		repeats: taskBytes,
	},
	{
		name: "cross_rack_bytes", unit: "MB", per: 1e6,
		doc:     "the part of it between racks",
		repeats: crossRack,
	},
	{
		name: "cross_rack_input", unit: "",
		doc:     "the same for each byte of input of the jobs",
		repeats: perInput,
	},

	{
		name: "cct", unit: "s", compared: true,
		doc:     "coflow completion time",
		coflows: ccts,
	},
	{
		name: "fct", unit: "s", compared: true,
		doc: "flow completion time",
	},
	{
		name: "write_time", unit: "s", compared: true,
		doc: "time of a block write",
	},
	{
		name: "request_time", unit: "s", compared: true,
		doc: "time of a write request, all blocks of a writer",
	},

	{
		name: "cross_rack_reads", unit: "MB",
		doc: "blocks that tasks read from other racks, in a repeat",
		arm: ofTasks(func(t *report.TaskSummary) *float64 { return megabytes(t.Bytes.ReadCrossRack) }),
	},
	{
		name: "cross_rack_fetches", unit: "MB",
		doc: "outputs that tasks fetched from other racks, in a repeat",
		arm: ofTasks(func(t *report.TaskSummary) *float64 { return megabytes(t.Bytes.FetchedCrossRack) }),
	},
	{
		name: "cross_rack_read_share", unit: "%",
		doc: "blocks that tasks read from other racks, of the bytes of tasks between racks",
		arm: ofTasks(func(t *report.TaskSummary) *float64 {
			share := 100 * t.Bytes.ReadCrossRack / (t.Bytes.ReadCrossRack + t.Bytes.FetchedCrossRack)
			return &share
		}),
	},
	{
		name: "map_racks", unit: "racks",
		doc: "racks of a job's maps",
		arm: ofTasks(func(t *report.TaskSummary) *float64 {
			if t.Shuffle == nil {
				return nil
			}
			return t.Shuffle.MapRacks
		}),
	},
	{
		name: "space_mean", unit: "MB", per: 1e6,
		doc:     "stored outputs of maps of unfinished jobs, averaged over the makespan",
		repeats: space(func(s *metrics.ShuffleFigures) metrics.Average { return s.SpaceMean }),
	},
	{
		name: "space_peak", unit: "MB", per: 1e6,
		doc:     "the most of them at any time",
		repeats: space(func(s *metrics.ShuffleFigures) metrics.Average { return s.SpacePeak }),
	},
	{
		name: "reduces_at_data", unit: "%",
		doc: "reduces in the racks that have most of their data",
		arm: ofTasks(func(t *report.TaskSummary) *float64 {
			if t.Shuffle == nil {
				return nil
			}
			return percent(t.Shuffle.ReducesAtData)
		}),
	},
	{
		name: "backup_slots", unit: "%",
		doc: "slot time of attempts that did not commit, of tasks with several",
		arm: ofTasks(func(t *report.TaskSummary) *float64 {
			if t.Backups == nil {
				return new(float64)
			}
			return percent(&t.Backups.ExtraShare)
		}),
	},
	{
		name: "backup_share", unit: "%",
		doc: "part of that slot time that jobs of the classes of numbers of tasks up to most_tasks have",
		arm: backupShare,
	},
	{
		name: "estimated_wait", unit: "s",
		doc: "last ω that the task scheduler learned, for jobs of the class of most_tasks",
		arm: estimatedWait,
	},
	{
		name: "estimate_error", unit: "%",
		doc: "relative error of what the task scheduler estimates, which the key estimate names (docs/results.md)",
		arm: estimateError,
	},
	{
		name: "cv", unit: "",
		doc: "coefficient of variation of the load of the receiving bottleneck links, median over intervals",
		arm: ofBlocks(func(p *report.PlacementSummary) *float64 {
			if p.Cv == nil {
				return nil
			}
			return &p.Cv.Median
		}),
	},
	{
		name: "disk_imbalance", unit: "%",
		doc: "standard deviation over hosts of stored bytes, over a disk's capacity",
		arm: ofBlocks(func(p *report.PlacementSummary) *float64 { return percent(p.DiskImbalance) }),
	},
	{
		name: "over_bound", unit: "×",
		doc: "block write time over its lower bound with all links shared",
		arm: ofBlocks(func(p *report.PlacementSummary) *float64 {
			if p.Bounds == nil || p.Bounds.OverFluid == 0 {
				return nil
			}
			return &p.Bounds.OverFluid
		}),
	},
	{
		name: "missed_intervals", unit: "%", packets: true,
		doc: "intervals of the coordinator that decided too late",
		arm: func(a *report.ArmSummary, _ *figure) *float64 {
			c := a.Coordinator
			if c == nil || c.Missed == nil || c.IntervalUS <= 0 {
				return nil
			}
			share := 100 * float64(*c.Missed) / float64(c.Intervals)
			return &share
		},
	},

	{
		name: "coflows", unit: "",
		doc:   "coflows of the trace",
		trace: func(t *traced, _ *comparison.Run, _ *figure) (float64, error) { return float64(t.out.Coflows), nil },
	},
	{
		name: "shuffle_job_time", unit: "s",
		doc:     "time of a job of which a coflow is the shuffle, with the shares of the shuffle in Aalo's evaluation",
		coflows: ccts,
	},
	{
		name: "size_error", unit: "",
		doc: "relative error of the sizes of coflows that pilot flows estimate, as an absolute value; " +
			"deviation is that of the signed error",
		trace: sizeError,
	},
	{
		name: "learned", unit: "%",
		doc: "coflows that learn within 1 % of their CCT: until their pilot flows have ended, without these " +
			"until they are in their last queue",
		trace: learning(soon),
	},
	{
		name: "learning_time", unit: "%", doc: "share of its CCT after which a coflow has learned in this sense",
		trace: learning(untilLearned),
	},
	{
		name: "learning_bytes", unit: "%", doc: "share of its bytes that a coflow has sent by then",
		trace: learning(sentLearned),
	},
	{
		name: "agents", unit: "", doc: "agents that report to the coordinator in an interval, on average",
		trace: perInterval(func(m *flowsim.Coordinator) int64 { return m.Updates }),
	},
	{
		name: "no_rates", unit: "%", doc: "intervals in which the coordinator sends no agent a new rate", per: 0.01,
		trace: perInterval(func(m *flowsim.Coordinator) int64 { return m.Unflushed }),
	},
}

func quantityOf(name string) *quantity {
	for i := range quantities {
		if quantities[i].name == name {
			return &quantities[i]
		}
	}
	return nil
}

// ofTrace reports whether a quantity is one of the flow-level simulator.
func (q *quantity) ofTrace() bool { return q.trace != nil || q.coflows != nil }

// ofScenario reports whether a quantity is one of runs of scenarios.
func (q *quantity) ofScenario() bool { return q.trace == nil && (q.coflows == nil || q.compared) }

func percent(share *float64) *float64 {
	if share == nil {
		return nil
	}
	x := 100 * *share
	return &x
}

func megabytes(x float64) *float64 {
	x /= 1e6
	return &x
}

func ofTasks(get func(*report.TaskSummary) *float64) func(*report.ArmSummary, *figure) *float64 {
	return func(a *report.ArmSummary, _ *figure) *float64 {
		if a.Tasks == nil {
			return nil
		}
		return get(a.Tasks)
	}
}

func ofBlocks(get func(*report.PlacementSummary) *float64) func(*report.ArmSummary, *figure) *float64 {
	return func(a *report.ArmSummary, _ *figure) *float64 {
		if a.Placement == nil {
			return nil
		}
		return get(a.Placement)
	}
}

// backupShare returns the part of the slot time of extra attempts that jobs of up to most_tasks have.
func backupShare(a *report.ArmSummary, f *figure) *float64 {
	if a.Tasks == nil || a.Tasks.Backups == nil {
		return nil
	}
	share := 0.0
	for _, c := range a.Tasks.Backups.ByTasks {
		if f.mostTasks == 0 || c.MostTasks > 0 && c.MostTasks <= f.mostTasks {
			share += 100 * c.OfExtra
		}
	}
	return &share
}

func estimatedWait(a *report.ArmSummary, f *figure) *float64 {
	for _, e := range a.Estimates {
		if e.Of == "wait_us" && e.SizeRange != nil && e.MostTasks == f.mostTasks {
			s := e.Last / float64(time.Second/time.Microsecond)
			return &s
		}
	}
	return nil
}

func estimateError(a *report.ArmSummary, f *figure) *float64 {
	for _, e := range a.Estimates {
		if e.Of == f.estimate && (e.SizeRange == nil || e.MostTasks == f.mostTasks) {
			return percent(e.Error)
		}
	}
	return nil
}

// job reports whether the filters of a figure choose a job; maps returns its number of maps.
func (f *figure) chooses(j *schema.Job, maps func(schema.Key, workloads.JobID) int) bool {
	return (len(f.profiles) == 0 || slices.Contains(f.profiles, profileOf(j))) &&
		(f.leastTasks == 0 || j.Tasks != nil && *j.Tasks >= f.leastTasks) &&
		(f.mostTasks == 0 || j.Tasks != nil && *j.Tasks <= f.mostTasks) &&
		(f.mostMaps == 0 || maps(j.Key, j.Job) <= f.mostMaps)
}

// profileOf returns the profile of a job; bin1, bin2 and so on for a job without tasks that has a bin.
func profileOf(j *schema.Job) string {
	if j.Tasks == nil && j.Bin != nil {
		return fmt.Sprint("bin", *j.Bin)
	}
	return j.Profile
}

// chosen identifies jobs of a run.
type chosen map[schema.Key]map[workloads.JobID]bool

// jobsOf returns the jobs of an arm that the filters choose.
func (f *figure) jobsOf(run *rundir.Run, arm string) (list []*schema.Job, is chosen) {
	maps := chosenMaps(run, f.mostMaps > 0)
	is = chosen{}
	for i := range run.Jobs {
		if j := &run.Jobs[i]; j.Arm == arm && f.chooses(j, maps) {
			list = append(list, j)
			if is[j.Key] == nil {
				is[j.Key] = map[workloads.JobID]bool{}
			}
			is[j.Key][j.Job] = true
		}
	}
	return list, is
}

// chosenMaps returns a function that returns the number of maps of a job.
func chosenMaps(run *rundir.Run, needed bool) func(schema.Key, workloads.JobID) int {
	type id struct {
		schema.Key
		job workloads.JobID
	}
	n := map[id]int{}
	for i := range run.Attempts {
		if a := &run.Attempts[i]; needed && a.Kind == flows.MapTask && a.Outcome == flows.Committed {
			n[id{a.Key, a.Job}]++
		}
	}
	return func(k schema.Key, job workloads.JobID) int { return n[id{k, job}] }
}

// apart is more than the jobs of a run.
const apart = 1 << 20

// item is the value of a job; its time is the same in seconds.
type item struct {
	metrics.Item
	value float64
}

// items returns the values of the chosen jobs of an arm. Jobs of different runs and repeats are different jobs.
func (q *quantity) items(runs []*rundir.Run, arm string, f *figure) (items []item, err error) {
	for i, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			id := i*apart + int(j.Job)
			v, ok := q.job(j)
			if !ok {
				return nil, fmt.Errorf("%s: jobs without %s: raise limits.alone of the scenario", run.Dir, q.name)
			}
			took := j.JobTime
			if q.name != "job_time" {
				took = time.Duration(v * float64(time.Second))
			}
			cluster := j.Repeat*len(runs)*apart + id
			items = append(items, item{metrics.Item{Repeat: j.Repeat, ID: id, Time: took, Cluster: cluster}, v})
		}
	}
	return items, nil
}

func makespans(runs []*rundir.Run, arm string, f *figure) series {
	spans := map[int][2]time.Duration{} // first and last
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			span, ok := spans[j.Repeat]
			if !ok || j.Arrival < span[0] {
				span[0] = j.Arrival
			}
			span[1] = max(span[1], j.End)
			spans[j.Repeat] = span
		}
	}
	out := series{}
	for repeat, span := range spans {
		out[repeat] = float64(span[1] - span[0])
	}
	return out
}

// throughput returns the chosen jobs by time, up to the time at which the first user has no job left.
func throughput(runs []*rundir.Run, arm string, f *figure) series {
	type user struct {
		repeat, run   int
		name, profile string
	}
	type at struct{ repeat, run int }
	last := map[user]time.Duration{} // end of each user's last job
	for i, run := range runs {
		for _, j := range run.Jobs {
			if j.Arm == arm {
				u := user{j.Repeat, i, j.User, j.Profile}
				last[u] = max(last[u], j.End)
			}
		}
	}
	until := map[at]time.Duration{}
	for u, end := range last {
		if first, ok := until[at{u.repeat, u.run}]; !ok || end < first {
			until[at{u.repeat, u.run}] = end
		}
	}
	out := series{}
	for i, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			if end := until[at{j.Repeat, i}]; j.End <= end {
				out[j.Repeat] += 1 / end.Hours()
			}
		}
	}
	return out
}

// space returns a function of the figures of the stored outputs of all jobs of a repeat.
func space(get func(*metrics.ShuffleFigures) metrics.Average) func([]*rundir.Run, string, *figure) series {
	return func(runs []*rundir.Run, arm string, _ *figure) series {
		sums := map[int]metrics.Average{}
		for _, run := range runs {
			of := map[int]*flows.Records{}
			for _, j := range run.Jobs {
				if j.Arm != arm || j.Tasks == nil {
					continue
				}
				if of[j.Repeat] == nil {
					of[j.Repeat] = &flows.Records{}
				}
				r := of[j.Repeat]
				r.Jobs = append(r.Jobs, flows.JobRecord{Job: j.Job, Tasks: *j.Tasks, Arrival: j.Arrival, End: j.End})
			}
			for i := range run.Attempts {
				if a := &run.Attempts[i]; a.Arm == arm && of[a.Repeat] != nil {
					of[a.Repeat].Attempts = append(of[a.Repeat].Attempts, a.Record())
				}
			}
			for repeat, r := range of {
				if s := metrics.ShuffleOf(r); s != nil {
					sum := sums[repeat]
					sum.Add(get(s))
					sums[repeat] = sum
				}
			}
		}
		out := series{}
		for repeat, sum := range sums {
			if v, ok := sum.Value(); ok {
				out[repeat] = v
			}
		}
		return out
	}
}

func nodeLocal(runs []*rundir.Run, arm string, f *figure) series {
	local, all := series{}, series{}
	for _, run := range runs {
		_, of := f.jobsOf(run, arm)
		spans := map[schema.Key][2]time.Duration{} // in which all jobs run, from the last arrival to the first end
		for _, j := range run.Jobs {
			span, ok := spans[j.Key]
			if !ok {
				span[1] = j.End
			}
			spans[j.Key] = [2]time.Duration{max(span[0], j.Arrival), min(span[1], j.End)}
		}
		for i := range run.Attempts {
			a := &run.Attempts[i]
			if a.Arm != arm || a.Locality == "" || a.Outcome != flows.Committed || !of[a.Key][a.Job] {
				continue
			}
			if span := spans[a.Key]; f.allRun && (a.Start < span[0] || span[1] <= a.Start) {
				continue
			}
			if all[a.Repeat]++; a.Locality == flows.NodeLocal {
				local[a.Repeat]++
			}
		}
	}
	out := series{}
	for repeat, n := range all {
		out[repeat] = 100 * local[repeat] / n
	}
	return out
}

// stageTimes returns the times of the tasks of the chosen jobs in seconds, ascending, by repeat and stage. A task that was
// rescued by a backup counts from its first launch, not from that of the backup.
func stageTimes(runs []*rundir.Run, arm string, f *figure) map[int][][]float64 {
	type task struct {
		launched, ended time.Duration
		committed       bool
	}
	type stage struct{ run, job, stage int }
	tasks := map[int]map[stage]map[int]*task{} // by repeat, stage and index
	for i, run := range runs {
		_, of := f.jobsOf(run, arm)
		for k := range run.Attempts {
			a := &run.Attempts[k]
			if !of[a.Key][a.Job] {
				continue
			}
			at := stage{i, int(a.Job), a.Stage}
			if tasks[a.Repeat] == nil {
				tasks[a.Repeat] = map[stage]map[int]*task{}
			}
			if tasks[a.Repeat][at] == nil {
				tasks[a.Repeat][at] = map[int]*task{}
			}
			t := tasks[a.Repeat][at][a.Task]
			if t == nil {
				t = &task{launched: a.Start}
				tasks[a.Repeat][at][a.Task] = t
			}
			t.launched = min(t.launched, a.Start)
			if a.Outcome == flows.Committed {
				t.ended, t.committed = a.End, true
			}
		}
	}
	out := map[int][][]float64{}
	for repeat, stages := range tasks {
		for _, at := range slices.SortedFunc(maps.Keys(stages), func(a, b stage) int {
			return slices.Compare([]int{a.run, a.job, a.stage}, []int{b.run, b.job, b.stage})
		}) {
			var took []float64
			for _, t := range stages[at] {
				if t.committed {
					took = append(took, (t.ended - t.launched).Seconds())
				}
			}
			if len(took) > 0 {
				slices.Sort(took)
				out[repeat] = append(out[repeat], took)
			}
		}
	}
	return out
}

// slowestTask returns a statistic over stages of at least two tasks.
func slowestTask(runs []*rundir.Run, arm string, f *figure) series {
	out := series{}
	for repeat, stages := range stageTimes(runs, arm, f) {
		var ratios []float64
		for _, took := range stages {
			if len(took) > 1 {
				ratios = append(ratios, took[len(took)-1]/metrics.Median(took))
			}
		}
		if len(ratios) > 0 {
			out[repeat] = f.statisticOf(ratios)
		}
	}
	return out
}

// stragglerTime returns the time that stages take beyond the median of their tasks, in the time of the jobs.
func stragglerTime(runs []*rundir.Run, arm string, f *figure) series {
	jobTime := series{}
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			jobTime[j.Repeat] += j.JobTime.Seconds()
		}
	}
	out := series{}
	for repeat, stages := range stageTimes(runs, arm, f) {
		for _, took := range stages {
			out[repeat] += 100 * (took[len(took)-1] - metrics.Median(took)) / jobTime[repeat]
		}
	}
	return out
}

// fetchTime returns a statistic over the committed attempts that fetched.
func fetchTime(runs []*rundir.Run, arm string, f *figure) series {
	times := map[int][]float64{}
	for _, run := range runs {
		_, of := f.jobsOf(run, arm)
		for i := range run.Attempts {
			a := &run.Attempts[i]
			if of[a.Key][a.Job] && a.Outcome == flows.Committed && a.Stage > 0 && a.Locality == "" && a.InputEnd != nil {
				times[a.Repeat] = append(times[a.Repeat], (*a.InputEnd - a.Start).Seconds())
			}
		}
	}
	out := series{}
	for repeat, list := range times {
		out[repeat] = f.statisticOf(list)
	}
	return out
}

// taskBytes returns the payload of the flows of tasks.
func taskBytes(runs []*rundir.Run, arm string, _ *figure) series {
	out := series{}
	for _, run := range runs {
		for _, j := range run.Jobs { // a repeat without such flows has none of these bytes
			if j.Arm == arm {
				out[j.Repeat] += 0
			}
		}
		for i := range run.Flows {
			if f := &run.Flows[i]; f.Arm == arm && f.Job != nil && !f.Failed {
				out[f.Repeat] += float64(f.Size)
			}
		}
	}
	return out
}

// crossRack returns what jobs state of bytes between racks, which exists without a record of each flow too.
func crossRack(runs []*rundir.Run, arm string, f *figure) series {
	out := series{}
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			if j.CrossRack != nil {
				out[j.Repeat] += float64(*j.CrossRack)
			}
		}
	}
	return out
}

func perInput(runs []*rundir.Run, arm string, f *figure) series {
	input := series{}
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			if j.Input != nil {
				input[j.Repeat] += float64(*j.Input)
			}
		}
	}
	out := crossRack(runs, arm, f)
	for repeat := range out {
		out[repeat] /= input[repeat]
	}
	return out
}

// traced are policies on a trace in the flow-level simulator.
type traced struct {
	trace *workloads.Trace
	out   *comparison.Outcome
}

// policy returns the run of a policy, nil for none.
func (t *traced) policy(name string) *comparison.Run {
	for i := range t.out.Runs {
		if t.out.Runs[i].Policy == name {
			return &t.out.Runs[i]
		}
	}
	return nil
}

func ccts(t *traced, r *comparison.Run, f *figure) (items []metrics.Item) {
	bins := tracestats.DefaultSizeBins(comparison.MB(t.trace, flowsim.Ports{}))
	for _, c := range r.Times() {
		if f.bin == "" || bins.Of(c).String() == f.bin {
			items = append(items, metrics.Item{ID: int(c.ID), Cluster: int(c.ID), Time: c.CCT})
		}
	}
	return items
}

// sizeError compares the sizes estimated from pilot flows with the true sizes.
func sizeError(_ *traced, r *comparison.Run, f *figure) (float64, error) {
	var signed []float64
	for _, c := range r.Coflows {
		if c.Pilots > 0 {
			estimated := float64(c.PilotSent) / float64(c.Pilots) * float64(c.Width)
			signed = append(signed, estimated/float64(c.Size)-1)
		}
	}
	if len(signed) == 0 {
		return math.NaN(), nil
	}
	if f.statistic == "deviation" {
		var mean, square float64
		for _, x := range signed {
			mean += x / float64(len(signed))
		}
		for _, x := range signed {
			square += (x - mean) * (x - mean) / float64(len(signed))
		}
		return math.Sqrt(square), nil
	}
	for i, x := range signed {
		signed[i] = math.Abs(x)
	}
	return f.statisticOf(signed), nil
}

// ofPolicy is the function of a quantity of traces, quantity.trace.
type ofPolicy = func(*traced, *comparison.Run, *figure) (float64, error)

// learning returns a statistic of shares of coflows, which depend on when a coflow has learned its size, and on the bytes
// that it has sent by then. Under policies with pilot flows, coflows without them have nothing to learn.
func learning(share func(*flowsim.Coflow, time.Duration, units.Bytes) float64) ofPolicy {
	return func(_ *traced, r *comparison.Run, f *figure) (float64, error) {
		sampled := slices.ContainsFunc(r.Coflows, func(c flowsim.Coflow) bool { return c.Pilots > 0 })
		var shares []float64
		for i := range r.Coflows {
			c := &r.Coflows[i]
			at, sent := c.Queued, c.QueuedSent
			if sampled {
				at, sent = c.Arrival, 0
				if c.Pilots > 0 && c.Width > workloads.ThinCoflow {
					at, sent = c.Sampled, c.SampledSent
				}
			}
			shares = append(shares, 100*share(c, at, sent))
		}
		if len(shares) == 0 {
			return math.NaN(), nil
		}
		return f.statisticOf(shares), nil
	}
}

func untilLearned(c *flowsim.Coflow, at time.Duration, _ units.Bytes) float64 {
	return float64(at-c.Arrival) / float64(c.CCT())
}

func sentLearned(c *flowsim.Coflow, _ time.Duration, sent units.Bytes) float64 {
	return float64(sent) / float64(c.Size)
}

// soon is 1 for a coflow that learns within 1 % of its CCT, else 0.
func soon(c *flowsim.Coflow, at time.Duration, sent units.Bytes) float64 {
	if untilLearned(c, at, sent) < 0.01 {
		return 1
	}
	return 0
}

// perInterval returns the average of a count of the coordinator over its intervals, NaN without any.
func perInterval(count func(*flowsim.Coordinator) int64) ofPolicy {
	return func(_ *traced, r *comparison.Run, f *figure) (float64, error) {
		m := &r.Coordinator
		return float64(count(m)) / float64(m.Intervals) / cmp.Or(f.of.per, 1), nil
	}
}

// statisticOf returns the statistic of a figure over values, which it may sort.
func (f *figure) statisticOf(values []float64) float64 {
	if f.statistic == "mean" {
		return stat.Mean(values, nil)
	}
	slices.Sort(values)
	switch f.statistic {
	case "max":
		return values[len(values)-1]
	case "median":
		return metrics.Quantile(0.5, values)
	}
	return metrics.Quantile(f.quantile, values)
}

// hindsight returns assignments that give an arm the estimates that another run of it ended with: the p that was
// realized, and the last ω of each class of jobs, for classes without one that of the next.
func hindsight(a *report.ArmSummary) map[string]string {
	set := map[string]string{}
	var waits []string
	for _, e := range a.Estimates {
		switch {
		case e.Of == "straggle" && e.Realized != nil:
			set["straggle"] = fmt.Sprintf("%.4f", *e.Realized)
		case e.Of == "wait_us":
			for class := jobs.SizeClass(e.LeastTasks); len(waits) <= class; {
				waits = append(waits, time.Duration(e.Last*float64(time.Microsecond)).Round(time.Millisecond).String())
			}
		}
	}
	if len(waits) > 0 {
		set["wait"] = strings.Join(waits, ",")
	}
	return set
}
