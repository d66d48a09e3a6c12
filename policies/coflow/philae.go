package coflow

import (
	"math"
	"slices"

	"testbed/policies"
)

// Philae (Jajoo, Hu and Lin, "A case for sampling based learning techniques in
// coflow scheduling", ATC 2019) knows no sizes: it sends a few pilot flows of each
// coflow first, and takes the others to be as long as those on average. A coflow
// waits until then, but for links that would stay idle.
//
// At every port thin coflows and pilots go first, then come queues like Aalo's, by a
// metric with the pilots' mean length in it, then flows that wait for pilots.
//
// The paper's fabric is one big switch. On others ports are the links of hosts, and
// a flow that is given a port whole gets what the links beyond it have left.
type Philae struct {
	Queues
	Sampling
	Metric Metric
	// FirstContention is for LeastContention: where queue 0 ends, in coflows. Bytes,
	// as in Queues.First, would put all coflows into the first queue, as they do in the
	// paper's comparison.
	FirstContention float64
	// ThinFirst serves thin coflows before pilots, as Philae's simulator does.
	// Otherwise they are among them, in order of arrival.
	ThinFirst bool
	FIFO      FIFO // by entering, as in Philae's simulator; the paper does not say
	// Equal gives all flows of a coflow the rate of its slowest, which is that of
	// max-min fairness: the paper's rule (a). Otherwise one flow of the coflow after the
	// other gets its whole ports: the cheaper rule (b), which the paper uses.
	Equal bool
	// Strict serves queues by strict priority.
	Strict bool
	// Weight is how many times the share of ports of the next queue a queue gets,
	// among queues that have coflows; what one does not use is for the others, in
	// order. At least 1.
	Weight float64
	// Conserve lets coflows that wait for their pilots send what would stay idle, in
	// order of arrival.
	Conserve bool
}

// Metric is what puts a coflow into a queue. l is the pilots' mean length, n the
// number of flows, d the bytes sent.
type Metric uint8

// The metrics, the paper's policies A to D.
const (
	// SmallestJob is l·n, the size.
	SmallestJob Metric = iota
	// ShortestRemaining is l·n-d, the bytes left.
	ShortestRemaining
	// LeastContention is the number of other coflows that have unfinished flows at
	// the same ports. It needs no pilots and takes none.
	LeastContention
	// WeightedContention is, summed over the ports at which the coflow has unfinished
	// flows, l times the number of other coflows that have some there.
	WeightedContention
)

// DefaultPhilae is the paper's choice, policy D.
func DefaultPhilae() Philae {
	return Philae{Queues: DefaultQueues(), Sampling: DefaultSampling(), Metric: WeightedContention, FirstContention: 1, Weight: 10, Conserve: true}
}

// Needs is a look at new coflows' flows, without their sizes, to choose pilots.
func (Philae) Needs() policies.Knowledge { return policies.NewFlows }

// When is at events alone. That a flow ends is none for the coordinator, unless it
// is the last pilot or, where contention counts, the coflow's last flow at a port:
// hosts go on to the next flow themselves.
func (p Philae) When() policies.When {
	return policies.When{Coflows: true, Flows: true, Pilots: p.Metric != LeastContention, Ports: p.contention(), Local: true}
}

func (p Philae) contention() bool {
	return p.Metric == LeastContention || p.Metric == WeightedContention
}

// What there is to do with a coflow.
const (
	serveAll  = iota // it is thin
	serveSome        // its pilots are on their way
	serveRest        // its length is known, as far as it will be
)

// Schedule takes pilots from new coflows, puts those whose pilots have ended into
// queues, and serves all. Label 0 is of no queue, 1 that of queue 0.
func (p Philae) Schedule(v *policies.View, s *policies.Schedule) {
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	kind := s.Ints(n)
	p.sample(v, s, kind, p.Metric == LeastContention, p.leastBusy)
	s.Queues = append(s.Queues, s.Ints(n)...)
	queue := s.Ints(n)
	p.place(v, s, kind, queue)
	for i := range queue {
		s.Queues[i] = queue[i] + 1
	}
	p.first(s, kind)
	p.then(v, s, queue)
	if waiting := places(s, kind, serveSome); p.Conserve && len(waiting) > 0 {
		s.Steps = append(s.Steps, policies.Step{Coflows: waiting, Part: policies.Others, Rule: policies.Greedy})
	}
}

// sample tells what there is to do with each coflow, and takes pilots from those
// that are shown for the first time. blind tells that none are needed.
func (p Sampling) sample(v *policies.View, s *policies.Schedule, kind []int, blind bool, choose func(*policies.View, *policies.Schedule, *policies.CoflowState, int, []int)) {
	var at []int
	if p.Random {
		choose = p.random
	}
	for i := range v.Coflows {
		c := &v.Coflows[i]
		switch {
		case p.thin(c):
			kind[i] = serveAll
		case blind:
			kind[i] = serveRest
		case c.Pilots == 0 && len(c.Flows) > 0:
			if at == nil {
				at = busy(v, s)
			}
			choose(v, s, c, p.pilots(c), at)
			kind[i] = serveSome
		case c.PilotsLeft > 0:
			kind[i] = serveSome
		default:
			kind[i] = serveRest
		}
	}
}

