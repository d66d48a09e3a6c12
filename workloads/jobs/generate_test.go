package jobs

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/units"
	"testbed/workloads"
)

func mapsOf(j *Job) int { return len(j.Stages[0].Tasks) }

func reducesOf(j *Job) int {
	if len(j.Stages) == 1 {
		return 0
	}
	return len(j.Stages[1].Tasks)
}

// seconds returns the time that the first task of a stage consumes its input in.
func seconds(t *testing.T, j *Job, stage int) float64 {
	t.Helper()
	task := j.Stages[stage].Tasks[0]
	in := task.InputSize
	if len(j.Stages[stage].From) > 0 {
		in = j.Fetched(stage)[0]
	}
	return task.Rate.TimeToSend(in).Seconds()
}

// The FAIR report's table of the benchmark, and those at an eighth and a sixteenth of the slots.
func TestBMTable(t *testing.T) {
	for _, tt := range []struct {
		tasks workloads.Factor
		maps  []int
		total int
	}{
		{workloads.Factor{Num: 1, Den: 1}, []int{16, 40, 80, 160, 320, 600, 1200, 2400, 6400}, 13_784},
		{workloads.Factor{Num: 1, Den: 8}, []int{2, 5, 10, 20, 40, 75, 150, 300, 800}, 1723},
		{workloads.Factor{Num: 1, Den: 16}, []int{1, 3, 5, 10, 20, 38, 75, 150, 400}, 865}, // 2.5 and 37.5 are rounded up
	} {
		g := DefaultBM()
		g.Tasks = tt.tasks
		list, err := g.Generate(1)
		if err != nil {
			t.Fatal(err)
		}
		jobs, total := map[int]int{}, 0
		for i := range list {
			j := &list[i]
			jobs[mapsOf(j)]++
			total += mapsOf(j)
			if bin := slices.Index(tt.maps, mapsOf(j)); j.Profile != fmt.Sprintf("bm%d", bin) {
				t.Errorf("job %d of %d maps has the profile %s", j.ID, mapsOf(j), j.Profile)
			}
		}
		want := map[int]int{}
		for bin, n := range []int{29, 5, 4, 4, 3, 2, 1, 1, 1} {
			want[tt.maps[bin]] = n
		}
		if !reflect.DeepEqual(jobs, want) || total != tt.total {
			t.Errorf("tasks %v: jobs by maps %v, %d maps; want %v, %d", tt.tasks, jobs, total, want, tt.total)
		}
	}
}

// What the report states in ranges: maps of 9–60 s, reduces 5–25 % of maps, random shares kept,
// and a mean gap of 30 s.
func TestBMRanges(t *testing.T) {
	var gaps, took, share, kept, keptAgain []float64
	for seed := range uint64(20) {
		list, err := DefaultBM().Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		gaps = append(gaps, list[len(list)-1].Submit.Seconds()/float64(len(list)))
		for i := range list {
			j := &list[i]
			took = append(took, seconds(t, j, 0))
			if mapsOf(j) >= 1000 { // where rounding is small
				share = append(share, float64(reducesOf(j))/float64(mapsOf(j)))
			}
			total, _ := j.total()
			kept = append(kept, float64(total.Shuffled)/float64(total.Input))
			keptAgain = append(keptAgain, float64(total.Written)/float64(total.Shuffled))
		}
	}
	within := func(what string, values []float64, least, most, mean, by float64) {
		t.Helper()
		var q workloads.QuantileStat
		q.Fill(values)
		if q.Min < least || q.Max > most || math.Abs(q.Mean-mean) > by {
			t.Errorf("%s: %v to %v, mean %v: want %v to %v, mean %v", what, q.Min, q.Max, q.Mean, least, most, mean)
		}
	}
	within("gap", gaps, 10, 60, 30, 3)                   // 20 means of 50: ± 0.95
	within("map time", took, 8.999, 60.001, 34.5, 2)     // 1000 uniform: ± 0.47
	within("reduces", share, 0.0499, 0.2501, 0.15, 0.03) // 60 uniform: ± 0.007
	within("kept by maps", kept, 0, 1, 0.5, 0.05)
	within("kept by reduces", keptAgain, 0, 1, 0.5, 0.05)
}

