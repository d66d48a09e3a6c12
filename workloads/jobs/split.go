package jobs

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sort"

	"testbed/topo/units"
)

// mulDiv returns x times num divided by den, rounded down. x and num must be 0 or more, den more
// than 0, and the result must fit 63 bits; ok reports whether it does. exact reports whether
// nothing was rounded.
func mulDiv(x, num, den int64) (_ int64, exact, ok bool) {
	hi, lo := bits.Mul64(uint64(x), uint64(num))
	if hi >= uint64(den) {
		return 0, false, false
	}
	quo, rem := bits.Div64(hi, lo, uint64(den))
	if quo > math.MaxInt64 {
		return 0, false, false
	}
	return int64(quo), rem == 0, true
}

// part returns x times num divided by den, where num is at most den.
func part(x units.Bytes, num, den int64) units.Bytes {
	p, _, _ := mulDiv(int64(x), num, den)
	return units.Bytes(p)
}

// splitEven divides total into n parts that differ by at most one byte, the larger first.
func splitEven(total units.Bytes, n int) []units.Bytes {
	parts := make([]units.Bytes, n)
	for i := range parts {
		parts[i] = total / units.Bytes(n)
		if units.Bytes(i) < total%units.Bytes(n) {
			parts[i]++
		}
	}
	return parts
}

// split divides total in proportion to weights, of which at least one is positive. Each part is
// less than one byte off its share, and the parts add up to total. Without weights it is
// splitEven.
func split(total units.Bytes, n int, weights []int64) []units.Bytes {
	if weights == nil {
		return splitEven(total, n)
	}
	var all int64
	for _, w := range weights {
		all += w
	}
	parts := make([]units.Bytes, n)
	var upTo int64
	var before units.Bytes
	for i, w := range weights {
		upTo += w
		end := part(total, upTo, all)
		parts[i], before = end-before, end
	}
	return parts
}

// zipf returns the weights 1/k^s for k from 1 to n, in units of 1e-9 and at least one unit. Whole
// numbers do not depend on the rounding of a machine's floating point.
func zipf(n int, s float64) []int64 {
	weights := make([]int64, n)
	for k := range weights {
		weights[k] = max(1, int64(math.Round(1e9*math.Pow(float64(k+1), -s))))
	}
	return weights
}

// draw returns an index with a probability in proportion to its weight.
func draw(rng *rand.Rand, weights []int64) int {
	upTo := make([]int64, len(weights))
	var all int64
	for i, w := range weights {
		all += w
		upTo[i] = all
	}
	x := rng.Int64N(all)
	return sort.Search(len(upTo), func(i int) bool { return upTo[i] > x })
}

// shuffledZipf returns the weights of n partitions with Zipf exponent s in random order; nil if
// there is none or s is 0.
func shuffledZipf(rng *rand.Rand, n int, s float64) []int64 {
	if n == 0 || s == 0 {
		return nil
	}
	weights := zipf(n, s)
	rng.Shuffle(n, func(i, j int) { weights[i], weights[j] = weights[j], weights[i] })
	return weights
}