// places are the coflows of a kind, in order of arrival.
func places(s *policies.Schedule, kind []int, of int) []int {
	o := s.Ints(len(kind))[:0]
	for i, k := range kind {
		if k == of {
			o = append(o, i)
		}
	}
	return o
}

// place sets the queues of coflows, -1 for those that are in none. Contention does
// not change unless a coflow begins or ends at a port: as long as what the memory
// holds of that is still so, their queues are as they are labelled.
func (p Philae) place(v *policies.View, s *policies.Schedule, kind, queue []int) {
	ends := p.limits(s)
	if p.Metric == LeastContention {
		ends = limits(s, p.Count, p.FirstContention, p.Growth)
	}
	if p.contention() {
		const each = 3
		seen, n := s.Counts(each*len(kind)), portCount(v)
		kept := true
		for i, k := range kind {
			c := &v.Coflows[i]
			copy(seen[each*i:], []int64{int64(c.Arrival), int64(len(atPorts(c, n))), int64(k)})
			kept = kept && (k != serveRest || c.Queue > 0 && c.Queue <= len(ends)+1)
		}
		if kept && slices.Equal(seen, v.Memory) {
			for i, k := range kind {
				queue[i] = -1
				if k == serveRest {
					queue[i] = v.Coflows[i].Queue - 1
				}
			}
			return
		}
		s.Memory = seen
	}
	var contention, crowd []int
	switch p.Metric {
	case LeastContention:
		contention = contentions(v, s, s.Ints(len(kind)))
	case WeightedContention:
		crowd = crowds(v, s)
	}
	for i, k := range kind {
		c := &v.Coflows[i]
		switch {
		case k != serveRest:
			queue[i] = -1
		case p.Metric == LeastContention:
			queue[i] = from(ends, int64(contention[i]))
		case c.Pilots == 0:
			queue[i] = len(ends) // nothing is known of it
		default:
			queue[i] = from(ends, p.metric(c, crowd))
		}
	}
}

// metric is policy A's, B's or D's of a coflow whose pilots have ended, in bytes.
func (p Philae) metric(c *policies.CoflowState, crowd []int) int64 {
	if p.Metric == WeightedContention {
		others := 0
		for _, l := range atPorts(c, len(crowd)) {
			others += crowd[l.Link] - 1
		}
		return product(int64(c.PilotSent), int64(others), int64(c.Pilots))
	}
	size := product(int64(c.PilotSent), int64(c.Width), int64(c.Pilots))
	if p.Metric == ShortestRemaining {
		return max(size-int64(c.Sent), 0)
	}
	return size
}

// first serves thin coflows and pilots.
func (p Philae) first(s *policies.Schedule, kind []int) {
	part := [...]policies.Part{serveAll: policies.All, serveSome: policies.Pilots}
	if p.ThinFirst {
		for _, k := range []int{serveAll, serveSome} {
			if o := places(s, kind, k); len(o) > 0 {
				s.Steps = append(s.Steps, policies.Step{Coflows: o, Part: part[k], Rule: policies.Greedy})
			}
		}
		return
	}
	o := s.Ints(len(kind))[:0]
	for i, k := range kind {
		if k != serveRest {
			o = append(o, i)
		}
	}
	runs(o, kind, func(k int, coflows []int) {
		s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Part: part[k], Rule: policies.Greedy})
	})
}

// then serves the queues.
func (p Philae) then(v *policies.View, s *policies.Schedule, queue []int) {
	o := order(v, s, queue, s.Queues, p.FIFO)
	if len(o) == 0 {
		return
	}
	rule := policies.Greedy
	if p.Equal {
		rule = policies.Equal
	}
	several := queue[o[0]] != queue[o[len(o)-1]]
	if several && !p.Strict {
		weight := func(q int) float64 { return math.Pow(max(p.Weight, 1), float64(queue[o[0]]-q)) }
		sum := 0.0
		runs(o, queue, func(q int, _ []int) { sum += weight(q) })
		runs(o, queue, func(q int, coflows []int) {
			s.Budgets = append(s.Budgets, weight(q)/sum)
			s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Rule: rule, Budget: len(s.Budgets)})
		})
	} else if p.Equal {
		s.Steps = append(s.Steps, policies.Step{Coflows: o, Rule: rule})
	}
	s.Steps = append(s.Steps, policies.Step{Coflows: o, Rule: policies.Greedy})
}
