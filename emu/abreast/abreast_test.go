package abreast

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

// Things that take their time are done as many at once as there are processors, and
// told of in order, each by its latest progress.
func TestStart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var now, most atomic.Int32
		began := time.Now()
		takes := []time.Duration{3500 * time.Millisecond, time.Second, 2 * time.Second, 9 * time.Second, time.Second}
		wait := Start(t.Context(), len(takes), func(s string) { told = append(told, s) }, func(_ context.Context, i int, tell func(string)) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			for s := time.Duration(0); s < takes[i]; s += time.Second {
				tell(fmt.Sprintf("%d:%d", i, s/time.Second))
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
		if got := strings.Join(told, " "); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// After an error nothing goes on: what runs beside is told why, and what has not begun
// never does.
func TestStartFails(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	broken := errors.New("broken")
	var mu sync.Mutex
	var begun []int
	ended := 0
	wait := Start(t.Context(), 4, nil, func(ctx context.Context, i int, tell func(int)) error {
		tell(i)
		mu.Lock()
		begun = append(begun, i)
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
	if n := len(begun) - 1; ended != n || slices.Contains(begun, 3) {
		t.Errorf("%v begun, %d of those beside it ended: want all that had begun, and 3 not", begun, ended)
	}
	if err := wait(3); err != broken {
		t.Errorf("of what never began: %v", err)
	}
}

// An interrupt is the error of what it cut, and of what it kept from beginning.
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
