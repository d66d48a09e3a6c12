package runner

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/scenario"
	"testbed/results/compare"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// CompareOptions select the comparisons of Compare.
type CompareOptions struct {
	// Baseline is the arm of a single run to which its other arms are compared; "" is the
	// run's own baseline. Of several runs, the first is the baseline.
	Baseline string
	// Arms are the arms to compare; none stands for all. With several runs, an arm is NAME, or
	// NAME=OTHER to compare NAME of the first run with OTHER of the others.
	Arms []string
	// Version is the version of this tool.
	Version string
}

// WorkloadError is the error for runs with different workloads or clusters.
type WorkloadError struct {
	A, B    string // run directories
	Differs []scenario.Differs
}

func (e *WorkloadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the workloads of %s and %s differ, so they cannot be compared: run both on the same scenario; arms may differ", e.A, e.B)
	for _, d := range e.Differs {
		fmt.Fprintf(&b, "\n  %s: %s, and %s", d.Key, placed(d.A, e.A), placed(d.B, e.B))
	}
	return b.String()
}

// placed returns a value with its place in the scenario file.
func placed(v *scenario.Value, dir string) string {
	file := filepath.Join(dir, "scenario.yaml")
	switch {
	case v == nil:
		return "absent in " + file
	case v.Line == 0:
		return fmt.Sprintf("%s by default in %s", v.Text, file)
	}
	return fmt.Sprintf("%s at %s:%d:%d", v.Text, file, v.Line, v.Col)
}

// sameWorkload returns an error unless two run directories have the same workload on
// the same cluster: equal values of all scenario keys except arms, repeat, name, capture
// and limits. The error is a *WorkloadError if values differ. Runs with equal fingerprints are
// the same. If the fingerprints differ, for example because of other arms, sameWorkload compares
// the recorded scenarios key by key; these must be unchanged since the runs.
func sameWorkload(a, b *rundir.Run, version string) (notes []string, err error) {
	ma, mb := a.Manifest, b.Manifest
	if ma.Workload != "" && ma.Workload == mb.Workload {
		return nil, nil
	}
	sa, err := loadRecorded(a.Dir)
	if err != nil {
		return nil, err
	}
	sb, err := loadRecorded(b.Dir)
	if err != nil {
		return nil, err
	}
	differs, err := scenario.WorkloadDiffers(sa, sb)
	if err != nil {
		return nil, err
	}
	if len(differs) > 0 {
		return nil, &WorkloadError{a.Dir, b.Dir, differs}
	}
	for _, x := range []struct {
		dir string
		m   *Manifest
		s   *scenario.Scenario
	}{{a.Dir, ma, sa}, {b.Dir, mb, sb}} {
		got, err := x.s.Fingerprint()
		if err != nil {
			return nil, err
		}
		switch {
		case got == x.m.Workload:
		case x.m.Tool == version:
			return nil, fmt.Errorf("%s: scenario.yaml or a trace was changed after the run (fingerprint %.12s in manifest.json, now %.12s): the workload of the run is unknown, so it cannot be compared", x.dir, x.m.Workload, got)
		default:
			notes = append(notes, fmt.Sprintf("%s was made by version %s, whose fingerprints differ from those of this version (%s): its workload is taken from its scenario.yaml", x.m.Run, x.m.Tool, version))
		}
	}
	return notes, nil
}

