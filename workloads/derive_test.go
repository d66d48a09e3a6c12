package workloads

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo/units"
)

// On the public trace the numbers of coflows are those of Philae's evaluation (USENIX ATC
// 2019), 142, 100, 65, 51 and 43, except for one coflow each at 3 and 4.
func TestLowSkewFilteredFacebook(t *testing.T) {
	trace, _ := facebookTrace(t)
	for k, want := range map[int64]int{1: 142, 2: 100, 3: 64, 4: 50, 5: 43} {
		got, err := LowSkewFiltered(trace, Factor{k, 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Coflows) != want {
			t.Errorf("%d coflows have a skew above %d, want %d", len(got.Coflows), k, want)
		}
	}
	// Rounding explains the paper's additional coflow: in seconds at 8 ms for 1 MB, one of the
	// 31 coflows with a skew of exactly 3 has a quotient above 3.
	rounded := 0
	for _, c := range trace.Coflows {
		least, most := Megabytes(math.MaxInt64), Megabytes(0)
		for _, r := range c.Reducers {
			least, most = min(least, r.Size), max(most, r.Size)
		}
		m := float64(len(c.Mappers))
		if float64(float64(most/megabyte)/m*0.008)/float64(float64(least/megabyte)/m*0.008) > 3 {
			rounded++
		}
	}
	if rounded != 65 {
		t.Errorf("%d coflows have a skew above 3 in floating point, want 65", rounded)
	}
	wide, err := WideOnly(trace, ThinCoflow)
	if err != nil || len(wide.Coflows) != 526-257 {
		t.Errorf("%d coflows of more than 7 flows, %v; want 269", len(wide.Coflows), err)
	}
}

func TestSkewAbove(t *testing.T) {
	even := func(sizes ...Megabytes) TraceCoflow {
		c := TraceCoflow{Mappers: []int{0, 1, 2}}
		for i, s := range sizes {
			c.Reducers = append(c.Reducers, TraceReducer{Port: i, Size: s})
		}
		return c
	}
	mixed := even(3, 6)
	mixed.Reducers[1].Flows = []Megabytes{5, 0, 1} // relative to flows of 1: 5, and a flow without bytes
	for _, tt := range []struct {
		name  string
		c     TraceCoflow
		k     Factor
		above bool
	}{
		{"one flow", even(1), Factor{1, 1}, false},
		{"equal", even(4, 4), Factor{1, 1}, false},
		{"exactly", even(1, 3, 2), Factor{3, 1}, false},
		{"just above", even(1_000_000, 3_000_001), Factor{3, 1}, true},
		{"just below", even(1_000_000, 2_999_999), Factor{3, 1}, false},
		{"a fraction", even(2, 3), Factor{3, 2}, false},
		{"above a fraction", even(2, 3), Factor{7, 5}, true},
		{"flows", mixed, Factor{5, 1}, false},
		{"above by flows", mixed, Factor{4, 1}, true},
	} {
		if got := tt.c.SkewAbove(tt.k); got != tt.above {
			t.Errorf("%s: above %v: %v, want %v", tt.name, tt.k, got, tt.above)
		}
	}
}

func TestDeriveErrors(t *testing.T) {
	equal := &Trace{Name: "t", Ports: 3, Coflows: []TraceCoflow{{ID: 1, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 2, Size: 2}}}}}
	uneven := &Trace{Name: "t", Ports: 3, Coflows: []TraceCoflow{{ID: 1, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 2, Size: 3, Flows: []Megabytes{1, 2}}}}}}
	small := &Trace{Name: "t", Ports: 3, InBytes: true, Coflows: []TraceCoflow{{ID: 1, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 2, Size: 1}}}}}
	huge := &Trace{Name: "t", Ports: 3, Coflows: []TraceCoflow{{ID: 1, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 2, Size: maxReducerSize}}}}}
	late := &Trace{Name: "t", Ports: 3, Coflows: []TraceCoflow{{ID: maxTraceID, Mappers: []int{0}, Reducers: []TraceReducer{{Port: 2, Size: 1}}}}}
	result := func(_ *Trace, err error) error { return err }
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"nothing skewed", result(LowSkewFiltered(equal, Factor{1, 1})), "none of its 1 coflows has a largest flow of more than 1 times"},
		{"negative k", result(LowSkewFiltered(equal, Factor{-1, 1})), "must be two positive numbers"},
		{"nothing wide", result(WideOnly(equal, 7)), "more than 7 flows"},
		{"negative width", result(WideOnly(equal, -1)), "must be 0 or more"},
		{"no copies", result(Replicate(equal, 0)), "expected 1 or more"},
		{"too many copies", result(Replicate(equal, math.MaxInt)), "at most 100000 ports"},
		{"ids", result(Replicate(late, 2)), "renumber"},
		{"mappers known", result(MantriLike(uneven, MantriSkew, units.MiB, 1)), "differ in size"},
		{"fewer bytes than mappers", result(MantriLike(small, MantriSkew, units.MiB, 1)), "at least one byte each"},
		{"too large in bytes", result(MantriLike(huge, MantriSkew, units.MiB, 1)), "must be at most"},
		{"megabyte", result(MantriLike(equal, MantriSkew, 1000, 1)), "must be 10⁶ or 2²⁰"},
		{"skew", result(MantriLike(equal, MapSkew{1, 0.5}, units.MiB, 1)), "coefficients of variation"},
		{"no skew", result(MantriLike(equal, MapSkew{}, units.MiB, 1)), "coefficients of variation"},
		{"no number", result(MantriLike(equal, MapSkew{math.NaN(), 1}, units.MiB, 1)), "coefficients of variation"},
	} {
		if tt.err == nil || !strings.HasPrefix(tt.err.Error(), "trace t: ") || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, tt.err, tt.want)
		}
	}
}

