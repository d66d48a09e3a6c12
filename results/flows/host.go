package flows

import (
	"errors"
	"net/netip"
	"slices"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
)

// loopback is the name of the interface on which a host talks to itself.
const loopback = "lo"

// mark is a mark in the capture of the host that sent it.
type mark struct {
	wire.Header
	host string
	at   int64 // capture timestamp, Unix ns
	note wire.Note
}

// Counts are numbers of packets and of the bytes of their Ethernet frames, without check
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

// Interface summarizes the traffic of one interface of a captured host.
type Interface struct {
	Name string
	// Out and In are the packets from and to the host's address. On lo every packet
	// counts as both, as in the kernel's counters.
	Out, In Counts
	Other   Counts // neither from nor to the host's address, or not IPv4
	// OutRacks and InRacks are those of Out and In to and from hosts of other racks.
	OutRacks, InRacks Counts
	// OutSpacing and InSpacing are measured if Options.Spacing states a rate.
	OutSpacing, InSpacing Spacing
	// OutConformance and InConformance are measured if spacing is.
	OutConformance, InConformance Conformance
	// OutForeign and InForeign are the packets that do not belong to the run; none on lo.
	OutForeign, InForeign Foreign
}

// Capture summarizes the capture of one host.
type Capture struct {
	Host       string
	Interfaces []Interface
	// Stats are the kernel's counts of the capture. HasStats reports whether the file has
	// them.
	Stats    pcap.Stats
	HasStats bool
	Whole    bool // the file was closed properly and could be read to its end
	Captured int  // packets in the file
	// Foreign are packets that belong to no transfer or mark of any run: other
	// protocols, ports or contents.
	Foreign Counts
	// OtherRun are packets of transfers and marks of another run.
	OtherRun Counts
}

// hostCapture is the reduced capture of one host.
type hostCapture struct {
	Capture
	meta     pcap.Meta
	hasMeta  bool
	conns    []*conn
	marks    []mark
	orphans  Counts // packets with payload of connections without SYN and header
	up, down series // load of the host's link
	payload  series // what it received of transfers, each byte once
	stamps
	short   Counts // packets captured too short for their headers, marks included
	badMark error  // error of the first mark that cannot be read
	stray   uint64 // another run that has packets in the capture; 0 for none
	skipped []pcap.Skip
	broken  string // reason why the file could not be read to its end; "" if it could
}

// settings are the parameters of the reduction of each connection.
type settings struct {
	run           uint64
	points, spans int
	reorder       int64 // Options.Reorder, ns
	conversations int   // Options.Conversations
	opened        func(client, server netip.AddrPort) bool
	noErrors      bool
	paths         *paths // nil if the fabric is unknown
}

// hostReducer reduces the capture of one host.
type hostReducer struct {
	hostCapture
	settings
	slabs   slabs
	fabric  *fabricLoad // nil if the fabric is unknown
	self    addr
	table   table // indexes of conns by endpoints
	pacing  []pacing
	markTo  addr
	batch   [batch]arrival
	touched int64 // keeps the compiler from removing the reads of touch
}

// batch is the number of packets that are decoded and looked up before the first of them
// is processed. It is large enough to fetch the memory of many connections at once, and
// small enough for the L1 cache.
const batch = 128

// arrival is a packet of a batch.
type arrival struct {
	frame
	kind frameKind
	up   bool  // client → server
	conn *conn // nil if none was open when the batch began
}

// pacing measures the two directions of an interface.
type pacing struct {
	spacers [2]*Spacer
	conform [2]*conformer
	foreign [2]foreignLoad
}

func address(a netip.Addr) addr {
	b := a.As4()
	return addr(b[0])<<24 | addr(b[1])<<16 | addr(b[2])<<8 | addr(b[3])
}

func (a addr) netip() netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// hostName returns the name of the host with address a, or the address if there is none.
func hostName(a addr) string {
	if name, ok := topo.HostNameOf(a.netip()); ok {
		return name
	}
	return a.netip().String()
}

