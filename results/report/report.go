package report

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/safefile"
	"testbed/results/verdict"
	"testbed/topo"
)

// Input is the content of a report.
type Input struct {
	RunID    string
	Scenario string // its name
	// FluidModel reports whether the records were computed instead of measured. Without
	// packets there is no verdict: Repeat.Verdict and Repeat.Fluid are ignored.
	FluidModel bool
	Seed       uint64 // of the confidence intervals
	// Noise is the machine's noise calibration for runs on packets; nil if there is none.
	Noise *metrics.Noise
	// LinkInterval is the interval of the link loads, rounded up to a multiple of the
	// measured one; 0 means DefaultLinkInterval.
	LinkInterval time.Duration
	// SetupShare is the largest ratio of median flow setup to median FCT without a note in
	// the report; 0 means DefaultSetupShare.
	SetupShare float64
	// FlowTolerance is the largest error of a figure of FCT without a mark (see
	// metrics.FlowErrors); 0 means DefaultFlowTolerance.
	FlowTolerance float64
	// FluidMargin is by how much the measured average CCT, relative to the fluid model's, may exceed
	// what transport explains, or be below 1, without a note; 0 means DefaultFluidMargin.
	FluidMargin float64
	// Scaled is the scaled half of a scale check; nil if there was no check.
	Scaled *Scaled
	// Partial is set if the run was cut short.
	Partial *Partial
	// Manifest is the known settings of the run.
	Manifest []Setting
	Arms     []Arm // the first is the baseline
}

// Arm is one combination of policies.
type Arm struct {
	Name    string
	Repeats []Repeat
}

// Repeat is one execution of an arm.
type Repeat struct {
	Records flows.Records
	Verdict verdict.Verdict
	// Fluid is the fluid model's prediction for the same workload and policies; nil if
	// there is none.
	Fluid *flows.Records
	// Failures are the transfers that faults ended. Records.Failed is ignored.
	Failures []Failure
	// Coordinator is the record of the policies' coordinator; nil if there is none.
	Coordinator *Coordinator
	// Timing is the breakdown of completion times, and Links the load of the fabric's
	// links. Both exist only for packets.
	Timing *breakdown.Run
	Links  []flows.LinkSeries
	// Resent is the number of retransmitted packets with payload in all transfers, only
	// for packets.
	Resent int
	// Placement is the record of block placement; nil for runs without blocks or without a
	// record of the workload.
	Placement *metrics.Placement
	// Slots are the slots of the cluster for tasks; nil if they are not known.
	Slots *metrics.TaskSlots
	// Progress is the received bytes of each transfer over time, only for packets.
	Progress []metrics.Progress
	// Untimed is the reason why Timing is missing, as the end of a sentence; "" if the
	// report does not state one.
	Untimed string
	// Fabric is the fabric that was captured; nil if the captures do not state it.
	Fabric *topo.Fabric
	// FlowErrors are the errors of short flows; nil if the captures do not state the links' token buckets.
	FlowErrors *metrics.FlowErrors
}

// Report holds computed figures and writes them in any form.
type Report struct {
	Summary Summary
	in      Input
}

// Files that Write creates, in this order.
const (
	MarkdownFile = "report.md"
	SummaryFile  = "summary.json"
	FlowsFile    = "flows.csv"
	CoflowsFile  = "coflows.csv"
	BlocksFile   = "blocks.csv"
	PageFile     = "report.html"
	// Only for packets:
	BreakdownFile = "breakdown.csv"
	LinksFile     = "links.csv"
	DropsFile     = "drops.csv"
	ProgressFile  = "progress.csv"
	// Only for runs with such items:
	RequestsFile = "requests.csv"
	JobsFile     = "jobs.csv"
	AttemptsFile = "attempts.csv"
	BalanceFile  = "balance.csv"
)

// AskedFile is the file of a repeat that records which coflows and blocks belong
// together (metrics.WorkloadMeta).
const AskedFile = "asked.json"

// QueuesFile is the file of a repeat with the kernel's counts of packets dropped by the
// queues of links (metrics.Queues).
const QueuesFile = "queues.json"

// metric is one kind of completion time.
type metric struct {
	name  string // as in prose and headings
	key   string // in summary.json
	items func(repeat int, r flows.Records) []metrics.Item
	get   func(a *ArmSummary) *Metric
	set   func(a *ArmSummary, m *Metric)
}

// field returns a metric that has a field of its own in a summary.
func field(name, key string, items func(int, flows.Records) []metrics.Item, at func(a *ArmSummary) **Metric) metric {
	return metric{name, key, items, func(a *ArmSummary) *Metric { return *at(a) }, func(a *ArmSummary, m *Metric) { *at(a) = m }}
}

func requestMetric() metric {
	return field("Write request time", "request_time", metrics.RequestTimes, func(a *ArmSummary) **Metric { return &a.RequestTime })
}

