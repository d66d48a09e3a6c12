package engine

import (
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// host is what reports and decisions tell of a host.
type host struct {
	lastReport, nextReport time.Duration
	made                   time.Duration // the newest report
	rxSeen, txSeen         units.Bytes   // counters then
	rx, tx                 float64       // moving averages, bit/s
	// used and writing are what the newest report has and, on top, what has been
	// allocated and is in no report yet.
	used      units.Bytes
	writing   int
	allocated []allocation
	// load is the number of replicas being written that the newest report has, without
	// what was allocated since, as HDFS counts xceivers; -1 where reports do not tell.
	load int
	lost bool
	full bool // it had no room for a block, and nothing has become free since
}

// allocation is a replica that a host was given: until its block has ended and a
// report that has it in its disk use has come in, whichever is later. HDFS has this
// as a counter of scheduled blocks, which it lets time out after ten minutes, and
// counts the part twice that is on the disk already; by name neither is needed.
type allocation struct {
	block    workloads.BlockID
	size     units.Bytes
	reported bool // the newest report's disk use includes it
	over     bool // a report told that it is not being written any more
	durable  bool // since then
	since    time.Duration
}

// rack is what the reports of a leaf told.
type rack struct {
	made           time.Duration
	rxSeen, txSeen units.Bytes
	rx, tx         float64 // moving averages, bit/s
}

// Needs is what the policies declare they need.
func (e *Engine) Needs() policies.Knowledge {
	needs := e.control.needs
	if e.cfg.Placement != nil {
		needs |= e.cfg.Placement.Needs()
	}
	return needs
}

// heartbeat updates the moving averages: v ← α·sample + (1−α)·v, starting from
// 0 (Sinbad, SIGCOMM 2013). A sample is over the time between the makings of two
// reports, however late those came in.
func (e *Engine) heartbeat(hb Heartbeat) error {
	if !e.known(hb.Host) {
		return fmt.Errorf("heartbeat of unknown host %d", hb.Host)
	}
	if hb.Made < 0 || hb.Disk != nil && hb.Disk.Used < 0 {
		return fmt.Errorf("heartbeat of %s: made at %v, disk use %d: want none below 0", e.cfg.Fabric.HostName(hb.Host), hb.Made, hb.Disk.use())
	}
	h := &e.hosts[hb.Host]
	made := e.now
	if hb.Made > 0 {
		// Backends read their clock once for several events, maybe before this one.
		made = min(hb.Made, e.now)
	}
	e.smooth(made-h.made, &h.rx, hb.Rx-h.rxSeen)
	e.smooth(made-h.made, &h.tx, hb.Tx-h.txSeen)
	h.made, h.rxSeen, h.txSeen = made, hb.Rx, hb.Tx
	h.lastReport, h.nextReport = e.now, e.now+e.cfg.Heartbeat
	if hb.Disk == nil {
		// All there is to go by is what was decided: what is durable is stored.
		h.allocated = slices.DeleteFunc(h.allocated, func(a allocation) bool { return a.durable })
		return nil
	}
	h.stores(made, hb.Disk)
	return nil
}

func (d *DiskReport) use() units.Bytes {
	if d == nil {
		return 0
	}
	return d.Used
}

// smooth takes a sample of what was counted in some time into a moving average.
// The conversions keep the compiler from fusing the products and sums, so that
// averages are the same on every machine.
func (e *Engine) smooth(over time.Duration, average *float64, counted units.Bytes) {
	if over > 0 {
		*average = float64(e.cfg.Alpha*float64(units.RateOf(counted, over))) + float64((1-e.cfg.Alpha)**average)
	}
}

// stores takes over a report's disk use, made at a time.
func (h *host) stores(made time.Duration, d *DiskReport) {
	h.used, h.writing, h.load = d.Used, 0, len(d.Writing)
	h.allocated = slices.DeleteFunc(h.allocated, func(a allocation) bool {
		// Made after the block was durable, the report is right, whatever it lists.
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

// allocate gives a host a replica.
func (h *host) allocate(b workloads.Block) {
	h.allocated = append(h.allocated, allocation{block: b.ID, size: b.Size})
	h.used += b.Size
	h.writing++
}

// place is where in allocated a block is, -1 where it is not.
func (h *host) place(id workloads.BlockID) int {
	return slices.IndexFunc(h.allocated, func(a allocation) bool { return a.block == id })
}

// stored takes down that a replica is whole and its block durable.
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

// dropped takes a replica back that will not be whole. What a report has of it
// stays until the next: the host may not have heard yet.
func (h *host) dropped(id workloads.BlockID) {
	i := h.place(id)
	if i < 0 {
		return
	}
	a := h.allocated[i]
	h.full = false
	if !a.over {
		h.writing--
	}
	if !a.reported {
		h.used -= a.size
	}
	h.allocated = slices.Delete(h.allocated, i, i+1)
}

// wiped takes down that a host's disk is empty. Nothing is being written to it.
func (h *host) wiped() {
	h.used, h.writing, h.allocated, h.full, h.load = 0, 0, nil, false, min(h.load, 0)
}

// rackReport is heartbeat for a leaf.
func (e *Engine) rackReport(r RackReport) error {
	if r.Rack < 0 || int(r.Rack) >= len(e.racks) {
		return fmt.Errorf("report of unknown rack %d", r.Rack)
	}
	if r.Made < 0 {
		return fmt.Errorf("report of %s: made at %v: want none below 0", topo.LeafName(r.Rack), r.Made)
	}
	x := &e.racks[r.Rack]
	made := e.now
	if r.Made > 0 {
		made = min(r.Made, e.now)
	}
	e.smooth(made-x.made, &x.rx, r.Rx-x.rxSeen)
	e.smooth(made-x.made, &x.tx, r.Tx-x.txSeen)
	x.made, x.rxSeen, x.txSeen = made, r.Rx, r.Tx
	return nil
}

func (e *Engine) linkLoads(l LinkLoads) error {
	if len(l.Rates) != len(e.cfg.Capacity) {
		return fmt.Errorf("loads of %d links: the fabric has %d", len(l.Rates), len(e.cfg.Capacity))
	}
	if i := slices.IndexFunc(l.Rates, func(r units.Rate) bool { return r < 0 }); i >= 0 {
		return fmt.Errorf("load %d of %s: want 0 or more", l.Rates[i], e.cfg.Fabric.LinkName(topo.LinkID(i)))
	}
	e.load = l.Rates // of the event, which nobody changes
	return nil
}

// showReports fills in what a policy with the given needs sees of reports.
func (e *Engine) showReports(v *policies.View, needs policies.Knowledge) {
	for _, h := range e.hosts {
		s := policies.HostState{LastReport: h.lastReport, NextReport: h.nextReport, Disk: e.cfg.DiskSize, Lost: h.lost}
		if needs&policies.LinkLoad != 0 {
			s.Rx, s.Tx = units.Rate(h.rx), units.Rate(h.tx)
		}
		if needs&policies.DiskUse != 0 {
			if s.Writing, s.Used = h.load, h.used; h.load < 0 {
				s.Writing = h.writing
			}
			if h.full { // whatever the account says, it has room for no more
				s.Used = max(h.used, s.Disk, 1)
				s.Disk = s.Used
			}
		}
		v.Hosts = append(v.Hosts, s)
	}
	for _, r := range e.racks {
		var s policies.RackState
		if needs&policies.LinkLoad != 0 {
			s.Rx, s.Tx = units.Rate(r.rx), units.Rate(r.tx)
		}
		v.Racks = append(v.Racks, s)
	}
	if needs&policies.TrueLoad != 0 {
		v.Load = e.load
	}
}
