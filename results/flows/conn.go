package flows

import (
	"errors"
	"fmt"
	"math"

	"testbed/hosts/wire"
	"testbed/topo/units"
)

// endpoints are the two ends of a TCP connection. The client is the end that sent the SYN.
type endpoints struct {
	client, server         addr
	clientPort, serverPort uint16
}

// connID identifies a connection in the captures of both ends. Its sequence number
// distinguishes later connections between the same endpoints.
type connID struct {
	endpoints
	isn uint32 // the client's initial sequence number
}

// standing is the classification of a connection or mark.
type standing uint8

const (
	pending  standing = iota // its header is not complete
	ours                     // of this run
	otherRun                 // a header of another run
	foreign                  // no testbed header
	damaged                  // a header that cannot be read
)

// conn is a connection in the capture of one host. Its size does not depend on the bytes
// carried. The fields needed for every packet come first, in three cache lines, because
// with many concurrent connections fetching them takes longer than processing them.
type conn struct {
	out  *sender  // if atClient
	hop  *hop     // of a block
	sent coverage // bytes client → server

	frames   Counts      // all packets in both directions
	wire     units.Bytes // of all packets client → server
	packets  int         // with payload, client → server
	start    int64       // time of the first packet with payload, client → server
	standing standing
	noSYN    bool // its SYN was not captured: recognized by its header
	hasAcks  bool // the start of the server's stream is known
	atClient bool // the captured host is the client
	atServer bool // the captured host is the server; on lo it is both
	counted  bool // its packets so far are part of Foreign
	spine    int16
	checks   checkpoints

	in     receiver // if atServer
	resent int

	connID
	end         int64 // time of the packet that completes the stream; 0 before it
	synAgain    uint32
	early       uint32 // packets client → server until its standing is known
	resets      int
	zeroWindows int

	header  wire.Header
	headErr error
	head    prefix
}

// mostBytes is the maximum size of a transfer that a header may claim, so that stream
// offsets up to one pipeline packet past its end do not overflow.
const mostBytes = math.MaxInt64 - wire.MaxSize - wire.TargetsSize - math.MaxUint32

func service(port uint16) bool { return port == wire.ShufflePort || port == wire.BlockPort }

// slab allocates values in arrays, so that they are adjacent and allocations are few.
type slab[T any] struct{ free []T }

