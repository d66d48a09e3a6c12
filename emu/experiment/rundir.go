package experiment

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

	"testbed/results/report"
)

// Manifest says what a run directory holds and how it was made. It is written
// when the run starts and again when it ends.
type Manifest struct {
	Tool     string   `json:"tool"`    // version of testbed
	Go       string   `json:"go"`      // version of the Go toolchain it was built with
	Kernel   string   `json:"kernel"`  // release of the running kernel
	CPUs     int      `json:"cpus"`    // usable by this process
	Backend  string   `json:"backend"` // "packets" or "fluid"
	Run      string   `json:"run"`     // name of the run and of its directory
	Scenario string   `json:"scenario"`
	Workload string   `json:"workload_fingerprint"` // of the scenario with the traces it reads
	Seed     uint64   `json:"seed"`
	Arms     []string `json:"arms"`
	Repeats  int      `json:"repeats"`
	// ScaledBy is the factor by which rates and sizes were divided, in the scaled
	// half of a run.
	ScaledBy string    `json:"scaled_by,omitempty"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	State    string    `json:"state"`           // "running", "complete", "interrupted" or "failed"
	Error    string    `json:"error,omitempty"` // why, where it is failed or interrupted
	// Partial tells which repeats ended, where not all did.
	Partial  *report.Partial `json:"partial,omitempty"`
	Settings any             `json:"settings"` // limits in force that the scenario does not state
	// Calibration tells what the links' buckets go by. Forced is why the run would
	// have been refused without being forced.
	Calibration string   `json:"calibration,omitempty"`
	Forced      string   `json:"forced,omitempty"`
	Notes       []string `json:"notes,omitempty"` // what was left out or rounded in making the workload
}

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9.+_-]+`)

// newRunID names a run after its scenario and the moment.
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

// rundir is the directory of one run.
type rundir struct {
	path     string
	manifest Manifest
	scaledBy string // of its scaled half; "" where it has none
}

func createRundir(path string, m Manifest) (*rundir, error) {
	d := &rundir{path: path, manifest: m}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w (choose another place with --out)", err)
	}
	return d, d.save()
}

func (d *rundir) save() error { return writeJSON(filepath.Join(d.path, "manifest.json"), d.manifest) }

// finish records how the run ended and hands the directory to the user who
// called sudo.
func (d *rundir) finish(err error, interrupted bool) error {
	d.manifest.Ended = time.Now()
	switch {
	case err == nil:
		d.manifest.State = "complete"
	case interrupted:
		d.manifest.State, d.manifest.Error = "interrupted", err.Error()
	default:
		d.manifest.State, d.manifest.Error = "failed", err.Error()
	}
	return errors.Join(d.save(), chownToCaller(d.path))
}

func chownToCaller(dir string) error {
	uid, err1 := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err1 != nil || err2 != nil || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// repeatDir is where one arm and repeat keeps its files: <arm>/<repeat>, repeats
// from 0.
func repeatDir(run, arm string, repeat int) string {
	return filepath.Join(run, unsafeName.ReplaceAllString(arm, "-"), strconv.Itoa(repeat))
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// readJSON tells a missing file, which is no error, from a bad one.
func readJSON(path string, v any) (found bool, err error) {
	b, err := os.ReadFile(path)
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

// kernelRelease is that of the running kernel, or "unknown".
func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
