package fluid

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/emu/simtime"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// reports produces the reports of hosts and leaves to the master: the bytes that their
// links have carried and that their disks store. A disk reserves a block's full size when
// the block begins, as in runs on packets, and frees it when the block is abandoned.
type reports struct {
	b      *Backend
	agenda *engine.Agenda      // nil without reports
	held   []engine.Event      // reports of hosts that were made and not returned
	leaves []engine.Event      // those of leaves
	disks  []engine.DiskReport // memory for reports

	stored []units.Bytes // by HostID
	// writing lists the replicas being written at each host. begun lists those that
	// began since the host's last report that was not lost.
	writing, begun [][]workloads.BlockID

	// Faults lose or delay the reports of hosts.
	lost     []bool          // whether reports are lost, by HostID
	by       []time.Duration // delay of reports, by HostID
	expected []time.Duration // arrival time of the newest delayed report, by HostID
	wiped    []time.Duration // time of the newest loss of the disks, by HostID; -1 for none
	late     []late          // delayed reports by arrival; those of a host in order of creation

	rates    []units.Rate // loads since the newest computation of rates, by LinkID; nil if they were reported
	reported []units.Rate // loads last reported, by LinkID
}

// late is a delayed report that has not arrived.
type late struct {
	at   time.Duration
	beat engine.Heartbeat
}

func (x *reports) init(b *Backend) {
	n := b.fabric.Hosts()
	x.b, x.stored, x.lost, x.by, x.expected = b, make([]units.Bytes, n), make([]bool, n), make([]time.Duration, n), make([]time.Duration, n)
	x.wiped = slices.Repeat([]time.Duration{-1}, n)
	x.writing, x.begun = make([][]workloads.BlockID, n), make([][]workloads.BlockID, n)
	if cfg := &b.cfg; cfg.Heartbeat > 0 {
		x.agenda = engine.NewAgenda(b.fabric, cfg.Heartbeat, cfg.Phases, cfg.Needs.Has(policies.LinkLoad))
	}
}

// begin reserves space for a block on the disks of its hosts.
func (x *reports) begin(f *fluid) {
	id := workloads.BlockID(f.id)
	for _, h := range f.pipe.targets {
		x.stored[h] += f.size
		x.writing[h] = append(x.writing[h], id)
		x.begun[h] = append(x.begun[h], id)
	}
}

// end records that a block is stored on the disks of all its hosts.
func (x *reports) end(f *fluid) {
	for _, h := range f.pipe.targets {
		x.written(f, h)
	}
}

func (x *reports) written(f *fluid, h topo.HostID) (was bool) {
	i := slices.Index(x.writing[h], workloads.BlockID(f.id))
	if i >= 0 {
		x.writing[h] = slices.Delete(x.writing[h], i, i+1)
	}
	return i >= 0
}

// drop frees the space of an unfinished block's replicas at the given hosts.
func (x *reports) drop(f *fluid, hosts ...topo.HostID) {
	for _, h := range hosts {
		if x.written(f, h) {
			x.stored[h] -= f.size
		}
	}
}

// discard frees the space of a durable block, on hosts whose disks have it.
func (x *reports) discard(c engine.DropBlock) {
	for _, h := range c.Hosts {
		if x.wiped[h] <= c.Durable {
			x.stored[h] -= c.Size
			delete(x.b.where, replica{c.Block, h})
		}
	}
}

// crash drops the delayed reports of a host.
func (x *reports) crash(h topo.HostID) {
	x.late = slices.DeleteFunc(x.late, func(l late) bool { return l.beat.Host == h })
	x.expected[h] = 0
}

// wipe empties a host's disks, except for blocks that began after the crash.
func (x *reports) wipe(h topo.HostID) {
	x.stored[h], x.wiped[h] = 0, x.b.clock.Round()
	for _, f := range x.b.chains {
		if slices.Contains(x.writing[h], workloads.BlockID(f.id)) {
			x.stored[h] += f.size
		}
	}
}

// next returns the arrival time of the next delayed report.
func (x *reports) next() time.Duration {
	if len(x.late) == 0 {
		return engine.NextNever
	}
	return x.late[0].at
}

// arrived removes and returns the delayed reports that have arrived.
func (x *reports) arrived() (evs []engine.Event) {
	n := 0
	for ; n < len(x.late) && x.b.clock.Until(x.late[n].at) <= 0; n++ {
		evs = append(evs, x.late[n].beat)
	}
	x.late = slices.Delete(x.late, 0, n)
	return evs
}

// send delays a report. It keeps the reports of a host in order.
func (x *reports) send(hb engine.Heartbeat, by time.Duration) {
	hb.Made, hb.At = x.b.clock.Round(), 0
	at := max(hb.Made+by, x.expected[hb.Host])
	x.expected[hb.Host] = at
	i, _ := slices.BinarySearchFunc(x.late, at, func(l late, at time.Duration) int {
		return cmp.Or(cmp.Compare(l.at, at), -1)
	})
	x.late = slices.Insert(x.late, i, late{at, hb})
}

// due returns the time of the next report.
func (x *reports) due() time.Duration {
	if x.agenda == nil {
		return engine.NextNever
	}
	return x.timeOf(x.agenda)
}

