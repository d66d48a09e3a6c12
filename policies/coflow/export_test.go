package coflow

import "testbed/policies"

// Timed are the policies that BenchmarkDecision times and TestNoAllocation looks at.
func Timed() (out []policies.Scheduler) {
	for _, c := range contenders() {
		out = append(out, c.policy)
	}
	return out
}
