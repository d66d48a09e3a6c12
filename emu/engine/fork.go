package engine

import (
	"fmt"
	"time"

	"testbed/policies"
	"testbed/policies/coordinator"
)

// Fork is another coflow policy from a time on.
type Fork struct {
	At time.Duration // after the start
	// Needs are those of all policies that may be it. They are met from the start, so that what happens before the
	// fork does not depend on which one it is.
	Needs policies.Facts
	// Unlimited states that none of them limits a flow (policies.Unlimited).
	Unlimited bool
	// Policy returns the policy, or nil to go on with Config.Coflow. It is called once, at the fork.
	Policy func() (policies.CoflowScheduler, error)
}

// forks returns the time of the fork; NextNever after it, or without one.
func (e *Engine) forks() time.Duration {
	if e.cfg.Fork == nil || e.forked {
		return NextNever
	}
	return e.cfg.Fork.At
}

// Forked reports whether the time of the fork has come, and whether the policy is another one since then.
func (e *Engine) Forked() (passed, changed bool) { return e.forked, e.changed }

// fork replaces the coflow policy when it is time. The new one knows nothing of the decisions of the other: it sees the
// coflows as if for the first time, in queue 0 since now, and decides at once. Stats count from here.
func (e *Engine) fork() error {
	if e.forks() > e.now {
		return nil
	}
	e.forked = true
	p, err := e.cfg.Fork.Policy()
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	if p == nil {
		return nil
	}
	c := &e.control
	e.changed, e.cfg.Coflow = true, p
	if c.Coordinator, err = coordinator.New(p, 0, false); err != nil {
		return fmt.Errorf("fork: coflow policy: %w", err)
	}
	c.counter, c.late = coordinator.NewCounter(c.Triggers.Every, len(e.hosts)), 0
	for _, x := range e.coflows.active {
		x.State.Queue, x.State.Since = 0, e.now
		x.Shown, x.Watch, x.WatchMost = false, 0, 0
		c.CoflowChanged(e.now)
		for _, f := range x.flows {
			c.counter.Arrived(f.Src, e.now)
		}
	}
	c.urgent = true
	return nil
}