func TestReplicate(t *testing.T) {
	in := &Trace{Name: "t", Ports: 3, Coflows: []TraceCoflow{
		{ID: 0, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 2, Size: 3, Flows: []Megabytes{1, 2}}}},
		{ID: 4, Arrival: time.Second, Mappers: []int{2}, Reducers: []TraceReducer{{Port: 0, Size: 5}}},
	}}
	want := &Trace{Name: "t", Ports: 6, Coflows: []TraceCoflow{
		{ID: 0, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 2, Size: 3, Flows: []Megabytes{1, 2}}}},
		{ID: 1, Mappers: []int{3, 4}, Reducers: []TraceReducer{{Port: 5, Size: 3, Flows: []Megabytes{1, 2}}}},
		{ID: 8, Arrival: time.Second, Mappers: []int{2}, Reducers: []TraceReducer{{Port: 0, Size: 5}}},
		{ID: 9, Arrival: time.Second, Mappers: []int{5}, Reducers: []TraceReducer{{Port: 3, Size: 5}}},
	}}
	got, err := Replicate(in, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("two copies (-want +got):\n%s", diff)
	}
	if in.Coflows[0].Mappers[0] != 0 || in.Coflows[1].Reducers[0].Port != 0 {
		t.Errorf("the input trace was modified: %+v", in)
	}
	if one, err := Replicate(in, 1); err != nil || !gocmp.Equal(one, in) {
		t.Errorf("one copy: %+v, %v", one, err)
	}
}

// drawTrace draws a trace with totals per reducer.
func drawTrace(t *rapid.T) *Trace {
	out := &Trace{Name: "t", Ports: rapid.IntRange(1, 40).Draw(t, "ports"), InBytes: rapid.Bool().Draw(t, "in bytes")}
	ports := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
		for i := 0; i < out.Ports && yield(i); i++ {
		}
	}))
	for i := range rapid.IntRange(1, 12).Draw(t, "coflows") {
		c := TraceCoflow{ID: CoflowID(i * 3), Arrival: time.Duration(i) * time.Millisecond}
		c.Mappers = ports.Draw(t, "mappers")[:rapid.IntRange(1, out.Ports).Draw(t, "n")]
		for _, port := range ports.Draw(t, "reducers")[:rapid.IntRange(1, min(5, out.Ports)).Draw(t, "n")] {
			c.Reducers = append(c.Reducers, TraceReducer{Port: port, Size: Megabytes(rapid.Int64Range(int64(len(c.Mappers)), 1e12).Draw(t, "size"))})
		}
		out.Coflows = append(out.Coflows, c)
	}
	return out
}

