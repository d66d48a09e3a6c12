package tracesim

import (
	"cmp"
	"slices"
	"sort"

	"testbed/policies"
	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// arrive takes in the coflows that have arrived.
func (s *sim) arrive() error {
	for len(s.arrivals) > 0 && s.now.Until(s.coflows[s.arrivals[0]].Arrival) <= 0 {
		at := s.arrivals[0]
		s.arrivals = s.arrivals[1:]
		c, err := s.register(at)
		if err != nil {
			return err
		}
		i := sort.Search(len(s.active), func(i int) bool {
			o := &s.active[i].state
			return o.Arrival > c.state.Arrival || o.Arrival == c.state.Arrival && o.ID > c.state.ID
		})
		if s.counter != nil {
			s.counter.arrived(c.flows, s.now)
		}
		s.active = slices.Insert(s.active, i, c)
		s.view.Coflows = slices.Insert(s.view.Coflows, i, policies.CoflowState{})
		s.moved = s.now
		if s.when.Coflows {
			s.pending = true
		}
	}
	return nil
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
	demand := make([]rates.Flow, len(c.flows))
	load := map[topo.LinkID]units.Bytes{}
	senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
	r := &s.result.Coflows[at]
	*r = Coflow{ID: in.ID, Arrival: in.Arrival, Width: len(c.flows), Size: in.Size()}
	for i, fl := range c.flows {
		links := s.path(f, fl)
		demand[i] = rates.Flow{ID: fl.ID, Size: fl.Size, Links: links}
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
	c.demand = rates.NewDemand(demand, len(s.capacity))
	if s.joint {
		c.demand.Join()
	}
	c.sizes = newSizes(c.flows)
	c.state = policies.CoflowState{ID: in.ID, Arrival: in.Arrival, Width: len(c.flows), Senders: len(senders), Receivers: len(receivers), Left: len(c.flows), Since: in.Arrival}
	if s.needs&policies.Sizes != 0 {
		c.state.Remaining = r.Size
	}
	if s.needs&(policies.Sizes|policies.Totals) != 0 {
		c.state.Size, c.state.Largest, c.state.Bound = r.Size, r.Largest, r.Bound
	}
	return c, nil
}

// path is the links a flow crosses. Flows of the same path share the slice.
func (s *sim) path(f *topo.Fabric, fl workloads.Flow) []topo.LinkID {
	key := path{fl.Src, fl.Dst, -1}
	var hash uint32
	if f.RackOf(fl.Src) != f.RackOf(fl.Dst) {
		hash = workloads.FlowHash(s.cfg.Seed, fl.ID)
		key.spine, _ = f.SpineFor(fl.Src, fl.Dst, hash)
	}
	links, known := s.paths[key]
	if !known {
		links = f.Path(fl.Src, fl.Dst, hash)
		s.paths[key] = links
	}
	return links
}
