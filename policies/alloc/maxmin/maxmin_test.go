package maxmin

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A heap returns entries in order of key, then value, however they came in.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.Custom(func(t *rapid.T) Entry[int] {
			return Entry[int]{float64(rapid.IntRange(0, 5).Draw(t, "key")), rapid.IntRange(0, 3).Draw(t, "value")}
		})
		h := rapid.SliceOf(entry).Draw(t, "at the start")
		want := slices.Clone(h)
		Init(h)
		for _, x := range rapid.SliceOf(entry).Draw(t, "pushed") {
			h, want = Push(h, x), append(want, x)
		}
		if len(h) > 0 && rapid.Bool().Draw(t, "first increases") {
			by := rapid.Float64Range(0, 6).Draw(t, "by")
			want[slices.Index(want, h[0])].Key += by
			h[0].Key += by
			Sink(h, 0)
		}
		slices.SortFunc(want, func(a, b Entry[int]) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value)) })
		for i, w := range want {
			if h[0] != w {
				t.Fatalf("entry %d is %v, want %v", i, h[0], w)
			}
			h = Pop(h)
		}
		if len(h) > 0 {
			t.Fatalf("%v is left", h)
		}
	})
}

// Max-min fair rates: no link is over its capacity, and every flow crosses a full link on
// which no flow is faster. Links have a load before, which may exceed their capacity, and a
// flow may cross a link twice.
func TestFilling(t *testing.T) {
	var f Filling
	rapid.Check(t, func(t *rapid.T) {
		links := rapid.IntRange(1, 8).Draw(t, "links")
		f.Capacity, f.Load, f.Weight = nil, nil, make([]float64, links)
		var all []int32
		for l := range links {
			f.Capacity = append(f.Capacity, rapid.SampledFrom([]float64{0, 1, 2, 5.5, 10, 1e9}).Draw(t, "capacity"))
			f.Load = append(f.Load, rapid.SampledFrom([]float64{0, 0, 0, 1.5}).Draw(t, "load"))
			all = append(all, int32(l))
		}
		load, fastest := slices.Clone(f.Load), make([]float64, links)
		paths := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(all), 1, 3), 1, 16).Draw(t, "paths")
		rates := slices.Repeat([]float64{-1}, len(paths))
		for _, p := range paths {
			for _, l := range p {
				f.Weight[l]++
			}
		}
		f.Start(all) // abandoned
		f.Next()
		f.Start(rapid.Permutation(all).Draw(t, "order"))
		before := 0.0
		for l, rate := f.Next(); l >= 0; l, rate = f.Next() {
			if again, same := f.Next(); again != l || same != rate || rate < before {
				t.Fatalf("link %d is full at %v after %v, then link %d at %v", l, rate, before, again, same)
			}
			before = rate
			for i, p := range paths {
				if rates[i] >= 0 || !slices.Contains(p, l) {
					continue
				}
				rates[i] = rate
				for _, l := range p {
					f.Load[l] += rate
					f.Weight[l]--
				}
			}
		}
		for i, p := range paths {
			for _, l := range p {
				load[l] += rates[i]
				fastest[l] = max(fastest[l], rates[i])
			}
		}
		for i, p := range paths {
			if rates[i] < 0 || !slices.ContainsFunc(p, func(l int32) bool {
				return load[l] >= f.Capacity[l]*(1-1e-9) && rates[i] >= fastest[l]*(1-1e-9)
			}) {
				t.Fatalf("flow %d over %v has %v, no link limits it", i, p, rates[i])
			}
			for _, l := range p {
				if load[l] > f.Capacity[l]*(1+1e-9) && fastest[l] > 0 || math.Abs(load[l]-f.Load[l]) > 1e-9*load[l] {
					t.Fatalf("link %d carries %v, recorded %v, of %v", l, load[l], f.Load[l], f.Capacity[l])
				}
			}
		}
	})
}

// Flows that begin to rise during a filling make a link full earlier; those that stop afterwards
// make it full later than others.
func TestRise(t *testing.T) {
	f := Filling{Capacity: []float64{6, 8}, Load: []float64{4, 0}, Weight: []float64{1, 2}}
	next := func(link int32, rate float64) {
		t.Helper()
		if l, r := f.Next(); l != link || r != rate {
			t.Fatalf("link %d is full at %v, want %d at %v", l, r, link, rate)
		}
	}
	f.Start([]int32{0, 1})
	next(0, 2)
	f.Weight[0] = 2
	f.Rise(0)
	next(0, 1)
	f.Load[0], f.Weight[0] = 0, 1
	next(1, 4)
	f.Weight[1] = 0
	next(0, 6)
	f.Weight[0] = 0
	next(-1, math.Inf(1))
}
