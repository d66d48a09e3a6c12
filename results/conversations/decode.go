package conversations

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"testbed/results/pcap"
)

// links are the link types whose packets are decoded.
var links = []pcap.LinkType{
	pcap.LinkNull, pcap.LinkEthernet, pcap.LinkPPP, pcap.LinkRawBSD, pcap.LinkRawOpen, pcap.LinkPPPHDLC, pcap.LinkRaw,
	pcap.LinkHDLC, pcap.LinkLoop, pcap.LinkCooked, pcap.LinkIPv4, pcap.LinkIPv6, pcap.LinkCooked2,
}

// Header sizes in bytes, and TCP header fields (RFC 9293).
const (
	etherLen   = 14
	vlanLen    = 4
	hdlcLen    = 4
	cookedLen  = 16
	cooked2Len = 20
	nullLen    = 4
	ipv4Len    = 20
	// ipv4Fragment are the bits of a fragment: more follow, or an offset.
	ipv4Fragment = 0x3fff
	ipv6Len      = 40
	udpLen       = 8
	tcpLen       = 20
	tcpNeeded    = 16 // up to the window field

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// EtherTypes. Switches wrote the tags oldQinQ and oldQinQ2 before 0x88a8 was assigned.
const (
	etherIPv4  = 0x0800
	etherARP   = 0x0806
	etherVLAN  = 0x8100
	etherIPv6  = 0x86dd
	etherQinQ  = 0x88a8
	oldQinQ    = 0x9100
	oldQinQ2   = 0x9200
	leastEther = 0x0600 // smaller numbers are lengths of IEEE 802.3 frames
)

// Protocols of PPP (RFC 1661).
const (
	pppIPv4 = 0x0021
	pppIPv6 = 0x0057
)

// Address families of BSD loopback, by system.
const (
	familyIPv4        = 2
	familyIPv6Linux   = 10
	familyIPv6Windows = 23
	familyIPv6BSD     = 24
	familyIPv6FreeBSD = 28
	familyIPv6Darwin  = 30
	maxLoopbackFamily = 0xff
)

// Kinds of packets that belong to no conversation. The last ones have headers that contradict
// each other or the length of the frame.
const (
	cutOff     = "headers cut off"
	fragments4 = "IPv4 fragments"
	fragments6 = "IPv6 fragments"

	shortFrame  = "frame shorter than its link header"
	notIP       = "network header of another protocol than the link header states"
	badIPv4     = "IPv4 header contradicts itself"
	longIP      = "IP length beyond the frame"
	longHeader6 = "IPv6 extension header beyond the packet"
	shortIP     = "IP length below the transport header"
	badTCP      = "TCP header longer than the packet, or too short"
	badUDP      = "UDP length below its header"
)

// segment is the part of one TCP or UDP packet that the analysis needs.
type segment struct {
	src, dst netip.AddrPort
	tcp      bool
	flags    uint8  // TCP
	seq, ack uint32 // TCP
	window   uint16 // TCP, unscaled
	payload  []byte // the captured part
	length   int    // payload length on the wire
}

// decoder decodes frames without gopacket's layers, whose tables take longer to set up than the
// program to start: tests compare with them. Its layers of Linux cooked captures and of PPP panic
// on lengths of hostile packets, its TCP layer rejects a header whose options were not captured,
// and its IPv6 layer truncates the packet at the wrong place after a hop-by-hop header.
type decoder struct {
	// frame is the length of the decoded frame on the wire, bytes. It is more than the
	// record states if the IP header does and the record's length is that of the captured part.
	frame int
	// contradiction is the first packet of the kind that decode returned last, in detail.
	contradiction func() string
}

// contradicts returns kind, and formats the detail only when it is needed.
func (d *decoder) contradicts(kind, format string, args ...int) string {
	d.contradiction = func() string {
		list := make([]any, len(args))
		for i := range args {
			list[i] = args[i]
		}
		return fmt.Sprintf(format, list...)
	}
	return kind
}

// decode fills s from the captured bytes of a frame of wireLen bytes. For a packet that
// belongs to no conversation it returns the kind instead.
func (d *decoder) decode(s *segment, l pcap.LinkType, data []byte, wireLen int) (other string) {
	d.frame, d.contradiction = wireLen, nil
	at, kind, other := link(l, data)
	for other == "" {
		switch kind {
		case etherVLAN, etherQinQ, oldQinQ, oldQinQ2:
			if len(data) < at+vlanLen {
				other = shortFrame
				break
			}
			at, kind = at+vlanLen, binary.BigEndian.Uint16(data[at+2:])
		case etherIPv4:
			return d.ipv4(s, data, at)
		case etherIPv6:
			return d.ipv6(s, data, at)
		case etherARP:
			return "ARP"
		default:
			if kind < leastEther {
				return "IEEE 802.3"
			}
			return fmt.Sprintf("EtherType 0x%04x", kind)
		}
	}
	if other == shortFrame {
		if len(data) < wireLen {
			return cutOff
		}
		return d.contradicts(shortFrame, "%d bytes", len(data))
	}
	return other
}

// link decodes the header before the network layer. It returns the offset of the next header
// and its EtherType, or the kind of the packet.
func link(link pcap.LinkType, data []byte) (at int, kind uint16, other string) {
	short := func(size int) bool { return len(data) < size }
	switch link {
	case pcap.LinkEthernet:
		if short(etherLen) {
			return 0, 0, shortFrame
		}
		return etherLen, binary.BigEndian.Uint16(data[etherLen-2:]), ""
	case pcap.LinkHDLC:
		if short(hdlcLen) {
			return 0, 0, shortFrame
		}
		return hdlcLen, binary.BigEndian.Uint16(data[2:]), ""
	case pcap.LinkCooked:
		if short(cookedLen) {
			return 0, 0, shortFrame
		}
		return cookedLen, binary.BigEndian.Uint16(data[14:]), ""
	case pcap.LinkCooked2:
		if short(cooked2Len) {
			return 0, 0, shortFrame
		}
		return cooked2Len, binary.BigEndian.Uint16(data), ""
	case pcap.LinkNull, pcap.LinkLoop:
		return loopback(data)
	case pcap.LinkPPP, pcap.LinkPPPHDLC:
		return ppp(data)
	case pcap.LinkIPv4:
		return 0, etherIPv4, ""
	case pcap.LinkIPv6:
		return 0, etherIPv6, ""
	}
	// Raw IP: the version of the header says which.
	if short(1) {
		return 0, 0, shortFrame
	}
	switch data[0] >> 4 {
	case 4:
		return 0, etherIPv4, ""
	case 6:
		return 0, etherIPv6, ""
	}
	return 0, 0, fmt.Sprintf("IP version %d", data[0]>>4)
}

// loopback decodes the address family of BSD loopback, whose number for IPv6 depends on the
// system.
func loopback(data []byte) (at int, kind uint16, other string) {
	if len(data) < nullLen {
		return 0, 0, shortFrame
	}
	// In the byte order of the machine that captured. Families are small numbers.
	family := binary.LittleEndian.Uint32(data)
	if data[0] == 0 && data[1] == 0 {
		family = binary.BigEndian.Uint32(data)
	}
	switch family {
	case familyIPv4:
		return nullLen, etherIPv4, ""
	case familyIPv6Linux, familyIPv6Windows, familyIPv6BSD, familyIPv6FreeBSD, familyIPv6Darwin:
		return nullLen, etherIPv6, ""
	}
	if family > maxLoopbackFamily {
		return 0, 0, "loopback without an address family"
	}
	return 0, 0, fmt.Sprintf("loopback of address family %d", family)
}

// ppp decodes the protocol of a PPP frame (RFC 1661), with or without the address and control
// fields, and in one byte or two.
func ppp(data []byte) (at int, kind uint16, other string) {
	if len(data) >= 2 && data[0] == 0xff && data[1] == 0x03 {
		at = 2
	}
	if len(data) < at+2 {
		return 0, 0, shortFrame
	}
	protocol, size := binary.BigEndian.Uint16(data[at:]), 2
	if data[at]&1 != 0 {
		protocol, size = uint16(data[at]), 1
	}
	switch protocol {
	case pppIPv4:
		return at + size, etherIPv4, ""
	case pppIPv6:
		return at + size, etherIPv6, ""
	}
	return 0, 0, fmt.Sprintf("PPP protocol 0x%04x", protocol)
}

// lengthen compares the end of a packet, by its IP header, with the frame. Some programs
// record the captured length as that on the wire: then the IP header is right.
func (d *decoder) lengthen(data []byte, end int) bool {
	if end > d.frame && len(data) >= d.frame {
		d.frame = end
	}
	return end <= d.frame
}

func (d *decoder) ipv4(s *segment, data []byte, at int) string {
	ip := data[at:]
	if len(ip) < ipv4Len {
		if len(data) < d.frame {
			return cutOff
		}
		return d.contradicts(badIPv4, "a header of %d bytes, less than %d", len(ip), ipv4Len)
	}
	head, total := int(ip[0]&0x0f)*4, int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case total > 0 && total < ipv4Len:
		return d.contradicts(badIPv4, "IP length %d, less than a header of %d bytes", total, ipv4Len)
	case head < ipv4Len:
		return d.contradicts(badIPv4, "a header of %d bytes, less than %d", head, ipv4Len)
	case total > 0 && head > total, head > len(ip):
		return d.contradicts(badIPv4, "a header of %d bytes in %d", head, min(cmp.Or(total, len(ip)), len(ip)))
	case !validOptions(ip[ipv4Len:head]):
		return d.contradicts(badIPv4, "options in %d bytes that contradict their lengths", head-ipv4Len)
	}
	if version := int(ip[0] >> 4); version != 4 {
		return d.contradicts(notIP, "IP version %d in the header of IPv4", version)
	}
	if total == 0 { // 0 if the card segments a packet longer than the field allows
		total = d.frame - at
	}
	if !d.lengthen(data, at+total) || total < head {
		return d.contradicts(longIP, "IP length %d in a frame of %d bytes", total, d.frame)
	}
	if binary.BigEndian.Uint16(ip[6:])&ipv4Fragment != 0 {
		return fragments4
	}
	src, dst := [4]byte(ip[12:]), [4]byte(ip[16:])
	ip = ip[:min(len(ip), total)] // a frame may have padding after the packet
	return d.transport(s, netip.AddrFrom4(src), netip.AddrFrom4(dst), ip[9], ip[min(head, len(ip)):], total-head)
}

