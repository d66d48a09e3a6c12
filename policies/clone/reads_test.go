package clone

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// copying returns two copies that read 2 s, of which the second one ends 0.5 s later with probability 0.8, else never, and that
// compute 80 s with a probability in tenths, else 10 s.
func copying(shared float64, slow int) Copying {
	c := Copying{Read: 2 * time.Second, Shared: shared, Outputs: 1, Copies: 2}
	for range 4 {
		c.Lags = append(c.Lags, 500*time.Millisecond)
	}
	c.Lags = append(c.Lags, -1)
	for i := range 10 {
		d := 10 * time.Second
		if i < slow {
			d = 80 * time.Second
		}
		c.Computing = append(c.Computing, d)
	}
	return c
}

func TestExpectedByWait(t *testing.T) {
	for _, tt := range []struct {
		c    Copying
		want map[float64]float64
		best time.Duration
	}{
		{copying(0.5, 1), map[float64]float64{0: 14.70, 0.5: 13.045, 1: 12.99, 2: 12.88, 3: 12.88}, 2 * time.Second},
		{copying(0.9, 3), map[float64]float64{0: 18.52, 0.5: 18.44, 2: 18.72}, 500 * time.Millisecond},
	} {
		for wait, want := range tt.want {
			if got := tt.c.Expected(time.Duration(wait * float64(time.Second))); math.Abs(got-want) > 0.005 {
				t.Errorf("α %v: %.4f s with ω %v, want %v", tt.c.Shared, got, wait, want)
			}
		}
		// A grid of 60 steps of 0.05 s.
		if got := tt.c.Wait(time.Second); got != tt.best {
			t.Errorf("α %v: ω %v, want %v", tt.c.Shared, got, tt.best)
		}
	}
}

// Copies that fetch share as the formulas of two copies state.
func TestFetch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		copies int
		shared float64
		wait   float64
		ends   []float64
		want   []float64
	}{
		{"alone", 2, 0.5, 1, []float64{0, 0.5}, []float64{2, 2.5}},
		{"too late", 2, 0.5, 0.25, []float64{0, 0.5}, []float64{0.25 + 3.5, 0.5 + 3.5}},
		{"together", 2, 0.5, 0, []float64{0}, []float64{4, 4}},
		{"one after the other", 2, 0.5, 3, []float64{0}, []float64{2, 4}},
		{"three, two ends", 3, 0.5, 1, []float64{0, 0.5}, []float64{3, 2.5, 4}},
		{"three together", 3, 0.5, 0, []float64{0}, []float64{6, 6, 6}},
		{"three in turn", 3, 0.5, 10, []float64{0}, []float64{2, 4, 6}},
		{"no contention", 3, 1, 0, []float64{0}, []float64{2, 2, 2}},
	} {
		c := Copying{Read: 2 * time.Second, Shared: tt.shared, Copies: tt.copies}
		got := c.Fetch(tt.wait, tt.ends)
		for i := range got {
			if math.Abs(got[i]-tt.want[i]) > 1e-9 {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
				break
			}
		}
	}
}

// With one copy, Fetch is the formula of contention, for any ω, α and time.
func TestFetchIsTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Copying{Read: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "read")), Shared: rapid.Float64Range(0.1, 1).Draw(t, "α"), Copies: 2}
		wait := rapid.Float64Range(0, 2000).Draw(t, "ω")
		want := c.contended(wait)
		got := c.Fetch(wait, []float64{0})
		slices.Sort(got)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-6*(1+want[1]) {
				t.Fatalf("%v, formula %v", got, want)
			}
		}
	})
}

// Any number of copies ends, none earlier than it can read, and all together no faster than the copies of the output allow.
func TestFetchOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Copying{Read: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "read")), Shared: rapid.Float64Range(0.01, 1).Draw(t, "α"), Copies: rapid.IntRange(2, 8).Draw(t, "copies")}
		ends := []float64{0}
		for range rapid.IntRange(0, 8).Draw(t, "ends") {
			ends = append(ends, ends[len(ends)-1]+rapid.Float64Range(0, 5).Draw(t, "lag"))
		}
		for i, took := range c.Fetch(rapid.Float64Range(0, 20).Draw(t, "ω"), ends) {
			if !(took >= c.Read.Seconds()*(1-1e-9)) || math.IsInf(took, 0) {
				t.Fatalf("copy %d has fetched after %v s, at least %v", i, took, c.Read)
			}
		}
	})
}

// The expected minimum is that of random draws, and never below the least read with the least computing.
func TestMinimum(t *testing.T) {
	if got := minimum([]float64{1, 2}, 3, []float64{5}); got != 8 {
		t.Errorf("minimum %v, want 8", got)
	}
	random := rand.New(rand.NewPCG(1, 1))
	values := []float64{1, 1, 2, 7, 9}
	reads := []float64{0.5, 1.5, 4}
	mean := 0.
	for range 200_000 {
		least := math.Inf(1)
		for _, r := range reads {
			least = min(least, 2*r+values[random.IntN(len(values))])
		}
		mean += least / 200_000
	}
	if got := minimum(reads, 2, values); math.Abs(got-mean) > 0.02 {
		t.Errorf("expected minimum %.4f, of random draws %.4f", got, mean)
	}
}

// Three copies: the choice repeats, and copies that never contend need no wait.
func TestWaitOfThreeCopies(t *testing.T) {
	c := copying(0.5, 1)
	c.Copies = 3
	w := c.Wait(2 * time.Second)
	if again := c.Wait(2 * time.Second); w != again || c.Expected(w) > c.Expected(0) {
		t.Errorf("ω %v, then %v: %v s, %v s without", w, again, c.Expected(w), c.Expected(0))
	}
	if w < 500*time.Millisecond {
		t.Errorf("ω %v is less than the usual lag, although two readers halve the rate", w)
	}
	c.Shared = 1
	if w := c.Wait(2 * time.Second); w != 0 {
		t.Errorf("ω %v without contention, want 0", w)
	}
}
