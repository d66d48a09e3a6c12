package engine

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// batchFunc lets requests wait for 10 s, and places first those whose writers have
// the fewest blocks left.
type batchFunc struct {
	placeFunc
	order func([]policies.Request) []int
}

func (batchFunc) Every() time.Duration { return 10 * time.Second }

func (p batchFunc) Order(waiting []policies.Request) []int {
	if p.order != nil {
		return p.order(waiting)
	}
	out := make([]int, len(waiting))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(waiting[a].Left, waiting[b].Left) })
	return out
}

// started are the blocks whose pipelines begin, marked those that are marked.
func started(cmds []Command) (started, marked, failed []int) {
	for _, c := range cmds {
		switch c := c.(type) {
		case StartChain:
			started = append(started, int(c.Block.ID))
		case Mark:
			if c.Kind == MarkWrite {
				marked = append(marked, c.ID)
			} else {
				failed = append(failed, c.ID)
			}
		}
	}
	return started, marked, failed
}

const sec = time.Second

// Requests wait for the next multiple of the interval, and are placed in the policy's
// order, each seeing those before it. Their marks say how long they waited.
func TestRequestsWait(t *testing.T) {
	var seen [][]workloads.BlockID
	place := func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		var ids []workloads.BlockID
		for _, p := range v.Placements {
			ids = append(ids, p.Block)
		}
		seen = append(seen, ids)
		return onHosts(3, 2, 0)(v, b, rng)
	}
	e := newEngine(t, testConfig(t, always(free), batchFunc{placeFunc: place}))
	// A has 3 blocks left, B 1, C 2, D 1 but later.
	for _, x := range []struct {
		at time.Duration
		w  WriterArrived
	}{
		{1 * sec, writerOf(block(10, 0, 2), block(11, 0, 2), block(12, 0, 2))},
		{2 * sec, writerOf(block(30, 1, 2), block(31, 1, 2))},
		{2 * sec, writerOf(block(20, 1, 2))},
		{3 * sec, writerOf(block(40, 2, 2))},
	} {
		s, m, _ := started(step(t, e, x.at, x.w))
		if len(s)+len(m) > 0 {
			t.Errorf("at %v: pipelines %v, marks %v", x.at, s, m)
		}
		if got := e.NextWake(); got != 10*sec {
			t.Errorf("at %v: next wake %v, want 10s", x.at, got)
		}
	}
	if e.Idle() || !strings.Contains(e.Unfinished(), "4 block writes") {
		t.Errorf("Idle = %v, Unfinished = %q", e.Idle(), e.Unfinished())
	}
	if s, _, _ := started(step(t, e, 10*sec-1)); len(s) > 0 || len(seen) > 0 {
		t.Errorf("too early: %v", s)
	}
	cmds := step(t, e, 10*sec)
	s, m, _ := started(cmds)
	if d := gocmp.Diff([]int{20, 40, 30, 10}, s); d != "" || !slices.Equal(m, s) {
		t.Errorf("pipelines (-want +got):\n%s, marks %v", d, m)
	}
	var waited []time.Duration
	for _, c := range cmds {
		if c, ok := c.(Mark); ok {
			waited = append(waited, c.Waited)
		}
	}
	if d := gocmp.Diff([]time.Duration{8 * sec, 7 * sec, 8 * sec, 9 * sec}, waited); d != "" {
		t.Errorf("waited (-want +got):\n%s", d)
	}
	if d := gocmp.Diff([][]workloads.BlockID{nil, {20}, {20, 40}, {20, 40, 30}}, seen); d != "" {
		t.Errorf("placements seen (-want +got):\n%s", d)
	}
	if got := e.NextWake(); got != NextNever {
		t.Errorf("next wake %v, want never", got)
	}
	// A request at a multiple goes with those that wait for it; a late step takes none
	// that came after the multiple.
	seen = nil
	step(t, e, 15*sec, BlockDurable{10})
	if s, m, _ := started(step(t, e, 20*sec, BlockDurable{30})); !slices.Equal(s, []int{31, 11}) || !slices.Equal(m, s) {
		t.Errorf("at the multiple: pipelines %v, marks %v, want 31 and 11", s, m)
	}
	step(t, e, 25*sec, BlockDurable{11})
	seen = nil
	if s, _, _ := started(step(t, e, 30*sec+1, writerOf(block(50, 0, 2)))); !slices.Equal(s, []int{12}) || e.NextWake() != 40*sec {
		t.Errorf("late: pipelines %v, want 12 alone, next wake %v", s, e.NextWake())
	}
	step(t, e, 40*sec, BlockDurable{12}, BlockDurable{31}, BlockDurable{20}, BlockDurable{40})
	step(t, e, 41*sec, BlockDurable{50})
	if !e.Idle() {
		t.Errorf("not idle: %s", e.Unfinished())
	}
}

// Writers on a host that is lost, or was, wait no more; nothing of theirs is placed.
func TestLostClientWaitsNoMore(t *testing.T) {
	for name, ev := range map[string]Event{"lost": HostLost{1}, "back": HostBack{Host: 1}} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, testConfig(t, always(free), batchFunc{placeFunc: onHosts(3, 2, 0)}))
			step(t, e, 1, writerOf(block(1, 1, 2), block(2, 1, 2)), writerOf(block(3, 0, 2)))
			if s, _, failed := started(step(t, e, 2, ev)); len(s) > 0 || !slices.Equal(failed, []int{1, 2}) {
				t.Errorf("failed %v, started %v, want 1 and 2 failed", failed, s)
			}
			if s, _, _ := started(step(t, e, 10*sec)); !slices.Equal(s, []int{3}) {
				t.Errorf("started %v, want 3", s)
			}
			if step(t, e, 11*sec, BlockDurable{3}); !e.Idle() {
				t.Error(e.Unfinished())
			}
		})
	}
}

