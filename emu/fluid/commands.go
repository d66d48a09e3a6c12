package fluid

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Do executes the commands at the current time. An error means that the caller
// passed an invalid command; it names the command.
func (b *Backend) Do(_ context.Context, cmds []engine.Command) error {
	if slices.ContainsFunc(cmds, func(c engine.Command) bool { _, only := c.(engine.Decided); return !only }) {
		b.commanded, b.vain = b.reported, 0
	}
	for _, cmd := range cmds {
		var err error
		switch cmd := cmd.(type) {
		case engine.Mark, engine.Decided:
		case engine.MarkTask:
			b.tasks.marked(cmd)
		case engine.StartTransfer:
			err = b.startTransfer(cmd)
		case engine.ReadDisk:
			err = b.readDisk(cmd)
		case engine.SetCeiling:
			err = b.setCeiling(cmd)
		case engine.StartChain:
			err = b.startChain(cmd)
		case engine.StopTransfer:
			b.stopTransfer(cmd.Flow)
		case engine.StopRead:
			b.stopTransfer(cmd.ID)
		case engine.StopChain:
			b.stopChain(cmd.Block)
		case engine.DropBlock:
			b.reports.discard(cmd)
		case engine.Compute:
			err = b.tasks.compute(cmd)
		case engine.SpillOutput:
			err = b.tasks.spill(cmd)
		case engine.StopTask:
			b.tasks.stop(cmd.Attempt)
		case engine.DropOutputs:
			delete(b.tasks.spilled, cmd.Job)
		default:
			err = fmt.Errorf("unknown command %T", cmd)
		}
		if err != nil {
			return fmt.Errorf("fluid backend: at %v: %w", b.reported, err)
		}
	}
	return nil
}

func (b *Backend) known(h topo.HostID) bool { return h >= 0 && int(h) < b.fabric.Hosts() }

func (b *Backend) startTransfer(c engine.StartTransfer) error {
	f := c.Flow
	if !b.known(f.Src) || !b.known(f.Dst) || f.Size <= 0 || c.Ceiling < 0 {
		return fmt.Errorf("start flow %d of %v from host %d to host %d with ceiling %d: expected hosts of the fabric, a positive size and a ceiling of 0 or more", f.ID, f.Size, f.Src, f.Dst, c.Ceiling)
	}
	disk := int32(none)
	if c.Read != nil {
		var err error
		if disk, err = b.diskOf(f.ID, *c.Read, f.Src); err != nil {
			return err
		}
	}
	fl := b.newFlow()
	fl.id, fl.src, fl.dst, fl.size, fl.hash, fl.disk = int(f.ID), f.Src, f.Dst, f.Size, c.Hash, disk
	fl.path, fl.delay = b.readClass(f.Src, f.Dst, c.Hash, disk), b.fabric.PathDelay(f.Src, f.Dst, c.Hash)
	return b.startFlow(fl, c.Ceiling, c.Task)
}

// readDisk starts a read of the reader's own disk: a flow that crosses no link.
func (b *Backend) readDisk(c engine.ReadDisk) error {
	if !b.known(c.Host) || c.Size <= 0 {
		return fmt.Errorf("start read %d of %v on host %d: expected a host of the fabric and a positive size", c.ID, c.Size, c.Host)
	}
	disk, err := b.diskOf(c.ID, c.Block, c.Host)
	if err != nil {
		return err
	}
	fl := b.newFlow()
	fl.id, fl.src, fl.dst, fl.size, fl.local, fl.disk = int(c.ID), c.Host, c.Host, c.Size, true, disk
	fl.path = b.readClass(c.Host, c.Host, 0, disk)
	return b.startFlow(fl, policies.NoLimit, c.Task)
}

// newFlow returns a flow without properties, in the memory of one that has ended.
func (b *Backend) newFlow() *fluid {
	last := len(b.spare) - 1
	if last < 0 {
		return &fluid{}
	}
	f := b.spare[last]
	b.spare = b.spare[:last]
	own := &f.own
	*f = fluid{own: class{members: own.members[:0], at: own.at[:0], own: clock{fluids: own.own.fluids[:0]}}}
	return f
}

