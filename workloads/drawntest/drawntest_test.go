package drawntest

import (
	"math"
	"testing"
)

// recorder is a testing.TB that records whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestMost(t *testing.T) {
	for _, tt := range []struct {
		n    int
		p    float64
		want int
	}{
		// The number is Poisson with mean 0.1: more than four have probability 0.1⁵/120, and
		// more than three 0.1⁴/24, which is above a millionth.
		{1_000_000, 1e-7, 4},
		{100, 0, 0},
		{100, 1, 100},
		{19, 0.5, 19}, // 2⁻¹⁹ is more than a millionth
		{20, 0.5, 19}, // 2⁻²⁰ is less
		{0, 0.5, 0},
	} {
		if got := most(tt.n, tt.p); got != tt.want {
			t.Errorf("most(%d, %v) = %d, want %d", tt.n, tt.p, got, tt.want)
		}
	}
	// With many trials it is close to the normal distribution's, 4.75 standard deviations.
	if got, want := float64(most(10_000, 0.5)), 5000+4.75*50; math.Abs(got-want) > 5 {
		t.Errorf("most(10000, 0.5) = %v, want about %v", got, want)
	}
}

func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bound func(testing.TB, string, int, int, float64)
		got   int // of 40
		p     float64
		fails bool
	}{
		{"few are rare", AtMost, 4, 0.01, false},
		{"all are rare", AtMost, 40, 0.01, true},
		{"most are common", AtLeast, 36, 0.99, false},
		{"none is common", AtLeast, 0, 0.99, true},
		{"all are common", AtLeast, 40, 0.99, false},
	} {
		r := &recorder{TB: t}
		if tt.bound(r, "cases", tt.got, 40, tt.p); r.failed != tt.fails {
			t.Errorf("%s: failed %v, want %v", tt.name, r.failed, tt.fails)
		}
	}
}
