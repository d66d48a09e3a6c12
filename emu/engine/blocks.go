package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// blocks is the sub-machine that places blocks and follows their pipelines.
type blocks struct {
	every   time.Duration // between two moments at which requests are placed; 0: each at once
	waiting []request     // in order of time, ties by block
	largest units.Bytes   // block of any writer so far

	active     map[workloads.BlockID]*write
	failed     map[workloads.BlockID]bool // of which news may still come in
	placements []policies.Placement       // in order of time, pruned by recentPlacements
}

// write is a block being written and those its writer will write after it.
type write struct {
	block   workloads.Block
	targets []topo.HostID
	rest    []workloads.Block
	lost    []topo.HostID // targets that it goes on without
}

// request is a block that waits to be placed and those its writer will write after it.
type request struct {
	at   time.Duration
	rest []workloads.Block // the block first
}

func (e *Engine) initBlocks() error {
	e.blocks.failed = map[workloads.BlockID]bool{}
	e.blocks.active = map[workloads.BlockID]*write{}
	if p, ok := e.cfg.Placement.(policies.Batcher); ok {
		if e.blocks.every = p.Every(); e.blocks.every < 0 {
			return fmt.Errorf("engine: placement policy %T: interval %v: want 0 or more", p, e.blocks.every)
		}
	}
	if e.cfg.Zone != nil && len(e.cfg.Zone) != e.cfg.Fabric.Racks() {
		return fmt.Errorf("engine: zones of %d racks: want those of all %d, or none", len(e.cfg.Zone), e.cfg.Fabric.Racks())
	}
	e.cfg.Zone = slices.Clone(e.cfg.Zone)
	return nil
}

func (e *Engine) writerArrived(cmds []Command, w workloads.Writer) ([]Command, error) {
	if len(w.Blocks) == 0 {
		return nil, fmt.Errorf("writer %d has no blocks", w.ID)
	}
	for _, b := range w.Blocks {
		e.blocks.largest = max(e.blocks.largest, b.Size)
	}
	return e.requestBlock(cmds, w.Blocks)
}

// requestBlock requests the first of a writer's remaining blocks, and places it unless
// it has to wait.
func (e *Engine) requestBlock(cmds []Command, rest []workloads.Block) ([]Command, error) {
	b := rest[0]
	switch {
	case e.cfg.Placement == nil:
		return nil, fmt.Errorf("block %d: there is no placement policy", b.ID)
	case e.blocks.active[b.ID] != nil || slices.ContainsFunc(e.blocks.waiting, func(r request) bool { return r.rest[0].ID == b.ID }):
		return nil, fmt.Errorf("block %d is being written already", b.ID)
	case b.Size <= 0 || b.Packet <= 0 || b.Window <= 0 || b.Replicas <= 0 || !e.known(b.Client):
		return nil, fmt.Errorf("block %d: size %v, packet %v, window %d, %d replicas, client %d: want all positive and a client of the fabric", b.ID, b.Size, b.Packet, b.Window, b.Replicas, b.Client)
	}
	if h := e.lostOf(b.Client); h >= 0 {
		return e.failWriter(cmds, rest, e.lostWhy(h)), nil
	}
	r := request{e.now, rest}
	if e.blocks.every == 0 {
		return e.placeBlock(cmds, r)
	}
	after, _ := slices.BinarySearchFunc(e.blocks.waiting, r, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rest[0].ID, b.rest[0].ID))
	})
	e.blocks.waiting = slices.Insert(e.blocks.waiting, after, r)
	return cmds, nil
}

// dueBlocks is when requests that wait are to be placed: the first multiple of the
// policy's interval that is not before the oldest. NextNever for none.
func (e *Engine) dueBlocks() time.Duration {
	if len(e.blocks.waiting) == 0 {
		return NextNever
	}
	return multipleOf(e.blocks.every, e.blocks.waiting[0].at)
}

// placeWaiting places the requests whose time has come, in the order that the policy
// says. Those that this brings, where a block fails and its writer goes on, are placed
// after them, at the same moment if it is theirs.
func (e *Engine) placeWaiting(cmds []Command) ([]Command, error) {
	for e.dueBlocks() <= e.now {
		n := 0
		for n < len(e.blocks.waiting) && multipleOf(e.blocks.every, e.blocks.waiting[n].at) <= e.now {
			n++
		}
		due := slices.Clone(e.blocks.waiting[:n])
		e.blocks.waiting = slices.Delete(e.blocks.waiting, 0, n)
		shown := make([]policies.Request, n)
		for i, r := range due {
			shown[i] = policies.Request{Block: r.rest[0], At: r.at, Left: len(r.rest)}
		}
		order := e.cfg.Placement.(policies.Batcher).Order(shown)
		placed := make([]bool, n)
		for _, i := range order {
			if i < 0 || i >= n || placed[i] {
				return nil, fmt.Errorf("placement policy %T: order %v of %d requests: want each of them once", e.cfg.Placement, order, n)
			}
			placed[i] = true
		}
		if len(order) != n {
			return nil, fmt.Errorf("placement policy %T: order %v of %d requests: want each of them once", e.cfg.Placement, order, n)
		}
		for _, i := range order {
			var err error
			if cmds, err = e.placeBlock(cmds, due[i]); err != nil {
				return nil, err
			}
		}
	}
	return cmds, nil
}

