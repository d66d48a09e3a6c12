package coflow

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// The coflow of worked, with pilots of 2 MiB; in a cycle of 8 ms a flow sends 1 MiB.
// Sender 0 still has 3 of its 4 flows, sender 1 all of them, receiver 4 both, the
// others one each. Flows at a port are those of 3 coflows at sender 0, of 2 at receiver
// 4, of its own at the rest.
func TestPhilaeSimImpact(t *testing.T) {
	v := worked(t)
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
	crowd := crowds(v, &s)
	const l, after = int64(2 << 20), int64(1 << 20) // where nothing has been sent, the simulator has a byte more
	for impact, want := range map[int]int64{
		0: 5 * after,
		1: 8 * l,
		2: l, // 8·2 less 14 MiB
		4: 5 * l,
		5: 2 * (l + 1), // receiver 4; sender 0 comes to 3·after, which is less
		6: 3*after + (l + 1) + 2*(l+1) + 3*after,
	} {
		p := DefaultPhilaeSim()
		p.Impact = impact
		c.Sent = 14 * mib
		if got := p.impact(v, c, 5, crowd); got != want {
			t.Errorf("impact %d is %d, want %d", impact, got, want)
		}
	}
	p := DefaultPhilaeSim()
	p.Impact, c.Sent = 2, 17*mib
	if got := p.impact(v, c, 5, crowd); got != 1 {
		t.Errorf("less than nothing left: %d, want 1", got)
	}
	p.Impact, c.Sent, c.PilotSent = 6, 0, math.MaxInt64-1
	if got := p.impact(v, c, 5, crowd); got != math.MaxInt64 {
		t.Errorf("more than there is: %d", got)
	}
}

// Coflow 2 moves up when it has sent so much that less than 10 MiB of 16 are left.
func TestPhilaeSimWatch(t *testing.T) {
	v := worked(t)
	p := DefaultPhilaeSim()
	p.Impact = 2
	c := &v.Coflows[0]
	c.Sent = 2 * mib
	var s policies.Schedule
	p.Schedule(v, &s)
	if d := cmp.Diff([]int64{int64(6 * mib), 0, 0}, s.Watch); d != "" {
		t.Error(d)
	}
	for more, queue := range []int{1, 0} {
		c.Sent = 6*mib + units.Bytes(more)
		s.Reset()
		p.Schedule(v, &s)
		if got := s.Queues[0] - 1; got != queue {
			t.Errorf("%d bytes sent: queue %d, want %d", c.Sent, got, queue)
		}
	}
}

// Queues 1 to 4 have coflows: of 256 slots and a split by ten they get 256, 25,
// 2 and 0 cycles, and then it begins again.
func TestPhilaeSimSlots(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), 1)
	v := view(f, wide, wide, wide, wide)
	p := DefaultPhilaeSim()
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
	for cycle := range 2 * (256 + 25 + 2) {
		v.Now = start + time.Duration(cycle)*p.Cycle
		var s policies.Schedule
		p.Schedule(v, &s)
		if d := cmp.Diff([]int{2, 3, 4, 5}, s.Queues); d != "" {
			t.Fatal(d)
		}
		if s.Memory != nil {
			v.Memory = append([]int64(nil), s.Memory...)
		}
		// Of the queue whose turn it is, then of all.
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
	p.Slots, v.Memory = 0, nil
	var s policies.Schedule
	p.Schedule(v, &s)
	if s.Wake != 0 || s.Memory[0] != 0 || len(s.Steps) != 1 {
		t.Errorf("without slots: wake at %v, memory %v, steps %v", s.Wake, s.Memory, steps(&s))
	}
}

