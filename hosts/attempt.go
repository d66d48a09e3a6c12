package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"testbed/hosts/disk"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Attempt is an attempt of a task on its host: it computes, and stores its output for later stages.
// Its input are flows (Agent.Expect) and local reads, its replicated output are block writes.
type Attempt struct {
	a  *Agent
	id jobs.AttemptID

	ctx context.Context // done, with ErrStopped, once the attempt is stopped
	end context.CancelCauseFunc

	from, need time.Duration // work of the processor before Compute, and of Compute; guarded by a.mu

	output *disk.Replica // that is complete; nil for none; guarded by a.mu
}

// Attempt returns an attempt, which begins with the first call. StopAttempt, DropOutputs and Return
// also end those of its operations that begin later.
func (a *Agent) Attempt(id jobs.AttemptID) *Attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.attempts[id]
	if t == nil {
		t = &Attempt{a: a, id: id}
		t.ctx, t.end = context.WithCancelCause(context.Background())
		a.attempts[id] = t
	}
	return t
}

// Host returns the host of the attempt.
func (t *Attempt) Host() topo.HostID { return t.a.o.Host }

// Compute returns when the attempt has computed for a time, which counts the share of SetCPU. It
// returns ErrStopped when the attempt was stopped, and ErrCrashed when the host crashed.
func (t *Attempt) Compute(ctx context.Context, d time.Duration) error {
	return t.run(ctx, "compute", func(ctx context.Context, _ *life) error {
		from := t.a.cpu.worked()
		t.a.mu.Lock()
		t.from, t.need = from, d
		t.a.mu.Unlock()
		return t.a.cpu.work(ctx, from+d)
	})
}

// Computed returns the share of the newest Compute that is done, from 0 to 1.
func (t *Attempt) Computed() float64 {
	t.a.mu.Lock()
	from, need := t.from, t.need
	t.a.mu.Unlock()
	if need <= 0 {
		return 0
	}
	return min(float64(t.a.cpu.worked()-from)/float64(need), 1)
}

// Spill writes an output to a disk of the host, at most at a rate to which the share of SetCPU
// applies, 0 for no limit, and returns when it is complete. It
// stays until StopAttempt, DropOutputs or Return. Errors are those of Compute; one that wraps syscall.ENOSPC
// means that no disk has room for it.
func (t *Attempt) Spill(ctx context.Context, size units.Bytes, rate units.Rate) error {
	return t.run(ctx, "spill output", func(ctx context.Context, l *life) (err error) {
		if t.a.o.Disk == nil {
			return errors.New("the host has no disk")
		}
		r, err := t.a.o.Disk.Spill(size)
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				t.a.problem(r.Remove())
			}
		}()
		cpu := t.a.cpu
		due := cpu.worked()
		for left := size; left > 0; {
			if err := cpu.turn(ctx); err != nil {
				return err
			}
			n := min(left, disk.ReadChunk)
			if rate > 0 {
				due = max(due, cpu.worked()-consumeCatchUp) + min(rate.TimeToSend(n), 1<<61)
			}
			if err := r.Write(ctx, payload[:n]); err != nil {
				return err
			}
			if err := cpu.work(ctx, due); err != nil {
				return err
			}
			left -= n
		}
		if err := r.Commit(); err != nil {
			return err
		}
		t.a.mu.Lock()
		defer t.a.mu.Unlock()
		if t.ctx.Err() != nil || l.ctx.Err() != nil { // no later call would remove it
			return errors.Join(context.Cause(t.ctx), context.Cause(l.ctx))
		}
		t.output = r
		return nil
	})
}

// run runs an operation of the attempt, until it is stopped or the host crashes.
func (t *Attempt) run(ctx context.Context, what string, do func(context.Context, *life) error) error {
	l := t.a.current()
	ctx, release := l.within(ctx)
	defer release()
	ctx, release = withEnd(ctx, t.ctx)
	defer release()
	err := context.Cause(ctx)
	if err == nil {
		err = do(ctx, l)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %s of attempt %d of task %d in stage %d of job %d: %w", t.a.name(), what, t.id.N, t.id.Task.Index, t.id.Task.Stage, t.id.Task.Job, err)
	}
	return nil
}

// StopAttempt ends the operations of an attempt with ErrStopped, also those that begin later through
// the Attempt that exists, and deletes its output (Options.Later).
func (a *Agent) StopAttempt(id jobs.AttemptID) {
	a.dropAttempts(func(o jobs.AttemptID) bool { return o == id })
}

// DropOutputs is StopAttempt for all attempts of a job.
func (a *Agent) DropOutputs(job jobs.JobID) {
	a.dropAttempts(func(o jobs.AttemptID) bool { return o.Task.Job == job })
}

// dropAttempts stops the attempts that match, deletes their outputs and forgets them.
func (a *Agent) dropAttempts(match func(jobs.AttemptID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range a.attempts {
		if !match(id) {
			continue
		}
		t.end(ErrStopped)
		if t.output != nil {
			a.later(t.output.Remove)
		}
		delete(a.attempts, id)
	}
}
