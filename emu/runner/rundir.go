package runner

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"testbed/results/rundir"
	"testbed/results/safefile"
)

// Manifest describes a run directory and its run. It is written
// when the run starts and again when it ends.
type Manifest = rundir.Manifest

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9.+_-]+`)

// newRunID returns the name of a run, from its scenario and the time.
func newRunID(scenario string, now time.Time) (string, error) {
	var b [2]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("name of the run: %w", err)
	}
	name := strings.Trim(unsafeName.ReplaceAllString(scenario, "-"), "-.")
	if len(name) > 40 {
		name = name[:40]
	}
	if name == "" {
		name = "run"
	}
	return name + "-" + now.Format("20060102-150405") + "-" + hex.EncodeToString(b[:]), nil
}

// runDir is the directory of one run.
type runDir struct {
	path     string
	manifest Manifest
	scaledBy string // factor of its scaled half; "" without one
}

func createRunDir(path string, m Manifest) (*runDir, error) {
	d := &runDir{path: path, manifest: m}
	if err := safefile.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := safefile.Mkdir(d.path); err != nil {
		return nil, fmt.Errorf("run directory: %w (choose another directory with --output)", err)
	}
	return d, d.save()
}

// linkLatest makes the link to the newest run, or replaces it in one step. Anything else of its
// name is left as it is.
func (r *run) linkLatest(run string) error {
	path := filepath.Join(r.o.Out, rundir.Latest)
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("%s is not a symbolic link: it does not lead to this run", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return safefile.Symlink(run, path)
}

func (d *runDir) save() error { return d.manifest.Save(d.path) }

// seal adds the sums of the files that are complete to the manifest. No file may be in the making.
func (d *runDir) seal() error {
	if err := d.manifest.Seal(d.path); err != nil {
		return fmt.Errorf("sums of the run's files: %w", err)
	}
	return d.save()
}

// finish records the end of the run.
func (d *runDir) finish(err error, interrupted bool) error {
	d.manifest.Ended = d.manifest.Started.Add(time.Since(d.manifest.Started)) // by the monotonic clock
	switch {
	case err == nil:
		d.manifest.State = rundir.Complete
	case interrupted:
		d.manifest.State, d.manifest.Error = rundir.Interrupted, err.Error()
	default:
		d.manifest.State, d.manifest.Error = rundir.Failed, err.Error()
	}
	return d.seal()
}

// fidelityFile holds the verdict of a repeat, and triesDir the earlier attempts whose verdict was
// not pass.
const (
	fidelityFile = "fidelity.json"
	samplesFile  = "samples.json" // input of the verdict
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
