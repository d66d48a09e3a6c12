// Package fluid is the backend of arithmetic: transfers are fluids that share
// links max-min fairly under their ceilings, which is what TCP is idealised to.
// A block write is one fluid over the links of all its hops and the disks of all
// its replicas, since a pipeline moves at the pace of its slowest part. Time is
// computed, not waited for, so a run takes as long as its decisions do.
//
// The last byte of a transfer arrives its path's propagation after it was sent, and
// so does a block's, after that of all its hops; until then nothing else waits.
//
// It has no packets: no headers, slow start, queues, losses or round trips, and
// Block.Packet and Block.Window have no effect. Links carry payload at their full
// rate. Marks cost nothing and are forgotten. Its answers are the bounds packets
// are compared with, not a stand-in for them.
package fluid

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"testbed/emu/clock"
	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Config is what a backend cannot read off its fabric.
type Config struct {
	// DiskRate is the rate at which a host's disk takes writes, shared by all
	// blocks being written there. 0 stands for disks that are never the bottleneck.
	DiskRate units.Rate
	// Heartbeat is the time between two reports of every host, the first due one
	// Heartbeat after the start. 0 stands for none.
	Heartbeat time.Duration
	// Carried, where it is set, is told at every Heartbeat what each link, by LinkID, has
	// carried in bytes since the start; it must not keep the slice. It hears of all
	// links, also where reports are lost.
	Carried func(now time.Duration, bytes []float64)
	// Faults are carried out at their times: see faults.go.
	Faults fault.Timeline
	// Detect is how long a host must be silent to be taken for lost, and Silence
	// how long a block pipeline stands still before it drops a host that it cannot
	// reach; 0 stands for Detect.
	Detect, Silence time.Duration
	// Convergence is how long leaves that are not at a link's end take to learn
	// that it is down, or back.
	Convergence time.Duration
}

// Backend implements engine.Backend. It is for one goroutine.
type Backend struct {
	fabric   *topo.Fabric
	cfg      Config
	capacity []float64 // bit/s: links by LinkID, then disks by HostID

	clock    clock.Moment
	reported time.Duration // the newest time Await returned
	nextBeat time.Duration // engine.NextNever if there are no heartbeats

	flows   []*fluid // unfinished, by ID once sorted
	chains  []*fluid // unfinished, by ID once sorted
	sorted  bool
	byFlow  map[workloads.FlowID]*fluid // finished flows map to nil
	byBlock map[workloads.BlockID]bool  // all blocks ever started
	landing []landing                   // what was sent and has not arrived, in order of arrival
	paths   map[pathKey]*class          // what fluids without a ceiling share
	classes []*class                    // those with fluids

	// An epoch is a stretch of time in which no rate changes. Counts are kept as
	// of its beginning and the present is computed from there, so that asking
	// often costs no precision.
	epoch    clock.Moment
	stale    bool    // rates must be computed anew
	soonest  float64 // ns from the epoch's beginning to the first completion
	carried  []float64
	shares   sharing
	hostEnds int // the links of hosts are those with a smaller ID

	faults faults
}

// fluid is an unfinished transfer or block write.
type fluid struct {
	id       int // workloads.FlowID or workloads.BlockID
	src, dst topo.HostID
	size     units.Bytes
	left     float64 // bits at the epoch's beginning
	rate     float64 // bit/s in this epoch
	ceiling  units.Rate
	in       *class // nil while paused
	path     *class // of fluids that share its resources and have no ceiling
	own      class  // where it is alone with its ceiling
	progress units.Bytes
	delay    time.Duration // one way, of all links on its path
	done     bool

	hash uint32 // of a flow, by which routing chooses its spine
	pipe *pipe  // of a block
}

// landing is a transfer or block write that was sent and has not arrived.
type landing struct {
	at    time.Duration
	id    int // workloads.FlowID or workloads.BlockID
	dst   topo.HostID
	size  units.Bytes
	block bool
}

// send puts what was sent at the present moment on its way.
func (b *Backend) send(f *fluid, block bool) {
	l := landing{b.clock.Round() + f.delay, f.id, f.dst, f.size, block}
	after := slices.IndexFunc(b.landing, func(o landing) bool { return o.at > l.at })
	if after < 0 {
		after = len(b.landing)
	}
	b.landing = slices.Insert(b.landing, after, l)
}

// lose drops what is on its way and fits.
func (b *Backend) lose(fits func(landing) bool) { b.landing = slices.DeleteFunc(b.landing, fits) }

