package kernel

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
)

// watchClock runs a watch until the test ends.
func watchClock(t *testing.T) *WallClock {
	t.Helper()
	w, err := WatchWallClock()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run() }()
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func steps(t *testing.T, w *WallClock) []ClockStep {
	t.Helper()
	s, err := w.Steps()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A clock that is not set has no steps. A changed offset without a notification is a step.
func TestWallClockUndisturbed(t *testing.T) {
	w := watchClock(t)
	for range 50 {
		if s := steps(t, w); len(s) > 0 {
			t.Fatalf("steps %v of a clock that was not set", s)
		}
		time.Sleep(time.Millisecond)
	}
	w.mu.Lock()
	w.offset += time.Second
	w.mu.Unlock()
	if s := steps(t, w); len(s) != 1 || (s[0].By+time.Second).Abs() > clockNoise {
		t.Errorf("steps %v, want one of -1s", s)
	}
}

// A step that Steps finds before the kernel's report of it is one step; a later report without a
// change of the offset is another one.
func TestWallClockStepFoundBeforeReport(t *testing.T) {
	w := watchClock(t)
	w.mu.Lock()
	w.offset += time.Second
	w.mu.Unlock()
	for i, want := range []int{1, 1, 2, 3} {
		if s := steps(t, w); len(s) != want {
			t.Fatalf("steps %v after %d reports, want %d", s, i, want)
		}
		if err := w.compare(true); err != nil {
			t.Fatal(err)
		}
	}
}

// Steps of the machine's own clock: back by 2 s, forward again, and both at once.
func TestWallClockSteps(t *testing.T) {
	if !netnstest.Guest() {
		t.Skip("sets the machine's clock: runs only in the virtual machine (make test-vm)")
	}
	w := watchClock(t)
	set := func(by time.Duration) {
		t.Helper()
		ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(n int) []ClockStep {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			// The report of a step that steps found before it would hide a later step that is taken back.
			s := steps(t, w)
			w.mu.Lock()
			reported := !w.early
			w.mu.Unlock()
			if len(s) >= n && reported || time.Since(begun) > 10*time.Second {
				return s
			}
		}
	}
	const off = 100 * time.Millisecond // between reading the clock and setting it
	for i, by := range []time.Duration{-2 * time.Second, 2 * time.Second} {
		set(by)
		if s := wait(i + 1); len(s) != i+1 || (s[i].By-by).Abs() > off {
			t.Fatalf("steps %v after one of %v", s, by)
		}
	}
	set(-2 * time.Second)
	set(2 * time.Second)
	s := wait(3)
	var sum time.Duration
	for _, k := range s[2:] {
		sum += k.By
	}
	if len(s) < 3 || sum.Abs() > 2*off {
		t.Errorf("steps %v after one of -2s that was taken back", s[2:])
	}
}
