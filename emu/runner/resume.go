package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/workloads"
)

// Resume goes on with the run in a directory: it executes the trials that have not ended, and those that the run
// did not choose. What is left of a trial that was killed is removed. The scenario, captures and the check of the
// scale are those of the run.
func Resume(ctx context.Context, dir, backend string, o Options) (*Outcome, error) {
	fail := func(err error) (*Outcome, error) { return nil, fmt.Errorf("go on with %s: %w", dir, err) }
	s, err := loadRecorded(dir)
	if err != nil {
		return fail(err)
	}
	o.resume = dir
	sweep, err := rundir.ReadSweep(dir)
	if err != nil {
		return fail(err)
	}
	made := ""
	if sweep != nil {
		made, o.Captures = sweep.Backend, Captures(sweep.Captures)
	} else {
		m, err := rundir.ReadManifest(dir)
		if err != nil {
			return fail(err)
		}
		if m.ScaledBy != "" {
			return fail(errors.New("it is the scaled half of a run: name the directory of the run"))
		}
		made, o.Captures = m.Backend, Captures(m.Captures)
		if m.CheckScale != "" {
			if o.CheckScale, err = workloads.ParseFactor(m.CheckScale); err != nil {
				return fail(err)
			}
		}
	}
	if verbOf(made) != verbOf(backend) {
		return fail(fmt.Errorf("backend %s: use testbed %s --resume", made, verbOf(made)))
	}
	return execute(ctx, s, o, made)
}

// differs names what makes trials of two runs no part of one run, "" if nothing does.
func differs(a, b *Manifest) string {
	for _, x := range []struct{ what, a, b string }{
		{"backend", a.Backend, b.Backend}, {"scenario", a.Scenario, b.Scenario}, {"workload_fingerprint", a.Workload, b.Workload},
		{"tool (version of testbed)", a.Tool, b.Tool}, {"captures", a.Captures, b.Captures},
		{"check_scale", a.CheckScale, b.CheckScale}, {"scaled_by", a.ScaledBy, b.ScaledBy},
	} {
		if x.a != x.b {
			return fmt.Sprintf("%s: %s, and %s", x.what, x.a, x.b)
		}
	}
	if a.Machine != nil && b.Machine != nil {
		if all := machinesDiffer(a, b.Tool, b.Machine); len(all) > 0 {
			return "machine: " + all[0]
		}
	}
	for _, arm := range a.Arms {
		if what := settingsDiffer(a.SettingsOf(arm), b.SettingsOf(arm)); what != "" {
			return what + " in arm " + arm
		}
	}
	return ""
}

// settingsDiffer names a setting of the first that is another in the second, "" if none is.
func settingsDiffer(a, b json.RawMessage) string {
	var settings [2]map[string]any
	for i, text := range []json.RawMessage{a, b} {
		if err := json.Unmarshal([]byte(cmp.Or(string(text), "null")), &settings[i]); err != nil {
			return "settings: " + err.Error()
		}
	}
	for _, key := range slices.Sorted(maps.Keys(settings[0])) {
		if value, other := settings[0][key], settings[1][key]; !reflect.DeepEqual(value, other) {
			return fmt.Sprintf("settings.%s: %v, and %v", key, value, other)
		}
	}
	return ""
}

