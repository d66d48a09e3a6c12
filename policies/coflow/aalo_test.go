package coflow

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/policies/coflow/coflowtest"
	"testbed/topo/units"
	"testbed/workloads"
)

const mib = units.Bytes(1 << 20)

// eightMillis returns a switch with the given number of hosts, on whose ports 1 MiB takes
// 8 ms.
// A coflow stays in a queue until it has sent more bytes than the threshold: at the
// threshold it stays, one byte more moves it to the next queue.
func TestAaloQueues(t *testing.T) {
	f := eightMillis(t, 8)
	for _, tt := range []struct {
		sent  units.Bytes
		was   int
		want  int
		watch int64
	}{
		{0, 0, 0, 10485760},
		{10485760, 0, 0, 10485760},
		{10485761, 0, 1, 104857600},
		{104857600, 1, 1, 104857600},
		{104857601, 1, 2, 1048576000},
		{10485760 * 100_000_000, 0, 8, 10485760 * 100_000_000},
		{10485760*100_000_000 + 1, 0, 9, 0},
		{1 << 62, 0, 9, 0},
		{5, 3, 3, 10485760 * 1000}, // never moves up
		{5, 99, 9, 0},              // there is no such queue: the last one
	} {
		v := view(f, []demandOf{{0, 4, 1}})
		v.Coflows[0].Sent, v.Coflows[0].Queue = tt.sent, tt.was
		var s policies.Schedule
		DefaultAalo().Decide(v, &s)
		if s.Queues[0] != tt.want || s.Watch[0] != tt.watch {
			t.Errorf("%d bytes sent, in queue %d: queue %d, watch %d, want %d and %d", tt.sent, tt.was, s.Queues[0], s.Watch[0], tt.want, tt.watch)
		}
	}
	one := DefaultAalo()
	one.Count = 1
	v := view(f, []demandOf{{0, 4, 1}})
	v.Coflows[0].Sent = 1 << 40
	var s policies.Schedule
	one.Decide(v, &s)
	if s.Queues[0] != 0 || s.Watch[0] != 0 {
		t.Errorf("with a single queue: queue %d, watch %d", s.Queues[0], s.Watch[0])
	}
}

func TestAaloOracleQueues(t *testing.T) {
	f := eightMillis(t, 8)
	v := view(f, []demandOf{{0, 4, 10 * mib}}, []demandOf{{0, 4, 10*mib + 1}}, []demandOf{{0, 4, 60 * mib}, {1, 4, 40*mib + 1}})
	for i := range v.Coflows {
		v.Coflows[i].Sent = 1 << 40 // is ignored
	}
	var s policies.Schedule
	AaloOracle(DefaultAalo()).Decide(v, &s)
	if d := cmp.Diff([]int{0, 1, 2}, s.Queues); d != "" {
		t.Error(d)
	}
}

// With FIFO by the time of entering, a coflow that arrived earlier but entered later
// waits.
func TestAaloFIFO(t *testing.T) {
	f := eightMillis(t, 8)
	v := view(f, []demandOf{{0, 4, 1}}, []demandOf{{0, 5, 1}}, []demandOf{{0, 6, 1}}, []demandOf{{0, 7, 1}})
	v.Now = time.Second
	for i, c := range []struct {
		sent  units.Bytes
		queue int
		since time.Duration
	}{{11 * mib, 0, 0}, {12 * mib, 1, 500}, {13 * mib, 1, 400}, {0, 0, 900}} {
		v.Coflows[i].Sent, v.Coflows[i].Queue, v.Coflows[i].Since = c.sent, c.queue, c.since
	}
	for by, want := range map[FIFO][]workloads.CoflowID{Entered: {4, 3, 2, 1}, Arrived: {4, 1, 2, 3}} {
		a := DefaultAalo()
		a.FIFO = by
		var s policies.Schedule
		a.Decide(v, &s)
		var got []workloads.CoflowID
		for _, step := range s.Steps {
			got = append(got, v.Coflows[step.Coflows[0]].ID)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("FIFO %d (-want +got):\n%s", by, d)
		}
	}
}

