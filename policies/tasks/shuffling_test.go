package tasks

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/policies/shuffle"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"

	"pgregory.net/rapid"
)

// watcher returns ShuffleWatcher with all parts on, whose network is saturated after one second.
func watcher() Shuffling {
	p := DefaultShuffling()
	p.Ratios, p.Intervals, p.Interval = Perfect, 1, time.Second
	return p
}

// shuffled adds a job whose data is on racks, with a ratio.
func (w *world) shuffled(user string, ratio float64, intermediate []units.Bytes, stages ...policies.StageState) *policies.TaskJob {
	j := w.add(user, stages...)
	j.Shuffle = &policies.ShuffleState{Ratio: ratio, Intermediate: intermediate, Maps: make([]int, w.Fabric.Racks()), Reduces: make([]int, w.Fabric.Racks())}
	return j
}

// saturate makes the uplinks of a rack carry all that they can from now on.
func (w *world) load(rack int, share float64, d time.Duration) {
	var capacity units.Rate
	for spine := range w.Fabric.Spines() {
		capacity += w.Capacity[w.Fabric.LeafUp(topo.RackID(rack), spine)]
	}
	w.Racks[rack].Sent += units.Bytes(share * float64(capacity) / 8 * d.Seconds())
}

func newRacks(t *testing.T, racks int, slots [jobs.TaskKinds]int) *world {
	w := newWorld(t, racks, slots)
	for _, l := range w.Fabric.Links() {
		w.Capacity = append(w.Capacity, l.Rate)
	}
	w.Racks = make([]policies.RackState, racks)
	return w
}

// Vector 6 of NASS: under saturation the local map, with a reduce slot alone the light reduce, and without
// saturation the heavy one.
func TestShuffleWatcher(t *testing.T) {
	mb := units.MB
	build := func(maps int) *world {
		w := newRacks(t, 4, [jobs.TaskKinds]int{maps, 1})
		done := policies.StageState{Kind: jobs.Map, Tasks: 4, Done: 4}
		w.shuffled("ann", 1, []units.Bytes{0, 0, 9 * mb, 0}, done, reduceStage(0, 2))
		w.shuffled("ann", 0.1, []units.Bytes{0, 0, 9 * mb, 0}, done, reduceStage(0, 2))
		local := w.shuffled("ann", 0.5, make([]units.Bytes, 4), policies.StageState{Kind: jobs.Map, Tasks: 2, Pending: [3]int{1, 0, 1}, Waiting: 2})
		local.Shuffle.Blocks = []policies.PlacedBlock{{Size: mb, Racks: []topo.RackID{3}}}
		return w
	}
	s := Scheduler{Order: FIFO{}, PerHeartbeat: PerHeartbeat{Tasks: 1}, Shuffle: watcher()}
	for _, tt := range []struct {
		name   string
		maps   int
		share  float64
		want   policies.Launch
		parts  func(*Shuffling)
		memory bool
	}{
		{"saturated", 1, 0.9, policies.Launch{Job: 2, Locality: policies.NodeLocal}, nil, false},
		{"saturated, a reduce slot", 0, 0.9, policies.Launch{Job: 1, Stage: 1, Locality: policies.OffRack}, nil, false},
		{"not saturated", 1, 0.7, policies.Launch{Job: 0, Stage: 1, Locality: policies.OffRack}, nil, false},
		{"saturated, without NASS", 0, 0.9, policies.Launch{Job: 0, Stage: 1, Locality: policies.OffRack}, func(p *Shuffling) { p.NASS = false }, false},
	} {
		w, s := build(tt.maps), s
		if tt.parts != nil {
			tt.parts(&s.Shuffle)
		}
		w.load(1, tt.share, 2*time.Second)
		a := w.beat(s, 2*time.Second, 4) // host 4 is in rack 1
		if len(a.Launch) != 1 || a.Launch[0] != tt.want {
			t.Errorf("%s: launches %+v, want %+v", tt.name, a.Launch, tt.want)
		}
	}
}

