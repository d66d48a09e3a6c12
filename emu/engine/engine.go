// Package engine implements the cluster's master as a state machine. It registers coflows
// and writers, builds the Views of policies, and converts policy decisions to commands for a
// backend. It has no clock, socket, goroutine or random source of its own: the same events
// at the same times give the same commands, so a run on packets can be replayed from its
// log. A step without events occurs at the time that NextWake returned. The design follows
// RawNode of etcd-io/raft.
//
// Each sub-machine owns its state: coflows (coflows.go), blocks (blocks.go), writers (writers.go),
// which starts the writers of a job when its coflow has ended, reads (reads.go), which converts block
// reads to coflows, and tasks (tasks.go), which runs jobs of tasks under package tracker. They share
// the state of the hosts (reports.go). Writers, reads and tasks call blocks and coflows; reports in the
// other direction are notes (notes.go). Step
// gives each event to the machine that owns its subject and delivers the notes. At its end
// control.go calls the coflow policy.
//
// This package moves no bytes and measures nothing. Reported completions serve only to
// cross-check the results from packets.
package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Config describes the cluster and the policies of an engine.
type Config struct {
	Fabric *topo.Fabric
	// Capacity is the payload rate of each link, by LinkID. Nil means the links' own
	// rates.
	Capacity  []units.Rate
	Coflow    policies.CoflowScheduler
	Fork      *Fork // nil if Coflow decides to the end
	Control   Control
	Placement policies.Placer // may be nil if no blocks are written
	DiskRate  units.Rate      // write rate of each disk of a host; 0 if disks are never the bottleneck
	DiskSize  units.Bytes     // total disk capacity of each host; 0 if disks are never full
	Zone      []int           // power or network zone of each rack; nil if all racks share one
	Heartbeat time.Duration   // time between two reports of a host
	Phases    *Phases         // of the reports; nil if all hosts report at one moment
	// Stuck is the time after which a flow without progress fails while a link of its path
	// is down; 0 means DefaultStuck. It is checked when heartbeats arrive.
	Stuck time.Duration
	// Alpha is the weight of the newest sample in the moving average of a
	// host's traffic, in (0, 1]. Sinbad (SIGCOMM 2013) uses 0.2.
	Alpha float64
	// Tasks are the jobs of tasks; nil for none.
	Tasks *TaskConfig
	// Watcher is notified of decisions; nil for none. The coflow policy then also sees the facts of Observed.
	Watcher Watcher
	// Names are the policies as errors name them, such as "coflow policy sebf", by role: "coflow", "placement" and
	// "tasks".
	Names map[string]string
	// IDs are the first IDs of the coflows, flows and blocks that the engine starts itself, to fetch
	// blocks and for tasks. They must be above those of the workload.
	IDs workloads.IDs
	// Seed is the seed of random paths and placements. Draws depend on it, on their purpose and
	// on the identity of their object in the workload, such as a read of a reader and its
	// attempt. They never depend on the policies or on IDs that are assigned during the run, so
	// that arms can be compared in pairs.
	Seed uint64
}

// DefaultStuck is the default of Config.Stuck.
const DefaultStuck = 10 * time.Second

// Engine is the master. Its zero value is not usable: call New.
type Engine struct {
	*core
	coflows coflows
	control control
	blocks  blocks
	writers writers
	reads   reads
	tasks   tasks
}

// core is what the sub-machines share: the configuration, the time, the state of hosts and
// links, and the commands and notes of the current step.
type core struct {
	cfg Config
	now time.Duration
	// forked and changed are what Engine.Forked returns.
	forked, changed bool

	hosts []host
	racks []counters    // as the reports of leaves show them
	load  []units.Rate  // by LinkID, from the newest LinkLoads
	down  int           // number of links that are down
	next  workloads.IDs // the next IDs to assign
	cmds  []Command
	notes []note // not delivered yet
	// clusters are what policies see of this state, one for each set of facts.
	clusters []*cluster
}

func (c *core) command(cmds ...Command) { c.cmds = append(c.cmds, cmds...) }

// policy returns the policy of a role as errors name it.
func (c *core) policy(role string) string { return cmp.Or(c.cfg.Names[role], role+" policy") }

// assign returns unused IDs of a coflow and its flow.
func (c *core) assign() workloads.IDs {
	id := c.next
	c.next.Coflow++
	c.next.Flow++
	return id
}

func (c *core) send(n note) { c.notes = append(c.notes, n) }