func (s *slab[T]) take() *T {
	if len(s.free) == 0 {
		s.free = make([]T, 128)
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

// slabs allocate the connections of one capture.
type slabs struct {
	conns   slab[conn]
	senders slab[sender]
	hops    slab[hop]
}

func (s *slabs) conn(ends endpoints, isn uint32, self addr) *conn {
	c := s.conns.take()
	c.connID, c.spine, c.atClient, c.atServer = connID{ends, isn}, unknownSpine, ends.client == self, ends.server == self
	c.sent.base = isn + 1
	c.checks.at = math.MaxInt64
	if c.atClient {
		c.out = s.senders.take()
	}
	if c.serverPort == wire.BlockPort {
		c.hop = s.hops.take()
	}
	return c
}

// forward processes a segment from the client, which carries the header and the data. It returns how many bytes of the
// data were seen for the first time.
func (c *conn) forward(f *frame, stamp int64, frame int, o *settings) (payload int64) {
	c.wire += units.Bytes(frame)
	if c.standing == pending {
		c.early++
	}
	if f.length == 0 {
		return 0
	}
	off, n := c.sent.place(f.seq), int64(f.length)
	if off+n <= 0 { // a keep-alive probe carries no byte of the stream
		return 0
	}
	if c.packets == 0 {
		c.start = stamp
	}
	c.packets++
	top := c.sent.end()
	fresh := c.sent.add(off, f.length)
	if fresh < n {
		c.resent++
	}
	if c.out != nil {
		c.out.payload(off, off+n, fresh, stamp, o)
	}
	if c.atServer {
		c.in.payload(off, top, fresh, stamp, f.ident, o)
	}
	if c.standing == pending {
		c.head.add(off, f.payload, f.length)
		if c.head.whole() {
			c.identify(o)
		}
	} else if off < wire.MaxSize {
		c.head.add(off, f.payload, f.length)
	}
	// A sender's progress is its highest byte, because packets missing from its capture
	// were sent earlier. A receiver's progress is its contiguous data.
	reached := c.sent.next
	if !c.atServer {
		reached = c.sent.end()
	}
	if reached >= c.checks.at {
		c.checks.pass(reached, stamp)
	}
	if c.sent.next >= c.checks.total && c.end == 0 && c.standing == ours && c.sent.covers(c.checks.total) {
		c.end = stamp
	}
	if c.standing != ours {
		return 0
	}
	if c.hop != nil {
		c.hop.data(c, stamp)
		c.checkAcks(stamp)
	}
	if off < mostLead {
		fresh -= min(fresh, max(0, lead(c.header)-off))
	}
	return fresh
}

// mostLead is the most of lead.
const mostLead = wire.MaxSize + wire.TargetsSize

// lead returns the number of bytes before the payload of a stream: the header and, of a block, its targets.
func lead(h wire.Header) int64 {
	if h.Kind == wire.KindBlock {
		return int64(h.Len()) + wire.TargetsSize
	}
	return int64(h.Len())
}

// streamLen returns the length in bytes of the stream that carries a flow or a hop of a block.
func streamLen(h wire.Header) int64 {
	if h.Kind == wire.KindBlock {
		return lead(h) + int64(h.Size-h.Resumes())
	}
	return lead(h) + int64(h.Size)
}

func (c *conn) identify(o *settings) {
	c.header, c.headErr = wire.Parse(c.head.bytes[:c.head.length()])
	switch {
	case errors.Is(c.headErr, wire.ErrNotHeader):
		c.standing = foreign
	case c.headErr != nil:
		c.standing = damaged
	case c.header.Kind != wire.KindFlow && c.header.Offset > c.header.Size:
		c.standing, c.headErr = damaged, fmt.Errorf("testbed header: resumes at %d of %d bytes", c.header.Offset, c.header.Size)
	case c.header.Size > mostBytes:
		c.standing, c.headErr = damaged, fmt.Errorf("testbed header: implausible size of %d bytes", c.header.Size)
	case c.header.Run != o.run:
		c.standing = otherRun
	default:
		c.standing = ours
		c.checks = newCheckpoints(c.header, o.points)
		if c.hop != nil {
			c.hop.begin(c.header, o.points)
		}
		if o.paths != nil {
			c.spine = o.paths.spine(c)
		}
	}
}

// backward processes a segment from the server, which acknowledges the data and, for a
// block, carries the acknowledgements of its pipeline.
func (c *conn) backward(f *frame, stamp int64, o *settings) {
	if f.flags&(flagSYN|flagRST) == 0 && f.window == 0 {
		c.zeroWindows++
	}
	if c.standing == pending && c.packets == 0 && f.length > 0 {
		c.standing = foreign // a server of the run sends nothing before it has the header
	}
	if s := c.out; s != nil && f.flags&flagRST == 0 {
		switch {
		case f.flags&flagACK == 0:
		case f.flags&flagSYN != 0:
			if s.setUp == 0 && f.ack == c.sent.base {
				s.setUp = stamp
			}
		default:
			s.acknowledged(c.sent.place(f.ack), c.sent.end(), c.checks.total, stamp, f.window == 0, o)
		}
	}
	if c.hop != nil {
		c.hop.acknowledgement(c, f, stamp)
	}
}

// checkAcks sets the end of a hop once its acknowledgements are complete.
func (c *conn) checkAcks(stamp int64) {
	h := c.hop
	if h.end != 0 || c.standing != ours || c.header.Kind != wire.KindBlock || c.header.Packet == 0 || h.acks.given > 0 {
		return
	}
	last := wire.Packets(c.header.Size, uint64(c.header.Packet))
	if end, ok := h.read.after(last); ok {
		if h.acks.next >= end {
			h.end = stamp
		}
		return
	}
	// The last acknowledgement was cut off, because it shared a segment with too many others.
	if uint64(h.acks.next) >= ackBytes(c.header)+uint64(len(h.read.alive))*wire.AckSize && !h.read.failed {
		h.end = stamp
	}
}
