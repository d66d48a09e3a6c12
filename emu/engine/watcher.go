package engine

import (
	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Watcher is notified of each decision of a policy, before it takes effect. What it receives is valid until it
// returns.
type Watcher interface {
	Coflow(v *policies.CoflowView, s *policies.Schedule)
	Tasks(v *policies.TaskView, a *policies.Assignment)
	// Placement receives the hosts of a block, or the reason why there are none.
	Placement(v *policies.PlacementView, b workloads.Block, hosts []topo.HostID, failed error)
}

// Observed returns the facts in the views of a coflow policy that are observed: those that it needs and, so that other
// policies can decide with the same views, all others that the engine knows. Progress is known if the policy
// names it. A policy that sees flows once, or its pilot flows alone, sees no others.
func Observed(n policies.Facts) policies.Facts {
	n |= policies.Links | policies.Totals
	if n.Has(policies.Progress) {
		n |= policies.Sizes | policies.MostSent
	}
	if n&policies.Flows == 0 {
		n |= policies.Flows
	}
	return n
}
