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
	Bytes units.Bytes // of the stream: the header of wire.Size bytes, of a hop also wire.TargetsSize of targets, then the payload
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
	Read       bool      // of a flow: it carries a stored block to a reader
	SrcName    string    // of the host that sends
	DstName    string
	// Src, Dst and Path are known where the captures state the fabric. Path is empty on
	// one host, and where the hash of a pipeline that was made anew is not known.
	Src, Dst topo.HostID
	Path     []topo.LinkID
	Size     units.Bytes // payload; of a hop from where its pipeline went on
	Wire     units.Bytes // frames that the sender put on the wire for it
	Complete bool

	SYN       time.Duration // first SYN at the sender's interface
	SetUp     time.Duration // the SYN's acknowledgement is back at the sender
	FirstSent time.Duration // first payload packet at the sender
	FirstByte time.Duration // first payload packet at the receiver
	End       time.Duration // see FlowRecord.End; of a hop its last acknowledgement at the sender

	// Sent and Received are the transfer's progress at the sender's and the
	// receiver's interface, at the same byte offsets: Sent[i].Bytes ==
	// Received[i].Bytes. Sent[i].At is when byte Bytes-1 left first, Received[i].At
	// when all up to it had come in. The first is the end of the transfer header, then
	// come multiples of one step, and the last is the whole: at most Options.Points+2 in
	// all. Where the transfer is not complete both are as long as the shorter; where one
	// end was not captured, or not its header, that one is empty.
	Sent, Received []Point
	// Quiet are the spans in which nothing was under way though bytes were still to
	// be sent: all that had been sent was acknowledged at the sender, until its next
	// payload. Of these and the two below there are the longest, Options.Spans at most, in
	// order of time, and QuietRest and so on is how long the others are together. A span
	// that lasts to the end of the capture is not among them.
	Quiet     []Span
	QuietRest time.Duration
	// Recovery are the spans in which a lost segment held the transfer up: from the
	// last acknowledgement of new bytes before a segment was sent again, or, where nothing
	// was under way then, from the first payload after it, to the acknowledgement that
	// covers all that was sent again by then.
	Recovery     []Span
	RecoveryRest time.Duration
	// Stalled are the spans in which a loss kept the transfer off the network, the longest
	// Options.Spans of them: in a recovery the sender heard nothing from the receiver for
	// longer than any round trip of the connection took, so that what had been under way
	// when it last heard was gone; or it sent its SYN again. In the rest of a recovery,
	// what was not lost still flows, and selective acknowledgements tell of it. A silence
	// that ends before anything is sent again is none.
	Stalled []Span
	// Closed are the spans in which the receiver's window was zero, as the sender saw it.
	Closed     []Span
	ClosedRest time.Duration
	// Acks of a hop of a block are the moments of its pipeline packets, thinned to
	// about Options.Points, but always with the first and the last two, as far as all
	// four moments are known.
	Acks []Ack

	Resent      int         // packets with bytes sent before
	ResentBytes units.Bytes // the bytes sent again
	// Lost are the payload packets that left the sender and did not reach the receiver:
	// those in the capture of the one less those in the capture of the other, and so with
	// what a capture itself lost (Capture.Stats). 0 where one of them is not there.
	Lost int
	// Reordered are the payload packets that came to the receiver behind a later byte,
	// with bytes that it did not have, though they were sent before: their IP
	// identification, which Linux counts up on each connection, is older than the latest.
	// Where it is the same on all packets, they are those that came within
	// Options.Reorder after the packet before.
	Reordered   int
	ZeroWindows int // packets of the receiver that announced a window of zero
	Resets      int // packets with RST, both ways
	// RTTMin and RTTMedian are of the times from payload to the acknowledgement that
	// covers it, at the sender: one for each acknowledgement, of the last packet that it
	// covers among up to 16 that are timed at once. Bytes sent again give none, nor do those
	// under way behind them. The median is of at most 64 that are evenly spread over all.
	// 0 for unknown.
	RTTMin    time.Duration
	RTTMedian time.Duration
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
//
// The load of a host's link is what its own capture has, packets of all kinds; that of
// a link between a leaf and a spine is inferred from what came to hosts, at the moment
// it came. The data of a transfer take the path that its hash decides. Which spine the
// other direction takes, the acknowledgements, is decided by hashes that only the
// switches know: all packets whose spine is not known are spread evenly over the spines.
// So is what went around a fault known nowhere. Where a switch's port was captured, its
// link's load is what the port sent.
type LinkSeries struct {
	Link     topo.LinkID
	Name     string
	Rate     units.Rate    // as built
	Interval time.Duration // of each element of Bytes, from the zero of the records
	// Bytes of Ethernet frames without check sequence that the link carried in each
	// interval: 1 ms, or as often twice that as it takes for Options.Intervals from the first packet. It is the
	// same for all links, and so is their number. A packet within an eighth of an interval of a
	// border may be counted on its other side; what came before zero is not counted.
	Bytes []units.Bytes
	// Queue is an estimate of the longest queue ahead of the link in each interval. What a
	// checkpoint of a transfer took longer than the fastest on the same path is taken for
	// waiting at the busiest link of the path behind the host's own, times its rate, and no
	// more than fits. It is 0 where no checkpoint tells, and always on the links from
	// hosts: captures see packets behind those queues. Bytes and Queue may be shared by
	// links: they must not be changed.
	Queue []units.Bytes
	// Drops are packets that were lost at the link for sure, Suspect those that were
	// lost there or at another link of their path. What a host's own queue dropped is in
	// neither.
	Drops, Suspect int
	// Observed tells that the link itself was captured. Else its load is inferred from
	// what hosts received, and the paths of their flows.
	Observed bool
}
