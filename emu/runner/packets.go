package runner

import (
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
	"testbed/policies/catalog"
	"testbed/results/metrics"
	"testbed/results/pcap"
	"testbed/results/report"
	"testbed/results/safefile"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// packets runs one repeat of one arm on a new testbed.
func (r *run) packets(ctx context.Context, arm, repeat int, w work, dir string, p *progress) (out report.Repeat, err error) {
	spec := r.s.Spec
	captures := filepath.Join(dir, capturesDir)
	if err := safefile.Mkdir(captures); err != nil {
		return out, err
	}
	p.phase(PhaseBuild)
	pl := r.plan(r.s.RepeatSeed(repeat))
	id := fmt.Sprintf("%s.%d.%d", r.dir.manifest.Run, arm+1, repeat+1)
	owned, err := deploy.Create(ctx, r.o.StateRoot, deploy.State{ID: id, Kind: deploy.KindRun, Name: spec.Name, Shape: r.s.Shape(), Namespaces: pl.Namespaces(), Cgroup: kernel.ProcessCgroup(id)})
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
	kept, err := r.watchKernel(ctx, pl, x)
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
	shape := r.s.Shape()
	links, err := r.s.CapturedLinks(r.fabric)
	if err != nil {
		return out, err
	}
	e, err := r.engine(arm, repeat, w)
	if err != nil {
		return out, err
	}
	names := map[string]string{}
	for role, p := range r.arms[arm].Policies {
		names[role] = p.Name
	}
	facts := r.workloadMeta(w)
	cluster := pcap.Cluster{Heartbeat: facts.Heartbeat, DiskRate: facts.DiskRate, DiskSize: facts.DiskSize}
	if s := facts.Slots; s != nil {
		cluster.MapSlots, cluster.ReduceSlots = s.Map, s.Reduce
	}
	cfg := live.Config{Fabric: r.fabric, Pins: owned.PinDir(), Captures: captures, Links: links, Snaplen: spec.Capture.Snaplen, Ring: max(spec.Capture.Ring, leastRing),
		Meta: pcap.Meta{Tool: "testbed", Version: r.o.Version, RunID: r.dir.manifest.Run, Run: number.Sum64(), Arm: r.arms[arm].Name, ArmIndex: arm,
			Repeat: repeat, Scenario: spec.Name, Workload: r.dir.manifest.Workload, Seed: r.s.RepeatSeed(repeat),
			Policies: names, Holds: catalog.Holds(r.arms[arm].Policies[catalog.RoleCoflow].Name), Cluster: &cluster, Fabric: &shape, Buckets: r.buckets()},
		Disks: disks, Needs: e.Needs(), Heartbeat: spec.Heartbeat.Interval, Phases: r.phases(repeat), Seed: r.s.RepeatSeed(repeat), Congestion: spec.Fabric.CongestionControl, Settings: r.settings(), Foreseen: w.Coflows, Notes: metrics.NotesOf(w.Workload), Unheaded: spec.Limits.Duration,
		Burst: r.burst, Faults: r.faults, Detect: spec.Heartbeat.Detect(), Silence: spec.Heartbeat.Silence(), Convergence: spec.Fabric.Convergence}
	if spec.Disk != nil && len(w.Writers)+len(w.tasks) > 0 {
		cfg.DiskRead, cfg.Stored = spec.Disk.ReadRate(), w.stored
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
	watch, err := deploy.NewWatch(ctx, r.o.StateRoot, id)
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
	seen, err := r.drive(limited, e, r.o.tamper.backend(b), w, filepath.Join(dir, "events.jsonl"), true, p)
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
	measured.Notes = append(measured.Notes, d.Notes()...)
	measured.Notes = append(measured.Notes, kept.notes()...)
	if cfg.Kernel != nil {
		measured.Notes = append(measured.Notes, fmt.Sprintf("disks are throttled by the kernel (%s)", cfg.Kernel.Kind()))
		if len(w.Readers)+len(w.tasks) > 0 {
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
	if err := r.o.tamper.captures(captures, seen); err != nil {
		return out, err
	}
	if cfg.NoCapture {
		return report.Repeat{Records: seen, Verdict: verdict.Missing("no capture was made")}, nil
	}
	return judge(clean, dir, r.fabric, pl, seen, measured, p.reading(captures))
}

// settings returns the limits of a run on packets.
func (r *run) settings() live.Settings {
	s := live.DefaultSettings(r.fabric)
	if r.s.Spec.Setup == scenario.SimultaneousSetup {
		s.SetupMode = live.SetupSimultaneous
	}
	return s
}

// leastRing is the size of four blocks in which the kernel delivers captured packets.
const leastRing = 512 * units.KiB

// buckets returns the size of the token bucket of the fabric's links by their rate.
func (r *run) buckets() map[units.Rate]units.Bytes {
	if r.fabric.Shape().StoreAndForward {
		return nil
	}
	size := r.burst
	if size == nil {
		size = plan.DefaultBurst
	}
	out := map[units.Rate]units.Bytes{}
	for _, l := range r.fabric.Links() {
		out[l.Rate] = size(l.Rate, r.fabric.Shape().MTU)
	}
	return out
}
