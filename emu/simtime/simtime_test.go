package simtime

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// exact returns a moment without rounding, in ns.
func exact(m Moment) *big.Rat {
	r := new(big.Rat).SetFloat64(m.Frac)
	return r.Add(r, new(big.Rat).SetInt64(int64(m.Whole)))
}

// A moment is as exact hours into a run as at its start: Since returns the duration that Plus
// added, within its precision, and the fraction stays in [0, 1).
func TestPlusAndSince(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Moment{time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "whole")), rapid.Float64Range(0, 0.999).Draw(t, "frac")}
		ns := rapid.Float64Range(0, 1e9).Draw(t, "ns")
		after := m.Plus(ns)
		if after.Frac < 0 || after.Frac >= 1 {
			t.Fatalf("%v plus %v = %v: fraction outside [0, 1)", m, ns, after)
		}
		const within = 1e-6 // ns: 1e9 ns as a float64 are coarser than a tenth of this
		apart, _ := new(big.Rat).Sub(exact(after), exact(m)).Float64()
		if d := apart - ns; d < -within || d > within {
			t.Fatalf("%v plus %v = %v, which is %v later", m, ns, after, apart)
		}
		if d := after.Since(m) - ns; d < -within || d > within {
			t.Fatalf("%v since %v = %v, want %v", after, m, after.Since(m), ns)
		}
		if got, want := m.Until(after.Whole), (Moment{Whole: after.Whole}).Since(m); got != want {
			t.Fatalf("%v until %v = %v, want %v", m, after.Whole, got, want)
		}
	})
}

func TestRoundAndUp(t *testing.T) {
	for _, tt := range []struct {
		m     Moment
		slack float64
		round time.Duration
		up    time.Duration // of 8 ns
	}{
		{Moment{}, 0, 0, 0},
		{Moment{0, 0.001}, 0, 0, 8},
		{Moment{0, 0.001}, 0.001, 0, 0},
		{Moment{7, 0.5}, 0, 8, 8},
		{Moment{8, 0}, 0, 8, 8},
		{Moment{8, 0.49}, 0.4, 8, 16},
		{Moment{9, 0}, 0.5, 9, 16},
	} {
		if got := tt.m.Round(); got != tt.round {
			t.Errorf("%v rounds to %d, want %d", tt.m, got, tt.round)
		}
		if got := tt.m.Up(8, tt.slack); got != tt.up {
			t.Errorf("%v up to a multiple of 8 with slack %v = %d, want %d", tt.m, tt.slack, got, tt.up)
		}
	}
}
