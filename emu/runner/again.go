package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"testbed/emu/fidelity"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/pcap"
	"testbed/results/plot"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/results/verdict"
)

// ReportOptions are the settings of Report. The zero value writes into the run directory.
type ReportOptions struct {
	// Out is the directory to write to, which is made if it is missing; "" is the run directory.
	Out string
	// Force replaces the run's own figures even if captures or records changed after the run. Without
	// it and Out, nothing is written then.
	Force bool
	// Progress may be nil; it is called from several goroutines, one at a time, and must not block.
	Progress func(Progress)
}

// Report recomputes the report of a run directory from its captures. It needs no other
// file: arms, their order and their repeats are in the captures. It adds verdicts and
// the predictions of the fluid model if their files exist. Files that changed after the run, by the
// sums in its manifest, are not used, and doubted in the verdict.
//
// If the run has a scaled half, Report reads and compares it.
//
// Of a sweep, it reports on all points.
func Report(ctx context.Context, dir string, o ReportOptions) (*Outcome, error) {
	if sweep, err := rundir.ReadSweep(dir); sweep != nil || err != nil {
		return reportSweep(ctx, dir, sweep, o, err)
	}
	x, err := readAgain(ctx, dir, o.Progress)
	if err != nil {
		return nil, err
	}
	rep, err := report.New(x.in)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Report: rep, Changes: x.changes}
	inPlace := o.Out == "" || filepath.Clean(o.Out) == filepath.Clean(dir)
	if inPlace && !o.Force && slices.ContainsFunc(x.changes, rundir.Change.OfRepeat) {
		return out, nil
	}
	if out.Dir = o.Out; inPlace {
		out.Dir = dir
	}
	return out, x.write(out.Dir, rep, inPlace)
}

func reportSweep(ctx context.Context, dir string, sweep *rundir.Sweep, o ReportOptions, err error) (*Outcome, error) {
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	s, err := loadRecorded(dir)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	to := cmp.Or(o.Out, dir)
	out := &Outcome{Dir: to, Sweep: &report.Sweep{RunID: sweep.Run, Scenario: sweep.Scenario}}
	for _, p := range s.Points() {
		at, one := filepath.Join(dir, p.Name()), o
		if !isDir(at) {
			out.Sweep.Missing = append(out.Sweep.Missing, p.Name())
			continue
		}
		if o.Out != "" {
			one.Out = filepath.Join(o.Out, p.Name())
		}
		of, err := Report(ctx, at, one)
		if err != nil {
			return nil, fmt.Errorf("point %s: %w", p.Name(), err)
		}
		if of.Dir == "" {
			out.Dir = ""
		}
		for _, c := range of.Changes {
			out.Changes = append(out.Changes, rundir.Change{File: p.Name() + "/" + c.File, What: c.What})
		}
		out.Sweep.Points = append(out.Sweep.Points, pointOf(p, of.Report))
	}
	if len(out.Sweep.Points) == 0 {
		return nil, fmt.Errorf("report: no trial has ended in %s", dir)
	}
	if out.Dir == "" {
		return out, nil
	}
	return out, out.Sweep.Write(to)
}

// again is a run directory that is read again.
type again struct {
	dir      string
	manifest *Manifest // nil without one
	changes  []rundir.Change
	in       report.Input
	half     *again // nil without a scaled half
}

// write writes the report and that of the scaled half. In the run directory, it renews their sums, except
// in one whose run may still be going on.
func (x *again) write(dir string, rep *report.Report, inPlace bool) error {
	if err := safefile.MkdirAll(dir); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	names, err := rep.Write(dir, plot.OnPage)
	if err != nil {
		return err
	}
	if x.half != nil {
		if err := x.half.write(filepath.Join(dir, scaledDir), x.in.Scaled.Report, inPlace); err != nil {
			return err
		}
		for name := range x.sums() {
			if path.Dir(name) == scaledDir {
				names = append(names, name)
			}
		}
	}
	if m := x.manifest; inPlace && m != nil && m.State != rundir.Running {
		return errors.Join(m.Reseal(dir, names...), m.Save(dir))
	}
	return nil
}

