package flows

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/layers"

	"testbed/emu/longtest"
	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/workloads"
)

// moment marks a moment of an attempt of job 4 at a time, 1 ms before it is on the wire of sender.
// Kills and failures state a reason, and submissions a user and a profile.
func (n *network) moment(at time.Duration, sender, host string, t wire.Task, read bool, parts uint32, size uint64) {
	t.Job = 4
	h := wire.Header{Kind: wire.KindTaskMark, Run: n.run, Group: 4, Parts: parts, Size: size, Read: read, Sent: epoch.Add(at), Task: t}
	note := wire.Note{Host: host}
	switch t.Moment {
	case wire.JobSubmitted:
		note.User, note.Profile = "ann", "sort"
	case wire.AttemptKilled, wire.AttemptFailed, wire.JobFailed:
		note.Why = "cut"
	}
	to := topo.MarkAddr().As4()
	n.see(sender, 0, at+ms, n.frame(ipOf(n.t, sender), to[:], layers.IPProtocolUDP, &layers.UDP{SrcPort: 40000, DstPort: wire.MarkPort}, h.AppendMark(nil, note)))
}

// carry is a flow of a task from client to server, that ends 10 ms after it was released, or is cut
// after its first packet.
func (n *network) carry(at time.Duration, client, server string, port uint16, coflow, flow uint32, size int, t wire.Task, cut bool) {
	h := wire.Header{Kind: wire.KindFlow, Run: n.run, Group: coflow, Member: flow, Size: uint64(size), Sent: epoch.Add(at + 2*ms), Task: t, Read: t.Outputs == 0}
	h.Release(epoch.Add(at))
	stream := append(h.Append(nil), make([]byte, size)...)
	c := n.dial(at, client, server, port, wire.ShufflePort, 99)
	c.data(at+2*ms, at+3*ms, stream, 0, 100)
	if !cut {
		c.data(at+8*ms, at+10*ms, stream, 100, len(stream))
	}
}

// mapReduce runs job 4: a map that reads a block from b on a and is killed, its second attempt on b,
// which reads it from its own disk, and a reduce on c that fetches its output twice: the first fetch is
// stopped. The reduce writes a block; a write of the killed attempt is stopped.
func mapReduce(n *network) {
	first := wire.Task{Job: 4, Locality: wire.RackLocal}
	second := wire.Task{Job: 4, Attempt: 1}
	reduce := wire.Task{Job: 4, Stage: 1, Reduce: true}
	m := func(t wire.Task, m wire.Moment) wire.Task { t.Moment = m; return t }
	n.moment(0, a, a, wire.Task{Moment: wire.JobSubmitted}, false, 2, 500)
	n.moment(10*ms, a, a, m(first, wire.AttemptStarted), true, 0, 500)
	n.mark(wire.KindCoflowMark, 10*ms, 10*ms, a, 100, 1, 500)
	n.carry(11*ms, b, a, 41000, 100, 1, 500, wire.Task{Job: 4}, true)
	n.moment(30*ms, c, b, m(second, wire.AttemptStarted), true, 0, 500) // b is cut off
	n.moment(40*ms, a, a, m(first, wire.AttemptKilled), true, 0, 0)
	n.stop(wire.KindFlowStopped, 40*ms, a, 100, 1, 500)
	n.markNote(wire.Header{Kind: wire.KindWriteMark, Run: n.run, Group: 3, Parts: 2, Size: 1000, Sent: epoch.Add(35 * ms)}, wire.Note{Job: 4, Stage: 2, Index: 5, Attempt: 6}, 35*ms, a)
	own, stream := n.hop(36*ms, a, a, 0, 2, 0, 0) // on its own host: no byte for the network
	own.data(37*ms, 37*ms, stream, 0, len(stream))
	next, stream := n.hop(36*ms, a, b, 1, 2, 0, 0)
	next.data(37*ms, 38*ms, stream, 0, len(stream)-700)
	n.stop(wire.KindBlockStopped, 41*ms, a, 3, 0, 1000)
	n.moment(60*ms, b, b, m(second, wire.InputComplete), true, 0, 500)
	n.moment(61*ms, b, b, m(second, wire.Computed), true, 0, 0)
	n.moment(65*ms, b, b, m(second, wire.AttemptCommitted), true, 0, 0)
	n.moment(70*ms, c, c, m(reduce, wire.AttemptStarted), false, 0, 0)
	n.mark(wire.KindCoflowMark, 71*ms, 71*ms, c, 101, 0, 0)
	fetch := wire.Task{Job: 4, Stage: 1, FromAttempt: 1, Outputs: 1}
	n.carry(72*ms, b, c, 41001, 101, 2, 300, fetch, true)
	n.stop(wire.KindFlowStopped, 80*ms, c, 101, 2, 300)
	n.carry(90*ms, b, c, 41002, 101, 3, 300, fetch, false)
	n.moment(101*ms, c, c, m(reduce, wire.InputComplete), false, 0, 300)
	n.moment(102*ms, c, c, m(reduce, wire.ComputeStarted), false, 0, 300)
	n.moment(110*ms, c, c, m(reduce, wire.Computed), false, 0, 0)
	n.moment(120*ms, c, c, m(reduce, wire.AttemptCommitted), false, 0, 0)
	n.mark(wire.KindCoflowClosed, 121*ms, 121*ms, c, 101, 2, 600)
	n.moment(122*ms, a, a, wire.Task{Moment: wire.JobDone}, false, 0, 0)
}

