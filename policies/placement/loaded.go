package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// LeastLoaded chooses the hosts with the most residual capacity on the links to them,
// according to the load estimates. It ignores placements since the last report, so all
// blocks between two reports go to the same few hosts. It shows the purpose of Sinbad's
// hysteresis.
type LeastLoaded struct {
	Steering
	Estimate
}

// DefaultLeastLoaded returns LeastLoaded with Sinbad's other settings.
func DefaultLeastLoaded() LeastLoaded { return LeastLoaded{DefaultSteering(), DefaultEstimate()} }

// Needs returns LinkLoad and DiskUse.
func (LeastLoaded) Needs() policies.Facts { return policies.LinkLoad | policies.DiskUse }

// Place implements policies.Placer.
func (p LeastLoaded) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.byLoads("least-loaded", v, b, rng, p.Estimate.check(), p.estimate, 0)
}

// PowerOfTwo draws two candidates for each choice and takes the one with more residual
// capacity on the links to it, according to the load estimates.
type PowerOfTwo struct {
	Steering
	Estimate
}

// DefaultPowerOfTwo returns PowerOfTwo with Sinbad's other settings.
func DefaultPowerOfTwo() PowerOfTwo { return PowerOfTwo{DefaultSteering(), DefaultEstimate()} }

// Needs returns LinkLoad and DiskUse.
func (PowerOfTwo) Needs() policies.Facts { return policies.LinkLoad | policies.DiskUse }

// Place implements policies.Placer.
func (p PowerOfTwo) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.byLoads("power-of-two", v, b, rng, p.Estimate.check(), p.estimate, 2)
}

// byLoads places a block by loads, unless a setting is bad. It compares the given number of candidates for each choice;
// 0 compares all.
func (s Steering) byLoads(name string, v *policies.PlacementView, b workloads.Block, rng *rand.Rand, bad error,
	find func(*policies.PlacementView) (*loads, error), candidates int,
) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), s.check(), bad); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	order := shuffled(v, rng)
	l, err := find(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s.steer(v, b, order, criteria{loads: l, candidates: candidates, wholePath: true})
}

// Oracle chooses the hosts with the most residual capacity on the links to them,
// according to the links' current traffic, which no master can know. It bounds the
// benefit of better estimates, not that of a better placement.
type Oracle struct{ Steering }

// DefaultOracle returns Oracle with Sinbad's other settings.
func DefaultOracle() Oracle { return Oracle{DefaultSteering()} }

// Needs returns OracleLoad, DiskUse, and LinkLoad for the most recent placements.
func (Oracle) Needs() policies.Facts {
	return policies.OracleLoad | policies.LinkLoad | policies.DiskUse
}

// Place implements policies.Placer.
func (p Oracle) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.byLoads("oracle", v, b, rng, nil, trueLoads, 0)
}
