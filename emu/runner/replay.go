package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"testbed/emu/engine"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/results/rundir"
	"testbed/results/safefile"
)

// eventsFile holds the event log of a repeat.
const eventsFile = rundir.EventsFile

// AllRepeats is the value of ReplayOptions.Repeat for all repeats.
const AllRepeats = -1

// ReplayOptions select the logs of a run directory to replay.
type ReplayOptions struct {
	Arm    string // "" for all
	Repeat int    // from 0, or AllRepeats
	// Version is the version of this tool. Policies of another version may decide differently; a
	// note then states the difference of versions.
	Version string
}

// Replays is the result of replaying the logs of a run.
type Replays struct {
	Run     string
	Backend string // "packets" or "fluid"
	// Notes state doubts that the recorded scenario is the one that was run, and which repeats
	// have no log.
	Notes   []string
	Repeats []ReplayedRepeat
}

// ReplayedRepeat is the result of replaying one log.
type ReplayedRepeat struct {
	Arm    string
	Repeat int    // from 0
	Log    string // path of the log
	engine.Replayed
}

// Replay steps a new engine, with the policies and the seed of the scenario in
// a run directory, through the logged events, and compares its decisions with the logged ones.
// It needs no root and no captures. It stops at the first log that cannot be read and returns
// the results so far. It also returns results of logs that changed after the run, with an error that names
// them.
func Replay(ctx context.Context, dir string, o ReplayOptions) (*Replays, error) {
	m, changes, s, err := openRun(dir)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	r, err := newRun(s, Options{}, m.Backend)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	r.resume(m)
	out := &Replays{Run: m.Run, Backend: m.Backend}
	if got, err := s.Fingerprint(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	} else if got != m.Workload {
		out.Notes = append(out.Notes, fmt.Sprintf("scenario.yaml or a trace differs from the run (fingerprint %.12s in manifest.json, now %.12s): the files were changed, or this version (%s; the run used %s) reads them differently", m.Workload, got, o.Version, m.Tool))
	} else if o.Version != "" && o.Version != m.Tool {
		out.Notes = append(out.Notes, fmt.Sprintf("the run was made by version %s, this is %s: differences can result from changes between the versions", m.Tool, o.Version))
	}
	var inputs []string // files in the run directory
	for _, f := range s.Files() {
		inputs = append(inputs, f.Name)
	}
	arms, err := r.chosen(o)
	if err != nil {
		return nil, fmt.Errorf("replay of %s: %w", dir, err)
	}
	for _, a := range arms {
		for repeat := range r.repeats() {
			if o.Repeat != AllRepeats && o.Repeat != repeat {
				continue
			}
			t := a.trial(repeat, work{})
			name, path := t.name(), filepath.Join(repeatDir(dir, a.Name, repeat), eventsFile)
			if m.Partial != nil && slices.Contains(m.Partial.NotBegun, name) {
				out.Notes = append(out.Notes, name+" was not started and has no log")
				continue
			}
			if m.Backend == rundir.Fluid && s.Spec.Fluid.JobsOnly {
				out.Notes = append(out.Notes, name+" has no log: fluid.jobs_only of its scenario leaves it out")
				continue
			}
			if file, err := filepath.Rel(dir, path); err == nil {
				inputs = append(inputs, filepath.ToSlash(file))
			}
			got, err := t.replay(ctx, path)
			if errors.Is(err, fs.ErrNotExist) {
				return out, fmt.Errorf("replay: no log of %s: %w", name, err)
			}
			if err == nil && got.Steps == 0 && got.Differs == nil {
				err = &engine.LogError{Line: 1, Err: errors.New("the log is empty: the run ended before its first step")}
			}
			out.Repeats = append(out.Repeats, ReplayedRepeat{Arm: a.Name, Repeat: repeat, Log: path, Replayed: got})
			if err != nil {
				return out, fmt.Errorf("replay of %s: %s: %w (the %d steps before match the log)", name, path, err, got.Steps)
			}
		}
	}
	if len(out.Repeats) == 0 {
		return out, fmt.Errorf("replay of %s: nothing to replay: %s", dir, strings.Join(out.Notes, "; "))
	}
	var errs []error
	for _, c := range changes {
		if slices.Contains(inputs, c.File) {
			errs = append(errs, fmt.Errorf("replay of %s: %s", dir, c))
		}
	}
	return out, errors.Join(errs...)
}

// chosen returns the arms to replay.
func (r *run) chosen(o ReplayOptions) (arms []*arm, err error) {
	var names []string
	for _, a := range r.arms {
		names = append(names, a.Name)
		if o.Arm == "" || o.Arm == a.Name {
			arms = append(arms, a)
		}
	}
	if len(arms) == 0 {
		return nil, fmt.Errorf("unknown arm %q (available: %s)", o.Arm, strings.Join(names, ", "))
	}
	if o.Repeat != AllRepeats && (o.Repeat < 0 || o.Repeat >= r.repeats()) {
		return nil, fmt.Errorf("no repeat %d: expected 0 to %d", o.Repeat, r.repeats()-1)
	}
	return arms, nil
}

func (t *trial) replay(ctx context.Context, path string) (out engine.Replayed, err error) {
	file, err := safefile.Open(path)
	if err != nil {
		return out, err
	}
	defer file.Close() // only read from: closing loses no data
	w, err := t.of.drawn(t.repeat)
	if err != nil {
		return out, err
	}
	observe := t.observe
	t = t.arm.trial(t.repeat, *w)
	t.observe = observe
	e, err := t.engine(t.itself, func(p *external.Policy) error {
		hello, err := safefile.Read(filepath.Join(filepath.Dir(path), policyFile(p)))
		if err != nil {
			return err
		}
		return p.Recorded(hello)
	})
	if err != nil {
		return out, err
	}
	return engine.Replay(ctx, file, e)
}

// openRun reads the manifest and the scenario of a run directory, and which of its files changed.
func openRun(dir string) (*Manifest, []rundir.Change, *scenario.Scenario, error) {
	m, changes, err := rundir.Inspect(dir)
	switch {
	case err != nil:
		return nil, nil, nil, fmt.Errorf("%s: %w", dir, err)
	case m == nil:
		return nil, nil, nil, fmt.Errorf("%s: no manifest.json: expected a run directory", dir)
	case !slices.Contains(rundir.Backends(), m.Backend):
		return nil, nil, nil, fmt.Errorf("%s: backend %q: expected packets or fluid", filepath.Join(dir, rundir.ManifestFile), m.Backend)
	}
	s, err := loadRecorded(dir)
	return m, changes, s, err
}

// loadRecorded reads the scenario of a run directory.
func loadRecorded(dir string) (*scenario.Scenario, error) {
	return scenario.Load(filepath.Join(dir, "scenario.yaml"), scenario.Options{Catalog: catalog.All()})
}
