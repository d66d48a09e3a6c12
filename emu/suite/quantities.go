package suite

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"testbed/emu/flowsim"
	"testbed/emu/flowsim/comparison"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/summary"
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
	arm func(*summary.Arm, *figure) *float64
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
		name: "cross_rack_read_share", unit: "%",
		doc: "blocks that tasks read from other racks, of the bytes of tasks between racks",
		arm: func(a *summary.Arm, _ *figure) *float64 {
			read, ok := a.Get("tasks.bytes.read_cross_rack")
			fetched, _ := a.Get("tasks.bytes.fetched_cross_rack")
			if !ok {
				return nil
			}
			share := 100 * read / (read + fetched)
			return &share
		},
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
		name: "backup_slots", unit: "%",
		doc: "slot time of attempts that did not commit, of tasks with several",
		arm: func(a *summary.Arm, _ *figure) *float64 {
			if a.Tasks == nil {
				return nil
			}
			share, _ := a.Get("tasks.backups.extra_share") // 0 without backups
			return percent(&share)
		},
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
		doc: "relative error of what the task scheduler estimates, which the key estimate names (docs/reference/results.md)",
		arm: estimateError,
	},
	{
		name: "missed_intervals", unit: "%", packets: true,
		doc: "intervals of the coordinator that decided too late",
		arm: func(a *summary.Arm, _ *figure) *float64 {
			c := a.Coordinator
			if c == nil || c.Missed == nil || c.Interval <= 0 {
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

// quantityOf returns the quantity with a name, or the figure of arms with that key (summary.Find); nil if there is
// none.
func quantityOf(name string) *quantity {
	for i := range quantities {
		if quantities[i].name == name {
			return &quantities[i]
		}
	}
	f := summary.Find(name)
	if f == nil {
		return nil
	}
	u := unitOf(f.Unit)
	return &quantity{name: name, unit: u.name, doc: f.Doc, arm: func(a *summary.Arm, _ *figure) *float64 {
		x, ok := a.Get(name)
		if !ok {
			return nil
		}
		x *= u.per
		return &x
	}}
}

// unit is a unit of claims, and how many of it are one of summary.json.
type unit struct {
	name string
	per  float64
}

func unitOf(u summary.Unit) unit {
	switch u {
	case summary.Micros:
		return unit{"s", 1e-6}
	case summary.Bytes:
		return unit{"MB", 1e-6}
	case summary.BitRate:
		return unit{"Mbps", 1e-6}
	case summary.Share, summary.Fine:
		return unit{"%", 100}
	case summary.Times:
		return unit{"×", 1}
	case summary.PerHour:
		return unit{"1/h", 1}
	}
	return unit{"", 1}
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

// backupShare returns the part of the slot time of extra attempts that jobs of up to most_tasks have.
func backupShare(a *summary.Arm, f *figure) *float64 {
	if a.Tasks == nil || a.Tasks.Backups == nil {
		return nil
	}
	share := 0.0
	for _, c := range a.Tasks.Backups.ExtraOf {
		if f.mostTasks == 0 || c.MostTasks > 0 && c.MostTasks <= f.mostTasks {
			x, _ := c.ShareOfExtra.Value()
			share += 100 * x
		}
	}
	return &share
}

func estimatedWait(a *summary.Arm, f *figure) *float64 {
	for _, e := range a.Estimates {
		if e.Of == "wait_us" && e.SizeRange != nil && e.MostTasks == f.mostTasks {
			s := e.Last / float64(time.Second/time.Microsecond)
			return &s
		}
	}
	return nil
}

func estimateError(a *summary.Arm, f *figure) *float64 {
	for _, e := range a.Estimates {
		if e.Of == f.estimate && (e.SizeRange == nil || e.MostTasks == f.mostTasks) {
			return percent(e.Error)
		}
	}
	return nil
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
func hindsight(a *summary.Arm) map[string]string {
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
