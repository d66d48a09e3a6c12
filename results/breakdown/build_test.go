package breakdown

import (
	"testing"
	"time"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

const ms = time.Millisecond

// Two racks of four hosts with one spine. Every link carries 1000 bytes per millisecond.
func shape() *topo.LeafSpine {
	return &topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 4, HostLink: 8 * units.Mbps, Uplink: 8 * units.Mbps, Queue: topo.Queue{Time: 20 * ms}, MTU: 1500}
}

// stretch is a period in which bytes move evenly from a sender to its receiver.
type stretch struct {
	from, to time.Duration
	bytes    units.Bytes
	quiet    bool // nothing was in flight since the previous stretch
}

// plan is the planned course of a flow.
type plan struct {
	coflow, flow, src, dst int
	arrival, syn           time.Duration
	setUp                  time.Duration // end of its handshake; 0 if it takes no time
	read                   bool          // it carries a stored block
	released               time.Duration // when its policy released it; 0 if its header does not state that
	stretches              []stretch
	recovery, stalled      []flows.Span
	closed                 []flows.Span
}

// schedule builds a result of flows and blocks that went as planned: records, trails and
// loads of links that are consistent.
type schedule struct {
	fabric *topo.Fabric
	res    flows.Result
}

func newSchedule(t testing.TB, holds bool) *schedule {
	t.Helper()
	s := &schedule{}
	var err error
	if s.fabric, err = shape().Build(); err != nil {
		t.Fatal(err)
	}
	s.res.Meta.Fabric, s.res.Meta.Holds = shape(), holds
	for _, l := range s.fabric.Links() {
		s.res.Links = append(s.res.Links, flows.LinkSeries{Link: l.ID, Name: s.fabric.LinkName(l.ID), Rate: l.Rate, Interval: ms})
	}
	return s
}

// carry puts bytes on a link evenly over a period, in whole bytes per interval.
func (s *schedule) carry(l topo.LinkID, from, to time.Duration, bytes units.Bytes) {
	link := &s.res.Links[l]
	var done units.Bytes
	for at := from; at < to; {
		next := min(to, (at/ms+1)*ms)
		for int(at/ms) >= len(link.Bytes) {
			link.Bytes = append(link.Bytes, 0)
		}
		upTo := units.Bytes(float64(bytes) * float64(next-from) / float64(to-from))
		link.Bytes[at/ms] += upTo - done
		done, at = upTo, next
	}
}

// flow adds a flow. Frames have no headers here: the stream's bytes are those on the wire.
// Checkpoints are at the ends of stretches and at four points between.
func (s *schedule) flow(p plan) {
	src, dst := topo.HostID(p.src), topo.HostID(p.dst)
	path := s.fabric.Path(src, dst, 0)
	t := flows.Trail{Kind: wire.KindFlow, Group: uint32(p.coflow), Member: uint32(p.flow), Src: src, Dst: dst, Path: path, Complete: true, SYN: p.syn, SetUp: max(p.syn, p.setUp), Read: p.read,
		Recovery: p.recovery, Stalled: p.stalled, Closed: p.closed}
	var at units.Bytes
	for i, x := range p.stretches {
		if i == 0 {
			t.FirstSent, t.FirstByte = x.from, x.from
			t.Sent = append(t.Sent, flows.Point{At: x.from, Bytes: 1})
		} else {
			t.Sent = append(t.Sent, flows.Point{At: x.from, Bytes: at})
			if x.quiet {
				t.Quiet = append(t.Quiet, flows.Span{From: p.stretches[i-1].to, To: x.from})
			}
		}
		for k := range units.Bytes(5) {
			t.Sent = append(t.Sent, flows.Point{At: x.from + (x.to-x.from)*time.Duration(k+1)/5, Bytes: at + x.bytes*(k+1)/5})
		}
		at += x.bytes
		t.End = x.to
		for _, l := range path {
			s.carry(l, x.from, x.to, x.bytes)
		}
	}
	t.Received, t.Size, t.Wire = t.Sent, at, at
	s.res.Trails = append(s.res.Trails, t)
	from, to := max(p.arrival, p.released), t.FirstSent
	if p.read {
		to = min(to, t.SetUp)
	}
	if p.released == 0 && s.res.Meta.Holds {
		from = max(from, p.syn)
	}
	s.res.Flows = append(s.res.Flows, flows.FlowRecord{Setup: max(0, to-from), Coflow: workloads.CoflowID(p.coflow), Flow: workloads.FlowID(p.flow), Src: s.fabric.HostName(src), Dst: s.fabric.HostName(dst),
		Size: at, Arrival: p.arrival, Start: t.FirstSent, End: t.End, Wire: at})
	for i := range s.res.Coflows {
		if c := &s.res.Coflows[i]; int(c.Coflow) == p.coflow {
			c.Width, c.Size, c.End = c.Width+1, c.Size+at, max(c.End, t.End)
			return
		}
	}
	s.res.Coflows = append(s.res.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(p.coflow), Width: 1, Size: at, Arrival: p.arrival, End: t.End})
}

