package flows

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
)

// The network of the tests: packets are written into the captures of the hosts
// they pass, at the times the test states. Times count from epoch.

const testRun = 0xfeed

var epoch = time.Unix(1_700_000_000, 500_000_000)

const ms = time.Millisecond

type seen struct {
	nic   int // 0 is eth0, 1 is lo
	at    time.Duration
	frame []byte
}

type network struct {
	t       testing.TB
	snap    int
	trim    bool      // keep what pcap.Trimmer does
	run     uint64    // of the transfers that follow
	task    wire.Task // of the flows that follow
	packets map[string][]seen
	meta    pcap.Meta
	drops   uint64
}

func newNetwork(t testing.TB, hosts ...string) *network {
	n := &network{t: t, snap: 160, run: testRun, packets: map[string][]seen{},
		meta: pcap.Meta{Tool: "testbed", RunID: "r", Run: testRun, Arm: "fair", Scenario: "s", Workload: "w"}}
	for _, h := range hosts {
		n.packets[h] = nil
	}
	return n
}

func ipOf(t testing.TB, host string) net.IP {
	r, i, ok := topo.ParseHostName(host)
	if !ok {
		t.Fatalf("bad host %q", host)
	}
	return net.IPv4(10, byte(r), byte(i), 1).To4()
}

func (n *network) frame(src, dst net.IP, proto layers.IPProtocol, l gopacket.SerializableLayer, payload []byte) []byte {
	n.t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src, DstIP: dst}
	eth := &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, eth, ip, l, gopacket.Payload(payload)); err != nil {
		n.t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

func (n *network) see(host string, nic int, at time.Duration, frame []byte) {
	if _, captured := n.packets[host]; captured {
		n.packets[host] = append(n.packets[host], seen{nic, at, frame})
	}
}

const lost = time.Duration(-1)

// tcp is a connection of the test's making.
type tcp struct {
	n              *network
	client, server string
	cport, sport   uint16
	cisn, sisn     uint32
	lo             bool
}

// dial opens a connection: SYN at the client at the given time, SYN-ACK 1 ms
// and ACK 2 ms later.
func (n *network) dial(at time.Duration, client, server string, cport, sport uint16, cisn uint32) *tcp {
	c := &tcp{n: n, client: client, server: server, cport: cport, sport: sport, cisn: cisn, sisn: 0xffff_fff0, lo: client == server}
	c.segment(true, at, at+ms/2, layers.TCP{SYN: true, Seq: cisn}, nil)
	c.segment(false, at+ms/2, at+ms, layers.TCP{SYN: true, ACK: true, Seq: c.sisn, Ack: cisn + 1}, nil)
	c.segment(true, at+ms, at+3*ms/2, layers.TCP{ACK: true, Seq: cisn + 1}, nil)
	return c
}

// segment is seen at its sender when sent and at its receiver when received.
func (c *tcp) segment(up bool, sent, received time.Duration, l layers.TCP, payload []byte) {
	from, to := c.client, c.server
	l.SrcPort, l.DstPort = layers.TCPPort(c.cport), layers.TCPPort(c.sport)
	if !up {
		from, to = to, from
		l.SrcPort, l.DstPort = l.DstPort, l.SrcPort
	}
	// Linux puts time stamps (RFC 7323) on every segment.
	l.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop},
		{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}
	frame := c.n.frame(ipOf(c.n.t, from), ipOf(c.n.t, to), layers.IPProtocolTCP, &l, payload)
	if c.lo {
		c.n.see(from, 1, sent, frame)
		return
	}
	if sent != lost {
		c.n.see(from, 0, sent, frame)
	}
	if received != lost {
		c.n.see(to, 0, received, frame)
	}
}

// data sends stream[from:to].
func (c *tcp) data(sent, received time.Duration, stream []byte, from, to int) {
	c.segment(true, sent, received, layers.TCP{ACK: true, Seq: c.cisn + 1 + uint32(from)}, stream[from:to])
}

// ack acknowledges all before an offset of the stream.
func (c *tcp) ack(sent, received time.Duration, to int, window uint16) {
	c.segment(false, sent, received, layers.TCP{ACK: true, Seq: c.sisn + 1, Ack: c.cisn + 1 + uint32(to), Window: window}, nil)
}

