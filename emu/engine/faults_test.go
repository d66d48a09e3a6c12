package engine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// onHosts places every block on the first hosts of a list that are not lost, as
// many as it has replicas, or fails.
func onHosts(list ...topo.HostID) placeFunc {
	return func(v *policies.View, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
		for _, h := range list {
			if !v.Hosts[h].Lost && len(out) < b.Replicas {
				out = append(out, h)
			}
		}
		if len(out) < b.Replicas {
			return nil, errors.New("too few hosts")
		}
		return out, nil
	}
}

func block(id workloads.BlockID, client topo.HostID, replicas int) workloads.Block {
	return workloads.Block{ID: id, Client: client, Size: 1000, Replicas: replicas, Packet: 100, Window: 2}
}

func writerOf(blocks ...workloads.Block) WriterArrived {
	return WriterArrived{workloads.Writer{ID: workloads.WriterID(blocks[0].ID), Client: blocks[0].Client, Blocks: blocks}}
}

// A host that is lost takes its flows with it at both ends, the blocks that it
// writes, and its replicas of others'. The rest goes on, and no more is asked of it.
func TestHostLost(t *testing.T) {
	e := newEngine(t, testConfig(t, always(free), onHosts(3, 2, 0)))
	fl := []workloads.Flow{{ID: 0, Src: 0, Dst: 3, Size: 100}, {ID: 1, Src: 3, Dst: 1, Size: 200}, {ID: 2, Src: 0, Dst: 1, Size: 300}}
	step(t, e, 0, coflowOf(7, fl...), writerOf(block(4, 3, 2), block(5, 3, 2)), writerOf(block(8, 1, 2), block(9, 1, 2)))
	got := step(t, e, 10, HostLost{3})
	const why = "h1-01 is lost"
	want := []Command{
		StopTransfer{Flow: 0, Src: 0, Dst: 3}, Mark{Kind: MarkFlowFailed, ID: 0, Host: 0, Parts: 7, Size: 100, Why: why},
		StopTransfer{Flow: 1, Src: 3, Dst: 1}, Mark{Kind: MarkFlowFailed, ID: 1, Host: 1, Parts: 7, Size: 200, Why: why},
		StopChain{Block: 4},
		Mark{Kind: MarkBlockFailed, ID: 4, Host: 0, Parts: 2, Size: 1000, Why: why}, Mark{Kind: MarkBlockFailed, ID: 5, Host: 0, Parts: 2, Size: 1000, Why: why},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("commands (-want +got):\n%s", d)
	}
	if h := e.hosts[3]; h.writing != 0 || h.used != 0 {
		t.Errorf("the lost host: %+v", h)
	}
	if h := e.hosts[2]; h.writing != 1 || h.used != 1000 {
		t.Errorf("the host that has a replica of block 8 and had one of block 4: %+v", h)
	}
	if got := step(t, e, 11, HostLost{3}); len(got) != 0 {
		t.Errorf("lost twice: %v", got)
	}
	// News of what has been given up may still come in.
	step(t, e, 12, TransferFinished{0}, TransferProgressed{[]workloads.FlowID{1}, []units.Bytes{5}}, TransferFailed{1, "reset"}, BlockDurable{4}, BlockFailed{5, "x"}, ReplicaLost{Block: 8, Host: 3})
	got = step(t, e, 13, BlockDurable{8})
	if len(got) != 2 || !slices.Equal(got[1].(StartChain).Targets, []topo.HostID{2, 0}) {
		t.Errorf("the next block goes to %+v, want hosts 2 and 0", got)
	}
	// What arrives for it fails at once, and never starts.
	got = step(t, e, 14, coflowOf(8, workloads.Flow{ID: 5, Src: 2, Dst: 3, Size: 10}), writerOf(block(12, 3, 1)))
	want = []Command{
		Mark{Kind: MarkCoflow, ID: 8, Host: 2, Parts: 1, Size: 10}, Mark{Kind: MarkFlowFailed, ID: 5, Host: 2, Parts: 8, Size: 10, Why: why},
		Mark{Kind: MarkBlockFailed, ID: 12, Host: 0, Parts: 1, Size: 1000, Why: why},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what arrives for it (-want +got):\n%s", d)
	}
	if got := step(t, e, 15, TransferFinished{2}, BlockDurable{9}); len(got) != 0 || !e.Idle() {
		t.Errorf("at the end: %v, %s unfinished", got, e.Unfinished())
	}
}

