package engine

import (
	"fmt"
	"slices"
	"time"

	"testbed/topo"
	"testbed/workloads"
)

// jobs is the sub-machine that starts the writers of jobs, whose coflows have to end
// before.
//
// A coflow has ended when each of its flows has finished or failed. A reducer to which
// a flow has failed lacks a part of its input: in Hadoop its attempt fails before it
// has written anything and the task runs again elsewhere, which nothing here does, so
// its blocks fail. The other reducers of the job have all of theirs and write.
type jobs struct {
	ended   []*coflow // in the step in progress: those with writers that wait for them
	waiting []start   // in order of time, ties as the coflows ended and by their lists
}

// start is a writer that starts later.
type start struct {
	at     time.Duration
	writer workloads.Writer
}

// checkThen looks through the writers that wait for a coflow.
func (e *Engine) checkThen(ev CoflowArrived) error {
	for _, w := range ev.Then {
		switch {
		case len(w.Blocks) == 0:
			return fmt.Errorf("coflow %d: writer %d has no blocks", ev.Coflow.ID, w.ID)
		case w.Start < 0:
			return fmt.Errorf("coflow %d: writer %d starts %v after it: want 0 or more", ev.Coflow.ID, w.ID, w.Start)
		case !e.known(w.Client):
			return fmt.Errorf("coflow %d: writer %d on host %d: want a host of the fabric", ev.Coflow.ID, w.ID, w.Client)
		case e.cfg.Placement == nil:
			return fmt.Errorf("coflow %d: writer %d: there is no placement policy", ev.Coflow.ID, w.ID)
		}
	}
	return nil
}

// startWriters starts the writers whose time has come.
func (e *Engine) startWriters(cmds []Command) ([]Command, error) {
	for _, c := range e.jobs.ended {
		for _, w := range c.then {
			if why, failed := c.failed[w.Client]; failed {
				cmds = e.failWriter(cmds, w.Blocks, "its shuffle failed: "+why)
				continue
			}
			at := e.now + min(w.Start, NextNever-1-e.now)
			i, _ := slices.BinarySearchFunc(e.jobs.waiting, at, func(s start, at time.Duration) int {
				if s.at <= at {
					return -1
				}
				return 1
			})
			e.jobs.waiting = slices.Insert(e.jobs.waiting, i, start{at, w})
		}
	}
	e.jobs.ended = nil
	for len(e.jobs.waiting) > 0 && e.jobs.waiting[0].at <= e.now {
		w := e.jobs.waiting[0].writer
		e.jobs.waiting = e.jobs.waiting[1:]
		var err error
		if cmds, err = e.writerArrived(cmds, w); err != nil {
			return nil, err
		}
	}
	return cmds, nil
}

// loseInput takes from a host what coflows have brought it.
func (e *Engine) loseInput(cmds []Command, h topo.HostID, why string) []Command {
	for _, c := range slices.Concat(e.coflows.active, e.jobs.ended) {
		c.lacks(h, why)
	}
	kept := e.jobs.waiting[:0:0]
	for _, s := range e.jobs.waiting {
		if s.writer.Client == h {
			cmds = e.failWriter(cmds, s.writer.Blocks, why)
		} else {
			kept = append(kept, s)
		}
	}
	e.jobs.waiting = kept
	return cmds
}

// next is when the next writer starts.
func (j *jobs) next() time.Duration {
	if len(j.waiting) == 0 {
		return NextNever
	}
	return j.waiting[0].at
}

// lacks notes that a host will not have all that a coflow was to bring it.
func (c *coflow) lacks(h topo.HostID, why string) {
	if len(c.then) == 0 {
		return
	}
	if c.failed == nil {
		c.failed = map[topo.HostID]string{}
	}
	if _, again := c.failed[h]; !again {
		c.failed[h] = why
	}
}

// toStart counts the writers that wait.
func (e *Engine) toStart() int {
	n := len(e.jobs.waiting)
	for _, c := range e.coflows.active {
		n += len(c.then)
	}
	return n
}
