package flows

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/topo/units"
)

// Foreign is the traffic in one direction of a host's link that belongs to neither a
// transfer nor a mark of this run: of other protocols, ports or contents, or of another
// run. A connection belongs to the run if its transfer header does, or if it carried no
// payload and a host of the run may have opened it (Options.Opened). An ICMP error belongs to the run if the packet that it
// quotes does (Options.NoErrors).
type Foreign struct {
	Counts
	// Window is the number of bytes in the worst window of WorstWindow, and At its start. The
	// first window begins with the first packet of the capture.
	// The packets of a connection up to its transfer header are in the window of the latter.
	Window units.Bytes
	At     time.Time
	// Largest is the conversation with the most bytes.
	Largest Conversation
	// Errors are the packets that are ICMP errors: they can change what TCP does, however few they are.
	Errors int
}

// Conversation is the traffic from one endpoint to another.
type Conversation struct {
	// Name states the protocol and the endpoints, such as "tcp 10.0.0.1:5201 > 10.0.1.1:44012".
	Name string
	// Counts are lower bounds if there are more conversations than Options.Conversations.
	Counts
}

// talk is a conversation that is counted. Its protocol is a number of IP or, from
// minEtherType on, of Ethernet, which has no endpoints. ICMP has a type and a code instead of ports.
type talk struct {
	key   talkKey
	least Counts      // surely of this conversation
	more  units.Bytes // of those that it replaced
}

type talkKey struct {
	src, dst         addr
	srcPort, dstPort uint16
	proto            uint16
}

const (
	protoICMP    = 1
	minEtherType = 0x600
)

func (k talkKey) String() string {
	switch k.proto {
	case protoTCP, protoUDP:
		name := map[uint16]string{protoTCP: "tcp", protoUDP: "udp"}[k.proto]
		return fmt.Sprintf("%s %v > %v", name, netip.AddrPortFrom(k.src.netip(), k.srcPort), netip.AddrPortFrom(k.dst.netip(), k.dstPort))
	case protoICMP:
		return fmt.Sprintf("icmp type %d code %d %v > %v", k.srcPort, k.dstPort, k.src.netip(), k.dst.netip())
	}
	if k.proto < minEtherType {
		return fmt.Sprintf("IP protocol %d %v > %v", k.proto, k.src.netip(), k.dst.netip())
	}
	return fmt.Sprintf("ethertype %#04x", k.proto)
}

// foreignLoad measures Foreign for one direction of a link, in memory that does not grow
// with the traffic.
type foreignLoad struct {
	all     Counts
	errors  int
	window  int64       // number of the current window
	bytes   units.Bytes // in it
	worst   int64       // number of the worst window
	most    units.Bytes // in it
	talks   []talk
	current int // index of the talk that was counted last
}

// add counts packets of a conversation. window is the number of their window; one before
// the current window counts as the current one.
func (l *foreignLoad) add(window int64, key talkKey, n Counts, limit int) {
	l.all.sum(n)
	if key.proto == protoICMP && slices.Contains(icmpErrors, key.srcPort) {
		l.errors += n.Packets
	}
	if window > l.window {
		l.window, l.bytes = window, 0
	}
	l.bytes += n.Bytes
	if l.bytes > l.most {
		l.worst, l.most = l.window, l.bytes
	}
	l.talk(key, limit).least.sum(n)
}

// talk returns the entry of a conversation. Beyond the limit, a new conversation replaces
// the smallest one and inherits its bytes (Metwally et al., "space saving"), so that any
// conversation with more than 1/limit of all bytes is kept.
func (l *foreignLoad) talk(key talkKey, limit int) *talk {
	if len(l.talks) > 0 && l.talks[l.current].key == key {
		return &l.talks[l.current]
	}
	l.current = slices.IndexFunc(l.talks, func(t talk) bool { return t.key == key })
	switch {
	case l.current >= 0:
	case len(l.talks) < limit:
		l.current = len(l.talks)
		l.talks = append(l.talks, talk{key: key})
	default:
		l.current = 0
		for i := range l.talks {
			if l.talks[i].size() < l.talks[l.current].size() {
				l.current = i
			}
		}
		l.talks[l.current] = talk{key: key, more: l.talks[l.current].size()}
	}
	return &l.talks[l.current]
}

func (t talk) size() units.Bytes { return t.least.Bytes + t.more }