// stop marks a flow or block as stopped.
func (n *network) stop(kind wire.Kind, at time.Duration, host string, group, member uint32, size uint64) {
	n.markHeader(wire.Header{Kind: kind, Run: n.run, Group: group, Member: member, Parts: 1, Size: size, Sent: epoch.Add(at)}, at, host)
}

func TestMapReduce(t *testing.T) {
	n := newNetwork(t, a, b, c)
	mapReduce(n)
	got := n.reduce(Options{})
	wantProblems(t, got)
	want := Records{
		Coflows: []CoflowRecord{{Coflow: 101, Width: 2, Size: 600, Arrival: 71 * ms, End: 100 * ms}},
		Jobs:    []JobRecord{{Job: 4, End: 122 * ms, User: "ann", Profile: "sort", Tasks: 2, Input: 500}},
		Attempts: []AttemptRecord{
			{Job: 4, Kind: MapTask, Host: a, Locality: RackLocal, Input: 500, Start: 10 * ms, Compute: 10 * ms, End: 40 * ms, Outcome: Killed, Why: "cut"},
			{Job: 4, Attempt: 1, Kind: MapTask, Host: b, Locality: NodeLocal, Input: 500, Start: 30 * ms, InputEnd: 60 * ms, Compute: 30 * ms, Computed: 61 * ms, End: 65 * ms, Outcome: Committed},
			{Job: 4, Stage: 1, Kind: ReduceTask, Host: c, Input: 300, Start: 70 * ms, InputEnd: 101 * ms, Compute: 102 * ms, Computed: 110 * ms, End: 120 * ms, Outcome: Committed},
		},
	}
	// Of each flow that was stopped, the first packet of 100 bytes with its header left the sender.
	cut := func(coflow, flow int, src, dst string, at time.Duration, end time.Duration, task TaskTransfer) FlowRecord {
		return FlowRecord{Coflow: workloads.CoflowID(coflow), Flow: workloads.FlowID(flow), Src: src, Dst: dst, Size: 100 - wire.MaxSize, Arrival: at, Start: at + 2*ms, End: end, Packets: 1, Task: &task}
	}
	want.Stopped = []FlowRecord{cut(100, 1, b, a, 11*ms, 40*ms, TaskTransfer{Job: 4}), cut(101, 2, b, c, 72*ms, 80*ms, TaskTransfer{Job: 4, Stage: 1, FromAttempt: 1, Outputs: 1})}
	want.StoppedWrites = []StoppedWrite{{Block: 3, Client: a, Requested: 35 * ms, End: 41 * ms, Sent: 300, Attempt: AttemptKey{Job: 4, Stage: 2, Task: 5, Attempt: 6}}}
	r := got.Records
	r.Flows = nil
	for i := range r.Stopped {
		if r.Stopped[i].Wire <= 100 {
			t.Errorf("stopped flow %d has %d bytes on the wire, want those of a packet of 100", i, r.Stopped[i].Wire)
		}
		r.Stopped[i].Wire = 0
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
	if len(got.Flows) != 1 {
		t.Fatalf("flows %+v, want the second fetch", got.Flows)
	}
	f := got.Flows[0]
	task := TaskTransfer{Job: 4, Stage: 1, FromAttempt: 1, Outputs: 1}
	if f.Flow != 3 || f.Size != 300 || f.Arrival != 90*ms || f.End != 100*ms || f.Setup != 2*ms || f.Task == nil || *f.Task != task {
		t.Errorf("flow %+v of task %+v, want flow 3 of %+v", f, f.Task, task)
	}
}

// A complete read of an input block has a flow but no coflow, and an open coflow without complete
// flows has no record.
func TestFlowsWithoutCoflow(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 0, 0, a, 100, 1, 500)
	n.carry(ms, b, a, 41000, 100, 1, 500, wire.Task{Job: 4, Index: 7}, false)
	n.mark(wire.KindCoflowMark, 0, 0, a, 101, 0, 0)
	n.stop(wire.KindFlowStopped, 5*ms, a, 101, 2, 300)
	n.failure(wire.KindFlowFailed, 6*ms, a, 101, 3, "")
	n.mark(wire.KindCoflowClosed, 9*ms, 9*ms, a, 101, 2, 300)
	n.mark(wire.KindCoflowMark, 0, 0, a, 102, 0, 0)
	n.mark(wire.KindCoflowClosed, 9*ms, 9*ms, a, 102, 0, 0)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if len(got.Coflows) != 0 || len(got.Flows) != 1 || *got.Flows[0].Task != (TaskTransfer{Job: 4, Task: 7}) {
		t.Errorf("coflows %+v, flows %+v", got.Coflows, got.Flows)
	}
	if d := cmp.Diff([]Failure{{Kind: FailedFlow, Coflow: 101, Flow: 3, Host: a, At: 6 * ms}}, got.Failed); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}

