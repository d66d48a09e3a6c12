package conversations

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"testbed/emu/longtest"
	"testbed/results/pcap"
	"testbed/results/tooltest"
)

// framing is a link type and the header that it puts before an IP packet.
type framing struct {
	name   string
	link   pcap.LinkType
	header func(six bool) []byte
	ether  int  // offset of the EtherType; -1 if there is none
	only   byte // IP version that the link type carries; 0 for both
}

func framings() []framing {
	const four, six = "\x08\x00", "\x86\xdd"
	pick := func(v4, v6 string) func(bool) []byte {
		return func(is6 bool) []byte {
			if is6 {
				return []byte(v6)
			}
			return []byte(v4)
		}
	}
	none := pick("", "")
	mac := "\x02\x00\x00\x00\x00\x01"
	ether := mac + "\x02\x00\x00\x00\x00\x02"
	cooked := "\x00\x00\x00\x01\x00\x06" + mac + "\x00\x00"
	cooked2 := "\x00\x00\x00\x00\x00\x03\x00\x01\x00\x06" + mac + "\x00\x00"
	return []framing{
		{"null, little endian", pcap.LinkNull, pick("\x02\x00\x00\x00", "\x1e\x00\x00\x00"), -1, 0},
		{"null, big endian", pcap.LinkNull, pick("\x00\x00\x00\x02", "\x00\x00\x00\x18"), -1, 0},
		{"Ethernet", pcap.LinkEthernet, pick(ether+four, ether+six), 12, 0},
		{"PPP", pcap.LinkPPP, pick("\xff\x03\x00\x21", "\xff\x03\x00\x57"), -1, 0},
		{"PPP, compressed", pcap.LinkPPP, pick("\x21", "\x57"), -1, 0},
		{"raw, 12", pcap.LinkRawBSD, none, -1, 0},
		{"raw, 14", pcap.LinkRawOpen, none, -1, 0},
		{"PPP in HDLC", pcap.LinkPPPHDLC, pick("\xff\x03\x00\x21", "\xff\x03\x00\x57"), -1, 0},
		{"raw, 101", pcap.LinkRaw, none, -1, 0},
		{"Cisco HDLC", pcap.LinkHDLC, pick("\x0f\x00"+four, "\x0f\x00"+six), 2, 0},
		{"loop", pcap.LinkLoop, pick("\x00\x00\x00\x02", "\x00\x00\x00\x1c"), -1, 0},
		{"cooked", pcap.LinkCooked, pick(cooked+four, cooked+six), 14, 0},
		{"IPv4", pcap.LinkIPv4, none, -1, 4},
		{"IPv6", pcap.LinkIPv6, none, -1, 6},
		{"cooked 2", pcap.LinkCooked2, pick(four+cooked2, six+cooked2), 0, 0},
	}
}

// frame puts an IP packet into a frame. tags are EtherTypes of VLAN tags before the packet.
func (f framing) frame(ip []byte, tags ...uint16) []byte {
	h := f.header(ip[0]>>4 == 6)
	for i := len(tags) - 1; i >= 0; i-- {
		inner := binary.BigEndian.Uint16(h[f.ether:])
		binary.BigEndian.PutUint16(h[f.ether:], tags[i])
		tag := binary.BigEndian.AppendUint16([]byte{0, 5}, inner)
		h = append(h[:f.headerLen():f.headerLen()], append(tag, h[f.headerLen():]...)...)
	}
	return append(h, ip...)
}

func (f framing) headerLen() int { return len(f.header(false)) }

// exchange returns the IP packets of a conversation: with TCP a handshake, three segments of
// 1,000 bytes, acknowledgements and both FINs, with UDP three datagrams each way.
func exchange(t testing.TB, port uint16, six, udp bool) [][]byte {
	t.Helper()
	var out [][]byte
	if udp {
		for i := range 6 {
			out = append(out, datagram(t, port, i%2 == 1, six, 100))
		}
		return out
	}
	add := func(back bool, seq, ack uint32, flags string, payload int) {
		p := tcpPacket{client: port, server: 80, back: back, seq: seq, ack: ack, flags: flags, window: 500, payload: make([]byte, payload), six: six}
		ip := p.frame(t)[etherLen:]
		if !six {
			ip = ip[:binary.BigEndian.Uint16(ip[2:])] // without the padding of Ethernet
		}
		out = append(out, ip)
	}
	add(false, 0, 0, "S", 0)
	add(true, 0, 1, "SA", 0)
	add(false, 1, 1, "A", 0)
	for i := range uint32(3) {
		add(false, 1+1000*i, 1, "A", 1000)
		add(true, 1, 1001+1000*i, "A", 0)
	}
	add(false, 3001, 1, "FA", 0)
	add(true, 1, 3002, "FA", 0)
	add(false, 3002, 2, "A", 0)
	return out
}

