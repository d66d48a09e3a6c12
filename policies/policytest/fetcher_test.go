package policytest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// fetcher is a policies.Fetcher that launches all pending tasks and backups, and calls functions.
type fetcher struct {
	tasks
	keep   func(*policies.TaskView, *policies.TaskJob, int) time.Duration
	source func(*policies.CopyChoice) int
}

func (f *fetcher) New() policies.TaskInstance { return f }
func (f *fetcher) Keep(v *policies.TaskView, j *policies.TaskJob, stage int) time.Duration {
	return f.keep(v, j, stage)
}
func (f *fetcher) Source(c *policies.CopyChoice) int { return f.source(c) }

// forASecond returns a valid fetcher, that lets copies continue for a second, changed.
func forASecond(change func(*fetcher)) *fetcher {
	f := &fetcher{tasks: tasks{f: first}, keep: func(*policies.TaskView, *policies.TaskJob, int) time.Duration { return time.Second },
		source: func(c *policies.CopyChoice) int {
			if c.Rank < len(c.Copies) {
				return c.Rank
			}
			if c.Running > 0 {
				return -1
			}
			return 0
		}}
	change(f)
	return f
}

func TestFetchers(t *testing.T) {
	Tasks(t, forASecond(func(*fetcher) {}))
	calls := 0
	for _, tt := range []struct {
		name string
		bad  *fetcher
		want string
	}{
		{"negative wait", forASecond(func(f *fetcher) {
			f.keep = func(*policies.TaskView, *policies.TaskJob, int) time.Duration { return -1 }
		}), "must not be negative"},
		{"writes to the job", forASecond(func(f *fetcher) {
			f.keep = func(_ *policies.TaskView, j *policies.TaskJob, _ int) time.Duration { j.Priority++; return 0 }
		}), "Keep modified the View"},
		{"writes to the View", forASecond(func(f *fetcher) {
			f.keep = func(v *policies.TaskView, _ *policies.TaskJob, _ int) time.Duration {
				v.Slots[0].Lost = !v.Slots[0].Lost
				return 0
			}
		}), "Keep modified the View"},
		{"waits differ", forASecond(func(f *fetcher) {
			f.keep = func(*policies.TaskView, *policies.TaskJob, int) time.Duration { calls++; return time.Duration(calls) }
		}), "identical calls of Keep"},
		{"beyond the copies", forASecond(func(f *fetcher) { f.source = func(c *policies.CopyChoice) int { return c.Rank } }), "returned copy"},
		{"negative copy", forASecond(func(f *fetcher) { f.source = func(*policies.CopyChoice) int { return -2 } }), "returned copy -2"},
		{"waits for ever", forASecond(func(f *fetcher) {
			f.source = func(c *policies.CopyChoice) int {
				if c.Rank < len(c.Copies) {
					return c.Rank
				}
				return -1
			}
		}), "no attempt makes further copies"},
		{"waits at the end", forASecond(func(f *fetcher) {
			f.source = func(c *policies.CopyChoice) int {
				if c.Now > c.Until {
					return 0
				}
				return -1
			}
		}), "no attempt makes further copies"},
		{"writes to the copies", forASecond(func(f *fetcher) {
			f.source = func(c *policies.CopyChoice) int { c.Copies[0].Readers++; return 0 }
		}), "modified the choice"},
		{"writes to the choice", forASecond(func(f *fetcher) { f.source = func(c *policies.CopyChoice) int { c.Rank++; return 0 } }), "modified the choice"},
		{"random", forASecond(func(f *fetcher) {
			f.source = func(c *policies.CopyChoice) int { return rand.IntN(len(c.Copies)) }
		}), "identical calls of Source"},
		{"remembers", forASecond(func(f *fetcher) {
			last := 0
			f.source = func(c *policies.CopyChoice) int {
				i := min(last, len(c.Copies)-1)
				last = c.Rank
				return i
			}
		}), "identical calls of Source"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range 100 {
				err := CheckTasks(tt.bad, TaskClusters().Example(2*seed), TaskClusters().Example(2*seed+1), 5)
				if err != nil {
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("found %q, want %q", err, tt.want)
					}
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// Attempts that may continue are Spare until they end or the wait is over, and the history counts both, and the stragglers.
func TestSpareAttempts(t *testing.T) {
	fabric, err := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 3, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	c := NewTaskCluster(fabric, []ToyJob{{ID: 1, Maps: 4, Reduces: 2, Length: time.Second, Slow: 2}})
	f := forASecond(func(f *fetcher) {
		f.needs = policies.Needs{History: true}
		f.keep = func(*policies.TaskView, *policies.TaskJob, int) time.Duration { return 500 * time.Millisecond }
		f.tasks.f = func(v *policies.TaskView, a *policies.Assignment) {
			first(v, a)
			for i := range v.Jobs {
				for _, x := range v.Jobs[i].Running {
					if _, attempts := taskOf(v, x.ID.Task); len(attempts) == 1 && !x.Killing && !x.Spare && x.Host != v.Host && v.Slots[v.Host].Free(x.Kind) > len(a.Launch)+len(a.Backup) {
						a.Backup = append(a.Backup, x.ID.Task)
					}
				}
			}
		}
	})
	c.Use(f)
	spares := 0
	for c.Unfinished() > 0 && c.Now() < time.Minute {
		var a policies.Assignment
		v := c.View(f.needs)
		for i := range v.Jobs {
			for _, x := range v.Jobs[i].Running {
				if x.Spare {
					spares++
				}
			}
		}
		f.Assign(v, &a)
		if err := CheckAssignment(v, &a); err != nil {
			t.Fatal(err)
		}
		c.Take(&a)
		c.Next()
	}
	h := c.history.Copies[0]
	ended, stopped := 0, 0
	for _, l := range h.Lags {
		if l < 0 {
			stopped++
		} else if ended++; l == 0 || l > time.Second {
			t.Errorf("lag %v, want more than 0 and at most a second", l)
		}
	}
	if spares == 0 || ended == 0 || stopped == 0 || h.Alone.Count+h.Shared.Count != 8 || len(h.Computing) != 2 {
		t.Errorf("%d Spare attempts, lags %v, history %+v", spares, h.Lags, h)
	}
	if c.history.Judged <= 6 || c.history.Straggled == 0 || c.history.Straggled > 3 {
		t.Errorf("history %+v of 6 tasks with 3 slow first attempts", c.history)
	}
}
