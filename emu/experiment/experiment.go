// Package experiment runs scenarios: every repeat of every arm, on packets or on
// the fluid model, into a run directory, and reports on run directories from the
// captures in them.
//
// A run directory holds
//
//	scenario.yaml, traces/   what was run, complete: it can be run again
//	manifest.json            when, where and with which limits (Manifest)
//	plan.txt                 how the fabric was built, as ip and tc commands
//	<arm>/<repeat>/          repeats count from 0
//	    captures/<host>.pcapng   what the host's interfaces saw
//	    captures/<switch>.pcapng what left the switch by the links of capture.links
//	    events.jsonl             what the engine was told and decided (engine.Log)
//	    fidelity.json            the verdict and its checks
//	    samples.json             what the verdict was judged by (fidelity.Samples)
//	    failures.json            what faults ended, and why, where there is any
//	    coordinator.json         what the coflow policy's coordinator did (report.Coordinator)
//	    fluid.json               what the fluid model predicted (flows.Records)
//	    notes.txt                drops and other remarks, where there are any
//	tries/<arm>/<repeat>.<try>/  tries whose verdict was no pass, but for their captures
//	report.md, report.html, summary.json, flows.csv, coflows.csv, blocks.csv, breakdown.csv, links.csv, progress.csv
//
// It decides nothing: policies do, and the wire measures.
package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/emu/kernel"
	"testbed/emu/live"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/results/archive"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Options are how a scenario is run, as opposed to what.
type Options struct {
	Out       string // directory in which the run directory is made
	StateRoot string // of emu/deploy
	Version   string // of the tool, for the manifest and captures
	// CheckScale, if it is set, is a factor above 1: every arm runs again with all
	// rates and sizes divided by it, and the report tells whether speed-ups moved.
	CheckScale workloads.Factor
	// Calibration is this machine's, nil without one: links then have the default
	// bucket, and nothing is refused for its load.
	Calibration *calibration.Calibration
	// Force runs also what is predicted to be more than the machine carries.
	Force bool
	// Progress is told where a run is, often; it may be nil and must not wait.
	Progress func(Progress)
	// tamper is how tests of this package make a testbed lie, to see that its verdict
	// catches it.
	tamper tamper
}

// Outcome is a run that ended.
type Outcome struct {
	Dir    string
	Report *report.Report
}

// Level is the worst verdict of any arm and repeat.
func (o *Outcome) Level() verdict.Level {
	worst := verdict.Pass
	for _, a := range o.Report.Summary.Arms {
		if a.Verdict != nil {
			worst = max(worst, *a.Verdict)
		}
	}
	if c := o.Report.Summary.ScaleCheck; c != nil {
		worst = max(worst, c.Worst())
	}
	return worst
}

// run is a scenario being run.
type run struct {
	of     *rundir // the run of which this is the scaled half, or nil
	s      *scenario.Scenario
	o      Options
	fabric *topo.Fabric
	dir    *rundir
	arms   []scenario.Arm
	faults fault.Timeline
	burst  func(units.Rate, units.Bytes) units.Bytes // of links; nil is the default
	last   verdict.Level                             // of the repeat that ended last
}

// CheckPolicy is the check of names and parameters that a scenario is loaded
// with.
func CheckPolicy(role, name string, params map[string]any) error {
	return catalog.Check(catalog.Role(role), name, params)
}

// Simulate runs a scenario on the fluid model.
func Simulate(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	return execute(ctx, s, o, archive.Fluid, nil)
}

// Execute runs a scenario on packets. It needs root.
func Execute(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	return execute(ctx, s, o, archive.Packets, nil)
}