// The end of a read is that of its mark, with the bound that it states.
func TestConsumed(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	for i, host := range []string{b, a} {
		h := wire.Header{Kind: wire.KindConsumed, Read: true, Run: n.run, Group: 4, Member: uint32(9 - i), Size: 500, Sent: epoch.Add(time.Duration(30-10*i) * ms), Task: wire.Task{Job: 4, Index: 2, Attempt: uint16(i)}}
		h.SetLag(time.Duration(i) * time.Second)
		n.markHeader(h, 40*ms, host)
	}
	got := n.reduce(Options{})
	wantProblems(t, got)
	want := []Consumed{{Job: 4, Task: 2, Attempt: 1, Flow: 8, At: 10 * ms, Lag: time.Second}, {Job: 4, Task: 2, Flow: 9, At: 20 * ms}}
	if d := cmp.Diff(want, got.Consumed); d != "" {
		t.Errorf("ends of reads (-want +got):\n%s", d)
	}
}

func TestTaskProblems(t *testing.T) {
	killed := func(m wire.Moment) wire.Task { return wire.Task{Moment: m} }
	for _, tt := range []struct {
		name  string
		build func(n *network)
		want  []string
	}{
		{"job without an end", func(n *network) { n.moment(0, a, a, killed(wire.JobSubmitted), false, 1, 1) }, []string{"job 4 has no end"}},
		{"no such host", func(n *network) {
			n.moment(0, a, "no-host\xff", killed(wire.AttemptStarted), false, 0, 1)
			n.moment(2*ms, a, a, killed(wire.AttemptKilled), false, 0, 1)
		}, []string{`attempt 0 of task 0 of stage 0 of job 4: its mark names "no-host?", which is no host`}},
		{"committed without input", func(n *network) {
			n.moment(0, a, a, killed(wire.AttemptStarted), true, 0, 1)
			n.moment(2*ms, a, a, killed(wire.AttemptCommitted), true, 0, 1)
		}, []string{"committed at 2ms, but not computed before", "committed at 2ms, but not input complete before"}},
		{"late mark", func(n *network) {
			n.markHeader(wire.Header{Kind: wire.KindTaskMark, Run: n.run, Group: 4, Sent: epoch, Task: wire.Task{Job: 4, Moment: wire.JobSubmitted}}, 2*time.Second, a)
			n.moment(3*time.Second, a, a, killed(wire.JobDone), false, 1, 1)
		}, []string{"job 4: its mark names", "job 4: its mark was on the wire of " + a + " 2s after the time it states"}},
		{"open coflow not closed", func(n *network) {
			n.mark(wire.KindCoflowMark, 0, 0, a, 101, 0, 0)
			n.carry(ms, b, a, 41000, 101, 1, 500, wire.Task{Job: 4, Outputs: 1}, false)
		}, []string{"coflow 101: no mark of its end, so it has no record"}},
		{"closed twice", func(n *network) {
			n.mark(wire.KindCoflowMark, 0, 0, a, 101, 0, 0)
			n.mark(wire.KindCoflowClosed, ms, ms, a, 101, 0, 0)
			n.mark(wire.KindCoflowClosed, 2*ms, 2*ms, b, 101, 0, 0)
		}, []string{"coflow 101: closed by " + a + " and by " + b}},
		{"flow of an open coflow that never started", func(n *network) {
			n.mark(wire.KindCoflowMark, 0, 0, a, 101, 0, 0)
			n.carry(ms, b, a, 41000, 101, 1, 500, wire.Task{Job: 4, Outputs: 1}, false)
			n.mark(wire.KindCoflowClosed, 20*ms, 20*ms, a, 101, 2, 700)
		}, []string{"coflow 101: 1 of its 2 flows are complete, so it has no record: 1 never started"}},
		{"flow of an open coflow that did not end", func(n *network) {
			n.mark(wire.KindCoflowMark, 0, 0, a, 101, 0, 0)
			n.carry(ms, b, a, 41000, 101, 1, 500, wire.Task{Job: 4, Outputs: 1}, true)
			n.mark(wire.KindCoflowClosed, 20*ms, 20*ms, a, 101, 1, 500)
		}, []string{"coflow 101: 0 of its 1 flows are complete, so it has no record: flow 1 has 8 of 500 bytes"}},
		{"size of an open coflow", func(n *network) {
			n.mark(wire.KindCoflowMark, 0, 0, a, 101, 0, 0)
			n.carry(ms, b, a, 41000, 101, 1, 500, wire.Task{Job: 4, Outputs: 1}, false)
			n.mark(wire.KindCoflowClosed, 20*ms, 20*ms, a, 101, 1, 501)
		}, []string{"coflow 101: its mark announces 501 bytes, its flows have 500"}},
		{"stopped and never marked", func(n *network) {
			simple(n)
			n.stop(wire.KindFlowStopped, 5*ms, a, 101, 2, 300)
			n.stop(wire.KindBlockStopped, 5*ms, a, 7, 0, 300)
		}, []string{"block 7: marked as stopped, and no mark of its arrival", "coflow 101: marked as stopped, and no mark of its arrival"}},
		{"extension cut off", func(n *network) {
			n.snap = 120
			n.moment(0, a, a, killed(wire.JobSubmitted), false, 1, 1)
			n.mark(wire.KindCoflowMark, 0, 0, a, 101, 1, 500)
			n.carry(ms, b, a, 41000, 101, 1, 500, wire.Task{Job: 4, Outputs: 1}, false)
		}, []string{"1 packets were captured too short", "its transfer header was cut off", "coflow 101: 0 of its 1 flows"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, a, b)
			tt.build(n)
			got := n.reduce(Options{})
			for _, want := range tt.want {
				if !slices.ContainsFunc(got.Problems, func(p string) bool { return strings.Contains(p, want) }) {
					t.Errorf("problems %q, want one with %q", got.Problems, want)
				}
			}
			if len(got.Problems) > len(tt.want) {
				t.Errorf("problems %q, want %q", got.Problems, tt.want)
			}
		})
	}
}

