package flows

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/layers"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo/units"
)

const (
	a = "h0-00"
	b = "h3-04"
	c = "h1-02"
)

// The frames of the tests carry 14 bytes of Ethernet, 20 of IP and 32 of TCP.
const heads = 66

func wantProblems(t *testing.T, got Result, want ...string) {
	t.Helper()
	if len(got.Problems) != len(want) {
		t.Errorf("%d problems, want %d: %s", len(got.Problems), len(want), strings.Join(got.Problems, "\n"))
		return
	}
	for i, w := range want {
		if !strings.Contains(got.Problems[i], w) {
			t.Errorf("problem %d = %q, want one with %q", i, got.Problems[i], w)
		}
	}
}

// simple is one coflow of one flow of 2,800 bytes from a to b, in two packets
// after the header's own.
func simple(n *network) *tcp {
	n.mark(wire.KindCoflowMark, 10*ms, 12*ms, a, 1, 1, 2800)
	conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 1000)
	s := n.flow(1, 7, 2800)
	conn.data(22*ms, 23*ms, s, 0, 64)
	conn.data(24*ms, 25*ms, s, 64, 1464)
	conn.data(26*ms, 30*ms, s, 1464, 2864)
	return conn
}

func simpleFlow() FlowRecord {
	return FlowRecord{Coflow: 1, Flow: 7, Src: a, Dst: b, Size: 2800, Arrival: 0, Start: 12 * ms, End: 20 * ms,
		Packets: 3, Wire: units.Bytes(2*heads + 64 + 2800 + 3*heads), FirstByte: 13 * ms, Setup: 12 * ms}
}

// From when a flow could have sent to its first payload. The mark is of 10 ms, the SYN leaves
// at 20 ms, its answer is back at 21 ms, and the first payload leaves at 22 ms.
func TestSetup(t *testing.T) {
	for _, tt := range []struct {
		name     string
		holds    bool
		released time.Duration // 0 is not stated
		read     bool
		want     time.Duration
	}{
		{"from its arrival", false, 0, false, 12 * ms},
		{"from its SYN", true, 0, false, 2 * ms},
		{"from its release", true, 14 * ms, false, 8 * ms},
		{"from its release, held by its coordinator alone", false, 14 * ms, false, 8 * ms},
		{"released before it came", true, 3 * ms, false, 12 * ms},
		{"released after it was sent", true, 23 * ms, false, 0},
		{"to its connection, then from a disk", true, 14 * ms, true, 7 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b)
			n.meta.Holds = tt.holds
			n.mark(wire.KindCoflowMark, 10*ms, 12*ms, a, 1, 1, 100)
			conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 1000)
			h := wire.Header{Kind: wire.KindFlow, Run: n.run, Group: 1, Member: 7, Size: 100, Read: tt.read, Sent: epoch.Add(24 * ms)}
			if tt.released != 0 {
				h.Release(epoch.Add(tt.released))
			}
			conn.data(22*ms, 23*ms, append(h.Append(nil), make([]byte, 100)...), 0, 164)
			got := n.reduce(Options{})
			wantProblems(t, got)
			if len(got.Flows) != 1 || got.Flows[0].Setup != tt.want {
				t.Errorf("flows %+v, want one that was set up in %v", got.Flows, tt.want)
			}
		})
	}
}

func TestSimpleFlow(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if diff := cmp.Diff([]FlowRecord{simpleFlow()}, got.Flows); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]CoflowRecord{{Coflow: 1, Width: 1, Size: 2800, End: 20 * ms}}, got.Coflows); diff != "" {
		t.Errorf("coflows (-want +got):\n%s", diff)
	}
	if !got.Zero.Equal(epoch.Add(10 * ms)) {
		t.Errorf("Zero = %v, want the moment of the mark", got.Zero)
	}
	if got.MarkWait != 2*ms || got.MarkWaitHost != a {
		t.Errorf("MarkWait = %v at %q, want 2ms at %s", got.MarkWait, got.MarkWaitHost, a)
	}
	if fct := got.Flows[0].FCT(); fct != 20*ms {
		t.Errorf("FCT() = %v, want 20ms", fct)
	}
	if want := (pcap.Meta{Tool: "testbed", RunID: "r", Run: testRun, Arm: "fair", Scenario: "s", Workload: "w"}); !got.Meta.Equal(want) {
		t.Errorf("Meta = %+v, want %+v", got.Meta, want)
	}
	sender := got.Captures[0]
	if sender.Host != a || !sender.Whole || !sender.HasStats || sender.Captured != 7 {
		t.Errorf("capture of the sender: %+v", sender)
	}
	eth := sender.Interfaces[0]
	if want := (Counts{6, simpleFlow().Wire + 14 + 20 + 8 + 64}); eth.Name != "eth0" || eth.Out != want {
		t.Errorf("out of the sender: %+v on %s, want %+v on eth0", eth.Out, eth.Name, want)
	}
	if want := (Counts{1, heads}); eth.In != want {
		t.Errorf("into the sender: %+v, want %+v", eth.In, want)
	}
}

