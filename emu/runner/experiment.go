package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"testbed/emu/outside"
	"testbed/emu/parallel"
	"testbed/emu/scenario"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/workloads"
)

// experiment is what one call runs: a run for each point of a scenario. Without a sweep that is one.
type experiment struct {
	s    *scenario.Scenario
	o    Options
	runs []*run

	path  string // the directory of a sweep; "" without one
	sweep rundir.Sweep
	held  *os.File
}

// newExperiment returns an experiment without a directory.
func newExperiment(s *scenario.Scenario, o Options, backend string) (*experiment, error) {
	o.modules = &outside.Modules{}
	x := &experiment{s: s, o: o}
	points := s.Points()
	if len(points) > 1 && o.CheckScale != (workloads.Factor{}) {
		return nil, fmt.Errorf("check the scale of scenario %s: it has a sweep: choose a point with --set, or leave --check-scale out", s.Spec.Name)
	}
	for i, p := range points {
		if p.Scenario.Spec.Repeat.Adaptive() && o.CheckScale != (workloads.Factor{}) {
			return nil, p.Scenario.Problem("repeat", "looks decide the number of repeats, which a check of the scale cannot repeat: "+
				"write a number, or leave --check-scale out")
		}
		r, err := newRun(p.Scenario, o, backend)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("point %s: %w", p.Name(), err))
		}
		r.point, r.place, r.places = p, i, len(points)
		if err := r.scale(); err != nil {
			return nil, err
		}
		x.runs = append(x.runs, r)
	}
	return x, o.Choice.check(x)
}

// swept reports whether there is a sweep.
func (x *experiment) swept() bool { return len(x.runs[0].point.Values) > 0 }

// all yields the runs, each followed by its scaled half.
func (x *experiment) all() iter.Seq[*run] {
	return func(yield func(*run) bool) {
		for _, r := range x.runs {
			if !yield(r) || r.half != nil && !yield(r.half) {
				return
			}
		}
	}
}

// chosen yields the runs of which the call executes trials, and those that an experiment that goes on has.
func (x *experiment) chosen() iter.Seq[*run] {
	return func(yield func(*run) bool) {
		for of := range x.all() {
			had := x.o.resume != "" && isDir(x.place(of, x.o.resume))
			if (had || slices.ContainsFunc(of.trials(), x.o.Choice.has)) && !yield(of) {
				return
			}
		}
	}
}

// place returns the directory of a run in that of the experiment.
func (x *experiment) place(r *run, path string) string {
	if x.swept() {
		path = filepath.Join(path, r.point.Name())
	}
	if r.manifest.ScaledBy != "" {
		path = filepath.Join(path, scaledDir)
	}
	return path
}

// id returns the name of a run.
func (x *experiment) id(r *run, name string) string {
	if x.swept() {
		name = fmt.Sprintf("%s.p%d", name, r.place)
	}
	if r.manifest.ScaledBy != "" {
		name += scaledSuffix
	}
	return name
}

// execute runs the trials of a scenario, and reports on them.
func execute(ctx context.Context, s *scenario.Scenario, o Options, backend string) (out *Outcome, err error) {
	x, err := newExperiment(s, o, backend)
	if err != nil {
		return nil, err
	}
	for r := range x.chosen() {
		if err := r.prepare(ctx); err != nil {
			return nil, x.of(r, err)
		}
	}
	defer func() { err = errors.Join(err, x.finish(err, ctx.Err() != nil)) }()
	if err := x.begin(ctx); err != nil {
		return nil, err
	}
	cut := x.trials(ctx)
	out, err = x.report(cut)
	return out, errors.Join(cut, err)
}

// of names the point of an error.
func (x *experiment) of(r *run, err error) error {
	if err != nil && x.swept() {
		return fmt.Errorf("point %s: %w", r.point.Name(), err)
	}
	return err
}

// begin makes the directories, or opens those of an experiment that goes on.
func (x *experiment) begin(ctx context.Context) error {
	name, err := newRunID(x.s.Spec.Name, x.runs[0].backend)
	if err != nil {
		return err
	}
	path := cmp.Or(x.o.resume, filepath.Join(x.o.Out, name))
	for r := range x.chosen() { // before anything is changed
		if at := x.place(r, path); x.o.resume != "" && isDir(at) { // a kill may have come before it had one
			if err := r.look(at); err != nil {
				return x.of(r, err)
			}
		}
	}
	if x.swept() {
		if err := x.beginSweep(path, name); err != nil {
			return err
		}
		name = x.sweep.Run // of the sweep that goes on
	}
	for r := range x.chosen() {
		r.manifest.Run = x.id(r, name)
		if err := r.begin(ctx, x.place(r, path)); err != nil {
			return x.of(r, err)
		}
	}
	if x.o.resume == "" {
		if err := linkLatest(x.o.Out, name); err != nil && x.o.Warn != nil {
			x.o.Warn(err.Error())
		}
	}
	return nil
}