// A host that is back is used again; what it was doing has failed, also if nobody
// missed it, and its disk is what it was, or empty.
func TestHostBack(t *testing.T) {
	for _, missed := range []bool{false, true} {
		for _, wiped := range []bool{false, true} {
			e := newEngine(t, testConfig(t, always(free), onHosts(3, 2)))
			step(t, e, 0, writerOf(block(1, 0, 1)))
			step(t, e, 1, BlockDurable{1}) // 1000 bytes on host 3
			step(t, e, 2, coflowOf(7, workloads.Flow{ID: 0, Src: 0, Dst: 3, Size: 100}), writerOf(block(2, 0, 2)))
			var evs []Event
			if missed {
				evs = append(evs, HostLost{3})
			}
			got := step(t, e, 3, append(evs, HostBack{Host: 3, DiskLost: wiped})...)
			why := "h1-01 started again"
			if missed {
				why = "h1-01 is lost"
			}
			want := []Command{StopTransfer{Flow: 0, Src: 0, Dst: 3}, Mark{Kind: MarkFlowFailed, ID: 0, Host: 0, Parts: 7, Size: 100, Why: why}}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("missed %v: (-want +got):\n%s", missed, d)
			}
			used := units.Bytes(1000)
			if wiped {
				used = 0
			}
			if h := e.hosts[3]; h.lost || h.used != used || h.writing != 0 {
				t.Errorf("missed %v, wiped %v: %+v", missed, wiped, h)
			}
			got = step(t, e, 4, BlockDurable{2}, coflowOf(9, workloads.Flow{ID: 3, Src: 0, Dst: 3, Size: 100}), writerOf(block(3, 0, 1)))
			starts := slices.ContainsFunc(got, func(c Command) bool { s, ok := c.(StartTransfer); return ok && s.Flow.Dst == 3 })
			chain := slices.ContainsFunc(got, func(c Command) bool { s, ok := c.(StartChain); return ok && slices.Equal(s.Targets, []topo.HostID{3}) })
			if !starts || !chain {
				t.Errorf("a host that is back is not used: %v", got)
			}
		}
	}
}

// A flow is given up when a link of its path has been down for Stuck in which
// nothing came, and no earlier; bytes that come in all the same, a path over another
// spine and a link that is back each let it live.
func TestStuck(t *testing.T) {
	const s = time.Second
	beat := func(h topo.HostID) Event { return Heartbeat{Host: h} }
	moved := func(n units.Bytes) Event { return TransferProgressed{[]workloads.FlowID{0}, []units.Bytes{n}} }
	type at struct {
		now time.Duration
		evs []Event
	}
	f := testConfig(t, always(free), nil).Fabric
	up := f.LeafUp(0, 0)
	down, back := LinkChanged{up, 0}, LinkChanged{up, f.Link(up).Rate}
	for _, tt := range []struct {
		name  string
		steps []at
		want  time.Duration // given up; 0 is not
	}{
		{"cut for good", []at{{1 * s, []Event{down}}, {3 * s, []Event{beat(1)}}, {4*s - 1, []Event{beat(1)}}, {4 * s, []Event{beat(1)}}}, 4 * s},
		{"another link", []at{{1 * s, []Event{LinkChanged{f.HostUp(1), 0}}}, {9 * s, []Event{beat(1)}}}, 0},
		{"back in time", []at{{1 * s, []Event{down}}, {3 * s, []Event{back}}, {4 * s, []Event{beat(1)}}, {9 * s, []Event{beat(1)}}}, 0},
		{"cut again", []at{{1 * s, []Event{down}}, {3 * s, []Event{back}}, {4 * s, []Event{down}}, {6 * s, []Event{beat(1)}}, {7 * s, []Event{beat(1)}}}, 7 * s},
		{"bytes come in", []at{{1 * s, []Event{down}}, {3 * s, []Event{moved(10)}}, {4 * s, []Event{beat(1)}}, {6 * s, []Event{beat(1)}}}, 6 * s},
		{"no bytes come in", []at{{1 * s, []Event{down}}, {3 * s, []Event{moved(0)}}, {4 * s, []Event{beat(1)}}}, 4 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(t, always(free), nil)
			c.Stuck = 3 * s
			e := newEngine(t, c)
			step(t, e, 0, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}))
			var got time.Duration
			for _, x := range tt.steps {
				for _, cmd := range step(t, e, x.now, x.evs...) {
					if m, ok := cmd.(Mark); ok && m.Kind == MarkFlowFailed {
						got = x.now
						if m.Why != "no path for 3s" {
							t.Errorf("why %q", m.Why)
						}
					}
				}
			}
			if got != tt.want || e.Idle() != (tt.want > 0) {
				t.Errorf("given up at %v, want %v; idle %v", got, tt.want, e.Idle())
			}
		})
	}
}

