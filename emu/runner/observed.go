package runner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"testbed/emu/engine"
	"testbed/policies"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// observed collects the events of the engine. In a simulation they are the
// result; on packets they are the cross-check of the captures.
type observed struct {
	names   []string                          // of hosts
	summed  map[transferSum]*flows.FlowRecord // flows.Records.Summed; nil if transfers of tasks have records
	coflows map[workloads.CoflowID]*flows.CoflowRecord
	running map[workloads.FlowID]*flows.FlowRecord
	spare   []*flows.FlowRecord        // whose transfers are summed up, for reuse
	left    map[workloads.CoflowID]int // unfinished flows; open for a coflow that flows join
	tasks   flows.TaskRecorder
	blocks  map[workloads.BlockID]*flows.BlockRecord
	marked  map[workloads.BlockID]engine.Mark // of blocks whose pipelines start

	done     flows.Records
	failures []summary.Failure
}

// transferSum identifies the transfers of tasks that are summed up.
type transferSum struct {
	job          workloads.JobID
	stage        int
	input, cross bool // carries an input block, crosses racks
}

// observe returns an empty collection. If jobsOnly is set, transfers of tasks are summed up.
func observe(f *topo.Fabric, jobsOnly bool) *observed {
	o := &observed{
		coflows: map[workloads.CoflowID]*flows.CoflowRecord{}, running: map[workloads.FlowID]*flows.FlowRecord{},
		left: map[workloads.CoflowID]int{}, blocks: map[workloads.BlockID]*flows.BlockRecord{},
		marked: map[workloads.BlockID]engine.Mark{}}
	if jobsOnly {
		o.summed = map[transferSum]*flows.FlowRecord{}
	}
	for h := range topo.HostID(f.Hosts()) {
		o.names = append(o.names, f.HostName(h))
	}
	return o
}

// open is the number of unfinished flows of an open coflow, which never reaches 0 by counting down.
const open = -1

// step implements engine.Observer.
func (o *observed) step(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
	for _, ev := range evs {
		switch ev := ev.(type) {
		case engine.CoflowArrived:
			o.coflows[ev.Coflow.ID] = &flows.CoflowRecord{Coflow: ev.Coflow.ID, Width: len(ev.Coflow.Flows), Size: ev.Coflow.Size(), Arrival: now}
			o.left[ev.Coflow.ID] = len(ev.Coflow.Flows)
		case engine.TransferFinished:
			f := o.running[ev.Flow]
			if f == nil {
				continue // it was given up before
			}
			delete(o.running, ev.Flow)
			f.End = now
			o.record(f)
			if c := o.coflows[f.Coflow]; o.left[f.Coflow] == open {
				c.End = now
				continue
			}
			o.left[f.Coflow]--
			if o.left[f.Coflow] != 0 {
				continue
			}
			c := o.coflows[f.Coflow]
			c.End = now
			if f.Task == nil { // a read of an input block is a coflow of its own for policies alone
				o.done.Coflows = append(o.done.Coflows, *c)
			}
			o.ended(f.Coflow)
		case engine.BlockDurable:
			b := o.blocks[ev.Block]
			if b == nil {
				continue // it was given up before
			}
			b.End = now
			o.done.Blocks = append(o.done.Blocks, *b)
			delete(o.blocks, ev.Block)
		}
	}
	o.failures = append(o.failures, o.failuresOf(engine.Failures(now, evs, cmds))...)
	for _, c := range cmds {
		switch c := c.(type) {
		case engine.StartTransfer:
			f, task := o.newRecord()
			*f = flows.FlowRecord{Coflow: c.Coflow, Flow: c.Flow.ID, Src: o.names[c.Flow.Src], Dst: o.names[c.Flow.Dst],
				Size: c.Flow.Size, Arrival: o.coflows[c.Coflow].Arrival, Start: now}
			if t := c.Task; t != nil {
				*task = taskTransfer(t)
				f.Arrival, f.Task = now, task
			}
			o.running[c.Flow.ID] = f
		case engine.MarkTask:
			o.tasks.Add(&o.done, o.moment(now, c))
		case engine.Mark:
			switch id := workloads.CoflowID(c.ID); {
			case c.Kind == engine.MarkFlowStopped:
				delete(o.running, workloads.FlowID(c.ID))
			case c.Kind == engine.MarkBlockStopped:
				delete(o.blocks, workloads.BlockID(c.ID))
			case c.Kind == engine.MarkCoflow && c.Parts == 0:
				o.coflows[id] = &flows.CoflowRecord{Coflow: id, Arrival: now}
				o.left[id] = open
			case c.Kind == engine.MarkCoflowClosed:
				r := o.coflows[id]
				if r.Width, r.Size = c.Parts, c.Size; r.End > 0 {
					o.done.Coflows = append(o.done.Coflows, *r)
				}
				o.ended(id)
			case c.Kind == engine.MarkWrite:
				o.marked[workloads.BlockID(c.ID)] = c
			case c.Kind == engine.MarkCoflow && o.coflows[id] == nil: // a read, which has no arrival event
				o.coflows[id] = &flows.CoflowRecord{Coflow: id, Width: c.Parts, Size: c.Size, Arrival: now}
				o.left[id] = c.Parts
			}
		case engine.StartChain:
			m := o.marked[c.Block.ID]
			b := &flows.BlockRecord{Block: c.Block.ID, Client: o.names[c.Block.Client], Size: c.Block.Size, Requested: now, Waited: m.Waited}
			if t := m.Attempt.Task; t.Job > 0 {
				b.Attempt = flows.AttemptKey{Job: workloads.JobID(t.Job), Stage: t.Stage, Task: t.Index, Attempt: m.Attempt.N}
			}
			delete(o.marked, c.Block.ID)
			for _, h := range c.Targets {
				b.Hosts = append(b.Hosts, o.names[h])
			}
			o.blocks[c.Block.ID] = b
		}
	}
	return nil
}

