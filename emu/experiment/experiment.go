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
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/deploy"
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
	"testbed/results/pcap"
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

// Progress is where a run is.
type Progress struct {
	Arm, Arms       int // from 1
	Repeat, Repeats int // from 1
	Name            string
	Phase           string        // such as "build", "run", "read captures"
	Elapsed         time.Duration // of the arm, on its own clock
	Expected        time.Duration // as the fluid model has it; 0 if unknown
	Coflows, Blocks Count
	Events          int // that the engine was told of in this repeat
	// Read of ReadAll bytes of captures were read; 0 in other phases.
	Read, ReadAll int64
	// Verdict is that of the repeat that ended last; 0 where none has, and in a
	// simulation.
	Verdict verdict.Level
}

// Parts of a repeat on packets, roughly: what the bar takes building and predicting
// for, and where reading captures begins.
const (
	shareOfBuild = 0.05
	shareOfRun   = 0.8
)

// Share is roughly how much of the whole is done, from 0 to 1. A repeat of an arm
// counts as much as any other.
func (p Progress) Share() float64 {
	if p.Arms <= 0 || p.Repeats <= 0 {
		return 0
	}
	work := float64(p.Coflows.Done+p.Blocks.Done) / float64(max(1, p.Coflows.All+p.Blocks.All))
	within := 0.0
	switch p.Phase {
	case PhaseSimulate:
		within = work
	case PhaseRun:
		if p.Expected > 0 {
			work = max(work, min(0.99, float64(p.Elapsed)/float64(p.Expected)))
		}
		within = shareOfBuild + (shareOfRun-shareOfBuild)*work
	case PhaseSettle:
		within = shareOfRun
	case PhaseRead:
		within = shareOfRun
		if p.ReadAll > 0 {
			within += (1 - shareOfRun) * float64(p.Read) / float64(p.ReadAll)
		}
	case PhaseReport:
		if p.ReadAll > 0 {
			within = float64(p.Read) / float64(p.ReadAll)
		}
	case PhaseEnd:
		within = 1
	}
	return min(1, (float64((p.Repeat-1)*p.Arms+p.Arm-1)+within)/float64(p.Arms*p.Repeats))
}

// Phases of a repeat, as in Progress.Phase.
const (
	PhaseSimulate = "simulate"
	PhasePredict  = "predict"
	PhaseBuild    = "build"
	PhaseRun      = "run"
	PhaseSettle   = "settle"
	PhaseRead     = "read captures"
	PhaseReport   = "read captures again" // for a report
	PhaseEnd      = "ended"
)