// diskOf returns the resource that a flow uses to read a block of a host, or none if disks do
// not limit the read.
func (b *Backend) diskOf(flow workloads.FlowID, block workloads.BlockID, h topo.HostID) (int32, error) {
	i, stored := b.where[replica{block, h}]
	switch {
	case !stored:
		return none, fmt.Errorf("start flow %d, which reads block %d from host %d: the host does not store this block", flow, block, h)
	case b.cfg.ReadRate > 0 && i != none:
		return b.reading + int32(int(h)*b.cfg.Disks+i), nil
	}
	return none, nil
}

func (b *Backend) startFlow(f *fluid, ceiling units.Rate, task *engine.TaskTransfer) error {
	id := workloads.FlowID(f.id)
	if b.started.has(f.id) {
		return fmt.Errorf("start flow %d: already started", id)
	}
	if task != nil {
		if !task.Valid(f.size) {
			return fmt.Errorf("start flow %d of %v, which a task consumes at %d, after %d bytes at %d, and that is served at %d: expected rates of 0 or more, and a later one after some bytes of the flow", id, f.size, task.Rate, task.Onset, task.Slow, task.Served)
		}
		if f.consumes, f.slow, f.most = task.Rate, task.Slow, task.Served; task.Onset > 0 {
			f.turn = 8 * float64(f.size-task.Onset)
		}
	}
	b.started.add(f.id)
	if f.local && b.faults.crashed[f.src] { // no link stalls it
		return nil
	}
	f.left, f.own.uses, f.own.listed = 8*float64(f.size), f.path.uses, -1
	b.byFlow[id] = f
	b.add(&b.flows, f)
	b.limit(f, ceiling)
	b.faults.started(f)
	return nil
}

func (b *Backend) pathClass(src, dst topo.HostID, hash uint32) *class {
	return b.readClass(src, dst, hash, none)
}

// readClass returns the class without a ceiling of flows from src to dst on the path
// that hash selects. Flows that read a block from disk also draw on the disk.
func (b *Backend) readClass(src, dst topo.HostID, hash uint32, disk int32) *class {
	key := pathKey{src, dst, -1, disk}
	if spine, crosses := b.faults.routes.Spine(src, dst, hash); crosses {
		key.spine = spine
	}
	c := b.paths[key]
	if c == nil {
		if len(b.paths) >= b.mostPaths {
			b.forgetPaths()
		}
		links := fault.Path(b.fabric, src, dst, key.spine)
		c = &class{ceiling: math.Inf(1), listed: -1, uses: make([]use, 0, len(links)+1)}
		for _, l := range links {
			c.uses = append(c.uses, use{int32(l), 1})
		}
		if disk != none {
			c.uses = append(c.uses, use{disk, 1})
		}
		b.paths[key] = c
	}
	return c
}

// minPaths is the number of paths below which none is forgotten.
const minPaths = 1 << 14

// forgetPaths drops the classes of paths that no fluid uses: a large fabric has millions of paths.
// The next call is due when the number of paths has doubled.
func (b *Backend) forgetPaths() {
	used := make(map[*class]bool, len(b.flows))
	for _, f := range b.flows {
		used[f.path] = true
	}
	for _, f := range b.tasks.spilling {
		used[f.path] = true
	}
	maps.DeleteFunc(b.paths, func(_ pathKey, c *class) bool { return !used[c] })
	b.mostPaths = max(minPaths, 2*len(b.paths))
}

// setCeiling has no effect on a flow that has finished, and is not an error: the
// caller may not have received its completion yet.
func (b *Backend) setCeiling(c engine.SetCeiling) error {
	f, started := b.byFlow[c.Flow], b.started.has(int(c.Flow))
	if !started || c.Ceiling < 0 {
		return fmt.Errorf("set the ceiling of flow %d to %d: expected a started flow and a ceiling of 0 or more", c.Flow, c.Ceiling)
	}
	if f != nil && f.ceiling != c.Ceiling && (c.Ceiling > f.ceiling || !b.nearlyDone(f)) {
		b.limit(f, c.Ceiling)
	}
	return nil
}

