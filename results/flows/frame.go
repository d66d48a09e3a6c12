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

// frame has the fields of one packet that the reduction needs.
type frame struct {
	src, dst         addr
	srcPort, dstPort uint16
	proto            uint8
	flags            uint8  // of TCP
	seq, ack         uint32 // of TCP
	window           uint16 // of TCP, not scaled
	ident            uint16 // of IP
	payload          []byte // captured part
	length           int    // of the payload on the wire, bytes
}

type frameKind uint8

const (
	frameOther frameKind = iota // not a complete IPv4 packet of TCP or UDP
	frameIPv4                   // only the addresses are known
	frameWhole                  // all headers are present
	frameCut                    // TCP or UDP, but captured too short for its headers
)

// parse fills f from the captured bytes of an Ethernet frame that had wireLen
// bytes. It allocates nothing and checks all lengths.
func (f *frame) parse(b []byte, wireLen int) frameKind {
	if len(b) < etherLen+ipMinLen || binary.BigEndian.Uint16(b[12:]) != etherIPv4 || b[etherLen]>>4 != 4 {
		return frameOther
	}
	ip := b[etherLen:]
	f.src, f.dst = addr(binary.BigEndian.Uint32(ip[12:])), addr(binary.BigEndian.Uint32(ip[16:]))
	f.proto = ip[9]
	head := int(ip[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(ip[2:]))
	if total == 0 { // frames longer than the field can express have 0
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
	// A frame may have padding after the IP packet.
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
