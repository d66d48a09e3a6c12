package tasks

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/workloads/jobs"
)

// dolly returns FIFO with cloning, without limits of a heartbeat.
func dolly() Scheduler {
	s := Scheduler{Order: FIFO{}, Cloning: DefaultCloning()}
	s.Cloning.On = true
	return s
}

// Dolly clones all tasks of a small job or none, and its job does not wait for a slow task.
func TestDolly(t *testing.T) {
	run := func(s Scheduler, maps int) (took time.Duration, backups int) {
		c := policytest.NewTaskCluster(racks(t, 4, 3), []policytest.ToyJob{{ID: 1, Maps: maps, Reduces: 2, Length: 2 * time.Second, Slow: maps}})
		c.Slots = [jobs.TaskKinds]int{8, 4}
		c.Use(s)
		for c.Unfinished() > 0 && c.Now() < time.Minute {
			var a policies.Assignment
			s.Assign(c.View(s.Needs()), &a)
			backups += len(a.Backup)
			c.Take(&a)
			c.Next()
		}
		return c.Now(), backups
	}
	s := dolly()
	s.Cloning.Budget = 0.25 // of 144 slots: 36
	none, _ := run(Scheduler{Order: FIFO{}}, 10)
	with, clones := run(s, 10)
	if want := 10*2 + 2*1; clones != want || with > none/2 {
		t.Errorf("10 maps and 2 reduces got %d clones and took %v, %v without: want %d clones, and half the time at most", clones, with, none, want)
	}
	none, _ = run(Scheduler{Order: FIFO{}}, 13)
	with, clones = run(s, 13)
	if clones != 0 || with != none {
		t.Errorf("13 maps, whose 39 copies exceed the budget, and 2 reduces got %d clones and took %v, %v without", clones, with, none)
	}
}

// Copies never exceed the budget, no task has more copies than its stage was given, and tasks without stragglers are
// launched as without cloning.
func TestClonesKeepTheBudget(t *testing.T) {
	clones := 0
	rapid.Check(t, func(t *rapid.T) {
		s := dolly()
		s.Cloning.Budget, s.Cloning.Straggle = rapid.Float64Range(0, 0.6).Draw(t, "budget"), rapid.SampledFrom([]float64{0.05, 0.1, 0.3}).Draw(t, "p")
		s.Cloning.Utilization = rapid.Float64Range(0.5, 1).Draw(t, "utilization")
		c := policytest.TaskClusters().Draw(t, "cluster")
		c.Use(s)
		for range rapid.IntRange(1, 60).Draw(t, "heartbeats") {
			v, a := c.View(s.Needs()), policies.Assignment{}
			s.Assign(v, &a)
			plain := s
			plain.Cloning.Straggle = 0
			u, b, without := c.View(s.Needs()), policies.Assignment{}, policies.Assignment{}
			u.Memory = nil
			plain.Assign(u, &b)
			u = c.View(s.Needs())
			u.Memory = nil
			Scheduler{Order: FIFO{}}.Assign(u, &without)
			if !reflect.DeepEqual(b.Launch, without.Launch) || len(b.Backup) > 0 {
				t.Fatalf("launches %+v and backups %+v if nothing straggles, %+v without cloning", b.Launch, b.Backup, without.Launch)
			}
			slots, copies := 0, map[jobs.TaskID]int{}
			for _, h := range v.Slots {
				if !h.Lost {
					slots += h.Total[jobs.Map] + h.Total[jobs.Reduce]
				}
			}
			for _, j := range v.Jobs {
				for _, x := range j.Running {
					if !x.Killing {
						copies[x.ID.Task]++
					}
				}
			}
			for _, id := range a.Backup {
				copies[id]++
			}
			cloned := 0
			for id, n := range copies {
				if n > 1 {
					cloned += n
				}
				var tasks int
				for _, j := range v.Jobs {
					if j.ID == id.Job {
						tasks = j.Stages[id.Stage].Tasks
					}
				}
				if n > s.Cloning.Copies(tasks) {
					t.Fatalf("task %v of %d has %d copies, at most %d", id, tasks, n, s.Cloning.Copies(tasks))
				}
			}
			if float64(cloned) > s.Cloning.Budget*float64(slots)+1e-9 {
				t.Fatalf("%d copies of %d slots, at most %v of them", cloned, slots, s.Cloning.Budget)
			}
			clones += len(a.Backup)
			c.Take(&a)
			c.Next()
		}
	})
	if clones == 0 {
		t.Error("nothing was cloned")
	}
}
