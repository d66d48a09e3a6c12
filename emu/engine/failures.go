package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/emu/engine/tracker"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// linkChanged sets the capacity of a link, as policies see it.
func (e *Engine) linkChanged(ev LinkChanged) error {
	e.send(disrupted{})
	if ev.Link < 0 || int(ev.Link) >= len(e.cfg.Capacity) || ev.Rate < 0 {
		return fmt.Errorf("link %d changed to %d: must be a link of the fabric and a rate of 0 or more", ev.Link, ev.Rate)
	}
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

func (x *coflows) pathChanged(ev PathChanged) error {
	x.send(disrupted{})
	f := x.byFlow[ev.Flow]
	if f == nil {
		return nil // it has already ended
	}
	fabric := x.cfg.Fabric
	from, to := fabric.RackOf(f.Src), fabric.RackOf(f.Dst)
	if ev.Spine < 0 || ev.Spine >= fabric.Spines() || from == to {
		return fmt.Errorf("flow %d from %s to %s changed to spine %d: must be a flow between racks and a spine of the fabric", f.ID, fabric.HostName(f.Src), fabric.HostName(f.Dst), ev.Spine)
	}
	f.path = []topo.LinkID{fabric.HostUp(f.Src), fabric.LeafUp(from, ev.Spine), fabric.LeafDown(to, ev.Spine), fabric.HostDown(f.Dst)}
	if f.place != unplaced {
		f.coflow.demand.SetPath(f.place, f.path)
	}
	return nil
}

// giveUpStuck fails the flows without progress for Config.Stuck while a link of their path
// was down, if an event of the step requires it.
func (x *coflows) giveUpStuck() {
	if !x.look || x.down == 0 && !x.cuts {
		return
	}
	x.cuts = x.down > 0
	var stuck []*flow
	x.each(func(c *coflow) {
		for _, f := range c.flows {
			switch {
			case !slices.ContainsFunc(f.path, func(l topo.LinkID) bool { return x.cfg.Capacity[l] == 0 }):
				f.cut = -1
			case f.cut < 0:
				f.cut = x.now
			case x.now-f.cut >= x.cfg.Stuck:
				stuck = append(stuck, f)
			}
		}
	})
	for _, f := range stuck {
		x.fail(f, fmt.Sprintf("no path for %v", x.cfg.Stuck))
		x.send(disrupted{})
	}
}

// fail fails a flow. Its coflow ends without it.
func (x *coflows) fail(f *flow, why string) { x.cut(f, MarkFlowFailed, why) }

// cut ends a flow before its last byte.
func (x *coflows) cut(f *flow, mark MarkKind, why string) {
	x.end(f, true, why)
	x.failed[f.ID] = true
	if f.started {
		x.command(StopTransfer{Flow: f.ID, Src: f.Src, Dst: f.Dst})
	}
	x.command(Mark{Kind: mark, ID: int(f.ID), Host: x.living(f.Src, f.Dst), Parts: int(f.coflow.State.ID), Size: f.Size, Why: why})
}

func (x *coflows) transferFailed(ev TransferFailed) error {
	f := x.byFlow[ev.Flow]
	switch {
	case f == nil: // it has already finished or failed
		return nil
	case !f.started:
		return fmt.Errorf("flow %d failed: it is not running", ev.Flow)
	}
	x.fail(f, ev.Why)
	return nil
}

// hostEnded fails the flows from and to a host.
func (x *coflows) hostEnded(n hostEnded) {
	var flows []*flow
	x.each(func(c *coflow) {
		for _, f := range c.flows {
			if f.Src == n.host || f.Dst == n.host {
				flows = append(flows, f)
			}
		}
	})
	for _, f := range flows {
		x.fail(f, n.why)
	}
}

// hostLost fails all work that needs a lost host.
func (e *Engine) hostLost(h topo.HostID) error {
	e.send(disrupted{})
	if !e.known(h) {
		return fmt.Errorf("host %d lost: unknown host", h)
	}
	if !e.hosts[h].lost {
		e.hosts[h].lost = true
		e.hostChanged(h)
		e.send(hostEnded{h, e.lostWhy(h)})
	}
	return nil
}

// hostBack makes a host eligible again. Its earlier work is lost even if its absence was not
// noticed.
func (e *Engine) hostBack(ev HostBack) error {
	e.send(disrupted{})
	if !e.known(ev.Host) {
		return fmt.Errorf("host %d back: unknown host", ev.Host)
	}
	h := &e.hosts[ev.Host]
	h.lost = true // no block is placed on it while its work is dropped
	e.hostChanged(ev.Host)
	e.send(hostEnded{ev.Host, e.cfg.Fabric.HostName(ev.Host) + " started again"})
	e.deliver()
	h.lost = false
	h.rx, h.tx = 0, 0
	if ev.DiskLost {
		h.wiped()
		e.send(diskWiped{ev.Host})
	}
	if e.tasks.tracker != nil {
		e.tasks.note(tracker.HostBack{Host: ev.Host, DiskLost: ev.DiskLost})
	}
	e.hostChanged(ev.Host)
	return nil
}

// hostEnded fails the current and future blocks of a host's writers, and drops its replicas of
// blocks that others write.
func (x *blocks) hostEnded(n hostEnded) {
	x.abandonWaiting(n.host, n.why)
	for _, id := range slices.Sorted(maps.Keys(x.active)) {
		w := x.active[id]
		if w.block.Client == n.host {
			if !w.decided {
				x.command(StopChain{Block: id})
			}
			x.failWriter(x.drop(w), n.why)
		} else {
			x.dropReplica(w, n.host)
		}
	}
}

// drop removes a failed block and returns it with its writer's next blocks.
func (x *blocks) drop(w *write) []workloads.Block {
	delete(x.active, w.block.ID)
	for _, h := range slices.Clone(w.targets) {
		x.dropReplica(w, h)
	}
	return append([]workloads.Block{w.block}, w.rest...)
}

// dropReplica releases the disk space of a replica that will not be written.
func (x *blocks) dropReplica(w *write, h topo.HostID) {
	i := slices.Index(w.targets, h)
	if i < 0 {
		return
	}
	w.targets = slices.Delete(w.targets, i, i+1)
	w.lost = append(w.lost, h)
	x.hosts[h].dropped(w.block.ID)
	x.hostChanged(h)
}

func (x *blocks) replicaLost(ev ReplicaLost) error {
	w := x.active[ev.Block]
	switch {
	case w == nil: // it has already ended
	case !slices.Contains(w.targets, ev.Host) && !slices.Contains(w.lost, ev.Host):
		return fmt.Errorf("replica of block %d on host %d lost: it is not being written", ev.Block, ev.Host)
	default:
		x.dropReplica(w, ev.Host)
	}
	if w != nil && ev.Full {
		x.hosts[ev.Host].full = true
		x.hostChanged(ev.Host)
	}
	return nil
}

// blockFailed fails a block; its writer continues with the next.
func (x *blocks) blockFailed(ev BlockFailed) error {
	w := x.active[ev.Block]
	switch {
	case w == nil && x.failed[ev.Block]:
		return nil
	case w == nil:
		return fmt.Errorf("block %d failed: it is not being written", ev.Block)
	}
	x.command(StopChain{Block: ev.Block})
	return x.failBlock(x.drop(w), ev.Why)
}

// failBlock marks the first of a writer's blocks as failed and requests the next.
func (x *blocks) failBlock(rest []workloads.Block, why string) error {
	x.failWriter(rest[:1], why)
	if len(rest) == 1 {
		return nil
	}
	return x.requestBlock(rest[1:])
}

// failWriter marks all of a writer's blocks as failed.
func (x *blocks) failWriter(rest []workloads.Block, why string) {
	for _, b := range rest {
		x.failed[b.ID] = true
		x.send(blockEnded{id: b.ID, failed: true, size: b.Size})
		x.command(Mark{Kind: MarkBlockFailed, ID: int(b.ID), Host: x.living(b.Client), Parts: b.Replicas, Size: b.Size, Why: why})
	}
}

func (c *core) lostWhy(h topo.HostID) string { return c.cfg.Fabric.HostName(h) + " is lost" }

// lostOf returns the first lost host of hosts, -1 if none is lost.
func (c *core) lostOf(hosts ...topo.HostID) topo.HostID {
	for _, h := range hosts {
		if c.hosts[h].lost {
			return h
		}
	}
	return -1
}

func (c *core) lostHosts() (n int) {
	for _, h := range c.hosts {
		if h.lost {
			n++
		}
	}
	return n
}

func (c *core) fullHosts() (n int) {
	for _, h := range c.hosts {
		if h.full {
			n++
		}
	}
	return n
}

// living returns the first host of hosts that is not lost, else the first such host of the
// fabric, else host 0.
func (c *core) living(hosts ...topo.HostID) topo.HostID {
	for _, h := range hosts {
		if !c.hosts[h].lost {
			return h
		}
	}
	return max(0, topo.HostID(slices.IndexFunc(c.hosts, func(h host) bool { return !h.lost })))
}

// Failure is a failed flow or block, or a lost replica.
type Failure struct {
	Kind   FailureKind
	At     time.Duration
	Coflow workloads.CoflowID // for a flow
	Flow   workloads.FlowID   // for a flow
	Block  workloads.BlockID  // for a block or replica
	Host   topo.HostID        // for a replica
	Size   units.Bytes        // for a flow or block
	Why    string             // for a flow or block; WhyFull or empty for a replica
}

// WhyFull is Failure.Why of a replica for which its host had no room.
const WhyFull = wire.WhyFull

// FailureKind is the kind of a Failure.
type FailureKind string

// The kinds of failures.
const (
	FlowFailure    FailureKind = "flow"
	BlockFailure   FailureKind = "block"
	ReplicaFailure FailureKind = "replica"
)

// Failures returns the failures of one step: flows and blocks that the engine failed, and
// replicas that pipelines reported lost.
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
