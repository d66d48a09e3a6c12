// Package rates computes the rates a policies.Schedule stands for: the one
// implementation of every rule, for the engine on packets and for simulations.
//
// It decides nothing: which coflow comes when and by which rule is the policy's.
package rates

import (
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Flow is one flow of a coflow, as NewDemand takes it.
type Flow struct {
	ID    workloads.FlowID
	Size  units.Bytes
	Links []topo.LinkID // its path
}

// Demand is one coflow's flows, in the form in which rates are computed. Flows
// are known by their place: 0 for the one with the smallest ID, and so on. They
// keep it when others end.
type Demand struct {
	// Left is how many bits are still to be received, by place; 0 for a flow that has
	// ended. It is the caller's to lower (Advance does): the rules that need sizes
	// read it.
	Left []float64
	// Rate is what the last Share gave each flow, in bit/s, by place.
	Rate []float64
}

// NewDemand is the demand of flows, which are in order of ID and not empty.
// links is the number of links of the fabric.
func NewDemand(flows []Flow, links int) *Demand { panic("to be written") }

// Flows is how many flows the demand began with, Unfinished how many have not ended.
func (d *Demand) Flows() int      { panic("to be written") }
func (d *Demand) Unfinished() int { panic("to be written") }

// ID is the ID of the flow at a place, and Place the reverse, -1 for a stranger.
func (d *Demand) ID(place int) workloads.FlowID      { panic("to be written") }
func (d *Demand) Place(id workloads.FlowID) int      { panic("to be written") }
func (d *Demand) Path(place int) []topo.LinkID       { panic("to be written") }
func (d *Demand) SetPath(place int, l []topo.LinkID) { panic("to be written") }

// MakePilot makes a flow a pilot; Pilot tells.
func (d *Demand) MakePilot(place int)  { panic("to be written") }
func (d *Demand) Pilot(place int) bool { panic("to be written") }

// End takes a flow off: it has no rate and loads no link any more.
func (d *Demand) End(place int) { panic("to be written") }

// Moving are the places of the flows with a rate above 0, in order. It is valid
// until the next Share or End.
func (d *Demand) Moving() []int32 { panic("to be written") }

// Advance lets so many seconds pass: every moving flow's Left falls by its rate
// times them, not below 0.
func (d *Demand) Advance(seconds float64) { panic("to be written") }

// Links are the links that unfinished flows cross, by LinkID: View's
// CoflowState.Links. Remaining is filled in if sizes is true, else 0. The slice is
// the demand's own and valid until the next call of a method.
func (d *Demand) Links(sizes bool) []policies.LinkState { panic("to be written") }

// Sharer computes rates. Its zero value is ready; it holds nothing but memory that
// is used again. It is for one goroutine.
type Sharer struct{}

// Share sets the rates of all demands, which are parallel to the coflows of the
// View that s was made for, by the schedule's steps. capacity is in bit/s, by
// LinkID. knows is what the policy declared: a rule that needs more is an error, as
// is a step that names a coflow or flow that is not there, or a rate or budget out of
// bounds. Flows of rule Free get their max-min fair share of what all other steps
// leave; with ceilings true they get +Inf instead, for a transport that finds it out by
// itself.
func (s *Sharer) Share(sch *policies.Schedule, demands []*Demand, capacity []float64, knows policies.Knowledge, ceilings bool) error {
	panic("to be written")
}
