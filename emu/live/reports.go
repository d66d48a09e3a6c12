package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// reports carries the reports of hosts and leaves to the master, and drops those that faults prevent.
// They cross no link of the testbed, like those of a management network.
type reports struct {
	b     *Backend
	racks []hostCounters        // before the first packet; empty if no policy needs them
	begun [][]workloads.BlockID // at each host, since its last report that was not lost; only run touches it
	kick  chan struct{}

	mu   sync.Mutex
	lost []bool          // by HostID
	by   []time.Duration // by HostID
	late []late          // in order of arrival, of one host in the order they were made

	looks int // at all links; only looking touches both
	took  time.Duration
}

// late is a report on its way.
type late struct {
	at   time.Duration
	beat engine.Heartbeat
}

// newReports reads the counters of leaves where a policy needs the load of links.
func newReports(b *Backend) (*reports, error) {
	n := b.cfg.Fabric.Hosts()
	x := &reports{b: b, begun: make([][]workloads.BlockID, n), kick: make(chan struct{}, 1), lost: make([]bool, n), by: make([]time.Duration, n)}
	if !b.cfg.Needs.Has(policies.LinkLoad) || b.cfg.Fabric.Racks() == 1 || b.cfg.Fabric.Spines() == 0 {
		return x, nil
	}
	for r := range topo.RackID(b.cfg.Fabric.Racks()) {
		c, _, err := b.sampler.leaf(r)
		if err != nil {
			return nil, err
		}
		x.racks = append(x.racks, c)
	}
	return x, nil
}

// set is fault.SetReports.
func (x *reports) set(a fault.SetReports) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lost[a.Host], x.by[a.Host] = a.Lost, a.By
}

// crash loses the reports of a host that are on their way.
func (x *reports) crash(h topo.HostID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.late = slices.DeleteFunc(x.late, func(l late) bool { return l.beat.Host == h })
}

// run makes the reports of hosts and leaves when they are due, a few at a time (Settings.Beats), and hands over
// those that come in at once. It returns the cause when ctx ends.
func (x *reports) run(ctx context.Context) error {
	b := x.b
	agenda := engine.NewAgenda(b.cfg.Fabric, b.cfg.Heartbeat, b.cfg.Phases, len(x.racks) > 0)
	most := max(1, b.cfg.Settings.Beats)
	gap := min(b.cfg.Settings.BeatGap, b.cfg.Heartbeat/4/time.Duration((agenda.Len()+most-1)/most))
	for {
		now := time.Since(b.zero)
		agenda.Skip(now)
		var due []engine.Reporter
		for r, at := agenda.Next(); at <= now && len(due) < most; r, at = agenda.Next() {
			due = append(due, r)
			agenda.Pop()
		}
		if err := x.make(due); err != nil {
			return err
		}
		_, next := agenda.Next()
		if err := kernel.Sleep(ctx, max(next-time.Since(b.zero), gap)); err != nil {
			return err
		}
	}
}

// make makes reports and hands over those that come in at once, after the progress of the attempts on their hosts.
func (x *reports) make(due []engine.Reporter) error {
	b := x.b
	var hosts []topo.HostID
	var out []engine.Event
	for _, r := range due {
		if r.Leaf {
			c, at, err := b.sampler.leaf(topo.RackID(r.ID))
			if err != nil {
				return err
			}
			zero := x.racks[r.ID]
			out = append(out, engine.RackReport{Rack: topo.RackID(r.ID), Rx: c.rx - zero.rx, Tx: c.tx - zero.tx, Made: at.Sub(b.zero)})
			continue
		}
		hosts = append(hosts, topo.HostID(r.ID))
		hb, ok, err := x.beat(topo.HostID(r.ID))
		if err != nil {
			return err
		}
		if ok {
			out = append(out, hb)
		}
	}
	if out = append(b.computed(hosts), out...); len(out) > 0 {
		b.push(out...)
	}
	return nil
}

