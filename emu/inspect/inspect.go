// Package inspect computes the utilisation, queue length and drops of every directed link
// from two readings of a fabric's counters. Its functions are pure.
//
// It reads no counters (emu/kernel) and draws no table (emu/cli).
package inspect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/results/metrics"
	"testbed/topo"
	"testbed/topo/units"
)

// Counters holds the counters of one link, read at its sending end. Bytes and rate include
// Ethernet headers.
type Counters struct {
	Bytes      units.Bytes // sent
	Packets    uint32      // sent; wraps
	Dropped    uint32      // by the full queue; wraps
	Overlimits uint32      // packets that waited for tokens; wraps
	Backlog    units.Bytes // queued now
	Rate       units.Rate  // of the shaper; 0 without one
	Limit      units.Bytes // of the queue
	Up         bool        // both ends
}

// Reading holds the counters of some links of a fabric. The links of a namespace are read
// at one time, those of different namespaces at slightly different times.
type Reading map[topo.LinkID]Sample

// Sample holds the counters of one link and the time of reading.
type Sample struct {
	At time.Time
	Counters
}

// Zero returns the reading of a fabric at the time it was built, before any packet.
func Zero(now Reading, built time.Time) Reading {
	zero := Reading{}
	for id := range now {
		zero[id] = Sample{At: built}
	}
	return zero
}

// Link describes one directed link over an interval.
type Link struct {
	ID   topo.LinkID   `json:"-"`
	Kind topo.LinkKind `json:"-"`
	Name string        `json:"link"`
	// Rate is the kernel's current rate and Plan the fabric's, in bit/s. Shaped is false if
	// no shaper could be read; such a link has no utilisation.
	Rate   units.Rate `json:"rate_bps"`
	Plan   units.Rate `json:"plan_bps"`
	Shaped bool       `json:"shaped"`
	Up     bool       `json:"up"`
	// Utilisation is the bytes sent divided by the capacity of the interval at the Rate of
	// its end. The content of the token bucket may raise it above 1.
	Utilisation float64 `json:"utilisation"`
	// Sent is the bytes sent in the interval, Throughput the average rate.
	Sent       units.Bytes `json:"sent_bytes"`
	Throughput units.Rate  `json:"throughput_bps"`
	Packets    uint64      `json:"packets"`
	PacketRate float64     `json:"packets_per_s"`
	// Backlog is the queue at the end of the interval, and Wait the time to send it.
	Backlog    units.Bytes   `json:"backlog_bytes"`
	Wait       time.Duration `json:"backlog_ns"`
	Dropped    uint64        `json:"dropped"`       // in the interval
	DroppedAll uint64        `json:"dropped_total"` // as the kernel counts
	Overlimits uint64        `json:"overlimits"`    // in the interval
	Limit      units.Bytes   `json:"queue_limit_bytes"`
	PlanLimit  units.Bytes   `json:"queue_plan_bytes"`
	// Reset reports whether the counters were reset during the interval: its figures cover
	// only the time since then and are too low.
	Reset bool `json:"reset,omitempty"`
}

// OffPlan reports whether the kernel's rate differs from the fabric's. The kernel stores
// whole bytes per second.
func (l Link) OffPlan() bool {
	return !l.Shaped || l.Rate.BytesPerSecond() != l.Plan.BytesPerSecond()
}

// Uplink reports whether the link is between leaf and spine, in either direction.
func (l Link) Uplink() bool { return l.Kind == topo.LeafUp || l.Kind == topo.LeafDown }

// Links returns the links of f that both readings contain, in order of ID.
func Links(f *topo.Fabric, was, now Reading) []Link {
	var out []Link
	for _, l := range f.Links() {
		a, ok := was[l.ID]
		b, ok2 := now[l.ID]
		if ok && ok2 {
			out = append(out, compare(f, l, a, b))
		}
	}
	return out
}

func compare(f *topo.Fabric, l topo.Link, was, now Sample) Link {
	out := Link{ID: l.ID, Kind: l.Kind, Name: f.LinkName(l.ID), Rate: now.Rate, Plan: l.Rate, Shaped: now.Rate > 0, Up: now.Up,
		Backlog: now.Backlog, DroppedAll: uint64(now.Dropped), Limit: now.Limit, PlanLimit: l.Queue}
	packets, ok1 := advance(was.Packets, now.Packets)
	dropped, ok2 := advance(was.Dropped, now.Dropped)
	waited, ok3 := advance(was.Overlimits, now.Overlimits)
	if out.Reset = now.Bytes < was.Bytes || !ok1 || !ok2 || !ok3; out.Reset {
		was.Counters = Counters{}
		packets, dropped, waited = uint64(now.Packets), uint64(now.Dropped), uint64(now.Overlimits)
	}
	out.Sent, out.Packets, out.Dropped, out.Overlimits = now.Bytes-was.Bytes, packets, dropped, waited
	if out.Shaped && now.Backlog > 0 {
		out.Wait = now.Rate.TimeToSend(now.Backlog)
	}
	d := now.At.Sub(was.At)
	if d <= 0 {
		return out
	}
	out.Throughput = units.RateOf(out.Sent, d)
	out.PacketRate = float64(packets) / d.Seconds()
	if out.Shaped {
		out.Utilisation = float64(out.Throughput) / float64(now.Rate)
	}
	return out
}

// advance returns the increment of a 32-bit counter. An increment above half the range
// counts as a step back, which means that the counter was reset, except from 0.
func advance(was, now uint32) (uint64, bool) {
	if was == 0 {
		return uint64(now), true
	}
	d := now - was
	return uint64(d), d <= math.MaxInt32
}

// Order is a sort order of links.
type Order string

