package metrics

import (
	"fmt"
	"math"
	"time"

	"testbed/workloads"
)

// ShuffleClass is a class of jobs by how much of their time is shuffle.
type ShuffleClass struct {
	Share    int     // of the jobs, relative to the other classes' shares
	From, To float64 // the shuffle is this much of the job's time, below To; drawn uniformly
}

// JobMix is how the share of the shuffle in a job's time is distributed.
type JobMix []ShuffleClass

// leastShuffle is the least share of the shuffle: a job without any has no time to
// be made of its coflow's.
const leastShuffle = 0.01

// AaloJobs is the mix of the Facebook cluster that the evaluation of Aalo (SIGCOMM
// 2015) states and that of Philae (USENIX ATC 2019) takes over: in 61 % of the jobs
// the shuffle is below a quarter of the time, in 13, 14 and 12 % in the quarters
// above. Where within a quarter is not published. It is drawn uniformly here, in
// the lowest from 1 %: the least share is what the mean of all jobs' times hangs on.
func AaloJobs() JobMix {
	return JobMix{{61, leastShuffle, 0.25}, {13, 0.25, 0.5}, {14, 0.5, 0.75}, {12, 0.75, 1}}
}

func (m JobMix) check() error {
	total := 0
	for _, c := range m {
		if c.Share < 0 || c.Share > 1_000_000 || !(leastShuffle <= c.From && c.From < c.To && c.To <= 1) {
			return fmt.Errorf("jobs: class %+v: want a share of 0 to 1000000, and a shuffle from %v to 1 of the time", c, leastShuffle)
		}
		total += c.Share
	}
	if total == 0 {
		return fmt.Errorf("jobs: no class has a share: want at least one")
	}
	return nil
}

// draw draws what part of the time of a coflow's job is shuffle. A coflow has the same
// luck in every arm, repeat and selection of coflows.
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

// Jobs makes job completion times of coflow completion times, as the evaluations of
// Aalo and Philae do: a job computes, and then shuffles. Its computation takes what
// makes the shuffle, in base, the fraction of the job that is drawn for it,
//
//	compute = base's CCT × (1 - fraction) / fraction
//
// and as long in every arm; a job's time in an arm is that and the arm's CCT. The
// results have the jobs whose coflows have a positive time in both base and arm,
// in arm's order, with the IDs of these; unpaired counts the coflows that only one
// has or whose time is not positive. A time that does not fit is an error.
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
			return nil, nil, 0, fmt.Errorf("jobs: coflow %d: a CCT of %v that is %.2g of its job's time makes a time that does not fit", a.ID, b.Time, fraction)
		}
		b.Time += time.Duration(compute)
		a.Time += time.Duration(compute)
		baseJobs = append(baseJobs, b)
		armJobs = append(armJobs, a)
	}
	return baseJobs, armJobs, unpaired + len(base) - matched, nil
}
