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

// Sinbad steers replicas away from congested receive links (Chowdhury, Kandula and
// Stoica, SIGCOMM 2013). The first replica stays on the writer; the others go to the
// links with the most expected capacity. The expected capacity of a link is its capacity
// minus the smoothed estimate of its load and the traffic of blocks placed since. It is
// at most the write rate of a disk.
//
// Form selects the links. The literal reading of the paper puts every remote replica
// into a different rack, which moves more bytes between racks than HDFS does. By default
// the remote replicas therefore share a rack where racks are the bottleneck. A writer
// without room gets no replica, and all replicas are steered. Ties are broken by the
// same random order of hosts that the other policies draw, so in an idle cluster each
// form places blocks exactly as its baseline does.
//
// A placement that fails leaves no hysteresis, because the hysteresis is derived from
// View.Placements. Unlike the paper, it includes blocks placed by the fallback.
type Sinbad struct {
	Steering
	Estimate
	// Threshold and Fraction exempt small blocks, which are many but hold few bytes: the
	// fallback places a block smaller than Threshold, or smaller than Fraction times the
	// largest block of any writer (View.LargestBlock). 0 exempts none. The paper mentions
	// a threshold without its value.
	Threshold units.Bytes
	Fraction  float64
	// MinDelta is the minimum time over which the traffic of a placement is spread before
	// its links report. It only bounds the result of a division.
	MinDelta time.Duration
	// NoDiskCap lets the expected capacity exceed the write rate of a disk.
	NoDiskCap bool
	// WholePath takes the least expected capacity of all receiving links on the path to a
	// replica, of its rack and of its host, where several can be the bottleneck. Otherwise the
	// bottleneck is the link of the form alone, as in the paper's experiments.
	WholePath bool
	// Interval is q, the batch interval: requests are placed at its multiples. 0 places
	// each immediately, as in the paper's cluster experiments. Its simulations use 10 s.
	Interval time.Duration
	// Arrival places waiting requests in order of arrival. Otherwise the writers with the
	// fewest unplaced blocks go first (the paper's OPT′).
	Arrival bool
}

// DefaultSinbad returns Sinbad with the settings of the paper's cluster experiments.
func DefaultSinbad() Sinbad {
	return Sinbad{Steering: DefaultSteering(), Estimate: DefaultEstimate(), Fraction: 0.25, MinDelta: time.Millisecond}
}

var _ policies.Batcher = Sinbad{}

// Needs returns LinkLoad and DiskUse.
func (Sinbad) Needs() policies.Facts { return policies.LinkLoad | policies.DiskUse }

// Every returns Interval, the paper's q.
func (p Sinbad) Every() time.Duration { return p.Interval }

// Order puts requests of the writers with the fewest unplaced blocks first, ties by
// arrival. This lowers the mean completion time of a writer's blocks.
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
func (p Sinbad) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
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
	return p.steer(v, b, order, criteria{loads: l, wholePath: p.WholePath})
}

func (p Sinbad) check() error {
	errs := []error{p.Steering.check(), p.Estimate.check()}
	if p.Threshold < 0 || p.MinDelta < 0 || p.Interval < 0 {
		errs = append(errs, fmt.Errorf("threshold %d, min_delta %v, interval %v: must be 0 or more", int64(p.Threshold), p.MinDelta, p.Interval))
	}
	if !(p.Fraction >= 0 && p.Fraction <= 1) {
		errs = append(errs, fmt.Errorf("threshold_fraction %v: must be from 0 to 1", p.Fraction))
	}
	return errors.Join(errs...)
}

func (p Sinbad) threshold(v *policies.PlacementView) units.Bytes {
	return max(p.Threshold, units.Bytes(p.Fraction*float64(v.LargestBlock)))
}

// loads returns the estimated loads, including the expected traffic of recent placements.
func (p Sinbad) loads(v *policies.PlacementView) (*loads, error) {
	l, err := p.estimate(v)
	if err != nil {
		return nil, err
	}
	if v.DiskRate > 0 && !p.NoDiskCap {
		l.maxExpected = v.DiskRate
	}
	for i := range v.Placements {
		l.expect(v, &v.Placements[i], p.MinDelta)
	}
	return l, nil
}
