package netnstest

import (
	"os"
	"testing"
)

// vmEnv is the variable that is "1" in the virtual machine of make test-vm,
// whose processors are emulated in software.
const vmEnv = "TESTBED_VM"

// Emulated tells whether time means nothing here, because the processors are
// emulated. What packets and bytes do is tested all the same.
func Emulated() bool { return os.Getenv(vmEnv) == "1" }

// NotJudged notes that the test leaves a figure of time unjudged, if Emulated,
// and tells so. The virtual machine's summary counts the notes.
func NotJudged(t testing.TB) bool {
	t.Helper()
	if !Emulated() {
		return false
	}
	t.Log("timing, not judged under emulation")
	return true
}

// OnlyTiming ends a test, if Emulated, of which nothing is left to judge without
// its figures of time.
func OnlyTiming(t testing.TB) {
	t.Helper()
	if Emulated() {
		t.Skip("judges time alone, which means nothing under emulation")
	}
}
