// Package coordinator defines how the coordinator of coflows uses its policy: when it calls the
// policy, which answers it accepts, what it keeps of an answer for the next View, and how its
// messages with the hosts are counted. The engine and the flow-level simulator share it.
//
// It knows no flows, rates or clock: a caller reports events with their times, and keeps the
// coflows.
package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo/units"
)

// Never is a time that no run reaches.
const Never = time.Duration(math.MaxInt64)

// unset is the time of the next multiple while no coflow is unfinished.
const unset time.Duration = -1

// Coordinator determines the times at which the policy is called, and keeps its instance. Its zero
// value never calls the policy. Times are since the start of the run.
type Coordinator struct {
	Policy   policies.CoflowInstance
	Needs    policies.Facts
	Triggers policies.Triggers
	// Unlimited is set if the policy never limits a flow.
	Unlimited bool
	// Step is the time of which decisions occur at multiples, except those after changes of
	// links, routes and hosts: Triggers.Every or, if it is 0, the quantum. 0 is no such limit.
	Step time.Duration
	// Decided is the time of the newest decision; -1 before the first.
	Decided time.Duration
	// Watching is set if the newest schedule has watch thresholds: a multiple of Step at which
	// no event has occurred and no coflow has passed its threshold is skipped. WatchingMost is
	// set if these include thresholds of CoflowState.MostSent.
	Watching, WatchingMost bool
	// Reports is set from the first decision on that depends on the bytes that coflows have sent:
	// the policy has an interval and is called at its every multiple, or watches some coflow.
	// Hosts with unfinished flows then report in every interval.
	Reports bool

	mostKnown bool          // the caller knows MostSent between decisions
	requested time.Duration // of a decision that an event or Schedule.Wake requires
	next      time.Duration // the next multiple of Step at which a decision may be due
}

// New returns the coordinator of a new instance of a policy. The quantum, if it is not 0, is the time of which all
// decisions occur at multiples. mostKnown states that the caller honours Schedule.WatchMost. An error
// reports invalid Triggers.
func New(p policies.CoflowScheduler, quantum time.Duration, mostKnown bool) (Coordinator, error) {
	c := Coordinator{
		Policy: p.New(), Needs: p.Needs(), Triggers: p.Triggers(), Unlimited: policies.IsUnlimited(p),
		Decided: -1, mostKnown: mostKnown,
	}
	c.Step = cmp.Or(c.Triggers.Every, quantum)
	c.Reset()
	switch {
	case c.Triggers.Every < 0:
		return c, fmt.Errorf("interval %v: must be 0 or more", c.Triggers.Every)
	case c.Triggers.Every == 0 && !c.Triggers.Coflows:
		return c, errors.New("neither Triggers.Coflows nor Triggers.Every is set: no flow would ever be sent")
	case quantum > 0 && c.Triggers.Every%quantum != 0:
		return c, fmt.Errorf("interval %v: must be a multiple of the quantum %v", c.Triggers.Every, quantum)
	}
	return c, nil
}

// Reset forgets the requested decisions. It must be called when no coflow is unfinished.
func (c *Coordinator) Reset() { c.requested, c.next = Never, unset }

// CoflowChanged reports the arrival or the end of a coflow.
func (c *Coordinator) CoflowChanged(at time.Duration) {
	if c.next == unset {
		if c.next = Never; c.Step > 0 {
			c.next = c.Multiple(at)
		}
	}
	if c.Triggers.Coflows {
		c.request(at)
	}
}

// FlowEnded reports the end of a flow, and whether it was the last unfinished pilot flow of its
// coflow.
func (c *Coordinator) FlowEnded(at time.Duration, lastPilot bool) {
	if c.Triggers.Flows || c.Triggers.Pilots && lastPilot {
		c.request(at)
	}
}

func (c *Coordinator) request(at time.Duration) { c.requested = min(c.requested, c.Multiple(at)) }

// Multiple returns the first multiple of Step that is not before t; t if Step is 0.
func (c *Coordinator) Multiple(t time.Duration) time.Duration { return MultipleOf(c.Step, t) }

// MultipleOf returns the first multiple of d that is not before t; t if d is 0.
func MultipleOf(d, t time.Duration) time.Duration {
	if d == 0 || t%d == 0 {
		return t
	}
	if t > Never-d {
		return Never
	}
	return t - t%d + d
}

// Due returns the time at which a decision became due, if that is not after now; otherwise a later
// time. It must be called only while a coflow is unfinished. passes is called if only watch
// thresholds can require a decision. It returns the earliest time at which a coflow can have passed
// its threshold: now or earlier if one has.
func (c *Coordinator) Due(now time.Duration, passes func() time.Duration) time.Duration {
	if c.next <= now && c.next < c.requested {
		at := now
		if c.Watching {
			at = passes()
		} else if c.Triggers.Every == 0 {
			at = Never
		}
		if at <= now {
			return c.next
		}
		c.next = c.Multiple(at)
	}
	return c.requested
}

// Requested returns the time of the decision that an event or Schedule.Wake requires; Never for
// none.
func (c *Coordinator) Requested() time.Duration { return c.requested }