func datagram(t testing.TB, port uint16, back, six bool, payload int) []byte {
	t.Helper()
	u := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 6000}
	if back {
		u.SrcPort, u.DstPort = u.DstPort, u.SrcPort
	}
	a, b := net.ParseIP("fd00::1"), net.ParseIP("fd00::2")
	if !six {
		a, b = net.IP{10, 0, 0, 1}, net.IP{10, 0, 0, 2}
	}
	if back {
		a, b = b, a
	}
	if six {
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 9, SrcIP: a, DstIP: b}
		_ = u.SetNetworkLayerForChecksum(ip) // ip is an IP layer
		return build(t, ip, u, gopacket.Payload(make([]byte, payload)))
	}
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocolUDP, SrcIP: a, DstIP: b}
	_ = u.SetNetworkLayerForChecksum(ip) // ip is an IP layer
	return build(t, ip, u, gopacket.Payload(make([]byte, payload)))
}

// record is a packet as a file states it.
type record struct {
	nic  int // number of the interface
	at   time.Duration
	data []byte
	wire int // length that the record states; 0 is that of data
}

func (r record) length() uint32 {
	if r.wire > 0 {
		return uint32(r.wire)
	}
	return uint32(len(r.data))
}

// file writes captures without a library: those that exist write no frame check sequences and
// no link types above 255.
type file struct {
	order binary.AppendByteOrder
	nanos bool
	ng    bool
	minor uint16   // version 2.minor of the older format
	links []uint32 // per interface; the older format has one, with flags in its high bits
	fcs   byte     // option if_fcslen of pcapng; 0 for none
}

func (f file) bytes(records []record) []byte {
	if f.ng {
		return f.pcapng(records)
	}
	magic, unit := uint32(0xA1B2C3D4), time.Microsecond
	if f.nanos {
		magic, unit = 0xA1B23C4D, 1
	}
	b := f.order.AppendUint32(nil, magic)
	b = f.order.AppendUint16(b, 2)
	b = f.order.AppendUint16(b, f.minor)
	for _, v := range []uint32{0, 0, 1 << 18, f.links[0]} {
		b = f.order.AppendUint32(b, v)
	}
	for _, r := range records {
		lengths := []uint32{uint32(len(r.data)), r.length()}
		if f.minor < 3 {
			slices.Reverse(lengths)
		}
		for _, v := range append([]uint32{uint32(origin.Unix()), uint32(r.at / unit)}, lengths...) {
			b = f.order.AppendUint32(b, v)
		}
		b = append(b, r.data...)
	}
	return b
}

func (f file) pcapng(records []record) []byte {
	var b []byte
	block := func(kind uint32, body []byte) {
		body = append(body, make([]byte, -len(body)&3)...)
		b = f.order.AppendUint32(b, kind)
		b = f.order.AppendUint32(b, uint32(12+len(body)))
		b = append(b, body...)
		b = f.order.AppendUint32(b, uint32(12+len(body)))
	}
	section := f.order.AppendUint32(nil, 0x1A2B3C4D)
	section = f.order.AppendUint16(section, 1)
	section = f.order.AppendUint16(section, 0)
	block(0x0A0D0D0A, f.order.AppendUint64(section, ^uint64(0)))
	unit := time.Microsecond
	for _, link := range f.links {
		nic := f.order.AppendUint16(nil, uint16(link))
		nic = f.order.AppendUint16(nic, 0)
		nic = f.order.AppendUint32(nic, 1<<18)
		option := func(code uint16, v byte) {
			nic = f.order.AppendUint16(nic, code)
			nic = f.order.AppendUint16(nic, 1)
			nic = append(nic, v, 0, 0, 0)
		}
		if f.nanos {
			unit = 1
			option(9, 9)
		}
		if f.fcs > 0 {
			option(13, f.fcs)
		}
		block(1, append(nic, 0, 0, 0, 0))
	}
	for _, r := range records {
		p := f.order.AppendUint32(nil, uint32(r.nic))
		stamp := uint64(origin.Unix())*uint64(time.Second/unit) + uint64(r.at/unit)
		for _, v := range []uint32{uint32(stamp >> 32), uint32(stamp), uint32(len(r.data)), r.length()} {
			p = f.order.AppendUint32(p, v)
		}
		block(6, append(p, r.data...))
	}
	return b
}

