package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coordinator"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// blocks is the sub-machine that places blocks and tracks their pipelines.
type blocks struct {
	*core
	every   time.Duration // batch interval at which requests are placed; 0: immediately
	waiting []request     // by time, ties by block
	largest units.Bytes   // largest block of any writer so far
	scratch []topo.HostID // of placement policies

	active     map[workloads.BlockID]*write
	failed     map[workloads.BlockID]bool   // failed blocks, about which events may still arrive
	stopped    map[workloads.BlockID]*write // blocks that were stopped, with their targets
	placements []policies.Placement         // by time, pruned by recentPlacements
	placed     transit[*write]

	// attempt returns the attempt of a task that writes a block, its zero value for none.
	attempt func(workloads.BlockID) jobs.AttemptID
}

// write is a block being written and its writer's next blocks.
type write struct {
	block   workloads.Block
	targets []topo.HostID
	rest    []workloads.Block
	lost    []topo.HostID // targets that the pipeline has dropped
	at      time.Duration // of the request
	// decided reports that the placement has not taken effect yet: its pipeline does not exist.
	decided bool
}

// request is a block that waits to be placed and its writer's next blocks.
type request struct {
	at   time.Duration
	rest []workloads.Block // the block first
}

func newBlocks(shared *core) (blocks, error) {
	x := blocks{
		core:    shared,
		scratch: make([]topo.HostID, shared.cfg.Fabric.Hosts()),
		failed:  map[workloads.BlockID]bool{},
		stopped: map[workloads.BlockID]*write{},
		active:  map[workloads.BlockID]*write{},
	}
	if p, ok := x.cfg.Placement.(policies.Batcher); ok {
		if x.every = p.Every(); x.every < 0 {
			return x, fmt.Errorf("engine: %s: interval %v: must be 0 or more", x.policy("placement"), x.every)
		}
	}
	if x.cfg.Zone != nil && len(x.cfg.Zone) != x.cfg.Fabric.Racks() {
		return x, fmt.Errorf("engine: zones of %d racks: must be given for all %d racks or for none",
			len(x.cfg.Zone), x.cfg.Fabric.Racks())
	}
	x.cfg.Zone = slices.Clone(x.cfg.Zone)
	return x, nil
}

func (x *blocks) writerArrived(w workloads.Writer) error {
	if len(w.Blocks) == 0 {
		return fmt.Errorf("writer %d has no blocks", w.ID)
	}
	for _, b := range w.Blocks {
		x.largest = max(x.largest, b.Size)
	}
	return x.requestBlock(w.Blocks)
}

// requestBlock requests the first of a writer's remaining blocks, and places it unless it
// must wait.
func (x *blocks) requestBlock(rest []workloads.Block) error {
	b := rest[0]
	switch {
	case x.cfg.Placement == nil:
		return fmt.Errorf("block %d: no placement policy is configured", b.ID)
	case x.active[b.ID] != nil || slices.ContainsFunc(x.waiting, func(r request) bool { return r.rest[0].ID == b.ID }):
		return fmt.Errorf("block %d is already being written", b.ID)
	case b.Size <= 0 || b.Packet <= 0 || b.Window <= 0 || b.Replicas <= 0 || !x.known(b.Client):
		return fmt.Errorf("block %d: size %v, packet %v, window %d, %d replicas, client %d: "+
			"all must be positive and the client a host of the fabric",
			b.ID, b.Size, b.Packet, b.Window, b.Replicas, b.Client)
	}
	if h := x.lostOf(b.Client); h >= 0 {
		x.failWriter(rest, x.lostWhy(h))
		return nil
	}
	r := request{x.now, rest}
	if x.every == 0 {
		return x.placeBlock(r)
	}
	after, _ := slices.BinarySearchFunc(x.waiting, r, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rest[0].ID, b.rest[0].ID))
	})
	x.waiting = slices.Insert(x.waiting, after, r)
	return nil
}

// due returns the time at which waiting requests must be placed: the first multiple of
// the policy's interval that is not before the oldest. NextNever is none.
func (x *blocks) due() time.Duration {
	if len(x.waiting) == 0 {
		return NextNever
	}
	return coordinator.MultipleOf(x.every, x.waiting[0].at)
}