// Next returns the next multiple of Step at which Due must be called even without events; Never for
// none. It has no meaning while no coflow is unfinished.
func (c *Coordinator) Next() time.Duration { return c.next }

// Defer skips the multiples of Step before the earliest time at which a coflow can pass its
// threshold.
func (c *Coordinator) Defer(at time.Duration) {
	if c.Watching {
		c.next = max(c.next, c.Multiple(at))
	}
}

// Check returns the first error in the parts of a schedule for v that do not concern flows or
// rates. Package alloc checks the steps.
func (c *Coordinator) Check(v *policies.CoflowView, s *policies.Schedule) error {
	n := len(v.Coflows)
	if s.Err != nil {
		return s.Err
	}
	if len(s.Queues) != 0 && len(s.Queues) != n {
		return fmt.Errorf("schedule: Queues has %d values: must be one for each of %d coflows, or none", len(s.Queues), n)
	}
	if s.Wake < 0 {
		return fmt.Errorf("schedule: Wake is %v: must be 0 or more", s.Wake)
	}
	if c.Unlimited && n > 0 && (len(s.Steps) != 1 || s.Steps[0].Rule != policies.Free || len(s.Steps[0].Coflows) != n) {
		return fmt.Errorf("schedule: %d steps although the policy is Unlimited: must be one step with rule Free and all %d coflows", len(s.Steps), n)
	}
	if err := c.checkWatch("Watch", s.Watch, v); err != nil {
		return err
	}
	return c.checkWatch("WatchMost", s.WatchMost, v)
}

func (c *Coordinator) checkWatch(name string, watch []int64, v *policies.CoflowView) error {
	if len(watch) != 0 && len(watch) != len(v.Coflows) {
		return fmt.Errorf("schedule: %s has %d values: must be one for each of %d coflows, or none", name, len(watch), len(v.Coflows))
	}
	for i, bytes := range watch {
		if bytes < 0 {
			return fmt.Errorf("schedule: %s of coflow %d: %d bytes: must be 0 or more", name, v.Coflows[i].ID, bytes)
		}
		if bytes > 0 && !c.Needs.Has(policies.Progress) {
			return errors.New("schedule: " + name + " is set, which needs Progress: name it in Needs")
		}
	}
	return nil
}

// Accept applies a checked schedule, made at the time now. Take applies it to each coflow.
func (c *Coordinator) Accept(now time.Duration, s *policies.Schedule) {
	c.Decided, c.requested, c.next = now, Never, Never
	if s.Wake > now {
		c.requested = c.Multiple(s.Wake)
	}
	if c.Step > 0 {
		c.next = c.Multiple(now + 1)
	}
	most := len(s.WatchMost) > 0
	c.Watching = c.Step > 0 && (len(s.Watch) > 0 || most) && (!most || c.mostKnown && c.Needs.Has(policies.MostSent) && c.Triggers.Every > 0)
	c.WatchingMost = c.Watching && most
	if !c.Reports && c.Triggers.Every > 0 {
		watches := func(bytes int64) bool { return bytes > 0 }
		c.Reports = !c.Watching || slices.ContainsFunc(s.Watch, watches) || slices.ContainsFunc(s.WatchMost, watches)
	}
}

// Coflow is the state of an unfinished coflow from which Views are filled. The caller keeps the
// fields of State that follow from flows.
type Coflow struct {
	State            policies.CoflowState
	Shown            bool        // the coflow was in the View of a decision
	Watch, WatchMost units.Bytes // thresholds of the newest schedule; 0 for never
}

// Take applies the accepted schedule to a coflow, at index i of the View. It reports whether the
// coflow's queue has changed.
func (c *Coordinator) Take(s *policies.Schedule, i int, x *Coflow) bool {
	x.Shown, x.Watch, x.WatchMost = true, 0, 0
	if c.Watching {
		if len(s.Watch) > 0 {
			x.Watch = units.Bytes(s.Watch[i])
		}
		if len(s.WatchMost) > 0 {
			x.WatchMost = units.Bytes(s.WatchMost[i])
		}
	}
	if len(s.Queues) == 0 || s.Queues[i] == x.State.Queue {
		return false
	}
	x.State.Queue, x.State.Since = s.Queues[i], c.Decided
	return true
}

// Shows reports whether the next View shows the unfinished flows of a coflow, or only its
// unfinished pilot flows.
func (c *Coordinator) Shows(x *Coflow) (all, pilots bool) {
	all = c.Needs.Has(policies.Flows) || c.Needs.Has(policies.NewFlows) && !x.Shown
	return all, !all && c.Needs.Has(policies.PilotFlows) && x.State.PilotsLeft > 0
}

// AddPilot counts a flow of the coflow that becomes a pilot flow.
func (x *Coflow) AddPilot() {
	x.State.Pilots++
	x.State.PilotsLeft++
}

// PilotEnded counts the end of a pilot flow that delivered some bytes. It reports whether it was the
// last unfinished one.
func (x *Coflow) PilotEnded(bytes units.Bytes) bool {
	x.State.PilotsLeft--
	x.State.PilotSent += bytes
	return x.State.PilotsLeft == 0
}
