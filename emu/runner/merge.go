package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/results/rundir"
	"testbed/results/verdict"
	"testbed/workloads"
)

// Merged is the result of Merge.
type Merged struct {
	*Outcome
	// Missing and Void are trials of the scenario, as arm/repeat, that no part has, and that say nothing.
	Missing, Void []string
}

// Merge makes one run of parts of it that ran apart, such as on several machines. The parts stay as they are. Parts of
// different scenarios or versions are refused, and so are trials that two parts executed.
func Merge(dirs []string, o Options) (*Merged, error) {
	parts, err := openParts(dirs)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	first := parts[0].manifest
	s, err := loadRecorded(dirs[0])
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	if first.CheckScale != "" {
		if o.CheckScale, err = workloads.ParseFactor(first.CheckScale); err != nil {
			return nil, fmt.Errorf("merge: %w", err)
		}
	}
	r, err := newRun(s, o, first.Backend)
	if err == nil {
		err = r.scale()
	}
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	id, err := newRunID(first.Scenario+map[string]string{rundir.Fluid: "-sim"}[first.Backend], time.Now())
	if err != nil {
		return nil, err
	}
	return r.merge(filepath.Join(o.Out, id), id, parts)
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
			errs = append(errs, fmt.Errorf("%s has not ended: wait for it, or go on with it (testbed %s --resume %s)", dir, verbOf(m.Backend), dir))
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
	return map[string]string{rundir.Packets: "run", rundir.Fluid: "sim"}[backend]
}

// merge copies the trials of parts into a new run, and reports on them.
func (r *run) merge(path, id string, parts []runPart) (out *Merged, err error) {
	r.manifest = *parts[0].manifest
	m := &r.manifest
	m.Run, m.Files, m.Partial, m.Error, m.State = id, nil, nil, "", rundir.Running
	if r.half != nil {
		m.CheckScale = r.o.CheckScale.String()
	}
	for _, p := range parts {
		if p.manifest.Started.Before(m.Started) {
			m.Started = p.manifest.Started
		}
	}
	if err := r.create(path); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.finish(err, false), r.release()) }()
	out = &Merged{}
	if r.half != nil {
		var halves []runPart
		for _, p := range parts {
			more, err := openParts([]string{filepath.Join(p.dir, scaledDir)})
			if err != nil {
				return nil, err
			}
			halves = append(halves, more...)
		}
		half, err := r.half.merge(filepath.Join(path, scaledDir), id+scaledSuffix, halves)
		if err != nil {
			return nil, err
		}
		out.Missing, out.Void = half.Missing, half.Void
	}
	var cut error
	for _, a := range r.arms {
		for repeat := range a.done {
			t := a.trial(repeat, work{})
			had, err := t.take(parts)
			switch {
			case err != nil:
				return nil, err
			case !had:
				out.Missing = append(out.Missing, a.label()+strings.TrimPrefix(t.name(), a.Name))
				cut = errors.New("no part of the merged run has them")
			case r.backend == rundir.Packets && a.done[repeat].Verdict.Level == verdict.Void:
				out.Void = append(out.Void, a.label()+strings.TrimPrefix(t.name(), a.Name))
			}
		}
	}
	out.Outcome, err = r.report(cut)
	return out, err
}

// take copies the files of a trial from the part that executed it. had is false if none did.
func (t *trial) take(parts []runPart) (had bool, err error) {
	dir := filepath.ToSlash(repeatDir("", t.Name, t.repeat))
	var from []runPart
	for _, p := range parts {
		if p.manifest.Files[dir+"/"+rundir.TrialFile] != "" {
			from = append(from, p)
		}
	}
	if len(from) == 0 {
		return false, nil
	}
	for _, p := range from[1:] {
		if p.manifest.Files[dir+"/"+figuresFile] != from[0].manifest.Files[dir+"/"+figuresFile] {
			return false, fmt.Errorf("both %s and %s executed trial %s: leave one out", from[0].dir, p.dir, t.name())
		}
	}
	key, err := t.key()
	if err != nil {
		return false, err
	}
	var of rundir.Trial
	if _, err := readJSON(filepath.Join(from[0].dir, dir, rundir.TrialFile), &of); err != nil {
		return false, err
	}
	if of.Key != key {
		return false, fmt.Errorf("%s: trial %s has the key %.12s, and that of its scenario is %.12s: leave it out", from[0].dir, t.name(), of.Key, key)
	}
	copied := []string{dir}
	for name := range from[0].manifest.Files {
		if at, ok := strings.CutPrefix(name, triesDir+"/"+dir+"."); ok {
			n, _, _ := strings.Cut(at, "/")
			copied = append(copied, triesDir+"/"+dir+"."+n)
		}
	}
	slices.Sort(copied)
	for _, name := range slices.Compact(copied) {
		if err := os.CopyFS(filepath.Join(t.of.path, name), os.DirFS(filepath.Join(from[0].dir, name))); err != nil {
			return false, fmt.Errorf("copy trial %s: %w", t.name(), err)
		}
	}
	rep, err := readFigures(t.file(figuresFile))
	if err != nil {
		return false, err
	}
	return true, t.of.ended(t, rep)
}
