// Package live is the backend on packets. It carries out the engine's commands with agents in a
// testbed's namespaces, captures every host's interfaces, and samples the counters from which the
// verdict is computed. Its clock is the machine's.
//
// It builds no fabric (emu/deploy does), and takes no figure from its agents: figures are computed from
// the captures afterwards (results/flows).
package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/emu/kernel/processors"
	"testbed/emu/plan"
	"testbed/hosts"
	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/results/pcap"
	"testbed/results/samples"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Config is what a backend runs on.
type Config struct {
	Fabric *topo.Fabric
	Pins   string // directory in which the testbed's namespaces are pinned
	// Meta goes into every capture; Run of it marks every transfer.
	Meta     pcap.Meta
	Captures string // directory for the captures, which exists
	Samples  string // file of the samples, which is there when Finish has returned
	// Links are captured where they leave their switches, besides all hosts: in order
	// of ID, each once, none that leaves a host.
	Links     []topo.LinkID
	Snaplen   int
	Ring      units.Bytes  // memory of each capture between kernel and recorder
	Disks     string       // directory for the hosts' disks, which exists
	DiskRates []units.Rate // of each of a host's disks, by HostID; empty where no blocks are written
	DiskRead  units.Rate   // of each disk's reads; 0 is as its writes
	DiskCount int          // of a host; 0 is one
	DiskSize  units.Bytes  // of each disk
	// Stored are blocks that are on the disks of their hosts from the beginning. Their files
	// are sparse.
	Stored []engine.StoredBlock
	// Kernel are the file systems that are the hosts' disks, by HostID and then number, whose
	// rates the kernel keeps to. Nil are directories of Disks under token buckets.
	Kernel *kernel.Disks
	// Heartbeat is the interval of the reports of hosts and leaves, and Phases are the times of their first ones.
	Heartbeat time.Duration
	Phases    *engine.Phases
	// Needs is what the policies need. Leaves report if it has policies.LinkLoad; the loads of
	// links are reported if it has policies.OracleLoad.
	Needs      policies.Facts
	Seed       uint64 // of the jitter
	Congestion string // of all connections, as the plan states it; "" is any
	Settings   Settings
	// Foreseen are the coflows that will arrive, whose connections are opened before they
	// do under SetupSimultaneous. Flows of others, such as reads of blocks, are set up when
	// they come, and so are all flows under SetupSerial.
	Foreseen []workloads.Coflow
	// Notes are what the marks of arrivals of coflows and blocks state about their jobs and writers.
	Notes wire.Notes
	// Unheaded is how long a connection may stand before its flow begins; 0 is a minute. A
	// flow whose connection was opened before may be held back for as long.
	Unheaded time.Duration
	// NoCapture records nothing, so that what captures cost can be measured. Such a
	// run has no figures.
	NoCapture bool
	// Burst is the bucket of a link whose rate a fault changes, as the plan chose
	// the others'; nil is plan.DefaultBurst.
	Burst func(units.Rate, units.Bytes) units.Bytes
	// Faults are carried out at their times: see faults.go.
	Faults fault.Timeline
	// Detect is how long a crashed host goes unnoticed. Silence is how long a block
	// pipeline bears with a silent peer where Faults do harm; 0, and where they do
	// none, is Settings.PeerTimeout. Convergence is how long leaves that are not
	// at a link's end take to learn that it is down, or back.
	Detect, Silence, Convergence time.Duration
}

// Measured is what a run showed of itself, for the verdict.
type Measured struct {
	// RoundTrips are those of idle paths.
	RoundTrips []fidelity.RoundTrip
	Disks      []fidelity.Disk
	Losses     []fidelity.Loss
	Engine     time.Duration      // the longest that the engine was late
	Answers    []fidelity.Answers // of policies that are processes
	Machine    fidelity.Machine   // without Testbeds
	Clock      []fidelity.ClockStep
	// Kernel are changes of the kernel, and KernelLost states that reports of it are missing. The caller of Finish adds
	// them.
	Kernel     []fidelity.KernelChange
	KernelLost bool
	// Connections are differences between connections and what was asked for, as changes of the kernel.
	Connections []fidelity.KernelChange
	// Opened reports whether a host of the run began a connection.
	Opened func(client, server netip.AddrPort) bool
	// Limits are how long windows and buffers kept back data of connections.
	Limits []fidelity.Limit
	// Duplicates are packets that reached the TCP of a host when it had their data.
	Duplicates uint64
	// Counted is what each host's eth0 counted from before the first packet to
	// after the last, both ways; Dropped is packets that captures lost. By
	// HostID.
	Counted []uint64
	Dropped []uint64
	// QueueDrops are the packets that the queue ahead of each link dropped from before
	// the first packet to after the last, as the kernel counts them. By LinkID.
	QueueDrops []uint32
	// Switches are the captures of switches: packets they lost, and what the ports of
	// Config.Links counted as sent from before the first packet to after the last.
	Switches []fidelity.Capture
	// SwitchPackets are the packets of all leaves and spines.
	SwitchPackets []fidelity.SwitchPackets
	// Crossings are the packets between each leaf and its spines. The caller of Finish adds those of captures.
	Crossings []fidelity.Crossing
	Zero      time.Time // the wall clock at the backend's time 0
	Notes     []string
	// Exempt are links, disks and hosts that a fault cut, slowed or crashed, by name,
	// and the fault: what they delivered says nothing of the machine. Lossy are the
	// hosts and switches that a fault made lose packets: as fidelity.Samples has them.
	Exempt, Lossy map[string]string
}

