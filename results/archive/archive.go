// Package archive reads a run directory back: what was run (manifest.json), its
// figures (summary.json) and every flow, coflow and block (the CSV files), as
// testbed run, sim and report wrote them. It works for runs on packets and for
// simulations alike, needs no captures and writes nothing.
//
// Times are exact: the files hold nanoseconds. Columns are found by their names, so
// that a file may have more of them than this package knows. Repeats whose verdict
// is void have no rows, as results/report leaves them out.
//
// It reads no captures (results/flows) and computes no figure (results/metrics).
package archive

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

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/verdict"
)

// ManifestFile is the file of a run directory that Manifest is of.
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
	Fluid   = "fluid"
)

// Manifest says what a run directory holds and how it was made.
type Manifest struct {
	Tool     string   `json:"tool"`    // version of testbed
	Go       string   `json:"go"`      // version of the Go toolchain it was built with
	Kernel   string   `json:"kernel"`  // release of the running kernel
	CPUs     int      `json:"cpus"`    // of the machine, usable by the process
	Backend  string   `json:"backend"` // Packets or Fluid
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
	State    string    `json:"state"`           // Running, Complete, Interrupted or Failed
	Error    string    `json:"error,omitempty"` // why, where it is failed or interrupted
	// Partial tells which repeats ended, where not all did.
	Partial *report.Partial `json:"partial,omitempty"`
	// Settings are the limits in force that the scenario does not state; null in a
	// simulation.
	Settings json.RawMessage `json:"settings"`
	// Calibration tells what the links' buckets go by. Forced is why the run would
	// have been refused without being forced.
	Calibration string   `json:"calibration,omitempty"`
	Forced      string   `json:"forced,omitempty"`
	Notes       []string `json:"notes,omitempty"` // what was left out or rounded in making the workload
}

// Run is a run directory. Rows are in the order of their files: by arm, repeat and
// ID.
type Run struct {
	Dir string
	// Manifest is nil where only captures were kept and the report was made of them.
	Manifest *Manifest
	Summary  report.Summary
	Flows    []Flow
	Coflows  []Coflow
	Blocks   []Block
	// Requests, Jobs and Balance are nil where the run has none.
	Requests []Request
	Jobs     []Job
	Balance  []Balance
	// Breakdown, Links and Progress are nil where the run has no such file, as a
	// simulation.
	Breakdown []Share
	Links     []Load
	Progress  []Moment
}

// Open reads a run directory. A run that was cut short can be read where repeats of
// it had ended: Summary.Partial tells which.
//
// An error names the file, its line where there is one, and what to do.
func Open(dir string) (*Run, error) {
	r := &Run{Dir: dir}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("read run %s: %w", dir, err)
	}
	return r, nil
}

// ReadManifest reads what says how a run directory was made, whether or not it has
// figures.
func ReadManifest(dir string) (*Manifest, error) {
	r := &Run{Dir: dir}
	var m Manifest
	switch found, err := r.json(ManifestFile, &m); {
	case err != nil:
		return nil, fmt.Errorf("read run %s: %w", dir, err)
	case !found:
		return nil, fmt.Errorf("read run %s: it has no %s: want the directory that testbed run or testbed sim made", dir, ManifestFile)
	}
	return &m, nil
}

func (r *Run) open() error {
	info, err := os.Stat(r.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such directory")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is a file: want the directory that testbed run or testbed sim made")
	}
	var m Manifest
	found, err := r.json(ManifestFile, &m)
	if err != nil {
		return err
	}
	if found {
		r.Manifest = &m
	}
	if err := r.summary(); err != nil {
		return err
	}
	if err := r.matches(); err != nil {
		return err
	}
	return r.tables()
}

