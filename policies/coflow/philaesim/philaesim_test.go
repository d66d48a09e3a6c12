package philaesim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/coflow/coflowtest"
	"testbed/policies/coflow/ports"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

const mib = units.Bytes(1 << 20)

// Short names of package coflowtest.
type (
	demandOf = coflowtest.Flow
	job      = coflowtest.Job
)

var (
	eightMillis, millis, about, view = coflowtest.EightMillis, coflowtest.Millis, coflowtest.About, coflowtest.View
	all, hosts, steps                = coflowtest.All, coflowtest.Hosts, coflowtest.Steps
)

func TestNoSizes(t *testing.T) {
	blind := map[string]policies.CoflowScheduler{"default": Default()}
	for impact := range 7 {
		p := Default()
		p.Impact = impact
		p.Thin, p.Rule, p.Fraction, p.First, p.Slots = 0, coflow.OfFlows, 0.3, 3, 4 // test clusters have few flows
		blind[fmt.Sprint("impact ", impact)] = p
	}
	coflowtest.CheckNoSizes(t, blind)
}

func TestWatchSkips(t *testing.T) {
	sim := Default()
	sim.First, sim.Growth, sim.Thin, sim.Slots, sim.Split, sim.Impact = mib, 2, 1, 4, 2, 2
	contention, strict := sim, sim
	contention.Impact, contention.Slots, strict.Slots = 6, 0, 0
	// Few hosts, so that coflows compete, and flows of up to 64 cycles.
	coflowtest.CheckWatch(t, 4, 64*mib, map[string]policies.CoflowScheduler{"turns": sim, "remaining": strict, "contention": contention})
}

// Strict priority starves; turns do not.
func TestStarvation(t *testing.T) {
	for slots, want := range map[int]bool{0: true, 32: false} {
		p := Default()
		p.Impact, p.First, p.Slots = 1, 4*mib, slots
		if got := coflowtest.Starves(t, p); got != want {
			t.Errorf("%d slots: starves %v, want %v", slots, got, want)
		}
	}
}

