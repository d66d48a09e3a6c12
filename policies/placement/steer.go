package placement

import (
	"errors"
	"fmt"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Form selects the links by which hosts are compared and the spread of the replicas.
// Different forms move different numbers of bytes between racks, so only arms of the
// same form can be compared.
type Form uint8

const (
	// Auto is SameRack if the rack links are the bottleneck, which means that they are
	// oversubscribed. Otherwise, and with a single rack, it is Edge.
	Auto Form = iota
	// Literal is Sinbad's pseudocode as written (V1): each replica in a different rack,
	// chosen by the rack links, and there on the best host. Its baseline is
	// Uniform.TwoRacks.
	Literal
	// SameRack puts pairs of replicas into racks, as HDFS does (V2): chosen by the rack
	// links, and there on the best two hosts. Its baseline is HDFS.
	SameRack
	// Edge compares only the links of hosts, in any rack (VE), as in Sinbad's cluster
	// experiments. Its baseline is Uniform.
	Edge
)

// Fallback selects the policy that places blocks that are not steered.
type Fallback uint8

const (
	// Baseline is the baseline of the form.
	Baseline Fallback = iota
	ToHDFS
	ToTwoRacks
	ToEdge
)

// Steering holds the common settings of policies that choose by link loads.
type Steering struct {
	Form Form
	Constraints
	// Fallback places the blocks for which too few hosts satisfy the constraints. It still
	// obeys Constraints.Hosts.
	Fallback Fallback
	// HDFS holds the settings of the fallback ToHDFS, except Hosts, which is that of the
	// Constraints.
	HDFS HDFS
}

// DefaultSteering returns Sinbad's steering.
func DefaultSteering() Steering {
	return Steering{Constraints: DefaultConstraints(), HDFS: DefaultHDFS()}
}

func (s Steering) check() error {
	var errs []error
	if s.Form > Edge {
		errs = append(errs, fmt.Errorf("form %d: must be Auto, Literal, SameRack or Edge", s.Form))
	}
	if s.Fallback > ToEdge {
		errs = append(errs, fmt.Errorf("fallback %d: must be Baseline, ToHDFS, ToTwoRacks or ToEdge", s.Fallback))
	}
	return errors.Join(append(errs, s.Constraints.check())...)
}

// form returns the form for a fabric, which is never Auto.
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

// leafBound reports whether the bottleneck links are those to the racks. The bottleneck
// level is the one with the highest oversubscription, in a tie the one farthest from the
// core (Sinbad, SIGCOMM 2013). The host links have oversubscription 1. A value up to
// 1.001 counts as 1, because rates may not divide evenly.
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

// fallback returns the fallback policy for a form.
func (s Steering) fallback(form Form) interface {
	place(*policies.PlacementView, workloads.Block, []topo.HostID) ([]topo.HostID, error)
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

// steer places a block by the given criteria, or by the fallback if too few hosts satisfy
// the constraints.
func (s Steering) steer(v *policies.PlacementView, b workloads.Block, order []topo.HostID, by criteria) ([]topo.HostID, error) {
	by.form = s.form(v.Fabric)
	hosts, ok, err := s.choose(v, b, order, by)
	if err != nil || ok {
		return hosts, err
	}
	return s.fallback(by.form).place(v, b, order)
}

// criteria define how hosts are chosen among those that the constraints allow.
type criteria struct {
	form  Form // not Auto
	loads *loads
	// candidates is the number of hosts or racks compared for each choice, in the random
	// order; each choice uses new ones while there are any. 0 compares all. 1 needs no
	// loads.
	candidates int
	// wholePath compares hosts and racks by all receiving links on the path to a replica, each
	// of which may be the bottleneck: the least expected capacity counts. Otherwise only the
	// links of the form count: those of hosts for Edge, those of racks for the others.
	wholePath bool
}

// choose returns hosts in pipeline order. It returns false if too few hosts satisfy the
// constraints for all replicas. Candidates are compared in the given random order, and
// the first of the best is chosen, which breaks ties.
func (c Constraints) choose(v *policies.PlacementView, b workloads.Block, order []topo.HostID, by criteria) ([]topo.HostID, bool, error) {
	allowed, err := allowedHosts(v.Fabric, c.Hosts)
	if err != nil {
		return nil, false, err
	}
	s := selection{criteria: by, f: v.Fabric, order: order, spread: c.spread(v, b.Replicas), home: -1, fit: make([]bool, len(v.Hosts)), hosts: make([]topo.HostID, 0, b.Replicas)}
	limit := c.balance(v)
	for h := range topo.HostID(len(v.Hosts)) {
		s.fit[h] = storable(v, b, allowed, h) && limit.allows(&v.Hosts[h])
	}
	if storable(v, b, allowed, b.Client) { // the first replica stays with the writer
		s.home = s.f.RackOf(b.Client)
		s.take(b.Client)
	}
	if by.form == Edge && !s.byHosts() || by.form != Edge && !s.byRacks(s.home >= 0 && c.Faults > 0) {
		return nil, false, nil
	}
	return nearestNextChain(v.Fabric, b.Client, s.hosts), true, nil
}

// selection is one attempt to place a block.
type selection struct {
	criteria
	f      *topo.Fabric
	order  []topo.HostID
	spread spread
	home   topo.RackID // rack of the writer's replica; −1 without one
	fit    []bool      // hosts that may still be chosen, by HostID
	hosts  []topo.HostID

	// Positions in the orders of hosts and racks at which the next comparison begins.
	nextHost, nextRack int
}

func (s *selection) take(h topo.HostID) {
	s.hosts = append(s.hosts, h)
	s.spread.add(s.f.RackOf(h))
	s.fit[h] = false
}

// byHosts chooses the best hosts one by one. It reports whether it found enough.
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

// best returns the eligible host with the most expected capacity, −1 without any.
func (s *selection) best(eligible func(topo.HostID) bool) topo.HostID {
	return bestOf(s, s.order, &s.nextHost, func(h topo.HostID) bool { return s.fit[h] && eligible(h) }, s.expected)
}

// bestOf returns the one with the most expected capacity of candidates that are eligible, from next on in a list, −1
// without any. The next comparison begins after them.
func bestOf[T ~int](s *selection, list []T, next *int, eligible func(T) bool, expected func(T) units.Rate) T {
	best, most, seen, at := T(-1), units.Rate(0), 0, *next
	for range list {
		x := list[at]
		if at++; at == len(list) {
			at = 0
		}
		if !eligible(x) {
			continue
		}
		if seen++; s.candidates == 1 {
			return x
		}
		if rate := expected(x); best < 0 || rate > most {
			best, most = x, rate
		}
		if seen == s.candidates {
			*next = at
			break
		}
	}
	return best
}

func (s *selection) expected(h topo.HostID) units.Rate {
	rate := s.loads.ofHost(h)
	if r := s.f.RackOf(h); s.wholePath && s.form == Edge && r != s.home && s.f.Racks() > 1 {
		rate = min(rate, s.loads.ofRack(r))
	}
	return rate
}

// byRacks chooses the best racks one by one, and in each the best one or two hosts. It
// skips racks with too few eligible hosts, and the writer's rack if skipHome is set. It
// reports whether it found enough.
func (s *selection) byRacks(skipHome bool) bool {
	racks := make([]topo.RackID, 0, s.f.Racks()) // by their first host in the order
	count := make([]int, s.f.Racks())
	for _, h := range s.order {
		r := s.f.RackOf(h)
		if !s.fit[h] || skipHome && r == s.home {
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

// bestRack returns the rack with the most expected capacity that has room for its
// replicas, −1 without any.
func (s *selection) bestRack(racks []topo.RackID, count []int) topo.RackID {
	return bestOf(s, racks, &s.nextRack, func(r topo.RackID) bool {
		n := s.perRack(r)
		return n > 0 && count[r] >= n
	}, func(r topo.RackID) units.Rate { return s.expectedIn(r, s.perRack(r)) })
}

// expectedIn returns the expected capacity of a rack for n more replicas. Of the whole path,
// that is the capacity to the worst of its n best hosts. The writer's rack receives no
// replica over its rack links.
func (s *selection) expectedIn(r topo.RackID, n int) units.Rate {
	if !s.wholePath {
		return s.loads.ofRack(r)
	}
	var hosts []units.Rate
	for i := range s.f.Shape().HostsPerLeaf {
		if h := s.f.HostIn(r, i); s.fit[h] {
			hosts = append(hosts, s.loads.ofHost(h))
		}
	}
	slices.Sort(hosts)
	rate := hosts[len(hosts)-n]
	if r != s.home {
		rate = min(rate, s.loads.ofRack(r))
	}
	return rate
}

// perRack returns the number of replicas for a rack if it is chosen next; 0 if it must
// not be chosen.
func (s *selection) perRack(r topo.RackID) int {
	switch {
	case s.form == SameRack && s.spread.left > 1 && s.spread.fits(r, 2):
		return 2
	case s.spread.fits(r, 1):
		return 1
	}
	return 0
}
