package netnstest

import (
	"os"
	"testing"
	"time"
)

// vmEnv is the variable that is "1" in the virtual machine of make test-vm,
// whose processors are emulated in software.
const vmEnv = "TESTBED_VM"

// Emulated reports whether durations are meaningless here because the processors are emulated.
// Packets and bytes are tested nevertheless.
func Emulated() bool { return os.Getenv(vmEnv) == "1" }

// emulatedSlower is how much longer than on real processors a wait may take if they are emulated.
const emulatedSlower = 6

// Patience returns the bound of a wait that takes up to d on real processors, even busy ones.
func Patience(d time.Duration) time.Duration {
	if Emulated() {
		return emulatedSlower * d
	}
	return d
}

// NotJudged returns Emulated, and logs in that case that the test leaves a duration unjudged. The
// virtual machine's summary counts these notes.
func NotJudged(t testing.TB) bool {
	t.Helper()
	if !Emulated() {
		return false
	}
	t.Log("timing, not judged under emulation")
	return true
}

// OnlyTiming skips a test that judges only durations, if Emulated.
func OnlyTiming(t testing.TB) {
	t.Helper()
	if Emulated() {
		t.Skip("judges only durations, which mean nothing under emulation")
	}
}
