package deploy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"testbed/emu/plan"
)

// crowd is a fake kernel for several goroutines. It fails the test if two are in the same namespace.
type crowd struct {
	mu      sync.Mutex
	fake    fake
	busy    map[string]bool
	clashes []string
	most    int // goroutines at once
}

func newCrowd() *crowd { return &crowd{busy: map[string]bool{}} }

func (c *crowd) Workers(plan.Stage) int { return 3 }
func (c *crowd) Readers() int           { return 3 }

// working marks the context of Work.
type working struct{}

func (c *crowd) Work(ctx context.Context, f func(context.Context)) {
	f(context.WithValue(ctx, working{}, true))
}

func (c *crowd) Do(ctx context.Context, op plan.Op) error {
	name := plan.NamespaceOf(op)
	c.mu.Lock()
	if ctx.Value(working{}) == nil {
		c.clashes = append(c.clashes, "outside Work: "+op.String())
	}
	if c.busy[name] {
		c.clashes = append(c.clashes, op.String())
	}
	c.busy[name] = true
	c.most = max(c.most, len(c.busy))
	err := c.fake.Do(ctx, op)
	c.mu.Unlock()
	runtime.Gosched() // others may come
	c.mu.Lock()
	delete(c.busy, name)
	c.mu.Unlock()
	return err
}

func (c *crowd) Undo(ctx context.Context, op plan.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fake.Undo(ctx, op)
}

func TestParallelApply(t *testing.T) {
	p, x := smallPlan(t), newCrowd()
	x.fake.failUndo = map[string]bool{} // what was done side by side has no one order
	x.fake.unsupported = "hash_seed"
	d, err := Apply(t.Context(), p, x)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.clashes) > 0 || x.most < 2 || x.most > 3 {
		t.Errorf("%d goroutines at once, want 2 or 3; two in one namespace for %q", x.most, x.clashes)
	}
	// Undo and notes follow the plan's order.
	if got, want := fmt.Sprint(d.done), fmt.Sprint(p.Ops()); got != want {
		t.Errorf("to undo:\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(d.Notes(), "\n"); len(d.Notes()) != 4 || strings.Index(got, "leaf1") < strings.Index(got, "leaf0") || strings.Index(got, "spine0") < strings.Index(got, "leaf1") {
		t.Errorf("notes: %s", got)
	}
	// Operations of a stage follow all operations of the stage before.
	stage := map[string]int{}
	for i, s := range p.Stages {
		for _, op := range s.Ops {
			stage[op.String()] = i
		}
	}
	for i := 1; i < len(x.fake.done); i++ {
		if before, after := x.fake.done[i-1], x.fake.done[i]; stage[before.String()] > stage[after.String()] {
			t.Errorf("%q came before %q", before, after)
		}
	}
	if err := d.Destroy(t.Context()); err != nil || len(x.fake.done) > 0 {
		t.Errorf("Destroy() = %v, left %v", err, x.fake.done)
	}
}

func TestParallelFailureAtEveryOperationLeavesNothing(t *testing.T) {
	p := smallPlan(t)
	for n := 1; n <= len(p.Ops()); n++ {
		x := newCrowd()
		x.fake.failUndo, x.fake.failDo = map[string]bool{}, n
		d, err := Apply(t.Context(), p, x)
		if d != nil || !errors.Is(err, errInjected) || len(x.fake.done) != 0 {
			t.Fatalf("failure at %d: deployment %v, error %v, left %v", n, d, err, x.fake.done)
		}
		// How many others of its stage had begun is up to the scheduler; none of a
		// later stage had.
		if end := stageEnd(p, n); x.fake.calls > end {
			t.Errorf("failure at %d: %d operations were begun, its stage ends with number %d", n, x.fake.calls, end)
		}
	}
}

// stageEnd returns the number, from 1, of the last operation in the stage of operation n.
func stageEnd(p *plan.Plan, n int) (end int) {
	for _, s := range p.Stages {
		if end += len(s.Ops); end >= n {
			break
		}
	}
	return end
}

func TestParallelCancelAtEveryOperationLeavesNothing(t *testing.T) {
	p := smallPlan(t)
	why := errors.New("the user said so")
	for n := 1; n < len(p.Ops()); n++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		x := newCrowd()
		x.fake.failUndo = map[string]bool{}
		x.fake.onDo = func(i int) {
			if i == n {
				cancel(why)
			}
		}
		_, err := Apply(ctx, p, x)
		// The others may have been about to begin; with the last few there may be
		// nothing left to stop.
		if n < len(p.Ops())-2 && !errors.Is(err, why) || err != nil && len(x.fake.done) != 0 || x.fake.calls > n+2 {
			t.Fatalf("cancelled at %d: error %v after %d calls, left %v", n, err, x.fake.calls, x.fake.done)
		}
		if err != nil && strings.Count(err.Error(), "stopped before") != 1 {
			t.Errorf("cancelled at %d: %v", n, err)
		}
	}
}