// The simulation of the FAIR report: 30 jobs of 1 to 400 maps with a mean of 400 / H(400) = 60.9,
// and 1 to a fifth as many reduces; maps of 10 s and reduces of 20 s.
func TestSimulation(t *testing.T) {
	var maps, ones float64
	const seeds = 100
	for seed := range uint64(seeds) {
		list, err := DefaultSimulation().Generate(seed)
		if err != nil || len(list) != 30 {
			t.Fatalf("%d jobs, %v", len(list), err)
		}
		for i := range list {
			j := &list[i]
			maps += float64(mapsOf(j))
			if mapsOf(j) == 1 {
				ones++
			}
			if m, r := mapsOf(j), reducesOf(j); m < 1 || m > 400 || r < 1 || r > max(1, m/5) || j.Submit != 0 {
				t.Errorf("seed %d, job %d: %d maps, %d reduces, submitted at %v", seed, j.ID, m, r, j.Submit)
			}
			if m, r := seconds(t, j, 0), seconds(t, j, 1); math.Abs(m-10) > 1e-3 || math.Abs(r-20) > 1e-3 {
				t.Errorf("seed %d, job %d: maps of %v s, reduces of %v s", seed, j.ID, m, r)
			}
		}
	}
	if mean := maps / seeds / 30; math.Abs(mean-60.9) > 6 { // ± 1.7
		t.Errorf("%v maps a job, want 60.9", mean)
	}
	if share := ones / seeds / 30; math.Abs(share-0.152) > 0.03 { // 1 / H(400), ± 0.007
		t.Errorf("%v of jobs have one map, want 0.152", share)
	}
}

func TestMix(t *testing.T) {
	g := DefaultMix()
	g.Jobs, g.Gap = 4000, time.Second
	g.Profiles[0].Weight = 2
	g.Profiles[2].Maps = [2]int{7, 7}
	list, err := g.Generate(3)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for i := range list {
		j := &list[i]
		count[j.Profile]++
		total, _ := j.total()
		m, r := mapsOf(j), reducesOf(j)
		input := int64(m) * int64(DefaultBlock)
		want := Total{Maps: m, Reduces: r, Input: input}
		switch j.Profile {
		case "scan":
			want.Written = input / 200
			if r != 0 {
				t.Errorf("job %d: a scan has %d reduces", j.ID, r)
			}
		case "sort":
			want.Shuffled, want.Written = input, input
			if r != max(1, (m+2)/4) { // a quarter, rounded to the nearest
				t.Errorf("job %d: %d reduces of %d maps", j.ID, r, m)
			}
		case "aggregate":
			want.Shuffled, want.Written = input/10, input/100
			if m != 7 || r != 1 {
				t.Errorf("job %d: %d maps, %d reduces, want 7 and 1", j.ID, m, r)
			}
		}
		if total.MapSeconds, total.ReduceSeconds = 0, 0; total != want {
			t.Errorf("job %d, %s: %+v, want %+v", j.ID, j.Profile, total, want)
		}
	}
	for name, want := range map[string]int{"scan": 2000, "sort": 1000, "aggregate": 1000} {
		if d := count[name] - want; d < -160 || d > 160 { // ± 32 at most
			t.Errorf("%d jobs of profile %s, want about %d", count[name], name, want)
		}
	}
	if last := list[len(list)-1].Submit.Seconds(); math.Abs(last-4000) > 320 { // ± 63
		t.Errorf("the last job is submitted at %v s, want about 4000", last)
	}
}

// A spread changes the times of tasks alone, by a uniform factor that has the task's own draw.
func TestMixSpread(t *testing.T) {
	g := DefaultMix()
	g.Profiles = g.Profiles[1:2] // sort
	plain, err := g.Generate(5)
	if err != nil {
		t.Fatal(err)
	}
	g.Spread = 0.5
	list, err := g.Generate(5)
	if err != nil {
		t.Fatal(err)
	}
	var n, sum, squares float64
	for i := range list {
		for s := range list[i].Stages {
			for k := range list[i].Stages[s].Tasks {
				task := &list[i].Stages[s].Tasks[k]
				factor := float64(DefaultMapRate) / float64(task.Rate)
				if factor < 0.5 || factor > 1.5 {
					t.Fatalf("task %d.%d of job %d takes %v times as long", s, k, i+1, factor)
				}
				n, sum, squares = n+1, sum+factor, squares+factor*factor
				task.Rate = DefaultMapRate
			}
		}
	}
	// A uniform factor from 0.5 to 1.5 has the variance 1/12.
	if mean, variance := sum/n, squares/n-sum*sum/n/n; math.Abs(mean-1) > 0.04 || math.Abs(variance-1./12) > 0.015 {
		t.Errorf("%v tasks take %v times as long on average, with a variance of %v: want 1 and 1/12", n, mean, variance)
	}
	if !reflect.DeepEqual(list, plain) {
		t.Error("the spread changes more than times")
	}
}

