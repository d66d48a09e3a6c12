package fluid

import (
	"fmt"
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// faults applies faults by changing capacities. A link that is down has capacity 0, so
// the transfers that cross it stall. A crashed host neither transfers nor reports.
// A slow disk has a lower write capacity. A slow processor is modelled as a slow network
// interface: the host's own links carry its share of their rate, because a fluid uses
// no processor time; the disk is not slowed. Attempts of tasks compute, and consume what they
// read, at that share of their speed.
//
// The model omits packets lost when a link goes down, and the time until TCP detects
// that the link is up again.
type faults struct {
	b       *Backend
	routes  *fault.Routes
	downs   int           // number of links that are down
	crashed []bool        // by HostID
	rate    []units.Rate  // of links while they are up, by LinkID
	share   []float64     // of processors, by HostID
	agenda  []timedAction // pending actions, by time and then in order of insertion
	events  []engine.Event
}

// timedAction is an action scheduled for a time.
type timedAction struct {
	at time.Duration
	do func()
}

func (x *faults) init(b *Backend) {
	x.b, x.routes = b, fault.NewRoutes(b.fabric)
	x.crashed, x.share = make([]bool, b.fabric.Hosts()), slices.Repeat([]float64{1}, b.fabric.Hosts())
	for _, l := range b.fabric.Links() {
		x.rate = append(x.rate, l.Rate)
	}
	for _, s := range b.cfg.Faults {
		x.at(s.At, func() { x.apply(s.Action) })
	}
}

func (x *faults) at(t time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(x.agenda, t, func(d timedAction, t time.Duration) int {
		if d.at <= t {
			return -1
		}
		return 1
	})
	x.agenda = slices.Insert(x.agenda, i, timedAction{t, do})
}

// after schedules do for d after the current time. That time is a whole nanosecond
// whenever an action of the agenda runs.
func (x *faults) after(d time.Duration, do func()) {
	x.at(x.b.clock.Round()+d, do)
}

func (x *faults) next() time.Duration {
	if len(x.agenda) == 0 {
		return engine.NextNever
	}
	return x.agenda[0].at
}

// canProgress reports whether anything can still happen although nothing moves: because an action
// is pending, or because at a heartbeat the engine gives a stalled fluid up, or starts an attempt.
func (x *faults) canProgress() bool {
	return len(x.agenda) > 0 || x.b.cfg.Heartbeat > 0 && (len(x.b.tasks.unfinished) > 0 && x.b.clock.Round()-x.b.commanded < patience || slices.ContainsFunc(x.b.flows, func(f *fluid) bool { return x.cut(f.path.uses) }))
}

// cut reports whether any of the used links is down.
func (x *faults) cut(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool {
		return int(u.resource) < len(x.rate) && !x.routes.Up(topo.LinkID(u.resource))
	})
}

// runDue runs the actions that are due and returns the resulting events.
func (x *faults) runDue() []engine.Event {
	for len(x.agenda) > 0 && x.b.clock.Until(x.agenda[0].at) <= 0 {
		do := x.agenda[0].do
		x.agenda = slices.Delete(x.agenda, 0, 1)
		do()
	}
	evs := x.events
	x.events = nil
	return evs
}

func (x *faults) emit(ev engine.Event) { x.events = append(x.events, ev) }

