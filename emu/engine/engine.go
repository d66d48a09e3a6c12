// Package engine is the cluster's master as a state machine: it registers
// coflows and writers, shows policies their View, and turns their answers into
// commands for a backend. It has no clock, socket, goroutine or random source
// of its own: the same events at the same times give the same commands, so a run
// on packets can be replayed from its log. A step may have no events: when the
// time has come that NextWake told. The model is etcd-io/raft's RawNode.
//
// Two sub-machines share the hosts' state and are joined only by events:
// coflows (coflows.go), whose policy is asked by control.go, and blocks (blocks.go).
// Of a job, whose writers wait for its coflow, jobs.go leads from one to the other, and
// reads.go makes coflows of blocks that are read.
//
// It moves no bytes and measures nothing: completions it is told of are kept
// only to cross-check what packets show.
package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Config is what an engine needs to know of its cluster and its policies.
type Config struct {
	Fabric *topo.Fabric
	// Capacity is the payload each link carries, by LinkID. Nil stands for the
	// links' own rates.
	Capacity  []units.Rate
	Coflow    policies.Scheduler
	Control   Control
	Placement policies.Placer // may be nil where no blocks are written
	DiskRate  units.Rate      // of each of a host's disks, 0 for ones that are never the bottleneck
	DiskSize  units.Bytes     // capacity of each host's disks together, 0 for ones that are never full
	Zone      []int           // power or network zone of each rack, nil where all share one
	Heartbeat time.Duration   // time between two reports of a host
	// Stuck is how long a flow may stand still while a link of its path is down
	// before it is given up; 0 stands for DefaultStuck. It is looked at when
	// heartbeats come in.
	Stuck time.Duration
	// Alpha is the weight of the newest sample in the moving average of a
	// host's traffic, in (0, 1]. Sinbad (SIGCOMM 2013) uses 0.2.
	Alpha float64
	// Seed keys the luck of paths and placements. Draws depend on it and on what
	// they are for, never on the policies, so that arms can be compared in pairs.
	Seed uint64
}

// DefaultStuck is Config.Stuck where none is given.
const DefaultStuck = 10 * time.Second

// Engine is the master. Its zero value is not usable: call New.
type Engine struct {
	cfg     Config
	now     time.Duration
	hosts   []host
	racks   []rack
	load    []units.Rate // by LinkID, as the newest LinkLoads has it
	coflows coflows
	control control
	blocks  blocks
	jobs    jobs
	reads   reads
	down    int  // links that carry nothing
	cuts    bool // some flow's path may have such a link
}

// New checks the configuration and returns an engine to which nothing has
// happened yet.
func New(cfg Config) (*Engine, error) {
	if cfg.Fabric == nil || cfg.Coflow == nil {
		return nil, errors.New("engine: want a fabric and a coflow policy")
	}
	if cfg.Capacity == nil {
		for _, l := range cfg.Fabric.Links() {
			cfg.Capacity = append(cfg.Capacity, l.Rate)
		}
	}
	if cfg.Stuck < 0 {
		return nil, fmt.Errorf("engine: stuck %v: want a positive time", cfg.Stuck)
	} else if cfg.Stuck == 0 {
		cfg.Stuck = DefaultStuck
	}
	cfg.Capacity = slices.Clone(cfg.Capacity) // LinkChanged changes it
	if len(cfg.Capacity) != len(cfg.Fabric.Links()) {
		return nil, fmt.Errorf("engine: %d capacities for %d links", len(cfg.Capacity), len(cfg.Fabric.Links()))
	}
	if cfg.Heartbeat <= 0 || cfg.Alpha <= 0 || cfg.Alpha > 1 {
		return nil, fmt.Errorf("engine: heartbeat %v and alpha %v: want a positive time and a weight in (0, 1]", cfg.Heartbeat, cfg.Alpha)
	}
	e := &Engine{cfg: cfg, hosts: make([]host, cfg.Fabric.Hosts()), racks: make([]rack, cfg.Fabric.Racks()), load: make([]units.Rate, len(cfg.Capacity))}
	for h := range e.hosts {
		e.hosts[h].lastReport, e.hosts[h].nextReport, e.hosts[h].load = -1, cfg.Heartbeat, -1
	}
	e.initReads()
	e.coflows.byFlow = map[workloads.FlowID]*flow{}
	e.coflows.failed = map[workloads.FlowID]bool{}
	for _, r := range cfg.Capacity {
		if r < 0 {
			return nil, fmt.Errorf("engine: a link of capacity %d: want 0 or more", r)
		}
		if r == 0 {
			e.down++
		}
	}
	if err := errors.Join(e.initControl(), e.initBlocks()); err != nil {
		return nil, err
	}
	return e, nil
}

