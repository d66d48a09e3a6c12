// Package fault compiles the faults of a scenario into a timeline: primitive
// actions on links and hosts, in order of time, with overlapping faults resolved.
// It also models how routing reacts to links that are down (Routes); both backends
// follow this model.
//
// It is pure: it uses no clock and no kernel, and executes nothing (emu/live and
// emu/fluid do).
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

// Kind is the kind of a fault.
type Kind string

// The kinds of faults. All except link-flap last for Fault.For.
const (
	LinkDown  Kind = "link-down"  // Links pass nothing
	LinkFlap  Kind = "link-flap"  // Links go down for Down and come back for Up, Times times
	LinkRate  Kind = "link-rate"  // Links have Rate
	HostCrash Kind = "host-crash" // Host stops and loses all its work
	SlowDisk  Kind = "slow-disk"  // Host's disk takes writes at Rate
	SlowCPU   Kind = "slow-cpu"   // Host works for Share of the time
	SpineDown Kind = "spine-down" // all links of Spine pass nothing

	LostReports Kind = "lost-reports" // reports of Hosts do not reach the master
	LateReports Kind = "late-reports" // reports of Hosts reach the master later, by By
)

// MinShare is the least Share of a fault: with less, a host makes next to no progress.
const MinShare = 0.01

// Fault is one fault. The kind determines which fields are used.
type Fault struct {
	Kind Kind
	Name string        // in reports, such as "link-down leaf0<>spine1"
	At   time.Duration // on the run's clock
	For  time.Duration // 0 is permanent

	// Links in order of ID. A link that goes down is a cut cable: link-down and
	// link-flap list both directions of each.
	Links    []topo.LinkID
	Host     topo.HostID
	DiskLost bool // the contents of Host's disk are lost when it returns
	Spine    int
	Rate     units.Rate
	Share    float64 // MinShare to 1
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

// SetRate changes the rate of a link, even while it is down.
type SetRate struct {
	Link topo.LinkID
	Rate units.Rate
}

// Crash stops a host and ends its work. Its links go down first.
type Crash struct {
	Host     topo.HostID
	DiskLost bool // as known at this time; the value in Return is final
}

// Return starts a host again. Its links come back first, unless another fault holds
// them down.
type Return struct {
	Host     topo.HostID
	DiskLost bool
}

// SetDisk changes the rate of a host's disk; 0 restores the configured rate.
type SetDisk struct {
	Host topo.HostID
	Rate units.Rate
}

// SetCPU changes the share of the time in which a host works; 1 is all of it.
type SetCPU struct {
	Host  topo.HostID
	Share float64
}

// SetReports changes the delivery of the reports that a host makes from now on. A late
// report carries the counters of the time at which it was made, and arrives after
// earlier ones: none overtakes another. Reports on their way when the host crashes are
// lost.
type SetReports struct {
	Host topo.HostID
	Lost bool
	By   time.Duration // 0 if they are lost
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

// Timeline is a list of steps in order of time. At one time links precede hosts, each
// in order of ID, and no two steps change the same property of the same object.
type Timeline []Step

// Harms reports whether any step changes links or hosts, not only the reports that
// reach the master.
func (t Timeline) Harms() bool {
	return slices.ContainsFunc(t, func(s Step) bool {
		_, reports := s.Action.(SetReports)
		return !reports
	})
}

// Compile resolves faults to steps. A link is up only while no fault holds it down.
// If several faults set the rate of one link, disk or processor, the one that began
// last applies; among those that began together, the last in the list; without any, the
// fabric's own rate. The same holds for the delay of reports; while any fault loses
// them, they are lost. The error joins all errors found.
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
	var periods []period
	for i, x := range faults {
		periods = append(periods, x.periods(f, i)...)
	}
	var moments []time.Duration
	for _, s := range periods {
		moments = append(moments, s.from)
		if s.until != permanent {
			moments = append(moments, s.until)
		}
	}
	slices.Sort(moments)
	moments = slices.Compact(moments)
	var out Timeline
	now := untouched(f)
	for _, at := range moments {
		next := stateAt(f, periods, at)
		out = append(out, now.steps(next, at, periods)...)
		now = next
	}
	return out, nil
}

// Idle returns the indexes of faults without effect: alone such a fault has no step, for
// example because the link has its rate already, and no step of the others depends on it.
func Idle(f *topo.Fabric, faults []Fault) ([]int, error) {
	whole, err := Compile(f, faults)
	if err != nil {
		return nil, err
	}
	actions := func(t Timeline) (out []Step) {
		for _, s := range t {
			out = append(out, Step{At: s.At, Action: s.Action})
		}
		return out
	}
	var idle []int
	for i := range faults {
		alone, err := Compile(f, faults[i:i+1])
		if err != nil {
			return nil, err
		}
		if len(alone) > 0 {
			continue
		}
		without, err := Compile(f, slices.Delete(slices.Clone(faults), i, i+1))
		if err != nil {
			return nil, err
		}
		if slices.Equal(actions(whole), actions(without)) {
			idle = append(idle, i)
		}
	}
	return idle, nil
}

func check(f *topo.Fabric, x Fault) error {
	if x.At < 0 || x.For < 0 {
		return fmt.Errorf("at %v for %v: must not be negative", x.At, x.For)
	}
	needLinks := func() error {
		if len(x.Links) == 0 {
			return errors.New("no link")
		}
		for _, l := range x.Links {
			if l < 0 || int(l) >= len(f.Links()) {
				return fmt.Errorf("link %d: not in the fabric", l)
			}
		}
		return nil
	}
	needHost := func() error {
		if x.Host < 0 || int(x.Host) >= f.Hosts() {
			return fmt.Errorf("host %d: not in the fabric", x.Host)
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
				return fmt.Errorf(`link %s in one direction only: a cut cable passes nothing in either direction (name both, such as "%s<>%s")`, f.LinkName(l), "leaf0", "spine0")
			}
		}
		if x.Kind == LinkFlap && (x.Down <= 0 || x.Up <= 0 || x.Times < 1) {
			return fmt.Errorf("down %v, up %v, %d times: all must be positive", x.Down, x.Up, x.Times)
		}
		return nil
	case LinkRate:
		if x.Rate <= 0 {
			return fmt.Errorf("rate %v: must be positive", x.Rate)
		}
		return needLinks()
	case HostCrash:
		return needHost()
	case SlowDisk:
		if x.Rate <= 0 {
			return fmt.Errorf("rate %v: must be positive", x.Rate)
		}
		return needHost()
	case SlowCPU:
		if !(x.Share >= MinShare && x.Share <= 1) {
			return fmt.Errorf("share %v: must be %v to 1", x.Share, MinShare)
		}
		return needHost()
	case LostReports, LateReports:
		if len(x.Hosts) == 0 {
			return errors.New("no host")
		}
		for _, h := range x.Hosts {
			if h < 0 || int(h) >= f.Hosts() {
				return fmt.Errorf("host %d: not in the fabric", h)
			}
		}
		if x.Kind == LateReports && x.By <= 0 {
			return fmt.Errorf("by %v: must be positive", x.By)
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

// Reverse returns the other direction of a link.
func Reverse(l topo.LinkID) topo.LinkID { return l ^ 1 } // the two have successive IDs, the even one up

const permanent time.Duration = math.MaxInt64

// period is an interval of time in which one fault applies.
type period struct {
	*Fault
	index       int // of the fault
	from, until time.Duration
	links       []topo.LinkID // held down by the fault
}

func (x *Fault) periods(f *topo.Fabric, index int) []period {
	after := func(t, d time.Duration) time.Duration {
		if d > permanent-t {
			return permanent
		}
		return t + d
	}
	s := period{Fault: x, index: index, from: x.At, until: permanent}
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
		var out []period
		for range x.Times {
			s.until = after(s.from, x.Down)
			out = append(out, s)
			if s.until == permanent {
				break
			}
			s.from = after(s.until, x.Up)
			if s.from == permanent {
				break
			}
		}
		return out
	}
	return []period{s}
}

// state is the state of all links and hosts at one time.
type state struct {
	down     []bool
	rate     []units.Rate
	crashed  []bool
	diskLost []bool // by a crash in progress
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

func stateAt(f *topo.Fabric, periods []period, at time.Duration) state {
	s := untouched(f)
	var active []period
	for _, x := range periods {
		if x.from <= at && at < x.until {
			active = append(active, x)
		}
	}
	slices.SortStableFunc(active, func(a, b period) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.index, b.index)) })
	for _, x := range active { // the last wins
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
	// A crash that ended while another of the same host continues has still lost the
	// host's disk.
	for again := true; again; {
		again = false
		for _, x := range periods {
			if x.Kind == HostCrash && x.DiskLost && s.crashed[x.Host] && !s.diskLost[x.Host] && x.until <= at && unbroken(periods, x.Host, x.until, at) {
				s.diskLost[x.Host], again = true, true
			}
		}
	}
	return s
}

// unbroken reports whether crashes hold a host down without a gap from one time to another.
func unbroken(periods []period, h topo.HostID, from, to time.Duration) bool {
	for from <= to {
		next := from
		for _, x := range periods {
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

// steps returns the actions that lead from one state to the next.
func (s state) steps(next state, at time.Duration, periods []period) []Step {
	var out []Step
	add := func(a Action, of func(x period) bool) {
		why := ""
		for _, x := range periods {
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
			add(SetRate{id, next.rate[l]}, func(x period) bool { return x.Kind == LinkRate && slices.Contains(x.Links, id) })
		}
		if s.down[l] != next.down[l] {
			add(SetLink{id, !next.down[l]}, func(x period) bool { return slices.Contains(x.links, id) })
		}
	}
	for i := range s.crashed {
		h := topo.HostID(i)
		of := func(k Kind) func(period) bool { return func(x period) bool { return x.Kind == k && x.Host == h } }
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
			add(SetReports{h, next.lost[i], next.by[i]}, func(x period) bool {
				return (x.Kind == LostReports || x.Kind == LateReports) && slices.Contains(x.Hosts, h)
			})
		}
	}
	return out
}