// Policies see what links carry now and which way flows go; capacities and paths
// that were shown do not change.
func TestLinkAndPathChanges(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	type view struct {
		capacity []units.Rate
		path     []topo.LinkID // of flow 0
	}
	var views []view
	c := Config{Fabric: f, Heartbeat: time.Second, Alpha: 0.2, Stuck: time.Second,
		Coflow: scheduler{needs: policies.Flows, when: policies.When{Coflows: true}, f: func(v *policies.View, s *policies.Schedule) {
			views = append(views, view{v.Capacity, v.Coflows[0].Flows[0].Path})
			free(v, s)
		}}}
	e := newEngine(t, c)
	step(t, e, 0, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 1, Size: 100}))
	path := slices.Clone(views[0].path)
	cut := path[1]
	other := 1 - f.Link(cut).Spine
	step(t, e, 1, LinkChanged{cut, 0})
	step(t, e, 2, PathChanged{Flow: 0, Spine: other})
	if views[0].capacity[cut] == 0 || views[1].capacity[cut] != 0 {
		t.Errorf("capacities %v and %v of the link that was cut", views[0].capacity[cut], views[1].capacity[cut])
	}
	want := []topo.LinkID{f.HostUp(0), f.LeafUp(0, other), f.LeafDown(1, other), f.HostDown(2)}
	if d := cmp.Diff(want, views[2].path); d != "" {
		t.Errorf("new path (-want +got):\n%s", d)
	}
	if d := cmp.Diff(path, views[1].path); d != "" {
		t.Errorf("the path of an older view changed (-was +is):\n%s", d)
	}
	// It has a path, so it is not given up.
	if got := step(t, e, 5*time.Second, Heartbeat{Host: 1}); len(got) != 0 {
		t.Errorf("commands %v", got)
	}
	for _, tt := range []struct {
		ev   Event
		want string
	}{
		{PathChanged{0, 2}, "a spine of the fabric"}, {PathChanged{0, -1}, "a spine of the fabric"}, {PathChanged{1, 0}, "between racks"},
		{LinkChanged{-1, 0}, "a link of the fabric"}, {LinkChanged{topo.LinkID(len(f.Links())), 0}, "a link of the fabric"}, {LinkChanged{0, -1}, "0 or more"},
		{HostLost{-1}, "unknown host"}, {HostLost{4}, "unknown host"}, {HostBack{Host: 4}, "unknown host"}, {BlockFailed{3, ""}, "not being written"},
	} {
		bad := newEngine(t, c)
		step(t, bad, 0, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 1, Size: 100}))
		if _, err := bad.Step(1, tt.ev); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one that contains %q", tt.ev, err, tt.want)
		}
	}
	if got := step(t, e, 6*time.Second, PathChanged{99, 0}); len(got) != 0 {
		t.Errorf("a path of a flow that has ended: %v", got)
	}
}

// A block goes on without replicas that it lost and fails with the last; its writer
// goes on with the next. Without a place for it, for want of lost hosts, it fails.
func TestReplicasAndBlocksFail(t *testing.T) {
	e := newEngine(t, testConfig(t, always(none), onHosts(2, 3)))
	step(t, e, 0, writerOf(block(1, 0, 2), block(2, 0, 2), block(3, 0, 2)))
	if got := step(t, e, 1, ReplicaLost{Block: 1, Host: 2}); len(got) != 0 || e.hosts[2].writing != 0 || e.hosts[3].writing != 1 {
		t.Errorf("%v, hosts %+v", got, e.hosts)
	}
	if _, err := newEngine(t, testConfig(t, always(none), onHosts(2, 3))).Step(0, writerOf(block(1, 0, 1)), ReplicaLost{Block: 1, Host: 0}); err == nil {
		t.Error("a replica is lost that never was, and nothing was said")
	}
	got := step(t, e, 2, BlockFailed{1, "no host left"})
	if len(got) != 4 || got[0] != (StopChain{Block: 1}) || got[1].(Mark).Why != "no host left" || got[3].(StartChain).Block.ID != 2 || e.hosts[3].used != 1000 {
		t.Errorf("after the last replica of block 1: %v, host 3 %+v", got, e.hosts[3])
	}
	step(t, e, 3, HostLost{3})
	got = step(t, e, 4, BlockDurable{2})
	if len(got) != 1 || got[0].(Mark).ID != 3 || got[0].(Mark).Why != "no place with 1 hosts lost: too few hosts" || !e.Idle() {
		t.Errorf("block 3 has one host for two replicas: %v", got)
	}
}

