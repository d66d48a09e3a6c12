// Package longtest marks tests that take long. make test leaves them out. make check runs those marked
// by Skip, without the race detector. make nightly runs all.
//
// It measures no time. A test is marked by hand, once it takes more than a few seconds.
package longtest

import (
	"os"
	"testing"
)

// Markers begin the reasons of skips. The summaries of make test and make check count them.
const (
	Marker        = "long test, run by make check: "
	NightlyMarker = "long series, run by make nightly: "
)

// NightlyEnv is the environment variable that is "1" where long series run.
const NightlyEnv = "TESTBED_NIGHTLY"

// VMEnv is the environment variable with the time of the guest of make test-vm in which tests run: EmulatedTime or
// VirtualTime. It is empty on other machines.
const VMEnv = "TESTBED_VM"

// Values of VMEnv.
const (
	EmulatedTime = "emulated" // real time, in which processors that software emulates are slow
	VirtualTime  = "virtual"  // time that counts instructions (package emu/guest)
)

// NotJudged begins the message of a test that leaves a duration unjudged; the reason follows. The
// summaries of make test and make test-vm count it.
const NotJudged = "timing not judged: "

// Repeated begins the message of a test that judges timing when it repeats an attempt; the reason follows. The summaries
// of make test and make check count it.
const Repeated = "attempt repeated: "

// Skip skips the test under -short. Why is what takes long, and how long.
func Skip(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(Marker + why)
	}
}

// Nightly skips a test that takes long and repeats, in more cases or more precisely, what other tests
// show, unless TESTBED_NIGHTLY is 1. Why is what takes long, and how long.
func Nightly(t testing.TB, why string) {
	t.Helper()
	if testing.Short() || os.Getenv(NightlyEnv) != "1" {
		t.Skip(NightlyMarker + why)
	}
}

// RaceDetector is the reason of a test that leaves something to a pass without the race detector.
const RaceDetector = "race detector"

// Computes skips the test under the race detector, which makes such a test five times slower: it computes much in one
// goroutine, or repeats with other inputs what other tests run under it. make check runs it without the race detector.
func Computes(t testing.TB) {
	t.Helper()
	if Instrumented {
		t.Skip(NotJudged + RaceDetector)
	}
}
