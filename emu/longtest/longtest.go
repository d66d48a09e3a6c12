// Package longtest marks tests that take long: make test leaves them out, make check runs them
// without the race detector, and make nightly with it too.
//
// It measures no time. A test is marked by hand, once it takes more than a few seconds.
package longtest

import "testing"

// Marker begins the reason of every skip of this package. The summary of make test counts it.
const Marker = "long test, run by make check: "

// NotJudged begins the message of a test that leaves a duration unjudged; the reason follows. The
// summaries of make test and make test-vm count it.
const NotJudged = "timing not judged: "

// Skip skips the test under -short. Why is what takes long, and how long.
func Skip(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(Marker + why)
	}
}

// RaceDetector is the reason of a test that leaves something to a pass without the race detector.
const RaceDetector = "race detector"

// Computes skips the test under the race detector, which makes such a test five times slower: it
// computes much in one goroutine. make check runs it without the race detector.
func Computes(t testing.TB) {
	t.Helper()
	if Instrumented {
		t.Skip(NotJudged + RaceDetector)
	}
}