// New checks the configuration and returns an engine in its initial state.
func New(cfg Config) (*Engine, error) {
	if cfg.Fabric == nil || cfg.Coflow == nil {
		return nil, errors.New("engine: a fabric and a coflow policy are required")
	}
	if cfg.Capacity == nil {
		for _, l := range cfg.Fabric.Links() {
			cfg.Capacity = append(cfg.Capacity, l.Rate)
		}
	}
	if cfg.Stuck < 0 {
		return nil, fmt.Errorf("engine: stuck %v: must be positive", cfg.Stuck)
	} else if cfg.Stuck == 0 {
		cfg.Stuck = DefaultStuck
	}
	cfg.Capacity = slices.Clone(cfg.Capacity) // LinkChanged changes it
	if len(cfg.Capacity) != len(cfg.Fabric.Links()) {
		return nil, fmt.Errorf("engine: %d capacities for %d links", len(cfg.Capacity), len(cfg.Fabric.Links()))
	}
	if cfg.Heartbeat <= 0 || cfg.Alpha <= 0 || cfg.Alpha > 1 {
		return nil, fmt.Errorf("engine: heartbeat %v, alpha %v: must be a positive time and a weight in (0, 1]", cfg.Heartbeat, cfg.Alpha)
	}
	shared := &core{cfg: cfg, next: cfg.IDs, hosts: make([]host, cfg.Fabric.Hosts()), racks: make([]counters, cfg.Fabric.Racks()), load: make([]units.Rate, len(cfg.Capacity))}
	e := &Engine{core: shared}
	for h := range e.hosts {
		e.hosts[h].lastReport, e.hosts[h].nextReport, e.hosts[h].load = -1, cfg.Heartbeat, -1
	}
	for r := range e.racks {
		e.racks[r].lastReport, e.racks[r].nextReport = -1, cfg.Heartbeat
	}
	if p := cfg.Phases; p != nil {
		if len(p.Hosts) != len(e.hosts) || len(p.Leaves) != len(e.racks) {
			return nil, fmt.Errorf("engine: phases of %d hosts and %d leaves: the fabric has %d and %d", len(p.Hosts), len(p.Leaves), len(e.hosts), len(e.racks))
		}
		for h, first := range p.Hosts {
			e.hosts[h].nextReport = first
		}
		for r, first := range p.Leaves {
			e.racks[r].nextReport = first
		}
	}
	e.coflows = newCoflows(shared)
	e.writers = newWriters(shared, &e.blocks)
	e.reads = newReads(shared, &e.coflows)
	var badBlocks error
	e.blocks, badBlocks = newBlocks(shared)
	for _, r := range cfg.Capacity {
		if r < 0 {
			return nil, fmt.Errorf("engine: link capacity %d: must be 0 or more", r)
		}
		if r == 0 {
			e.down++
		}
	}
	var badTasks error
	e.tasks, badTasks = newTasks(shared, &e.coflows, &e.blocks)
	e.blocks.attempt = e.tasks.writerOf
	if err := errors.Join(e.initControl(), badBlocks, badTasks); err != nil {
		return nil, err
	}
	return e, nil
}

// Step processes the events up to the time now and returns the resulting commands, in
// order. An error is caused by the caller or by a policy; the engine must not be used after
// it.
func (e *Engine) Step(now time.Duration, evs ...Event) ([]Command, error) {
	if now < e.now {
		return nil, fmt.Errorf("engine: time went back from %v to %v", e.now, now)
	}
	e.now, e.cmds = now, nil
	e.clusterChanged()
	e.control.urgent, e.coflows.look = false, false
	for _, ev := range evs {
		if err := e.event(ev); err != nil {
			return nil, fmt.Errorf("engine: at %v: %w", now, err)
		}
		e.deliver()
	}
	if err := e.act(); err != nil {
		return nil, fmt.Errorf("engine: at %v: %w", now, err)
	}
	return e.cmds, nil
}

