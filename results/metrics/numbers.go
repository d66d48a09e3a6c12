package metrics

import "slices"

// Numbers are the numbers of an arm's repeats, ascending; nil stands for 0, 1 and so on. Repeats of the same number have
// the same workload in all arms.
type Numbers []int

// NumbersOf returns numbers that are ascending.
func NumbersOf(all []int) Numbers {
	for k, n := range all {
		if n != k {
			return all
		}
	}
	return nil
}

// Of returns the number of the k-th repeat.
func (n Numbers) Of(k int) int {
	if n == nil {
		return k
	}
	return n[k]
}

// Place returns which of some repeats has a number, -1 if none has.
func (n Numbers) Place(number, repeats int) int {
	if n != nil {
		return slices.Index(n, number)
	}
	if number < 0 || number >= repeats {
		return -1
	}
	return number
}