// beginSweep makes or opens the directory of a sweep.
func (x *experiment) beginSweep(path, name string) (err error) {
	fingerprint, err := x.s.Fingerprint()
	if err != nil {
		return err
	}
	now := rundir.Sweep{
		Run: name, Scenario: x.s.Spec.Name, Workload: fingerprint, Tool: x.o.Version, Started: time.Now(), State: rundir.Running,
		Backend: x.runs[0].backend, Captures: x.runs[0].manifest.Captures,
	}
	for _, a := range x.runs[0].arms {
		now.Arms = append(now.Arms, a.Name)
	}
	for _, r := range x.runs {
		now.Points = append(now.Points, r.point.Name())
	}
	if x.o.resume == "" {
		err := errors.Join(safefile.MkdirAll(filepath.Dir(path)), safefile.Mkdir(path), writeInput(path, x.s))
		if err != nil {
			return fmt.Errorf("directory of the sweep: %w (choose another directory with --output)", err)
		}
	}
	if x.held, err = safefile.Hold(path); err != nil {
		return fmt.Errorf("go on with %w", err)
	}
	if x.o.resume != "" {
		was, err := rundir.ReadSweep(path)
		if err != nil {
			return err
		}
		if was.Workload != now.Workload || was.Tool != now.Tool {
			return fmt.Errorf("go on with %s: it is of version %s and fingerprint %.12s, and this of %s and %.12s: begin a new run", path, was.Tool, was.Workload, now.Tool, now.Workload)
		}
		now.Run, now.Started = was.Run, was.Started
	}
	x.path, x.sweep = path, now
	return x.sweep.Save(path)
}

// finish records the ends of the runs.
func (x *experiment) finish(why error, interrupted bool) (err error) {
	for _, r := range slices.Backward(slices.Collect(x.all())) { // a run has the sums of its scaled half
		if r.path != "" {
			err = errors.Join(err, r.finish(why, interrupted))
		}
		err = errors.Join(err, r.release())
	}
	if x.path != "" {
		x.sweep.Ended, x.sweep.State = time.Now(), stateOf(why, interrupted)
		err = errors.Join(err, x.sweep.Save(x.path))
	}
	if x.held != nil {
		err = errors.Join(err, x.held.Close())
	}
	return err
}

// trials returns the trials of a run, up to the next look if looks decide its repeats.
func (r *run) trials() (all []*trial) {
	for repeat := range r.repeats() {
		for _, a := range r.arms {
			all = append(all, &trial{arm: a, repeat: repeat})
		}
	}
	return all
}

// order returns the chosen trials in the order in which they run: repeat 0 of every point first, and the arms of a
// repeat next to each other. Each repeat on packets begins with the next arm, so that none has always the first turn.
func (x *experiment) order() (all []*trial) {
	most := 0
	for _, r := range x.runs {
		most = max(most, r.repeats())
	}
	for repeat := range most {
		for r := range x.all() {
			for i := range r.arms {
				if repeat >= r.repeats() {
					break
				}
				if r.backend != rundir.Fluid {
					i += repeat
				}
				if t := (&trial{arm: r.arms[i%len(r.arms)], repeat: repeat}); x.o.Choice.has(t) {
					all = append(all, t)
				}
			}
		}
	}
	return all
}

// trials executes all chosen trials that have not ended, and those that looks at the intervals add.
func (x *experiment) trials(ctx context.Context) error {
	for more := true; more; {
		if err := x.round(ctx); err != nil {
			return err
		}
		var err error
		if more, err = x.look(); err != nil {
			return err
		}
	}
	return nil
}

// look makes the looks that are due, and reports whether trials are missing because of them.
func (x *experiment) look() (more bool, err error) {
	for r := range x.chosen() {
		again, err := r.lookAgain()
		if err != nil {
			return false, x.of(r, err)
		}
		more = more || again
	}
	return more, nil
}

// round executes the chosen trials that have not ended. Those that others do not disturb run on all processors.
func (x *experiment) round(ctx context.Context) error {
	all := slices.DeleteFunc(x.order(), func(t *trial) bool { return t.done[t.repeat] != nil })
	limit := 1
	if x.runs[0].backend != rundir.Packets {
		limit = runtime.GOMAXPROCS(0)
	}
	execute := func(ctx context.Context, i int, progressed func(Progress)) error {
		return all[i].execute(ctx, Progress{Trial: i + 1, Trials: len(all)}, progressed)
	}
	wait := parallel.StartAtMost(ctx, len(all), limit, x.o.Progress, execute)
	for i, t := range all {
		if err := wait(i); err != nil {
			err = x.of(t.of, fmt.Errorf("arm %s, repeat %d: %w", t.label(), t.repeat, err))
			for _, later := range all[i+1:] { // that were stopped because of it count as not begun
				if later.done[later.repeat] == nil {
					err = errors.Join(err, os.RemoveAll(later.path()))
				}
			}
			return err
		}
	}
	return nil
}

// report computes and writes the reports on the trials that have ended; it returns nil if there are none.
func (x *experiment) report(cut error) (*Outcome, error) {
	if !x.swept() {
		return x.runs[0].report(cut)
	}
	s := &report.Sweep{RunID: x.sweep.Run, Scenario: x.sweep.Scenario}
	out := &Outcome{Dir: x.path, Sweep: s}
	for _, r := range x.runs {
		var of *Outcome
		if r.path != "" {
			var err error
			if of, err = r.report(cut); err != nil {
				return nil, x.of(r, err)
			}
		}
		if of == nil {
			s.Missing = append(s.Missing, r.point.Name())
			continue
		}
		s.Points = append(s.Points, pointOf(r.point, of.Report))
	}
	if len(s.Points) == 0 {
		return nil, nil
	}
	return out, s.Write(x.path)
}

// pointOf returns a point with its report.
func pointOf(p scenario.Point, r *report.Report) report.SweepPoint {
	out := report.SweepPoint{Dir: p.Name(), Report: r, Summary: &r.Summary}
	for _, v := range p.Values {
		out.Values = append(out.Values, report.Setting{Key: v.Name, Value: v.Value})
	}
	return out
}
