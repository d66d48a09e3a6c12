package workloads

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// curve is a distribution of positive numbers by its quantiles: pairs of a
// probability and a value, both ascending. It is constant
// below the first probability and above the last, and nearly linear in the logarithm of
// the value between two: see at.
type curve [][2]float64

// at returns the quantile of a probability. It uses no function whose last digit may differ
// between machines: half-way between two values it is their geometric mean, elsewhere the
// geometric mean of the arithmetic and the harmonic interpolation.
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

// evenly returns the curve through values of equal weight, each at the middle of its
// range of probabilities.
func evenly(values ...float64) curve {
	q := make(curve, len(values))
	for i, v := range values {
		q[i] = [2]float64{(float64(i) + 0.5) / float64(len(values)), v}
	}
	return q
}

// deal assigns a probability to each of n items, one from every n-th part of [0, 1), in the
// order of their scores. With stratified rather than independent draws, quantiles follow
// the curve for any number of items, and seeds differ in combinations, not in totals.
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

// quotas divides n in proportion to shares: rounded down, and the rest by largest
// remainder, ties to the first.
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