// SARP prefers racks with intermediate data: of 10 reduces, 1 on the rack with 10 % and 9 on the other.
func TestSARPCountsReduces(t *testing.T) {
	w := newRacks(t, 2, [jobs.TaskKinds]int{0, 20})
	s := Scheduler{Order: FIFO{}, Shuffle: watcher()}
	s.Shuffle.NASS = false
	w.shuffled("ann", 0.1, make([]units.Bytes, 2), mapStage(2, 0), reduceStage(0, 5))
	w.shuffled("ann", 0.1, []units.Bytes{10 * units.GB, 90 * units.GB}, policies.StageState{Kind: jobs.Map, Tasks: 4, Done: 4}, reduceStage(0, 10))
	for h, want := range map[topo.HostID]int{0: 1, 3: 9} {
		first := 0
		for _, l := range w.beat(s, 0, h).Launch {
			if l.Job != 1 {
				break
			}
			first++
		}
		if first != want {
			t.Errorf("host %d: the job with data there launches %d reduces before those of the first job, want %d", h, first, want)
		}
	}
}

// SAMP plans once, when it first sees a job, and keeps the plan as other jobs come and go.
func TestSAMPPlansOnce(t *testing.T) {
	w := newRacks(t, 4, [jobs.TaskKinds]int{1, 1})
	s := Scheduler{Order: FIFO{}, Shuffle: watcher()}
	add := func(rack topo.RackID) {
		j := w.shuffled("ann", 1, make([]units.Bytes, 4), policies.StageState{Kind: jobs.Map, Tasks: 3, Pending: [3]int{0, 0, 3}, Waiting: 3}, reduceStage(0, 4))
		for range 3 {
			j.Shuffle.Blocks = append(j.Shuffle.Blocks, policies.PlacedBlock{Size: units.MB, Racks: []topo.RackID{rack, (rack + 1) % 4}})
		}
	}
	planned := func() (out [][]int) {
		for _, j := range w.x.jobs {
			out = append(out, j.plan.maps)
		}
		return out
	}
	add(0)
	add(2)
	w.beat(s, time.Second, 0)
	if got := planned(); !reflect.DeepEqual(got, [][]int{{3, 0, 0, 0}, {0, 0, 3, 0}}) {
		t.Fatalf("maps %v", got)
	}
	w.Jobs = w.Jobs[1:]
	w.Jobs[0].Shuffle.Blocks[0].Racks[0] = 1 // as after a re-replication: the plan stays
	add(0)
	w.Jobs[1].ID = 9
	w.beat(s, 2*time.Second, 0)
	if got := planned(); !reflect.DeepEqual(got, [][]int{{0, 0, 3, 0}, {3, 0, 0, 0}}) {
		t.Errorf("maps %v after a job has ended and another has come", got)
	}
}

// A rack with saturated links delays reduces of heavy jobs, and never for good.
func TestHeavyReducesDoNotStarve(t *testing.T) {
	w := newRacks(t, 2, [jobs.TaskKinds]int{1, 1})
	s := Scheduler{Order: FIFO{}, Shuffle: watcher()}
	w.shuffled("ann", 1, []units.Bytes{0, units.GB}, policies.StageState{Kind: jobs.Map, Tasks: 1, Done: 1}, reduceStage(0, 1))
	w.load(0, 1, time.Minute)
	if got := w.beat(s, time.Minute, 0).Launch; len(got) != 1 {
		t.Errorf("launches %+v: want the reduce, since nothing else can run", got)
	}
}

func TestShareOfAnyRack(t *testing.T) {
	w := newRacks(t, 3, [jobs.TaskKinds]int{0, 1})
	s := Scheduler{Order: FIFO{}, Shuffle: watcher()}
	done := policies.StageState{Kind: jobs.Map, Tasks: 1, Done: 1}
	for _, ratio := range []float64{1, 0.1} {
		w.shuffled("ann", ratio, []units.Bytes{0, 0, units.GB}, done, reduceStage(0, 1))
	}
	w.load(2, 1, time.Second)
	for variant, want := range map[shuffle.Variant]int{shuffle.OwnRack: 0, shuffle.AnyRack: 1} {
		s.Shuffle.Variant = variant
		w.x = nil
		if got := w.beat(s, time.Second, 0).Launch; len(got) != 1 || got[0].Job != want {
			t.Errorf("variant %d: launches %+v, want job %d", variant, got, want)
		}
	}
}