// Backend is a run in progress. It is an engine.Backend.
type Backend struct {
	cfg      Config
	ns       map[string]*kernel.Namespace
	disks    []*disk.Disk    // by HostID and number
	volumes  []*disk.Volumes // by HostID
	agents   []*hosts.Agent
	captures []*capture // of subjects
	subjects []subject
	samples  *samples.Writer
	sampler  *sampler
	counted  []hostCounters // before the first packet
	dropped  []uint32       // by queues before the first packet, by LinkID
	sent     []units.Bytes  // by Config.Links, before the first packet
	accounts map[string]account
	cpu      processors.Reading // before the first packet
	paths    []probed
	clock    *kernel.WallClock
	zero     time.Time
	procs    int // as they were before
	garbage  *garbage
	lower    func() error // the priority, to what it was; nil before it was raised

	work     *errgroup.Group // agents, pacer, sampler, probe
	workCtx  context.Context
	stopWork context.CancelCauseFunc
	// during ends before work: sampling, reports and faults end with the transfers, agents serve round trips after them.
	during     context.Context
	stopDuring context.CancelCauseFunc
	transfer   sync.WaitGroup // senders and block writers
	sendCtx    context.Context
	stopSend   context.CancelCauseFunc // ends those that faults keep from ending

	deletions sync.WaitGroup // of files

	mu     sync.Mutex
	last   chan struct{} // closed when the newest deletion is done; nil for none
	queue  []engine.Event
	since  time.Time // when the first event entered queue after it was empty
	failed error
	kick   chan struct{}

	// running has the flows whose progress is reported to the engine, in the order in which
	// they started. Only Do and Await touch them.
	running   []*running
	byFlow    map[workloads.FlowID]*running
	chains    map[workloads.BlockID]chain // that were begun; only Do touches it
	computing sync.Map                    // *hosts.Attempt by jobs.AttemptID, of those that compute
	network   *network
	faults    *faults
	reports   *reports
	ahead     *ahead   // nil under SetupSerial
	writers   *writers // of first segments; nil under SetupSerial
	gate      *gate    // of the decision that Do carries out, or nil
	decided   time.Time

	engineLate time.Duration // the longest; only Await touches it

	notes  []string
	closed bool
}

// running is a flow at its receiver.
type running struct {
	flow     workloads.FlowID
	src, dst topo.HostID
	received *hosts.Received // payload so far; nil before the first
	asked    time.Duration   // when received was last asked for what has arrived
	told     units.Bytes
	hash     uint32
	spine    int // that the engine takes it to cross
	stop     context.CancelCauseFunc
	served   units.Rate // at which the sender has the bytes, NoLimit for no limit; unused for local reads
}

// chain is a block write.
type chain struct {
	stop    context.CancelCauseFunc
	targets []topo.HostID
}

// errStopped is the cause of what ends because the run is over.
var errStopped = errors.New("the run is over")

// Start opens agents, disks and captures on a testbed that is up. The clock runs
// from its return. The caller must call Close.
func Start(ctx context.Context, cfg Config) (*Backend, error) {
	b := &Backend{cfg: cfg, procs: runtime.GOMAXPROCS(cfg.Settings.Procs), ns: map[string]*kernel.Namespace{}, kick: make(chan struct{}, 1), byFlow: map[workloads.FlowID]*running{}, chains: map[workloads.BlockID]chain{}}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), b.Close())
	}
	return b, nil
}

