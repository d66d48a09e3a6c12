package conversations

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"net/netip"

	"github.com/google/gopacket"

	"testbed/results/pcap"
)

// lane analyses some of the conversations of a capture: with several processors, each has a
// lane, and all packets of a conversation are of the same lane. One lane has all packets.
type lane struct {
	Options
	d decoder
	s segment

	latest *Conversation // of the packet before
	slots  []slot        // a hash table with open addressing; their number is a power of two
	seed   maphash.Seed
	hosts  map[hosts]*hosts
	slabs  [][]Conversation // in order of their first packets; the last has room for more
	count  int              // conversations

	tally
	per   []Counts         // by interface
	other map[string]*kind // packets of no conversation
}

// tally is what is counted of all packets.
type tally struct {
	Counts
	lengthened  int
	first, last int64 // stamps, if there are packets
}

// kind is a Group and the number of its first packet.
type kind struct {
	Group
	number int
}

// slot is a slot of a lane's hash table. It has no pointers for the garbage collector.
type slot struct {
	tag    uint32 // of the hash
	number uint32 // of the conversation, plus one; 0 if the slot is free
}

const (
	slabLen    = 512 // conversations that are allocated at once
	firstSlots = 64
)

func newLane(o Options) *lane {
	return &lane{
		Options: o,
		slots:   make([]slot, firstSlots),
		seed:    maphash.MakeSeed(),
		hosts:   map[hosts]*hosts{},
		other:   map[string]*kind{},
	}
}

// packet processes a packet of a link type, with its number in the capture.
func (l *lane) packet(p *pcap.Packet, link pcap.LinkType, number int) {
	s := &l.s
	other := l.d.decode(s, link, p.Data, p.Len)
	if l.Packets == 0 {
		l.first, l.last = p.Stamp, p.Stamp
	}
	l.first, l.last = min(l.first, p.Stamp), max(l.last, p.Stamp)
	l.Counts.add(l.d.frame)
	for p.Interface >= len(l.per) {
		l.per = append(l.per, Counts{})
	}
	l.per[p.Interface].add(l.d.frame)
	if l.d.frame > p.Len {
		l.lengthened++
	}
	if other != "" {
		k := l.other[other]
		if k == nil {
			k = &kind{number: number}
			if l.d.contradiction != nil {
				k.First = l.d.contradiction()
			}
			l.other[other] = k
		}
		k.add(l.d.frame)
		return
	}
	c := l.latest
	if c == nil || !c.has(s) || c.superseded(s) {
		c = l.conversation(s, p.Stamp, number)
		l.latest = c
	}
	c.add(s, p.Stamp, l.d.frame, l.Options)
}

// conversation returns the conversation of a segment, which may begin it.
func (l *lane) conversation(s *segment, stamp int64, number int) *Conversation {
	hash := maphash.Comparable(l.seed, endsOf(s))
	e := l.slot(hash, s)
	if e.number > 0 {
		if c := l.at(int(e.number - 1)); !c.superseded(s) {
			return c
		}
	} else if 3*(l.count+1) > 2*len(l.slots) {
		l.grow()
		e = l.slot(hash, s)
	}
	c := l.begin(s, stamp, number)
	*e = slot{uint32(hash >> 32), uint32(l.count)}
	return c
}

// slot returns the slot of a segment's conversation, or the free slot in which to store it.
func (l *lane) slot(hash uint64, s *segment) *slot {
	mask := uint64(len(l.slots) - 1)
	for i := hash; ; i++ {
		e := &l.slots[i&mask]
		if e.number == 0 || e.tag == uint32(hash>>32) && l.at(int(e.number-1)).has(s) {
			return e
		}
	}
}

func (l *lane) grow() {
	old := l.slots
	l.slots = make([]slot, 2*len(old))
	mask := uint64(len(l.slots) - 1)
	for _, e := range old {
		if e.number == 0 {
			continue
		}
		i := maphash.Comparable(l.seed, l.at(int(e.number-1)).ends())
		for l.slots[i&mask].number > 0 {
			i++
		}
		l.slots[i&mask] = e
	}
}

