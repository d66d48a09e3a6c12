package placement

import (
	"errors"
	"math/rand/v2"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Uniform places at random: the first replica at the writer, the others on any
// hosts, so that not all are in one rack. It is what Sinbad was deployed against,
// and what its form Edge compares with.
//
// Where too few hosts are left it gives up TwoRacks and Tolerance first, then the
// spread over racks and zones, and fails if even so there are too few.
type Uniform struct {
	// TwoRacks puts each of the other replicas into a rack of its own, none of
	// them the writer's: what Sinbad's form Literal compares with.
	TwoRacks bool
	Constraints
}

// DefaultUniform is Uniform with no storage limit.
func DefaultUniform() Uniform {
	c := DefaultConstraints()
	c.Tolerance = NoTolerance
	return Uniform{Constraints: c}
}

// Needs is the use of the disks.
func (Uniform) Needs() policies.Knowledge { return policies.DiskUse }

// Place implements policies.Placer.
func (p Uniform) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), p.check()); err != nil {
		return nil, err
	}
	return p.place(v, b, shuffled(v, rng))
}

func (p Uniform) place(v *policies.View, b workloads.Block, order []topo.HostID) ([]topo.HostID, error) {
	form := Edge
	if p.TwoRacks && v.Fabric.Racks() > 1 {
		form = Literal
	}
	anyDisk := p.Constraints
	anyDisk.Tolerance = NoTolerance
	for _, try := range []struct {
		Constraints
		form Form
	}{{p.Constraints, form}, {anyDisk, Edge}, {Constraints{Hosts: p.Hosts, Tolerance: NoTolerance}, Edge}} {
		hosts, ok, err := try.choose(v, b, order, way{form: try.form, among: 1})
		if err != nil || ok {
			return hosts, err
		}
	}
	may, err := allowed(v.Fabric, p.Hosts)
	if err != nil {
		return nil, err
	}
	return nil, noRoom(v, b, may)
}
