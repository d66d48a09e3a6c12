package jobs

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// The report's shares of programs and sizes, within about three standard deviations, and what each class keeps.
func TestBenchmarks(t *testing.T) {
	g := DefaultBenchmarks()
	g.Jobs, g.Sizes = 4000, []Size{{20, [2]int{1, 1}}, {19, [2]int{2, 8}}, {61, [2]int{9, 16}}}
	list, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	programs, sizes := map[string]int{}, map[string]int{}
	keep := map[string]float64{"terasort": 1, "self-join": 1, "term-vector": 0.55, "grep": 0.1}
	for i := range list {
		j := &list[i]
		programs[j.Profile]++
		switch n := mapsOf(j); {
		case n == 1:
			sizes["1"]++
		case n <= 8:
			sizes["2-8"]++
		case n <= 16:
			sizes["9-16"]++
		default:
			t.Fatalf("job %d has %d maps", j.ID, n)
		}
		if want, ok := keep[j.Profile]; ok {
			var fetched float64
			for _, b := range j.Fetched(1) {
				fetched += float64(b)
			}
			if input := float64(mapsOf(j)) * float64(g.Block); math.Abs(fetched/input-want) > 0.001 {
				t.Errorf("job %d of %s shuffles %v of its input, want %v", j.ID, j.Profile, fetched/input, want)
			}
		}
		if got := reducesOf(j); got != max(1, int(math.Round(0.1*float64(mapsOf(j))))) {
			t.Errorf("job %d with %d maps has %d reduces", j.ID, mapsOf(j), got)
		}
	}
	near := func(what string, got, percent int) {
		want := float64(g.Jobs*percent) / 100
		if math.Abs(float64(got)-want) > 3.5*math.Sqrt(want) {
			t.Errorf("%s: %d of %d jobs, want about %v", what, got, g.Jobs, want)
		}
	}
	all := 0
	for _, b := range benchmarks {
		near(b.name, programs[b.name], b.weight)
		all += b.weight
	}
	if all != 100 || len(programs) != len(benchmarks) {
		t.Errorf("%d programs with %d %% of the jobs, want %d with 100", len(programs), all, len(benchmarks))
	}
	near("1 map", sizes["1"], 20)
	near("2 to 8", sizes["2-8"], 19)
	near("9 to 16", sizes["9-16"], 61)
}

// A mix changes the shares of the classes and keeps those of programs within a class.
func TestBenchmarkProfiles(t *testing.T) {
	profiles, err := BenchmarkProfiles(ClassMix{Heavy: 20, Medium: 0, Light: 60})
	if err != nil {
		t.Fatal(err)
	}
	total, class, weight := 0, map[float64]int{}, map[string]int{}
	for _, p := range profiles {
		total, class[p.KeepMap], weight[p.Name] = total+p.Weight, class[p.KeepMap]+p.Weight, p.Weight
	}
	if want := map[float64]int{heavySIR: total / 4, mediumSIR: 0, lightSIR: total / 4 * 3}; !reflect.DeepEqual(class, want) {
		t.Errorf("weights by class: %v of %d, want %v", class, total, want)
	}
	if weight["self-join"] != 2*weight["terasort"] || weight["grep"] != 3*weight["classification"] {
		t.Errorf("weights %v: want those of the report within each class", weight)
	}
}

func TestBenchmarkErrors(t *testing.T) {
	for want, mix := range map[string]ClassMix{
		"mix: heavy -1: must be 0 to 1000":                                   {Heavy: -1, Light: 1},
		"mix: medium 1001: must be 0 to 1000":                                {Medium: 1001},
		"mix: all shares are 0: expected one above it":                       {},
		"mix: heavy -1: must be 0 to 1000\nmix: light -2: must be 0 to 1000": {Heavy: -1, Light: -2},
	} {
		if _, err := BenchmarkProfiles(mix); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", mix, err, want)
		}
	}
	for want, sizes := range map[string][]Size{
		"size 1: weight -1":                {{-1, [2]int{1, 2}}, {1, [2]int{1, 2}}},
		"size 2: 3 to 2 maps":              {{1, [2]int{1, 2}}, {1, [2]int{3, 2}}},
		"size 1: 0 to 2 maps":              {{1, [2]int{0, 2}}},
		"all weights of sizes are 0":       {{0, [2]int{1, 2}}},
		"1001 sizes: must be at most 1000": make([]Size, 1001),
	} {
		g := DefaultBenchmarks()
		g.Sizes = sizes
		if _, err := g.Generate(1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
