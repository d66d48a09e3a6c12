// Package fluid is the fluid backend: it computes the rates of transfers as max-min fair
// shares of the links, an idealisation of TCP. A transfer's rate never exceeds its ceiling.
// A block write is one fluid over the links of all its hops and the disks of all
// its replicas, because a pipeline is as fast as its slowest part. Time is simulated, so
// the duration of a run depends only on the cost of its computations.
//
// Attempts of tasks consume what they read at a rate of their own, compute for a time, and spill
// outputs, which share the disks of their hosts with blocks.
//
// The last byte of a transfer arrives one propagation delay of its path after it was
// sent, and the last byte of a block after the delays of all its hops. Links are free
// for other transfers in the meantime.
//
// The model has no packets: no slow start, queues, losses or round trips, and Block.Packet
// and Block.Window have no effect. Headers count only through Config.Payload, which
// gives links the payload capacity of full segments. Marks have no effect.
// The results are a reference for measurements with packets and do not replace them.
package fluid

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/simtime"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Config contains the settings of a backend that its fabric does not determine.
type Config struct {
	// Payload returns the payload that a link of the given rate carries. Transfers
	// share that capacity; heartbeats and Carried count bytes on the wire, headers
	// included. Nil means that links carry payload at their full rate.
	Payload func(units.Rate) units.Rate
	// DiskRate is the write rate of each disk of a host, shared by all blocks being
	// written to it. 0 means that disks never limit writes.
	DiskRate units.Rate
	// ReadRate is the read rate of each disk, independent of writes and shared by all
	// blocks being read from it. 0 means that disks never limit reads.
	ReadRate units.Rate
	// Disks is the number of disks of a host; 0 means 1. A host's blocks are assigned
	// to its disks round-robin.
	Disks int
	// Heartbeat is the interval of the reports of hosts and leaves, and Phases are the times of their first
	// ones. 0 disables reports. Leaves report if Needs includes policies.LinkLoad.
	Heartbeat time.Duration
	Phases    *engine.Phases
	// ActsOnReport is Engine.ActsOnReport of the engine. Reports that cause no commands are returned with the
	// next other event, or when all hosts and leaves have reported. Nil returns each at its time.
	ActsOnReport func(topo.HostID) bool
	// Needs is the union of the policies' needs. The backend reports loads of links
	// if it includes policies.OracleLoad, and progress of flows before they end only if it includes policies.Progress or
	// policies.TaskProgress.
	Needs policies.Facts
	// Carried, if not nil, is called after every Heartbeat with the bytes that each
	// link, by LinkID, has carried since the start, headers included. It must not keep
	// the slice. It always receives all links, even if reports are lost.
	Carried func(now time.Duration, bytes []float64)
	// Sent, if not nil, is called like Carried for every whole second, and by Settle for the current time. It
	// is no event at which progress is reported.
	Sent func(now time.Duration, bytes []float64)
	// Faults are applied at their times: see faults.go.
	Faults fault.Timeline
	// Detect is the time of silence after which a host counts as lost. Silence is the
	// time that a block pipeline stalls before it drops an unreachable host; 0 means
	// Detect.
	Detect, Silence time.Duration
	// Convergence is the delay until leaves that are not at a link's end learn that
	// it is down, or up again.
	Convergence time.Duration
	// Resolution, if positive, delays what ends to a multiple of it, or to the next other event if
	// that is earlier, and reports to a multiple of it. Ends that are close then share a computation of
	// rates, which simulates large shuffles several times faster. In the meantime resources idle.
	Resolution time.Duration
	// Stored are blocks that hosts store at the start. They can be read like blocks that were
	// written; the disk use that hosts report excludes them.
	Stored []engine.StoredBlock
}

