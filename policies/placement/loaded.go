package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// LeastLoaded takes the hosts with the most capacity left on the links that lead to
// them, by the estimates alone: it does not reckon with what was placed since they
// were made, so that all blocks between two reports go to the same few hosts.
// It shows what Sinbad's hysteresis is for.
type LeastLoaded struct {
	Steering
	Estimate
}

// DefaultLeastLoaded is LeastLoaded with all else as Sinbad has it.
func DefaultLeastLoaded() LeastLoaded { return LeastLoaded{DefaultSteering(), DefaultEstimate()} }

// Needs is the load of the links and the use of the disks.
func (LeastLoaded) Needs() policies.Knowledge { return policies.LinkLoad | policies.DiskUse }

// Place implements policies.Placer.
func (p LeastLoaded) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return byEstimate("least-loaded", p.Steering, p.Estimate, v, b, rng, 0)
}

// PowerOfTwo draws two candidates for each choice and takes the one with more
// capacity left on the links that lead to it, by the estimates alone.
type PowerOfTwo struct {
	Steering
	Estimate
}

// DefaultPowerOfTwo is PowerOfTwo with all else as Sinbad has it.
func DefaultPowerOfTwo() PowerOfTwo { return PowerOfTwo{DefaultSteering(), DefaultEstimate()} }

// Needs is the load of the links and the use of the disks.
func (PowerOfTwo) Needs() policies.Knowledge { return policies.LinkLoad | policies.DiskUse }

// Place implements policies.Placer.
func (p PowerOfTwo) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return byEstimate("power-of-two", p.Steering, p.Estimate, v, b, rng, 2)
}

// byEstimate places by the estimates, comparing so many candidates for each choice.
func byEstimate(name string, s Steering, e Estimate, v *policies.View, b workloads.Block, rng *rand.Rand, among int) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), s.check(), e.check()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	order := shuffled(v, rng)
	l, err := e.estimate(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s.steer(v, b, order, way{loads: l, among: among, path: true})
}

// Oracle takes the hosts with the most capacity left on the links that lead to them,
// by what links really carry at the moment: no master can know that. It bounds
// what better estimates could bring, not what better placement could.
type Oracle struct{ Steering }

// DefaultOracle is Oracle with all else as Sinbad has it.
func DefaultOracle() Oracle { return Oracle{DefaultSteering()} }

// Needs is the true load of the links, what has just been placed and the use of
// the disks.
func (Oracle) Needs() policies.Knowledge {
	return policies.TrueLoad | policies.LinkLoad | policies.DiskUse
}

// Place implements policies.Placer.
func (p Oracle) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), p.check()); err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	order := shuffled(v, rng)
	l, err := trueLoads(v)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	return p.steer(v, b, order, way{loads: l, path: true})
}