// at returns a conversation by its number in the lane.
func (l *lane) at(number int) *Conversation { return &l.slabs[number/slabLen][number%slabLen] }

// begin returns the conversation that s begins. Its Stream is the packet's number at first.
func (l *lane) begin(s *segment, stamp int64, number int) *Conversation {
	if l.count%slabLen == 0 {
		l.slabs = append(l.slabs, make([]Conversation, slabLen))
	}
	a, b := s.src, s.dst
	if s.tcp && s.flags&(flagSYN|flagACK) == flagSYN|flagACK {
		a, b = b, a
	}
	h := hosts{a.Addr(), b.Addr()}
	if l.hosts[h] == nil {
		l.hosts[h] = &hosts{h.a, h.b}
	}
	c := l.at(l.count)
	l.count++
	c.Stream, c.hosts, c.portA, c.portB, c.tcp = number, l.hosts[h], a.Port(), b.Port(), s.tcp
	c.From, c.To = stamp, stamp
	c.AB.Faults, c.BA.Faults = &noFaults, &noFaults
	return c
}

// ends are two endpoints in an order that is independent of the direction.
type ends struct {
	low, high netip.AddrPort
	tcp       bool
}

func endsOf(s *segment) ends { return orderedEnds(s.src, s.dst, s.tcp) }

func (c *Conversation) ends() ends { return orderedEnds(c.A(), c.B(), c.tcp) }

func orderedEnds(a, b netip.AddrPort, tcp bool) ends {
	if a.Compare(b) < 0 {
		return ends{a, b, tcp}
	}
	return ends{b, a, tcp}
}

// sharer decides the lane of a packet by its endpoints.
type sharer struct {
	d     decoder
	s     segment
	lanes int
}

// lane returns the number of the packet's lane. Packets of no conversation have lane 0.
func (h *sharer) lane(p *pcap.Packet, link pcap.LinkType) int {
	var a, b [gopacket.MaxEndpointSize]byte // the end of an address, and a port
	n := 4 + 2
	if ip, at := plainIPv4(p.Data, link); ip != nil {
		copy(a[:4], ip[12:16])
		copy(b[:4], ip[16:20])
		copy(a[4:], ip[at:at+2])
		copy(b[4:], ip[at+2:at+4])
	} else {
		s := &h.s
		if h.d.decode(s, link, p.Data, p.Len) != "" {
			return 0
		}
		if s.src.Addr().Is6() {
			n = len(a)
		}
		src, dst := s.src.Addr().As16(), s.dst.Addr().As16()
		copy(a[:], src[len(src)-(n-2):])
		copy(b[:], dst[len(dst)-(n-2):])
		binary.BigEndian.PutUint16(a[n-2:], s.src.Port())
		binary.BigEndian.PutUint16(b[n-2:], s.dst.Port())
	}
	// The hash is the same in both directions. Its low bits are those of the bytes.
	const golden = 0x9e3779b97f4a7c15
	hash := gopacket.NewFlow(gopacket.EndpointInvalid, a[:n], b[:n]).FastHash()
	high, _ := bits.Mul64(hash*golden, uint64(h.lanes))
	return int(high)
}

// plainIPv4 returns the captured part of an IPv4 packet with TCP or UDP directly in Ethernet, and the offset of the
// transport header, of which it has the ports; nil for all other packets.
func plainIPv4(data []byte, link pcap.LinkType) (ip []byte, at int) {
	const protoTCP, protoUDP = 6, 17
	if link != pcap.LinkEthernet || len(data) < etherLen+ipv4Len ||
		binary.BigEndian.Uint16(data[etherLen-2:]) != etherIPv4 {
		return nil, 0
	}
	ip = data[etherLen:]
	if at = int(ip[0]&0x0f) * 4; ip[9] != protoTCP && ip[9] != protoUDP || len(ip) < at+4 {
		return nil, 0
	}
	return ip, at
}
