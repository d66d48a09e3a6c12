package policytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"testbed/policies"
)

// checkFetcher checks the contract of policies.Fetcher: Keep for all jobs of the current heartbeat, and Source for random
// choices of a seed.
func (x *instances) checkFetcher(c, other *TaskCluster, seed uint64) error {
	one, ok := x.first.(policies.Fetcher)
	if !ok {
		return nil
	}
	twin, elsewhere := x.twin.(policies.Fetcher), x.elsewhere.(policies.Fetcher)
	ask := func(f policies.Fetcher, c *TaskCluster, after func(*policies.TaskView)) (answers []time.Duration, err error) {
		v, before := c.View(c.needs), c.View(c.needs)
		for i := range v.Jobs {
			for stage := range v.Jobs[i].Stages {
				answers = append(answers, f.Keep(v, &v.Jobs[i], stage))
			}
		}
		if !reflect.DeepEqual(v, before) {
			return nil, errors.New("method Keep modified the View")
		}
		after(v)
		return answers, nil
	}
	first, err := ask(one, c, overwriteTasks)
	if err != nil {
		return err
	}
	for _, d := range first {
		if d < 0 {
			return fmt.Errorf("method Keep returned %v: must not be negative", d)
		}
	}
	if _, err := ask(elsewhere, other, overwriteTasks); err != nil {
		return err
	}
	if again, err := ask(twin, c, func(*policies.TaskView) {}); err != nil || !slices.Equal(again, first) {
		return errors.Join(err, fmt.Errorf("two identical calls of Keep return %v and %v", first, again))
	}
	r := rand.New(rand.NewPCG(seed, 2))
	for range 20 {
		if err := checkSource(one, elsewhere, twin, randomChoice(r), randomChoice(r)); err != nil {
			return err
		}
	}
	return nil
}

// CheckSource checks the contract of the method Source of a policies.Fetcher, of which s makes new instances, for a choice.
func CheckSource(s policies.TaskScheduler, c, other policies.CopyChoice) error {
	return checkSource(s.New().(policies.Fetcher), s.New().(policies.Fetcher), s.New().(policies.Fetcher), c, other)
}

// checkSource compares two instances. Between their calls, a third one is called for the other choice, to detect state that
// they share.
func checkSource(one, elsewhere, twin policies.Fetcher, c, other policies.CopyChoice) error {
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
		return err
	}
	if _, err := call(elsewhere, other); err != nil {
		return err
	}
	if again, err := call(twin, c); err != nil || again != first {
		return errors.Join(err, fmt.Errorf("two identical calls of Source return %d and %d", first, again))
	}
	return nil
}

// randomChoice returns a choice among up to 4 copies, in half of all cases at the end of the wait.
func randomChoice(r *rand.Rand) policies.CopyChoice {
	c := policies.CopyChoice{First: time.Duration(r.Int64N(1e9)), Fetchers: 1 + r.IntN(4), Running: r.IntN(3)}
	c.Rank = r.IntN(c.Fetchers)
	c.Until = c.First + time.Duration(r.Int64N(3)*1e9)
	if c.Now = c.Until; r.IntN(2) == 0 {
		c.Now = c.First + time.Duration(r.Int64N(4e9))
	}
	for range 1 + r.IntN(4) {
		c.Copies = append(c.Copies, policies.OutputCopy{Readers: r.IntN(3)})
	}
	return c
}
