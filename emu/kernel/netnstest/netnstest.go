// Package netnstest is for tests that need the privilege to make network namespaces. Without it they
// are skipped, or fail with TESTBED_PRIVILEGED=1, as in make test and continuous integration.
//
// The package makes no namespace that outlives a call.
package netnstest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// Env is the variable that turns skips into failures when it is "1".
const Env = "TESTBED_PRIVILEGED"

// Require skips the test, with the reason, if this process may not create network namespaces. If Env is
// "1" the test fails instead.
func Require(t testing.TB) {
	t.Helper()
	err := allowed()
	switch {
	case err == nil:
	case os.Getenv(Env) == "1":
		t.Fatalf("%s=1, but %v", Env, err)
	default:
		t.Skipf("%v: run the test as root, or inside \"unshare -rmn\"", err)
	}
}

// allowed creates namespaces on a thread that then ends. It returns the error.
func allowed() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := syscall.Unshare(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS); err != nil {
			done <- fmt.Errorf("cannot create a network and a mount namespace: %w", err)
			return
		}
		done <- nil
	}()
	return <-done
}
