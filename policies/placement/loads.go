package placement

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// Estimate says how the load of links is estimated from what hosts report.
type Estimate struct {
	// Grace is how late a report may be before the link is taken for full, as a
	// part of the time between two reports.
	Grace float64
	// LeafCounters takes the load of a rack from the counters of its leaf
	// (View.Racks). Without it that is the sum over its hosts, as in Sinbad's paper:
	// it counts traffic inside the rack too, so it errs on the careful side.
	LeafCounters bool
}

// DefaultEstimate is Sinbad's. Its paper says nothing of Grace.
func DefaultEstimate() Estimate { return Estimate{Grace: 0.5} }

func (e Estimate) check() error {
	if !(e.Grace >= 0 && e.Grace <= MaxGrace) {
		return fmt.Errorf("grace %v: want 0 to %v, as a part of the time between two reports", e.Grace, float64(MaxGrace))
	}
	return nil
}

// MaxGrace is the largest Estimate.Grace.
const MaxGrace = 1000

// loads is the traffic toward each host and each rack that a decision must
// reckon with.
type loads struct {
	f          *topo.Fabric
	capacity   []units.Rate // View.Capacity
	host, rack []units.Rate // the paper's vCur, at most the capacity
	rackCap    []units.Rate
	most       units.Rate // of an expected capacity
}

func newLoads(v *policies.View) *loads {
	hosts, racks := v.Fabric.Hosts(), v.Fabric.Racks()
	rates := make([]units.Rate, hosts+2*racks)
	l := &loads{f: v.Fabric, capacity: v.Capacity, host: rates[:hosts], rack: rates[hosts : hosts+racks], rackCap: rates[hosts+racks:], most: units.MaxRate}
	for r := range l.rackCap {
		for s := range l.f.Spines() {
			l.rackCap[r] += v.Capacity[l.f.LeafDown(topo.RackID(r), s)]
		}
	}
	return l
}

func (l *loads) hostCap(h topo.HostID) units.Rate { return l.capacity[l.f.HostDown(h)] }

// ofHost and ofRack are the expected capacity of the link toward a host, or of
// all links toward a rack.
func (l *loads) ofHost(h topo.HostID) units.Rate { return min(l.hostCap(h)-l.host[h], l.most) }

func (l *loads) ofRack(r topo.RackID) units.Rate { return min(l.rackCap[r]-l.rack[r], l.most) }

// estimate computes the loads from the smoothed measurements, with the whole
// capacity where a report is overdue. A host that is lost receives nothing.
func (e Estimate) estimate(v *policies.View) (*loads, error) {
	if e.LeafCounters && len(v.Racks) != v.Fabric.Racks() {
		return nil, fmt.Errorf("the counters of %d racks are known of %d: want all of them, or loads by sums over hosts", len(v.Racks), v.Fabric.Racks())
	}
	l := newLoads(v)
	heard := make([]bool, len(l.rack)) // of some host of the rack, in time
	for i := range l.host {
		s := &v.Hosts[i]
		if s.Lost {
			continue
		}
		h := topo.HostID(i)
		r := l.f.RackOf(h)
		load := l.hostCap(h)
		if !e.overdue(v.Now, s) {
			heard[r] = true
			load = min(s.Rx, load)
		}
		l.host[i] = load
		l.rack[r] = min(l.rack[r]+load, l.rackCap[r])
	}
	if e.LeafCounters {
		for r := range l.rack {
			if l.rack[r] = l.rackCap[r]; heard[r] {
				l.rack[r] = min(v.Racks[r].Rx, l.rackCap[r])
			}
		}
	}
	return l, nil
}

// overdue tells whether the report after the last should have come for longer
// than is granted.
func (e Estimate) overdue(now time.Duration, s *policies.HostState) bool {
	last, next := max(s.LastReport, 0), s.NextReport
	return next > last && now > next && float64(now-next) > float64(e.Grace*float64(next-last))
}

// expect adds what a placement will bring to the links on which it is not
// measured yet (the paper's hysteresis): its size over the time from the
// decision to the link's next report, which counts as least or more, once for each
// host that receives it over the network and once for their rack.
func (l *loads) expect(v *policies.View, p *policies.Placement, least time.Duration) {
	home := l.f.RackOf(p.Client)
	for i, h := range p.Hosts {
		s := &v.Hosts[h]
		if h == p.Client || p.At < max(s.LastReport, 0) {
			continue
		}
		r := l.f.RackOf(h)
		once := r != home && !slices.ContainsFunc(p.Hosts[:i], func(o topo.HostID) bool {
			return o != p.Client && l.f.RackOf(o) == r && p.At >= max(v.Hosts[o].LastReport, 0)
		})
		hostLeft, rackLeft := l.hostCap(h)-l.host[h], units.Rate(0)
		if once {
			rackLeft = l.rackCap[r] - l.rack[r]
		}
		if hostLeft == 0 && rackLeft == 0 {
			continue
		}
		rate := units.RateOf(p.Size, max(s.NextReport-p.At, least))
		l.host[h] += min(hostLeft, rate)
		l.rack[r] += min(rackLeft, rate)
	}
}

// trueLoads are what links carry just now. Of what was placed at this very moment no
// rate tells yet: its links are taken for full.
func trueLoads(v *policies.View) (*loads, error) {
	if len(v.Load) != len(v.Capacity) {
		return nil, fmt.Errorf("what %d links carry is known of %d: %w", len(v.Load), len(v.Capacity), ErrNoLoads)
	}
	l := newLoads(v)
	carried := func(id topo.LinkID) units.Rate { return min(v.Load[id], v.Capacity[id]) }
	for h := range l.host {
		l.host[h] = carried(l.f.HostDown(topo.HostID(h)))
	}
	for r := range l.rack {
		for s := range l.f.Spines() {
			l.rack[r] += carried(l.f.LeafDown(topo.RackID(r), s))
		}
	}
	for i := len(v.Placements) - 1; i >= 0 && v.Placements[i].At == v.Now; i-- {
		p := &v.Placements[i]
		for _, h := range p.Hosts {
			if h == p.Client {
				continue
			}
			l.host[h] = l.hostCap(h)
			if r := l.f.RackOf(h); r != l.f.RackOf(p.Client) {
				l.rack[r] = l.rackCap[r]
			}
		}
	}
	return l, nil
}

// ErrNoLoads tells that the master is not told what links carry.
var ErrNoLoads = errors.New("the backend must tell what every link carries")
