// Package suite runs suites: files that state the claims of a paper, the scenarios and traces on which they are
// measured, and what is expected here. It writes tables of the figures, the claims with their outcomes, and a page.
//
// It does not run scenarios itself (emu/runner, emu/flowsim), nor compute the statistics of runs (results/metrics).
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/flowsim/comparison"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/table"
	"testbed/results/verdict"
	"testbed/topo/words"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Suite is the content of a file.
type Suite struct {
	Path    string
	Claims  Claims
	inputs  []input
	figures []*figure
	parts   []*part
}

func (s *Suite) part(name string) *part {
	i := slices.IndexFunc(s.parts, func(p *part) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return s.parts[i]
}

func (s *Suite) figure(name string) *figure {
	i := slices.IndexFunc(s.figures, func(f *figure) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return s.figures[i]
}

func (s *Suite) input(name string) *input {
	i := slices.IndexFunc(s.inputs, func(x input) bool { return x.name == name })
	if i < 0 {
		return nil
	}
	return &s.inputs[i]
}

func (s *Suite) partNames() (names []string) {
	for _, p := range s.parts {
		names = append(names, p.name)
	}
	return names
}

func (s *Suite) figureNames() (names []string) {
	for _, f := range s.figures {
		names = append(names, f.name)
	}
	return names
}

// Name returns the name of the suite: that of its file or, of a file claims.yaml, of its directory.
func (s *Suite) Name() string {
	name := strings.TrimSuffix(filepath.Base(s.Path), filepath.Ext(s.Path))
	if abs, err := filepath.Abs(s.Path); name == "claims" && err == nil {
		name = filepath.Base(filepath.Dir(abs))
	}
	return name
}

// Options are the settings of a run of a suite.
type Options struct {
	Dir     string            // output directory; must not exist
	Only    []string          // parts, or variants as part/variant; none for all
	Set     map[string]string // paths of inputs
	Repeat  int               // repeats of each scenario, 1 or more
	Fluid   bool              // exclude packets
	Packets []string          // parts that run on packets too
}

// DefaultRepeat is the default number of repeats of each scenario.
const DefaultRepeat = 5

// Begin is called at the start of each run with its name. Its results show the progress of a scenario and of a trace,
// and end it.
type Begin func(name string) (run func(runner.Progress), trace func(comparison.Progress), done func())

// UsageError is the error of options that do not fit a suite.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Plan is a suite that is ready to run with some options.
type Plan struct {
	*Suite
	o      Options
	parts  []*part // those that run, each with the variants that do
	traces map[string]*workloads.Trace

	runner    runner.Options
	how       func(on string) func(context.Context, *scenario.Scenario, runner.Options) (*runner.Outcome, error)
	begin     Begin
	report    *Report
	n, of     int                        // runs that began, and all
	summaries map[string]*report.Summary // by part, variant
	dirs      map[dirKey]string
	open      []*rundir.Run // the last that were read
	simulated map[string]*traced
}

// dirKey identifies a run.
type dirKey struct {
	variant *variant
	on      string
}

// generated is the value of trace for a generated one similar to the Facebook trace.
const generated = "generated"

// traceInput is the input that replaces the trace of parts in the flow-level simulator.
const traceInput = "trace"

// Prepare checks the options, the inputs, and all scenarios that run. It writes nothing.
func (s *Suite) Prepare(o Options) (*Plan, error) {
	p := &Plan{
		Suite: s, o: o, how: backend,
		traces: map[string]*workloads.Trace{}, simulated: map[string]*traced{},
		summaries: map[string]*report.Summary{}, dirs: map[dirKey]string{},
	}
	if o.Repeat < 1 {
		return nil, UsageError{fmt.Errorf("--repeats %d: must be 1 or more", o.Repeat)}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o.Set)) {
		if s.input(name) == nil {
			var names []string
			for _, x := range s.inputs {
				names = append(names, x.name)
			}
			errs = append(errs, UsageError{fmt.Errorf("--set %s: not an input of %s%s", name, s.Path, suggestion(name, names))})
		}
	}
	for _, name := range o.Packets {
		if of := s.part(name); of == nil || slices.ContainsFunc(of.variants, (*variant).ofTrace) {
			err := fmt.Errorf("--packets %q: expected a part that runs scenarios%s", name, suggestion(name, s.partNames()))
			errs = append(errs, UsageError{err})
		} else {
			for _, v := range of.variants {
				v.on = onPackets
			}
		}
	}
	if err := p.choose(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, part := range p.parts {
		for _, v := range part.variants {
			if err := p.check(part, v); err != nil {
				errs = append(errs, fmt.Errorf("%s:%d:%d: %s: %w", s.Path, v.node.Line, v.node.Column, v.path, err))
			}
			p.of++
			if p.onPackets(v) {
				p.of++
			}
		}
	}
	for _, x := range s.inputs {
		if err := p.size(x); err != nil {
			errs = append(errs, err)
		}
	}
	return p, errors.Join(errs...)
}

// backend returns the function that runs a scenario on packets or on the fluid model.
func backend(on string) func(context.Context, *scenario.Scenario, runner.Options) (*runner.Outcome, error) {
	if on == onPackets {
		return runner.Execute
	}
	return runner.Simulate
}

// choose sets the parts that run, and gives claims of other variants the reason.
func (p *Plan) choose() error {
	var errs []error
	for _, name := range p.o.Only {
		of, v, one := strings.Cut(name, "/")
		part := p.part(of)
		switch {
		case part == nil:
			errs = append(errs, UsageError{fmt.Errorf("--only %q: unknown part%s", name, suggestion(of, p.partNames()))})
		case one && part.variant(v) == nil:
			var names []string
			for _, x := range part.variants {
				names = append(names, x.name)
			}
			errs = append(errs, UsageError{fmt.Errorf("--only %q: unknown variant of %s%s", name, of, suggestion(v, names))})
		}
	}
	for _, whole := range p.Suite.parts {
		one := *whole
		one.variants = slices.DeleteFunc(slices.Clone(whole.variants), func(v *variant) bool {
			only := func(name string) bool { return slices.Contains(p.o.Only, name) }
			return len(p.o.Only) > 0 && !only(whole.name) && !only(whole.name+"/"+v.name)
		})
		if len(one.variants) == 0 {
			continue
		}
		left := func(v *variant) bool { return whole.variant(v.name) == v && one.variant(v.name) == nil }
		p.skip(left, "the variant did not run (--only)")
		for i := range p.Claims.Claims {
			c := &p.Claims.Claims[i]
			if c.target != nil && c.target.part == whole && c.target.figure.over == overFirst && left(whole.variants[0]) {
				c.NotRun = "needs the first variant of the part, which did not run (--only)"
			}
		}
		for _, v := range one.variants {
			if v.estimates != "" && one.variant(v.estimates) == nil {
				err := fmt.Errorf("--only: %s/%s needs the estimates of %s/%s: add it", whole.name, v.name, whole.name, v.estimates)
				errs = append(errs, UsageError{err})
			}
		}
		one.variants = slices.DeleteFunc(one.variants, func(v *variant) bool { return p.needs(v) != "" })
		for _, v := range whole.variants {
			if why := p.needs(v); why != "" {
				p.skip(func(o *variant) bool { return o == v }, why)
			}
		}
		p.parts = append(p.parts, &one)
	}
	return errors.Join(errs...)
}

// needs returns the reason for which a variant does not run, "" for none.
func (p *Plan) needs(v *variant) string {
	for _, name := range v.needs {
		if p.o.Set[name] == "" {
			return fmt.Sprintf("needs %s: --set %s=FILE", p.input(name).what, name)
		}
	}
	return ""
}

// skip gives the reason for which claims are not measured, those of some variants.
func (p *Plan) skip(of func(*variant) bool, why string) {
	for i := range p.Claims.Claims {
		if c := &p.Claims.Claims[i]; c.target != nil && slices.ContainsFunc(c.target.variants, of) {
			c.NotRun = why
		}
	}
}

// NeedsRoot reports whether a variant runs on packets.
func (p *Plan) NeedsRoot() bool {
	return slices.ContainsFunc(p.parts, func(x *part) bool { return slices.ContainsFunc(x.variants, p.onPackets) })
}

func (p *Plan) onPackets(v *variant) bool { return v.on == onPackets && !p.o.Fluid }

// size skips the claims about an input of another size.
func (p *Plan) size(x input) error {
	path := p.o.Set[x.name]
	ofInput := func(v *variant) bool {
		return slices.Contains(v.needs, x.name) || x.name == traceInput && v.ofTrace()
	}
	used := slices.ContainsFunc(p.parts, func(x *part) bool { return slices.ContainsFunc(x.variants, ofInput) })
	switch {
	case path == "":
		runs := func(v *variant) bool { return ofInput(v) && p.needs(v) == "" }
		p.skip(runs, fmt.Sprintf("the claim is about %s: --set %s=FILE", x.what, x.name))
		return nil
	case !used:
		return nil
	}
	is := x
	if x.jobs > 0 {
		f, err := safefile.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		list, err := jobs.Read(path, f, jobs.Limits{})
		if err != nil {
			return err
		}
		is.jobs = len(list)
	} else if x.coflows > 0 {
		t, err := p.trace(path)
		if err != nil {
			return err
		}
		var size workloads.Megabytes
		for _, c := range t.Coflows {
			for _, r := range c.Reducers {
				size += r.Size
			}
		}
		is.coflows = len(t.Coflows)
		if x.ports > 0 {
			is.ports = t.Ports
		}
		if x.megabytes > 0 {
			is.megabytes = int(size / 1_000_000)
		}
	}
	if is != x {
		p.skip(ofInput, fmt.Sprintf("the claim is about %s, and %s is another", x.what, path))
	}
	return nil
}

// trace reads a trace, or generates one.
func (p *Plan) trace(path string) (*workloads.Trace, error) {
	if t := p.traces[path]; t != nil {
		return t, nil
	}
	if path == generated {
		const seed = 1
		t, err := workloads.Facebook{}.Generate(seed)
		p.traces[path] = t
		return t, err
	}
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, _, _, err := workloads.ReadTrace(path, f, "")
	p.traces[path] = t
	return t, err
}

// traceOf returns the trace of a variant in the flow-level simulator.
func (p *Plan) traceOf(v *variant) (*workloads.Trace, error) {
	path := v.trace
	if given := p.o.Set[traceInput]; given != "" && p.input(traceInput) != nil {
		path = given
	}
	return p.trace(path)
}

// check checks that a variant can run, and has the arms that its pairs and the claims about it compare.
func (p *Plan) check(of *part, v *variant) error {
	var arms []string
	switch {
	case v.ofTrace():
		if _, err := p.traceOf(v); err != nil {
			return err
		}
		for _, x := range v.policies {
			arms = append(arms, x.String())
		}
	default:
		set, err := p.assignments(v)
		if err != nil {
			return err
		}
		if v.derive != nil { // it does not exist yet
			return nil
		}
		s, err := p.load(v, set)
		if err != nil {
			return err
		}
		for _, a := range s.ArmList() {
			arms = append(arms, a.Name)
		}
	}
	var errs []error
	has := func(name, what string) {
		if name != "" && !slices.Contains(arms, name) {
			errs = append(errs, fmt.Errorf("%s: unknown arm %q%s", what, name, suggestion(name, arms)))
		}
	}
	for _, x := range v.over(arms) {
		has(x.base, "pair "+x.name)
		has(x.arm, "pair "+x.name)
	}
	for _, c := range p.Claims.Claims {
		if t := c.target; t != nil && slices.Contains(t.variants, v) {
			base, arm := t.figure.arms(t.pair)
			has(base, "claim "+c.ID)
			has(arm, "claim "+c.ID)
		}
	}
	return errors.Join(errs...)
}

// assignments returns the variables of a variant's scenario.
func (p *Plan) assignments(v *variant) (map[string]string, error) {
	set := maps.Clone(v.set)
	set["repeat"] = fmt.Sprint(v.repeats(p.o.Repeat, p.onPackets(v)))
	for _, name := range v.needs {
		path, err := filepath.Abs(p.o.Set[name])
		if err != nil {
			return nil, err
		}
		set[name] = path
	}
	return set, nil
}

func (p *Plan) load(v *variant, set map[string]string) (*scenario.Scenario, error) {
	return scenario.Load(v.scenario, scenario.Options{Catalog: catalog.All(), Set: set})
}

// ErrVoid is the error of a suite with a void arm.
var ErrVoid = errors.New("an arm is void")

// Run runs the plan, and writes report.md, to out too, claims.json and report.html to the output directory. It goes
// on after a void arm. Its error is that of the first run that fails otherwise, or else that of void arms, or else
// ErrClaims. Begin may be nil.
func (p *Plan) Run(ctx context.Context, out io.Writer, o runner.Options, begin Begin) error {
	p.runner, p.begin = o, begin
	p.runner.Out = p.o.Dir
	began := time.Now()
	if err := safefile.MkdirAll(filepath.Dir(p.o.Dir)); err != nil {
		return err
	}
	if err := safefile.Mkdir(p.o.Dir); err != nil {
		return fmt.Errorf("%w: name a directory that does not exist", err)
	}
	file, err := safefile.Create(filepath.Join(p.o.Dir, "report.md"))
	if err != nil {
		return err
	}
	p.report = NewReport(io.MultiWriter(out, file))
	void, err := p.run(ctx)
	if err == nil {
		p.report.Say("Total time: %v. Output: %s\n", time.Since(began).Round(time.Second), p.o.Dir)
	}
	if bad := cmp.Or(p.report.err, file.Close()); err != nil || bad != nil {
		return errors.Join(err, void, bad)
	}
	return cmp.Or(void, p.Claims.broken())
}

func (p *Plan) run(ctx context.Context) (void, err error) {
	for _, of := range p.parts {
		bad, err := p.runPart(ctx, of)
		if err != nil {
			return void, fmt.Errorf("%s: %w", of.name, err)
		}
		void = errors.Join(void, bad)
		p.Claims.ran[of.name] = true
	}
	if err := p.Claims.write(p.report); err != nil {
		return void, err
	}
	if err := safefile.Write(filepath.Join(p.o.Dir, "claims.json"), p.Claims.encode); err != nil {
		return void, err
	}
	return void, safefile.Write(filepath.Join(p.o.Dir, "report.html"), p.page)
}

// runPart runs the variants of a part, writes its table, and records its claims.
func (p *Plan) runPart(ctx context.Context, of *part) (void, err error) {
	p.report.Part(of.title)
	if of.doc != "" {
		p.report.Say("%s\n", of.doc)
	}
	var rows [][]string
	done := map[*variant]bool{}
	for _, v := range of.variants {
		if v.ofTrace() {
			err = p.simulate(ctx, of, v)
		} else {
			var bad error
			bad, err = p.execute(ctx, of, v)
			void = errors.Join(void, bad)
		}
		if err != nil {
			return void, fmt.Errorf("%s: %w", cmp.Or(v.name, of.title), err)
		}
		done[v] = true
		more, err := p.rows(of, v)
		if err != nil {
			return void, err
		}
		rows = append(rows, more...)
		if err := p.measure(of, v, done); err != nil {
			return void, err
		}
	}
	for _, v := range p.part(of.name).variants {
		if why := p.needs(v); why != "" {
			p.report.Say("%s: not run: %s.\n", cmp.Or(v.title, of.title), why)
		}
	}
	head := []string{"comparison", "on"}
	for _, f := range of.columns {
		head = append(head, f.heading())
	}
	return void, p.report.Draw(head, rows)
}

// progress begins a run.
func (p *Plan) progress(of *part, v *variant, on string) (
	run func(runner.Progress), trace func(comparison.Progress), done func(),
) {
	p.n++
	if p.begin == nil {
		return nil, nil, func() {}
	}
	return p.begin(fmt.Sprintf("%d/%d %s on %s", p.n, p.of, join(of.name, v.name), on))
}

// simulate runs the policies of a variant on its trace, and writes the times of every coflow to a file.
func (p *Plan) simulate(ctx context.Context, of *part, v *variant) error {
	t, err := p.traceOf(v)
	if err != nil {
		return err
	}
	if t, err = v.derived(t); err != nil {
		return err
	}
	_, show, done := p.progress(of, v, simulator)
	began := time.Now()
	o := comparison.Options{Policies: v.policies, Interval: v.interval}
	out, err := comparison.Do(ctx, t, o, func() time.Duration { return time.Since(began) }, show)
	done()
	if err != nil {
		return err
	}
	p.simulated[of.name] = &traced{t, out}
	p.report.Say("%d coflows with %d flows of %s on %d ports of one non-blocking switch.\n",
		out.Coflows, out.Flows, t.Name, t.Ports)
	if err := out.Markdown(p.report); err != nil {
		return err
	}
	p.report.Say("")
	return safefile.Write(filepath.Join(p.o.Dir, join(of.name, v.name)+".csv"), out.CoflowsCSV)
}

// execute runs a scenario on the fluid model and, if the variant has packets, on these. void is the error of a void
// arm.
func (p *Plan) execute(ctx context.Context, of *part, v *variant) (void, err error) {
	p.open = nil // a run can need the memory
	set, err := p.assignments(v)
	if err != nil {
		return nil, err
	}
	if v.derive != nil {
		if set[traceInput], err = p.derive(of, v, set[traceInput]); err != nil {
			return nil, err
		}
	}
	if v.estimates != "" {
		_, arm := of.columns[0].arms(v.over(nil)[0])
		if s := p.summaries[join(of.name, v.estimates)]; s != nil {
			for _, a := range s.Arms {
				if a.Name == arm {
					maps.Copy(set, hindsight(&a))
				}
			}
		}
		p.report.Say("%s: %v.\n", v.title, set)
	}
	s, err := p.load(v, set)
	if err != nil {
		return nil, err
	}
	backends := []string{onFluid}
	if p.onPackets(v) {
		backends = append(backends, onPackets)
	}
	for _, on := range backends {
		show, _, done := p.progress(of, v, on)
		o := p.runner
		o.Progress = show
		out, err := p.how(on)(ctx, s, o)
		done()
		if err != nil {
			return void, err
		}
		p.dirs[dirKey{v, on}] = out.Dir
		p.summaries[join(of.name, v.name)] = &out.Report.Summary
		if out.Level() == verdict.Void {
			void = fmt.Errorf("%s: %w", join(of.name, v.name), ErrVoid)
		}
	}
	return void, p.verdicts(v)
}

// derive writes the derived trace of a scenario's variant, and returns its path.
func (p *Plan) derive(of *part, v *variant, from string) (string, error) {
	t, err := p.trace(from)
	if err == nil {
		t, err = v.derived(t)
	}
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(filepath.Join(p.o.Dir, join(of.name, v.name)+".flows"))
	if err != nil {
		return "", err
	}
	return path, safefile.Write(path, func(w io.Writer) error {
		return workloads.WriteTraceAs(w, t, workloads.FormatFlows)
	})
}

// maxDifference is the largest relative difference between average times on packets and on the fluid model
// of which a report does not point out the causes.
const maxDifference = 0.10

// verdicts writes the verdicts of a variant on packets, and the average times relative to the fluid model.
func (p *Plan) verdicts(v *variant) error {
	packets := p.dirs[dirKey{v, onPackets}]
	if packets == "" {
		return nil
	}
	run, err := p.run1(v, onPackets)
	if err != nil {
		return err
	}
	fluid, err := p.run1(v, onFluid)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, a := range run.Summary.Arms {
		row := []string{a.Name, passed(&a), "–", "–"}
		if b := fluid.Arm(a.Name); b != nil && mainTime(&a) != nil && mainTime(b) != nil {
			ratio := mainTime(&a).MeanUS / mainTime(b).MeanUS
			row[2], row[3] = fmt.Sprintf("%.0f ms", mainTime(&a).MeanUS/1e3), fmt.Sprintf("%.3f", ratio)
			if ratio < 1-maxDifference || ratio > 1+maxDifference {
				row[3] += " (causes: report.md of the run)"
			}
		}
		rows = append(rows, row)
	}
	p.report.Say("Run directories %s (packets) and %s (fluid model), %s.\n",
		filepath.Base(packets), filepath.Base(fluid.Dir), words.Plural(run.Summary.Arms[0].Repeats, "repeat", "repeats"))
	return p.report.Draw([]string{"arm", "verdict", "average time", "relative to the fluid model"}, rows)
}

// mainTime returns the time of jobs, of coflows or of block writes; nil if there is none.
func mainTime(a *report.ArmSummary) *report.Metric {
	return cmp.Or(a.JobTime, a.CCT, a.WriteTime)
}

// passed returns the verdict of an arm, and the number of its repeats with verdict pass.
func passed(a *report.ArmSummary) string {
	if a.Verdict == nil {
		return "no verdict"
	}
	n := 0
	for _, v := range a.Verdicts {
		if v.Level == verdict.Pass {
			n++
		}
	}
	return fmt.Sprintf("%v (%d of %d pass)", *a.Verdict, n, len(a.Verdicts))
}

// mostOpen is the number of runs that are kept in memory.
const mostOpen = 3

// run1 reads a run of a variant, nil if there is none.
func (p *Plan) run1(v *variant, on string) (*rundir.Run, error) {
	dir := p.dirs[dirKey{v, on}]
	if dir == "" {
		return nil, nil
	}
	if i := slices.IndexFunc(p.open, func(r *rundir.Run) bool { return r.Dir == dir }); i >= 0 {
		r := p.open[i]
		p.open = append(slices.Delete(p.open, i, i+1), r)
		return r, nil
	}
	r, err := rundir.Open(dir)
	if err == nil {
		p.open = append(p.open, r)
		p.open = p.open[max(0, len(p.open)-mostOpen):]
	}
	return r, err
}

// evaluate measures a figure of variants on a backend.
func (p *Plan) evaluate(of *part, variants []*variant, x pair, f *figure, on string) (result, error) {
	base, arm := f.arms(x)
	if variants[0].ofTrace() {
		return f.measureTrace(p.simulated[of.name], base, arm)
	}
	if f.of.packets && on != onPackets {
		return none, nil
	}
	var runs, others []*rundir.Run
	for _, v := range variants {
		r, err := p.run1(v, on)
		if err != nil || r == nil {
			return none, err
		}
		runs = append(runs, r)
	}
	if f.over != "" {
		v, other := variants[0], onFluid
		if f.over == overFirst {
			v, other = p.part(of.name).variants[0], on
		} else if on == onFluid {
			return none, nil
		}
		r, err := p.run1(v, other)
		if err != nil || r == nil {
			return none, err
		}
		others = append(others, r)
	}
	return f.measure(runs, others, base, arm)
}

// backends returns what a variant ran on; the last is what claims are measured on.
func (p *Plan) backends(v *variant) []string {
	switch {
	case v.ofTrace():
		return []string{simulator}
	case p.onPackets(v):
		return []string{onFluid, onPackets}
	}
	return []string{onFluid}
}

// rows returns the rows of a variant in the table of its part. The paper's figure stands next to ours where there is a
// claim.
func (p *Plan) rows(of *part, v *variant) (rows [][]string, err error) {
	var arms []string
	if v.ofTrace() {
		for _, x := range v.policies {
			arms = append(arms, x.String())
		}
	} else {
		r, err := p.run1(v, onFluid)
		if err != nil {
			return nil, err
		}
		arms = r.Arms()
	}
	for _, x := range v.over(arms) {
		for _, on := range p.backends(v) {
			row := []string{cmp.Or(strings.Trim(v.title+", "+x.title, ", "), of.title), on}
			for _, f := range of.columns {
				r, err := p.evaluate(of, []*variant{v}, x, f, on)
				if err != nil {
					return nil, err
				}
				cell := r.text(f.unit())
				for _, c := range p.Claims.Claims {
					if t := c.target; t != nil && c.Paper != nil && t.figure == f && t.pair == x && slices.Equal(t.variants, []*variant{v}) {
						cell += fmt.Sprintf(" (paper %s)", c.Paper.text(c.Unit))
					}
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// measure records the claims that a variant completes.
func (p *Plan) measure(of *part, v *variant, done map[*variant]bool) error {
	for i := range p.Claims.Claims {
		c := &p.Claims.Claims[i]
		t := c.target
		if t == nil || c.NotRun != "" || !slices.Contains(t.variants, v) ||
			slices.ContainsFunc(t.variants, func(v *variant) bool { return !done[v] }) {
			continue
		}
		on := p.backends(v)
		last := on[len(on)-1]
		if (t.figure.of.packets || t.figure.over == overFluid) && last != onPackets {
			c.NotRun = "needs packets"
			continue
		}
		r, err := p.result(of, t, last)
		if err != nil {
			return fmt.Errorf("claim %s: %w", c.ID, err)
		}
		c.record(r, last)
	}
	return nil
}

// result measures the target of a claim.
func (p *Plan) result(of *part, t *target, on string) (result, error) {
	if !t.references {
		return p.evaluate(of, t.variants, t.pair, t.figure, on)
	}
	worst := 0.0
	for _, v := range t.variants {
		value := *t.figure
		value.as = "value"
		r, err := p.evaluate(of, []*variant{v}, t.pair, &value, on)
		if err != nil {
			return none, err
		}
		worst = max(worst, v.distance(r)) // NaN if there is none
	}
	return exactly(worst), nil
}

// Report is the output of a suite, in Markdown. It keeps the first write error.
type Report struct {
	out io.Writer
	err error
}

// NewReport returns a report that writes to out.
func NewReport(out io.Writer) *Report { return &Report{out: out} }

// Write writes Markdown unchanged.
func (r *Report) Write(text []byte) (int, error) {
	n, err := r.out.Write(text)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n, err
}

// Say writes a paragraph.
func (r *Report) Say(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// Part begins a part of the report.
func (r *Report) Part(title string) {
	r.Say("## %s\n", strings.ToUpper(title[:1])+title[1:])
}

// Draw writes a table. Its first column contains names.
func (r *Report) Draw(head []string, rows [][]string) error {
	t := table.Table{Head: head, Rows: rows}
	for range head {
		t.Columns = append(t.Columns, table.Column{})
	}
	t.Columns[0] = table.Names()
	if err := t.Markdown(r); err != nil {
		return err
	}
	r.Say("")
	return nil
}
