package coflow

import (
	"testbed/policies"
)

// SEBF is the smallest-effective-bottleneck-first order with minimum allocation
// for desired duration (MADD) of Varys (Chowdhury, Zhong and Stoica, SIGCOMM
// 2014). Coflows go in order of the time their bottleneck still needs, ties by
// ID; each gets, of what those before it left, the rates at which all of its
// flows end together, or nothing, where a link it needs is full. What that leaves
// is handed out in the same order, at every arrival and end of a coflow and end of
// a flow. All of it can be set; the zero value is what is said here.
//
// The paper ranks by the bottleneck at arrival or by what remains, depending on
// where one looks; its prototype by what remains, as is the default here.
type SEBF struct {
	Initial bool // rank by the bottleneck at arrival
	Sharing
}

func (p SEBF) ordered() Ordered {
	return Ordered{By: Bottleneck, Initial: p.Initial, Sharing: p.Sharing}
}

// Needs is the flows' sizes: SEBF is clairvoyant.
func (p SEBF) Needs() policies.Knowledge { return policies.Sizes }

// When is what Pace says.
func (p SEBF) When() policies.When { return p.Pace.when() }

// Schedule is that of Ordered by the bottleneck.
func (p SEBF) Schedule(v *policies.View, s *policies.Schedule) { p.ordered().Schedule(v, s) }
