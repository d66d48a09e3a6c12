package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// readOf reads a block() of so many replicas, with ids that begin at ten times its own.
func readOf(id workloads.BlockID, replicas int) workloads.Read {
	return workloads.Read{Block: id, Size: 1000, Coflow: workloads.CoflowID(100 + 10*id), Flow: workloads.FlowID(100 + 10*id), Tries: replicas + 1}
}

func readerOn(client topo.HostID, reads ...workloads.Read) ReaderArrived {
	return ReaderArrived{workloads.Reader{ID: workloads.ReaderID(client), Client: client, Reads: reads}}
}

// began are the transfers that commands start, and gaveUp the failures that they mark.
func began(cmds []Command) (out []StartTransfer, gaveUp map[int]string) {
	gaveUp = map[int]string{}
	for _, c := range cmds {
		switch c := c.(type) {
		case StartTransfer:
			out = append(out, c)
		case Mark:
			if c.Kind == MarkFlowFailed {
				gaveUp[c.ID] = c.Why
			}
		}
	}
	return out, gaveUp
}

// wantRead wants one transfer, of a block from one host to another.
func wantRead(t *testing.T, cmds []Command, flow workloads.FlowID, block workloads.BlockID, src, dst topo.HostID) {
	t.Helper()
	got, _ := began(cmds)
	if len(got) != 1 || got[0].Read == nil || *got[0].Read != block || got[0].Flow != (workloads.Flow{ID: flow, Src: src, Dst: dst, Size: 1000}) || int(got[0].Coflow) != int(flow) {
		t.Fatalf("commands %+v, want flow %d to read block %d from host %d to %d", cmds, flow, block, src, dst)
	}
}

// durableOn is an engine on which blocks 0 and on are durable on hosts, of racks {0, 1}
// and {2, 3}.
func durableOn(t *testing.T, hosts ...[]topo.HostID) *Engine {
	t.Helper()
	var on []topo.HostID
	e := newEngine(t, testConfig(t, always(free), nil))
	for i, list := range hosts {
		on = list
		e.cfg.Placement = onHosts(on...)
		step(t, e, 0, writerOf(block(workloads.BlockID(i), 0, len(list))))
		step(t, e, 0, BlockDurable{workloads.BlockID(i)})
	}
	return e
}

// A reader waits until a block is durable, reads it from its own disk, of which the
// network sees nothing, else from its rack, else from the other, and goes on.
func TestReaderGoesToTheNearest(t *testing.T) {
	e := newEngine(t, testConfig(t, always(free), onHosts(2, 1)))
	if cmds := step(t, e, 0, readerOn(0, readOf(0, 2), readOf(0, 2), readOf(1, 1))); len(cmds) > 0 || e.Idle() {
		t.Fatalf("commands %+v before there is a block; idle %v", cmds, e.Idle())
	}
	if !strings.Contains(e.Unfinished(), "1 readers, 1 of which wait") {
		t.Errorf("Unfinished = %s", e.Unfinished())
	}
	step(t, e, time.Second, writerOf(block(0, 3, 2)))
	cmds := step(t, e, 2*time.Second, BlockDurable{0})
	wantRead(t, cmds, 100, 0, 1, 0)
	if m, ok := cmds[0].(Mark); !ok || m != (Mark{Kind: MarkCoflow, ID: 100, Host: 1, Parts: 1, Size: 1000}) {
		t.Errorf("mark %+v", cmds[0])
	}
	wantRead(t, step(t, e, 3*time.Second, TransferFinished{100}), 100, 0, 1, 0) // the test gives both one id
	step(t, e, 4*time.Second, TransferFinished{100})
	// Block 1 is on the reader's own host.
	e.cfg.Placement = onHosts(0)
	step(t, e, 5*time.Second, writerOf(block(1, 3, 1)))
	cmds = step(t, e, 6*time.Second, BlockDurable{1})
	wantRead(t, cmds, 110, 1, 0, 0)
	if len(cmds) != 1 || len(e.coflows.active) > 0 {
		t.Errorf("a block of the reader's own disk: %+v, coflows %d", cmds, len(e.coflows.active))
	}
	step(t, e, 6500*time.Millisecond, TransferProgressed{[]workloads.FlowID{110}, []units.Bytes{500}})
	if cmds := step(t, e, 7*time.Second, TransferFinished{110}); len(cmds) > 0 || !e.Idle() {
		t.Errorf("in the end %+v, idle %v", cmds, e.Idle())
	}
}

// Of replicas that are equally near, luck chooses, the same for the same reader and
// block, and not always the same.
func TestReaderChoosesByLuck(t *testing.T) {
	from := map[topo.HostID]int{}
	for i := range 40 {
		var was topo.HostID
		for again := range 2 {
			e := durableOn(t, []topo.HostID{3, 2})
			rd := readerOn(0, readOf(0, 2))
			rd.Reader.ID = workloads.ReaderID(i)
			got, _ := began(step(t, e, time.Second, rd))
			if again == 1 && got[0].Flow.Src != was {
				t.Fatalf("reader %d reads from host %d, and again from host %d", i, was, got[0].Flow.Src)
			}
			was = got[0].Flow.Src
		}
		from[was]++
	}
	if from[2] < 8 || from[3] < 8 || from[2]+from[3] != 40 {
		t.Errorf("of 40 readers so many read from each host: %v", from)
	}
}

