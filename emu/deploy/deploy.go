// Package deploy carries out plans completely or not at all, and keeps records of what a run
// creates, so that it can be removed even after the run was killed.
//
// A run owns a directory. Its state file names everything that the run will create, and is written
// before any of it exists. Its lock file is locked while the owner lives, so a record whose lock is
// free has no owner. Nothing is identified by the pattern of its name.
//
// The package does not call the kernel: it uses an Executor and a Reaper, such as those of
// emu/kernel.
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

// ErrUnsupported is wrapped by an Executor's error if the kernel cannot carry out an operation. For
// a plan.Optional operation that is a note, for any other a failure.
var ErrUnsupported = errors.New("not supported by this kernel")

// Executor carries out operations.
type Executor interface {
	// Do carries out op. If it fails, Undo is called for op too.
	Do(ctx context.Context, op plan.Op) error
	// Undo reverts op. It is not an error if nothing is left to revert. Objects inside a
	// namespace may stay until the namespace is removed.
	Undo(ctx context.Context, op plan.Op) error
}

// PlanChecker is an Executor that can check in advance whether it supports a plan. Apply then
// refuses an unsupported plan before it carries out anything.
type PlanChecker interface {
	CheckPlan(p *plan.Plan) error
}

// Evictor is an Executor that ends the processes in the namespaces that it made. Destroy calls Evict
// before it undoes anything, and release when everything is undone: until then no other process
// should enter.
type Evictor interface {
	Evict(ctx context.Context) (release func() error, err error)
}

// cleanupTimeout bounds the undoing of a failed or cancelled Apply.
const cleanupTimeout = 30 * time.Second

// Deployment is the result of carrying out a plan.
type Deployment struct {
	mu    sync.Mutex
	x     Executor
	done  []plan.Op // not undone yet, in order
	notes []string
}

// Apply carries out p, stage after stage; if x is Parallel, the operations of a stage on several
// goroutines. If an operation fails, or ctx ends before the last, it undoes the operations that have
// begun. The error has the cause, joined with the errors of the undoing.
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

// Notes returns the optional operations that the kernel does not support.
func (d *Deployment) Notes() []string { return d.notes }

// Destroy undoes the plan, the last operation first. It continues after an error and joins all
// errors; the next call retries what could not be undone. Once everything is undone, it does nothing.
func (d *Deployment) Destroy(ctx context.Context) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if e, ok := d.x.(Evictor); ok && len(d.done) > 0 {
		release, err2 := e.Evict(ctx)
		errs = append(errs, err2)
		defer func() { err = errors.Join(err, release()) }()
	}
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