// arrived is what has arrived by the present moment.
func (b *Backend) arrived() []landing {
	n := 0
	for n < len(b.landing) && b.clock.Until(b.landing[n].at) <= 0 {
		n++
	}
	now := slices.Clone(b.landing[:n])
	b.landing = slices.Delete(b.landing, 0, n)
	return now
}

// pathKey identifies a path: spine is -1 where none is crossed.
type pathKey struct {
	src, dst topo.HostID
	spine    int
}

// New returns a backend at time 0 on which nothing runs.
func New(f *topo.Fabric, cfg Config) *Backend {
	if cfg.Silence == 0 {
		cfg.Silence = cfg.Detect
	}
	b := &Backend{
		fabric: f, cfg: cfg,
		nextBeat: engine.NextNever,
		byFlow:   map[workloads.FlowID]*fluid{},
		byBlock:  map[workloads.BlockID]bool{},
		paths:    map[pathKey]*class{},
		soonest:  math.Inf(1),
		hostEnds: 2 * f.Hosts(),
		sorted:   true,
	}
	for _, l := range f.Links() {
		b.capacity = append(b.capacity, float64(l.Rate))
	}
	if cfg.DiskRate > 0 {
		for range f.Hosts() {
			b.capacity = append(b.capacity, float64(cfg.DiskRate))
		}
	}
	if cfg.Heartbeat > 0 {
		b.nextBeat = cfg.Heartbeat
	}
	b.faults.init(b)
	if b.carried = make([]float64, b.hostEnds); cfg.Carried != nil {
		b.carried = make([]float64, len(f.Links()))
	}
	b.shares.load = make([]float64, len(b.capacity))
	return b
}

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
	fl := &fluid{id: int(f.ID), src: f.Src, dst: f.Dst, size: f.Size, left: 8 * float64(f.Size), hash: c.Hash, path: b.pathClass(f.Src, f.Dst, c.Hash),
		delay: b.fabric.PathDelay(f.Src, f.Dst, c.Hash)}
	fl.own = class{uses: fl.path.uses, listed: -1}
	b.byFlow[f.ID] = fl
	b.add(&b.flows, fl)
	b.limit(fl, c.Ceiling)
	b.faults.started(fl)
	return nil
}

