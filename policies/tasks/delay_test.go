package tasks

import (
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// POLICIES, vectors of the FAIR family, 5. Host h is index h−1: racks of 3 hosts, so that hosts 1
// to 3 are in rack 1, 4 to 6 in rack 2 and 7 to 9 in rack 3.
func TestDelayByTime(t *testing.T) {
	type beat struct {
		at     int // seconds
		host   topo.HostID
		launch policies.Locality // skipped
		level  policies.Locality // after it
		wait   time.Duration     // in seconds
	}
	const skip = policies.Locality(-1)
	for _, tt := range []struct {
		name  string
		beats []beat
	}{
		{"rack after T1", []beat{{0, 1, skip, 0, 0}, {3, 2, skip, 0, 3}, {6, 7, policies.RackLocal, 1, 0}}},
		{"any after T1+T2", []beat{{0, 1, skip, 0, 0}, {3, 2, skip, 0, 3}, {6, 3, skip, 0, 6}, {9, 4, skip, 0, 9}, {12, 5, policies.OffRack, 2, 0}, {15, 9, policies.NodeLocal, 0, 0}}},
		{"any after T2 at level 1", []beat{{0, 1, skip, 0, 0}, {5, 8, policies.RackLocal, 1, 0}, {6, 1, skip, 1, 0}, {10, 2, skip, 1, 4}, {11, 3, policies.OffRack, 2, 0}}},
		{"rack at once at level 1", []beat{{0, 1, skip, 0, 0}, {5, 8, policies.RackLocal, 1, 0}, {6, 7, policies.RackLocal, 1, 0}}},
		{"node-local at once", []beat{{0, 9, policies.NodeLocal, 0, 0}, {4, 9, policies.NodeLocal, 0, 0}}},
	} {
		w := newWorld(t, 3, [jobs.TaskKinds]int{1, 1})
		w.add("a", policies.StageState{Kind: jobs.Map, Tasks: 2})
		s := Scheduler{Order: FIFO{}, Delay: Delay{Waiting: ByTime, T1: 5 * time.Second, T2: 5 * time.Second}}
		left := 2
		for _, b := range tt.beats {
			var pending [3]int
			switch {
			case b.host == 9:
				pending[policies.NodeLocal] = left
			case b.host >= 7:
				pending[policies.RackLocal] = left
			default:
				pending[policies.OffRack] = left
			}
			w.Jobs[0].Stages[0].Pending = pending
			a := w.beat(s, time.Duration(b.at)*time.Second, b.host-1)
			got := skip
			if len(a.Launch) > 0 {
				got = a.Launch[0].Locality
				left--
			}
			m := w.x.jobs[0].delayed
			if got != b.launch || m.level != b.level || m.wait != b.wait*time.Second {
				t.Errorf("%s: t=%d host %d: launch %d, memory %+v, want launch %d, level %d, wait %d s", tt.name, b.at, b.host, got, m, b.launch, b.level, b.wait)
			}
		}
	}
}

// A job does not wait while it has no pending task or while it is not its turn, and tasks whose
// input has no place do not wait.
func TestDelayCountsSkippedTimeOnly(t *testing.T) {
	w := newWorld(t, 3, [jobs.TaskKinds]int{1, 1})
	far := policies.StageState{Kind: jobs.Map, Tasks: 5, Pending: [3]int{0, 0, 5}}
	w.add("a", policies.StageState{Kind: jobs.Map, Tasks: 5, Pending: [3]int{5, 0, 0}})
	w.add("b", far)
	s := Scheduler{Order: FIFO{}, Delay: Delay{Waiting: ByTime, T1: 5 * time.Second, T2: 5 * time.Second}}
	w.beat(s, 0, 0)
	w.beat(s, 4*time.Second, 1)
	if m := w.x.jobs[1].delayed; m != (delayed{}) {
		t.Errorf("job 2 remembers %+v, but it was not its turn", m)
	}
	w.Jobs[0].Stages[0].Pending = [3]int{}
	w.beat(s, 5*time.Second, 1)
	w.beat(s, 7*time.Second, 1)
	if m := w.x.jobs[1].delayed; m != (delayed{wait: 2 * time.Second, skipped: true}) {
		t.Errorf("job 2 remembers %+v, want a wait of 2 s", m)
	}
	w.Jobs[1].Stages[0].Anywhere = true
	if a := w.beat(s, 8*time.Second, 1); len(a.Launch) != 1 {
		t.Errorf("maps whose input has no place wait: %+v", a)
	}
}

func TestDelayBySkips(t *testing.T) {
	w := newWorld(t, 3, [jobs.TaskKinds]int{1, 1})
	w.add("a", policies.StageState{Kind: jobs.Map, Tasks: 9, Pending: [3]int{0, 2, 3}})
	s := Scheduler{Order: FIFO{}, Delay: Delay{Waiting: BySkips, Skips: 3}}
	var got []int
	for range 6 { // waits for 3 heartbeats, then takes whatever is nearest, until a local map
		a := w.beat(s, 0, 0)
		got = append(got, len(a.Launch))
	}
	if want := []int{0, 0, 0, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("launches %v, want %v", got, want)
	}
	if a := w.beat(s, 0, 0); a.Launch[0].Locality != policies.RackLocal {
		t.Errorf("launch %+v, want the closest", a.Launch)
	}
	w.Jobs[0].Stages[0].Pending = [3]int{1, 2, 3}
	w.beat(s, 0, 0)
	w.Jobs[0].Stages[0].Pending = [3]int{0, 2, 3}
	if a := w.beat(s, 0, 0); len(a.Launch) != 0 || w.x.jobs[0].delayed != (delayed{skipped: true}) {
		t.Errorf("after a node-local launch: %+v, memory %+v, want a skip", a.Launch, w.x.jobs[0].delayed)
	}
}

// IO-rate biasing: a job that consumes 2.56 MB/s per map does not wait, one with 12.8 MB/s does.
func TestDelayByRate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		busy  time.Duration // for 64 MB
		alike time.Duration // the same of earlier jobs with its profile
		rate  units.Rate
		disk  units.Rate
		waits bool
	}{
		{"processor", 25 * time.Second, 0, 48 * units.Mbps, 0, false},
		{"disk", 5 * time.Second, 0, 48 * units.Mbps, 0, true},
		{"unknown", 0, 0, 48 * units.Mbps, 0, true},
		{"earlier jobs: processor", 0, 25 * time.Second, 48 * units.Mbps, 0, false},
		{"earlier jobs: disk", 0, 5 * time.Second, 48 * units.Mbps, 0, true},
		{"disk, unlike earlier jobs", 5 * time.Second, 25 * time.Second, 48 * units.Mbps, 0, true},
		{"processor, unlike earlier jobs", 25 * time.Second, 5 * time.Second, 48 * units.Mbps, 0, false},
		// 1 Gbps and 4 slots: half the share is 125 Mbps; 64 MB in 4 s are 128 Mbps.
		{"above half the link's share", 4 * time.Second, 0, 0, 0, true},
		{"below half the link's share", 5 * time.Second, 0, 0, 0, false},
		{"above half the disk's share", 5 * time.Second, 0, 0, 400 * units.Mbps, true},
	} {
		w := newWorld(t, 3, [jobs.TaskKinds]int{4, 1})
		w.DiskRate = tt.disk
		st := policies.StageState{Kind: jobs.Map, Tasks: 9, Pending: [3]int{0, 0, 3}}
		if tt.busy > 0 {
			st.Consumption = policies.Consumption{Read: 64 * units.MB, Busy: tt.busy}
		}
		w.Profiles = map[string]policies.Consumption{"other": {Read: 64 * units.MB, Busy: 25 * time.Second}}
		if tt.alike > 0 {
			w.Profiles["scan"] = policies.Consumption{Read: 64 * units.MB, Busy: tt.alike}
		}
		w.add("a", st)
		w.Jobs[0].Profile = "scan"
		s := Scheduler{Order: FIFO{}, Delay: Delay{Waiting: ByTime, T1: 10 * time.Second, T2: 10 * time.Second, ByRate: true, Rate: tt.rate}}
		if waits := len(w.beat(s, 0, 0).Launch) == 0; waits != tt.waits {
			t.Errorf("%s: waits %v, want %v", tt.name, waits, tt.waits)
		}
	}
}

