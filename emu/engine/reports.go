package engine

import (
	"fmt"
	"slices"
	"time"

	"testbed/emu/engine/tracker"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// counters are what the reports of a host or a leaf have shown.
type counters struct {
	lastReport, nextReport time.Duration
	made                   time.Duration // time of the newest report
	rxSeen, txSeen         units.Bytes   // its counters
	rx, tx                 float64       // moving averages, bit/s
}

// host is the state of a host as known from reports and decisions.
type host struct {
	counters
	// used and writing are the values of the newest report plus the allocations that no
	// report includes yet.
	used      units.Bytes
	writing   int
	allocated []allocation
	// load is the number of replicas in progress in the newest report, without allocations
	// since, as HDFS counts xceivers; -1 if reports do not include it.
	load int
	lost bool
	full bool // it had no room for a block, and no space has been released since
}

// allocation is a replica assigned to a host. It is kept until its block has ended and a
// report that includes it in the disk use has arrived. HDFS uses a counter of scheduled
// blocks instead, which expires after ten minutes and counts bytes that are already on the
// disk twice. Tracking replicas by ID avoids both.
type allocation struct {
	block    workloads.BlockID
	size     units.Bytes
	reported bool // the newest report's disk use includes it
	over     bool // a report shows that it is no longer being written
	durable  bool // its block has been durable since the time since
	since    time.Duration
}

// Needs returns the declared knowledge of all policies.
func (e *Engine) Needs() policies.Facts {
	needs := e.cfg.Coflow.Needs()
	if e.cfg.Fork != nil {
		needs |= e.cfg.Fork.Needs
	}
	if e.cfg.Placement != nil {
		needs |= e.cfg.Placement.Needs()
	}
	if e.cfg.Tasks != nil {
		needs |= e.cfg.Tasks.Scheduler.Needs()
	}
	return needs
}

// heartbeat updates the moving averages: v ← α·sample + (1−α)·v, starting from 0 (Sinbad,
// SIGCOMM 2013). A sample covers the time between two values of Made, independently of when
// the reports arrived.
func (e *Engine) heartbeat(hb Heartbeat) error {
	if !e.known(hb.Host) {
		return fmt.Errorf("heartbeat of unknown host %d", hb.Host)
	}
	if hb.Made < 0 || hb.At < 0 || hb.Disk != nil && hb.Disk.Used < 0 {
		return fmt.Errorf("heartbeat of %s: made at %v, arrived at %v, disk use %d: must be 0 or more", e.cfg.Fabric.HostName(hb.Host), hb.Made, hb.At, hb.Disk.use())
	}
	defer e.hostChanged(hb.Host)
	at, made := e.times(hb.At, hb.Made)
	if at == e.now { // a report that was held back causes no commands
		e.send(checkStuck{})
		if e.tasks.tracker != nil {
			e.tasks.note(tracker.Heartbeat{Host: hb.Host, Progress: e.tasks.progressOf(hb.Host)})
		}
	}
	h := &e.hosts[hb.Host]
	e.count(&h.counters, at, made, hb.Rx, hb.Tx)
	if hb.Disk == nil {
		// Only decisions are known: durable blocks are stored.
		h.allocated = slices.DeleteFunc(h.allocated, func(a allocation) bool { return a.durable })
		return nil
	}
	h.stores(made, hb.Disk)
	return nil
}

// times returns the times at which a report arrived and at which it was made. Backends read their clock once
// for several events, possibly before a report was made.
func (e *Engine) times(at, made time.Duration) (time.Duration, time.Duration) {
	if at == 0 || at > e.now {
		at = e.now
	}
	if made == 0 || made > at {
		made = at
	}
	return at, made
}

// ActsOnReport reports whether the next report of a host can cause commands. A backend may pass other reports
// to Step together with later events, before them and with their time (Heartbeat.At).
func (e *Engine) ActsOnReport(h topo.HostID) bool {
	return e.down > 0 || e.coflows.cuts || e.tasks.tracker != nil && e.tasks.tracker.ActsOnHeartbeat(h)
}

func (d *DiskReport) use() units.Bytes {
	if d == nil {
		return 0
	}
	return d.Used
}

// count adds a report, by the times that times returns.
func (e *Engine) count(c *counters, at, made time.Duration, rx, tx units.Bytes) {
	e.smooth(made-c.made, &c.rx, rx-c.rxSeen)
	e.smooth(made-c.made, &c.tx, tx-c.txSeen)
	c.made, c.rxSeen, c.txSeen = made, rx, tx
	c.lastReport, c.nextReport = at, at+e.cfg.Heartbeat
}

// smooth adds a sample, bytes counted over a time, to a moving average. The conversions
// prevent the compiler from fusing products and sums, so averages are the same on every
// machine.
func (e *Engine) smooth(over time.Duration, average *float64, counted units.Bytes) {
	if over > 0 {
		*average = float64(e.cfg.Alpha*float64(units.RateOf(counted, over))) + float64((1-e.cfg.Alpha)**average)
	}
}

// stores applies the disk use of a report made at the given time.
func (h *host) stores(made time.Duration, d *DiskReport) {
	h.used, h.writing, h.load = d.Used, 0, len(d.Writing)
	h.allocated = slices.DeleteFunc(h.allocated, func(a allocation) bool {
		// A report made after the block was durable includes it, even if it does not list it.
		return a.durable && (made > a.since || slices.Contains(d.Writing, a.block) || slices.Contains(d.Ended, a.block))
	})
	for i := range h.allocated {
		a := &h.allocated[i]
		writing := slices.Contains(d.Writing, a.block)
		a.reported = a.reported || writing || slices.Contains(d.Ended, a.block)
		a.over = a.reported && !writing
		if !a.reported {
			h.used += a.size
		}
		if !a.over && !a.durable {
			h.writing++
		}
	}
}

// allocate assigns a replica to a host.
func (h *host) allocate(b workloads.Block) {
	h.allocated = append(h.allocated, allocation{block: b.ID, size: b.Size})
	h.used += b.Size
	h.writing++
}

// place returns the index of a block in allocated, -1 if it is absent.
func (h *host) place(id workloads.BlockID) int {
	return slices.IndexFunc(h.allocated, func(a allocation) bool { return a.block == id })
}

// stored records that a replica is complete and its block durable.
func (h *host) stored(id workloads.BlockID, now time.Duration) {
	i := h.place(id)
	if i < 0 {
		return
	}
	a := &h.allocated[i]
	if !a.over {
		h.writing--
	}
	if a.reported {
		h.allocated = slices.Delete(h.allocated, i, i+1)
		return
	}
	a.durable, a.since = true, now
}

// dropped removes a replica that will not be complete, or is deleted. Its part in a report stays until the
// next report, because the host may not know yet.
func (h *host) dropped(id workloads.BlockID) {
	i := h.place(id)
	if i < 0 {
		return
	}
	a := h.allocated[i]
	h.full = false
	if !a.over && !a.durable {
		h.writing--
	}
	if !a.reported {
		h.used -= a.size
	}
	h.allocated = slices.Delete(h.allocated, i, i+1)
}

// wiped records that a host's disk is empty and has no replica in progress.
func (h *host) wiped() {
	h.used, h.writing, h.allocated, h.full, h.load = 0, 0, nil, false, min(h.load, 0)
}

// rackReport is heartbeat for a leaf.
func (e *Engine) rackReport(r RackReport) error {
	if r.Rack < 0 || int(r.Rack) >= len(e.racks) {
		return fmt.Errorf("report of unknown rack %d", r.Rack)
	}
	if r.Made < 0 || r.At < 0 {
		return fmt.Errorf("report of %s: made at %v, arrived at %v: must be 0 or more", topo.LeafName(r.Rack), r.Made, r.At)
	}
	at, made := e.times(r.At, r.Made)
	e.count(&e.racks[r.Rack], at, made, r.Rx, r.Tx)
	e.clusterChanged()
	return nil
}

func (e *Engine) linkLoads(l LinkLoads) error {
	if len(l.Rates) != len(e.cfg.Capacity) {
		return fmt.Errorf("loads of %d links: the fabric has %d", len(l.Rates), len(e.cfg.Capacity))
	}
	if i := slices.IndexFunc(l.Rates, func(r units.Rate) bool { return r < 0 }); i >= 0 {
		return fmt.Errorf("load %d of %s: must be 0 or more", l.Rates[i], e.cfg.Fabric.LinkName(topo.LinkID(i)))
	}
	e.load = l.Rates // shared with the event, which is not modified
	e.clusterChanged()
	return nil
}
