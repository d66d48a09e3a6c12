package netnstest

import (
	"os"
	"testing"
	"time"

	"testbed/emu/longtest"
)

// Guest reports whether the machine is a guest of make test-vm, whose stock kernel has all features.
func Guest() bool { return os.Getenv(longtest.VMEnv) != "" }

// Emulated reports whether processors are slow because software emulates them in real time. Packets and bytes are
// tested nevertheless.
func Emulated() bool { return os.Getenv(longtest.VMEnv) == longtest.EmulatedTime }

// Virtual reports whether the machine is in virtual time, which nothing else can disturb.
func Virtual() bool { return os.Getenv(longtest.VMEnv) == longtest.VirtualTime }

// emulatedSlower is how much longer than on real processors a wait may take if they are emulated.
const emulatedSlower = 6

// Patience returns the bound of a wait that takes up to d on real processors, even busy ones.
func Patience(d time.Duration) time.Duration {
	if Emulated() {
		return emulatedSlower * d
	}
	return d
}

// meaningless returns why durations say nothing about the program; empty if they do. Tests replace
// it.
var meaningless = func() string {
	switch {
	case Emulated():
		return "emulated processors"
	case longtest.Instrumented:
		return longtest.RaceDetector
	}
	return ""
}

// notJudged logs that a test leaves a duration unjudged. The summaries of tests count these notes,
// and scripts/test.sh repeats those of the race detector without it.
func notJudged(t testing.TB, why string) {
	t.Helper()
	t.Log(longtest.NotJudged + why)
}

// aloneEnv is set while a test judges durations, and read by none: testing refuses to set a variable in a
// test that called Parallel, and to call it afterwards.
const aloneEnv = "TESTBED_ALONE"

// NotJudged reports, and logs, that durations say nothing here about the program: the processors are
// emulated, or the race detector slows it down. It panics in a test that called Parallel: no test may run
// next to one that judges durations.
func NotJudged(t testing.TB) bool {
	t.Helper()
	t.Setenv(aloneEnv, "1")
	why := meaningless()
	if why != "" {
		notJudged(t, why)
	}
	return why != ""
}

// OnlyTiming skips a test that judges only durations, if NotJudged.
func OnlyTiming(t testing.TB) {
	t.Helper()
	if NotJudged(t) {
		t.SkipNow()
	}
}
