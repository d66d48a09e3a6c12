// Package fault turns the faults of a scenario into a timeline: primitive
// actions on links and hosts, in order of time, in which faults that overlap are
// resolved. It also holds the model of what routing does about links that are
// down (Routes), which both backends follow.
//
// It is pure: it knows no clock and no kernel, and carries nothing out (emu/live,
// emu/fluid).
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// Kind is what goes wrong.
type Kind string

// The kinds of fault. All but link-flap last for Fault.For.
const (
	LinkDown  Kind = "link-down"  // Links pass nothing
	LinkFlap  Kind = "link-flap"  // Links go down for Down and come back for Up, Times times
	LinkRate  Kind = "link-rate"  // Links have Rate
	HostCrash Kind = "host-crash" // Host is gone, with all it was doing
	SlowDisk  Kind = "slow-disk"  // Host's disk takes writes at Rate
	SlowCPU   Kind = "slow-cpu"   // Host works for Share of the time
	SpineDown Kind = "spine-down" // all links of Spine pass nothing

	LostReports Kind = "lost-reports" // what Hosts report does not reach the master
	LateReports Kind = "late-reports" // what Hosts report reaches the master later, by By
)

// Fault is one fault. Which fields hold depends on the kind.
type Fault struct {
	Kind Kind
	Name string        // in reports, such as "link-down leaf0<>spine1"
	At   time.Duration // on the run's clock
	For  time.Duration // 0 is for good

	// Links in order of ID. A link that goes down is a cable that is cut: of
	// link-down and link-flap they are both directions of each.
	Links    []topo.LinkID
	Host     topo.HostID
	DiskLost bool // what Host's disk holds is gone when it is back
	Spine    int
	Rate     units.Rate
	Share    float64 // (0, 1]
	Down, Up time.Duration
	Times    int
	Hosts    []topo.HostID // in order of ID
	By       time.Duration
}

// Action is one primitive change. The set is closed.
type Action interface{ action() }

// SetLink takes one direction of a link down, or brings it back.
type SetLink struct {
	Link topo.LinkID
	Up   bool
}

// SetRate changes the rate of a link, also while it is down.
type SetRate struct {
	Link topo.LinkID
	Rate units.Rate
}

// Crash ends all that a host does. Its links go down before.
type Crash struct {
	Host     topo.HostID
	DiskLost bool // as known by then: Return tells for good
}

// Return starts a host again. Its links are back before, unless another fault
// holds them.
type Return struct {
	Host     topo.HostID
	DiskLost bool
}

// SetDisk changes the rate of a host's disk; 0 is the configured one.
type SetDisk struct {
	Host topo.HostID
	Rate units.Rate
}

// SetCPU changes the share of the time in which a host works; 1 is all.
type SetCPU struct {
	Host  topo.HostID
	Share float64
}

// SetReports changes what becomes of the reports that a host makes from now on. A
// report that is late carries the counters of when it was made, and comes in after
// those made before it: none overtakes another. Those on their way when the host
// crashes are lost.
type SetReports struct {
	Host topo.HostID
	Lost bool
	By   time.Duration // 0 where they are lost
}

func (SetLink) action()    {}
func (SetRate) action()    {}
func (Crash) action()      {}
func (Return) action()     {}
func (SetDisk) action()    {}
func (SetCPU) action()     {}
func (SetReports) action() {}

// Step is an action at its time.
type Step struct {
	At     time.Duration
	Action Action
	Why    string // names of the faults that begin or end in it, joined by ", "
}

// Timeline is steps in order of time. At one moment links come before hosts,
// each in order of ID, and no two steps of one moment say the same of one thing.
type Timeline []Step

// Harms tells whether some step touches what links or hosts do, not only what the
// master hears of it.
func (t Timeline) Harms() bool {
	return slices.ContainsFunc(t, func(s Step) bool {
		_, reports := s.Action.(SetReports)
		return !reports
	})
}

