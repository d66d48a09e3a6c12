package tasks

import (
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

// mantri returns FIFO with Mantri, without limits of a heartbeat.
func mantri() Scheduler {
	s := Scheduler{Order: FIFO{}, Speculation: DefaultSpeculation()}
	s.Speculation.By = ByMantri
	return s
}

// Of four tasks after 40 s, of which ended ones took 25 s, the last has progressed 0.2: it needs 160 s. It is restarted while
// tasks wait, and copied on an idle slot.
func TestMantri(t *testing.T) {
	id := func(index, n int) jobs.AttemptID {
		return jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: index}, N: n}
	}
	waiting := func(w *world, _ *Scheduler) {
		w.add("b", mapStage(0, 9))
	}
	both := func(list ...func(w *world, s *Scheduler)) func(w *world, s *Scheduler) {
		return func(w *world, s *Scheduler) {
			for _, f := range list {
				f(w, s)
			}
		}
	}
	copies := func(n int, age time.Duration) func(w *world, s *Scheduler) {
		return func(w *world, _ *Scheduler) {
			for i := range n {
				x := w.Jobs[0].Running[3]
				x.ID.N, x.Host, x.Start, x.Progress = i+1, 2, 40*time.Second-age, 0.1*float64(i+1)
				w.Jobs[0].Running = append(w.Jobs[0].Running, x)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(w *world, s *Scheduler)
		host   topo.HostID
		backup []int
		kill   []jobs.AttemptID
	}{
		{"idle slots", func(*world, *Scheduler) {}, 0, []int{3}, nil},
		{"tasks wait", waiting, 0, []int{3}, []jobs.AttemptID{id(3, 0)}},
		{"tasks wait, restarted before", both(waiting, func(w *world, _ *Scheduler) { w.Jobs[0].Running[3].ID.N = 3 }), 0, []int{3}, nil},
		{"on the host of its attempt", func(*world, *Scheduler) {}, 1, nil, nil},
		{"no slot", func(w *world, _ *Scheduler) { w.Slots[0].Used[jobs.Map] = 4 }, 0, nil, nil},
		{"too young", func(w *world, _ *Scheduler) { w.Jobs[0].Running[3].Start = 31 * time.Second }, 0, nil, nil},
		{"is being killed", func(w *world, _ *Scheduler) { w.Jobs[0].Running[3].Killing = true }, 0, nil, nil},
		{"is done", func(w *world, _ *Scheduler) { w.Jobs[0].Running[3].Spare = true }, 0, nil, nil},
		{"copy is young", copies(1, 5*time.Second), 0, nil, nil},
		{"copy is slow, too", copies(1, 20*time.Second), 0, []int{3}, nil},
		{"three copies", copies(2, 20*time.Second), 0, []int{3}, []jobs.AttemptID{id(3, 1)}},
		{"three copies, one young", copies(2, 5*time.Second), 0, nil, nil},
		{"three copies, no slot here", both(copies(2, 20*time.Second), func(w *world, _ *Scheduler) { w.Slots[0].Used[jobs.Map] = 4 }), 0, nil, []jobs.AttemptID{id(3, 1)}},
		{"gain", func(_ *world, s *Scheduler) { s.Speculation.Mantri.Gain = 14 }, 0, nil, nil},
		{"nothing has ended", func(w *world, _ *Scheduler) {
			w.Jobs[0].Stages[0].Durations, w.Jobs[0].Running = nil, w.Jobs[0].Running[3:]
		}, 0, nil, nil},
		{"one launch for each heartbeat", both(waiting, func(_ *world, s *Scheduler) { s.Tasks = 1 }), 0, []int{3}, []jobs.AttemptID{id(3, 0)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, [jobs.TaskKinds]int{4, 1})
			w.add("a", mapStage(4, 0))
			w.Jobs[0].Stages[0].Durations = slices.Repeat([]time.Duration{25 * time.Second}, 6)
			for i, p := range []float64{0.9, 0.8, 0.7, 0.2} {
				w.Jobs[0].Running = append(w.Jobs[0].Running, policies.AttemptState{ID: id(i, 0), Host: 1, Progress: p})
			}
			s := mantri()
			tt.change(w, &s)
			a := w.beat(s, 40*time.Second, tt.host)
			var got []int
			for _, id := range a.Backup {
				got = append(got, id.Index)
			}
			if !slices.Equal(got, tt.backup) || !slices.Equal(a.Kill, tt.kill) {
				t.Errorf("backups of tasks %v and kills %v, want %v and %v", got, a.Kill, tt.backup, tt.kill)
			}
			if s.Tasks == 1 && len(a.Launch) > 0 {
				t.Errorf("launches %v beyond the limit", a.Launch)
			}
		})
	}
}

// A reduce is judged by its last third, in which it consumes its input: fetching and sorting can be short.
func TestMantriJudgesReduces(t *testing.T) {
	for progress, want := range map[float64]int{0.3: 0, 0.6: 0, 0.7: 1, 0.9: 0} {
		w := newWorld(t, 1, [jobs.TaskKinds]int{1, 4})
		w.add("a", reduceStage(1, 0))
		w.Jobs[0].Stages[0].Durations = []time.Duration{25 * time.Second}
		w.Jobs[0].Running = []policies.AttemptState{{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1}}, Kind: jobs.Reduce, Host: 1, Progress: progress, Phase: policies.Computing}}
		// 0.7 is a tenth of the input in 20 s: 180 s are left. 0.9 is 0.7 of it: 9 s.
		if a := w.beat(mantri(), 20*time.Second, 0); len(a.Backup) != want {
			t.Errorf("progress %v: backups %v, want %d", progress, a.Backup, want)
		}
	}
}

