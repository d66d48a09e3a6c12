package tasks

import (
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// The disciplines of the FAIR report's comparison: three jobs of a priority and a later one of a higher
// priority, on one slot. Levels end after 10 min and 110 min of slot time.
func TestDisciplines(t *testing.T) {
	const levelTime = 10 * time.Minute
	for _, tt := range []struct {
		name string
		by   Discipline
		want []jobs.JobID
	}{
		{"by submission", BySubmission, []jobs.JobID{4, 1, 2, 3}},
		{"shortest first", BySize, []jobs.JobID{4, 2, 1, 3}}, // 5, 1 and 5 GB
		{"levels", ByLevel, []jobs.JobID{4, 3, 2, 1}},        // 110 min, 10 min, and less than 10 min
	} {
		w := newWorld(t, 1, [jobs.TaskKinds]int{1, 0})
		w.Now = time.Hour
		for i, size := range []units.Bytes{5 * units.GB, units.GB, 5 * units.GB, 9 * units.GB} {
			j := w.add("u", mapStage(0, 1))
			j.Input = size
			if i == 3 {
				j.Priority = 1
			}
		}
		used := func(job int, ended, running time.Duration) {
			w.Jobs[job].Stages[0].Busy = ended
			w.Jobs[job].Running = []policies.AttemptState{{Start: w.Now - running}}
		}
		used(0, 100*time.Minute, 10*time.Minute)
		used(1, 4*time.Minute, 6*time.Minute)
		used(2, 4*time.Minute, 6*time.Minute-1)
		used(3, 1000*time.Minute, 0)
		s := Scheduler{Order: FIFO{By: tt.by, Levels: 3, LevelTime: levelTime, LevelFactor: 10}}
		var got []jobs.JobID
		for range tt.want {
			id := launchedJobs(w, w.beat(s, w.Now, 0))[0]
			got = append(got, id)
			w.Jobs[id-1].Stages[0].Pending[policies.OffRack] = 0
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: jobs %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A job ends in the last level, however long it runs, and a level of no length is left at once.
func TestLevel(t *testing.T) {
	for _, tt := range []struct {
		order FIFO
		used  time.Duration
		want  int64
	}{
		{FIFO{Levels: 3, LevelTime: time.Minute, LevelFactor: 2}, time.Minute - 1, 0},
		{FIFO{Levels: 3, LevelTime: time.Minute, LevelFactor: 2}, time.Minute, 1},
		{FIFO{Levels: 3, LevelTime: time.Minute, LevelFactor: 2}, 3*time.Minute - 1, 1},
		{FIFO{Levels: 3, LevelTime: time.Minute, LevelFactor: 2}, 3 * time.Minute, 2},
		{FIFO{Levels: 3, LevelTime: time.Minute, LevelFactor: 2}, 1000 * time.Hour, 2},
		{FIFO{Levels: 3, LevelFactor: 2}, 0, 2},
		{FIFO{Levels: 1, LevelTime: time.Minute, LevelFactor: 2}, time.Hour, 0},
		{FIFO{}, time.Hour, 0},
	} {
		if got := tt.order.level(tt.used); got != tt.want {
			t.Errorf("%+v: level(%v) = %d, want %d", tt.order, tt.used, got, tt.want)
		}
	}
}
