package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"testbed/results/summary"
	"testbed/results/verdict"
)

// Latest is the name of the symbolic link to the newest run, next to the run directories.
const Latest = "latest"

// Entry is a run directory as List finds it.
type Entry struct {
	Name     string    `json:"name"`
	Scenario string    `json:"scenario"`
	Started  time.Time `json:"started"`
	Backend  string    `json:"backend"` // Packets or Fluid
	State    string    `json:"state"`   // Running, Complete, Interrupted or Failed
	Arms     []string  `json:"arms"`
	// Points is the number of points of a sweep; 0 for a run without one.
	Points int `json:"points,omitempty"`
	// Seeds, Machines and Varied are what varied between trials, points included: seeds of scenarios, IDs of
	// machines, and swept variables and keys that arms set.
	Seeds    []uint64 `json:"seeds"`
	Machines []string `json:"machines,omitempty"`
	Varied   []Varied `json:"varied,omitempty"`
	// Verdict is the worst of any arm; nil where there is none, as in a simulation.
	Verdict *verdict.Level `json:"verdict"`
	Size    int64          `json:"size_bytes"` // of all files
	// Changes are the files that are no longer what the run wrote.
	Changes []Change `json:"changes,omitempty"`
	// Error is why the directory cannot be described, "" if it can.
	Error string `json:"error,omitempty"`
}

// Varied is a variable or key with its values, each once.
type Varied struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// List returns the run directories in a directory, newest first: those that have a manifest. It
// reads all their files, and follows no links.
func List(dir string) ([]Entry, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	out := []Entry{}
	for _, d := range found {
		path := filepath.Join(dir, d.Name())
		if !d.IsDir() {
			continue
		}
		e := Entry{Name: d.Name()}
		if sweep, err := ReadSweep(path); sweep != nil || err != nil {
			if err == nil {
				err = e.sweep(path, sweep)
			}
			if err != nil {
				e.Error = err.Error()
			}
		} else if _, err := os.Lstat(filepath.Join(path, ManifestFile)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err := e.describe(path); err != nil {
			e.Error = err.Error()
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.Name, a.Name))
	})
	return out, nil
}

// Newest returns the newest directory of a run or sweep in a directory, of a workload fingerprint and a backend; "" if
// there is none.
func Newest(dir, workload, backend string) (string, error) {
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find a run: %w", err)
	}
	var newest string
	var last time.Time
	for _, d := range found {
		path := filepath.Join(dir, d.Name())
		if !d.IsDir() {
			continue
		}
		var of, on string
		var started time.Time
		if m, err := readManifest(path); err == nil && m != nil {
			of, on, started = m.Workload, m.Backend, m.Started
		} else if s, err := ReadSweep(path); err == nil && s != nil {
			of, on, started = s.Workload, s.Backend, s.Started
		}
		if of == workload && on == backend && started.After(last) {
			newest, last = path, started
		}
	}
	return newest, nil
}

// sweep describes a sweep by its points.
func (e *Entry) sweep(path string, s *Sweep) error {
	e.Scenario, e.Started, e.Backend, e.State, e.Arms, e.Points = s.Scenario, s.Started, s.Backend, s.State, s.Arms, len(s.Points)
	for _, name := range s.Points {
		var p Entry
		if err := p.describe(filepath.Join(path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, v := range p.Varied {
			e.vary(v.Name, v.Values...)
		}
		e.Seeds, e.Machines = union(e.Seeds, p.Seeds), union(e.Machines, p.Machines)
		for _, c := range p.Changes {
			e.Changes = append(e.Changes, Change{name + "/" + c.File, c.What})
		}
		if p.Verdict != nil && (e.Verdict == nil || *p.Verdict > *e.Verdict) {
			e.Verdict = p.Verdict
		}
	}
	var err error
	e.Size, err = sizeOf(path)
	return err
}

func (e *Entry) describe(path string) error {
	var err error
	if e.Size, err = sizeOf(path); err != nil {
		return err
	}
	m, changes, err := Inspect(path)
	if m == nil || err != nil {
		return err
	}
	e.Scenario, e.Started, e.Backend, e.State, e.Arms, e.Changes = m.Scenario, m.Started, m.Backend, m.State, m.Arms, changes
	for _, v := range m.Vars {
		e.vary(v.Name, v.Value)
	}
	for _, arm := range m.Arms {
		for _, v := range m.Set[arm] {
			e.vary(v.Name, v.Value)
		}
	}
	r := &Run{Dir: path, Manifest: m}
	if e.Machines, err = r.Machines(); err != nil {
		return err
	}
	e.Seeds = []uint64{m.Seed}
	var s summary.Run
	if found, err := r.json(summary.SummaryFile, &s); err != nil || !found {
		return err
	}
	for _, a := range s.Arms {
		if a.Verdict != nil && (e.Verdict == nil || *a.Verdict > *e.Verdict) {
			e.Verdict = a.Verdict
		}
	}
	return nil
}

// vary adds values of a variable or key.
func (e *Entry) vary(name string, values ...string) {
	i := slices.IndexFunc(e.Varied, func(v Varied) bool { return v.Name == name })
	if i < 0 {
		i, e.Varied = len(e.Varied), append(e.Varied, Varied{Name: name})
	}
	e.Varied[i].Values = union(e.Varied[i].Values, values)
}

// union returns the elements of a, and those of b that are new.
func union[T comparable](a, b []T) []T {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// sizeOf returns the size of all files below a directory. Files that are removed meanwhile do not
// count.
func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}
