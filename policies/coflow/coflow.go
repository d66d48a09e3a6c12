// Package coflow holds the policies that share the network among coflows. A policy
// decides the order of coflows and the allocation rule of their flows.
//
// This package computes no rates: package alloc does that for all policies.
package coflow

import (
	"testbed/policies"
)

// Fair sets no rate caps: the transport shares the links among flows. On packets that is
// plain TCP, in the fluid model max-min fairness. It is the baseline of the coflow
// literature ("per-flow fairness").
type Fair struct{}

// Needs returns 0, since Fair depends on arrivals only.
func (Fair) Needs() policies.Facts { return 0 }

// Unlimited implements policies.Unlimited.
func (Fair) Unlimited() bool { return true }

// Triggers requests a decision at arrivals, to release the flows of a new coflow.
func (Fair) Triggers() policies.Triggers { return policies.Triggers{Coflows: true} }

// New returns the policy itself, since an instance remembers nothing.
func (Fair) New() policies.CoflowInstance { return Fair{} }

// Decide serves all coflows in one step.
func (Fair) Decide(v *policies.CoflowView, s *policies.Schedule) {
	s.Serve(policies.Free, s.Order(len(v.Coflows)))
}

// EqualShare gives every flow the smallest of its equal shares of the links on its path.
// The rest of the capacity stays idle. The simulator CoflowSim calls it FAIR. It is worse
// than max-min fairness: on the public Facebook trace the average CCT is 1.2 times as
// long.
type EqualShare struct{}

// Needs returns 0.
func (EqualShare) Needs() policies.Facts { return 0 }

// Triggers requests a decision whenever the number of flows on a link may change.
func (EqualShare) Triggers() policies.Triggers { return policies.Triggers{Coflows: true, Flows: true} }

// New returns the policy itself, since an instance remembers nothing.
func (EqualShare) New() policies.CoflowInstance { return EqualShare{} }

// Decide serves all coflows in one step.
func (EqualShare) Decide(v *policies.CoflowView, s *policies.Schedule) {
	s.Serve(policies.EqualSplit, s.Order(len(v.Coflows)))
}
