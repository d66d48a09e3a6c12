package metrics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"testbed/emu/longtest"
	"testbed/results/flows"
)

const ms = time.Millisecond

func items(repeat int, times ...time.Duration) []Item {
	var out []Item
	for i, d := range times {
		out = append(out, Item{repeat, i, d, i})
	}
	return out
}

func TestRecordsToItems(t *testing.T) {
	r := flows.Records{
		Coflows: []flows.CoflowRecord{{Coflow: 3, Arrival: 10 * ms, End: 25 * ms}},
		Flows:   []flows.FlowRecord{{Coflow: 7, Flow: 4, Arrival: 10 * ms, Start: 12 * ms, End: 20 * ms}},
		Blocks:  []flows.BlockRecord{{Block: 5, Client: "h2-03", Requested: 1 * ms, End: 4 * ms}},
	}
	for _, tt := range []struct {
		name string
		got  []Item
		want Item
	}{
		{"CCTs", CCTs(1, r), Item{1, 3, 15 * ms, 3}},
		{"FCTs", FCTs(2, r), Item{2, 4, 10 * ms, 7}}, // from the coflow's arrival
		{"WriteTimes", WriteTimes(0, r), Item{0, 5, 3 * ms, Writer("h2-03")}},
	} {
		if len(tt.got) != 1 || tt.got[0] != tt.want {
			t.Errorf("%s = %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

// The expected values are those of numpy.percentile.
func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		p    float64
		x    []float64
		want float64
	}{
		{0.5, []float64{7}, 7},
		{0.99, []float64{7}, 7},
		{0.5, []float64{1, 2}, 1.5},
		{0.5, []float64{1, 2, 4}, 2},
		{0.95, []float64{1, 2, 3, 4, 5}, 4.8},
		{0.99, []float64{15, 20, 35, 40, 50}, 49.6},
		{0.40, []float64{15, 20, 35, 40, 50}, 29},
		{0, []float64{3, 9}, 3},
		{1, []float64{3, 9}, 9},
	} {
		if got := Quantile(tt.p, tt.x); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", tt.p, tt.x, got, tt.want)
		}
	}
	if got := Quantile(0.5, nil); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v, want NaN", got)
	}
}

func TestSummarize(t *testing.T) {
	got := Summarize(items(0, 50*ms, 20*ms, 40*ms, 15*ms, 35*ms))
	want := Summary{N: 5, Mean: 32 * ms, P50: 35 * ms, P95: 48 * ms, P99: 49600 * time.Microsecond, Min: 15 * ms, Max: 50 * ms}
	if got != want {
		t.Errorf("Summarize = %+v, want %+v", got, want)
	}
	if got := Summarize(nil); got != (Summary{}) {
		t.Errorf("Summarize of nothing = %+v", got)
	}
}

func TestSpeedup(t *testing.T) {
	base, arm := Summarize(items(0, 30*ms, 50*ms)), Summarize(items(0, 20*ms))
	if got, ok := Speedup(base, arm); !ok || got != 2 {
		t.Errorf("Speedup = %v, %v, want 2, true", got, ok)
	}
	for _, tt := range [][2]Summary{{base, {}}, {{}, base}, {base, {N: 1}}} {
		if got, ok := Speedup(tt[0], tt[1]); ok {
			t.Errorf("Speedup(%v, %v) = %v, true", tt[0], tt[1], got)
		}
	}
}

func TestCv(t *testing.T) {
	// Mean 0.4, standard deviation 0.1633.
	if got := Cv([]float64{0.2, 0.4, 0.6}); math.Abs(got-0.408248) > 1e-6 {
		t.Errorf("Cv = %v, want 0.408248", got)
	}
	if got := Cv([]float64{3, 3, 3}); got != 0 {
		t.Errorf("Cv of equals = %v, want 0", got)
	}
	if Cv(nil) != 0 || Cv([]float64{-1, 1}) != 0 {
		t.Error("Cv without a mean is not 0")
	}
}

func TestSpreadOf(t *testing.T) {
	all := slices.Concat(items(0, 10*ms, 20*ms), items(1, 17*ms), items(2, 19*ms, 19*ms))
	got := SpreadOf(all) // averages 15, 17, 19: mean 17, deviation 2
	want := Spread{Repeats: 3, Min: 15 * ms, Max: 19 * ms, StdDev: 2 * ms, Relative: 2.0 / 17}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("SpreadOf (-want +got):\n%s", diff)
	}
	if got := SpreadOf(items(4, ms)); got != (Spread{Repeats: 1, Min: ms, Max: ms}) {
		t.Errorf("SpreadOf one repeat = %+v", got)
	}
	if got := SpreadOf(nil); got != (Spread{}) {
		t.Errorf("SpreadOf nothing = %+v", got)
	}
}

