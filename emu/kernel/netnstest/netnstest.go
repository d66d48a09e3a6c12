// Package netnstest is for tests that need the privilege to make network namespaces, or a feature that
// not every kernel has. Without it they are skipped with the reason, or fail: see Env.
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

// Env is the variable that turns skips into failures: all of them if it is "1", as in make check and
// continuous integration, and those for a missing privilege if it is anything else, as in make test.
const Env = "TESTBED_PRIVILEGED"

// Require skips the test, with the reason, if this process may not create network namespaces. If Env is
// set the test fails instead.
func Require(t testing.TB) {
	t.Helper()
	err := allowed()
	switch {
	case err == nil:
	case os.Getenv(Env) != "":
		t.Fatalf("%s=%s, but %v", Env, os.Getenv(Env), err)
	default:
		t.Skipf("%v: run the test as root, or inside \"unshare -rmn\"", err)
	}
}

// Feature skips the test if missing is not nil: the reason, as testbed doctor gives it, why this machine
// lacks a feature. If Env is "1" the test fails instead.
func Feature(t testing.TB, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv(Env) == "1":
		t.Fatalf("%s=1, but %v", Env, missing)
	default:
		t.Skip(missing)
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
