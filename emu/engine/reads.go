package engine

import (
	"fmt"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// reads is the sub-machine of readers, which fetch blocks one after another. A read is a
// coflow of one flow, whose source is chosen when it begins: the nearest of the hosts
// that have a replica and are not lost, of equally near ones by luck. Where that is the
// reader's own host, nothing is sent.
//
// A read that fails begins anew at another replica, as another coflow, of the next ids:
// what was fetched is fetched again. When every replica has been tried, or is lost, the
// read has failed, which a mark says, and the reader goes on.
type reads struct {
	durable map[workloads.BlockID]replicas
	active  []*reader                       // that are not through, as they came
	waiting map[workloads.BlockID][]*reader // for a block to be durable, as they asked
	local   map[workloads.FlowID]*reader    // whose own disk reads
	due     []*reader                       // to begin or try again in the step in progress
}

// replicas are the hosts that have a block.
type replicas struct {
	size  units.Bytes
	hosts []topo.HostID
}

type reader struct {
	workloads.Reader
	left  []workloads.Read // the first under way or waiting
	tried []topo.HostID    // hosts from which that was read
	why   string           // of the newest failure of it
	dead  string           // why the reader will read no more; "" while it does
}

// block is what a reader is at; nil for no reader.
func (r *reader) block() *workloads.BlockID {
	if r == nil {
		return nil
	}
	id := r.left[0].Block
	return &id
}

func (e *Engine) initReads() {
	e.reads.durable = map[workloads.BlockID]replicas{}
	e.reads.waiting = map[workloads.BlockID][]*reader{}
	e.reads.local = map[workloads.FlowID]*reader{}
}

func (e *Engine) readerArrived(rd workloads.Reader) error {
	if len(rd.Reads) == 0 || !e.known(rd.Client) {
		return fmt.Errorf("reader %d on host %d of %d blocks: want one or more, and a host of the fabric", rd.ID, rd.Client, len(rd.Reads))
	}
	for _, x := range rd.Reads {
		if x.Size <= 0 || x.Tries < 2 {
			return fmt.Errorf("reader %d: block %d of %v with ids for %d tries: want a positive size, and one more than replicas", rd.ID, x.Block, x.Size, x.Tries)
		}
	}
	r := &reader{Reader: rd, left: slices.Clone(rd.Reads)}
	e.reads.active = append(e.reads.active, r)
	e.reads.queue(r)
	return nil
}

// queue has a reader looked at in the step in progress.
func (x *reads) queue(r *reader) {
	if !slices.Contains(x.due, r) {
		x.due = append(x.due, r)
	}
}

// next has a reader go on with the block after the one it is at.
func (x *reads) next(r *reader) {
	r.left, r.tried, r.why = r.left[1:], nil, ""
	x.queue(r)
}

// wake has those looked at that wait for a block: it is durable, or has failed.
func (x *reads) wake(id workloads.BlockID) {
	for _, r := range x.waiting[id] {
		x.queue(r)
	}
	delete(x.waiting, id)
}

// waits counts the readers that wait for a block.
func (x *reads) waits() (n int) {
	for _, w := range x.waiting {
		n += len(w)
	}
	return n
}

// wiped takes a host's replicas off the books.
func (x *reads) wiped(h topo.HostID) {
	for id, c := range x.durable {
		if i := slices.Index(c.hosts, h); i >= 0 {
			c.hosts = slices.Delete(slices.Clone(c.hosts), i, i+1)
			x.durable[id] = c
		}
	}
}

// abandonReaders ends the readers on a host. Those to which a flow is under way are
// looked at when that has failed.
func (e *Engine) abandonReaders(cmds []Command, h topo.HostID, why string) []Command {
	x := &e.reads
	for _, r := range x.active {
		if r.Client != h {
			continue
		}
		r.dead = why
		flow := r.left[0].Flow + workloads.FlowID(len(r.tried)-1)
		switch id := r.left[0].Block; {
		case slices.Contains(x.waiting[id], r):
			x.waiting[id] = slices.DeleteFunc(x.waiting[id], func(o *reader) bool { return o == r })
			x.queue(r)
		case len(r.tried) > 0 && x.local[flow] == r:
			delete(x.local, flow)
			e.coflows.failed[flow] = true
			cmds = append(cmds, StopTransfer{Flow: flow, Src: h, Dst: h})
			x.queue(r)
		}
	}
	return cmds
}

// serveReaders begins what readers are to read next.
func (e *Engine) serveReaders(cmds []Command) ([]Command, error) {
	x := &e.reads
	for len(x.due) > 0 {
		r := x.due[0]
		x.due = x.due[1:]
		var err error
		if cmds, err = e.read(cmds, r); err != nil {
			return nil, fmt.Errorf("reader %d: %w", r.ID, err)
		}
	}
	x.due = nil
	return cmds, nil
}

// read begins the first of what a reader has left, or has it wait for that.
func (e *Engine) read(cmds []Command, r *reader) ([]Command, error) {
	x := &e.reads
	if lost := e.lostOf(r.Client); lost >= 0 && r.dead == "" {
		r.dead = e.lostWhy(lost)
	}
	if r.dead != "" {
		for ; len(r.left) > 0; r.left, r.tried = r.left[1:], nil {
			cmds = e.failRead(cmds, r, r.dead)
		}
	}
	if len(r.left) == 0 {
		x.active = slices.DeleteFunc(x.active, func(o *reader) bool { return o == r })
		return cmds, nil
	}
	rd := r.left[0]
	have, durable := x.durable[rd.Block]
	switch {
	case !durable && e.blocks.failed[rd.Block]:
		cmds = e.failRead(cmds, r, fmt.Sprintf("block %d was not written", rd.Block))
		x.next(r)
		return cmds, nil
	case !durable:
		x.waiting[rd.Block] = append(x.waiting[rd.Block], r)
		return cmds, nil
	case have.size != rd.Size:
		return nil, fmt.Errorf("block %d has %v: want a read of as much, not of %v", rd.Block, have.size, rd.Size)
	}
	h := e.nearest(r, have.hosts)
	if h < 0 {
		why := fmt.Sprintf("no replica of block %d is left", rd.Block)
		if r.why != "" {
			why += ": " + r.why
		}
		cmds = e.failRead(cmds, r, why)
		x.next(r)
		return cmds, nil
	}
	try := len(r.tried)
	if try+1 >= rd.Tries {
		return nil, fmt.Errorf("block %d: replica %d of ids for %d: want ids for all that it has, and one more", rd.Block, try+1, rd.Tries-1)
	}
	r.tried = append(r.tried, h)
	coflow := workloads.Coflow{ID: rd.Coflow + workloads.CoflowID(try), Flows: []workloads.Flow{
		{ID: rd.Flow + workloads.FlowID(try), Src: h, Dst: r.Client, Size: rd.Size},
	}}
	f := coflow.Flows[0]
	if h == r.Client {
		x.local[f.ID] = r
		return append(cmds, StartTransfer{Coflow: coflow.ID, Flow: f, Ceiling: policies.NoLimit, Read: r.block()}), nil
	}
	cmds, err := e.coflowArrived(cmds, CoflowArrived{Coflow: coflow})
	if err == nil {
		e.coflows.byFlow[f.ID].coflow.reader = r
	}
	return cmds, err
}

// nearest is the host from which a reader fetches a block: its own, else one of its
// rack, else any, by the luck of the reader and the block; -1 where all are lost or have
// been tried.
func (e *Engine) nearest(r *reader, hosts []topo.HostID) topo.HostID {
	var at [3][]topo.HostID // by distance
	for _, h := range hosts {
		switch f := e.cfg.Fabric; {
		case e.hosts[h].lost || slices.Contains(r.tried, h):
		case h == r.Client:
			at[0] = append(at[0], h)
		case f.RackOf(h) == f.RackOf(r.Client):
			at[1] = append(at[1], h)
		default:
			at[2] = append(at[2], h)
		}
	}
	for _, near := range at {
		if len(near) > 0 {
			slices.Sort(near)
			return near[workloads.Stream(e.cfg.Seed, "read", int(r.left[0].Block), int(r.ID)).IntN(len(near))]
		}
	}
	return -1
}

// failRead marks the first of what a reader has left as failed, with the ids of the try
// that is not made.
func (e *Engine) failRead(cmds []Command, r *reader, why string) []Command {
	rd, try := r.left[0], len(r.tried)
	coflow, flow := rd.Coflow+workloads.CoflowID(try), rd.Flow+workloads.FlowID(try)
	e.coflows.failed[flow] = true
	h := e.living(r.Client)
	return append(cmds,
		Mark{Kind: MarkCoflow, ID: int(coflow), Host: h, Parts: 1, Size: rd.Size},
		Mark{Kind: MarkFlowFailed, ID: int(flow), Host: h, Parts: int(coflow), Size: rd.Size, Why: why})
}
