package tasks

import (
	"slices"
	"testing"

	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// POLICIES, vectors of the FAIR family, 3: A runs 8 of min 10, B 50 of min 100, C has no minimum
// and runs 0.
func TestFairOrderOfPools(t *testing.T) {
	w := newWorld(t, 30, [jobs.TaskKinds]int{10, 0})
	w.add("A", mapStage(8, 100))
	w.add("B", mapStage(50, 100))
	w.add("C", mapStage(0, 100))
	s := DefaultFair()
	s.Order = Fair{Pools: []Pool{{Name: "A", Min: [2]int{10}}, {Name: "B", Min: [2]int{100}}}}
	var got []string
	for range 3 {
		id := launchedJobs(w, w.beat(s, 0, 0))[0]
		got = append(got, w.Jobs[id-1].User)
		w.Jobs[id-1].Stages[0].Pending[2] = 0 // take it out
		w.Jobs[id-1].Stages[0].Running += 100
	}
	if want := []string{"B", "A", "C"}; !slices.Equal(got, want) {
		t.Errorf("order of pools %v, want %v", got, want)
	}
}

func TestFairOrder(t *testing.T) {
	for _, tt := range []struct {
		name   string
		order  Fair
		setup  func(w *world)
		launch []jobs.JobID // of 4 slots
	}{
		{"equal pools", Fair{}, func(w *world) {
			w.add("a", mapStage(2, 100))
			w.add("a", mapStage(1, 100))
			w.add("b", mapStage(0, 100))
		}, []jobs.JobID{3, 3, 3, 2}},
		{"ties by the first job", Fair{}, func(w *world) {
			w.add("z", mapStage(0, 100))
			w.add("b", mapStage(0, 100))
			w.add("z", mapStage(0, 100))
		}, []jobs.JobID{1, 2, 3, 2}},
		{"weights", Fair{Pools: []Pool{{Name: "a", Weight: 3}}}, func(w *world) {
			w.add("a", mapStage(0, 100))
			w.add("b", mapStage(0, 100))
		}, []jobs.JobID{1, 2, 1, 1}},
		{"in order inside", Fair{Inside: InOrder}, func(w *world) {
			w.add("a", mapStage(5, 100))
			w.add("a", mapStage(0, 100)).Priority = 1
			w.add("a", mapStage(0, 100))
		}, []jobs.JobID{2, 2, 2, 2}},
		{"a minimum share above the demand", Fair{Pools: []Pool{{Name: "b", Min: [2]int{50}}}}, func(w *world) {
			w.add("a", mapStage(0, 100))
			w.add("b", mapStage(0, 2))
		}, []jobs.JobID{2, 2, 1, 1}},
		{"minimum shares above the slots", Fair{Pools: []Pool{{Name: "a", Min: [2]int{300}}, {Name: "b", Min: [2]int{100}}}}, func(w *world) {
			w.add("a", mapStage(26, 100)) // of 27
			w.add("b", mapStage(8, 100))  // of 9
			w.add("c", mapStage(0, 100))
		}, []jobs.JobID{2, 1, 3, 3}},
	} {
		w := newWorld(t, 3, [jobs.TaskKinds]int{4, 0})
		tt.setup(w)
		if got := launchedJobs(w, w.beat(Scheduler{Order: tt.order}, 0, 0)); !slices.Equal(got, tt.launch) {
			t.Errorf("%s: launches of jobs %v, want %v", tt.name, got, tt.launch)
		}
	}
}

// POLICIES, section on DRF: 9 cores and 18 GB, tasks of user A need 1 core and 4 GB, tasks of B 3
// cores and 1 GB: A gets 3 tasks and B 2, with dominant shares of 2/3.
func TestDRF(t *testing.T) {
	w := newWorld(t, 1, [jobs.TaskKinds]int{10, 10})
	w.Slots = w.Slots[:1]
	w.Slots[0].Capacity = jobs.Resources{CPU: 9, Memory: 18 * units.GB}
	w.add("A", mapStage(0, 100)).Stages[0].Need = jobs.Resources{CPU: 1, Memory: 4 * units.GB}
	w.add("B", mapStage(0, 100)).Stages[0].Need = jobs.Resources{CPU: 3, Memory: units.GB}
	got := launchedJobs(w, w.beat(DefaultDRF(), 0, 0))
	slices.Sort(got)
	if want := []jobs.JobID{1, 1, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("launches of jobs %v, want %v", got, want)
	}
	// Without capacities, users have equal numbers of tasks.
	w.Slots[0].Capacity = jobs.Resources{}
	w.Jobs[0].Stages[0].Running = 4
	if got, want := launchedJobs(w, w.beat(DefaultDRF(), 0, 0)), []jobs.JobID{2, 2, 2, 2, 1, 2, 1, 2, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("without capacities, launches of jobs %v, want %v", got, want)
	}
}

// The larger share counts: A uses 1/10 of the cores and 6/10 of the memory, B 4/10 and 1/10.
func TestDRFLargerShare(t *testing.T) {
	w := newWorld(t, 1, [jobs.TaskKinds]int{1, 1})
	w.Slots = w.Slots[:1]
	w.Slots[0].Capacity = jobs.Resources{CPU: 10, Memory: 10 * units.GB}
	w.add("A", mapStage(1, 5)).Stages[0].Need = jobs.Resources{CPU: 1, Memory: 6 * units.GB}
	w.add("B", mapStage(1, 5)).Stages[0].Need = jobs.Resources{CPU: 4, Memory: units.GB}
	if got, want := launchedJobs(w, w.beat(DefaultDRF(), 0, 0)), []jobs.JobID{2}; !slices.Equal(got, want) {
		t.Errorf("launches of jobs %v, want %v", got, want)
	}
}

// A user whose tasks do not fit is passed over, and reduces count as maps do.
func TestDRFFits(t *testing.T) {
	w := newWorld(t, 1, [jobs.TaskKinds]int{2, 2})
	for h := range w.Slots {
		w.Slots[h].Capacity = jobs.Resources{CPU: 4, Memory: 10 * units.GB}
	}
	w.Slots[0].Need.CPU = 3
	w.add("big", mapStage(0, 5)).Stages[0].Need.CPU = 2
	w.add("small", reduceStage(1, 5)).Stages[0].Need.CPU = 1
	if got, want := launchedJobs(w, w.beat(DefaultDRF(), 0, 0)), []jobs.JobID{2}; !slices.Equal(got, want) {
		t.Errorf("launches of jobs %v, want %v", got, want)
	}
}
