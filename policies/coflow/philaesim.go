package coflow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/policies"
)

// PhilaeSim is Philae as its authors' public simulator does it, which differs from
// the paper: it decides in cycles; of a coflow that is sampled nothing but pilots is
// sent; inside a queue coflows go by the time they entered it; a flow has its ports
// whole or not at all; and against starvation cycles are dealt out to queues, where
// the paper gives queues shares. It is meant for one big switch with ports of one
// rate.
type PhilaeSim struct {
	Queues
	Sampling
	// Impact is the simulator's code for the metric; what there is: 0 to 6.
	//
	//	0  a pilot's mean length less what the port that sent least has sent, times c
	//	1  l·n: the paper's A
	//	2  l·n-d, 1 where that is negative: B
	//	3  c: C. No pilots; of use only with Queues.First of a few bytes
	//	4  c·l
	//	5  the most of l·c_p of any port
	//	6  the sum of l·c_p over the ports: D
	//
	// c is the number of other coflows in the same queue at the same ports, c_p that
	// of all coflows at a port, itself included. In 5 and 6 the simulator takes from l
	// what one flow of the coflow sent in its first cycle at the port, and adds 1 where
	// none has sent; whether one has is told here by a flow having ended there, where
	// every sender sends to every receiver, and is otherwise taken to be so.
	Impact int
	Cycle  time.Duration // between two decisions
	// Slots is how many cycles the first queue that has coflows gets in a row, before
	// others; every next queue gets as many divided by Split, rounded down.
	// 0 is none for any: strict priority.
	Slots int
	Split int // at least 1
}

// DefaultPhilaeSim is what the simulator has in its code, and policy D.
func DefaultPhilaeSim() PhilaeSim {
	return PhilaeSim{Queues: DefaultQueues(), Sampling: DefaultSampling(), Impact: 6, Cycle: DefaultInterval, Slots: 256, Split: 10}
}

// Needs is a look at new coflows' flows, without their sizes, to choose pilots.
func (PhilaeSim) Needs() policies.Knowledge { return policies.NewFlows }

// When is every cycle.
func (p PhilaeSim) When() policies.When {
	return policies.When{Coflows: true, Flows: true, Pilots: p.Impact != 3, Every: p.Cycle}
}

// Schedule serves thin coflows, pilots, the queue whose turn it is and all queues.
// Label 0 is of no queue, 1 that of queue 0.
func (p PhilaeSim) Schedule(v *policies.View, s *policies.Schedule) {
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	kind := s.Ints(n)
	p.sample(v, s, kind, p.Impact == 3, p.leastRank)
	s.Watch = append(s.Watch, s.Counts(n)...)
	queue := s.Ints(n)
	contention := p.place(v, s, kind, queue)
	for _, q := range queue {
		s.Queues = append(s.Queues, q+1)
	}
	serve := func(coflows []int, part policies.Part) {
		if len(coflows) > 0 {
			s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Part: part, Rule: policies.Whole})
		}
	}
	thin := places(s, kind, serveAll)
	slices.SortFunc(thin, func(a, b int) int { return cmp.Or(cmp.Compare(contention[a], contention[b]), cmp.Compare(a, b)) })
	serve(thin, policies.All)
	serve(places(s, kind, serveSome), policies.Pilots)
	o := order(v, s, queue, s.Queues, Entered)
	turn := p.turn(v, s, o, queue)
	runs(o, queue, func(q int, coflows []int) {
		if q == turn {
			serve(coflows, policies.All)
		}
	})
	serve(o, policies.All)
}

