package runner

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/scenario"
	"testbed/results/compare"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
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
	points, notes, err := pointsOf(dirs)
	if err != nil {
		return nil, err
	}
	in := compare.Input{Gates: o.Gates, Notes: notes}
	for _, p := range points {
		if err := o.add(&in, p); err != nil {
			if p.name != "" {
				err = fmt.Errorf("point %s: %w", p.name, err)
			}
			return nil, err
		}
	}
	if n := len(in.Pairs); points[0].name != "" && n > 1 {
		in.Notes = append(in.Notes, fmt.Sprintf("%d comparisons: where arms do not differ, 5 %% of the 95 %% intervals exclude 1", n))
	}
	return compare.New(in)
}

// point is a point of sweeps, or runs without one, whose name is "".
type point struct {
	name string
	dirs []string
}

// pointsOf returns the run directories of each point that all sweeps have, and notes on those that they do not.
func pointsOf(dirs []string) (all []point, notes []string, err error) {
	sweeps, err := sweepsIn(dirs)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range sweeps {
		if (s == nil) != (sweeps[0] == nil) {
			return nil, nil, fmt.Errorf("%s: only some are sweeps: compare a sweep with another, or the run directory of a point with a run", strings.Join(dirs, ", "))
		}
	}
	if sweeps[0] == nil {
		return []point{{"", dirs}}, nil, nil
	}
	have := map[string][]string{}
	var names []string
	for i, s := range sweeps {
		found, missing := s.PointDirs(dirs[i])
		for _, dir := range found {
			name := filepath.Base(dir)
			if have[name] == nil {
				names = append(names, name)
			}
			have[name] = append(have[name], dir)
		}
		for _, name := range missing {
			notes = append(notes, fmt.Sprintf("no trial has ended of point %s of %s", name, dirs[i]))
		}
	}
	for _, name := range names {
		if len(have[name]) == len(dirs) {
			all = append(all, point{name, have[name]})
		} else {
			notes = append(notes, fmt.Sprintf("point %s is not compared: only %s has its figures", name, strings.Join(have[name], ", ")))
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%s have no point in common (%s)", strings.Join(dirs, ", "), strings.Join(notes, "; "))
	}
	return all, notes, nil
}

// add adds the comparisons of a point to an input.
func (o CompareOptions) add(in *compare.Input, of point) error {
	dirs := of.dirs
	var runs []compared
	for i, dir := range dirs {
		r, err := rundir.Open(dir)
		if err != nil {
			return err
		}
		x := compared{Run: r}
		run := compare.Run{ID: r.Summary.RunID, Dir: dir, Backend: r.Summary.Source}
		if x.label = of.name; len(dirs) > 1 {
			x.label = strings.TrimSpace(label(i) + " " + of.name)
		}
		if run.Label = x.label; len(dirs) > 1 {
			machines, err := r.Machines()
			if err != nil {
				return err
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
		if l := r.Summary.Looks; l != nil {
			in.Looks = l.Widest(in.Looks)
			in.Notes = append(in.Notes, strings.TrimSpace(run.Label+" "+r.Summary.RunID)+": "+l.String())
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
			return err
		}
		if blocks, err = o.blocks(runs); err != nil {
			return err
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
		in.Varied = append(in.Varied, o.varied(runs)...)
	}
	if o.Baseline != "" && len(blocks[0]) > 1 {
		return fmt.Errorf("baseline %q with %d runs: the first run is the baseline; to compare arms with different names, select them as NAME=OTHER", o.Baseline, len(runs))
	}
	pairs, err := o.pairs(blocks)
	in.Pairs = append(in.Pairs, pairs...)
	return err
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
				return nil, fmt.Errorf("%s and %s have different arms: select arms that all runs have (--arms)",
					blocks[0][0].Dir, blocks[k][0].Dir)
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
		a.Why = doubts(r.Arm(name))
	}
	if s := r.Arm(name); s != nil {
		a.Unmodelled = s.Unmodelled
	}
	add := func(m compare.Metric, x *schema.Job, took time.Duration) {
		if x.Arm == name {
			item := metrics.Item{Repeat: x.Repeat, ID: x.Item(), Cluster: x.Item(), Time: took}
			a.Items[m] = append(a.Items[m], compare.Item{Item: item, Size: x.Payload()})
		}
	}
	for _, m := range compare.Metrics() {
		items, sizes := r.Sized(string(m), name)
		for i := range items {
			a.Items[m] = append(a.Items[m], compare.Item{Item: items[i], Size: sizes[i]})
		}
	}
	for _, x := range r.Jobs {
		if x.Slowdown != nil {
			add(compare.JobSlowdown, &x, time.Duration(*x.Slowdown*float64(time.Second)))
		}
		if x.Tasks != nil {
			add(compare.JobTimeOf(*x.Tasks), &x, x.JobTime)
		}
		if x.Bin != nil {
			add(compare.JobTimeIn(*x.Bin), &x, x.JobTime)
		}
	}
	if s := r.Arm(name); s != nil && s.Placement != nil {
		bytes := s.Placement.Bytes()
		a.CrossRack = &bytes
		a.Frames = !r.Simulated()
	}
	return a
}

// doubts returns the checks that did not pass, one per line.
func doubts(a *summary.Arm) []string {
	var out []string
	for k, v := range a.Verdicts {
		for _, c := range v.Checks {
			if c.Level == verdict.Pass {
				continue
			}
			line := fmt.Sprintf("repeat %d: %s is %s: %s", a.Numbers.Of(k), c.Name, c.Level, c.Value)
			if c.Reason != "" {
				line += ": " + c.Reason
			}
			out = append(out, line)
		}
	}
	return out
}
