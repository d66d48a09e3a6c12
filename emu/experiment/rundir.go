package experiment

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"testbed/results/archive"
	"testbed/results/files"
)

// Manifest says what a run directory holds and how it was made. It is written
// when the run starts and again when it ends.
type Manifest = archive.Manifest

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

func (d *rundir) save() error {
	return writeJSON(filepath.Join(d.path, archive.ManifestFile), d.manifest)
}

// finish records how the run ended and hands the directory to the user who
// called sudo.
func (d *rundir) finish(err error, interrupted bool) error {
	d.manifest.Ended = time.Now()
	switch {
	case err == nil:
		d.manifest.State = archive.Complete
	case interrupted:
		d.manifest.State, d.manifest.Error = archive.Interrupted, err.Error()
	default:
		d.manifest.State, d.manifest.Error = archive.Failed, err.Error()
	}
	return errors.Join(d.save(), chownToCaller(d.path))
}

// intoLink is a directory as a walk wants it that is to go into it also where it is a
// link.
func intoLink(dir string) string { return dir + string(filepath.Separator) }

func chownToCaller(dir string) error {
	uid, err1 := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err1 != nil || err2 != nil || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(intoLink(dir), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// fidelityFile holds the verdict of a repeat, and triesDir what is left of tries that
// were not a pass.
const (
	fidelityFile = "fidelity.json"
	triesDir     = "tries"
)

// repeatDir is where one arm and repeat keeps its files: <arm>/<repeat>, repeats
// from 0.
func repeatDir(run, arm string, repeat int) string {
	return filepath.Join(run, unsafeName.ReplaceAllString(arm, "-"), strconv.Itoa(repeat))
}

// writeJSON makes or replaces a file, all at once.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return files.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
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
