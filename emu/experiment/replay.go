package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"testbed/emu/engine"
	"testbed/emu/live"
	"testbed/emu/scenario"
	"testbed/results/archive"
	"testbed/topo/units"
)

// eventsFile is the log of a repeat.
const eventsFile = "events.jsonl"

// AllRepeats is ReplayOptions.Repeat for every repeat.
const AllRepeats = -1

// ReplayOptions are which logs of a run directory to replay.
type ReplayOptions struct {
	Arm    string // "" is all
	Repeat int    // from 0, or AllRepeats
	// Version is that of this tool. Another version may decide otherwise, which is
	// then noted.
	Version string
}

// Replays is what came of replaying the logs of a run.
type Replays struct {
	Run     string
	Backend string // "packets" or "fluid"
	// Notes say what stands in the way of taking the recorded scenario for what was
	// run, and which repeats have no log.
	Notes   []string
	Repeats []ReplayedRepeat
}

// ReplayedRepeat is one log.
type ReplayedRepeat struct {
	Arm    string
	Repeat int    // from 0
	Log    string // its path
	engine.Replayed
}

// Replay steps a new engine, with the policies and the seed that the scenario in
// a run directory states, through the events that were logged, and compares what
// it decides with what was decided then. It needs no root and no captures. It
// stops at the first log that cannot be read, with what was found before.
func Replay(ctx context.Context, dir string, o ReplayOptions) (*Replays, error) {
	m, s, err := openRun(dir)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	f, err := s.Shape().Build()
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	out := &Replays{Run: m.Run, Backend: m.Backend}
	if got, err := s.Fingerprint(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	} else if got != m.Workload {
		out.Notes = append(out.Notes, fmt.Sprintf("scenario.yaml and its traces are not what was run, as manifest.json has it (%.12s, now %.12s): they were changed, or this version (%s; the run's was %s) reads them otherwise", m.Workload, got, o.Version, m.Tool))
	} else if o.Version != "" && o.Version != m.Tool {
		out.Notes = append(out.Notes, fmt.Sprintf("the run was made by version %s, this is %s: what differs may be what changed between them", m.Tool, o.Version))
	}
	r := &run{s: s, fabric: f, arms: s.ArmList()}
	arms, err := r.chosen(o)
	if err != nil {
		return nil, fmt.Errorf("replay of %s: %w", dir, err)
	}
	var capacity []units.Rate
	if m.Backend == archive.Packets {
		capacity = live.Capacity(f)
	}
	for _, arm := range arms {
		for repeat := range s.Spec.Repeat {
			if o.Repeat != AllRepeats && o.Repeat != repeat {
				continue
			}
			name := fmt.Sprintf("%s/%d", r.arms[arm].Name, repeat)
			path := filepath.Join(repeatDir(dir, r.arms[arm].Name, repeat), eventsFile)
			if m.Partial != nil && slices.Contains(m.Partial.NotBegun, name) {
				out.Notes = append(out.Notes, name+" was not begun: it has no log")
				continue
			}
			got, err := r.replay(ctx, path, arm, repeat, capacity)
			if errors.Is(err, fs.ErrNotExist) {
				return out, fmt.Errorf("replay: no log of %s: %w", name, err)
			}
			if err == nil && got.Steps == 0 && got.Differs == nil {
				err = &engine.LogError{Line: 1, Err: errors.New("the log is empty: the run ended before its first step")}
			}
			out.Repeats = append(out.Repeats, ReplayedRepeat{Arm: r.arms[arm].Name, Repeat: repeat, Log: path, Replayed: got})
			if err != nil {
				return out, fmt.Errorf("replay of %s: %s: %w (the %d steps before decide what was logged)", name, path, err, got.Steps)
			}
		}
	}
	if len(out.Repeats) == 0 {
		return out, fmt.Errorf("replay of %s: nothing to replay: %s", dir, strings.Join(out.Notes, "; "))
	}
	return out, nil
}

// chosen are the arms to replay, by index.
func (r *run) chosen(o ReplayOptions) ([]int, error) {
	var arms []int
	var names []string
	for i, a := range r.arms {
		names = append(names, a.Name)
		if o.Arm == "" || o.Arm == a.Name {
			arms = append(arms, i)
		}
	}
	if len(arms) == 0 {
		return nil, fmt.Errorf("no arm %q: have %s", o.Arm, strings.Join(names, ", "))
	}
	if o.Repeat != AllRepeats && (o.Repeat < 0 || o.Repeat >= r.s.Spec.Repeat) {
		return nil, fmt.Errorf("no repeat %d: have 0 to %d", o.Repeat, r.s.Spec.Repeat-1)
	}
	return arms, nil
}

func (r *run) replay(ctx context.Context, path string, arm, repeat int, capacity []units.Rate) (out engine.Replayed, err error) {
	file, err := os.Open(path)
	if err != nil {
		return out, err
	}
	defer file.Close() // only read from: closing has nothing to lose
	e, err := r.engine(arm, repeat, capacity)
	if err != nil {
		return out, err
	}
	return engine.Replay(ctx, file, e)
}

// openRun reads what a run directory says was run.
func openRun(dir string) (Manifest, *scenario.Scenario, error) {
	var m Manifest
	if found, err := readJSON(filepath.Join(dir, archive.ManifestFile), &m); err != nil {
		return m, nil, err
	} else if !found {
		return m, nil, fmt.Errorf("%s: no manifest.json: want a run directory", dir)
	}
	if m.Backend != archive.Packets && m.Backend != archive.Fluid {
		return m, nil, fmt.Errorf("%s: backend %q: want packets or fluid", filepath.Join(dir, archive.ManifestFile), m.Backend)
	}
	s, err := scenario.Load(filepath.Join(dir, "scenario.yaml"), scenario.Options{CheckPolicy: CheckPolicy})
	return m, s, err
}
