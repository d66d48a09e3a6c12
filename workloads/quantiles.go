package workloads

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// curve is a distribution of positive numbers by its quantiles: pairs of a
// probability and a value, both ascending. Below the first probability and above
// the last it is flat, and between two it rises evenly in the logarithm of the
// value, very nearly: see at.
type curve [][2]float64

// at is the quantile of a probability. It uses no function whose last digit may
// differ between machines: half-way between two values it is their geometric mean,
// and elsewhere that of the arithmetic and the harmonic interpolation.
func (q curve) at(p float64) float64 {
	i, _ := slices.BinarySearchFunc(q, p, func(k [2]float64, p float64) int { return cmp.Compare(k[0], p) })
	if i == 0 {
		return q[0][1]
	}
	if i == len(q) {
		return q[i-1][1]
	}
	a, b := q[i-1][1], q[i][1]
	t := (p - q[i-1][0]) / (q[i][0] - q[i-1][0])
	arithmetic := a + float64(t*(b-a))
	harmonic := float64(a*b) / (b - float64(t*(b-a)))
	return math.Sqrt(float64(arithmetic * harmonic))
}

// evenly is the curve through values that each stand for the same share of the
// whole, at its middle.
func evenly(values ...float64) curve {
	q := make(curve, len(values))
	for i, v := range values {
		q[i] = [2]float64{(float64(i) + 0.5) / float64(len(values)), v}
	}
	return q
}

// deal gives n items a probability each, one from every n-th part of [0, 1), in the
// order of their scores. Dealt rather than drawn, quantiles follow the curve at any
// number of items, and two seeds differ in what falls together, not in how much
// there is of it.
func deal(rng *rand.Rand, scores []float64) []float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	dealt := make([]float64, len(scores))
	for rank, i := range order {
		dealt[i] = (float64(rank) + rng.Float64()) / float64(len(scores))
	}
	return dealt
}

// quotas shares n out in proportion to shares: rounded down, and what is left to
// the largest remainders, the first of equal ones first.
func quotas(n int, shares []int) []int {
	total := 0
	for _, s := range shares {
		total += s
	}
	counts := make([]int, len(shares))
	byRemainder := make([]int, len(shares))
	left := n
	for i, s := range shares {
		byRemainder[i] = i
		counts[i] = s * n / total
		left -= counts[i]
	}
	slices.SortStableFunc(byRemainder, func(a, b int) int { return cmp.Compare(shares[b]*n%total, shares[a]*n%total) })
	for _, i := range byRemainder[:left] {
		counts[i]++
	}
	return counts
}
