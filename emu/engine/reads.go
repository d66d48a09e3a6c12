package engine

import (
	"fmt"
	"slices"

	"testbed/topo"
	"testbed/workloads"
)

// reads is the sub-machine of readers, which fetch blocks one after another. A read is a
// coflow of one flow. Its source is chosen at its start: the nearest host that has a replica
// and is not lost, ties at random. If that is the reader's own host, nothing is sent.
//
// A read that fails restarts at another replica, as another coflow, and fetches the whole block
// again. The engine hands out the IDs of coflows and flows when they start. When every replica has failed or is lost, the read has
// failed; a mark records this, and the reader continues with the next block.
type reads struct {
	*core
	coflows *coflows // carries out reads from other hosts
	ended   map[workloads.BlockID]blockEnded
	active  []*reader                       // unfinished readers, by arrival
	waiting map[workloads.BlockID][]*reader // readers that wait for a block to be durable, by time
	local   map[workloads.FlowID]*reader    // reads from the reader's own disk
	remote  map[workloads.FlowID]*reader    // reads from other hosts
	stopped map[workloads.FlowID]bool       // stopped local reads, about which events may still arrive
	due     []*reader                       // readers to start or retry in the current step
}

type reader struct {
	workloads.Reader
	left  []workloads.Read // remaining reads; the first is in progress or waiting
	flow  workloads.FlowID // of its newest attempt
	tried []topo.HostID    // hosts from which the first was attempted
	why   string           // reason of its newest failure
	dead  string           // reason why the reader has ended; "" while it is active
}

func newReads(shared *core, c *coflows) reads {
	return reads{core: shared, coflows: c, ended: map[workloads.BlockID]blockEnded{}, waiting: map[workloads.BlockID][]*reader{},
		local: map[workloads.FlowID]*reader{}, remote: map[workloads.FlowID]*reader{}, stopped: map[workloads.FlowID]bool{}}
}

func (x *reads) readerArrived(rd workloads.Reader) error {
	x.send(checkStuck{})
	if len(rd.Reads) == 0 || !x.known(rd.Client) {
		return fmt.Errorf("reader %d on host %d with %d blocks: must have at least one block and a host of the fabric", rd.ID, rd.Client, len(rd.Reads))
	}
	for _, r := range rd.Reads {
		if r.Size <= 0 {
			return fmt.Errorf("reader %d: block %d of %v: must have a positive size", rd.ID, r.Block, r.Size)
		}
	}
	r := &reader{Reader: rd, left: slices.Clone(rd.Reads)}
	x.active = append(x.active, r)
	x.queue(r)
	return nil
}

// knows reports whether a flow is or was a read from the reader's own disk.
func (x *reads) knows(id workloads.FlowID) bool { return x.local[id] != nil || x.stopped[id] }

// localEnded ends a read from the reader's own disk. why is the reason if it failed.
func (x *reads) localEnded(id workloads.FlowID, failed bool, why string) {
	x.send(checkStuck{})
	if r := x.local[id]; r != nil {
		delete(x.local, id)
		x.attempted(r, failed, why)
	}
}

// flowEnded ends a read from another host.
func (x *reads) flowEnded(n flowEnded) {
	if r := x.remote[n.id]; r != nil {
		delete(x.remote, n.id)
		x.attempted(r, n.failed, n.why)
	}
}

// attempted advances a reader to its next block, or to the next attempt after a failed one.
func (x *reads) attempted(r *reader, failed bool, why string) {
	if failed {
		r.why = why
		x.queue(r)
	} else {
		x.advance(r)
	}
}

// queue schedules a reader for the current step.
func (x *reads) queue(r *reader) {
	if !slices.Contains(x.due, r) {
		x.due = append(x.due, r)
	}
}

// advance advances a reader to its next block.
func (x *reads) advance(r *reader) {
	r.left, r.tried, r.why = r.left[1:], nil, ""
	x.queue(r)
}

// blockEnded schedules the readers that wait for a block. A block that was durable before
// stays so.
func (x *reads) blockEnded(n blockEnded) {
	if old, durable := x.ended[n.id]; !n.failed || !durable || old.failed {
		x.ended[n.id] = n
	}
	for _, r := range x.waiting[n.id] {
		x.queue(r)
	}
	delete(x.waiting, n.id)
}

// waits returns the number of readers that wait for a block.
func (x *reads) waits() (n int) {
	for _, w := range x.waiting {
		n += len(w)
	}
	return n
}