// nextWake returns the time at which a request must be placed, or a placement takes effect.
func (x *blocks) nextWake() time.Duration {
	return min(x.due(), x.placed.next())
}

// startPlaced starts the pipelines of placements that take effect. A block with a host that has been
// lost since is placed again.
func (x *blocks) startPlaced() error {
	for w := range x.placed.arrived(x.now) {
		if x.active[w.block.ID] != w { // it has ended
			continue
		}
		if len(w.lost) == 0 {
			x.startChain(w)
		} else if err := x.placeBlock(request{w.at, x.drop(w)}); err != nil {
			return err
		}
	}
	return nil
}

// startChain marks the request of a block and starts its pipeline.
func (x *blocks) startChain(w *write) {
	w.decided = false
	b := w.block
	hashes := make([]uint32, len(w.targets))
	for hop := range hashes {
		hashes[hop] = workloads.HopHash(x.cfg.Seed, b.ID, hop)
	}
	x.command(
		Mark{
			Kind:    MarkWrite,
			ID:      int(b.ID),
			Host:    b.Client,
			Parts:   b.Replicas,
			Size:    b.Size,
			Waited:  x.now - w.at,
			Attempt: x.attempt(b.ID),
		},
		StartChain{Block: b, Targets: slices.Clone(w.targets), Hashes: hashes})
}

