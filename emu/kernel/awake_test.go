package kernel

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
)

// slept is how long all processors together were in states of sleep so far, by what
// the kernel counts; ok is false where it does not.
func slept(t *testing.T) (_ time.Duration, ok bool) {
	t.Helper()
	states, err := filepath.Glob("/sys/devices/system/cpu/cpu*/cpuidle/state*")
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, s := range states {
		latency, err := os.ReadFile(filepath.Join(s, "latency"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(latency)) == "0" {
			continue // it polls
		}
		text, err := os.ReadFile(filepath.Join(s, "time"))
		if err != nil {
			t.Fatal(err)
		}
		us, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(us) * time.Microsecond
		ok = true
	}
	return sum, ok
}

// While it is open no processor sleeps, and after it they do again.
func TestStayAwake(t *testing.T) {
	netnstest.Require(t)
	in := func(d time.Duration) time.Duration {
		before, ok := slept(t)
		if !ok {
			t.Skip("this kernel's processors have no states of sleep that it counts")
		}
		time.Sleep(d)
		after, _ := slept(t)
		return after - before
	}
	in(0) // may skip
	netnstest.Timing(t, func(t *testing.T) bool {
		a, err := StayAwake()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // those that sleep wake once for a tick at least
		awake := in(300 * time.Millisecond)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		asleep := in(300 * time.Millisecond)
		t.Logf("processors slept for %v in all while they were kept awake, for %v after", awake, asleep)
		return awake <= asleep/20 && asleep > 0
	})
}
