package runner

import (
	"fmt"
	"os"
	"slices"

	"testbed/results/metrics"
	"testbed/results/plot"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/workloads"
)

// The scaled half of a run is a run directory inside that of the run, with the name of the run
// and a suffix.
const (
	scaledDir    = "scaled"
	scaledSuffix = "-scaled"
)

// scale adds the scaled half of the run, if there is a factor.
func (r *run) scale() error {
	by := r.o.CheckScale
	if by == (workloads.Factor{}) {
		return nil
	}
	fail := func(why string) error { return fmt.Errorf("check the scale of scenario %s: %s", r.s.Spec.Name, why) }
	if len(r.arms) < 2 {
		return fail("it has one arm, so no speed-up to compare: expected at least two arms")
	}
	for _, a := range r.arms {
		if unsafeName.ReplaceAllString(a.Name, "-") == scaledDir {
			return fail(fmt.Sprintf("arm %q has the directory name of the scaled half: rename the arm", a.Name))
		}
	}
	half, err := r.s.Scaled(by)
	if err != nil {
		return err
	}
	if r.half, err = newRun(half, r.o, r.backend); err == nil {
		r.half.manifest.ScaledBy, r.half.point, r.half.place, r.half.places = by.String(), r.point, r.place, r.places
	}
	return err
}

// input returns what a report on the trials that have ended needs. cut is the error that ended the run, or nil.
func (r *run) input(cut error) (in report.Input, err error) {
	m := &r.manifest
	if cut == nil && slices.ContainsFunc(r.trials(), func(t *trial) bool { return t.done[t.repeat] == nil }) {
		cut = fmt.Errorf("only some trials were chosen: %s", r.o.Choice)
	}
	in = report.Input{
		RunID: m.Run, Scenario: m.Scenario, Noise: m.Noise, Looks: r.looks,
		FluidModel: r.backend == rundir.Fluid, VirtualTime: r.backend == rundir.Virtual,
	}
	if m.Partial = r.partial(cut); m.Partial != nil {
		in.Partial = m.Partial
	}
	for _, a := range r.arms {
		of := report.Arm{Name: a.Name, Unmodelled: a.unmodelled()}
		var numbers []int
		for repeat, done := range a.done[:r.repeats()] {
			if done != nil {
				of.Repeats, numbers = append(of.Repeats, *done), append(numbers, repeat)
				of.Repeats[len(of.Repeats)-1].Samples = repeatFiles{dir: a.trial(repeat, work{}).path()}.samples()
			}
		}
		of.Numbers = metrics.NumbersOf(numbers)
		if len(of.Repeats) > 0 {
			in.Arms = append(in.Arms, of)
		}
	}
	if err := r.shown(&in); err != nil {
		return in, err
	}
	in.Manifest, err = settingsOf(m)
	return in, err
}

// shown adds the scenario, its fabric and its faults to a report.
func (r *run) shown(in *report.Input) error {
	in.Written, in.Fabric = string(r.s.Source()), r.fabric
	resolved, err := r.s.Recorded()
	if err != nil {
		return err
	}
	in.Resolved = string(resolved)
	in.Faults = map[string][]report.Mark{}
	for _, a := range r.arms {
		faults, err := a.s.Faults(a.fabric)
		if err != nil {
			return err
		}
		for _, x := range faults {
			in.Faults[a.Name] = append(in.Faults[a.Name], report.Mark{At: x.At, Text: x.Name})
		}
	}
	in.Ran, err = r.s.Sentence()
	return err
}

// partial names the trials that have ended and those that have not, if the run was cut short.
func (r *run) partial(cut error) *summary.Partial {
	if cut == nil {
		return nil
	}
	p := &summary.Partial{Why: cut.Error(), Ended: []string{}, Cut: []string{}, NotBegun: []string{}}
	for repeat := range r.repeats() {
		for _, a := range r.arms {
			t := a.trial(repeat, work{})
			list := &p.NotBegun
			if a.done[repeat] != nil {
				list = &p.Ended
			} else if _, err := os.Stat(t.path()); err == nil {
				list = &p.Cut
			}
			*list = append(*list, t.name())
		}
	}
	return p
}

// report computes and writes the report on the trials that have ended, nil if there are none.
func (r *run) report(cut error) (*Outcome, error) {
	in, err := r.input(cut)
	if err != nil {
		return nil, err
	}
	if r.half != nil && r.half.path != "" {
		half, err := r.half.report(cut)
		if err != nil {
			return nil, err
		}
		if half != nil {
			in.Scaled = &report.Scaled{By: r.half.manifest.ScaledBy, Report: half.Report}
		}
	}
	if len(in.Arms) == 0 {
		return nil, nil
	}
	rep, err := report.New(in)
	if err != nil {
		return nil, err
	}
	names, err := rep.Write(r.path, plot.OnPage)
	if err != nil {
		return nil, err
	}
	for _, name := range names { // that an earlier part of the run may have written
		delete(r.manifest.Files, name)
	}
	return &Outcome{Dir: r.path, Report: rep}, nil
}
