// Package measure measures what this machine can emulate: links from the stamps of
// captured packets, capacity from the verdicts of real runs, disks from the bytes written.
// Package emu/calibration keeps the results.
//
// It leaves nothing behind: everything that it creates is recorded like a testbed, so
// "testbed gc" removes the remains of a killed calibration.
package measure

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// Options state what to calibrate, and how thoroughly. Zero fields take the value of
// Defaults.
type Options struct {
	Rates []units.Rate
	MTUs  []units.Bytes
	// Rounds is the number of measurements of each bucket.
	Rounds int
	// Saturated is the time for which a link is saturated in each round.
	Saturated time.Duration
	// Run is the duration of the flows of a judged run.
	Run time.Duration
	// Reference is the rate of the links of such runs.
	Reference units.Rate
	// MaxFlows bounds the flows of such a run.
	MaxFlows int
	// DiskRates are the rates at which throttles are measured, each for DiskTime.
	DiskRates []units.Rate
	DiskTime  time.Duration
	// Dir is the directory in which disks are measured and captures written, as for runs.
	Dir       string
	StateRoot string // of emu/deploy
	Version   string // of the tool
	// Progress is called with the current measurement and the fraction of the whole that
	// is done, 0 to 1; it may be nil.
	Progress func(what string, done float64)
}

// Defaults returns the options of a calibration that takes about three and a half minutes.
func Defaults() Options {
	o := Options{MTUs: []units.Bytes{1500, 9000}, Rounds: 5, Saturated: 80 * time.Millisecond, Run: 1500 * time.Millisecond, Reference: 20 * units.Mbps, MaxFlows: 96,
		DiskRates: []units.Rate{27200 * units.Kbps, 80 * units.Mbps, 400 * units.Mbps}, DiskTime: time.Second, Dir: ".", StateRoot: deploy.Root(), Version: "unknown"}
	for _, r := range []units.Rate{10, 20, 50, 100, 200, 500, 1000} {
		o.Rates = append(o.Rates, r*units.Mbps)
	}
	return o
}

// Quick returns options that take three fifths of the time and are less precise.
func Quick() Options {
	o := Defaults()
	o.Rounds, o.Saturated, o.Run, o.DiskTime = 3, 50*time.Millisecond, time.Second, 500*time.Millisecond
	return o
}

func (o Options) withDefaults() Options {
	d := Defaults()
	set := func(missing bool, f func()) {
		if missing {
			f()
		}
	}
	set(len(o.Rates) == 0, func() { o.Rates = d.Rates })
	set(len(o.MTUs) == 0, func() { o.MTUs = d.MTUs })
	set(o.Rounds == 0, func() { o.Rounds = d.Rounds })
	set(o.Saturated == 0, func() { o.Saturated = d.Saturated })
	set(o.Run == 0, func() { o.Run = d.Run })
	set(o.Reference == 0, func() { o.Reference = d.Reference })
	set(o.MaxFlows == 0, func() { o.MaxFlows = d.MaxFlows })
	set(len(o.DiskRates) == 0, func() { o.DiskRates = d.DiskRates })
	set(o.DiskTime == 0, func() { o.DiskTime = d.DiskTime })
	set(o.Dir == "", func() { o.Dir = d.Dir })
	set(o.StateRoot == "", func() { o.StateRoot = d.StateRoot })
	set(o.Version == "", func() { o.Version = d.Version })
	return o
}

// Bounds of what can be calibrated.
const (
	minRate, maxRate = units.Mbps, 10 * units.Gbps
	minMTU, maxMTU   = units.Bytes(576), units.Bytes(65000)
)

// Check returns all errors in the options.
func (o Options) Check() error {
	var errs []error
	for _, r := range o.Rates {
		if r < minRate || r > maxRate {
			errs = append(errs, fmt.Errorf("rate %v: must be %v to %v", r, minRate, maxRate))
		}
	}
	for _, m := range o.MTUs {
		if m < minMTU || m > maxMTU {
			errs = append(errs, fmt.Errorf("MTU %d: must be %d to %d bytes", int64(m), int64(minMTU), int64(maxMTU)))
		}
	}
	return errors.Join(errs...)
}

// machine is a calibration in progress.
type machine struct {
	o     Options
	c     *calibration.Calibration
	owned *deploy.Owned
	dir   string // for files, removed with the record
	steps float64
	done  float64
}

