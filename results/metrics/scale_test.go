package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"testbed/emu/longtest"
)

// timesOf draws n items; each takes base·f(i).
func timesOf(n int, f func(i int, base float64) float64) []Item {
	rng := rand.New(rand.NewPCG(7, 7))
	var out []Item
	for i := range n {
		base := math.Exp(rng.NormFloat64()) * float64(time.Second)
		out = append(out, Item{Repeat: i % 2, ID: i, Time: time.Duration(f(i, base)), Cluster: i})
	}
	return out
}

func TestCompareScale(t *testing.T) {
	noise := func(seed uint64, sd float64) func(int, float64) float64 {
		rng := rand.New(rand.NewPCG(seed, 1))
		return func(_ int, base float64) float64 { return base * math.Exp(sd*rng.NormFloat64()) }
	}
	faster := func(by float64, f func(int, float64) float64) func(int, float64) float64 {
		return func(i int, base float64) float64 { return f(i, base) / by }
	}
	tests := []struct {
		name           string
		scaledSpeedup  float64
		sd             float64
		within         bool
		least, largest float64 // bounds of the paired ratio
	}{
		{"the same", 2, 0, true, 1, 1},
		{"noise alone", 2, 0.05, true, 0.95, 1.05},
		{"below what rounding does", 2 * 1.0004, 0, true, 1.00035, 1.00045},
		{"a tenth less", 1.8, 0.05, false, 0.85, 0.95},
		{"a move that noise hides", 1.9, 1, true, 0.3, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := CompareScale(timesOf(200, noise(1, tt.sd)), timesOf(200, faster(2, noise(2, tt.sd))),
				timesOf(200, noise(3, tt.sd)), timesOf(200, faster(tt.scaledSpeedup, noise(4, tt.sd))), 1, nil)
			if got.N != 200 || got.Unpaired != 0 {
				t.Errorf("%d items, %d unpaired", got.N, got.Unpaired)
			}
			if r := got.Paired.Ratio; r.Value < tt.least-1e-6 || r.Value > tt.largest+1e-6 || r.CI.Low > r.Value+1e-9 || r.CI.High < r.Value-1e-9 {
				t.Errorf("ratio %+v, want %v to %v", r, tt.least, tt.largest)
			}
			if got.Paired.Within() != tt.within {
				t.Errorf("within is %t: %+v", !tt.within, got.Paired)
			}
			if again := CompareScale(timesOf(200, noise(1, tt.sd)), timesOf(200, faster(2, noise(2, tt.sd))),
				timesOf(200, noise(3, tt.sd)), timesOf(200, faster(tt.scaledSpeedup, noise(4, tt.sd))), 1, nil); again != got {
				t.Error("the same items and seed give other intervals")
			}
		})
	}
}

// Values agree with those of the report's columns, and items missing in one of the four
// are ignored everywhere.
func TestCompareScaleAgreesWithPairAndSpeedup(t *testing.T) {
	base, arm := timesOf(50, func(_ int, b float64) float64 { return b }), timesOf(50, func(i int, b float64) float64 { return b / float64(1+i%3) })
	got := CompareScale(base, arm, base, arm, 3, nil)
	speedup, _ := Speedup(Summarize(base), Summarize(arm))
	if math.Abs(got.Average.Full.Value-speedup) > 1e-6 || math.Abs(got.Paired.Scaled.Value-Pair(base, arm, 3, nil).GeoMean) > 1e-6 {
		t.Errorf("got %v and %v, want %v and %v", got.Average.Full.Value, got.Paired.Scaled.Value, speedup, Pair(base, arm, 3, nil).GeoMean)
	}
	if fewer := CompareScale(base[3:], arm, base, arm[:40], 3, nil); fewer.N != 37 || fewer.Unpaired != 13 {
		t.Errorf("%d items and %d unpaired, want 37 and 13", fewer.N, fewer.Unpaired)
	}
	if none := CompareScale(nil, arm, base, arm, 3, nil); none.N != 0 || none.Unpaired != 50 {
		t.Errorf("got %+v, want no items", none)
	}
}

// About 95 % of the 95 % intervals include the true value.
func TestCompareScaleCoverage(t *testing.T) {
	longtest.Skip(t, "computes 300 intervals, 3 s")
	rng := rand.New(rand.NewPCG(11, 5))
	draw := func() []Item {
		var out []Item
		for i := range 30 {
			out = append(out, Item{ID: i, Time: time.Duration(math.Exp(0.2*rng.NormFloat64()) * float64(time.Second)), Cluster: i})
		}
		return out
	}
	held := 0
	const runs = 300
	for k := range runs {
		s := CompareScale(draw(), draw(), draw(), draw(), uint64(k), nil)
		if s.Paired.Ratio.CI.Low <= 1 && 1 <= s.Paired.Ratio.CI.High {
			held++
		}
	}
	t.Logf("%d of %d intervals hold the truth", held, runs)
	if held < runs*88/100 || held > runs*99/100 {
		t.Errorf("%d of %d intervals include the truth, want about 95 %%", held, runs)
	}
}
