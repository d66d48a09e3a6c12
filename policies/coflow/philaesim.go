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
//
// Given the simulator's own units it ends coflows in the cycles in which the
// simulator ends them, for which it keeps what are accidents there: flows of a thin
// coflow are all pilots, and go in the order in which they were chosen; a coflow's last
// flow, if it is a pilot, counts at its ports for good when pilots are chosen; ports
// that are as busy as one another change order with every choice; coflows that enter a
// queue together do so in the order of the queues they leave; and turns are dealt out
// by what queues held a cycle ago.
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
	// none has sent. Here that is what a port carries in a cycle; of a flow that is
	// shorter the simulator takes its size.
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

// Needs is a look at new coflows' flows, without their sizes, to choose pilots, and
// at the pilots until they have ended.
func (PhilaeSim) Needs() policies.Knowledge { return policies.NewFlows | policies.PilotFlows }

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
	kept := p.recall(v, s)
	stale := kept.ended(v, s)
	kind, first := s.Ints(n), s.Ints(n+1)
	p.sample(v, s, kind, first, stale)
	s.Watch = append(s.Watch, s.Counts(n)...)
	deal := p.deal(v, s, kept.deal)
	queue := s.Ints(n)
	o, contention := p.place(v, s, &kept, kind, queue)
	for _, q := range queue {
		s.Queues = append(s.Queues, q+1)
	}
	thin := places(s, kind, serveAll)
	slices.SortStableFunc(thin, func(a, b int) int {
		return cmp.Or(cmp.Compare(contention[a], contention[b]), cmp.Compare(kept.thinRank[a], kept.thinRank[b]))
	})
	serve := func(coflows []int, part policies.Part) {
		if len(coflows) > 0 {
			s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Part: part, Rule: policies.Whole})
		}
	}
	serve(thin, policies.Chosen)
	late := s.Ints(n)[:0] // flows of thin coflows that came after their pilots were chosen
	for _, i := range thin {
		if c := &v.Coflows[i]; c.Left > c.PilotsLeft+first[i+1]-first[i] {
			late = append(late, i)
		}
	}
	serve(late, policies.Others)
	serve(places(s, kind, serveSome), policies.Chosen)
	turn := p.turn(v, s, deal, len(o) > 0)
	runs(o, queue, func(q int, coflows []int) {
		if q == turn {
			serve(coflows, policies.All)
		}
	})
	serve(o, policies.All)
	kept.keep(v, s, deal, stale, thin, o, first)
}

// sample tells what there is to do with each coflow, and takes pilots from those that
// are shown for the first time: of a thin one all flows. Those of coflow i are
// Schedule.Pilots[first[i]:first[i+1]].
func (p PhilaeSim) sample(v *policies.View, s *policies.Schedule, kind, first []int, stale []int64) {
	choose := p.leastRank
	if p.Random {
		choose = p.random
	}
	var at []int
	for i := range v.Coflows {
		c := &v.Coflows[i]
		thin := p.thin(c)
		if c.Pilots == 0 && len(c.Flows) > 0 && (thin || p.Impact != 3) {
			if at == nil {
				at = busy(v, s)
				for l, n := range stale {
					at[l] += int(n)
				}
			}
			number := len(c.Flows)
			if !thin {
				number = p.pilots(c)
			}
			choose(v, s, c, number, at)
		}
		first[i+1] = len(s.Pilots)
		switch {
		case thin:
			kind[i] = serveAll
		case c.PilotsLeft > 0 || first[i+1] > first[i]:
			kind[i] = serveSome
		default:
			kind[i] = serveRest
		}
	}
}

