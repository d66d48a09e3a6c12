// Package philaesim is the Philae coflow policy as implemented in its authors' public
// simulator, for comparisons with the figures that the simulator prints. The policy of the
// paper is coflow.Philae.
//
// It computes no rates: package alloc does that for all policies.
package philaesim

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/coflow/ports"
	"testbed/topo"
	"testbed/workloads"
)

// Scheduler is Philae as its authors' simulator implements it. It differs from the paper:
//
//   - It decides in cycles.
//   - A sampled coflow sends only its pilot flows until they end.
//   - Coflows of a queue are ordered by the time at which they entered it.
//   - A flow gets its whole ports or nothing.
//   - To prevent starvation, queues get turns of cycles; in the paper they get shares.
//
// It is designed for one big switch with ports of equal rate.
//
// With the simulator's units, Scheduler ends every coflow in the same cycle as the
// simulator. For that it reproduces the simulator's peculiarities:
//
//   - All flows of a thin coflow are pilot flows, served in the order of their choice.
//   - If the last flow of a coflow is a pilot flow, it counts at its ports forever when
//     pilot flows are chosen.
//   - Ports with equal numbers of pilot flows change order with every choice.
//   - Coflows that enter a queue together keep the order of the queues that they leave.
//   - Turns depend on the coflows that the queues held one cycle earlier.
type Scheduler struct {
	coflow.Queues
	coflow.Sampling
	// Impact is the simulator's code for the metric, from 0 to 6.
	//
	//	0  c·(l less the bytes sent at the port that sent least)
	//	1  l·n: the paper's A
	//	2  l·n-d, 1 where that is negative: B
	//	3  c: C. No pilot flows; useful only with Queues.First of a few bytes
	//	4  c·l
	//	5  the maximum of l·c_p over the ports
	//	6  the sum of l·c_p over the ports: D
	//
	// l is the mean length of the pilot flows, n the number of flows and d the bytes sent. c
	// is the number of other coflows in the same queue at the same ports, c_p the number of
	// all coflows at a port, including itself. In 5 and 6 the simulator subtracts from l the
	// bytes that one flow of the coflow sent in its first cycle at the port, and adds 1 if
	// none has sent. Scheduler subtracts what a port carries in a cycle; the simulator
	// subtracts the size of a shorter flow.
	Impact int
	Cycle  time.Duration // time between decisions
	// Slots is the number of consecutive cycles in the turn of the first queue with coflows.
	// Each next queue gets the number of the queue before it divided by Split, rounded down.
	// 0 is strict priority.
	Slots int
	Split int // at least 1
}

// Default returns the constants of the simulator's code, and policy D.
func Default() Scheduler {
	return Scheduler{Queues: coflow.DefaultQueues(), Sampling: coflow.DefaultSampling(), Impact: 6, Cycle: coflow.DefaultInterval, Slots: 256, Split: 10}
}

// Needs returns NewFlows, to choose pilot flows, and PilotFlows, to track them until they
// end. Its estimates depend on the bytes sent and on the links on which a coflow has begun.
func (Scheduler) Needs() policies.Facts {
	return policies.NewFlows | policies.PilotFlows | policies.Progress | policies.Links
}

// Triggers requests a decision in every cycle.
func (p Scheduler) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true, Pilots: p.Impact != 3, Every: p.Cycle}
}

// New returns an instance.
func (p Scheduler) New() policies.CoflowInstance { return &instance{Scheduler: p} }

// instance is what Scheduler remembers between decisions.
type instance struct {
	Scheduler
	began        time.Duration        // of the current round of turns
	turns        []int                // number of cycles of each queue in it; empty if there are no turns
	stale        []int                // number of ended pilot flows that still count, by port
	thin, queued []workloads.CoflowID // in the order of thin coflows and of the queues
	pilots       []pilot              // unfinished, by coflow, then in order of choice
}

// pilot is a pilot flow and its ports.
type pilot struct {
	coflow   workloads.CoflowID
	flow     workloads.FlowID
	up, down topo.LinkID
}