func TestPilotChoice(t *testing.T) {
	f := eightMillis(t, 12)
	// Four senders, three receivers: hosts 0 to 3 to hosts 6 to 8.
	square := all(hosts(0, 3), hosts(6, 8), mib)
	for _, tt := range []struct {
		name    string
		number  int
		busy    map[topo.LinkID]int
		coflows [][]demandOf
		want    []string
	}{
		// The order of senders is 3 2 1 0, then 0 1 2 3, 2 1 3 0, 1 0 3 2 and 2 3 0 1, that of
		// receivers 8 7 6, then 6 7 8, 7 8 6, 6 8 7 and 7 8 6; the last time 2->7 already is a
		// pilot flow.
		{"idle ports", 5, nil, [][]demandOf{square}, []string{"3->8", "0->6", "2->7", "1->6", "2->8"}},
		{"busy sender and receiver", 2, map[topo.LinkID]int{f.HostUp(0): 2, f.HostUp(1): 1, f.HostDown(6): 1}, [][]demandOf{square}, []string{"3->8", "2->7"}},
		// Only one flow starts at the least busy port, and it goes to the busiest port. The
		// smallest sum of ranks is 1 + 0.
		{"no flow between the least busy", 1, map[topo.LinkID]int{f.HostUp(0): 1, f.HostDown(8): 3},
			[][]demandOf{{{1, 8, 1}, {0, 6, 1}, {0, 7, 1}, {0, 8, 1}, {0, 6, 1}, {0, 7, 1}, {0, 8, 1}, {0, 6, 1}}}, []string{"0->7"}},
		// The second coflow sees the pilot flow of the first.
		{"two new ones", 1, nil, [][]demandOf{square, square}, []string{"3->8", "2->7"}},
		// All flows, in turn. Senders 1 0, 0 1, 1 0, 0 1, 1 0, 0 1, receivers 8 7 6, 6 7 8,
		// 7 8 6, 6 8 7, 7 6 8.
		{"thin", 1, nil, [][]demandOf{all(hosts(0, 1), hosts(6, 8), mib)}, []string{"1->8", "0->6", "1->7", "0->8", "1->6", "0->7"}},
	} {
		p := Default()
		p.Rule, p.Number = coflow.Constant, tt.number
		v := coflowtest.Sampled(coflowtest.Shown(view(f, tt.coflows...), tt.coflows...), tt.busy)
		if d := cmp.Diff(tt.want, coflowtest.PilotsOf(v, p)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// The coflow of coflowtest.Worked has pilot flows of 2 MiB; in a cycle of 8 ms a flow sends 1 MiB.
// Sender 0 has 3 of its 4 flows left, sender 1 all, receiver 4 both, and the others one
// each. There are 3 coflows at sender 0, 2 at receiver 4, and only this one elsewhere.
func TestImpact(t *testing.T) {
	v := coflowtest.Worked(t)
	c := &v.Coflows[0]
	for i := range c.Links {
		if l := c.Links[i].Link; l != v.Fabric.HostUp(1) && l != v.Fabric.HostDown(4) && l != v.Fabric.HostUp(0) {
			c.Links[i].Flows = 1
		} else if l == v.Fabric.HostUp(0) {
			c.Links[i].Flows = 3
		}
		c.Links[i].Begun = c.Links[i].Flows < 4 && c.Links[i].Link != v.Fabric.HostDown(4)
	}
	var s policies.Schedule
	crowd := ports.Coflows(v, &s)
	const l, after = int64(2 << 20), int64(1 << 20) // the simulator adds a byte at a port where none has been sent
	for impact, want := range map[int]int64{
		0: 5 * after,
		1: 8 * l,
		2: l, // 8·2 less 14 MiB
		4: 5 * l,
		5: 2 * (l + 1), // receiver 4; sender 0 has 3·after, which is less
		6: 3*after + (l + 1) + 2*(l+1) + 3*after,
	} {
		p := Default()
		p.Impact = impact
		c.Sent = 14 * mib
		if got := p.impact(v, c, 5, crowd); got != want {
			t.Errorf("impact %d is %d, want %d", impact, got, want)
		}
	}
	p := Default()
	p.Impact, c.Sent = 2, 17*mib
	if got := p.impact(v, c, 5, crowd); got != 1 {
		t.Errorf("negative rest: %d, want 1", got)
	}
	p.Impact, c.Sent, c.PilotSent = 6, 0, math.MaxInt64-1
	if got := p.impact(v, c, 5, crowd); got != math.MaxInt64 {
		t.Errorf("overflow: %d", got)
	}
}

// Coflow 2 moves up when less than 10 MiB of its 16 MiB remain.
func TestWatch(t *testing.T) {
	v := coflowtest.Worked(t)
	p := Default()
	p.Impact = 2
	c := &v.Coflows[0]
	c.Sent = 2 * mib
	var s policies.Schedule
	p.New().Decide(v, &s)
	if d := cmp.Diff([]int64{int64(6 * mib), 0, 0}, s.Watch); d != "" {
		t.Error(d)
	}
	for more, queue := range []int{1, 0} {
		c.Sent = 6*mib + units.Bytes(more)
		s.Reset()
		p.New().Decide(v, &s)
		if got := s.Queues[0] - 1; got != queue {
			t.Errorf("%d bytes sent: queue %d, want %d", c.Sent, got, queue)
		}
	}
}

// Queues 1 to 4 have coflows. With 256 slots and split 10 they get 256, 25, 2 and 0 cycles,
// and then a new round begins.
func TestSlots(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), 1)
	v := view(f, wide, wide, wide, wide)
	p := Default()
	p.Impact = 1
	limit := units.Bytes(10 << 20)
	for i := range v.Coflows {
		limit *= 10
		c := &v.Coflows[i]
		c.Pilots, c.PilotSent, c.Queue = 1, limit/8/5, 2+i
	}
	start := 3 * p.Cycle
	turns := map[int]int{} // cycles of each queue
	var order []int
	x := p.New()
	for cycle := range 2 * (256 + 25 + 2) {
		v.Now = start + time.Duration(cycle)*p.Cycle
		var s policies.Schedule
		x.Decide(v, &s)
		if d := cmp.Diff([]int{2, 3, 4, 5}, s.Queues); d != "" {
			t.Fatal(d)
		}
		// Steps of the queue whose turn it is, then of all queues.
		if d := cmp.Diff([]int{0, 1, 2, 3}, s.Steps[1].Coflows); d != "" || len(s.Steps) != 2 {
			t.Fatal(steps(&s))
		}
		turn := s.Steps[0].Coflows[0]
		turns[turn]++
		if len(order) == 0 || order[len(order)-1] != turn {
			order = append(order, turn)
		}
		in := cycle % 283
		end := 283
		if in < 256 {
			end = 256
		} else if in < 281 {
			end = 281
		}
		if want := v.Now + time.Duration(end-in)*p.Cycle; s.Wake != want {
			t.Fatalf("cycle %d: wake at %v, want %v", cycle, s.Wake, want)
		}
	}
	if d := cmp.Diff(map[int]int{0: 512, 1: 50, 2: 4}, turns); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{0, 1, 2, 0, 1, 2}, order); d != "" {
		t.Error(d)
	}
	p.Slots = 0
	var s policies.Schedule
	p.New().Decide(v, &s)
	if s.Wake != 0 || len(s.Steps) != 1 {
		t.Errorf("without slots: wake at %v, steps %v", s.Wake, steps(&s))
	}
}

