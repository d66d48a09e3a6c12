package tasks

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// POLICIES, vectors of the FAIR family, 4: 10 slots, A runs 10, B arrives with demand 10.
func TestKill(t *testing.T) {
	setup := func(t *testing.T) (*world, Scheduler) {
		w := newWorld(t, 1, [jobs.TaskKinds]int{0, 0})
		w.Slots[0].Total = [2]int{10, 0}
		w.Slots[0].Used = [2]int{10, 0}
		a := w.add("A", mapStage(10, 0))
		for i := range 10 {
			a.Running = append(a.Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}}, Start: time.Duration(i+1) * time.Second, Phase: policies.Computing})
		}
		w.add("B", mapStage(0, 10))
		return w, Scheduler{Order: Fair{Starvation: Starvation{MinTimeout: time.Minute, FairTimeout: 10 * time.Minute, Fraction: 1, Kill: true, Every: 15 * time.Second}}}
	}
	indices := func(a *policies.Assignment) (out []int) {
		for _, id := range a.Kill {
			out = append(out, id.Task.Index+1)
		}
		return out
	}
	start := 20 * time.Second
	t.Run("half", func(t *testing.T) {
		w, s := setup(t)
		if k := indices(w.beat(s, start, 0)); len(k) > 0 {
			t.Errorf("kills %v before the timeout", k)
		}
		if k := indices(w.beat(s, start+10*time.Minute, 0)); len(k) > 0 {
			t.Errorf("kills %v at the timeout, which must pass", k)
		}
		got := indices(w.beat(s, start+10*time.Minute+1, 0))
		if want := []int{10, 9, 8, 7, 6}; !slices.Equal(got, want) {
			t.Fatalf("kills %v, want %v", got, want)
		}
		// They are not killed twice, whether the next round is due or not.
		for i := range 5 {
			w.Jobs[0].Running[5+i].Killing = true
		}
		if k := indices(w.beat(s, start+12*time.Minute, 0)); len(k) > 0 {
			t.Errorf("kills %v although five tasks are being killed", k)
		}
	})
	t.Run("rounds", func(t *testing.T) {
		w, s := setup(t)
		s.Order = Fair{Starvation: Starvation{FairTimeout: 0, Fraction: 1, Kill: true, Every: 15 * time.Second, Most: 2}}
		w.beat(s, start, 0)
		if got, want := indices(w.beat(s, start+1, 0)), []int{10, 9}; !slices.Equal(got, want) {
			t.Errorf("kills %v, want %v", got, want)
		}
		w.Jobs[0].Running = w.Jobs[0].Running[:8]
		w.Jobs[0].Stages[0] = mapStage(8, 0)
		if k := indices(w.beat(s, start+15*time.Second, 0)); len(k) > 0 {
			t.Errorf("kills %v before the next round", k)
		}
		if got, want := indices(w.beat(s, start+15*time.Second+1, 0)), []int{8, 7}; !slices.Equal(got, want) {
			t.Errorf("kills %v, want %v", got, want)
		}
	})
	t.Run("minimum share", func(t *testing.T) {
		w, s := setup(t)
		f := s.Order.(Fair)
		f.Pools = []Pool{{Name: "B", Min: [2]int{3}}}
		s.Order = f
		w.beat(s, start, 0)
		if got, want := indices(w.beat(s, start+time.Minute+1, 0)), []int{10, 9, 8}; !slices.Equal(got, want) {
			t.Errorf("kills %v, want %v", got, want)
		}
		// A is still above its share, but the three that B misses are being killed.
		for i := range 3 {
			w.Jobs[0].Running[7+i].Killing = true
		}
		if k := indices(w.beat(s, start+2*time.Minute, 0)); len(k) > 0 {
			t.Errorf("kills %v although three tasks are being killed", k)
		}
	})
	t.Run("starvation ends", func(t *testing.T) {
		w, s := setup(t)
		w.beat(s, start, 0)
		w.Jobs[1].Stages[0] = mapStage(5, 5)
		w.beat(s, start+9*time.Minute, 0)
		w.Jobs[1].Stages[0] = mapStage(0, 10)
		w.beat(s, start+9*time.Minute+1, 0)
		if k := indices(w.beat(s, start+11*time.Minute, 0)); len(k) > 0 {
			t.Errorf("kills %v although the pool had its share two minutes before", k)
		}
	})
	t.Run("off", func(t *testing.T) {
		w, s := setup(t)
		f := s.Order.(Fair)
		f.Kill = false
		s.Order = f
		w.beat(s, start, 0)
		if a := w.beat(s, start+time.Hour, 0); len(a.Kill) > 0 {
			t.Errorf("assignment %+v without killing", a)
		}
	})
	t.Run("reduces that compute", func(t *testing.T) {
		w, s := setup(t)
		w.Slots[0].Total, w.Slots[0].Used = [2]int{0, 4}, [2]int{0, 4}
		w.Jobs[0].Running = w.Jobs[0].Running[:4]
		w.Jobs[0].Stages[0], w.Jobs[1].Stages[0] = reduceStage(4, 0), reduceStage(0, 2)
		for i := range 4 {
			w.Jobs[0].Running[i].Kind = jobs.Reduce
		}
		w.Jobs[0].Running[1].Phase = policies.Copying
		w.beat(s, start, 0)
		if got, want := indices(w.beat(s, start+time.Hour, 0)), []int{2, 4}; !slices.Equal(got, want) {
			t.Errorf("kills %v, want %v: the one that fetches, then the most recent", got, want)
		}
	})
}