// foreign returns the measurements. first is the time of the capture's first packet, Unix ns.
func (l *foreignLoad) foreign(first int64) Foreign {
	if l.all.Packets == 0 {
		return Foreign{}
	}
	largest := slices.MaxFunc(l.talks, func(a, b talk) int { return cmp.Compare(a.least.Bytes, b.least.Bytes) })
	return Foreign{Counts: l.all, Window: l.most, At: time.Unix(0, first+l.worst*int64(WorstWindow)),
		Largest: Conversation{largest.key.String(), largest.least}, Errors: l.errors}
}

// foreignConn counts a packet of a connection that does not belong to the run. Its first
// call counts all packets of the connection so far, which were not known to be foreign.
func (h *hostReducer) foreignConn(nic int, c *conn, up bool, frame int) {
	if c.counted {
		h.foreignPackets(nic, up == c.atClient, c.talk(up), Counts{1, units.Bytes(frame)})
		return
	}
	c.counted = true
	there := Counts{int(c.early), c.wire}
	back := Counts{c.frames.Packets - there.Packets, c.frames.Bytes - there.Bytes}
	for _, d := range []struct {
		up bool
		n  Counts
	}{{true, there}, {false, back}} {
		if d.n.Packets > 0 {
			h.foreignPackets(nic, d.up == c.atClient, c.talk(d.up), d.n)
		}
	}
}

// talk returns the conversation of one direction of a connection.
func (c *conn) talk(up bool) talkKey {
	if up {
		return talkKey{c.client, c.server, c.clientPort, c.serverPort, protoTCP}
	}
	return talkKey{c.server, c.client, c.serverPort, c.clientPort, protoTCP}
}

// foreignFrame counts a packet that belongs to no connection of the run.
func (h *hostReducer) foreignFrame(nic int, out bool, f *frame, kind frameKind, data []byte, frame int) {
	var key talkKey
	switch {
	case kind == frameWhole:
		key = talkKey{f.src, f.dst, f.srcPort, f.dstPort, uint16(f.proto)}
	case kind == frameIPv4:
		key = talkKey{src: f.src, dst: f.dst, proto: uint16(f.proto)}
		if icmp := icmpOf(f, data); len(icmp) >= 2 {
			key.srcPort, key.dstPort = uint16(icmp[0]), uint16(icmp[1])
		}
	default:
		key.proto = minEtherType // unknown
		if len(data) >= etherLen {
			key.proto = max(key.proto, binary.BigEndian.Uint16(data[12:]))
		}
	}
	h.foreignPackets(nic, out, key, Counts{1, units.Bytes(frame)})
}

// foreignPackets counts packets at the time of the latest one. A packet that is neither
// from nor to the host's address counts as received. Those on lo use no link.
func (h *hostReducer) foreignPackets(nic int, out bool, key talkKey, n Counts) {
	if h.Interfaces[nic].Name == loopback {
		return
	}
	d := In
	if out {
		d = Out
	}
	h.pacing[nic].foreign[d].add((h.lastAt-h.firstAt)/int64(WorstWindow), key, n, h.conversations)
}

// Types of ICMP, and those that are errors.
const unreachable, sourceQuench, redirect, timeExceeded, badParameter = 3, 4, 5, 11, 12

var icmpErrors = []uint16{unreachable, sourceQuench, redirect, timeExceeded, badParameter}

// icmpOf returns the ICMP message in a frame of IPv4, or nil if it has none.
func icmpOf(f *frame, data []byte) []byte {
	if f.proto != protoICMP {
		return nil
	}
	return data[min(len(data), etherLen+int(data[etherLen]&0x0f)*4):]
}

// aboutRun reports whether an IPv4 packet is an ICMP error about a packet of this run, such
// as a switch sends when a fault has taken its route. All links have one MTU, so that no packet is too long for one.
func (h *hostReducer) aboutRun(f *frame, data []byte) bool {
	const tooLong, quoteAt = 4, 8
	icmp := icmpOf(f, data)
	if h.noErrors || len(icmp) < quoteAt+ipMinLen || icmp[0] != unreachable && icmp[0] != timeExceeded || icmp[0] == unreachable && icmp[1] == tooLong {
		return false
	}
	ip := icmp[quoteAt:]
	head := int(ip[0]&0x0f) * 4
	if head < ipMinLen || len(ip) < head+4 {
		return false
	}
	q := frame{src: addr(binary.BigEndian.Uint32(ip[12:])), dst: addr(binary.BigEndian.Uint32(ip[16:])),
		srcPort: binary.BigEndian.Uint16(ip[head:]), dstPort: binary.BigEndian.Uint16(ip[head+2:])}
	switch ip[9] {
	case protoUDP:
		return q.dst == h.markTo && q.dstPort == wire.MarkPort
	case protoTCP:
		c, _ := h.find(&q)
		return c != nil && c.standing <= ours
	}
	return false
}