// place sets the queues of coflows, -1 for those that are in none, and returns the
// coflows of the queues, by queue, inside one in order, and the contention of coflows
// inside the queues in which they have been. Coflows whose pilots have ended come first,
// in order of arrival, then those that leave a queue for another, in the order of
// those: each goes to the end of its new queue.
func (p PhilaeSim) place(v *policies.View, s *policies.Schedule, kept *simMemory, kind, queue []int) (o, contention []int) {
	n := len(kind)
	byCount := p.Impact == 0 || p.Impact == 3 || p.Impact == 4
	// Thin coflows are in group 0, those that are sampled in 1, those of queue q in 2+q.
	group := s.Ints(n)
	o, moving := s.Ints(n)[:0], s.Ints(n)[:0]
	for i, k := range kind {
		queue[i] = -1
		switch c := &v.Coflows[i]; {
		case k == serveAll:
		case k == serveSome:
			group[i] = 1
		case c.Queue > 0:
			queue[i] = c.Queue - 1
			group[i] = 2 + queue[i]
			o = append(o, i)
		default:
			group[i] = 1
			moving = append(moving, i)
		}
	}
	slices.SortFunc(o, func(a, b int) int {
		return cmp.Or(cmp.Compare(queue[a], queue[b]), cmp.Compare(kept.queueRank[a], kept.queueRank[b]),
			cmp.Compare(v.Coflows[a].Since, v.Coflows[b].Since), cmp.Compare(a, b))
	})
	byQueue := func(a, b int) int { return cmp.Compare(queue[a], queue[b]) }
	var crowd []int
	if p.Impact >= 5 {
		crowd = crowds(v, s)
	}
	ends := p.limits(s)
	for _, i := range moving {
		if p.Impact == 3 {
			queue[i] = 0
		} else {
			met := 0
			if byCount {
				met = contentions(v, s, group)[i]
			}
			queue[i] = p.queueOf(v, &v.Coflows[i], ends, met, crowd)
		}
		group[i] = 2 + queue[i]
		o = append(o, i)
	}
	slices.SortStableFunc(o, byQueue)
	if !byCount {
		for i, k := range kind {
			if k != serveAll {
				group[i] = -1
			}
		}
	}
	contention = contentions(v, s, group)
	moving = moving[:0]
	stay := o[:0]
	for _, i := range o {
		if q := p.queueOf(v, &v.Coflows[i], ends, contention[i], crowd); q != queue[i] {
			queue[i] = q
			moving = append(moving, i)
		} else {
			stay = append(stay, i)
		}
	}
	o = append(stay, moving...)
	slices.SortStableFunc(o, byQueue)
	if byCount && len(moving) > 0 {
		s.Wake = v.Now + p.Cycle // contention is another now
	}
	for _, i := range o {
		s.Watch[i] = p.watch(v, &v.Coflows[i], ends, queue[i])
	}
	return o, contention
}

// queueOf is the queue of a coflow whose pilots have ended.
func (p PhilaeSim) queueOf(v *policies.View, c *policies.CoflowState, ends []int64, contention int, crowd []int) int {
	switch {
	case p.Impact == 3:
		return from(ends, int64(contention))
	case c.Pilots == 0:
		return len(ends) // nothing is known of it
	}
	return from(ends, p.impact(v, c, int64(contention), crowd))
}