// Backend implements engine.Backend. It is not safe for concurrent use.
type Backend struct {
	fabric   *topo.Fabric
	cfg      Config
	capacity []float64 // bit/s: links by LinkID, then disks by HostID and number, then the same for reads
	reading  int32     // index of the first read capacity

	clock    simtime.Moment
	reported time.Duration // the newest time Await returned
	// onlyReport states that nothing but reports happens at the next stop.
	onlyReport bool
	nextRead   time.Duration // of Config.Carried; engine.NextNever for none
	// commanded is the time of the newest command, and vain the number of wakes since then at which
	// nothing could move.
	commanded time.Duration
	vain      int

	flows   []*fluid                    // unfinished, by ID
	chains  []*fluid                    // unfinished, by ID
	byFlow  map[workloads.FlowID]*fluid // unfinished
	spare   []*fluid                    // flows that have ended, for reuse
	started idSet                       // all flows ever started
	byBlock map[workloads.BlockID]bool  // all blocks ever started
	landing []landing                   // fluids sent but not yet arrived, in order of arrival
	paths   map[pathKey]*class          // classes of fluids without a ceiling
	classes []*class                    // classes with at least one fluid
	// mostPaths is the number of paths at which unused ones are forgotten.
	mostPaths int

	// If stale, the next Await recomputes the rates that the changes affect.
	stale    bool
	changed  []*class // classes whose fluids or capacities changed
	freed    []int32  // resources used by fluids that left a class
	shares   sharing
	finishes finishes

	carried  []float64     // bits of payload, by LinkID, of fluids that have left their classes
	wire     []float64     // bits on the wire for each bit of payload, by LinkID
	nextSent time.Duration // of Config.Sent
	hostEnds int           // links with a smaller ID are links of hosts

	faults  faults
	reports reports
	tasks   tasks
	invalid error           // of the configuration
	turn    []int           // next disk to write to, by HostID
	where   map[replica]int // disk number of each replica; none for one in memory
}

// replica is a durable copy of a block on a host.
type replica struct {
	block workloads.BlockID
	host  topo.HostID
}

// fluid is an unfinished transfer or block write.
type fluid struct {
	left     float64 // bits that are left when its clock reads 0; without a clock, now
	clock    *clock  // its progress; nil while it has no rate
	place    int     // index in clock.fluids
	turn     float64 // bits; 0 if consumes does not change
	counted  float64 // bits that were left when it joined its class
	id       int     // workloads.FlowID or workloads.BlockID
	src, dst topo.HostID
	size     units.Bytes
	ceiling  units.Rate
	consumes units.Rate // rate at which a task consumes it on an unloaded slot; 0 for no limit
	slow     units.Rate // value of consumes once only turn is left
	most     units.Rate // rate of its source or sink; 0 for no limit
	in       *class     // nil while paused
	member   int        // index in in.members
	path     *class     // class of fluids on the same resources without a ceiling
	own      class      // its class while it has a ceiling; no other fluid is in it
	progress units.Bytes
	delay    time.Duration // one-way propagation delay of its path
	done     bool

	hash  uint32 // of a flow: selects its spine
	disk  int32  // of a flow: the disk that it reads from, or none
	local bool   // of a flow: a read of the host's own disk
	pipe  *pipe  // of a block

	// Of an attempt of a task that computes or spills. While it computes, left is in ns and the rate of its clock
	// in ns/s, and size is the time that it computes on an unloaded slot, in ns.
	attempt jobs.AttemptID
	spill   bool
}

// landing is a transfer or block write whose last byte was sent and has not arrived.
type landing struct {
	at    time.Duration
	id    int // workloads.FlowID or workloads.BlockID
	dst   topo.HostID
	size  units.Bytes
	block bool
}

// send schedules the arrival of a fluid whose last byte was sent at the current time.
func (b *Backend) send(f *fluid, block bool) {
	l := landing{b.clock.Round() + f.delay, f.id, f.dst, f.size, block}
	after := slices.IndexFunc(b.landing, func(o landing) bool { return o.at > l.at })
	if after < 0 {
		after = len(b.landing)
	}
	b.landing = slices.Insert(b.landing, after, l)
}

// cancelArrivals removes the pending arrivals that match.
func (b *Backend) cancelArrivals(fits func(landing) bool) {
	b.landing = slices.DeleteFunc(b.landing, fits)
}

// arrived removes and returns the arrivals up to the current time.
func (b *Backend) arrived() []landing {
	n := 0
	for n < len(b.landing) && b.clock.Until(b.landing[n].at) <= 0 {
		n++
	}
	now := slices.Clone(b.landing[:n])
	b.landing = slices.Delete(b.landing, 0, n)
	return now
}

// pathKey identifies a path. spine is -1 if the path crosses no spine; disk is none if the
// flow reads no block.
type pathKey struct {
	src, dst topo.HostID
	spine    int
	disk     int32
}

