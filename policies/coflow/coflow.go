// Package coflow holds the policies that share the network among coflows: which
// goes first, and at what rates its flows send.
//
// It does not hand out what a policy leaves of the links' capacity: that is
// done once for all policies, in the engine.
package coflow

import (
	"testbed/policies"
)

// Fair leaves every flow to the network: no flow has a ceiling, and the
// transport shares the links flow by flow. On packets that is plain TCP, in the
// fluid model max-min fairness. It is the baseline of the coflow literature
// ("per-flow fairness").
type Fair struct{}

// Needs is nothing.
func (Fair) Needs() policies.Knowledge { return 0 }

// Allocate frees every flow, in the order of the View.
func (Fair) Allocate(v *policies.View) []policies.Grant {
	var n int
	for i := range v.Coflows {
		n += len(v.Coflows[i].Flows)
	}
	grants := make([]policies.Grant, 0, n)
	for i := range v.Coflows {
		for j := range v.Coflows[i].Flows {
			grants = append(grants, policies.Grant{Flow: v.Coflows[i].Flows[j].ID, Ceiling: policies.NoLimit})
		}
	}
	return grants
}
