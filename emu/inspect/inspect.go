// Package inspect turns two readings of a fabric's counters into what an
// operator wants to see of every directed link: how busy it is, what waits for
// it and what it has dropped. Its functions are pure.
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

// Counters are one link's at one moment, read at its sending end. Bytes count
// Ethernet frames, as the rate does.
type Counters struct {
	Bytes      units.Bytes // sent
	Packets    uint32      // sent; wraps
	Dropped    uint32      // by the full queue; wraps
	Overlimits uint32      // times a packet had to wait for tokens; wraps
	Backlog    units.Bytes // waiting now
	Rate       units.Rate  // of the shaper; 0 where there is none
	Limit      units.Bytes // of the queue
	Up         bool        // both ends
}

// Reading is the counters of some links of a fabric. Links of a namespace are
// read at one moment, those of different ones at slightly different moments.
type Reading map[topo.LinkID]Sample

// Sample is one link's counters and when they were read.
type Sample struct {
	At time.Time
	Counters
}

// Zero is the reading of a fabric that was built at a moment, before any packet.
func Zero(now Reading, built time.Time) Reading {
	zero := Reading{}
	for id := range now {
		zero[id] = Sample{At: built}
	}
	return zero
}

// Link is one directed link over an interval.
type Link struct {
	ID   topo.LinkID   `json:"-"`
	Kind topo.LinkKind `json:"-"`
	Name string        `json:"link"`
	// Rate is the kernel's now and Plan the fabric's, in bit/s. A link with
	// Shaped false has no shaper that could be read, and no utilisation.
	Rate   units.Rate `json:"rate_bps"`
	Plan   units.Rate `json:"plan_bps"`
	Shaped bool       `json:"shaped"`
	Up     bool       `json:"up"`
	// Utilisation is what was sent in the interval over what Rate, as it is at
	// the end, carries in it. It may pass 1 by what a token bucket holds.
	Utilisation float64 `json:"utilisation"`
	// Sent is the bytes of the interval, and Throughput the rate they make.
	Sent       units.Bytes `json:"sent_bytes"`
	Throughput units.Rate  `json:"throughput_bps"`
	Packets    uint64      `json:"packets"`
	PacketRate float64     `json:"packets_per_s"`
	// Backlog waits at the end of the interval, and Wait is how long the link
	// takes to send it.
	Backlog    units.Bytes   `json:"backlog_bytes"`
	Wait       time.Duration `json:"backlog_ns"`
	Dropped    uint64        `json:"dropped"`       // in the interval
	DroppedAll uint64        `json:"dropped_total"` // as the kernel counts
	Overlimits uint64        `json:"overlimits"`    // in the interval
	Limit      units.Bytes   `json:"queue_limit_bytes"`
	PlanLimit  units.Bytes   `json:"queue_plan_bytes"`
	// Reset tells that the counters began anew within the interval: its figures
	// are of the part since then, and so too low.
	Reset bool `json:"reset,omitempty"`
}

// OffPlan tells that the kernel shapes the link to another rate than the fabric
// has. The kernel counts whole bytes a second.
func (l Link) OffPlan() bool {
	return !l.Shaped || l.Rate.BytesPerSecond() != l.Plan.BytesPerSecond()
}

// Uplink tells a link between leaf and spine, in either direction.
func (l Link) Uplink() bool { return l.Kind == topo.LeafUp || l.Kind == topo.LeafDown }

// Links compares two readings of links of f, in order of ID: those that both
// have.
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

// advance is by how much a counter of 32 bits went on. It takes more than half
// its range for a step back, that is for a counter that began anew, but not from
// 0, of which there is no back.
func advance(was, now uint32) (uint64, bool) {
	if was == 0 {
		return uint64(now), true
	}
	d := now - was
	return uint64(d), d <= math.MaxInt32
}

// Order is by what links are sorted.
type Order string

// The orders. All but ByName put the largest first.
const (
	ByName        Order = "name" // hosts, then uplinks, as the fabric numbers them
	ByUtilisation Order = "util"
	ByBacklog     Order = "backlog" // as a time
	ByDrops       Order = "drops"   // in the interval, then in all
)

// Orders are all of them, for help and completion.
func Orders() []Order { return []Order{ByUtilisation, ByBacklog, ByDrops, ByName} }

// ParseOrder reads the name of an order.
func ParseOrder(s string) (Order, error) {
	if o := Order(s); slices.Contains(Orders(), o) {
		return o, nil
	}
	return "", fmt.Errorf("order %q: want one of %v", s, Orders())
}

// Sort sorts links; those that tie stay in order of ID.
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
	// In and Out are what the links toward it and from it carried, as rates.
	In  units.Rate `json:"in_bps"`
	Out units.Rate `json:"out_bps"`
	// Backlog and drops are of its own ports, which are those of Out.
	Backlog    units.Bytes `json:"backlog_bytes"`
	Dropped    uint64      `json:"dropped"`
	DroppedAll uint64      `json:"dropped_total"`
}

// Switches sums up links by the switches they touch: leaves, then spines. A
// switch none of the links touches is left out.
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

// Summary is what stands out.
type Summary struct {
	Links       int      `json:"links"`
	Busiest     string   `json:"busiest,omitempty"` // "" where nothing was sent
	Utilisation float64  `json:"busiest_utilisation"`
	Dropped     uint64   `json:"dropped"`
	DroppedAll  uint64   `json:"dropped_total"`
	Down        []string `json:"down"`
	OffPlan     []string `json:"off_plan"` // whose rate is not the fabric's
	Reset       []string `json:"reset"`    // whose counters began anew
	// CvUp and CvDown are the coefficients of variation of the utilisations of
	// the links from leaves to spines, and of those from spines to leaves; nil
	// where fewer than two of them were read, or none sent anything.
	CvUp   *float64 `json:"cv_up,omitempty"`
	CvDown *float64 `json:"cv_down,omitempty"`
}

// Summarize looks at all links at once.
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