// acks sends n bytes of the reverse stream from offset from.
func (c *tcp) acks(sent, received time.Duration, from, n int) {
	c.segment(false, sent, received, layers.TCP{ACK: true, Seq: c.sisn + 1 + uint32(from)}, make([]byte, n))
}

// flow is the stream of a flow.
func (n *network) flow(coflow, flow uint32, size int) []byte {
	h := wire.Header{Kind: wire.KindFlow, Run: n.run, Group: coflow, Member: flow, Size: uint64(size), Sent: epoch, Task: n.task}
	return append(h.Append(nil), make([]byte, size)...)
}

func (n *network) block(block, hop uint32, size, packet int) []byte {
	h := wire.Header{Kind: wire.KindBlock, Run: n.run, Group: block, Member: hop, Parts: 3, Size: uint64(size), Packet: uint32(packet), Sent: epoch}
	return append(h.Append(nil), make([]byte, 24+size)...)
}

// mark is made at one time and on the wire at another.
func (n *network) mark(kind wire.Kind, made, at time.Duration, host string, group uint32, parts uint32, size uint64) {
	n.markHeader(wire.Header{Kind: kind, Run: n.run, Group: group, Parts: parts, Size: size, Sent: epoch.Add(made)}, at, host)
}

func (n *network) markHeader(h wire.Header, at time.Duration, host string) {
	n.markNote(h, wire.Note{}, at, host)
}

func (n *network) markNote(h wire.Header, note wire.Note, at time.Duration, host string) {
	a := topo.MarkAddr().As4()
	n.see(host, 0, at, n.frame(ipOf(n.t, host), a[:], layers.IPProtocolUDP, &layers.UDP{SrcPort: 40000, DstPort: wire.MarkPort}, h.AppendMark(nil, note)))
}

// file is the capture of one host.
func (n *network) file(host string) []byte {
	n.t.Helper()
	var buf bytes.Buffer
	m := n.meta
	m.Host = host
	w, err := pcap.NewWriter(&buf, m, []pcap.Interface{{Name: "eth0", SnapLen: n.snap}, {Name: "lo", SnapLen: n.snap}})
	if err != nil {
		n.t.Fatal(err)
	}
	packets := n.packets[host]
	slices.SortStableFunc(packets, func(a, b seen) int { return int(a.at - b.at) })
	trimmer := pcap.NewTrimmer()
	for _, p := range packets {
		kept := p.frame[:min(n.snap, len(p.frame))]
		if n.trim {
			kept = trimmer.Trim(kept)
		}
		if err := w.Write(p.nic, epoch.Add(p.at), kept, len(p.frame)); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := w.Close(pcap.Stats{Received: uint64(len(packets)) + n.drops, Dropped: n.drops}); err != nil {
		n.t.Fatal(err)
	}
	return buf.Bytes()
}

// write puts the captures of all hosts into a directory.
func (n *network) write() string {
	n.t.Helper()
	dir := n.t.TempDir()
	for host := range n.packets {
		if err := os.WriteFile(filepath.Join(dir, host+Suffix), n.file(host), 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
	return dir
}

// reduce returns the result of the captures, which is the same where they are trimmed, and where
// they are compressed as well.
func (n *network) reduce(opt Options) Result {
	n.t.Helper()
	read := func(dir string) Result {
		n.t.Helper()
		res, err := Reduce(context.Background(), dir, opt)
		if err != nil {
			n.t.Fatal(err)
		}
		return res
	}
	whole := read(n.write())
	n.trim = true
	defer func() { n.trim = false }()
	dir := n.write()
	trimmed := read(dir)
	dir = n.t.TempDir()
	for host := range n.packets {
		var b bytes.Buffer
		if err := pcap.Compress(&b, bytes.NewReader(n.file(host))); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, host+pcap.CompressedSuffix), b.Bytes(), 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
	compressed := read(dir)
	if !reflect.DeepEqual(whole, trimmed) {
		n.t.Errorf("trimmed captures change the result: %+v, of whole ones %+v", trimmed, whole)
	}
	if !reflect.DeepEqual(trimmed, compressed) {
		n.t.Errorf("compressed captures change the result: %+v, of plain ones %+v", compressed, trimmed)
	}
	return whole
}
