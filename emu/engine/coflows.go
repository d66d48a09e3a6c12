package engine

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// coflows is the sub-machine that orders coflows: registration, progress,
// ceilings.
type coflows struct {
	active []*coflow // in order of arrival, ties by ID
	byFlow map[workloads.FlowID]*flow
	failed map[workloads.FlowID]bool // of which news may still come in
}

type coflow struct {
	id      workloads.CoflowID
	arrival time.Duration
	width   int
	done    units.Bytes // of its finished flows
	flows   []*flow     // unfinished, by ID
}

type flow struct {
	workloads.Flow
	coflow  *coflow
	hash    uint32
	path    []topo.LinkID
	cut     time.Duration // since when a link of its path is down and nothing came; -1 if none is
	sent    units.Bytes
	started bool
	ceiling units.Rate

	// Of the allocation in progress: what the policy and the engine grant, and
	// whether the policy has.
	want    units.Rate
	granted bool
}

func (e *Engine) coflowArrived(cmds []Command, c workloads.Coflow) ([]Command, error) {
	if len(c.Flows) == 0 {
		return nil, fmt.Errorf("coflow %d has no flows", c.ID)
	}
	st := &coflow{id: c.ID, arrival: e.now, width: len(c.Flows)}
	for _, f := range c.Flows {
		if f.Src == f.Dst || f.Size <= 0 || !e.known(f.Src) || !e.known(f.Dst) {
			return nil, fmt.Errorf("coflow %d: flow %d of %v from host %d to host %d: want a positive size and two different hosts of the fabric", c.ID, f.ID, f.Size, f.Src, f.Dst)
		}
		if e.coflows.byFlow[f.ID] != nil {
			return nil, fmt.Errorf("coflow %d: flow %d has arrived before", c.ID, f.ID)
		}
		hash := workloads.FlowHash(e.cfg.Seed, f.ID)
		fl := &flow{Flow: f, coflow: st, hash: hash, path: e.cfg.Fabric.Path(f.Src, f.Dst, hash), cut: -1}
		st.flows = append(st.flows, fl)
		e.coflows.byFlow[f.ID] = fl
	}
	slices.SortFunc(st.flows, func(a, b *flow) int { return int(a.ID - b.ID) })
	at := sort.Search(len(e.coflows.active), func(i int) bool {
		o := e.coflows.active[i]
		return o.arrival > st.arrival || o.arrival == st.arrival && o.id > st.id
	})
	e.coflows.active = slices.Insert(e.coflows.active, at, st)
	first := st.flows[0]
	cmds = append(cmds, Mark{Kind: MarkCoflow, ID: int(c.ID), Host: e.living(first.Src, first.Dst), Parts: st.width, Size: c.Size()})
	for _, f := range slices.Clone(st.flows) {
		if h := e.lostOf(f.Src, f.Dst); h >= 0 {
			cmds = e.failFlow(cmds, f, e.lostWhy(h))
		}
	}
	return cmds, nil
}

func (e *Engine) known(h topo.HostID) bool { return h >= 0 && int(h) < len(e.hosts) }