func (x *faults) apply(a fault.Action) {
	b := x.b
	if r, ok := a.(fault.SetReports); ok { // no rate changes
		b.reports.lost[r.Host], b.reports.by[r.Host] = r.Lost, r.By
		return
	}
	switch a := a.(type) {
	case fault.SetLink:
		switch was := x.routes.Up(a.Link); {
		case was && !a.Up:
			x.downs++
		case !was && a.Up:
			x.downs--
		}
		x.routes.SetLink(a.Link, a.Up)
		x.setLink(a.Link)
		x.reroute()
		x.after(b.cfg.Convergence, func() {
			x.routes.Propagate(a.Link)
			x.reroute()
		})
	case fault.SetRate:
		x.rate[a.Link] = a.Rate
		x.setLink(a.Link)
	case fault.Crash:
		x.crashed[a.Host] = true
		b.reports.crash(a.Host)
		b.tasks.crash(a.Host)
		b.cancelArrivals(func(l landing) bool { return l.dst == a.Host })
		b.chains = slices.DeleteFunc(b.chains, func(f *fluid) bool {
			gone := f.src == a.Host
			if gone {
				b.leave(f)
				b.reports.drop(f, f.pipe.targets...)
			} else {
				f.pipe.crash(a.Host)
			}
			return gone
		})
		b.flows = slices.DeleteFunc(b.flows, func(f *fluid) bool {
			gone := f.local && f.src == a.Host // crosses no link that could stall it
			if gone {
				b.leave(f)
				delete(b.byFlow, workloads.FlowID(f.id))
			}
			return gone
		})
		x.after(b.cfg.Detect, func() {
			if x.crashed[a.Host] { // an earlier return has its own event
				x.emit(engine.HostLost{Host: a.Host})
			}
		})
	case fault.Return:
		x.crashed[a.Host] = false
		// The host has lost the state of the blocks that it was receiving.
		for _, f := range slices.Clone(b.chains) {
			if i := slices.Index(f.pipe.targets, a.Host); i >= 0 && f.pipe.crashed[i] {
				x.dropTarget(f, i)
			}
		}
		if a.DiskLost {
			b.reports.wipe(a.Host)
		}
		x.emit(engine.HostBack{Host: a.Host, DiskLost: a.DiskLost})
	case fault.SetDisk:
		if b.cfg.DiskRate > 0 {
			rate := a.Rate
			if rate == 0 {
				rate = b.cfg.DiskRate
			}
			for i := range b.cfg.Disks {
				b.setCapacity(b.disk(a.Host, i), float64(rate))
			}
		}
	case fault.SetCPU:
		x.share[a.Host] = a.Share
		x.setCapacity(b.fabric.HostUp(a.Host))
		x.setCapacity(b.fabric.HostDown(a.Host))
		for _, f := range b.flows {
			if f.consumes > 0 && f.dst == a.Host {
				b.limit(f, f.ceiling)
			}
		}
		b.tasks.slow(a.Host)
	default:
		panic(fmt.Sprintf("fluid backend: unknown fault %T", a)) // the set is closed
	}
	x.checkPipelines()
}

// setLink updates a link's capacity and notifies the engine of its rate.
func (x *faults) setLink(l topo.LinkID) {
	x.setCapacity(l)
	rate := x.b.cfg.Payload(x.rate[l])
	if !x.routes.Up(l) {
		rate = 0
	}
	x.emit(engine.LinkChanged{Link: l, Rate: rate})
}

func (x *faults) setCapacity(l topo.LinkID) {
	c := float64(x.b.cfg.Payload(x.rate[l]))
	if int(l) < x.b.hostEnds {
		link := x.b.fabric.Link(l)
		c = min(c, float64(x.share[link.Host]*float64(x.b.cfg.Payload(link.Rate))))
	}
	if !x.routes.Up(l) {
		c = 0
	}
	x.b.setCapacity(int32(l), c)
}

// started notifies the engine if routing sends a flow over another spine than its
// hash alone selects.
func (x *faults) started(f *fluid) {
	own, crosses := x.b.fabric.SpineFor(f.src, f.dst, f.hash)
	if now, _ := x.routes.Spine(f.src, f.dst, f.hash); crosses && now != own {
		x.emit(engine.PathChanged{Flow: workloads.FlowID(f.id), Spine: now})
		x.after(0, func() {}) // Await returns the event at the current time
	}
}

// reroute moves flows and pipelines to their current paths.
func (x *faults) reroute() {
	b := x.b
	for _, f := range b.flows {
		path := b.readClass(f.src, f.dst, f.hash, f.disk)
		if path == f.path {
			continue
		}
		b.leave(f)
		f.path = path
		f.own = class{uses: path.uses, listed: -1}
		b.limit(f, f.ceiling)
		spine, _ := x.routes.Spine(f.src, f.dst, f.hash)
		x.emit(engine.PathChanged{Flow: workloads.FlowID(f.id), Spine: spine})
	}
	for _, f := range b.chains {
		b.repipe(f)
	}
	x.checkPipelines()
}

// checkPipelines finds stalled pipelines. It drops the first unreachable host of each pipeline
// that has been stalled for Config.Silence, and schedules a check for the others.
func (x *faults) checkPipelines() {
	now := x.b.clock.Round()
	for _, f := range slices.Clone(x.b.chains) {
		if f.done {
			continue
		}
		from := f.src
		hop := -1 // first hop that is cut
		for i, to := range f.pipe.targets {
			if x.cut(x.b.pathClass(from, to, f.pipe.hashes[i]).uses) {
				hop = i
				break
			}
			from = to
		}
		switch {
		case hop < 0:
			f.pipe.cut = -1
		case f.pipe.cut != f.pipe.targets[hop]:
			f.pipe.cut, f.pipe.since = f.pipe.targets[hop], now
			x.after(x.b.cfg.Silence, x.checkPipelines)
		case now-f.pipe.since >= x.b.cfg.Silence:
			f.pipe.cut = -1
			x.dropTarget(f, hop)
			if len(f.pipe.targets) > 0 {
				x.after(0, x.checkPipelines) // the next host may be unreachable too
			}
		}
	}
}

