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
	if _, ok := slept(t); !ok {
		t.Skip("this kernel's processors have no states of sleep that it counts")
	}
	netnstest.Timing(t, func(t *testing.T) bool {
		a, err := StayAwake()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // those that sleep wake for a tick at least
		before, _ := slept(t)
		time.Sleep(300 * time.Millisecond)
		awake, _ := slept(t)
		awake -= before
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		// On a machine that is busy it takes a while until one sleeps.
		before, _ = slept(t)
		var asleep time.Duration
		for begin := time.Now(); asleep < 100*time.Millisecond && time.Since(begin) < 5*time.Second; {
			time.Sleep(100 * time.Millisecond)
			now, _ := slept(t)
			asleep = now - before
		}
		t.Logf("processors slept for %v in all while they were kept awake, for %v after", awake, asleep)
		return awake <= time.Millisecond && asleep >= 100*time.Millisecond
	})
}
