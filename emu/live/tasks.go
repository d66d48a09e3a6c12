package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"testbed/emu/engine"
	"testbed/hosts"
	"testbed/hosts/disk"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/workloads/jobs"
)

var localities = map[policies.Locality]uint8{
	policies.NodeLocal: wire.NodeLocal,
	policies.RackLocal: wire.RackLocal,
	policies.OffRack:   wire.OffRack,
}

// attemptOf returns an attempt in the form of headers.
func attemptOf(id jobs.AttemptID) (wire.Task, error) {
	const most32, most16 = math.MaxUint32, math.MaxUint16
	t := id.Task
	if t.Job < 1 || t.Job > most32 || t.Stage < 0 || t.Stage > most16 || t.Index < 0 || t.Index > most32 || id.N < 0 || id.N > most16 {
		return wire.Task{}, fmt.Errorf("attempt %d of task %d in stage %d of job %d does not fit in a header: job 1 to %d, stage and attempt at most %d, task at most %d",
			id.N, t.Index, t.Stage, t.Job, uint32(most32), most16, uint32(most32))
	}
	return wire.Task{Job: uint32(t.Job), Stage: uint16(t.Stage), Index: uint32(t.Index), Attempt: uint16(id.N)}, nil
}

// taskOf returns the task of a flow in the form of headers.
func taskOf(t engine.TaskTransfer) (wire.Task, error) {
	w, err := attemptOf(t.Attempt)
	if err != nil || t.From == nil {
		return w, err
	}
	from, err := attemptOf(*t.From)
	if err != nil {
		return wire.Task{}, err
	}
	if t.From.Task.Job != t.Attempt.Task.Job || t.Outputs < 1 || t.Outputs > math.MaxUint32 {
		return wire.Task{}, fmt.Errorf("%d outputs of job %d for job %d: expected at least 1 of the same job", t.Outputs, t.From.Task.Job, t.Attempt.Task.Job)
	}
	w.FromStage, w.FromIndex, w.FromAttempt, w.Outputs = from.Stage, from.Index, from.Attempt, uint32(t.Outputs)
	return w, nil
}

// paceOf returns how an attempt consumes a transfer.
func paceOf(t *engine.TaskTransfer) hosts.Consumption {
	return hosts.Consumption{Rate: t.Rate, Onset: t.Onset, Slow: t.Slow}
}

func (b *Backend) markTask(c engine.MarkTask) error {
	t, err := attemptOf(c.Attempt)
	if err != nil {
		return err
	}
	var ok bool
	if t.Locality, ok = localities[c.Locality]; !ok {
		return fmt.Errorf("mark of job %d with unknown locality %d", t.Job, c.Locality)
	}
	t.Moment, t.Reduce = c.Moment, c.Kind == jobs.Reduce
	if t.Moment.OfJob() {
		t.Stage, t.Index, t.Attempt = 0, 0, 0
	}
	return b.agents[c.Host].MarkTask(t, c.Reads, c.Parts, c.Size, wire.Note{User: c.User, Profile: c.Profile, Why: c.Why})
}

func (b *Backend) compute(c engine.Compute) {
	attempt := b.agents[c.Host].Attempt(c.Attempt) // before a StopTask
	b.computing.Store(c.Attempt, attempt)
	b.transfer.Go(func() {
		err := attempt.Compute(b.sendCtx, c.Time)
		b.computing.Delete(c.Attempt)
		b.attemptEnded(c.Attempt, c.Host, err, engine.TaskComputed{Attempt: c.Attempt})
	})
}

// computed returns the event about the attempts that compute on some hosts; none if no policy needs it.
func (b *Backend) computed(on []topo.HostID) []engine.Event {
	if !b.cfg.Needs.Has(policies.TaskProgress) {
		return nil
	}
	done := map[jobs.AttemptID]float64{}
	b.computing.Range(func(id, attempt any) bool {
		if a := attempt.(*hosts.Attempt); slices.Contains(on, a.Host()) {
			done[id.(jobs.AttemptID)] = a.Computed()
		}
		return true
	})
	if len(done) == 0 {
		return nil
	}
	ev := engine.TaskProgressed{Attempts: slices.SortedFunc(maps.Keys(done), jobs.AttemptID.Compare)}
	for _, id := range ev.Attempts {
		ev.Done = append(ev.Done, done[id])
	}
	return []engine.Event{ev}
}

func (b *Backend) spill(c engine.SpillOutput) {
	attempt := b.agents[c.Host].Attempt(c.Attempt)
	b.mu.Lock()
	last := b.last
	b.mu.Unlock()
	b.transfer.Go(func() {
		err := attempt.Spill(b.sendCtx, c.Size, c.Rate)
		if full := (*disk.FullError)(nil); errors.As(err, &full) && last != nil { // the engine counts on the space of what is being deleted
			select {
			case <-last:
				err = attempt.Spill(b.sendCtx, c.Size, c.Rate)
			case <-b.sendCtx.Done():
				err = context.Cause(b.sendCtx)
			}
		}
		b.attemptEnded(c.Attempt, c.Host, err, engine.OutputSpilled{Attempt: c.Attempt})
	})
}

// attemptEnded reports the end of an operation of an attempt: done if err is nil.
func (b *Backend) attemptEnded(id jobs.AttemptID, h topo.HostID, err error, done engine.Event) {
	var full *disk.FullError
	switch {
	case err == nil:
		b.push(done)
	case ended(err) == nil || errors.Is(err, hosts.ErrStopped) || errors.Is(err, hosts.ErrCrashed): // the engine knows, or will miss the host
	case errors.As(err, &full) || b.faults.explain(h):
		b.push(engine.TaskFailed{Attempt: id, Why: err.Error()})
	default:
		b.fail(err)
	}
}

func (b *Backend) dropOutputs(c engine.DropOutputs) {
	for _, a := range b.agents {
		a.DropOutputs(c.Job)
	}
}

// later deletes files one after another, without holding up the loop of the engine.
func (b *Backend) later(remove func()) {
	b.mu.Lock()
	before, done := b.last, make(chan struct{})
	b.last = done
	b.mu.Unlock()
	b.deletions.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		remove()
	})
}