// ShuffleWatcher keeps the order of users and leaves no slot idle: under FAIR, the n-th task of a kind that a
// decision launches is of the same user as without it, and under DRF the first task.
func TestShufflingKeepsTheOrderOfUsers(t *testing.T) {
	users := func(v *policies.TaskView, a *policies.Assignment) (out [jobs.TaskKinds][]string, first string) {
		for i, l := range a.Launch {
			j := &v.Jobs[l.Job]
			k := j.Stages[l.Stage].Kind
			if out[k] = append(out[k], j.User); i == 0 {
				first = j.User
			}
		}
		return out, first
	}
	parts := watcher()
	rapid.Check(t, func(t *rapid.T) {
		c := policytest.TaskClusters().Draw(t, "cluster")
		parts.Rule = shuffle.Rule(rapid.IntRange(0, 2).Draw(t, "rule"))
		drf := rapid.Bool().Draw(t, "DRF")
		order := Order(Fair{})
		if drf {
			order = DRF{}
		}
		base, shuffled := Scheduler{Order: order}, Scheduler{Order: order, Shuffle: parts}
		n := 0
		c.Run(t, shuffled, rapid.IntRange(1, 20).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
			n++
			var b policies.Assignment
			base.New().Assign(v, &b)
			got, gotFirst := users(v, a)
			want, wantFirst := users(v, &b)
			if !drf && c.Resources == (jobs.Resources{}) && !reflect.DeepEqual(got, want) {
				t.Fatalf("decision %d: launches of users %v, without ShuffleWatcher %v", n, got, want)
			}
			if drf && gotFirst != wantFirst {
				t.Fatalf("decision %d: the first launch is of %q, without ShuffleWatcher of %q", n, gotFirst, wantFirst)
			}
			if (len(a.Launch) == 0) != (len(b.Launch) == 0) {
				t.Fatalf("decision %d: %d launches, without ShuffleWatcher %d", n, len(a.Launch), len(b.Launch))
			}
		})
	})
}

// What is known of the shuffle input ratio of a job.
func TestKnowledge(t *testing.T) {
	w := newRacks(t, 4, [jobs.TaskKinds]int{1, 1})
	j := w.shuffled("ann", 0.9, make([]units.Bytes, 4), mapStage(0, 4))
	j.Profile = "sort"
	ratio := func(k Knowledge, profiles map[string]policies.Consumption) float64 {
		w.Profiles, w.EndedProfiles = profiles, map[string]policies.Consumption{"sort": {Input: 4, Output: 1}}
		x := shuffling{Shuffling: Shuffling{Ratios: k}, d: &decision{v: &w.TaskView}}
		return x.ratio(j)
	}
	seen := map[string]policies.Consumption{"sort": {Input: 100 * units.MB, Output: 20 * units.MB}}
	for _, tt := range []struct {
		of       Knowledge
		profiles map[string]policies.Consumption
		want     float64
	}{{Learned, nil, 0.55}, {Learned, seen, 0.2}, {AtEnd, seen, 0.25}, {Given, seen, 1}, {Perfect, seen, 0.9}} {
		if got := ratio(tt.of, tt.profiles); got != tt.want {
			t.Errorf("knowledge %d with profiles %v: ratio %v, want %v", tt.of, tt.profiles, got, tt.want)
		}
	}
}

// A preferred rack takes maps whose input it stores, and of others as many as the plan has. Elsewhere maps run only
// to keep slots busy, and not at all if Strict.
func TestPreferredMaps(t *testing.T) {
	for _, tt := range []struct {
		name    string
		strict  bool
		host    topo.HostID
		pending [policies.Localities]int
		remote  int // blocks that the preferred rack 0 does not store
		placed  int // maps in rack 0
		want    int
	}{
		{"a rack-local map", true, 0, [3]int{0, 1, 0}, 0, 0, 1},
		{"a rack-local map beyond the plan", true, 0, [3]int{0, 1, 0}, 0, 4, 1},
		{"a map that another rack stores, which the plan does not have", true, 0, [3]int{0, 0, 1}, 0, 0, 0},
		{"a map that no preferred rack stores", true, 0, [3]int{0, 0, 1}, 1, 3, 1},
		{"more of them than the plan has", true, 0, [3]int{0, 0, 1}, 1, 4, 0},
		{"another rack", true, 3, [3]int{1, 0, 0}, 0, 0, 0},
		{"another rack, to keep slots busy", false, 3, [3]int{1, 0, 0}, 0, 0, 1},
	} {
		w := newRacks(t, 3, [jobs.TaskKinds]int{1, 0})
		s := Scheduler{Order: FIFO{}, Shuffle: watcher()}
		s.Shuffle.Strict = tt.strict
		j := w.shuffled("ann", 1, make([]units.Bytes, 3), policies.StageState{Kind: jobs.Map, Tasks: 4, Pending: tt.pending, Waiting: 1}, reduceStage(0, 1))
		j.Shuffle.Maps[0] = tt.placed
		for i := range 4 {
			racks := []topo.RackID{0, 1}
			if i < tt.remote {
				racks = []topo.RackID{2}
			}
			j.Shuffle.Blocks = append(j.Shuffle.Blocks, policies.PlacedBlock{Size: units.MB, Racks: racks})
		}
		if got := w.beat(s, time.Second, tt.host).Launch; len(got) != tt.want {
			t.Errorf("%s: launches %+v, want %d", tt.name, got, tt.want)
		}
	}
}