// Compare compares the arms of one run with its baseline or, for several runs, each arm
// with the same arm of the first run. It reads run directories and no captures.
func Compare(dirs []string, o CompareOptions) (*compare.Result, error) {
	var runs []*rundir.Run
	in := compare.Input{}
	for i, dir := range dirs {
		r, err := rundir.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		runs = append(runs, r)
		run := compare.Run{ID: r.Summary.RunID, Dir: dir, Backend: r.Summary.Source}
		if len(dirs) > 1 {
			run.Label = label(i)
		}
		if m := r.Manifest; m != nil {
			run.Tool, run.Kernel = m.Tool, m.Kernel
			if n := m.Noise; n != nil && (in.Noise == nil || n.Date.After(in.Noise.Date)) {
				in.Noise = n
			}
		}
		in.Runs = append(in.Runs, run)
		for _, c := range r.Changes {
			in.Notes = append(in.Notes, strings.TrimSpace(run.Label+" "+r.Summary.RunID)+": "+c.String())
		}
		if p := r.Summary.Partial; p != nil {
			in.Notes = append(in.Notes, strings.TrimSpace(run.Label+" "+r.Summary.RunID)+" was cut short: "+p.String())
		}
	}
	var err error
	switch len(runs) {
	case 0:
		return nil, fmt.Errorf("compare: no run: expected one or more run directories")
	case 1:
		in.Pairs, err = withinRun(runs[0], o)
	default:
		if o.Baseline != "" {
			return nil, fmt.Errorf("compare: baseline %q with %d runs: the first run is the baseline; to compare arms with different names, select them as NAME=OTHER", o.Baseline, len(runs))
		}
		for i, r := range runs[1:] {
			if runs[0].Manifest == nil || r.Manifest == nil {
				return nil, fmt.Errorf("compare: %s or %s has no manifest.json, so their workloads cannot be checked: expected complete run directories", dirs[0], dirs[i+1])
			}
			notes, err := sameWorkload(runs[0], r, o.Version)
			if err != nil {
				return nil, fmt.Errorf("compare: %w", err)
			}
			for _, n := range append(notes, conditions(runs[0], r, i+1)...) {
				if !slices.Contains(in.Notes, n) {
					in.Notes = append(in.Notes, n)
				}
			}
		}
		in.Pairs, err = acrossRuns(runs, o)
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	out, err := compare.New(in)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return out, nil
}

// label returns the name of the i-th run: A to Z, then R27 and so on.
func label(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return fmt.Sprintf("R%d", i+1)
}

// conditions describes the other differences between the first run and the i-th.
func conditions(a, b *rundir.Run, i int) []string {
	var out []string
	differ := func(what, x, y string) {
		if x != y {
			out = append(out, fmt.Sprintf("%s differs: %s in %s, %s in %s", what, x, label(0), y, label(i)))
		}
	}
	x, y := a.Manifest, b.Manifest
	if a.Summary.Source != b.Summary.Source {
		out = append(out, fmt.Sprintf("%s is from %s and %s from %s: ratios between them relate measured to computed times, not policies", label(0), source(a), label(i), source(b)))
	}
	differ("the version of testbed", x.Tool, y.Tool)
	differ("the kernel", x.Kernel, y.Kernel)
	differ("the number of processors", fmt.Sprint(x.CPUs), fmt.Sprint(y.CPUs))
	if a.Summary.Source == b.Summary.Source {
		differ("the calibration of links", x.Calibration, y.Calibration)
		differ("the limits (settings in manifest.json)", string(x.Settings), string(y.Settings))
	}
	if !sameAlone(a, b) {
		out = append(out, fmt.Sprintf("jobs take other times alone in %s than in %s: slowdowns are not compared", label(0), label(i)))
	}
	if x.Repeats != y.Repeats {
		out = append(out, fmt.Sprintf("%s has %d repeats and %s has %d: repeats of only one run are unpaired", label(0), x.Repeats, label(i), y.Repeats))
	}
	return out
}

// sameAlone reports whether jobs take the same times alone in two runs, so that their slowdowns can be
// compared.
func sameAlone(a, b *rundir.Run) bool {
	type key struct{ repeat, job int }
	of := map[key]time.Duration{}
	alone := func(j *schema.Job) time.Duration {
		if j.Lone == nil {
			return 0
		}
		return *j.Lone
	}
	for i := range a.Jobs {
		of[key{a.Jobs[i].Repeat, a.Jobs[i].Item()}] = alone(&a.Jobs[i])
	}
	return !slices.ContainsFunc(b.Jobs, func(j schema.Job) bool {
		t, ok := of[key{j.Repeat, j.Item()}]
		return ok && t != alone(&j)
	})
}

func source(r *rundir.Run) string {
	if r.Simulated() {
		return "the fluid model"
	}
	return "packets"
}

// withinRun pairs the arms of one run with its baseline.
func withinRun(r *rundir.Run, o CompareOptions) ([]compare.Pairing, error) {
	base := o.Baseline
	if base == "" {
		base = r.Summary.Baseline
	}
	if r.Arm(base) == nil {
		return nil, noArm(r, base)
	}
	names := o.Arms
	if len(names) == 0 {
		names = slices.DeleteFunc(r.Arms(), func(n string) bool { return n == base })
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("run %s has one arm, %s: comparison needs another arm or a second run", r.Dir, base)
	}
	var out []compare.Pairing
	for _, n := range names {
		if r.Arm(n) == nil {
			return nil, noArm(r, n)
		}
		if n == base {
			return nil, fmt.Errorf("arm %q is the baseline: select another baseline, or remove it from the arms", n)
		}
		out = append(out, compare.Pairing{Base: armOf(r, base, ""), Arm: armOf(r, n, "")})
	}
	return out, nil
}

func noArm(r *rundir.Run, name string) error {
	return fmt.Errorf("run %s has no arm %q (available: %s)", r.Dir, name, strings.Join(r.Arms(), ", "))
}

// acrossRuns pairs arms of the first run with those of the others.
func acrossRuns(runs []*rundir.Run, o CompareOptions) ([]compare.Pairing, error) {
	var out []compare.Pairing
	first := runs[0]
	for i, r := range runs[1:] {
		found := false
		pair := func(a, b string) {
			p := compare.Pairing{Base: armOf(first, a, label(0)), Arm: armOf(r, b, label(i+1))}
			if !sameAlone(first, r) {
				delete(p.Base.Items, compare.JobSlowdown)
				delete(p.Arm.Items, compare.JobSlowdown)
			}
			out = append(out, p)
			found = true
		}
		for _, choice := range o.Arms {
			a, b, ok := strings.Cut(choice, "=")
			if !ok {
				b = a
			}
			if first.Arm(a) == nil {
				return nil, noArm(first, a)
			}
			if r.Arm(b) == nil {
				return nil, noArm(r, b)
			}
			pair(a, b)
		}
		if len(o.Arms) == 0 {
			for _, n := range first.Arms() {
				if r.Arm(n) != nil {
					pair(n, n)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("%s (%s) and %s (%s) have no common arm: select arms as NAME=OTHER", first.Dir, strings.Join(first.Arms(), ", "), r.Dir, strings.Join(r.Arms(), ", "))
		}
	}
	return out, nil
}

// armOf returns an arm of a run with its items.
func armOf(r *rundir.Run, name, run string) compare.Arm {
	a := compare.Arm{Run: run, Name: name, Items: map[compare.Metric][]compare.Item{}}
	if level, ok := r.Level(name); ok {
		a.Level = level
		a.Why = doubts(r.Arm(name).Verdicts)
	}
	add := func(m compare.Metric, k schema.Key, failed bool, size units.Bytes, id, cluster int, took time.Duration) {
		if k.Arm == name && !failed {
			a.Items[m] = append(a.Items[m], compare.Item{Item: metrics.Item{Repeat: k.Repeat, ID: id, Cluster: cluster, Time: took}, Size: size})
		}
	}
	for _, c := range r.Coflows {
		size := c.Size
		if c.Job != nil {
			size = 0 // which fetches of a shuffle need the network depends on the arm
		}
		add(compare.CCT, c.Key, c.Failed || c.Background, size, int(c.Coflow), int(c.Coflow), c.CCT)
	}
	for _, f := range r.Flows {
		add(compare.FCT, f.Key, f.Failed || f.Background || f.Job != nil, f.Size, int(f.Flow), int(f.Coflow), f.FCT)
	}
	for _, b := range r.Blocks {
		add(compare.WriteTime, b.Key, b.Failed, b.Size, int(b.Block), metrics.Writer(b.Client), b.WriteTime)
	}
	for _, x := range r.Requests {
		add(compare.RequestTime, x.Key, false, x.Size, int(x.Writer), x.Cluster(), x.RequestTime)
	}
	for _, x := range r.Jobs {
		size := x.Size
		if x.Input != nil {
			size += *x.Input
		}
		add(compare.JobTime, x.Key, false, size, x.Item(), x.Item(), x.JobTime)
		if x.Slowdown != nil {
			add(compare.JobSlowdown, x.Key, false, size, x.Item(), x.Item(), time.Duration(*x.Slowdown*float64(time.Second)))
		}
		if x.Tasks != nil {
			add(compare.JobTimeOf(*x.Tasks), x.Key, false, size, x.Item(), x.Item(), x.JobTime)
		}
		if x.Bin != nil {
			add(compare.JobTimeIn(*x.Bin), x.Key, false, size, x.Item(), x.Item(), x.JobTime)
		}
	}
	if s := r.Arm(name); s != nil && s.Placement != nil {
		a.CrossRack = &metrics.CrossRack{All: s.Placement.CrossRackBytes, Writes: s.Placement.CrossRackWriteBytes}
		a.Frames = !r.Simulated()
	}
	return a
}

// doubts returns the checks that did not pass, one per line.
func doubts(verdicts []verdict.Verdict) []string {
	var out []string
	for k, v := range verdicts {
		for _, c := range v.Checks {
			if c.Level == verdict.Pass {
				continue
			}
			line := fmt.Sprintf("repeat %d: %s is %s: %s", k, c.Name, c.Level, c.Value)
			if c.Reason != "" {
				line += ": " + c.Reason
			}
			out = append(out, line)
		}
	}
	return out
}