func (e *Engine) transferProgressed(ev TransferProgressed) error {
	if len(ev.Flows) != len(ev.Received) {
		return fmt.Errorf("progress of %d flows with %d counts", len(ev.Flows), len(ev.Received))
	}
	for i, id := range ev.Flows {
		f := e.coflows.byFlow[id]
		if f == nil && e.coflows.failed[id] {
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
		f.sent = ev.Received[i]
	}
	return nil
}

func (e *Engine) transferFinished(id workloads.FlowID) error {
	f := e.coflows.byFlow[id]
	if f == nil && e.coflows.failed[id] {
		return nil // its last byte came in after it was given up
	}
	if f == nil || !f.started {
		return fmt.Errorf("flow %d finished, which is not running", id)
	}
	f.coflow.done += f.Size
	e.forget(f)
	return nil
}

// forget takes a flow that has ended off the books, and its coflow with the last
// of its flows.
func (e *Engine) forget(f *flow) {
	id, c := f.ID, f.coflow
	delete(e.coflows.byFlow, id)
	if at, ok := slices.BinarySearchFunc(c.flows, id, func(x *flow, id workloads.FlowID) int { return int(x.ID - id) }); ok {
		c.flows = slices.Delete(c.flows, at, at+1)
	}
	if len(c.flows) == 0 {
		e.coflows.active = slices.DeleteFunc(e.coflows.active, func(x *coflow) bool { return x == c })
	}
}

// states is what policies see of the coflows.
func (cs *coflows) states(needs policies.Knowledge) []policies.CoflowState {
	total := 0
	for _, c := range cs.active {
		total += len(c.flows)
	}
	all := make([]policies.FlowState, 0, total)
	out := make([]policies.CoflowState, 0, len(cs.active))
	for _, c := range cs.active {
		first, sent := len(all), c.done
		for _, f := range c.flows {
			s := policies.FlowState{ID: f.ID, Src: f.Src, Dst: f.Dst, Path: f.path, Sent: f.sent}
			if needs&policies.Sizes != 0 {
				// A flow whose last byte is in but whose completion has not been
				// reported yet still counts as one byte.
				s.Size, s.Remaining = f.Size, max(f.Size-f.sent, 1)
			}
			sent += f.sent
			all = append(all, s)
		}
		out = append(out, policies.CoflowState{ID: c.id, Arrival: c.arrival, Width: c.width, Sent: sent, Flows: all[first:len(all):len(all)]})
	}
	return out
}

// allocate asks the policy for grants, completes them to a work-conserving
// allocation and emits what changed.
func (e *Engine) allocate(cmds []Command) ([]Command, error) {
	grants := e.cfg.Coflow.Allocate(e.view(e.cfg.Coflow.Needs()))
	for _, c := range e.coflows.active {
		for _, f := range c.flows {
			f.want, f.granted = 0, false
		}
	}
	left := slices.Clone(e.cfg.Capacity)
	order := make([]*flow, 0, len(e.coflows.byFlow)) // of importance
	for _, g := range grants {
		f := e.coflows.byFlow[g.Flow]
		switch {
		case f == nil:
			return nil, fmt.Errorf("coflow policy %T: grant for flow %d, which is not running", e.cfg.Coflow, g.Flow)
		case f.granted:
			return nil, fmt.Errorf("coflow policy %T: two grants for flow %d", e.cfg.Coflow, g.Flow)
		case g.Ceiling < 0:
			return nil, fmt.Errorf("coflow policy %T: ceiling %d for flow %d: want 0 or more", e.cfg.Coflow, g.Ceiling, g.Flow)
		}
		f.want, f.granted = g.Ceiling, true
		order = append(order, f)
		if g.Ceiling == policies.NoLimit {
			continue
		}
		for _, l := range f.path {
			if left[l] -= g.Ceiling; left[l] < 0 {
				return nil, fmt.Errorf("coflow policy %T: grants overfill link %s by %v", e.cfg.Coflow, e.cfg.Fabric.LinkName(l), -left[l])
			}
		}
	}
	for _, c := range e.coflows.active {
		for _, f := range c.flows {
			if !f.granted {
				order = append(order, f)
			}
		}
	}
	for _, f := range order {
		f.topUp(left)
	}
	for _, c := range e.coflows.active {
		for _, f := range c.flows {
			switch {
			case !f.started:
				f.started = true
				cmds = append(cmds, StartTransfer{Coflow: c.id, Flow: f.Flow, Hash: f.hash, Ceiling: f.want})
			case f.want != f.ceiling:
				cmds = append(cmds, SetCeiling{Flow: f.ID, Ceiling: f.want})
			}
			f.ceiling = f.want
		}
	}
	return cmds, nil
}

// topUp gives a flow what is left on all of its path.
func (f *flow) topUp(left []units.Rate) {
	if f.want == policies.NoLimit {
		return
	}
	extra := policies.NoLimit
	for _, l := range f.path {
		extra = min(extra, left[l])
	}
	if extra == 0 {
		return
	}
	f.want += extra
	for _, l := range f.path {
		left[l] -= extra
	}
}
