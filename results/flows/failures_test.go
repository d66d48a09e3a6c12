package flows

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/layers"

	"testbed/emu/longtest"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// failure marks on the wire, as older versions do: name follows the header.
func (n *network) failure(kind wire.Kind, at time.Duration, host string, group, member uint32, name string) {
	h := wire.Header{Kind: kind, Run: n.run, Group: group, Member: member, Parts: 1, Sent: epoch.Add(at)}
	to := topo.MarkAddr().As4()
	n.see(host, 0, at, n.frame(ipOf(n.t, host), to[:], layers.IPProtocolUDP, &layers.UDP{SrcPort: 40000, DstPort: wire.MarkPort}, append(h.Append(nil), name...)))
}

// hop is one hop of a generation of block 3, of 1,000 bytes in packets of 400.
func (n *network) hop(at time.Duration, from, to string, hop, parts, generation uint32, offset uint64) (*tcp, []byte) {
	h := wire.Header{Kind: wire.KindBlock, Run: n.run, Group: 3, Member: hop, Parts: parts, Size: 1000, Packet: 400, Generation: generation, Offset: offset, Sent: epoch}
	return n.dial(at, from, to, uint16(41000+10*generation+hop), wire.BlockPort, 99), append(h.Append(nil), make([]byte, 72+1000-offset)...)
}

// speak sends acknowledgements in one segment from the given offset.
func (c *tcp) speak(sent, received time.Duration, from int, acks ...wire.Ack) {
	var b []byte
	for _, a := range acks {
		b = a.Append(b)
	}
	c.segment(false, sent, received, layers.TCP{ACK: true, Seq: c.sisn + 1 + uint32(from)}, b)
}

// broken writes a block from a to b and c; b dies, and c has it in the second
// pipeline, which goes on at byte 400 and whose last acknowledgement comes at 95 ms.
func broken(n *network) {
	n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 2, 1000)
	first, s := n.hop(20*ms, a, b, 0, 2, 0, 0)
	first.data(22*ms, 23*ms, s, 0, 600)
	first.speak(24*ms, 25*ms, 0, wire.Ack{}, wire.Ack{Seq: 1})
	first.data(26*ms, lost, s, 600, 900) // b is dead
	second, s2 := n.hop(21*ms, b, c, 1, 2, 0, 0)
	second.data(24*ms, 25*ms, s2, 0, 600)
	second.speak(26*ms, 27*ms, 0, wire.Ack{}, wire.Ack{Seq: 1})
	n.failure(wire.KindReplicaLost, 60*ms, a, 3, 1, b)
	again, s3 := n.hop(70*ms, a, c, 0, 1, 1, 400)
	again.data(72*ms, 73*ms, s3, 0, len(s3))
	again.speak(74*ms, 75*ms, 0, wire.Ack{}, wire.Ack{Alive: true})
	again.speak(80*ms, 81*ms, 16, wire.Ack{Seq: 2}) // with the keep-alive as long as without all of it
	again.speak(90*ms, 95*ms, 24, wire.Ack{Seq: 3})
}

func TestBlockOfTwoPipelines(t *testing.T) {
	n := newNetwork(t, a, b, c)
	broken(n)
	got := n.reduce(Options{})
	wantProblems(t, got)
	want := []BlockRecord{{Block: 3, Client: a, Hosts: []string{c}, Lost: []string{b}, Pipelines: 2, Size: 1000, End: 85 * ms}}
	if diff := cmp.Diff(want, got.Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Failure{{Kind: FailedReplica, Block: 3, Host: b, At: 50 * ms}}, got.Failed); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if got.Connections.Ours != 3 {
		t.Errorf("Connections = %+v, want 3 of ours", got.Connections)
	}
}