// execute runs a scenario; of is the run of which it is the scaled half, if it is
// one.
func execute(ctx context.Context, s *scenario.Scenario, o Options, backend string, of *rundir) (out *Outcome, err error) {
	half, err := scaledHalf(s, o.CheckScale)
	if err != nil {
		return nil, err
	}
	f, err := s.Shape().Build()
	if err != nil {
		return nil, err
	}
	r := &run{of: of, s: s, o: o, fabric: f, arms: s.ArmList()}
	if backend == archive.Packets { // before there is a run directory
		if err := kernel.CheckNeeds(r.plan(s.RepeatSeed(0))); err != nil {
			return nil, err
		}
	}
	if r.faults, err = timeline(s, f); err != nil {
		return nil, err
	}
	m, err := r.manifest(backend)
	if err != nil {
		return nil, err
	}
	if backend == archive.Packets {
		if err := r.fit(ctx, &m); err != nil {
			return nil, err
		}
	}
	if r.dir, err = r.createDir(m); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.dir.finish(err, ctx.Err() != nil)) }()
	if err := r.describe(); err != nil {
		return nil, err
	}
	in := report.Input{RunID: m.Run, Scenario: m.Scenario, FluidModel: backend == archive.Fluid}
	for _, a := range r.arms {
		in.Arms = append(in.Arms, report.Arm{Name: a.Name})
	}
	for repeat := range s.Spec.Repeat {
		w, notes, err := s.Workload(f, repeat)
		if err != nil {
			return nil, err
		}
		if repeat == 0 {
			r.dir.manifest.Notes = notes
			if in.Manifest, err = settingsOf(r.dir.manifest); err != nil {
				return nil, err
			}
		}
		next := func(i int) (report.Repeat, error) { return r.repeat(ctx, i, repeat, w) }
		if backend == archive.Fluid {
			next = r.atOnce(ctx, repeat, w)
		}
		for i := range r.arms {
			done, err := next(i)
			if err != nil {
				err = fmt.Errorf("arm %s, repeat %d: %w", r.arms[i].Name, repeat, err)
				out, reportErr := r.partial(in, err, repeat, i)
				return out, errors.Join(err, reportErr)
			}
			in.Arms[i].Repeats = append(in.Arms[i].Repeats, done)
		}
	}
	if half != nil {
		if in.Scaled, err = r.checkScale(ctx, half, backend); err != nil {
			out, reportErr := r.partial(in, fmt.Errorf("scaled half: %w", err), s.Spec.Repeat, 0)
			return out, errors.Join(err, reportErr)
		}
	}
	return finish(r.dir.path, in)
}

// finish computes a report and writes it.
func finish(dir string, in report.Input) (*Outcome, error) {
	rep, err := report.New(in)
	if err != nil {
		return nil, err
	}
	if _, err := rep.Write(dir); err != nil {
		return nil, err
	}
	return &Outcome{Dir: dir, Report: rep}, nil
}

// partial is what a run that was cut short in a repeat of an arm still has to
// show: the arms that ended. It is nil where none did; the manifest says so in
// any case.
func (r *run) partial(in report.Input, why error, repeat, arm int) (*Outcome, error) {
	p := &report.Partial{Why: why.Error(), Ended: []string{}, Cut: []string{}, NotBegun: []string{}}
	for k := range r.s.Spec.Repeat {
		for i, a := range r.arms {
			name := fmt.Sprintf("%s/%d", a.Name, k)
			switch {
			case k < repeat || k == repeat && i < arm:
				p.Ended = append(p.Ended, name)
			case k == repeat && i == arm:
				p.Cut = append(p.Cut, name)
			default:
				p.NotBegun = append(p.NotBegun, name)
			}
		}
	}
	in.Partial, r.dir.manifest.Partial = p, p
	in.Arms = slices.DeleteFunc(in.Arms, func(a report.Arm) bool { return len(a.Repeats) == 0 })
	if len(in.Arms) == 0 {
		return nil, nil
	}
	return finish(r.dir.path, in)
}

