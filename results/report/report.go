package report

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"testbed/results/files"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/timing"
	"testbed/results/verdict"
	"testbed/topo"
)

// Input is what a report is about.
type Input struct {
	RunID    string
	Scenario string // its name
	// FluidModel says that the records were computed and not measured: there
	// were no packets, so there is no verdict either, and Repeat.Verdict and
	// Repeat.Fluid are not looked at.
	FluidModel bool
	Seed       uint64 // of confidence intervals
	// LinkInterval is that of loads of links, made a multiple of what was measured; 0 is
	// DefaultLinkInterval.
	LinkInterval time.Duration
	// Scaled is the scaled half of a check of the scale, if there was one.
	Scaled *Scaled
	// Partial is set where the run was cut short.
	Partial *Partial
	// Manifest is how the run was made, as far as it is known.
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
	// Fluid is what the fluid model predicts for the same workload and policies,
	// if it was asked.
	Fluid *flows.Records
	// Failures are what faults ended. Records.Failed need not be looked at.
	Failures []Failure
	// Coordinator is what the coflow policy's coordinator did; nil where there is no
	// record of it.
	Coordinator *Coordinator
	// Timing is where the time went, and Links the load of the fabric's links. Both are
	// of packets only.
	Timing *timing.Run
	Links  []flows.LinkSeries
	// Placement is what the placement of blocks did; nil without blocks, or where what
	// was asked is not known.
	Placement *metrics.Placement
	// Progress is how far each transfer was over time, of packets only.
	Progress []metrics.Progress
	// Untimed is why there is no Timing, where that is worth saying: the end of a
	// sentence.
	Untimed string
	// Fabric is what the captures were taken in; nil where they do not state it.
	Fabric *topo.Fabric
}

// Report is ready to be written in any form.
type Report struct {
	Summary Summary
	in      Input
}

// Files that Write makes, in the order in which it makes them.
const (
	MarkdownFile = "report.md"
	SummaryFile  = "summary.json"
	FlowsFile    = "flows.csv"
	CoflowsFile  = "coflows.csv"
	BlocksFile   = "blocks.csv"
	PageFile     = "report.html"
	// Of packets only:
	BreakdownFile = "breakdown.csv"
	LinksFile     = "links.csv"
	ProgressFile  = "progress.csv"
	// Where there is something to tell:
	RequestsFile = "requests.csv"
	JobsFile     = "jobs.csv"
	BalanceFile  = "balance.csv"
)

// AskedFile is the file of a repeat that tells which coflows and blocks belong
// together (metrics.Asked).
const AskedFile = "asked.json"

// metric is one of the completion times.
type metric struct {
	name  string // as in prose and headings
	key   string // in summary.json
	items func(repeat int, r flows.Records) []metrics.Item
	get   func(a *ArmSummary) *Metric
	set   func(a *ArmSummary, m *Metric)
}

// field is a metric that has a field of its own in a summary.
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

// New computes the figures. It reports all mistakes in the input at once.
func New(in Input) (*Report, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	r := &Report{in: in, Summary: Summary{Format: Format, RunID: in.RunID, Scenario: in.Scenario, Source: SourcePackets, Baseline: in.Arms[0].Name, Partial: in.Partial}}
	if in.FluidModel {
		r.Summary.Source = SourceFluidModel
	}
	for i := range in.Arms {
		r.Summary.Arms = append(r.Summary.Arms, in.summarize(i))
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
		errs = append(errs, errors.New("report: no arm to report on"))
	}
	names := map[string]bool{}
	for _, a := range in.Arms {
		if a.Name == "" || names[a.Name] {
			errs = append(errs, fmt.Errorf("report: arm name %q: want a name that no other arm has", a.Name))
		}
		names[a.Name] = true
		if len(a.Repeats) == 0 {
			errs = append(errs, fmt.Errorf("report: arm %q has no repeat", a.Name))
		}
		for k, rep := range a.Repeats {
			if v := rep.Verdict.Level; !in.FluidModel && (v < verdict.Pass || v > verdict.Void) {
				errs = append(errs, fmt.Errorf("report: arm %q, repeat %d: no verdict: a run without a fidelity record has verdict.Missing", a.Name, k))
			}
		}
	}
	return errors.Join(errs...)
}

// level is the worst verdict of an arm's repeats.
func (a Arm) level() verdict.Level {
	worst := verdict.Pass
	for _, r := range a.Repeats {
		worst = max(worst, r.Verdict.Level)
	}
	return worst
}

// items are those of all repeats of an arm.
func (a Arm) items(m metric) []metrics.Item {
	var all []metrics.Item
	for k, r := range a.Repeats {
		all = append(all, m.items(k, r.Records)...)
	}
	return all
}

// Write writes all files into dir, which must exist, and returns their names. All are
// written beside what is there before the first is replaced, so that a failure leaves
// the files of the report before.
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
		}{{BreakdownFile, r.BreakdownCSV}, {LinksFile, r.LinksCSV}, {ProgressFile, r.ProgressCSV}}...)
	}
	for _, f := range []struct {
		has   bool
		name  string
		write func(io.Writer) error
	}{{r.in.requests(), RequestsFile, r.RequestsCSV}, {r.in.jobs(), JobsFile, r.JobsCSV}, {r.in.balance(), BalanceFile, r.BalanceCSV}} {
		if f.has {
			all = append(all, struct {
				name  string
				write func(io.Writer) error
			}{f.name, f.write})
		}
	}
	var staged []*files.Staged
	defer func() {
		for _, s := range staged {
			err = errors.Join(err, s.Discard())
		}
	}()
	for _, f := range all {
		s, err := files.Stage(filepath.Join(dir, f.name), f.write)
		if err != nil {
			return nil, fmt.Errorf("write report: %w", err)
		}
		staged = append(staged, s)
	}
	for i, f := range all {
		if err := staged[i].Commit(); err != nil {
			return names, fmt.Errorf("write report: %w", err)
		}
		names = append(names, f.name)
	}
	return names, nil
}
