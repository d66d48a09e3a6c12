package policytest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/coordinator"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Cluster is a small cluster whose coflows arrive, send and end. It keeps the state that
// a caller of a policies.CoflowScheduler keeps: queues and pilot flows of a schedule
// are part of the next View. Events do not depend on the rates of the schedules.
type Cluster struct {
	coordinator coordinator.Coordinator
	cluster     policies.Cluster
	coflows     []*coflow // arrived and unfinished, by arrival, ties by ID
	coming      []*coflow // not arrived, in order of arrival
	random      *rand.Rand
	rounds      int
}

type coflow struct {
	coordinator.Coflow         // without the fields of State that are computed from flows
	flows              []*flow // by ID
}

type flow struct {
	policies.FlowState // Remaining is unused
	ended              bool
}

// Clusters generates random clusters: small leaf-spine fabrics, some with links that are
// down, and up to six coflows at a time, whose IDs have gaps and are not in order of
// arrival.
func Clusters() *rapid.Generator[*Cluster] {
	return rapid.Custom(func(t *rapid.T) *Cluster {
		v := baseCluster(t)
		fillHosts(t, v)
		c := &Cluster{cluster: *v, rounds: rapid.IntRange(0, 3).Draw(t, "rounds"), random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 1))}
		ids := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(t, "IDs")
		for i := range rapid.IntRange(0, 6).Draw(t, "coflows") {
			c.coming = append(c.coming, c.draw(t, ids[i]))
		}
		c.arrive(rapid.IntRange(0, len(c.coming)).Draw(t, "at first"))
		return c
	})
}

// Views generates unmasked Views of Clusters without earlier decisions: no coflow has a
// queue or pilot flows.
func Views() *rapid.Generator[*policies.CoflowView] {
	return rapid.Map(Clusters(), func(c *Cluster) *policies.CoflowView {
		for c.Next() {
		}
		return c.View(everything)
	})
}

// draw returns a random coflow that has not arrived.
func (c *Cluster) draw(t *rapid.T, id int) *coflow {
	f := c.cluster.Fabric
	x := &coflow{}
	x.State.ID = workloads.CoflowID(id)
	senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
	load := make([]units.Bytes, len(c.cluster.Capacity))
	x.State.Width = rapid.IntRange(1, 11).Draw(t, "flows")
	for j := range x.State.Width {
		src := topo.HostID(rapid.IntRange(0, f.Hosts()-1).Draw(t, "src"))
		dst := topo.HostID(rapid.IntRange(0, f.Hosts()-2).Draw(t, "dst"))
		if dst >= src {
			dst++
		}
		fl := &flow{FlowState: policies.FlowState{ID: workloads.FlowID(100*id + 2*j), Src: src, Dst: dst, Size: sizes().Draw(t, "size"),
			Path: f.Path(src, dst, uint32(rapid.IntRange(0, 5).Draw(t, "hash")))}}
		senders[src], receivers[dst] = true, true
		x.State.Size += fl.Size
		x.State.Largest = max(x.State.Largest, fl.Size)
		for _, l := range fl.Path {
			load[l] += fl.Size
		}
		x.flows = append(x.flows, fl)
	}
	x.State.Senders, x.State.Receivers = len(senders), len(receivers)
	for l, n := range load {
		rate := c.cluster.Capacity[l]
		if rate == 0 {
			rate = f.Link(topo.LinkID(l)).Rate // it is down
		}
		x.State.Bound = max(x.State.Bound, rate.TimeToSend(n))
	}
	return x
}

// arrive makes the next n coflows arrive now.
func (c *Cluster) arrive(n int) {
	for _, x := range c.coming[:n] {
		x.State.Arrival, x.State.Since = c.cluster.Now, c.cluster.Now
	}
	c.coflows = append(c.coflows, c.coming[:n]...)
	c.coming = c.coming[n:]
	slices.SortStableFunc(c.coflows, func(a, b *coflow) int {
		return cmp.Or(cmp.Compare(a.State.Arrival, b.State.Arrival), cmp.Compare(a.State.ID, b.State.ID))
	})
}

// Next advances to a later moment, at which coflows have arrived, flows have sent and some
// have ended. It reports whether there is a later moment.
func (c *Cluster) Next() bool {
	if c.rounds == 0 {
		return false
	}
	c.rounds--
	c.cluster.Now += time.Duration(c.random.Int64N(3e9))
	for _, x := range c.coflows {
		for _, f := range x.flows {
			switch c.random.IntN(4) {
			case 0:
				if f.Pilot && !f.ended {
					x.PilotEnded(f.Size)
				}
				f.Sent, f.ended = f.Size, true
			case 1:
				f.Sent += units.Bytes(c.random.Int64N(int64(f.Size-f.Sent) + 1)) // possibly all, before its end is known
			}
		}
	}
	c.coflows = slices.DeleteFunc(c.coflows, func(x *coflow) bool {
		return !slices.ContainsFunc(x.flows, func(f *flow) bool { return !f.ended })
	})
	c.arrive(c.random.IntN(len(c.coming) + 1))
	return true
}

// View returns the View of the cluster for a policy with the given needs.
func (c *Cluster) View(needs policies.Facts) *policies.CoflowView {
	v := policies.CoflowView{Cluster: &c.cluster}
	c.coordinator.Needs = needs
	for _, x := range c.coflows {
		s := x.describe(len(c.cluster.Capacity))
		if all, pilots := c.coordinator.Shows(&x.Coflow); !all {
			s.Flows = slices.DeleteFunc(s.Flows, func(f policies.FlowState) bool { return !pilots || !f.Pilot })
		}
		v.Coflows = append(v.Coflows, s)
	}
	return Mask(&v, needs)
}

// describe returns the coflow's state, with all fields computed from its flows.
func (x *coflow) describe(links int) policies.CoflowState {
	s := x.State
	on := make([]policies.LinkState, links)
	var ended []units.Bytes
	for _, f := range x.flows {
		s.Sent += f.Sent
		s.MostSent = max(s.MostSent, f.Sent)
		for _, l := range f.Path {
			on[l].Begun = on[l].Begun || f.Sent > 0
		}
		if f.ended {
			ended = append(ended, f.Size)
			continue
		}
		shown := f.FlowState
		shown.Remaining = max(f.Size-f.Sent, 1)
		s.Left++
		s.Remaining += shown.Remaining
		s.Flows = append(s.Flows, shown)
		for _, l := range f.Path {
			on[l].Link = l
			on[l].Flows++
			on[l].Remaining += shown.Remaining
			if f.Pilot {
				on[l].Pilots++
			}
		}
	}
	s.Links = slices.DeleteFunc(on, func(l policies.LinkState) bool { return l.Flows == 0 })
	slices.Sort(ended)
	if s.Finished = len(ended); s.Finished > 0 {
		s.Median = ended[(s.Finished-1)/2]
	}
	return s
}

// Take stores the queues and pilot flows of a schedule for the current View.
func (c *Cluster) Take(s *policies.Schedule) {
	c.coordinator.Accept(c.cluster.Now, s)
	for i, x := range c.coflows {
		c.coordinator.Take(s, i, &x.Coflow)
		for _, f := range x.flows {
			if !f.Pilot && slices.Contains(s.Pilots, f.ID) {
				f.Pilot = true
				x.AddPilot()
			}
		}
	}
}
