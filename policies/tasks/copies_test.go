package tasks

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

func TestSource(t *testing.T) {
	readers := func(n ...int) (out []policies.OutputCopy) {
		for _, r := range n {
			out = append(out, policies.OutputCopy{Readers: r})
		}
		return out
	}
	const before, after = 5 * time.Second, 10 * time.Second // Until is 10 s
	for _, tt := range []struct {
		name          string
		now           time.Duration
		rank, running int
		copies        []policies.OutputCopy
		first, excl   int
		delay         int
	}{
		{"free copy", before, 0, 1, readers(0), 0, 0, 0},
		{"taken copy", before, 0, 1, readers(1), 0, 0, -1},
		{"second without a copy of its own", before, 1, 1, readers(1), 0, -1, -1},
		{"second free", before, 1, 1, readers(1, 0), 0, 1, 1},
		{"first is free again", before, 1, 1, readers(0), 0, -1, 0},
		{"lowest free", before, 0, 0, readers(2, 0, 0), 0, 0, 1},
		{"waits for a reader", before, 1, 0, readers(1), 0, 0, -1},
		{"wait is over", after, 2, 0, readers(2, 1), 0, 1, 1},
		{"wait is over, equal readers", after, 2, 0, readers(1, 1), 0, 0, 0},
		{"wait is over, a copy is still made", after, 2, 1, readers(1, 2), 0, -1, 0},
	} {
		for reads, want := range []int{tt.first, tt.excl, tt.delay} {
			s := Scheduler{Cloning: Cloning{On: true, Reads: Reads(reads)}}
			c := policies.CopyChoice{Now: tt.now, Until: after, Rank: tt.rank, Fetchers: 3, Copies: tt.copies, Running: tt.running}
			if got := s.New().(policies.Fetcher).Source(&c); got != want {
				t.Errorf("%s, reads %d: copy %d, want %d", tt.name, reads, got, want)
			}
		}
	}
}

// The contract holds for all kinds of reads.
func TestSourceContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		choice := func(name string) policies.CopyChoice {
			c := policies.CopyChoice{Rank: rapid.IntRange(0, 4).Draw(t, name+" rank"), Running: rapid.IntRange(0, 2).Draw(t, name+" running"), Now: time.Duration(rapid.IntRange(0, 2).Draw(t, name+" now")), Until: 1}
			for range rapid.IntRange(1, 4).Draw(t, name+" copies") {
				c.Copies = append(c.Copies, policies.OutputCopy{Readers: rapid.IntRange(0, 2).Draw(t, name+" readers")})
			}
			return c
		}
		s := Scheduler{Order: FIFO{}, Cloning: Cloning{On: true, Reads: Reads(rapid.IntRange(0, 2).Draw(t, "reads"))}}
		if err := policytest.CheckSource(s, choice("one"), choice("other")); err != nil {
			t.Fatal(err)
		}
	})
}

// keeping returns a world in which maps of a job of 4 are cloned, and reduces may be, and the scheduler.
func keeping(t *testing.T, reads Reads, reduces int) (*world, Scheduler) {
	s := dolly()
	s.Cloning.Budget, s.Cloning.Utilization, s.Cloning.Reads, s.Cloning.Wait = 0.5, 1, reads, SameWaits(7*time.Second)
	w := newWorld(t, 2, [jobs.TaskKinds]int{4, 4})
	w.add("a", mapStage(0, 4), reduceStage(0, reduces))
	w.Slots[0].Used[jobs.Reduce] = 4 // no reduce is launched
	w.beat(s, 0, 0)
	return w, s
}