func (r *run) manifest(backend string) (Manifest, error) {
	now := time.Now()
	fingerprint, err := r.s.Fingerprint()
	if err != nil {
		return Manifest{}, err
	}
	name := r.s.Spec.Name
	if backend == archive.Fluid {
		name += "-sim"
	}
	id, err := newRunID(name, now)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Tool: r.o.Version, Go: runtime.Version(), Kernel: kernelRelease(), CPUs: runtime.NumCPU(), Backend: backend,
		Run: id, Scenario: r.s.Spec.Name, Workload: fingerprint, Seed: r.s.Spec.Seed, Repeats: r.s.Spec.Repeat, Started: now, State: archive.Running}
	if r.of != nil {
		m.Run, m.ScaledBy = r.of.manifest.Run+scaledSuffix, r.of.scaledBy
	}
	for _, a := range r.arms {
		m.Arms = append(m.Arms, a.Name)
	}
	if backend == archive.Packets {
		if m.Settings, err = json.Marshal(live.DefaultSettings(r.fabric)); err != nil {
			return Manifest{}, fmt.Errorf("settings: %w", err)
		}
	}
	return m, nil
}

// describe writes what does not depend on how the run goes.
func (r *run) describe() error {
	for _, f := range r.s.Files() {
		path := filepath.Join(r.dir.path, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.dir.path, "plan.txt"), []byte(r.plan(r.s.RepeatSeed(0)).Text()), 0o644)
}

func (r *run) plan(seed uint64) *plan.Plan {
	return plan.Compile(r.s.Spec.Name, r.fabric, plan.Options{Seed: seed, Burst: r.burst})
}

// repeat runs one repeat of one arm.
func (r *run) repeat(ctx context.Context, arm, repeat int, w workloads.Workload) (report.Repeat, error) {
	dir := repeatDir(r.dir.path, r.arms[arm].Name, repeat)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return report.Repeat{}, err
	}
	p := r.progress(arm, repeat, w)
	asked := r.asked(w)
	p.phase(PhasePredict)
	predicted, err := r.simulate(ctx, arm, repeat, w, "", nil, nil)
	if err != nil {
		return report.Repeat{}, fmt.Errorf("fluid model: %w", err)
	}
	var earlier []verdict.Verdict
	for {
		if err := errors.Join(writeJSON(filepath.Join(dir, "fluid.json"), predicted), writeJSON(filepath.Join(dir, report.AskedFile), asked)); err != nil {
			return report.Repeat{}, err
		}
		p.now.Expected = lastEnd(predicted)
		done, err := r.packets(ctx, arm, repeat, w, dir, p)
		if err != nil {
			return done, err
		}
		r.last = done.Verdict.Level
		p.now.Verdict = r.last
		p.phase(PhaseEnd)
		if r.last == verdict.Pass || len(earlier)+1 >= r.s.Spec.Tries {
			if len(earlier) > 0 {
				done.Verdict.Earlier = earlier
				err = writeJSON(filepath.Join(dir, fidelityFile), done.Verdict)
			}
			return done, err
		}
		earlier = append(earlier, done.Verdict)
		if err := r.setAside(dir, arm, repeat, len(earlier)); err != nil {
			return report.Repeat{}, err
		}
		p = r.progress(arm, repeat, w)
	}
}

