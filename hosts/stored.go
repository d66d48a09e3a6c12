package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"testbed/hosts/disk"
	"testbed/workloads"
)

// stored is a replica at its host, from one generation of its pipeline to the
// next: a relay that breaks leaves it, and that of the next generation takes it
// over and goes on with it. One that is not whole and that nobody comes for is
// deleted. Guarded by Agent.mu, but for replica, which is the relay's until done is
// closed.
type stored struct {
	generation uint32
	replica    *disk.Replica // nil before it is created
	cancel     context.CancelCauseFunc
	done       chan struct{} // closed once the relay has left it
	left       bool          // done is closed
	expire     *time.Timer
}

// errSuperseded ends a relay whose block has a pipeline of a later generation.
var errSuperseded = errors.New("the block has another pipeline")

// take makes a relay the one that stores a block, in place of that of an earlier
// generation, which is ended.
func (a *Agent) take(ctx context.Context, block workloads.BlockID, generation uint32, cancel context.CancelCauseFunc) (*stored, error) {
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
			old.generation = generation // it must not come again
			if old.left {
				a.expire(block, old)
			}
		} else { // a later one waits for this
			close(s.done)
			s.left = true
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

// leave is the end of a relay. The replica waits for the next generation, unless
// it is of no use.
func (a *Agent) leave(block workloads.BlockID, s *stored, useless bool) {
	a.mu.Lock()
	abort := false
	switch {
	case a.blocks[block] != s: // another relay waits for it
	case s.replica == nil:
		delete(a.blocks, block)
	case useless:
		delete(a.blocks, block)
		abort = true
	default:
		a.expire(block, s)
	}
	s.left = true
	close(s.done)
	a.mu.Unlock()
	if abort {
		a.abort(s)
	}
}

// expire deletes a replica in a while, unless it is whole. a.mu is held.
func (a *Agent) expire(block workloads.BlockID, s *stored) {
	if s.replica == nil || s.replica.Whole() {
		return
	}
	s.expire = time.AfterFunc(a.o.Timeouts.Idle, func() {
		a.mu.Lock()
		mine := a.blocks[block] == s
		if mine {
			delete(a.blocks, block)
		}
		a.mu.Unlock()
		if mine {
			a.abort(s)
		}
	})
}

func (a *Agent) abort(s *stored) {
	if err := s.replica.Abort(); err != nil {
		a.o.Sink.Problem(fmt.Errorf("%s: %w", a.name(), err))
	}
}

// forgetReplicas deletes those that are not whole and that no relay has, and
// forgets the others.
func (a *Agent) forgetReplicas() {
	a.mu.Lock()
	old := a.blocks
	a.blocks = make(map[workloads.BlockID]*stored)
	for block, s := range old {
		if !s.left {
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
			a.abort(s) // nothing, where it is whole
		}
	}
}