// Decide serves thin coflows, pilot flows, the queue whose turn it is, then all queues.
// Label 0 is no queue, label 1 is queue 0.
func (p *instance) Decide(v *policies.CoflowView, s *policies.Schedule) {
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	byID := s.Order(n)
	slices.SortFunc(byID, func(a, b int) int { return cmp.Compare(v.Coflows[a].ID, v.Coflows[b].ID) })
	p.forget(v, byID)
	first := s.Ints(n + 1)
	thin, sampled, measured := p.sample(v, s, first)
	s.Watch = append(s.Watch, s.Counts(n)...)
	p.deal(v)
	queue := s.Ints(n)
	thinRank := ranks(v, s, byID, p.thin)
	o, contention := p.assign(v, s, ranks(v, s, byID, p.queued), thin, measured, queue)
	for _, q := range queue {
		s.Queues = append(s.Queues, q+1)
	}
	slices.SortStableFunc(thin, func(a, b int) int {
		return cmp.Or(cmp.Compare(contention[a], contention[b]), cmp.Compare(thinRank[a], thinRank[b]))
	})
	serve := func(coflows []int, part policies.Part) {
		if len(coflows) > 0 {
			s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Part: part, Rule: policies.ExclusivePorts})
		}
	}
	serve(thin, policies.Chosen)
	late := s.Ints(n)[:0] // thin coflows with flows added after the choice of pilot flows
	for _, i := range thin {
		if c := &v.Coflows[i]; c.Left > c.PilotsLeft+first[i+1]-first[i] {
			late = append(late, i)
		}
	}
	serve(late, policies.Others)
	serve(sampled, policies.Chosen)
	turn := p.turn(v, s, len(o) > 0)
	start := func(q int) int {
		at, _ := slices.BinarySearchFunc(o, q, func(i, q int) int { return cmp.Compare(queue[i], q) })
		return at
	}
	serve(o[start(turn):start(turn+1)], policies.All)
	serve(o, policies.All)
	p.thin, p.queued = ids(p.thin, v, thin), ids(p.queued, v, o)
	p.remember(v, s, first)
}

// sample chooses pilot flows of new coflows, all flows of thin ones. The pilot flows of
// coflow i are Schedule.Pilots[first[i]:first[i+1]]. It returns the thin coflows, those with
// unfinished pilot flows, and the others, in order of arrival.
func (p *instance) sample(v *policies.CoflowView, s *policies.Schedule, first []int) (thin, sampled, measured []int) {
	n := len(v.Coflows)
	thin, sampled, measured = s.Ints(n)[:0], s.Ints(n)[:0], s.Ints(n)[:0]
	choose := leastRank
	if p.Random {
		choose = p.Draw
	}
	var busy []int
	for i := range v.Coflows {
		c := &v.Coflows[i]
		isThin := p.IsThin(c)
		if c.Pilots == 0 && len(c.Flows) > 0 && (isThin || p.Impact != 3) {
			if busy == nil {
				busy = ports.Pilots(v, s)
				for l, n := range p.stale {
					busy[l] += n
				}
			}
			number := len(c.Flows)
			if !isThin {
				number = p.PilotCount(c)
			}
			choose(v, s, c, number, busy)
		}
		first[i+1] = len(s.Pilots)
		switch {
		case isThin:
			thin = append(thin, i)
		case c.PilotsLeft > 0 || first[i+1] > first[i]:
			sampled = append(sampled, i)
		default:
			measured = append(measured, i)
		}
	}
	return thin, sampled, measured
}

