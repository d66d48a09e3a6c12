package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// coflows is the sub-machine that keeps the books of coflows: registration,
// progress, ends. What they may send is decided in control.go.
type coflows struct {
	active  []*coflow // in order of arrival, ties by ID
	waiting []*coflow // of active: those whose flows have not been started
	byFlow  map[workloads.FlowID]*flow
	failed  map[workloads.FlowID]bool // of which news may still come in
}

type coflow struct {
	id                 workloads.CoflowID
	arrival            time.Duration
	senders, receivers int
	size, largest      units.Bytes
	bound              time.Duration

	all    []*flow // by place: in order of ID
	flows  []*flow // of them, the unfinished ones
	demand *rates.Demand

	sent, mostSent     units.Bytes
	remaining          units.Bytes
	finished           []units.Bytes // sizes of flows that have finished, ascending
	pilots, pilotsLeft int
	pilotSent          units.Bytes // by pilots that have ended

	// Of the newest decision.
	seen    bool // there was one
	queue   int
	since   time.Duration
	watch   int64
	sending []int32 // places of flows that were let send
	speed   float64 // bit/s, at most

	then   []workloads.Writer     // that start when it has ended
	failed map[topo.HostID]string // why not all of it will get to a host; kept where writers wait

	reader *reader // whose read it is; nil for none
}

type flow struct {
	workloads.Flow
	coflow  *coflow
	place   int
	hash    uint32
	path    []topo.LinkID
	cut     time.Duration // since when a link of its path is down and nothing came; -1 if none is
	sent    units.Bytes
	started bool
	ended   bool
	pilot   bool
	ceiling units.Rate // of the newest decision
	want    units.Rate // of the decision in progress
}

// remaining is at least 1: a flow whose last byte is in but whose completion has
// not been reported yet still counts as one byte.
func (f *flow) remaining() units.Bytes { return max(f.Size-f.sent, 1) }

func (e *Engine) coflowArrived(cmds []Command, ev CoflowArrived) ([]Command, error) {
	c := ev.Coflow
	if err := e.checkThen(ev); err != nil {
		return nil, err
	}
	if len(c.Flows) == 0 {
		return nil, fmt.Errorf("coflow %d has no flows", c.ID)
	}
	st := &coflow{id: c.ID, arrival: e.now, since: e.now, then: ev.Then}
	for _, f := range c.Flows {
		if f.Src == f.Dst || f.Size <= 0 || !e.known(f.Src) || !e.known(f.Dst) {
			return nil, fmt.Errorf("coflow %d: flow %d of %v from host %d to host %d: want a positive size and two different hosts of the fabric", c.ID, f.ID, f.Size, f.Src, f.Dst)
		}
		if e.coflows.byFlow[f.ID] != nil {
			return nil, fmt.Errorf("coflow %d: flow %d has arrived before", c.ID, f.ID)
		}
		hash := workloads.FlowHash(e.cfg.Seed, f.ID)
		fl := &flow{Flow: f, coflow: st, hash: hash, path: e.cfg.Fabric.Path(f.Src, f.Dst, hash), cut: -1}
		st.all = append(st.all, fl)
		e.coflows.byFlow[f.ID] = fl
	}
	slices.SortFunc(st.all, func(a, b *flow) int { return cmp.Compare(a.ID, b.ID) })
	if err := e.measure(st); err != nil {
		return nil, err
	}
	at := sort.Search(len(e.coflows.active), func(i int) bool {
		o := e.coflows.active[i]
		return o.arrival > st.arrival || o.arrival == st.arrival && o.id > st.id
	})
	e.coflows.active = slices.Insert(e.coflows.active, at, st)
	e.coflows.waiting = append(e.coflows.waiting, st)
	e.want(e.control.when.Coflows)
	first := st.all[0]
	cmds = append(cmds, Mark{Kind: MarkCoflow, ID: int(c.ID), Host: e.living(first.Src, first.Dst), Parts: len(st.all), Size: c.Size()})
	for _, f := range st.all {
		if h := e.lostOf(f.Src, f.Dst); h >= 0 {
			cmds = e.failFlow(cmds, f, e.lostWhy(h))
		}
	}
	return cmds, nil
}

