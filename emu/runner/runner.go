// Package runner runs scenarios: every repeat of every arm, on packets or on
// the fluid model, into a run directory, and reports on run directories from the
// captures in them.
//
// A run directory holds
//
//	scenario.yaml, traces/   complete input of the run, which can be run again
//	manifest.json            time, machine and limits of the run, SHA-256 sums of all other files (Manifest)
//	plan.txt                 construction of the fabric, as ip and tc commands; <arm>/plan.txt of an arm with another one
//	<arm>/<repeat>/          a trial; repeats count from 0
//	    captures/<host>.pcapng.zst   packets on the interfaces of the host
//	    captures/<switch>.pcapng.zst packets that left the switch on the links of capture.links
//	    events.jsonl             events and decisions of the engine (engine.Log)
//	    fidelity.json            the verdict and its checks
//	    measured.json            input of the verdict (fidelity.Samples)
//	    samples.parquet          queues, counters and connections over time (results/samples), the other input
//	    queues.json              packets dropped by the queues of links (metrics.Queues)
//	    failures.json            failed transfers and the reasons, if any
//	    coordinator.json         statistics of the coflow policy's coordinator (summary.Coordinator)
//	    fluid.json               prediction of the fluid model (flows.Records)
//	    notes.txt                drops and other remarks, if any
//	    figures.jsonl.zst        what reports need of the trial, computed when it ended
//	    trial.json               key and origin of the trial (rundir.Trial); written last: a trial without it has not ended
//	tries/<arm>/<repeat>.<n>/    earlier attempts whose verdict was not pass, without captures
//	report.md, report.html, summary.json, flows.csv, coflows.csv, blocks.csv, breakdown.csv, links.csv, drops.csv, progress.csv
//
// The package makes no decisions: policies decide, and captures measure.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/engine"
	"testbed/emu/fluid"
	"testbed/emu/guest"
	"testbed/emu/kernel"
	"testbed/emu/outside"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/results/verdict"
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
	// Virtual is what trials in virtual time need.
	Virtual VirtualOptions
	// Force also runs scenarios whose predicted load exceeds the capacity of the machine.
	Force bool
	// WarnLoad is the share of the machine's capacity above which a run warns; 0
	// stands for DefaultWarnLoad.
	WarnLoad float64
	// Warn is called with warnings; it may be nil.
	Warn func(string)
	// Progress is called often with the state of a run; it may be nil and must not block.
	Progress func(Progress)
	// Choice chooses trials, by default all.
	Choice Choice
	// forked returns, in a guest, the place of the arm that its trial is from the fork on; nil elsewhere.
	forked func() (int, error)
	// timeless is set in a guest in which processing takes no time.
	timeless bool
	modules  *outside.Modules // of all trials
	resume   string           // the directory of a run to go on with; "" for a new one
	// tamper lets tests of this package falsify parts of a run, to check that the verdict
	// detects it.
	tamper tamper
}

// Outcome is the result of a run.
type Outcome struct {
	Dir    string         // to which the report was written; "" if it was not (see ReportOptions)
	Report *report.Report // nil for a sweep
	Sweep  *report.Sweep  // nil without a sweep
	// Changes are the files of the run directory that are no longer what the run wrote.
	Changes []rundir.Change
}

// Level returns the worst verdict of all arms and repeats, of all points.
func (o *Outcome) Level() verdict.Level {
	if o.Sweep == nil {
		return levelOf(&o.Report.Summary)
	}
	worst := verdict.Pass
	for _, p := range o.Sweep.Points {
		worst = max(worst, levelOf(p.Summary))
	}
	return worst
}

func levelOf(s *summary.Run) verdict.Level {
	worst := verdict.Pass
	for _, a := range s.Arms {
		if a.Verdict != nil {
			worst = max(worst, *a.Verdict)
		}
	}
	if c := s.ScaleCheck; c != nil {
		worst = max(worst, c.Worst())
	}
	return worst
}