func (f file) write(t testing.TB, records []record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pcap")
	if err := os.WriteFile(path, f.bytes(records), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// figures are those of a conversation that do not depend on the link type.
func figures(c *Conversation) string {
	return fmt.Sprintf("%s %v %v packets %d %d payload %d %d again %d flags %d %d %d %d handshake %v took %v",
		c.Protocol(), c.A(), c.B(), c.AB.Packets, c.BA.Packets, c.AB.Payload, c.BA.Payload, c.Retransmissions(),
		c.AB.SYN, c.AB.FIN, c.BA.SYN, c.BA.FIN, c.Handshake, c.Duration())
}

const pause = 2 * time.Millisecond

// The same conversation gives the same figures over every link type, in every format.
func TestLinkTypes(t *testing.T) {
	longtest.Computes(t)
	formats := map[string]file{}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for _, nanos := range []bool{false, true} {
			for _, ng := range []bool{false, true} {
				formats[fmt.Sprintf("%v, ns %v, pcapng %v", order, nanos, ng)] = file{order: order, nanos: nanos, ng: ng, minor: 4}
			}
		}
	}
	for _, minor := range []uint16{0, 2, 3} {
		formats[fmt.Sprintf("version 2.%d", minor)] = file{order: binary.BigEndian, minor: minor}
	}
	for _, six := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			want := map[bool]string{}
			for _, f := range framings() {
				if f.only == 4 && six || f.only == 6 && !six {
					continue
				}
				for name, format := range formats {
					for _, more := range [][2]int{{0, 0}, {6, 0}, {0, 2}, {46, 4}, {1, 16}} {
						tail, fcs := more[0], more[1]
						at := fmt.Sprintf("%s, IPv6 %v, UDP %v, %s, %d bytes of padding, %d of check sequence", f.name, six, udp, name, tail, fcs)
						format.links, format.fcs = []uint32{uint32(f.link)}, byte(fcs*8)
						if fcs == 2 {
							format.fcs = 2 // as some programs state it: in bytes
						}
						if !format.ng && fcs > 0 {
							format.links[0] |= 1<<26 | uint32(fcs/2)<<28
						}
						var records []record
						size := 0
						for i, ip := range exchange(t, 4000, six, udp) {
							data := append(f.frame(ip), make([]byte, tail)...)
							size += len(data)
							records = append(records, record{at: time.Duration(i) * pause, data: append(data, bytes.Repeat([]byte{0xfc}, fcs)...)})
						}
						r, err := pcap.NewReader(bytes.NewReader(format.bytes(records)))
						if err != nil {
							t.Fatalf("%s: %v", at, err)
						}
						c, err := Read(t.Context(), r, Options{})
						if err != nil || len(c.Conversations) != 1 || len(c.Other) > 0 || len(c.Skipped) > 0 || c.Lengthened > 0 {
							t.Fatalf("%s: %v, %+v", at, err, c)
						}
						got := figures(c.Conversations[0])
						if want[udp] == "" {
							want[udp] = got
						}
						if got != want[udp] {
							t.Errorf("%s:\n%s, want\n%s", at, got, want[udp])
						}
						if int(c.Bytes) != size {
							t.Errorf("%s: %d bytes of frames, want %d", at, c.Bytes, size)
						}
					}
				}
			}
			payload := " payload 3000 0 "
			if udp {
				payload = " payload 300 300 "
			}
			if !strings.Contains(want[udp], payload) {
				t.Errorf("%s, want%s", want[udp], payload)
			}
		}
	}
}