// measure works out what of a coflow is known at its arrival.
func (e *Engine) measure(c *coflow) error {
	c.flows = slices.Clone(c.all)
	demand := make([]rates.Flow, len(c.all))
	load := map[topo.LinkID]units.Bytes{}
	for i, f := range c.all {
		f.place = i
		demand[i] = rates.Flow{ID: f.ID, Size: f.Size, Links: f.path}
		if c.size > math.MaxInt64-f.Size {
			return fmt.Errorf("coflow %d: its flows have more than %v together", c.id, units.Bytes(math.MaxInt64))
		}
		c.size += f.Size
		c.largest = max(c.largest, f.Size)
		for _, l := range f.path {
			load[l] += f.Size
		}
		if e.control.sends(f.Src); load[e.cfg.Fabric.HostUp(f.Src)] == f.Size {
			c.senders++
		}
		if load[e.cfg.Fabric.HostDown(f.Dst)] == f.Size {
			c.receivers++
		}
	}
	for l, n := range load {
		rate := e.cfg.Capacity[l]
		if rate == 0 {
			rate = e.cfg.Fabric.Link(l).Rate // it is down
		}
		c.bound = max(c.bound, rate.TimeToSend(n))
	}
	c.remaining = c.size
	c.demand = rates.NewDemand(demand, len(e.cfg.Capacity))
	return nil
}

func (e *Engine) known(h topo.HostID) bool { return h >= 0 && int(h) < len(e.hosts) }

func (e *Engine) transferProgressed(ev TransferProgressed) error {
	if len(ev.Flows) != len(ev.Received) {
		return fmt.Errorf("progress of %d flows with %d counts", len(ev.Flows), len(ev.Received))
	}
	for i, id := range ev.Flows {
		f := e.coflows.byFlow[id]
		if f == nil && (e.coflows.failed[id] || e.reads.local[id] != nil) {
			continue
		}
		if f == nil {
			return fmt.Errorf("progress of flow %d, which is not running", id)
		}
		if n := ev.Received[i]; n < f.sent || n > f.Size {
			return fmt.Errorf("progress of flow %d: %d of %d bytes after %d", id, n, f.Size, f.sent)
		}
		if ev.Received[i] > f.sent && f.cut >= 0 {
			f.cut = e.now // it moves all the same: count anew
		}
		f.receive(ev.Received[i])
	}
	return nil
}

// receive counts what a flow's receiver has.
func (f *flow) receive(n units.Bytes) {
	c := f.coflow
	before := f.remaining()
	c.sent += n - f.sent
	f.sent = n
	c.mostSent = max(c.mostSent, n)
	c.remaining -= before - f.remaining()
	c.demand.SetLeft(f.place, 8*float64(f.remaining()))
	if n > 0 {
		c.demand.Begin(f.place) // also where all of it was received, and it still counts as one byte
	}
}

func (e *Engine) transferFinished(id workloads.FlowID) error {
	if r := e.reads.local[id]; r != nil {
		delete(e.reads.local, id)
		e.reads.next(r)
		return nil
	}
	f := e.coflows.byFlow[id]
	if f == nil && e.coflows.failed[id] {
		return nil // its last byte came in after it was given up
	}
	if f == nil || !f.started {
		return fmt.Errorf("flow %d finished, which is not running", id)
	}
	f.receive(f.Size)
	c := f.coflow
	at, _ := slices.BinarySearch(c.finished, f.Size)
	c.finished = slices.Insert(c.finished, at, f.Size)
	e.sent(f.Src, true)
	e.forget(f)
	if c.reader != nil {
		e.reads.next(c.reader)
	}
	return nil
}

// forget takes a flow that has ended off the books, and its coflow with the last
// of its flows.
func (e *Engine) forget(f *flow) {
	c := f.coflow
	f.ended = true
	delete(e.coflows.byFlow, f.ID)
	if at, ok := slices.BinarySearchFunc(c.flows, f.ID, func(x *flow, id workloads.FlowID) int { return cmp.Compare(x.ID, id) }); ok {
		c.flows = slices.Delete(c.flows, at, at+1)
	}
	c.remaining -= f.remaining()
	c.demand.End(f.place)
	when := e.control.when
	e.want(when.Flows)
	if f.pilot {
		c.pilotsLeft--
		c.pilotSent += f.sent
		e.want(when.Pilots && c.pilotsLeft == 0)
	}
	if len(c.flows) == 0 {
		is := func(x *coflow) bool { return x == c }
		e.coflows.active = slices.DeleteFunc(e.coflows.active, is)
		e.coflows.waiting = slices.DeleteFunc(e.coflows.waiting, is)
		e.want(when.Coflows)
		if len(c.then) > 0 {
			e.jobs.ended = append(e.jobs.ended, c)
		}
	}
}
