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
	// DiskRate is the rate at which each of a host's disks takes writes, shared by all
	// blocks being written to it. 0 stands for disks that are never the bottleneck.
	DiskRate units.Rate
	// ReadRate is the rate at which each of them reads, beside writes and shared by all
	// blocks being read from it. 0 stands for disks that read faster than anything else.
	ReadRate units.Rate
	// Disks is how many disks a host has, each of DiskRate; 0 is one. A host's blocks
	// go to them in turn.
	Disks int
	// Heartbeat is the time between two reports of every host, the first due one
	// Heartbeat after the start. 0 stands for none.
	Heartbeat time.Duration
	// Needs are those of the policies. Loads of links are told where they have
	// policies.TrueLoad.
	Needs policies.Knowledge
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
	// Blind tells that nobody looks at what flows have received before they end
	// (policies.Blind): progress is then told of those that end, and of no other.
	Blind bool
}

// Backend implements engine.Backend. It is for one goroutine.
type Backend struct {
	fabric   *topo.Fabric
	cfg      Config
	capacity []float64 // bit/s: links by LinkID, then disks by HostID and number, then the same for reads
	reading  int32     // the first of those for reads

	clock    clock.Moment
	reported time.Duration // the newest time Await returned
	nextBeat time.Duration // engine.NextNever if there are no heartbeats

	flows   []*fluid                    // unfinished, by ID
	chains  []*fluid                    // unfinished, by ID
	byFlow  map[workloads.FlowID]*fluid // finished flows map to nil
	byBlock map[workloads.BlockID]bool  // all blocks ever started
	landing []landing                   // what was sent and has not arrived, in order of arrival
	paths   map[pathKey]*class          // what fluids without a ceiling share
	classes []*class                    // those with fluids

	// Rates are computed anew at the next Await where anything is stale: all of them,
	// or around what has changed.
	stale, all bool
	changed    []*class // with other fluids than before
	freed      []int32  // resources that fluids drew on which have left a class
	moved      []*fluid // that have left a class
	few        int      // up to so many classes, all rates are computed anew; below 0 for never
	pass       int      // and so many times more, whatever changes
	passes     int      // as was said when that was last too much
	shares     sharing
	finishes   finishes

	load     []float64      // bit/s, by resource
	carried  []float64      // bits, by LinkID, up to since
	since    []clock.Moment // by LinkID
	hostEnds int            // the links of hosts are those with a smaller ID

	faults  faults
	reports reports
	turn    []int           // whose of a host's disks it is, by HostID
	where   map[replica]int // which of its host's disks
}

// replica is a durable block at one of its hosts.
type replica struct {
	block workloads.BlockID
	host  topo.HostID
}

// fewClasses is up to how many classes it costs less to compute all rates than to
// find out which have to be.
const fewClasses = 64

// fluid is an unfinished transfer or block write. What is left of it is kept as of
// when its rate changed last and computed from there, so that asking often costs no
// precision.
type fluid struct {
	id       int // workloads.FlowID or workloads.BlockID
	src, dst topo.HostID
	size     units.Bytes
	left     float64      // bits, at since
	since    clock.Moment // when rate was set
	rate     float64      // bit/s
	finish   clock.Moment // at this rate, if it finishes
	finishes bool
	queued   int // place in finishes, from 1; 0 for one that does not finish
	ceiling  units.Rate
	in       *class // nil while paused
	place    int    // in its members
	path     *class // of fluids that share its resources and have no ceiling
	own      class  // where it is alone with its ceiling
	progress units.Bytes
	delay    time.Duration // one way, of all links on its path
	done     bool

	hash uint32 // of a flow, by which routing chooses its spine
	disk int32  // of a flow, the resource that reads what it carries; none where nothing does
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

// pathKey identifies a path: spine is -1 where none is crossed, disk is none where no
// block is read.
type pathKey struct {
	src, dst topo.HostID
	spine    int
	disk     int32
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
		where:    map[replica]int{},
		hostEnds: 2 * f.Hosts(),
		few:      fewClasses,
	}
	for _, l := range f.Links() {
		b.capacity = append(b.capacity, float64(l.Rate))
	}
	b.cfg.Disks = max(cfg.Disks, 1)
	b.turn = make([]int, f.Hosts())
	if cfg.DiskRate > 0 {
		for range f.Hosts() * b.cfg.Disks {
			b.capacity = append(b.capacity, float64(cfg.DiskRate))
		}
	}
	b.reading = int32(len(b.capacity))
	if cfg.ReadRate > 0 {
		for range f.Hosts() * b.cfg.Disks {
			b.capacity = append(b.capacity, float64(cfg.ReadRate))
		}
	}
	if cfg.Heartbeat > 0 {
		b.nextBeat = cfg.Heartbeat
	}
	b.faults.init(b)
	b.reports.init(b)
	links := len(f.Links())
	b.load, b.carried, b.since = make([]float64, len(b.capacity)), make([]float64, links), make([]clock.Moment, links)
	b.shares.size(len(b.capacity))
	return b
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
	return f.in != nil && f.rate > 0 && f.leftAfter(b.clock.Since(f.since)) <= min(bitsIn(f.rate, lastMoment), lastPart*8*float64(f.size))
}