// leastRank chooses pilot flows as the simulator does. For each, it selects the flow
// with the smallest sum of its sender's rank among the coflow's senders and its receiver's
// rank among the receivers. Both are sorted by the number of unfinished pilot flows. Ties
// among ports are in the reverse of their previous order, which initially is the order of
// the coflow's flows. Ties among flows go to the lower rank of the sender, then to the
// lower flow.
func leastRank(v *policies.CoflowView, s *policies.Schedule, c *policies.CoflowState, number int, busy []int) {
	rank, used := s.Ints(len(busy)), s.Words((len(c.Flows)+63)/64)
	senders, receivers := s.Ints(len(c.Flows))[:0], s.Ints(len(c.Flows))[:0]
	name := func(to []int, l topo.LinkID) []int {
		if rank[l] != 0 {
			return to
		}
		rank[l] = 1
		return append(to, int(l))
	}
	for j := range c.Flows {
		senders = name(senders, v.Fabric.HostUp(c.Flows[j].Src))
		receivers = name(receivers, v.Fabric.HostDown(c.Flows[j].Dst))
	}
	for range number {
		for _, links := range [][]int{senders, receivers} {
			slices.Reverse(links)
			slices.SortStableFunc(links, func(a, b int) int { return cmp.Compare(busy[a], busy[b]) })
			for i, l := range links {
				rank[l] = i
			}
		}
		best, least := -1, [2]int{}
		for j := range c.Flows {
			if used[j/64]>>(j%64)&1 != 0 {
				continue
			}
			up := rank[v.Fabric.HostUp(c.Flows[j].Src)]
			if r := [2]int{up + rank[v.Fabric.HostDown(c.Flows[j].Dst)], up}; best < 0 || slices.Compare(r[:], least[:]) < 0 {
				best, least = j, r
			}
		}
		used[best/64] |= 1 << (best % 64)
		coflow.AddPilot(v, s, c, best, busy)
	}
}

// assign sets the queue of each coflow, -1 for none. It returns the coflows of the queues in
// order, by queue, and the contention of coflows inside their previous queues. Coflows that
// enter a queue go to its end: first those whose pilot flows have just ended, in order of
// arrival, then those from other queues, in the order of these queues.
func (p *instance) assign(v *policies.CoflowView, s *policies.Schedule, queueRank, thin, measured, queue []int) (o, contention []int) {
	n := len(queue)
	byCount := p.Impact == 0 || p.Impact == 3 || p.Impact == 4
	// Group 0 holds thin coflows, group 1 sampled ones, and group 2+q those of queue q.
	group := s.Ints(n)
	o, moving := s.Ints(n)[:0], s.Ints(n)[:0]
	for i := range queue {
		queue[i], group[i] = -1, 1
	}
	for _, i := range thin {
		group[i] = 0
	}
	for _, i := range measured {
		if c := &v.Coflows[i]; c.Queue > 0 {
			queue[i] = c.Queue - 1
			group[i] = 2 + queue[i]
			o = append(o, i)
		} else {
			moving = append(moving, i)
		}
	}
	slices.SortFunc(o, func(a, b int) int {
		return cmp.Or(cmp.Compare(queue[a], queue[b]), cmp.Compare(queueRank[a], queueRank[b]),
			cmp.Compare(v.Coflows[a].Since, v.Coflows[b].Since), cmp.Compare(a, b))
	})
	byQueue := func(a, b int) int { return cmp.Compare(queue[a], queue[b]) }
	var coflowsAt []int
	if p.Impact >= 5 {
		coflowsAt = ports.Coflows(v, s)
	}
	ends := p.Thresholds(s)
	for _, i := range moving {
		if p.Impact == 3 {
			queue[i] = 0
		} else {
			others := 0
			if byCount {
				others = ports.Contentions(v, s, group)[i]
			}
			queue[i] = p.queueOf(v, &v.Coflows[i], ends, others, coflowsAt)
		}
		group[i] = 2 + queue[i]
		o = append(o, i)
	}
	slices.SortStableFunc(o, byQueue)
	if !byCount {
		for i := range group {
			group[i] = -1
		}
		for _, i := range thin {
			group[i] = 0
		}
	}
	contention = ports.Contentions(v, s, group)
	moving = moving[:0]
	stay := o[:0]
	for _, i := range o {
		if q := p.queueOf(v, &v.Coflows[i], ends, contention[i], coflowsAt); q != queue[i] {
			queue[i] = q
			moving = append(moving, i)
		} else {
			stay = append(stay, i)
		}
	}
	o = append(stay, moving...)
	slices.SortStableFunc(o, byQueue)
	if byCount && len(moving) > 0 {
		s.Wake = v.Now + p.Cycle // contention has changed
	}
	for _, i := range o {
		s.Watch[i] = p.watch(v, &v.Coflows[i], ends, queue[i])
	}
	return o, contention
}