// look reads the run in a directory, with the figures of the trials that have ended, and changes nothing.
func (r *run) look(path string) error {
	fail := func(err error) error { return fmt.Errorf("go on with %s: %w", path, err) }
	if err := r.hold(path); err != nil {
		return fail(err)
	}
	m, changes, err := rundir.Inspect(path)
	if err == nil && m == nil {
		err = fmt.Errorf("no %s", rundir.ManifestFile)
	}
	if err != nil {
		return fail(err)
	}
	now := r.manifest
	if m.Backend == rundir.Fluid || len(m.Settings) == 0 {
		now.Settings, now.ArmSettings = m.Settings, m.ArmSettings
	}
	if what := differs(m, &now); what != "" {
		return fail(fmt.Errorf("trials of both would not belong together: %s: begin a new run", what))
	}
	if m.Calibration != now.Calibration {
		return fail(fmt.Errorf("the links were calibrated again (%s; now %s): begin a new run",
			m.Calibration, now.Calibration))
	}
	r.resume(m)
	for _, t := range r.trials() {
		dir := repeatDir(path, t.Name, t.repeat)
		rep, err := t.ended(dir, m)
		if err != nil {
			return fail(err)
		}
		if rep == nil {
			continue
		}
		for _, c := range changes {
			if strings.HasPrefix(c.File, t.in()+"/") {
				return fail(fmt.Errorf("%s: restore it, or remove the directory %s to execute the trial again", c, dir))
			}
		}
		t.done[t.repeat] = rep
	}
	r.found = m
	return nil
}

// goOn removes what is left of trials that have not ended in the run that look has found.
func (r *run) goOn(ctx context.Context, path string) error {
	r.path, r.manifest = path, *r.found
	m := &r.manifest
	m.State, m.Error, m.Partial, m.Ended = rundir.Running, "", nil, time.Time{}
	m.Repeats, m.Looks = r.repeats(), r.looks
	var errs []error
	if r.backend != rundir.Fluid {
		errs = append(errs, r.removeRemains(ctx))
	}
	for _, t := range r.trials() {
		if t.done[t.repeat] == nil {
			errs = append(errs, t.clear())
		}
	}
	if err := errors.Join(append(errs, r.save())...); err != nil {
		return fmt.Errorf("go on with %s: %w", path, err)
	}
	return nil
}

// in is the directory of the trial in that of its run, with slashes, as a manifest names it.
func (t *trial) in() string { return filepath.ToSlash(repeatDir("", t.Name, t.repeat)) }

// ended returns the figures of the trial in a directory of a run with a manifest, nil if it has not ended there.
func (t *trial) ended(dir string, m *Manifest) (*summary.Repeat, error) {
	var of rundir.Trial
	found, err := readJSON(filepath.Join(dir, rundir.TrialFile), &of)
	if err != nil || !found || m.Files[t.in()+"/"+rundir.TrialFile] == "" {
		return nil, err
	}
	key, err := t.key()
	if err != nil {
		return nil, err
	}
	if of.Key != key {
		return nil, fmt.Errorf("%s has the key %.12s, and that of its scenario is %.12s: it is of another run",
			dir, of.Key, key)
	}
	rep, err := readFigures(filepath.Join(dir, figuresFile))
	return &rep, err
}

// clear removes what is left of a trial that has not ended.
func (t *trial) clear() error {
	dirs := []string{t.in()}
	for n := range t.s.Spec.Tries {
		dirs = append(dirs, fmt.Sprintf("%s/%s.%d", triesDir, t.in(), n+1))
	}
	var errs []error
	for _, dir := range dirs {
		t.of.manifest.Unseal(dir)
		errs = append(errs, os.RemoveAll(filepath.Join(t.of.path, filepath.FromSlash(dir))))
	}
	return errors.Join(errs...)
}

// removeRemains removes the testbeds of this run that a kill left.
func (r *run) removeRemains(ctx context.Context) error {
	all, err := deploy.List(ctx, r.o.StateRoot)
	for _, e := range all {
		if e.Stale() && strings.HasPrefix(e.State.ID, r.manifest.Run+".") {
			_, gone := deploy.Remove(ctx, r.o.StateRoot, e.State.ID, kernel.Reaper{})
			err = errors.Join(err, gone)
		}
	}
	return err
}

// hold makes this process the only one that writes a run directory.
func (r *run) hold(path string) (err error) {
	r.held, err = safefile.Hold(path)
	return err
}

// release lets others write the run directory.
func (r *run) release() error {
	if r.held == nil {
		return nil
	}
	return r.held.Close()
}
