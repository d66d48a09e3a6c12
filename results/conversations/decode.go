package conversations

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Header sizes in bytes, and TCP header fields (RFC 9293).
const (
	vlanLen   = 4
	ipv4Len   = 20
	ipv6Len   = 40
	udpLen    = 8
	tcpLen    = 20
	tcpNeeded = 16 // up to the window field

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// Kinds of packets that belong to no conversation.
const (
	cutOff        = "headers cut off"
	contradictory = "headers contradict themselves"
	fragments4    = "IPv4 fragments"
	fragments6    = "IPv6 fragments"
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

// decoder decodes Ethernet frames. gopacket decodes the link and network layers. The few
// fields of TCP and UDP are read here because gopacket's TCP layer rejects a header whose
// options were not captured; IPv6 extension headers are too, because gopacket truncates the
// packet at the wrong place after a hop-by-hop header.
type decoder struct {
	eth    layers.Ethernet
	vlan   layers.Dot1Q
	ip4    layers.IPv4
	ip6    layers.IPv6
	parser *gopacket.DecodingLayerParser
	found  []gopacket.LayerType
}

func newDecoder() *decoder {
	d := &decoder{}
	d.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &d.eth, &d.vlan, &d.ip4, &d.ip6)
	d.parser.IgnoreUnsupported = true
	return d
}

// decode fills s from the captured bytes of a frame of wireLen bytes. For a packet that
// belongs to no conversation it returns the kind instead.
func (d *decoder) decode(s *segment, data []byte, wireLen int) (other string) {
	err := d.parser.DecodeLayers(data, &d.found)
	at, last := 0, gopacket.LayerTypeZero
	kind := layers.EthernetType(0)
	for _, l := range d.found {
		last = l
		switch l {
		case layers.LayerTypeEthernet:
			at, kind = len(d.eth.Contents), d.eth.EthernetType
		case layers.LayerTypeDot1Q:
			at, kind = at+vlanLen, d.vlan.Type
		}
	}
	switch {
	case last == layers.LayerTypeIPv4:
		return d.ipv4(s, data[at:], wireLen-at)
	case last == layers.LayerTypeIPv6 || err != nil && kind == layers.EthernetTypeIPv6 && len(data)-at >= ipv6Len:
		return d.ipv6(s, data[at:], wireLen-at)
	case err != nil && len(data) < wireLen:
		return cutOff
	case err != nil:
		return contradictory
	case kind == layers.EthernetTypeLLC:
		return "IEEE 802.3"
	case kind == layers.EthernetTypeARP:
		return "ARP"
	}
	return fmt.Sprintf("EtherType 0x%04x", uint16(kind))
}

func (d *decoder) ipv4(s *segment, ip []byte, room int) string {
	if ip[0]>>4 != 4 {
		return contradictory
	}
	head, total := int(d.ip4.IHL)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if total == 0 { // 0 if the card segments a packet longer than the field allows
		total = room
	}
	if total > room || total < head {
		return contradictory
	}
	if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
		return fragments4
	}
	src, dst := [4]byte(ip[12:]), [4]byte(ip[16:])
	ip = ip[:min(len(ip), total)] // a frame may have padding after the packet
	return s.transport(netip.AddrFrom4(src), netip.AddrFrom4(dst), uint8(d.ip4.Protocol), ip[min(head, len(ip)):], total-head)
}

// IPv6 next headers that precede the transport header (RFC 8200, RFC 4302).
const (
	hopByHop       = 0
	routing        = 43
	fragment       = 44
	authentication = 51
	destination    = 60
)

func (d *decoder) ipv6(s *segment, ip []byte, room int) string {
	if ip[0]>>4 != 6 {
		return contradictory
	}
	next, rest := ip[6], int(binary.BigEndian.Uint16(ip[4:]))
	if room -= ipv6Len; rest == 0 { // a jumbogram, or 0 as in IPv4
		rest = room
	}
	if rest > room {
		return contradictory
	}
	b := ip[ipv6Len:]
	b = b[:min(len(b), rest)]
	for {
		size := 0
		switch next {
		case hopByHop, routing, destination, fragment, authentication:
			if rest < 8 {
				return contradictory
			}
			if len(b) < 8 {
				return cutOff
			}
			size = 8 + 8*int(b[1])
			if next == authentication {
				size = 8 + 4*int(b[1])
			}
		default:
			return s.transport(netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:])), next, b, rest)
		}
		if next == fragment {
			if binary.BigEndian.Uint16(b[2:])&0xfff9 != 0 { // has an offset or more fragments follow
				return fragments6
			}
			size = 8
		}
		if size > rest {
			return contradictory
		}
		if size > len(b) {
			return cutOff
		}
		next, b, rest = b[0], b[size:], rest-size
	}
}

// transport decodes the captured part of an IP packet's payload of length bytes.
func (s *segment) transport(src, dst netip.Addr, protocol uint8, b []byte, length int) string {
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
		return contradictory
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
			return contradictory
		}
	}
	s.payload, s.length = b[min(head, len(b)):], length-head
	return ""
}