// abandonWaiting fails the writers on a host whose blocks wait to be placed.
func (e *Engine) abandonWaiting(cmds []Command, h topo.HostID, why string) []Command {
	e.blocks.waiting = slices.DeleteFunc(e.blocks.waiting, func(r request) bool {
		if r.rest[0].Client != h {
			return false
		}
		cmds = e.failWriter(cmds, r.rest, why)
		return true
	})
	return cmds
}

// placeBlock places the first of a writer's remaining blocks, which is marked, and
// starts its pipeline.
func (e *Engine) placeBlock(cmds []Command, r request) ([]Command, error) {
	rest := r.rest
	b := rest[0]
	v := e.view(e.cfg.Placement.Needs())
	v.Zone, v.LargestBlock = e.cfg.Zone, e.blocks.largest
	targets, err := e.cfg.Placement.Place(v, b, workloads.Stream(e.cfg.Seed, "placement", int(b.ID)))
	if lost, full := e.lostHosts(), e.fullHosts(); err != nil && lost+full > 0 {
		// With all hosts there it may well have found a place.
		why := fmt.Sprintf("no place with %d hosts lost", lost)
		if full > 0 {
			why += fmt.Sprintf(" and %d full", full)
		}
		return e.failBlock(cmds, rest, fmt.Sprintf("%s: %v", why, err))
	}
	if err != nil {
		return nil, fmt.Errorf("place block %d of %v from %s: %w", b.ID, b.Size, e.cfg.Fabric.HostName(b.Client), err)
	}
	if err := e.checkTargets(b, targets); err != nil {
		return nil, err
	}
	hashes := make([]uint32, len(targets))
	for hop := range hashes {
		hashes[hop] = workloads.HopHash(e.cfg.Seed, b.ID, hop)
	}
	for _, h := range targets {
		e.hosts[h].allocate(b)
	}
	e.blocks.placements = append(e.blocks.placements, policies.Placement{At: e.now, Block: b.ID, Client: b.Client, Size: b.Size, Hosts: slices.Clone(targets)})
	e.blocks.active[b.ID] = &write{block: b, targets: targets, rest: rest[1:]}
	return append(cmds,
		Mark{Kind: MarkWrite, ID: int(b.ID), Host: b.Client, Parts: b.Replicas, Size: b.Size, Waited: e.now - r.at},
		StartChain{Block: b, Targets: slices.Clone(targets), Hashes: hashes}), nil
}

func (e *Engine) checkTargets(b workloads.Block, targets []topo.HostID) error {
	if len(targets) != b.Replicas {
		return fmt.Errorf("placement policy %T: %d hosts for %d replicas of block %d", e.cfg.Placement, len(targets), b.Replicas, b.ID)
	}
	seen := map[topo.HostID]bool{}
	for _, h := range targets {
		if !e.known(h) || seen[h] || e.hosts[h].lost {
			return fmt.Errorf("placement policy %T: hosts %v for block %d: want different hosts of the fabric that are not lost", e.cfg.Placement, targets, b.ID)
		}
		seen[h] = true
	}
	return nil
}

func (e *Engine) blockDurable(cmds []Command, id workloads.BlockID) ([]Command, error) {
	w := e.blocks.active[id]
	if w == nil && e.blocks.failed[id] {
		return cmds, nil // its last acknowledgement came in after it was given up
	}
	if w == nil {
		return nil, fmt.Errorf("block %d is durable, which is not being written", id)
	}
	delete(e.blocks.active, id)
	for _, h := range w.targets {
		e.hosts[h].stored(id, e.now)
	}
	e.reads.durable[id] = replicas{w.block.Size, slices.Clone(w.targets)}
	e.reads.wake(id)
	if len(w.rest) == 0 {
		return cmds, nil
	}
	return e.requestBlock(cmds, w.rest)
}

// recentPlacements forgets the placements that the estimates of all hosts that are
// not lost reflect and returns the others, which are not changed any more.
func (e *Engine) recentPlacements() []policies.Placement {
	oldest := e.now
	for i := range e.hosts {
		if !e.hosts[i].lost {
			oldest = min(oldest, max(e.hosts[i].lastReport, 0))
		}
	}
	keep := slices.IndexFunc(e.blocks.placements, func(p policies.Placement) bool { return p.At >= oldest })
	if keep < 0 {
		keep = len(e.blocks.placements)
	}
	e.blocks.placements = e.blocks.placements[keep:]
	return slices.Clip(e.blocks.placements)
}