// json reads a JSON file of the run and tells whether it is there.
func (r *Run) json(name string, v any) (found bool, err error) {
	b, err := os.ReadFile(filepath.Join(r.Dir, name))
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

// damaged is the error of a file that does not hold what it should. Line 0 is the
// whole file.
func (r *Run) damaged(name string, line int, what string) error {
	if line > 0 {
		name = fmt.Sprintf("%s:%d", name, line)
	}
	return fmt.Errorf("%s: %s (%s)", name, what, r.again())
}

// again is how the run's files are written once more.
func (r *Run) again() string {
	if r.Manifest != nil && r.Manifest.Backend == Fluid {
		return fmt.Sprintf("testbed sim %s makes the run again", filepath.Join(r.Dir, "scenario.yaml"))
	}
	return fmt.Sprintf("testbed report %s writes the figures again from the captures", r.Dir)
}

func (r *Run) summary() error {
	var format struct {
		Format *int `json:"format"`
	}
	found, err := r.json(report.SummaryFile, &format)
	switch {
	case err != nil:
		return err
	case !found:
		return r.unreported()
	case format.Format == nil:
		return r.damaged(report.SummaryFile, 0, "it has no format, so it is none of testbed's")
	case *format.Format != report.Format:
		return r.damaged(report.SummaryFile, 0, fmt.Sprintf("it is of format %d, and this testbed reads format %d", *format.Format, report.Format))
	}
	if _, err = r.json(report.SummaryFile, &r.Summary); err != nil {
		return err
	}
	for _, a := range r.Summary.Arms {
		if a.Traffic == nil {
			continue
		}
		for class, n := range a.Traffic.CrossRack {
			if n < 0 {
				return r.damaged(report.SummaryFile, 0, fmt.Sprintf("arm %q: %v bytes of %q between racks", a.Name, n, class))
			}
		}
	}
	return nil
}

// CrossRack is how many bytes of frames crossed racks in an arm, by class, on average
// of its repeats; nil where the summary has none, as of a simulation.
func (r *Run) CrossRack(arm string) map[string]float64 {
	if a := r.Arm(arm); a != nil && a.Traffic != nil {
		return a.Traffic.CrossRack
	}
	return nil
}

// unreported is the error of a directory without a summary.
func (r *Run) unreported() error {
	switch m := r.Manifest; {
	case m == nil:
		inside, _ := filepath.Glob(filepath.Join(globSafe(r.Dir), "*", report.SummaryFile))
		if len(inside) > 0 {
			return fmt.Errorf("it is no run directory, but holds some, such as %s", filepath.Dir(inside[0]))
		}
		return fmt.Errorf("it is no run directory: it has neither %s nor %s (if it holds captures, testbed report %s makes the rest from them)", ManifestFile, report.SummaryFile, r.Dir)
	case m.State == Running:
		return fmt.Errorf("the run has not ended: its %s says that it is running since %s (wait for it; if it was killed, testbed report %s computes what its captures hold)", ManifestFile, m.Started.Format(time.RFC3339), r.Dir)
	case m.State == Failed || m.State == Interrupted:
		return fmt.Errorf("the run was %s before a repeat of it had ended, so it has no figures: %s", m.State, strings.Join(strings.Fields(m.Error), " "))
	}
	return fmt.Errorf("%s is missing (%s)", report.SummaryFile, r.again())
}

// globSafe escapes what a pattern would give a meaning.
func globSafe(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// matches checks that the summary is one, and of the same run as the manifest.
func (r *Run) matches() error {
	s := r.Summary
	bad := func(format string, args ...any) error {
		return r.damaged(report.SummaryFile, 0, fmt.Sprintf(format, args...))
	}
	if m := r.Manifest; m != nil && m.Run != s.RunID {
		return bad("it is of run %q, and %s of run %q", s.RunID, ManifestFile, m.Run)
	}
	if s.Source != report.SourcePackets && s.Source != report.SourceFluidModel {
		return bad("source %q: want %q or %q", s.Source, report.SourcePackets, report.SourceFluidModel)
	}
	if len(s.Arms) == 0 {
		return bad("it has no arm")
	}
	seen := map[string]bool{}
	for _, a := range s.Arms {
		switch {
		case a.Name == "" || seen[a.Name]:
			return bad("arm %q: want a name that no other arm has", a.Name)
		case a.Repeats <= 0:
			return bad("arm %q has %d repeats", a.Name, a.Repeats)
		case r.Simulated() != (a.Verdict == nil):
			return bad("arm %q: a verdict is of packets, and the source is %q", a.Name, s.Source)
		case !r.Simulated() && len(a.Verdicts) != a.Repeats:
			return bad("arm %q has %d verdicts of %d repeats", a.Name, len(a.Verdicts), a.Repeats)
		}
		seen[a.Name] = true
	}
	if !seen[s.Baseline] {
		return bad("the baseline %q is no arm", s.Baseline)
	}
	return nil
}

// Simulated tells whether the figures are the fluid model's and not measured.
func (r *Run) Simulated() bool { return r.Summary.Source == report.SourceFluidModel }

// Arm is the summary of an arm, or nil where the run has no such arm.
func (r *Run) Arm(name string) *report.ArmSummary {
	i := slices.IndexFunc(r.Summary.Arms, func(a report.ArmSummary) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Summary.Arms[i]
}

// Arms are the names of the arms, in order.
func (r *Run) Arms() []string {
	names := make([]string, len(r.Summary.Arms))
	for i, a := range r.Summary.Arms {
		names[i] = a.Name
	}
	return names
}

// verdictOf is the cell that rows of a repeat of an arm have.
func (r *Run) verdictOf(a *report.ArmSummary, repeat int) string {
	if r.Simulated() {
		return report.SourceFluidModel
	}
	return a.Verdicts[repeat].Level.String()
}

// Level is the verdict of an arm; false where there is none, as in a simulation.
func (r *Run) Level(arm string) (verdict.Level, bool) {
	a := r.Arm(arm)
	if a == nil || a.Verdict == nil {
		return 0, false
	}
	return *a.Verdict, true
}

// CCTs are the coflow completion times of an arm, without coflows of which a flow
// failed. An arm that is void has some where repeats of it are not: whoever shows a
// figure of an arm asks its verdict first.
func (r *Run) CCTs(arm string) []metrics.Item {
	return itemsOf(r.Coflows, arm, func(c *Coflow) (Key, bool, metrics.Item) {
		return c.Key, c.Failed || c.Background, metrics.Item{ID: int(c.Coflow), Time: c.CCT, Cluster: int(c.Coflow)}
	})
}

// FCTs are the flow completion times of an arm, without flows that failed; see CCTs.
func (r *Run) FCTs(arm string) []metrics.Item {
	return itemsOf(r.Flows, arm, func(f *Flow) (Key, bool, metrics.Item) {
		return f.Key, f.Failed || f.Background, metrics.Item{ID: int(f.Flow), Time: f.FCT, Cluster: int(f.Coflow)}
	})
}

// WriteTimes are the block write times of an arm, without blocks that failed; see
// CCTs.
func (r *Run) WriteTimes(arm string) []metrics.Item {
	return itemsOf(r.Blocks, arm, func(b *Block) (Key, bool, metrics.Item) {
		return b.Key, b.Failed, metrics.Item{ID: int(b.Block), Time: b.WriteTime, Cluster: metrics.Writer(b.Client)}
	})
}

// RequestTimes are the write request times of an arm; see CCTs.
func (r *Run) RequestTimes(arm string) []metrics.Item {
	return itemsOf(r.Requests, arm, func(x *Request) (Key, bool, metrics.Item) {
		return x.Key, false, metrics.Item{ID: int(x.Writer), Time: x.RequestTime, Cluster: x.Cluster()}
	})
}

// Cluster is the metrics.Item.Cluster of a write request.
func (x *Request) Cluster() int {
	w := flows.WriteRecord{Writer: x.Writer}
	if x.Job != nil {
		w.Job = *x.Job
	}
	return metrics.RequestCluster(w)
}

// JobTimes are the job completion times of an arm; see CCTs.
func (r *Run) JobTimes(arm string) []metrics.Item {
	return itemsOf(r.Jobs, arm, func(x *Job) (Key, bool, metrics.Item) {
		return x.Key, false, metrics.Item{ID: int(x.Job), Time: x.JobTime, Cluster: int(x.Job)}
	})
}

// itemsOf are the items of an arm that did not fail. The repeat is the key's.
func itemsOf[T any](rows []T, arm string, of func(*T) (k Key, failed bool, item metrics.Item)) []metrics.Item {
	var out []metrics.Item
	for i := range rows {
		if k, failed, item := of(&rows[i]); k.Arm == arm && !failed {
			item.Repeat = k.Repeat
			out = append(out, item)
		}
	}
	return out
}