// validOptions reports whether the lengths of IPv4 options (RFC 791) agree with each other.
func validOptions(b []byte) bool {
	const end, noOperation = 0, 1
	for len(b) > 0 && b[0] != end {
		if b[0] == noOperation {
			b = b[1:]
			continue
		}
		if len(b) < 2 || int(b[1]) > len(b) || b[1] <= 2 {
			return false
		}
		b = b[b[1]:]
	}
	return true
}

// IPv6 next headers that precede the transport header (RFC 8200, RFC 4302).
const (
	hopByHop       = 0
	routing        = 43
	fragment       = 44
	authentication = 51
	destination    = 60
)

func (d *decoder) ipv6(s *segment, data []byte, at int) string {
	ip := data[at:]
	if len(ip) < ipv6Len {
		if len(data) < d.frame {
			return cutOff
		}
		return d.contradicts(longIP, "an IPv6 header of 40 bytes in a frame of %d bytes", d.frame)
	}
	if version := int(ip[0] >> 4); version != 6 {
		return d.contradicts(notIP, "IP version %d in the header of IPv6", version)
	}
	next, rest := ip[6], int(binary.BigEndian.Uint16(ip[4:]))
	if rest == 0 { // a jumbogram, or 0 as in IPv4
		rest = max(d.frame-at-ipv6Len, 0)
	}
	if !d.lengthen(data, at+ipv6Len+rest) {
		return d.contradicts(longIP, "IP length %d in a frame of %d bytes", ipv6Len+rest, d.frame)
	}
	b := ip[ipv6Len:]
	b = b[:min(len(b), rest)]
	for {
		size := 0
		switch next {
		case hopByHop, routing, destination, fragment, authentication:
			if rest < 8 {
				return d.contradicts(longHeader6, "an extension header in %d bytes", rest)
			}
			if len(b) < 8 {
				return cutOff
			}
			size = 8 + 8*int(b[1])
			if next == authentication {
				size = 8 + 4*int(b[1])
			}
		default:
			return d.transport(s, netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:])), next, b, rest)
		}
		if next == fragment {
			if binary.BigEndian.Uint16(b[2:])&0xfff9 != 0 { // has an offset or more fragments follow
				return fragments6
			}
			size = 8
		}
		if size > rest {
			return d.contradicts(longHeader6, "an extension header of %d bytes in %d", size, rest)
		}
		if size > len(b) {
			return cutOff
		}
		next, b, rest = b[0], b[size:], rest-size
	}
}

