// Package timing tells where the time of coflows and block writes went, from what
// their packets did and nothing else. Each time is partitioned, so that the shares
// of its causes add up to it exactly: coflow.go and block.go say how.
//
// It reads no captures (results/flows) and prints nothing (results/report).
package timing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Cause is what a stretch of a coflow's completion time or a block's write time
// was spent on.
type Cause string

// The causes of a coflow's time.
const (
	// Held is waiting for the coflow policy: nothing of the coflow was under way on
	// its bottleneck. What an agent is late to send hides in it too; the check of
	// scheduling lateness bounds that.
	Held Cause = "held"
	// Serialisation is the coflow's own bytes on the wire of its bottleneck.
	Serialisation Cause = "serialisation"
	// Queueing is waiting behind the bytes of others, by link.
	Queueing Cause = "queueing"
	// Retransmission is waiting for a lost segment while the bottleneck had nothing of
	// the coflow to carry: a flow that goes on beside its recovery does not wait for it.
	Retransmission Cause = "retransmission"
	// Host is waiting for a host: nothing was under way and no policy holds flows
	// back, or the receiver's window was closed.
	Host Cause = "host"
	// Latency is the rest: connection set-up, propagation and TCP's window, while the
	// links of the path were free.
	Latency Cause = "latency"
)

// The causes of a block's write time, besides Held and Host.
const (
	Network Cause = "network"
	Disk    Cause = "disk"
)

// CoflowCauses and BlockCauses are the causes in the order in which they are told.
func CoflowCauses() []Cause {
	return []Cause{Held, Serialisation, Queueing, Retransmission, Host, Latency}
}

// BlockCauses: see CoflowCauses.
func BlockCauses() []Cause { return []Cause{Held, Network, Disk, Host} }

// Share is a part of a time.
type Share struct {
	Cause Cause
	Link  string // of Queueing: where
	Time  time.Duration
}

// Total is the sum of the shares of a cause over all links.
func Total(shares []Share, c Cause) time.Duration {
	var sum time.Duration
	for _, s := range shares {
		if s.Cause == c {
			sum += s.Time
		}
	}
	return sum
}

// Sum is the sum of all shares.
func Sum(shares []Share) time.Duration {
	var sum time.Duration
	for _, s := range shares {
		sum += s.Time
	}
	return sum
}

// Coflow is one coflow's completion time, taken apart. The shares add up to CCT.
type Coflow struct {
	Coflow  workloads.CoflowID
	CCT     time.Duration
	Width   int
	Size    units.Bytes
	Skew    float64 // longest flow over the average flow, by size
	Slowest workloads.FlowID
	// Bottleneck is the link of the slowest flow's path that the coflow loads longest;
	// "" where that flow stays on its host.
	Bottleneck string
	// Lone is the coflow's time on the wire, were it alone and nothing lost: longest
	// over all links of its bytes there over the link's rate. 0 where none leaves a host.
	Lone     time.Duration
	Slowdown float64 // CCT over Lone; 0 without one
	Shares   []Share // in order of cause, as CoflowCauses has them; then by time, longest first
}

// Worst is the link at which the coflow queued longest; "" where it did not.
func (c Coflow) Worst() (link string, wait time.Duration) {
	for _, s := range c.Shares {
		if s.Cause == Queueing && s.Time > wait {
			link, wait = s.Link, s.Time
		}
	}
	return link, wait
}

// Block is one block's write time, taken apart. The shares add up to WriteTime.
type Block struct {
	Block     workloads.BlockID
	WriteTime time.Duration
	Shares    []Share // in order of cause, as BlockCauses has them
}

// Run is all that is known of where the time of one repeat of an arm went.
type Run struct {
	Coflows []Coflow // in order of ID
	Blocks  []Block
	// CoflowTotal and BlockTotal are the sums over all coflows and blocks, in the order
	// of Coflow.Shares.
	CoflowTotal, BlockTotal []Share
	Traffic                 Traffic
	// Missing says which coflows and blocks with a record are not taken apart, and why.
	Missing []string
}

// The classes of Traffic.CrossRack.
const (
	Shuffle = "shuffle"
	Write   = "write"
	Control = "control"
	MapRead = "map-read"
)

// Classes are the classes of traffic in the order in which they are told.
func Classes() []string { return []string{Shuffle, Write, Control, MapRead} }

// Traffic is what a repeat put on the wire.
type Traffic struct {
	// CrossRack are the bytes of frames that crossed racks, by class. Shuffle, Write and
	// MapRead are those of senders, of flows, of pipelines and of flows that carry stored
	// blocks to readers, resent ones included. Control is what else left racks:
	// acknowledgements, which flow against the data, and what belongs to no transfer.
	CrossRack map[string]units.Bytes
	// DiskImbalance is the coefficient of variation of the bytes that each host stored.
	DiskImbalance float64
	// Makespan is from the first arrival to the last completion.
	Makespan time.Duration
}

// ErrNoFabric is captures that do not state the fabric they were taken in.
var ErrNoFabric = errors.New("the captures do not state the fabric they were taken in")