// A host whose disks refuse a block is one without room to policies, until something on
// it becomes free or its disks are new; a block that finds no place then fails, and the
// run goes on.
func TestFullHost(t *testing.T) {
	c := testConfig(t, always(free), nil)
	var sees []policies.HostState
	c.Placement = placeFunc(func(v *policies.View, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
		sees = slices.Clone(v.Hosts)
		for h := range v.Hosts {
			if s := v.Hosts[h]; (s.Disk == 0 || s.Disk-s.Used >= b.Size) && len(out) < b.Replicas {
				out = append(out, topo.HostID(h))
			}
		}
		if len(out) < b.Replicas {
			return nil, errors.New("too few hosts")
		}
		return out, nil
	})
	for _, size := range []units.Bytes{0, 100_000} {
		c.DiskSize = size
		e := newEngine(t, c)
		step(t, e, 0, writerOf(block(1, 0, 2), block(2, 0, 2), block(3, 0, 4)))
		lost := ReplicaLost{Block: 1, Host: 1, Full: true}
		if got := Failures(1, []Event{lost}, step(t, e, 1, lost)); len(got) != 1 || got[0].Kind != ReplicaFailure || got[0].Why != WhyFull {
			t.Errorf("disks of %v: failures %+v", size, got)
		}
		got := step(t, e, 2, BlockDurable{1})
		if s := sees[1]; s.Disk-s.Used > 0 || s.Disk == 0 || sees[0].Disk != size {
			t.Errorf("disks of %v: the full host is shown as %+v, another as %+v", size, s, sees[0])
		}
		if chain := got[len(got)-1].(StartChain); !slices.Equal(chain.Targets, []topo.HostID{0, 2}) {
			t.Errorf("disks of %v: block 2 goes to %v, want hosts 0 and 2", size, chain.Targets)
		}
		got = step(t, e, 3, BlockDurable{2})
		if len(got) != 1 || got[0].(Mark).Kind != MarkBlockFailed || got[0].(Mark).Why != "no place with 0 hosts lost and 1 full: too few hosts" || !e.Idle() {
			t.Errorf("disks of %v: block 3 needs every host: %v", size, got)
		}
		step(t, e, 4, HostBack{Host: 1, DiskLost: true}, writerOf(block(4, 0, 4)))
		if s := sees[1]; s.Disk != size || s.Used != 0 {
			t.Errorf("disks of %v: with new disks the host is shown as %+v", size, s)
		}
	}
}

// The log of a run with every fault replays to the same commands, and one whose
// commands were changed does not.
func TestReplayOfFaults(t *testing.T) {
	c := testConfig(t, always(free), onHosts(3, 2, 0))
	c.Stuck = time.Second
	e := newEngine(t, c)
	var log bytes.Buffer
	l := NewLog(&log)
	up := c.Fabric.LeafUp(0, 0)
	for _, x := range []struct {
		now time.Duration
		evs []Event
	}{
		{0, []Event{coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 3, Size: 100}, workloads.Flow{ID: 2, Src: 0, Dst: 1, Size: 100}),
			writerOf(block(1, 0, 3)), writerOf(block(2, 3, 2))}},
		{1, []Event{LinkChanged{up, 0}, PathChanged{0, 0}, ReplicaLost{Block: 1, Host: 2}}},
		{2, []Event{HostLost{3}}},
		{3, []Event{HostBack{Host: 3, DiskLost: true}, TransferFailed{2, "reset"}}},
		{4, []Event{BlockFailed{1, "no host left"}, Heartbeat{Host: 1}}},
		{2 * time.Second, []Event{Heartbeat{Host: 1}}},
	} {
		if err := l.Observe(x.now, x.evs, step(t, e, x.now, x.evs...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil || !e.Idle() {
		t.Fatal(err, e.Unfinished())
	}
	text := log.String()
	if got, err := Replay(t.Context(), strings.NewReader(text), newEngine(t, c)); err != nil || got.Steps != 6 || got.Differs != nil {
		t.Errorf("replay: %+v, %v", got, err)
	}
	other := strings.Replace(text, "no path for 1s", "no path for 2s", 1)
	if got, err := Replay(t.Context(), strings.NewReader(other), newEngine(t, c)); other == text || err != nil || got.Differs == nil {
		t.Errorf("a log with another reason replays all the same: %+v, %v", got, err)
	}
}