// Of 4 reduce slots, 2 are reserved for jobs without maps that run or wait: job 1 has maps left, job 2 has none.
func TestReservedReduces(t *testing.T) {
	s := Scheduler{Order: FIFO{}, Splitting: Splitting{Factor: 1, Reserved: 2}}
	w := newWorld(t, 3, s.Slots([jobs.TaskKinds]int{0, 4}).Running)
	w.add("long", mapStage(1, 0), reduceStage(0, 10))
	done := mapStage(0, 0)
	done.Tasks, done.Done = 5, 5
	w.add("short", done, reduceStage(0, 1))
	if got, want := launchedJobs(w, w.beat(s, 0, 0)), []jobs.JobID{1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("launches of jobs %v, want %v", got, want)
	}
	w.Jobs[0].Stages[0].Done, w.Jobs[0].Stages[0].Running = 1, 0 // the last map has ended
	if got, want := launchedJobs(w, w.beat(s, 0, 0)), []jobs.JobID{1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("without maps: launches of jobs %v, want %v", got, want)
	}
	s.Reserved = 0
	w.Jobs[0].Stages[0].Done = 0
	if got, want := launchedJobs(w, w.beat(s, 0, 0)), []jobs.JobID{1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("nothing is reserved: launches of jobs %v, want %v", got, want)
	}
	by := Splitting{Factor: 3, ByMemory: true}.Slots([jobs.TaskKinds]int{4, 2})
	if want := (policies.Limits{Running: [2]int{4, 6}, Computing: [2]int{4, 6}, ByMemory: true}); by != want {
		t.Errorf("by memory: %+v, want %+v", by, want)
	}
}

