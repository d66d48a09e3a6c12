package tasks

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// late returns FIFO with LATE, without limits of a heartbeat.
func late() Scheduler {
	return Scheduler{Order: FIFO{}, Speculation: DefaultSpeculation()}
}

// Of tasks that have progressed 0.9, 0.8, 0.5 and 0.2 in 100 s, the last one gets a backup: the 25th percentile of the
// rates is 0.00425 per second.
func TestLATE(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world, s *Scheduler)
		host   topo.HostID
		want   []int // tasks with a backup
	}{
		{"slowest task", func(*world, *Scheduler) {}, 0, []int{3}},
		{"on the host of its attempt", func(*world, *Scheduler) {}, 1, nil},
		{"a task is pending", func(w *world, _ *Scheduler) {
			w.Jobs[0].Stages[0].Pending, w.Jobs[0].Stages[0].Need = [3]int{0, 0, 1}, jobs.Resources{CPU: 1}
			w.Slots[0].Capacity.CPU = 0.5
		}, 0, nil},
		{"no slot", func(w *world, _ *Scheduler) { w.Slots[0].Used[jobs.Map] = 4 }, 0, nil},
		{"too young", func(_ *world, s *Scheduler) { s.Speculation.After = 101 * time.Second }, 0, nil},
		{"has a backup", func(w *world, _ *Scheduler) {
			x := w.Jobs[0].Running[3]
			x.ID.N, x.Host, x.Start = 1, 2, 99*time.Second
			w.Jobs[0].Running = append(w.Jobs[0].Running, x)
		}, 0, nil},
		{"is being killed", func(w *world, _ *Scheduler) { w.Jobs[0].Running[3].Killing = true }, 0, []int{2}},
		{"cap", func(_ *world, s *Scheduler) { s.Speculation.Cap = 0 }, 0, nil},
		{"slow host", func(w *world, _ *Scheduler) { w.Slots[0].Committed = 0 }, 0, nil},
		{"lost host", func(w *world, _ *Scheduler) { w.Slots[0].Lost, w.Slots[0].Total = true, [jobs.TaskKinds]int{} }, 0, nil},
		// Without the rates of ended attempts, the only running task would not be slow.
		{"last task of a stage", func(w *world, _ *Scheduler) {
			w.Jobs[0].Running, w.Jobs[0].Stages[0].Running = w.Jobs[0].Running[3:], 1
			w.Jobs[0].Stages[0].Durations = []time.Duration{100 * time.Second, 110 * time.Second, 120 * time.Second}
		}, 0, []int{3}},
		{"all slow", func(_ *world, s *Scheduler) { s.Speculation.TaskPercentile = 1 }, 0, []int{3, 2}},
		{"limit of a heartbeat", func(_ *world, s *Scheduler) { s.Speculation.TaskPercentile, s.Tasks = 1, 1 }, 0, []int{3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, [jobs.TaskKinds]int{4, 1})
			w.add("a", mapStage(4, 0))
			for i, p := range []float64{0.9, 0.8, 0.5, 0.2} {
				w.Jobs[0].Running = append(w.Jobs[0].Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}}, Host: []topo.HostID{2, 2, 1, 1}[i], Progress: p, Phase: policies.Computing})
			}
			for h := range w.Slots {
				w.Slots[h].Committed = []int{12, 10, 10}[h]
			}
			s := late()
			tt.change(w, &s)
			var got []int
			for _, id := range w.beat(s, 100*time.Second, tt.host).Backup {
				got = append(got, id.Index)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("backups of tasks %v, want %v", got, tt.want)
			}
		})
	}
}

// The backups that run never exceed the cap by more than one, and no task has two.
func TestBackupsAreLimited(t *testing.T) {
	backups := 0
	property := func(t *rapid.T) {
		s := late()
		s.Speculation.After, s.Speculation.Cap = 0, rapid.Float64Range(0, 0.5).Draw(t, "cap")
		s.Speculation.HostPercentile = rapid.Float64Range(0, 1).Draw(t, "slow host")
		c := policytest.TaskClusters().Draw(t, "cluster")
		c.Run(t, s, rapid.IntRange(1, 60).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
			slots, extra := 0, 0
			attempts := map[jobs.TaskID]int{}
			for _, h := range v.Slots {
				if !h.Lost {
					slots += h.Total[jobs.Map] + h.Total[jobs.Reduce]
				}
			}
			for _, j := range v.Jobs {
				for _, x := range j.Running {
					if !x.Killing {
						if attempts[x.ID.Task]++; attempts[x.ID.Task] > 1 {
							extra++
						}
					}
				}
			}
			for _, id := range a.Backup {
				if attempts[id]++; attempts[id] != 2 {
					t.Fatalf("task %v has %d attempts", id, attempts[id])
				}
				extra++
			}
			if len(a.Backup) > 0 && float64(extra-1) >= s.Speculation.Cap*float64(slots) {
				t.Fatalf("%d backups on %d slots, at most %v of them", extra, slots, s.Speculation.Cap)
			}
			backups += len(a.Backup)
		})
	}
	for round := 0; round < 20 && backups == 0; round++ { // few draws launch any
		rapid.Check(t, property)
	}
	if backups == 0 {
		t.Error("no backup was launched")
	}
}

// LATE shortens a job with one slow task, and launches nothing if all tasks take the same time.
func TestBackupsShortenJobs(t *testing.T) {
	run := func(s Scheduler, slow int) (took time.Duration, backups int) {
		c := policytest.NewTaskCluster(racks(t, 2, 3), []policytest.Job{{ID: 1, Maps: 10, Reduces: 4, Length: time.Second, Slow: slow}})
		c.Slots, c.Slowstart = [jobs.TaskKinds]int{2, 1}, 1 // reduces that wait for maps would be slow
		c.Run(t, s, int(time.Minute/c.Between), func(_ *policies.TaskView, a *policies.Assignment) { backups += len(a.Backup) })
		return c.Now(), backups
	}
	s := late()
	s.Speculation.After, s.Speculation.HostPercentile = 500*time.Millisecond, 0
	none, _ := run(Scheduler{Order: FIFO{}}, 10)
	with, backups := run(s, 10)
	if with > none/2 || backups == 0 {
		t.Errorf("the job took %v with %d backups, %v without: want half at most", with, backups, none)
	}
	none, _ = run(Scheduler{Order: FIFO{}}, 0)
	if with, backups := run(s, 0); with != none || backups != 0 {
		t.Errorf("without stragglers: %v with %d backups, %v without", with, backups, none)
	}
}