// Await advances to the first of the next completion, the next heartbeat and
// wake, and returns all that happens there: progress, completed flows,
// completed blocks, what faults bring, heartbeats and reports of racks, each in
// order of ID; before them the loads of links, where they are told. It never blocks. If
// nothing moves and wake is engine.NextNever, it returns an error that names
// what is paused, since such a wait would not end.
//
// Between calls the clock is kept to a small fraction of a nanosecond; the
// returned time is rounded to the nearest one and never goes back.
func (b *Backend) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	if ctx.Err() != nil {
		return b.reported, nil, context.Cause(ctx)
	}
	if b.stale {
		b.share()
		b.reports.fresh = true
	}
	if wake == engine.NextNever && len(b.finishes) == 0 && len(b.landing) == 0 && !b.faults.mayMove() {
		return b.reported, nil, b.stuck()
	}
	b.advance(wake)
	evs := b.reports.loads(b.happened())
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

// share computes the rates that hold from the present moment.
func (b *Backend) share() {
	touched := b.shares.every
	if b.around() {
		touched = b.shares.touched
		for _, c := range b.shares.part {
			for _, f := range c.members {
				if b.pace(f, c.rate) {
					b.finishes.put(f)
				} else {
					b.finishes.drop(f)
				}
			}
		}
		for _, f := range b.moved {
			if f.in == nil {
				b.pace(f, 0)
				b.finishes.drop(f)
			}
		}
	} else {
		b.shares.rates(b.classes, b.capacity)
		b.finishes.empty()
		for _, c := range b.classes {
			for _, f := range c.members {
				if b.pace(f, c.rate) {
					b.finishes.add(f)
				}
			}
		}
		for _, f := range b.moved {
			if f.in == nil {
				b.pace(f, 0)
			}
		}
		b.finishes.order()
	}
	for _, r := range touched {
		b.book(r, b.shares.load[r])
	}
	clear(b.moved) // what has ended is not kept
	b.changed, b.freed, b.moved = b.changed[:0], b.freed[:0], b.moved[:0]
	b.stale, b.all = false, false
}

// around computes the rates around what has changed, where that is likely to be less
// than all. After it was not, it is left alone for twice as many times as before.
func (b *Backend) around() bool {
	const longest = 64
	most := len(b.classes) / 2
	if b.few < 0 {
		most = math.MaxInt
	}
	switch {
	case b.all || len(b.classes) <= b.few:
		return false
	case b.pass > 0:
		b.pass--
		return false
	case b.shares.around(b.changed, b.freed, b.capacity, most):
		b.passes = 0
		return true
	}
	b.passes = min(2*b.passes+1, longest)
	b.pass = b.passes
	return false
}

// pace sets a fluid's rate from the present moment on, and tells whether it finishes
// at it.
func (b *Backend) pace(f *fluid, rate float64) bool {
	if f.rate == rate {
		return f.finishes
	}
	f.left = max(f.leftAfter(b.clock.Since(f.since)), 0)
	f.since, f.rate, f.finishes = b.clock, rate, false
	if ns := f.left * 1e9 / rate; rate > 0 && ns <= farthest {
		f.finish, f.finishes = b.clock.Plus(ns), true
	}
	return f.finishes
}

// book sets what a resource carries from the present moment on.
func (b *Backend) book(r int32, load float64) {
	if b.load[r] == load {
		return
	}
	if int(r) < len(b.carried) {
		b.carried[r] += bitsIn(b.load[r], b.clock.Since(b.since[r]))
		b.since[r] = b.clock
	}
	b.load[r] = load
}

// count is what has crossed a link up to the present moment.
func (b *Backend) count(l topo.LinkID) units.Bytes {
	return units.Bytes(math.Round(b.bits(l) / 8))
}