// transport decodes the captured part of an IP packet's payload of length bytes.
func (d *decoder) transport(s *segment, src, dst netip.Addr, protocol uint8, b []byte, length int) string {
	const icmp, tcp, udp, icmp6 = 1, 6, 17, 58
	need, least := udpLen, udpLen
	switch protocol {
	case tcp:
		need, least = tcpNeeded, tcpLen
	case udp:
	case icmp:
		return "ICMP"
	case icmp6:
		return "ICMPv6"
	default:
		return fmt.Sprintf("IP protocol %d", protocol)
	}
	if length < least {
		return d.contradicts(shortIP, "a header of %d bytes in %d", least, length)
	}
	if len(b) < need {
		return cutOff
	}
	s.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	s.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	s.tcp, s.flags, s.seq, s.ack, s.window = protocol == tcp, 0, 0, 0, 0
	head := udpLen
	if s.tcp {
		s.seq, s.ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		s.flags, s.window = b[13], binary.BigEndian.Uint16(b[14:])
		head = int(b[12]>>4) * 4
		if head < tcpLen || head > length {
			return d.contradicts(badTCP, "a header of %d bytes in %d", head, length)
		}
	} else if stated := int(binary.BigEndian.Uint16(b[4:])); stated > 0 { // 0 in a jumbogram
		if stated < udpLen {
			return d.contradicts(badUDP, "UDP length %d", stated)
		}
		// Options of UDP or padding may follow the datagram.
		length = min(length, stated)
		b = b[:min(len(b), length)]
	}
	s.payload, s.length = b[min(head, len(b)):], length-head
	return ""
}