// New returns an idle backend at time 0.
func New(f *topo.Fabric, cfg Config) *Backend {
	if cfg.Silence == 0 {
		cfg.Silence = cfg.Detect
	}
	b := &Backend{
		fabric: f, cfg: cfg,
		nextRead:  engine.NextNever,
		byFlow:    map[workloads.FlowID]*fluid{},
		started:   idSet{},
		byBlock:   map[workloads.BlockID]bool{},
		paths:     map[pathKey]*class{},
		where:     map[replica]int{},
		hostEnds:  2 * f.Hosts(),
		mostPaths: minPaths,
	}
	if cfg.Payload == nil {
		b.cfg.Payload = func(rate units.Rate) units.Rate { return rate }
	}
	for _, l := range f.Links() {
		payload := float64(b.cfg.Payload(l.Rate))
		b.capacity, b.wire = append(b.capacity, payload), append(b.wire, float64(l.Rate)/payload)
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
	if cfg.Heartbeat > 0 && cfg.Carried != nil {
		b.nextRead = cfg.Heartbeat
	}
	b.faults.init(b)
	b.reports.init(b)
	b.tasks.init(b)
	b.invalid = b.store(cfg.Stored)
	b.carried = make([]float64, len(f.Links()))
	b.shares.init(b.capacity)
	return b
}

// store puts blocks on the disks of their hosts.
func (b *Backend) store(blocks []engine.StoredBlock) error {
	for _, s := range blocks {
		for _, h := range s.Hosts {
			if _, twice := b.where[replica{s.Block, h}]; twice || !b.known(h) {
				return fmt.Errorf("fluid backend: stored block %d on hosts %v: expected distinct hosts of the fabric, and each block once", s.Block, s.Hosts)
			}
			b.where[replica{s.Block, h}] = b.nextDisk(h)
			if s.Cached {
				b.where[replica{s.Block, h}] = none
			}
		}
	}
	return nil
}

// lastMoment is a time in ns: a flow that would end within it at its current rate ignores
// a lower ceiling. Policies see whole bytes and set whole bits per second, so flows that
// should end together end up to one byte time apart. When the first has ended, the
// others have less than a byte left. Varys (MADD) makes all flows of a coflow end
// together, so it would stretch that byte over the coflow's remaining time. The rounding
// error would grow to milliseconds and change later decisions. The remaining part of the
// flow must also be at most lastPart, so that flows of a few microseconds are not exempt.
const (
	lastMoment = 20e3
	lastPart   = 1e-3
)

// nearlyDone reports whether a flow ends within lastMoment at its current rate.
func (b *Backend) nearlyDone(f *fluid) bool {
	rate := f.rate()
	return rate > 0 && f.leftAt(b.clock) <= min(bitsIn(rate, lastMoment), lastPart*8*float64(f.size))
}

// Await advances the clock to the next completion, heartbeat or wake, whichever is first,
// and returns the events of that time: loads of links if Config.Needs includes them, then
// progress, completed flows, completed blocks, attempts that have computed, spilled outputs,
// events of faults, heartbeats and reports of racks, each in order of ID. It never blocks. If no fluid can progress and wake is
// engine.NextNever, or the caller has been woken mostVain times without a command, it returns an
// error that names the paused flows, because the wait would not end. While a job of tasks is
// unfinished, heartbeats can start attempts, and it waits for them until no command has followed one
// for an hour.
//
// Between calls the clock keeps a small fraction of a nanosecond. The returned time is
// rounded to the nearest nanosecond and never decreases.
func (b *Backend) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	if ctx.Err() != nil {
		return b.reported, nil, context.Cause(ctx)
	}
	if b.invalid != nil {
		return b.reported, nil, b.invalid
	}
	if b.stale {
		b.share()
		b.reports.shared()
	}
	still := len(b.finishes)+len(b.tasks.timers)+len(b.landing) == 0 && !b.faults.canProgress()
	if still && (wake == engine.NextNever || b.vain == mostVain) {
		return b.reported, nil, b.stuck()
	}
	limit := b.undisturbed(wake)
	b.reports.holdUntil(limit)
	b.onlyReport = b.reports.due() < limit
	b.advance(wake)
	b.reportSent()
	if still && b.clock.Until(wake) <= 0 {
		b.vain++
	}
	evs := b.reports.release()
	if more := b.happened(); len(evs) == 0 {
		evs = more
	} else {
		evs = append(evs, more...)
	}
	evs = b.reports.loads(evs)
	b.reported = max(b.reported, b.clock.Round())
	return b.reported, evs, nil
}