func (b *Backend) pathClass(src, dst topo.HostID, hash uint32) *class {
	key := pathKey{src, dst, -1}
	if spine, crosses := b.faults.routes.Spine(src, dst, hash); crosses {
		key.spine = spine
	}
	c := b.paths[key]
	if c == nil {
		c = &class{ceiling: math.Inf(1), listed: -1}
		for _, l := range fault.Path(b.fabric, src, dst, key.spine) {
			c.uses = append(c.uses, use{int32(l), 1})
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

// lastMoment is the time in ns for which a moving flow may still go on and be
// past a lower ceiling. Policies are told whole bytes and set whole bits a second,
// so that flows which are meant to end at one moment end a byte's time apart.
// When the first has, less than that byte is left of the others, and by the plan
// of Varys, in which a coflow's flows end together, it is to take as long as all
// that the coflow has left. Rounding would become milliseconds, and through the
// decisions taken then another run. What is left must also be a small part of the
// flow, lastPart, so that a flow that lives for microseconds is not exempt.
const (
	lastMoment = 20e3
	lastPart   = 1e-3
)

// nearlyOut tells whether all that is left of a flow goes in the last moment.
func (b *Backend) nearlyOut(f *fluid) bool {
	return f.in != nil && f.rate > 0 && f.leftAfter(b.clock.Since(b.epoch)) <= min(bitsIn(f.rate, lastMoment), lastPart*8*float64(f.size))
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
	fl.pipe = newPipe(c)
	fl.own.uses = b.pipeUses(fl.pipe)
	fl.own.listed, fl.own.ceiling = -1, math.Inf(1)
	fl.path = &fl.own
	b.byBlock[c.Block.ID] = true
	b.add(&b.chains, fl)
	b.limit(fl, policies.NoLimit)
	b.faults.look()
	return nil
}

func (b *Backend) add(list *[]*fluid, f *fluid) {
	if n := len(*list); n > 0 && (*list)[n-1].id > f.id {
		b.sorted = false
	}
	*list = append(*list, f)
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
	if f.in.fluids++; f.in.listed < 0 {
		f.in.listed = len(b.classes)
		b.classes = append(b.classes, f.in)
	}
	b.stale = true
}

func (b *Backend) leave(f *fluid) {
	c := f.in
	if c == nil {
		return
	}
	f.in, b.stale = nil, true
	if c.fluids--; c.fluids == 0 {
		last := b.classes[len(b.classes)-1]
		b.classes[c.listed] = last
		last.listed = c.listed
		b.classes = b.classes[:len(b.classes)-1]
		c.listed = -1
	}
}

// Await advances to the first of the next completion, the next heartbeat and
// wake, and returns all that happens there: progress, completed flows,
// completed blocks and heartbeats, each in order of ID. It never blocks. If
// nothing moves and wake is engine.NextNever, it returns an error that names
// what is paused, since such a wait would not end.
//
// Between calls the clock is kept to a small fraction of a nanosecond; the
// returned time is rounded to the nearest one and never goes back.
func (b *Backend) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	if ctx.Err() != nil {
		return b.reported, nil, context.Cause(ctx)
	}
	if !b.sorted {
		byID := func(x, y *fluid) int { return cmp.Compare(x.id, y.id) }
		slices.SortFunc(b.flows, byID)
		slices.SortFunc(b.chains, byID)
		b.sorted = true
	}
	if b.stale {
		b.newEpoch()
	}
	if wake == engine.NextNever && b.soonest > farthest && len(b.landing) == 0 && !b.faults.mayMove() {
		return b.reported, nil, b.stuck()
	}
	b.advance(wake)
	evs := b.happened()
	b.reported = max(b.reported, b.clock.Round())
	return b.reported, evs, nil
}

const (
	// farthest is a time in ns, 31 years, that no run reaches: what would happen
	// later than that does not happen.
	farthest = 1e18
	// together is how many ns apart two moments may be computed and still be one.
	together = 1e-3
	// imprecision bounds what repeated subtraction makes of a fluid's bits,
	// relative to its size.
	imprecision = 1e-13
)

// newEpoch brings the counts up to the present and computes the rates that hold
// from here.
func (b *Backend) newEpoch() {
	elapsed := b.clock.Since(b.epoch)
	if elapsed > 0 {
		for l := range b.carried {
			b.carried[l] += bitsIn(b.shares.load[l], elapsed)
		}
		for _, list := range [][]*fluid{b.flows, b.chains} {
			for _, f := range list {
				f.left = max(f.leftAfter(elapsed), 0)
			}
		}
	}
	b.epoch, b.stale = b.clock, false
	b.shares.rates(b.classes, b.capacity)
	b.soonest = math.Inf(1)
	for _, list := range [][]*fluid{b.flows, b.chains} {
		for _, f := range list {
			f.rate = 0
			if f.in != nil {
				f.rate = f.in.rate
			}
			if f.rate > 0 {
				b.soonest = min(b.soonest, f.left*1e9/f.rate)
			}
		}
	}
}

// bitsIn is what a rate in bit/s carries in so many ns.
func bitsIn(rate, ns float64) float64 { return rate * ns / 1e9 }

// leftAfter is how many bits are left so many ns after the epoch's beginning.
func (f *fluid) leftAfter(ns float64) float64 {
	if math.IsInf(f.rate, 1) {
		return 0
	}
	return f.left - float64(bitsIn(f.rate, ns))
}

// advance moves the clock to the next moment at which something happens. A
// completion in the half nanosecond before wake would be reported at wake, so
// it is moved there: what arrives at wake then starts at wake.
func (b *Backend) advance(wake time.Duration) {
	finish := b.soonest - b.clock.Since(b.epoch)
	stop, slack := wake, 0.5
	if next := min(b.nextBeat, b.faults.next()); next < wake {
		stop, slack = next, together
	}
	if len(b.landing) > 0 && b.landing[0].at < stop {
		stop, slack = b.landing[0].at, together
	}
	switch until := b.clock.Until(stop); {
	case stop != engine.NextNever && until <= finish+slack:
		if until > 0 {
			b.clock = clock.Moment{Whole: stop}
		}
	case finish > 0:
		b.clock = b.clock.Plus(finish)
	}
}

// happened lists what is new at the present moment, and takes what finished off
// the books.
func (b *Backend) happened() []engine.Event {
	elapsed := b.clock.Since(b.epoch)
	var flows []workloads.FlowID
	var received []units.Bytes
	var ended, durable []int
	progressed := func(f int, n units.Bytes) {
		if flows == nil {
			flows = make([]workloads.FlowID, 0, len(b.flows))
			received = make([]units.Bytes, 0, len(b.flows))
		}
		flows, received = append(flows, workloads.FlowID(f)), append(received, n)
	}
	done := false
	for _, f := range b.flows {
		n := f.receivedAfter(elapsed)
		if f.done && f.delay > 0 {
			n = f.size - 1 // the last byte is on its way
		}
		if n > f.progress {
			f.progress = n
			progressed(f.id, n)
		}
		if f.done {
			done = true
			b.byFlow[workloads.FlowID(f.id)] = nil
			b.leave(f)
			if f.delay > 0 {
				b.send(f, false)
			} else {
				ended = append(ended, f.id)
			}
		}
	}
	for _, f := range b.chains {
		if f.receivedAfter(elapsed); f.done {
			done = true
			b.leave(f)
			if f.delay > 0 {
				b.send(f, true)
			} else {
				durable = append(durable, f.id)
			}
		}
	}
	if landed := b.arrived(); len(landed) > 0 {
		for _, l := range landed {
			if l.block {
				durable = append(durable, l.id)
				continue
			}
			progressed(l.id, l.size)
			ended = append(ended, l.id)
		}
		slices.Sort(ended)
		slices.Sort(durable)
		byFlow := make(map[workloads.FlowID]units.Bytes, len(flows))
		for i, f := range flows {
			byFlow[f] = received[i]
		}
		slices.Sort(flows)
		for i, f := range flows {
			received[i] = byFlow[f]
		}
	}
	var evs []engine.Event
	if len(flows) > 0 {
		evs = append(evs, engine.TransferProgressed{Flows: flows, Received: received})
	}
	for _, id := range ended {
		evs = append(evs, engine.TransferFinished{Flow: workloads.FlowID(id)})
	}
	for _, id := range durable {
		evs = append(evs, engine.BlockDurable{Block: workloads.BlockID(id)})
	}
	if done {
		isDone := func(f *fluid) bool { return f.done }
		b.flows = slices.DeleteFunc(b.flows, isDone)
		b.chains = slices.DeleteFunc(b.chains, isDone)
	}
	evs = append(evs, b.faults.due()...)
	if b.nextBeat != engine.NextNever && b.clock.Until(b.nextBeat) <= 0 {
		b.tellCarried(elapsed)
		evs = append(evs, b.heartbeats(elapsed)...)
		b.nextBeat += b.cfg.Heartbeat
	}
	return evs
}

// receivedAfter is how many whole bytes have arrived so many ns after the
// epoch's beginning. It sets done once all have; the last byte counts only then.
func (f *fluid) receivedAfter(ns float64) units.Bytes {
	left := f.leftAfter(ns)
	// Size imprecision only matters to what is moving: a paused fluid is not done.
	if f.rate > 0 && left <= max(bitsIn(f.rate, together), imprecision*8*float64(f.size)) || left <= 0 {
		f.done = true
		return f.size
	}
	const nearlyWhole = 1e-6 // bytes: rounding of the arithmetic above
	n := units.Bytes(math.Floor(float64(f.size) - left/8 + nearlyWhole))
	return min(n, f.size-1)
}

// tellCarried is called at a heartbeat, so many ns after the epoch's beginning.
func (b *Backend) tellCarried(elapsed float64) {
	if b.cfg.Carried == nil {
		return
	}
	bytes := make([]float64, len(b.carried))
	for l := range bytes {
		bytes[l] = (b.carried[l] + float64(bitsIn(b.shares.load[l], elapsed))) / 8
	}
	b.cfg.Carried(b.nextBeat, bytes)
}

// heartbeats reports every host's counters: what crossed its two links.
func (b *Backend) heartbeats(elapsed float64) []engine.Event {
	evs := make([]engine.Event, 0, b.fabric.Hosts())
	count := func(l topo.LinkID) units.Bytes {
		return units.Bytes(math.Round((b.carried[l] + float64(bitsIn(b.shares.load[l], elapsed))) / 8))
	}
	for h := range topo.HostID(b.fabric.Hosts()) {
		if !b.faults.crashed[h] {
			evs = append(evs, engine.Heartbeat{Host: h, Rx: count(b.fabric.HostDown(h)), Tx: count(b.fabric.HostUp(h))})
		}
	}
	return evs
}

// stuck explains why waiting would not end.
func (b *Backend) stuck() error {
	if len(b.flows)+len(b.chains) == 0 {
		return fmt.Errorf("fluid backend: at %v: nothing runs and nothing is due: waiting would never end", b.reported)
	}
	const most = 10
	var names []string
	elapsed := b.clock.Since(b.epoch)
	for _, f := range b.flows {
		if len(names) == most {
			names = append(names, fmt.Sprintf("and %d more", len(b.flows)-most))
			break
		}
		names = append(names, fmt.Sprintf("flow %d (%s to %s, %v of %v left, ceiling %v)", f.id, b.fabric.HostName(f.src), b.fabric.HostName(f.dst),
			f.size-f.receivedAfter(elapsed), f.size, f.ceiling))
	}
	return fmt.Errorf("fluid backend: at %v: deadlock: nothing moves and nothing is due: %s: the coflow policy must let at least one of them send", b.reported, strings.Join(names, ", "))
}
