package coflow

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

const mib = units.Bytes(1 << 20)

// eightMillis is a switch on whose ports 1 MiB takes 8 ms, with as many hosts.
func eightMillis(t testing.TB, hosts int) *topo.Fabric {
	return fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: 1048576000})
}

func millis(ms ...float64) (out []time.Duration) {
	for _, m := range ms {
		out = append(out, time.Duration(m*1e6))
	}
	return out
}

// about compares times but for the nanosecond to which events are rounded up.
var about = cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond })

// A coflow that has sent so much is in the queue whose end that has not passed: at
// the end exactly it still is, and one byte more moves it on.
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
		{5, 3, 3, 10485760 * 1000}, // never up
		{5, 99, 9, 0},              // no such queue: the last
	} {
		v := view(f, []demandOf{{0, 4, 1}})
		v.Coflows[0].Sent, v.Coflows[0].Queue = tt.sent, tt.was
		var s policies.Schedule
		DefaultAalo().Schedule(v, &s)
		if s.Queues[0] != tt.want || s.Watch[0] != tt.watch {
			t.Errorf("%d bytes sent, in queue %d: queue %d, watch %d, want %d and %d", tt.sent, tt.was, s.Queues[0], s.Watch[0], tt.want, tt.watch)
		}
	}
	one := DefaultAalo()
	one.Count = 1
	v := view(f, []demandOf{{0, 4, 1}})
	v.Coflows[0].Sent = 1 << 40
	var s policies.Schedule
	one.Schedule(v, &s)
	if s.Queues[0] != 0 || s.Watch[0] != 0 {
		t.Errorf("of one queue: queue %d, watch %d", s.Queues[0], s.Watch[0])
	}
}

func TestAaloOracleQueues(t *testing.T) {
	f := eightMillis(t, 8)
	v := view(f, []demandOf{{0, 4, 10 * mib}}, []demandOf{{0, 4, 10*mib + 1}}, []demandOf{{0, 4, 60 * mib}, {1, 4, 40*mib + 1}})
	for i := range v.Coflows {
		v.Coflows[i].Sent = 1 << 40 // does not count
	}
	var s policies.Schedule
	AaloOracle(DefaultAalo()).Schedule(v, &s)
	if d := cmp.Diff([]int{0, 1, 2}, s.Queues); d != "" {
		t.Error(d)
	}
}

// Where the first in is by entering, a coflow that arrived earlier but entered
// later waits.
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
		a.Schedule(v, &s)
		var got []workloads.CoflowID
		for _, step := range s.Steps {
			got = append(got, v.Coflows[step.Coflows[0]].ID)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("FIFO %d (-want +got):\n%s", by, d)
		}
	}
}

