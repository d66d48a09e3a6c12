package flowsim

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// arrive adds the coflows that have arrived.
func (s *sim) arrive() error {
	for len(s.arrivals) > 0 && s.now.Until(s.coflows[s.arrivals[0]].Arrival) <= 0 {
		at := s.arrivals[0]
		s.arrivals = s.arrivals[1:]
		s.memory += s.memoryOf(at)
		if most := s.cfg.Memory; most > 0 && s.memory > most {
			return &MemoryError{fmt.Sprintf("%d coflows at once", len(s.active)+1), s.memory, most}
		}
		c, err := s.register(at)
		if err != nil {
			return err
		}
		i := sort.Search(len(s.active), func(i int) bool {
			o := &s.active[i].State
			return o.Arrival > c.State.Arrival || o.Arrival == c.State.Arrival && o.ID > c.State.ID
		})
		if s.counter != nil {
			s.counter.arrived(c.flows, s.now)
		}
		s.active = slices.Insert(s.active, i, c)
		s.view.Coflows = slices.Insert(s.view.Coflows, i, policies.CoflowState{})
		s.moved = s.now
		s.CoflowChanged(s.event())
	}
	return nil
}

func (s *sim) memoryOf(at int) units.Bytes {
	return MemoryOf(s.cfg.Scheduler, len(s.coflows[at].Flows), len(s.capacity))
}

func (s *sim) register(at int) (*coflow, error) {
	in := s.coflows[at]
	c := &coflow{at: at, flows: in.Flows, base: s.now, ended: s.now, soonest: far, last: far, pilots: far, limited: s.now, news: true}
	byID := func(a, b workloads.Flow) int { return cmp.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(c.flows, byID) {
		c.flows = slices.Clone(c.flows)
		slices.SortFunc(c.flows, byID)
	}
	f := s.cfg.Fabric
	c.bits = make([]float64, len(c.flows))
	demand := make([]alloc.Flow, len(c.flows))
	load := map[topo.LinkID]units.Bytes{}
	senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
	r := &s.result.Coflows[at]
	*r = Coflow{ID: in.ID, Arrival: in.Arrival, Width: len(c.flows), Size: in.Size()}
	for i, fl := range c.flows {
		links := s.path(f, fl)
		demand[i] = alloc.Flow{ID: fl.ID, Size: fl.Size, Links: links}
		senders[fl.Src], receivers[fl.Dst] = true, true
		for _, l := range links {
			load[l] += fl.Size
		}
		r.Largest = max(r.Largest, fl.Size)
		c.bits[i] = 8 * float64(fl.Size)
	}
	for l, n := range load {
		rate := s.cfg.Capacity[l]
		if rate == 0 {
			rate = f.Link(l).Rate // it is down
		}
		r.Bound = max(r.Bound, rate.TimeToSend(n))
	}
	c.demand = alloc.NewDemand(demand, len(s.capacity))
	if s.joint {
		c.demand.Join()
	}
	c.sizes = newSizes(c.flows)
	c.State = policies.CoflowState{ID: in.ID, Arrival: in.Arrival, Width: len(c.flows), Senders: len(senders), Receivers: len(receivers), Left: len(c.flows), Since: in.Arrival}
	if s.Needs.Has(policies.Sizes) {
		c.State.Remaining = r.Size
	}
	if s.Needs.Has(policies.Totals) {
		c.State.Size, c.State.Largest, c.State.Bound = r.Size, r.Largest, r.Bound
	}
	return c, nil
}

// mostPaths bounds the memory of paths.
const mostPaths = 1 << 16

// path returns the links that a flow crosses. Flows of the same path share the slice.
func (s *sim) path(f *topo.Fabric, fl workloads.Flow) []topo.LinkID {
	key := path{fl.Src, fl.Dst, -1}
	var hash uint32
	if f.RackOf(fl.Src) != f.RackOf(fl.Dst) {
		hash = workloads.FlowHash(s.cfg.Seed, fl.ID)
		key.spine, _ = f.SpineFor(fl.Src, fl.Dst, hash)
	}
	links, known := s.paths[key]
	if !known {
		if len(s.paths) >= mostPaths {
			clear(s.paths)
		}
		links = f.Path(fl.Src, fl.Dst, hash)
		s.paths[key] = links
	}
	return links
}
