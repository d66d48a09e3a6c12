package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

var small = topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 1, HostLink: 50 * units.Mbps,
	Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}

func smallPlan(t testing.TB) *plan.Plan {
	t.Helper()
	f, err := small.Build()
	if err != nil {
		t.Fatal(err)
	}
	return plan.Compile("small", f, plan.Options{})
}

var errInjected = errors.New("injected")

// fake is a kernel that records the operations that were done and not undone.
type fake struct {
	done  []plan.Op
	calls int
	// failDo is the number of the Do, from 1, that fails, with half its work done.
	failDo int
	// failUndo has the operations whose next Undo fails.
	failUndo map[string]bool
	// onDo is called before each Do.
	onDo  func(n int)
	undos int
	// unsupported is contained in the text of parameters that this kernel does not have.
	unsupported string
}

func (f *fake) Do(_ context.Context, op plan.Op) error {
	f.calls++
	if f.onDo != nil {
		f.onDo(f.calls)
	}
	if s, ok := op.(plan.Sysctl); ok && f.unsupported != "" && strings.Contains(s.String(), f.unsupported) {
		return fmt.Errorf("%s: %w", op, ErrUnsupported)
	}
	f.done = append(f.done, op)
	if f.calls == f.failDo {
		return errInjected
	}
	return nil
}

func (f *fake) Undo(_ context.Context, op plan.Op) error {
	f.undos++
	if f.failUndo[op.String()] {
		delete(f.failUndo, op.String())
		return errInjected
	}
	for i := len(f.done) - 1; i >= 0; i-- {
		if f.done[i].String() == op.String() {
			if i != len(f.done)-1 && f.failUndo == nil {
				return fmt.Errorf("undone out of order: %s before %s", op, f.done[len(f.done)-1])
			}
			f.done = append(f.done[:i], f.done[i+1:]...)
			return nil
		}
	}
	return nil // already gone
}

func TestApplyAndDestroy(t *testing.T) {
	p, x := smallPlan(t), &fake{}
	d, err := Apply(t.Context(), p, x)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.done) != len(p.Ops()) || len(d.Notes()) != 0 {
		t.Fatalf("%d of %d operations done, notes %q", len(x.done), len(p.Ops()), d.Notes())
	}
	for range 2 {
		if err := d.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(x.done) != 0 || x.undos != len(p.Ops()) {
			t.Fatalf("%d left, %d undone of %d", len(x.done), x.undos, len(p.Ops()))
		}
	}
}

func TestFailureAtEveryOperationLeavesNothing(t *testing.T) {
	p := smallPlan(t)
	for n := 1; n <= len(p.Ops()); n++ {
		x := &fake{failDo: n}
		d, err := Apply(t.Context(), p, x)
		if d != nil || !errors.Is(err, errInjected) || len(x.done) != 0 {
			t.Fatalf("failure at %d: deployment %v, error %v, left %v", n, d, err, x.done)
		}
	}
}

func TestCancelAtEveryOperationLeavesNothing(t *testing.T) {
	p := smallPlan(t)
	why := errors.New("the user said so")
	for n := 1; n < len(p.Ops()); n++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		x := &fake{onDo: func(i int) {
			if i == n {
				cancel(why)
			}
		}}
		_, err := Apply(ctx, p, x)
		if !errors.Is(err, why) || len(x.done) != 0 || x.calls != n {
			t.Fatalf("cancelled at %d: error %v after %d calls, left %v", n, err, x.calls, x.done)
		}
	}
}

// Errors of the undoing are reported together with the cause.
func TestFailureOfCleanupKeepsTheCause(t *testing.T) {
	p := smallPlan(t)
	first := p.Ops()[0].String()
	x := &fake{failDo: 5, failUndo: map[string]bool{first: true}}
	_, err := Apply(t.Context(), p, x)
	if err == nil || !strings.HasPrefix(err.Error(), "build small: injected") || !strings.Contains(err.Error(), `undo "`+first+`": injected`) {
		t.Errorf("Apply() error = %v", err)
	}
}

func TestDestroyRetries(t *testing.T) {
	p := smallPlan(t)
	stuck := p.Ops()[3].String()
	x := &fake{failUndo: map[string]bool{stuck: true}}
	d, err := Apply(t.Context(), p, x)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Destroy(t.Context()); !errors.Is(err, errInjected) {
		t.Fatalf("Destroy() = %v, want the injected failure", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Destroy(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 operations left") {
		t.Fatalf("Destroy() with a cancelled context = %v", err)
	}
	if err := d.Destroy(t.Context()); err != nil || len(x.done) != 0 {
		t.Fatalf("Destroy() = %v, left %v", err, x.done)
	}
}

func TestOptionalOperations(t *testing.T) {
	p := smallPlan(t)
	x := &fake{unsupported: "hash_seed"}
	d, err := Apply(t.Context(), p, x)
	if err != nil || len(d.Notes()) != 4 || !strings.Contains(d.Notes()[0], "hash_seed") {
		t.Fatalf("Apply() = %v, %v: want four notes about hash_seed", d, err)
	}
	x = &fake{unsupported: "ip_forward"}
	if _, err := Apply(t.Context(), p, x); !errors.Is(err, ErrUnsupported) || len(x.done) != 0 {
		t.Fatalf("Apply() without ip_forward = %v, left %v", err, x.done)
	}
}

func TestApplyChecksThePlan(t *testing.T) {
	x := &fake{}
	bad := &plan.Plan{Name: "bad", Stages: []plan.Stage{{Name: "", Ops: []plan.Op{plan.Namespace{Name: "a"}, plan.Up{Namespace: "b", Device: "lo"}}}}}
	if _, err := Apply(t.Context(), bad, x); err == nil || x.calls != 0 {
		t.Fatalf("Apply() = %v after %d operations", err, x.calls)
	}
}