// Weights of ten queues decrease from 10 to 1. The queues with coflows, 0, 1 and 9, share
// the links.
func TestAaloWeights(t *testing.T) {
	f := eightMillis(t, 8)
	v := view(f, []demandOf{{0, 4, 1}}, []demandOf{{0, 5, 1}}, []demandOf{{0, 6, 1}}, []demandOf{{0, 7, 1}})
	v.Coflows[1].Sent, v.Coflows[2].Sent, v.Coflows[3].Queue = 11*mib, 12*mib, 9
	a := DefaultAalo()
	a.Weighted = true
	var s policies.Schedule
	a.Decide(v, &s)
	if d := cmp.Diff([]float64{10.0 / 20, 9.0 / 20, 1.0 / 20}, s.Budgets); d != "" {
		t.Error(d)
	}
	var got []string
	for _, step := range s.Steps {
		got = append(got, fmt.Sprint(step.Coflows, step.Rule, step.Budget))
	}
	want := []string{"[0] EqualSplit 1", "[1] EqualSplit 2", "[2] EqualSplit 2", "[3] EqualSplit 3", "[0] MaxMin 0", "[1] MaxMin 0", "[2] MaxMin 0", "[3] MaxMin 0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// tiny holds small cases with completion times computed by hand. A port carries 1 MB in
// 8 ms; port p sends as host p and receives as host 4+p.
var tiny = map[string][]job{
	"t1 shared sender":   {{0, []demandOf{{0, 5, 8 * mib}}}, {0, []demandOf{{0, 6, 4 * mib}}}},
	"t2 shared receiver": {{0, []demandOf{{0, 6, 8 * mib}}}, {0, []demandOf{{1, 6, 4 * mib}}}},
	"t3 preemption":      {{0, []demandOf{{0, 5, 100 * mib}}}, {100 * time.Millisecond, []demandOf{{0, 6, 10 * mib}}}},
	"t4 demotion":        {{0, []demandOf{{0, 5, 4000 * mib}}}, {20480 * time.Millisecond, []demandOf{{0, 6, 50 * mib}}}},
	"t5 two receivers": {{0, []demandOf{{0, 6, 4 * mib}, {1, 6, 4 * mib}, {0, 7, 2 * mib}, {1, 7, 2 * mib}}},
		{0, []demandOf{{0, 7, 6 * mib}}}},
	"t8 local": {{0, []demandOf{{0, 4, 8 * mib}}}, {0, []demandOf{{0, 5, 8 * mib}}}},
}

func TestAaloTiny(t *testing.T) {
	f := eightMillis(t, 8)
	events, synced, filled, oracle := DefaultAalo(), DefaultAalo(), DefaultAalo(), DefaultAalo()
	events.Interval, oracle.Interval, filled.Fill = 0, 0, true
	for _, tt := range []struct {
		name                           string
		events, synced, filled, oracle []time.Duration
	}{
		{"t1 shared sender", millis(64, 96), millis(64, 96), millis(64, 96), millis(64, 96)},
		{"t2 shared receiver", millis(64, 96), millis(64, 96), millis(64, 96), millis(64, 96)},
		// The coordinator sees the new coflow at 104 ms.
		{"t3 preemption", millis(880, 80), millis(880, 84), millis(880, 84), millis(880, 80)},
		{"t4 demotion", millis(32400, 400), millis(32400, 400), millis(32400, 400), millis(32400, 400)},
		// Until 32 ms all flows of the first coflow get half of their ports. Then its two
		// larger flows get half of port 2 each, and the second coflow gets the residual
		// half of port 0: 2 MB until 64 ms, the rest until 96. If queues change every 8 ms,
		// the first coflow has sent 10 MB at 48 ms and leaves its queue at 56, when the
		// second has sent 1.5 MB and needs 36 ms more. Its end is seen at 96 ms, and the
		// remaining 0.5 MB of the first take 4 ms more. With the oracle, the first is in
		// queue 1 from the start: its flow 1->2 runs next to the second in 32 ms. From 48 ms
		// its other three flows share port 0 and port 3 until 80, and 2 MB remain.
		{"t5 two receivers", millis(64, 96), millis(100, 92), millis(100, 92), millis(96, 48)},
		{"t8 local", millis(64, 128), millis(64, 128), millis(64, 128), millis(64, 128)},
	} {
		for what, c := range map[string]struct {
			p    policies.CoflowScheduler
			want []time.Duration
		}{"at events": {events, tt.events}, "every 8 ms": {synced, tt.synced}, "max-min": {filled, tt.filled}, "oracle": {AaloOracle(oracle), tt.oracle}} {
			l := &coflowtest.Loop{T: t, Fabric: f, Policy: c.p}
			if d := cmp.Diff(c.want, l.Run(tiny[tt.name]), about); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, what, d)
			}
		}
	}
}

func TestWatch(t *testing.T) {
	aalo, weighted, saath, total := DefaultAalo(), DefaultAalo(), DefaultSaath(), DefaultSaath()
	weighted.Weighted = true
	total.PerFlow = false
	aalo.First, weighted.First, saath.First, total.First = mib/2, mib/2, mib/2, mib/2
	aalo.Growth, weighted.Growth, saath.Growth, total.Growth = 2, 2, 2, 2
	coflowtest.CheckWatch(t, 6, 4*mib, map[string]policies.CoflowScheduler{
		"aalo": aalo, "weighted": weighted, "saath": saath, "saath by all flows": total, "oracle": AaloOracle(aalo)})
}
