package engine

import (
	"slices"

	"testbed/emu/engine/tracker"
	"testbed/workloads/jobs"
)

// order is what reaches a host at once: the start of an attempt, then what has been decided about it
// since, or the stop of one. It is empty if the host never gets it.
type order []tracker.Command

// starts returns the start of an attempt.
func (o order) starts() (tracker.StartAttempt, bool) {
	if len(o) == 0 {
		return tracker.StartAttempt{}, false
	}
	start, ok := o[0].(tracker.StartAttempt)
	return start, ok
}

// unstarted returns the order that starts an attempt, if it has not reached its host; else nil.
func (x *tasks) unstarted(id jobs.AttemptID) *order {
	for i := range x.orders {
		if start, ok := x.orders[i].what.starts(); ok && start.Attempt == id {
			return &x.orders[i].what
		}
	}
	return nil
}

// delay keeps a command back that does not reach its host yet, and reports whether it did.
func (x *tasks) delay(cmd tracker.Command) bool {
	var of jobs.AttemptID // the command follows its start
	switch cmd := cmd.(type) {
	case tracker.StartAttempt:
		return !x.orders.atOnce(cmd.After) && x.orders.hold(x.now, cmd.After, order{cmd}) // most need no order
	case tracker.StopAttempt:
		if cmd.After > 0 {
			return x.orders.hold(x.now, cmd.After, order{cmd})
		}
		if o := x.unstarted(cmd.Attempt); o != nil {
			*o = nil
		}
		return false
	case tracker.ReadFrom:
		o := x.unstarted(cmd.Attempt)
		if o == nil {
			return false
		}
		start, _ := o.starts()
		start.Source, start.Locality = cmd.Source, x.locality(cmd.Host, cmd.Source)
		(*o)[0] = start
		return true
	case tracker.StopFetch:
		for i := range x.orders {
			x.orders[i].what = slices.DeleteFunc(x.orders[i].what, func(c tracker.Command) bool {
				f, ok := c.(tracker.StartFetch)
				return ok && f.ID == cmd.ID
			})
		}
		return false
	case tracker.StartFetch:
		of = cmd.Attempt
	case tracker.InputFetched:
		of = cmd.Attempt
	case tracker.Compute:
		of = cmd.Attempt
	case tracker.WriteOutput:
		of = cmd.Attempt
	default:
		return false
	}
	o := x.unstarted(of)
	if o != nil {
		*o = append(*o, cmd)
	}
	return o != nil
}

// arrive carries out the orders that reach their hosts.
func (x *tasks) arrive() error {
	for o := range x.orders.arrived(x.now) {
		for _, cmd := range o {
			if err := x.carryOut(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostEnded informs the tracker that everything on a host is lost, what has not reached it too. It
// precedes what other machines report about it.
func (x *tasks) hostEnded(n hostEnded) {
	if x.tracker == nil {
		return
	}
	x.note(tracker.HostLost{Host: n.host})
	for i := range x.orders {
		o := &x.orders[i].what
		if len(*o) == 0 {
			continue
		}
		switch cmd := (*o)[0].(type) {
		case tracker.StartAttempt:
			if cmd.Host == n.host {
				*o = nil
			}
		case tracker.StopAttempt:
			if cmd.Host == n.host {
				x.stopped(cmd)
				*o = nil
			}
		}
	}
}