// POLICIES, vectors of the FAIR family, 6.
func TestSplitting(t *testing.T) {
	s := Scheduler{Order: FIFO{}, Splitting: Splitting{Factor: 3}}
	limits := s.Slots([jobs.TaskKinds]int{4, 2})
	if want := (policies.Limits{Running: [2]int{4, 6}, Computing: [2]int{4, 2}}); limits != want {
		t.Fatalf("Slots = %+v, want %+v", limits, want)
	}
	if plain, want := (Splitting{}).Slots([jobs.TaskKinds]int{4, 2}), (policies.Limits{Running: [2]int{4, 2}, Computing: [2]int{4, 2}}); plain != want {
		t.Errorf("without splitting, Slots = %+v, want %+v", plain, want)
	}
	w := newWorld(t, 3, limits.Running)
	w.add("j", reduceStage(2, 10))
	w.add("o", reduceStage(0, 10))
	run := func(id int, h topo.HostID, phase policies.Phase) {
		w.Jobs[0].Running = append(w.Jobs[0].Running, policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: id}}, Kind: jobs.Reduce, Host: h, Phase: phase})
	}
	run(0, 0, policies.Copying)
	run(1, 0, policies.Copying)
	run(2, 1, policies.Copying) // on another host
	w.Slots[0].Used[jobs.Reduce] = 2
	if got, want := launchedJobs(w, w.beat(s, 0, 0)), []jobs.JobID{2, 2}; !slices.Equal(got, want) {
		t.Errorf("two reduces of job 1 fetch: launches of jobs %v, want %v", got, want)
	}
	w.Jobs[0].Running[0].Phase = policies.Computing
	w.Jobs[0].Running[1].Phase = policies.Computing
	if got, want := launchedJobs(w, w.beat(s, 0, 0)), []jobs.JobID{1, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("two reduces of job 1 compute: launches of jobs %v, want %v", got, want)
	}
	w.Jobs[0].Running[1].Phase = policies.Queued // waits to compute: still counts
	s.PerJob = 3
	if got, want := launchedJobs(w, w.beat(s, 0, 0)), []jobs.JobID{1, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("at most 3 reduces of a job that do not compute: launches of jobs %v, want %v", got, want)
	}
}
