// Package rundir reads a run directory: its manifest (manifest.json), its figures
// (summary.json) and every flow, coflow and block (the CSV files), as written by testbed run,
// sim and report. It works for runs on packets and for simulations, needs no captures and
// writes nothing but the manifest.
//
// The manifest has the SHA-256 sum of every other file of the run. Inspect compares them, and every
// reader of a run directory starts with it.
//
// Times are exact: the files have nanoseconds. Columns are found by name, so a file may have
// columns that this package does not know. Repeats with verdict void have no rows, because
// results/report leaves them out.
//
// The package does not read captures (results/flows) or compute figures (results/metrics).
package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/results/metrics"
	"testbed/results/safefile"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// ManifestFile is the file name of a run directory's Manifest.
const ManifestFile = "manifest.json"

// States of a run, as in its manifest.
const (
	Running     = "running"
	Complete    = "complete"
	Interrupted = "interrupted"
	Failed      = "failed"
)

// Backends, as in a manifest.
const (
	Packets = "packets"
	Virtual = "packets in virtual time"
	Fluid   = "fluid"
)

// Backends returns all backends.
func Backends() []string { return []string{Packets, Virtual, Fluid} }

// Manifest describes a run directory and how it was created.
type Manifest struct {
	Tool     string   `json:"tool"`    // version of testbed
	Go       string   `json:"go"`      // version of the Go toolchain it was built with
	Kernel   string   `json:"kernel"`  // release of the running kernel
	CPUs     int      `json:"cpus"`    // processors that the process may use
	Backend  string   `json:"backend"` // one of Backends
	Run      string   `json:"run"`     // name of the run and of its directory
	Scenario string   `json:"scenario"`
	Workload string   `json:"workload_fingerprint"` // fingerprint of the scenario and its traces
	Seed     uint64   `json:"seed"`
	Arms     []string `json:"arms"`
	Repeats  int      `json:"repeats"` // those made or to make before the next look, if looks decide
	// Looks decided the number of repeats; nil if it was fixed.
	Looks *metrics.Looks `json:"looks,omitempty"`
	// Vars are the values of the swept variables of which the run is a point, in the order of the sweep.
	Vars []Value `json:"vars,omitempty"`
	// Set are the values, in each arm, of the keys that arms set.
	Set map[string][]Value `json:"set,omitempty"`
	// CheckScale is the factor of the scale check of the run; "" without one.
	CheckScale string `json:"check_scale,omitempty"`
	// ScaledBy is the factor by which rates and sizes were divided, in the scaled half of a
	// run.
	ScaledBy string    `json:"scaled_by,omitempty"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	State    string    `json:"state"`           // Running, Complete, Interrupted or Failed
	Error    string    `json:"error,omitempty"` // the reason, if it failed or was interrupted
	// Partial names the completed repeats, if not all completed.
	Partial *summary.Partial `json:"partial,omitempty"`
	// Settings are the limits in force that the scenario does not state; null in a
	// simulation. They are those of the first arm; ArmSettings are those of arms whose changes give them others.
	Settings    json.RawMessage            `json:"settings"`
	ArmSettings map[string]json.RawMessage `json:"arm_settings,omitempty"`
	// Calibration describes the calibration of the links' token buckets. Forced is the reason
	// for which the run would have been refused without --force.
	Calibration string `json:"calibration,omitempty"`
	// Noise is the noise calibration of the machine when the run was made, for packets; nil
	// without one.
	Noise  *metrics.Noise `json:"noise,omitempty"`
	Forced string         `json:"forced,omitempty"`
	// Machine is what ran the trials in virtual time.
	Machine *Machine `json:"machine,omitempty"`
	// Captures is what happened to captures: keep, compress or drop; on packets only.
	Captures string   `json:"captures,omitempty"`
	Notes    []string `json:"notes,omitempty"` // items omitted or rounded when the workload was built
	// Files are the sums of all other files of the run directory that were complete when the
	// manifest was written.
	Files Sums `json:"files,omitempty"`
	// Sum is the SHA-256 sum of the manifest with an empty string in its place.
	Sum string `json:"sha256"`
}

// SettingsOf returns the settings of an arm.
func (m *Manifest) SettingsOf(arm string) json.RawMessage {
	if own := m.ArmSettings[arm]; own != nil {
		return own
	}
	return m.Settings
}

// Machine is what decides, besides the scenario, each byte of a trial in virtual time.
type Machine struct {
	Qemu    string `json:"qemu"`           // its version
	Kernel  string `json:"kernel_sha256"`  // of the kernel's image
	Program string `json:"program_sha256"` // of testbed
	Memory  int    `json:"memory_mb"`
	Speed   int    `json:"instructions_per_ns"` // of the guest's processor
}

// Value is the value of a variable or key.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Run is the content of a run directory. Rows are in the order of their files: by arm,
// repeat and ID.
type Run struct {
	Dir string
	// Manifest is nil if only captures were kept and the report was derived from them.
	Manifest *Manifest
	// Changes are the files that are no longer what the run wrote, except the tables and the summary,
	// which are then refused.
	Changes []Change
	Summary summary.Run
	Flows   []schema.Flow
	Coflows []schema.Coflow
	Blocks  []schema.Block
	// Requests, Jobs and Balance are nil if the run has none.
	Requests []schema.Request
	Jobs     []schema.Job
	Attempts []schema.Attempt // nil if the run has no jobs of tasks
	Balance  []schema.Balance
	// Breakdown, Links, Drops and Progress are nil if the run has no such file, as in a
	// simulation.
	Breakdown []schema.Share
	Links     []schema.Load
	Drops     []schema.Drop // also nil for runs of older versions
	Progress  []schema.Moment
}

// Open reads a run directory. A run that was cut short can be read if repeats of it had
// completed: Summary.Partial names them.
//
// Errors name the file, its line if there is one, and a remedy.
func Open(dir string) (*Run, error) {
	r := &Run{Dir: dir}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("read run %s: %w", dir, err)
	}
	return r, nil
}

// ReadManifest reads the manifest of a run directory, which may lack figures.
func ReadManifest(dir string) (*Manifest, error) {
	m, err := readManifest(dir)
	if err == nil && m == nil {
		err = fmt.Errorf("it has no %s: must be a directory created by testbed run or testbed sim", ManifestFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", dir, err)
	}
	return m, nil
}

func (r *Run) open() error {
	info, err := os.Stat(r.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such directory")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is a file: must be a directory created by testbed run or testbed sim")
	}
	if r.Manifest, r.Changes, err = Inspect(r.Dir); err != nil {
		return err
	}
	for _, c := range r.Changes {
		if slices.Contains(summary.DataFiles(), c.File) {
			return fmt.Errorf("%s (%s)", c, r.again())
		}
	}
	if err := r.summary(); err != nil {
		return err
	}
	if err := r.matches(); err != nil {
		return err
	}
	return r.tables()
}

// json reads a JSON file of the run and reports whether it exists.
func (r *Run) json(name string, v any) (found bool, err error) {
	b, err := safefile.Read(filepath.Join(r.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		at := int64(len(b))
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			at = syntax.Offset
		case errors.As(err, &kind):
			at = kind.Offset
		}
		line := 1 + bytes.Count(b[:min(at, int64(len(b)))], []byte("\n"))
		return false, r.damaged(name, line, err.Error())
	}
	return true, nil
}

// damaged returns the error for a file with invalid content. Line 0 means the whole file.
func (r *Run) damaged(name string, line int, what string) error {
	if line > 0 {
		name = fmt.Sprintf("%s:%d", name, line)
	}
	return fmt.Errorf("%s: %s (%s)", name, what, r.again())
}

// again returns the command that writes the run's files again.
func (r *Run) again() string {
	if r.Manifest != nil && r.Manifest.Backend == Fluid {
		return fmt.Sprintf("run again: testbed sim %s", filepath.Join(r.Dir, "scenario.yaml"))
	}
	return fmt.Sprintf("compute the figures again from the captures: testbed report %s", r.Dir)
}

func (r *Run) summary() error {
	var format struct {
		Format *int `json:"format"`
	}
	found, err := r.json(summary.SummaryFile, &format)
	switch {
	case err != nil:
		return err
	case !found:
		return r.unreported()
	case format.Format == nil:
		return r.damaged(summary.SummaryFile, 0, "it has no format, so testbed did not write it")
	case *format.Format != summary.Format:
		return r.damaged(summary.SummaryFile, 0, fmt.Sprintf("it has format %d, but this version of testbed reads format %d", *format.Format, summary.Format))
	}
	if _, err = r.json(summary.SummaryFile, &r.Summary); err != nil {
		return err
	}
	return nil
}

// unreported returns the error for a directory without a summary.
func (r *Run) unreported() error {
	switch m := r.Manifest; {
	case m == nil:
		inside, _ := filepath.Glob(filepath.Join(globSafe(r.Dir), "*", summary.SummaryFile))
		if len(inside) > 0 {
			return fmt.Errorf("it is not a run directory, but contains some, such as %s", filepath.Dir(inside[0]))
		}
		return fmt.Errorf("it is not a run directory: it has neither %s nor %s (if it has captures, derive both from them: testbed report %s)", ManifestFile, summary.SummaryFile, r.Dir)
	case m.State == Running:
		return fmt.Errorf("the run has not ended: according to its %s it has been running since %s (wait for it to end; if it was killed, report on its captures: testbed report %s)", ManifestFile, m.Started.Format(time.RFC3339), r.Dir)
	case m.State == Failed || m.State == Interrupted:
		return fmt.Errorf("the run state is %s and no repeat completed, so it has no figures: %s", m.State, strings.Join(strings.Fields(m.Error), " "))
	}
	return fmt.Errorf("%s is missing (%s)", summary.SummaryFile, r.again())
}

// globSafe escapes the special characters of a pattern.
func globSafe(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// matches checks that the summary is complete and of the same run as the manifest.
func (r *Run) matches() error {
	s := r.Summary
	bad := func(format string, args ...any) error {
		return r.damaged(summary.SummaryFile, 0, fmt.Sprintf(format, args...))
	}
	if m := r.Manifest; m != nil && m.Run != s.RunID {
		return bad("it belongs to run %q, but %s to run %q", s.RunID, ManifestFile, m.Run)
	}
	if !slices.Contains(summary.Sources(), s.Source) {
		return bad("source %q: must be one of %q", s.Source, summary.Sources())
	}
	if len(s.Arms) == 0 {
		return bad("it has no arms")
	}
	if s.Rows == nil {
		return bad("it does not state the rows of its tables")
	}
	seen := map[string]bool{}
	for _, a := range s.Arms {
		switch {
		case a.Name == "" || seen[a.Name]:
			return bad("arm %q: names must be non-empty and unique", a.Name)
		case a.Repeats <= 0:
			return bad("arm %q has %d repeats", a.Name, a.Repeats)
		case r.Simulated() != (a.Verdict == nil):
			return bad("arm %q: only arms on packets must have a verdict, and the source is %q", a.Name, s.Source)
		case !r.Simulated() && len(a.Verdicts) != a.Repeats:
			return bad("arm %q has %d verdicts for %d repeats", a.Name, len(a.Verdicts), a.Repeats)
		case a.Numbers != nil && len(a.Numbers) != a.Repeats:
			return bad("arm %q has %d repeat_numbers for %d repeats", a.Name, len(a.Numbers), a.Repeats)
		}
		seen[a.Name] = true
	}
	if !seen[s.Baseline] {
		return bad("the baseline %q is not an arm", s.Baseline)
	}
	return nil
}

// Simulated reports whether the figures are the fluid model's instead of measured.
func (r *Run) Simulated() bool { return r.Summary.Source == summary.SourceFluidModel }

// Arm returns the summary of an arm, or nil if the run has no such arm.
func (r *Run) Arm(name string) *summary.Arm {
	i := slices.IndexFunc(r.Summary.Arms, func(a summary.Arm) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Summary.Arms[i]
}

// Arms returns the names of the arms, in order.
func (r *Run) Arms() []string {
	names := make([]string, len(r.Summary.Arms))
	for i, a := range r.Summary.Arms {
		names[i] = a.Name
	}
	return names
}

// verdictOf returns the verdict cell in the rows of an arm's i-th repeat.
func (r *Run) verdictOf(a *summary.Arm, i int) string {
	if r.Simulated() {
		return summary.SourceFluidModel
	}
	return a.Verdicts[i].Level.String()
}

// Level returns the verdict of an arm; false if there is none, as in a simulation.
func (r *Run) Level(arm string) (verdict.Level, bool) {
	a := r.Arm(arm)
	if a == nil || a.Verdict == nil {
		return 0, false
	}
	return *a.Verdict, true
}

// Times returns the completion times of an arm by their key (metrics.Times), without items that failed. A void arm has
// items of its repeats that are not void: callers must check the arm's verdict before they show a figure.
func (r *Run) Times(key, arm string) []metrics.Item {
	items, _ := r.Sized(key, arm)
	return items
}

// Sized returns Times with the payload of each item. It is 0 for a shuffle: which of its fetches need the network depends
// on the arm.
func (r *Run) Sized(key, arm string) (items []metrics.Item, sizes []units.Bytes) {
	add := func(k schema.Key, counts bool, size units.Bytes, id, cluster int, took time.Duration) {
		if k.Arm == arm && counts {
			items = append(items, metrics.Item{Repeat: k.Repeat, ID: id, Time: took, Cluster: cluster})
			sizes = append(sizes, size)
		}
	}
	switch key {
	case "cct":
		for _, c := range r.Coflows {
			if c.Job != nil {
				c.Size = 0
			}
			add(c.Key, !c.Failed && !c.Background, c.Size, int(c.Coflow), int(c.Coflow), c.CCT)
		}
	case "fct":
		for _, f := range r.Flows {
			add(f.Key, !f.Failed && !f.Background && f.Job == nil, f.Size, int(f.Flow), int(f.Coflow), f.FCT)
		}
	case "write_time":
		for _, b := range r.Blocks {
			add(b.Key, !b.Failed, b.Size, int(b.Block), metrics.Writer(b.Client), b.WriteTime)
		}
	case "request_time":
		for _, x := range r.Requests {
			add(x.Key, true, x.Size, int(x.Writer), x.Cluster(), x.RequestTime)
		}
	case "job_time":
		for _, x := range r.Jobs {
			add(x.Key, true, x.Payload(), x.Item(), x.Item(), x.JobTime)
		}
	default:
		panic("no table has completion times " + key)
	}
	return items, sizes
}