func TestPair(t *testing.T) {
	base := append(items(0, 10*ms, 20*ms, 80*ms), Item{0, 90, ms, 90}, Item{1, 0, 4 * ms, 0})
	arm := []Item{{0, 2, 10 * ms, 2}, {0, 0, 5 * ms, 0}, {0, 1, 20 * ms, 1}, {0, 91, ms, 91}, {2, 0, ms, 0}}
	got := Pair(base, arm, 1, nil) // ratios 8, 2, 1
	if got.N != 3 || got.Unpaired != 4 {
		t.Errorf("N %d, Unpaired %d, want 3, 4", got.N, got.Unpaired)
	}
	if math.Abs(got.MeanRatio-110.0/35) > 1e-12 || got.Clusters != 3 { // 10+20+80 over 5+20+10
		t.Errorf("MeanRatio %v of %d clusters, want 110/35 of 3", got.MeanRatio, got.Clusters)
	}
	if math.Abs(got.Median-2) > 1e-12 || math.Abs(got.GeoMean-math.Cbrt(16)) > 1e-12 {
		t.Errorf("Median %v, GeoMean %v, want 2, %v", got.Median, got.GeoMean, math.Cbrt(16))
	}
	if got.MedianCI.Known() || got.GeoMeanCI.Known() || got.MeanRatioCI.Known() {
		t.Errorf("intervals of 3 clusters: %+v", got)
	}
	if got := Pair(base, nil, 1, nil); got.N != 0 || got.Unpaired != 5 {
		t.Errorf("Pair with nothing = %+v", got)
	}
	if got := Pair([]Item{{0, 0, 0, 0}}, []Item{{0, 0, ms, 0}}, 1, nil); got.N != 0 || got.Unpaired != 1 {
		t.Errorf("Pair with a time of 0 = %+v", got)
	}
	base = items(0, ms, 2*ms, 3*ms, 4*ms, 5*ms, 6*ms, 7*ms, 8*ms)
	same := Pair(base, base, 9, nil)
	if same.MeanRatio != 1 || same.MeanRatioCI != (Interval{1, 1}) || same.Median != 1 || same.GeoMean != 1 || same.MedianCI != (Interval{1, 1}) || same.GeoMeanCI != (Interval{1, 1}) {
		t.Errorf("an arm against itself = %+v, want 1 throughout", same)
	}
}

// The same items in any order and the same seed give the same bytes.
func TestPairIsDeterministic(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(r, "n")
		var base, arm []Item
		for i := range n {
			base = append(base, Item{0, i, time.Duration(rapid.IntRange(1, 1e6).Draw(r, "base")), i / 2})
			arm = append(arm, Item{0, i, time.Duration(rapid.IntRange(1, 1e6).Draw(r, "arm")), i / 2})
		}
		want := Pair(base, arm, 7, nil)
		slices.Reverse(base)
		shuffled := rapid.Permutation(arm).Draw(r, "order")
		if got := Pair(base, shuffled, 7, nil); got != want {
			r.Fatalf("Pair = %+v, then %+v", want, got)
		}
		// The other way round is the inverse.
		back := Pair(arm, base, 7, nil)
		if math.Abs(back.GeoMean*want.GeoMean-1) > 1e-9 || math.Abs(back.Median*want.Median-1) > 1e-9 {
			r.Fatalf("%v and %v are not inverse", want, back)
		}
	})
}

// The interval of the mean of many draws is the normal one, mean ± 1.96·s/√n.
func TestBootstrapInterval(t *testing.T) {
	const n = 2000
	var base, arm []Item
	logs := make([]float64, n)
	for i := range n {
		logs[i] = 0.4 + 0.3*math.Sin(float64(i)*12.9898) // spread, without a random source
		arm = append(arm, Item{0, i, time.Second, i})
		base = append(base, Item{0, i, time.Duration(math.Exp(logs[i]) * float64(time.Second)), i})
	}
	mean, deviation := stat.MeanStdDev(logs, nil)
	half := 1.96 * deviation / math.Sqrt(n)
	got := Pair(base, arm, 3, nil).GeoMeanCI
	if math.Abs(math.Log(got.Low)-(mean-half)) > half/10 || math.Abs(math.Log(got.High)-(mean+half)) > half/10 {
		t.Errorf("interval [%v, %v], want about [%v, %v]", math.Log(got.Low), math.Log(got.High), mean-half, mean+half)
	}
}

