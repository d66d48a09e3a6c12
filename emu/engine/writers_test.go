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

// started returns the blocks whose pipelines commands start; failed returns those that fail,
// with the reason.
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

// Writers of a job with a coflow arrive with the coflow, others at their start time. The run
// of a job ends after its last block and replays from its log.
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
	check(t, Run(t.Context(), newEngine(t, cfg), &instant{}, Arrivals(w), observe))
	check(t, log.Flush())
	if d := cmp.Diff([]workloads.BlockID{0, 1, 7, 8}, ids); d != "" {
		t.Errorf("blocks (-want +got):\n%s", d)
	}
	got, err := Replay(t.Context(), bytes.NewReader(buf.Bytes()), newEngine(t, cfg))
	if err != nil || got.Differs != nil || got.Unfinished != "" {
		t.Errorf("replay: %+v, %v", got, err)
	}
}