// setAside moves what a try has left to a directory of its own, but for its captures,
// which are most of it, and makes room for the next.
func (r *run) setAside(dir string, arm, repeat, try int) error {
	if err := os.RemoveAll(filepath.Join(dir, "captures")); err != nil {
		return err
	}
	to := repeatDir(filepath.Join(r.dir.path, triesDir), r.arms[arm].Name, repeat) + "." + strconv.Itoa(try)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

func lastEnd(rec flows.Records) time.Duration {
	var end time.Duration
	for _, f := range rec.Flows {
		end = max(end, f.End)
	}
	for _, b := range rec.Blocks {
		end = max(end, b.End)
	}
	return end
}

// engine is a new engine for an arm.
func (r *run) engine(arm, repeat int, capacity []units.Rate) (*engine.Engine, error) {
	spec := r.s.Spec
	a := r.arms[arm]
	c, err := catalog.Coflow(a.Coflow.Name, a.Coflow.Params)
	if err != nil {
		return nil, err
	}
	var placer policies.Placer
	if a.Placement.Name != "" {
		if placer, err = catalog.Placement(a.Placement.Name, a.Placement.Params); err != nil {
			return nil, err
		}
	}
	cfg := engine.Config{Fabric: r.fabric, Capacity: capacity, Coflow: c, Placement: placer, Control: engine.Control{Latency: spec.Coordinator.Latency},
		Heartbeat: spec.Heartbeat.Interval, Alpha: spec.Heartbeat.Alpha, Seed: r.s.RepeatSeed(repeat), Stuck: spec.Limits.Stuck}
	if n := spec.Fabric.ZoneRacks; n > 0 {
		for rack := range r.fabric.Racks() {
			cfg.Zone = append(cfg.Zone, rack/n)
		}
	}
	if spec.Disk != nil {
		cfg.DiskRate, cfg.DiskSize = spec.Disk.Write, spec.Disk.Size*units.Bytes(spec.Disk.Count)
	}
	return engine.New(cfg)
}

// asked is what figures need of a workload and no packet shows.
func (r *run) asked(w workloads.Workload) metrics.Asked {
	a := metrics.AskedOf(w)
	a.Heartbeat = r.s.Spec.Heartbeat.Interval
	if d := r.s.Spec.Disk; d != nil {
		a.DiskRate, a.DiskSize = d.Write, d.Size
	}
	return a
}

// simulate runs one repeat of one arm on the fluid model, logs its events where log
// names a file, and reads the loads of links where there is a meter.
func (r *run) simulate(ctx context.Context, arm, repeat int, w workloads.Workload, log string, meter *metrics.Meter, p *progress) (flows.Records, error) {
	e, err := r.engine(arm, repeat, nil)
	if err != nil {
		return flows.Records{}, err
	}
	cfg := fluid.Config{Needs: e.Needs(), Heartbeat: r.s.Spec.Heartbeat.Interval, Faults: r.faults, Detect: r.s.Spec.Heartbeat.Detect(), Silence: r.s.Spec.Heartbeat.Silence(), Convergence: r.s.Spec.Fabric.Convergence}
	if r.s.Spec.Disk != nil {
		cfg.DiskRate, cfg.ReadRate, cfg.Disks = r.s.Spec.Disk.Write, r.s.Spec.Disk.ReadRate(), r.s.Spec.Disk.Count
	}
	cfg.Blind = e.Blind()
	if meter != nil {
		cfg.Carried = func(now time.Duration, bytes []float64) { meter.Read(now-cfg.Heartbeat, bytes) }
	}
	return r.drive(ctx, e, fluid.New(r.fabric, cfg), w, log, false, p)
}

// drive runs an engine on a backend and returns what the engine was told. timed says
// that the time decisions take is part of what is measured.
func (r *run) drive(ctx context.Context, e *engine.Engine, b engine.Backend, w workloads.Workload, log string, timed bool, p *progress) (rec flows.Records, err error) {
	seen := observe(r.fabric)
	watch := &stopwatch{Backend: b, e: e, every: e.Interval()}
	var out io.Writer = io.Discard
	if log != "" {
		file, err := os.Create(log)
		if err != nil {
			return rec, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	events := engine.NewLog(out)
	// What was logged is kept also when the run fails.
	defer func() { err = errors.Join(err, events.Flush()) }()
	err = engine.Run(ctx, e, watch, engine.Arrivals(w), func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		watch.stepped()
		p.at(now, evs)
		if log != "" {
			if err := events.Observe(now, evs, cmds); err != nil {
				return err
			}
		}
		return seen.step(now, evs, cmds)
	})
	if log != "" {
		err = errors.Join(err, writeJSON(filepath.Join(filepath.Dir(log), coordinatorFile), watch.record(timed)))
	}
	if log != "" && len(seen.failures) > 0 {
		r.explain(seen.failures)
		err = errors.Join(err, writeJSON(filepath.Join(filepath.Dir(log), failuresFile), seen.failures))
	}
	return seen.records(), err
}
