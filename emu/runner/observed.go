package runner

import (
	"cmp"
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/results/flows"
	"testbed/results/report"
	"testbed/topo"
	"testbed/workloads"
)

// observed collects the events of the engine. In a simulation they are the
// result; on packets they are the cross-check of the captures.
type observed struct {
	fabric  *topo.Fabric
	coflows map[workloads.CoflowID]*flows.CoflowRecord
	running map[workloads.FlowID]*flows.FlowRecord
	left    map[workloads.CoflowID]int // unfinished flows
	blocks  map[workloads.BlockID]*flows.BlockRecord
	waited  map[workloads.BlockID]time.Duration // of blocks in placement

	done     flows.Records
	failures []report.Failure
}

func observe(f *topo.Fabric) *observed {
	return &observed{fabric: f,
		coflows: map[workloads.CoflowID]*flows.CoflowRecord{}, running: map[workloads.FlowID]*flows.FlowRecord{},
		left: map[workloads.CoflowID]int{}, blocks: map[workloads.BlockID]*flows.BlockRecord{},
		waited: map[workloads.BlockID]time.Duration{}}
}

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
			o.done.Flows = append(o.done.Flows, *f)
			if o.left[f.Coflow]--; o.left[f.Coflow] == 0 {
				c := o.coflows[f.Coflow]
				c.End = now
				o.done.Coflows = append(o.done.Coflows, *c)
			}
		case engine.BlockDurable:
			b := o.blocks[ev.Block]
			if b == nil {
				continue // it was given up before
			}
			b.End = now
			o.done.Blocks = append(o.done.Blocks, *b)
		}
	}
	o.failures = append(o.failures, o.failuresOf(engine.Failures(now, evs, cmds))...)
	for _, c := range cmds {
		switch c := c.(type) {
		case engine.StartTransfer:
			o.running[c.Flow.ID] = &flows.FlowRecord{Coflow: c.Coflow, Flow: c.Flow.ID, Src: o.fabric.HostName(c.Flow.Src), Dst: o.fabric.HostName(c.Flow.Dst),
				Size: c.Flow.Size, Arrival: o.coflows[c.Coflow].Arrival, Start: now}
		case engine.Mark:
			switch id := workloads.CoflowID(c.ID); {
			case c.Kind == engine.MarkWrite:
				o.waited[workloads.BlockID(c.ID)] = c.Waited
			case c.Kind == engine.MarkCoflow && o.coflows[id] == nil: // a read, which has no arrival event
				o.coflows[id] = &flows.CoflowRecord{Coflow: id, Width: c.Parts, Size: c.Size, Arrival: now}
				o.left[id] = c.Parts
			}
		case engine.StartChain:
			b := &flows.BlockRecord{Block: c.Block.ID, Client: o.fabric.HostName(c.Block.Client), Size: c.Block.Size, Requested: now, Waited: o.waited[c.Block.ID]}
			delete(o.waited, c.Block.ID)
			for _, h := range c.Targets {
				b.Hosts = append(b.Hosts, o.fabric.HostName(h))
			}
			o.blocks[c.Block.ID] = b
		}
	}
	return nil
}

// records returns all finished transfers, in order of ID.
func (o *observed) records() flows.Records {
	slices.SortFunc(o.done.Flows, func(a, b flows.FlowRecord) int { return cmp.Compare(a.Flow, b.Flow) })
	slices.SortFunc(o.done.Coflows, func(a, b flows.CoflowRecord) int { return cmp.Compare(a.Coflow, b.Coflow) })
	slices.SortFunc(o.done.Blocks, func(a, b flows.BlockRecord) int { return cmp.Compare(a.Block, b.Block) })
	for _, f := range o.failures {
		o.done.Failed = append(o.done.Failed, f.Failure)
	}
	return o.done
}

// failuresOf converts failures and removes the failed transfers: a coflow with a failed flow has
// no completion time.
func (o *observed) failuresOf(failures []engine.Failure) (out []report.Failure) {
	for _, f := range failures {
		r := flows.Failure{Kind: string(f.Kind), At: f.At}
		switch f.Kind {
		case engine.FlowFailure:
			r.Coflow, r.Flow = f.Coflow, f.Flow
			delete(o.running, f.Flow)
			o.left[f.Coflow] = 0 // never reaches it by counting down
		case engine.BlockFailure:
			r.Block = f.Block
			delete(o.blocks, f.Block)
		case engine.ReplicaFailure:
			r.Block, r.Host = f.Block, o.fabric.HostName(f.Host)
			if b := o.blocks[f.Block]; b != nil {
				b.Hosts = slices.DeleteFunc(b.Hosts, func(h string) bool { return h == r.Host })
			}
		}
		out = append(out, report.Failure{Failure: r, Why: f.Why})
	}
	return out
}
