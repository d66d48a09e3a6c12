package pcap

import "fmt"

// LinkType is the type of the headers before the network layer
// (https://www.tcpdump.org/linktypes.html).
type LinkType uint16

// Link types of captures that are common and of which package conversations reads packets.
const (
	LinkNull     LinkType = 0 // loopback of the BSDs, in the byte order of the machine
	LinkEthernet LinkType = 1
	LinkPPP      LinkType = 9
	LinkRawBSD   LinkType = 12 // raw IP as in files of some BSDs
	LinkRawOpen  LinkType = 14 // raw IP as in files of OpenBSD
	LinkPPPHDLC  LinkType = 50
	LinkRaw      LinkType = 101
	LinkHDLC     LinkType = 104
	LinkLoop     LinkType = 108 // loopback of OpenBSD, in network byte order
	LinkCooked   LinkType = 113 // tcpdump -i any
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkCooked2  LinkType = 276
)

var linkNames = map[LinkType]string{
	LinkNull:     "BSD loopback",
	LinkEthernet: "Ethernet",
	6:            "IEEE 802.5",
	8:            "SLIP",
	LinkPPP:      "PPP",
	10:           "FDDI",
	LinkRawBSD:   "raw IP",
	LinkRawOpen:  "raw IP",
	LinkPPPHDLC:  "PPP in HDLC",
	51:           "PPPoE",
	100:          "ATM",
	LinkRaw:      "raw IP",
	LinkHDLC:     "Cisco HDLC",
	105:          "IEEE 802.11",
	107:          "frame relay",
	LinkLoop:     "OpenBSD loopback",
	LinkCooked:   "Linux cooked",
	117:          "PF log",
	119:          "IEEE 802.11 with Prism header",
	127:          "IEEE 802.11 with radiotap header",
	163:          "IEEE 802.11 with AVS header",
	187:          "Bluetooth HCI",
	189:          "USB of Linux",
	192:          "per-packet information",
	195:          "IEEE 802.15.4",
	201:          "Bluetooth HCI",
	204:          "PPP with direction",
	220:          "USB of Linux",
	227:          "CAN",
	LinkIPv4:     "raw IPv4",
	LinkIPv6:     "raw IPv6",
	230:          "IEEE 802.15.4",
	239:          "netfilter log",
	247:          "InfiniBand",
	249:          "USB of Windows",
	251:          "Bluetooth LE",
	253:          "netlink",
	254:          "Bluetooth of Linux",
	271:          "vsock",
	LinkCooked2:  "Linux cooked v2",
}

// String returns the name of the link type, or its number if it is not a common one.
func (l LinkType) String() string {
	if name, ok := linkNames[l]; ok {
		return name
	}
	return fmt.Sprintf("link type %d", uint16(l))
}

// skip returns the reason why packets of the link type are skipped.
func (l LinkType) skip() string {
	if name, ok := linkNames[l]; ok {
		return fmt.Sprintf("of link type %d (%s)", uint16(l), name)
	}
	return fmt.Sprintf("of %v", l)
}

// Accept makes Next and Batch return packets of these link types too. Without it they return
// those of Ethernet and skip others.
func (p *Reader) Accept(types ...LinkType) {
	p.accepted = append(p.accepted, types...)
	for i := range p.interfaces {
		p.setSkip(&p.interfaces[i])
	}
}

// LinkType returns the link type of the interface with this number in Interfaces.
func (p *Reader) LinkType(i int) LinkType { return p.interfaces[i].facts.LinkType }
