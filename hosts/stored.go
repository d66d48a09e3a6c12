package hosts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"testbed/hosts/disk"
	"testbed/workloads"
)

// stored is a replica on its host, across the generations of its pipeline. A relay that breaks
// releases it; the relay of the next generation acquires and continues it. An incomplete replica
// that no relay acquires is deleted. Agent.mu guards all fields except replica, which the relay
// owns until done is closed.
type stored struct {
	generation uint32
	replica    *disk.Replica // nil before it is created
	cancel     context.CancelCauseFunc
	done       chan struct{} // closed when the relay releases it
	released   bool          // done is closed
	expire     *time.Timer
	dropped    bool // not a replica: the block was dropped
}

// errSuperseded ends a relay whose block has a pipeline of a later generation.
var errSuperseded = errors.New("the block has another pipeline")

// acquireReplica assigns a block to a relay. It ends the relay of an earlier generation and takes
// over its replica.
func (a *Agent) acquireReplica(ctx context.Context, block workloads.BlockID, generation uint32, cancel context.CancelCauseFunc) (*stored, error) {
	s := &stored{generation: generation, cancel: cancel, done: make(chan struct{})}
	a.mu.Lock()
	old := a.blocks[block]
	if old != nil && old.generation >= generation {
		a.mu.Unlock()
		return nil, fmt.Errorf("generation %d of block %d: generation %d %w here", generation, block, old.generation, os.ErrExist)
	}
	a.blocks[block] = s
	a.mu.Unlock()
	if old == nil {
		return s, nil
	}
	old.cancel(errSuperseded)
	timer := time.NewTimer(a.o.PeerTimeout)
	defer timer.Stop()
	var err error
	select {
	case <-old.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("generation %d of block %d did not end for %v", old.generation, block, a.o.PeerTimeout)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if a.blocks[block] == s {
			a.blocks[block] = old
			old.generation = generation // refuse this generation from now on
			if old.released {
				a.expire(block, old)
			}
		} else { // a relay of a later generation waits for this one
			close(s.done)
			s.released = true
		}
		return nil, err
	}
	if old.expire != nil {
		old.expire.Stop()
	}
	if old.replica != nil && old.replica.Err() == nil {
		s.replica = old.replica
	}
	return s, nil
}

// releaseReplica ends a relay's use of its replica, which is kept for the next generation unless
// discard is set.
func (a *Agent) releaseReplica(block workloads.BlockID, s *stored, discard bool) {
	a.mu.Lock()
	abort, dropped := false, false
	switch current := a.blocks[block]; {
	case current != s: // another relay waits for it, or the block was dropped
		dropped = current != nil && current.dropped && s.replica != nil
	case s.replica == nil:
		delete(a.blocks, block)
	case discard:
		delete(a.blocks, block)
		abort = true
	default:
		a.expire(block, s)
	}
	s.released = true
	close(s.done)
	a.mu.Unlock()
	if abort {
		a.abort(s)
	}
	if dropped {
		a.later(s.replica.Remove)
	}
}

// Drop ends the part of this host in the pipelines of a block, deletes its replica, complete or not
// (Options.Later), and refuses the block from now on. The caller first ends Write at the client.
func (a *Agent) Drop(block workloads.BlockID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.blocks[block]
	a.blocks[block] = &stored{generation: math.MaxUint32, dropped: true}
	if s != nil && !s.released && !s.dropped {
		s.cancel(ErrStopped) // releaseReplica deletes the replica
		return
	}
	if s != nil && s.expire != nil {
		s.expire.Stop()
	}
	switch {
	case s != nil && s.replica != nil:
		a.later(s.replica.Remove)
	case a.o.Disk != nil:
		a.later(func() error { return a.o.Disk.Remove(block) }) // that was complete before a crash
	}
}

// expire deletes an incomplete replica after Timeouts.Idle. The caller holds a.mu.
func (a *Agent) expire(block workloads.BlockID, s *stored) {
	if s.replica == nil || s.replica.Whole() {
		return
	}
	s.expire = time.AfterFunc(a.o.Timeouts.Idle, func() {
		a.mu.Lock()
		current := a.blocks[block] == s
		if current {
			delete(a.blocks, block)
		}
		a.mu.Unlock()
		if current {
			a.abort(s)
		}
	})
}

// abort deletes the replica if it is not complete.
func (a *Agent) abort(s *stored) {
	a.problem(s.replica.Abort())
}

// later deletes files by remove: see Options.Later.
func (a *Agent) later(remove func() error) {
	a.o.Later(func() { a.problem(remove()) })
}

func (a *Agent) problem(err error) {
	if err != nil {
		a.o.Sink.Problem(fmt.Errorf("%s: %w", a.name(), err))
	}
}

// forgetReplicas forgets all replicas that are not in use by a relay, and deletes the incomplete
// ones.
func (a *Agent) forgetReplicas() {
	a.mu.Lock()
	old := a.blocks
	a.blocks = make(map[workloads.BlockID]*stored)
	for block, s := range old {
		if !s.released {
			a.blocks[block] = s
			delete(old, block)
		}
		if s.expire != nil {
			s.expire.Stop()
		}
	}
	a.mu.Unlock()
	for _, s := range old {
		if s.replica != nil {
			a.abort(s) // does nothing to a complete one
		}
	}
}