// Run calibrates the machine. It needs root. The error of an interrupted calibration wraps
// the context's cause.
func Run(ctx context.Context, o Options) (_ *calibration.Calibration, err error) {
	o = o.withDefaults()
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	o.Rates, o.MTUs = slices.Clone(o.Rates), slices.Clone(o.MTUs)
	slices.Sort(o.Rates)
	slices.Sort(o.MTUs)
	o.Rates, o.MTUs = slices.Compact(o.Rates), slices.Compact(o.MTUs)
	start := time.Now()
	m := &machine{o: o, c: &calibration.Calibration{Version: calibration.Version, Tool: o.Version, Date: start.UTC().Truncate(time.Second),
		Machine: calibration.MachineID(), Kernel: calibration.Kernel(), CPUs: runtime.NumCPU()}}
	m.steps = float64(2*len(o.Rates)*len(o.MTUs)+capacitySteps*len(o.MTUs)) + 2
	if err := m.own(ctx); err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	defer func() { err = errors.Join(err, m.leave(ctx)) }()
	for _, part := range []struct {
		what string
		do   func(context.Context) error
	}{{"building", m.build}, {"links", m.links}, {"flows", m.flows}, {"disks", m.disks}, {"capacity", m.capacity}} {
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("calibrate %s: %w", part.what, err)
		}
	}
	m.c.Took = time.Since(start).Round(100 * time.Millisecond)
	return m.c, nil
}

// step reports progress, then counts n more steps as done.
func (m *machine) step(what string, n float64) {
	if m.o.Progress != nil {
		m.o.Progress(what, min(m.done/m.steps, 1))
	}
	m.done += n
}

// shape returns a fabric of one rack.
func shape(hosts int, rate units.Rate, mtu units.Bytes, queue units.Bytes) topo.LeafSpine {
	return topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: rate, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Bytes: queue}, MTU: mtu}
}

// buildHosts is the number of hosts of the rack on which building is measured. With a second
// rack and a spine, its namespaces include those of links and flows.
const buildHosts = 10

// own records everything that the calibration creates, except its runs, which have their own
// records.
func (m *machine) own(ctx context.Context) (err error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	id := fmt.Sprintf("calibrate-%d-%s", os.Getpid(), hex.EncodeToString(b[:]))
	s := twoRacks(units.Gbps, 1500)
	s.HostsPerLeaf = buildHosts
	f, err := s.Build()
	if err != nil {
		return err
	}
	names := plan.Compile("names", f, plan.Options{}).Namespaces()
	if m.owned, err = deploy.Create(ctx, m.o.StateRoot, deploy.State{ID: id, Kind: deploy.KindRun, Name: "calibrate", Shape: s, Namespaces: names}); err != nil {
		return err
	}
	dir, err := filepath.Abs(m.o.Dir)
	if err == nil {
		m.dir = filepath.Join(dir, "."+id)
		err = m.owned.AddDirectory(m.dir)
	}
	if err != nil {
		return errors.Join(err, m.owned.Remove(context.Background(), kernel.Reaper{}))
	}
	return nil
}

// leave removes everything that was recorded.
func (m *machine) leave(ctx context.Context) error {
	return m.owned.Remove(context.WithoutCancel(ctx), kernel.Reaper{})
}

// timing measures the time of an executor's operations by their kind.
type timing struct {
	deploy.Executor
	namespace, veth, qdisc []float64 // ms
}

func (x *timing) Do(ctx context.Context, op plan.Op) error {
	start := time.Now()
	err := x.Executor.Do(ctx, op)
	took := time.Since(start).Seconds() * 1000
	switch op.(type) {
	case plan.Namespace:
		x.namespace = append(x.namespace, took)
	case plan.Veth:
		x.veth = append(x.veth, took)
	case plan.Shaper:
		x.qdisc = append(x.qdisc, took)
	}
	return err
}

// build measures the time to create the parts of a fabric.
func (m *machine) build(ctx context.Context) (err error) {
	m.step("building", 1)
	f, err := shape(buildHosts, units.Gbps, 1500, units.MB).Build()
	if err != nil {
		return err
	}
	inner := kernel.NewExecutor(m.owned.PinDir())
	defer func() { err = errors.Join(err, inner.Close()) }()
	x := &timing{Executor: inner}
	for range m.o.Rounds {
		d, err := deploy.Apply(ctx, plan.Compile("calibrate", f, plan.Options{}), x)
		if err != nil {
			return err
		}
		if err := d.Destroy(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	m.c.Build = calibration.Build{Namespace: calibration.SpreadOf(x.namespace), Veth: calibration.SpreadOf(x.veth), Qdisc: calibration.SpreadOf(x.qdisc)}
	return nil
}
