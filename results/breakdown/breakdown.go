// Package breakdown breaks down the time of coflows and block writes by cause, from their
// packets alone. Each time is partitioned, so the shares of its causes add up to it
// exactly; coflow.go and block.go describe the rules.
//
// It does not read captures (results/flows) or print (results/report).
package breakdown

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Cause is the cause of a part of a coflow's completion time or a block's write time.
type Cause string

// Causes of a coflow's time.
const (
	// Held is waiting for the coflow policy: nothing of the coflow was in flight on its
	// bottleneck, and no flow was being set up.
	Held Cause = "held"
	// Setup is the start of flows: the policy has released them, and their first payload has
	// not left yet. It is overhead of the testbed, not of a policy (flows.FlowRecord.Setup).
	Setup Cause = "setup"
	// Serialisation is the coflow's own bytes on the wire of its bottleneck.
	Serialisation Cause = "serialisation"
	// Queueing is waiting behind bytes of other transfers, by link.
	Queueing Cause = "queueing"
	// Retransmission is waiting for a lost segment while the bottleneck had nothing of the
	// coflow to carry: a flow that continues during its recovery does not wait for it.
	Retransmission Cause = "retransmission"
	// Host is waiting for a host: nothing was in flight and no policy held flows back, or the
	// receiver's window was closed.
	Host Cause = "host"
	// Latency is the rest: propagation and TCP's window, while the links of the path were
	// free.
	Latency Cause = "latency"
)

// Causes of a block's write time, besides Held and Host.
const (
	Network Cause = "network"
	Disk    Cause = "disk"
)

// CoflowCauses returns the causes of a coflow's time in printing order.
func CoflowCauses() []Cause {
	return []Cause{Held, Setup, Serialisation, Queueing, Retransmission, Host, Latency}
}

// BlockCauses returns the causes of a block's write time in printing order.
func BlockCauses() []Cause { return []Cause{Held, Network, Disk, Host} }

// Share is a part of a time.
type Share struct {
	Cause Cause
	Link  string // link of Queueing; "" for other causes
	Time  time.Duration
}

// Total returns the sum of the shares of a cause over all links.
func Total(shares []Share, c Cause) time.Duration {
	var sum time.Duration
	for _, s := range shares {
		if s.Cause == c {
			sum += s.Time
		}
	}
	return sum
}

// Sum returns the sum of all shares.
func Sum(shares []Share) time.Duration {
	var sum time.Duration
	for _, s := range shares {
		sum += s.Time
	}
	return sum
}

// Coflow is the breakdown of one coflow's completion time. The shares add up to CCT.
type Coflow struct {
	Coflow     workloads.CoflowID
	Background bool // the coflow only loads the network
	CCT        time.Duration
	Width      int
	Size       units.Bytes
	Skew       float64 // longest flow over the average flow, by size
	Slowest    workloads.FlowID
	// Bottleneck is the link of the slowest flow's path that the coflow loads longest; "" if
	// that flow stays on its host.
	Bottleneck string
	// Lone is the time that the coflow alone needs on the wire without losses: the maximum
	// over all links of its bytes there over the link's rate. 0 if no byte leaves a host.
	Lone     time.Duration
	Slowdown float64 // CCT over Lone; 0 without one
	Shares   []Share // in the order of CoflowCauses, then by time, longest first
}

// Worst returns the link at which the coflow queued longest; "" if it did not queue.
func (c Coflow) Worst() (link string, wait time.Duration) {
	for _, s := range c.Shares {
		if s.Cause == Queueing && s.Time > wait {
			link, wait = s.Link, s.Time
		}
	}
	return link, wait
}

// Block is the breakdown of one block's write time. The shares add up to WriteTime.
type Block struct {
	Block     workloads.BlockID
	WriteTime time.Duration
	Setup     time.Duration // the part of WriteTime before the first packet leaves
	Shares    []Share       // in the order of BlockCauses
}

// Run is the breakdown of all times of one repeat of an arm.
type Run struct {
	Coflows []Coflow // in order of ID
	Blocks  []Block
	// CoflowTotal is the sum over all coflows that count (Counted), BlockTotal that over all
	// blocks, in the order of Coflow.Shares.
	CoflowTotal, BlockTotal []Share
	Traffic                 Traffic
	// Missing names the coflows and blocks with a record but no breakdown, with the reason.
	Missing []string
}

