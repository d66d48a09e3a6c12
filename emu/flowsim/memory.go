package flowsim

import (
	"fmt"

	"testbed/policies"
	"testbed/topo/units"
)

// Measured memory of a simulation: see TestMemory of emu/flowsim/comparison. The memory of a coflow is held
// from its arrival to its end; its result remains.
const (
	bytesOfFlow   = 120 // in all policies: remaining bits, rates, paths, sets of bits
	bytesOfPilots = 220 // per flow, additional in policies with pilots: rates of the last decision
	bytesOfShared = 150 // per flow, additional if rates may be those of classes of flows
	bytesOfLevels = 140 // per flow, additional if these may be max-min fair from one arrival or end of a coflow to the next
	bytesOfCoflow = 4500
	bytesOfLink   = 5.3 // per coflow and link of the fabric
	bytesOfRecord = 42  // per coflow and link of the fabric, additional in policies with pilots
	bytesOfResult = 600 // per ended coflow, with the results of a study
	bytesOfPath   = 110 // per pair of ports, up to mostPaths of them
	bytesOfState  = 300 // per run and link of the fabric
)

// MemoryOf returns the approximate memory of a coflow with the given number of flows under a
// scheduler, from its arrival to its end, on a fabric with the given number of links.
func MemoryOf(s policies.CoflowScheduler, flows, links int) units.Bytes {
	n := bytesOfCoflow + bytesOfLink*float64(links) + bytesOfFlow*float64(flows)
	if !s.Needs().Has(policies.Sizes) && !s.Needs().Has(policies.Flows) && s.Triggers().Every == 0 {
		n += bytesOfShared * float64(flows)
		if !s.Triggers().Flows {
			n += bytesOfLevels * float64(flows)
		}
	}
	if s.Triggers().Pilots && flows > 1 {
		n += bytesOfRecord*float64(links) + bytesOfPilots*float64(flows)
	}
	return units.Bytes(n)
}

// MemoryOfRun returns the memory of a run with the given numbers of coflows and flows on a
// fabric with the given number of links, without its coflows.
func MemoryOfRun(coflows, flows, links int) units.Bytes {
	return bytesOfResult*units.Bytes(coflows) + bytesOfPath*units.Bytes(min(flows, mostPaths)) + bytesOfState*units.Bytes(links)
}

// A MemoryError reports that a simulation needs more memory than it may use.
type MemoryError struct {
	What          string // that needs it
	Need, Allowed units.Bytes
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s: about %.1f GB of memory needed, %.1f GB allowed: allow more (--memory), simulate fewer coflows (--first) or fewer flows, or use a machine with more memory",
		e.What, float64(e.Need)/1e9, float64(e.Allowed)/1e9)
}

// Refused marks the error as one of insufficient resources.
func (e *MemoryError) Refused() {}
