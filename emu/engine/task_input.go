package engine

import (
	"time"

	"testbed/emu/engine/tracker"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// readFrom starts the transfer of an attempt's input block.
func (x *tasks) readFrom(a *taskAttempt, source topo.HostID) error {
	id := a.Attempt
	a.Source, a.Locality = source, x.locality(a.Host, source)
	block := a.Input
	ids := x.assign()
	a.read, a.reading = ids.Flow, true
	a.arriving = nil
	a.reads++
	x.reads[a.read] = a
	task := x.consumption(a)
	if source == a.Host {
		x.local[a.read] = true
		x.command(ReadDisk{ID: a.read, Host: a.Host, Block: block, Size: a.Size, Task: task})
		return nil
	}
	hash := taskHash(x.core.cfg.Seed, "task-read", id, a.reads)
	flow := workloads.Flow{ID: a.read, Src: source, Dst: a.Host, Size: a.Size}
	return x.coflows.arrived(workloads.Coflow{ID: ids.Coflow, Flows: []workloads.Flow{flow}},
		origin{hash: hash, read: &block, task: task})
}

// consumption returns the rates at which an attempt consumes its input block. An attempt that is
// slowed has a slow disk too.
func (x *tasks) consumption(a *taskAttempt) *TaskTransfer {
	t := &TaskTransfer{Attempt: a.Attempt, Rate: a.task.Rate}
	if a.slow.Factor == 1 {
		return t
	}
	if x.Read > 0 && !x.cached && (t.Rate == 0 || t.Rate > x.Read) {
		t.Rate = x.Read
	}
	switch onset := units.Bytes(a.slow.Onset * float64(a.Size)); {
	case t.Rate == 0:
	case onset == 0:
		t.Rate = a.slow.Rate(t.Rate)
	default:
		t.Onset, t.Slow = onset, a.slow.Rate(t.Rate)
	}
	return t
}

func (x *tasks) locality(of, from topo.HostID) policies.Locality {
	switch f := x.core.cfg.Fabric; {
	case of == from:
		return policies.NodeLocal
	case f.RackOf(of) == f.RackOf(from):
		return policies.RackLocal
	}
	return policies.OffRack
}

// stopReading ends the transfer of an attempt's input block, if it runs.
func (x *tasks) stopReading(a *taskAttempt) {
	if !a.reading {
		return
	}
	a.reading = false
	delete(x.reads, a.read)
	if x.local[a.read] {
		x.command(StopRead{ID: a.read, Host: a.Host})
	} else {
		x.coflows.stop(a.read, "its attempt has ended, or reads elsewhere")
	}
}

// knows reports whether a flow is or was a read from the own disk of an attempt's host.
func (x *tasks) knows(id workloads.FlowID) bool { return x.local[id] }

// readEnded ends a transfer of an input block. Tracker and backend know themselves which transfers
// ended with a lost host.
func (x *tasks) readEnded(id workloads.FlowID, failed bool, why string) {
	a := x.reads[id]
	if a == nil {
		return // it has been stopped
	}
	delete(x.reads, id)
	a.reading = false
	switch {
	case x.lostOf(a.Host) >= 0: // reported at the same moment
	case !failed:
		x.inputRead(a)
	case x.lostOf(a.Source) < 0:
		x.note(tracker.ReadFailed{Attempt: a.Attempt, Why: why})
	}
}

// inputRead ends the computing of an attempt that has consumed its input block, or has none.
func (x *tasks) inputRead(a *taskAttempt) {
	a.got, a.arriving = a.Size, nil
	x.mark(a, wire.InputComplete, a.Size, "")
	x.note(tracker.InputRead{Attempt: a.Attempt})
	x.computed(a)
}

// fetch starts a flow of a shuffle.
func (x *tasks) fetch(cmd tracker.StartFetch) error {
	if cmd.Source == cmd.Host {
		x.running[cmd.Attempt].fetched(cmd.Size)
		x.note(tracker.FetchEnded{ID: cmd.ID})
		return nil
	}
	id := cmd.Attempt
	shuffle := x.shuffles[shuffleID{id.Task.Job, id.Task.Stage}]
	if x.coflows.open[shuffle] == nil {
		x.coflows.opened(shuffle, cmd.Host)
	}
	flow := x.next.Flow
	x.next.Flow++
	x.flows[cmd.ID] = flow
	if x.shows {
		x.fetchers[flow] = x.running[id]
	}
	from := cmd.Outputs[0].Attempt
	hash := taskHash(x.core.cfg.Seed, "task-fetch", id, from.Task.Stage, from.Task.Index, from.N)
	task := &TaskTransfer{Attempt: id, From: &from, Outputs: len(cmd.Outputs), Served: x.servedAt(cmd.Outputs)}
	return x.coflows.join(shuffle, workloads.Flow{ID: flow, Src: cmd.Source, Dst: cmd.Host, Size: cmd.Size},
		origin{hash: hash, fetch: cmd.ID, task: task})
}

func (x *tasks) forget(id tracker.FetchID, flow workloads.FlowID) {
	if a := x.fetchers[flow]; a != nil {
		delete(a.arriving, flow)
		delete(x.fetchers, flow)
	}
	delete(x.flows, id)
}

// flowEnded ends a transfer from another host.
func (x *tasks) flowEnded(n flowEnded) {
	if n.fetch == 0 {
		x.readEnded(n.id, n.failed, n.why)
		return
	}
	id := n.fetch
	if _, runs := x.flows[id]; !runs {
		return // it has been stopped
	}
	fetcher := x.fetchers[n.id]
	x.forget(id, n.id)
	switch {
	case !n.failed:
		fetcher.fetched(n.size)
		x.note(tracker.FetchEnded{ID: id})
	case x.lostOf(n.src, n.dst) < 0:
		x.note(tracker.FetchFailed{ID: id, Why: n.why})
	}
}

// serveSlowly limits the rate at which the host of a straggler serves its output.
func (x *tasks) serveSlowly(a *taskAttempt) {
	if !a.slow.Straggles || x.Read <= 0 {
		return
	}
	job := a.Attempt.Task.Job
	if x.served[job] == nil {
		x.served[job] = map[jobs.AttemptID]units.Rate{}
	}
	x.served[job][a.Attempt] = a.slow.Rate(x.Read)
}

// servedAt returns the rate at which a host serves outputs one after another; 0 for no limit.
func (x *tasks) servedAt(outputs []tracker.Output) units.Rate {
	var size units.Bytes
	var takes time.Duration
	for _, o := range outputs {
		size += o.Size
		if r := x.served[o.Attempt.Task.Job][o.Attempt]; r > 0 {
			takes += min(r.TimeToSend(o.Size), NextNever/2-takes)
		}
	}
	if takes == 0 {
		return 0
	}
	return max(1, units.RateOf(size, takes))
}

// taskHash selects the path of a transfer of an attempt. Like those of readers, these flows get their
// IDs during the run, so that no draw may be keyed by them.
func taskHash(seed uint64, purpose string, id jobs.AttemptID, more ...int) func(workloads.FlowID) uint32 {
	key := append(make([]int, 0, 8), int(id.Task.Job), id.Task.Stage, id.Task.Index, id.N)
	hash := max(1, workloads.Stream(seed, purpose, append(key, more...)...).Uint32())
	return func(workloads.FlowID) uint32 { return hash }
}
