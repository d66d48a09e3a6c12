package coflow

import (
	"testing"

	"testbed/policies"
	"testbed/policies/policytest"
)

// blind are policies that know no sizes, with settings that reach all their code.
func blind() map[string]policies.Scheduler {
	out := map[string]policies.Scheduler{}
	aalo, saath, philae, sim := DefaultAalo(), DefaultSaath(), DefaultPhilae(), DefaultPhilaeSim()
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
		p.Thin, p.Number, p.Rule = 1, 2, Constant // clusters of tests have few flows
		p.First = 1000
		out["philae "+name+" thick"] = p
		p.Random, p.ThinFirst, p.FIFO, p.Equal, p.Strict, p.Conserve = true, true, Entered, true, true, false
		out["philae "+name+" other"] = p
	}
	for impact := range 7 {
		p := sim
		p.Impact = impact
		out["philae-sim "+string(rune('0'+impact))] = p
		p.Thin, p.Rule, p.Fraction, p.First, p.Slots = 0, OfFlows, 0.3, 3, 4
		out["philae-sim thick "+string(rune('0'+impact))] = p
	}
	return out
}

// What they keep of the contract goes for sizes too: each answers the same whether or
// not the View shows them.
func TestContractBlind(t *testing.T) {
	for name, p := range blind() {
		t.Run(name, func(t *testing.T) {
			if p.Needs()&^policies.NewFlows != 0 {
				t.Errorf("needs %b, want nothing but a look at new flows", p.Needs())
			}
			policytest.Scheduler(t, p)
		})
	}
	policytest.Scheduler(t, AaloOracle(DefaultAalo()))
}