// Whichever packet is missing or damaged, there is no panic, every record that is left has the times of
// the whole capture, and a missing mark is a problem.
func TestMapReduceDamaged(t *testing.T) {
	longtest.Computes(t)
	whole := newNetwork(t, a, b, c)
	mapReduce(whole)
	want := whole.reduce(Options{})
	for _, host := range []string{a, b, c} {
		for i := range whole.packets[host] {
			for _, damage := range []string{"lost", "header", "extension"} {
				n := newNetwork(t, a, b, c)
				mapReduce(n)
				p := n.packets[host]
				mark := p[i].frame[23] == 17
				switch damage {
				case "lost":
					n.packets[host] = slices.Delete(p, i, i+1)
				case "header":
					p[i].frame[min(60, len(p[i].frame)-1)] ^= 1
				case "extension":
					p[i].frame[min(125, len(p[i].frame)-1)] ^= 1
				}
				red := NewReducer(Options{})
				for host := range n.packets {
					p, err := pcap.NewReader(bytes.NewReader(n.file(host)))
					if err == nil {
						err = red.Add(t.Context(), host, p)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				got, err := red.Result()
				if err != nil {
					t.Fatal(err)
				}
				if mark && damage != "extension" && len(got.Problems) == 0 {
					t.Errorf("packet %d of %s %s: no problem", i, host, damage)
				}
				shift := want.Zero.Sub(got.Zero) // if the first mark is missing
				for _, r := range got.Attempts {
					j := slices.IndexFunc(want.Attempts, func(w AttemptRecord) bool { return w.Stage == r.Stage && w.Attempt == r.Attempt })
					if j < 0 || want.Attempts[j].Start != r.Start-shift || want.Attempts[j].End != r.End-shift || want.Attempts[j].Outcome != r.Outcome {
						t.Errorf("packet %d of %s %s: attempt %+v", i, host, damage, r)
					}
				}
				for _, r := range got.Jobs {
					if r.JobTime() != want.Jobs[0].JobTime() {
						t.Errorf("packet %d of %s %s: job %+v", i, host, damage, r)
					}
				}
				for _, r := range got.Coflows {
					if r.CCT() != want.Coflows[0].CCT() {
						t.Errorf("packet %d of %s %s: coflow %+v", i, host, damage, r)
					}
				}
			}
		}
	}
}
