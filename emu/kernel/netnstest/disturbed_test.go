package netnstest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/kernel/processors"
)

// What is beyond its bound is named, and nothing else.
func TestDisturbance(t *testing.T) {
	quiet := processors.Load{Others: 0.15, Own: 1, Softirq: 1, Stolen: 0.03, Waiting: 1}
	if got := disturbance(20*time.Millisecond, 0.1, quiet); got != "" {
		t.Errorf("at the bounds: %q", got)
	}
	for _, tt := range []struct {
		stopped               time.Duration
		burst, stolen, others float64
		want                  string
	}{
		{21 * time.Millisecond, 0, 0, 0, "a processor stopped for 21ms"},
		{0, 0.11, 0, 0, "11 % of the processors were stolen for 250ms"},
		{0, 0, 0.11, 0, "11.0 % of the processors were stolen"},
		{0, 0, 0, 0.2, "other processes took 20 % of the processors"},
		{time.Second, 0.3, 0.04, 0.2, "a processor stopped for 1s, 30 % of the processors were stolen for 250ms, 4.0 % of the processors were stolen, other processes took 20 % of the processors"},
	} {
		if got := disturbance(tt.stopped, tt.burst, processors.Load{Stolen: tt.stolen, Others: tt.others}); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// The canary reports a stop, here one of its process, once it continues.
func TestCanaryReportsStops(t *testing.T) {
	Require(t)
	const stop = 150 * time.Millisecond
	w := observe(t)
	c := theCanary()
	for deadline := time.Now().Add(Patience(10 * time.Second)); ; {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stop)
		if err := syscall.Kill(c.pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		longest, _, err := c.worst(w.began)
		if err != nil {
			t.Fatal(err)
		}
		if longest > stop/2 {
			break
		}
		if time.Now().After(deadline) { // the first stops may come before it sleeps
			t.Fatalf("longest %v", longest)
		}
	}
	if why := disturbed(t, w); !strings.Contains(why, "a processor stopped for") {
		t.Errorf("disturbed by %q", why)
	}
	if longest, _, _ := c.worst(time.Now()); longest != 0 {
		t.Errorf("a stop of %v after all of them", longest)
	}
}

// A busy test is no disturbance: the canary has priority over it.
func TestOwnLoadIsNoStall(t *testing.T) {
	Require(t)
	if Emulated() {
		t.Skip("emulated processors are late for every process")
	}
	was := meaningless
	defer func() { meaningless = was }()
	meaningless = func() string { return "" } // the canary is a process of its own
	Timing(t, func(t *testing.T) bool {
		w := observe(t)
		for range 8 {
			go func() {
				for time.Since(w.began) < 500*time.Millisecond {
				}
			}()
		}
		time.Sleep(600 * time.Millisecond)
		longest, _, err := theCanary().worst(w.began)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("longest stop under own load: %v", longest)
		return longest <= stopBound
	})
}

// docs/testing.md states the bounds.
func TestDisturbanceIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(b)), " ")
	for _, want := range []string{
		fmt.Sprintf("a processor stopped for more than %d ms", stopBound.Milliseconds()),
		fmt.Sprintf("the hypervisor took more than %g %% of the processors during the attempt, or more than %g %% of them for %d ms", 100*stolenBound, 100*burstBound, canaryWindow.Milliseconds()),
		fmt.Sprintf("other processes took more than %g %% of the processors", 100*othersBound),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/testing.md does not state %q", want)
		}
	}
}

// A test that runs next to others judges no durations.
func TestJudgesAlone(t *testing.T) {
	t.Run("beside", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if recover() == nil {
				t.Error("durations are judged next to other tests")
			}
		}()
		NotJudged(t)
	})
}
