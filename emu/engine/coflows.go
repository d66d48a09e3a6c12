package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/policies/coordinator"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// coflows is the sub-machine that tracks coflows: registration, progress, ends. control.go
// decides their rates.
type coflows struct {
	*core
	active  []*coflow // by arrival, ties by ID
	waiting []*coflow // those of active whose flows have not been started
	byFlow  map[workloads.FlowID]*flow
	failed  map[workloads.FlowID]bool // failed flows, about which events may still arrive
	look    bool                      // look for flows without progress in the current step
	cuts    bool                      // a flow's path may contain a link that is down
}

func newCoflows(shared *core) coflows {
	return coflows{core: shared, byFlow: map[workloads.FlowID]*flow{}, failed: map[workloads.FlowID]bool{}}
}

type coflow struct {
	// Coflow.State has all facts, also those that the policy does not need. Its Left, Links,
	// Finished, Median and Flows are unused.
	coordinator.Coflow

	all    []*flow // by place: sorted by ID
	flows  []*flow // unfinished flows
	demand *alloc.Demand

	finished []units.Bytes // sizes of flows that have finished, ascending

	// State from the newest decision.
	sending []int32 // places of flows with a rate cap above 0
	speed   float64 // maximum total rate, bit/s

	read *workloads.BlockID // the block of a read; nil for other coflows
}

type flow struct {
	workloads.Flow
	coflow     *coflow
	place      int
	hash       uint32
	path       []topo.LinkID
	cut        time.Duration // time since which a link of its path is down without progress; -1 if none is down
	sent       units.Bytes
	started    bool
	ended      bool
	pilot      bool
	ceiling    units.Rate // rate cap of the newest decision
	newCeiling units.Rate // rate cap of the decision in progress
}

// remaining is at least 1: a flow whose last byte is in but whose completion has
// not been reported yet still counts as one byte.
func (f *flow) remaining() units.Bytes { return max(f.Size-f.sent, 1) }

// arrived registers a coflow, whose flows take the paths that hash selects. read is the block of
// a read, nil for other coflows.
func (x *coflows) arrived(c workloads.Coflow, hash func(workloads.FlowID) uint32, read *workloads.BlockID) error {
	if len(c.Flows) == 0 {
		return fmt.Errorf("coflow %d has no flows", c.ID)
	}
	st := &coflow{read: read}
	st.State = policies.CoflowState{ID: c.ID, Arrival: x.now, Since: x.now, Width: len(c.Flows)}
	for _, f := range c.Flows {
		if f.Src == f.Dst || f.Size <= 0 || !x.known(f.Src) || !x.known(f.Dst) {
			return fmt.Errorf("coflow %d: flow %d of %v from host %d to host %d: must have a positive size and two different hosts of the fabric", c.ID, f.ID, f.Size, f.Src, f.Dst)
		}
		if x.byFlow[f.ID] != nil {
			return fmt.Errorf("coflow %d: flow %d has already arrived", c.ID, f.ID)
		}
		h := hash(f.ID)
		fl := &flow{Flow: f, coflow: st, hash: h, path: x.cfg.Fabric.Path(f.Src, f.Dst, h), cut: -1}
		st.all = append(st.all, fl)
		x.byFlow[f.ID] = fl
	}
	slices.SortFunc(st.all, func(a, b *flow) int { return cmp.Compare(a.ID, b.ID) })
	if err := x.measure(st); err != nil {
		return err
	}
	at := sort.Search(len(x.active), func(i int) bool {
		o := &x.active[i].State
		return o.Arrival > st.State.Arrival || o.Arrival == st.State.Arrival && o.ID > st.State.ID
	})
	x.active = slices.Insert(x.active, at, st)
	x.waiting = append(x.waiting, st)
	x.look = true
	began := coflowBegan{make([]topo.HostID, len(st.all))}
	for i, f := range st.all {
		began.from[i] = f.Src
	}
	x.send(began)
	first := st.all[0]
	x.command(Mark{Kind: MarkCoflow, ID: int(c.ID), Host: x.living(first.Src, first.Dst), Parts: len(st.all), Size: c.Size()})
	for _, f := range st.all {
		if h := x.lostOf(f.Src, f.Dst); h >= 0 {
			x.fail(f, x.lostWhy(h))
		}
	}
	return nil
}