// readAgain reads the captures of a run directory and the records next to them.
func readAgain(ctx context.Context, dir string, progressed func(Progress)) (*again, error) {
	switch info, err := os.Stat(dir); {
	case err != nil:
		return nil, fmt.Errorf("report: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("report: %s is a file: expected a run directory", dir)
	}
	x := &again{dir: dir}
	var err error
	if x.manifest, x.changes, err = rundir.Inspect(dir); err != nil {
		return nil, fmt.Errorf("report on %s: %w", dir, err)
	}
	m := x.manifest
	if err := x.readHalf(ctx, progressed); err != nil {
		return nil, err
	}
	repeats, err := x.repeats()
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if len(repeats) == 0 {
		return nil, fmt.Errorf("report: no trial has ended in %s: neither captures nor %s are below it",
			dir, rundir.TrialFile)
	}
	p := &progress{report: progressed, now: Progress{Arm: 1, Arms: 1, Repeat: 1, Repeats: 1, Name: filepath.Base(dir), Phase: PhaseReport}}
	var captures []string
	for _, name := range repeats {
		captures = append(captures, filepath.Join(dir, name, capturesDir))
	}
	read := p.reading(captures...)
	var all []oneAgain
	for i, name := range repeats {
		files := x.files(name)
		s, known, unread := files.measured()
		files.recorded = &recorded{s, known}
		res, err := flows.Reduce(ctx, captures[i], flows.Options{Read: read, Skip: files.changed, Spacing: spacings(s.Bursts, s.Sampled)})
		if errors.Is(err, fs.ErrNotExist) {
			one, ended, err := x.figures(files, name)
			if err != nil {
				return nil, fmt.Errorf("report: %w", err)
			}
			if ended {
				one.rep.Samples = files.samples()
				all = append(all, one)
			}
			continue
		}
		if err := cmp.Or(err, unread); err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		if err := x.belongs(name, &res.Meta); err != nil {
			return nil, err
		}
		rep, err := repeatOf(files, res)
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		rep.Samples = files.samples()
		all = append(all, oneAgain{res.Meta, rep})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("report: no trial has ended in %s", dir)
	}
	slices.SortStableFunc(all, func(a, b oneAgain) int {
		return cmp.Or(cmp.Compare(a.meta.ArmIndex, b.meta.ArmIndex), cmp.Compare(a.meta.Repeat, b.meta.Repeat))
	})
	x.in.RunID, x.in.Scenario = all[0].meta.RunID, all[0].meta.Scenario
	if m != nil {
		x.in.RunID, x.in.Scenario, x.in.Noise, x.in.Partial, x.in.Looks = m.Run, m.Scenario, m.Noise, m.Partial, m.Looks
		x.in.FluidModel, x.in.VirtualTime = m.Backend == rundir.Fluid, m.Backend == rundir.Virtual
		if m.State == rundir.Running {
			x.in.Partial = x.cut(repeats)
		}
		if x.in.Manifest, err = settingsOf(m); err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
	}
	unmodelled := map[string][]string{}
	if m != nil {
		if unmodelled, err = x.recorded(); err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
	}
	for _, one := range all {
		if one.meta.RunID != x.in.RunID {
			return nil, fmt.Errorf("report: captures of two runs under %s: %s and %s: report on each run separately", dir, x.in.RunID, one.meta.RunID)
		}
		if n := len(x.in.Arms); n == 0 || x.in.Arms[n-1].Name != one.meta.Arm {
			x.in.Arms = append(x.in.Arms, report.Arm{Name: one.meta.Arm, Unmodelled: unmodelled[one.meta.Arm]})
		}
		arm := &x.in.Arms[len(x.in.Arms)-1]
		arm.Repeats, arm.Numbers = append(arm.Repeats, one.rep), append(arm.Numbers, int(one.meta.Repeat))
	}
	for i := range x.in.Arms {
		x.in.Arms[i].Numbers = metrics.NumbersOf(x.in.Arms[i].Numbers)
	}
	return x, nil
}

// recorded adds the scenario of the run to the report, or why it cannot be shown, and returns arm.unmodelled of its arms.
// Captures can be reported on without it.
func (x *again) recorded() (map[string][]string, error) {
	backend := x.manifest.Backend
	var r *run
	s, err := loadRecorded(x.dir)
	if err == nil {
		r, err = newRun(s, Options{}, backend)
	}
	if err != nil && backend == rundir.Fluid {
		return nil, err
	}
	for _, c := range x.changes {
		if c.File == "scenario.yaml" && err == nil {
			err = errors.New(c.String())
		}
	}
	if err == nil {
		err = r.shown(&x.in)
	}
	if err != nil {
		x.in.Written = fmt.Sprintf("# It cannot be shown: %v\n", err)
	}
	out := map[string][]string{}
	if r != nil {
		for _, a := range r.arms {
			out[a.Name] = a.unmodelled()
		}
	}
	return out, nil
}

type oneAgain struct {
	meta pcap.Meta
	rep  summary.Repeat
}

// readHalf reads the scaled half, if there is one. In other runs an arm may have the same directory name;
// its captures are one level higher than those of a scaled half.
func (x *again) readHalf(ctx context.Context, progressed func(Progress)) error {
	half := filepath.Join(x.dir, scaledDir)
	found, err := filepath.Glob(filepath.Join(globbed(half), "*", "*", capturesDir))
	if err != nil || len(found) == 0 && x.sums()[scaledDir+"/"+rundir.ManifestFile] == "" {
		return err
	}
	if x.half, err = readAgain(ctx, half, progressed); err != nil {
		return err
	}
	rep, err := report.New(x.half.in)
	if err != nil {
		return err
	}
	x.in.Scaled = &report.Scaled{By: "an unknown factor", Report: rep}
	if m := x.half.manifest; m != nil && m.ScaledBy != "" {
		x.in.Scaled.By = m.ScaledBy
	}
	return nil
}

// sums returns the sums of the manifest; nil without one.
func (x *again) sums() rundir.Sums {
	if x.manifest == nil {
		return nil
	}
	return x.manifest.Files
}

// figures returns the figures of a trial without captures: those that it computed when it ran, if it is a simulation or
// did not keep its captures, and none if its files were lost. ended is false if it had not ended.
func (x *again) figures(files repeatFiles, name string) (one oneAgain, ended bool, err error) {
	m := x.manifest
	if m == nil || !m.Sealed(name) {
		return one, false, nil
	}
	one = x.lost(files, name)
	if m.Sealed(name+"/"+capturesDir) || m.Files[name+"/"+rundir.TrialFile] == "" || files.changed(filepath.Join(files.dir, figuresFile)) {
		return one, true, nil
	}
	problems := one.rep.Records.Problems // that files changed
	if one.rep, err = readFigures(filepath.Join(files.dir, figuresFile)); err == nil && len(problems) > 0 && m.Backend != rundir.Fluid {
		one.rep.Records.Problems = append(problems, one.rep.Records.Problems...)
		one.rep.Verdict = fidelity.Doubt(one.rep.Verdict, one.rep.Records.Problems, one.rep.Completed, metrics.CompletedItems(one.rep.Records))
	}
	return one, true, err
}

// repeats returns the directories of the trials to report on, relative to the run directory: all with
// captures, and those that had them, or had ended, when the run ended. Trials that were added later are left out.
func (x *again) repeats() ([]string, error) {
	found := map[string]bool{}
	for name := range x.sums() {
		switch in := path.Dir(name); {
		case path.Base(in) == capturesDir && strings.Count(name, "/") == 3:
			found[path.Dir(in)] = true
		case path.Base(name) == rundir.TrialFile && strings.Count(name, "/") == 2:
			found[in] = true
		}
	}
	err := filepath.WalkDir(x.dir+string(filepath.Separator), func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if x.half != nil && filepath.Clean(name) == filepath.Join(x.dir, scaledDir) {
			return fs.SkipDir
		}
		if e.Name() != capturesDir {
			return nil
		}
		rel, err := filepath.Rel(x.dir, filepath.Dir(name))
		rel = filepath.ToSlash(rel)
		m := x.manifest
		if err == nil && (m == nil || m.Sum == "" || m.State == rundir.Running || m.Sealed(rel)) {
			found[rel] = true
		}
		return cmp.Or(err, fs.SkipDir)
	})
	return slices.Sorted(maps.Keys(found)), err
}

