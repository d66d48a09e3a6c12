package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// linkChanged masks the capacity of a link: policies see what it carries now.
func (e *Engine) linkChanged(ev LinkChanged) error {
	if ev.Link < 0 || int(ev.Link) >= len(e.cfg.Capacity) || ev.Rate < 0 {
		return fmt.Errorf("link %d changed to %d: want a link of the fabric and a rate of 0 or more", ev.Link, ev.Rate)
	}
	// Policies may keep a View: it is not changed under them.
	e.cfg.Capacity = slices.Clone(e.cfg.Capacity)
	if e.cfg.Capacity[ev.Link] == 0 {
		e.down--
	}
	if ev.Rate == 0 {
		e.down++
	}
	e.cfg.Capacity[ev.Link] = ev.Rate
	e.control.capacity[ev.Link] = float64(ev.Rate)
	return nil
}

func (e *Engine) pathChanged(ev PathChanged) error {
	f := e.coflows.byFlow[ev.Flow]
	if f == nil {
		return nil // it has ended meanwhile
	}
	fabric := e.cfg.Fabric
	from, to := fabric.RackOf(f.Src), fabric.RackOf(f.Dst)
	if ev.Spine < 0 || ev.Spine >= fabric.Spines() || from == to {
		return fmt.Errorf("flow %d from %s to %s changed to spine %d: want a flow between racks and a spine of the fabric", f.ID, fabric.HostName(f.Src), fabric.HostName(f.Dst), ev.Spine)
	}
	f.path = []topo.LinkID{fabric.HostUp(f.Src), fabric.LeafUp(from, ev.Spine), fabric.LeafDown(to, ev.Spine), fabric.HostDown(f.Dst)}
	f.coflow.demand.SetPath(f.place, f.path)
	return nil
}

// giveUpStuck fails the flows that have stood still for Config.Stuck with a link
// of their path down.
func (e *Engine) giveUpStuck(cmds []Command) []Command {
	if e.down == 0 && !e.cuts {
		return cmds
	}
	e.cuts = e.down > 0
	var stuck []*flow
	for _, c := range e.coflows.active {
		for _, f := range c.flows {
			switch {
			case !slices.ContainsFunc(f.path, func(l topo.LinkID) bool { return e.cfg.Capacity[l] == 0 }):
				f.cut = -1
			case f.cut < 0:
				f.cut = e.now
			case e.now-f.cut >= e.cfg.Stuck:
				stuck = append(stuck, f)
			}
		}
	}
	for _, f := range stuck {
		cmds = e.failFlow(cmds, f, fmt.Sprintf("no path for %v", e.cfg.Stuck))
	}
	return cmds
}

// failFlow ends a flow that will not finish. Its coflow ends without it.
func (e *Engine) failFlow(cmds []Command, f *flow, why string) []Command {
	e.sent(f.Src, false)
	f.coflow.lacks(f.Dst, why)
	e.forget(f)
	e.coflows.failed[f.ID] = true
	if r := f.coflow.reader; r != nil {
		r.why = why
		e.reads.queue(r)
	}
	if f.started {
		cmds = append(cmds, StopTransfer{Flow: f.ID, Src: f.Src, Dst: f.Dst})
	}
	return append(cmds, Mark{Kind: MarkFlowFailed, ID: int(f.ID), Host: e.living(f.Src, f.Dst), Parts: int(f.coflow.id), Size: f.Size, Why: why})
}

func (e *Engine) transferFailed(cmds []Command, ev TransferFailed) ([]Command, error) {
	if r := e.reads.local[ev.Flow]; r != nil {
		delete(e.reads.local, ev.Flow)
		r.why = ev.Why
		e.reads.queue(r)
		return cmds, nil
	}
	f := e.coflows.byFlow[ev.Flow]
	switch {
	case f == nil: // its receiver had all of it, or it has been given up
		return cmds, nil
	case !f.started:
		return nil, fmt.Errorf("flow %d failed, which is not running", ev.Flow)
	}
	return e.failFlow(cmds, f, ev.Why), nil
}