// A MB of 10⁶ bytes has one millionth per byte: reducers keep their bytes, and each flow has
// at least one.
func TestMantriLikeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTrace(t)
		before := written(t, in)
		seed := rapid.Uint64().Draw(t, "seed")
		skew := MapSkew{P50: rapid.Float64Range(1e-6, 3).Draw(t, "p50")}
		skew.P90 = skew.P50 * rapid.Float64Range(1, 100).Draw(t, "ratio")
		mb := rapid.SampledFrom([]units.Bytes{units.MB, units.MiB}).Draw(t, "mb")
		got, err := MantriLike(in, skew, mb, seed)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.check(); err != nil || !got.InBytes || got.Ports != in.Ports || len(got.Coflows) != len(in.Coflows) {
			t.Fatalf("%d of %d coflows on %d of %d ports: %v", len(got.Coflows), len(in.Coflows), got.Ports, in.Ports, err)
		}
		for i, c := range got.Coflows {
			was := in.Coflows[i]
			if c.ID != was.ID || c.Arrival != was.Arrival || !slices.Equal(c.Mappers, was.Mappers) || c.Width() != was.Width() {
				t.Fatalf("coflow %+v became %+v", was, c)
			}
			for j, r := range c.Reducers {
				want := was.Reducers[j].Size // rounded up to bytes
				if !in.InBytes && mb == units.MiB {
					want = Megabytes((int64(want)*int64(units.MiB) + 999_999) / 1_000_000)
				}
				if r.Port != was.Reducers[j].Port || r.Size != want || slices.Min(r.Flows) < 1 {
					t.Fatalf("reducer %+v became %+v, want %d bytes", was.Reducers[j], r, want)
				}
			}
		}
		if again, _ := MantriLike(in, skew, mb, seed); written(t, got) != written(t, again) {
			t.Fatal("the same seed gives another trace")
		}
		if written(t, in) != before {
			t.Fatal("the trace was written to")
		}
	})
}

// The coefficients have the specified quantiles, over the coflows that can have one.
func TestMantriLike(t *testing.T) {
	in, err := Facebook{NoTail: true}.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	check := func(in *Trace, skew MapSkew, seed uint64) *Trace {
		t.Helper()
		got, err := MantriLike(in, skew, units.MiB, seed)
		if err != nil {
			t.Fatal(err)
		}
		skews := got.MapSkews()
		if p50, p90 := quantile(0.5, skews), quantile(0.9, skews); !near(p50, skew.P50, 1.02) || !near(p90, skew.P90, 1.02) {
			t.Errorf("seed %d: coefficients of variation %.3f at P50 and %.3f at P90, want %v and %v within 2 %%", seed, p50, p90, skew.P50, skew.P90)
		}
		return got
	}
	first := check(in, MantriSkew, 1)
	if other := check(in, MantriSkew, 2); written(t, first) == written(t, other) {
		t.Error("another seed gives the same trace")
	}
	check(in, MapSkew{0.1, 0.2}, 1)
	for _, s := range in.MapSkews() {
		if s != 0 {
			t.Fatalf("a coefficient of %v where all mappers send the same", s)
		}
	}
	trace, _ := facebookTrace(t)
	got := check(trace, MantriSkew, 1)
	if n := len(got.MapSkews()); n != 526-175 {
		t.Errorf("%d coflows of two mappers or more, want 351", n)
	}
	size := Megabytes(0)
	for _, c := range got.Coflows {
		size += c.Size()
	}
	if want := Megabytes(35_533_534 * int64(units.MiB)); size != want {
		t.Errorf("%d bytes in all, want %d", size, want)
	}
}

