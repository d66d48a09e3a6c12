package flows

import (
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// Point is how far a transfer was at a moment.
type Point struct {
	At    time.Duration
	Bytes units.Bytes // of the stream: the header of wire.Size bytes, then the payload
}

// Span is a stretch of time.
type Span struct{ From, To time.Duration }

// Trail is how one transfer went, as its packets tell: a flow of a coflow, or one
// hop of a pipeline of a block. Its size is bounded (Options.Points,
// Options.Spans) whatever the transfer's is.
type Trail struct {
	Kind       wire.Kind // KindFlow or KindBlock
	Group      uint32    // coflow or block
	Member     uint32    // flow, or hop from 0
	Generation uint32    // of a block's pipeline
	Src, Dst   topo.HostID
	Path       []topo.LinkID // nothing on one host; unknown where there is no fabric
	Size       units.Bytes   // payload
	Wire       units.Bytes   // frames that the sender put on the wire for it
	Complete   bool

	SYN       time.Duration // first SYN at the sender's interface
	SetUp     time.Duration // the SYN's acknowledgement is back at the sender
	FirstSent time.Duration // first payload packet at the sender
	FirstByte time.Duration // first payload packet at the receiver
	End       time.Duration // see FlowRecord.End; of a hop its last acknowledgement at the sender

	// Sent and Received are the transfer's progress at the sender's and the
	// receiver's interface, at the same byte offsets: Sent[i].Bytes ==
	// Received[i].Bytes. Sent[i].At is when byte Bytes-1 left first, Received[i].At
	// when all up to it had come in. The first is the first packet, the last the
	// whole.
	Sent, Received []Point
	// Quiet are the spans in which nothing was under way though bytes were still to
	// be sent: all that had been sent was acknowledged at the sender, until its next
	// payload.
	Quiet []Span
	// Recovery are the spans in which a lost segment held the transfer up: from the
	// last acknowledgement of new bytes before a segment was sent again to the one that
	// covers it.
	Recovery []Span
	// Closed are the spans in which the receiver's window was zero, as the sender saw it.
	Closed []Span
	// Acks of a hop of a block are the moments of its pipeline packets, thinned to
	// Options.Points.
	Acks []Ack

	Resent      int         // packets with bytes sent before
	ResentBytes units.Bytes // the bytes sent again
	Lost        int         // payload packets that left the sender and did not reach the receiver
	Reordered   int         // payload packets at the receiver behind a later byte, not sent again
	ZeroWindows int         // packets that announced a window of zero
	Resets      int         // packets with RST
	RTTMin      time.Duration
	RTTMedian   time.Duration // payload to the acknowledgement that covers it, at the sender; 0 for unknown
}

// Ack is one packet of a block's pipeline on one hop.
type Ack struct {
	Packet   int           // from 0
	Sent     time.Duration // its first byte leaves the hop's sender
	Received time.Duration // its last byte is at the hop's receiver
	Acked    time.Duration // its acknowledgement leaves the receiver
	Back     time.Duration // its acknowledgement is at the sender
}

// LinkSeries is the load of one directed link over time.
type LinkSeries struct {
	Link     topo.LinkID
	Name     string
	Rate     units.Rate    // as built
	Interval time.Duration // of each element of Bytes, from the zero of the records
	// Bytes of Ethernet frames without check sequence that the link carried in each
	// interval.
	Bytes []units.Bytes
	// Queue is an estimate of the longest queue ahead of the link in each interval.
	Queue []units.Bytes
	// Drops are packets that were lost at the link for sure, Suspect those that were
	// lost there or at another link of their path.
	Drops, Suspect int
	// Observed tells that the link itself was captured. Else its load is inferred from
	// what hosts sent and received, and the paths of their flows.
	Observed bool
}
