package coflow

import (
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coflow/ports"
)

// Philae (Jajoo, Hu and Lin, "A case for sampling based learning techniques in coflow
// scheduling", ATC 2019) knows no sizes. It sends a few pilot flows of each coflow first
// and uses their mean length as the length of the others. Until the pilot flows end, the
// other flows of the coflow use only idle capacity (Conserve).
//
// At every port, thin coflows and pilot flows go first. Queues like Aalo's follow, by a
// metric that includes the mean length of the pilot flows, then flows that wait for pilot
// flows.
//
// The paper's fabric is one big switch. In other fabrics, ports are the links of hosts.
// A flow that gets a whole port is then limited by the residual capacity of the links
// beyond it.
type Philae struct {
	Queues
	Sampling
	Metric Metric
	// Dynamics replaces l in WeightedContention by (l·n-d)/n, the estimated bytes that a flow
	// has left on average. A coflow with little left then advances, and one that failures or
	// stragglers leave with a few flows does too. ShortestRemaining is the same for SmallestJob.
	Dynamics bool
	// FirstContention is the threshold of queue 0 for LeastContention, in coflows. A
	// threshold in bytes, as in Queues.First, would put all coflows into the first queue, as
	// it does in the paper's comparison.
	FirstContention float64
	// ThinFirst serves thin coflows before pilot flows, as Philae's simulator does.
	// Otherwise both are served in order of arrival.
	ThinFirst bool
	FIFO      FIFO // Entered, as in Philae's simulator; the paper does not specify it
	// Equal gives all flows of a coflow the rate of its slowest flow, that of max-min
	// fairness: the paper's rule (a). Otherwise one flow of the coflow after another gets
	// its whole ports: the cheaper rule (b), which the paper uses.
	Equal bool
	// Strict serves queues by strict priority.
	Strict bool
	// Weight is the ratio, at least 1, of the shares of ports of a queue and the next one.
	// Only queues with coflows have shares. Capacity that a queue does not use goes to the
	// others, in order.
	Weight float64
	// Conserve gives idle capacity to coflows that wait for their pilot flows, in order of
	// arrival.
	Conserve bool
}

// Metric is the quantity that selects a coflow's queue. l is the mean length of the pilot
// flows, n the number of flows, and d the bytes sent.
type Metric uint8

// The metrics, the paper's policies A to D.
const (
	// SmallestJob is l·n, the estimated size.
	SmallestJob Metric = iota
	// ShortestRemaining is l·n-d, the estimated remaining bytes.
	ShortestRemaining
	// LeastContention is the number of other coflows with unfinished flows at the same
	// ports. It uses no pilot flows.
	LeastContention
	// WeightedContention is the sum, over the ports at which the coflow has unfinished
	// flows, of l times the number of other coflows with unfinished flows there.
	WeightedContention
)

// DefaultPhilae returns the paper's choice, policy D.
func DefaultPhilae() Philae {
	return Philae{Queues: DefaultQueues(), Sampling: DefaultSampling(), Metric: WeightedContention, FirstContention: 1, Weight: 10, Conserve: true}
}

// Needs returns NewFlows: the flows of new coflows, without sizes, to choose pilot flows. Contention depends on links, and
// what is left of a coflow on the bytes sent.
func (p Philae) Needs() policies.Facts {
	needs := policies.NewFlows | policies.Links
	if p.Dynamics || p.Metric == ShortestRemaining {
		needs |= policies.Progress
	}
	return needs
}

// Triggers requests decisions at events. In a cluster, the end of a flow would involve the
// coordinator only if it is the last pilot flow or, for metrics with contention, the coflow's last
// flow at a port. Otherwise hosts start the next flow themselves.
func (p Philae) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true, Pilots: p.Metric != LeastContention}
}

func (p Philae) contention() bool {
	return p.Metric == LeastContention || p.Metric == WeightedContention
}

// The kinds of coflows.
const (
	isThin     = iota // served immediately
	isSampled         // has unfinished pilot flows
	isMeasured        // its pilot flows have ended, or none are needed
)

// New returns an instance.
func (p Philae) New() policies.CoflowInstance { return &philae{Philae: p} }

// philae remembers the facts on which contention depends, at the last decision that computed it: Since contention
// changes only when a coflow begins or ends at a port, coflows stay in their queues while these are unchanged.
type philae struct {
	Philae
	facts, now []fact // of the coflows of the View; now is memory for those of the next decision
}

type fact struct {
	arrival     time.Duration
	ports, kind int
}

// Decide chooses pilot flows of new coflows, puts coflows whose pilot flows have ended
// into queues, and serves all. Label 0 is no queue, label 1 is queue 0.
func (p *philae) Decide(v *policies.CoflowView, s *policies.Schedule) {
	n := len(v.Coflows)
	if n == 0 {
		return
	}
	kind := s.Ints(n)
	p.sample(v, s, kind, p.Metric == LeastContention, p.leastBusy)
	s.Queues = append(s.Queues, s.Ints(n)...)
	queue := s.Ints(n)
	p.assign(v, s, kind, queue)
	for i := range queue {
		s.Queues[i] = queue[i] + 1
	}
	p.servePilots(s, kind)
	p.serveQueues(v, s, queue)
	if waiting := ofKind(s, kind, isSampled); p.Conserve && len(waiting) > 0 {
		s.Steps = append(s.Steps, policies.Step{Coflows: waiting, Part: policies.Others, Rule: policies.Greedy})
	}
}