func TestFlowShapes(t *testing.T) {
	type shape struct {
		name    string
		isn     uint32
		send    func(n *network, conn *tcp, s []byte)
		end     time.Duration // since epoch
		packets int
		resent  int
		conns   Connections
		notes   int
	}
	for _, tt := range []shape{
		{"reordered", 5, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 23*ms, s, 0, 64)
			conn.data(24*ms, 33*ms, s, 64, 1464)
			conn.data(26*ms, 30*ms, s, 1464, 2864)
		}, 33 * ms, 3, 0, Connections{Ours: 1, Reordered: 1}, 0},
		{"header last", 5, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 40*ms, s, 0, 64)
			conn.data(24*ms, 25*ms, s, 64, 1464)
			conn.data(26*ms, 30*ms, s, 1464, 2864)
		}, 40 * ms, 3, 0, Connections{Ours: 1}, 0},
		{"lost and resent", 5, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 23*ms, s, 0, 64)
			conn.data(24*ms, lost, s, 64, 1464)
			conn.data(26*ms, 27*ms, s, 1464, 2864)
			conn.data(226*ms, 228*ms, s, 64, 1464) // fills the hole: the end
			conn.data(230*ms, 231*ms, s, 1464, 2864)
		}, 228 * ms, 5, 2, Connections{Ours: 1, Resent: 2}, 0},
		{"resent with more than before", 5, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 23*ms, s, 0, 1464)
			conn.data(26*ms, lost, s, 1464, 2000)
			conn.data(27*ms, 29*ms, s, 1000, 2864)
		}, 29 * ms, 3, 1, Connections{Ours: 1, Resent: 1}, 0},
		{"sequence wrap", 0xffff_ffff - 100, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 23*ms, s, 0, 64)
			conn.data(26*ms, 27*ms, s, 1464, 2864)
			conn.data(28*ms, 29*ms, s, 64, 1464) // straddles the wrap, after what lies behind it
		}, 29 * ms, 3, 0, Connections{Ours: 1, Reordered: 1}, 0},
		{"split header", 0xffff_fff0, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 23*ms, s, 0, 10)
			conn.data(24*ms, 25*ms, s, 10, 63)
			conn.data(26*ms, 27*ms, s, 63, 1464)
			conn.data(28*ms, 29*ms, s, 1464, 2864)
		}, 29 * ms, 4, 0, Connections{Ours: 1, HeaderSplit: 1}, 0},
		{"header resent", 5, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, lost, s, 0, 64)
			conn.data(23*ms, 24*ms, s, 64, 2000)
			conn.data(220*ms, 221*ms, s, 0, 64)
			conn.data(222*ms, 223*ms, s, 2000, 2864)
		}, 223 * ms, 4, 1, Connections{Ours: 1, HeaderResent: 1, Resent: 1}, 0},
		{"SYN resent", 5, func(n *network, conn *tcp, s []byte) {
			conn.segment(true, 21*ms, 22*ms, layers.TCP{SYN: true, Seq: conn.cisn}, nil)
			conn.data(22*ms, 23*ms, s, 0, 64)
			conn.data(24*ms, 25*ms, s, 64, 2864)
		}, 25 * ms, 2, 0, Connections{Ours: 1, SYNResent: 1}, 1},
		{"keep-alive probe", 5, func(n *network, conn *tcp, s []byte) {
			conn.segment(true, 21*ms, 22*ms, layers.TCP{ACK: true, Seq: conn.cisn}, []byte{0})
			conn.data(22*ms, 23*ms, s, 0, 64)
			conn.data(24*ms, 25*ms, s, 64, 2864)
		}, 25 * ms, 2, 0, Connections{Ours: 1}, 0},
		{"end with RST", 5, func(n *network, conn *tcp, s []byte) {
			conn.data(22*ms, 23*ms, s, 0, 64)
			conn.data(24*ms, 25*ms, s, 64, 2864)
			conn.segment(true, 26*ms, 27*ms, layers.TCP{RST: true, Seq: conn.cisn + 1 + 2864}, nil)
		}, 25 * ms, 2, 0, Connections{Ours: 1, Resets: 1}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b)
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 1, 1, 2800)
			conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, tt.isn)
			tt.send(n, conn, n.flow(1, 7, 2800))
			got := n.reduce(Options{})
			wantProblems(t, got)
			if len(got.Flows) != 1 {
				t.Fatalf("%d flows, want 1", len(got.Flows))
			}
			f := got.Flows[0]
			if f.Start != 12*ms || f.End != tt.end-10*ms || f.Packets != tt.packets || f.Resent != tt.resent {
				t.Errorf("start %v end %v packets %d resent %d, want 12ms %v %d %d", f.Start, f.End, f.Packets, f.Resent, tt.end-10*ms, tt.packets, tt.resent)
			}
			if got.Connections != tt.conns {
				t.Errorf("Connections = %+v, want %+v", got.Connections, tt.conns)
			}
			if len(got.Notes) != tt.notes {
				t.Errorf("notes %q, want %d", got.Notes, tt.notes)
			}
		})
	}
}