// timeOf returns the time of the next report of an agenda.
func (x *reports) timeOf(a *engine.Agenda) time.Duration {
	_, at := a.Next()
	if step := x.b.cfg.Resolution; step > 0 {
		at = simtime.Moment{Whole: at}.Up(step, 0)
	}
	return at
}

// holdUntil makes and keeps the reports before a time, up to the first on which the engine acts, and at most one
// of each host and leaf since the last release.
func (x *reports) holdUntil(limit time.Duration) {
	acts := x.b.cfg.ActsOnReport
	if acts == nil {
		return
	}
	for at := x.due(); at < limit && len(x.held)+len(x.leaves) < x.agenda.Len(); at = x.due() {
		r, _ := x.agenda.Next()
		if !r.Leaf && acts(topo.HostID(r.ID)) {
			return
		}
		if x.b.clock.Until(at) > 0 {
			x.b.clock = simtime.Moment{Whole: at}
		}
		if r.Leaf {
			x.leaves = x.report(x.leaves, at)
		} else {
			x.held = x.report(x.held, at)
		}
	}
}

// release returns the reports that were held: those of hosts first, which the log writes in rows.
func (x *reports) release() []engine.Event {
	held := append(x.held, x.leaves...)
	x.held, x.leaves = nil, nil
	return held
}

// flows returns the flows to hosts whose reports are due at the current time.
func (x *reports) flows() (to []*fluid) {
	reports := x.reporting()
	for _, f := range x.b.flows {
		if reports[f.dst] {
			to = append(to, f)
		}
	}
	return to
}

// reporting returns the hosts whose reports are due at the current time.
func (x *reports) reporting() map[topo.HostID]bool {
	out := map[topo.HostID]bool{}
	next := *x.agenda
	for x.b.clock.Until(x.timeOf(&next)) <= 0 {
		if r, _ := next.Next(); !r.Leaf {
			out[topo.HostID(r.ID)] = true
		}
		next.Pop()
	}
	return out
}

// arising appends the reports that are due at the current time, after the progress of the attempts on their hosts.
func (x *reports) arising(evs []engine.Event) []engine.Event {
	if x.b.clock.Until(x.due()) > 0 {
		return evs
	}
	if x.b.cfg.Needs.Has(policies.TaskProgress) {
		evs = x.b.tasks.progress(evs, x.reporting())
	}
	for x.b.clock.Until(x.due()) <= 0 {
		evs = x.report(evs, 0)
	}
	return evs
}

// report makes the next report, which is due now: the bytes that crossed the links of a host, or the ports of a leaf
// towards the spines. It appends it to evs, arrived at a time (engine.Heartbeat.At), unless it is lost or delayed.
func (x *reports) report(evs []engine.Event, at time.Duration) []engine.Event {
	b, f := x.b, x.b.fabric
	r, _ := x.agenda.Next()
	x.agenda.Pop()
	if r.Leaf {
		out := engine.RackReport{Rack: topo.RackID(r.ID), At: at}
		for s := range f.Spines() {
			out.Rx, out.Tx = out.Rx+b.count(f.LeafDown(out.Rack, s)), out.Tx+b.count(f.LeafUp(out.Rack, s))
		}
		return append(evs, out)
	}
	h := topo.HostID(r.ID)
	if b.faults.crashed[h] || x.lost[h] {
		return evs
	}
	hb := engine.Heartbeat{Host: h, Rx: b.count(f.HostDown(h)), Tx: b.count(f.HostUp(h)), At: at}
	if b.cfg.DiskRate > 0 {
		if len(x.disks) == 0 {
			x.disks = make([]engine.DiskReport, x.agenda.Len())
		}
		hb.Disk, x.disks = &x.disks[0], x.disks[1:]
		*hb.Disk = x.disk(h)
	}
	if x.by[h] > 0 || x.expected[h] > b.clock.Round() {
		x.send(hb, x.by[h])
		return evs
	}
	return append(evs, hb)
}

func (x *reports) disk(h topo.HostID) engine.DiskReport {
	d := engine.DiskReport{Used: x.stored[h]}
	if len(x.writing[h]) > 0 {
		d.Writing = slices.Clone(x.writing[h])
	}
	for _, id := range x.begun[h] {
		if !slices.Contains(x.writing[h], id) {
			d.Ended = append(d.Ended, id)
		}
	}
	x.begun[h] = x.begun[h][:0]
	return d
}

// shared notes the loads of links after a computation of rates, if a policy needs them.
func (x *reports) shared() {
	if !x.b.cfg.Needs.Has(policies.OracleLoad) {
		return
	}
	x.rates = make([]units.Rate, len(x.b.fabric.Links()))
	for l := range x.rates {
		x.rates[l] = units.Rate(math.Round(x.b.shares.loadOf(int32(l))))
	}
}

// loads inserts the loads of links up to the current time before the other events, if they have changed.
// Fluids that end now still count.
func (x *reports) loads(evs []engine.Event) []engine.Event {
	rates := x.rates
	x.rates = nil
	if rates == nil || slices.Equal(rates, x.reported) {
		return evs
	}
	x.reported = rates
	return slices.Insert(evs, 0, engine.Event(engine.LinkLoads{Rates: rates}))
}