// Count is how many of how many are done.
type Count struct{ Done, All int }

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
		for i := range r.arms {
			done, err := r.repeat(ctx, backend, i, repeat, w)
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
func (r *run) repeat(ctx context.Context, backend string, arm, repeat int, w workloads.Workload) (report.Repeat, error) {
	dir := repeatDir(r.dir.path, r.arms[arm].Name, repeat)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return report.Repeat{}, err
	}
	p := r.progress(arm, repeat, w)
	asked := r.asked(w)
	if backend == archive.Fluid {
		p.phase(PhaseSimulate)
		if err := writeJSON(filepath.Join(dir, report.AskedFile), asked); err != nil {
			return report.Repeat{}, err
		}
		var meter *metrics.Meter
		if len(asked.Writers) > 0 {
			meter = metrics.NewMeter(r.fabric, asked.Heartbeat)
		}
		rec, err := r.simulate(ctx, arm, repeat, w, filepath.Join(dir, "events.jsonl"), meter, p)
		if err != nil {
			return report.Repeat{}, err
		}
		asked.Join(&rec)
		failures, err := withReasons(dir, rec.Failed)
		if err != nil {
			return report.Repeat{}, err
		}
		c, err := readCoordinator(dir)
		out := report.Repeat{Records: rec, Failures: failures, Coordinator: c}
		if meter != nil {
			out.Placement = &metrics.Placement{CrossRack: metrics.Payload(rec), Disk: metrics.DiskImbalance(r.fabric, rec, asked.DiskSize),
				Balance: meter.Balance(), Bounds: metrics.BoundsOf(r.fabric, rec, asked.DiskRate)}
		}
		return out, err
	}
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

// progress is that of a try of a repeat of an arm.
func (r *run) progress(arm, repeat int, w workloads.Workload) *progress {
	p := &progress{tell: r.o.Progress, now: Progress{Arm: arm + 1, Arms: len(r.arms), Repeat: repeat + 1, Repeats: r.s.Spec.Repeat, Name: r.arms[arm].Name, Verdict: r.last}}
	p.count(w)
	return p
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

// packets runs one repeat of one arm on a testbed of its own.
func (r *run) packets(ctx context.Context, arm, repeat int, w workloads.Workload, dir string, p *progress) (out report.Repeat, err error) {
	spec := r.s.Spec
	if spec.Disk != nil && spec.Disk.Throttle == scenario.KernelThrottle {
		if _, err := kernel.DiskThrottle(); err != nil { // before anything is built
			return out, err
		}
	}
	captures := filepath.Join(dir, "captures")
	if err := os.Mkdir(captures, 0o755); err != nil {
		return out, err
	}
	p.phase(PhaseBuild)
	pl := r.plan(r.s.RepeatSeed(repeat))
	id := fmt.Sprintf("%s.%d.%d", r.dir.manifest.Run, arm+1, repeat+1)
	owned, err := deploy.Create(r.o.StateRoot, deploy.State{ID: id, Kind: deploy.KindRun, Name: spec.Name, Shape: r.s.Shape(), Namespaces: pl.Namespaces()})
	if err != nil {
		return out, err
	}
	clean := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, owned.Remove(clean, kernel.Reaper{})) }()
	disks := filepath.Join(dir, "disks")
	if spec.Disk != nil && spec.Disk.Dir != "" {
		disks = filepath.Join(spec.Disk.Dir, id)
	}
	if err := owned.AddDirectory(disks); err != nil {
		return out, err
	}
	x := kernel.NewExecutor(owned.PinDir())
	defer func() { err = errors.Join(err, x.Close()) }()
	d, err := deploy.Apply(ctx, pl, x)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, d.Destroy(clean)) }()
	if err := deploy.Verify(ctx, pl, x); err != nil {
		return out, err
	}
	if err := owned.SetReady(); err != nil {
		return out, err
	}
	number := fnv.New64a()
	fmt.Fprint(number, id)
	shape := r.s.Shape()
	links, err := r.s.CapturedLinks(r.fabric)
	if err != nil {
		return out, err
	}
	e, err := r.engine(arm, repeat, live.Capacity(r.fabric))
	if err != nil {
		return out, err
	}
	cfg := live.Config{Fabric: r.fabric, Pins: owned.PinDir(), Captures: captures, Links: links, Snaplen: spec.Capture.Snaplen, Ring: max(spec.Capture.Ring, leastRing),
		Meta: pcap.Meta{Tool: "testbed", Version: r.o.Version, RunID: r.dir.manifest.Run, Run: number.Sum64(), Arm: r.arms[arm].Name, ArmIndex: arm,
			Repeat: repeat, Scenario: spec.Name, Workload: r.dir.manifest.Workload, Seed: r.s.RepeatSeed(repeat),
			Policies: r.arms[arm].Policies(), Holds: catalog.Holds(r.arms[arm].Coflow.Name), Fabric: &shape},
		Disks: disks, Needs: e.Needs(), Heartbeat: spec.Heartbeat.Interval, Seed: r.s.RepeatSeed(repeat), Congestion: spec.Fabric.CongestionControl, Settings: live.DefaultSettings(r.fabric),
		Burst: r.burst, Faults: r.faults, Detect: spec.Heartbeat.Detect(), Silence: spec.Heartbeat.Silence(), Convergence: spec.Fabric.Convergence}
	if spec.Disk != nil && len(w.Writers) > 0 {
		cfg.DiskRead = spec.Disk.ReadRate()
		cfg.DiskRates, cfg.DiskCount, cfg.DiskSize = slices.Repeat([]units.Rate{spec.Disk.Write}, r.fabric.Hosts()), spec.Disk.Count, spec.Disk.Size
	}
	if len(cfg.DiskRates) > 0 && spec.Disk.Throttle == scenario.KernelThrottle {
		if cfg.Kernel, err = kernelDisks(ctx, owned, id, disks, r.fabric, *spec.Disk); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, cfg.Kernel.Close()) }()
	}
	stated := slices.Clone(cfg.DiskRates)
	if err := r.o.tamper.config(&cfg, owned.PinDir()); err != nil {
		return out, err
	}
	b, err := live.Start(ctx, cfg)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	p.phase(PhaseRun)
	limited, cancel := context.WithTimeoutCause(ctx, spec.Limits.Duration, fmt.Errorf("limits.duration of %v is over", spec.Limits.Duration))
	defer cancel()
	seen, err := r.drive(limited, e, r.o.tamper.backend(b), w, filepath.Join(dir, "events.jsonl"), true, p)
	if err != nil {
		return out, err
	}
	p.phase(PhaseSettle)
	measured, err := b.Finish(ctx)
	if err != nil {
		return out, err
	}
	measured.Notes = append(measured.Notes, d.Notes()...)
	if cfg.Kernel != nil {
		measured.Notes = append(measured.Notes, fmt.Sprintf("disks are throttled by the kernel (%s)", cfg.Kernel.Kind()))
		if len(w.Readers) > 0 {
			measured.Notes = append(measured.Notes, "reads of disks are throttled by a token bucket of the program, not by the kernel")
		}
	}
	if measured.Machine.Testbeds, err = others(r.o.StateRoot, id); err != nil {
		return out, err
	}
	for h := range measured.Disks {
		measured.Disks[h].Rate = stated[h/spec.Disk.Count]
	}
	p.phase(PhaseRead)
	if err := r.o.tamper.captures(captures, seen); err != nil {
		return out, err
	}
	if cfg.NoCapture {
		return report.Repeat{Records: seen, Verdict: verdict.Missing("nothing was captured")}, nil
	}
	return judge(ctx, dir, r.fabric, pl, seen, measured, p.reading(captures))
}