func TestInterleavedFlowsOfOneCoflow(t *testing.T) {
	n := newNetwork(t, a, b, c)
	n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 4, 3, 3000)
	var conns []*tcp
	var streams [][]byte
	for i, to := range []string{b, c, b} {
		conns = append(conns, n.dial(11*ms, a, to, uint16(40001+i), wire.ShufflePort, uint32(i)<<30))
		streams = append(streams, n.flow(4, uint32(30+i), 1000))
	}
	for k := range 4 {
		for i, conn := range conns {
			at := time.Duration(20+10*k+i) * ms
			conn.data(at, at+3*ms, streams[i], 266*k, 266*(k+1))
		}
	}
	got := n.reduce(Options{})
	wantProblems(t, got)
	var ends []time.Duration
	for _, f := range got.Flows {
		ends = append(ends, f.End)
	}
	if diff := cmp.Diff([]time.Duration{43 * ms, 44 * ms, 45 * ms}, ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]CoflowRecord{{Coflow: 4, Width: 3, Size: 3000, End: 45 * ms}}, got.Coflows); diff != "" {
		t.Errorf("coflows (-want +got):\n%s", diff)
	}
}

func TestPortReuse(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	n.mark(wire.KindCoflowMark, 40*ms, 41*ms, a, 2, 1, 100)
	again := n.dial(50*ms, a, b, 40001, wire.ShufflePort, 777_000)
	again.data(52*ms, 53*ms, n.flow(2, 8, 100), 0, 164)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if len(got.Flows) != 2 || got.Flows[0] != simpleFlow() || got.Flows[1].End != 43*ms || got.Flows[1].Flow != 8 {
		t.Errorf("flows %+v", got.Flows)
	}
}

// A client's port may be that of a service.
func TestServicePortAsClientPort(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 1, 1, 100)
	conn := n.dial(20*ms, a, b, wire.BlockPort, wire.ShufflePort, 5)
	conn.data(22*ms, 23*ms, n.flow(1, 7, 100), 0, 164)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if len(got.Flows) != 1 || got.Flows[0].End != 13*ms {
		t.Errorf("flows %+v", got.Flows)
	}
}

// pipeline writes a block of 1,000 bytes in packets of 400 from a to a, b and c:
// hop 0 is on lo. The acknowledgements of hop 0 end at 90 ms.
func pipeline(n *network) {
	n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 3, 1000)
	for hop, ends := range [][2]string{{a, a}, {a, b}, {b, c}} {
		at := time.Duration(20+5*hop) * ms
		conn := n.dial(at, ends[0], ends[1], uint16(41000+hop), wire.BlockPort, 99)
		s := n.block(3, uint32(hop), 1000, 400)
		conn.data(at+2*ms, at+3*ms, s, 0, len(s))
		done := time.Duration(90-10*hop) * ms
		conn.acks(done-20*ms, done-20*ms, 0, 8)
		conn.acks(done-10*ms, done-10*ms, 8, 16)
		conn.acks(done-ms, done, 24, 8)
	}
}

