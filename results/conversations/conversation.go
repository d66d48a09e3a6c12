package conversations

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"testbed/hosts/wire"
	"testbed/topo/units"
)

// Protocols of conversations.
const (
	TCP = "tcp"
	UDP = "udp"
)

// Counts are packets and the bytes of their frames, without frame check sequence.
type Counts struct {
	Packets int
	Bytes   units.Bytes
}

func (c *Counts) add(frame int) {
	c.Packets++
	c.Bytes += units.Bytes(frame)
}

func (c *Counts) sum(d Counts) {
	c.Packets += d.Packets
	c.Bytes += d.Bytes
}

// Direction is one half of a conversation. TCP fields are 0 for UDP. It is small, because
// captures may have millions of conversations.
type Direction struct {
	Counts
	Payload units.Bytes // including retransmissions
	// First and Last are the timestamps of the first and last packet with payload, Unix
	// nanoseconds; 0 without payload.
	First, Last int64
	*Faults     // never nil

	seen          coverage
	base          uint32 // sequence number of its SYN, or one below the first in the capture
	acked         uint32 // last acknowledgement of the other side's bytes
	SYN, FIN, RST uint32 // packets with the flag
	window        uint16 // last advertised
	known         known
}

// known is what is known of a direction: a set of bits.
type known uint8

const (
	knowsBase   known = 1 << iota // Direction.base
	knowsAcked                    // Direction.acked
	knowsSeen                     // Direction.seen
	knowsHeader                   // the transfer header was looked for
)

// Faults are the figures of a direction that most directions do not have.
type Faults struct {
	Retransmissions int
	ResentBytes     units.Bytes // payload that was not new
	OutOfOrder      int
	ZeroWindows     int

	head []byte // first part of a transfer header that continues in the next packets
}

// noFaults are those of all directions without faults, and never change.
var noFaults Faults

// faults returns the direction's own Faults, to be changed.
func (d *Direction) faults() *Faults {
	if d.Faults == &noFaults {
		d.Faults = &Faults{}
	}
	return d.Faults
}

// Goodput returns Payload, each byte once, over the time from First to Last; 0 if that time
// is 0.
func (d *Direction) Goodput() units.Rate {
	if d.Last <= d.First {
		return 0
	}
	return units.Rate(min(float64(d.Payload-d.ResentBytes)*8e9/float64(d.Last-d.First), math.MaxInt64/2))
}

// Conversation is the exchange between two endpoints.
type Conversation struct {
	Stream       int // among the capture's conversations of its protocol, from 0
	hosts        *hosts
	portA, portB uint16
	tcp          bool
	synAck       bool // B answered
	AB, BA       Direction
	From, To     int64 // earliest and latest timestamp, Unix nanoseconds
	// Handshake is for TCP only; 0 if it was not captured.
	Handshake time.Duration
	// Transfer is the transfer that this project's headers name; nil for none.
	Transfer *Transfer

	syn int64 // the last SYN of A; 0 for none
}

// hosts are the addresses of conversations, which share them.
type hosts struct{ a, b netip.Addr }

// A returns the endpoint that sent the first packet, or the client if that packet was the server's SYN.
func (c *Conversation) A() netip.AddrPort { return netip.AddrPortFrom(c.hosts.a, c.portA) }

// B returns the other endpoint.
func (c *Conversation) B() netip.AddrPort { return netip.AddrPortFrom(c.hosts.b, c.portB) }

// Protocol returns TCP or UDP.
func (c *Conversation) Protocol() string {
	if c.tcp {
		return TCP
	}
	return UDP
}

// fromA reports whether A sent a segment of the conversation.
func (c *Conversation) fromA(s *segment) bool {
	return s.src.Port() == c.portA && s.src.Addr() == c.hosts.a
}

// has reports whether a segment is between the two endpoints.
func (c *Conversation) has(s *segment) bool {
	if c.tcp != s.tcp {
		return false
	}
	a, b := s.src, s.dst
	if !c.fromA(s) {
		a, b = b, a
	}
	return a.Port() == c.portA && b.Port() == c.portB && a.Addr() == c.hosts.a && b.Addr() == c.hosts.b
}

// Duration returns the time from the earliest packet to the latest.
func (c *Conversation) Duration() time.Duration { return time.Duration(c.To - c.From) }