func (b *Backend) startChain(c engine.StartChain) error {
	if b.byBlock[c.Block.ID] {
		return fmt.Errorf("start block %d: already started", c.Block.ID)
	}
	if !b.known(c.Block.Client) || c.Block.Size <= 0 || len(c.Targets) == 0 || len(c.Hashes) != len(c.Targets) {
		return fmt.Errorf("start block %d of %v from host %d to hosts %v with %d hashes: expected hosts of the fabric, a positive size and one hash per hop", c.Block.ID, c.Block.Size, c.Block.Client, c.Targets, len(c.Hashes))
	}
	fl := &fluid{id: int(c.Block.ID), src: c.Block.Client, dst: c.Targets[len(c.Targets)-1], size: c.Block.Size, left: 8 * float64(c.Block.Size)}
	from := c.Block.Client
	for hop, to := range c.Targets {
		if !b.known(to) || slices.Contains(c.Targets[:hop], to) {
			return fmt.Errorf("start block %d to hosts %v: expected distinct hosts of the fabric", c.Block.ID, c.Targets)
		}
		fl.delay += b.fabric.PathDelay(from, to, c.Hashes[hop])
		from = to
	}
	fl.pipe = b.newPipe(c)
	fl.own.uses = b.pipeUses(fl.pipe)
	fl.own.listed, fl.own.ceiling = -1, math.Inf(1)
	fl.path = &fl.own
	b.byBlock[c.Block.ID] = true
	b.reports.begin(fl)
	b.add(&b.chains, fl)
	b.limit(fl, policies.NoLimit)
	if b.faults.downs > 0 {
		b.faults.checkPipelines()
	}
	return nil
}

func (b *Backend) add(list *[]*fluid, f *fluid) {
	*list = slices.Insert(*list, placeOf(*list, f.id), f)
}

// remove removes a fluid from its list.
func remove(list *[]*fluid, f *fluid) {
	at := placeOf(*list, f.id)
	*list = slices.Delete(*list, at, at+1)
}

// placeOf returns the index of the fluid with this ID in list, or the index at which to
// insert it.
func placeOf(list []*fluid, id int) int {
	if n := len(list); n == 0 || list[n-1].id < id {
		return n
	}
	at, _ := slices.BinarySearchFunc(list, id, func(f *fluid, id int) int { return cmp.Compare(f.id, id) })
	return at
}

// limit sets a fluid's ceiling and moves the fluid to the class with that ceiling, or with the
// rate at which its task consumes the bytes or its source has them, if that is lower.
func (b *Backend) limit(f *fluid, ceiling units.Rate) {
	b.leave(f)
	f.ceiling = ceiling
	most := math.Inf(1)
	if f.consumes > 0 {
		most = float64(float64(f.consumes) * b.faults.share[f.dst])
	}
	switch {
	case f.most > 0 && f.spill:
		most = float64(float64(f.most) * b.faults.share[f.src])
	case f.most > 0:
		most = min(most, float64(f.most))
	}
	switch {
	case ceiling == 0:
		return
	case ceiling == policies.NoLimit && math.IsInf(most, 1):
		f.in = f.path
	default:
		f.own.ceiling = min(float64(ceiling), most)
		f.in = &f.own
	}
	c := f.in
	f.member, f.counted = len(c.members), f.left
	c.members = append(c.members, f)
	if c.fluids++; c.listed < 0 {
		c.listed = len(b.classes)
		b.classes = append(b.classes, c)
		b.shares.list(c)
	} else if c.clock != nil {
		c.clock.start(f, b.clock)
	}
	b.changed, b.stale = append(b.changed, c), true
}

func (b *Backend) leave(f *fluid) {
	c := f.in
	if c == nil {
		return
	}
	b.stop(f)
	f.in, b.stale = nil, true
	for _, u := range c.uses {
		b.freed = append(b.freed, u.resource)
	}
	end := len(c.members) - 1
	c.members[f.member] = c.members[end]
	c.members[f.member].member = f.member
	c.members[end] = nil
	c.members = c.members[:end]
	if c.fluids--; c.fluids == 0 {
		last := b.classes[len(b.classes)-1]
		b.classes[c.listed] = last
		last.listed = c.listed
		b.classes = b.classes[:len(b.classes)-1]
		c.listed, c.clock = -1, nil
		b.shares.unlist(c)
		return
	}
	b.changed = append(b.changed, c)
}