// beat makes the report of a host. ok is whether it comes in at once.
func (x *reports) beat(h topo.HostID) (hb engine.Heartbeat, ok bool, err error) {
	b := x.b
	c, at, err := b.sampler.host(h)
	if err != nil {
		return hb, false, err
	}
	hb = engine.Heartbeat{Host: h, Rx: c.rx - b.counted[h].rx, Tx: c.tx - b.counted[h].tx, Made: at.Sub(b.zero)}
	if len(b.volumes) > 0 {
		u := b.volumes[h].Use()
		x.begun[h] = append(x.begun[h], u.Begun...)
		hb.Disk = &engine.DiskReport{Used: u.Used, Writing: u.Writing}
		for _, id := range x.begun[h] {
			if !slices.Contains(u.Writing, id) {
				hb.Disk.Ended = append(hb.Disk.Ended, id)
			}
		}
	}
	if b.faults.isCrashed(h) || x.isLost(h) {
		return hb, false, nil
	}
	x.begun[h] = x.begun[h][:0]
	return hb, !x.hold(hb), nil
}

func (x *reports) isLost(h topo.HostID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost[h]
}

// hold keeps a report that is late, or would overtake one that is.
func (x *reports) hold(hb engine.Heartbeat) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, held := hb.Made+x.by[hb.Host], x.by[hb.Host] > 0
	for _, l := range x.late {
		if l.beat.Host == hb.Host {
			at, held = max(at, l.at), true
		}
	}
	if !held {
		return false
	}
	i := slices.IndexFunc(x.late, func(l late) bool { return l.at > at })
	if i < 0 {
		i = len(x.late)
	}
	x.late = slices.Insert(x.late, i, late{at, hb})
	if i == 0 {
		select {
		case x.kick <- struct{}{}:
		default:
		}
	}
	return true
}

// deliver hands over late reports when they are due, until the run ends.
func (x *reports) deliver(ctx context.Context) {
	for {
		wait := time.Hour
		x.mu.Lock()
		now := time.Since(x.b.zero)
		n := 0
		var due []engine.Event
		for ; n < len(x.late) && x.late[n].at <= now; n++ {
			due = append(due, x.late[n].beat)
		}
		x.late = slices.Delete(x.late, 0, n)
		if len(x.late) > 0 {
			wait = min(wait, x.late[0].at-now)
		}
		if len(due) > 0 {
			x.b.push(due...) // before anybody can hand over what was made later
		}
		x.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-x.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look returns the bytes that all links carried since the previous call.
func (x *reports) look() func() error {
	var was []sent
	return func() error {
		begin := time.Now()
		is, err := x.b.sampler.all()
		if err != nil {
			return err
		}
		x.looks, x.took = x.looks+1, x.took+time.Since(begin)
		if was != nil {
			x.b.push(engine.LinkLoads{Rates: loads(x.b.cfg.Fabric, was, is)})
		}
		was = is
		return nil
	}
}

// loads is what links carried between two readings of each, in payload.
func loads(f *topo.Fabric, was, is []sent) []units.Rate {
	rates := make([]units.Rate, len(is))
	for l := range rates {
		// A counter stops while its device is gone, and restarts at zero after it.
		rates[l] = plan.Payload(units.RateOf(is[l].bytes-was[l].bytes, max(is[l].at.Sub(was[l].at), time.Microsecond)), f.Shape().MTU)
	}
	return rates
}

// cost says what the looks at all links have taken; "" where there were none. The
// run must be over.
func (x *reports) cost() string {
	if x.looks == 0 {
		return ""
	}
	each := x.took / time.Duration(x.looks)
	return fmt.Sprintf("a policy was shown the true loads: all links were read every %v, %d times, in %v each (%.1f%% of one processor's time at most)",
		x.b.cfg.Settings.Look, x.looks, each.Round(time.Microsecond), 100*float64(each)/float64(x.b.cfg.Settings.Look))
}