// Weights of ten queues fall from 10 to 1; those of the queues with coflows, here 0,
// 1 and 9, share the links.
func TestAaloWeights(t *testing.T) {
	f := eightMillis(t, 8)
	v := view(f, []demandOf{{0, 4, 1}}, []demandOf{{0, 5, 1}}, []demandOf{{0, 6, 1}}, []demandOf{{0, 7, 1}})
	v.Coflows[1].Sent, v.Coflows[2].Sent, v.Coflows[3].Queue = 11*mib, 12*mib, 9
	a := DefaultAalo()
	a.Weighted = true
	var s policies.Schedule
	a.Schedule(v, &s)
	if d := cmp.Diff([]float64{10.0 / 20, 9.0 / 20, 1.0 / 20}, s.Budgets); d != "" {
		t.Error(d)
	}
	var got []string
	for _, step := range s.Steps {
		got = append(got, fmt.Sprint(step.Coflows, step.Rule, step.Budget))
	}
	want := []string{"[0] Even 1", "[1] Even 2", "[2] Even 2", "[3] Even 3", "[0] MaxMin 0", "[1] MaxMin 0", "[2] MaxMin 0", "[3] MaxMin 0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// tiny are small cases whose completion times were worked out by hand, on ports
// that take 8 ms for 1 MB: port p sends as host p and receives as host 4+p.
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
		// The new coflow is seen at 104 ms.
		{"t3 preemption", millis(880, 80), millis(880, 84), millis(880, 84), millis(880, 80)},
		{"t4 demotion", millis(32400, 400), millis(32400, 400), millis(32400, 400), millis(32400, 400)},
		// To 32 ms all flows of the first have half their ports. Then its two larger
		// flows have half of port 2 each, and the second coflow the half that is left
		// of port 0: 2 MB to 64 ms, the rest to 96. Where queues change every 8 ms, the
		// first has sent 10 MB at 48 ms and, one byte later, leaves its queue at 56: the
		// second has sent 1.5 MB and needs 36 ms more. That it ends is seen at 96 ms, and
		// the 0.5 MB left of the first take 4 more. The oracle has the first in queue 1
		// from the start: beside the second its flow 1->2 passes in 32 ms; from 48 ms its
		// other three halve port 0 and port 3 until 80; then 2 MB are left.
		{"t5 two receivers", millis(64, 96), millis(100, 92), millis(100, 92), millis(96, 48)},
		{"t8 local", millis(64, 128), millis(64, 128), millis(64, 128), millis(64, 128)},
	} {
		for what, c := range map[string]struct {
			p    policies.Scheduler
			want []time.Duration
		}{"at events": {events, tt.events}, "every 8 ms": {synced, tt.synced}, "max-min": {filled, tt.filled}, "oracle": {AaloOracle(oracle), tt.oracle}} {
			l := &loop{t: t, fabric: f, policy: c.p}
			if d := cmp.Diff(c.want, l.run(tiny[tt.name]), about); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, what, d)
			}
		}
	}
}

// Decisions that Watch calls needless are: without them every coflow ends at the
// same time.
func TestWatchLeavesNothingOut(t *testing.T) {
	const hosts = 6
	f := eightMillis(t, hosts)
	aalo, weighted, saath, total, sim := DefaultAalo(), DefaultAalo(), DefaultSaath(), DefaultSaath(), DefaultPhilaeSim()
	weighted.Weighted = true
	total.PerFlow = false
	aalo.First, weighted.First, saath.First, total.First, sim.First = mib/2, mib/2, mib/2, mib/2, mib
	aalo.Growth, weighted.Growth, saath.Growth, total.Growth, sim.Growth = 2, 2, 2, 2, 2
	sim.Thin, sim.Slots, sim.Split, sim.Impact = 1, 4, 2, 2
	blind := map[string]policies.Scheduler{"aalo": aalo, "weighted": weighted, "saath": saath, "saath by all flows": total, "oracle": AaloOracle(aalo), "philae-sim": sim}
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, hosts)
		for name, p := range blind {
			always, seldom := loop{t: t, fabric: f, policy: p}, loop{t: t, fabric: f, policy: p, skip: true}
			want, got := always.run(jobs), seldom.run(jobs)
			if d := cmp.Diff(want, got, about); d != "" {
				t.Errorf("%s (-always +seldom):\n%s", name, d)
			}
			if seldom.decisions > always.decisions {
				t.Errorf("%s: %d decisions where %d were needed", name, seldom.decisions, always.decisions)
			}
		}
	})
}

func drawJobs(t *rapid.T, hosts int) (jobs []job) {
	host := rapid.IntRange(0, hosts-1)
	for range rapid.IntRange(1, 6).Draw(t, "coflows") {
		j := job{at: time.Duration(rapid.IntRange(0, 60).Draw(t, "ms")) * time.Millisecond}
		for range rapid.IntRange(1, 5).Draw(t, "flows") {
			src, dst := host.Draw(t, "src"), host.Draw(t, "dst")
			if src == dst {
				dst = (dst + 1) % hosts
			}
			j.flows = append(j.flows, demandOf{topo.HostID(src), topo.HostID(dst), units.Bytes(rapid.Int64Range(1, 4<<20).Draw(t, "bytes"))})
		}
		jobs = append(jobs, j)
	}
	return jobs
}