// event gives an event to the machine that owns its subject.
func (e *Engine) event(ev Event) error {
	switch ev := ev.(type) {
	case CoflowArrived:
		if err := e.writers.coflowArrived(ev); err != nil {
			return err
		}
		return e.coflows.arrived(ev.Coflow, origin{hash: func(id workloads.FlowID) uint32 { return workloads.FlowHash(e.cfg.Seed, id) }})
	case WriterArrived:
		return e.blocks.writerArrived(ev.Writer)
	case ReaderArrived:
		return e.reads.readerArrived(ev.Reader)
	case JobArrived:
		return e.tasks.jobArrived(ev.Job)
	case TaskComputed:
		e.tasks.taskComputed(ev)
		return nil
	case TaskProgressed:
		return e.tasks.computing(ev)
	case OutputSpilled:
		e.tasks.outputSpilled(ev)
		return nil
	case TaskFailed:
		e.tasks.taskFailed(ev.Attempt, ev.Why)
		return nil
	case TransferProgressed:
		return e.transferProgressed(ev)
	case TransferFinished:
		if e.coflows.byFlow[ev.Flow] == nil && e.localEnded(ev.Flow, false, "") { // few are local
			return nil
		}
		return e.coflows.finished(ev.Flow)
	case TransferFailed:
		e.send(disrupted{})
		if e.localEnded(ev.Flow, true, ev.Why) {
			return nil
		}
		return e.coflows.transferFailed(ev)
	case LinkChanged:
		return e.linkChanged(ev)
	case PathChanged:
		return e.coflows.pathChanged(ev)
	case HostLost:
		return e.hostLost(ev.Host)
	case HostBack:
		return e.hostBack(ev)
	case ReplicaLost:
		return e.blocks.replicaLost(ev)
	case BlockFailed:
		return e.blocks.blockFailed(ev)
	case BlockDurable:
		return e.blocks.blockDurable(ev.Block)
	case Heartbeat:
		return e.heartbeat(ev)
	case RackReport:
		return e.rackReport(ev)
	case LinkLoads:
		return e.linkLoads(ev)
	}
	return fmt.Errorf("unknown event %T", ev)
}

// localEnded ends a read from a host's own disk, and reports whether the flow is one.
func (e *Engine) localEnded(id workloads.FlowID, failed bool, why string) bool {
	switch {
	case e.tasks.knows(id):
		e.tasks.readEnded(id, failed, why)
	case e.reads.knows(id):
		e.reads.localEnded(id, failed, why)
	default:
		return false
	}
	return true
}

// act does what has become due: it gives up flows without progress, starts writers, places
// blocks, starts reads, schedules tasks and calls the coflow policy.
func (e *Engine) act() error {
	e.coflows.giveUpStuck()
	e.deliver()
	for again := true; again; again = e.tasks.due() {
		for e.tasks.due() {
			if err := e.tasks.step(); err != nil {
				return err
			}
			e.deliver()
		}
		for _, due := range []func() error{e.writers.startWriters, e.blocks.placeWaiting, e.blocks.startPlaced, e.reads.serve} {
			if err := due(); err != nil {
				return err
			}
			e.deliver()
		}
	}
	e.coflows.grow()
	e.release()
	if err := e.fork(); err != nil {
		return err
	}
	if e.needed() {
		return e.decide()
	}
	e.start(0)
	return nil
}

// transferProgressed updates the bytes that receivers have. Policies do not see the progress
// of reads from the reader's own disk.
func (e *Engine) transferProgressed(ev TransferProgressed) error {
	if len(ev.Flows) != len(ev.Received) {
		return fmt.Errorf("progress of %d flows with %d counts", len(ev.Flows), len(ev.Received))
	}
	for i, id := range ev.Flows {
		e.tasks.received(id, ev.Received[i])
		f := e.coflows.byFlow[id]
		if f == nil && (e.reads.knows(id) || e.tasks.knows(id)) {
			continue
		}
		if err := e.coflows.progressed(id, f, ev.Received[i]); err != nil {
			return err
		}
	}
	return nil
}

// Idle reports whether everything that has arrived has finished.
func (e *Engine) Idle() bool {
	return len(e.coflows.active) == 0 && len(e.blocks.active)+len(e.blocks.waiting) == 0 && len(e.writers.waiting) == 0 && len(e.reads.active) == 0 &&
		len(e.tasks.thinking) == 0 && (e.tasks.tracker == nil || e.tasks.tracker.Idle())
}

// Unfinished describes the unfinished work in one line.
func (e *Engine) Unfinished() string {
	flows := 0
	for _, c := range e.coflows.active {
		flows += len(c.flows)
	}
	left := fmt.Sprintf("%d coflows with %d flows and %d block writes", len(e.coflows.active), flows, len(e.blocks.active)+len(e.blocks.waiting))
	if n := e.writers.toStart(); n > 0 {
		left += fmt.Sprintf(" and %d writers to start", n)
	}
	if n := len(e.reads.active); n > 0 {
		left += fmt.Sprintf(" and %d readers, %d of which wait for a block to be durable", n, e.reads.waits())
	}
	if e.tasks.tracker != nil {
		left += " and " + e.tasks.tracker.Unfinished()
		if n := len(e.tasks.thinking); n > 0 {
			left += fmt.Sprintf(" and %d jobs to submit", n)
		}
	}
	return left
}
