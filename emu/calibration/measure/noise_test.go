package measure

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/metrics"
)

// madeUp returns pairs of identical runs of 12 items with two parts of noise: one that all
// items of a run share, and one of each item.
func madeUp(n int, common, own float64) []noisePair {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]noisePair, n)
	for i := range out {
		var both [2][]metrics.Item
		for arm := range both {
			run := common * rng.NormFloat64()
			for id := range 12 {
				t := float64(time.Second) * float64(1+id) * math.Exp(run+own*rng.NormFloat64())
				both[arm] = append(both[arm], metrics.Item{ID: id, Time: time.Duration(t), Cluster: id})
			}
		}
		out[i] = noisePair{}
		for _, key := range noiseMetrics {
			out[i][key] = both
		}
	}
	return out
}

// The noise of the input is found. Intervals that are widened by it exclude 1 at the nominal
// rate; others do so more often.
func TestJudgeNoise(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	for _, tt := range []struct {
		name        string
		common, own float64
	}{{"runs alike", 0, 0.05}, {"runs apart", 0.03, 0.05}, {"nothing but runs", 0.03, 0.001}} {
		n := judgeNoise(madeUp(100, tt.common, tt.own))
		if n.Pairs != 100 || len(n.Figures) != len(noiseMetrics)*len(noiseStatistics) {
			t.Fatalf("%s: %d pairs, %d figures", tt.name, n.Pairs, len(n.Figures))
		}
		total, between := n.Total["fct"].GeoMean, n.Between["fct"].GeoMean
		want, wantTotal := math.Sqrt2*tt.common, math.Sqrt(2*tt.common*tt.common+2*tt.own*tt.own/12)
		if math.Abs(between-want) > 0.01 || math.Abs(total-wantTotal) > 0.2*wantTotal {
			t.Errorf("%s: between runs %.4f, in all %.4f, want %.4f, %.4f", tt.name, between, total, want, wantTotal)
		}
		for _, f := range n.Figures {
			if f.Pairs != 100 || f.Widened.Rate > 0.12 || f.Widened.CI[0] > 0.05 || f.Widened.Width < f.Alone.Width {
				t.Errorf("%s: %+v", tt.name, f)
			}
			if tt.common > 0 && f.Statistic != "median" && f.Alone.Rate < 0.15 {
				t.Errorf("%s: %+v: want many false positives of intervals that know nothing of runs", tt.name, f)
			}
		}
	}
}

// The expected values are those of R's binom.test.
func TestBinomial(t *testing.T) {
	for _, tt := range []struct {
		k, n      int
		low, high float64
	}{{0, 40, 0, 0.08810}, {2, 40, 0.006114, 0.16920}, {40, 40, 0.91190, 1}} {
		if ci := binomial(tt.k, tt.n); math.Abs(ci[0]-tt.low) > 1e-4 || math.Abs(ci[1]-tt.high) > 1e-4 {
			t.Errorf("%d of %d: %v, want [%v, %v]", tt.k, tt.n, ci, tt.low, tt.high)
		}
	}
}

// Squares that the variances within explain leave 0; without them the squares remain; and
// one outlier with a large variance changes nothing.
func TestUnexplained(t *testing.T) {
	for _, tt := range []struct {
		name            string
		squares, within []float64
		want            float64
	}{
		{"explained", []float64{1, 4, 1}, []float64{2, 4, 3}, 0},
		{"all of it", []float64{1, 4, 1}, []float64{0, 0, 0}, 2},
		{"half of it", []float64{4, 4, 4}, []float64{2, 2, 2}, 2},
		{"one far off", []float64{4, 4, 4, 4000}, []float64{2, 2, 2, 4000}, 2},
		{"nothing", []float64{0, 0}, []float64{0, 0}, 0},
	} {
		if got := unexplained(tt.squares, tt.within); math.Abs(got-tt.want) > 0.01 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Eight pairs of identical runs on packets have figures for every completion time. An
// interrupted measurement returns the cause and leaves nothing behind.
func TestNoiseOnPackets(t *testing.T) {
	netnstest.Require(t)
	longtest.Nightly(t, "measures 8 pairs of runs on packets, 40 s")
	for _, whole := range []bool{true, false} {
		if whole && netnstest.NotJudged(t) {
			continue // each run would be void
		}
		root, dir := filepath.Join(t.TempDir(), "state"), t.TempDir()
		why := errors.New("interrupted by the user")
		ctx, cancel := context.WithCancelCause(t.Context())
		o := NoiseOptions{Pairs: LeastNoisePairs, Dir: dir, StateRoot: root}
		if !whole {
			o.Progress = func(string, float64) { time.AfterFunc(time.Second, func() { cancel(why) }) }
		}
		n, err := Noise(ctx, o)
		cancel(nil)
		switch {
		case !whole && (n != nil || !errors.Is(err, why)):
			t.Errorf("interrupted: %v, %v", n, err)
		case whole && err != nil && strings.Contains(err.Error(), "the machine is too busy"):
			t.Logf("not measured: %v", err) // TestJudgeNoise has the figures
		case whole && err != nil:
			t.Fatal(err)
		case whole:
			for _, f := range n.Figures {
				t.Logf("%+v", f)
				if f.Pairs != LeastNoisePairs || !(f.Alone.Width > 0) || !(f.Deviation > 0) || f.Deviation > 1 {
					t.Errorf("%+v: want a noise above 0 and below 100 %%", f)
				}
			}
		}
		if left, err := deploy.List(t.Context(), root); err != nil || len(left) > 0 {
			t.Errorf("records left: %v, %v", left, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("files left: %v, %v", left, err)
		}
	}
}

func TestNoiseOptions(t *testing.T) {
	for pairs, good := range map[int]bool{0: true, LeastNoisePairs - 1: false, LeastNoisePairs: true, MostNoisePairs + 1: false, -1: false} {
		if err := (NoiseOptions{Pairs: pairs}).Check(); (err == nil) != good {
			t.Errorf("%d pairs: %v", pairs, err)
		}
	}
}