// No decision leaves a running task without an attempt, a slot free that a pending task could use, or more backups of a task than
// one; restarts end.
func TestMantriKeepsTasks(t *testing.T) {
	f := racks(t, 2, 3)
	backups, kills := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := mantri()
		s.Speculation.Mantri = clone.Mantri{Interval: rapid.SampledFrom([]time.Duration{0, 200 * time.Millisecond, time.Second}).Draw(t, "Δ"), Copies: rapid.IntRange(1, 3).Draw(t, "α"),
			Restarts: rapid.IntRange(0, 3).Draw(t, "γ"), Risk: rapid.Float64Range(0, 1).Draw(t, "δ"), Gain: rapid.Float64Range(0, 3).Draw(t, "ρ")}
		c := policytest.TaskClusters().Draw(t, "cluster")
		if rapid.Bool().Draw(t, "small jobs") {
			c = smallJobs(t, f, false)
			c.Slots = [jobs.TaskKinds]int{2, 1}
		}
		c.Run(t, s, rapid.IntRange(30, 90).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
			before, _ := running(v, &policies.Assignment{})
			after, _ := running(v, a)
			for id, n := range before {
				if after[id] == 0 || after[id] > n+1 {
					t.Fatalf("task %v has %d attempts, then %d", id, n, after[id])
				}
			}
			for _, id := range a.Kill {
				if before[id.Task] <= s.Speculation.Mantri.Copies && id.N >= s.Speculation.Mantri.Restarts {
					t.Fatalf("restart %d of task %v", id.N+1, id.Task)
				}
			}
			checkConserving(t, v, a)
			backups, kills = backups+len(a.Backup), kills+len(a.Kill)
		})
	})
	if backups == 0 || kills == 0 {
		t.Errorf("%d backups and %d kills, want some", backups, kills)
	}
}

// Mantri shortens a job with slow tasks, on few slots and on many.
func TestMantriShortensJobs(t *testing.T) {
	for _, slots := range []int{1, 3} {
		run := func(s Scheduler, slow int) (took time.Duration) {
			c := policytest.NewTaskCluster(racks(t, 2, 3), []policytest.Job{{ID: 1, Maps: 16, Reduces: 2, Length: time.Second, Slow: slow}})
			c.Slots = [jobs.TaskKinds]int{slots, 1}
			c.Run(t, s, int(time.Minute/c.Between), nil)
			return c.Now()
		}
		s := mantri()
		s.Speculation.Mantri.Interval = 400 * time.Millisecond
		if none, with := run(Scheduler{Order: FIFO{}}, 8), run(s, 8); with > none*2/3 {
			t.Errorf("%d slots: the job took %v, %v without Mantri: want two thirds at most", slots, with, none)
		}
		if none, with := run(Scheduler{Order: FIFO{}}, 0), run(s, 0); with != none {
			t.Errorf("%d slots, no stragglers: the job took %v, %v without Mantri", slots, with, none)
		}
	}
}

// Of the tests of LATE, Hadoop launches a backup where a rate is far below the mean, up to its own cap, and finds a host slow
// by the times of its attempts.
func TestHadoop(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world, s *Scheduler)
		want   []int
	}{
		{"slow tasks", func(*world, *Scheduler) {}, []int{3}},
		{"LATE's thresholds do not matter", func(_ *world, s *Scheduler) { s.Speculation.LATE = clone.LATE{HostPercentile: 1} }, []int{3}},
		{"small differences", func(w *world, _ *Scheduler) {
			for i := range w.Jobs[0].Running {
				w.Jobs[0].Running[i].Progress = []float64{0.9, 0.9, 0.9, 0.9}[i]
			}
		}, nil},
		{"fast host", func(w *world, _ *Scheduler) { w.Slots[0].CommittedTime = 50 * time.Second }, []int{3}},
		{"slow host", func(w *world, _ *Scheduler) { w.Slots[0].CommittedTime = 200 * time.Second }, nil},
		{"host without attempts", func(w *world, _ *Scheduler) { w.Slots[0].Committed, w.Slots[0].CommittedTime = 0, 0 }, []int{3}},
		{"cap", func(w *world, _ *Scheduler) {
			for i := range 10 {
				x := w.Jobs[0].Running[0]
				x.ID.N, x.Host = i+1, 2
				w.Jobs[0].Running = append(w.Jobs[0].Running, x)
			}
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, [jobs.TaskKinds]int{4, 1})
			w.add("a", mapStage(4, 0))
			for i, p := range []float64{0.9, 0.8, 0.7, 0.2} {
				w.Jobs[0].Running = append(w.Jobs[0].Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}}, Host: 1, Progress: p})
			}
			for h := range w.Slots {
				w.Slots[h].Committed, w.Slots[h].CommittedTime = 10, 100*time.Second
			}
			s := Scheduler{Order: FIFO{}, Speculation: Speculation{By: ByHadoop}}
			tt.change(w, &s)
			var got []int
			for _, id := range w.beat(s, 100*time.Second, 0).Backup {
				got = append(got, id.Index)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("backups of tasks %v, want %v", got, tt.want)
			}
		})
	}
}