// Compile resolves faults to steps. A link is up only while no fault holds it
// down. Of several rates of one link, disk or processor, that of the fault which
// began last holds, of those that began together that of the last in the list;
// where none holds, the fabric's own does. So it is with how late reports are; while
// any fault loses them, they are lost. The error joins all that is wrong.
func Compile(f *topo.Fabric, faults []Fault) (Timeline, error) {
	var errs []error
	for i, x := range faults {
		if err := check(f, x); err != nil {
			errs = append(errs, fmt.Errorf("faults[%d]: %s: %w", i, x.Kind, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var spells []spell
	for i, x := range faults {
		spells = append(spells, x.spells(f, i)...)
	}
	var moments []time.Duration
	for _, s := range spells {
		moments = append(moments, s.from)
		if s.until != forGood {
			moments = append(moments, s.until)
		}
	}
	slices.Sort(moments)
	moments = slices.Compact(moments)
	var out Timeline
	now := untouched(f)
	for _, at := range moments {
		next := stateAt(f, spells, at)
		out = append(out, now.steps(next, at, spells)...)
		now = next
	}
	return out, nil
}

func check(f *topo.Fabric, x Fault) error {
	if x.At < 0 || x.For < 0 {
		return fmt.Errorf("at %v for %v: want no time below 0", x.At, x.For)
	}
	needLinks := func() error {
		if len(x.Links) == 0 {
			return errors.New("no link")
		}
		for _, l := range x.Links {
			if l < 0 || int(l) >= len(f.Links()) {
				return fmt.Errorf("link %d: want one of the fabric", l)
			}
		}
		return nil
	}
	needHost := func() error {
		if x.Host < 0 || int(x.Host) >= f.Hosts() {
			return fmt.Errorf("host %d: want one of the fabric", x.Host)
		}
		return nil
	}
	switch x.Kind {
	case LinkDown, LinkFlap:
		if err := needLinks(); err != nil {
			return err
		}
		for _, l := range x.Links {
			if !slices.Contains(x.Links, Reverse(l)) {
				return fmt.Errorf(`link %s in one direction only: a cable that is cut passes nothing either way: want both, as in "%s<>%s"`, f.LinkName(l), "leaf0", "spine0")
			}
		}
		if x.Kind == LinkFlap && (x.Down <= 0 || x.Up <= 0 || x.Times < 1) {
			return fmt.Errorf("down %v, up %v, %d times: want all positive", x.Down, x.Up, x.Times)
		}
		return nil
	case LinkRate:
		if x.Rate <= 0 {
			return fmt.Errorf("rate %v: want a positive rate", x.Rate)
		}
		return needLinks()
	case HostCrash:
		return needHost()
	case SlowDisk:
		if x.Rate <= 0 {
			return fmt.Errorf("rate %v: want a positive rate", x.Rate)
		}
		return needHost()
	case SlowCPU:
		if !(x.Share > 0 && x.Share <= 1) {
			return fmt.Errorf("share %v: want more than 0 and at most 1", x.Share)
		}
		return needHost()
	case LostReports, LateReports:
		if len(x.Hosts) == 0 {
			return errors.New("no host")
		}
		for _, h := range x.Hosts {
			if h < 0 || int(h) >= f.Hosts() {
				return fmt.Errorf("host %d: want one of the fabric", h)
			}
		}
		if x.Kind == LateReports && x.By <= 0 {
			return fmt.Errorf("by %v: want a positive time", x.By)
		}
		return nil
	case SpineDown:
		if x.Spine < 0 || x.Spine >= f.Spines() {
			return fmt.Errorf("spine %d: the fabric has %d", x.Spine, f.Spines())
		}
		return nil
	}
	return fmt.Errorf("unknown kind %q", x.Kind)
}

// Reverse is the other direction of a link.
func Reverse(l topo.LinkID) topo.LinkID { return l ^ 1 } // both follow each other, the even one up

const forGood time.Duration = math.MaxInt64

// spell is a stretch of time in which one fault holds.
type spell struct {
	*Fault
	index       int // of the fault
	from, until time.Duration
	links       []topo.LinkID // that it holds down
}

func (x *Fault) spells(f *topo.Fabric, index int) []spell {
	after := func(t, d time.Duration) time.Duration {
		if d > forGood-t {
			return forGood
		}
		return t + d
	}
	s := spell{Fault: x, index: index, from: x.At, until: forGood}
	if x.For > 0 {
		s.until = after(x.At, x.For)
	}
	switch x.Kind {
	case LinkDown:
		s.links = x.Links
	case HostCrash:
		s.links = []topo.LinkID{f.HostUp(x.Host), f.HostDown(x.Host)}
	case SpineDown:
		for r := range topo.RackID(f.Racks()) {
			s.links = append(s.links, f.LeafUp(r, x.Spine), f.LeafDown(r, x.Spine))
		}
	case LinkFlap:
		s.links = x.Links
		var out []spell
		for range x.Times {
			s.until = after(s.from, x.Down)
			out = append(out, s)
			if s.until == forGood {
				break
			}
			s.from = after(s.until, x.Up)
			if s.from == forGood {
				break
			}
		}
		return out
	}
	return []spell{s}
}

// state is what holds at one moment. Nothing depends on the order of its maps.
type state struct {
	down     []bool
	rate     []units.Rate
	crashed  []bool
	diskLost []bool // of a crash that holds
	disk     []units.Rate
	cpu      []float64
	lost     []bool // reports
	by       []time.Duration
}

func untouched(f *topo.Fabric) state {
	s := state{down: make([]bool, len(f.Links())), crashed: make([]bool, f.Hosts()), diskLost: make([]bool, f.Hosts()), disk: make([]units.Rate, f.Hosts()),
		cpu: slices.Repeat([]float64{1}, f.Hosts()), lost: make([]bool, f.Hosts()), by: make([]time.Duration, f.Hosts())}
	for _, l := range f.Links() {
		s.rate = append(s.rate, l.Rate)
	}
	return s
}

func stateAt(f *topo.Fabric, spells []spell, at time.Duration) state {
	s := untouched(f)
	var holding []spell
	for _, x := range spells {
		if x.from <= at && at < x.until {
			holding = append(holding, x)
		}
	}
	slices.SortStableFunc(holding, func(a, b spell) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.index, b.index)) })
	for _, x := range holding { // the last wins
		for _, l := range x.links {
			s.down[l] = true
		}
		switch x.Kind {
		case LinkRate:
			for _, l := range x.Links {
				s.rate[l] = x.Rate
			}
		case HostCrash:
			s.crashed[x.Host] = true
			s.diskLost[x.Host] = s.diskLost[x.Host] || x.DiskLost
		case SlowDisk:
			s.disk[x.Host] = x.Rate
		case SlowCPU:
			s.cpu[x.Host] = x.Share
		case LostReports:
			for _, h := range x.Hosts {
				s.lost[h] = true
			}
		case LateReports:
			for _, h := range x.Hosts {
				s.by[h] = x.By
			}
		}
	}
	for h, lost := range s.lost {
		if lost {
			s.by[h] = 0
		}
	}
	// A crash that has ended while another of the same host goes on has still
	// cost the host its disk.
	for again := true; again; {
		again = false
		for _, x := range spells {
			if x.Kind == HostCrash && x.DiskLost && s.crashed[x.Host] && !s.diskLost[x.Host] && x.until <= at && unbroken(spells, x.Host, x.until, at) {
				s.diskLost[x.Host], again = true, true
			}
		}
	}
	return s
}

// unbroken tells whether crashes hold a host down from one moment to another.
func unbroken(spells []spell, h topo.HostID, from, to time.Duration) bool {
	for from <= to {
		next := from
		for _, x := range spells {
			if x.Kind == HostCrash && x.Host == h && x.from <= from && x.until > next {
				next = x.until
			}
		}
		if next == from {
			return false
		}
		from = next
	}
	return true
}

// steps are the actions that lead from one state to the next.
func (s state) steps(next state, at time.Duration, spells []spell) []Step {
	var out []Step
	add := func(a Action, of func(x spell) bool) {
		why := ""
		for _, x := range spells {
			if (x.from == at || x.until == at) && of(x) {
				if why != "" {
					why += ", "
				}
				why += x.Name
			}
		}
		out = append(out, Step{at, a, why})
	}
	for l := range s.down {
		id := topo.LinkID(l)
		if s.rate[l] != next.rate[l] {
			add(SetRate{id, next.rate[l]}, func(x spell) bool { return x.Kind == LinkRate && slices.Contains(x.Links, id) })
		}
		if s.down[l] != next.down[l] {
			add(SetLink{id, !next.down[l]}, func(x spell) bool { return slices.Contains(x.links, id) })
		}
	}
	for i := range s.crashed {
		h := topo.HostID(i)
		of := func(k Kind) func(spell) bool { return func(x spell) bool { return x.Kind == k && x.Host == h } }
		switch {
		case !s.crashed[i] && next.crashed[i]:
			add(Crash{h, next.diskLost[i]}, of(HostCrash))
		case s.crashed[i] && !next.crashed[i]:
			lost := s.diskLost[i]
			add(Return{h, lost}, of(HostCrash))
		}
		if s.disk[i] != next.disk[i] {
			add(SetDisk{h, next.disk[i]}, of(SlowDisk))
		}
		if s.cpu[i] != next.cpu[i] {
			add(SetCPU{h, next.cpu[i]}, of(SlowCPU))
		}
		if s.lost[i] != next.lost[i] || s.by[i] != next.by[i] {
			add(SetReports{h, next.lost[i], next.by[i]}, func(x spell) bool {
				return (x.Kind == LostReports || x.Kind == LateReports) && slices.Contains(x.Hosts, h)
			})
		}
	}
	return out
}
