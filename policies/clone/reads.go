package clone

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Copying is what was observed of copies of outputs and of those that fetch them: the input of the choice of ω, how long
// copies that fetch wait for a copy of their own (delay assignment; Dolly, section 4.3).
type Copying struct {
	Read time.Duration // of an output that no other copy of the task fetches at the same time: r ÷ B
	// Shared is α, the part of the rate that each of two copies gets that fetch from the same place, from above 0 to 1.
	Shared float64
	// Lags are times between the ends of two copies, one after the other; negative if the later one does not end.
	Lags []time.Duration
	// Computing are times of the rest of a task after its fetches.
	Computing []time.Duration
	// Outputs is the number of outputs that a task fetches, one after the other. Those fetched at the same time count as one.
	Outputs float64
	Copies  int // of each task, at least 2
}

// waits is the number of steps of the grid of ω.
const waits = 60

// Wait returns ω, from 0 to three times the median time of the tasks whose outputs are fetched, in 60 steps: that with the
// least expected time of the first copy to end, the smallest of equal ones.
func (c Copying) Wait(median time.Duration) time.Duration {
	best, least := time.Duration(0), math.Inf(1)
	for i := range waits + 1 {
		w := 3 * median / waits * time.Duration(i)
		if t := c.Expected(w); t < least*(1-rounding) {
			best, least = w, t
		}
	}
	return best
}

// Expected returns the expected time in seconds until the first copy of a task has fetched and computed with ω. It is the
// expectation of the minimum: the minimum of the expectations would always be that of the first copy.
func (c Copying) Expected(wait time.Duration) float64 {
	reads := c.reads(wait.Seconds())
	computing := make([]float64, 0, max(len(c.Computing), 1))
	for _, d := range c.Computing {
		computing = append(computing, d.Seconds())
	}
	if len(computing) == 0 {
		computing = append(computing, 0)
	}
	slices.Sort(computing)
	return minimum(reads, c.Outputs, computing)
}

// minimum returns the expectation of the least n·reads[i] + x, with x of each i drawn from ascending values.
func minimum(reads []float64, n float64, values []float64) (mean float64) {
	var at []float64
	for _, r := range reads {
		for _, v := range values {
			at = append(at, n*r+v)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	mean = at[0]
	for i, t := range at[1:] {
		later := 1. // the probability that all are later than the value before, at[i]
		for _, r := range reads {
			after, _ := slices.BinarySearchFunc(values, at[i], func(v, t float64) int {
				if n*r+v <= t {
					return -1
				}
				return 1
			})
			later *= float64(len(values)-after) / float64(len(values))
		}
		mean += (t - at[i]) * later
	}
	return mean
}

// reads returns the expected time to fetch one output, by copy of the task that fetches. Of two copies it is computed from the
// times with and without contention; of more, from random samples of the lags, the same ones for all waits.
func (c Copying) reads(wait float64) []float64 {
	if c.Copies <= 2 {
		late := 0
		for _, l := range c.Lags {
			if l < 0 || l.Seconds() > wait {
				late++
			}
		}
		p := float64(late) / float64(max(len(c.Lags), 1))
		shared, alone := c.contended(wait), c.exclusive(wait)
		return []float64{float64(p*shared[0]) + float64((1-p)*alone[0]), float64(p*shared[1]) + float64((1-p)*alone[1])}
	}
	const samples = 200
	random := rand.New(rand.NewPCG(1, 2))
	out, ends := make([]float64, c.Copies), make([]float64, 0, c.Copies)
	for range samples {
		ends = append(ends[:0], 0)
		for len(ends) < c.Copies && len(c.Lags) > 0 {
			l := c.Lags[random.IntN(len(c.Lags))]
			if l < 0 {
				break
			}
			ends = append(ends, ends[len(ends)-1]+l.Seconds())
		}
		for i, t := range c.Fetch(wait, ends) {
			out[i] += t / samples
		}
	}
	return out
}

// exclusive returns the times of two copies to fetch an output of which each has a copy of its own.
func (c Copying) exclusive(wait float64) [2]float64 {
	read := c.Read.Seconds()
	return [2]float64{read, read + min(wait, read)}
}

// contended returns the times of two copies to fetch an output of which there is one copy: the second one waits, and then
// shares it with the first. The paper's text ends before these formulas; they are rebuilt.
func (c Copying) contended(wait float64) [2]float64 {
	read := c.Read.Seconds()
	x := min(wait, read)
	if wait >= read {
		return [2]float64{read, 2 * read}
	}
	return [2]float64{x + (read-x)/c.Shared, 2*wait + (read-wait)/c.Shared}
}

// Fetch returns the times in seconds at which each of Copies copies has fetched an output whose copies end at ascending times, the
// first at 0. Each waits up to wait seconds for a copy that no other fetches, and then shares the one with fewest
// readers; copies that end later are not used. Of k readers, each gets 1 ÷ (1 + (k−1)(1÷α − 1)) of the rate.
func (c Copying) Fetch(wait float64, ends []float64) []float64 {
	read := c.Read.Seconds()
	for len(ends) > 1 && ends[len(ends)-1] > wait {
		ends = ends[:len(ends)-1]
	}
	out := make([]float64, c.Copies)
	if read <= 0 {
		return out
	}
	from, left := make([]int, c.Copies), make([]float64, c.Copies) // source, or -1; seconds at the full rate
	for i := range from {
		from[i], left[i] = -1, read
	}
	readers := make([]int, len(ends))
	rate := func(k int) float64 { return 1 / (1 + float64(k-1)*(1/c.Shared-1)) }
	for now, unfinished := 0., c.Copies; unfinished > 0; {
		for i := range from {
			if from[i] >= 0 || left[i] == 0 {
				continue
			}
			for n := range ends {
				if ends[n] <= now && (readers[n] == 0 || now >= wait) && (from[i] < 0 || readers[n] < readers[from[i]]) {
					from[i] = n
				}
			}
			if from[i] >= 0 {
				readers[from[i]]++
			}
		}
		next := math.Inf(1)
		if now < wait {
			next = wait
		}
		for _, e := range ends {
			if e > now {
				next = min(next, e)
			}
		}
		for i, n := range from {
			if n >= 0 {
				next = min(next, now+left[i]/rate(readers[n]))
			}
		}
		freed := make([]int, len(ends))
		for i, n := range from {
			switch {
			case n < 0:
			case now+left[i]/rate(readers[n]) <= next:
				out[i], left[i], from[i] = next, 0, -1
				freed[n]++
				unfinished--
			default:
				left[i] = max(left[i]-(next-now)*rate(readers[n]), math.SmallestNonzeroFloat64)
			}
		}
		for n := range freed {
			readers[n] -= freed[n]
		}
		now = next
	}
	return out
}