// bits is what a link has carried up to the present moment.
func (b *Backend) bits(l topo.LinkID) float64 {
	return b.carried[l] + float64(bitsIn(b.load[l], b.clock.Since(b.since[l])))
}

// bitsIn is what a rate in bit/s carries in so many ns.
func bitsIn(rate, ns float64) float64 { return rate * ns / 1e9 }

// leftAfter is how many bits are left so many ns after the rate was set.
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
	finish := math.Inf(1)
	if len(b.finishes) > 0 {
		finish = b.finishes[0].finish.Since(b.clock)
	}
	stop, slack := wake, 0.5
	if next := min(b.nextBeat, b.faults.next(), b.reports.next()); next < wake {
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
		b.clock = b.finishes[0].finish
	}
}

// happened lists what is new at the present moment, and takes what finished off
// the books.
func (b *Backend) happened() []engine.Event {
	lookAt, chains := b.finishing()
	if !b.cfg.Blind {
		lookAt = b.flows
	}
	var flows []workloads.FlowID
	var received []units.Bytes
	var ended, durable []int
	progressed := func(f int, n units.Bytes) {
		if flows == nil {
			flows = make([]workloads.FlowID, 0, len(lookAt))
			received = make([]units.Bytes, 0, len(lookAt))
		}
		flows, received = append(flows, workloads.FlowID(f)), append(received, n)
	}
	done := false
	for _, f := range lookAt {
		n := f.receivedAfter(b.clock.Since(f.since))
		if f.done && f.delay > 0 {
			n = f.size - 1 // the last byte is on its way
		}
		if n > f.progress && (f.done || !b.cfg.Blind) {
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
	for _, f := range chains {
		if f.receivedAfter(b.clock.Since(f.since)); f.done {
			b.chains = slices.Delete(b.chains, placeOf(b.chains, f.id), placeOf(b.chains, f.id)+1)
			b.leave(f)
			b.reports.end(f)
			for i, h := range f.pipe.targets {
				b.where[replica{workloads.BlockID(f.id), h}] = f.pipe.disks[i]
			}
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
		b.flows = slices.DeleteFunc(b.flows, func(f *fluid) bool { return f.done })
	}
	evs = append(evs, b.faults.due()...)
	evs = append(evs, b.reports.arrived()...)
	if b.nextBeat != engine.NextNever && b.clock.Until(b.nextBeat) <= 0 {
		b.tellCarried()
		evs = append(evs, b.reports.heartbeats()...)
		b.nextBeat += b.cfg.Heartbeat
	}
	return evs
}

// finishing are the flows and pipelines that may be done at the present moment, by ID.
func (b *Backend) finishing() (flows, chains []*fluid) {
	const within = 1 // ns: receivedAfter decides
	b.finishes.until(0, b.clock, within, func(f *fluid) {
		if f.pipe == nil {
			flows = append(flows, f)
		} else {
			chains = append(chains, f)
		}
	})
	byID := func(x, y *fluid) int { return cmp.Compare(x.id, y.id) }
	slices.SortFunc(flows, byID)
	slices.SortFunc(chains, byID)
	return flows, chains
}

// receivedAfter is how many whole bytes have arrived so many ns after the rate was
// set. It sets done once all have; the last byte counts only then.
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

// tellCarried is called at a heartbeat.
func (b *Backend) tellCarried() {
	if b.cfg.Carried == nil {
		return
	}
	bytes := make([]float64, len(b.carried))
	for l := range bytes {
		bytes[l] = b.bits(topo.LinkID(l)) / 8
	}
	b.cfg.Carried(b.nextBeat, bytes)
}

// stuck explains why waiting would not end.
func (b *Backend) stuck() error {
	if len(b.flows)+len(b.chains) == 0 {
		return fmt.Errorf("fluid backend: at %v: nothing runs and nothing is due: waiting would never end", b.reported)
	}
	const most = 10
	var names []string
	for _, f := range b.flows {
		if len(names) == most {
			names = append(names, fmt.Sprintf("and %d more", len(b.flows)-most))
			break
		}
		names = append(names, fmt.Sprintf("flow %d (%s to %s, %v of %v left, ceiling %v)", f.id, b.fabric.HostName(f.src), b.fabric.HostName(f.dst),
			f.size-f.receivedAfter(b.clock.Since(f.since)), f.size, f.ceiling))
	}
	return fmt.Errorf("fluid backend: at %v: deadlock: nothing moves and nothing is due: %s: the coflow policy must let at least one of them send", b.reported, strings.Join(names, ", "))
}
