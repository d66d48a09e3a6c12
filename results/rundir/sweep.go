package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"testbed/results/safefile"
	"testbed/results/summary"
)

// SweepFile is the file of a directory that holds the runs of the points of a sweep, each in a directory with the name
// of the point.
const SweepFile = "sweep.json"

// Sweep describes a directory of a sweep.
type Sweep struct {
	Run      string    `json:"run"` // name of the sweep and of its directory
	Scenario string    `json:"scenario"`
	Workload string    `json:"workload_fingerprint"` // of the scenario and its traces, with the sweep
	Tool     string    `json:"tool"`                 // version of testbed
	Backend  string    `json:"backend"`              // one of Backends
	Captures string    `json:"captures,omitempty"`
	Arms     []string  `json:"arms"`
	Points   []string  `json:"points"` // their directories
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	State    string    `json:"state"` // Running, Complete, Interrupted or Failed
}

// ReadSweep reads the sweep of a directory; it is nil if the directory has none.
func ReadSweep(dir string) (*Sweep, error) {
	name := filepath.Join(dir, SweepFile)
	b, err := safefile.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read sweep: %w", err)
	}
	s := new(Sweep)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read sweep: %s: %w", name, err)
	}
	return s, nil
}

// PointDirs returns the run directories of the points of a sweep in a directory. Missing are the points without
// figures, of which no trial has ended.
func (s *Sweep) PointDirs(dir string) (dirs, missing []string) {
	for _, name := range s.Points {
		point := filepath.Join(dir, name)
		if _, err := os.Stat(filepath.Join(point, summary.SummaryFile)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
			continue
		}
		dirs = append(dirs, point)
	}
	return dirs, missing
}

// BackendOf returns the backend of the run or sweep in a directory.
func BackendOf(dir string) (string, error) {
	if s, err := ReadSweep(dir); s != nil || err != nil {
		if err != nil {
			return "", err
		}
		return s.Backend, nil
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return "", err
	}
	return m.Backend, nil
}

// Save writes the sweep of a directory.
func (s *Sweep) Save(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return safefile.WriteData(filepath.Join(dir, SweepFile), append(b, '\n'))
}
