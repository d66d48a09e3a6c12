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

// Estimate configures how link loads are estimated from the hosts' reports.
type Estimate struct {
	// Grace is how late a report may be before the host's link counts as full, as a
	// fraction of the time between two reports.
	Grace float64
	// LeafCounters takes the load of a rack from the counters of its leaf (View.Racks).
	// Otherwise it is the sum over the rack's hosts, as in Sinbad's paper. The sum
	// includes traffic inside the rack and thus overestimates.
	LeafCounters bool
}

// DefaultEstimate returns Sinbad's estimate. The paper does not mention a Grace.
func DefaultEstimate() Estimate { return Estimate{Grace: 0.5} }

func (e Estimate) check() error {
	if !(e.Grace >= 0 && e.Grace <= MaxGrace) {
		return fmt.Errorf("grace %v: must be from 0 to %v, as a fraction of the time between two reports", e.Grace, float64(MaxGrace))
	}
	return nil
}

// MaxGrace is the largest Estimate.Grace.
const MaxGrace = 1000

// loads is the expected traffic to each host and each rack at a decision.
type loads struct {
	f           *topo.Fabric
	capacity    []units.Rate // View.Capacity
	host, rack  []units.Rate // the paper's vCur, at most the capacity
	rackCap     []units.Rate
	maxExpected units.Rate // upper bound of an expected capacity
	leaf        bool       // rack loads are counters of leaves, not sums over hosts
}

func newLoads(v *policies.PlacementView) *loads {
	hosts, racks := v.Fabric.Hosts(), v.Fabric.Racks()
	rates := make([]units.Rate, hosts+2*racks)
	l := &loads{f: v.Fabric, capacity: v.Capacity, host: rates[:hosts], rack: rates[hosts : hosts+racks], rackCap: rates[hosts+racks:], maxExpected: units.MaxRate}
	for r := range l.rackCap {
		for s := range l.f.Spines() {
			l.rackCap[r] += v.Capacity[l.f.LeafDown(topo.RackID(r), s)]
		}
	}
	return l
}

func (l *loads) hostCap(h topo.HostID) units.Rate { return l.capacity[l.f.HostDown(h)] }

// ofHost returns the expected capacity of the link to a host.
func (l *loads) ofHost(h topo.HostID) units.Rate { return min(l.hostCap(h)-l.host[h], l.maxExpected) }

// ofRack returns the expected capacity of all links to a rack.
func (l *loads) ofRack(r topo.RackID) units.Rate { return min(l.rackCap[r]-l.rack[r], l.maxExpected) }

// estimate computes the loads from the smoothed measurements. A host with an overdue
// report counts as fully loaded, and a lost host as idle.
func (e Estimate) estimate(v *policies.PlacementView) (*loads, error) {
	if e.LeafCounters && len(v.Racks) != v.Fabric.Racks() {
		return nil, fmt.Errorf("leaf counters known for %d of %d racks: all are needed (or use the sums over hosts as rack loads)", len(v.Racks), v.Fabric.Racks())
	}
	l := newLoads(v)
	reported := make([]bool, len(l.rack)) // a host of the rack has reported in time
	for i := range l.host {
		s := &v.Hosts[i]
		if s.Lost {
			continue
		}
		h := topo.HostID(i)
		r := l.f.RackOf(h)
		load := l.hostCap(h)
		if !e.overdue(v.Now, s) {
			reported[r] = true
			load = min(s.Rx, load)
		}
		l.host[i] = load
		l.rack[r] = min(l.rack[r]+load, l.rackCap[r])
	}
	if l.leaf = e.LeafCounters; l.leaf {
		for r := range l.rack {
			if l.rack[r] = l.rackCap[r]; reported[r] {
				l.rack[r] = min(v.Racks[r].Rx, l.rackCap[r])
			}
		}
	}
	return l, nil
}

// overdue reports whether the next report is late by more than Grace.
func (e Estimate) overdue(now time.Duration, s *policies.HostState) bool {
	last, next := max(s.LastReport, 0), s.NextReport
	return next > last && now > next && float64(now-next) > float64(e.Grace*float64(next-last))
}

// expect adds the expected traffic of a placement to the links whose measurements do not
// include it yet (the paper's hysteresis). The rate is the block's size divided by the
// time from the decision to the link's next report, at least the time least. It counts
// once for each host that receives the block over the network and once for their rack. The load of a rack
// is reported by its leaf or by its hosts.
func (l *loads) expect(v *policies.PlacementView, p *policies.Placement, least time.Duration) {
	hidden := func(last time.Duration) bool { return p.At >= max(last, 0) }
	add := func(load *units.Rate, capacity units.Rate, last, next time.Duration) {
		if left := capacity - *load; left > 0 && hidden(last) {
			*load += min(left, units.RateOf(p.Size, max(next-p.At, least)))
		}
	}
	home := l.f.RackOf(p.Client)
	for i, h := range p.Hosts {
		if h == p.Client {
			continue
		}
		s, r := &v.Hosts[h], l.f.RackOf(h)
		add(&l.host[h], l.hostCap(h), s.LastReport, s.NextReport)
		if r == home || slices.ContainsFunc(p.Hosts[:i], func(o topo.HostID) bool {
			return o != p.Client && l.f.RackOf(o) == r && (l.leaf || hidden(v.Hosts[o].LastReport))
		}) {
			continue
		}
		last, next := s.LastReport, s.NextReport
		if l.leaf {
			last, next = v.Racks[r].LastReport, v.Racks[r].NextReport
		}
		add(&l.rack[r], l.rackCap[r], last, next)
	}
}

// trueLoads returns the current traffic of the links. Links to a block that was placed at
// this very moment count as full, because its traffic has no rate yet.
func trueLoads(v *policies.PlacementView) (*loads, error) {
	if len(v.Load) != len(v.Capacity) {
		return nil, fmt.Errorf("current loads known for %d of %d links: %w", len(v.Load), len(v.Capacity), ErrNoLoads)
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

// ErrNoLoads reports that the View lacks the current loads of links.
var ErrNoLoads = errors.New("the backend must report the current load of every link")
