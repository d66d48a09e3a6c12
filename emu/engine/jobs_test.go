package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo"
	"testbed/workloads"
)

// started are the blocks whose pipelines some commands start, and failed those that
// they give up, with the reason.
func writes(cmds []Command) (ids []workloads.BlockID, failed map[int]string) {
	failed = map[int]string{}
	for _, c := range cmds {
		switch c := c.(type) {
		case StartChain:
			ids = append(ids, c.Block.ID)
		case Mark:
			if c.Kind == MarkBlockFailed {
				failed[c.ID] = c.Why
			}
		}
	}
	return ids, failed
}

func thenWriter(client topo.HostID, start time.Duration, blocks ...workloads.Block) workloads.Writer {
	return workloads.Writer{ID: workloads.WriterID(blocks[0].ID), Client: client, Start: start, Blocks: blocks, Job: 1}
}

// The writers of a job start when the last flow of its coflow has finished, and after
// their Start, of which the engine tells when it is.
func TestJobLife(t *testing.T) {
	e := newEngine(t, testConfig(t, always(free), onHosts(0, 1, 2, 3)))
	ev := coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 3, Size: 100})
	ev.Then = []workloads.Writer{thenWriter(2, 0, block(0, 2, 2), block(1, 2, 2)), thenWriter(3, 5*time.Second, block(2, 3, 2)), thenWriter(2, 2*time.Second, block(3, 2, 2))}
	if ids, _ := writes(step(t, e, 0, ev)); len(ids) > 0 {
		t.Fatalf("blocks %v start with the coflow", ids)
	}
	if !strings.Contains(e.Unfinished(), "1 coflows with 2 flows and 0 block writes and 3 writers to start") {
		t.Errorf("Unfinished = %s", e.Unfinished())
	}
	if ids, _ := writes(step(t, e, time.Second, TransferFinished{1})); len(ids) > 0 || e.Idle() {
		t.Fatalf("blocks %v start with the first flow's end", ids)
	}
	if ids, _ := writes(step(t, e, 3*time.Second, TransferFinished{0})); !cmp.Equal(ids, []workloads.BlockID{0}) {
		t.Fatalf("blocks %v start with the coflow's end, want 0", ids)
	}
	if got := e.NextWake(); got != 5*time.Second {
		t.Errorf("NextWake = %v, want 5s", got)
	}
	if ids, _ := writes(step(t, e, 4*time.Second, BlockDurable{0})); !cmp.Equal(ids, []workloads.BlockID{1}) {
		t.Fatalf("blocks %v after the first, want 1", ids)
	}
	step(t, e, 4500*time.Millisecond, BlockDurable{1})
	if e.Idle() || !strings.Contains(e.Unfinished(), "0 coflows with 0 flows and 0 block writes and 2 writers to start") {
		t.Errorf("idle %v, Unfinished = %s", e.Idle(), e.Unfinished())
	}
	if ids, _ := writes(step(t, e, 5*time.Second)); !cmp.Equal(ids, []workloads.BlockID{3}) {
		t.Fatalf("blocks %v, want 3", ids)
	}
	if ids, _ := writes(step(t, e, 9*time.Second)); !cmp.Equal(ids, []workloads.BlockID{2}) {
		t.Fatalf("blocks %v a second late, want 2", ids)
	}
	step(t, e, 10*time.Second, BlockDurable{2}, BlockDurable{3})
	if !e.Idle() || e.NextWake() != NextNever || strings.Contains(e.Unfinished(), "to start") {
		t.Errorf("idle %v, next %v, %s", e.Idle(), e.NextWake(), e.Unfinished())
	}
}

