package coflow

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo/units"
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
	if s.Wake != 0 || s.Memory != nil || len(s.Steps) != 1 {
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
	want := []string{"[1 2 3 0] all Whole 0", "[4] pilots Whole 0", "[6 5] all Whole 0"}
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
