package fluid

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// reports produces the reports of hosts and leaves to the master: the bytes that their
// links have carried and that their disks store. A disk reserves a block's full size when
// the block begins, as in runs on packets, and frees it when the block is abandoned.
type reports struct {
	b      *Backend
	stored []units.Bytes // by HostID
	// writing lists the replicas being written at each host. begun lists those that
	// began since the host's last report that was not lost.
	writing, begun [][]workloads.BlockID

	// Faults lose or delay the reports of hosts.
	lost  []bool          // whether reports are lost, by HostID
	by    []time.Duration // delay of reports, by HostID
	due   []time.Duration // arrival time of the newest delayed report, by HostID
	wiped []time.Duration // time of the newest loss of the disks, by HostID; -1 for none
	late  []late          // delayed reports by arrival; those of a host in order of creation

	fresh    bool         // rates have been computed since loads were last reported
	reported []units.Rate // loads last reported, by LinkID
}

// late is a delayed report that has not arrived.
type late struct {
	at   time.Duration
	beat engine.Heartbeat
}

func (x *reports) init(b *Backend) {
	n := b.fabric.Hosts()
	x.b, x.stored, x.lost, x.by, x.due = b, make([]units.Bytes, n), make([]bool, n), make([]time.Duration, n), make([]time.Duration, n)
	x.wiped = slices.Repeat([]time.Duration{-1}, n)
	x.writing, x.begun = make([][]workloads.BlockID, n), make([][]workloads.BlockID, n)
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
	x.due[h] = 0
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
	hb.Made = x.b.clock.Round()
	at := max(hb.Made+by, x.due[hb.Host])
	x.due[hb.Host] = at
	i, _ := slices.BinarySearchFunc(x.late, at, func(l late, at time.Duration) int {
		return cmp.Or(cmp.Compare(l.at, at), -1)
	})
	x.late = slices.Insert(x.late, i, late{at, hb})
}

// heartbeats returns every host's report, with the bytes that crossed its two links,
// and then the reports of the leaves' ports towards the spines.
func (x *reports) heartbeats() []engine.Event {
	b, f := x.b, x.b.fabric
	now := b.clock.Round()
	evs := append(make([]engine.Event, 0, 1+f.Hosts()+f.Racks()), b.tasks.progress()...)
	count := func(links ...topo.LinkID) (n units.Bytes) {
		for _, l := range links {
			n += b.count(l)
		}
		return n
	}
	var disks []engine.DiskReport // of all hosts
	if b.cfg.DiskRate > 0 {
		disks = make([]engine.DiskReport, f.Hosts())
	}
	for h := range topo.HostID(f.Hosts()) {
		if b.faults.crashed[h] || x.lost[h] {
			continue
		}
		hb := engine.Heartbeat{Host: h, Rx: count(f.HostDown(h)), Tx: count(f.HostUp(h))}
		if disks != nil {
			disks[h] = x.disk(h)
			hb.Disk = &disks[h]
		}
		if x.by[h] > 0 || x.due[h] > now {
			x.send(hb, x.by[h])
			continue
		}
		evs = append(evs, hb)
	}
	if f.Racks() == 1 || f.Spines() == 0 {
		return evs
	}
	down, up := make([]topo.LinkID, f.Spines()), make([]topo.LinkID, f.Spines())
	for r := range topo.RackID(f.Racks()) {
		for s := range f.Spines() {
			down[s], up[s] = f.LeafDown(r, s), f.LeafUp(r, s)
		}
		evs = append(evs, engine.RackReport{Rack: r, Rx: count(down...), Tx: count(up...)})
	}
	return evs
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

// loads inserts the loads of links up to the current time before the other events, if
// they have changed and a policy needs them.
func (x *reports) loads(evs []engine.Event) []engine.Event {
	if !x.fresh || !x.b.cfg.Needs.OracleLoad {
		return evs
	}
	x.fresh = false
	rates := make([]units.Rate, len(x.b.fabric.Links()))
	for l := range rates {
		rates[l] = units.Rate(math.Round(x.b.load[l]))
	}
	if slices.Equal(rates, x.reported) {
		return evs
	}
	x.reported = rates
	return slices.Insert(evs, 0, engine.Event(engine.LinkLoads{Rates: rates}))
}