// Computed by hand: with 10 bytes and weights 1, 2, 1 each part gets one byte and its share of
// seven, 1, 3 and 1. The heaviest gets the remaining two.
func TestSplit(t *testing.T) {
	if got, want := split(10, []uint64{1, 2, 1}), []Megabytes{2, 6, 2}; !slices.Equal(got, want) {
		t.Errorf("10 bytes by 1, 2, 1: %v, want %v", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint64Range(1, 1<<weightBits), 1, 200).Draw(t, "weights")
		size := rapid.Int64Range(int64(len(weights)), int64(maxReducerSize)).Draw(t, "size")
		sum := Megabytes(0)
		for _, p := range split(size, weights) {
			if p < 1 {
				t.Fatalf("a part of %d", p)
			}
			sum += p
		}
		if sum != Megabytes(size) {
			t.Fatalf("parts of %d in all, want %d", sum, size)
		}
	})
}

func TestDerivedTracesKeepCoflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTrace(t)
		k := Factor{rapid.Int64Range(1, 50).Draw(t, "k"), rapid.Int64Range(1, 10).Draw(t, "over")}
		thin := rapid.IntRange(0, 50).Draw(t, "thin")
		n := rapid.IntRange(1, 5).Draw(t, "copies")
		low, lowErr := LowSkewFiltered(in, k)
		wide, wideErr := WideOnly(in, thin)
		kept := map[CoflowID][2]bool{}
		for i, out := range []*Trace{low, wide} {
			if out == nil {
				continue // no coflow remains, which is checked below
			}
			for _, c := range out.Coflows {
				at, ok := slices.BinarySearchFunc(in.Coflows, c.ID, func(c TraceCoflow, id CoflowID) int { return cmp.Compare(c.ID, id) })
				if !ok || !gocmp.Equal(c, in.Coflows[at]) {
					t.Fatalf("coflow %+v is not of the trace", c)
				}
				both := kept[c.ID]
				both[i] = true
				kept[c.ID] = both
			}
		}
		if (low == nil) != (lowErr != nil) || (wide == nil) != (wideErr != nil) {
			t.Fatalf("a trace with an error: %v, %v", lowErr, wideErr)
		}
		for _, c := range in.Coflows {
			least, most := slices.MinFunc(c.Reducers, bySize).Size, slices.MaxFunc(c.Reducers, bySize).Size
			if want := int64(most)*k.Den > int64(least)*k.Num; kept[c.ID][0] != want {
				t.Fatalf("coflow with flows of %d to %d kept: %v, want %v at %v", least, most, kept[c.ID][0], want, k)
			}
			if want := len(c.Mappers)*len(c.Reducers) > thin; kept[c.ID][1] != want {
				t.Fatalf("coflow of %d × %d flows kept: %v, want %v", len(c.Mappers), len(c.Reducers), kept[c.ID][1], want)
			}
		}
		copies, err := Replicate(in, n)
		if err != nil || copies.check() != nil || copies.Ports != n*in.Ports || len(copies.Coflows) != n*len(in.Coflows) {
			t.Fatalf("%d copies: %v", n, err)
		}
		for i, c := range copies.Coflows {
			was, at := in.Coflows[i/n], c.Mappers[0]/in.Ports
			if c.ID != was.ID*CoflowID(n)+CoflowID(i%n) || at != i%n || c.Arrival != was.Arrival || c.Size() != was.Size() || c.Width() != was.Width() {
				t.Fatalf("copy %d of %+v is %+v", i%n, was, c)
			}
			for _, port := range c.Mappers {
				if port/in.Ports != at {
					t.Fatalf("coflow %d spans copies: %v", c.ID, c.Mappers)
				}
			}
			for _, r := range c.Reducers {
				if r.Port/in.Ports != at {
					t.Fatalf("coflow %d spans copies: %v", c.ID, c.Reducers)
				}
			}
		}
	})
}

func bySize(a, b TraceReducer) int { return cmp.Compare(a.Size, b.Size) }
