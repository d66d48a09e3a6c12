package figures_test

import (
	"math"
	"slices"
	"testbed/results/figures"
	"testbed/results/metrics"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The drawn distribution is that of the values.
func TestStepsAreTheDistribution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0, 20), 1, 300).Draw(t, "values")
		for i := range v {
			v[i] = math.Round(v[i]) // with ties
		}
		slices.Sort(v)
		hidden := rapid.IntRange(0, len(v)-1).Draw(t, "hidden")
		most := rapid.IntRange(1, 400).Draw(t, "most")
		p := figures.Steps(v, hidden, most)
		if last := p[len(p)-1]; last.End != 1 || last.Value != v[len(v)-1] {
			t.Fatalf("ends at %v", last)
		}
		for x := 0.0; x <= 20; x++ {
			want, got := 0, float64(hidden)/float64(len(v))
			for _, y := range v {
				if y <= x {
					want++
				}
			}
			want = max(want, hidden)
			for _, q := range p {
				if q.Value <= x {
					got = q.End
				}
			}
			off := 1 / float64(most)
			if len(v)-hidden <= most {
				off = 1e-9
			}
			if d := math.Abs(got - float64(want)/float64(len(v))); d > off+1e-9 {
				t.Fatalf("at %v it is %v, want %v of %v", x, got, want, len(v))
			}
		}
	})
}

func TestTogetherIsTheSum(t *testing.T) {
	const s = time.Second
	a := &metrics.Progress{Moments: []metrics.Moment{{Bytes: 0, At: 1 * s}, {Bytes: 100, At: 2 * s}, {Bytes: 100_000, At: 4 * s}}}
	b := &metrics.Progress{Moments: []metrics.Moment{{Bytes: 0, At: 3 * s}, {Bytes: 50, At: 5 * s}}}
	c := &metrics.Progress{Moments: []metrics.Moment{{Bytes: 7, At: 4 * s}}} // in one step
	want := []metrics.Moment{{Bytes: 0, At: 1 * s}, {Bytes: 100, At: 2 * s}, {Bytes: 50_050, At: 3 * s}, {Bytes: 100_032, At: 4 * s}, {Bytes: 100_057, At: 5 * s}}
	if got := figures.Together([]*metrics.Progress{a, b, c}); !slices.Equal(got, want) {
		t.Errorf("Together = %v, want %v", got, want)
	}
}

func TestRoundBin(t *testing.T) {
	for _, c := range []struct {
		end  time.Duration
		most int
		want time.Duration
	}{
		{0, 60, time.Microsecond}, {time.Second, 60, 20 * time.Millisecond}, {60 * time.Second, 60, 2 * time.Second}, {59*time.Second + 999, 60, time.Second}, {time.Hour, 60, 100 * time.Second},
	} {
		got := figures.RoundBin(c.end, c.most)
		if got != c.want || int(c.end/got)+1 > c.most {
			t.Errorf("RoundBin(%v, %d) = %v, want %v", c.end, c.most, got, c.want)
		}
	}
}
