package fluid

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// Do starts the commands at the present moment. An error is a mistake of the
// caller, and names the command.
func (b *Backend) Do(_ context.Context, cmds []engine.Command) error {
	for _, cmd := range cmds {
		var err error
		switch cmd := cmd.(type) {
		case engine.Mark:
		case engine.StartTransfer:
			err = b.startTransfer(cmd)
		case engine.SetCeiling:
			err = b.setCeiling(cmd)
		case engine.StartChain:
			err = b.startChain(cmd)
		case engine.StopTransfer:
			b.stopTransfer(cmd.Flow)
		case engine.StopChain:
			b.stopChain(cmd.Block)
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
		return fmt.Errorf("start flow %d of %v from host %d to host %d with ceiling %d: want hosts of the fabric, a positive size and a ceiling of 0 or more", f.ID, f.Size, f.Src, f.Dst, c.Ceiling)
	}
	if _, twice := b.byFlow[f.ID]; twice {
		return fmt.Errorf("start flow %d: it was started before", f.ID)
	}
	disk := int32(none)
	if c.Read != nil {
		i, stored := b.where[replica{*c.Read, f.Src}]
		if !stored {
			return fmt.Errorf("start flow %d, which reads block %d from host %d: want one that has it", f.ID, *c.Read, f.Src)
		}
		if b.cfg.ReadRate > 0 {
			disk = b.reading + int32(int(f.Src)*b.cfg.Disks+i)
		}
	}
	fl := &fluid{id: int(f.ID), src: f.Src, dst: f.Dst, size: f.Size, left: 8 * float64(f.Size), hash: c.Hash, disk: disk, path: b.readClass(f.Src, f.Dst, c.Hash, disk),
		delay: b.fabric.PathDelay(f.Src, f.Dst, c.Hash)}
	fl.own = class{uses: fl.path.uses, listed: -1}
	b.byFlow[f.ID] = fl
	b.add(&b.flows, fl)
	b.limit(fl, c.Ceiling)
	b.faults.started(fl)
	return nil
}

func (b *Backend) pathClass(src, dst topo.HostID, hash uint32) *class {
	return b.readClass(src, dst, hash, none)
}

// readClass is the path of what a disk reads, and the disk.
func (b *Backend) readClass(src, dst topo.HostID, hash uint32, disk int32) *class {
	key := pathKey{src, dst, -1, disk}
	if spine, crosses := b.faults.routes.Spine(src, dst, hash); crosses {
		key.spine = spine
	}
	c := b.paths[key]
	if c == nil {
		c = &class{ceiling: math.Inf(1), listed: -1}
		for _, l := range fault.Path(b.fabric, src, dst, key.spine) {
			c.uses = append(c.uses, use{int32(l), 1})
		}
		if disk != none {
			c.uses = append(c.uses, use{disk, 1})
		}
		b.paths[key] = c
	}
	return c
}

// setCeiling of a flow that has finished is no mistake and has no effect: its
// completion may not have reached the caller yet.
func (b *Backend) setCeiling(c engine.SetCeiling) error {
	f, started := b.byFlow[c.Flow]
	if !started || c.Ceiling < 0 {
		return fmt.Errorf("set the ceiling of flow %d to %d: want a flow that was started and 0 or more", c.Flow, c.Ceiling)
	}
	if f != nil && f.ceiling != c.Ceiling && (c.Ceiling > f.ceiling || !b.nearlyOut(f)) {
		b.limit(f, c.Ceiling)
	}
	return nil
}

func (b *Backend) startChain(c engine.StartChain) error {
	if b.byBlock[c.Block.ID] {
		return fmt.Errorf("start block %d: it was started before", c.Block.ID)
	}
	if !b.known(c.Block.Client) || c.Block.Size <= 0 || len(c.Targets) == 0 || len(c.Hashes) != len(c.Targets) {
		return fmt.Errorf("start block %d of %v from host %d to hosts %v with %d hashes: want hosts of the fabric, a positive size and a hash for each hop", c.Block.ID, c.Block.Size, c.Block.Client, c.Targets, len(c.Hashes))
	}
	fl := &fluid{id: int(c.Block.ID), src: c.Block.Client, dst: c.Targets[len(c.Targets)-1], size: c.Block.Size, left: 8 * float64(c.Block.Size)}
	from := c.Block.Client
	for hop, to := range c.Targets {
		if !b.known(to) || slices.Contains(c.Targets[:hop], to) {
			return fmt.Errorf("start block %d to hosts %v: want different hosts of the fabric", c.Block.ID, c.Targets)
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
		b.faults.look()
	}
	return nil
}

func (b *Backend) add(list *[]*fluid, f *fluid) {
	f.since = b.clock
	*list = slices.Insert(*list, placeOf(*list, f.id), f)
}

// placeOf is where in a list the fluid of an ID is, or belongs.
func placeOf(list []*fluid, id int) int {
	if n := len(list); n == 0 || list[n-1].id < id {
		return n
	}
	at, _ := slices.BinarySearchFunc(list, id, func(f *fluid, id int) int { return cmp.Compare(f.id, id) })
	return at
}

// limit moves a fluid to the class its ceiling puts it in.
func (b *Backend) limit(f *fluid, ceiling units.Rate) {
	b.leave(f)
	f.ceiling = ceiling
	switch ceiling {
	case 0:
		return
	case policies.NoLimit:
		f.in = f.path
	default:
		f.own.ceiling = float64(ceiling)
		f.in = &f.own
	}
	c := f.in
	f.place = len(c.members)
	c.members = append(c.members, f)
	if c.fluids++; c.listed < 0 {
		c.listed = len(b.classes)
		b.classes = append(b.classes, c)
		b.shares.list(c)
	}
	b.changed, b.stale = append(b.changed, c), true
}

func (b *Backend) leave(f *fluid) {
	c := f.in
	if c == nil {
		return
	}
	f.in, b.stale = nil, true
	b.moved = append(b.moved, f)
	for _, u := range c.uses {
		b.freed = append(b.freed, u.resource)
	}
	end := len(c.members) - 1
	c.members[f.place] = c.members[end]
	c.members[f.place].place = f.place
	c.members[end] = nil
	c.members = c.members[:end]
	if c.fluids--; c.fluids == 0 {
		last := b.classes[len(b.classes)-1]
		b.classes[c.listed] = last
		last.listed = c.listed
		b.classes = b.classes[:len(b.classes)-1]
		c.listed = -1
		b.shares.unlist(c)
		return
	}
	b.changed = append(b.changed, c)
}
