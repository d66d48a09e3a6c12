package engine

import (
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// blocks is the sub-machine that places blocks and follows their pipelines.
type blocks struct {
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

func (e *Engine) writerArrived(cmds []Command, w workloads.Writer) ([]Command, error) {
	if len(w.Blocks) == 0 {
		return nil, fmt.Errorf("writer %d has no blocks", w.ID)
	}
	return e.requestBlock(cmds, w.Blocks)
}

// requestBlock places the first of a writer's remaining blocks and starts its
// pipeline.
func (e *Engine) requestBlock(cmds []Command, rest []workloads.Block) ([]Command, error) {
	b := rest[0]
	switch {
	case e.cfg.Placement == nil:
		return nil, fmt.Errorf("block %d: there is no placement policy", b.ID)
	case e.blocks.active[b.ID] != nil:
		return nil, fmt.Errorf("block %d is being written already", b.ID)
	case b.Size <= 0 || b.Packet <= 0 || b.Window <= 0 || b.Replicas <= 0 || !e.known(b.Client):
		return nil, fmt.Errorf("block %d: size %v, packet %v, window %d, %d replicas, client %d: want all positive and a client of the fabric", b.ID, b.Size, b.Packet, b.Window, b.Replicas, b.Client)
	}
	if h := e.lostOf(b.Client); h >= 0 {
		return e.failWriter(cmds, rest, e.lostWhy(h)), nil
	}
	targets, err := e.cfg.Placement.Place(e.view(e.cfg.Placement.Needs()), b, workloads.Stream(e.cfg.Seed, "placement", int(b.ID)))
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
		e.hosts[h].writing++
		e.hosts[h].used += b.Size
	}
	e.blocks.placements = append(e.blocks.placements, policies.Placement{At: e.now, Block: b.ID, Client: b.Client, Size: b.Size, Hosts: slices.Clone(targets)})
	e.blocks.active[b.ID] = &write{block: b, targets: targets, rest: rest[1:]}
	return append(cmds,
		Mark{Kind: MarkWrite, ID: int(b.ID), Host: b.Client, Parts: b.Replicas, Size: b.Size},
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
		e.hosts[h].writing--
	}
	if len(w.rest) == 0 {
		return cmds, nil
	}
	return e.requestBlock(cmds, w.rest)
}

// recentPlacements forgets the placements that every host's estimate reflects
// and returns a copy of the others.
func (e *Engine) recentPlacements() []policies.Placement {
	oldest := e.now
	for _, h := range e.hosts {
		oldest = min(oldest, max(h.lastReport, 0))
	}
	keep := slices.IndexFunc(e.blocks.placements, func(p policies.Placement) bool { return p.At >= time.Duration(oldest) })
	if keep < 0 {
		keep = len(e.blocks.placements)
	}
	e.blocks.placements = e.blocks.placements[keep:]
	return slices.Clone(e.blocks.placements)
}
