package runner

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/workloads"
)

// Merged is the result of Merge.
type Merged struct {
	*Outcome
	// Missing and Void are trials of the scenario, as arm/repeat, that no part has, and that say nothing.
	Missing, Void []string
}

// Merge makes one run, or sweep, of parts of it that ran apart, such as on several machines. The parts stay as they
// are. Parts of different scenarios or versions are refused, and so are trials that two parts executed.
func Merge(dirs []string, o Options) (out *Merged, err error) {
	fail := func(err error) (*Merged, error) { return nil, fmt.Errorf("merge: %w", err) }
	sweeps, err := sweepsOf(dirs)
	if err != nil {
		return fail(err)
	}
	s, err := loadRecorded(dirs[0])
	if err != nil {
		return fail(err)
	}
	var first *Manifest
	backend := ""
	if sweeps[0] != nil {
		backend = sweeps[0].Backend
	} else if first, err = rundir.ReadManifest(dirs[0]); err != nil {
		return fail(err)
	} else if backend = first.Backend; first.CheckScale != "" {
		if o.CheckScale, err = workloads.ParseFactor(first.CheckScale); err != nil {
			return fail(err)
		}
	}
	x, err := newExperiment(s, o, backend)
	if err != nil {
		return fail(err)
	}
	parts := map[*run][]runPart{}
	for r := range x.all() {
		var of []string
		for _, dir := range dirs {
			if at := x.place(r, dir); sweeps[0] == nil || isDir(at) {
				of = append(of, at)
			}
		}
		var more error
		parts[r], more = openParts(of)
		err = errors.Join(err, more)
	}
	if err != nil {
		return fail(err)
	}
	name, err := newRunID(s.Spec.Name, backend)
	if err != nil {
		return fail(err)
	}
	path := filepath.Join(o.Out, name)
	defer func() { err = errors.Join(err, x.finish(err, false)) }()
	if sweeps[0] != nil {
		x.o.Version = sweeps[0].Tool
		if err := x.beginSweep(path, name); err != nil {
			return fail(err)
		}
	}
	out = &Merged{}
	for r := range x.all() {
		if err := r.merge(x.place(r, path), x.id(r, name), parts[r], out); err != nil {
			return fail(x.of(r, err))
		}
	}
	var cut error
	if len(out.Missing) > 0 {
		cut = errors.New("no merged part has them")
	}
	out.Outcome, err = x.report(cut)
	return out, err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// sweepsIn reads the sweeps of directories, each nil for that of a run.
func sweepsIn(dirs []string) (all []*rundir.Sweep, err error) {
	for _, dir := range dirs {
		s, err := rundir.ReadSweep(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// sweepsOf returns sweepsIn, and refuses directories that are no parts of one run or sweep.
func sweepsOf(dirs []string) ([]*rundir.Sweep, error) {
	all, err := sweepsIn(dirs)
	for i, s := range all {
		switch a := all[0]; {
		case (a == nil) != (s == nil):
			return nil, fmt.Errorf("%s and %s are no parts of one run: only one is a sweep", dirs[0], dirs[i])
		case s == nil:
		case a.Workload != s.Workload || a.Tool != s.Tool || a.Backend != s.Backend:
			return nil, fmt.Errorf("%s and %s are no parts of one sweep: workload_fingerprint %.12s and %.12s, tool %s and %s, backend %s and %s", dirs[0], dirs[i], a.Workload, s.Workload, a.Tool, s.Tool, a.Backend, s.Backend)
		}
	}
	return all, err
}

// runPart is a run directory to merge.
type runPart struct {
	dir      string
	manifest *Manifest
}

func openParts(dirs []string) (parts []runPart, err error) {
	var errs []error
	for _, dir := range dirs {
		m, changes, err := rundir.Inspect(dir)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			continue
		case m == nil:
			errs = append(errs, fmt.Errorf("%s: no %s: must be a run directory", dir, rundir.ManifestFile))
			continue
		case m.State == rundir.Running:
			errs = append(errs, fmt.Errorf("%s has not ended: wait for it, or go on with it (testbed %s --resume %s)",
				dir, verbOf(m.Backend), dir))
		}
		for _, c := range changes {
			if c.OfRepeat() {
				errs = append(errs, fmt.Errorf("%s: %s: restore it", dir, c))
			}
		}
		parts = append(parts, runPart{dir, m})
		if what := differs(parts[0].manifest, m); what != "" {
			errs = append(errs, fmt.Errorf("%s and %s are no parts of one run: %s", parts[0].dir, dir, what))
		}
	}
	return parts, errors.Join(errs...)
}

// verbOf is the verb that runs trials on a backend.
func verbOf(backend string) string {
	return map[bool]string{false: "run", true: "sim"}[backend == rundir.Fluid]
}

// merge copies the trials of parts into a new directory.
func (r *run) merge(path, id string, parts []runPart, out *Merged) error {
	if len(parts) == 0 {
		for _, t := range r.trials() {
			out.Missing = append(out.Missing, r.named(t))
		}
		return nil
	}
	r.manifest = *parts[0].manifest
	m := &r.manifest
	m.Run, m.Files, m.Partial, m.Error, m.State = id, nil, nil, "", rundir.Running
	m.Repeats, m.Looks = r.repeats(), r.looks
	for _, p := range parts {
		if p.manifest.Started.Before(m.Started) {
			m.Started = p.manifest.Started
		}
	}
	if err := r.create(path); err != nil {
		return err
	}
	for first, more := 0, true; more; { // looks are made again
		for _, t := range r.trials() {
			if t.repeat < first {
				continue
			}
			had, err := t.take(parts)
			switch {
			case err != nil:
				return err
			case !had:
				out.Missing = append(out.Missing, r.named(t))
			case r.backend != rundir.Fluid && t.done[t.repeat].Verdict.Level == verdict.Void:
				out.Void = append(out.Void, r.named(t))
			}
		}
		first = r.repeats()
		var err error
		if more, err = r.lookAgain(); err != nil {
			return err
		}
	}
	return nil
}

// named names a trial among those of all points and scales.
func (r *run) named(t *trial) string {
	name := t.name()
	if r.manifest.ScaledBy != "" {
		name += " (scaled)"
	}
	if p := r.point.Name(); p != "" {
		name = p + "/" + name
	}
	return name
}

// take copies the files of a trial from the part that executed it. had is false if none did.
func (t *trial) take(parts []runPart) (had bool, err error) {
	dir := t.in()
	var from *runPart
	var rep *summary.Repeat
	for i, p := range parts {
		of, err := t.ended(filepath.Join(p.dir, dir), p.manifest)
		switch {
		case err != nil:
			return false, err
		case of == nil:
		case from == nil:
			from, rep = &parts[i], of
		case p.manifest.Files[dir+"/"+figuresFile] != from.manifest.Files[dir+"/"+figuresFile]:
			return false, fmt.Errorf("both %s and %s executed trial %s: leave one out", from.dir, p.dir, t.name())
		}
	}
	if from == nil {
		return false, nil
	}
	copied := map[string]bool{dir: true}
	for name := range from.manifest.Files {
		if at, ok := strings.CutPrefix(name, triesDir+"/"+dir+"."); ok {
			n, _, _ := strings.Cut(at, "/")
			copied[triesDir+"/"+dir+"."+n] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(copied)) {
		if err := os.CopyFS(filepath.Join(t.of.path, name), os.DirFS(filepath.Join(from.dir, name))); err != nil {
			return false, fmt.Errorf("copy trial %s: %w", t.name(), err)
		}
	}
	return true, t.of.keep(t, *rep)
}