// files returns the files of a repeat.
func (x *again) files(repeat string) repeatFiles {
	out := repeatFiles{dir: filepath.Join(x.dir, filepath.FromSlash(repeat))}
	for _, c := range x.changes {
		if name, ok := strings.CutPrefix(c.File, repeat+"/"); ok {
			out.changes = append(out.changes, rundir.Change{File: name, What: c.What})
		}
	}
	return out
}

// changed reports whether a file of the repeat changed after the run.
func (r repeatFiles) changed(name string) bool {
	return slices.ContainsFunc(r.changes, func(c rundir.Change) bool { return filepath.Join(r.dir, filepath.FromSlash(c.File)) == name })
}

// lost returns a repeat of which no capture can be used. It has no figure.
func (x *again) lost(files repeatFiles, name string) oneAgain {
	one := oneAgain{meta: pcap.Meta{RunID: x.manifest.Run, Scenario: x.manifest.Scenario, Arm: path.Dir(name)}}
	for i, arm := range x.manifest.Arms {
		if repeatDir("", arm, 0) == filepath.Join(path.Dir(name), "0") {
			one.meta.Arm, one.meta.ArmIndex = arm, i
		}
	}
	one.meta.Repeat, _ = strconv.Atoi(path.Base(name)) // only the order depends on it
	for _, c := range files.changes {
		one.rep.Records.Problems = append(one.rep.Records.Problems, c.String()+": it is not used")
	}
	one.rep.Verdict = fidelity.Doubt(verdict.Of(), one.rep.Records.Problems, map[string]int{"captures": 1}, nil)
	return one
}

