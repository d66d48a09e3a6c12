package flows

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/layers"

	"testbed/hosts/wire"
	"testbed/topo/units"
)

// datagram is seen by both hosts at one time.
func (n *network) datagram(at time.Duration, from, to string, srcPort, dstPort uint16, payload []byte) {
	frame := n.frame(ipOf(n.t, from), ipOf(n.t, to), layers.IPProtocolUDP, &layers.UDP{SrcPort: layers.UDPPort(srcPort), DstPort: layers.UDPPort(dstPort)}, payload)
	n.see(from, 0, at, frame)
	n.see(to, 0, at, frame)
}

// foreignOf returns the foreign traffic of the link of a host.
func foreignOf(t *testing.T, r Result, host string) (out, in Foreign) {
	t.Helper()
	for _, c := range r.Captures {
		if c.Host == host {
			return c.Interfaces[0].OutForeign, c.Interfaces[0].InForeign
		}
	}
	t.Fatalf("no capture of %s", host)
	return
}

// All packets of a run belong to it: marks, retransmitted and reset handshakes, connections
// that are never used, senders that are stopped, pipelines, and ICMP errors about them.
func TestRunHasNoForeignTraffic(t *testing.T) {
	n := newNetwork(t, a, b, c)
	simple(n)
	pipeline(n)
	unused := n.dial(20*ms, a, b, 40004, wire.ShufflePort, 5)
	unused.segment(true, 19*ms, lost, layers.TCP{SYN: true, Seq: 5}, nil)
	unused.segment(true, 30*ms, 31*ms, layers.TCP{RST: true, Seq: 6}, nil)
	refused := &tcp{n: n, client: a, server: b, cport: 40005, sport: wire.BlockPort, cisn: 5}
	refused.segment(true, 20*ms, 21*ms, layers.TCP{SYN: true, Seq: 5}, nil)
	refused.segment(false, 22*ms, 23*ms, layers.TCP{RST: true, ACK: true, Ack: 6}, nil)
	n.task = wire.Task{Job: 3}
	stopped := n.dial(20*ms, a, b, 40006, wire.ShufflePort, 5)
	s := n.flow(1, 8, 2800)
	stopped.data(24*ms, 25*ms, s, 0, 1000)
	stopped.segment(true, 26*ms, 27*ms, layers.TCP{RST: true, Seq: 1006}, nil)
	for _, quoted := range [][]byte{
		n.frame(ipOf(t, a), ipOf(t, b), layers.IPProtocolTCP, &layers.TCP{SrcPort: 40006, DstPort: wire.ShufflePort}, nil),
		n.frame(ipOf(t, a), net.IPv4(192, 0, 2, 1).To4(), layers.IPProtocolUDP, &layers.UDP{SrcPort: 4, DstPort: wire.MarkPort}, nil),
	} {
		n.see(a, 0, 28*ms, n.unreachable(ipOf(t, a), quoted))
	}
	got := n.reduce(Options{})
	for _, host := range []string{a, b, c} {
		if out, in := foreignOf(t, got, host); out != (Foreign{}) || in != (Foreign{}) {
			t.Errorf("%s: foreign out %+v, in %+v, want none", host, out, in)
		}
	}
}

// Connections that no host of the run opened are foreign without payload, too, and so are errors that no switch can have sent.
func TestWhatTheRunDidNotDoIsForeign(t *testing.T) {
	n := newNetwork(t, a, b, c)
	simple(n)
	opened := map[uint16]bool{40004: true}
	for _, port := range []uint16{40004, 40005} {
		x := n.dial(20*ms, a, b, port, wire.ShufflePort, 5)
		x.segment(true, 30*ms, 31*ms, layers.TCP{RST: true, Seq: 6}, nil)
	}
	quoted := n.frame(ipOf(t, a), ipOf(t, b), layers.IPProtocolTCP, &layers.TCP{SrcPort: 40004, DstPort: wire.ShufflePort}, nil)
	n.see(a, 0, 28*ms, n.unreachable(ipOf(t, a), quoted))
	tooLong := n.unreachable(ipOf(t, a), quoted)
	tooLong[etherLen+ipMinLen+1] = layers.ICMPv4CodeFragmentationNeeded
	n.see(a, 0, 28*ms, tooLong)
	for _, tt := range []struct {
		o       Options
		out, in int
	}{
		{Options{}, 0, 1}, // the error of a packet that was too long
		{Options{NoErrors: true}, 0, 2},
		{Options{Opened: func(client, _ netip.AddrPort) bool { return client.Port() < 40004 || opened[client.Port()] }}, 3, 2},
	} {
		out, in := foreignOf(t, n.reduce(tt.o), a)
		if out.Packets != tt.out || in.Packets != tt.in {
			t.Errorf("%d packets out and %d in are foreign, want %d and %d: %+v %+v", out.Packets, in.Packets, tt.out, tt.in, out, in)
		}
	}
}

