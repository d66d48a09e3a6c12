package live

import (
	"sync"

	"testbed/emu/fidelity"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// queues keeps what samples showed of each link's queue, for the check queue. Every reading of a
// namespace updates all of its ports.
type queues struct {
	mu   sync.Mutex
	at   map[string][]topo.LinkID // by namespace
	last []reading                // by LinkID; at is zero before the first
	seen []fidelity.Queue         // by LinkID
}

func newQueues(f *topo.Fabric, ports []port) *queues {
	q := &queues{at: map[string][]topo.LinkID{}, last: make([]reading, len(ports)), seen: make([]fidelity.Queue, len(ports))}
	for i, p := range ports {
		id := topo.LinkID(i)
		q.at[p.namespace] = append(q.at[p.namespace], id)
		q.seen[i] = fidelity.Queue{Link: f.LinkName(id), Limit: f.Link(id).Queue, Frame: f.Shape().MTU + plan.EthernetHeader}
		if n := plan.ShaperOf(f, id, f.Link(id).Rate, nil).Packets; n > 0 {
			q.seen[i].Limit = units.Bytes(n) * q.seen[i].Frame
		}
	}
	return q
}

// note adds the counters of a namespace, read after those that were noted before.
func (q *queues) note(f *topo.Fabric, namespace string, ports []port, r readings) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range q.at[namespace] {
		d, ok := r.device(ports[id].device)
		if !ok {
			continue // the caller reports it for the port that it reads
		}
		x, was := &q.seen[id], q.last[id]
		if !was.at.IsZero() && !r.at.After(was.at) {
			continue
		}
		q.last[id] = reading{id, r.at, d.Qdisc}
		x.Longest = max(x.Longest, d.Qdisc.Backlog)
		// RED drops early, and netem by packets of any size, so their drops are no bound.
		if was.at.IsZero() || d.Qdisc.Dropped == was.Dropped || f.Link(id).RED != nil || f.Shape().StoreAndForward || d.Qdisc.Bytes < was.Bytes {
			continue
		}
		x.Drops++
		if most := d.Qdisc.Backlog + d.Qdisc.Bytes - was.Bytes + x.Frame; x.AtMost == 0 || most < x.AtMost {
			x.AtMost = most
		}
	}
}

// used returns the queues that held or dropped packets at any sample.
func (q *queues) used() (out []fidelity.Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, x := range q.seen {
		if x.Longest > 0 || x.Drops > 0 {
			out = append(out, x)
		}
	}
	return out
}