// VLAN tags precede the packet in every link type that has an EtherType.
func TestTagsOfVLANs(t *testing.T) {
	for _, f := range framings() {
		if f.ether < 0 {
			continue
		}
		for _, tags := range [][]uint16{{0x8100}, {0x88a8}, {0x9100}, {0x9200}, {0x9100, 0x8100}, {0x88a8, 0x9100, 0x8100}} {
			for _, six := range []bool{false, true} {
				var records []record
				for i, ip := range exchange(t, 4000, six, false) {
					records = append(records, record{at: time.Duration(i) * pause, data: f.frame(ip, tags...)})
				}
				format := file{order: binary.LittleEndian, minor: 4, links: []uint32{uint32(f.link)}}
				c, err := ReadFile(t.Context(), format.write(t, records), Options{})
				if err != nil || len(c.Conversations) != 1 || c.Conversations[0].Packets() != 12 || c.Conversations[0].AB.Payload != 3000 {
					t.Errorf("%s with tags %x, IPv6 %v: %v, %+v", f.name, tags, six, err, c)
				}
			}
		}
	}
}

// tshark, capinfos and tcpdump read the same packets: of each link type in a file of its own,
// and of all in one pcapng, which tcpdump does not read.
func TestLinkTypesAgreeWithOtherPrograms(t *testing.T) {
	longtest.Skip(t, "runs tshark 16 times, 20 s")
	tooltest.Need(t, "tshark", "capinfos", "tcpdump")
	var mixed []record
	all := file{order: binary.BigEndian, nanos: true, ng: true}
	for n, f := range framings() {
		var records []record
		for k, kind := range []struct{ six, udp bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			if f.only == 4 && kind.six || f.only == 6 && !kind.six {
				continue
			}
			for i, ip := range exchange(t, uint16(4000+10*n+k), kind.six, kind.udp) {
				data := f.frame(ip)
				if f.ether >= 0 && f.link != pcap.LinkHDLC && kind.six { // tshark reads no tags in HDLC
					data = f.frame(ip, 0x9100, 0x8100)
				}
				records = append(records, record{nic: n, at: time.Duration(20*k+i) * pause, data: append(data, make([]byte, 2*k)...)})
			}
		}
		mixed = append(mixed, records...)
		all.links = append(all.links, uint32(f.link))
		t.Run(f.name, func(t *testing.T) {
			path := file{order: binary.LittleEndian, nanos: true, minor: 4, links: []uint32{uint32(f.link)}}.write(t, records)
			c := agree(t, path, true)
			if len(c.Other) > 0 || c.Packets != len(records) {
				t.Errorf("%+v", c)
			}
			if want := fmt.Sprintf("%d packets\n", c.Packets); f.link != pcap.LinkRawOpen { // which libpcap of Linux does not read
				if got := tooltest.Output(t, "tcpdump", "--count", "-nr", path); got != want {
					t.Errorf("tcpdump reads %q, want %q", got, want)
				}
			}
			counts := strings.Fields(tooltest.Output(t, "capinfos", "-rTcd", path))
			if want := []string{path, fmt.Sprint(c.Packets), fmt.Sprint(int64(c.Bytes))}; !slices.Equal(counts, want) {
				t.Errorf("capinfos has %v, want %v", counts, want)
			}
		})
	}
	if c := agree(t, all.write(t, mixed), true); len(c.Interfaces) != len(all.links) || len(c.Skipped) > 0 || c.Packets != len(mixed) {
		t.Errorf("mixed: %+v", c)
	}
}

