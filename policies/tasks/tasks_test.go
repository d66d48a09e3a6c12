package tasks

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// contenders are schedulers that together reach all branches.
func contenders() map[string]Scheduler {
	with := func(s Scheduler, change func(*Scheduler)) Scheduler {
		change(&s)
		return s
	}
	short := Starvation{MinTimeout: time.Second, FairTimeout: 2 * time.Second, Fraction: 1, Kill: true, Every: time.Second}
	pools := []Pool{{Name: "ann", Weight: 2, Min: [jobs.TaskKinds]int{3, 1}}, {Name: "bob", Min: [jobs.TaskKinds]int{1, 0}}, {Name: "eve", Weight: 0.5}}
	return map[string]Scheduler{
		"fifo":                  DefaultFIFO(),
		"fair":                  DefaultFair(),
		"drf":                   DefaultDRF(),
		"fifo, delay":           with(DefaultFIFO(), func(s *Scheduler) { s.Waiting = ByTime }),
		"fifo, split, no limit": {Order: FIFO{}, Splitting: Splitting{Factor: 3}},
		"fair, multiple, delay": with(DefaultFair(), func(s *Scheduler) { s.Tasks = 0; s.Waiting = ByTime; s.T1, s.T2 = time.Second, 500*time.Millisecond }),
		"fair, kill":            {Order: Fair{Starvation: short}},
		"fair, all": {Order: Fair{Pools: pools, Inside: InOrder, Starvation: short}, PerHeartbeat: PerHeartbeat{Tasks: 3, Maps: 2, Reduces: 1},
			Delay: Delay{Waiting: ByTime, T1: time.Second, T2: time.Second, ByRate: true}, Splitting: Splitting{Factor: 2, PerJob: 1}},
		"fair, skips":   {Order: Fair{Pools: pools}, Delay: Delay{Waiting: BySkips, Locality: 0.95, Replicas: 3}},
		"drf, 2 skips":  {Order: DRF{}, Delay: Delay{Waiting: BySkips, Skips: 2}},
		"drf, by time":  {Order: DRF{}, Delay: Delay{Waiting: ByTime, T1: time.Second, T2: time.Second}, Splitting: Splitting{Factor: 3}},
		"without order": {},
	}
}

func TestContract(t *testing.T) {
	for name, s := range contenders() {
		t.Run(name, func(t *testing.T) { policytest.Tasks(t, s) })
	}
}

