package flows

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
)

// loopback is the name of the interface on which a host talks to itself.
const loopback = "lo"

// endpoints are the two ends of a TCP connection: the client sent the SYN.
type endpoints struct {
	client, server         addr
	clientPort, serverPort uint16
}

// connID tells a connection from a later one between the same endpoints, and is
// the same at both ends.
type connID struct {
	endpoints
	isn uint32 // the client's initial sequence number
}

// standing is what a connection or mark turned out to be.
type standing uint8

const (
	pending  standing = iota // its header is not complete
	ours                     // of this run
	otherRun                 // a header of another run
	foreign                  // no header of ours
	damaged                  // a header that cannot be read
)

// conn is a connection as one host's interface saw it.
type conn struct {
	connID
	standing standing
	header   wire.Header
	headErr  error
	head     prefix

	sent     coverage // client → server
	acks     coverage // server → client, of block pipelines
	hasAcks  bool     // the server's SYN was seen
	frames   Counts   // all of them, both directions
	start    int64    // first packet with payload, client → server
	end      int64    // packet that completes header and size; 0 for not yet
	ackEnd   int64    // packet that completes the acknowledgements; 0 for not yet
	ackRead  ackReader
	packets  int // with payload, client → server
	resent   int
	wire     units.Bytes // of all packets client → server
	synAgain int
	reset    bool
}

// mark is an arrival mark as its host's interface saw it.
type mark struct {
	wire.Header
	host string
	at   int64  // on the wire
	name string // that follows the header
}

// Counts are packets and the bytes of their Ethernet frames, without check
// sequence.
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

// Interface is the traffic of one interface of a captured host.
type Interface struct {
	Name string
	// Out and In are by source and destination address. On lo every packet
	// counts as both, as in the kernel's counters.
	Out, In Counts
	Other   Counts // neither from nor to the host's address, or not IPv4
	// OutSpacing and InSpacing are measured where Options.Spacing asks for it.
	OutSpacing, InSpacing Spacing
	// OutConformance and InConformance are measured where spacing is.
	OutConformance, InConformance Conformance
}

// Capture is what one host's capture amounts to.
type Capture struct {
	Host       string
	Interfaces []Interface
	// Stats are the kernel's own counts, where HasStats says that the file has
	// them.
	Stats    pcap.Stats
	HasStats bool
	Whole    bool // the file was closed and could be read to its end
	Captured int  // packets in the file
	// Foreign are packets that belong to no transfer or mark of any run: other
	// protocols, ports or contents.
	Foreign Counts
	// OtherRun are packets of transfers and marks of another run.
	OtherRun Counts
}

// hostCapture is all that the reduction keeps of one capture.
type hostCapture struct {
	Capture
	meta    pcap.Meta
	hasMeta bool
	conns   []*conn
	marks   []mark
	orphans Counts // with payload, of connections whose SYN is not there
	short   Counts // captured too short for their headers, or marks for theirs
	badMark error  // the first mark that cannot be read
	stray   uint64 // another run, where one was seen
	problem []string
}

// hostReducer reads one capture.
type hostReducer struct {
	hostCapture
	run     uint64
	self    addr
	table   map[endpoints]*conn
	last    *conn // of the packet before: most packets come in trains
	spacers [][2]*Spacer
	conform [][2]*conformer
	markTo  addr
}

func address(a netip.Addr) addr {
	b := a.As4()
	return addr(b[0])<<24 | addr(b[1])<<16 | addr(b[2])<<8 | addr(b[3])
}

func (a addr) netip() netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// hostName is the name of the host with address a, or the address itself.
func hostName(a addr) string {
	if name, ok := topo.HostNameOf(a.netip()); ok {
		return name
	}
	return a.netip().String()
}

func newHostReducer(host string, rack topo.RackID, place int, run uint64) *hostReducer {
	return &hostReducer{
		hostCapture: hostCapture{Capture: Capture{Host: host}},
		run:         run,
		self:        address(netip.AddrFrom4([4]byte{10, byte(rack), byte(place), 1})),
		table:       map[endpoints]*conn{},
		markTo:      address(topo.MarkAddr()),
	}
}

// addInterface makes room for the counts of the next interface of the file.
func (h *hostReducer) addInterface(name string, out, in SpacingSpec) {
	h.Interfaces = append(h.Interfaces, Interface{Name: name})
	h.spacers = append(h.spacers, [2]*Spacer{NewSpacer(out), NewSpacer(in)})
	h.conform = append(h.conform, [2]*conformer{newConformer(out), newConformer(in)})
}

