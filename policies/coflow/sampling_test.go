package coflow

import (
	"testing"

	"testbed/policies"
	"testbed/policies/coflow/coflowtest"
	"testbed/policies/policytest"
)

// blind holds policies that know no sizes, with settings that reach all their code.
func blind() map[string]policies.CoflowScheduler {
	out := map[string]policies.CoflowScheduler{}
	aalo, saath, philae := DefaultAalo(), DefaultSaath(), DefaultPhilae()
	out["aalo"] = aalo
	aalo.Weighted, aalo.Fill, aalo.FIFO, aalo.Interval = true, true, Arrived, 0
	out["aalo weighted"] = aalo
	out["saath"] = saath
	saath.PerFlow, saath.FIFO, saath.Deadline, saath.Dynamics, saath.Conserve = false, true, 0, false, false
	out["saath plain"] = saath
	for name, m := range map[string]Metric{"A": SmallestJob, "B": ShortestRemaining, "C": LeastContention, "D": WeightedContention} {
		p := philae
		p.Metric = m
		out["philae "+name] = p
		p.Thin, p.Number, p.Rule = 1, 2, Constant // test clusters have few flows
		p.First = 1000
		p.Random, p.ThinFirst, p.FIFO, p.Equal, p.Strict, p.Conserve = m%2 == 1, true, Arrived, true, m > 1, false
		out["philae "+name+" other"] = p
	}
	philae.Dynamics = true
	out["philae dynamics"] = philae
	return out
}

func TestNoSizes(t *testing.T) {
	coflowtest.CheckNoSizes(t, blind())
	policytest.Scheduler(t, AaloOracle(DefaultAalo()))
}

// learners returns the policies that know no sizes, with their defaults, and variants that
// reach other branches.
func learners() []Contender {
	aalo, saath, philae := DefaultAalo(), DefaultSaath(), DefaultPhilae()
	weighted, a, c := aalo, philae, philae
	weighted.Weighted, a.Metric, c.Metric = true, SmallestJob, LeastContention
	return []Contender{
		{"aalo", aalo}, {"aalo-weighted", weighted}, {"aalo-oracle", AaloOracle(aalo)}, {"saath", saath},
		{"philae-a", a}, {"philae-c", c}, {"philae-d", philae},
		{"philae-c-event", forgetful{c}}, {"philae-d-event", forgetful{philae}}, // a coflow has begun or ended at a port
	}
}

// forgetful is Philae without its memory, so that it computes the contention again.
type forgetful struct{ Philae }

func (p forgetful) New() policies.CoflowInstance { return &forgetfulInstance{philae{Philae: p.Philae}} }

type forgetfulInstance struct{ philae }

func (p *forgetfulInstance) Decide(v *policies.CoflowView, s *policies.Schedule) {
	p.facts = p.facts[:0]
	p.philae.Decide(v, s)
}

// Strict priority starves; shares of queues, or deadlines, do not.
func TestStarvation(t *testing.T) {
	aalo, weighted, saath, late := DefaultAalo(), DefaultAalo(), DefaultSaath(), DefaultSaath()
	weighted.Weighted, late.Deadline, late.Dynamics = true, 0, false
	philae, strict := DefaultPhilae(), DefaultPhilae()
	philae.Metric, philae.First, strict.First = SmallestJob, 4*mib, 4*mib
	strict.Metric, strict.Strict = SmallestJob, true
	for _, tt := range []struct {
		name    string
		p       policies.CoflowScheduler
		starves bool
	}{
		{"aalo strict", aalo, true}, {"aalo weighted", weighted, false},
		{"saath without deadlines", late, true}, {"saath", saath, false},
		{"philae strict", strict, true}, {"philae", philae, false},
	} {
		if got := coflowtest.Starves(t, tt.p); got != tt.starves {
			t.Errorf("%s: starves %v, want %v", tt.name, got, tt.starves)
		}
	}
}