// Attempts continue while copies of their output may be of use.
func TestKeep(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reads  Reads
		change func(w *world, s *Scheduler)
		stage  int
		want   time.Duration
	}{
		{"first copy", FirstCopy, func(*world, *Scheduler) {}, 0, 0},
		{"delayed", DelayedCopy, func(*world, *Scheduler) {}, 0, 7 * time.Second},
		{"exclusive", ExclusiveCopy, func(*world, *Scheduler) {}, 0, unlimitedWait},
		{"last stage", DelayedCopy, func(*world, *Scheduler) {}, 1, 0},
		{"off", DelayedCopy, func(_ *world, s *Scheduler) { s.Cloning.On = false }, 0, 0},
		{"unknown job", DelayedCopy, func(w *world, _ *Scheduler) { w.Jobs[0].ID = 9 }, 0, 0},
		{"unknown stage", DelayedCopy, func(*world, *Scheduler) {}, 5, 0},
		{"nothing remembered", DelayedCopy, func(w *world, _ *Scheduler) { w.x = nil }, 0, 0},
		{"reduces are cloned", DelayedCopy, func(w *world, s *Scheduler) { w.Slots[0].Used = [2]int{4, 0}; w.beat(*s, 1, 0) }, 0, 7 * time.Second},
		{"reduces are not cloned", DelayedCopy, func(w *world, s *Scheduler) {
			p := *s
			p.Cloning.Budget = 0
			w.Slots[0].Used = [2]int{4, 0}
			w.beat(p, 1, 0)
		}, 0, 0},
		{"wait of its class", DelayedCopy, func(_ *world, s *Scheduler) { s.Cloning.Wait[0] = 5 * time.Second }, 0, 5 * time.Second},
		{"wait of another class", DelayedCopy, func(_ *world, s *Scheduler) { s.Cloning.Wait[1] = 5 * time.Second }, 0, 7 * time.Second},
		{"other jobs before", DelayedCopy, func(w *world, s *Scheduler) {
			w.add("b", mapStage(0, 1), reduceStage(0, 1), reduceStage(0, 1))
			w.Jobs[0], w.Jobs[1] = w.Jobs[1], w.Jobs[0]
			w.beat(*s, 1, 1)
			w.Jobs[0] = w.Jobs[1]
		}, 0, 7 * time.Second},
		{"maps are not cloned", DelayedCopy, func(w *world, s *Scheduler) {
			p := *s
			p.Cloning.Budget, w.x = 0, nil
			w.beat(p, 1, 0)
		}, 0, 0},
	} {
		w, s := keeping(t, tt.reads, 2)
		tt.change(w, &s)
		if got := w.with(s).Keep(&w.TaskView, &w.Jobs[0], tt.stage); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// ω is learned when the copies of a stage that fetches are decided, from enough samples, and not again within 10 s.
func TestLearnedWait(t *testing.T) {
	// Lags of 0.5 s, reads of 2 s, of which each of two readers gets half the rate, and 10 s of computing: the second copy
	// of an output comes soon enough, so that ω is the least that includes it.
	history := func(samples int, lag time.Duration) *policies.History {
		h := &policies.History{}
		h.Copies[0] = policies.CopyHistory{Lags: slices.Repeat([]time.Duration{lag}, samples), Computing: slices.Repeat([]time.Duration{10 * time.Second, 80 * time.Second}, samples),
			Alone: policies.Fetched{Count: samples, Size: 100, Busy: time.Duration(samples) * 2 * time.Second}, Shared: policies.Fetched{Count: samples, Size: 100, Busy: time.Duration(samples) * 4 * time.Second}}
		return h
	}
	reduce := func(w *world, s Scheduler, at time.Duration) time.Duration {
		w.Slots[0].Used = [2]int{4, 0}
		w.Jobs[0].Stages[0].Durations = []time.Duration{time.Second, 3 * time.Second, 2 * time.Second}
		w.beat(s, at, 0)
		return w.x.Keep(&w.TaskView, &w.Jobs[0], 0)
	}
	w, s := keeping(t, DelayedCopy, 2)
	s.Cloning.Learn = LearnedEstimates
	w.History = history(19, 500*time.Millisecond)
	if got := reduce(w, s, 1); got != 7*time.Second {
		t.Errorf("ω %v of 19 samples, want the given 7 s", got)
	}
	w, s = keeping(t, DelayedCopy, 2)
	s.Cloning.Learn = LearnedEstimates
	w.History = history(20, 500*time.Millisecond)
	if got := reduce(w, s, time.Second); got != 500*time.Millisecond {
		t.Errorf("ω %v, want 0.5 s, a step of the grid up to 6 s", got)
	}
	again := func(at time.Duration) time.Duration {
		w.History = history(20, 200*time.Millisecond)
		w.Jobs[0].Stages[0] = mapStage(4, 0)
		w.add("b", mapStage(0, 4), reduceStage(0, 2)).ID = jobs.JobID(at)
		j := len(w.Jobs) - 1
		w.Slots[0].Used = [2]int{0, 4}
		w.beat(s, at, 0)
		w.Jobs[0], w.Jobs = w.Jobs[j], w.Jobs[:1]
		return reduce(w, s, at)
	}
	if got := again(10 * time.Second); got != 500*time.Millisecond {
		t.Errorf("ω %v after 9 s, want the one before", got)
	}
	w.Jobs[0].Stages[1] = reduceStage(2, 0)
	w.Jobs[0].Stages[1].Outputs = 4
	if got := again(12 * time.Second); got != 200*time.Millisecond {
		t.Errorf("ω %v after 11 s, want 0.2 s", got)
	}
}

// With ByFlows, the rates are those of fetches with as many flows as the stage will have. For α = 0.5 and no second copy, the
// best ω is the time of a read: 2 s on an idle link, and 4 s for two flows, each of which gets half of it.
func TestWaitByFlows(t *testing.T) {
	one, two := policies.FlowLevel(1), policies.FlowLevel(2)
	for _, tt := range []struct {
		name     string
		byFlows  bool
		levels   []int // with fetches
		tasks    int   // of two maps
		underWay int   // fetches of each host
		want     time.Duration
	}{
		{"all", false, []int{one, two}, 1, 0, 3 * time.Second},
		{"one map each", true, []int{one, two}, 2, 0, 2 * time.Second},
		{"two readers of an output", true, []int{one, two}, 4, 0, 4 * time.Second},
		{"another flow of each host", true, []int{one, two}, 2, 1, 4 * time.Second},
		{"nearest number of flows", true, []int{one}, 4, 0, 2 * time.Second},
		{"no flows observed", true, nil, 2, 0, 3 * time.Second},
	} {
		s := dolly()
		s.Cloning.Budget, s.Cloning.Utilization, s.Cloning.Reads, s.Cloning.Wait = 0.9, 1, DelayedCopy, SameWaits(7*time.Second)
		s.Cloning.Learn, s.Cloning.ByFlows = LearnedEstimates, tt.byFlows
		w := newWorld(t, 3, [jobs.TaskKinds]int{4, 4})
		h := &policies.History{Fetches: tt.underWay * len(w.Slots)}
		c := &h.Copies[0]
		c.Lags = slices.Repeat([]time.Duration{-1}, enough)
		c.Computing = slices.Repeat([]time.Duration{10 * time.Second, 80 * time.Second}, enough)
		read := func(level int, took time.Duration) {
			for range enough {
				c.Alone.Add(100, took)
				c.Shared.Add(100, 2*took)
				if slices.Contains(tt.levels, level) {
					c.ByFlows[level].Alone.Add(100, took)
					c.ByFlows[level].Shared.Add(100, 2*took)
				}
			}
		}
		read(one, 2*time.Second)
		read(two, 4*time.Second)
		w.History = h
		w.add("a", mapStage(0, 2), reduceStage(0, tt.tasks))
		w.Jobs[0].Stages[1].Outputs = 1
		w.Slots[0].Used[jobs.Reduce] = 4
		w.beat(s, 0, 0)
		w.Jobs[0].Stages[0].Durations = []time.Duration{2 * time.Second, 2 * time.Second}
		w.Slots[0].Used = [2]int{4, 0}
		w.beat(s, 1, 0)
		if got := w.x.Keep(&w.TaskView, &w.Jobs[0], 0); got != tt.want {
			t.Errorf("%s: ω %v, want %v", tt.name, got, tt.want)
		}
	}
}

// By the hour, p is the share of the attempts judged in the last hour that straggled; an hour with few of them counts with the
// next one.
func TestHourlyEstimates(t *testing.T) {
	s := dolly()
	s.Cloning.Learn, s.Cloning.LearnEvery = PeriodicEstimates, time.Hour
	w := newWorld(t, 2, [jobs.TaskKinds]int{4, 1})
	w.History = &policies.History{}
	w.add("a", mapStage(0, 2))
	for _, tt := range []struct {
		at                time.Duration
		judged, straggled int // since the start
		want              float64
	}{
		{0, 0, 0, 0.1},
		{50 * time.Minute, 200, 60, 0.1},
		{time.Hour, 400, 80, 0.2},
		{119 * time.Minute, 500, 80, 0.2},
		{2 * time.Hour, 500, 90, 0.1},
		{3 * time.Hour, 599, 189, 0.1}, // 99 attempts are too few
		{4 * time.Hour, 700, 150, 0.3},
	} {
		w.History.Judged, w.History.Straggled = tt.judged, tt.straggled
		w.beat(s, tt.at, 0)
		if e, ok := w.x.Estimates(&w.TaskView); !ok || math.Abs(e.Straggle-tt.want) > 1e-12 {
			t.Errorf("after %v: p %v, want %v", tt.at, e.Straggle, tt.want)
		}
	}
}

// By the hour, ω has one estimate in each hour.
func TestHourlyWait(t *testing.T) {
	w, s := keeping(t, DelayedCopy, 2)
	s.Cloning.Learn, s.Cloning.LearnEvery = PeriodicEstimates, time.Hour
	x := Cloning{Learn: s.Cloning.Learn, LearnEvery: s.Cloning.LearnEvery}
	c := &cloning{Cloning: x, d: &decision{v: &w.TaskView}}
	for at, want := range map[time.Duration]bool{59 * time.Minute: true, time.Hour: false, 61 * time.Minute: false} {
		if w.Now = at; c.recent(10*time.Minute) != want {
			t.Errorf("ω of minute 10 is recent after %v: %v, want %v", at, !want, want)
		}
	}
}

// Estimates are those by which the next decision is made: ω of a class once it is learned, and rates of enough fetches.
func TestEstimates(t *testing.T) {
	w, s := keeping(t, DelayedCopy, 2)
	if _, ok := w.with(s).Estimates(&w.TaskView); ok {
		t.Error("estimates although nothing is learned")
	}
	s.Cloning.Learn = LearnedEstimates
	w.History = &policies.History{Judged: 100, Straggled: 30}
	for class, n := range []int{20, 19} {
		w.History.Copies[class] = policies.CopyHistory{Lags: slices.Repeat([]time.Duration{500 * time.Millisecond}, n), Computing: slices.Repeat([]time.Duration{10 * time.Second}, n),
			Alone: policies.Fetched{Count: n, Size: 1000, Busy: 2 * time.Second}, Shared: policies.Fetched{Count: n, Size: 1000, Busy: 4 * time.Second}}
	}
	want := policies.Estimates{Straggle: s.Cloning.Learned(30, 100)}
	for class := range want.Copies {
		want.Copies[class].Wait = 7 * time.Second
	}
	want.Copies[0].Alone, want.Copies[0].Shared = 4*units.Kbps, 2*units.Kbps
	if got, ok := w.with(s).Estimates(&w.TaskView); !ok || got != want {
		t.Errorf("before ω is learned: %+v, want %+v", got, want)
	}
	w.Slots[0].Used = [2]int{4, 0}
	w.Jobs[0].Stages[0].Durations = []time.Duration{2 * time.Second}
	w.beat(s, time.Second, 0)
	want.Copies[0].Wait = w.x.Keep(&w.TaskView, &w.Jobs[0], 0)
	if got, _ := w.x.Estimates(&w.TaskView); got != want || want.Copies[0].Wait == 7*time.Second {
		t.Errorf("after: %+v, want %+v, with another ω than the given one", got, want)
	}
}

// Copies of tasks follow the stragglers that are observed.
func TestLearnedStragglers(t *testing.T) {
	for _, tt := range []struct{ straggled, judged, want int }{{0, 0, 2}, {0, 900, 1}, {300, 900, 4}} {
		s := dolly()
		s.Cloning.Learn, s.Cloning.Budget, s.Cloning.Utilization = LearnedEstimates, 1, 1
		w := newWorld(t, 2, [jobs.TaskKinds]int{4, 1})
		w.History = &policies.History{Straggled: tt.straggled, Judged: tt.judged}
		w.add("a", mapStage(0, 2))
		w.beat(s, 0, 0)
		w.Jobs[0].Stages[0] = mapStage(2, 0)
		attempt := policies.AttemptState{ID: jobs.AttemptID{Task: jobs.TaskID{Job: 1}}}
		w.Jobs[0].Running = []policies.AttemptState{attempt}
		copies := 1
		for h := 1; h < 6 && len(w.beat(s, time.Duration(h), topo.HostID(h)).Backup) > 0; h++ {
			copies++
			attempt.ID.N, attempt.Host = h, topo.HostID(h)
			w.Jobs[0].Running = append(w.Jobs[0].Running, attempt)
		}
		if copies != tt.want {
			t.Errorf("%d of %d straggled: %d copies, want %d", tt.straggled, tt.judged, copies, tt.want)
		}
	}
}
