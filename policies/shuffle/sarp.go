package shuffle

import (
	"cmp"
	"slices"
)

// DefaultMapCompletion is the default of the share of a job's maps that must be exceeded for SARP to
// use the measured intermediate bytes, in [0, 1]. The paper names the threshold without a value; the default is ours.
const DefaultMapCompletion = 0.5

// SARP returns the number of reduces that a job prefers on each rack (ShuffleWatcher, Shuffle-Aware
// Reduce Placement): its reduces in proportion to the intermediate bytes by rack if more than the share
// threshold of its maps is done, and the tentative reduces of SAMP before.
func SARP(done, maps int, threshold float64, intermediate []float64, tentative []int, reduces int) []int {
	if float64(done) <= float64(threshold*float64(maps)) {
		return slices.Clone(tentative)
	}
	return Shares(intermediate, reduces)
}

// Shares divides n reduces among racks in proportion to the weights, not negative, by largest
// remainder; ties go to the lower rack. Without weight, all racks count the same.
func Shares(weights []float64, n int) []int {
	shares := make([]int, len(weights))
	if len(weights) == 0 {
		return shares
	}
	total := 0.0
	for _, w := range weights {
		total += w
	}
	rest := make([]float64, len(weights))
	order := make([]int, len(weights))
	left := n
	for r, w := range weights {
		exact := float64(n) / float64(len(weights))
		if total > 0 {
			exact = float64(n) * w / total
		}
		shares[r] = min(int(exact), left)
		rest[r] = exact - float64(shares[r])
		order[r] = r
		left -= shares[r]
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(rest[b], rest[a]), cmp.Compare(a, b)) })
	for i := 0; left > 0; i++ {
		shares[order[i%len(order)]]++
		left--
	}
	return shares
}