func newHostReducer(host string, rack topo.RackID, place int, set settings, fabric *fabricLoad, intervals int) *hostReducer {
	return &hostReducer{
		hostCapture: hostCapture{Capture: Capture{Host: host}, stamps: noStamps, up: newSeries(intervals), down: newSeries(intervals), payload: newSeries(intervals)},
		settings:    set,
		fabric:      fabric,
		self:        address(netip.AddrFrom4([4]byte{10, byte(rack), byte(place), 1})),
		table:       newTable(),
		markTo:      address(topo.MarkAddr()),
	}
}

// addInterface adds the next interface of the file.
func (h *hostReducer) addInterface(name string, out, in SpacingSpec) {
	h.Interfaces = append(h.Interfaces, Interface{Name: name})
	h.pacing = append(h.pacing, pacing{spacers: [2]*Spacer{NewSpacer(out), NewSpacer(in)}, conform: [2]*conformer{newConformer(out), newConformer(in)}})
}

// packets processes the next packets of the file, at most a batch. It looks up and
// prefetches the connections of all of them first, so that the processor's cache misses
// overlap.
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

// touch prefetches the connections of packets by reading them.
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

// packet processes the next packet of the file.
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
		if otherRack(f) {
			nic.OutRacks.add(p.Len)
		}
	}
	if in {
		nic.In.add(p.Len)
		pace.spacers[In].Add(stamp, p.Len)
		pace.conform[In].add(stamp, p.Len)
		if otherRack(f) {
			nic.InRacks.add(p.Len)
		}
	}
	if !out && !in {
		nic.Other.add(p.Len)
	}
	var c *conn
	ofStream, known, payload := false, false, int64(0)
	if kind == frameWhole && f.proto == protoTCP && (out || in) {
		known, c, ofStream, payload = h.segment(a, stamp, p.Len)
	}
	if nic.Name != loopback {
		if out {
			h.up.add(stamp, p.Len)
		}
		if in {
			h.down.add(stamp, p.Len)
			if payload > 0 {
				h.payload.add(stamp, int(payload))
			}
			if h.fabric != nil {
				h.fabric.arrive(f, c, ofStream, stamp, p.Len)
			}
		}
	}
	switch {
	case known && c != nil:
		if c.standing > ours {
			h.foreignConn(p.Interface, c, ofStream, p.Len)
		}
		return
	case known: // an orphan
	case kind == frameWhole && f.proto == protoUDP && out && f.dst == h.markTo && f.dstPort == wire.MarkPort:
		if h.mark(f, stamp, p.Len) {
			return
		}
	case kind == frameCut:
		h.short.add(p.Len)
		return
	case kind == frameIPv4 && h.aboutRun(f, p.Data):
		return
	default:
		h.Foreign.add(p.Len)
	}
	h.foreignFrame(p.Interface, out, f, kind, p.Data, p.Len)
}

// mark processes a datagram to the address of marks. It reports whether that is a mark of
// this run, or may be one that was captured too short.
func (h *hostReducer) mark(f *frame, stamp int64, frame int) bool {
	n, ok := wire.Len(f.payload)
	if !ok {
		n = wire.Size
	}
	if len(f.payload) < min(f.length, n) {
		h.short.add(frame)
		return true
	}
	head, err := wire.Parse(f.payload)
	var note wire.Note
	if err == nil && head.Run == h.run {
		if len(f.payload) < f.length {
			h.short.add(frame) // its note is cut off
		} else {
			note, err = wire.ParseNote(f.payload)
		}
	}
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
		h.marks = append(h.marks, mark{Header: head, host: h.Host, at: stamp, note: note})
		return true
	}
	return false
}

