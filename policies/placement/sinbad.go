package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Sinbad steers replicas away from congested receive links (Chowdhury, Kandula
// and Stoica, SIGCOMM 2013). The first replica stays with the writer; the others
// go where links have the most expected capacity, which is what the smoothed
// estimate of a link's load and what was placed since leave of it, at most what a
// disk can write.
//
// Form says on which links: the literal reading of the paper puts every remote
// replica into a rack of its own, which moves more bytes between racks than HDFS
// does, so that by default the remote replicas share a rack where racks are the
// bottleneck. A writer that can store nothing gets no replica, and all of them are
// steered. Ties are broken by the same random order of hosts that the other policies
// draw, so that an idle cluster sees each form place as its baseline does.
//
// The hysteresis of a choice that comes to nothing is undone, as it must be, because
// it follows from View.Placements: what was not placed is not there. Blocks that the
// fallback placed are, which the paper does not count.
type Sinbad struct {
	Steering
	Estimate
	// A block is left to the fallback if it is smaller than Threshold or than
	// Fraction of the largest block that anybody has asked for (View.LargestBlock):
	// small blocks are many but few bytes. 0 lets Sinbad place all. The paper has a
	// threshold but not its value.
	Threshold units.Bytes
	Fraction  float64
	// MinDelta is the shortest time over which a placement is expected to spread
	// before its links report. It only bounds what a division gives.
	MinDelta time.Duration
	// NoDiskCap lets expected capacities exceed what a disk can write.
	NoDiskCap bool
	// Interval is q, at whose multiples requests are placed; 0 places each at once, as
	// in the paper's experiments on a cluster. Its simulations have 10 s.
	Interval time.Duration
	// Arrival places waiting requests in the order in which they came, not those
	// first whose writers have the fewest blocks left (the paper's OPT′).
	Arrival bool
}

// DefaultSinbad is Sinbad as in the paper's cluster experiments.
func DefaultSinbad() Sinbad {
	return Sinbad{Steering: DefaultSteering(), Estimate: DefaultEstimate(), Fraction: 0.25, MinDelta: time.Millisecond}
}

var _ policies.Batcher = Sinbad{}

// Needs is the load of the links and the use of the disks.
func (Sinbad) Needs() policies.Knowledge { return policies.LinkLoad | policies.DiskUse }

// Every is q.
func (p Sinbad) Every() time.Duration { return p.Interval }

// Order puts first the requests whose writers have the fewest blocks left, which
// brings the mean time of a writer's blocks down; ties in order of arrival.
func (p Sinbad) Order(waiting []policies.Request) []int {
	order := make([]int, len(waiting))
	for i := range order {
		order[i] = i
	}
	if !p.Arrival {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(waiting[a].Left, waiting[b].Left) })
	}
	return order
}

// Place implements policies.Placer.
func (p Sinbad) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), p.check()); err != nil {
		return nil, fmt.Errorf("sinbad: %w", err)
	}
	order := shuffled(v, rng)
	if b.Size < p.threshold(v) {
		return p.fallback(p.form(v.Fabric)).place(v, b, order)
	}
	l, err := p.loads(v)
	if err != nil {
		return nil, fmt.Errorf("sinbad: %w", err)
	}
	return p.steer(v, b, order, way{loads: l})
}

func (p Sinbad) check() error {
	errs := []error{p.Steering.check(), p.Estimate.check()}
	if p.Threshold < 0 || p.MinDelta < 0 || p.Interval < 0 {
		errs = append(errs, fmt.Errorf("threshold %d, least time %v, interval %v: want 0 or more", int64(p.Threshold), p.MinDelta, p.Interval))
	}
	if !(p.Fraction >= 0 && p.Fraction <= 1) {
		errs = append(errs, fmt.Errorf("threshold of %v of the largest block: want 0 to 1", p.Fraction))
	}
	return errors.Join(errs...)
}

func (p Sinbad) threshold(v *policies.View) units.Bytes {
	return max(p.Threshold, units.Bytes(p.Fraction*float64(v.LargestBlock)))
}

// loads are those that a decision reckons with.
func (p Sinbad) loads(v *policies.View) (*loads, error) {
	l, err := p.estimate(v)
	if err != nil {
		return nil, err
	}
	if v.DiskRate > 0 && !p.NoDiskCap {
		l.most = v.DiskRate
	}
	for i := range v.Placements {
		l.expect(v, &v.Placements[i], p.MinDelta)
	}
	return l, nil
}
