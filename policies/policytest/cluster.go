package policytest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Cluster is a small cluster whose coflows arrive, move and end, as a caller of a
// policies.Scheduler keeps its books: what the scheduler said of queues, pilots and
// memory is shown to it again. What happens next does not depend on the rates of
// its schedules.
type Cluster struct {
	view    policies.View // without coflows
	coflows []*coflow     // arrived and unfinished, in order of arrival, ties by ID
	coming  []*coflow     // in order of arrival, their times not known yet
	memory  []int64
	luck    *rand.Rand
	rounds  int
}

type coflow struct {
	state policies.CoflowState // what does not follow from flows
	flows []*flow              // by ID
	new   bool                 // no schedule has been taken since it arrived
}

type flow struct {
	policies.FlowState // Remaining is not kept
	ended              bool
}

// Clusters are random: small leaf-spines, some with links that are down, and up
// to six coflows at a time, whose IDs have gaps and are not in order of arrival.
func Clusters() *rapid.Generator[*Cluster] {
	return rapid.Custom(func(t *rapid.T) *Cluster {
		v := baseView(t)
		fillHosts(t, v)
		c := &Cluster{view: *v, rounds: rapid.IntRange(0, 3).Draw(t, "rounds"), luck: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "luck"), 1))}
		ids := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(t, "IDs")
		for i := range rapid.IntRange(0, 6).Draw(t, "coflows") {
			c.coming = append(c.coming, c.draw(t, ids[i]))
		}
		c.arrive(rapid.IntRange(0, len(c.coming)).Draw(t, "at first"))
		return c
	})
}

// Views are those of Clusters, with nothing hidden, at a moment at which no
// schedule has been taken yet: no coflow has a queue or pilots.
func Views() *rapid.Generator[*policies.View] {
	return rapid.Map(Clusters(), func(c *Cluster) *policies.View {
		for c.Next() {
		}
		return c.View(policies.Sizes | policies.LinkLoad | policies.DiskUse | policies.Flows)
	})
}

// draw is a coflow that has not arrived.
func (c *Cluster) draw(t *rapid.T, id int) *coflow {
	f := c.view.Fabric
	x := &coflow{new: true}
	x.state.ID = workloads.CoflowID(id)
	senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
	load := make([]units.Bytes, len(c.view.Capacity))
	x.state.Width = rapid.IntRange(1, 11).Draw(t, "flows")
	for j := range x.state.Width {
		src := topo.HostID(rapid.IntRange(0, f.Hosts()-1).Draw(t, "src"))
		dst := topo.HostID(rapid.IntRange(0, f.Hosts()-2).Draw(t, "dst"))
		if dst >= src {
			dst++
		}
		fl := &flow{FlowState: policies.FlowState{ID: workloads.FlowID(100*id + 2*j), Src: src, Dst: dst, Size: sizes().Draw(t, "size"),
			Path: f.Path(src, dst, uint32(rapid.IntRange(0, 5).Draw(t, "hash")))}}
		senders[src], receivers[dst] = true, true
		x.state.Size += fl.Size
		x.state.Largest = max(x.state.Largest, fl.Size)
		for _, l := range fl.Path {
			load[l] += fl.Size
		}
		x.flows = append(x.flows, fl)
	}
	x.state.Senders, x.state.Receivers = len(senders), len(receivers)
	for l, n := range load {
		rate := c.view.Capacity[l]
		if rate == 0 {
			rate = f.Link(topo.LinkID(l)).Rate // it is down
		}
		x.state.Bound = max(x.state.Bound, rate.TimeToSend(n))
	}
	return x
}

// arrive lets the next n coflows arrive now.
func (c *Cluster) arrive(n int) {
	for _, x := range c.coming[:n] {
		x.state.Arrival, x.state.Since = c.view.Now, c.view.Now
	}
	c.coflows = append(c.coflows, c.coming[:n]...)
	c.coming = c.coming[n:]
	slices.SortStableFunc(c.coflows, func(a, b *coflow) int {
		return cmp.Or(cmp.Compare(a.state.Arrival, b.state.Arrival), cmp.Compare(a.state.ID, b.state.ID))
	})
}

// Next goes on to a later moment and tells whether there was one: coflows have
// arrived, flows have moved, and some have ended.
func (c *Cluster) Next() bool {
	if c.rounds == 0 {
		return false
	}
	c.rounds--
	c.view.Now += time.Duration(c.luck.Int64N(3e9))
	for _, x := range c.coflows {
		for _, f := range x.flows {
			switch c.luck.IntN(4) {
			case 0:
				f.Sent, f.ended = f.Size, true
			case 1:
				f.Sent += units.Bytes(c.luck.Int64N(int64(f.Size-f.Sent) + 1)) // maybe all: its end is not known yet
			}
		}
	}
	c.coflows = slices.DeleteFunc(c.coflows, func(x *coflow) bool {
		return !slices.ContainsFunc(x.flows, func(f *flow) bool { return !f.ended })
	})
	c.arrive(c.luck.IntN(len(c.coming) + 1))
	return true
}

// View is the cluster as a policy with the given needs is shown it.
func (c *Cluster) View(needs policies.Knowledge) *policies.View {
	v := c.view
	v.Memory = c.memory
	for _, x := range c.coflows {
		s := x.describe(len(c.view.Capacity))
		if needs&policies.Flows == 0 && (!x.new || needs&policies.NewFlows == 0) {
			s.Flows = slices.DeleteFunc(s.Flows, func(f policies.FlowState) bool { return needs&policies.PilotFlows == 0 || !f.Pilot })
		}
		v.Coflows = append(v.Coflows, s)
	}
	return Mask(&v, needs)
}

// describe is the coflow with all that follows from its flows.
func (x *coflow) describe(links int) policies.CoflowState {
	s := x.state
	on := make([]policies.LinkState, links)
	var ended []units.Bytes
	for _, f := range x.flows {
		s.Sent += f.Sent
		s.MostSent = max(s.MostSent, f.Sent)
		for _, l := range f.Path {
			on[l].Begun = on[l].Begun || f.Sent > 0
		}
		if f.Pilot {
			s.Pilots++
		}
		if f.ended {
			ended = append(ended, f.Size)
			if f.Pilot {
				s.PilotSent += f.Size
			}
			continue
		}
		if f.Pilot {
			s.PilotsLeft++
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

// Take keeps what a schedule for the present View says besides its steps.
func (c *Cluster) Take(s *policies.Schedule) {
	for i, x := range c.coflows {
		x.new = false
		if len(s.Queues) > 0 && s.Queues[i] != x.state.Queue {
			x.state.Queue, x.state.Since = s.Queues[i], c.view.Now
		}
		for _, f := range x.flows {
			f.Pilot = f.Pilot || slices.Contains(s.Pilots, f.ID)
		}
	}
	if s.Memory != nil {
		c.memory = slices.Clone(s.Memory)
	}
}
