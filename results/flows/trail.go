package flows

import (
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// Point is the progress of a transfer at a moment.
type Point struct {
	At    time.Duration
	Bytes units.Bytes // stream offset: the payload follows the header and, on a hop, wire.TargetsSize bytes of targets
}

// Span is a period of time.
type Span struct{ From, To time.Duration }

// Trail is the progress of one transfer, a flow of a coflow or a hop of a block's pipeline,
// measured from its packets. Its size is bounded (Options.Points, Options.Spans) and does
// not depend on that of the transfer.
type Trail struct {
	Kind       wire.Kind // KindFlow or KindBlock
	Group      uint32    // coflow or block
	Member     uint32    // flow, or hop from 0
	Generation uint32    // of a block's pipeline
	Read       bool      // a flow that carries a stored block to a reader
	Task       wire.Task // that a flow serves; the zero value for other transfers
	SrcName    string    // name of the sending host
	DstName    string    // name of the receiving host
	// Src, Dst and Path are known if the captures describe the fabric. Path is empty
	// within one host, and for a rebuilt pipeline whose hash is unknown.
	Src, Dst topo.HostID
	Path     []topo.LinkID
	Size     units.Bytes // payload; in a rebuilt pipeline, the rest after its resume offset
	// PacketSize is the size of a packet of a pipeline, which is sent when it is full; 0 for a flow.
	PacketSize units.Bytes
	Wire       units.Bytes // frames that the sender sent for the transfer
	Complete   bool

	SYN       time.Duration // first SYN at the sender's interface
	SetUp     time.Duration // the SYN's acknowledgement at the sender's interface
	FirstSent time.Duration // first payload packet at the sender
	FirstByte time.Duration // first payload packet at the receiver
	End       time.Duration // see FlowRecord.End; of a hop, its last acknowledgement at the sender

	// Sent and Received are the transfer's progress at the sender's and the
	// receiver's interface, at the same byte offsets: Sent[i].Bytes ==
	// Received[i].Bytes. Sent[i].At is when byte Bytes-1 was first sent, Received[i].At
	// when all bytes up to it had been received. The first point is the end of the transfer
	// header, then follow multiples of one step, and the last is the end of the stream; there
	// are at most Options.Points+2. If the transfer is not complete, both have the length of
	// the shorter one; if one end or its header was not captured, its list is empty.
	Sent, Received []Point
	// Quiet are the spans in which nothing was in flight although bytes remained to be
	// sent: from the acknowledgement of all bytes sent so far to the next payload, at the
	// sender. Quiet, Recovery and Closed list the longest spans, at most Options.Spans, in
	// order of time; QuietRest, RecoveryRest and ClosedRest are the total length of the
	// others. A span that lasts to the end of the capture is not included.
	Quiet     []Span
	QuietRest time.Duration
	// Recovery are the spans in which the transfer recovered from a loss. A span begins
	// with the last acknowledgement of new bytes before a retransmission or, if nothing was
	// in flight then, with the next payload. It ends with the acknowledgement of all bytes
	// resent by then.
	Recovery     []Span
	RecoveryRest time.Duration
	// Stalled are the spans, at most Options.Spans of the longest, in which a loss left
	// nothing of the transfer in flight: during a recovery, the sender received nothing from
	// the receiver for longer than the maximum round-trip time of the connection; or it
	// waited to resend its SYN. In the rest of a recovery, other data still flow and are
	// acknowledged selectively. A silence that ends before a retransmission does not count.
	Stalled []Span
	// Closed are the spans in which the receiver's window was zero, as seen by the sender.
	Closed     []Span
	ClosedRest time.Duration
	// Acks are the times of the pipeline packets of a hop: a sample of about
	// Options.Points packets that includes the first and the last two. Packets of which
	// any of the four times is unknown are left out.
	Acks []Ack

	Packets     int         // with payload, at the sender
	Resent      int         // packets with bytes sent before
	ResentBytes units.Bytes // bytes sent again
	// Lost is the number of payload packets in the sender's capture minus those in the
	// receiver's. It is 0 if either is missing, and inexact if a capture lost packets
	// (Capture.Stats).
	Lost int
	// Repeated is the number of payload packets with bytes that the receiver had captured before.
	Repeated int
	// Reordered is the number of payload packets with new bytes that the receiver got after
	// later bytes, although they were sent before those: their IP identification, which
	// Linux increments on each connection, is older than the latest. If the identification
	// is the same on all packets, a packet counts if it came within Options.Reorder after
	// the previous one.
	Reordered   int
	ZeroWindows int // packets from the receiver that announced a window of zero
	Resets      int // packets with RST, in both directions
	// RTTMin and RTTMedian are the minimum and the median of the round-trip times at the
	// sender, from payload to acknowledgement; 0 for unknown. Up to 16 packets are timed
	// at once, and each acknowledgement gives one sample, for the last of them that it
	// covers. Resent bytes and bytes in flight after them give no sample. The median is
	// taken over at most 64 evenly spaced samples.
	RTTMin    time.Duration
	RTTMedian time.Duration
}

// Ack holds the times of one pipeline packet on one hop.
type Ack struct {
	Packet   int           // number of the packet, from 0
	Sent     time.Duration // first byte sent
	Received time.Duration // last byte received
	Acked    time.Duration // acknowledgement sent by the receiver
	Back     time.Duration // acknowledgement received by the sender
}

// LinkSeries is the load of one directed link over time.
//
// The load of a host's link is measured in the host's capture and includes all packets.
// The load of a link between a leaf and a spine is inferred from the packets that hosts
// received, at the time of reception. The data of a transfer take the path that its hash
// selects. The spine of other packets, such as acknowledgements, is unknown, because it
// depends on hashes inside the switches: they are spread evenly over the spines. Detours
// around faults are unknown. If a switch's port was captured, the load of its link is
// the traffic that the port sent.
type LinkSeries struct {
	Link     topo.LinkID
	Name     string
	Rate     units.Rate    // as built
	Interval time.Duration // length of the intervals, which start at the zero of the records
	// Bytes are the Ethernet frames, without check sequence, that the link carried in each
	// interval. The interval is 1 ms, doubled until the capture fits into Options.Intervals.
	// It is the same for all links, and so is the number of intervals. A packet within an
	// eighth of an interval of a border may be counted on its other side. Packets before
	// zero do not count.
	Bytes []units.Bytes
	// Payload is what the captured host at the end of the link received of transfers in each interval, each byte
	// once, when it arrived: also behind a gap. It is nil for other links.
	Payload []units.Bytes `json:",omitempty"`
	// Queue is an estimate of the maximum queue ahead of the link in each interval. The
	// delay of a transfer's checkpoint relative to the fastest one on the same path is
	// attributed to the busiest link of the path after the host's own. The delay times the
	// link's rate, at most the queue's capacity, is the estimate. It is 0 if the interval has
	// no checkpoint, and on all links from hosts, whose queues are before the captures. Links
	// may share Bytes and Queue: they must not be modified.
	Queue []units.Bytes
	// Drops is the number of packets that the queue ahead of the link dropped. If Counted
	// is set, it is the kernel's count of all packets. Otherwise it is an estimate from
	// captures: packets with payload that were seen before the link but not after it, each
	// counted once. If captures leave several possible links, the one with the highest load
	// during the recoveries of the transfer counts (the first of equal ones). Links from
	// hosts have no estimate, because captures record packets after the hosts' queues.
	// Transfers whose captures lack packets are left out.
	Drops   int
	Counted bool
	// Observed reports whether the link itself was captured. Otherwise its load is
	// inferred from the packets that hosts received and the paths of their transfers.
	Observed bool
}