// Packets returns the sum of both directions.
func (c *Conversation) Packets() int { return c.AB.Packets + c.BA.Packets }

// Bytes returns the sum of both directions.
func (c *Conversation) Bytes() units.Bytes { return c.AB.Bytes + c.BA.Bytes }

// Retransmissions returns the sum of both directions.
func (c *Conversation) Retransmissions() int { return c.AB.Retransmissions + c.BA.Retransmissions }

// Transfer is the part of a run that a conversation carried or that its datagrams marked.
type Transfer struct {
	Kind                      wire.Kind // these as in the first header
	Group, Member, Generation uint32
	Headers                   int // datagrams with a header; 1 for a TCP conversation
}

func transferOf(h wire.Header) *Transfer {
	return &Transfer{Kind: h.Kind, Group: h.Group, Member: h.Member, Generation: h.Generation}
}

func (t *Transfer) String() string {
	var name string
	switch h := t; h.Kind {
	case wire.KindFlow:
		name = fmt.Sprintf("coflow %d flow %d", h.Group, h.Member)
	case wire.KindBlock:
		name = fmt.Sprintf("block %d hop %d", h.Group, h.Member)
		if h.Generation > 0 {
			name += fmt.Sprintf(" pipeline %d", h.Generation)
		}
	case wire.KindCoflowMark:
		name = fmt.Sprintf("mark of coflow %d", h.Group)
	case wire.KindWriteMark:
		name = fmt.Sprintf("mark of block %d", h.Group)
	case wire.KindFlowFailed:
		name = fmt.Sprintf("end of coflow %d flow %d", h.Group, h.Member)
	case wire.KindBlockFailed:
		name = fmt.Sprintf("end of block %d", h.Group)
	case wire.KindReplicaLost:
		name = fmt.Sprintf("lost replica of block %d", h.Group)
	default:
		name = fmt.Sprintf("%v %d", h.Kind, h.Group)
	}
	if t.Headers > 1 {
		name += fmt.Sprintf(" and %d more", t.Headers-1)
	}
	return name
}

// Short returns a short name: "coflow 3/17" is flow 17 of coflow 3.
func (t *Transfer) Short() string {
	r := strings.NewReplacer(" flow ", "/", " hop ", "/", " pipeline ", "/", " and ", " +", " more", "", " of ", " ", " replica", "")
	return r.Replace(t.String())
}

// superseded reports whether a SYN begins another conversation between the same ports.
func (c *Conversation) superseded(s *segment) bool {
	if !s.tcp || s.flags&(flagSYN|flagACK) != flagSYN {
		return false
	}
	d := c.direction(s)
	return d.known&knowsBase != 0 && s.seq != d.base
}

func (c *Conversation) direction(s *segment) *Direction {
	if c.fromA(s) {
		return &c.AB
	}
	return &c.BA
}

// add adds a packet of the conversation, whose frame had the given size.
func (c *Conversation) add(s *segment, stamp int64, frame int, o Options) {
	d, back := &c.AB, &c.BA
	fromA := c.fromA(s)
	if !fromA {
		d, back = back, d
	}
	d.Counts.add(frame)
	c.From, c.To = min(c.From, stamp), max(c.To, stamp)
	if s.length > 0 {
		if d.Payload == 0 {
			d.First, d.Last = stamp, stamp
		}
		d.First, d.Last = min(d.First, stamp), max(d.Last, stamp)
		d.Payload += units.Bytes(s.length)
	}
	if !s.tcp {
		if h, err := wire.Parse(s.payload); err == nil {
			if c.Transfer == nil {
				c.Transfer = transferOf(h)
			}
			c.Transfer.Headers++
		}
		return
	}
	c.handshake(s, fromA, stamp)
	if syn := s.flags&flagSYN != 0; syn && d.SYN == 0 {
		d.base, d.known = s.seq, d.known|knowsBase
	} else if d.known&knowsBase == 0 {
		d.base, d.known = s.seq-1, d.known|knowsBase
	}
	if s.flags&flagACK != 0 && back.known&knowsBase == 0 {
		back.base, back.known = s.ack-1, back.known|knowsBase
	}
	off := d.place(s, back, o)
	d.window = s.window
	if s.flags&flagACK != 0 {
		d.acked, d.known = s.ack, d.known|knowsAcked
	}
	if d.known&knowsHeader == 0 && s.length > 0 {
		if h, ok := d.look(s.payload, s.length, off); ok && c.Transfer == nil {
			c.Transfer = transferOf(h)
			c.Transfer.Headers = 1
		}
	}
}

