// Package runner runs scenarios: every repeat of every arm, on packets or on
// the fluid model, into a run directory, and reports on run directories from the
// captures in them.
//
// A run directory holds
//
//	scenario.yaml, traces/   complete input of the run, which can be run again
//	manifest.json            time, machine and limits of the run, SHA-256 sums of all other files (Manifest)
//	plan.txt                 construction of the fabric, as ip and tc commands
//	<arm>/<repeat>/          repeats count from 0
//	    captures/<host>.pcapng.zst   packets on the interfaces of the host
//	    captures/<switch>.pcapng.zst packets that left the switch on the links of capture.links
//	    events.jsonl             events and decisions of the engine (engine.Log)
//	    fidelity.json            the verdict and its checks
//	    samples.json             input of the verdict (fidelity.Samples)
//	    queues.json              packets dropped by the queues of links (metrics.Queues)
//	    failures.json            failed transfers and the reasons, if any
//	    coordinator.json         statistics of the coflow policy's coordinator (report.Coordinator)
//	    fluid.json               prediction of the fluid model (flows.Records)
//	    notes.txt                drops and other remarks, if any
//	tries/<arm>/<repeat>.<n>/    earlier attempts whose verdict was not pass, without captures
//	report.md, report.html, summary.json, flows.csv, coflows.csv, blocks.csv, breakdown.csv, links.csv, drops.csv, progress.csv
//
// The package makes no decisions: policies decide, and captures measure.
package runner

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
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Options are the settings of a run that are not part of the scenario.
type Options struct {
	Out       string // parent of the run directory
	StateRoot string // of emu/deploy
	Version   string // of the tool, for the manifest and captures
	// CheckScale is a factor above 1, or zero for none: every arm runs again with all
	// rates and sizes divided by it, and the report compares the speed-ups.
	CheckScale workloads.Factor
	// Calibration is the calibration of this machine, or nil. Without it, links have the default
	// bucket, and loads are predicted by PacketCost.
	Calibration *calibration.Calibration
	// Captures is what happens to captures once their figures are computed; the zero value
	// compresses them.
	Captures Captures
	// Force also runs scenarios whose predicted load exceeds the capacity of the machine.
	Force bool
	// WarnLoad is the share of the machine's capacity above which a run warns; 0
	// stands for DefaultWarnLoad.
	WarnLoad float64
	// Warn is called with warnings; it may be nil.
	Warn func(string)
	// Progress is called often with the state of a run; it may be nil and must not block.
	Progress func(Progress)
	// tamper lets tests of this package falsify parts of a run, to check that the verdict
	// detects it.
	tamper tamper
}

// Outcome is the result of a run.
type Outcome struct {
	Dir    string // to which the report was written; "" if it was not (see ReportOptions)
	Report *report.Report
	// Changes are the files of the run directory that are no longer what the run wrote.
	Changes []rundir.Change
}

// Level returns the worst verdict of all arms and repeats.
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

// run is the run of a scenario.
type run struct {
	of     *runDir // the run whose scaled half this is, or nil
	s      *scenario.Scenario
	o      Options
	fabric *topo.Fabric
	dir    *runDir
	arms   []scenario.Arm
	faults fault.Timeline
	burst  func(units.Rate, units.Bytes) units.Bytes // of links; nil is the default
	last   verdict.Level                             // of the latest repeat
	// predicted are the records of the fluid model for repeat 0, by arm, if they were
	// computed before the run.
	predicted []flows.Records
	jobsOnly  bool // scenario.Fluid.JobsOnly, of a simulation
	idle      bool // a job runs alone: no attempt straggles
}

// Simulate runs a scenario on the fluid model.
func Simulate(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	return execute(ctx, s, o, rundir.Fluid, nil)
}

// Execute runs a scenario on packets. It needs root.
func Execute(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	return execute(ctx, s, o, rundir.Packets, nil)
}

