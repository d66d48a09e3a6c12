// Package drawntest checks how many random cases of a property test have a property, such
// as that the test compares something. A test that skips some of its cases counts them
// here, so that skipping all cases is an error.
package drawntest

import (
	"math"
	"testing"
)

// chance is the probability with which a bound fails a correct test.
const chance = 1e-6

// AtLeast fails the test if got out of n cases are significantly fewer than expected, given
// that a case has the property with probability p or more. what names the cases.
func AtLeast(t testing.TB, what string, got, n int, p float64) {
	t.Helper()
	if low := n - most(n, 1-p); got < low {
		t.Errorf("%s: %d of %d cases: expected at least %d (probability %g per case; false alarms: 1 in a million runs)", what, got, n, low, p)
	}
}

// AtMost fails the test if got out of n cases are significantly more than expected, given
// that a case has the property with probability p or less. what names the cases.
func AtMost(t testing.TB, what string, got, n int, p float64) {
	t.Helper()
	if high := most(n, p); got > high {
		t.Errorf("%s: %d of %d cases: expected at most %d (probability %g per case; false alarms: 1 in a million runs)", what, got, n, high, p)
	}
}

// most returns the number that a binomial variable of n trials with probability p exceeds
// with a probability of at most chance.
func most(n int, p float64) int {
	if p <= 0 {
		return 0
	}
	choose := func(k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	tail := 0.0 // probability of more than k
	for k := n; k > 0; k-- {
		if p < 1 {
			tail += math.Exp(choose(k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
		} else {
			tail = 1
		}
		if tail > chance {
			return k
		}
	}
	return 0
}