// Records whose length is wrong. The first bytes of each packet are there, with all headers.
func TestLengthsOfRecords(t *testing.T) {
	longtest.Computes(t)
	const cut = 82 // of the longest header here, 14 + 40 + 20
	for _, f := range framings() {
		for _, six := range []bool{false, true} {
			if f.only == 4 && six || f.only == 6 && !six {
				continue
			}
			for _, udp := range []bool{false, true} {
				packets := exchange(t, 4000, six, udp)
				for _, tt := range []struct {
					name string
					do   func(frame []byte) (data []byte, wire int)
				}{
					{"length on the wire lost", func(b []byte) ([]byte, int) { return b[:min(cut, len(b))], 0 }},
					{"length on the wire below the captured", func(b []byte) ([]byte, int) { return b, len(b) - 2 }},
					{"length on the wire of one byte", func(b []byte) ([]byte, int) { return b[:min(cut, len(b))], 1 }},
					{"cut by the snapshot length", func(b []byte) ([]byte, int) { return b[:min(cut, len(b))], len(b) }},
				} {
					for _, ng := range []bool{false, true} {
						var records []record
						wantBytes := 0
						for i, ip := range packets {
							data, wire := tt.do(f.frame(ip))
							records = append(records, record{at: time.Duration(i) * pause, data: data, wire: wire})
							wantBytes += len(f.frame(ip))
						}
						format := file{order: binary.LittleEndian, ng: ng, minor: 4, links: []uint32{uint32(f.link)}}
						c, err := ReadFile(t.Context(), format.write(t, records), Options{})
						if err != nil || len(c.Conversations) != 1 || len(c.Other) > 0 {
							t.Fatalf("%s, %s: %v, %+v", f.name, tt.name, err, c)
						}
						payload := 3000
						if udp {
							payload = 600
						}
						v := c.Conversations[0]
						if v.Packets() != len(packets) || int(v.AB.Payload+v.BA.Payload) != payload || int(v.Bytes()) != wantBytes || int(c.Bytes) != wantBytes || v.Retransmissions() != 0 {
							t.Errorf("%s, IPv6 %v, UDP %v, pcapng %v, %s: %d packets, %d bytes, %s, want %d bytes of frames", f.name, six, udp, ng, tt.name, v.Packets(), v.Bytes(), figures(v), wantBytes)
						}
						if (c.Lengthened > 0) != (tt.name != "cut by the snapshot length") {
							t.Errorf("%s, %s: %d packets lengthened", f.name, tt.name, c.Lengthened)
						}
					}
				}
			}
		}
	}
}

// The payload of UDP is what its header states. Options or padding may follow it.
func TestPayloadOfUDPEndsWithIt(t *testing.T) {
	for _, six := range []bool{false, true} {
		for _, tt := range []struct{ stated, want int }{{38, 30}, {8, 0}, {60, 52}, {0, 52}, {61, 52}} {
			ip := datagram(t, 5000, false, six, 52)
			udp := ip[len(ip)-60:]
			binary.BigEndian.PutUint16(udp[4:], uint16(tt.stated))
			c := read(t, []packet{{frame: framings()[2].frame(ip)}})
			if len(c.Conversations) != 1 || int(c.Conversations[0].AB.Payload) != tt.want {
				t.Errorf("IPv6 %v, UDP length %d of 60: %+v, want a payload of %d", six, tt.stated, c, tt.want)
			}
		}
	}
}

// A packet that is left out says what contradicts what.
func TestContradictionsAreNamed(t *testing.T) {
	ip := exchange(t, 4000, false, false)[3]
	data := framings()[2].frame(ip)
	path := file{order: binary.LittleEndian, minor: 4, links: []uint32{1}}.write(t, []record{{data: data[:96], wire: 100}, {data: data[:90], wire: 96}})
	c, err := ReadFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*Group{longIP: {Counts{2, 196}, "IP length 1040 in a frame of 100 bytes"}}
	if diff := cmp.Diff(want, c.Other); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Frames of any link type may have any bytes and any stated length.
func FuzzLinks(f *testing.F) {
	for _, l := range framings() {
		for _, six := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				b := l.frame(exchange(f, 4000, six, udp)[1])
				f.Add(uint16(l.link), b, uint16(len(b)))
				if l.ether >= 0 {
					f.Add(uint16(l.link), l.frame(exchange(f, 4000, six, udp)[1], 0x9100, 0x8100), uint16(20))
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, link uint16, b []byte, wire uint16) {
		var d decoder
		var s segment
		other := d.decode(&s, pcap.LinkType(link), b, int(wire))
		switch {
		case d.frame < int(wire):
			t.Errorf("a frame of %d bytes, the record states %d", d.frame, wire)
		case d.frame > int(wire) && len(b) < int(wire):
			t.Errorf("a frame of %d bytes, known to have %d", d.frame, wire)
		case other == "" && (s.length < 0 || s.length > d.frame || len(s.payload) > max(s.length, 0)):
			t.Errorf("%+v of a frame of %d bytes", s, d.frame)
		case d.contradiction != nil && (other == "" || d.contradiction() == ""):
			t.Errorf("%q with a contradiction %q", other, d.contradiction())
		}
	})
}
