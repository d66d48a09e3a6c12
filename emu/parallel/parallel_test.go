package parallel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Tasks run on GOMAXPROCS goroutines. Their progress is reported in order, each task's latest first.
func TestStart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		var now, most atomic.Int32
		began := time.Now()
		takes := []time.Duration{3500 * time.Millisecond, time.Second, 2 * time.Second, 9 * time.Second, time.Second}
		wait := Start(t.Context(), len(takes), func(s string) { reported = append(reported, s) }, func(_ context.Context, i int, progress func(string)) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			for s := time.Duration(0); s < takes[i]; s += time.Second {
				progress(fmt.Sprintf("%d:%d", i, s/time.Second))
				time.Sleep(min(takes[i]-s, time.Second))
			}
			return nil
		})
		for i := range takes {
			if err := wait(i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		// 0, 1 and 2 begin; 3 at 1 s, after 1; 4 at 2 s, after 2; 3 is the last to end.
		if took := time.Since(began); took != 10*time.Second || most.Load() != 3 {
			t.Errorf("took %v, at most %d at once; want 10 s, 3", took, most.Load())
		}
		want := "0:0 0:1 0:2 0:3 1:0 2:1 3:2 3:3 3:4 3:5 3:6 3:7 3:8 4:0"
		if got := strings.Join(reported, " "); got != want {
			t.Errorf("reported %s, want %s", got, want)
		}
	})
}

// An error cancels the tasks that are running, with itself as the cause, and keeps the others from
// starting.
func TestStartFails(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	broken := errors.New("broken")
	var mu sync.Mutex
	var started []int
	ended := 0
	wait := Start(t.Context(), 4, nil, func(ctx context.Context, i int, progress func(int)) error {
		progress(i)
		mu.Lock()
		started = append(started, i)
		mu.Unlock()
		if i == 0 {
			return broken
		}
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		ended++
		return context.Cause(ctx)
	})
	if err := wait(0); err != broken {
		t.Fatalf("error %v, want %v", err, broken)
	}
	if n := len(started) - 1; ended != n || slices.Contains(started, 3) {
		t.Errorf("%v started, %d of the others ended: want all that had started, without 3", started, ended)
	}
	if err := wait(3); err != broken {
		t.Errorf("a task that never started: %v", err)
	}
}

// A cancelled context is the error of tasks that were running and of those that had not started.
func TestStartIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	wait := Start(ctx, 100, nil, func(ctx context.Context, i int, _ func(int)) error {
		if i == 5 {
			cancel(enough)
		}
		return context.Cause(ctx)
	})
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = wait(i)
	}
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want %v", err, enough)
	}
}