// queueOf returns the queue of a coflow whose pilot flows have ended.
func (p Scheduler) queueOf(v *policies.CoflowView, c *policies.CoflowState, ends coflow.Thresholds, contention int, coflowsAt []int) int {
	switch {
	case p.Impact == 3:
		return ends.Below(int64(contention))
	case c.Pilots == 0:
		return len(ends) // its length is unknown
	}
	return ends.Below(p.impact(v, c, int64(contention), coflowsAt))
}

// watch returns the bytes sent beyond which the coflow's queue may change; 0 is never.
func (p Scheduler) watch(v *policies.CoflowView, c *policies.CoflowState, ends coflow.Thresholds, queue int) int64 {
	if queue == 0 || c.Pilots == 0 {
		return 0
	}
	switch p.Impact {
	case 2:
		return max(times(int64(c.PilotSent)/int64(c.Pilots), int64(c.Width))-ends[queue-1], 1)
	case 5, 6:
		for _, l := range ports.Of(c, ports.Count(v)) {
			if !l.Begun { // the next bytes may cross this link
				return max(int64(c.Sent), 1)
			}
		}
	}
	return 0
}

// impact returns the metric of a coflow whose pilot flows have ended.
func (p Scheduler) impact(v *policies.CoflowView, c *policies.CoflowState, contention int64, coflowsAt []int) int64 {
	l := int64(c.PilotSent) / int64(c.Pilots)
	switch p.Impact {
	case 0:
		return times(max(l-p.cycleBytes(v, c), 1), contention)
	case 1:
		return times(l, int64(c.Width))
	case 2:
		if left := times(l, int64(c.Width)) - int64(c.Sent); left >= 0 {
			return left
		}
		return 1
	case 4:
		return times(l, contention)
	}
	var largest, sum int64
	quantum := p.cycleBytes(v, c)
	for _, at := range ports.Of(c, len(coflowsAt)) {
		left := l + 1
		if at.Begun {
			left = max(l-quantum, 1)
		}
		x := times(left, int64(coflowsAt[at.Link]))
		largest = max(largest, x)
		sum += min(x, math.MaxInt64-sum)
	}
	if p.Impact == 5 {
		return largest
	}
	return sum
}

// times returns a·b of nonnegative numbers, at most math.MaxInt64.
func times(a, b int64) int64 {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi == 0 {
		return int64(min(lo, math.MaxInt64))
	}
	return math.MaxInt64
}

// cycleBytes returns the bytes that a flow with whole ports sends in one cycle.
func (p Scheduler) cycleBytes(v *policies.CoflowView, c *policies.CoflowState) int64 {
	var most int64
	for _, l := range ports.Of(c, ports.Count(v)) {
		most = max(most, int64(v.Capacity[l.Link].BytesIn(p.Cycle)))
	}
	return most
}

// deal begins a round of turns if the last one has ended, among the queues that have coflows
// according to their labels; a queue that gets its first coflow in this cycle is not
// included.
func (p *instance) deal(v *policies.CoflowView) {
	if p.Slots <= 0 || p.Cycle <= 0 {
		return
	}
	if q, _ := p.current(v); q >= 0 {
		return
	}
	p.began, p.turns = v.Now, p.turns[:0]
	first := -1
	for i := range v.Coflows {
		if q := v.Coflows[i].Queue - 1; q >= 0 && (first < 0 || q < first) {
			first = q
		}
	}
	if first < 0 {
		return
	}
	p.turns = append(p.turns, make([]int, max(p.Count, 1))...)
	for i := range v.Coflows {
		q := v.Coflows[i].Queue - 1
		if q < 0 || q >= len(p.turns) || p.turns[q] > 0 {
			continue
		}
		p.turns[q] = p.Slots
		for range q - first {
			p.turns[q] /= max(p.Split, 1)
		}
	}
}

