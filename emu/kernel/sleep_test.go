package kernel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
)

// A wait shorter than 1 ms takes its own time, not the 1 ms of time.Sleep in an idle program.
func TestSleepIsExact(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) bool {
		const d = 150 * time.Microsecond
		median := func(sleep func()) time.Duration {
			var took []time.Duration
			for range 41 {
				start := time.Now()
				sleep()
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			if took[0] < d {
				t.Errorf("a wait of %v took %v", d, took[0])
			}
			return took[len(took)/2]
		}
		exact := median(func() {
			if err := Sleep(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		})
		runtime := median(func() { time.Sleep(d) })
		t.Logf("median of waits of %v: Sleep %v, time.Sleep %v", d, exact, runtime)
		return exact < d+300*time.Microsecond && exact < runtime
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Millisecond, func() { stop(cause) })
	defer timer.Stop()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("Sleep cut short returned %v, want %v", err, cause)
	}
	if err := Sleep(ctx, 0); !errors.Is(err, cause) {
		t.Errorf("Sleep after its context has ended returned %v, want %v", err, cause)
	}
	if err := Sleep(t.Context(), -1); err != nil {
		t.Errorf("Sleep of a negative time returned %v", err)
	}
}