// Step tells the engine what happened up to now and returns what to do about
// it, in order. An error is a mistake of the caller or of a policy; the engine
// must not be used after it.
func (e *Engine) Step(now time.Duration, evs ...Event) ([]Command, error) {
	if now < e.now {
		return nil, fmt.Errorf("engine: time went back from %v to %v", e.now, now)
	}
	e.tally(now)
	e.now = now
	var cmds []Command
	urgent := false // a link, a route or a host has changed
	look := false   // for flows that stand still
	for _, ev := range evs {
		var err error
		switch ev := ev.(type) {
		case CoflowArrived:
			look = true
			cmds, err = e.coflowArrived(cmds, ev)
		case WriterArrived:
			cmds, err = e.writerArrived(cmds, ev.Writer)
		case ReaderArrived:
			look = true
			err = e.readerArrived(ev.Reader)
		case TransferProgressed:
			err = e.transferProgressed(ev)
		case TransferFinished:
			look = true
			err = e.transferFinished(ev.Flow)
		case LinkChanged:
			look, urgent = true, true
			err = e.linkChanged(ev)
		case PathChanged:
			look, urgent = true, true
			err = e.pathChanged(ev)
		case HostLost:
			look, urgent = true, true
			cmds, err = e.hostLost(cmds, ev.Host)
		case HostBack:
			look, urgent = true, true
			cmds, err = e.hostBack(cmds, ev)
		case TransferFailed:
			look, urgent = true, true
			cmds, err = e.transferFailed(cmds, ev)
		case ReplicaLost:
			err = e.replicaLost(ev)
		case BlockFailed:
			cmds, err = e.blockFailed(cmds, ev)
		case BlockDurable:
			cmds, err = e.blockDurable(cmds, ev.Block)
		case Heartbeat:
			look = true
			err = e.heartbeat(ev)
		case RackReport:
			err = e.rackReport(ev)
		case LinkLoads:
			err = e.linkLoads(ev)
		default:
			err = fmt.Errorf("unknown event %T", ev)
		}
		if err != nil {
			return nil, fmt.Errorf("engine: at %v: %w", now, err)
		}
	}
	if look {
		failed := len(cmds)
		cmds = e.giveUpStuck(cmds)
		urgent = urgent || len(cmds) > failed
	}
	cmds, err := e.startWriters(cmds)
	if err == nil {
		cmds, err = e.placeWaiting(cmds)
	}
	if err == nil {
		cmds, err = e.serveReaders(cmds)
	}
	if err != nil {
		return nil, fmt.Errorf("engine: at %v: %w", now, err)
	}
	cmds = e.release(cmds)
	if e.needed(urgent) {
		if cmds, err = e.decide(cmds); err != nil {
			return nil, fmt.Errorf("engine: at %v: %w", now, err)
		}
	} else {
		cmds = e.start(cmds, 0)
	}
	e.tally(now + 1)
	return cmds, nil
}

// Idle tells whether everything that arrived has finished.
func (e *Engine) Idle() bool {
	return len(e.coflows.active) == 0 && len(e.blocks.active)+len(e.blocks.waiting) == 0 && len(e.jobs.waiting) == 0 && len(e.reads.active) == 0
}

// Unfinished describes, in one line, what has arrived and not finished.
func (e *Engine) Unfinished() string {
	flows := 0
	for _, c := range e.coflows.active {
		flows += len(c.flows)
	}
	left := fmt.Sprintf("%d coflows with %d flows and %d block writes", len(e.coflows.active), flows, len(e.blocks.active)+len(e.blocks.waiting))
	if n := e.toStart(); n > 0 {
		left += fmt.Sprintf(" and %d writers to start", n)
	}
	if n := len(e.reads.active); n > 0 {
		left += fmt.Sprintf(" and %d readers, %d of which wait for a block to be durable", n, e.reads.waits())
	}
	return left
}