// Thin coflows by contention among themselves, then pilots, then the queues in order
// of entering.
func TestPhilaeSimSteps(t *testing.T) {
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
	p := DefaultPhilaeSim()
	p.Slots = 0
	var s policies.Schedule
	p.Schedule(v, &s)
	want := []string{"[1 2 3 0] chosen Whole 0", "[4] chosen Whole 0", "[6 5] all Whole 0"}
	if d := cmp.Diff(want, steps(&s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Flows of a coflow that is sampled wait, but for pilots, though ports are idle: eight
// flows of 1 MiB from two senders take 8 ms for the pilot and 32 for the other seven.
func TestPhilaeSimLife(t *testing.T) {
	f := eightMillis(t, 16)
	l := &loop{t: t, fabric: f, policy: DefaultPhilaeSim()}
	if d := cmp.Diff(millis(40), l.run([]job{{0, all(hosts(0, 1), hosts(4, 7), mib)}}), about); d != "" {
		t.Error(d)
	}
}

// A thin coflow's two flows end in the same cycle. The first of them to become a pilot,
// 0->10, counts no more; the other, 1->11, does for good, so that the next coflow's pilot
// is 0->10. If both still counted, or neither, it would be 1->11, the last of each.
func TestPhilaeSimLastPilot(t *testing.T) {
	f := eightMillis(t, 16)
	var pilots []workloads.FlowID
	l := &loop{t: t, fabric: f, policy: DefaultPhilaeSim(), observe: func(_ *policies.View, s *policies.Schedule) { pilots = append(pilots, s.Pilots...) }}
	l.run([]job{{0, []demandOf{{1, 11, mib}, {0, 10, mib}}}, {16 * time.Millisecond, all(hosts(0, 1), hosts(8, 11), mib)}})
	if d := cmp.Diff([]workloads.FlowID{1001, 1000, 2002}, pilots); d != "" {
		t.Errorf("pilots (-want +got):\n%s", d)
	}
}

// Of thin coflows 1, 2 and 3 the first two meet at host 0: the order is 3, 1, 2. When 1
// has ended none meets another, and 3 stays before 2.
func TestPhilaeSimThinOrder(t *testing.T) {
	f := eightMillis(t, 16)
	var got []string
	l := &loop{t: t, fabric: f, policy: DefaultPhilaeSim(), observe: func(_ *policies.View, s *policies.Schedule) { got = append(got, steps(s)...) }}
	cct := l.run([]job{{0, []demandOf{{0, 12, mib}}}, {0, []demandOf{{0, 8, mib}}}, {0, []demandOf{{1, 9, 2 * mib}}}})
	want := []string{"[2 0 1] chosen Whole 0", "[1 0] chosen Whole 0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(millis(8, 16, 16), cct, about); d != "" {
		t.Error(d)
	}
}

// Queue 0 has coflow 3. In the same cycle coflow 2 comes from its pilots and coflow 1
// from queue 1, as 5 MiB of 80 are left of it: those with pilots go first.
func TestPhilaeSimQueueOrder(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), mib)
	v := view(f, wide, wide, wide)
	for i, l := range []units.Bytes{10 * mib, mib, mib} {
		c := &v.Coflows[i]
		c.Pilots, c.PilotSent, c.Sent = 1, l, l
		c.Queue = []int{2, 0, 1}[i]
	}
	v.Coflows[0].Sent = 75 * mib
	p := DefaultPhilaeSim()
	p.Impact, p.Slots = 2, 0
	var s policies.Schedule
	p.Schedule(v, &s)
	want := []string{"[2 1 0] all Whole 0"}
	if d := cmp.Diff(want, steps(&s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// The order is kept, though all have been there since the same moment.
	v.Memory = append([]int64(nil), s.Memory...)
	for i := range v.Coflows {
		v.Coflows[i].Queue = 1
	}
	s.Reset()
	p.Schedule(v, &s)
	if d := cmp.Diff(want, steps(&s)); d != "" {
		t.Errorf("later (-want +got):\n%s", d)
	}
}

// l·c of two coflows at the same ports, l being 20 MiB. Their pilots end together. The
// first has the other beside it among those that are sampled, 20 MiB, and enters queue 1;
// the second has none left beside it and enters queue 0. There each is alone, so that the
// first moves to queue 0 behind the second. A cycle later they meet, and both move to
// queue 1, where they meet still.
func TestPhilaeSimContentionMoves(t *testing.T) {
	f := eightMillis(t, 16)
	wide := all(hosts(0, 1), hosts(4, 7), 20*mib)
	v := view(f, wide, wide)
	for i := range v.Coflows {
		v.Coflows[i].Pilots, v.Coflows[i].PilotSent = 1, 20*mib
	}
	p := DefaultPhilaeSim()
	p.Impact, p.Slots = 4, 0
	for cycle, want := range []struct {
		queues []int
		wake   time.Duration
	}{{[]int{1, 1}, p.Cycle}, {[]int{2, 2}, 2 * p.Cycle}, {[]int{2, 2}, 0}} {
		v.Now = time.Duration(cycle) * p.Cycle
		var s policies.Schedule
		p.Schedule(v, &s)
		if d := cmp.Diff(want.queues, s.Queues); d != "" || s.Wake != want.wake {
			t.Errorf("cycle %d: wake at %v, want %v; queues %s", cycle, s.Wake, want.wake, d)
		}
		if d := cmp.Diff([]string{"[1 0] all Whole 0"}, steps(&s)); d != "" {
			t.Errorf("cycle %d (-want +got):\n%s", cycle, d)
		}
		v.Memory = append([]int64(nil), s.Memory...)
		for i := range v.Coflows {
			v.Coflows[i].Queue = s.Queues[i]
		}
	}
}

// Turns are dealt out among queues as they were: in the cycle in which the first coflow
// enters one there are none, and the next has a decision of its own.
func TestPhilaeSimFirstDeal(t *testing.T) {
	f := eightMillis(t, 16)
	v := view(f, all(hosts(0, 1), hosts(4, 7), mib))
	v.Coflows[0].Pilots, v.Coflows[0].PilotSent = 1, mib
	p := DefaultPhilaeSim()
	p.Impact = 1
	var s policies.Schedule
	p.Schedule(v, &s)
	if s.Memory[0] != 0 || s.Wake != p.Cycle || len(s.Steps) != 1 {
		t.Errorf("memory %v, wake %v, steps %v: want no deal, and one in the next cycle", s.Memory, s.Wake, steps(&s))
	}
	v.Now, v.Coflows[0].Queue, v.Memory = p.Cycle, s.Queues[0], append([]int64(nil), s.Memory...)
	s.Reset()
	p.Schedule(v, &s)
	want := []int64{11, int64(p.Cycle), 256, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if d := cmp.Diff(want, s.Memory[:len(want)]); d != "" || s.Wake != 257*p.Cycle || len(s.Steps) != 2 {
		t.Errorf("wake %v, steps %v, memory %s", s.Wake, steps(&s), d)
	}
}

// D falls when a coflow begins at one more port, which the next bytes may be: it is
// looked at whenever it has sent, but in the first queue, or if it has begun at all.
func TestPhilaeSimBegins(t *testing.T) {
	v := worked(t)
	c := &v.Coflows[0]
	p := DefaultPhilaeSim()
	for _, tt := range []struct {
		first units.Bytes
		begun bool
		queue int
		watch int64
	}{
		// Of the coflow's 6 ports host 0's has 3 coflows and host 4's has 2: 9 times 2 MiB
		// and a byte, or 9 times 1 MiB where it has begun.
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
		p.Schedule(v, &s)
		if s.Queues[0]-1 != tt.queue || s.Watch[0] != tt.watch {
			t.Errorf("%+v: queue %d, watch %d", tt, s.Queues[0]-1, s.Watch[0])
		}
	}
}

// Flows of a thin coflow that came after its pilots were chosen are sent too.
func TestPhilaeSimLateFlow(t *testing.T) {
	v := view(eightMillis(t, 16), []demandOf{{0, 4, 1}, {0, 5, 1}})
	c := &v.Coflows[0]
	c.Pilots, c.PilotsLeft = 1, 1
	var s policies.Schedule
	DefaultPhilaeSim().Schedule(v, &s)
	if d := cmp.Diff([]string{"[0] chosen Whole 0", "[0] others Whole 0"}, steps(&s)); d != "" {
		t.Error(d)
	}
}
