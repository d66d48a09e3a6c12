package placement

import (
	"errors"
	"fmt"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Form is on which links replicas are told apart, and how they are then spread.
// Two forms move different numbers of bytes between racks: only arms of one form
// compare.
type Form uint8

const (
	// Auto is SameRack where the racks' links are the bottleneck, which is where
	// they are oversubscribed, and Edge elsewhere and where there is one rack.
	Auto Form = iota
	// Literal is Sinbad's pseudocode to the letter (V1): each replica in a rack of its
	// own, by the racks' links, and there on the best host. It compares with
	// Uniform.TwoRacks.
	Literal
	// SameRack puts replicas two by two into racks, as HDFS does (V2): by the racks'
	// links, and there on the best two hosts. It compares with HDFS.
	SameRack
	// Edge goes by the links of hosts alone, in whatever rack (VE), as in
	// Sinbad's experiments on a cluster. It compares with Uniform.
	Edge
)

// Fallback is how a block is placed that is not steered.
type Fallback uint8

const (
	// Baseline is what the form compares with.
	Baseline Fallback = iota
	ToHDFS
	ToTwoRacks
	ToEdge
)

// Steering is what all policies share that choose by the loads of links.
type Steering struct {
	Form Form
	Constraints
	// Fallback places the blocks for which too few hosts satisfy the constraints.
	// Of these it keeps Hosts.
	Fallback Fallback
	// HDFS is how the fallback of that name is set; its Hosts are those of the
	// Constraints.
	HDFS HDFS
}

// DefaultSteering is that of Sinbad.
func DefaultSteering() Steering {
	return Steering{Constraints: DefaultConstraints(), HDFS: DefaultHDFS()}
}

func (s Steering) check() error {
	var errs []error
	if s.Form > Edge {
		errs = append(errs, fmt.Errorf("form %d: want Auto, Literal, SameRack or Edge", s.Form))
	}
	if s.Fallback > ToEdge {
		errs = append(errs, fmt.Errorf("fallback %d: want Baseline, ToHDFS, ToTwoRacks or ToEdge", s.Fallback))
	}
	return errors.Join(append(errs, s.Constraints.check())...)
}

// form is the one that a fabric gets.
func (s Steering) form(f *topo.Fabric) Form {
	switch {
	case f.Racks() == 1:
		return Edge
	case s.Form != Auto:
		return s.Form
	case leafBound(f):
		return SameRack
	default:
		return Edge
	}
}

// leafBound tells whether the bottleneck links are those toward the racks: the
// level with the highest oversubscription, the one farthest from the core where two
// have the same (Sinbad, SIGCOMM 2013). That of the hosts' links is 1. Rates that do
// not divide evenly make no oversubscription: it counts from a thousandth.
func leafBound(f *topo.Fabric) bool {
	var hosts, racks float64
	for _, l := range f.Links() {
		switch l.Kind {
		case topo.HostDown:
			hosts += float64(l.Rate)
		case topo.LeafDown:
			racks += float64(l.Rate)
		}
	}
	return hosts > 1.001*racks
}

// fallback is the default placement for a form.
func (s Steering) fallback(form Form) interface {
	place(*policies.View, workloads.Block, []topo.HostID) ([]topo.HostID, error)
} {
	to := s.Fallback
	if to == Baseline {
		switch form {
		case Literal:
			to = ToTwoRacks
		case SameRack:
			to = ToHDFS
		default:
			to = ToEdge
		}
	}
	if to == ToHDFS {
		p := s.HDFS
		p.Hosts = s.Hosts
		return p
	}
	return Uniform{TwoRacks: to == ToTwoRacks, Constraints: Constraints{Hosts: s.Hosts, Tolerance: NoTolerance, Faults: s.Faults, Partitions: s.Partitions}}
}

// steer places a block by some loads, or by the fallback where that cannot be.
func (s Steering) steer(v *policies.View, b workloads.Block, order []topo.HostID, w way) ([]topo.HostID, error) {
	w.form = s.form(v.Fabric)
	hosts, ok, err := s.choose(v, b, order, w)
	if err != nil || ok {
		return hosts, err
	}
	return s.fallback(w.form).place(v, b, order)
}

// way is how hosts are chosen from those that the constraints allow.
type way struct {
	form  Form // not Auto
	loads *loads
	// among is how many candidates are compared for each choice, in the random order,
	// others each time as long as there are; 0 is all. With 1 there need be no loads.
	among int
	// path judges a host by all links that lead to it, with Edge. Otherwise its own
	// counts.
	path bool
}

// choose chooses hosts in the order of a pipeline, or tells that too few satisfy
// the constraints: those of replicas it could place count for nothing then.
// Candidates are looked at in the given random order, and of the best the first
// is taken: so ties are broken.
func (c Constraints) choose(v *policies.View, b workloads.Block, order []topo.HostID, w way) ([]topo.HostID, bool, error) {
	may, err := allowed(v.Fabric, c.Hosts)
	if err != nil {
		return nil, false, err
	}
	s := selection{way: w, f: v.Fabric, order: order, spread: c.spread(v, b.Replicas), home: -1, fit: make([]bool, len(v.Hosts)), hosts: make([]topo.HostID, 0, b.Replicas)}
	limit := c.balance(v)
	for h := range topo.HostID(len(v.Hosts)) {
		s.fit[h] = storable(v, b, may, h) && limit.keeps(&v.Hosts[h])
	}
	if storable(v, b, may, b.Client) { // the first replica stays with the writer
		s.home = s.f.RackOf(b.Client)
		s.take(b.Client)
	}
	if w.form == Edge && !s.byHosts() || w.form != Edge && !s.byRacks(s.home >= 0 && c.Faults > 0) {
		return nil, false, nil
	}
	return nearestNextChain(v.Fabric, b.Client, s.hosts), true, nil
}

// selection is one attempt at a block.
type selection struct {
	way
	f      *topo.Fabric
	order  []topo.HostID
	spread spread
	home   topo.RackID // where the writer's replica is; −1 without
	fit    []bool      // may still be chosen, by HostID
	hosts  []topo.HostID

	// Where in the orders of hosts and racks the next comparison begins.
	nextHost, nextRack int
}

func (s *selection) take(h topo.HostID) {
	s.hosts = append(s.hosts, h)
	s.spread.add(s.f.RackOf(h))
	s.fit[h] = false
}

// byHosts chooses the best hosts one by one.
func (s *selection) byHosts() bool {
	for s.spread.left > 0 {
		h := s.best(func(h topo.HostID) bool { return s.spread.fits(s.f.RackOf(h), 1) })
		if h < 0 {
			return false
		}
		s.take(h)
	}
	return true
}

// best is the host with the most expected capacity that may be taken, −1 where
// none may.
func (s *selection) best(may func(topo.HostID) bool) topo.HostID {
	best, most, seen, at := topo.HostID(-1), units.Rate(0), 0, s.nextHost
	for range s.order {
		h := s.order[at]
		if at++; at == len(s.order) {
			at = 0
		}
		if !s.fit[h] || !may(h) {
			continue
		}
		if seen++; s.among == 1 {
			return h
		}
		if rate := s.expected(h); best < 0 || rate > most {
			best, most = h, rate
		}
		if seen == s.among {
			s.nextHost = at
			break
		}
	}
	return best
}

func (s *selection) expected(h topo.HostID) units.Rate {
	rate := s.loads.ofHost(h)
	if r := s.f.RackOf(h); s.path && s.form == Edge && r != s.home && s.f.Racks() > 1 {
		rate = min(rate, s.loads.ofRack(r))
	}
	return rate
}

// byRacks chooses the best racks one by one and in each the best one or two
// hosts. A rack in which there are too few is passed over for the next.
func (s *selection) byRacks(notHome bool) bool {
	racks := make([]topo.RackID, 0, s.f.Racks()) // by their first host in the order
	count := make([]int, s.f.Racks())
	for _, h := range s.order {
		r := s.f.RackOf(h)
		if !s.fit[h] || notHome && r == s.home {
			continue
		}
		if count[r]++; count[r] == 1 {
			racks = append(racks, r)
		}
	}
	for s.spread.left > 0 {
		r := s.bestRack(racks, count)
		if r < 0 {
			return false
		}
		for range s.perRack(r) {
			s.take(s.best(func(h topo.HostID) bool { return s.f.RackOf(h) == r }))
		}
		count[r] = 0
	}
	return true
}

// bestRack is the rack with the most expected capacity that can get as many
// replicas as are due, −1 where none can.
func (s *selection) bestRack(racks []topo.RackID, count []int) topo.RackID {
	best, most, seen, at := topo.RackID(-1), units.Rate(0), 0, s.nextRack
	for range racks {
		r := racks[at]
		if at++; at == len(racks) {
			at = 0
		}
		if n := s.perRack(r); n == 0 || count[r] < n {
			continue
		}
		if seen++; s.among == 1 {
			return r
		}
		if rate := s.loads.ofRack(r); best < 0 || rate > most {
			best, most = r, rate
		}
		if seen == s.among {
			s.nextRack = at
			break
		}
	}
	return best
}

// perRack is how many replicas a rack that is chosen now gets; 0 if it may not be.
func (s *selection) perRack(r topo.RackID) int {
	switch {
	case s.form == SameRack && s.spread.left > 1 && s.spread.fits(r, 2):
		return 2
	case s.spread.fits(r, 1):
		return 1
	}
	return 0
}
