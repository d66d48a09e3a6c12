package runner

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/emu/scenario"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/topo/words"
)

// Names in CompareOptions.Varying that are no keys of a scenario.
const (
	VaryVersion = "version" // of testbed
	VaryMachine = "machine"
	varySeed    = "seed"
)

// check returns an error unless all names in Varying can vary.
func (o CompareOptions) check() error {
	for _, key := range o.Varying {
		if key == VaryVersion || key == VaryMachine {
			continue
		}
		if err := scenario.CanVary(key); err != nil {
			return fmt.Errorf("--varying: %w", err)
		}
	}
	return nil
}

// varies reports whether runs may differ in a key.
func (o CompareOptions) varies(key string) bool {
	covers := func(named string) bool { return scenario.Covers(named, key) }
	return slices.ContainsFunc(o.Varying, covers)
}

// WorkloadError is the error for runs with different workloads or clusters.
type WorkloadError struct {
	A, B    string // run directories
	Differs []scenario.Differs
}

func (e *WorkloadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the scenarios of %s and %s differ, so they cannot be compared: run both on the same scenario; arms may differ", e.A, e.B)
	var remedy []string
	for _, d := range e.Differs {
		fmt.Fprintf(&b, "\n  %s: %s, and %s", d.Key, placed(d.A, e.A), placed(d.B, e.B))
		if why := scenario.Unpaired(d.Key); why != "" {
			fmt.Fprintf(&b, " (%s)", why)
		} else {
			remedy = append(remedy, d.Key)
		}
	}
	if len(remedy) > 0 {
		fmt.Fprintf(&b, "\nto compare runs that differ in such a key, name it: --varying %s", strings.Join(remedy, ","))
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

// compared is a run under comparison.
type compared struct {
	*rundir.Run
	label    string // "" for a single run
	workload int    // number of its seed
	machine  string // the IDs of its machines
	// differs are the values that differ from those of the first run.
	differs []scenario.Differs
}

// sameWorkload returns an error unless two run directories have the same workload on
// the same cluster: equal values of all scenario keys except those that may vary, arms, repeat, name,
// capture and limits. The error is a *WorkloadError if values differ. Runs with equal fingerprints are
// the same. If the fingerprints differ, for example because of other arms, sameWorkload compares
// the recorded scenarios key by key; these must be unchanged since the runs.
func (o CompareOptions) sameWorkload(a, b *rundir.Run) (varied []scenario.Differs, notes []string, err error) {
	ma, mb := a.Manifest, b.Manifest
	if ma.Workload != "" && ma.Workload == mb.Workload {
		return nil, nil, nil
	}
	sa, err := loadRecorded(a.Dir)
	if err != nil {
		return nil, nil, err
	}
	sb, err := loadRecorded(b.Dir)
	if err != nil {
		return nil, nil, err
	}
	differs, err := scenario.WorkloadDiffers(sa, sb)
	if err != nil {
		return nil, nil, err
	}
	var refused []scenario.Differs
	for _, d := range differs {
		if !o.varies(d.Key) || scenario.Unpaired(d.Key) != "" {
			refused = append(refused, d)
		}
	}
	if len(refused) > 0 {
		return nil, nil, &WorkloadError{a.Dir, b.Dir, refused}
	}
	for _, x := range []struct {
		dir string
		m   *Manifest
		s   *scenario.Scenario
	}{{a.Dir, ma, sa}, {b.Dir, mb, sb}} {
		got, err := x.s.Fingerprint()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case got == x.m.Workload:
		case x.m.Tool == o.Version:
			return nil, nil, fmt.Errorf("%s: scenario.yaml or a trace was changed after the run (fingerprint %.12s in manifest.json, now %.12s): the workload of the run is unknown, so it cannot be compared", x.dir, x.m.Workload, got)
		default:
			notes = append(notes, fmt.Sprintf("%s was made by version %s, whose fingerprints differ from those of this version (%s): its workload is taken from its scenario.yaml", x.m.Run, x.m.Tool, o.Version))
		}
	}
	if len(differs) > 0 && ma.Seed == mb.Seed {
		err = sameDraws(sa, sb, differs)
	}
	return differs, notes, err
}

// sameDraws returns an error unless the workloads of two scenarios, whose items are the same, are equal. They are not
// if a value that differs is in their times: a load depends on the capacity of the fabric.
func sameDraws(a, b *scenario.Scenario, differs []scenario.Differs) error {
	var drawn [2]work
	for i, s := range []*scenario.Scenario{a, b} {
		r, err := newRun(s, Options{}, rundir.Fluid)
		if err != nil {
			return err
		}
		if drawn[i], _, err = r.draw(0); err != nil {
			return err
		}
	}
	if reflect.DeepEqual(drawn[0], drawn[1]) {
		return nil
	}
	var keys []string
	for _, d := range differs {
		keys = append(keys, d.Key)
	}
	return fmt.Errorf("%s and %s have different workloads, because of %s: arrivals or sizes depend on it, as a load does on the capacity of the fabric, so there are no pairs (make the values arms of one scenario, with set: all arms have the workload of the scenario)",
		a.Spec.Name, b.Spec.Name, strings.Join(keys, ", "))
}

// checkRuns checks that runs can be compared, and numbers their workloads by seed.
func (o CompareOptions) checkRuns(runs []compared) (notes []string, err error) {
	var seeds []uint64
	for i := range runs {
		r := &runs[i]
		if runs[0].Manifest == nil || r.Manifest == nil {
			return nil, fmt.Errorf("%s or %s has no manifest.json, so their workloads cannot be checked: expected complete run directories", runs[0].Dir, r.Dir)
		}
		if i > 0 {
			var more []string
			if r.differs, more, err = o.sameWorkload(runs[0].Run, r.Run); err != nil {
				return nil, err
			}
			notes = append(notes, more...)
		}
		if r.workload = slices.Index(seeds, r.Manifest.Seed); r.workload < 0 {
			r.workload = len(seeds)
			seeds = append(seeds, r.Manifest.Seed)
		}
	}
	return notes, nil
}

// blocks returns the runs by seed, in their order: pairs are made within a block. If machines may vary and each
// has several runs of a seed, the blocks are those of a seed and machine.
func (o CompareOptions) blocks(runs []compared) ([][]compared, error) {
	by := func(same func(a, b compared) bool) (all [][]compared) {
		for _, r := range runs {
			i := slices.IndexFunc(all, func(block []compared) bool { return same(block[0], r) })
			if i < 0 {
				i, all = len(all), append(all, nil)
			}
			all[i] = append(all[i], r)
		}
		return all
	}
	out := by(func(a, b compared) bool { return a.workload == b.workload })
	if o.varies(VaryMachine) {
		alone := func(block []compared) bool { return len(block) == 1 }
		onOne := by(func(a, b compared) bool { return a.workload == b.workload && a.machine == b.machine })
		if !slices.ContainsFunc(onOne, alone) {
			out = onOne
		}
	}
	for _, block := range out[1:] {
		if len(block) != len(out[0]) {
			return nil, fmt.Errorf("seed %d has %s and seed %d has %d: give as many runs of each seed, in the same order", out[0][0].Manifest.Seed, words.Plural(len(out[0]), "run", "runs"), block[0].Manifest.Seed, len(block))
		}
		for i, r := range block {
			if d := o.unlike(out[0][i], r); d != "" {
				return nil, fmt.Errorf("%s and %s would be pooled, but differ in %s: give the runs of each seed in the same order", out[0][i].Dir, r.Dir, d)
			}
		}
	}
	return out, nil
}

// unlike returns a key in which two runs differ that would be pooled, "" if there is none.
func (o CompareOptions) unlike(a, b compared) string {
	values := func(r compared) map[string]string {
		of := map[string]string{}
		for _, d := range r.differs {
			if d.Key != varySeed {
				of[d.Key] = valueText(d.B)
			}
		}
		if o.varies(VaryVersion) {
			of[VaryVersion] = r.Manifest.Tool
		}
		return of
	}
	x, y := values(a), values(b)
	for _, of := range []map[string]string{x, y} {
		for key := range of {
			if x[key] != y[key] {
				return key
			}
		}
	}
	return ""
}

// conditions describes the other differences between two runs.
func (o CompareOptions) conditions(a, b compared) []string {
	var out []string
	differ := func(what, x, y string) {
		if x != y {
			out = append(out, fmt.Sprintf("%s differs: %s in %s, %s in %s", what, x, a.label, y, b.label))
		}
	}
	x, y := a.Manifest, b.Manifest
	if a.Summary.Source != b.Summary.Source {
		out = append(out, fmt.Sprintf("%s is from %s and %s from %s: ratios between them relate measured to computed times, not policies", a.label, source(a.Run), b.label, source(b.Run)))
	}
	if !o.varies(VaryVersion) {
		differ("the version of testbed", x.Tool, y.Tool)
	}
	if !o.varies(VaryMachine) {
		differ("the machine", a.machine, b.machine)
	}
	differ("the kernel", x.Kernel, y.Kernel)
	differ("the number of processors", fmt.Sprint(x.CPUs), fmt.Sprint(y.CPUs))
	if a.Summary.Source == b.Summary.Source {
		differ("the calibration of links", x.Calibration, y.Calibration)
		differ("the limits (settings in manifest.json)", string(x.Settings), string(y.Settings))
	}
	if a.workload == b.workload && !sameAlone(a.Run, b.Run) {
		out = append(out, fmt.Sprintf("jobs take other times alone in %s than in %s: slowdowns are not compared", a.label, b.label))
	}
	if x.Repeats != y.Repeats {
		out = append(out, fmt.Sprintf("%s has %d repeats and %s has %d: repeats of only one run are unpaired", a.label, x.Repeats, b.label, y.Repeats))
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