// placeWaiting places the requests that are due, in the order of the policy. If a block
// fails, its writer requests the next one, which is placed after them if it is due too.
func (x *blocks) placeWaiting() error {
	for x.due() <= x.now {
		n := 0
		for n < len(x.waiting) && coordinator.MultipleOf(x.every, x.waiting[n].at) <= x.now {
			n++
		}
		due := slices.Clone(x.waiting[:n])
		x.waiting = slices.Delete(x.waiting, 0, n)
		shown, all := make([]policies.Request, n), make([]int, n)
		for i, r := range due {
			all[i], shown[i] = i, policies.Request{Block: r.rest[0], At: r.at, Left: len(r.rest)}
		}
		order := x.cfg.Placement.(policies.Batcher).Order(shown)
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, all) {
			return fmt.Errorf("%s: order %v of %d requests: must contain each of them once", x.policy("placement"), order, n)
		}
		for _, i := range order {
			if err := x.placeBlock(due[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// abandonWaiting fails the writers on a host with blocks that wait to be placed.
func (x *blocks) abandonWaiting(h topo.HostID, why string) {
	x.waiting = slices.DeleteFunc(x.waiting, func(r request) bool {
		if r.rest[0].Client != h {
			return false
		}
		x.failWriter(r.rest, why)
		return true
	})
}

// placeBlock places the first of a writer's remaining blocks, marks the request and starts
// the pipeline.
func (x *blocks) placeBlock(r request) error {
	rest := r.rest
	b := rest[0]
	needs := x.cfg.Placement.Needs()
	v := policies.PlacementView{Cluster: x.cluster(needs), LargestBlock: x.largest, Scratch: x.scratch}
	if needs.Has(policies.LinkLoad) {
		v.Placements = x.recentPlacements()
	}
	targets, err := x.cfg.Placement.Place(&v, b, workloads.Stream(x.cfg.Seed, "placement", int(b.ID)))
	if x.cfg.Watcher != nil {
		x.cfg.Watcher.Placement(&v, b, targets, err)
	}
	var latency time.Duration
	if p, ok := x.cfg.Placement.(policies.Answered); ok {
		var answer []byte
		if answer, latency = p.Answered(); answer != nil {
			x.command(Decided{PlacementRole, answer, latency})
		}
	}
	if outside := (policies.OutsideError{}); errors.As(err, &outside) {
		return err
	}
	if err != nil {
		if lost, full := x.lostHosts(), x.fullHosts(); lost+full > 0 {
			// With all hosts available, the policy might have succeeded.
			why := fmt.Sprintf("no place with %d hosts lost", lost)
			if full > 0 {
				why += fmt.Sprintf(" and %d full", full)
			}
			return x.failBlock(rest, fmt.Sprintf("%s: %v", why, err))
		}
		return fmt.Errorf("place block %d of %v from %s: %w", b.ID, b.Size, x.cfg.Fabric.HostName(b.Client), err)
	}
	if err := x.checkTargets(b, targets); err != nil {
		return err
	}
	for _, h := range targets {
		x.hosts[h].allocate(b)
		x.hostChanged(h)
	}
	x.placements = append(x.placements, policies.Placement{
		At:     x.now,
		Block:  b.ID,
		Client: b.Client,
		Size:   b.Size,
		Hosts:  slices.Clone(targets),
	})
	w := &write{block: b, targets: targets, rest: rest[1:], at: r.at, decided: true}
	x.active[b.ID] = w
	if !x.placed.hold(x.now, latency, w) {
		x.startChain(w)
	}
	return nil
}

func (x *blocks) checkTargets(b workloads.Block, targets []topo.HostID) error {
	if len(targets) != b.Replicas {
		return fmt.Errorf("%s: %d hosts for %d replicas of block %d", x.policy("placement"), len(targets), b.Replicas, b.ID)
	}
	seen := map[topo.HostID]bool{}
	for _, h := range targets {
		if !x.known(h) || seen[h] || x.hosts[h].lost {
			return fmt.Errorf("%s: hosts %v for block %d: must be different hosts of the fabric that are not lost",
				x.policy("placement"), targets, b.ID)
		}
		seen[h] = true
	}
	return nil
}

func (x *blocks) blockDurable(id workloads.BlockID) error {
	w := x.active[id]
	if s := x.stopped[id]; s != nil { // it was durable before StopChain
		x.discard(id, s.block.Size, s.lost, x.now)
		return nil
	}
	if w == nil && x.failed[id] {
		return nil // its last acknowledgement arrived after it had failed
	}
	if w == nil {
		return fmt.Errorf("block %d durable: it is not being written", id)
	}
	delete(x.active, id)
	for _, h := range w.targets {
		x.hosts[h].stored(id, x.now)
		x.hostChanged(h)
	}
	x.send(blockEnded{id: id, size: w.block.Size, hosts: slices.Clone(w.targets)})
	if len(w.rest) == 0 {
		return nil
	}
	return x.requestBlock(w.rest)
}

// recentPlacements removes the placements that the load estimates of all leaves and of all hosts
// that are not lost include, and returns the others, which must not be modified.
func (x *blocks) recentPlacements() []policies.Placement {
	oldest := x.now
	for i := range x.hosts {
		if !x.hosts[i].lost {
			oldest = min(oldest, max(x.hosts[i].lastReport, 0))
		}
	}
	if LeavesReport(x.cfg.Fabric) {
		for _, r := range x.racks {
			oldest = min(oldest, max(r.lastReport, 0))
		}
	}
	keep := slices.IndexFunc(x.placements, func(p policies.Placement) bool { return p.At >= oldest })
	if keep < 0 {
		keep = len(x.placements)
	}
	x.placements = x.placements[keep:]
	return slices.Clip(x.placements)
}

// stop ends the write of a block that is no longer needed. Its writer's next blocks are dropped.
func (x *blocks) stop(id workloads.BlockID) {
	if i := slices.IndexFunc(x.waiting, func(r request) bool { return r.rest[0].ID == id }); i >= 0 {
		x.waiting = slices.Delete(x.waiting, i, i+1)
	}
	w := x.active[id]
	if w == nil {
		return // it has not been placed, or has ended
	}
	if w.decided {
		x.drop(w)
		return
	}
	x.failed[id], x.stopped[id] = true, &write{block: w.block, lost: slices.Clone(w.targets)}
	x.drop(w)
	b := w.block
	x.command(
		StopChain{Block: id},
		Mark{Kind: MarkBlockStopped, ID: int(id), Host: x.living(b.Client), Parts: b.Replicas, Size: b.Size})
}

// discard deletes the replicas of a durable block.
func (x *blocks) discard(id workloads.BlockID, size units.Bytes, on []topo.HostID, durable time.Duration) {
	delete(x.stopped, id)
	for _, h := range on {
		x.hosts[h].dropped(id)
		x.hostChanged(h)
	}
	x.command(DropBlock{Block: id, Size: size, Hosts: on, Durable: durable})
}