// diskWiped removes a host's replicas.
func (x *reads) diskWiped(n diskWiped) {
	for id, b := range x.ended {
		if i := slices.Index(b.hosts, n.host); i >= 0 {
			b.hosts = slices.Delete(slices.Clone(b.hosts), i, i+1)
			x.ended[id] = b
		}
	}
}

// hostEnded ends the readers on a host. Those with a flow in progress end when it has failed.
func (x *reads) hostEnded(n hostEnded) {
	for _, r := range x.active {
		if r.Client != n.host {
			continue
		}
		r.dead = n.why
		switch id := r.left[0].Block; {
		case slices.Contains(x.waiting[id], r):
			x.waiting[id] = slices.DeleteFunc(x.waiting[id], func(o *reader) bool { return o == r })
			x.queue(r)
		case x.local[r.flow] == r:
			delete(x.local, r.flow)
			x.stopped[r.flow] = true
			x.command(StopRead{ID: r.flow, Host: n.host})
			x.queue(r)
		}
	}
}

// serve starts the next read of all scheduled readers.
func (x *reads) serve() error {
	for len(x.due) > 0 {
		r := x.due[0]
		x.due = x.due[1:]
		if err := x.read(r); err != nil {
			return fmt.Errorf("reader %d: %w", r.ID, err)
		}
	}
	x.due = nil
	return nil
}

// read starts the first of a reader's remaining reads, or makes the reader wait for it.
func (x *reads) read(r *reader) error {
	if lost := x.lostOf(r.Client); lost >= 0 && r.dead == "" {
		r.dead = x.lostWhy(lost)
	}
	if r.dead != "" {
		for ; len(r.left) > 0; r.left, r.tried = r.left[1:], nil {
			x.fail(r, r.dead)
		}
	}
	if len(r.left) == 0 {
		x.active = slices.DeleteFunc(x.active, func(o *reader) bool { return o == r })
		return nil
	}
	rd := r.left[0]
	block, ended := x.ended[rd.Block]
	switch {
	case !ended:
		x.waiting[rd.Block] = append(x.waiting[rd.Block], r)
		return nil
	case block.failed:
		x.fail(r, fmt.Sprintf("block %d was not written", rd.Block))
		x.advance(r)
		return nil
	case block.size != rd.Size:
		return fmt.Errorf("block %d has %v, but the read has %v: must be equal", rd.Block, block.size, rd.Size)
	}
	h := x.nearest(r, block.hosts)
	if h < 0 {
		why := fmt.Sprintf("no replica of block %d is left", rd.Block)
		if r.why != "" {
			why += ": " + r.why
		}
		x.fail(r, why)
		x.advance(r)
		return nil
	}
	read, attempt := len(r.Reads)-len(r.left), len(r.tried)
	r.tried = append(r.tried, h)
	id := x.assign()
	r.flow = id.Flow
	if h == r.Client {
		x.local[id.Flow] = r
		x.command(ReadDisk{ID: id.Flow, Host: h, Block: rd.Block, Size: rd.Size})
		return nil
	}
	x.remote[id.Flow] = r
	return x.coflows.arrived(workloads.Coflow{ID: id.Coflow, Flows: []workloads.Flow{{ID: id.Flow, Src: h, Dst: r.Client, Size: rd.Size}}},
		origin{hash: func(workloads.FlowID) uint32 { return workloads.ReadHash(x.cfg.Seed, r.ID, read, attempt) }, read: &rd.Block})
}

// nearest returns the host from which a reader fetches a block: its own, else one of its
// rack, else any, ties at random by reader and block; -1 if all are lost or were attempted.
func (x *reads) nearest(r *reader, hosts []topo.HostID) topo.HostID {
	var at [3][]topo.HostID // by distance
	for _, h := range hosts {
		switch f := x.cfg.Fabric; {
		case x.hosts[h].lost || slices.Contains(r.tried, h):
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
			return near[workloads.Stream(x.cfg.Seed, "read", int(r.left[0].Block), int(r.ID)).IntN(len(near))]
		}
	}
	return -1
}

// fail marks the first of a reader's remaining reads as failed, as a coflow that no host sends.
func (x *reads) fail(r *reader, why string) {
	id, h, size := x.assign(), x.living(r.Client), r.left[0].Size
	x.command(
		Mark{Kind: MarkCoflow, ID: int(id.Coflow), Host: h, Parts: 1, Size: size},
		Mark{Kind: MarkFlowFailed, ID: int(id.Flow), Host: h, Parts: int(id.Coflow), Size: size, Why: why})
}
