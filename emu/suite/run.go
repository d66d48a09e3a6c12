package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"testbed/emu/flowsim/comparison"
	"testbed/emu/runner"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/results/table"
	"testbed/results/verdict"
	"testbed/topo/words"
	"testbed/workloads"
)

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
	if err := p.simulate(ctx); err != nil {
		return nil, err
	}
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
			err = p.describe(of, v)
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
func (p *Plan) progress(what, on string) (
	run func(runner.Progress), trace func(comparison.Progress), done func(),
) {
	p.n++
	if p.begin == nil {
		return nil, nil, func() {}
	}
	return p.begin(fmt.Sprintf("%d/%d %s on %s", p.n, p.of, what, on))
}

// simulate runs the policies of all variants on traces. They run before scenarios, in parallel, since policies on
// different traces then keep all processors busy.
func (p *Plan) simulate(ctx context.Context) error {
	var all []*variant
	var studies []comparison.Study
	for _, of := range p.parts {
		for _, v := range of.variants {
			if !v.ofTrace() {
				continue
			}
			t, err := p.traceOf(v)
			if err == nil {
				t, err = v.derived(t)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", join(of.name, v.name), err)
			}
			all = append(all, v)
			o := comparison.Options{Policies: v.policies, Interval: v.interval}
			studies = append(studies, comparison.Study{Trace: t, Options: o})
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, show, done := p.progress(words.Plural(len(all), "trace", "traces"), simulator)
	began := time.Now()
	outs, err := comparison.DoAll(ctx, studies, func() time.Duration { return time.Since(began) }, show)
	done()
	for i, out := range outs {
		p.simulated[all[i]] = &traced{studies[i].Trace, out}
	}
	return err
}

// describe writes the results of a variant on a trace, and the times of every coflow to a file.
func (p *Plan) describe(of *part, v *variant) error {
	s := p.simulated[v]
	p.report.Say("%d coflows with %d flows of %s on %d ports of one non-blocking switch.\n",
		s.out.Coflows, s.out.Flows, s.trace.Name, s.trace.Ports)
	if err := s.out.Markdown(p.report); err != nil {
		return err
	}
	p.report.Say("")
	return safefile.Write(filepath.Join(p.o.Dir, join(of.name, v.name)+".csv"), s.out.CoflowsCSV)
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
		show, _, done := p.progress(join(of.name, v.name), on)
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
func mainTime(a *summary.Arm) *summary.Metric {
	return cmp.Or(a.JobTime, a.CCT, a.WriteTime)
}

// passed returns the verdict of an arm, and the number of its repeats with verdict pass.
func passed(a *summary.Arm) string {
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
