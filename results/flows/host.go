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
	table   table // of places in conns
	pacing  []pacing
	markTo  addr
	batch   [batch]arrival
	touched int64 // keeps what touch reads from being optimized away
}

// batch is how many packets are decoded and looked up before the first of them is
// worked on: enough for the memory of many connections to be fetched at once, few
// enough to stay in a processor's first cache.
const batch = 128

// arrival is a packet of a batch.
type arrival struct {
	frame
	kind frameKind
	up   bool  // with the data of conn
	conn *conn // nil where none was open when the batch began
}

// pacing measures the two directions of an interface.
type pacing struct {
	spacers [2]*Spacer
	conform [2]*conformer
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
		table:       newTable(),
		markTo:      address(topo.MarkAddr()),
	}
}

// addInterface makes room for the counts of the next interface of the file.
func (h *hostReducer) addInterface(name string, out, in SpacingSpec) {
	h.Interfaces = append(h.Interfaces, Interface{Name: name})
	h.pacing = append(h.pacing, pacing{[2]*Spacer{NewSpacer(out), NewSpacer(in)}, [2]*conformer{newConformer(out), newConformer(in)}})
}

// packets takes the next packets of the file, at most a batch. The connections of all
// of them are found, and what is known of those fetched, before the first is worked on:
// the processor then waits for many of them at once, and not for one after the other.
func (h *hostReducer) packets(list []pcap.Packet) {
	for i := range list {
		a := &h.batch[i]
		a.kind = a.parse(list[i].Data, list[i].Len)
	}
	for i := range list {
		a := &h.batch[i]
		a.conn = nil
		if a.kind == frameWhole && a.proto == protoTCP {
			a.conn, a.up = h.find(&a.frame)
		}
	}
	h.touch(h.batch[:len(list)])
	open := len(h.conns)
	for i := range list {
		a := &h.batch[i]
		if len(h.conns) > open && a.kind == frameWhole && a.proto == protoTCP {
			a.conn, a.up = h.find(&a.frame)
		}
		h.packet(&list[i], a)
	}
}

// touch reads what packets need of their connections.
func (h *hostReducer) touch(list []arrival) {
	sum := int64(0)
	var last *conn
	for i := range list {
		if c := list[i].conn; c != nil && c != last {
			sum += c.sent.next + c.start + c.in.at
			last = c
		}
	}
	last = nil
	for i := range list {
		c := list[i].conn
		if c == nil || c == last {
			continue
		}
		last = c
		if s := c.out; s != nil {
			sum += s.acked + s.rtt.ring[0].end + s.rtt.ring[4].end + s.rtt.least
		}
	}
	h.touched += sum
}

// packet takes the next packet of the file.
func (h *hostReducer) packet(p *pcap.Packet, a *arrival) {
	h.Captured++
	h.see(p.Stamp)
	f, kind := &a.frame, a.kind
	stamp := p.Stamp
	nic, pace := &h.Interfaces[p.Interface], &h.pacing[p.Interface]
	out, in := kind != frameOther && f.src == h.self, kind != frameOther && f.dst == h.self
	if out {
		nic.Out.add(p.Len)
		pace.spacers[Out].Add(stamp, p.Len)
		pace.conform[Out].add(stamp, p.Len)
	}
	if in {
		nic.In.add(p.Len)
		pace.spacers[In].Add(stamp, p.Len)
		pace.conform[In].add(stamp, p.Len)
	}
	if !out && !in {
		nic.Other.add(p.Len)
	}
	var c *conn
	ofStream, known := false, false
	if kind == frameWhole && f.proto == protoTCP && (out || in) {
		known, c, ofStream = h.segment(a, stamp, p.Len)
	}
	if nic.Name != loopback {
		if out {
			h.up.add(stamp, p.Len)
		}
		if in {
			h.down.add(stamp, p.Len)
			if h.fabric != nil {
				h.fabric.arrive(f, c, ofStream, stamp, p.Len)
			}
		}
	}
	switch {
	case known:
	case kind == frameWhole && f.proto == protoUDP && out && f.dst == h.markTo && f.dstPort == wire.MarkPort:
		h.mark(f, stamp, p.Len)
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
func (h *hostReducer) segment(a *arrival, stamp int64, frame int) (known bool, c *conn, up bool) {
	f := &a.frame
	if f.flags&(flagSYN|flagACK) == flagSYN {
		if !service(f.dstPort) {
			return false, nil, false
		}
		c := a.conn
		if c != nil && a.up && c.isn == f.seq {
			c.synAgain++
			if c.out != nil {
				c.out.connecting(stamp, true, &h.settings)
			}
		} else { // the first, or a later connection between the same ports
			c = h.open(f, f.seq)
			if c.out != nil {
				c.out.connecting(stamp, false, &h.settings)
			}
		}
		c.frames.add(frame)
		c.wire += units.Bytes(frame)
		return true, c, true
	}
	c, up = a.conn, a.up
	if c == nil || up && c.outlived(f) {
		// Its SYN was lost from the capture, or came before it began: the header tells.
		if service(f.dstPort) && startsTransfer(f) {
			c, up = h.open(f, f.seq-1), true
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

// open begins a connection, which takes the place of an earlier one between the same
// ports.
func (h *hostReducer) open(f *frame, isn uint32) *conn {
	ends := endpoints{f.src, f.dst, f.srcPort, f.dstPort}
	c := h.slabs.conn(ends, isn, h.self)
	h.table.put(ends, len(h.conns))
	h.conns = append(h.conns, c)
	return c
}

// find is the connection of a segment, or nil, and whether the segment goes with its
// data.
func (h *hostReducer) find(f *frame) (c *conn, up bool) {
	if service(f.dstPort) {
		if i := h.table.get(endpoints{f.src, f.dst, f.srcPort, f.dstPort}); i >= 0 {
			return h.conns[i], true
		}
	}
	if service(f.srcPort) {
		if i := h.table.get(endpoints{f.dst, f.src, f.dstPort, f.srcPort}); i >= 0 {
			return h.conns[i], false
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
	total := c.checks.total
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
			h.Interfaces[i].OutSpacing = h.pacing[i].spacers[Out].Spacing()
			h.Interfaces[i].InSpacing = h.pacing[i].spacers[In].Spacing()
			h.Interfaces[i].OutConformance = h.pacing[i].conform[Out].conformance()
			h.Interfaces[i].InConformance = h.pacing[i].conform[In].conformance()
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
