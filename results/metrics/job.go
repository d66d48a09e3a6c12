package metrics

import (
	"fmt"
	"math"
	"time"

	"testbed/workloads"
)

// ShuffleClass is a class of jobs with a similar share of shuffle in their time.
type ShuffleClass struct {
	Share    int     // share of the jobs, relative to the other classes
	From, To float64 // range of the shuffle's share of the job time, below To; drawn uniformly
}

// JobMix is the distribution of the shuffle's share of the job time.
type JobMix []ShuffleClass

// leastShuffle is the smallest share of the shuffle: the time of a job without shuffle
// cannot be derived from its coflow.
const leastShuffle = 0.01

// AaloJobs returns the mix of the Facebook cluster that the evaluation of Aalo (SIGCOMM
// 2015) states and that of Philae (USENIX ATC 2019) reuses: in 61 % of the jobs the shuffle
// takes less than a quarter of the time, and in 13, 14 and 12 % it is in the next quarters.
// The distribution within a quarter is not published; it is uniform here, and starts at 1 %
// in the lowest quarter. The mean job time depends strongly on that minimum.
func AaloJobs() JobMix {
	return JobMix{{61, leastShuffle, 0.25}, {13, 0.25, 0.5}, {14, 0.5, 0.75}, {12, 0.75, 1}}
}

func (m JobMix) check() error {
	total := 0
	for _, c := range m {
		if c.Share < 0 || c.Share > 1_000_000 || !(leastShuffle <= c.From && c.From < c.To && c.To <= 1) {
			return fmt.Errorf("jobs: class %+v: share must be 0 to 1000000, and the shuffle %v to 1 of the time", c, leastShuffle)
		}
		total += c.Share
	}
	if total == 0 {
		return fmt.Errorf("jobs: no class has a share: at least one must")
	}
	return nil
}

// draw draws the shuffle's share of the time of a coflow's job. A coflow has the same share
// in every arm, repeat and selection of coflows.
func (m JobMix) draw(seed uint64, c workloads.CoflowID) float64 {
	rng := workloads.Stream(seed, "shuffle-fraction", int(c))
	total := 0
	for _, class := range m {
		total += class.Share
	}
	at := rng.IntN(total)
	for _, class := range m {
		if at -= class.Share; at < 0 {
			return class.From + float64(rng.Float64()*(class.To-class.From))
		}
	}
	return m[len(m)-1].From
}

// Jobs derives job completion times from coflow completion times, as the evaluations of
// Aalo and Philae do: a job computes, and then shuffles. The computation time makes the
// shuffle the drawn fraction of the job time in base,
//
//	compute = base's CCT × (1 - fraction) / fraction
//
// and is the same in every arm. A job's time in an arm is that plus the arm's CCT. The
// results have the jobs whose coflows have a positive time in both base and arm, in arm's
// order and with the coflows' IDs; unpaired counts the coflows that only one has or whose
// time is not positive. A time that overflows is an error.
func (m JobMix) Jobs(seed uint64, base, arm []Item) (baseJobs, armJobs []Item, unpaired int, _ error) {
	if err := m.check(); err != nil {
		return nil, nil, 0, err
	}
	times := make(map[pairKey]Item, len(base))
	for _, b := range base {
		times[pairKey{b.Repeat, b.ID}] = b
	}
	matched := 0
	for _, a := range arm {
		b, ok := times[pairKey{a.Repeat, a.ID}]
		if ok {
			matched++
		}
		if !ok || a.Time <= 0 || b.Time <= 0 {
			unpaired++
			continue
		}
		fraction := m.draw(seed, workloads.CoflowID(a.ID))
		compute := math.Round(float64(b.Time) * (1 - fraction) / fraction)
		if compute > float64(math.MaxInt64-max(a.Time, b.Time))/2 {
			return nil, nil, 0, fmt.Errorf("jobs: coflow %d: a CCT of %v that is %.2g of its job's time gives a job time that does not fit", a.ID, b.Time, fraction)
		}
		b.Time += time.Duration(compute)
		a.Time += time.Duration(compute)
		baseJobs = append(baseJobs, b)
		armJobs = append(armJobs, a)
	}
	return baseJobs, armJobs, unpaired + len(base) - matched, nil
}