// Simulate runs a scenario on the fluid model.
func Simulate(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	return execute(ctx, s, o, rundir.Fluid)
}

// Execute runs a scenario on packets. It needs root, or in virtual time what CheckVirtual looks for.
func Execute(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	return execute(ctx, s, o, BackendOf(s))
}

// BackendOf returns the backend on which Execute runs a scenario.
func BackendOf(s *scenario.Scenario) string {
	if s.Spec.Time == scenario.VirtualTime {
		return rundir.Virtual
	}
	return rundir.Packets
}

// prepare refuses a run before it has a directory.
func (r *run) prepare(ctx context.Context) error {
	if r.backend == rundir.Packets {
		var m Machine
		for _, a := range r.arms {
			if err := kernel.CheckResources("scenario "+r.s.Spec.Name, resources(a.s, a.fabric, nil)); err != nil {
				return err
			}
			m.add(machineOfRun(a.s, a.plan(0)))
		}
		if err := refusal(m.Missing); err != nil {
			return err
		}
	}
	if err := r.describe(ctx); err != nil || r.backend == rundir.Fluid {
		return err
	}
	if r.backend == rundir.Virtual {
		if err := r.findVirtual(ctx); err != nil {
			return err
		}
	}
	return r.fit(ctx)
}

// execute runs a trial, and keeps its figures in memory and in its directory. Its last file is rundir.TrialFile.
func (t *trial) execute(ctx context.Context, p Progress, progressed func(Progress)) error {
	begun := time.Now()
	w, err := t.of.timed(ctx, t.repeat)
	if err != nil {
		return err
	}
	t = t.arm.trial(t.repeat, w)
	if err := safefile.MkdirAll(t.path()); err != nil {
		return err
	}
	if t.of.backend == rundir.Virtual && !guest.Inside() {
		rep, err := t.inGuest(ctx, t.progress(p, progressed))
		if err != nil {
			return err
		}
		return t.of.keep(t, *rep)
	}
	run := t.measured
	if t.of.backend == rundir.Fluid {
		run = t.simulated
	}
	rep, err := run(ctx, t.progress(p, progressed))
	if err == nil && t.of.o.forked != nil {
		t, err = t.become(ctx)
	}
	if err != nil {
		return err
	}
	m := &t.of.manifest
	of := rundir.Trial{Arm: t.Name, Repeat: t.repeat, Seed: t.seed(), Tool: m.Tool}
	if t.of.backend != rundir.Fluid { // equal simulations leave equal files
		of.Verdict, of.Run, of.Machine, of.Kernel, of.CPUs = &rep.Verdict.Level, m.Run, calibration.MachineID(), m.Kernel, m.CPUs
		of.Calibration, of.Began, of.Ended = m.Calibration, begun, begun.Add(time.Since(begun))
	}
	if of.Key, err = t.key(); err != nil {
		return err
	}
	if err := errors.Join(writeFigures(t.file(figuresFile), rep), writeJSON(t.file(rundir.TrialFile), of)); err != nil {
		return err
	}
	return t.of.keep(t, rep)
}