// packet takes the next packet of the file.
func (h *hostReducer) packet(p *pcap.Packet) {
	h.Captured++
	var f frame
	kind := f.parse(p.Data, p.Len)
	stamp := p.Stamp
	nic, spacers := &h.Interfaces[p.Interface], &h.spacers[p.Interface]
	out, in := kind != frameOther && f.src == h.self, kind != frameOther && f.dst == h.self
	if out {
		nic.Out.add(p.Len)
		spacers[0].Add(stamp, p.Len)
		h.conform[p.Interface][0].add(stamp, p.Len)
	}
	if in {
		nic.In.add(p.Len)
		spacers[1].Add(stamp, p.Len)
		h.conform[p.Interface][1].add(stamp, p.Len)
	}
	if !out && !in {
		nic.Other.add(p.Len)
	}
	switch {
	case kind == frameWhole && f.proto == protoTCP && (out || in) && h.segment(&f, stamp, p.Len):
	case kind == frameWhole && f.proto == protoUDP && out && f.dst == h.markTo && f.dstPort == wire.MarkPort:
		h.mark(&f, stamp, p.Len)
	case kind == frameCut:
		h.short.add(p.Len)
	default:
		h.Foreign.add(p.Len)
	}
}

// mark takes a datagram to the address of marks.
func (h *hostReducer) mark(f *frame, stamp int64, frame int) {
	if len(f.payload) < min(f.length, wire.Size) {
		h.short.add(frame)
		return
	}
	head, err := wire.Parse(f.payload)
	switch {
	case errors.Is(err, wire.ErrNotHeader):
		h.Foreign.add(frame)
	case err != nil:
		if h.badMark == nil {
			h.badMark = err
		}
	case head.Run != h.run:
		h.OtherRun.add(frame)
		h.stray = head.Run
	default:
		name := f.payload[wire.Size:]
		h.marks = append(h.marks, mark{Header: head, host: h.Host, at: stamp, name: string(name[:min(len(name), wire.MaxName)])})
	}
}

func service(port uint16) bool { return port == wire.ShufflePort || port == wire.BlockPort }

// segment takes a TCP segment and tells whether it belongs to a connection to
// one of our services.
func (h *hostReducer) segment(f *frame, stamp int64, frame int) bool {
	up := endpoints{f.src, f.dst, f.srcPort, f.dstPort}
	down := endpoints{f.dst, f.src, f.dstPort, f.srcPort}
	if f.flags&(flagSYN|flagACK) == flagSYN {
		if !service(f.dstPort) {
			return false
		}
		c := h.table[up]
		if c != nil && c.isn == f.seq {
			c.synAgain++
		} else { // the first, or a later connection between the same ports
			c = &conn{connID: connID{endpoints: up, isn: f.seq}}
			c.sent.base = f.seq + 1
			h.table[up], h.last = c, c
			h.conns = append(h.conns, c)
		}
		c.frames.add(frame)
		c.wire += units.Bytes(frame)
		return true
	}
	c := h.last
	if c == nil || c.endpoints != up && c.endpoints != down {
		c = nil
		if service(f.dstPort) {
			c = h.table[up]
		}
		if c == nil && service(f.srcPort) {
			c = h.table[down]
		}
		if c == nil {
			if (service(f.dstPort) || service(f.srcPort)) && f.length > 0 {
				h.orphans.add(frame)
				return true
			}
			return false
		}
		h.last = c
	}
	c.frames.add(frame)
	if f.flags&flagRST != 0 {
		c.reset = true
	}
	if c.endpoints == up {
		c.forward(f, stamp, frame, h.run)
	} else {
		c.backward(f, stamp)
	}
	return true
}

// forward takes a segment of the stream that begins with the header.
func (c *conn) forward(f *frame, stamp int64, frame int, run uint64) {
	c.wire += units.Bytes(frame)
	if f.length == 0 {
		return
	}
	off := c.sent.place(f.seq)
	if off+int64(f.length) <= 0 { // a keep-alive probe: no byte of the stream
		return
	}
	if c.packets == 0 {
		c.start = stamp
	}
	c.packets++
	if fresh := c.sent.add(off, f.length); fresh < int64(f.length) {
		c.resent++
	}
	c.head.add(off, f.payload, f.length)
	if c.standing == pending && c.head.whole() {
		c.identify(run)
	}
	if c.end == 0 && c.standing == ours && c.sent.next >= streamLen(c.header) {
		c.end = stamp
	}
	c.checkAcks(stamp)
}

// streamLen is the length of a flow's stream: its header and its size.
func streamLen(h wire.Header) int64 { return wire.Size + int64(h.Size) }

func (c *conn) identify(run uint64) {
	c.header, c.headErr = wire.Parse(c.head.bytes[:])
	switch {
	case errors.Is(c.headErr, wire.ErrNotHeader):
		c.standing = foreign
	case c.headErr != nil:
		c.standing = damaged
	case c.header.Offset > c.header.Size:
		c.standing, c.headErr = damaged, fmt.Errorf("testbed header that goes on at %d of %d bytes", c.header.Offset, c.header.Size)
	case c.header.Size > math.MaxInt64-wire.Size:
		c.standing, c.headErr = damaged, fmt.Errorf("testbed header with a size of %d bytes", c.header.Size)
	case c.header.Run != run:
		c.standing = otherRun
	default:
		c.standing = ours
	}
}