// belongs returns an error unless captures are of the run and repeat of their directory. Those of a trial that was
// merged are of the run that executed it.
func (x *again) belongs(repeat string, of *pcap.Meta) error {
	m := x.manifest
	if m == nil {
		return nil
	}
	var t rundir.Trial
	if ended, err := x.files(repeat).read(rundir.TrialFile, &t); err != nil {
		return err
	} else if ended && t.Run == of.RunID {
		of.RunID = m.Run
	}
	at := filepath.Join(x.dir, repeat, capturesDir)
	switch {
	case of.RunID != m.Run:
		return fmt.Errorf("report: the captures in %s are of run %s, but %s is of run %s: restore the captures of the run", at, of.RunID, rundir.ManifestFile, m.Run)
	case repeatDir("", of.Arm, of.Repeat) != filepath.FromSlash(repeat):
		return fmt.Errorf("report: the captures in %s are of arm %s, repeat %d: restore those of the directory", at, of.Arm, of.Repeat)
	}
	return nil
}

// cut returns which repeats ended in a run whose manifest states that it is running.
func (x *again) cut(repeats []string) *summary.Partial {
	p := &summary.Partial{Why: "it was killed, or is still running", Ended: []string{}, Cut: []string{}, NotBegun: []string{}}
	for repeat := range x.manifest.Repeats {
		for _, arm := range x.manifest.Arms {
			name, dir := fmt.Sprintf("%s/%d", arm, repeat), filepath.ToSlash(repeatDir("", arm, repeat))
			switch {
			case x.manifest.Sealed(dir):
				p.Ended = append(p.Ended, name)
			case slices.Contains(repeats, dir):
				p.Cut = append(p.Cut, name)
			default:
				p.NotBegun = append(p.NotBegun, name)
			}
		}
	}
	return p
}