// Thin coflows by contention among themselves, then pilot flows, then the queues by time of
// entering.
func TestSteps(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), 1)
	v := view(f, []demandOf{{0, 8, 1}, {1, 9, 1}}, []demandOf{{0, 10, 1}}, []demandOf{{1, 11, 1}}, []demandOf{{2, 8, 1}}, wide, wide, wide)
	for i := 4; i < 7; i++ {
		v.Coflows[i].Pilots = 1
	}
	for i := range 4 {
		v.Coflows[i].Pilots, v.Coflows[i].PilotsLeft = v.Coflows[i].Width, v.Coflows[i].Width
	}
	v.Coflows[4].PilotsLeft = 1
	v.Coflows[5].PilotSent, v.Coflows[5].Queue, v.Coflows[5].Since = 10, 1, 9
	v.Coflows[6].PilotSent, v.Coflows[6].Queue, v.Coflows[6].Since = 10, 1, 8
	p := Default()
	p.Slots = 0
	var s policies.Schedule
	p.New().Decide(v, &s)
	want := []string{"[1 2 3 0] chosen ExclusivePorts 0", "[4] chosen ExclusivePorts 0", "[6 5] all ExclusivePorts 0"}
	if d := cmp.Diff(want, steps(&s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A sampled coflow sends only its pilot flows, even if ports are idle: eight flows of 1 MiB
// from two senders take 8 ms for the pilot flow and 32 ms for the other seven.
func TestCompletionTime(t *testing.T) {
	f := eightMillis(t, 16)
	l := &coflowtest.Loop{T: t, Fabric: f, Policy: Default()}
	if d := cmp.Diff(millis(40), l.Run([]job{{0, all(hosts(0, 1), hosts(4, 7), mib)}}), about); d != "" {
		t.Error(d)
	}
}

// The two flows of a thin coflow end in the same cycle. The first to become a pilot flow,
// 0->10, no longer counts; the other, 1->11, counts forever, so the next coflow's pilot flow
// is 0->10. If both or neither counted, it would be 1->11, the last of each.
func TestLastPilot(t *testing.T) {
	f := eightMillis(t, 16)
	var pilots []workloads.FlowID
	l := &coflowtest.Loop{T: t, Fabric: f, Policy: Default(), Observe: func(_ *policies.CoflowView, s *policies.Schedule) { pilots = append(pilots, s.Pilots...) }}
	l.Run([]job{{0, []demandOf{{1, 11, mib}, {0, 10, mib}}}, {16 * time.Millisecond, all(hosts(0, 1), hosts(8, 11), mib)}})
	if d := cmp.Diff([]workloads.FlowID{100001, 100000, 200002}, pilots); d != "" {
		t.Errorf("pilots (-want +got):\n%s", d)
	}
}

// Thin coflows 1 and 2 contend at host 0, coflow 3 with none: the order is 3, 1, 2. When 1
// has ended, there is no contention and 3 stays before 2.
func TestThinOrder(t *testing.T) {
	f := eightMillis(t, 16)
	var got []string
	l := &coflowtest.Loop{T: t, Fabric: f, Policy: Default(), Observe: func(_ *policies.CoflowView, s *policies.Schedule) { got = append(got, steps(s)...) }}
	cct := l.Run([]job{{0, []demandOf{{0, 12, mib}}}, {0, []demandOf{{0, 8, mib}}}, {0, []demandOf{{1, 9, 2 * mib}}}})
	want := []string{"[2 0 1] chosen ExclusivePorts 0", "[1 0] chosen ExclusivePorts 0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(millis(8, 16, 16), cct, about); d != "" {
		t.Error(d)
	}
}

// Queue 0 has coflow 3. In the same cycle, coflow 2 enters after its pilot flows and coflow
// 1 from queue 1, because 5 MiB of its 80 remain: coflow 2 goes first.
func TestQueueOrder(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), mib)
	v := view(f, wide, wide, wide)
	for i, l := range []units.Bytes{10 * mib, mib, mib} {
		c := &v.Coflows[i]
		c.Pilots, c.PilotSent, c.Sent = 1, l, l
		c.Queue = []int{2, 0, 1}[i]
	}
	v.Coflows[0].Sent = 75 * mib
	p := Default()
	p.Impact, p.Slots = 2, 0
	x := p.New()
	var s policies.Schedule
	x.Decide(v, &s)
	want := []string{"[2 1 0] all ExclusivePorts 0"}
	if d := cmp.Diff(want, steps(&s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// The order stays the same although all entered at the same time.
	for i := range v.Coflows {
		v.Coflows[i].Queue = 1
	}
	s.Reset()
	x.Decide(v, &s)
	if d := cmp.Diff(want, steps(&s)); d != "" {
		t.Errorf("later (-want +got):\n%s", d)
	}
}

// The metric is l·c for two coflows at the same ports, with l = 20 MiB. Their pilot flows
// end together. The first contends with the other among the sampled ones, 20 MiB, and enters
// queue 1. The second then contends with none and enters queue 0. Each is alone in its
// queue, so the first moves to queue 0 behind the second. A cycle later they contend, and
// both move to queue 1, where they contend again.
func TestContentionMoves(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), 20*mib)
	v := view(f, wide, wide)
	for i := range v.Coflows {
		v.Coflows[i].Pilots, v.Coflows[i].PilotSent = 1, 20*mib
	}
	p := Default()
	p.Impact, p.Slots = 4, 0
	x := p.New()
	for cycle, want := range []struct {
		queues []int
		wake   time.Duration
	}{{[]int{1, 1}, p.Cycle}, {[]int{2, 2}, 2 * p.Cycle}, {[]int{2, 2}, 0}} {
		v.Now = time.Duration(cycle) * p.Cycle
		var s policies.Schedule
		x.Decide(v, &s)
		if d := cmp.Diff(want.queues, s.Queues); d != "" || s.Wake != want.wake {
			t.Errorf("cycle %d: wake at %v, want %v; queues %s", cycle, s.Wake, want.wake, d)
		}
		if d := cmp.Diff([]string{"[1 0] all ExclusivePorts 0"}, steps(&s)); d != "" {
			t.Errorf("cycle %d (-want +got):\n%s", cycle, d)
		}
		for i := range v.Coflows {
			v.Coflows[i].Queue = s.Queues[i]
		}
	}
}