// racks returns a fabric of racks with a number of hosts each.
func racks(t testing.TB, leaves, hosts int) *topo.Fabric {
	t.Helper()
	s := topo.LeafSpine{Leaves: leaves, Spines: 2, HostsPerLeaf: hosts, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// world is a View that a test changes between decisions, with what the policy remembers.
type world struct {
	policies.TaskView
	a policies.Assignment
}

// newWorld returns a world of hosts in racks of 3, with slots.
func newWorld(t testing.TB, leaves int, slots [jobs.TaskKinds]int) *world {
	w := &world{TaskView: policies.TaskView{Cluster: &policies.Cluster{Fabric: racks(t, leaves, 3)}}}
	for range w.Fabric.Hosts() {
		w.Slots = append(w.Slots, policies.SlotState{Total: slots, Space: -1})
	}
	return w
}

// add adds a job with stages and returns it. The pointer is valid until the next job.
func (w *world) add(user string, stages ...policies.StageState) *policies.TaskJob {
	w.Jobs = append(w.Jobs, policies.TaskJob{ID: jobs.JobID(len(w.Jobs) + 1), User: user, Submit: time.Duration(len(w.Jobs)), Stages: stages})
	return &w.Jobs[len(w.Jobs)-1]
}

// mapStage returns maps that have no place.
func mapStage(running, pending int) policies.StageState {
	return policies.StageState{Kind: jobs.Map, Tasks: running + pending, Running: running, Pending: [3]int{0, 0, pending}, Waiting: pending, Anywhere: true}
}

func reduceStage(running, pending int) policies.StageState {
	st := mapStage(running, pending)
	st.Kind = jobs.Reduce
	return st
}

// beat returns the decision for a heartbeat and stores what the policy remembers. It does not
// launch anything.
func (w *world) beat(s Scheduler, at time.Duration, h topo.HostID) *policies.Assignment {
	w.Now, w.Host = at, h
	w.a.Reset()
	s.Assign(&w.TaskView, &w.a)
	for _, m := range w.a.Jobs {
		w.Jobs[m.Job].Memory = m.Value
	}
	if w.a.Memory != nil {
		w.Memory = slices.Clone(w.a.Memory)
	}
	return &w.a
}

// launchedJobs returns the IDs of the jobs of the launches, in order.
func launchedJobs(w *world, a *policies.Assignment) (out []jobs.JobID) {
	for _, l := range a.Launch {
		out = append(out, w.Jobs[l.Job].ID)
	}
	return out
}

func TestFIFO(t *testing.T) {
	w := newWorld(t, 3, [jobs.TaskKinds]int{4, 4})
	w.add("a", mapStage(0, 100), reduceStage(0, 50))
	w.add("b", mapStage(0, 100)).Priority = 1
	w.add("c", mapStage(0, 100)).Priority = 1
	free := Scheduler{Order: FIFO{}}
	if got := launchedJobs(w, w.beat(free, 0, 0)); !slices.Equal(got, []jobs.JobID{2, 2, 2, 2, 1, 1, 1, 1}) {
		t.Errorf("highest priority first, then by submission: launches of jobs %v", got)
	}
	w.Jobs[1].Stages[0] = mapStage(0, 1)
	if got := launchedJobs(w, w.beat(free, 0, 0)); !slices.Equal(got, []jobs.JobID{2, 3, 3, 3, 1, 1, 1, 1}) {
		t.Errorf("one map of job 2: launches of jobs %v", got)
	}
}

// POLICIES, section on heartbeats: all free map slots, but at most one off-rack map and one
// reduce.
func TestFIFOLimitsOfAHeartbeat(t *testing.T) {
	w := newWorld(t, 3, [jobs.TaskKinds]int{5, 5})
	local := policies.StageState{Kind: jobs.Map, Tasks: 100, Pending: [3]int{1, 1, 98}, Waiting: 100}
	w.add("a", local, reduceStage(0, 50))
	w.add("b", local)
	s := DefaultFIFO()
	want := []policies.Launch{{Job: 0, Locality: policies.NodeLocal}, {Job: 0, Locality: policies.RackLocal}, {Job: 0, Locality: policies.OffRack}, {Job: 0, Stage: 1, Locality: policies.OffRack}}
	if d := cmp.Diff(want, w.beat(s, 0, 0).Launch); d != "" {
		t.Errorf("launches (-want +got):\n%s", d)
	}
	// 9 hosts × 5 slots, 12 unfinished maps: at most ⌈12·5/45⌉ = 2 slots a host, one in use.
	w.Jobs = w.Jobs[:0]
	w.add("a", policies.StageState{Kind: jobs.Map, Tasks: 20, Done: 8, Running: 2, Pending: [3]int{10, 0, 0}, Waiting: 10})
	w.Slots[0].Used[jobs.Map] = 1
	if n := len(w.beat(s, 0, 0).Launch); n != 1 {
		t.Errorf("%d launches with load factor, want 1", n)
	}
	s.LoadFactor = false
	if n := len(w.beat(s, 0, 0).Launch); n != 4 {
		t.Errorf("%d launches without load factor, want 4", n)
	}
	w.Slots[8].Lost = true // 40 slots: still ⌈1.5⌉
	s.LoadFactor = true
	if n := len(w.beat(s, 0, 0).Launch); n != 1 {
		t.Errorf("%d launches with a lost host, want 1", n)
	}
}

func TestPerHeartbeat(t *testing.T) {
	w := newWorld(t, 3, [jobs.TaskKinds]int{5, 5})
	w.add("a", mapStage(0, 50), reduceStage(0, 50))
	for _, tt := range []struct {
		limits        PerHeartbeat
		maps, reduces int
	}{
		{PerHeartbeat{}, 5, 5},
		{PerHeartbeat{Tasks: 1}, 1, 0},
		{PerHeartbeat{Tasks: 7}, 5, 2},
		{PerHeartbeat{Maps: 2, Reduces: 3}, 2, 3},
		{PerHeartbeat{OffRack: 2}, 2, 5},
	} {
		n := [jobs.TaskKinds]int{}
		for _, l := range w.beat(Scheduler{Order: FIFO{}, PerHeartbeat: tt.limits}, 0, 0).Launch {
			n[l.Stage]++
		}
		if n != [jobs.TaskKinds]int{tt.maps, tt.reduces} {
			t.Errorf("%+v: %d maps and %d reduces, want %d and %d", tt.limits, n[0], n[1], tt.maps, tt.reduces)
		}
	}
}

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

// The closest map of all stages is launched; of equal ones, that of the first stage.
func TestClosestOfStages(t *testing.T) {
	stage := func(node, rack, far int) policies.StageState {
		return policies.StageState{Kind: jobs.Map, Tasks: 9, Pending: [3]int{node, rack, far}}
	}
	w := newWorld(t, 1, [jobs.TaskKinds]int{4, 1})
	w.add("a", stage(0, 1, 1), stage(1, 0, 0), stage(0, 1, 0))
	want := []policies.Launch{{Stage: 1, Locality: policies.NodeLocal}, {Stage: 0, Locality: policies.RackLocal}, {Stage: 2, Locality: policies.RackLocal}, {Stage: 0, Locality: policies.OffRack}}
	if d := cmp.Diff(want, w.beat(Scheduler{Order: FIFO{}}, 0, 0).Launch); d != "" {
		t.Errorf("launches (-want +got):\n%s", d)
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

// POLICIES, vectors of the FAIR family, 5. Host h is index h−1: racks of 3 hosts, so that hosts 1
// to 3 are in rack 1, 4 to 6 in rack 2 and 7 to 9 in rack 3.
func TestDelayByTime(t *testing.T) {
	type beat struct {
		at       int // seconds
		host     topo.HostID
		launch   policies.Locality // skipped
		level    int64             // after it
		waitSecs int64
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
			m := w.Jobs[0].Memory
			if got != b.launch || m[memoryLevel] != b.level || m[memoryWait] != b.waitSecs*int64(time.Second) {
				t.Errorf("%s: t=%d host %d: launch %d, memory %v, want launch %d, level %d, wait %d s", tt.name, b.at, b.host, got, m, b.launch, b.level, b.waitSecs)
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
	if m := w.Jobs[1].Memory; m != [3]int64{} {
		t.Errorf("job 2 remembers %v, but it was not its turn", m)
	}
	w.Jobs[0].Stages[0].Pending = [3]int{}
	w.beat(s, 5*time.Second, 1)
	w.beat(s, 7*time.Second, 1)
	if m := w.Jobs[1].Memory; m != [3]int64{0, int64(2 * time.Second), 1} {
		t.Errorf("job 2 remembers %v, want a wait of 2 s", m)
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
	if a := w.beat(s, 0, 0); len(a.Launch) != 0 || w.Jobs[0].Memory[memoryWait] != 1 {
		t.Errorf("after a node-local launch: %+v, memory %v, want a skip", a.Launch, w.Jobs[0].Memory)
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

// POLICIES, vectors of the FAIR family, 6.
func TestSplitting(t *testing.T) {
	s := Scheduler{Order: FIFO{}, Splitting: Splitting{Factor: 3}}
	limits := s.Slots([jobs.TaskKinds]int{4, 2})
	if want := (policies.Limits{Running: [2]int{4, 6}, Computing: [2]int{4, 2}}); limits != want {
		t.Fatalf("Slots = %+v, want %+v", limits, want)
	}
	if plain, want := DefaultSplitting().Slots([jobs.TaskKinds]int{4, 2}), (policies.Limits{Running: [2]int{4, 2}, Computing: [2]int{4, 2}}); plain != want {
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
		if a := w.beat(s, start+time.Hour, 0); len(a.Kill) > 0 || a.Memory != nil {
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

// POLICIES, vectors of the FAIR family, 7 and 8, and the numbers of skips.
func TestFormulas(t *testing.T) {
	for _, tt := range []struct {
		jobs, slots, replicas int
		want                  float64
	}{{5, 1, 3, 0.488}, {10, 1, 3, 0.271}, {5, 4, 3, 0.931}, {10, 4, 3, 0.718}, {20, 4, 3, 0.460}, {50, 4, 3, 0.215}, {1, 1, 1, 1}, {0, 1, 1, 0}} {
		if got := StickyLocality(tt.jobs, tt.slots, tt.replicas); math.Abs(got-tt.want) > 0.0005 {
			t.Errorf("StickyLocality(%d, %d, %d) = %.4f, want %.3f", tt.jobs, tt.slots, tt.replicas, got, tt.want)
		}
	}
	s := time.Second
	for _, tt := range []struct {
		wait, gap, penalty time.Duration
		want               float64
	}{{10 * s, 5 * s, 20 * s, 12.97}, {10 * s, 20 * s, 5 * s, -5.90}, {0, 5 * s, 20 * s, 0}, {10 * s, 0, 20 * s, 20}} {
		if got := ExpectedGain(tt.wait, tt.gap, tt.penalty); math.Abs(got.Seconds()-tt.want) > 0.005 {
			t.Errorf("ExpectedGain(%v, %v, %v) = %v, want %v s", tt.wait, tt.gap, tt.penalty, got, tt.want)
		}
	}
	for _, tt := range []struct {
		locality              float64
		maps, hosts, replicas int
		want                  int
	}{{0.95, 20, 1000, 3, 232}, {0.95, 20, 100, 3, 24}, {0, 20, 100, 3, 0}, {0.95, 0, 100, 3, 0}, {1, 20, 100, 3, math.MaxInt}, {math.NaN(), 20, 100, 3, 0}} {
		if got := SkipCount(tt.locality, tt.maps, tt.hosts, tt.replicas); got != tt.want {
			t.Errorf("SkipCount(%v, %d, %d, %d) = %d, want %d", tt.locality, tt.maps, tt.hosts, tt.replicas, got, tt.want)
		}
	}
}

// Bad input does not panic.
func TestBadViews(t *testing.T) {
	for name, s := range contenders() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, [jobs.TaskKinds]int{2, 2})
			w.add("a", mapStage(0, 3), policies.StageState{Kind: 7, Pending: [3]int{0, 0, 3}})
			for _, h := range []topo.HostID{-1, 99} {
				if a := w.beat(s, 0, h); len(a.Launch) > 0 {
					t.Errorf("launches on host %d", h)
				}
			}
			for n := range 9 {
				w.Memory = slices.Repeat([]int64{5}, n)
				w.beat(s, time.Second, 0)
			}
			w.Slots[0].Lost = true
			if a := w.beat(s, 2*time.Second, 0); len(a.Launch) > 0 {
				t.Errorf("launches on a lost host: %+v", a.Launch)
			}
		})
	}
}

func ExampleShares() {
	fmt.Println(Shares(100, []Claim{{Demand: 46, Min: 50, Weight: 1}, {Demand: 18, Min: 10, Weight: 1}, {Demand: 28, Min: 25, Weight: 1}, {Demand: 16, Min: 15, Weight: 1}}))
	// Output: [46 14 25 15]
}
