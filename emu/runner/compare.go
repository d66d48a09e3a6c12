package runner

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
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
	"testbed/topo/words"
)

// CompareOptions select the comparisons of Compare.
type CompareOptions struct {
	// Baseline is the arm of a single run, or of each run if runs of several seeds are pooled, to which
	// its other arms are compared; "" is the run's own baseline. Of several runs, the first is the baseline.
	Baseline string
	// Arms are the arms to compare; none stands for all. With several runs, an arm is NAME, or
	// NAME=OTHER to compare NAME of the first run with OTHER of the others.
	Arms []string
	// Varying are the keys of the scenario in which runs may differ, VaryVersion or VaryMachine.
	Varying []string
	Gates   []compare.Gate
	// Version is the version of this tool.
	Version string
}

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

// Compare compares the arms of one run with its baseline or, for several runs, each arm
// with the same arm of the first run. Runs of several seeds are pooled. It reads run directories and no captures.
func Compare(dirs []string, o CompareOptions) (*compare.Result, error) {
	out, err := o.compare(dirs)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return out, nil
}

func (o CompareOptions) compare(dirs []string) (*compare.Result, error) {
	if len(dirs) == 0 {
		return nil, fmt.Errorf("no run: expected one or more run directories")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	in := compare.Input{Gates: o.Gates}
	var runs []compared
	for i, dir := range dirs {
		r, err := rundir.Open(dir)
		if err != nil {
			return nil, err
		}
		x := compared{Run: r}
		run := compare.Run{ID: r.Summary.RunID, Dir: dir, Backend: r.Summary.Source}
		if len(dirs) > 1 {
			run.Label = label(i)
			x.label = run.Label
			machines, err := r.Machines()
			if err != nil {
				return nil, err
			}
			x.machine = strings.Join(machines, " ")
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
		runs = append(runs, x)
	}
	blocks := [][]compared{runs}
	if len(runs) > 1 {
		notes, err := o.checkRuns(runs)
		if err != nil {
			return nil, err
		}
		if blocks, err = o.blocks(runs); err != nil {
			return nil, err
		}
		for _, block := range blocks {
			for _, r := range block {
				notes = append(notes, o.conditions(block[0], r)...)
			}
			notes = append(notes, o.conditions(runs[0], block[0])...)
		}
		for _, n := range notes {
			if !slices.Contains(in.Notes, n) {
				in.Notes = append(in.Notes, n)
			}
		}
		in.Varied = o.varied(runs)
	}
	if o.Baseline != "" && len(blocks[0]) > 1 {
		return nil, fmt.Errorf("baseline %q with %d runs: the first run is the baseline; to compare arms with different names, select them as NAME=OTHER", o.Baseline, len(runs))
	}
	var err error
	in.Pairs, err = o.pairs(blocks)
	if err != nil {
		return nil, err
	}
	return compare.New(in)
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

func valueText(v *scenario.Value) string {
	if v == nil {
		return "absent"
	}
	return v.Text
}

// varied returns the values of the keys that vary.
func (o CompareOptions) varied(runs []compared) (all []compare.Varied) {
	of := map[string]string{} // values of the first run
	for _, r := range runs {
		for _, d := range r.differs {
			of[d.Key] = valueText(d.A)
		}
	}
	add := func(key string, value func(compared) string) {
		v, differ := compare.Varied{Key: key}, false
		for _, r := range runs {
			v.Values = append(v.Values, compare.VariedValue{Run: r.label, Value: value(r)})
			differ = differ || value(r) != value(runs[0])
		}
		if differ {
			all = append(all, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		add(key, func(r compared) string {
			for _, d := range r.differs {
				if d.Key == key {
					return valueText(d.B)
				}
			}
			return of[key]
		})
	}
	if o.varies(VaryVersion) {
		add(VaryVersion, func(r compared) string { return r.Manifest.Tool })
	}
	if o.varies(VaryMachine) {
		add(VaryMachine, func(r compared) string { return r.machine })
	}
	return all
}

// pairs returns the pairs of arms in each block, pooled.
func (o CompareOptions) pairs(blocks [][]compared) (out []compare.Pairing, err error) {
	var of [][]compare.Pairing
	for _, block := range blocks {
		var pairs []compare.Pairing
		if len(block) == 1 {
			pairs, err = withinRun(block[0], o)
		} else {
			pairs, err = acrossRuns(block, o)
		}
		if err != nil {
			return nil, err
		}
		of = append(of, pairs)
	}
	if len(of) == 1 {
		return of[0], nil
	}
	for i, first := range of[0] {
		var base, arm []compare.Pooled
		for k, pairs := range of {
			if len(pairs) != len(of[0]) || pairs[i].Base.Name != first.Base.Name || pairs[i].Arm.Name != first.Arm.Name {
				return nil, fmt.Errorf("%s and %s have different arms: select arms that all runs have (--arms)", blocks[0][0].Dir, blocks[k][0].Dir)
			}
			number := blocks[k][0].workload
			base = append(base, compare.Pooled{Arm: pairs[i].Base, Workload: number})
			arm = append(arm, compare.Pooled{Arm: pairs[i].Arm, Workload: number})
		}
		out = append(out, compare.Pairing{Base: compare.Pool(base), Arm: compare.Pool(arm)})
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

// withinRun pairs the arms of one run with its baseline.
func withinRun(x compared, o CompareOptions) ([]compare.Pairing, error) {
	r, base := x.Run, o.Baseline
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
		out = append(out, compare.Pairing{Base: armOf(r, base, x.label), Arm: armOf(r, n, x.label)})
	}
	return out, nil
}

func noArm(r *rundir.Run, name string) error {
	return fmt.Errorf("run %s has no arm %q (available: %s)", r.Dir, name, strings.Join(r.Arms(), ", "))
}

// acrossRuns pairs arms of the first run with those of the others.
func acrossRuns(runs []compared, o CompareOptions) ([]compare.Pairing, error) {
	var out []compare.Pairing
	first := runs[0]
	for _, r := range runs[1:] {
		found := false
		pair := func(a, b string) {
			p := compare.Pairing{Base: armOf(first.Run, a, first.label), Arm: armOf(r.Run, b, r.label)}
			if !sameAlone(first.Run, r.Run) {
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
				return nil, noArm(first.Run, a)
			}
			if r.Arm(b) == nil {
				return nil, noArm(r.Run, b)
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
