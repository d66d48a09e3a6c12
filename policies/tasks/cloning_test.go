package tasks

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// dolly returns FIFO with cloning, without limits of a heartbeat.
func dolly() Scheduler {
	return Scheduler{Order: FIFO{}, Cloning: DefaultCloning()}
}

// Dolly clones all tasks of a small job or none, and its job does not wait for a slow task.
func TestDolly(t *testing.T) {
	run := func(s Scheduler, maps int) (took time.Duration, backups int) {
		c := policytest.NewTaskCluster(racks(t, 4, 3), []policytest.Job{{ID: 1, Maps: maps, Reduces: 2, Length: 2 * time.Second, Slow: maps}})
		c.Slots = [jobs.TaskKinds]int{8, 4}
		c.Run(t, s, int(time.Minute/c.Between), func(_ *policies.TaskView, a *policies.Assignment) { backups += len(a.Backup) })
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

// running returns the attempts of a View that are not being killed, before or by a decision, and the backups, by task.
func running(v *policies.TaskView, a *policies.Assignment) (attempts, spares map[jobs.TaskID]int) {
	attempts, spares = map[jobs.TaskID]int{}, map[jobs.TaskID]int{}
	for _, j := range v.Jobs {
		for _, x := range j.Running {
			switch {
			case x.Killing || slices.Contains(a.Kill, x.ID):
			case x.Spare:
				spares[x.ID.Task]++
			default:
				attempts[x.ID.Task]++
			}
		}
	}
	for _, id := range a.Backup {
		attempts[id]++
	}
	return attempts, spares
}

// smallJobs returns a cluster of 72 slots with jobs that are often cloned: in any order, or each while larger ones run.
func smallJobs(t *rapid.T, f *topo.Fabric, decreasing bool) *policytest.TaskCluster {
	apart, lengths, least := []time.Duration{200 * time.Millisecond, time.Second, 0}, []time.Duration{3 * time.Second, time.Second, 300 * time.Millisecond}, 2
	if decreasing {
		apart, lengths, least = apart[:2], lengths[:2], 6
	}
	maps := rapid.SliceOfN(rapid.SampledFrom([]int{1, 12, 2, 8, 4}), least, 8).Draw(t, "maps")
	if decreasing {
		slices.SortFunc(maps, func(a, b int) int { return b - a })
	}
	var list []policytest.Job
	for i, n := range maps {
		list = append(list, policytest.Job{ID: jobs.JobID(i + 1), Submit: time.Duration(i) * rapid.SampledFrom(apart).Draw(t, "apart"), Maps: n,
			Reduces: rapid.IntRange(0, 3).Draw(t, "reduces"), Length: rapid.SampledFrom(lengths).Draw(t, "length"), Slow: rapid.IntRange(0, 3).Draw(t, "slow")})
	}
	c := policytest.NewTaskCluster(f, list)
	c.Slots = [jobs.TaskKinds]int{8, 4}
	return c
}

// The budget holds under each rule of admission.
func TestClonesKeepTheBudget(t *testing.T) {
	for rule, name := range []string{"all", "preemption", "partial", "FCFS"} {
		t.Run(name, func(t *testing.T) { testBudget(t, clone.Admission(rule)) })
	}
}

// testBudget checks random clusters: under a rule, copies never exceed the budget, with those that only make copies of outputs, and no task has more than its job
// needs; kills leave each task an attempt, and hit only larger jobs than one that launches; slots that pending tasks
// could use do not stay free. Tasks without stragglers are launched as without cloning.
func testBudget(t *testing.T, rule clone.Admission) {
	f := racks(t, 2, 3)
	var clones, kills, spared, learned int
	rapid.Check(t, func(t *rapid.T) {
		s := dolly()
		s.Cloning.Budget, s.Cloning.Straggle = rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.3, 0.4, 0.6}).Draw(t, "budget"), rapid.SampledFrom([]float64{0.05, 0.1, 0.3}).Draw(t, "p")
		s.Cloning.Utilization = rapid.SampledFrom([]float64{0.5, 0.8, 1}).Draw(t, "utilization")
		s.Cloning.Admission = rule
		s.Cloning.Reads = rapid.SampledFrom([]Reads{FirstCopy, ExclusiveCopy, DelayedCopy}).Draw(t, "reads")
		s.Cloning.Wait = SameWaits(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ω")) * time.Millisecond)
		s.Cloning.Learn = Learning(rapid.IntRange(0, 2).Draw(t, "learn"))
		s.Cloning.ByFlows = rapid.Bool().Draw(t, "flows")
		c := policytest.TaskClusters().Draw(t, "cluster")
		// Kills need a smaller job after larger ones, and a budget for some of them.
		if rule == clone.Preemption || rapid.IntRange(0, 3).Draw(t, "small jobs") > 0 {
			c = smallJobs(t, f, rule == clone.Preemption)
		}
		if rule == clone.Preemption {
			s.Cloning.Budget, s.Cloning.Utilization = rapid.SampledFrom([]float64{0.3, 0.2, 0.4}).Draw(t, "budget of preemption"), 1
			s.Cloning.Straggle = rapid.SampledFrom([]float64{0.05, 0.1}).Draw(t, "p of preemption")
		}
		all := 0
		c.Run(t, s, rapid.IntRange(30, 90).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
			plain := s
			plain.Cloning.Straggle, plain.Cloning.Learn = 0, GivenEstimates
			var b, without policies.Assignment
			plain.New().Assign(v, &b)
			Scheduler{Order: FIFO{}}.New().Assign(v, &without)
			if !reflect.DeepEqual(b.Launch, without.Launch) || len(b.Backup)+len(b.Kill) > 0 {
				t.Fatalf("launches %+v, backups %+v and kills %+v if nothing straggles, %+v without cloning", b.Launch, b.Backup, b.Kill, without.Launch)
			}
			slots := 0
			for _, h := range v.Slots {
				if !h.Lost {
					slots += h.Total[jobs.Map] + h.Total[jobs.Reduce]
				}
			}
			attempts, spares := running(v, a)
			cloned, most := 0, s.Cloning
			if v.History != nil {
				most.Straggle = 0.99 // estimates change
				learned += v.History.Judged
			}
			for _, n := range spares {
				cloned += n
				spared += n
			}
			for id, n := range attempts {
				if n > 1 {
					cloned += n
				}
				for _, j := range v.Jobs {
					if tasks := j.Stages[min(id.Stage, len(j.Stages)-1)].Tasks; j.ID == id.Job && n > most.Copies(tasks) {
						t.Fatalf("task %v of %d has %d copies, at most %d", id, tasks, n, most.Copies(tasks))
					}
				}
			}
			// Copies are admitted with their job, maybe before hosts are lost.
			if all = max(all, slots); float64(cloned) > s.Cloning.Budget*float64(all)+1e-9 {
				t.Fatalf("%d copies of %d slots, at most %v of them", cloned, all, s.Cloning.Budget)
			}
			least := math.MaxInt
			for _, l := range a.Launch {
				least = min(least, tasksOf(&v.Jobs[l.Job]))
			}
			before, _ := running(v, &policies.Assignment{})
			for _, id := range a.Kill {
				if s.Cloning.Admission != clone.Preemption || before[id.Task] > 0 && attempts[id.Task] == 0 {
					t.Fatalf("kill of %v by rule %d leaves %d of %d attempts", id, s.Cloning.Admission, attempts[id.Task], before[id.Task])
				}
				for i := range v.Jobs {
					if j := &v.Jobs[i]; j.ID == id.Task.Job && tasksOf(j) <= least {
						t.Fatalf("kill of a clone of a job of %d tasks for one of at least %d", tasksOf(j), least)
					}
				}
			}
			checkConserving(t, v, a)
			clones, kills = clones+len(a.Backup), kills+len(a.Kill)
		})
	})
	if clones == 0 || (kills > 0) != (rule == clone.Preemption) || spared == 0 || learned == 0 {
		t.Errorf("%d clones, %d kills, %d attempts that make copies, %d judged: want some of each", clones, kills, spared, learned)
	}
}

