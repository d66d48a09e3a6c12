package flows

import (
	"errors"
	"net/netip"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
)

// loopback is the name of the interface on which a host talks to itself.
const loopback = "lo"

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
	meta     pcap.Meta
	hasMeta  bool
	conns    []*conn
	marks    []mark
	orphans  Counts // with payload, of connections whose SYN and header are not there
	up, down series // of the host's link
	stamps
	short   Counts // captured too short for their headers, or marks for theirs
	badMark error  // the first mark that cannot be read
	stray   uint64 // another run, where one was seen
	skipped []pcap.Skip
	broken  string // why not all of the file could be read
}

// settings are what the reduction of each connection needs to know.
type settings struct {
	run           uint64
	points, spans int
	reorder       int64  // ns
	paths         *paths // nil where the fabric is not known
}

// hostReducer reads one capture.
type hostReducer struct {
	hostCapture
	settings
	slabs   slabs
	fabric  *fabricLoad // nil where the fabric is not known
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

func newHostReducer(host string, rack topo.RackID, place int, set settings, fabric *fabricLoad, intervals int) *hostReducer {
	return &hostReducer{
		hostCapture: hostCapture{Capture: Capture{Host: host}, stamps: noStamps, up: newSeries(intervals), down: newSeries(intervals)},
		settings:    set,
		fabric:      fabric,
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
	h.see(p.Stamp)
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
	var c *conn
	ofStream, known := false, false
	if kind == frameWhole && f.proto == protoTCP && (out || in) {
		known, c, ofStream = h.segment(&f, stamp, p.Len)
	}
	if nic.Name != loopback {
		if out {
			h.up.add(stamp, p.Len)
		}
		if in {
			h.down.add(stamp, p.Len)
			if h.fabric != nil {
				h.fabric.arrive(&f, c, ofStream, stamp, p.Len)
			}
		}
	}
	switch {
	case known:
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

// segment takes a TCP segment and tells whether it belongs to a connection to
// one of our services. up is where it went with the data of a connection.
func (h *hostReducer) segment(f *frame, stamp int64, frame int) (known bool, c *conn, up bool) {
	forth := endpoints{f.src, f.dst, f.srcPort, f.dstPort}
	if f.flags&(flagSYN|flagACK) == flagSYN {
		if !service(f.dstPort) {
			return false, nil, false
		}
		c := h.table[forth]
		if c != nil && c.isn == f.seq {
			c.synAgain++
			if c.out != nil {
				c.out.connecting(stamp, true, &h.settings)
			}
		} else { // the first, or a later connection between the same ports
			c = h.open(forth, f.seq)
			if c.out != nil {
				c.out.connecting(stamp, false, &h.settings)
			}
		}
		c.frames.add(frame)
		c.wire += units.Bytes(frame)
		return true, c, true
	}
	c, up = h.find(f, forth)
	if c == nil || up && c.outlived(f) {
		// Its SYN was lost from the capture, or came before it began: the header tells.
		if service(f.dstPort) && startsTransfer(f) {
			c, up = h.open(forth, f.seq-1), true
			c.noSYN = true
		}
	}
	if c == nil {
		if (service(f.dstPort) || service(f.srcPort)) && f.length > 0 {
			h.orphans.add(frame)
			return true, nil, false
		}
		return false, nil, false
	}
	c.frames.add(frame)
	if f.flags&flagRST != 0 {
		c.resets++
	}
	if up {
		c.forward(f, stamp, frame, &h.settings)
	} else {
		c.backward(f, stamp, &h.settings)
	}
	return true, c, up
}

// open begins a connection.
func (h *hostReducer) open(ends endpoints, isn uint32) *conn {
	c := h.slabs.conn(ends, isn, h.self)
	h.table[ends], h.last = c, c
	h.conns = append(h.conns, c)
	return c
}

// find is the connection of a segment between forth's ends, or nil.
func (h *hostReducer) find(f *frame, forth endpoints) (c *conn, up bool) {
	back := endpoints{f.dst, f.src, f.dstPort, f.srcPort}
	if c := h.last; c != nil {
		if c.endpoints == forth {
			return c, true
		}
		if c.endpoints == back {
			return c, false
		}
	}
	if service(f.dstPort) {
		if c := h.table[forth]; c != nil {
			h.last = c
			return c, true
		}
	}
	if service(f.srcPort) {
		if c := h.table[back]; c != nil {
			h.last = c
			return c, false
		}
	}
	return nil, false
}

// startsTransfer tells whether a segment's payload begins with a transfer header.
func startsTransfer(f *frame) bool {
	if len(f.payload) < wire.Size {
		return false
	}
	_, err := wire.Parse(f.payload)
	return err == nil
}

// outlived tells whether a segment lies outside the stream of a connection that is
// complete: a later connection between the same ports.
func (c *conn) outlived(f *frame) bool {
	if c.standing != ours || f.length == 0 {
		return false
	}
	total := streamLen(c.header)
	if c.sent.next < total {
		return false
	}
	off := c.sent.place(f.seq)
	return off > total || off+int64(f.length) <= 0
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