// A keep-alive is no acknowledgement, whatever segments it comes in.
func TestKeepAlivesDoNotEndABlock(t *testing.T) {
	alive := wire.Ack{Alive: true}
	for _, tt := range []struct {
		name string
		send func(c *tcp)
		end  time.Duration // since epoch; 0 is no record
	}{
		{"alone", func(c *tcp) {
			c.speak(30*ms, 30*ms, 0, wire.Ack{}, alive, alive, wire.Ack{Seq: 1}, wire.Ack{Seq: 2})
			c.speak(40*ms, 41*ms, 40, wire.Ack{Seq: 3})
		}, 41 * ms},
		{"sent twice", func(c *tcp) {
			c.speak(30*ms, 30*ms, 0, wire.Ack{}, alive, wire.Ack{Seq: 1})
			c.speak(31*ms, 31*ms, 8, alive, wire.Ack{Seq: 1}, wire.Ack{Seq: 2})
			c.speak(40*ms, 41*ms, 32, wire.Ack{Seq: 3})
		}, 41 * ms},
		{"last one early", func(c *tcp) {
			c.speak(30*ms, 31*ms, 0, wire.Ack{}, wire.Ack{Seq: 1})
			c.speak(40*ms, 41*ms, 24, alive, wire.Ack{Seq: 3})
			c.speak(50*ms, 51*ms, 16, wire.Ack{Seq: 2})
		}, 51 * ms},
		{"not captured whole", func(c *tcp) {
			c.speak(30*ms, 31*ms, 0, wire.Ack{}, alive, alive, alive, alive, alive, alive, alive, alive, alive, alive, wire.Ack{Seq: 1}, wire.Ack{Seq: 2}, wire.Ack{Seq: 3})
		}, 31 * ms},
		{"only keep-alives", func(c *tcp) {
			c.speak(30*ms, 31*ms, 0, wire.Ack{}, alive, alive, alive, alive, alive)
		}, 0},
		{"failed", func(c *tcp) {
			c.speak(30*ms, 31*ms, 0, wire.Ack{}, wire.Ack{Seq: 1}, wire.Ack{Failed: true, Reason: "a long reason for which there is no room"})
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b)
			n.snap = 160
			n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 1, 1000)
			conn, s := n.hop(20*ms, a, b, 0, 1, 0, 0)
			conn.data(22*ms, 23*ms, s, 0, len(s))
			tt.send(conn)
			got := n.reduce(Options{})
			if tt.end == 0 {
				wantProblems(t, got, "block 3: no record: hop 0 has")
				return
			}
			wantProblems(t, got)
			if len(got.Blocks) != 1 || got.Blocks[0].End != tt.end-10*ms {
				t.Errorf("blocks %+v, want an end at %v", got.Blocks, tt.end-10*ms)
			}
		})
	}
}