func (c *Conversation) handshake(s *segment, fromA bool, stamp int64) {
	switch {
	case !fromA:
		c.synAck = c.synAck || c.syn != 0 && s.flags&(flagSYN|flagACK) == flagSYN|flagACK
	case s.flags&(flagSYN|flagACK) == flagSYN:
		if !c.synAck {
			c.syn = stamp
		}
	case s.flags&(flagACK|flagRST) == flagACK && c.synAck && c.syn != 0:
		c.Handshake = time.Duration(stamp - c.syn)
		c.syn = 0
	}
}

// place locates a packet in the stream and classifies it. It returns the offset of its
// payload, counted from 0.
func (d *Direction) place(s *segment, back *Direction, o Options) int64 {
	syn, fin, rst := s.flags&flagSYN != 0, s.flags&flagFIN != 0, s.flags&flagRST != 0
	if d.known&knowsSeen == 0 {
		d.known |= knowsSeen
		if syn {
			d.seen.begin(s.seq, 0)
		} else {
			d.seen.begin(s.seq-1, 1)
		}
	}
	if syn {
		d.SYN++
	}
	if fin {
		d.FIN++
	}
	if rst {
		d.RST++
	}
	if s.window == 0 && !syn && !fin && !rst {
		d.faults().ZeroWindows++
	}
	lo := d.seen.place(s.seq)
	data := lo // offset of the payload
	if syn {
		data++
	}
	end := data + int64(s.length) // of the payload
	hi := end
	if fin {
		hi++
	}
	switch {
	case lo == hi:
		if !rst { // all below has been sent
			d.seen.raise(lo)
		}
	case s.length == 1 && lo == d.seen.high()-1 && !syn && !fin && !rst: // a keep-alive
		d.faults().ResentBytes += units.Bytes(s.length)
	case s.length == 1 && lo == d.seen.high() && back.ZeroWindows > 0 && back.window == 0: // a probe of the closed window
		d.faults().ResentBytes++
	default:
		below := lo < d.seen.high()
		var fresh, freshData int64
		if lo < data {
			fresh += d.seen.add(lo, data, o.Holes)
		}
		freshData = d.seen.add(data, end, o.Holes)
		fresh += freshData + d.seen.add(end, hi, o.Holes)
		// Bytes that are acknowledged have arrived, but were not captured.
		if s.length > 0 && back.known&knowsAcked != 0 && int32(s.seq+uint32(s.length)-back.acked) <= 0 {
			fresh, freshData = 0, 0
		}
		if again := int64(s.length) - freshData; again > 0 {
			d.faults().ResentBytes += units.Bytes(again)
		}
		switch {
		case fresh < hi-lo:
			d.faults().Retransmissions++
		case below:
			d.faults().OutOfOrder++
		}
	}
	return data - 1
}

// look looks for a transfer header at the start of the stream, in a payload of length bytes
// at an offset.
func (d *Direction) look(payload []byte, length int, off int64) (h wire.Header, ok bool) {
	if off != int64(len(d.head)) {
		return h, false // resent or out of order: the header may still follow
	}
	whole := len(payload) == length
	if len(d.head) > 0 {
		payload = append(d.head, payload[:min(len(payload), wire.MaxSize-len(d.head))]...)
	}
	length, ok = wire.Len(payload)
	if !ok {
		length = wire.Size
	}
	if len(payload) < length && whole && plausible(payload) {
		d.faults().head = slices.Clone(payload)
		return h, false
	}
	if d.known |= knowsHeader; len(d.head) > 0 {
		d.Faults.head = nil
	}
	h, err := wire.Parse(payload)
	return h, err == nil // else of another program, or damaged
}

// plausible reports whether b could be the beginning of a header.
func plausible(b []byte) bool {
	magic := wire.Header{Kind: wire.KindFlow, Sent: time.Unix(0, 0)}.Append(nil)[:4]
	n := min(len(b), len(magic))
	return bytes.Equal(b[:n], magic[:n])
}
