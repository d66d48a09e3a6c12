package engine

import (
	"fmt"
	"slices"
	"time"

	"testbed/topo"
	"testbed/workloads"
)

// writers is the sub-machine that starts the writers of jobs after their coflows have ended.
//
// A coflow has ended when each of its flows has finished or failed. If a flow to a reducer
// has failed, the reducer's input is incomplete. In Hadoop its attempt would fail before it
// writes and the task would run again on another host. The engine does not do this, so the
// blocks of that reducer fail. The other reducers of the job have their input and write.
type writers struct {
	*core
	blocks   *blocks                         // starts and fails writers
	shuffles map[workloads.CoflowID]*shuffle // unfinished coflows with writers
	ended    []*shuffle                      // those that have ended in the current step
	waiting  []start                         // by time, ties by end of the coflows and by their lists
}

// shuffle is a coflow for whose end writers wait.
type shuffle struct {
	writers []workloads.Writer
	failed  map[topo.HostID]string // the reason why a host will not receive everything
}

func newWriters(shared *core, b *blocks) writers {
	return writers{core: shared, blocks: b, shuffles: map[workloads.CoflowID]*shuffle{}}
}

// start is a writer with a start time in the future.
type start struct {
	at     time.Duration
	writer workloads.Writer
}

// coflowArrived registers the writers that wait for a coflow.
func (x *writers) coflowArrived(ev CoflowArrived) error {
	id := ev.Coflow.ID
	for _, w := range ev.Then {
		switch {
		case len(w.Blocks) == 0:
			return fmt.Errorf("coflow %d: writer %d has no blocks", id, w.ID)
		case w.Start < 0:
			return fmt.Errorf("coflow %d: writer %d starts %v after it: must be 0 or more", id, w.ID, w.Start)
		case !x.known(w.Client):
			return fmt.Errorf("coflow %d: writer %d on host %d: must be a host of the fabric", id, w.ID, w.Client)
		case x.cfg.Placement == nil:
			return fmt.Errorf("coflow %d: writer %d: no placement policy is configured", id, w.ID)
		}
	}
	if len(ev.Then) == 0 {
		return nil
	}
	if x.shuffles[id] != nil {
		return fmt.Errorf("coflow %d has already arrived", id)
	}
	x.shuffles[id] = &shuffle{writers: ev.Then, failed: map[topo.HostID]string{}}
	return nil
}

func (x *writers) flowEnded(n flowEnded) {
	if s := x.shuffles[n.coflow]; s != nil && n.failed {
		s.lose(n.dst, n.why)
	}
}

func (x *writers) coflowEnded(n coflowEnded) {
	if s := x.shuffles[n.id]; s != nil {
		delete(x.shuffles, n.id)
		x.ended = append(x.ended, s)
	}
}

// startWriters starts the writers that are due.
func (x *writers) startWriters() error {
	for _, s := range x.ended {
		for _, w := range s.writers {
			if why, failed := s.failed[w.Client]; failed {
				x.blocks.failWriter(w.Blocks, "its shuffle failed: "+why)
				continue
			}
			at := x.now + min(w.Start, NextNever-1-x.now)
			i, _ := slices.BinarySearchFunc(x.waiting, at, func(s start, at time.Duration) int {
				if s.at <= at {
					return -1
				}
				return 1
			})
			x.waiting = slices.Insert(x.waiting, i, start{at, w})
		}
	}
	x.ended = nil
	for len(x.waiting) > 0 && x.waiting[0].at <= x.now {
		w := x.waiting[0].writer
		x.waiting = x.waiting[1:]
		if err := x.blocks.writerArrived(w); err != nil {
			return err
		}
	}
	return nil
}

// hostEnded discards the input that a host has received from coflows.
func (x *writers) hostEnded(n hostEnded) {
	for _, s := range x.shuffles {
		s.lose(n.host, n.why)
	}
	for _, s := range x.ended {
		s.lose(n.host, n.why)
	}
	x.waiting = slices.DeleteFunc(slices.Clone(x.waiting), func(s start) bool {
		if s.writer.Client != n.host {
			return false
		}
		x.blocks.failWriter(s.writer.Blocks, n.why)
		return true
	})
}

// next returns the start time of the next writer.
func (x *writers) next() time.Duration {
	if len(x.waiting) == 0 {
		return NextNever
	}
	return x.waiting[0].at
}

// lose records that a host will not receive everything, for the first reason.
func (s *shuffle) lose(h topo.HostID, why string) {
	if _, again := s.failed[h]; !again {
		s.failed[h] = why
	}
}

// toStart returns the number of waiting writers.
func (x *writers) toStart() int {
	n := len(x.waiting)
	for _, s := range x.shuffles {
		n += len(s.writers)
	}
	return n
}