// sample sets the kind of each coflow and chooses pilot flows of new coflows, unless
// noPilots is set.
func (p Sampling) sample(v *policies.CoflowView, s *policies.Schedule, kind []int, noPilots bool, choose func(*policies.CoflowView, *policies.Schedule, *policies.CoflowState, int, []int)) {
	var busy []int
	if p.Random {
		choose = p.Draw
	}
	for i := range v.Coflows {
		c := &v.Coflows[i]
		switch {
		case p.IsThin(c):
			kind[i] = isThin
		case noPilots:
			kind[i] = isMeasured
		case c.Pilots == 0 && len(c.Flows) > 0:
			if busy == nil {
				busy = ports.Pilots(v, s)
			}
			choose(v, s, c, p.PilotCount(c), busy)
			kind[i] = isSampled
		case c.PilotsLeft > 0:
			kind[i] = isSampled
		default:
			kind[i] = isMeasured
		}
	}
}

// ofKind returns the coflows of one kind, in order of arrival.
func ofKind(s *policies.Schedule, kind []int, of int) []int {
	o := s.Ints(len(kind))[:0]
	for i, k := range kind {
		if k == of {
			o = append(o, i)
		}
	}
	return o
}

// assign sets the queue of each coflow, -1 for none. With Dynamics queues change as coflows send.
func (p *philae) assign(v *policies.CoflowView, s *policies.Schedule, kind, queue []int) {
	ends := p.Thresholds(s)
	if p.Metric == LeastContention {
		ends = thresholds(s, p.Count, p.FirstContention, p.Growth)
	}
	if p.contention() && !p.Dynamics {
		n := ports.Count(v)
		kept := true
		p.now = p.now[:0]
		for i, k := range kind {
			c := &v.Coflows[i]
			p.now = append(p.now, fact{c.Arrival, len(ports.Of(c, n)), k})
			kept = kept && (k != isMeasured || c.Queue > 0 && c.Queue <= len(ends)+1)
		}
		if kept && slices.Equal(p.facts, p.now) {
			for i, k := range kind {
				queue[i] = -1
				if k == isMeasured {
					queue[i] = v.Coflows[i].Queue - 1
				}
			}
			return
		}
		p.facts, p.now = p.now, p.facts
	}
	var contention, coflowsAt []int
	switch p.Metric {
	case LeastContention:
		contention = ports.Contentions(v, s, s.Ints(len(kind)))
	case WeightedContention:
		coflowsAt = ports.Coflows(v, s)
	}
	for i, k := range kind {
		c := &v.Coflows[i]
		switch {
		case k != isMeasured:
			queue[i] = -1
		case p.Metric == LeastContention:
			queue[i] = ends.Below(int64(contention[i]))
		case c.Pilots == 0:
			queue[i] = len(ends) // its length is unknown
		default:
			queue[i] = ends.Below(p.metric(c, coflowsAt))
		}
	}
}

// metric returns the metric of policy A, B or D, in bytes, for a coflow whose pilot flows
// have ended.
func (p Philae) metric(c *policies.CoflowState, coflowsAt []int) int64 {
	size := product(int64(c.PilotSent), int64(c.Width), int64(c.Pilots))
	left := max(size-int64(c.Sent), 0)
	switch p.Metric {
	case ShortestRemaining:
		return left
	case WeightedContention:
		others := 0
		for _, l := range ports.Of(c, len(coflowsAt)) {
			others += coflowsAt[l.Link] - 1
		}
		if p.Dynamics {
			return product(left, int64(others), int64(c.Width))
		}
		return product(int64(c.PilotSent), int64(others), int64(c.Pilots))
	}
	return size
}

// servePilots serves thin coflows and pilot flows.
func (p Philae) servePilots(s *policies.Schedule, kind []int) {
	part := [...]policies.Part{isThin: policies.All, isSampled: policies.Pilots}
	if p.ThinFirst {
		for _, k := range []int{isThin, isSampled} {
			if o := ofKind(s, kind, k); len(o) > 0 {
				s.Steps = append(s.Steps, policies.Step{Coflows: o, Part: part[k], Rule: policies.Greedy})
			}
		}
		return
	}
	o := s.Ints(len(kind))[:0]
	for i, k := range kind {
		if k != isMeasured {
			o = append(o, i)
		}
	}
	perQueue(o, kind, func(k int, coflows []int) {
		s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Part: part[k], Rule: policies.Greedy})
	})
}

// serveQueues serves the queues.
func (p Philae) serveQueues(v *policies.CoflowView, s *policies.Schedule, queue []int) {
	o := order(v, s, queue, s.Queues, p.FIFO)
	if len(o) == 0 {
		return
	}
	rule := policies.Greedy
	if p.Equal {
		rule = policies.SlowestRate
	}
	several := queue[o[0]] != queue[o[len(o)-1]]
	if several && !p.Strict {
		weight := func(q int) float64 { return math.Pow(max(p.Weight, 1), float64(queue[o[0]]-q)) }
		weighted(s, o, queue, weight, func(coflows []int) {
			s.Steps = append(s.Steps, policies.Step{Coflows: coflows, Rule: rule, Budget: len(s.Budgets)})
		})
	} else if p.Equal {
		s.Serve(rule, o)
	}
	s.Serve(policies.Greedy, o)
}