const (
	// horizon is a time in ns, 31 years, that no run reaches: later events are
	// ignored.
	horizon = 1e18
	// together is the difference in ns below which two computed times count as equal.
	together = 1e-3
	// patience is the time without commands after which heartbeats no longer count as a reason
	// to wait.
	patience = time.Hour
	// mostVain is the number of wakes without commands, while nothing moves, after which none follows.
	mostVain = 100_000
	// imprecision bounds the rounding error of a fluid's remaining bits after repeated
	// subtraction, relative to its size.
	imprecision = 1e-13
)

// rate returns the rate of a fluid in bit/s.
func (f *fluid) rate() float64 {
	if f.clock == nil {
		return 0
	}
	return f.clock.rate
}

// leftAt returns the bits that are left at a time. Since the last computation of rates, no rate has changed.
func (f *fluid) leftAt(now simtime.Moment) float64 {
	switch {
	case f.clock == nil:
		return f.left
	case math.IsInf(f.clock.rate, 1):
		return 0
	}
	return f.left - f.clock.at(now)
}

// advance moves the clock to the next event. A completion in the half nanosecond before
// wake would be reported at wake, so it is moved there: fluids that start at wake then
// start after it.
func (b *Backend) advance(wake time.Duration) {
	finish, first := b.firstEnd()
	stop, slack := wake, 0.5
	if next := min(b.reports.due(), b.nextOther()); next < wake {
		stop, slack = next, together
	}
	switch until := b.clock.Until(stop); {
	case stop != engine.NextNever && until <= finish+slack:
		if until > 0 {
			b.clock = simtime.Moment{Whole: stop}
		}
	case finish > 0:
		b.clock = first
	}
}

// firstEnd returns the time until the first end of a fluid or computation, in ns, and its moment.
func (b *Backend) firstEnd() (finish float64, first simtime.Moment) {
	finish, first = math.Inf(1), b.clock
	for _, h := range [...]finishes{b.finishes, b.tasks.timers} {
		if len(h) > 0 {
			if ns := h[0].Since(b.clock); ns < finish {
				finish, first = ns, h[0].Moment
			}
		}
	}
	if b.cfg.Resolution > 0 && finish > 0 && !math.IsInf(finish, 1) {
		first = simtime.Moment{Whole: first.Up(b.cfg.Resolution, together)}
		finish = first.Since(b.clock)
	}
	return finish, first
}

// nextOther returns the time of the next event that is not the end of a fluid or computation and not a report:
// a fault, a delayed report, an arrival, or a call of Config.Carried.
func (b *Backend) nextOther() time.Duration {
	next := min(b.nextRead, b.faults.next(), b.reports.next())
	if len(b.landing) > 0 {
		next = min(next, b.landing[0].at)
	}
	return next
}

// endsWithin is a time in ns: fluids that end within it may end at the current time (finishing).
const endsWithin = 1

// undisturbed returns a time before which nothing happens but reports.
func (b *Backend) undisturbed(wake time.Duration) time.Duration {
	limit := min(wake, b.nextOther())
	if finish, first := b.firstEnd(); !math.IsInf(finish, 1) {
		limit = min(limit, first.Whole-endsWithin)
	}
	return limit
}

// manyDone is the number of flows from which one pass over all flows removes them faster than a
// search for each.
const manyDone = 16

// follows reports whether a policy sees the received bytes of flows before they end.
func (b *Backend) follows() bool { return b.cfg.Needs&(policies.Progress|policies.TaskProgress) != 0 }

