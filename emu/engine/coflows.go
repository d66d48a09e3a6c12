package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"testbed/emu/engine/tracker"
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
	active  []*coflow // those with unfinished flows, by arrival, ties by ID
	waiting []*coflow // those of active whose flows have not been started
	byFlow  map[workloads.FlowID]*flow
	failed  map[workloads.FlowID]bool // failed flows, about which events may still arrive
	open    map[workloads.CoflowID]*coflow
	grown   []*coflow // open coflows that flows have joined in the current step
	look    bool      // look for flows without progress in the current step
	cuts    bool      // a flow's path may contain a link that is down
}

func newCoflows(shared *core) coflows {
	return coflows{core: shared, byFlow: map[workloads.FlowID]*flow{}, failed: map[workloads.FlowID]bool{}, open: map[workloads.CoflowID]*coflow{}}
}

type coflow struct {
	// Coflow.State has all facts, also those that the policy does not need. Its Left, Links,
	// Finished, Median and Flows are unused.
	coordinator.Coflow

	all    []*flow // by place: sorted by ID
	flows  []*flow // unfinished flows, sorted by ID unless it is free
	demand *alloc.Demand

	finished []units.Bytes // sizes of flows that have finished, ascending

	// State from the newest decision.
	sending []int32 // places of flows with a rate cap above 0
	speed   float64 // maximum total rate, bit/s

	read *workloads.BlockID // the block of a read; nil for other coflows

	load map[topo.LinkID]units.Bytes // of all flows so far, by link; nil if it is free
	host topo.HostID                 // that marks its arrival and, of an open coflow, its end
	open bool                        // flows may join it
	free bool                        // the policy never limits it: control does not see it
}