// unreachable is the error of a leaf about a frame.
func (n *network) unreachable(to net.IP, quoted []byte) []byte {
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeHost)}
	return n.frame(net.IPv4(10, 0, 0, 0).To4(), to, layers.IPProtocolICMPv4, icmp, quoted[etherLen:])
}

func TestForeignTraffic(t *testing.T) {
	request := []byte("GET / HTTP/1.0\r\n\r\n")
	for _, tt := range []struct {
		name    string
		send    func(n *network)
		out, in Foreign // of a
	}{
		{"a port of no service", func(n *network) {
			n.dial(20*ms, a, b, 40002, 5201, 5).data(22*ms, 23*ms, request, 0, 18)
		}, Foreign{Counts{3, 3*heads + 18}, 3*heads + 18, sinceFirst(0), Conversation{"tcp 10.0.0.1:40002 > 10.3.4.1:5201", Counts{3, 3*heads + 18}}, 0},
			Foreign{Counts{1, heads}, heads, sinceFirst(0), Conversation{"tcp 10.3.4.1:5201 > 10.0.0.1:40002", Counts{1, heads}}, 0}},
		{"the port of flows, less than a header", func(n *network) {
			n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5).data(22*ms, 23*ms, request, 0, 18)
		}, Foreign{Counts{3, 3*heads + 18}, 3*heads + 18, sinceFirst(0), Conversation{"tcp 10.0.0.1:40002 > 10.3.4.1:50060", Counts{3, 3*heads + 18}}, 0},
			Foreign{Counts{1, heads}, heads, sinceFirst(0), Conversation{"tcp 10.3.4.1:50060 > 10.0.0.1:40002", Counts{1, heads}}, 0}},
		{"the port of flows, without a header, later", func(n *network) {
			x := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			x.data(22*ms, 23*ms, make([]byte, 1400), 0, 1400)
			x.data(600*ms, 601*ms, make([]byte, 4200), 1400, 4200)
		}, Foreign{Counts{4, 4*heads + 4200}, heads + 2800, sinceFirst(500 * ms), Conversation{"tcp 10.0.0.1:40002 > 10.3.4.1:50060", Counts{4, 4*heads + 4200}}, 0},
			Foreign{Counts{1, heads}, heads, sinceFirst(0), Conversation{"tcp 10.3.4.1:50060 > 10.0.0.1:40002", Counts{1, heads}}, 0}},
		{"the port of flows, of another run", func(n *network) {
			n.run = 9
			s := n.flow(1, 7, 100)
			n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5).data(22*ms, 23*ms, s, 0, len(s))
			n.run = testRun
		}, Foreign{Counts{3, 3*heads + 164}, 3*heads + 164, sinceFirst(0), Conversation{"tcp 10.0.0.1:40002 > 10.3.4.1:50060", Counts{3, 3*heads + 164}}, 0},
			Foreign{Counts{1, heads}, heads, sinceFirst(0), Conversation{"tcp 10.3.4.1:50060 > 10.0.0.1:40002", Counts{1, heads}}, 0}},
		{"the port of flows, a header with a wrong checksum", func(n *network) {
			s := n.flow(1, 7, 100)
			s[20] ^= 1
			n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5).data(22*ms, 23*ms, s, 0, len(s))
		}, Foreign{Counts{3, 3*heads + 164}, 3*heads + 164, sinceFirst(0), Conversation{"tcp 10.0.0.1:40002 > 10.3.4.1:50060", Counts{3, 3*heads + 164}}, 0},
			Foreign{Counts{1, heads}, heads, sinceFirst(0), Conversation{"tcp 10.3.4.1:50060 > 10.0.0.1:40002", Counts{1, heads}}, 0}},
		{"the port of flows, from a server that speaks first", func(n *network) {
			x := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			x.acks(270*ms, 271*ms, 0, 1000)
			x.acks(272*ms, 273*ms, 1000, 1000)
		}, Foreign{Counts{2, 2 * heads}, 2 * heads, sinceFirst(250 * ms), Conversation{"tcp 10.0.0.1:40002 > 10.3.4.1:50060", Counts{2, 2 * heads}}, 0},
			Foreign{Counts{3, 3*heads + 2000}, 3*heads + 2000, sinceFirst(250 * ms), Conversation{"tcp 10.3.4.1:50060 > 10.0.0.1:40002", Counts{3, 3*heads + 2000}}, 0}},
		{"datagrams to the port of flows", func(n *network) {
			n.datagram(300*ms, b, a, 7, wire.ShufflePort, make([]byte, 58))
			n.datagram(700*ms, b, a, 8, wire.ShufflePort, make([]byte, 158))
		}, Foreign{}, Foreign{Counts{2, 300}, 200, sinceFirst(500 * ms), Conversation{"udp 10.3.4.1:8 > 10.0.0.1:50060", Counts{1, 200}}, 0}},
		{"a datagram to the address of marks", func(n *network) {
			n.see(a, 0, 300*ms, n.frame(ipOf(t, a), net.IPv4(192, 0, 2, 1).To4(), layers.IPProtocolUDP, &layers.UDP{SrcPort: 4, DstPort: wire.MarkPort}, make([]byte, 158)))
		}, Foreign{Counts{1, 200}, 200, sinceFirst(250 * ms), Conversation{"udp 10.0.0.1:4 > 192.0.2.1:50099", Counts{1, 200}}, 0}, Foreign{}},
		{"an error about a foreign packet", func(n *network) {
			n.see(a, 0, 300*ms, n.unreachable(ipOf(t, a), n.frame(ipOf(t, a), ipOf(t, b), layers.IPProtocolTCP, &layers.TCP{SrcPort: 1, DstPort: wire.ShufflePort}, nil)))
		}, Foreign{}, Foreign{Counts{1, 88}, 88, sinceFirst(250 * ms), Conversation{"icmp type 3 code 1 10.0.0.0 > 10.0.0.1", Counts{1, 88}}, 1}},
		{"a frame that is not IPv4", func(n *network) {
			n.see(a, 0, 300*ms, append(make([]byte, 12), 0x88, 0xb5, 0, 0))
		}, Foreign{}, Foreign{Counts{1, 16}, 16, sinceFirst(250 * ms), Conversation{"ethertype 0x88b5", Counts{1, 16}}, 0}},
		{"on lo", func(n *network) {
			x := &tcp{n: n, client: a, server: a, cport: 1, sport: 2, lo: true}
			x.segment(true, 20*ms, 20*ms, layers.TCP{SYN: true}, nil)
			x = n.dial(20*ms, a, a, 40002, wire.ShufflePort, 5)
			x.data(22*ms, 23*ms, request, 0, 18)
		}, Foreign{}, Foreign{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b)
			simple(n)
			tt.send(n)
			got := n.reduce(Options{})
			out, in := foreignOf(t, got, a)
			if diff := cmp.Diff([]Foreign{tt.out, tt.in}, []Foreign{out, in}); diff != "" {
				t.Errorf("foreign out and in (-want +got):\n%s", diff)
			}
			if len(got.Flows) != 1 {
				t.Errorf("%d flows, want 1", len(got.Flows))
			}
		})
	}
}