// The repeats of an item are drawn together: repeats without new information do not
// narrow the interval.
func TestRepeatsOfAnItemAreOneCluster(t *testing.T) {
	var base, arm, copied, apart []Item
	for i := range 30 {
		b := time.Duration(float64(time.Second) * math.Exp(0.5*math.Sin(float64(i)*12.9898)))
		base, arm = append(base, Item{0, i, b, i}), append(arm, Item{0, i, time.Second, i})
	}
	once := Pair(base, arm, 1, nil)
	for r := range 9 {
		for i := range base {
			copied = append(copied, Item{r, i, base[i].Time, i})
			apart = append(apart, Item{r, i, time.Second, i})
		}
	}
	again := Pair(copied, apart, 1, nil)
	if again.N != 270 || again.Clusters != 30 || once.Clusters != 30 {
		t.Fatalf("%d pairs of %d clusters, want 270 of 30", again.N, again.Clusters)
	}
	width := func(i Interval) float64 { return math.Log(i.High / i.Low) }
	for _, w := range []struct {
		name   string
		narrow float64
		wide   float64
	}{{"geometric mean", width(again.GeoMeanCI), width(once.GeoMeanCI)}, {"ratio of means", width(again.MeanRatioCI), width(once.MeanRatioCI)}, {"median", width(again.MedianCI), width(once.MedianCI)}} {
		if w.narrow < 0.85*w.wide || w.narrow > 1.15*w.wide {
			t.Errorf("%s: the interval of 9 equal repeats is %.3f wide, of one repeat %.3f: want about the same", w.name, w.narrow, w.wide)
		}
	}
	// Drawn separately, the interval would be a third as wide.
	for i := range copied {
		copied[i].Cluster, apart[i].Cluster = i, i
	}
	if one := Pair(copied, apart, 1, nil); width(one.GeoMeanCI) > 0.5*width(once.GeoMeanCI) {
		t.Errorf("items drawn one by one: interval %.3f wide, clusters %.3f: the clusters do not matter", width(one.GeoMeanCI), width(once.GeoMeanCI))
	}
}

// For pairs without a difference, the interval includes 1 about as often as its level
// states; for a true ratio of 1.5 it does not.
func TestIntervalCovers(t *testing.T) {
	longtest.Skip(t, "computes intervals of 400 drawn comparisons, 3 s")
	const draws, n = 200, 30
	held := map[string]int{}
	found := 0
	for d := range draws {
		rng := rand.New(rand.NewPCG(uint64(d), 77))
		var base, same, faster []Item
		for i := range n {
			size := math.Exp(rng.NormFloat64()) // sizes differ widely, and are equal in both arms
			draw := func(over float64) time.Duration {
				return time.Duration(float64(time.Second) * size * math.Exp(0.3*rng.NormFloat64()) / over)
			}
			base, same, faster = append(base, Item{0, i, draw(1), i}), append(same, Item{0, i, draw(1), i}), append(faster, Item{0, i, draw(1.5), i})
		}
		p := Pair(base, same, uint64(d), nil)
		for name, ci := range map[string]Interval{"mean": p.MeanRatioCI, "median": p.MedianCI, "geometric mean": p.GeoMeanCI} {
			if ci.Holds(1) {
				held[name]++
			}
		}
		if q := Pair(base, faster, uint64(d), nil); q.GeoMeanCI.Low > 1 && q.GeoMeanCI.Holds(1.5) {
			found++
		} else if q.GeoMeanCI.Low <= 1 {
			t.Errorf("draw %d: the interval %v of a true ratio of 1.5 includes 1", d, q.GeoMeanCI)
		}
	}
	for _, name := range []string{"mean", "median", "geometric mean"} {
		if held[name] < draws*90/100 || held[name] == draws {
			t.Errorf("%s: the interval includes 1 in %d of %d draws without a difference, want 90 %% or more and not all", name, held[name], draws)
		}
	}
	if found < draws*88/100 {
		t.Errorf("the interval includes the true 1.5 in %d of %d draws, want 88 %% or more", found, draws)
	}
	t.Logf("holds 1 without a difference, of %d: %v; holds a true 1.5: %d", draws, held, found)
}

func BenchmarkPair(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("pairs=%d", n), func(b *testing.B) {
			var base, arm []Item
			for i := range n {
				base = append(base, Item{0, i, time.Duration(1000 + i*7919%1000), i})
				arm = append(arm, Item{0, i, time.Duration(1000 + i*104729%1000), i})
			}
			b.ReportAllocs()
			for b.Loop() {
				Pair(base, arm, 1, nil)
			}
		})
	}
}

// A transfer that was given up has no completion time, even if its last byte arrived; a
// block that lost a replica has one.
func TestFailedAreLeftOut(t *testing.T) {
	r := flows.Records{
		Flows:   []flows.FlowRecord{{Coflow: 1, Flow: 1, End: 5}, {Coflow: 1, Flow: 2, End: 6}, {Coflow: 2, Flow: 3, End: 7}},
		Coflows: []flows.CoflowRecord{{Coflow: 1, End: 6}, {Coflow: 2, End: 7}},
		Blocks:  []flows.BlockRecord{{Block: 2, Client: "h1-02", End: 8}, {Block: 3, End: 9}},
		Failed:  []flows.Failure{{Kind: flows.FailedFlow, Coflow: 1, Flow: 2}, {Kind: flows.FailedBlock, Block: 3}, {Kind: flows.FailedReplica, Block: 2, Host: "h0-00"}},
	}
	for _, tt := range []struct {
		name string
		got  []Item
		want []Item
	}{
		{"FCTs", FCTs(0, r), []Item{{0, 1, 5, 1}, {0, 3, 7, 2}}},
		{"CCTs", CCTs(0, r), []Item{{0, 2, 7, 2}}},
		{"WriteTimes", WriteTimes(0, r), []Item{{0, 2, 8, Writer("h1-02")}}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s = %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}