// Counted returns the coflows that count in averages: all except background coflows.
func (r *Run) Counted() iter.Seq[Coflow] {
	return func(yield func(Coflow) bool) {
		for _, c := range r.Coflows {
			if !c.Background && !yield(c) {
				return
			}
		}
	}
}

// Classes of Traffic.CrossRack.
const (
	Shuffle = "shuffle"
	Write   = "write"
	Control = "control"
	MapRead = "map-read"
)

// Classes returns the classes of traffic in printing order.
func Classes() []string { return []string{Shuffle, Write, MapRead, Control} }

// Traffic is the traffic of a repeat on the wire.
type Traffic struct {
	// CrossRack is the bytes of frames between racks, by class. Shuffle, Write and MapRead
	// are those of the senders of flows, of pipelines and of flows that carry stored blocks
	// to readers, including retransmissions. Control is all other bytes that left racks:
	// acknowledgements, which flow against the data, and frames that belong to no transfer.
	CrossRack map[string]units.Bytes
	// DiskImbalance is the coefficient of variation of the bytes that each host stored.
	DiskImbalance float64
	// Makespan is from the first arrival to the last completion.
	Makespan time.Duration
}

// ErrNoFabric reports captures that do not state the fabric they were taken in.
var ErrNoFabric = errors.New("the captures do not state the fabric they were taken in")

// Of returns the breakdown of a result's completion times. It returns ErrNoFabric if the
// captures do not state the fabric, because no path is known then; any other error is an
// inconsistency of the result.
func Of(res *flows.Result) (*Run, error) {
	if res.Meta.Fabric == nil {
		return nil, ErrNoFabric
	}
	f, err := res.Meta.Fabric.Build()
	if err != nil {
		return nil, fmt.Errorf("fabric of the captures: %w", err)
	}
	if len(res.Links) != len(f.Links()) {
		return nil, fmt.Errorf("loads of %d links for a fabric of %d links", len(res.Links), len(f.Links()))
	}
	for i, l := range res.Links {
		if int(l.Link) != i || l.Interval <= 0 {
			return nil, fmt.Errorf("load %d has link %d and interval %v: must be link %d and a positive interval", i, l.Link, l.Interval, i)
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
	for c := range out.Counted() {
		coflows.addAll(c.Shares)
	}
	for _, b := range out.Blocks {
		blocks.addAll(b.Shares)
	}
	out.CoflowTotal, out.BlockTotal = coflows.shares(CoflowCauses()), blocks.shares(BlockCauses())
	out.Traffic = r.traffic()
	return out, nil
}

// run is a result with its trails by transfer.
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
				return fmt.Errorf("%v %d of %d uses link %d of a fabric of %d links", t.Kind, t.Member, t.Group, l, len(r.res.Links))
			}
		}
		if t.Kind == wire.KindBlock {
			r.hops[workloads.BlockID(t.Group)] = append(r.hops[workloads.BlockID(t.Group)], t)
		}
	}
	// If two connections carried a flow, the one with its record counts.
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

// setup returns the span of flows.FlowRecord.Setup.
func (t *trail) setup() flows.Span {
	to := t.FirstSent
	if t.Read && t.SetUp != 0 {
		to = min(to, t.SetUp)
	}
	return flows.Span{From: to - t.record.Setup, To: to}
}

// connects returns the span from the first SYN to the end of the handshake.
func (t *trail) connects() flows.Span { return flows.Span{From: t.SYN, To: t.SetUp} }

// etherHeader is the number of bytes of a frame besides its packet.
const etherHeader units.Bytes = 14

// quiet returns the quiet spans of a transfer without the time of a frame on its sender's
// link: a packet is captured when that link releases it, after waiting for the previous
// one. A flow that has its link to itself is not quiet between two frames.
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

// ledger sums shares.
type ledger map[Share]time.Duration // keys are cause and link; their Time is 0

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

// shares returns the sums in order of cause, then by time, longest first.
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