// hostLost fails what needs a host that is gone.
func (e *Engine) hostLost(cmds []Command, h topo.HostID) ([]Command, error) {
	if !e.known(h) {
		return nil, fmt.Errorf("unknown host %d lost", h)
	}
	if e.hosts[h].lost {
		return cmds, nil
	}
	e.hosts[h].lost = true
	return e.abandon(cmds, h, e.lostWhy(h))
}

// hostBack makes a host eligible again. What it was doing is lost also where it
// was not missed.
func (e *Engine) hostBack(cmds []Command, ev HostBack) ([]Command, error) {
	if !e.known(ev.Host) {
		return nil, fmt.Errorf("unknown host %d back", ev.Host)
	}
	e.hosts[ev.Host].lost = true // nothing is placed on it while its work is dropped
	cmds, err := e.abandon(cmds, ev.Host, e.cfg.Fabric.HostName(ev.Host)+" started again")
	if err != nil {
		return nil, err
	}
	h := &e.hosts[ev.Host]
	h.lost = false
	h.rx, h.tx = 0, 0
	if ev.DiskLost {
		h.wiped()
		e.reads.wiped(ev.Host)
	}
	return cmds, nil
}

// abandon fails the flows from and to a host, the blocks that it writes or was to
// write, and its replicas of blocks that others write.
func (e *Engine) abandon(cmds []Command, h topo.HostID, why string) ([]Command, error) {
	var flows []*flow
	for _, c := range e.coflows.active {
		for _, f := range c.flows {
			if f.Src == h || f.Dst == h {
				flows = append(flows, f)
			}
		}
	}
	cmds = e.loseInput(cmds, h, why)
	cmds = e.abandonReaders(cmds, h, why)
	for _, f := range flows {
		cmds = e.failFlow(cmds, f, why)
	}
	cmds = e.abandonWaiting(cmds, h, why)
	for _, id := range slices.Sorted(maps.Keys(e.blocks.active)) {
		w := e.blocks.active[id]
		if w.block.Client == h {
			cmds = e.failWriter(append(cmds, StopChain{Block: id}), e.drop(w), why)
		} else {
			e.dropReplica(w, h)
		}
	}
	return cmds, nil
}

// drop takes a block off the books as failed and returns it with those its writer
// has left.
func (e *Engine) drop(w *write) []workloads.Block {
	delete(e.blocks.active, w.block.ID)
	for _, h := range slices.Clone(w.targets) {
		e.dropReplica(w, h)
	}
	return append([]workloads.Block{w.block}, w.rest...)
}

// dropReplica frees what a replica that will not be written takes of its host.
func (e *Engine) dropReplica(w *write, h topo.HostID) {
	i := slices.Index(w.targets, h)
	if i < 0 {
		return
	}
	w.targets = slices.Delete(w.targets, i, i+1)
	w.lost = append(w.lost, h)
	e.hosts[h].dropped(w.block.ID)
}

func (e *Engine) replicaLost(ev ReplicaLost) error {
	w := e.blocks.active[ev.Block]
	switch {
	case w == nil: // it has ended meanwhile
	case !slices.Contains(w.targets, ev.Host) && !slices.Contains(w.lost, ev.Host):
		return fmt.Errorf("replica of block %d on host %d lost, which is not being written", ev.Block, ev.Host)
	default:
		e.dropReplica(w, ev.Host)
	}
	if w != nil && ev.Full {
		e.hosts[ev.Host].full = true
	}
	return nil
}

// blockFailed ends a block; its writer goes on with the next.
func (e *Engine) blockFailed(cmds []Command, ev BlockFailed) ([]Command, error) {
	w := e.blocks.active[ev.Block]
	switch {
	case w == nil && e.blocks.failed[ev.Block]:
		return cmds, nil
	case w == nil:
		return nil, fmt.Errorf("block %d failed, which is not being written", ev.Block)
	}
	return e.failBlock(append(cmds, StopChain{Block: ev.Block}), e.drop(w), ev.Why)
}

