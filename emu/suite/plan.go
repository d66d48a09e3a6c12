package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"testbed/emu/flowsim/comparison"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

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
	n, of     int                     // runs that began, and all
	summaries map[string]*summary.Run // by part, variant
	dirs      map[dirKey]string
	open      []*rundir.Run // the last that were read
	simulated map[*variant]*traced
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
		traces: map[string]*workloads.Trace{}, simulated: map[*variant]*traced{},
		summaries: map[string]*summary.Run{}, dirs: map[dirKey]string{},
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
			err := fmt.Errorf("--on-packets %q: expected a part that runs scenarios%s", name, suggestion(name, s.partNames()))
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
	traces := 0 // one run for all variants on traces
	for _, part := range p.parts {
		for _, v := range part.variants {
			if err := p.check(part, v); err != nil {
				errs = append(errs, fmt.Errorf("%s:%d:%d: %s: %w", s.Path, v.node.Line, v.node.Column, v.path, err))
			}
			if v.ofTrace() {
				traces = 1
				continue
			}
			p.of++
			if p.onPackets(v) {
				p.of++
			}
		}
	}
	p.of += traces
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
			return (whole.optional || len(p.o.Only) > 0) && !only(whole.name) && !only(whole.name+"/"+v.name)
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
	s, err := scenario.Load(v.scenario, scenario.Options{Catalog: catalog.All(), Set: set})
	if err == nil && len(s.Points()[0].Values) > 0 {
		err = fmt.Errorf("%s: it has a sweep: write a variant of the part for each point", v.scenario)
	}
	return s, err
}
