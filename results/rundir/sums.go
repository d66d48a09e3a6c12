package rundir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"testbed/results/safefile"
)

// CapturesDir is the directory of the captures of a repeat.
const CapturesDir = "captures"

// Sums are SHA-256 sums in hexadecimal, by the path of the file in the run directory.
type Sums map[string]string

// Change is a difference between a file of a run directory and what the run wrote.
type Change struct {
	File string `json:"file"` // its path in the run directory
	What string `json:"what"` // predicate, such as "is missing"
}

func (c Change) String() string { return c.File + " " + c.What }

// OfRepeat reports whether the file is part of a repeat: a capture or a record that figures and
// verdicts derive from. So is a manifest of a scaled half, which has the sums of its repeats.
func (c Change) OfRepeat() bool {
	return strings.Count(c.File, "/") >= 2 || path.Base(c.File) == ManifestFile
}

// Inspect reads the manifest of a run directory and compares every file with its sum in it. Every
// reader of a run directory calls it. The manifest is nil, and no file can be checked, if the
// directory has none.
func Inspect(dir string) (*Manifest, []Change, error) {
	m, err := readManifest(dir)
	if m == nil || err != nil {
		return nil, nil, err
	}
	changes, err := m.changes(dir)
	return m, changes, err
}

// readManifest returns nil if the directory has no manifest.
func readManifest(dir string) (*Manifest, error) {
	r := &Run{Dir: dir}
	var m Manifest
	found, err := r.json(ManifestFile, &m)
	if err != nil || !found {
		return nil, err
	}
	if m.Sum == "" {
		return &m, nil // changes reports it
	}
	data, err := safefile.Read(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	const key = `"sha256": "`
	if data = bytes.Replace(data, []byte(key+m.Sum), []byte(key), 1); sumOf(data) != m.Sum {
		return nil, fmt.Errorf("%s was changed after it was written: its content does not have the sum that it states "+
			"(restore it; without the file, testbed report computes the figures from captures, unverified)", ManifestFile)
	}
	return &m, nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Save writes the manifest of a run directory, with a sum of its own content.
func (m *Manifest) Save(dir string) error {
	encode := func() ([]byte, error) {
		b, err := json.MarshalIndent(m, "", "  ")
		return append(b, '\n'), err
	}
	name := filepath.Join(dir, ManifestFile)
	m.Sum = ""
	data, err := encode()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.Sum = sumOf(data)
	if data, err = encode(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return safefile.WriteData(name, data)
}

// Seal adds the sums of all files at and below a directory of the run, "" for all of the run, that have none yet. The
// files must be complete.
func (m *Manifest) Seal(dir, under string) error {
	files, err := filesIn(dir)
	if err != nil {
		return err
	}
	return m.Reseal(dir, slices.DeleteFunc(files, func(name string) bool {
		return m.Files[name] != "" || under != "" && !strings.HasPrefix(name, under+"/")
	})...)
}

// Reseal replaces the sums of files that were written again.
func (m *Manifest) Reseal(dir string, files ...string) error {
	sums, errs := sums(dir, files)
	if m.Files == nil {
		m.Files = Sums{}
	}
	for i, name := range files {
		m.Files[name] = sums[i]
	}
	return errors.Join(errs...)
}

// Unseal removes the sums of the files below a directory of the run.
func (m *Manifest) Unseal(dir string) {
	maps.DeleteFunc(m.Files, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
}

// Sealed reports whether the manifest has sums of files below a directory of the run.
func (m *Manifest) Sealed(dir string) bool {
	for name := range m.Files {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// changes compares the files of the run directory with their sums. Files that the run did not have
// are a change among captures and records; others, such as figures drawn later, are not.
func (m *Manifest) changes(dir string) ([]Change, error) {
	var out []Change
	add := func(file, what string) { out = append(out, Change{file, what}) }
	if m.Sum == "" {
		add(ManifestFile, "states no SHA-256 sums, so no file of the run can be checked")
	}
	files := slices.Sorted(maps.Keys(m.Files))
	got, errs := sums(dir, files)
	sealed := map[string]bool{} // directories
	for i, name := range files {
		sealed[path.Dir(name)] = true
		switch {
		case errors.Is(errs[i], fs.ErrNotExist):
			add(name, "is missing")
		case errs[i] != nil:
			add(name, fmt.Sprintf("cannot be read: %v", safefile.Reason(errs[i])))
		case got[i] != m.Files[name]:
			add(name, "was changed after the run: its SHA-256 differs from "+ManifestFile)
		}
	}
	all, err := filesIn(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		in := path.Dir(name)
		ofRun := sealed[in] || m.State == Complete && path.Base(in) == CapturesDir && m.Sum != ""
		if extra := (Change{name, "was added after the run"}); m.Files[name] == "" && ofRun && extra.OfRepeat() {
			out = append(out, extra)
		}
	}
	return out, nil
}

// filesIn returns the paths of the regular files in a run directory, in order, without its manifest
// and files that are being written.
func filesIn(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir+string(filepath.Separator), func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() || safefile.IsTemporary(e.Name()) {
			return err
		}
		if name, err = filepath.Rel(dir, name); name != ManifestFile {
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	return files, err
}

// sums computes the sums of files, in their order, with an error for each.
func sums(dir string, files []string) ([]string, []error) {
	out, errs := make([]string, len(files)), make([]error, len(files))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range files {
		g.Go(func() error {
			out[i], errs[i] = sumFile(filepath.Join(dir, filepath.FromSlash(name)))
			return nil
		})
	}
	_ = g.Wait() // errors are kept by file
	return out, errs
}

func sumFile(name string) (string, error) {
	f, err := safefile.Open(name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// Around returns the run directory that contains a path, which may be the directory itself: the nearest
// one with a manifest, at most as far up as a capture is. ok is false if there is none.
func Around(name string) (dir string, ok bool) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", false
	}
	for range 5 { // run/arm/repeat/captures/file
		if _, err := os.Lstat(filepath.Join(name, ManifestFile)); err == nil {
			return name, true
		}
		name = filepath.Dir(name)
	}
	return "", false
}