// 9 slots, three pools with shares of 3. D has its share and the most recent launches; pool A is
// above, but its job 2 has only its part of A's share. Job 1 pays for B.
func TestKillSparesPoolsAndJobsAtTheirShares(t *testing.T) {
	w := newWorld(t, 1, [jobs.TaskKinds]int{3, 0})
	run := func(user string, starts ...int) {
		j := w.add(user, mapStage(len(starts), 0))
		for i, at := range starts {
			j.Running = append(j.Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: j.ID, Index: i}}, Start: time.Duration(at) * time.Second, Phase: policies.Computing})
		}
	}
	run("A", 1, 2, 3, 4, 5)
	run("A", 9)
	run("D", 11, 12, 13)
	for h := range w.Slots {
		w.Slots[h].Used[jobs.Map] = 3
	}
	w.add("B", mapStage(0, 3))
	s := Scheduler{Order: Fair{Starvation: Starvation{FairTimeout: time.Second, Fraction: 1, Kill: true}}}
	w.beat(s, 20*time.Second, 0)
	var want []jobs.AttemptID
	for _, i := range []int{4, 3, 2} {
		want = append(want, jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}})
	}
	if d := cmp.Diff(want, w.beat(s, 22*time.Second, 0).Kill); d != "" {
		t.Errorf("kills (-want +got):\n%s", d)
	}
}

// A kill takes no pool below its share, also if each of its jobs could lose a task: pool A has a share
// of 3 slots and runs 2 + 1 tasks of two jobs, which have 1.5 each.
func TestKillSparesPoolOfJobsAboveTheirShares(t *testing.T) {
	w := newWorld(t, 1, [jobs.TaskKinds]int{3, 0})
	run := func(user string, pending int, starts ...int) {
		j := w.add(user, mapStage(len(starts), pending))
		for i, at := range starts {
			j.Running = append(j.Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: j.ID, Index: i}}, Start: time.Duration(at) * time.Second, Phase: policies.Computing})
		}
	}
	run("A", 5, 14, 15)
	run("A", 5, 16)
	run("D", 5, 1, 2, 3, 4, 5, 6)
	for h := range w.Slots {
		w.Slots[h].Used[jobs.Map] = 3
	}
	w.add("B", mapStage(0, 3))
	s := Scheduler{Order: Fair{Starvation: Starvation{FairTimeout: time.Second, Fraction: 1, Kill: true}}}
	w.beat(s, 20*time.Second, 0)
	var want []jobs.AttemptID
	for _, i := range []int{5, 4, 3} {
		want = append(want, jobs.AttemptID{Task: jobs.TaskID{Job: 3, Index: i}})
	}
	if d := cmp.Diff(want, w.beat(s, 22*time.Second, 0).Kill); d != "" {
		t.Errorf("kills (-want +got):\n%s", d)
	}
}

// While the pool of a job starves, its maps do not wait for local input.
func TestStarvingPoolsDoNotWait(t *testing.T) {
	w := newWorld(t, 3, [jobs.TaskKinds]int{1, 1})
	w.add("a", policies.StageState{Kind: jobs.Map, Tasks: 5, Pending: [3]int{0, 0, 5}})
	s := Scheduler{Order: Fair{Starvation: Starvation{FairTimeout: 10 * time.Second, Fraction: 0.5}}, Delay: Delay{Waiting: ByTime, T1: time.Hour, T2: time.Hour}}
	for _, b := range []struct {
		at       time.Duration
		launches int
	}{{0, 0}, {10 * time.Second, 0}, {11 * time.Second, 1}} {
		if a := w.beat(s, b.at, 0); len(a.Launch) != b.launches {
			t.Errorf("%v: launches %+v, want %d", b.at, a.Launch, b.launches)
		}
	}
}