// Over delay scheduling, a rack-local map on a rack that SAMP prefers waits for the host of its block while the network
// is not saturated, and gives its turn to other maps. A map that the plan has read from another rack does not wait.
func TestPreferredMapsWait(t *testing.T) {
	for _, tt := range []struct {
		name    string
		share   float64                  // load of the rack
		beats   time.Duration            // the first without other maps is at 1 s
		pending [policies.Localities]int // of the job, at host 0
		other   [policies.Localities]int // of another job of the user
		want    []policies.Launch
	}{
		{"waits", 0, 2 * time.Second, [3]int{0, 1, 0}, [3]int{}, nil},
		{"has waited", 0, 9 * time.Second, [3]int{0, 1, 0}, [3]int{}, []policies.Launch{{Locality: policies.RackLocal}}},
		{"gives its turn to a local map", 0, 2 * time.Second, [3]int{0, 1, 0}, [3]int{1, 0, 0}, []policies.Launch{{Job: 1}}},
		{"saturated", 1, 2 * time.Second, [3]int{0, 1, 0}, [3]int{1, 0, 0}, []policies.Launch{{Locality: policies.RackLocal}}},
		{"planned", 0, 2 * time.Second, [3]int{0, 0, 1}, [3]int{}, []policies.Launch{{Locality: policies.OffRack}}},
	} {
		w := newRacks(t, 3, [jobs.TaskKinds]int{1, 0})
		s := Scheduler{Order: FIFO{}, Shuffle: watcher(), Delay: Delay{Waiting: ByTime, T1: 5 * time.Second, T2: 5 * time.Second}}
		for i, pending := range [][policies.Localities]int{tt.pending, tt.other} {
			j := w.shuffled("ann", 1, make([]units.Bytes, 3), policies.StageState{Kind: jobs.Map, Tasks: 4, Pending: pending, Waiting: pending[0] + pending[1] + pending[2]}, reduceStage(0, 1))
			// Two of four blocks are in rack 2, and the plan has all maps in rack 0. The other job's are elsewhere.
			for b := range 4 {
				rack := topo.RackID(0)
				if b == 0 && pending[policies.OffRack] > 0 || i == 1 {
					rack = 2
				}
				j.Shuffle.Blocks = append(j.Shuffle.Blocks, policies.PlacedBlock{Size: units.MB, Racks: []topo.RackID{rack}})
			}
		}
		w.beat(s, time.Second, 0)
		w.load(0, tt.share, tt.beats)
		if got := w.beat(s, tt.beats, 0).Launch; !slices.Equal(got, tt.want) {
			t.Errorf("%s: launches %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// Reduces wait for racks that SARP prefers only if Strict.
func TestStrictReduces(t *testing.T) {
	for strict, want := range map[bool]int{false: 1, true: 0} {
		w := newRacks(t, 2, [jobs.TaskKinds]int{0, 1})
		s := Scheduler{Order: FIFO{}, Shuffle: watcher()}
		s.Shuffle.Strict = strict
		w.shuffled("ann", 1, []units.Bytes{0, units.GB}, policies.StageState{Kind: jobs.Map, Tasks: 1, Done: 1}, reduceStage(0, 1))
		if got := w.beat(s, time.Second, 0).Launch; len(got) != want {
			t.Errorf("strict %v: launches %+v, want %d", strict, got, want)
		}
	}
}
