package fluid

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// reports is what hosts and leaves tell the master: what their links have carried
// and their disks hold. A disk sets a block's whole size aside when the block
// begins, as those on packets do, and gives it back when the block is given up.
type reports struct {
	b      *Backend
	stored []units.Bytes // by HostID
	// writing are the replicas being written at each host, and begun those that
	// began since its last report that was not lost.
	writing, begun [][]workloads.BlockID

	// Faults lose the reports of hosts, or make them late.
	lost []bool          // by HostID
	by   []time.Duration // by HostID
	due  []time.Duration // when the newest report that is late comes in, by HostID
	late []late          // in order of arrival, of one host in the order they were made

	fresh bool         // rates have been computed since loads were told
	told  []units.Rate // by LinkID
}

// late is a report on its way.
type late struct {
	at   time.Duration
	beat engine.Heartbeat
}

func (x *reports) init(b *Backend) {
	n := b.fabric.Hosts()
	x.b, x.stored, x.lost, x.by, x.due = b, make([]units.Bytes, n), make([]bool, n), make([]time.Duration, n), make([]time.Duration, n)
	x.writing, x.begun = make([][]workloads.BlockID, n), make([][]workloads.BlockID, n)
}

// begin sets aside what a block takes of the disks of its hosts.
func (x *reports) begin(f *fluid) {
	id := workloads.BlockID(f.id)
	for _, h := range f.pipe.targets {
		x.stored[h] += f.size
		x.writing[h] = append(x.writing[h], id)
		x.begun[h] = append(x.begun[h], id)
	}
}

// end takes down that a block is on the disks of all its hosts.
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

// drop gives back what replicas of an unfinished block take at some hosts.
func (x *reports) drop(f *fluid, hosts ...topo.HostID) {
	for _, h := range hosts {
		if x.written(f, h) {
			x.stored[h] -= f.size
		}
	}
}

// crash loses the reports of a host that are on their way.
func (x *reports) crash(h topo.HostID) {
	x.late = slices.DeleteFunc(x.late, func(l late) bool { return l.beat.Host == h })
	x.due[h] = 0
}

// wipe empties a disk but for the blocks that have begun since it crashed.
func (x *reports) wipe(h topo.HostID) {
	x.stored[h] = 0
	for _, f := range x.b.chains {
		if slices.Contains(x.writing[h], workloads.BlockID(f.id)) {
			x.stored[h] += f.size
		}
	}
}

// next is when the next late report comes in.
func (x *reports) next() time.Duration {
	if len(x.late) == 0 {
		return engine.NextNever
	}
	return x.late[0].at
}

// arrived are the late reports that have come in by now.
func (x *reports) arrived() (evs []engine.Event) {
	n := 0
	for ; n < len(x.late) && x.b.clock.Until(x.late[n].at) <= 0; n++ {
		evs = append(evs, x.late[n].beat)
	}
	x.late = slices.Delete(x.late, 0, n)
	return evs
}

// send puts a report on its way, by which no report of a host overtakes another.
func (x *reports) send(hb engine.Heartbeat, by time.Duration) {
	hb.Made = x.b.clock.Round()
	at := max(hb.Made+by, x.due[hb.Host])
	x.due[hb.Host] = at
	i, _ := slices.BinarySearchFunc(x.late, at, func(l late, at time.Duration) int {
		return cmp.Or(cmp.Compare(l.at, at), -1)
	})
	x.late = slices.Insert(x.late, i, late{at, hb})
}

// heartbeats reports every host's counters, what crossed its two links, and then
// those of the leaves' ports toward the spines.
func (x *reports) heartbeats() []engine.Event {
	b, f := x.b, x.b.fabric
	now := b.clock.Round()
	evs := make([]engine.Event, 0, f.Hosts()+f.Racks())
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

// loads puts what links have carried up to the present moment ahead of what
// happens there, if that has changed and a policy needs it.
func (x *reports) loads(evs []engine.Event) []engine.Event {
	if !x.fresh || x.b.cfg.Needs&policies.TrueLoad == 0 {
		return evs
	}
	x.fresh = false
	rates := make([]units.Rate, len(x.b.fabric.Links()))
	for l := range rates {
		rates[l] = units.Rate(math.Round(x.b.load[l]))
	}
	if slices.Equal(rates, x.told) {
		return evs
	}
	x.told = rates
	return slices.Insert(evs, 0, engine.Event(engine.LinkLoads{Rates: rates}))
}