// Where hosts are lost and a block finds no place it fails, and its writer's next is
// tried at the same moment; where none is, that is an error that names the block.
func TestWaitingFindsNoPlace(t *testing.T) {
	e := newEngine(t, testConfig(t, always(free), batchFunc{placeFunc: onHosts(3, 2)}))
	step(t, e, 1, writerOf(block(1, 0, 2), block(2, 0, 1), block(3, 0, 1)), HostLost{3})
	s, m, failed := started(step(t, e, 10*sec))
	if !slices.Equal(s, []int{2}) || !slices.Equal(m, []int{2}) || !slices.Equal(failed, []int{1}) {
		t.Errorf("started %v, marked %v, failed %v, want 2, 2 and 1", s, m, failed)
	}
	e = newEngine(t, testConfig(t, always(free), batchFunc{placeFunc: func(*policies.View, workloads.Block, *rand.Rand) ([]topo.HostID, error) {
		return nil, errors.New("disks full")
	}}))
	step(t, e, 1, writerOf(block(1, 0, 2)))
	if _, err := e.Step(10 * sec); err == nil || !strings.Contains(err.Error(), "place block 1 of 1KB from h0-00: disks full") {
		t.Errorf("error %v", err)
	}
}

func TestWaitingRefuses(t *testing.T) {
	for name, order := range map[string]func([]policies.Request) []int{
		"none":     func([]policies.Request) []int { return nil },
		"twice":    func([]policies.Request) []int { return []int{0, 0} },
		"stranger": func([]policies.Request) []int { return []int{0, 2} },
		"negative": func([]policies.Request) []int { return []int{0, -1} },
		"many":     func([]policies.Request) []int { return []int{0, 1, 1} },
	} {
		e := newEngine(t, testConfig(t, always(free), batchFunc{onHosts(3, 2), order}))
		step(t, e, 1, writerOf(block(1, 0, 2)), writerOf(block(2, 0, 2)))
		if _, err := e.Step(10 * sec); err == nil || !strings.Contains(err.Error(), "of 2 requests: want each of them once") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	e := newEngine(t, testConfig(t, always(free), batchFunc{placeFunc: onHosts(3, 2)}))
	if _, err := e.Step(1, writerOf(block(1, 0, 2)), writerOf(block(1, 0, 2))); err == nil || !strings.Contains(err.Error(), "written already") {
		t.Errorf("the same block twice: %v", err)
	}
	e = newEngine(t, testConfig(t, always(free), batchFunc{placeFunc: onHosts(3, 2)}))
	step(t, e, 1, writerOf(block(1, 0, 2)))
	if _, err := e.Step(2, BlockDurable{1}); err == nil {
		t.Error("a block that waits is durable")
	}
	c := testConfig(t, always(free), onHosts(3))
	c.Zone = []int{1, 2, 3}
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "zones of 3 racks: want those of all 2") {
		t.Errorf("three zones: %v", err)
	}
}

// A placement policy sees the zones and the largest block that writers have.
func TestPlacerSeesZonesAndLargest(t *testing.T) {
	var views []policies.View
	c := testConfig(t, always(free), placeFunc(func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		views = append(views, *v)
		return onHosts(3)(v, b, rng)
	}))
	c.Zone = []int{4, 5}
	e := newEngine(t, c)
	big := block(2, 0, 1)
	big.Size = 7000
	step(t, e, 1, writerOf(block(1, 0, 1), big))
	step(t, e, 2, writerOf(block(3, 1, 1)))
	for _, v := range views {
		if v.LargestBlock != 7000 || !slices.Equal(v.Zone, []int{4, 5}) {
			t.Errorf("largest %v, zones %v, want 7 KB and 4, 5", v.LargestBlock, v.Zone)
		}
	}
	if len(views) != 2 {
		t.Errorf("asked %d times", len(views))
	}
}

// A host that is lost, and so reports no more, does not keep placements.
func TestLostHostKeepsNoPlacements(t *testing.T) {
	var seen []policies.Placement
	e := newEngine(t, testConfig(t, always(free), placeFunc(func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		seen = v.Placements
		return onHosts(2)(v, b, rng)
	})))
	step(t, e, 1, writerOf(block(1, 0, 1)))
	step(t, e, 2, HostLost{3})
	step(t, e, sec, Heartbeat{Host: 0}, Heartbeat{Host: 1}, Heartbeat{Host: 2})
	step(t, e, sec+1, writerOf(block(2, 1, 1)))
	if len(seen) != 0 {
		t.Errorf("placements %+v, want none", seen)
	}
}

// A run in which requests wait replays from its log.
func TestReplayOfWaiting(t *testing.T) {
	c := testConfig(t, always(free), batchFunc{placeFunc: onHosts(3, 2, 0)})
	e := newEngine(t, c)
	var log bytes.Buffer
	l := NewLog(&log)
	for _, x := range []struct {
		now time.Duration
		evs []Event
	}{
		{1, []Event{writerOf(block(1, 0, 2), block(2, 0, 2)), writerOf(block(3, 1, 2))}},
		{10*sec + 5, nil},
		{11 * sec, []Event{BlockDurable{1}, BlockDurable{3}}},
		{20 * sec, nil},
		{21 * sec, []Event{BlockDurable{2}}},
	} {
		if err := l.Observe(x.now, x.evs, step(t, e, x.now, x.evs...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil || !e.Idle() {
		t.Fatal(err, e.Unfinished())
	}
	if got, err := Replay(t.Context(), &log, newEngine(t, c)); err != nil || got.Steps != 5 || got.Differs != nil {
		t.Errorf("replay: %+v, %v", got, err)
	}
}
