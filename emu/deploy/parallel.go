package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"testbed/emu/plan"
)

// Parallel is an Executor or a Checker that may be called from several goroutines, but not for one
// namespace from two at the same time.
type Parallel interface {
	// Workers returns the useful number of goroutines for a stage; less than 2 means in sequence.
	Workers(stage plan.Stage) int
	// Readers is Workers for Checker.Read.
	Readers() int
	// Work calls f and returns when f does. f calls Do or Read, with the context that it is given.
	Work(ctx context.Context, f func(context.Context))
}

func readers(c Checker) int {
	if p, ok := c.(Parallel); ok {
		return p.Readers()
	}
	return 1
}

// workers returns the number of goroutines for a stage. Operations on more than one namespace, which
// create links, are carried out in sequence.
func workers(x Executor, stage plan.Stage) int {
	p, ok := x.(Parallel)
	if !ok {
		return 1
	}
	n := p.Workers(stage)
	for _, op := range stage.Ops {
		if plan.NamespaceOf(op) == "" {
			return 1
		}
	}
	return n
}

// each calls do for 0 to n-1 on several goroutines, lower numbers first, and waits. After do returns
// false, no further call begins. x is an Executor or a Checker that do uses.
func each(ctx context.Context, x any, n, goroutines int, do func(ctx context.Context, i int) (more bool)) {
	var mu sync.Mutex
	next, stopped := 0, false
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		i, ok = next, next < n && !stopped
		next++
		return i, ok
	}
	work := func(ctx context.Context) {
		for i, ok := take(); ok; i, ok = take() {
			if !do(ctx, i) {
				mu.Lock()
				stopped = true
				mu.Unlock()
			}
		}
	}
	worker := func() { work(ctx) }
	if p, ok := x.(Parallel); ok {
		worker = func() { p.Work(ctx, work) }
	}
	if goroutines <= 1 {
		worker()
		return
	}
	var wg sync.WaitGroup
	for range min(goroutines, n) {
		wg.Go(worker)
	}
	wg.Wait()
}

// step is the result of an operation of a stage.
type step struct {
	begun bool
	err   error
}

// carryOut carries out a stage. It returns the result of each operation, in the plan's order. After
// one fails, or ctx ends, no further operation begins.
func carryOut(ctx context.Context, x Executor, stage plan.Stage) []step {
	steps := make([]step, len(stage.Ops))
	var failed atomic.Bool // seen by goroutines in the middle of a namespace
	do := func(ctx context.Context, i int) (more bool) {
		if failed.Load() {
			return false
		}
		defer func() {
			if !more {
				failed.Store(true)
			}
		}()
		if err := context.Cause(ctx); err != nil {
			steps[i].err = fmt.Errorf("stopped before %q: %w", stage.Ops[i], err)
			return false
		}
		steps[i] = step{begun: true, err: x.Do(ctx, stage.Ops[i])}
		return steps[i].err == nil || optional(steps[i].err, stage.Ops[i])
	}
	n := workers(x, stage)
	if n <= 1 {
		each(ctx, x, len(stage.Ops), 1, do)
		return steps
	}
	// A goroutine takes all operations of a namespace, so that no two are in the same one.
	var groups [][]int
	at := map[string]int{}
	for i, op := range stage.Ops {
		name := plan.NamespaceOf(op)
		g, ok := at[name]
		if !ok {
			g = len(groups)
			at[name], groups = g, append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	each(ctx, x, len(groups), n, func(ctx context.Context, g int) bool {
		for _, i := range groups[g] {
			if !do(ctx, i) {
				return false
			}
		}
		return true
	})
	return steps
}

func optional(err error, op plan.Op) bool {
	return errors.Is(err, ErrUnsupported) && plan.Optional(op)
}