// leastRing is four of the blocks in which the kernel hands over what it captured.
const leastRing = 512 * units.KiB

// progress keeps and tells Progress. A nil progress tells nobody.
type progress struct {
	tell func(Progress)
	now  Progress
	left map[workloads.CoflowID]int
	of   map[workloads.FlowID]workloads.CoflowID
}

func (p *progress) count(w workloads.Workload) {
	p.left, p.of = map[workloads.CoflowID]int{}, map[workloads.FlowID]workloads.CoflowID{}
	p.now.Coflows.All = len(w.Coflows)
	for _, wr := range w.Writers {
		p.now.Blocks.All += len(wr.Blocks)
	}
}

func (p *progress) phase(name string) {
	p.now.Phase = name
	if p.tell != nil {
		p.tell(p.now)
	}
}

// reading tells how much of the captures under some directories is read, as a
// flows.Options.Read. It is called from several goroutines. It is nil where nobody
// is to be told.
func (p *progress) reading(dirs ...string) func(n int64) {
	if p == nil || p.tell == nil {
		return nil
	}
	var all int64
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // whoever reads them says so
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), flows.Suffix) {
				all += info.Size()
			}
		}
	}
	p.now.Read, p.now.ReadAll = 0, all
	var mu sync.Mutex
	return func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		p.now.Read = min(p.now.Read+n, all)
		p.tell(p.now)
	}
}

func (p *progress) at(now time.Duration, evs []engine.Event) {
	if p == nil {
		return
	}
	p.now.Elapsed = now
	p.now.Events += len(evs)
	for _, ev := range evs {
		switch ev := ev.(type) {
		case engine.CoflowArrived:
			p.left[ev.Coflow.ID] = len(ev.Coflow.Flows)
			for _, f := range ev.Coflow.Flows {
				p.of[f.ID] = ev.Coflow.ID
			}
		case engine.TransferFinished:
			if c, known := p.of[ev.Flow]; known && p.left[c] > 0 { // it may have been given up before, or be a read
				if p.left[c]--; p.left[c] == 0 {
					p.now.Coflows.Done++
				}
			}
		case engine.BlockDurable:
			p.now.Blocks.Done++
		}
	}
	if p.tell != nil {
		p.tell(p.now)
	}
}
