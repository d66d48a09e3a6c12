package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/live"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/results/metrics"
	"testbed/results/pcap"
	"testbed/results/safefile"
	"testbed/results/samples"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// packets runs one repeat of one arm on a new testbed.
func (t *trial) packets(ctx context.Context, p *progress) (out summary.Repeat, err error) {
	spec, o, m, dir := t.s.Spec, t.of.o, &t.of.manifest, t.path()
	captures := filepath.Join(dir, capturesDir)
	if err := safefile.Mkdir(captures); err != nil {
		return out, err
	}
	p.phase(PhaseBuild)
	pl := t.plan(t.repeat)
	id := fmt.Sprintf("%s.%d.%d", m.Run, t.place+1, t.repeat+1)
	owned, err := deploy.Create(ctx, o.StateRoot, deploy.State{ID: id, Kind: deploy.KindRun, Name: spec.Name, Shape: t.s.Shape(), Namespaces: pl.Namespaces(), Cgroup: kernel.ProcessCgroup(id)})
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
	kept, err := t.watchKernel(ctx, pl, x)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, kept.close()) }()
	if err := deploy.Verify(ctx, pl, x); err != nil {
		return out, err
	}
	if err := owned.SetReady(); err != nil {
		return out, err
	}
	number := fnv.New64a()
	fmt.Fprint(number, id)
	shape := t.s.Shape()
	links, err := t.s.CapturedLinks(t.fabric)
	if err != nil {
		return out, err
	}
	talk := conversations{t: t, log: filepath.Join(dir, eventsFile), packets: true}
	defer func() { err = errors.Join(err, talk.close()) }()
	e, err := t.engine(t.after, talk.open)
	if err != nil {
		return out, err
	}
	facts := t.workloadMeta()
	cluster := pcap.Cluster{Heartbeat: facts.Heartbeat, DiskRate: facts.DiskRate, DiskSize: facts.DiskSize}
	if s := facts.Slots; s != nil {
		cluster.MapSlots, cluster.ReduceSlots = s.Map, s.Reduce
	}
	cfg := live.Config{Fabric: t.fabric, Pins: owned.PinDir(), Captures: captures, Samples: filepath.Join(dir, samples.File), Links: links, Snaplen: spec.Capture.Snaplen, Ring: max(spec.Capture.Ring, leastRing),
		Meta: pcap.Meta{Tool: "testbed", Version: o.Version, RunID: m.Run, Run: number.Sum64(), Arm: t.Name, ArmIndex: t.place,
			Repeat: t.repeat, Scenario: spec.Name, Workload: m.Workload, Seed: t.seed(),
			Policies: t.policyNames(), Holds: t.holds(), Cluster: &cluster, Fabric: &shape, Buckets: t.buckets()},
		Disks: disks, Needs: e.Needs(), Heartbeat: spec.Heartbeat.Interval, Phases: t.phases(), Seed: t.seed(), Congestion: spec.Fabric.CongestionControl, Settings: t.settings(), Foreseen: t.Coflows, Notes: metrics.NotesOf(t.Workload), Unheaded: spec.Limits.Duration,
		Burst: t.burst, Faults: t.faults, Detect: spec.Heartbeat.Detect(), Silence: spec.Heartbeat.Silence(), Convergence: spec.Fabric.Convergence}
	if spec.Disk != nil && len(t.Writers)+len(t.tasks) > 0 {
		cfg.DiskRead, cfg.Stored = spec.Disk.ReadRate(), t.stored
		cfg.DiskRates, cfg.DiskCount, cfg.DiskSize = slices.Repeat([]units.Rate{spec.Disk.Write}, t.fabric.Hosts()), spec.Disk.Count, spec.Disk.Size
	}
	if len(cfg.DiskRates) > 0 && spec.Disk.Throttle == scenario.KernelThrottle {
		if cfg.Kernel, err = kernelDisks(ctx, owned, id, disks, t.fabric, *spec.Disk); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, cfg.Kernel.Close()) }()
	}
	stated := slices.Clone(cfg.DiskRates)
	if err := o.tamper.config(&cfg, owned.PinDir()); err != nil {
		return out, err
	}
	watch, err := deploy.NewWatch(ctx, o.StateRoot, id)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, watch.Close()) }()
	begun := time.Now()
	b, err := live.Start(ctx, cfg)
	if err != nil {
		return out, kept.blame(clean, dir, begun, err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	p.phase(PhaseRun)
	limited, cancel := context.WithTimeoutCause(ctx, spec.Limits.Duration, fmt.Errorf("limits.duration of %v exceeded", spec.Limits.Duration))
	defer cancel()
	seen, err := t.drive(limited, e, o.tamper.backend(b), filepath.Join(dir, "events.jsonl"), true, p)
	if err != nil {
		if ctx.Err() == nil {
			err = kept.blame(clean, dir, begun, err)
		}
		return out, err
	}
	// All transfers have ended, so an interrupt from here on keeps the repeat. Each remaining wait
	// has its own bound.
	p.phase(PhaseSettle)
	measured, err := b.Finish(clean)
	if err != nil {
		return out, kept.blame(clean, dir, begun, err)
	}
	if measured.Kernel, measured.KernelLost, err = kept.changes(clean, measured.Zero); err != nil {
		return out, err
	}
	measured.Kernel = append(measured.Kernel, measured.Connections...)
	measured.Answers = talk.answered()
	measured.Notes = append(measured.Notes, d.Notes()...)
	measured.Notes = append(measured.Notes, kept.notes()...)
	if cfg.Kernel != nil {
		measured.Notes = append(measured.Notes, fmt.Sprintf("disks are throttled by the kernel (%s)", cfg.Kernel.Kind()))
		if len(t.Readers)+len(t.tasks) > 0 {
			measured.Notes = append(measured.Notes, "reads of disks are throttled by a token bucket of the program, not by the kernel")
		}
	}
	var incomplete error
	if measured.Machine.Testbeds, incomplete, err = watch.Most(ctx); err != nil {
		return out, err
	}
	if incomplete != nil {
		measured.Notes = append(measured.Notes, incomplete.Error())
	}
	written := 0 // number of write disks before this one; read disks are between them
	for i := range measured.Disks {
		d := &measured.Disks[i]
		if d.Reads {
			d.Rate = spec.Disk.ReadRate()
			continue
		}
		d.Rate = stated[written/spec.Disk.Count]
		written++
	}
	p.phase(PhaseRead)
	if err := o.tamper.captures(captures, seen); err != nil {
		return out, err
	}
	if err := t.relabel(); err != nil {
		return out, err
	}
	if cfg.NoCapture {
		return summary.Repeat{Records: seen, Verdict: verdict.Missing("no capture was made")}, nil
	}
	return judge(clean, dir, t.fabric, pl, seen, measured, p.reading(captures))
}

// timelessGarbage is collected early in a guest of user-mode Linux, where that takes no time: each separate piece of the
// program's memory is a mapping of a process of this machine, which has 65,530 by default (vm.max_map_count). The kernel
// of the guest ends a program that would have more.
const timelessGarbage = 64 * units.MiB

// settings returns the limits of a run on packets.
func (a *arm) settings() live.Settings {
	s := live.DefaultSettings(a.fabric)
	s.SampleRows = cmp.Or(int64(a.s.Spec.Limits.Samples), s.SampleRows)
	if a.s.Spec.Setup == scenario.SimultaneousSetup {
		s.SetupMode = live.SetupSimultaneous
	}
	if a.of.o.timeless {
		s.Procs = 1 // two would wait for each other in loops, in which no time passes
		s.Garbage = timelessGarbage
	}
	return s
}

// leastRing is the size of four blocks in which the kernel delivers captured packets.
const leastRing = 512 * units.KiB

// buckets returns the size of the token bucket of the fabric's links by their rate.
func (a *arm) buckets() map[units.Rate]units.Bytes {
	if a.fabric.Shape().StoreAndForward {
		return nil
	}
	size := a.burst
	if size == nil {
		size = plan.DefaultBurst
	}
	out := map[units.Rate]units.Bytes{}
	for _, l := range a.fabric.Links() {
		out[l.Rate] = size(l.Rate, a.fabric.Shape().MTU)
	}
	return out
}