// A reducer writes if all of its input has come, and none of it was lost with its host.
func TestJobFailures(t *testing.T) {
	const second = time.Second
	fl := func(id workloads.FlowID, src, dst topo.HostID) workloads.Flow {
		return workloads.Flow{ID: id, Src: src, Dst: dst, Size: 100}
	}
	arrive := func() CoflowArrived {
		ev := coflowOf(1, fl(0, 0, 2), fl(1, 0, 3), fl(2, 1, 2), fl(3, 1, 3))
		ev.Then = []workloads.Writer{thenWriter(2, 0, block(0, 2, 1), block(1, 2, 1)), thenWriter(3, second, block(2, 3, 1))}
		return ev
	}
	finish := func(ids ...workloads.FlowID) (evs []Event) {
		for _, id := range ids {
			evs = append(evs, TransferFinished{id})
		}
		return evs
	}
	const lost = "h1-00 is lost"
	for _, tt := range []struct {
		name    string
		steps   [][]Event // a second apart
		started []workloads.BlockID
		failed  map[int]string
	}{
		{"none", [][]Event{{arrive()}, finish(0, 1, 2, 3), {BlockDurable{0}}, {BlockDurable{1}}}, []workloads.BlockID{0, 1, 2}, map[int]string{}},
		{"a flow", [][]Event{{arrive()}, finish(0, 1, 3), {TransferFailed{2, "refused"}}, {}}, []workloads.BlockID{2},
			map[int]string{0: "its shuffle failed: refused", 1: "its shuffle failed: refused"}},
		{"a mapper", [][]Event{{arrive()}, finish(2, 3), {HostLost{0}}}, nil,
			map[int]string{0: "its shuffle failed: h0-00 is lost", 1: "its shuffle failed: h0-00 is lost", 2: "its shuffle failed: h0-00 is lost"}},
		{"a reducer in its shuffle", [][]Event{{arrive()}, finish(0, 2), {HostLost{2}}, append(finish(1, 3), HostBack{Host: 2}), {}}, []workloads.BlockID{2},
			map[int]string{0: "its shuffle failed: " + lost, 1: "its shuffle failed: " + lost}},
		{"a reducer with all of it", [][]Event{{arrive()}, append(finish(0, 1, 2, 3), HostLost{3}), {}}, []workloads.BlockID{0},
			map[int]string{2: "its shuffle failed: h1-01 is lost"}},
		{"a reducer that was to start", [][]Event{{arrive()}, finish(0, 1, 2, 3), {HostBack{Host: 3}}}, []workloads.BlockID{0}, map[int]string{2: "h1-01 started again"}},
		{"a reducer before it arrives", [][]Event{{HostLost{2}}, {arrive()}, finish(1, 3), {}}, []workloads.BlockID{2},
			map[int]string{0: "its shuffle failed: " + lost, 1: "its shuffle failed: " + lost}},
		{"all hosts before it arrives", [][]Event{{HostLost{0}, HostLost{1}}, {arrive()}}, nil,
			map[int]string{0: "its shuffle failed: h0-00 is lost", 1: "its shuffle failed: h0-00 is lost", 2: "its shuffle failed: h0-00 is lost"}},
	} {
		e := newEngine(t, testConfig(t, always(free), onHosts(0, 1, 2, 3)))
		var ids []workloads.BlockID
		failed := map[int]string{}
		for i, evs := range tt.steps {
			cmds := step(t, e, time.Duration(i)*second, evs...)
			starts, fails := writes(cmds)
			ids = append(ids, starts...)
			for id, why := range fails {
				if _, again := failed[id]; again {
					t.Errorf("%s: block %d fails again", tt.name, id)
				}
				failed[id] = why
			}
		}
		if d := cmp.Diff(tt.started, ids); d != "" {
			t.Errorf("%s: started (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(tt.failed, failed); d != "" {
			t.Errorf("%s: failed (-want +got):\n%s", tt.name, d)
		}
		if n := e.toStart(); n > 0 || len(e.coflows.active) > 0 {
			t.Errorf("%s: left %s", tt.name, e.Unfinished())
		}
	}
}

func TestJobErrors(t *testing.T) {
	flow := workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}
	for _, tt := range []struct {
		name, want string
		writer     workloads.Writer
		place      bool
	}{
		{"no blocks", "writer 3 has no blocks", workloads.Writer{ID: 3}, true},
		{"before its shuffle", "starts -1s after it", thenWriter(2, -time.Second, block(0, 2, 1)), true},
		{"no host", "on host 9", thenWriter(9, 0, block(0, 9, 1)), true},
		{"no placement", "no placement policy", thenWriter(2, 0, block(0, 2, 1)), false},
	} {
		cfg := testConfig(t, always(free), nil)
		if tt.place {
			cfg.Placement = onHosts(0)
		}
		ev := coflowOf(1, flow)
		ev.Then = []workloads.Writer{tt.writer}
		if _, err := newEngine(t, cfg).Step(0, ev); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// Writers of a job with a coflow arrive with it, others at their time; the run of a
// job ends after its last block and replays from its log.
func TestJobArrivalsAndReplay(t *testing.T) {
	w := smallWorkload()
	w.Coflows[1].Job = 2
	w.Writers[0].Job = 1 // without a coflow
	w.Jobs = []workloads.Job{{ID: 1, Arrival: time.Second}, {ID: 2, Arrival: 5 * time.Second}}
	late := thenWriter(1, 3*time.Second, block(7, 1, 1), block(8, 1, 1))
	late.Job = 2
	w.Writers = append(w.Writers, late)
	want := []Arrival{{0, CoflowArrived{Coflow: w.Coflows[0]}}, {time.Second, WriterArrived{w.Writers[0]}}, {5 * time.Second, CoflowArrived{w.Coflows[1], []workloads.Writer{late}}}}
	if d := cmp.Diff(want, Arrivals(w)); d != "" {
		t.Fatalf("arrivals (-want +got):\n%s", d)
	}
	cfg := testConfig(t, always(free), onHosts(1, 0, 2))
	var buf bytes.Buffer
	log := NewLog(&buf)
	var ids []workloads.BlockID
	observe := func(now time.Duration, evs []Event, cmds []Command) error {
		begun, _ := writes(cmds)
		ids = append(ids, begun...)
		return log.Observe(now, evs, cmds)
	}
	if err := Run(t.Context(), newEngine(t, cfg), &instant{}, Arrivals(w), observe); err != nil {
		t.Fatal(err)
	}
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]workloads.BlockID{0, 1, 7, 8}, ids); d != "" {
		t.Errorf("blocks (-want +got):\n%s", d)
	}
	got, err := Replay(t.Context(), bytes.NewReader(buf.Bytes()), newEngine(t, cfg))
	if err != nil || got.Differs != nil || got.Unfinished != "" {
		t.Errorf("replay: %+v, %v", got, err)
	}
}