// sinceFirst is a time since the first packet of simple, which is its mark.
func sinceFirst(d time.Duration) time.Time { return epoch.Add(12*ms + d) }

// Beyond the limit, the largest conversation is still found, with a lower bound of its
// bytes.
func TestForeignConversationsAreBounded(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	for i := range 300 {
		n.datagram(time.Duration(30+i)*ms, a, b, uint16(1000+i), 9, make([]byte, 58))
		if i%4 == 0 {
			n.datagram(time.Duration(30+i)*ms, a, b, 7, 9, make([]byte, 958))
		}
	}
	out, _ := foreignOf(t, n.reduce(Options{Conversations: 8}), a)
	if want := (Conversation{"udp 10.0.0.1:7 > 10.3.4.1:9", Counts{75, 75_000}}); out.Largest != want || out.Counts != (Counts{375, 105_000}) {
		t.Errorf("%+v, want 375 packets of 105000 bytes and %+v", out, want)
	}
	var l foreignLoad
	for i := range 1000 {
		l.add(0, talkKey{srcPort: uint16(i)}, Counts{1, 100}, 8)
	}
	if f := l.foreign(0); len(l.talks) != 8 || f.Window != 100_000 || f.Largest.Bytes > 100*units.Byte {
		t.Errorf("%d conversations, %+v", len(l.talks), f)
	}
}