// happened returns the events of the current time and removes the fluids that have
// finished.
func (b *Backend) happened() []engine.Event {
	lookAt, chains, spills := b.finishing()
	for _, f := range lookAt {
		if f.turn > 0 {
			b.slowDown(f)
		}
	}
	switch {
	case !b.follows():
	case b.onlyReport && b.faults.downs == 0: // the engine uses only the progress of attempts on the hosts that report
		if b.cfg.Needs.Has(policies.TaskProgress) {
			lookAt = b.reports.flows()
		}
	default:
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
	var done []*fluid
	for _, f := range lookAt {
		n := f.received(b.clock)
		if f.done && f.delay > 0 {
			n = f.size - 1 // the last byte is in flight
		}
		if n > f.progress && (f.done || b.follows()) {
			f.progress = n
			progressed(f.id, n)
		}
		if f.done {
			done = append(done, f)
			delete(b.byFlow, workloads.FlowID(f.id))
			b.leave(f)
			if f.delay > 0 {
				b.send(f, false)
			} else {
				ended = append(ended, f.id)
			}
		}
	}
	for _, f := range chains {
		if f.received(b.clock); f.done {
			remove(&b.chains, f)
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
	if len(done) > manyDone {
		b.flows = slices.DeleteFunc(b.flows, func(f *fluid) bool { return f.done })
	} else {
		for _, f := range done {
			remove(&b.flows, f)
		}
	}
	b.spare = append(b.spare, done...)
	evs = append(evs, b.tasks.ended(spills)...)
	evs = append(evs, b.faults.runDue()...)
	evs = append(evs, b.reports.arrived()...)
	if b.clock.Until(b.nextRead) <= 0 {
		b.cfg.Carried(b.nextRead, b.bytes(b.clock))
		b.nextRead += b.cfg.Heartbeat
	}
	return b.reports.arising(evs)
}

// slowDown makes a task consume a flow at its slow rate from the current time on.
func (b *Backend) slowDown(f *fluid) {
	b.leave(f)
	f.left, f.consumes, f.turn = f.turn, f.slow, 0
	b.limit(f, f.ceiling)
}

// finishing returns the flows and pipelines that may finish at the current time, by ID, and the
// spills, in no order.
func (b *Backend) finishing() (flows, chains, spills []*fluid) {
	b.finishes.until(0, b.clock, endsWithin, func(f *fluid) {
		switch {
		case f.pipe != nil:
			chains = append(chains, f)
		case f.spill:
			spills = append(spills, f)
		default:
			flows = append(flows, f)
		}
	})
	byID := func(x, y *fluid) int { return cmp.Compare(x.id, y.id) }
	slices.SortFunc(flows, byID)
	slices.SortFunc(chains, byID)
	return flows, chains, spills
}

// received returns the whole bytes that have arrived. It sets done when all have arrived; the
// last byte counts only then.
func (f *fluid) received(now simtime.Moment) units.Bytes {
	left, rate := f.leftAt(now), f.rate()
	// The tolerances apply only to a moving fluid: a paused one is not done.
	if rate > 0 && left <= max(bitsIn(rate, together), imprecision*8*float64(f.size)) || left <= 0 {
		f.done = true
		return f.size
	}
	const nearlyWhole = 1e-6 // bytes: rounding of the arithmetic above
	n := units.Bytes(math.Floor(float64(f.size) - left/8 + nearlyWhole))
	return min(n, f.size-1)
}

// bytes returns the bytes that each link has carried up to a time (bits).
func (b *Backend) bytes(at simtime.Moment) []float64 {
	bytes := make([]float64, len(b.carried))
	for l := range bytes {
		bytes[l] = b.bits(topo.LinkID(l), at) / 8
	}
	return bytes
}

// reportSent calls Config.Sent for the whole seconds up to the current time.
func (b *Backend) reportSent() {
	for b.cfg.Sent != nil && b.clock.Until(b.nextSent) <= 0 {
		b.cfg.Sent(b.nextSent, b.bytes(simtime.Moment{Whole: b.nextSent}))
		b.nextSent += time.Second
	}
}

// Settle calls Config.Sent for the current time, so that its calls cover everything sent so far.
func (b *Backend) Settle() {
	if b.cfg.Sent != nil {
		b.cfg.Sent(b.clock.Round(), b.bytes(b.clock))
	}
}

// stuck returns the error that explains why Await would not return.
func (b *Backend) stuck() error {
	if n := len(b.tasks.unfinished); n > 0 && b.cfg.Heartbeat > 0 {
		return fmt.Errorf("fluid backend: at %v: nothing moves, and heartbeats have started nothing of %s for %v: "+
			"the task scheduler must launch their tasks, these must fit on a host, "+
			"and attempts need links, disks and processors that are not stopped",
			b.reported, words.Plural(n, "unfinished job", "unfinished jobs"), patience)
	}
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
			f.size-f.received(b.clock), f.size, f.ceiling))
	}
	return fmt.Errorf("fluid backend: at %v: deadlock: nothing moves and nothing is due: %s: the coflow policy must let at least one of them send", b.reported, strings.Join(names, ", "))
}
