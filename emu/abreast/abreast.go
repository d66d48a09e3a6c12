// Package abreast does things that do not need each other as many at once as there are
// processors, and tells of them as if they were done one after the other.
package abreast

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Start begins n things in order, at most as many at once as there are processors, and
// returns what waits for one of them and returns its error. Once it has returned an
// error, or has returned for the last, nothing goes on any more: the contexts of the
// others end with that error.
//
// do does one thing, and tells its progress as it goes; report, which may be nil, is told
// that of the first thing that has not ended, by one goroutine at a time.
func Start[P any](ctx context.Context, n int, report func(P), do func(ctx context.Context, i int, tell func(P)) error) (wait func(i int) error) {
	ctx, stop := context.WithCancelCause(ctx)
	type result struct {
		err  error
		done chan struct{}
	}
	all := make([]result, n)
	for i := range all {
		all[i].done = make(chan struct{})
	}
	turns := turns[P]{report: report, latest: make([]*P, n), ended: make([]bool, n)}
	var doing sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.GOMAXPROCS(0)) {
		doing.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if all[i].err = context.Cause(ctx); all[i].err == nil {
					all[i].err = do(ctx, i, func(now P) { turns.tell(i, now) })
				}
				turns.end(i)
				close(all[i].done)
			}
		})
	}
	return func(i int) error {
		<-all[i].done
		err := all[i].err
		if err != nil || i == n-1 {
			stop(err)
			doing.Wait()
		}
		return err
	}
}

// turns tells progress of things that go on at once: that of the first that has not ended.
type turns[P any] struct {
	report func(P)

	mu     sync.Mutex
	first  int
	latest []*P // nil for none yet
	ended  []bool
}

func (t *turns[P]) tell(i int, now P) {
	if t.report == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest[i] = &now
	if i == t.first {
		t.report(now)
	}
}

func (t *turns[P]) end(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[i] = true
	for t.first < len(t.ended) && t.ended[t.first] {
		if t.first++; t.first < len(t.ended) && t.latest[t.first] != nil {
			t.report(*t.latest[t.first])
		}
	}
}
