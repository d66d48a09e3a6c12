package tasks

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// claims returns claims of weight 1 from pairs of a minimum share and a demand.
func claims(pairs ...float64) (out []Claim) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Claim{Min: pairs[i], Demand: pairs[i+1], Weight: 1})
	}
	return out
}

func near(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x)) })
}

func TestShares(t *testing.T) {
	inf := math.Inf(1)
	third := 100.0 / 3
	for _, tt := range []struct {
		name   string
		slots  float64
		claims []Claim
		want   []float64
	}{
		{"the report's example", 100, claims(50, 46, 10, 18, 25, 28, 15, 16), []float64{46, 14, 25, 15}},
		{"equal pools", 100, claims(0, inf, 0, inf, 0, inf), []float64{third, third, third}},
		{"one minimum share", 100, claims(60, 100, 0, 100, 10, 0), []float64{60, 40, 0}},
		{"less demand than slots", 100, claims(0, 10, 0, 20, 0, 30), []float64{10, 20, 30}},
		{"levels", 12, claims(0, 2, 4, 10, 0, 10, 6, 3), []float64{2, 4, 3, 3}},
		{"weights", 100, []Claim{{Demand: 100, Weight: 1}, {Demand: 100, Weight: 3}}, []float64{25, 75}},
		{"weights and a demand", 100, []Claim{{Demand: 100, Weight: 1}, {Demand: 60, Weight: 3}}, []float64{40, 60}},
		{"a weight below a minimum share", 100, []Claim{{Demand: 100, Weight: 1, Min: 50}, {Demand: 100, Weight: 4}}, []float64{50, 50}},
		{"minimum shares exceed the slots", 30, claims(20, 50, 40, 50), []float64{10, 20}},
		{"scaled, and one has less demand", 10, claims(10, 2, 10, 20), []float64{2, 8}},
		{"a minimum share above its demand harms none", 12, claims(10, 2, 10, 20), []float64{2, 10}},
		{"no slots", 0, claims(5, 10, 0, 10), []float64{0, 0}},
		{"no claims", 7, nil, nil},
	} {
		if got := Shares(tt.slots, tt.claims); !near(got, tt.want) {
			t.Errorf("%s: Shares(%v, %v) = %v, want %v", tt.name, tt.slots, tt.claims, got, tt.want)
		}
	}
}

// slowShares is the three phases of the report, literally, in small steps.
func slowShares(slots float64, claims []Claim) []float64 {
	const step = 1.0 / 64
	out := make([]float64, len(claims))
	for i, c := range claims {
		out[i] = min(c.Demand, c.Min)
		slots -= out[i]
	}
	for slots > step/2 {
		lowest := -1
		for i, c := range claims {
			if out[i] < c.Demand && (lowest < 0 || out[i]/c.Weight < out[lowest]/claims[lowest].Weight) {
				lowest = i
			}
		}
		if lowest < 0 {
			break
		}
		out[lowest] += step
		slots -= step
	}
	return out
}

func TestSharesAgreeWithThePhases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := float64(rapid.IntRange(0, 40).Draw(t, "slots"))
		var in []Claim
		left := slots
		for range rapid.IntRange(0, 6).Draw(t, "claims") {
			c := Claim{Demand: float64(rapid.IntRange(0, 30).Draw(t, "demand")), Weight: float64(rapid.IntRange(1, 3).Draw(t, "weight"))}
			c.Min = float64(rapid.IntRange(0, int(left)).Draw(t, "min"))
			left -= c.Min
			in = append(in, c)
		}
		got, want := Shares(slots, in), slowShares(slots, in)
		for i := range in {
			if math.Abs(got[i]-want[i]) > 0.1 {
				t.Fatalf("Shares(%v, %+v) = %v, phases give %v", slots, in, got, want)
			}
		}
	})
}

// Shares add up to the slots or to all demand, respect minimum shares, and do not depend on the
// order of the claims.
func TestSharesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.Float64Range(0, 1e4).Draw(t, "slots")
		in := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim {
			return Claim{Demand: rapid.Float64Range(0, 2e3).Draw(t, "demand"), Min: rapid.Float64Range(0, 1e3).Draw(t, "min"), Weight: rapid.Float64Range(0.01, 100).Draw(t, "weight")}
		}), 1, 20).Draw(t, "claims")
		got := Shares(slots, in)
		sum, demand, least := 0.0, 0.0, 0.0
		for i, c := range in {
			sum += got[i]
			demand += c.Demand
			least += min(c.Demand, c.Min)
			if got[i] < 0 || got[i] > c.Demand {
				t.Fatalf("share %v of demand %v", got[i], c.Demand)
			}
		}
		if total := min(slots, demand); math.Abs(sum-total) > 1e-9*max(1, total) {
			t.Fatalf("the shares add up to %v, not %v", sum, total)
		}
		for i, c := range in {
			if least <= slots && got[i] < min(c.Demand, c.Min)*(1-1e-9) {
				t.Fatalf("share %v below the minimum %v", got[i], min(c.Demand, c.Min))
			}
			for j, o := range in { // one that has less than it demands is not below another, relative to weights
				if got[i] < c.Demand*(1-1e-9) && got[j] > o.Min*(1+1e-9) && got[j]/o.Weight > got[i]/c.Weight*(1+1e-6)+1e-6 {
					t.Fatalf("claim %d has %v of %+v, claim %d %v of %+v", i, got[i], c, j, got[j], o)
				}
			}
		}
		perm := rapid.Permutation(in).Draw(t, "order")
		again := Shares(slots, perm)
		for i, c := range in {
			if j := slices.Index(perm, c); math.Abs(again[j]-got[i]) > 1e-6*max(1, got[i]) {
				t.Fatalf("in another order, %v instead of %v", again[j], got[i])
			}
		}
	})
}
