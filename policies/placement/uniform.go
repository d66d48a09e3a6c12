package placement

import (
	"errors"
	"math/rand/v2"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Uniform places at random: the first replica on the writer, the others on any hosts
// that are not all in one rack. It is the baseline of Sinbad's deployment and of its form
// Edge.
//
// If too few hosts are eligible, Uniform first relaxes TwoRacks and Tolerance, then the
// spread over racks and zones. It fails if there are too few even then.
type Uniform struct {
	// TwoRacks puts each of the other replicas into a different rack, never the writer's.
	// It is the baseline of Sinbad's form Literal.
	TwoRacks bool
	Constraints
}

// DefaultUniform returns Uniform without a storage limit.
func DefaultUniform() Uniform {
	c := DefaultConstraints()
	c.Tolerance = NoTolerance
	return Uniform{Constraints: c}
}

// Needs returns DiskUse.
func (Uniform) Needs() policies.Facts { return policies.DiskUse }

// Place implements policies.Placer.
func (p Uniform) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), p.check()); err != nil {
		return nil, err
	}
	return p.place(v, b, shuffled(v, rng))
}

func (p Uniform) place(v *policies.PlacementView, b workloads.Block, order []topo.HostID) ([]topo.HostID, error) {
	form := Edge
	if p.TwoRacks && v.Fabric.Racks() > 1 {
		form = Literal
	}
	anyDisk := p.Constraints
	anyDisk.Tolerance = NoTolerance
	for _, attempt := range []struct {
		Constraints
		form Form
	}{{p.Constraints, form}, {anyDisk, Edge}, {Constraints{Hosts: p.Hosts, Tolerance: NoTolerance}, Edge}} {
		hosts, ok, err := attempt.choose(v, b, order, criteria{form: attempt.form, candidates: 1})
		if err != nil || ok {
			return hosts, err
		}
	}
	allowed, err := allowedHosts(v.Fabric, p.Hosts)
	if err != nil {
		return nil, err
	}
	return nil, noRoom(v, b, allowed)
}
