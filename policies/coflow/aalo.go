package coflow

import (
	"time"

	"testbed/policies"
)

// Aalo is the discretized coflow-aware least-attained service of Aalo (Chowdhury
// and Stoica, SIGCOMM 2015), which knows no sizes: the more a coflow has sent, the
// lower its queue, and inside a queue the first in goes first. Sent bytes up to and
// with a queue's end belong to it. A coflow never moves up.
type Aalo struct {
	Queues
	// Interval is δ, between two syncs of the coordinator, at which coflows change
	// queues and new ones are seen. The paper has about 10 ms, the authors' prototype
	// 80 ms. 0 is at events alone, as in the simulators CoflowSim and Ximulator.
	Interval time.Duration
	// Weighted shares links between queues by weights that fall from K to 1 by one a
	// queue, over those that have coflows, and hands out the rest in order of the
	// queues: the paper's guard against starvation. Otherwise queues go by strict
	// priority, as in all public implementations, with whose results ours are to be
	// compared.
	Weighted bool
	FIFO     FIFO // by entering in CoflowSim and Ximulator, by ID in the prototype
	// Fill shares among a coflow's flows all that those before it leave, max-min
	// fair. Otherwise a flow gets the smaller of its equal shares of its links and
	// the rest goes to the next coflow, as in all public implementations.
	Fill bool
}

// DefaultInterval is how often the coordinators of Aalo, Saath and Philae's
// simulator decide.
const DefaultInterval = 8 * time.Millisecond

// DefaultAalo is CoflowSim's (there: DARK), but that coflows change queues every
// 8 ms.
func DefaultAalo() Aalo { return Aalo{Queues: DefaultQueues(), Interval: DefaultInterval} }

// Needs is nothing: what a coflow has sent anybody sees.
func (Aalo) Needs() policies.Knowledge { return 0 }

// When is every interval; between them, rates change where a coflow or a flow ends.
func (a Aalo) When() policies.When {
	return policies.When{Coflows: true, Flows: true, Every: a.Interval}
}

// Schedule serves the queues, the first one first.
func (a Aalo) Schedule(v *policies.View, s *policies.Schedule) {
	ends := a.limits(s)
	for i := range v.Coflows {
		c := &v.Coflows[i]
		q := min(max(after(ends, int64(c.Sent)), c.Queue), len(ends))
		s.Queues = append(s.Queues, q)
		next := int64(0)
		if q < len(ends) {
			next = ends[q]
		}
		s.Watch = append(s.Watch, next)
	}
	a.serve(v, s)
}

// serve makes the steps of queues that are told already.
func (a Aalo) serve(v *policies.View, s *policies.Schedule) {
	rule := policies.Even
	if a.Fill {
		rule = policies.MaxMin
	}
	o := order(v, s, s.Queues, s.Queues, a.FIFO)
	if a.Weighted {
		weight := func(q int) float64 { return float64(max(a.Count-q, 1)) }
		sum := 0.0
		runs(o, s.Queues, func(q int, _ []int) { sum += weight(q) })
		runs(o, s.Queues, func(q int, coflows []int) {
			s.Budgets = append(s.Budgets, weight(q)/sum)
			each(s, coflows, policies.Step{Rule: rule, Budget: len(s.Budgets)})
		})
		rule = policies.MaxMin // what is left is for whoever can use it
	}
	each(s, o, policies.Step{Rule: rule})
}

// each adds a step for each of the coflows, like the given one.
func each(s *policies.Schedule, coflows []int, step policies.Step) {
	for i := range coflows {
		step.Coflows = coflows[i : i+1]
		s.Steps = append(s.Steps, step)
	}
}

// AaloOracle is Aalo where a coflow is from the start in the queue of its size and
// stays there: what learning sizes by sieving coflows through queues costs is the
// distance between the two (Philae, ATC 2019).
type AaloOracle Aalo

// Needs is the sizes of coflows, and nothing that changes as bytes arrive.
func (AaloOracle) Needs() policies.Knowledge { return policies.Totals | policies.Blind }

// When is Aalo's.
func (a AaloOracle) When() policies.When { return Aalo(a).When() }

// Schedule serves the queues, the first one first. Nothing is watched: no coflow
// ever leaves its queue.
func (a AaloOracle) Schedule(v *policies.View, s *policies.Schedule) {
	ends := a.limits(s)
	for i := range v.Coflows {
		s.Queues = append(s.Queues, after(ends, int64(v.Coflows[i].Size)))
		s.Watch = append(s.Watch, 0)
	}
	Aalo(a).serve(v, s)
}