// ended forgets a coflow that has ended.
func (o *observed) ended(id workloads.CoflowID) {
	delete(o.coflows, id)
	delete(o.left, id)
}

// record keeps a flow that has ended, or adds it to a sum.
func (o *observed) record(f *flows.FlowRecord) {
	t := f.Task
	if t == nil || o.summed == nil {
		o.done.Flows = append(o.done.Flows, *f)
		return
	}
	from, _, _ := strings.Cut(f.Src, "-") // its rack
	to, _, _ := strings.Cut(f.Dst, "-")
	key := transferSum{t.Job, t.Stage, t.Outputs == 0, from != to}
	sum := o.summed[key]
	if sum == nil {
		o.summed[key] = f
		return
	}
	sum.Size += f.Size
	sum.Arrival, sum.Start, sum.End = min(sum.Arrival, f.Arrival), min(sum.Start, f.Start), f.End
	o.spare = append(o.spare, f)
}

// newRecord returns memory for the record of a flow and of its task.
func (o *observed) newRecord() (*flows.FlowRecord, *flows.TaskTransfer) {
	if last := len(o.spare) - 1; last >= 0 {
		f := o.spare[last]
		o.spare = o.spare[:last]
		return f, f.Task
	}
	return &flows.FlowRecord{}, &flows.TaskTransfer{}
}

// records returns all finished transfers, in order of ID.
func (o *observed) records() flows.Records {
	slices.SortFunc(o.done.Flows, func(a, b flows.FlowRecord) int { return cmp.Compare(a.Flow, b.Flow) })
	slices.SortFunc(o.done.Coflows, func(a, b flows.CoflowRecord) int { return cmp.Compare(a.Coflow, b.Coflow) })
	slices.SortFunc(o.done.Blocks, func(a, b flows.BlockRecord) int { return cmp.Compare(a.Block, b.Block) })
	for _, f := range o.summed {
		o.done.Summed = append(o.done.Summed, *f)
	}
	slices.SortFunc(o.done.Summed, func(a, b flows.FlowRecord) int { return cmp.Compare(a.Flow, b.Flow) })
	o.tasks.End(&o.done)
	for _, f := range o.failures {
		o.done.Failed = append(o.done.Failed, f.Failure)
	}
	return o.done
}

// failuresOf converts failures and removes the failed transfers: a coflow with a failed flow has
// no completion time.
func (o *observed) failuresOf(failures []engine.Failure) (out []summary.Failure) {
	for _, f := range failures {
		r := flows.Failure{Kind: string(f.Kind), At: f.At, Why: f.Why}
		switch f.Kind {
		case engine.FlowFailure:
			r.Coflow, r.Flow = f.Coflow, f.Flow
			delete(o.running, f.Flow)
			if o.left[f.Coflow] != open {
				o.left[f.Coflow] = 0 // never reaches it by counting down
			}
		case engine.BlockFailure:
			r.Block = f.Block
			delete(o.blocks, f.Block)
		case engine.ReplicaFailure:
			r.Block, r.Host = f.Block, o.names[f.Host]
			if b := o.blocks[f.Block]; b != nil {
				b.Hosts = slices.DeleteFunc(b.Hosts, func(h string) bool { return h == r.Host })
			}
		}
		out = append(out, summary.Failure{Failure: r})
	}
	return out
}

// taskTransfer converts the task of a transfer.
func taskTransfer(t *engine.TaskTransfer) flows.TaskTransfer {
	id := t.Attempt
	out := flows.TaskTransfer{Job: id.Task.Job, Stage: id.Task.Stage, Task: id.Task.Index, Attempt: id.N, Outputs: t.Outputs}
	if from := t.From; from != nil {
		out.FromStage, out.FromTask, out.FromAttempt = from.Task.Stage, from.Task.Index, from.N
	}
	return out
}

// moment converts a mark of a task.
func (o *observed) moment(now time.Duration, m engine.MarkTask) flows.TaskMoment {
	id := m.Attempt
	out := flows.TaskMoment{Moment: m.Moment, At: now, Job: id.Task.Job, Stage: id.Task.Stage, Task: id.Task.Index, Attempt: id.N,
		Host: o.names[m.Host], Size: m.Size, Tasks: m.Parts, User: m.User, Profile: m.Profile, Why: m.Why, Kind: [jobs.TaskKinds]string{flows.MapTask, flows.ReduceTask}[m.Kind]}
	if m.Reads {
		out.Locality = [policies.Localities]string{flows.NodeLocal, flows.RackLocal, flows.OffRack}[m.Locality]
	}
	return out
}