// measured runs a trial on packets, and repeats it while its verdict is not pass, as the scenario says.
func (t *trial) measured(ctx context.Context, p *progress) (summary.Repeat, error) {
	p.phase(PhasePredict)
	predicted := t.predicted
	if predicted == nil || t.repeat > 0 {
		rec, err := t.simulate(ctx, "", nil, nil, nil)
		if err != nil {
			return summary.Repeat{}, fmt.Errorf("fluid model: %w", err)
		}
		predicted = &rec
	}
	var earlier []verdict.Verdict
	for {
		if err := errors.Join(writeJSON(t.file(fluidFile), predicted), writeJSON(t.file(summary.AskedFile), t.workloadMeta())); err != nil {
			return summary.Repeat{}, err
		}
		p.now.Expected = lastEnd(*predicted)
		done, err := t.packets(ctx, p)
		if err != nil {
			return done, err
		}
		t.of.last = done.Verdict.Level
		p.now.Verdict = t.of.last
		accepted := t.of.last == verdict.Pass || len(earlier)+1 >= t.attempts()
		if accepted && t.of.o.Captures != KeepCaptures {
			p.phase(PhaseStore)
			storeCaptures(ctx, t.path(), t.of.o)
		}
		p.phase(PhaseEnd)
		if accepted {
			if len(earlier) > 0 {
				done.Verdict.Earlier = earlier
				err = writeJSON(t.file(fidelityFile), done.Verdict)
			}
			return done, err
		}
		earlier = append(earlier, done.Verdict)
		if err := t.setAside(len(earlier)); err != nil {
			return summary.Repeat{}, err
		}
		p = p.again(t)
	}
}

// attempts returns the most attempts at the trial. In virtual time nothing disturbs one that leaves another undisturbed.
func (t *trial) attempts() int {
	if t.of.backend == rundir.Virtual {
		return 1
	}
	return t.s.Spec.Tries
}