func (b *Backend) start(ctx context.Context) (err error) {
	cfg := b.cfg
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	b.stopWork = stop
	b.work, b.workCtx = errgroup.WithContext(base)
	b.sendCtx, b.stopSend = context.WithCancelCause(b.workCtx)
	b.during, b.stopDuring = context.WithCancelCause(b.workCtx)
	f := cfg.Fabric
	names := make([]string, 0, f.Hosts()+f.Racks()+f.Spines())
	for h := range topo.HostID(f.Hosts()) {
		names = append(names, f.HostName(h))
	}
	for r := range topo.RackID(f.Racks()) {
		names = append(names, topo.LeafName(r))
	}
	for s := range f.Spines() {
		names = append(names, topo.SpineName(s))
	}
	for _, name := range names {
		n, err := kernel.OpenNamespace(filepath.Join(cfg.Pins, name))
		if err != nil {
			return err
		}
		b.ns[name] = n
	}
	b.samples = samples.Create(cfg.Samples, cfg.Settings.SampleRows)
	b.sampler = newSampler(f, b.ns, b.samples)
	b.faults = newFaults(b)
	if b.reports, err = newReports(b); err != nil {
		return err
	}
	if err := b.startAgents(ctx); err != nil {
		return err
	}
	b.paths = probedPaths(f)
	if err := b.measureRoundTrips(ctx, func(p *probed) *time.Duration { return &p.Before }); err != nil {
		return err
	}
	if !cfg.NoCapture {
		b.subjects = subjects(f, cfg.Links, cfg.Snaplen)
	}
	for _, s := range b.subjects {
		c, err := startCapture(b.ns[s.name], s, cfg, b.fail)
		if err != nil {
			return err
		}
		b.captures = append(b.captures, c)
	}
	if b.sent, err = b.sampler.sent(cfg.Links); err != nil {
		return err
	}
	if b.counted, err = b.sampler.allHosts(); err != nil {
		return err
	}
	if b.dropped, err = b.sampler.drops(); err != nil {
		return err
	}
	if b.accounts, err = b.sampler.accounts(); err != nil {
		return err
	}
	if err := b.raisePriority(); err != nil {
		return err
	}
	if cfg.Settings.SetupMode == SetupSimultaneous {
		b.writers = newWriters()
		if b.ahead, err = openAhead(b); err != nil {
			return err
		}
	}
	b.garbage = holdGarbage(b.cfg.Settings.Garbage)
	if b.cpu, err = processors.Read(); err != nil {
		return err
	}
	if b.clock, err = kernel.WatchWallClock(); err != nil {
		return err
	}
	b.work.Go(b.clock.Run)
	b.zero = time.Now()
	b.sampler.begin(b.zero)
	if b.ahead != nil {
		b.work.Go(func() error { return ended(b.ahead.run(b.during)) })
	}
	b.work.Go(func() error {
		if err := ended(b.reports.run(b.during)); err != nil {
			b.fail(err)
		}
		return nil
	})
	b.work.Go(func() error { b.reports.deliver(b.during); return nil })
	if cfg.Needs.Has(policies.OracleLoad) {
		b.every(cfg.Settings.Look, b.reports.look())
	}
	if len(cfg.Faults) > 0 {
		b.work.Go(func() error {
			if err := b.faults.run(b.during); err != nil {
				b.fail(err)
			}
			return nil
		})
	}
	b.every(cfg.Settings.Sample, func() error {
		return b.sampler.sampleLinks(b.during, cfg.Settings.Interval, cfg.Settings.Spell, cfg.Settings.Watch)
	})
	b.every(cfg.Settings.FlowSample, b.network.connections.flows.tick)
	b.work.Go(func() error { b.sampler.probe(b.during, cfg.Settings.Probe); return nil })
	return nil
}

// raisePriority sets the priority of the settings, or the highest one that the kernel
// allows, with a note in the run.
func (b *Backend) raisePriority() error {
	lower, refused, err := kernel.Raise(b.cfg.Settings.RealTime, b.cfg.Settings.Nice)
	b.lower = lower
	for _, r := range refused {
		b.notes = append(b.notes, fmt.Sprintf("%v: what other programs do delays this run more", r))
	}
	return err
}

func (b *Backend) startAgents(ctx context.Context) error {
	f, set := b.cfg.Fabric, b.cfg.Settings
	peer := set.PeerTimeout
	if b.cfg.Faults.Harms() && b.cfg.Silence > 0 {
		peer = b.cfg.Silence
	}
	net := newNetwork(f, b.ns, b.cfg.Congestion,
		kernel.SocketOptions{SendBuffer: set.SendBuffer, ReceiveBuffer: set.ReceiveBuffer, NotSentLowat: set.NotSent},
		kernel.SocketOptions{SendBuffer: set.BlockBuffer, ReceiveBuffer: set.ReceiveBuffer}, peer, set.Setup, set.SetupTime)
	net.routes, b.network = b.faults, net
	net.connections.flows = &flowSamples{sampler: b.sampler, most: set.FlowsRead}
	b.work.Go(func() error { return ended(net.run(b.workCtx)) })
	b.work.Go(func() error {
		err := ended(net.resend(b.workCtx))
		if err != nil {
			b.fail(err)
		}
		return err
	})
	pacer := pace.New(pace.Options{Quantum: set.Quantum, Chunk: f.Shape().MTU - plan.TCPHeaders})
	b.work.Go(func() error { return ended(pacer.Run(b.workCtx)) })
	for h := range topo.HostID(f.Hosts()) {
		o := hosts.Options{Host: h, Name: f.HostName, Run: b.cfg.Meta.Run, Network: net, Pacer: pacer, Sink: sink{b},
			PeerTimeout: peer, Timeouts: hosts.Timeouts{Header: b.cfg.Unheaded}, Later: b.later,
			ReceiveBuffer: set.ReceiveBuffer,
			Yield:         kernel.Yield}
		if len(b.cfg.DiskRates) > 0 {
			v, err := b.openDisks(h)
			if err != nil {
				return err
			}
			o.Disk = v
		}
		a := hosts.New(o)
		if err := a.Listen(ctx); err != nil {
			return err
		}
		b.agents = append(b.agents, a)
		b.work.Go(func() error { return ended(a.Serve(b.workCtx)) })
	}
	return b.store()
}