// Each mark of a failure takes the place of the problem that the transfer would be.
func TestFailures(t *testing.T) {
	cut := func(n *network) { // coflow 2: flow 8 ends, flow 9 is cut, flow 10 never starts
		n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 2, 3, 5000)
		n.dial(20*ms, a, b, 40002, wire.ShufflePort, 5).data(22*ms, 23*ms, n.flow(2, 8, 100), 0, 164)
		n.dial(20*ms, a, b, 40003, wire.ShufflePort, 5).data(22*ms, 23*ms, n.flow(2, 9, 300), 0, 264)
	}
	failed := func(n *network, flows ...uint32) {
		for _, f := range flows {
			n.failure(wire.KindFlowFailed, time.Duration(30+f)*ms, a, 2, f, "")
		}
	}
	flow := func(f workloads.FlowID) Failure {
		return Failure{Kind: FailedFlow, Coflow: 2, Flow: f, Host: a, At: time.Duration(20+f) * ms}
	}
	for _, tt := range []struct {
		name   string
		build  func(n *network)
		want   []Failure
		flows  int
		blocks int
		bad    []string
	}{
		{"both marked", func(n *network) { cut(n); failed(n, 9, 10) }, []Failure{flow(9), flow(10)}, 1, 0, nil},
		{"marked at both ends", func(n *network) {
			cut(n)
			failed(n, 9, 10)
			n.failure(wire.KindFlowFailed, 50*ms, b, 2, 9, "")
		}, []Failure{flow(9), flow(10)}, 1, 0, nil},
		{"one marked, one unfinished", func(n *network) { cut(n); failed(n, 10) }, []Failure{flow(10)}, 1, 0,
			[]string{"coflow 2: 1 of its 3 flows are complete, so it has no record: flow 9 has 200 of 300 bytes"}},
		{"one marked, one never started", func(n *network) { cut(n); failed(n, 9) }, []Failure{flow(9)}, 1, 0,
			[]string{"coflow 2: 1 of its 3 flows are complete, so it has no record: 1 never started"}},
		{"more failures than flows", func(n *network) { cut(n); failed(n, 9, 10, 11) }, []Failure{flow(9), flow(10), flow(11)}, 1, 0,
			[]string{"coflow 2: its mark announces 3 flows, the captures have 4"}},
		{"a complete flow marked as failed", func(n *network) { cut(n); failed(n, 8, 9, 10) }, []Failure{flow(8), flow(9), flow(10)}, 0, 0, nil},
		{"no such coflow", func(n *network) { simple(n); failed(n, 9) }, []Failure{flow(9)}, 1, 0,
			[]string{"coflow 2: marked as failed, and no mark of its arrival"}},
		{"block", func(n *network) {
			n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 2, 1000)
			conn, s := n.hop(20*ms, a, b, 0, 2, 0, 0)
			conn.data(22*ms, 23*ms, s, 0, 600)
			n.failure(wire.KindReplicaLost, 30*ms, a, 3, 1, b)
			n.failure(wire.KindReplicaLost, 40*ms, a, 3, 2, c)
			n.failure(wire.KindBlockFailed, 50*ms, a, 3, 0, "")
		}, []Failure{{Kind: FailedReplica, Block: 3, Host: b, At: 20 * ms}, {Kind: FailedReplica, Block: 3, Host: c, At: 30 * ms}, {Kind: FailedBlock, Block: 3, Host: a, At: 40 * ms}}, 0, 0, nil},
		{"block that its writer had still to write", func(n *network) {
			n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 2, 1, 100)
			failed(n, 9)
			n.failure(wire.KindBlockFailed, 50*ms, a, 4, 0, "")
		}, []Failure{flow(9), {Kind: FailedBlock, Block: 4, Host: a, At: 40 * ms}}, 0, 0, nil},
		{"all replicas lost, and nothing said of the block", func(n *network) {
			n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 1, 1000)
			n.failure(wire.KindReplicaLost, 30*ms, a, 3, 1, b)
		}, []Failure{{Kind: FailedReplica, Block: 3, Host: b, At: 20 * ms}}, 0, 0, []string{"block 3: no record: all its replicas were lost"}},
		{"second pipeline unfinished", func(n *network) {
			n.mark(wire.KindWriteMark, 10*ms, 11*ms, a, 3, 2, 1000)
			n.failure(wire.KindReplicaLost, 30*ms, a, 3, 1, b)
			conn, s := n.hop(40*ms, a, c, 0, 1, 1, 400)
			conn.data(42*ms, 43*ms, s, 0, len(s))
			conn.speak(44*ms, 45*ms, 0, wire.Ack{}, wire.Ack{Seq: 2})
		}, []Failure{{Kind: FailedReplica, Block: 3, Host: b, At: 20 * ms}}, 0, 0, []string{"hop 0 of pipeline 1 has 16 of 24 acknowledgement bytes"}},
		{"replica on no host", func(n *network) { broken(n); n.failure(wire.KindReplicaLost, 61*ms, a, 3, 9, "no-host\xff") },
			[]Failure{{Kind: FailedReplica, Block: 3, Host: b, At: 50 * ms}, {Kind: FailedReplica, Block: 3, At: 51 * ms}}, 0, 0,
			[]string{"of which 2 were lost, its last pipeline has 1 hops", "no record: all its replicas were lost", `names "no-host?", which is no host`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b, c)
			tt.build(n)
			got := n.reduce(Options{})
			wantProblems(t, got, tt.bad...)
			if diff := cmp.Diff(tt.want, got.Failed); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
			if len(got.Flows) != tt.flows || len(got.Blocks) != tt.blocks {
				t.Errorf("%d flows and %d blocks, want %d and %d", len(got.Flows), len(got.Blocks), tt.flows, tt.blocks)
			}
			for _, c := range got.Coflows {
				if c.Coflow == 2 {
					t.Errorf("a coflow with a failed flow has the record %+v", c)
				}
			}
		})
	}
}

// The captures of a host that crashed end anywhere: whatever is cut off all of them,
// there is no panic, and a block or flow is never complete before its end.
func TestCapturesCutAnywhere(t *testing.T) {
	longtest.Computes(t)
	for keep := range 12 {
		for _, host := range []string{a, b, c} {
			n := newNetwork(t, a, b, c)
			broken(n)
			simple(n)
			n.packets[host] = n.packets[host][:min(keep, len(n.packets[host]))]
			got := n.reduce(Options{})
			for _, f := range got.Flows {
				if f.Size != units.Bytes(2800) || f.End != 20*ms {
					t.Errorf("the first %d packets of %s: %+v", keep, host, f)
				}
			}
			for _, b := range got.Blocks {
				if b.End != 85*ms {
					t.Errorf("the first %d packets of %s: %+v", keep, host, b)
				}
			}
		}
	}
}
