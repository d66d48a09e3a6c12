// Package coflow holds the policies that share the network among coflows: which
// goes first, and by which rule its flows send.
//
// It computes no rates: package rates does that once for all policies.
package coflow

import (
	"testbed/policies"
)

// Fair leaves every flow to the network: no flow has a ceiling, and the
// transport shares the links flow by flow. On packets that is plain TCP, in the
// fluid model max-min fairness. It is the baseline of the coflow literature
// ("per-flow fairness").
type Fair struct{}

// Needs is nothing, not even what has been sent.
func (Fair) Needs() policies.Knowledge { return policies.Blind }

// When is at arrivals: a coflow that is new has to be set free, and nothing else
// changes.
func (Fair) When() policies.When { return policies.When{Coflows: true} }

// Schedule is one step for everything.
func (Fair) Schedule(v *policies.View, s *policies.Schedule) {
	if len(v.Coflows) > 0 {
		s.Steps = append(s.Steps, policies.Step{Coflows: s.Order(len(v.Coflows)), Rule: policies.Free})
	}
}

// EqualShare gives every flow the smaller of the equal shares of the links it
// crosses, and what that leaves of other links to nobody. It is what the
// simulator CoflowSim calls FAIR, and less than max-min fairness: on the public
// Facebook trace coflows take 1.2 times as long on average.
type EqualShare struct{}

// Needs is nothing.
func (EqualShare) Needs() policies.Knowledge { return 0 }

// When is whenever the number of flows on a link changes.
func (EqualShare) When() policies.When { return policies.When{Coflows: true, Flows: true} }

// Schedule is one step for everything.
func (EqualShare) Schedule(v *policies.View, s *policies.Schedule) {
	if len(v.Coflows) > 0 {
		s.Steps = append(s.Steps, policies.Step{Coflows: s.Order(len(v.Coflows)), Rule: policies.Even})
	}
}
