package flows

import "encoding/binary"

// Offsets and sizes of Ethernet, IPv4 (RFC 791), UDP and TCP (RFC 9293).
const (
	etherLen  = 14
	etherIPv4 = 0x0800
	ipMinLen  = 20
	udpLen    = 8
	tcpMinLen = 20
	protoTCP  = 6
	protoUDP  = 17
	flagSYN   = 0x02
	flagRST   = 0x04
	flagACK   = 0x10
)

// addr is an IPv4 address, big endian.
type addr uint32

// frame is what the reduction needs of one packet.
type frame struct {
	src, dst         addr
	srcPort, dstPort uint16
	proto            uint8
	flags            uint8  // of TCP
	seq, ack         uint32 // of TCP
	window           uint16 // of TCP, as it stands
	ident            uint16 // of IP
	payload          []byte // as much as was captured
	length           int    // of the payload on the wire
}

type frameKind uint8

const (
	frameOther frameKind = iota // not a whole IPv4 packet of TCP or UDP
	frameIPv4                   // addresses are known, the rest does not concern us
	frameWhole                  // all headers are there
	frameCut                    // TCP or UDP, but captured too short for its headers
)

// parse fills f from the captured bytes of an Ethernet frame that had wireLen
// bytes. It allocates nothing and trusts no length it is given.
func (f *frame) parse(b []byte, wireLen int) frameKind {
	if len(b) < etherLen+ipMinLen || binary.BigEndian.Uint16(b[12:]) != etherIPv4 || b[etherLen]>>4 != 4 {
		return frameOther
	}
	ip := b[etherLen:]
	f.src, f.dst = addr(binary.BigEndian.Uint32(ip[12:])), addr(binary.BigEndian.Uint32(ip[16:]))
	f.proto = ip[9]
	head := int(ip[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(ip[2:]))
	if total == 0 { // left open on frames longer than the field can hold
		total = wireLen - etherLen
	}
	fragment := binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 // more to come, or not the first
	if head < ipMinLen || total < head || total > wireLen-etherLen || fragment || f.proto != protoTCP && f.proto != protoUDP {
		return frameIPv4
	}
	need := udpLen
	if f.proto == protoTCP {
		need = tcpMinLen
	}
	if total < head+need {
		return frameIPv4
	}
	// A frame may be padded behind the IP packet.
	if len(ip) > total {
		ip = ip[:total]
	}
	if len(ip) < head+need {
		return frameCut
	}
	seg := ip[head:]
	f.srcPort, f.dstPort = binary.BigEndian.Uint16(seg), binary.BigEndian.Uint16(seg[2:])
	f.flags, f.seq, f.ack, f.window = 0, 0, 0, 0
	f.ident = binary.BigEndian.Uint16(ip[4:])
	if f.proto == protoTCP {
		f.seq, f.ack, f.flags = binary.BigEndian.Uint32(seg[4:]), binary.BigEndian.Uint32(seg[8:]), seg[13]
		f.window = binary.BigEndian.Uint16(seg[14:])
		need = int(seg[12]>>4) * 4
		if need < tcpMinLen || total < head+need {
			return frameIPv4
		}
	}
	f.length = total - head - need
	f.payload = seg[min(need, len(seg)):]
	return frameWhole
}