// measure computes the properties of a coflow at its arrival.
func (x *coflows) measure(c *coflow) error {
	c.flows = slices.Clone(c.all)
	st := &c.State
	demand := make([]alloc.Flow, len(c.all))
	load := map[topo.LinkID]units.Bytes{}
	for i, f := range c.all {
		f.place = i
		demand[i] = alloc.Flow{ID: f.ID, Size: f.Size, Links: f.path}
		if st.Size > math.MaxInt64-f.Size {
			return fmt.Errorf("coflow %d: the total size of its flows exceeds %v", st.ID, units.Bytes(math.MaxInt64))
		}
		st.Size += f.Size
		st.Largest = max(st.Largest, f.Size)
		for _, l := range f.path {
			load[l] += f.Size
		}
		if load[x.cfg.Fabric.HostUp(f.Src)] == f.Size {
			st.Senders++
		}
		if load[x.cfg.Fabric.HostDown(f.Dst)] == f.Size {
			st.Receivers++
		}
	}
	for l, n := range load {
		rate := x.cfg.Capacity[l]
		if rate == 0 {
			rate = x.cfg.Fabric.Link(l).Rate // it is down
		}
		st.Bound = max(st.Bound, rate.TimeToSend(n))
	}
	st.Remaining = st.Size
	c.demand = alloc.NewDemand(demand, len(x.cfg.Capacity))
	return nil
}

func (c *core) known(h topo.HostID) bool { return h >= 0 && int(h) < len(c.hosts) }

// progressed updates the bytes that a flow's receiver has.
func (x *coflows) progressed(id workloads.FlowID, n units.Bytes) error {
	f := x.byFlow[id]
	switch {
	case f == nil && x.failed[id]:
		return nil
	case f == nil:
		return fmt.Errorf("progress of flow %d: it is not running", id)
	case n < f.sent || n > f.Size:
		return fmt.Errorf("progress of flow %d: %d of %d bytes after %d", id, n, f.Size, f.sent)
	case n > f.sent && f.cut >= 0:
		f.cut = x.now // it still makes progress: restart the timer
	}
	f.receive(n)
	return nil
}

// receive updates the bytes that a flow's receiver has.
func (f *flow) receive(n units.Bytes) {
	c := f.coflow
	before := f.remaining()
	c.State.Sent += n - f.sent
	f.sent = n
	c.State.MostSent = max(c.State.MostSent, n)
	c.State.Remaining -= before - f.remaining()
	c.demand.SetLeft(f.place, 8*float64(f.remaining()))
	if n > 0 {
		c.demand.Begin(f.place) // also if all bytes were received and one still counts as remaining
	}
}

func (x *coflows) finished(id workloads.FlowID) error {
	x.look = true
	f := x.byFlow[id]
	if f == nil && x.failed[id] {
		return nil // its last byte arrived after it had failed
	}
	if f == nil || !f.started {
		return fmt.Errorf("flow %d finished: it is not running", id)
	}
	f.receive(f.Size)
	c := f.coflow
	at, _ := slices.BinarySearch(c.finished, f.Size)
	c.finished = slices.Insert(c.finished, at, f.Size)
	x.end(f, false, "")
	return nil
}

// end removes an ended flow, and its coflow after the last flow.
func (x *coflows) end(f *flow, failed bool, why string) {
	c := f.coflow
	f.ended = true
	delete(x.byFlow, f.ID)
	if at, ok := slices.BinarySearchFunc(c.flows, f.ID, func(f *flow, id workloads.FlowID) int { return cmp.Compare(f.ID, id) }); ok {
		c.flows = slices.Delete(c.flows, at, at+1)
	}
	c.State.Remaining -= f.remaining()
	c.demand.End(f.place)
	lastPilot := f.pilot && c.PilotEnded(f.sent)
	x.send(flowEnded{coflow: c.State.ID, id: f.ID, src: f.Src, dst: f.Dst, failed: failed, why: why, lastPilot: lastPilot})
	if len(c.flows) == 0 {
		is := func(o *coflow) bool { return o == c }
		x.active = slices.DeleteFunc(x.active, is)
		x.waiting = slices.DeleteFunc(x.waiting, is)
		x.send(coflowEnded{c.State.ID})
	}
}
