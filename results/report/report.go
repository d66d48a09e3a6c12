package report

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo"
)

// Input is the content of a report.
type Input struct {
	RunID    string
	Scenario string // its name
	// Ran states what was compared. Written and Resolved are the scenario as a file, and with all defaults; Fabric is
	// that of the baseline. All are zero if unknown.
	Ran               string
	Written, Resolved string
	Fabric            *topo.Fabric
	// FluidModel reports whether the records were computed instead of measured. Without
	// packets there is no verdict: Repeat.Verdict and Repeat.Fluid are ignored.
	FluidModel bool
	// VirtualTime reports whether they were measured in virtual time.
	VirtualTime bool
	Seed        uint64 // of the confidence intervals
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
	Partial *summary.Partial
	// Looks decided the number of repeats; nil if it was fixed.
	Looks *metrics.Looks
	// Faults are those that the scenario plans for each arm.
	Faults map[string][]Mark
	// Manifest is the known settings of the run.
	Manifest []Setting
	Arms     []Arm // the first is the baseline
}

// Draw draws a figure of results/plot as an SVG for the page, for one arm if the figure needs one; "" if there are no
// data. It is plot.OnPage, except in tests of packages that plot imports.
type Draw func(run *rundir.Run, figure, arm string) (svg string, notes []string, err error)

// Arm is what is compared.
type Arm struct {
	Name    string
	Repeats []summary.Repeat
	// Numbers are those of Repeats. They have gaps if only some trials were run.
	Numbers metrics.Numbers
	// Unmodelled are the keys of the scenario in which alone the arm differs from the baseline, where the fluid model
	// knows none of them: there are no speed-ups then.
	Unmodelled []string
}

// Report holds computed figures and writes them in any form.
type Report struct {
	Summary summary.Run
	in      Input
}

// metric is a kind of completion time, or a part of its items.
type metric struct {
	metrics.Time
	get func(a *summary.Arm) *summary.Metric
	set func(a *summary.Arm, m *summary.Metric)
}

// allMetrics returns all kinds of completion times.
func allMetrics() (out []metric) {
	for _, t := range metrics.Times() {
		out = append(out, metric{t,
			func(a *summary.Arm) *summary.Metric { return *a.Metric(t.Key) },
			func(a *summary.Arm, m *summary.Metric) { *a.Metric(t.Key) = m }})
	}
	return out
}

// New computes the figures. It reports all errors of the input at once.
func New(in Input) (*Report, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	in = in.judgeShortFlows()
	r := &Report{in: in, Summary: summary.Run{Format: summary.Format, RunID: in.RunID, Scenario: in.Scenario, Source: summary.SourcePackets, Baseline: in.Arms[0].Name, Noise: in.Noise, Partial: in.Partial, Looks: in.Looks}}
	switch {
	case in.FluidModel:
		r.Summary.Source = summary.SourceFluidModel
	case in.VirtualTime:
		r.Summary.Source = summary.SourceVirtual
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
	for i := range r.Summary.Arms[1:] {
		r.Summary.Arms[i+1].Against(&r.Summary.Arms[0].Declared)
	}
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
		all = append(all, m.Items(a.Numbers.Of(k), r.Records)...)
	}
	return all
}

// completed returns how many items of a metric the arm has, and how many its repeats completed.
func (a Arm) completed(m metric) (n, of int) {
	for k, r := range a.Repeats {
		have := len(m.Items(k, r.Records))
		n, of = n+have, of+max(have, r.Completed[m.Noun+"s"])
	}
	return n, of
}

// Write writes all files into dir, which must exist, and returns their names. It writes
// all of them under temporary names before it replaces the first, so that a failure leaves
// the files of the previous report. The summary states the rows of each table.
func (r *Report) Write(dir string, draw Draw) (names []string, err error) {
	type file struct {
		has   bool
		name  string
		write func(io.Writer) error
	}
	packets := !r.in.FluidModel
	tables := []file{
		{true, summary.FlowsFile, csvOf(r.flows())},
		{true, summary.CoflowsFile, csvOf(r.coflows())},
		{true, summary.BlocksFile, csvOf(r.blocks())},
		{packets, summary.BreakdownFile, csvOf(r.breakdown())},
		{packets, summary.LinksFile, csvOf(r.links())},
		{packets, summary.DropsFile, csvOf(r.drops())},
		{packets, summary.ProgressFile, csvOf(r.progress())},
		{r.in.requests(), summary.RequestsFile, csvOf(r.requests())},
		{r.in.jobs(), summary.JobsFile, csvOf(r.jobs())},
		{r.in.attempts(), summary.AttemptsFile, csvOf(r.attempts())},
		{r.in.balance(), summary.BalanceFile, csvOf(r.balance())},
	}
	r.Summary.Rows = map[string]int{}
	var staged []*safefile.Staged
	defer func() {
		for _, s := range staged {
			err = errors.Join(err, s.Discard())
		}
	}()
	stage := func(name string, write func(io.Writer) error) error {
		s, err := safefile.Stage(filepath.Join(dir, name), write)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		staged, names = append(staged, s), append(names, name)
		return nil
	}
	for _, f := range tables {
		if !f.has {
			continue
		}
		rows := rowCounter{n: -1} // without the header
		if err := stage(f.name, func(w io.Writer) error { return f.write(io.MultiWriter(w, &rows)) }); err != nil {
			return nil, err
		}
		r.Summary.Rows[f.name] = rows.n
	}
	for _, f := range []file{{true, summary.SummaryFile, r.JSON}, {true, summary.MarkdownFile, r.Markdown}, {true, summary.PageFile, func(w io.Writer) error { return r.Page(w, draw) }}} {
		if err := stage(f.name, f.write); err != nil {
			return nil, err
		}
	}
	if err := safefile.Commit(staged...); err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	return names, nil
}

// rowCounter counts the rows of a CSV file.
type rowCounter struct {
	n      int
	quoted bool
}

func (c *rowCounter) Write(b []byte) (int, error) {
	for _, x := range b {
		switch {
		case x == '"':
			c.quoted = !c.quoted
		case x == '\n' && !c.quoted:
			c.n++
		}
	}
	return len(b), nil
}