// place sets the queues of coflows, -1 for those that are in none, and returns the
// contention of coflows inside the queues in which they have been.
func (p PhilaeSim) place(v *policies.View, s *policies.Schedule, kind, queue []int) []int {
	byCount := p.Impact == 0 || p.Impact == 3 || p.Impact == 4
	group := s.Ints(len(kind))
	for i, k := range kind {
		switch {
		case k == serveAll:
			group[i] = 0
		case !byCount:
			group[i] = -1
		default:
			group[i] = 1 + v.Coflows[i].Queue // 1 are those that are or were just now sampled
		}
	}
	contention := contentions(v, s, group)
	var crowd []int
	if p.Impact >= 5 {
		crowd = crowds(v, s)
	}
	ends := p.limits(s)
	for i, k := range kind {
		c := &v.Coflows[i]
		switch {
		case k != serveRest:
			queue[i] = -1
		case p.Impact == 3:
			if c.Queue > 0 { // 0 is straight to the first queue
				queue[i] = from(ends, int64(contention[i]))
			}
		case c.Pilots == 0:
			queue[i] = len(ends) // nothing is known of it
		default:
			queue[i] = from(ends, p.impact(v, c, int64(contention[i]), crowd))
			if q := queue[i]; p.Impact == 2 && q > 0 {
				// What makes it leave the queue upward.
				s.Watch[i] = max(product(int64(c.PilotSent)/int64(c.Pilots), int64(c.Width), 1)-ends[q-1], 1)
			}
		}
	}
	return contention
}

// impact is the metric of a coflow whose pilots have ended.
func (p PhilaeSim) impact(v *policies.View, c *policies.CoflowState, contention int64, crowd []int) int64 {
	l := int64(c.PilotSent) / int64(c.Pilots)
	switch p.Impact {
	case 0:
		return product(max(l-p.cycleBytes(v, c), 1), contention, 1)
	case 1:
		return product(l, int64(c.Width), 1)
	case 2:
		if left := product(l, int64(c.Width), 1) - int64(c.Sent); left >= 0 {
			return left
		}
		return 1
	case 4:
		return product(l, contention, 1)
	}
	var most, sum int64
	quantum := p.cycleBytes(v, c)
	for _, at := range atPorts(c, len(crowd)) {
		left := l + 1
		begun := c.Receivers // flows at arrival, at a sender's port: even
		if at.Link%2 == 1 {
			begun = c.Senders
		}
		if c.Width != c.Senders*c.Receivers || at.Flows < begun {
			left = max(l-quantum, 1)
		}
		x := product(left, int64(crowd[at.Link]), 1)
		most = max(most, x)
		sum += min(x, math.MaxInt64-sum)
	}
	if p.Impact == 5 {
		return most
	}
	return sum
}

// cycleBytes is what a flow that is given its ports sends in one cycle.
func (p PhilaeSim) cycleBytes(v *policies.View, c *policies.CoflowState) int64 {
	var most int64
	for _, l := range atPorts(c, portCount(v)) {
		most = max(most, int64(v.Capacity[l.Link].BytesIn(p.Cycle)))
	}
	return most
}

// turn is the queue whose turn it is, -1 for none. The memory is when turns were
// dealt out last, and how many cycles each queue got then.
func (p PhilaeSim) turn(v *policies.View, s *policies.Schedule, o, queue []int) int {
	if p.Slots <= 0 || p.Cycle <= 0 {
		return -1
	}
	if len(v.Memory) > 1 {
		if q := p.next(v, s, v.Memory); q >= 0 {
			return q
		}
	}
	if len(o) == 0 {
		return -1
	}
	deal := s.Counts(1 + max(p.Count, 1))
	deal[0] = int64(v.Now)
	first := queue[o[0]]
	runs(o, queue, func(q int, _ []int) {
		slots := p.Slots
		for range q - first {
			slots /= max(p.Split, 1)
		}
		deal[1+q] = int64(slots)
	})
	s.Memory = deal
	return p.next(v, s, deal)
}

// next is the queue that has the current cycle of a deal, -1 after its end. The
// next turn is a moment to decide again.
func (p PhilaeSim) next(v *policies.View, s *policies.Schedule, deal []int64) int {
	at := time.Duration(deal[0])
	for q, slots := range deal[1:] {
		if at += time.Duration(slots) * p.Cycle; v.Now < at {
			s.Wake = at
			return q
		}
	}
	return -1
}