// pipeline is the plan of a block write, with the same times for every packet.
type pipeline struct {
	packets, window int
	send            []time.Duration // time of a packet on each hop
	disk            []time.Duration // time of a packet on each host's disk
	ack             time.Duration   // time of an acknowledgement on each hop
}

// block adds a block: each host reads a packet once the previous one is on its disk,
// forwards it, and writes it.
func (s *schedule) block(id int, requested, syn time.Duration, generation uint32, p pipeline) {
	const setUp = 4 * ms // each hop takes a millisecond to connect and one to send the header
	n := len(p.send)
	acks := make([][]flows.Ack, n)
	written := make([][]time.Duration, n)
	start := syn + time.Duration(n)*setUp
	for h := range n {
		acks[h], written[h] = make([]flows.Ack, p.packets), make([]time.Duration, p.packets)
	}
	for i := range p.packets {
		at := start
		if i >= p.window {
			at = acks[0][i-p.window].Back
		}
		for h := range n {
			if h > 0 && i > 0 {
				at = max(at, written[h-1][i-1]) // reads only then
			}
			if i > 0 {
				at = max(at, acks[h][i-1].Received)
			}
			acks[h][i].Packet, acks[h][i].Sent = i, at
			at += p.send[h]
			acks[h][i].Received = at
		}
		for h := n - 1; h >= 0; h-- {
			read := acks[h][i].Received
			if i > 0 {
				read = max(read, written[h][i-1])
			}
			written[h][i] = read + p.disk[h]
			acked := written[h][i]
			if h+1 < n {
				acked = max(acked, acks[h+1][i].Back)
			}
			acks[h][i].Acked, acks[h][i].Back = acked, acked+p.ack
		}
	}
	var hosts []string
	for h := range n {
		src, dst := topo.HostID(h), topo.HostID(h+1)
		first := syn + time.Duration(h)*setUp
		s.res.Trails = append(s.res.Trails, flows.Trail{Kind: wire.KindBlock, Group: uint32(id), Member: uint32(h), Generation: generation, Src: src, Dst: dst, Path: s.fabric.Path(src, dst, 0), Complete: true,
			SYN: first, SetUp: first + ms, FirstSent: first + ms, FirstByte: first + 2*ms, End: acks[h][p.packets-1].Back, Acks: acks[h], RTTMin: ms, Size: 1000, Wire: 1100})
		hosts = append(hosts, s.fabric.HostName(dst))
	}
	s.res.Blocks = append(s.res.Blocks, flows.BlockRecord{Block: workloads.BlockID(id), Client: s.fabric.HostName(0), Hosts: hosts, Pipelines: 1 + int(generation), Size: 1000, Requested: requested, End: acks[0][p.packets-1].Back})
}

func (s *schedule) of(t testing.TB) *Run {
	t.Helper()
	r, err := Of(&s.res)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