func jobMetric() metric {
	return field("Job time", "job_time", metrics.JobTimes, func(a *ArmSummary) **Metric { return &a.JobTime })
}

func allMetrics() []metric {
	return []metric{
		field("Coflow completion time (CCT)", "cct", metrics.CCTs, func(a *ArmSummary) **Metric { return &a.CCT }),
		field("Flow completion time (FCT)", "fct", metrics.FCTs, func(a *ArmSummary) **Metric { return &a.FCT }),
		field("Block write time", "write_time", metrics.WriteTimes, func(a *ArmSummary) **Metric { return &a.WriteTime }),
		requestMetric(),
		jobMetric(),
	}
}

// New computes the figures. It reports all errors of the input at once.
func New(in Input) (*Report, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	r := &Report{in: in, Summary: Summary{Format: Format, RunID: in.RunID, Scenario: in.Scenario, Source: SourcePackets, Baseline: in.Arms[0].Name, Noise: in.Noise, Partial: in.Partial}}
	if in.FluidModel {
		r.Summary.Source = SourceFluidModel
	}
	for i := range in.Arms {
		r.Summary.Arms = append(r.Summary.Arms, in.summarize(i))
	}
	if r.Summary.FlowErrors = in.flowErrors(); r.Summary.FlowErrors != nil {
		r.markEarly()
	}
	for i := range in.Arms {
		in.explain(&r.Summary.Arms[i], in.Arms[i])
	}
	r.alike()
	if in.Scaled != nil {
		r.Summary.ScaleCheck = in.checkScale()
	}
	return r, nil
}

func (in Input) check() error {
	var errs []error
	if len(in.Arms) == 0 {
		errs = append(errs, errors.New("report: no arms"))
	}
	names := map[string]bool{}
	for _, a := range in.Arms {
		if a.Name == "" || names[a.Name] {
			errs = append(errs, fmt.Errorf("report: arm name %q: must be non-empty and unique", a.Name))
		}
		names[a.Name] = true
		if len(a.Repeats) == 0 {
			errs = append(errs, fmt.Errorf("report: arm %q has no repeats", a.Name))
		}
		for k, rep := range a.Repeats {
			if v := rep.Verdict.Level; !in.FluidModel && (v < verdict.Pass || v > verdict.Void) {
				errs = append(errs, fmt.Errorf("report: arm %q, repeat %d: no verdict: must be verdict.Missing for a run without a fidelity record", a.Name, k))
			}
		}
	}
	return errors.Join(errs...)
}

// level returns the worst verdict of an arm's repeats.
func (a Arm) level() verdict.Level {
	worst := verdict.Pass
	for _, r := range a.Repeats {
		worst = max(worst, r.Verdict.Level)
	}
	return worst
}

// items returns the items of all repeats of an arm.
func (a Arm) items(m metric) []metrics.Item {
	var all []metrics.Item
	for k, r := range a.Repeats {
		all = append(all, m.items(k, r.Records)...)
	}
	return all
}

// Write writes all files into dir, which must exist, and returns their names. It writes
// all of them under temporary names before it replaces the first, so that a failure leaves
// the files of the previous report.
func (r *Report) Write(dir string) (names []string, err error) {
	all := []struct {
		name  string
		write func(io.Writer) error
	}{
		{MarkdownFile, r.Markdown}, {SummaryFile, r.JSON}, {FlowsFile, r.FlowsCSV}, {CoflowsFile, r.CoflowsCSV}, {BlocksFile, r.BlocksCSV},
		{PageFile, r.Page},
	}
	if !r.in.FluidModel {
		all = append(all, []struct {
			name  string
			write func(io.Writer) error
		}{{BreakdownFile, r.BreakdownCSV}, {LinksFile, r.LinksCSV}, {DropsFile, r.DropsCSV}, {ProgressFile, r.ProgressCSV}}...)
	}
	for _, f := range []struct {
		has   bool
		name  string
		write func(io.Writer) error
	}{{r.in.requests(), RequestsFile, r.RequestsCSV}, {r.in.jobs(), JobsFile, r.JobsCSV}, {r.in.attempts(), AttemptsFile, r.AttemptsCSV}, {r.in.balance(), BalanceFile, r.BalanceCSV}} {
		if f.has {
			all = append(all, struct {
				name  string
				write func(io.Writer) error
			}{f.name, f.write})
		}
	}
	var staged []*safefile.Staged
	defer func() {
		for _, s := range staged {
			err = errors.Join(err, s.Discard())
		}
	}()
	for _, f := range all {
		s, err := safefile.Stage(filepath.Join(dir, f.name), f.write)
		if err != nil {
			return nil, fmt.Errorf("write report: %w", err)
		}
		staged = append(staged, s)
	}
	if err := safefile.Commit(staged...); err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	for _, f := range all {
		names = append(names, f.name)
	}
	return names, nil
}