type flow struct {
	workloads.Flow
	coflow     *coflow
	place      int
	at         int // index in coflow.flows, if its coflow is free
	hash       uint32
	task       *TaskTransfer // that it serves; nil for none
	fetch      tracker.FetchID
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

// origin is what the engine knows of a flow besides its ends and size.
type origin struct {
	hash func(workloads.FlowID) uint32 // selects its path
	read *workloads.BlockID            // the block of a read; nil for other flows
	task *TaskTransfer                 // nil for a flow that serves no task
	// fetch is the fetch of a task that it carries out; 0 for other flows.
	fetch tracker.FetchID
}

// arrived registers a coflow.
func (x *coflows) arrived(c workloads.Coflow, from origin) error {
	if len(c.Flows) == 0 {
		return fmt.Errorf("coflow %d has no flows", c.ID)
	}
	st := x.newCoflow(c.ID)
	st.read, st.free = from.read, from.task != nil && x.unlimited()
	for _, f := range c.Flows {
		if err := x.add(st, f, from); err != nil {
			return err
		}
	}
	slices.SortFunc(st.all, func(a, b *flow) int { return cmp.Compare(a.ID, b.ID) })
	st.flows = slices.Clone(st.all)
	st.locate()
	if !st.free {
		x.rebuild(st)
		x.activate(st)
	}
	first := st.all[0]
	st.host = x.living(first.Src, first.Dst)
	x.command(Mark{Kind: MarkCoflow, ID: int(c.ID), Host: st.host, Parts: len(st.all), Size: c.Size()})
	x.begin(st, st.all)
	return nil
}

// unlimited reports whether flows start at once and have no rate caps.
func (x *coflows) unlimited() bool {
	return x.cfg.Control.Latency == 0 && policies.IsUnlimited(x.cfg.Coflow) && (x.cfg.Fork == nil || x.cfg.Fork.Unlimited)
}

func (x *coflows) newCoflow(id workloads.CoflowID) *coflow {
	c := &coflow{}
	c.State = policies.CoflowState{ID: id, Arrival: x.now, Since: x.now}
	return c
}

// activate lists a coflow with unfinished flows.
func (x *coflows) activate(c *coflow) {
	at := sort.Search(len(x.active), func(i int) bool {
		o := &x.active[i].State
		return o.Arrival > c.State.Arrival || o.Arrival == c.State.Arrival && o.ID > c.State.ID
	})
	x.active = slices.Insert(x.active, at, c)
}

// begin announces new flows of a coflow, which control starts, or starts those without rate caps.
func (x *coflows) begin(c *coflow, flows []*flow) {
	x.look = true
	if c.free {
		for _, f := range flows {
			if f.ceiling = policies.NoLimit; x.lostOf(f.Src, f.Dst) < 0 {
				x.startFlow(f, f.ceiling)
			}
		}
	} else {
		if !slices.Contains(x.waiting, c) {
			x.waiting = append(x.waiting, c)
		}
		began := coflowBegan{make([]topo.HostID, len(flows))}
		for i, f := range flows {
			began.from[i] = f.Src
		}
		x.send(began)
	}
	for _, f := range slices.Clone(flows) {
		if h := x.lostOf(f.Src, f.Dst); h >= 0 {
			x.fail(f, x.lostWhy(h))
		}
	}
}

func (x *coflows) startFlow(f *flow, ceiling units.Rate) {
	f.started = true
	x.command(StartTransfer{Coflow: f.coflow.State.ID, Flow: f.Flow, Hash: f.hash, Ceiling: ceiling, Read: f.coflow.read, Task: f.task})
}

// locate updates the places of flows in flows.
func (c *coflow) locate() {
	for i, f := range c.flows {
		f.at = i
	}
}

// each calls f for all coflows with unfinished flows: first those that control sees, then the free ones
// by ID. Their flows are sorted by ID.
func (x *coflows) each(f func(*coflow)) {
	for _, c := range x.active {
		f(c)
	}
	var free []*coflow
	for _, fl := range x.byFlow {
		if fl.coflow.free && fl == fl.coflow.flows[0] {
			free = append(free, fl.coflow)
		}
	}
	slices.SortFunc(free, func(a, b *coflow) int { return cmp.Compare(a.State.ID, b.State.ID) })
	for _, c := range free {
		slices.SortFunc(c.flows, func(a, b *flow) int { return cmp.Compare(a.ID, b.ID) })
		c.locate()
		f(c)
	}
}

// opened registers an open coflow without flows, which flows join until it is closed. host marks it.
func (x *coflows) opened(id workloads.CoflowID, host topo.HostID) {
	c := x.newCoflow(id)
	c.open, c.host, c.free = true, host, x.unlimited()
	x.open[id] = c
	x.command(Mark{Kind: MarkCoflow, ID: int(id), Host: x.living(host)})
}

// join adds a flow to an open coflow. Its ID must be above those of the other flows.
func (x *coflows) join(id workloads.CoflowID, f workloads.Flow, from origin) error {
	c := x.open[id]
	if c == nil {
		return fmt.Errorf("flow %d joins coflow %d: it is not open", f.ID, id)
	}
	if err := x.add(c, f, from); err != nil {
		return err
	}
	joined := c.all[len(c.all)-1]
	if c.free {
		c.all = c.all[:0]
	} else {
		if len(c.flows) == 0 {
			x.activate(c)
		}
		if !slices.Contains(x.grown, c) {
			x.grown = append(x.grown, c)
		}
	}
	joined.at = len(c.flows)
	c.flows = append(c.flows, joined)
	x.begin(c, []*flow{joined})
	return nil
}

// closed ends an open coflow, which has no unfinished flow.
func (x *coflows) closed(id workloads.CoflowID) {
	c := x.open[id]
	delete(x.open, id)
	x.command(Mark{Kind: MarkCoflowClosed, ID: int(id), Host: x.living(c.host), Parts: c.State.Width, Size: c.State.Size})
	x.send(coflowEnded{id, c.free})
}

// stop ends a flow that is no longer needed.
func (x *coflows) stop(id workloads.FlowID, why string) {
	if f := x.byFlow[id]; f != nil {
		x.cut(f, MarkFlowStopped, why)
	}
}

// grow rebuilds the demands of the coflows that flows have joined in the current step.
func (x *coflows) grow() {
	for _, c := range x.grown {
		if len(c.flows) == 0 {
			continue // all of its flows have ended at once
		}
		var sending []*flow
		for _, place := range c.sending {
			if f := c.all[place]; !f.ended {
				sending = append(sending, f)
			}
		}
		c.all = append(c.all[:0:0], c.flows...)
		x.rebuild(c)
		c.sending = c.sending[:0]
		for _, f := range sending {
			c.sending = append(c.sending, int32(f.place))
		}
	}
	x.grown = x.grown[:0]
}

// add adds a flow to the facts about its coflow.
func (x *coflows) add(c *coflow, f workloads.Flow, from origin) error {
	st := &c.State
	if f.Src == f.Dst || f.Size <= 0 || !x.known(f.Src) || !x.known(f.Dst) {
		return fmt.Errorf("coflow %d: flow %d of %v from host %d to host %d: must have a positive size and two different hosts of the fabric", st.ID, f.ID, f.Size, f.Src, f.Dst)
	}
	if x.byFlow[f.ID] != nil {
		return fmt.Errorf("coflow %d: flow %d has already arrived", st.ID, f.ID)
	}
	if st.Size > math.MaxInt64-f.Size {
		return fmt.Errorf("coflow %d: the total size of its flows exceeds %v", st.ID, units.Bytes(math.MaxInt64))
	}
	h := from.hash(f.ID)
	fl := &flow{Flow: f, coflow: c, place: unplaced, hash: h, task: from.task, fetch: from.fetch, path: x.cfg.Fabric.Path(f.Src, f.Dst, h), cut: -1}
	c.all = append(c.all, fl)
	x.byFlow[f.ID] = fl
	st.Width++
	st.Size += f.Size
	st.Remaining += f.Size
	st.Largest = max(st.Largest, f.Size)
	if c.free { // no policy sees it
		return nil
	}
	if c.load == nil {
		c.load = map[topo.LinkID]units.Bytes{}
	}
	for _, l := range fl.path {
		c.load[l] += f.Size
		rate := x.cfg.Capacity[l]
		if rate == 0 {
			rate = x.cfg.Fabric.Link(l).Rate // it is down
		}
		st.Bound = max(st.Bound, rate.TimeToSend(c.load[l]))
	}
	if c.load[x.cfg.Fabric.HostUp(f.Src)] == f.Size {
		st.Senders++
	}
	if c.load[x.cfg.Fabric.HostDown(f.Dst)] == f.Size {
		st.Receivers++
	}
	return nil
}

// unplaced is the place of a flow that is not part of its coflow's demand yet.
const unplaced = -1

// rebuild computes the demand of a coflow from its flows, of which none has ended.
func (x *coflows) rebuild(c *coflow) {
	demand := make([]alloc.Flow, len(c.all))
	for i, f := range c.all {
		f.place = i
		demand[i] = alloc.Flow{ID: f.ID, Size: f.Size, Links: f.path}
	}
	c.demand = alloc.NewDemand(demand, len(x.cfg.Capacity))
	for _, f := range c.all {
		if f.sent > 0 {
			c.demand.SetLeft(f.place, 8*float64(f.remaining()))
			c.demand.Begin(f.place)
		}
		if f.pilot {
			c.demand.MakePilot(f.place)
		}
	}
}

func (c *core) known(h topo.HostID) bool { return h >= 0 && int(h) < len(c.hosts) }

// progressed updates the bytes that the receiver of a flow has; nil is one that is not running.
func (x *coflows) progressed(id workloads.FlowID, f *flow, n units.Bytes) error {
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
	if f.place == unplaced {
		return
	}
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
	if !c.free {
		at, _ := slices.BinarySearch(c.finished, f.Size)
		c.finished = slices.Insert(c.finished, at, f.Size)
	}
	x.end(f, false, "")
	return nil
}

// end removes an ended flow, and its coflow after the last flow.
func (x *coflows) end(f *flow, failed bool, why string) {
	c := f.coflow
	f.ended = true
	delete(x.byFlow, f.ID)
	if c.free { // a shuffle of a task scheduler can have thousands of flows
		last := len(c.flows) - 1
		c.flows[f.at] = c.flows[last]
		c.flows[f.at].at = f.at
		c.flows[last] = nil
		c.flows = c.flows[:last]
	} else if at, ok := slices.BinarySearchFunc(c.flows, f.ID, func(f *flow, id workloads.FlowID) int { return cmp.Compare(f.ID, id) }); ok {
		c.flows = slices.Delete(c.flows, at, at+1)
	}
	c.State.Remaining -= f.remaining()
	if f.place != unplaced {
		c.demand.End(f.place)
	}
	lastPilot := f.pilot && c.PilotEnded(f.sent)
	x.send(flowEnded{
		coflow: c.State.ID, id: f.ID, src: f.Src, dst: f.Dst, size: f.Size, fetch: f.fetch,
		failed: failed, why: why, lastPilot: lastPilot, free: c.free,
	})
	if len(c.flows) > 0 {
		return
	}
	if !c.free {
		is := func(o *coflow) bool { return o == c }
		x.active = slices.DeleteFunc(x.active, is)
		x.waiting = slices.DeleteFunc(x.waiting, is)
	}
	if !c.open {
		x.send(coflowEnded{c.State.ID, c.free})
	}
}