func TestBlockPipeline(t *testing.T) {
	n := newNetwork(t, a, b, c)
	pipeline(n)
	got := n.reduce(Options{})
	wantProblems(t, got)
	want := []BlockRecord{{Block: 3, Client: a, Hosts: []string{a, b, c}, Pipelines: 1, Size: 1000, End: 79 * ms}}
	if diff := cmp.Diff(want, got.Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	lo := got.Captures[0].Interfaces[1]
	if lo.Name != "lo" || lo.Out != lo.In || lo.Out.Packets != 7 {
		t.Errorf("lo: %+v, want 7 packets both ways", lo)
	}
}

// A request that waited to be placed counts from its placement; its mark carries the
// time that it waited.
func TestBlockThatWaited(t *testing.T) {
	n := newNetwork(t, a, b)
	h := wire.Header{Kind: wire.KindWriteMark, Run: n.run, Group: 3, Parts: 1, Size: 1000, Sent: epoch.Add(10 * ms)}
	h.Wait(7 * time.Second)
	n.markHeader(h, 11*ms, a)
	conn := n.dial(20*ms, a, b, 41000, wire.BlockPort, 99)
	s := n.block(3, 0, 1000, 400)
	conn.data(22*ms, 23*ms, s, 0, len(s))
	conn.acks(40*ms, 41*ms, 0, 32)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if len(got.Blocks) != 1 || got.Blocks[0].Waited != 7*time.Second || got.Blocks[0].Requested != 0 || got.Blocks[0].WriteTime() != got.Blocks[0].End || got.Blocks[0].Asked() != -7*time.Second {
		t.Errorf("blocks %+v: want one that waited 7 s before it was placed at 0", got.Blocks)
	}
}

func TestRemoteFirstHopEndsAtTheClient(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 1, 1000)
	conn := n.dial(20*ms, a, b, 41000, wire.BlockPort, 99)
	s := n.block(3, 0, 1000, 400)
	conn.data(22*ms, 23*ms, s, 0, len(s))
	conn.acks(30*ms, 36*ms, 0, 24)
	conn.acks(31*ms, lost, 24, 8)
	conn.acks(50*ms, 57*ms, 24, 8)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if len(got.Blocks) != 1 || got.Blocks[0].WriteTime() != 47*ms {
		t.Errorf("blocks %+v, want a write time of 47ms", got.Blocks)
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		name    string
		build   func(n *network)
		opt     Options
		want    []string
		flows   int
		coflows int
	}{
		{"missing mark", func(n *network) {
			conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(1, 7, 100), 0, 164)
		}, Options{}, []string{"no capture has a mark", "coflow 1: no mark of its arrival: its 1 flows have no record"}, 0, 0},
		{"incomplete flow", func(n *network) {
			simple(n)
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 2, 3, 500)
			conn := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(2, 8, 300), 0, 164)
			conn = n.dial(20*ms, a, b, 40003, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(2, 9, 100), 0, 164)
		}, Options{}, []string{"coflow 2: 1 of its 3 flows are complete, so it has no record: flow 8 has 100 of 300 bytes at h3-04; 1 never started"}, 2, 1},
		{"short header", func(n *network) {
			simple(n)
			conn := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(2, 8, 300), 0, 50)
		}, Options{}, []string{"connection h0-00:40002>h3-04:50060: ends after 50 bytes, before its transfer header"}, 1, 1},
		{"snapshot too short", func(n *network) {
			simple(n)
			n.snap = 110
		}, Options{}, []string{"cut off by the capture's snapshot length, which must be at least 160 bytes", "coflow 1: 0 of its 1 flows are complete"}, 0, 0},
		{"snapshot shorter than TCP", func(n *network) {
			simple(n)
			n.snap = 40
		}, Options{}, []string{a + ": 7 packets were captured too short", b + ": 6 packets were captured too short", "no capture has a mark"}, 0, 0},
		{"other run", func(n *network) {
			simple(n)
			n.run = 0xbad
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 1, 1, 2800)
			conn := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(1, 7, 100), 0, 164)
		}, Options{}, []string{a + ": 5 packets belong to another run (0xbad)", b + ": 4 packets belong to another run (0xbad)"}, 1, 1},
		{"missing host", func(n *network) {
			simple(n)
			delete(n.packets, b)
		}, Options{}, []string{b + ": no capture; it was one end of 1 transfers", "flow 7 is not in the capture of " + b}, 0, 0},
		{"expected host", func(n *network) { simple(n) }, Options{Hosts: []string{a, b, c}}, []string{c + ": no capture"}, 1, 1},
		{"drops", func(n *network) {
			simple(n)
			n.drops = 4
			delete(n.packets, c)
		}, Options{}, []string{a + ": the kernel dropped 4 packets", b + ": the kernel dropped 4"}, 1, 1},
		{"mark too old", func(n *network) {
			n.mark(wire.KindCoflowMark, 10*ms, 2000*ms, a, 1, 1, 100)
			conn := n.dial(2020*ms, a, b, 40001, wire.ShufflePort, 5)
			conn.data(2022*ms, 2023*ms, n.flow(1, 7, 100), 0, 164)
		}, Options{}, []string{"coflow 1: its mark was on the wire of h0-00 1.99s after the time it states"}, 1, 1},
		{"mark from the future", func(n *network) {
			n.mark(wire.KindCoflowMark, 15*ms, 10*ms, a, 1, 1, 100)
			conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(1, 7, 100), 0, 164)
		}, Options{}, []string{"on the wire of h0-00 -5ms after"}, 1, 1},
		{"marked twice", func(n *network) {
			simple(n)
			n.mark(wire.KindCoflowMark, 5*ms, 13*ms, b, 1, 1, 2800)
		}, Options{}, []string{"coflow 1: marked by h0-00 and by h3-04"}, 1, 1},
		{"size differs from mark", func(n *network) {
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 1, 1, 99)
			conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(1, 7, 100), 0, 164)
		}, Options{}, []string{"coflow 1: its mark announces 99 bytes, its flows have 100"}, 1, 1},
		{"more flows than marked", func(n *network) {
			simple(n)
			conn := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, n.flow(1, 8, 100), 0, 164)
		}, Options{}, []string{"coflow 1: its mark announces 1 flows, the captures have 2"}, 2, 0},
		{"more bytes than stated", func(n *network) {
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 1, 1, 100)
			conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 5)
			conn.data(22*ms, 23*ms, append(n.flow(1, 7, 100), "more"...), 0, 168)
		}, Options{}, []string{"flow 7 of coflow 1: received 4 bytes beyond its size of 100"}, 1, 1},
		{"carried twice", func(n *network) {
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 1, 1, 2800)
			conn := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			conn.data(21*ms, 21*ms, n.flow(1, 7, 2800), 0, 164)
			conn = n.dial(20*ms, a, b, 40001, wire.ShufflePort, 1000)
			conn.data(22*ms, 23*ms, n.flow(1, 7, 2800), 0, 2864)
		}, Options{}, []string{"flow 7 of coflow 1: carried by more than one connection"}, 1, 1},
		{"wrong port", func(n *network) {
			simple(n)
			conn := n.dial(20*ms, a, b, 40002, wire.BlockPort, 5)
			conn.data(22*ms, 23*ms, n.flow(1, 8, 100), 0, 164)
		}, Options{}, []string{"a transfer of kind flow does not belong on port 50010"}, 1, 1},
		{"damaged header", func(n *network) {
			simple(n)
			conn := n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5)
			s := n.flow(1, 8, 100)
			s[20] ^= 1
			conn.data(22*ms, 23*ms, s, 0, 164)
		}, Options{}, []string{"connection h0-00:40002>h3-04:50060: testbed header: wrong checksum"}, 1, 1},
		{"no SYN", func(n *network) {
			simple(n)
			conn := &tcp{n: n, client: a, server: b, cport: 40002, sport: wire.ShufflePort, cisn: 5}
			conn.data(22*ms, 23*ms, n.flow(1, 8, 100), 1, 164)
		}, Options{}, []string{a + ": 1 packets with payload belong to connections whose SYN", b + ": 1 packets"}, 1, 1},
		{"run and hosts given", func(n *network) { simple(n) }, Options{Run: testRun, Hosts: []string{a, b}}, nil, 1, 1},
		{"block without acknowledgement", func(n *network) {
			simple(n)
			n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 2, 1000)
			conn := n.dial(20*ms, a, b, 41000, wire.BlockPort, 99)
			s := n.block(3, 0, 1000, 400)
			conn.data(22*ms, 23*ms, s, 0, len(s))
			conn.acks(30*ms, 36*ms, 0, 31)
		}, Options{}, []string{"block 3: no record: hop 0 has 31 of 32 acknowledgement bytes at h0-00; hop 1 never started"}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b)
			tt.build(n)
			got := n.reduce(tt.opt)
			wantProblems(t, got, tt.want...)
			if len(got.Flows) != tt.flows || len(got.Coflows) != tt.coflows {
				t.Errorf("%d flows, %d coflows, want %d, %d", len(got.Flows), len(got.Coflows), tt.flows, tt.coflows)
			}
		})
	}
}
