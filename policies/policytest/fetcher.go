package policytest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"testbed/policies"
)

// fetching are instances that are Fetchers.
type fetching struct {
	*instances
	first, elsewhere, twin policies.Fetcher

	choice *policies.CopyChoice // the first one
	keep   func()               // calls elsewhere with the View of the first Keep
}

// Keep compares two instances. Between their calls, it calls a third one with another View.
func (x *fetching) Keep(v *policies.TaskView, j *policies.TaskJob, stage int) time.Duration {
	at := slices.IndexFunc(v.Jobs, func(o policies.TaskJob) bool { return o.ID == j.ID })
	shown := MaskTasks(v, x.needs)
	call := func(f policies.Fetcher) time.Duration {
		v := cloneTasks(shown)
		d := f.Keep(v, &v.Jobs[at], stage)
		switch {
		case d < 0:
			x.fail(fmt.Errorf("method Keep returned %v: must not be negative", d))
		case !reflect.DeepEqual(v, shown):
			x.fail(fmt.Errorf("method Keep modified the View"))
		}
		overwriteTasks(v)
		return d
	}
	first := call(x.first)
	if x.keep == nil {
		x.keep = func() { call(x.elsewhere) }
	}
	x.keep()
	if again := call(x.twin); again != first {
		x.fail(fmt.Errorf("two identical calls of Keep return %v and %v", first, again))
	}
	return first
}

// Source compares two instances.
func (x *fetching) Source(c *policies.CopyChoice) int {
	if x.choice == nil {
		x.choice = &policies.CopyChoice{}
		*x.choice = *c
		x.choice.Copies = slices.Clone(c.Copies)
	}
	i, err := checkSource(x.first, x.elsewhere, x.twin, *c, *x.choice)
	x.fail(err)
	return i
}

// CheckSource checks the contract of the method Source of a policies.Fetcher, of which s makes new instances, for a choice.
func CheckSource(s policies.TaskScheduler, c, other policies.CopyChoice) error {
	_, err := checkSource(s.New().(policies.Fetcher), s.New().(policies.Fetcher), s.New().(policies.Fetcher), c, other)
	return err
}

// checkSource compares two instances. Between their calls, a third one is called for the other choice, to detect state that
// they share.
func checkSource(one, elsewhere, twin policies.Fetcher, c, other policies.CopyChoice) (int, error) {
	call := func(f policies.Fetcher, c policies.CopyChoice) (int, error) {
		shown := c
		shown.Copies = slices.Clone(c.Copies)
		i := f.Source(&shown)
		if !reflect.DeepEqual(shown, c) {
			return 0, fmt.Errorf("method Source modified the choice %+v", c)
		}
		switch {
		case i < -1 || i >= len(c.Copies):
			return 0, fmt.Errorf("method Source returned copy %d of %d", i, len(c.Copies))
		case i == -1 && c.Running == 0 && c.Now >= c.Until:
			return 0, fmt.Errorf("method Source waits at %v, although no attempt makes further copies, and the wait ended at %v", c.Now, c.Until)
		}
		return i, nil
	}
	first, err := call(one, c)
	if err != nil {
		return 0, err
	}
	if _, err := call(elsewhere, other); err != nil {
		return 0, err
	}
	if again, err := call(twin, c); err != nil || again != first {
		return 0, cmp.Or(err, fmt.Errorf("two identical calls of Source return %d and %d", first, again))
	}
	return first, nil
}
