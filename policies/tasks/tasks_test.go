package tasks

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/policies/policytest"
	"testbed/policies/shuffle"
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
		"fifo, shortest first":  {Order: FIFO{By: BySize}},
		"fifo, levels":          {Order: FIFO{By: ByLevel, Levels: 3, LevelTime: time.Second, LevelFactor: 2}, Splitting: Splitting{Factor: 2}},
		"fifo, reserve":         {Order: FIFO{}, Splitting: Splitting{Factor: 2, Reserved: 1, ByMemory: true, Pausing: true}},
		"fair":                  DefaultFair(),
		"drf":                   DefaultDRF(),
		"fifo, delay":           with(DefaultFIFO(), func(s *Scheduler) { s.Delay = DefaultDelay() }),
		"fifo, split, no limit": {Order: FIFO{}, Splitting: Splitting{Factor: 3}},
		"fair, multiple, delay": with(DefaultFair(), func(s *Scheduler) { s.Tasks = 0; s.Waiting = ByTime; s.T1, s.T2 = time.Second, 500*time.Millisecond }),
		"fair, kill":            {Order: Fair{Starvation: short}},
		"fair, all": {Order: Fair{Pools: pools, Inside: InOrder, Starvation: short}, PerHeartbeat: PerHeartbeat{Tasks: 3, Maps: 2, Reduces: 1},
			Delay: Delay{Waiting: ByTime, T1: time.Second, T2: time.Second, ByRate: true}, Splitting: Splitting{Factor: 2, PerJob: 1}},
		"fair, skips":                  {Order: Fair{Pools: pools}, Delay: Delay{Waiting: BySkips, Locality: 0.95, Replicas: 3}},
		"drf, 2 skips":                 {Order: DRF{}, Delay: Delay{Waiting: BySkips, Skips: 2}},
		"drf, by time":                 {Order: DRF{}, Delay: Delay{Waiting: ByTime, T1: time.Second, T2: time.Second}, Splitting: Splitting{Factor: 3}},
		"without order":                {},
		"fifo, nass":                   with(DefaultFIFO(), func(s *Scheduler) { s.Shuffle = DefaultShuffling(); s.Shuffle.SARP, s.Shuffle.SAMP = false, false }),
		"fair, shuffle watcher, delay": with(DefaultFair(), func(s *Scheduler) { s.Shuffle = watcher(); s.Waiting = ByTime; s.T1, s.T2 = time.Second, time.Second }),
		"drf, shuffle watcher, skips":  {Order: DRF{}, Delay: Delay{Waiting: BySkips, Skips: 2}, Splitting: Splitting{Factor: 2}, Shuffle: watcher()},
		"fair, kill, shuffle watcher":  {Order: Fair{Pools: pools, Starvation: short}, Shuffle: watcher()},
		"fair, nass, true load": with(DefaultFair(), func(s *Scheduler) {
			s.Shuffle = DefaultShuffling()
			s.Shuffle.SARP, s.Shuffle.SAMP, s.Shuffle.TrueLoad, s.Shuffle.Variant = false, false, true, shuffle.AnyRack
		}),
		"fair, dolly": with(DefaultFair(), func(s *Scheduler) { s.Cloning = DefaultCloning(); s.Cloning.Budget = 0.5 }),
		"fifo, shuffle watcher, dolly, late": {Order: FIFO{}, Shuffle: watcher(), Cloning: Cloning{On: true, Dolly: clone.Dolly{Straggle: 0.2, Risk: 0.05, Budget: 1, Utilization: 1}},
			Speculation: Speculation{By: ByLATE, LATE: clone.LATE{Cap: 1, TaskPercentile: 1}}},
		"fair, late": with(DefaultFair(), func(s *Scheduler) { s.Speculation = DefaultSpeculation(); s.Speculation.After = 0 }),
		"drf, delay, late": with(DefaultDRF(), func(s *Scheduler) {
			s.Waiting, s.T1, s.T2 = ByTime, time.Second, time.Second
			s.Speculation.By, s.Speculation.After, s.Speculation.Cap, s.Speculation.TaskPercentile, s.Speculation.HostPercentile = ByLATE, 0, 1, 1, 0
		}),
		"fifo, dolly, preemption, exclusive": {Order: FIFO{}, Cloning: Cloning{On: true, Admission: clone.Preemption, Reads: ExclusiveCopy, Dolly: clone.Dolly{Straggle: 0.2, Risk: 0.05, Budget: 0.4, Utilization: 1}}},
		"fair, kill, dolly, preemption, delay": {Order: Fair{Starvation: short}, Cloning: Cloning{On: true, Admission: clone.Preemption, Reads: DelayedCopy, Wait: SameWaits(time.Second), Learn: PeriodicEstimates, LearnEvery: 10 * time.Second, ByFlows: true, Dolly: clone.Dolly{Straggle: 0.2, Risk: 0.05, Budget: 0.5, Utilization: 1}},
			Speculation: Speculation{By: ByMantri, Mantri: clone.Mantri{Interval: 200 * time.Millisecond, Copies: 1, Restarts: 2, Gain: 1}}, Blacklist: clone.Blacklist{Above: 0.1, Window: time.Second}},
		"drf, dolly, partial, delay, mantri": {Order: DRF{}, Cloning: Cloning{On: true, Admission: clone.Partial, Reads: DelayedCopy, Wait: SameWaits(2 * time.Second), Dolly: clone.Dolly{Straggle: 0.1, Risk: 0.05, Budget: 0.3, Utilization: 1}},
			Speculation: Speculation{By: ByMantri, Mantri: clone.Mantri{Copies: 2, Restarts: 3, Risk: 0.25, Gain: 0.1}}},
		"fifo, shuffle watcher, fcfs, blacklist": {Order: FIFO{}, Shuffle: watcher(), Cloning: Cloning{On: true, Admission: clone.FCFS, Reads: DelayedCopy, Wait: SameWaits(time.Second), Dolly: clone.Dolly{Straggle: 0.1, Risk: 0.05, Budget: 0.3, Utilization: 1}},
			Blacklist: clone.Blacklist{Above: 0.2, Window: 500 * time.Millisecond}},
		"fair, hadoop":    {Order: Fair{}, Speculation: Speculation{By: ByHadoop}},
		"fair, mantri":    {Order: Fair{Pools: pools, Starvation: short}, Speculation: Speculation{By: ByMantri, Mantri: clone.Mantri{Interval: 100 * time.Millisecond, Copies: 1, Restarts: 5}}},
		"drf, samp, sarp": {Order: DRF{}, Shuffle: Shuffling{SARP: true, SAMP: true, Rule: shuffle.BestPrefix}},
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

// world is a View that a test changes between decisions, with an instance.
type world struct {
	policies.TaskView
	a policies.Assignment
	x *instance // nil before the first decision
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
	for s := range stages {
		if s > 0 && stages[s].Kind == jobs.Reduce {
			stages[s].Outputs = stages[s-1].Tasks
		}
	}
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

// with returns the instance with other settings.
func (w *world) with(s Scheduler) *instance {
	if w.x == nil {
		w.x = &instance{}
	}
	w.x.Scheduler = s
	return w.x
}

// beat returns the decision for a heartbeat. It does not launch anything.
func (w *world) beat(s Scheduler, at time.Duration, h topo.HostID) *policies.Assignment {
	w.Now, w.Host = at, h
	w.a.Reset()
	w.Count()
	w.with(s).Assign(&w.TaskView, &w.a)
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

func TestSkipCount(t *testing.T) {
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
			w.beat(s, time.Second, 0)
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