// segment processes a TCP segment. known reports whether it belongs to a connection to an
// emulated service, c is that connection or nil, up reports whether the client sent it, and payload is what forward
// returns.
func (h *hostReducer) segment(a *arrival, stamp int64, frame int) (known bool, c *conn, up bool, payload int64) {
	f := &a.frame
	if f.flags&(flagSYN|flagACK) == flagSYN {
		if !service(f.dstPort) {
			return false, nil, false, 0
		}
		c := a.conn
		if c != nil && a.up && c.isn == f.seq {
			c.synAgain++
			if c.out != nil {
				c.out.connecting(stamp, true, &h.settings)
			}
		} else { // a new connection, possibly after others between the same ports
			c = h.open(f, f.seq)
			if h.opened != nil && !h.opened(netip.AddrPortFrom(f.src.netip(), f.srcPort), netip.AddrPortFrom(f.dst.netip(), f.dstPort)) {
				c.standing = foreign
			}
			if c.out != nil {
				c.out.connecting(stamp, false, &h.settings)
			}
		}
		c.frames.add(frame)
		c.wire += units.Bytes(frame)
		c.early++
		return true, c, true, 0
	}
	c, up = a.conn, a.up
	if c == nil || up && c.outlived(f) {
		// The capture has no SYN: recognize the connection by its header.
		if service(f.dstPort) && startsTransfer(f) {
			c, up = h.open(f, f.seq-1), true
			c.noSYN = true
		}
	}
	if c == nil {
		if (service(f.dstPort) || service(f.srcPort)) && f.length > 0 {
			h.orphans.add(frame)
			return true, nil, false, 0
		}
		return false, nil, false, 0
	}
	c.frames.add(frame)
	if f.flags&flagRST != 0 {
		c.resets++
	}
	if up {
		payload = c.forward(f, stamp, frame, &h.settings)
	} else {
		c.backward(f, stamp, &h.settings)
	}
	return true, c, up, payload
}

// open adds a connection, which replaces an earlier one between the same ports.
func (h *hostReducer) open(f *frame, isn uint32) *conn {
	ends := endpoints{f.src, f.dst, f.srcPort, f.dstPort}
	c := h.slabs.conn(ends, isn, h.self)
	h.table.put(ends, len(h.conns))
	h.conns = append(h.conns, c)
	return c
}

// find returns the connection of a segment, or nil. up reports whether the client sent
// the segment.
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

// startsTransfer reports whether a segment's payload begins with a transfer header.
func startsTransfer(f *frame) bool {
	if len(f.payload) < wire.Size {
		return false
	}
	_, err := wire.Parse(f.payload)
	return err == nil
}

// outlived reports whether a segment lies outside the stream of a complete connection,
// and so belongs to a later connection between the same ports.
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

// finish returns the reduced capture at the end of the file.
func (h *hostReducer) finish() *hostCapture {
	for _, c := range h.conns {
		// The payload is shorter than a header and does not begin like one.
		if c.standing == pending && c.packets > 0 && !c.head.cut && !c.head.plausible() {
			c.standing = foreign
		}
		if c.standing > ours && !c.counted && !(c.atClient && c.atServer) {
			h.foreignConn(h.link(), c, true, 0)
		}
		switch c.standing {
		case foreign:
			h.Foreign.sum(c.frames)
		case otherRun:
			h.OtherRun.sum(c.frames)
			h.stray = c.header.Run
		}
	}
	for i := range h.Interfaces {
		if nic, p := &h.Interfaces[i], &h.pacing[i]; nic.Name != loopback {
			nic.OutSpacing, nic.InSpacing = p.spacers[Out].Spacing(), p.spacers[In].Spacing()
			nic.OutConformance, nic.InConformance = p.conform[Out].conformance(), p.conform[In].conformance()
			nic.OutForeign, nic.InForeign = p.foreign[Out].foreign(h.firstAt), p.foreign[In].foreign(h.firstAt)
		}
	}
	return &h.hostCapture
}

// link returns the index of the interface that is not lo, or 0 if there is none.
func (h *hostReducer) link() int {
	return max(0, slices.IndexFunc(h.Interfaces, func(i Interface) bool { return i.Name != loopback }))
}