// A smaller job takes the slots of the clones of larger ones, the largest first, and each task keeps the attempt that has
// progressed most.
func TestPreemption(t *testing.T) {
	s := dolly()
	s.Cloning.Admission, s.Cloning.Budget, s.Cloning.Utilization = clone.Preemption, 0.5, 1 // 18 of 36 slots
	setup := func() *world {
		w := newWorld(t, 2, [jobs.TaskKinds]int{4, 2})
		for job, tasks := range []int{4, 3} { // 8 and 6 copies
			w.add("a", mapStage(0, tasks))
			w.beat(s, 0, topo.HostID(job))
			w.Jobs[job].Stages[0] = mapStage(tasks, 0)
			for i := range 2 * tasks {
				w.Jobs[job].Running = append(w.Jobs[job].Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: jobs.JobID(job + 1), Index: i / 2}, N: i % 2}, Host: topo.HostID(2 + i%4), Progress: 0.1 * float64(i%3)})
			}
		}
		return w
	}
	w := setup()
	w.add("b", mapStage(0, 2))
	if a := w.beat(s, 1, 0); len(a.Kill) > 0 {
		t.Errorf("kills %v although the budget has room for 4 copies", a.Kill)
	}
	// 16 + 6 slots are above half of 36, so that kills would give the job no clones.
	w = setup()
	w.add("b", mapStage(0, 3))
	for h := 2; h < 6; h++ {
		w.Slots[h].Used[jobs.Map] = 4
	}
	busy := s
	busy.Cloning.Utilization = 0.5
	if a := w.beat(busy, 1, 0); len(a.Kill) > 0 || len(a.Launch) != 3 {
		t.Errorf("kills %v and launches %v beyond the utilization", a.Kill, a.Launch)
	}
	w = setup()
	w.add("b", mapStage(0, 2), reduceStage(0, 1))
	w.Jobs[1].Running[0].Spare = true
	w.Jobs[1].Running = append(w.Jobs[1].Running, w.Jobs[1].Running[0]) // 15 slots reserved
	w.Jobs[1].Running[6].ID.N = 2
	a := w.beat(s, 1, 0)
	var got []jobs.AttemptID
	for _, id := range a.Kill {
		if id.Task.Job != 1 {
			t.Errorf("kill of %v, not of the largest job", id)
		}
		got = append(got, id)
	}
	// Progress 0, 0.1, 0.2, 0, 0.1, 0.2, 0, 0.1: the first of tasks 0, 2 and 3 and the second of task 1.
	want := []jobs.AttemptID{{Task: jobs.TaskID{Job: 1}}, {Task: jobs.TaskID{Job: 1, Index: 1}, N: 1}, {Task: jobs.TaskID{Job: 1, Index: 2}}, {Task: jobs.TaskID{Job: 1, Index: 3}}}
	if !slices.Equal(got, want) {
		t.Errorf("kills %v, want %v", got, want)
	}
	for i := range w.Jobs[0].Running {
		w.Jobs[0].Running[i].Killing = slices.Contains(got, w.Jobs[0].Running[i].ID)
	}
	w.Jobs[2].Stages[0] = mapStage(2, 0)
	w.Jobs[2].Running = []policies.AttemptState{{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 3}}, Host: 1}, {ID: jobs.AttemptID{Task: jobs.TaskID{Job: 3, Index: 1}}, Host: 1}}
	a = w.beat(s, 2, 0)
	if want := []jobs.TaskID{{Job: 3}, {Job: 3, Index: 1}}; !slices.Equal(a.Backup, want) {
		t.Errorf("clones of %v, want %v, and none of the job that lost its", a.Backup, want)
	}
}

// Where the budget has room for 5 copies, FCFS gives the first tasks theirs, and Partial gives each the same number.
func TestAdmissionOfTasks(t *testing.T) {
	for how, want := range map[clone.Admission][]int{clone.AllOrNothing: nil, clone.Partial: nil, clone.FCFS: {0, 1}} {
		s := dolly()
		s.Cloning.Admission, s.Cloning.Budget, s.Cloning.Utilization = how, 5./36, 1
		w := newWorld(t, 2, [jobs.TaskKinds]int{4, 2})
		w.add("a", mapStage(0, 4))
		w.beat(s, 0, 0)
		w.Jobs[0].Stages[0] = mapStage(4, 0)
		for i := range 4 {
			w.Jobs[0].Running = append(w.Jobs[0].Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}}, Host: 0})
		}
		var got []int
		for _, id := range w.beat(s, 1, 1).Backup {
			got = append(got, id.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("rule %d: clones of tasks %v, want %v", how, got, want)
		}
	}
}