// backward takes a segment of the other direction, which matters where it
// carries the acknowledgements of a block pipeline.
func (c *conn) backward(f *frame, stamp int64) {
	if c.serverPort != wire.BlockPort {
		return
	}
	if f.flags&flagSYN != 0 && !c.hasAcks {
		c.hasAcks, c.acks.base = true, f.seq+1
	}
	if !c.hasAcks || f.length == 0 {
		return
	}
	off := c.acks.place(f.seq)
	c.ackRead.add(off, f.payload)
	c.acks.add(off, f.length)
	c.checkAcks(stamp)
}

// checkAcks ends a hop with the packet that completes its acknowledgements.
func (c *conn) checkAcks(stamp int64) {
	if c.ackEnd != 0 || c.standing != ours || c.header.Kind != wire.KindBlock || c.header.Packet == 0 {
		return
	}
	last := wire.Packets(c.header.Size, uint64(c.header.Packet))
	if end, ok := c.ackRead.after(last); ok {
		if c.acks.next >= end {
			c.ackEnd = stamp
		}
		return
	}
	// The last one was not captured: it shared a segment with too many others.
	if uint64(c.acks.next) >= ackBytes(c.header)+uint64(len(c.ackRead.alive))*wire.AckSize && !c.ackRead.failed {
		c.ackEnd = stamp
	}
}

// ackBytes is the length of the acknowledgements of a hop, keep-alives aside.
func ackBytes(h wire.Header) uint64 {
	return wire.AckBytes(h.Size-min(h.Offset, h.Size), uint64(h.Packet))
}

// ackReader finds the last acknowledgement of a hop among those that were captured
// whole, and counts keep-alives.
type ackReader struct {
	alive   map[int64]struct{} // offsets of keep-alives
	latest  uint32             // the highest packet acknowledged
	at      int64              // offset of that acknowledgement
	known   bool
	failed  bool // a failed acknowledgement ends the stream
	failing int64
}

// mostAlive bounds the keep-alives of one hop that are remembered: those of hours.
const mostAlive = 1 << 16

// add takes the captured payload at an offset of the stream. Acknowledgements begin
// at multiples of their size, up to a failed one.
func (r *ackReader) add(off int64, payload []byte) {
	skip := int64(0)
	if rest := off % wire.AckSize; rest != 0 {
		skip = (wire.AckSize - rest) % wire.AckSize
	}
	if off < 0 || skip > int64(len(payload)) {
		return
	}
	for off, b := off+skip, payload[skip:]; len(b) >= wire.AckSize && (!r.failed || off < r.failing); off, b = off+wire.AckSize, b[wire.AckSize:] {
		ack, _, err := wire.ParseAck(b)
		switch {
		case err != nil:
		case ack.Failed:
			r.failed, r.failing = true, off
		case ack.Alive && len(r.alive) < mostAlive:
			if r.alive == nil {
				r.alive = map[int64]struct{}{}
			}
			r.alive[off] = struct{}{}
		case ack.Alive:
		case !r.known || ack.Seq > r.latest:
			r.latest, r.at, r.known = ack.Seq, off, true
		}
	}
}

// after is the offset behind the acknowledgement of the last packet.
func (r *ackReader) after(last uint64) (int64, bool) {
	return r.at + wire.AckSize, r.known && uint64(r.latest) == last
}

// finish settles what only the end of the file tells.
func (h *hostReducer) finish() *hostCapture {
	for i := range h.Interfaces {
		if h.Interfaces[i].Name != loopback {
			h.Interfaces[i].OutSpacing = h.spacers[i][0].Spacing()
			h.Interfaces[i].InSpacing = h.spacers[i][1].Spacing()
			h.Interfaces[i].OutConformance = h.conform[i][0].conformance()
			h.Interfaces[i].InConformance = h.conform[i][1].conformance()
		}
	}
	for _, c := range h.conns {
		// Fewer bytes than a header is long, and not its beginning.
		if c.standing == pending && c.packets > 0 && !c.head.cut && !c.head.plausible() {
			c.standing = foreign
		}
		switch c.standing {
		case foreign:
			h.Foreign.sum(c.frames)
		case otherRun:
			h.OtherRun.sum(c.frames)
			h.stray = c.header.Run
		}
	}
	return &h.hostCapture
}

// plausible tells whether what there is of a header could be one.
func (p *prefix) plausible() bool {
	magic := wire.Header{Kind: wire.KindFlow, Sent: time.Unix(0, 0)}.Append(nil)[:4]
	for i, b := range magic {
		if p.have&(1<<i) != 0 && p.bytes[i] != b {
			return false
		}
	}
	return true
}
