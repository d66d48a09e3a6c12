// Package deploy carries out plans, all or nothing, and keeps the record from
// which what a run made can be found and removed, also after the run was
// killed.
//
// A run owns a directory. Its state file names all that the run will create
// and is written before any of it exists; its lock file is locked for as long
// as the owner lives, so a record whose lock is free has no owner. Nothing is
// ever found by the look of its name.
//
// The package does not know a kernel: an Executor and a Reaper, such as those
// of emu/kernel, act for it.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"testbed/emu/plan"
)

// ErrUnsupported is wrapped by an Executor's error where the kernel has no means
// to carry out an operation. For a plan.Optional operation that is a note, for
// any other a failure.
var ErrUnsupported = errors.New("not supported by this kernel")

// Executor carries out operations.
type Executor interface {
	// Do carries out op. If it fails, Undo is called for op too.
	Do(ctx context.Context, op plan.Op) error
	// Undo takes op back. Already gone is not an error. What exists only inside a
	// namespace may be left until that namespace is removed.
	Undo(ctx context.Context, op plan.Op) error
}

// PlanChecker is an Executor that can tell beforehand what of a plan is beyond it.
// Apply then refuses the plan before it carries out anything.
type PlanChecker interface {
	CheckPlan(p *plan.Plan) error
}

// cleanupTimeout bounds the undoing of a failed or cancelled Apply.
const cleanupTimeout = 30 * time.Second

// Deployment is a plan that was carried out.
type Deployment struct {
	mu    sync.Mutex
	x     Executor
	done  []plan.Op // not undone yet, in order
	notes []string
}

// Apply carries out p, stage after stage; where x is Parallel, the operations of
// one stage on several goroutines. If an operation fails, or ctx ends before the
// last, it undoes those begun and returns why, joined with what could not be
// undone.
func Apply(ctx context.Context, p *plan.Plan, x Executor) (*Deployment, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if c, ok := x.(PlanChecker); ok {
		if err := c.CheckPlan(p); err != nil {
			return nil, fmt.Errorf("build %s: %w", p.Name, err)
		}
	}
	d := &Deployment{x: x}
	for _, stage := range p.Stages {
		var errs []error
		for i, s := range carryOut(ctx, x, stage) {
			op := stage.Ops[i]
			if s.begun {
				d.done = append(d.done, op)
			}
			if s.begun && s.err != nil && optional(s.err, op) {
				d.notes = append(d.notes, s.err.Error())
			} else if s.err != nil && (s.begun || len(errs) == 0) { // one "stopped before" is enough
				errs = append(errs, s.err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("build %s: %w", p.Name, err), d.Destroy(clean))
		}
	}
	return d, nil
}

// Notes tell which optional operations the kernel has no means for.
func (d *Deployment) Notes() []string { return d.notes }

// Destroy undoes the plan, the last operation first. It goes on after an error
// and joins all errors; what could not be undone is tried again by the next
// call. When all is gone it does nothing.
func (d *Deployment) Destroy(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	var failed []plan.Op // the last first
	for len(d.done) > 0 {
		last := len(d.done) - 1
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("undo stopped with %d operations left: %w", last+1, context.Cause(ctx)))
			break
		}
		if err := d.x.Undo(ctx, d.done[last]); err != nil {
			errs = append(errs, fmt.Errorf("undo %q: %w", d.done[last], err))
			failed = append(failed, d.done[last])
		}
		d.done = d.done[:last]
	}
	slices.Reverse(failed)
	d.done = append(d.done, failed...)
	return errors.Join(errs...)
}