// sameFabric refuses arms that set keys: a run has one fabric and one configuration for all arms.
func sameFabric(s *scenario.Scenario) error {
	if keys := s.SetKeys(); len(keys) > 0 {
		return fmt.Errorf("run scenario %s: its arms set %v, and a run has the same values in all arms: write one scenario for each value", s.Spec.Name, keys)
	}
	return nil
}

// execute runs a scenario. of is the run whose scaled half it is, or nil.
func execute(ctx context.Context, s *scenario.Scenario, o Options, backend string, of *runDir) (out *Outcome, err error) {
	if err := sameFabric(s); err != nil {
		return nil, err
	}
	half, err := scaledHalf(s, o.CheckScale)
	if err != nil {
		return nil, err
	}
	f, err := s.Shape().Build()
	if err != nil {
		return nil, err
	}
	r := &run{of: of, s: s, o: o, fabric: f, arms: s.ArmList(), jobsOnly: backend == rundir.Fluid && s.Spec.Fluid.JobsOnly}
	if backend == rundir.Packets { // before the run directory exists
		if err := kernel.CheckResources("scenario "+s.Spec.Name, resources(s, f, nil)); err != nil {
			return nil, err
		}
		if err := refusal(machineOfRun(s, r.plan(s.RepeatSeed(0))).Missing); err != nil {
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
	if backend == rundir.Packets {
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
	in := report.Input{RunID: m.Run, Scenario: m.Scenario, FluidModel: backend == rundir.Fluid, Noise: m.Noise}
	for _, a := range r.arms {
		in.Arms = append(in.Arms, report.Arm{Name: a.Name})
	}
	for repeat := range s.Spec.Repeat {
		w, notes, err := r.work(repeat)
		if err != nil {
			return nil, err
		}
		var unknown string
		if w.lone, unknown, err = r.alone(ctx, repeat, w); err != nil {
			return nil, err
		}
		if repeat == 0 {
			if unknown != "" {
				notes = append(notes, unknown)
			}
			r.dir.manifest.Notes = notes
			if in.Manifest, err = settingsOf(r.dir.manifest); err != nil {
				return nil, err
			}
		}
		next := func(i int) (report.Repeat, error) { return r.repeat(ctx, i, repeat, w) }
		if backend == rundir.Fluid {
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
			if backend == rundir.Packets { // simulations of other arms are still writing
				if err := r.dir.seal(); err != nil {
					return nil, err
				}
			}
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

// finish computes and writes a report.
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

// partial reports on a run that was cut short in a repeat of an arm: on the arms that
// ended. It returns nil if none did. The manifest states the cut in any case.
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
	if backend == rundir.Fluid {
		name += "-sim"
	}
	id, err := newRunID(name, now)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Tool: r.o.Version, Go: runtime.Version(), Kernel: kernelRelease(), CPUs: runtime.NumCPU(), Backend: backend,
		Run: id, Scenario: r.s.Spec.Name, Workload: fingerprint, Seed: r.s.Spec.Seed, Repeats: r.s.Spec.Repeat, Started: now, State: rundir.Running}
	if r.of != nil {
		m.Run, m.ScaledBy = r.of.manifest.Run+scaledSuffix, r.of.scaledBy
	}
	for _, a := range r.arms {
		m.Arms = append(m.Arms, a.Name)
	}
	if backend == rundir.Packets {
		m.Captures = string(r.o.Captures)
		if m.Captures == "" {
			m.Captures = string(CompressCaptures)
		}
		if m.Settings, err = json.Marshal(r.settings()); err != nil {
			return Manifest{}, fmt.Errorf("settings: %w", err)
		}
		if c := r.o.Calibration; c != nil && c.Noise != nil {
			m.Noise = &c.Noise.Noise
		}
	}
	return m, nil
}

// describe writes the files that are known before the run: its input and its plan.
func (r *run) describe() error {
	for _, f := range r.s.Files() {
		path := filepath.Join(r.dir.path, filepath.FromSlash(f.Name))
		if err := safefile.MkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		if err := safefile.WriteData(path, f.Data); err != nil {
			return err
		}
	}
	return safefile.WriteData(filepath.Join(r.dir.path, "plan.txt"), []byte(r.plan(r.s.RepeatSeed(0)).Text()))
}

func (r *run) plan(seed uint64) *plan.Plan {
	return Plan(r.s.Spec.Name, r.s, r.fabric, seed, r.burst)
}

// repeat runs one repeat of one arm.
func (r *run) repeat(ctx context.Context, arm, repeat int, w work) (report.Repeat, error) {
	dir := repeatDir(r.dir.path, r.arms[arm].Name, repeat)
	if err := safefile.MkdirAll(dir); err != nil {
		return report.Repeat{}, err
	}
	p := r.progress(arm, repeat, w)
	meta := r.workloadMeta(w)
	p.phase(PhasePredict)
	predicted, err := r.predict(ctx, arm, repeat, w)
	if err != nil {
		return report.Repeat{}, fmt.Errorf("fluid model: %w", err)
	}
	var earlier []verdict.Verdict
	for {
		if err := errors.Join(writeJSON(filepath.Join(dir, "fluid.json"), predicted), writeJSON(filepath.Join(dir, report.AskedFile), meta)); err != nil {
			return report.Repeat{}, err
		}
		p.now.Expected = lastEnd(predicted)
		done, err := r.packets(ctx, arm, repeat, w, dir, p)
		if err != nil {
			return done, err
		}
		r.last = done.Verdict.Level
		p.now.Verdict = r.last
		accepted := r.last == verdict.Pass || len(earlier)+1 >= r.s.Spec.Tries
		if accepted && r.o.Captures != KeepCaptures {
			p.phase(PhaseStore)
			r.storeCaptures(ctx, dir)
		}
		p.phase(PhaseEnd)
		if accepted {
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

// predict returns the records of a repeat of an arm on the fluid model.
func (r *run) predict(ctx context.Context, arm, repeat int, w work) (flows.Records, error) {
	if repeat == 0 && arm < len(r.predicted) {
		return r.predicted[arm], nil
	}
	return r.simulate(ctx, arm, repeat, w, "", nil, nil, nil)
}

// setAside moves the files of an attempt to a directory of its own and empties dir for the next
// attempt. It deletes the captures, which take most of the space.
func (r *run) setAside(dir string, arm, repeat, attempt int) error {
	if err := os.RemoveAll(filepath.Join(dir, capturesDir)); err != nil {
		return err
	}
	to := repeatDir(filepath.Join(r.dir.path, triesDir), r.arms[arm].Name, repeat) + "." + strconv.Itoa(attempt)
	if err := safefile.MkdirAll(filepath.Dir(to)); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return safefile.Mkdir(dir)
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

// engine returns a new engine for an arm.
func (r *run) engine(arm, repeat int, w work) (*engine.Engine, error) {
	spec := r.s.Spec
	named := r.arms[arm].Policies
	c, err := catalog.Coflow(named[catalog.RoleCoflow].Name, named[catalog.RoleCoflow].Params)
	if err != nil {
		return nil, err
	}
	var placer policies.Placer
	if p, ok := named[catalog.RolePlacement]; ok {
		if placer, err = catalog.Placement(p.Name, p.Params); err != nil {
			return nil, err
		}
	}
	tasks, err := r.taskConfig(arm, w)
	if err != nil {
		return nil, err
	}
	cfg := engine.Config{Fabric: r.fabric, Capacity: plan.PayloadCapacity(r.fabric), Coflow: c, Placement: placer, Control: engine.Control{Latency: spec.Coordinator.Latency},
		Heartbeat: spec.Heartbeat.Interval, Phases: r.phases(repeat), Alpha: spec.Heartbeat.Alpha, Tasks: tasks, Zone: r.zones(), IDs: w.NextIDs(), Seed: r.s.RepeatSeed(repeat), Stuck: spec.Limits.Stuck}
	if spec.Disk != nil {
		cfg.DiskRate, cfg.DiskSize = spec.Disk.Write, spec.Disk.HostSize()
	}
	return engine.New(cfg)
}

// phases returns when hosts and leaves report in a repeat.
func (r *run) phases(repeat int) *engine.Phases {
	if r.s.Spec.Heartbeat.Phase == scenario.Together {
		return nil
	}
	return engine.RandomPhases(r.fabric, r.s.Spec.Heartbeat.Interval, r.s.RepeatSeed(repeat))
}

// workloadMeta returns the facts about a workload that results need and captures do not contain.
func (r *run) workloadMeta(w work) metrics.WorkloadMeta {
	a := metrics.WorkloadMetaOf(w.Workload, w.tasks)
	for i := range a.TaskJobs {
		a.TaskJobs[i].Lone = w.lone[a.TaskJobs[i].Job]
	}
	a.Heartbeat = r.s.Spec.Heartbeat.Interval
	if d := r.s.Spec.Disk; d != nil {
		a.DiskRate, a.DiskSize = d.Write, d.HostSize()
	}
	if t := r.s.Spec.Tasks; len(w.tasks) > 0 {
		a.Slots = &metrics.TaskSlots{Hosts: r.fabric.Hosts(), Map: t.MapSlots, Reduce: t.ReduceSlots}
	}
	return a
}

// simulate runs one repeat of one arm on the fluid model. It logs events if log names a file,
// meters the loads of links if meter is not nil, and counts their packets if c is not nil.
func (r *run) simulate(ctx context.Context, arm, repeat int, w work, log string, meter *metrics.Meter, c *carried, p *progress) (flows.Records, error) {
	e, err := r.engine(arm, repeat, w)
	if err != nil {
		return flows.Records{}, err
	}
	cfg := fluid.Config{Payload: func(rate units.Rate) units.Rate { return plan.Payload(rate, r.fabric.Shape().MTU) }, Needs: e.Needs(), Heartbeat: r.s.Spec.Heartbeat.Interval, Phases: r.phases(repeat), ActsOnReport: e.ActsOnReport,
		Faults: r.faults, Detect: r.s.Spec.Heartbeat.Detect(), Silence: r.s.Spec.Heartbeat.Silence(), Convergence: r.s.Spec.Fabric.Convergence}
	if r.s.Spec.Disk != nil {
		cfg.DiskRate, cfg.ReadRate, cfg.Disks = r.s.Spec.Disk.Write, r.s.Spec.Disk.ReadRate(), r.s.Spec.Disk.Count
	}
	cfg.IgnoresProgress, cfg.Stored, cfg.Resolution = e.IgnoresProgress(), w.stored, r.s.Spec.Fluid.Resolution
	if meter != nil {
		cfg.Carried = func(now time.Duration, bytes []float64) { meter.Read(now-cfg.Heartbeat, bytes) }
	}
	if c != nil {
		cfg.Sent = c.sent
	}
	b := fluid.New(r.fabric, cfg)
	defer b.Settle()
	return r.drive(ctx, e, b, w, log, false, p)
}

// drive runs an engine on a backend and returns the completions that the engine observed. timed
// includes the times of decisions in the record of the coordinator.
func (r *run) drive(ctx context.Context, e *engine.Engine, b engine.Backend, w work, log string, timed bool, p *progress) (rec flows.Records, err error) {
	seen := observe(r.fabric, r.jobsOnly)
	watch := &stopwatch{Backend: b, e: e, every: e.Interval()}
	var out io.Writer = io.Discard
	logs := log != "" && !r.jobsOnly
	if logs {
		file, err := safefile.Create(log)
		if err != nil {
			return rec, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	events := engine.NewLog(out)
	// The log is kept even if the run fails.
	defer func() { err = errors.Join(err, events.Flush()) }()
	err = engine.Run(ctx, e, watch, w.arrivals(), func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		watch.stepped()
		p.at(now, evs, cmds)
		if logs {
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
