package policytest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// fetcher is a policies.Fetcher that launches all pending tasks and a backup of each, and calls functions.
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

// backups launches the pending tasks of all jobs in order, then backups of running ones.
func backups(v *policies.TaskView, a *policies.Assignment) {
	first(v, a)
	s := v.Slots[v.Host]
	for _, l := range a.Launch {
		st := &v.Jobs[l.Job].Stages[l.Stage]
		s.Add(st.Kind, st.Need)
	}
	for i := range v.Jobs {
		attempts, here := map[jobs.TaskID]int{}, map[jobs.TaskID]bool{}
		j := &v.Jobs[i]
		for _, x := range j.Running {
			attempts[x.ID.Task]++
			here[x.ID.Task] = here[x.ID.Task] || x.Host == v.Host
		}
		for _, x := range j.Running {
			id, need := x.ID.Task, j.Stages[x.ID.Task.Stage].Need
			if attempts[id] == 1 && !here[id] && !x.Killing && !x.Spare && s.Fits(x.Kind, need) {
				s.Add(x.Kind, need)
				a.Backup = append(a.Backup, id)
			}
		}
	}
}

// forASecond returns a valid fetcher, that lets copies continue for a second, changed.
func forASecond(change func(*fetcher)) *fetcher {
	f := &fetcher{tasks: tasks{needs: policies.Attempts, f: backups}, keep: func(*policies.TaskView, *policies.TaskJob, int) time.Duration { return time.Second },
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
				err := CheckTasks(tt.bad, TaskClusters().Example(2*seed), TaskClusters().Example(2*seed+1), 30)
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