// Turns depend on the queues of the previous cycle: in the cycle in which the first coflow
// enters a queue there are no turns, and the next cycle has its own decision.
func TestFirstDeal(t *testing.T) {
	f := eightMillis(t, 16)
	v := view(f, all(hosts(0, 1), hosts(4, 7), mib))
	v.Coflows[0].Pilots, v.Coflows[0].PilotSent = 1, mib
	p := Default()
	p.Impact = 1
	x := p.New().(*instance)
	var s policies.Schedule
	x.Decide(v, &s)
	if len(x.turns) != 0 || s.Wake != p.Cycle || len(s.Steps) != 1 {
		t.Errorf("turns %v, wake %v, steps %v: want no deal, and one in the next cycle", x.turns, s.Wake, steps(&s))
	}
	v.Now, v.Coflows[0].Queue = p.Cycle, s.Queues[0]
	s.Reset()
	x.Decide(v, &s)
	want := []int{256, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if d := cmp.Diff(want, x.turns); d != "" || x.began != p.Cycle || s.Wake != 257*p.Cycle || len(s.Steps) != 2 {
		t.Errorf("began %v, wake %v, steps %v, turns %s", x.began, s.Wake, steps(&s), d)
	}
}

// D decreases when a coflow begins at one more port, which may happen with its next bytes. A
// decision is thus needed whenever it has sent, unless it is in the first queue or has begun
// at all ports.
func TestBegins(t *testing.T) {
	v := coflowtest.Worked(t)
	c := &v.Coflows[0]
	p := Default()
	for _, tt := range []struct {
		first units.Bytes
		begun bool
		queue int
		watch int64
	}{
		// The coflow has 6 ports; host 0's has 3 coflows and host 4's has 2: 9 times 2 MiB
		// and a byte, or 9 times 1 MiB if it has begun.
		{10 * mib, false, 1, int64(7 * mib)},
		{10 * mib, true, 0, 0},
		{mib, true, 1, 0},
		{1 << 40, false, 0, 0},
	} {
		for i := range c.Links {
			c.Links[i].Begun = tt.begun
		}
		p.First = tt.first
		var s policies.Schedule
		p.New().Decide(v, &s)
		if s.Queues[0]-1 != tt.queue || s.Watch[0] != tt.watch {
			t.Errorf("%+v: queue %d, watch %d", tt, s.Queues[0]-1, s.Watch[0])
		}
	}
}

// Flows of a thin coflow that arrive after the choice of its pilot flows are sent too.
func TestLateFlow(t *testing.T) {
	v := view(eightMillis(t, 16), []demandOf{{0, 4, 1}, {0, 5, 1}})
	c := &v.Coflows[0]
	c.Pilots, c.PilotsLeft = 1, 1
	var s policies.Schedule
	Default().New().Decide(v, &s)
	if d := cmp.Diff([]string{"[0] chosen ExclusivePorts 0", "[0] others ExclusivePorts 0"}, steps(&s)); d != "" {
		t.Error(d)
	}
}