// watch is what the coflow must have sent for its queue to be another.
func (p PhilaeSim) watch(v *policies.View, c *policies.CoflowState, ends []int64, queue int) int64 {
	if queue == 0 || c.Pilots == 0 {
		return 0
	}
	switch p.Impact {
	case 2:
		return max(product(int64(c.PilotSent)/int64(c.Pilots), int64(c.Width), 1)-ends[queue-1], 1)
	case 5, 6:
		for _, l := range atPorts(c, portCount(v)) {
			if !l.Begun { // the next it sends may be there
				return max(int64(c.Sent), 1)
			}
		}
	}
	return 0
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
		if at.Begun {
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

// deal is when turns were dealt out last, and how many cycles each queue got then.
// They are dealt out when the last have been used up, among queues that have coflows as
// labelled: one that gets its first coflow in this cycle is not among them. It is
// empty while there is nothing to deal out.
func (p PhilaeSim) deal(v *policies.View, s *policies.Schedule, last []int64) []int64 {
	if p.Slots <= 0 || p.Cycle <= 0 {
		return nil
	}
	if len(last) > 0 {
		if q, _ := p.next(v, last); q >= 0 {
			return last
		}
	}
	deal := s.Counts(1 + max(p.Count, 1))
	deal[0] = int64(v.Now)
	first := -1
	for i := range v.Coflows {
		if q := v.Coflows[i].Queue - 1; q >= 0 && (first < 0 || q < first) {
			first = q
		}
	}
	if first < 0 {
		return nil
	}
	for i := range v.Coflows {
		q := v.Coflows[i].Queue - 1
		if q < 0 || q >= len(deal)-1 || deal[1+q] > 0 {
			continue
		}
		slots := p.Slots
		for range q - first {
			slots /= max(p.Split, 1)
		}
		deal[1+q] = int64(slots)
	}
	return deal
}

// turn is the queue whose turn it is, -1 for none. The next turn, or the next cycle
// where there are coflows to deal out turns to, is a moment to decide again.
func (p PhilaeSim) turn(v *policies.View, s *policies.Schedule, deal []int64, some bool) int {
	q, until := -1, v.Now+p.Cycle
	if len(deal) > 0 {
		q, until = p.next(v, deal)
	} else if !some || p.Slots <= 0 {
		return -1
	}
	if s.Wake <= v.Now || until < s.Wake {
		s.Wake = until
	}
	return q
}

// next is the queue that has the current cycle of a deal, and until when; -1 after
// its end.
func (p PhilaeSim) next(v *policies.View, deal []int64) (queue int, until time.Duration) {
	at := time.Duration(deal[0])
	for q, slots := range deal[1:] {
		if at += time.Duration(slots) * p.Cycle; v.Now < at {
			return q, at
		}
	}
	return -1, 0
}

// simMemory is what PhilaeSim remembers: the last deal of turns; by port how many pilots
// it is counted busy with though they have ended; the order of thin coflows and that of
// the queues; and the pilots of each coflow that were unfinished, in the order in which
// they were chosen.
type simMemory struct {
	deal, stale  []int64
	thin, queued []int64 // IDs
	pilots       []int64 // of each coflow: its ID, how many, and of each its ID and its links
	byID         []int   // places in the View
	thinRank     []int   // by place in the View: its place in thin, past its end for others
	queueRank    []int
	ports        int
}

// perPilot is how many numbers are kept of a pilot: its ID, its sender's link, its
// receiver's.
const perPilot = 3

// recall takes the View's memory apart.
func (p PhilaeSim) recall(v *policies.View, s *policies.Schedule) simMemory {
	m := simMemory{ports: portCount(v)}
	rest := v.Memory
	part := func(n int64) []int64 {
		n = min(max(n, 0), int64(len(rest)))
		out := rest[:n]
		rest = rest[n:]
		return out
	}
	list := func() []int64 {
		if n := part(1); len(n) > 0 {
			return part(n[0])
		}
		return nil
	}
	m.deal, m.stale = list(), list()
	m.thin, m.queued, m.pilots = list(), list(), rest
	m.byID = s.Order(len(v.Coflows))
	slices.SortFunc(m.byID, func(a, b int) int { return cmp.Compare(v.Coflows[a].ID, v.Coflows[b].ID) })
	rank := func(list []int64) []int {
		r := s.Ints(len(v.Coflows))
		for i := range r {
			r[i] = len(list)
		}
		for at, id := range list {
			if i := m.find(v, id); i >= 0 {
				r[i] = at
			}
		}
		return r
	}
	m.thinRank, m.queueRank = rank(m.thin), rank(m.queued)
	return m
}

// find is the place of a coflow in the View, -1 where it has ended.
func (m *simMemory) find(v *policies.View, id int64) int {
	at, ok := slices.BinarySearchFunc(m.byID, id, func(i int, id int64) int { return cmp.Compare(int64(v.Coflows[i].ID), id) })
	if !ok {
		return -1
	}
	return m.byID[at]
}

// sampled calls do with each coflow whose pilots were unfinished and with those.
func (m *simMemory) sampled(do func(id int64, pilots []int64)) {
	for rest := m.pilots; len(rest) >= 2; {
		id, n := rest[0], min(perPilot*int(rest[1]), len(rest)-2)
		do(id, rest[2:2+n])
		rest = rest[2+n:]
	}
}

// ended are the pilots at each port that count though they have ended: the simulator
// does not take off the one with which its coflow ends, the last of those chosen that
// were still there.
func (m *simMemory) ended(v *policies.View, s *policies.Schedule) []int64 {
	stale := s.Counts(m.ports)
	copy(stale, m.stale)
	m.sampled(func(id int64, pilots []int64) {
		if n := len(pilots); n > 0 && m.find(v, id) < 0 {
			stale[pilots[n-2]]++
			stale[pilots[n-1]]++
		}
	})
	return stale
}

// keep puts the memory together for the next decision.
func (m *simMemory) keep(v *policies.View, s *policies.Schedule, deal, stale []int64, thin, queued, first []int) {
	out := s.Counts(4 + len(deal) + len(stale) + len(thin) + len(queued) + len(m.pilots) + 2*len(v.Coflows) + perPilot*len(s.Pilots))[:0]
	out = append(append(out, int64(len(deal))), deal...)
	out = append(append(out, int64(len(stale))), stale...)
	for _, coflows := range [][]int{thin, queued} {
		out = append(out, int64(len(coflows)))
		for _, i := range coflows {
			out = append(out, int64(v.Coflows[i].ID))
		}
	}
	unfinished := func(c *policies.CoflowState, id int64) *policies.FlowState {
		at, ok := slices.BinarySearchFunc(c.Flows, id, func(f policies.FlowState, id int64) int { return cmp.Compare(int64(f.ID), id) })
		if !ok {
			return nil
		}
		return &c.Flows[at]
	}
	m.sampled(func(id int64, pilots []int64) {
		i := m.find(v, id)
		if i < 0 || v.Coflows[i].PilotsLeft == 0 {
			return
		}
		at := len(out)
		out = append(out, id, 0)
		for ; len(pilots) >= perPilot; pilots = pilots[perPilot:] {
			if f := unfinished(&v.Coflows[i], pilots[0]); f != nil && f.Pilot {
				out = append(out, pilots[:perPilot]...)
				out[at+1]++
			}
		}
	})
	for i := range v.Coflows {
		c := &v.Coflows[i]
		chosen := s.Pilots[first[i]:first[i+1]]
		if len(chosen) == 0 {
			continue
		}
		out = append(out, int64(c.ID), int64(len(chosen)))
		for _, id := range chosen {
			f := unfinished(c, int64(id))
			out = append(out, int64(id), int64(v.Fabric.HostUp(f.Src)), int64(v.Fabric.HostDown(f.Dst)))
		}
	}
	s.Memory = out
}