// A replica's host that is lost gives way to the next, under new ids; where none is
// left the read has failed, and the reader goes on with its next block.
func TestReaderTriesEveryReplica(t *testing.T) {
	e := durableOn(t, []topo.HostID{1, 2}, []topo.HostID{3})
	wantRead(t, step(t, e, time.Second, readerOn(0, readOf(0, 2), readOf(1, 1))), 100, 0, 1, 0)
	cmds := step(t, e, 2*time.Second, HostLost{1})
	wantRead(t, cmds, 101, 0, 2, 0)
	if _, failed := began(cmds); !cmp.Equal(failed, map[int]string{100: "h0-01 is lost"}) {
		t.Errorf("failed %v", failed)
	}
	step(t, e, 2500*time.Millisecond, TransferFinished{100}) // it came too late
	cmds = step(t, e, 3*time.Second, TransferFailed{101, "it broke"})
	wantRead(t, cmds, 110, 1, 3, 0)
	if _, failed := began(cmds); !cmp.Equal(failed, map[int]string{101: "it broke", 102: "no replica of block 0 is left: it broke"}) {
		t.Errorf("failed %v", failed)
	}
	step(t, e, 4*time.Second, TransferFinished{110})
	if !e.Idle() {
		t.Errorf("not idle: %s", e.Unfinished())
	}
	// What a host has lost it does not have when it is back; what it kept it has.
	step(t, e, 5*time.Second, HostBack{Host: 1, DiskLost: true})
	step(t, e, 5*time.Second, HostLost{2})
	step(t, e, 6*time.Second, HostBack{Host: 2})
	wantRead(t, step(t, e, 7*time.Second, readerOn(0, readOf(0, 2))), 100, 0, 2, 0)
}

// A block that was not written is passed over, and all that a lost client was to read
// has failed: what it waits for, what is under way, and what would come.
func TestReadsFail(t *testing.T) {
	e := newEngine(t, testConfig(t, always(free), onHosts(2, 1)))
	step(t, e, 0, readerOn(0, readOf(0, 2), readOf(1, 2)), readerOn(3, readOf(1, 2), readOf(4, 2)))
	step(t, e, time.Second, writerOf(block(0, 1, 2)), writerOf(block(1, 1, 2)))
	cmds := step(t, e, 2*time.Second, BlockFailed{0, "all is lost"})
	if _, failed := began(cmds); !cmp.Equal(failed, map[int]string{100: "block 0 was not written"}) {
		t.Errorf("failed %v", failed)
	}
	// Host 3 is lost while it waits for block 1.
	cmds = step(t, e, 3*time.Second, HostLost{3})
	if _, failed := began(cmds); !cmp.Equal(failed, map[int]string{110: "h1-01 is lost", 140: "h1-01 is lost"}) {
		t.Errorf("failed %v", failed)
	}
	wantRead(t, step(t, e, 4*time.Second, BlockDurable{1}), 110, 1, 1, 0)
	cmds = step(t, e, 5*time.Second, HostBack{Host: 0}) // before it was missed
	if _, failed := began(cmds); !cmp.Equal(failed, map[int]string{110: "h0-00 started again", 111: "h0-00 started again"}) || !e.Idle() {
		t.Errorf("failed %v, idle %v", failed, e.Idle())
	}
	// A client that reads its own disk is lost.
	e = durableOn(t, []topo.HostID{0})
	wantRead(t, step(t, e, time.Second, readerOn(0, readOf(0, 1))), 100, 0, 0, 0)
	cmds = step(t, e, 2*time.Second, HostLost{0})
	if !cmp.Equal(cmds[0], Command(StopTransfer{Flow: 100, Src: 0, Dst: 0})) || !e.Idle() {
		t.Errorf("commands %+v, idle %v", cmds, e.Idle())
	}
	step(t, e, 3*time.Second, TransferFinished{100})
}

func TestReadersRefused(t *testing.T) {
	for name, x := range map[string]struct {
		ev   ReaderArrived
		want string
	}{
		"no blocks":   {readerOn(0), "want one or more"},
		"no host":     {readerOn(9, readOf(0, 1)), "a host of the fabric"},
		"no ids":      {readerOn(0, readOf(0, 0)), "ids for 1 tries"},
		"few ids":     {readerOn(1, readOf(0, 1)), ""},
		"wrong size":  {readerOn(0, workloads.Read{Block: 0, Size: 999, Tries: 3}), "want a read of as much"},
		"no capacity": {readerOn(0, workloads.Read{Block: 0, Size: 0, Tries: 3}), "a positive size"},
	} {
		e := durableOn(t, []topo.HostID{2, 3})
		_, err := e.Step(time.Second, x.ev)
		if x.want == "" {
			if err == nil {
				_, err = e.Step(2*time.Second, TransferFailed{100, "broke"})
			}
			x.want = "one more"
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// Readers and what becomes of them replay from the log.
func TestReadsReplay(t *testing.T) {
	cfg := testConfig(t, always(free), onHosts(1, 2))
	var buf bytes.Buffer
	log := NewLog(&buf)
	e := newEngine(t, cfg)
	now := time.Duration(0)
	for _, evs := range [][]Event{
		{readerOn(0, readOf(0, 2), readOf(1, 2))}, {writerOf(block(0, 3, 2), block(1, 3, 2))}, {BlockDurable{0}}, {HostLost{1}}, {TransferFinished{101}}, {BlockFailed{1, "gone"}},
	} {
		now += time.Second
		if err := log.Observe(now, evs, step(t, e, now, evs...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := Replay(t.Context(), &buf, newEngine(t, cfg))
	if err != nil || got.Differs != nil || got.Steps != 6 || got.Unfinished != "" {
		t.Errorf("replay %+v, %v", got, err)
	}
}