// Of takes the completion times of a result apart. It is ErrNoFabric where the
// captures do not state the fabric, without which no path is known; any other error
// is a mistake in the result.
func Of(res *flows.Result) (*Run, error) {
	if res.Meta.Fabric == nil {
		return nil, ErrNoFabric
	}
	f, err := res.Meta.Fabric.Build()
	if err != nil {
		return nil, fmt.Errorf("the fabric that the captures state: %w", err)
	}
	if len(res.Links) != len(f.Links()) {
		return nil, fmt.Errorf("%d loads of links for a fabric of %d links", len(res.Links), len(f.Links()))
	}
	for i, l := range res.Links {
		if int(l.Link) != i || l.Interval <= 0 {
			return nil, fmt.Errorf("load %d is of link %d in intervals of %v: want link %d and a positive interval", i, l.Link, l.Interval, i)
		}
	}
	r := &run{res: res, fabric: f, flows: map[workloads.CoflowID][]*trail{}, hops: map[workloads.BlockID][]*flows.Trail{}}
	if err := r.index(); err != nil {
		return nil, err
	}
	out := &Run{}
	for _, c := range res.Coflows {
		done, err := r.coflow(c)
		if err != nil {
			out.Missing = append(out.Missing, fmt.Sprintf("coflow %d: %v", c.Coflow, err))
			continue
		}
		out.Coflows = append(out.Coflows, done)
	}
	for _, b := range res.Blocks {
		done, err := r.block(b)
		if err != nil {
			out.Missing = append(out.Missing, fmt.Sprintf("block %d: %v", b.Block, err))
			continue
		}
		out.Blocks = append(out.Blocks, done)
	}
	var coflows, blocks ledger
	for _, c := range out.Coflows {
		coflows.addAll(c.Shares)
	}
	for _, b := range out.Blocks {
		blocks.addAll(b.Shares)
	}
	out.CoflowTotal, out.BlockTotal = coflows.shares(CoflowCauses()), blocks.shares(BlockCauses())
	out.Traffic = r.traffic()
	return out, nil
}

// run is a result with its trails by what they are of.
type run struct {
	res    *flows.Result
	fabric *topo.Fabric
	flows  map[workloads.CoflowID][]*trail
	hops   map[workloads.BlockID][]*flows.Trail
}

func (r *run) index() error {
	for i := range r.res.Trails {
		t := &r.res.Trails[i]
		for _, l := range t.Path {
			if l < 0 || int(l) >= len(r.res.Links) {
				return fmt.Errorf("%v %d of %d goes over link %d of a fabric of %d links", t.Kind, t.Member, t.Group, l, len(r.res.Links))
			}
		}
		if t.Kind == wire.KindBlock {
			r.hops[workloads.BlockID(t.Group)] = append(r.hops[workloads.BlockID(t.Group)], t)
		}
	}
	// Of a flow that was carried by two connections, the one that has its record counts.
	byFlow := map[workloads.FlowID]*flows.Trail{}
	ends := map[workloads.FlowID]time.Duration{}
	for _, f := range r.res.Flows {
		ends[f.Flow] = f.End
	}
	for i := range r.res.Trails {
		t := &r.res.Trails[i]
		id := workloads.FlowID(t.Member)
		if end, ok := ends[id]; ok && t.Kind == wire.KindFlow && t.Complete && (byFlow[id] == nil || t.End == end && byFlow[id].End != end) {
			byFlow[id] = t
		}
	}
	for _, f := range r.res.Flows {
		if t := byFlow[f.Flow]; t != nil && workloads.CoflowID(t.Group) == f.Coflow {
			r.flows[f.Coflow] = append(r.flows[f.Coflow], &trail{t, f, r.quiet(t)})
		}
	}
	return nil
}

// trail is a flow's trail and its record.
type trail struct {
	*flows.Trail
	record flows.FlowRecord
	quiet  []flows.Span
}

// etherHeader is what a frame has besides the packet in it.
const etherHeader units.Bytes = 14

// quiet is the quiet spans of a transfer less what a frame takes on its sender's link:
// a packet is seen when that link lets it go, for which it waits as long after the
// one before. A flow that has its link to itself is not quiet between two frames.
func (r *run) quiet(t *flows.Trail) []flows.Span {
	if len(t.Path) == 0 {
		return t.Quiet
	}
	frame := r.fabric.Link(t.Path[0]).Rate.TimeToSend(r.fabric.Shape().MTU + etherHeader)
	var out []flows.Span
	for _, q := range t.Quiet {
		if q.To -= frame; q.To > q.From {
			out = append(out, q)
		}
	}
	return out
}

// ledger adds up shares.
type ledger map[Share]time.Duration // by cause and link; Time is 0

func (l *ledger) add(c Cause, link string, d time.Duration) {
	if d == 0 {
		return
	}
	if *l == nil {
		*l = ledger{}
	}
	(*l)[Share{Cause: c, Link: link}] += d
}

func (l *ledger) addAll(shares []Share) {
	for _, s := range shares {
		l.add(s.Cause, s.Link, s.Time)
	}
}

// shares are what was added, in order of cause, then by time, longest first.
func (l ledger) shares(order []Cause) []Share {
	out := make([]Share, 0, len(l))
	for s, d := range l {
		s.Time = d
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Cause), slices.Index(order, b.Cause)), cmp.Compare(b.Time, a.Time), cmp.Compare(a.Link, b.Link))
	})
	return out
}
