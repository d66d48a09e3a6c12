// Package parallel runs independent tasks on up to GOMAXPROCS goroutines, and delivers their
// results and progress in order.
package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Start starts n tasks in order, at most GOMAXPROCS of them at a time. The function that it
// returns waits for task i and returns its error; call it for 0 to n-1 in order. Once it has
// returned an error, or has returned for the last task, no task is running: the contexts of the
// others were cancelled with that error as the cause.
//
// do runs task i and calls progress as the task proceeds. report, which may be nil, receives the
// progress of the first task that has not ended, from one goroutine at a time.
func Start[P any](ctx context.Context, n int, report func(P), do func(ctx context.Context, i int, progress func(P)) error) (wait func(i int) error) {
	return StartAtMost(ctx, n, runtime.GOMAXPROCS(0), report, do)
}

// StartAtMost is Start with at most the given number of tasks at a time.
func StartAtMost[P any](ctx context.Context, n, limit int, report func(P), do func(ctx context.Context, i int, progress func(P)) error) (wait func(i int) error) {
	ctx, stop := context.WithCancelCause(ctx)
	type outcome struct {
		err  error
		done chan struct{}
	}
	all := make([]outcome, n)
	for i := range all {
		all[i].done = make(chan struct{})
	}
	inOrder := ordered[P]{report: report, latest: make([]*P, n), ended: make([]bool, n)}
	var running sync.WaitGroup
	var next atomic.Int64
	for range min(n, limit) {
		running.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if all[i].err = context.Cause(ctx); all[i].err == nil {
					all[i].err = do(ctx, i, func(now P) { inOrder.progress(i, now) })
				}
				inOrder.end(i)
				close(all[i].done)
			}
		})
	}
	return func(i int) error {
		<-all[i].done
		err := all[i].err
		if err != nil || i == n-1 {
			stop(err)
			running.Wait()
		}
		return err
	}
}

// ordered reports the progress of concurrent tasks: that of the first that has not ended.
type ordered[P any] struct {
	report func(P)

	mu     sync.Mutex
	first  int
	latest []*P // nil for none yet
	ended  []bool
}

func (t *ordered[P]) progress(i int, now P) {
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

func (o *ordered[P]) end(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[i] = true
	for o.first < len(o.ended) && o.ended[o.first] {
		if o.first++; o.first < len(o.ended) && o.latest[o.first] != nil {
			o.report(*o.latest[o.first])
		}
	}
}