// turn returns the queue whose turn it is, -1 for none. It requests a decision at the next
// turn, or in the next cycle if coflows are queued and no round has started.
func (p *instance) turn(v *policies.CoflowView, s *policies.Schedule, queued bool) int {
	q, until := -1, v.Now+p.Cycle
	if len(p.turns) > 0 {
		q, until = p.current(v)
	} else if !queued || p.Slots <= 0 {
		return -1
	}
	if s.Wake <= v.Now || until < s.Wake {
		s.Wake = until
	}
	return q
}

// current returns the queue whose turn it is in a round and the end of the turn; -1 after
// the end of the round.
func (p *instance) current(v *policies.CoflowView) (queue int, until time.Duration) {
	at := p.began
	for q, slots := range p.turns {
		if at += time.Duration(slots) * p.Cycle; v.Now < at {
			return q, at
		}
	}
	return -1, 0
}

// find returns the index of a coflow in v.Coflows, -1 if it has ended. byID are the indices by ID.
func find(v *policies.CoflowView, byID []int, id workloads.CoflowID) int {
	at, ok := slices.BinarySearchFunc(byID, id, func(i int, id workloads.CoflowID) int {
		return cmp.Compare(v.Coflows[i].ID, id)
	})
	if !ok {
		return -1
	}
	return byID[at]
}

// ranks returns the place of each coflow in a list, len(list) if it is not in it.
func ranks(v *policies.CoflowView, s *policies.Schedule, byID []int, list []workloads.CoflowID) []int {
	r := s.Ints(len(v.Coflows))
	for i := range r {
		r[i] = len(list)
	}
	for at, id := range list {
		if i := find(v, byID, id); i >= 0 {
			r[i] = at
		}
	}
	return r
}

// ids returns the IDs of coflows, in the memory of list.
func ids(list []workloads.CoflowID, v *policies.CoflowView, coflows []int) []workloads.CoflowID {
	list = list[:0]
	for _, i := range coflows {
		list = append(list, v.Coflows[i].ID)
	}
	return list
}

// forget removes ended pilot flows. The simulator does not subtract the pilot flow with which a coflow
// ends, the last chosen of those that were unfinished: it goes on to count at its ports.
func (p *instance) forget(v *policies.CoflowView, byID []int) {
	if n := ports.Count(v); len(p.stale) < n {
		p.stale = append(p.stale, make([]int, n-len(p.stale))...)
	}
	left := p.pilots[:0]
	for k, f := range p.pilots {
		switch i := find(v, byID, f.coflow); {
		case i >= 0:
			if x := unfinished(&v.Coflows[i], f.flow); v.Coflows[i].PilotsLeft > 0 && x != nil && x.Pilot {
				left = append(left, f)
			}
		case k+1 == len(p.pilots) || p.pilots[k+1].coflow != f.coflow:
			p.stale[f.up]++
			p.stale[f.down]++
		}
	}
	p.pilots = left
}

// remember keeps the chosen pilot flows.
func (p *instance) remember(v *policies.CoflowView, s *policies.Schedule, first []int) {
	for i := range v.Coflows {
		c := &v.Coflows[i]
		for _, id := range s.Pilots[first[i]:first[i+1]] {
			f := unfinished(c, id)
			p.pilots = append(p.pilots, pilot{c.ID, id, v.Fabric.HostUp(f.Src), v.Fabric.HostDown(f.Dst)})
		}
	}
}

// unfinished returns a flow that c shows; nil if it does not.
func unfinished(c *policies.CoflowState, id workloads.FlowID) *policies.FlowState {
	at, ok := slices.BinarySearchFunc(c.Flows, id, func(f policies.FlowState, id workloads.FlowID) int {
		return cmp.Compare(f.ID, id)
	})
	if !ok {
		return nil
	}
	return &c.Flows[at]
}