// dropTarget removes a host from a pipeline. The block fails when no host is left.
func (x *faults) dropTarget(f *fluid, i int) {
	block := workloads.BlockID(f.id)
	x.emit(engine.ReplicaLost{Block: block, Host: f.pipe.targets[i]})
	x.b.reports.drop(f, f.pipe.targets[i])
	f.pipe.drop(i)
	if len(f.pipe.targets) == 0 {
		x.b.stopChain(block)
		x.emit(engine.BlockFailed{Block: block, Why: "no host of its pipeline is left"})
		return
	}
	x.b.repipe(f)
}

// pipe is the pipeline of a block that is being written.
type pipe struct {
	client  topo.HostID
	targets []topo.HostID
	hashes  []uint32 // of the hop to each target
	crashed []bool   // whether the target has crashed since the block began
	disks   []int    // disk number at each target

	cut   topo.HostID // the first target that cannot be reached; -1 for none
	since time.Duration
}

func (b *Backend) newPipe(c engine.StartChain) *pipe {
	p := &pipe{client: c.Block.Client, targets: slices.Clone(c.Targets), hashes: slices.Clone(c.Hashes), crashed: make([]bool, len(c.Targets)), disks: make([]int, len(c.Targets)), cut: -1}
	for i, h := range c.Targets {
		p.disks[i] = b.nextDisk(h)
	}
	return p
}

// nextDisk returns the number of the disk of a host to write to, round-robin.
func (b *Backend) nextDisk(h topo.HostID) int {
	i := b.turn[h]
	b.turn[h] = (i + 1) % b.cfg.Disks
	return i
}

// disk returns the resource of a host's i-th disk.
func (b *Backend) disk(h topo.HostID, i int) int32 {
	return int32(len(b.fabric.Links()) + int(h)*b.cfg.Disks + i)
}

func (p *pipe) crash(h topo.HostID) {
	if i := slices.Index(p.targets, h); i >= 0 {
		p.crashed[i] = true
	}
}

func (p *pipe) drop(i int) {
	p.targets = slices.Delete(p.targets, i, i+1)
	p.hashes = slices.Delete(p.hashes, i, i+1)
	p.crashed = slices.Delete(p.crashed, i, i+1)
	p.disks = slices.Delete(p.disks, i, i+1)
}

// pipeUses returns the resources that a pipeline uses: the links of its hops and the
// disks of its hosts.
func (b *Backend) pipeUses(p *pipe) []use {
	var uses []use
	draw := func(resource int32) {
		for i := range uses {
			if uses[i].resource == resource {
				uses[i].times++
				return
			}
		}
		uses = append(uses, use{resource, 1})
	}
	from := p.client
	for i, to := range p.targets {
		for _, u := range b.pathClass(from, to, p.hashes[i]).uses {
			draw(u.resource)
		}
		if b.cfg.DiskRate > 0 {
			draw(b.disk(to, p.disks[i]))
		}
		from = to
	}
	return uses
}

// repipe updates the resources that a pipeline uses.
func (b *Backend) repipe(f *fluid) {
	uses := b.pipeUses(f.pipe)
	if slices.Equal(uses, f.own.uses) {
		return
	}
	b.leave(f)
	f.own.uses = uses
	b.limit(f, policies.NoLimit)
}

// stopTransfer removes a flow. It has no effect on a flow that has finished.
func (b *Backend) stopTransfer(id workloads.FlowID) {
	b.cancelArrivals(func(l landing) bool { return !l.block && workloads.FlowID(l.id) == id })
	f := b.byFlow[id]
	if f == nil {
		return
	}
	b.leave(f)
	delete(b.byFlow, id)
	remove(&b.flows, f)
}

func (b *Backend) stopChain(id workloads.BlockID) {
	b.cancelArrivals(func(l landing) bool { return l.block && workloads.BlockID(l.id) == id })
	b.chains = slices.DeleteFunc(b.chains, func(f *fluid) bool {
		if workloads.BlockID(f.id) != id {
			return false
		}
		b.leave(f)
		b.reports.drop(f, f.pipe.targets...)
		return true
	})
}