// setAside moves the files of an attempt to a directory of its own and empties dir for the next
// attempt. It deletes the captures, which take most of the space.
func (t *trial) setAside(attempt int) error {
	dir := t.path()
	if err := os.RemoveAll(filepath.Join(dir, capturesDir)); err != nil {
		return err
	}
	to := repeatDir(filepath.Join(t.of.path, triesDir), t.Name, t.repeat) + "." + strconv.Itoa(attempt)
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

// engine returns a new engine for an arm. With a fork, after returns the place of the arm whose policy decides from
// then on. open begins the conversation with each policy outside of the program.
func (t *trial) engine(after func() (int, error), open func(*external.Policy) error) (*engine.Engine, error) {
	spec := t.s.Spec
	named := t.Policies
	fork, err := t.fork(after)
	if err != nil {
		return nil, err
	}
	if fork != nil {
		named = t.of.arms[0].Policies
	}
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
	tasks, err := t.taskConfig()
	if err != nil {
		return nil, err
	}
	decide, names := map[string]any{catalog.RoleCoflow: c, catalog.RolePlacement: placer}, map[string]string{}
	if tasks != nil {
		decide[catalog.RoleTask] = tasks.Scheduler
	}
	for _, role := range []string{catalog.RoleCoflow, catalog.RolePlacement, catalog.RoleTask} {
		names[role] = role + " policy " + named[role].Name
		if outside := external.Of(decide[role]); outside != nil {
			names[role] = outside.String()
			if err := open(outside); err != nil {
				return nil, err
			}
		}
	}
	cfg := engine.Config{Fabric: t.fabric, Capacity: plan.PayloadCapacity(t.fabric), Coflow: c, Fork: fork,
		Placement: placer, Control: engine.Control{Latency: spec.Coordinator.Latency},
		Heartbeat: spec.Heartbeat.Interval, Phases: t.phases(), Alpha: spec.Heartbeat.Alpha, Tasks: tasks, Names: names, Zone: zones(t.s, t.fabric), IDs: t.NextIDs(), Seed: t.seed(), Stuck: spec.Limits.Stuck}
	if spec.Disk != nil {
		cfg.DiskRate, cfg.DiskSize = spec.Disk.Write, spec.Disk.HostSize()
	}
	if t.observe != nil {
		t.observe(&cfg)
	}
	return engine.New(cfg)
}

// phases returns when hosts and leaves report in a repeat.
func (t *trial) phases() *engine.Phases {
	if t.s.Spec.Heartbeat.Phase == scenario.Together {
		return nil
	}
	return engine.RandomPhases(t.fabric, t.s.Spec.Heartbeat.Interval, t.seed())
}

// workloadMeta returns the facts about a workload that results need and captures do not contain.
func (t *trial) workloadMeta() metrics.WorkloadMeta {
	a := metrics.WorkloadMetaOf(t.Workload, t.tasks)
	for i := range a.TaskJobs {
		a.TaskJobs[i].Lone = t.lone[a.TaskJobs[i].Job]
	}
	a.Heartbeat = t.s.Spec.Heartbeat.Interval
	if d := t.s.Spec.Disk; d != nil {
		a.DiskRate, a.DiskSize = d.Write, d.HostSize()
	}
	if s := t.s.Spec.Tasks; len(t.tasks) > 0 {
		a.Slots = &metrics.TaskSlots{Hosts: t.fabric.Hosts(), Map: s.MapSlots, Reduce: s.ReduceSlots}
	}
	return a
}

// simulate runs one repeat of one arm on the fluid model. It logs events if log names a file,
// meters the loads of links if meter is not nil, and calls sent, unless it is nil, as fluid.Config.Sent.
func (t *trial) simulate(ctx context.Context, log string, meter *metrics.Meter, sent func(time.Duration, []float64),
	p *progress) (rec flows.Records, err error) {
	talk := conversations{t: t, log: log}
	defer func() { err = errors.Join(err, talk.close()) }()
	e, err := t.engine(t.itself, talk.open)
	if err != nil {
		return flows.Records{}, err
	}
	cfg := fluid.Config{Payload: func(rate units.Rate) units.Rate { return plan.Payload(rate, t.fabric.Shape().MTU) }, Needs: e.Needs(), Heartbeat: t.s.Spec.Heartbeat.Interval, Phases: t.phases(), ActsOnReport: e.ActsOnReport,
		Faults: t.faults, Detect: t.s.Spec.Heartbeat.Detect(), Silence: t.s.Spec.Heartbeat.Silence(), Convergence: t.s.Spec.Fabric.Convergence}
	if t.s.Spec.Disk != nil {
		cfg.DiskRate, cfg.ReadRate, cfg.Disks = t.s.Spec.Disk.Write, t.s.Spec.Disk.ReadRate(), t.s.Spec.Disk.Count
	}
	cfg.Stored, cfg.Resolution = t.stored, t.s.Spec.Fluid.Resolution
	if meter != nil {
		cfg.Carried = func(now time.Duration, bytes []float64) { meter.Read(now-cfg.Heartbeat, bytes) }
	}
	cfg.Sent = sent
	b := fluid.New(t.fabric, cfg)
	defer b.Settle()
	return t.drive(ctx, e, b, log, false, p)
}

// drive runs an engine on a backend and returns the completions that the engine observed. timed
// includes the times of decisions in the record of the coordinator.
func (t *trial) drive(ctx context.Context, e *engine.Engine, b engine.Backend, log string, timed bool, p *progress) (rec flows.Records, err error) {
	seen := observe(t.fabric, t.jobsOnly())
	watch := &stopwatch{Backend: b, e: e}
	var out io.Writer = io.Discard
	logs := log != "" && !t.jobsOnly()
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
	err = engine.Run(ctx, e, watch, t.arrivals(), func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		watch.stepped()
		p.at(now, evs, cmds)
		if logs {
			if err := events.Observe(now, evs, cmds); err != nil {
				return err
			}
		}
		return seen.step(now, evs, cmds)
	})
	if passed, _ := e.Forked(); err == nil && t.s.Spec.ForkAt > 0 && !passed && !t.idle {
		err = fmt.Errorf("fork_at %v: arm %s had ended before: choose an earlier time", t.s.Spec.ForkAt, t.Name)
	}
	if log != "" {
		err = errors.Join(err, writeJSON(filepath.Join(filepath.Dir(log), coordinatorFile), watch.record(timed)))
	}
	if log != "" && len(seen.failures) > 0 {
		t.explain(seen.failures)
		err = errors.Join(err, writeJSON(filepath.Join(filepath.Dir(log), failuresFile), seen.failures))
	}
	return seen.records(), err
}