// failBlock marks the first of a writer's blocks as failed and requests the next.
func (e *Engine) failBlock(cmds []Command, rest []workloads.Block, why string) ([]Command, error) {
	cmds = e.failWriter(cmds, rest[:1], why)
	if len(rest) == 1 {
		return cmds, nil
	}
	return e.requestBlock(cmds, rest[1:])
}

// failWriter marks all of a writer's blocks as failed.
func (e *Engine) failWriter(cmds []Command, rest []workloads.Block, why string) []Command {
	for _, b := range rest {
		e.blocks.failed[b.ID] = true
		e.reads.wake(b.ID)
		cmds = append(cmds, Mark{Kind: MarkBlockFailed, ID: int(b.ID), Host: e.living(b.Client), Parts: b.Replicas, Size: b.Size, Why: why})
	}
	return cmds
}

func (e *Engine) lostWhy(h topo.HostID) string { return e.cfg.Fabric.HostName(h) + " is lost" }

// lostOf is the first of some hosts that is lost, -1 where none is.
func (e *Engine) lostOf(hosts ...topo.HostID) topo.HostID {
	for _, h := range hosts {
		if e.hosts[h].lost {
			return h
		}
	}
	return -1
}

func (e *Engine) lostHosts() (n int) {
	for _, h := range e.hosts {
		if h.lost {
			n++
		}
	}
	return n
}

func (e *Engine) fullHosts() (n int) {
	for _, h := range e.hosts {
		if h.full {
			n++
		}
	}
	return n
}

// living is the first of some hosts that is not lost, or of all hosts, or the
// first of all where none is left.
func (e *Engine) living(hosts ...topo.HostID) topo.HostID {
	for _, h := range hosts {
		if !e.hosts[h].lost {
			return h
		}
	}
	return max(0, topo.HostID(slices.IndexFunc(e.hosts, func(h host) bool { return !h.lost })))
}

// Failure is a flow or block that failed, or a replica that was lost.
type Failure struct {
	Kind   FailureKind
	At     time.Duration
	Coflow workloads.CoflowID // of a flow
	Flow   workloads.FlowID   // of a flow
	Block  workloads.BlockID  // of a block or replica
	Host   topo.HostID        // of a replica
	Size   units.Bytes        // of a flow or block
	Why    string             // of a flow or block; of a replica WhyFull or empty
}

// WhyFull is Failure.Why of a replica that its host had no room for.
const WhyFull = "its disks are full"

// FailureKind is what failed.
type FailureKind string

// What can fail.
const (
	FlowFailure    FailureKind = "flow"
	BlockFailure   FailureKind = "block"
	ReplicaFailure FailureKind = "replica"
)

// Failures are those that one step brought: what the engine gave up, and the
// replicas that pipelines lost, which it is told of.
func Failures(now time.Duration, evs []Event, cmds []Command) []Failure {
	var out []Failure
	for _, ev := range evs {
		if r, ok := ev.(ReplicaLost); ok {
			f := Failure{Kind: ReplicaFailure, At: now, Block: r.Block, Host: r.Host}
			if r.Full {
				f.Why = WhyFull
			}
			out = append(out, f)
		}
	}
	for _, c := range cmds {
		m, ok := c.(Mark)
		switch {
		case ok && m.Kind == MarkFlowFailed:
			out = append(out, Failure{Kind: FlowFailure, At: now, Coflow: workloads.CoflowID(m.Parts), Flow: workloads.FlowID(m.ID), Size: m.Size, Why: m.Why})
		case ok && m.Kind == MarkBlockFailed:
			out = append(out, Failure{Kind: BlockFailure, At: now, Block: workloads.BlockID(m.ID), Size: m.Size, Why: m.Why})
		}
	}
	slices.SortStableFunc(out, func(a, b Failure) int { return cmp.Compare(a.Kind, b.Kind) })
	return out
}
