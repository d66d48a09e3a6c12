package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/emu/scenario"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
)

// Manifest describes a run directory and its run. It is written
// when the run starts and again when it ends.
type Manifest = rundir.Manifest

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9.+_-]+`)

// newRunID returns the name of a run, from its scenario and the time.
func newRunID(scenario, backend string) (string, error) {
	var b [2]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("name of the run: %w", err)
	}
	if backend == rundir.Fluid {
		scenario += "-sim"
	}
	name := strings.Trim(unsafeName.ReplaceAllString(scenario, "-"), "-.")
	if len(name) > 40 {
		name = name[:40]
	}
	return cmp.Or(name, "run") + "-" + time.Now().Format("20060102-150405") + "-" + hex.EncodeToString(b[:]), nil
}

// describe sets the manifest.
func (r *run) describe(ctx context.Context) error {
	now := time.Now()
	fingerprint, err := r.s.Fingerprint()
	if err != nil {
		return err
	}
	if _, err := r.timed(ctx, 0); err != nil {
		return err
	}
	m := Manifest{Tool: r.o.Version, Go: runtime.Version(), Kernel: kernelRelease(), CPUs: runtime.NumCPU(), Backend: r.backend, Scenario: r.s.Spec.Name,
		Workload: fingerprint, Seed: r.s.Spec.Seed, Repeats: r.repeats(), Looks: r.looks, Started: now, State: rundir.Running, ScaledBy: r.manifest.ScaledBy, Notes: r.notes}
	if r.half != nil {
		m.CheckScale = r.half.manifest.ScaledBy
	}
	for _, a := range r.arms {
		m.Arms = append(m.Arms, a.Name)
		for _, key := range r.s.SetKeys() {
			if m.Set == nil {
				m.Set = map[string][]rundir.Value{}
			}
			m.Set[a.Name] = append(m.Set[a.Name], rundir.Value{Name: key, Value: r.s.ArmValue(a.place, key)})
		}
	}
	for _, v := range r.point.Values {
		m.Vars = append(m.Vars, rundir.Value{Name: v.Name, Value: v.Value})
	}
	if r.backend != rundir.Fluid {
		m.Captures = string(cmp.Or(r.o.Captures, CompressCaptures))
		for i, a := range r.arms {
			settings, err := json.Marshal(a.settings())
			switch {
			case err != nil:
				return fmt.Errorf("settings: %w", err)
			case i == 0:
				m.Settings = settings
			case !bytes.Equal(settings, m.Settings):
				if m.ArmSettings == nil {
					m.ArmSettings = map[string]json.RawMessage{}
				}
				m.ArmSettings[a.Name] = settings
			}
		}
		if c := r.o.Calibration; c != nil && c.Noise != nil {
			m.Noise = &c.Noise.Noise
		}
	}
	if r.backend == rundir.Virtual {
		m.CPUs = 1
	}
	r.manifest = m
	return nil
}

// begin makes the run directory, or goes on with that which look has found.
func (r *run) begin(ctx context.Context, path string) error {
	if r.found != nil {
		return r.goOn(ctx, path)
	}
	return r.create(path)
}

// create makes the run directory with the files that are known before the run: its input and its plan.
func (r *run) create(path string) error {
	if err := safefile.MkdirAll(filepath.Dir(path)); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	if err := safefile.Mkdir(path); err != nil {
		return fmt.Errorf("run directory: %w (choose another directory with --output)", err)
	}
	if err := r.hold(path); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	r.path = path
	if err := r.save(); err != nil {
		return err
	}
	if err := writeInput(r.path, r.s); err != nil {
		return err
	}
	first := r.arms[0].plan(0).Text()
	plans := map[string]string{r.path: first}
	for _, a := range r.arms[1:] {
		if len(a.Set) == 0 {
			continue
		}
		if text := a.plan(0).Text(); text != first {
			plans[filepath.Dir(repeatDir(r.path, a.Name, 0))] = text
		}
	}
	for dir, text := range plans {
		if err := errors.Join(safefile.MkdirAll(dir), safefile.WriteData(filepath.Join(dir, "plan.txt"), []byte(text))); err != nil {
			return err
		}
	}
	return nil
}

// writeInput writes the scenario and its traces.
func writeInput(dir string, s *scenario.Scenario) error {
	for _, f := range s.Files() {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := safefile.MkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		if err := safefile.WriteData(path, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// linkLatest makes the link to the newest run, or replaces it in one step. Anything else of its
// name is left as it is.
func linkLatest(out, name string) error {
	path := filepath.Join(out, rundir.Latest)
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("%s is not a symbolic link: it does not lead to this run", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return safefile.Symlink(name, path)
}

func (r *run) save() error { return r.manifest.Save(r.path) }

// keep keeps a trial that has ended: its figures in memory, and the sums of its files in the manifest.
func (r *run) keep(t *trial, rep summary.Repeat) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.manifest.Seal(r.path, t.in()); err != nil {
		return fmt.Errorf("sums of the run's files: %w", err)
	}
	t.done[t.repeat] = &rep
	if !slices.ContainsFunc(r.arms, func(a *arm) bool { return a.done[t.repeat] == nil }) {
		r.works[t.repeat] = nil
	}
	return r.save()
}

// finish records the end of the run.
func (r *run) finish(err error, interrupted bool) error {
	m := &r.manifest
	m.Ended = m.Started.Add(time.Since(m.Started)) // by the monotonic clock
	if m.State = stateOf(err, interrupted); err != nil {
		m.Error = err.Error()
	}
	m.Unseal(scaledDir) // which an earlier part of the run may have sealed
	if err := m.Seal(r.path, ""); err != nil {
		return fmt.Errorf("sums of the run's files: %w", err)
	}
	return r.save()
}

// stateOf returns the state of a run that ended with an error or nil.
func stateOf(err error, interrupted bool) string {
	switch {
	case err == nil:
		return rundir.Complete
	case interrupted:
		return rundir.Interrupted
	}
	return rundir.Failed
}

// Files of a trial. fidelityFile holds the verdict, and triesDir the earlier attempts whose verdict was
// not pass.
const (
	fidelityFile = "fidelity.json"
	measuredFile = "measured.json" // input of the verdict, with samples.File
	fluidFile    = "fluid.json"    // prediction of the fluid model
	triesDir     = "tries"
)

// repeatDir returns the directory of one repeat of an arm: <arm>/<repeat>, with repeats counted
// from 0.
func repeatDir(run, arm string, repeat int) string {
	return filepath.Join(run, unsafeName.ReplaceAllString(arm, "-"), strconv.Itoa(repeat))
}

// writeJSON creates or replaces a file atomically.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return safefile.WriteData(path, append(b, '\n'))
}

// readJSON reads a JSON file. found is false, without an error, if the file is missing.
func readJSON(path string, v any) (found bool, err error) {
	b, err := safefile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// kernelRelease returns the release of the running kernel, or "unknown".
func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// globbed returns a pattern that matches only the path.
func globbed(path string) string {
	var out []rune
	for _, r := range path {
		if slices.Contains([]rune(`*?[\`), r) {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}
