package coflow

import (
	"time"

	"testbed/policies"
)

// Aalo is the discretized coflow-aware least-attained service of Aalo (Chowdhury and
// Stoica, SIGCOMM 2015). It knows no sizes: a coflow moves to queues of lower priority as
// it sends, and coflows of one queue are served first in, first out. A threshold belongs
// to the queue that it ends. A coflow never moves up.
type Aalo struct {
	Queues
	// Interval is δ, the time between synchronizations of the coordinator, at which coflows
	// change queues and new ones appear. It is about 10 ms in the paper and 80 ms in the
	// authors' prototype. 0 decides at events, as the simulators CoflowSim and Ximulator do.
	Interval time.Duration
	// Weighted divides links among queues with coflows, by weights that decrease by one per
	// queue, from K to 1. The rest is served in order of the queues. This is the paper's
	// protection against starvation. Otherwise queues have strict priority, as in all public
	// implementations, with which results are to be compared.
	Weighted bool
	FIFO     FIFO // Entered in CoflowSim and Ximulator, by ID in the prototype
	// Fill gives a coflow's flows max-min fair shares of all capacity that earlier coflows
	// leave. Otherwise each flow gets the smallest equal share of its links and the rest
	// goes to the next coflow, as in all public implementations.
	Fill bool
}

// DefaultInterval is the decision interval of the coordinators of Aalo, Saath and Philae's
// simulator.
const DefaultInterval = 8 * time.Millisecond

// DefaultAalo returns the settings of CoflowSim (DARK), except that coflows change queues
// every 8 ms.
func DefaultAalo() Aalo { return Aalo{Queues: DefaultQueues(), Interval: DefaultInterval} }

// Needs returns Progress: the bytes sent.
func (Aalo) Needs() policies.Facts { return policies.Progress }

// Triggers requests a decision at every multiple of Interval, or at events if it is 0.
func (a Aalo) Triggers() policies.Triggers {
	return policies.Triggers{Coflows: true, Flows: true, Every: a.Interval}
}

// New returns the policy itself, since an instance remembers nothing.
func (a Aalo) New() policies.CoflowInstance { return a }

// Decide serves the queues in order of priority.
func (a Aalo) Decide(v *policies.CoflowView, s *policies.Schedule) {
	ends := a.Thresholds(s)
	for i := range v.Coflows {
		c := &v.Coflows[i]
		q := min(max(ends.UpTo(int64(c.Sent)), c.Queue), len(ends))
		s.Queues = append(s.Queues, q)
		next := int64(0)
		if q < len(ends) {
			next = ends[q]
		}
		s.Watch = append(s.Watch, next)
	}
	a.serve(v, s)
}

// serve appends the steps for the queues in s.Queues.
func (a Aalo) serve(v *policies.CoflowView, s *policies.Schedule) {
	rule := policies.EqualSplit
	if a.Fill {
		rule = policies.MaxMin
	}
	o := order(v, s, s.Queues, s.Queues, a.FIFO)
	if a.Weighted {
		weight := func(q int) float64 { return float64(max(a.Count-q, 1)) }
		weighted(s, o, s.Queues, weight, func(coflows []int) {
			each(s, coflows, policies.Step{Rule: rule, Budget: len(s.Budgets)})
		})
		rule = policies.MaxMin // any coflow may use the rest
	}
	each(s, o, policies.Step{Rule: rule})
}

// each appends a copy of step for each of the coflows.
func each(s *policies.Schedule, coflows []int, step policies.Step) {
	for i := range coflows {
		step.Coflows = coflows[i : i+1]
		s.Steps = append(s.Steps, step)
	}
}

// AaloOracle is Aalo with each coflow in the queue of its size from arrival to end. The
// difference between the two is the cost of learning sizes by moving coflows through
// queues (Philae, ATC 2019).
type AaloOracle Aalo

// Needs returns Totals: no fact that changes as bytes arrive.
func (AaloOracle) Needs() policies.Facts { return policies.Totals }

// Triggers returns the events of Aalo.
func (a AaloOracle) Triggers() policies.Triggers { return Aalo(a).Triggers() }

// New returns the policy itself, since an instance remembers nothing.
func (a AaloOracle) New() policies.CoflowInstance { return a }

// Decide serves the queues in order of priority. It watches nothing, because no coflow
// leaves its queue.
func (a AaloOracle) Decide(v *policies.CoflowView, s *policies.Schedule) {
	ends := a.Thresholds(s)
	for i := range v.Coflows {
		s.Queues = append(s.Queues, ends.UpTo(int64(v.Coflows[i].Size)))
		s.Watch = append(s.Watch, 0)
	}
	Aalo(a).serve(v, s)
}
