package rundir

import (
	"path"
	"slices"
	"time"

	"testbed/results/verdict"
)

// TrialFile is the last file that is written of a trial, in its directory. A trial without it has not ended.
const TrialFile = "trial.json"

// Trial describes one execution of an arm.
type Trial struct {
	// Key is a digest of all that the trial depends on besides the program and the machine: trials of equal
	// keys are repetitions of each other.
	Key    string `json:"key"`
	Arm    string `json:"arm"`
	Repeat int    `json:"repeat"` // from 0
	Seed   uint64 `json:"seed"`   // of its draws
	// Verdict is absent in a simulation.
	Verdict *verdict.Level `json:"verdict,omitempty"`
	Tool    string         `json:"tool"` // version of testbed
	// The following are absent in a simulation, so that equal ones have equal files.
	Run         string    `json:"run,omitempty"`     // the run that executed the trial, as in its captures
	Machine     string    `json:"machine,omitempty"` // its ID
	Kernel      string    `json:"kernel,omitempty"`  // release
	CPUs        int       `json:"cpus,omitempty"`
	Calibration string    `json:"calibration,omitempty"`
	Began       time.Time `json:"began,omitzero"`
	Ended       time.Time `json:"ended,omitzero"`
}

// Trials returns the trials that the manifest lists, in order of their paths; none without a manifest.
func (r *Run) Trials() (all []Trial, err error) {
	if r.Manifest == nil {
		return nil, nil
	}
	var files []string
	for name := range r.Manifest.Files {
		if path.Base(name) == TrialFile {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	for _, name := range files {
		var t Trial
		switch found, err := r.json(name, &t); {
		case err != nil:
			return nil, err
		case !found:
			return nil, r.damaged(name, 0, "it is missing")
		}
		all = append(all, t)
	}
	return all, nil
}

// Machines returns the IDs of the machines that executed trials, in order; none for a simulation.
func (r *Run) Machines() (ids []string, err error) {
	all, err := r.Trials()
	for _, t := range all {
		if t.Machine != "" && !slices.Contains(ids, t.Machine) {
			ids = append(ids, t.Machine)
		}
	}
	slices.Sort(ids)
	return ids, err
}