// Workers have their jobs in turn, each after the one before, and are their users. The programs do not depend
// on them.
func TestMixWorkers(t *testing.T) {
	g := DefaultMix()
	g.Jobs, g.Gap = 20, 5*time.Second
	open, err := g.Generate(5)
	if err != nil {
		t.Fatal(err)
	}
	g.Workers = 3
	list, err := g.Generate(5)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(list, Limits{}); err != nil {
		t.Fatal(err)
	}
	jobs, newest := map[string]int{}, map[string]JobID{}
	for i := range list {
		j := &list[i]
		if j.After != newest[j.User] {
			t.Errorf("job %d of %s follows job %d, want %d", j.ID, j.User, j.After, newest[j.User])
		}
		var worker int
		if _, err := fmt.Sscanf(j.User, "u%d", &worker); err != nil {
			t.Fatal(err)
		}
		before := time.Duration(0)
		if j.After > 0 {
			before = list[j.After-1].Submit
		}
		number := jobs[j.User]*g.Workers + worker // in the order of draws
		if was := &open[number-1]; mapsOf(j) != mapsOf(was) || j.Profile != was.Profile || j.Submit-before != exponential(5, number, g.Gap) {
			t.Errorf("job %d of worker %d: %d maps of %s, %v after the one before; without workers %d of %s", jobs[j.User]+1, worker, mapsOf(j), j.Profile, j.Submit-before, mapsOf(was), was.Profile)
		}
		jobs[j.User]++
		newest[j.User] = j.ID
	}
	if want := map[string]int{"u1": 7, "u2": 7, "u3": 6}; !reflect.DeepEqual(jobs, want) {
		t.Errorf("jobs by worker %v, want %v", jobs, want)
	}
}

// A setting changes only what it describes: submissions, profiles and maps do not depend on the
// others, and a longer workload begins with the shorter one.
func TestGeneratorsDrawByPurpose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		g := DefaultMix()
		g.Jobs = rapid.IntRange(1, 20).Draw(t, "jobs")
		a, err := g.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		again, err := g.Generate(seed)
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("the same seed gives other jobs: %v", err)
		}
		h := g
		h.Jobs += rapid.IntRange(0, 5).Draw(t, "more")
		longer, err := h.Generate(seed)
		if err != nil || !reflect.DeepEqual(a, longer[:len(a)]) {
			t.Fatalf("%d jobs of %d differ from %d: %v", len(a), h.Jobs, g.Jobs, err)
		}
		h = g
		h.Users.Count, h.PartitionSkew, h.Block = 7, 1.5, 64*units.MB
		b, err := h.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if a[i].Submit != b[i].Submit || a[i].Profile != b[i].Profile || mapsOf(&a[i]) != mapsOf(&b[i]) {
				t.Errorf("job %d: %+v, with other users, skew and block %+v", i+1, a[i], b[i])
			}
		}
		one, two := DefaultBM(), DefaultBM()
		one.Tasks, two.Tasks = workloads.Factor{Num: 1, Den: 16}, workloads.Factor{Num: 1, Den: 16}
		two.KeepMap, two.MapTime, two.Users.Count = [2]float64{0, 0}, [2]time.Duration{time.Second, time.Second}, 3
		x, err1 := one.Generate(seed)
		y, err2 := two.Generate(seed)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for i := range x {
			if x[i].Submit != y[i].Submit || mapsOf(&x[i]) != mapsOf(&y[i]) || reducesOf(&x[i]) != reducesOf(&y[i]) {
				t.Errorf("job %d differs in submission, maps or reduces", i+1)
			}
		}
	})
}

func TestGeneratorErrors(t *testing.T) {
	bm, mix, sim := DefaultBM(), DefaultMix(), DefaultSimulation()
	bm.Tasks, bm.Gap, bm.Block, bm.MapTime, bm.Reduces, bm.KeepMap, bm.KeepReduce, bm.SortRate = workloads.Factor{}, -1, 0, [2]time.Duration{5, 4}, [2]float64{0.5, 0.4}, [2]float64{math.NaN(), 1}, [2]float64{0, math.Inf(1)}, -1
	mix.Jobs, mix.Workers, mix.Spread, mix.Profiles = 0, -1, 1, []Profile{{Name: "a b", Weight: -1, Maps: [2]int{2, 1}, Reduces: 2}, {Name: "ok", Maps: [2]int{1, 1}}}
	sim.MaxMaps, sim.Exponent, sim.MapTime = 0, -1, 0
	large := DefaultBM()
	large.Block, large.Tasks = 1, workloads.Factor{Num: 1e12, Den: 1}
	keep := DefaultMix()
	keep.Block, keep.Profiles[0].KeepMap = maxSize, 1000
	for _, tt := range []struct {
		name     string
		generate func(uint64) ([]Job, error)
		want     []string
	}{
		{"bm", bm.Generate, []string{"tasks 0/0", "mean gap -1ns", "block 0B", "map time 5ns to 4ns", "reduces 0.5 to 0.4", "share that maps keep NaN", "share that reduces keep 0 to +Inf", "sort rate -1bps"}},
		{"mix", mix.Generate, []string{"0 jobs", "-1 workers", "spread 1: ", `profile "a b": name`, `profile "a b": weight -1`, `profile "a b": 2 to 1 maps`, `profile "a b": reduces 2`, "all weights are 0"}},
		{"simulation", sim.Generate, []string{"at most 0 maps", "exponent -1", "map time 0s"}},
		{"tasks", large.Generate, []string{"bm: "}},
		{"sizes", keep.Generate, []string{"mix: "}},
	} {
		_, err := tt.generate(1)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", tt.name, err, want)
			}
		}
	}
}