// The orders. All except ByName are descending.
const (
	ByName        Order = "name" // hosts, then uplinks, in the order of the fabric
	ByUtilisation Order = "util"
	ByBacklog     Order = "backlog" // as a time
	ByDrops       Order = "drops"   // in the interval, then in total
)

// Orders returns all orders, for help and completion.
func Orders() []Order { return []Order{ByUtilisation, ByBacklog, ByDrops, ByName} }

// ParseOrder parses the name of an order.
func ParseOrder(s string) (Order, error) {
	if o := Order(s); slices.Contains(Orders(), o) {
		return o, nil
	}
	return "", fmt.Errorf("order %q: must be one of %v", s, Orders())
}

// Sort sorts links; ties stay in order of ID.
func Sort(links []Link, by Order) {
	slices.SortFunc(links, func(a, b Link) int {
		first := 0
		switch by {
		case ByUtilisation:
			first = cmp.Compare(b.Utilisation, a.Utilisation)
		case ByBacklog:
			first = cmp.Or(cmp.Compare(b.Wait, a.Wait), cmp.Compare(b.Backlog, a.Backlog))
		case ByDrops:
			first = cmp.Or(cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(b.DroppedAll, a.DroppedAll))
		}
		return cmp.Or(first, cmp.Compare(a.ID, b.ID))
	})
}

// Switch is the sum over the links of one leaf or spine.
type Switch struct {
	Name string `json:"switch"`
	// In and Out are the average rates of the links toward the switch and from it.
	In  units.Rate `json:"in_bps"`
	Out units.Rate `json:"out_bps"`
	// Backlog and drops are those of its own ports, the links of Out.
	Backlog    units.Bytes `json:"backlog_bytes"`
	Dropped    uint64      `json:"dropped"`
	DroppedAll uint64      `json:"dropped_total"`
}

// Switches sums links by switch: leaves, then spines. Switches without links are omitted.
func Switches(f *topo.Fabric, links []Link) []Switch {
	n := f.Racks() + f.Spines()
	sums, touched := make([]Switch, n), make([]bool, n)
	in := func(i int, l Link) { touched[i] = true; sums[i].In += l.Throughput }
	out := func(i int, l Link) {
		touched[i] = true
		s := &sums[i]
		s.Out += l.Throughput
		s.Backlog += l.Backlog
		s.Dropped += l.Dropped
		s.DroppedAll += l.DroppedAll
	}
	for _, l := range links {
		t := f.Link(l.ID)
		leaf, spine := int(t.Rack), f.Racks()+t.Spine
		switch t.Kind {
		case topo.HostUp:
			in(leaf, l)
		case topo.HostDown:
			out(leaf, l)
		case topo.LeafUp:
			out(leaf, l)
			in(spine, l)
		case topo.LeafDown:
			out(spine, l)
			in(leaf, l)
		}
	}
	var all []Switch
	for i, s := range sums {
		if !touched[i] {
			continue
		}
		s.Name = topo.SpineName(i - f.Racks())
		if i < f.Racks() {
			s.Name = topo.LeafName(topo.RackID(i))
		}
		all = append(all, s)
	}
	return all
}

// Snapshot is one result, as in its JSON.
type Snapshot struct {
	Testbed string    `json:"testbed"`
	At      time.Time `json:"at"`
	// Interval is the requested one, or the testbed's age for totals. The figures of a link
	// cover the time between its own two readings.
	Interval time.Duration `json:"interval_ns"`
	Total    bool          `json:"since_build"`
	Summary  Summary       `json:"summary"`
	Links    []Link        `json:"links"`
	Switches []Switch      `json:"switches"`
}

// Summary holds the highlights of a reading.
type Summary struct {
	Links       int      `json:"links"`
	Busiest     string   `json:"busiest,omitempty"` // "" if nothing was sent
	Utilisation float64  `json:"busiest_utilisation"`
	Dropped     uint64   `json:"dropped"`
	DroppedAll  uint64   `json:"dropped_total"`
	Down        []string `json:"down"`
	OffPlan     []string `json:"off_plan"` // links whose rate differs from the fabric's
	Reset       []string `json:"reset"`    // links whose counters were reset
	// CvUp and CvDown are the coefficients of variation of the utilisations of the links
	// from leaves to spines, and from spines to leaves; nil if fewer than two of them were
	// read, or none sent anything.
	CvUp   *float64 `json:"cv_up,omitempty"`
	CvDown *float64 `json:"cv_down,omitempty"`
}

// Summarize returns the summary of links.
func Summarize(links []Link) Summary {
	s := Summary{Links: len(links), Down: []string{}, OffPlan: []string{}, Reset: []string{}}
	var up, down []float64
	for _, l := range links {
		if l.Sent > 0 && (s.Busiest == "" || l.Utilisation > s.Utilisation) {
			s.Busiest, s.Utilisation = l.Name, l.Utilisation
		}
		s.Dropped += l.Dropped
		s.DroppedAll += l.DroppedAll
		if !l.Up {
			s.Down = append(s.Down, l.Name)
		}
		if l.OffPlan() {
			s.OffPlan = append(s.OffPlan, l.Name)
		}
		if l.Reset {
			s.Reset = append(s.Reset, l.Name)
		}
		switch l.Kind {
		case topo.LeafUp:
			up = append(up, l.Utilisation)
		case topo.LeafDown:
			down = append(down, l.Utilisation)
		}
	}
	s.CvUp, s.CvDown = cv(up), cv(down)
	return s
}

func cv(x []float64) *float64 {
	if len(x) < 2 || slices.Max(x) == 0 {
		return nil
	}
	v := metrics.Cv(x)
	return &v
}