// ended reports whether an end was requested, not a failure.
func ended(err error) error {
	if errors.Is(err, errStopped) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// every runs f on a ticker until the run ends; its first error fails the run.
func (b *Backend) every(d time.Duration, f func() error) {
	b.work.Go(func() error {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-b.during.Done():
				return nil
			case <-t.C:
				if err := f(); err != nil {
					b.fail(err)
					return nil
				}
			}
		}
	})
}

// sink hears from agents.
type sink struct{ b *Backend }

func (s sink) FlowReceived(r hosts.FlowReceived) {
	s.b.push(engine.TransferFinished{Flow: r.Flow})
}

func (s sink) Problem(err error) {
	if !s.b.faults.excuse(err) {
		s.b.fail(err)
	}
}

func (s sink) ReplicaLost(r hosts.ReplicaLost) {
	s.b.push(engine.ReplicaLost{Block: r.Block, Host: r.Host, Full: r.Full})
}

func (b *Backend) push(evs ...engine.Event) {
	b.mu.Lock()
	if len(b.queue) == 0 {
		b.since = time.Now()
	}
	b.queue = append(b.queue, evs...)
	b.mu.Unlock()
	b.poke()
}

// fail makes Await return the first error.
func (b *Backend) fail(err error) {
	b.mu.Lock()
	if b.failed == nil {
		b.failed = err
	}
	b.mu.Unlock()
	b.poke()
}

func (b *Backend) poke() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// Await is engine.Backend's.
func (b *Backend) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	for {
		now := time.Since(b.zero)
		b.mu.Lock()
		evs, since, failed := b.queue, b.since, b.failed
		b.queue = nil
		b.mu.Unlock()
		evs = append(evs, b.pathChanges()...)
		switch {
		case failed != nil:
			return now, nil, failed
		case ctx.Err() != nil:
			return now, nil, context.Cause(ctx)
		case len(evs) > 0 || now >= wake:
			if len(evs) > 0 {
				b.engineLate = max(b.engineLate, now-since.Sub(b.zero))
			}
			if now >= wake {
				b.engineLate = max(b.engineLate, now-wake)
			}
			return now, b.progress(now, evs), nil
		}
		timer := time.NewTimer(min(wake-now, time.Hour))
		select {
		case <-b.kick:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// progress puts what receivers have by now ahead of events, and forgets flows
// that have finished. What it counts of a flow is at most one Settings.Quantum old. Those that have failed have two
// ends to stop (stopTransfer), except local reads.
func (b *Backend) progress(now time.Duration, evs []engine.Event) []engine.Event {
	for _, ev := range evs {
		switch f := ev.(type) {
		case engine.TransferFinished:
			delete(b.byFlow, f.Flow)
		case engine.TransferFailed:
			if r := b.byFlow[f.Flow]; r != nil && r.src == r.dst {
				delete(b.byFlow, f.Flow)
			}
		}
	}
	b.running = slices.DeleteFunc(b.running, func(r *running) bool { return b.byFlow[r.flow] == nil })
	var p engine.TransferProgressed
	for _, r := range b.running {
		if r.received == nil {
			if r.received = b.agents[r.dst].Received(r.flow); r.received == nil {
				continue
			}
		}
		// Asking the kernel for each flow at each event would cost the more the more flows there are.
		n := r.received.Read()
		if now-r.asked >= b.cfg.Settings.Quantum {
			r.asked, n = now, r.received.Arrived()
		}
		if n > r.told {
			r.told = n
			p.Flows = append(p.Flows, r.flow)
			p.Received = append(p.Received, n)
		}
	}
	if len(p.Flows) == 0 {
		return evs
	}
	return append([]engine.Event{p}, evs...)
}
