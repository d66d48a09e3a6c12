package shuffle

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/topo/units"
)

func TestSAMPVectors(t *testing.T) {
	blocks := []Block{{100, []int{0, 1}}, {100, []int{0, 2}}, {100, []int{0, 1}}, {100, []int{1, 2}}}
	for _, test := range []struct {
		name    string
		sir     float64
		rule    Rule
		want    []int
		cost    float64
		reduces []int
	}{
		{"heavy", 1, FirstIncrease, []int{0}, 100, []int{4, 0, 0}},
		{"light", 0.1, FirstIncrease, []int{0, 1}, 20, []int{2, 2, 0}},
		{"light, all prefixes", 0.1, BestPrefix, []int{0, 1}, 20, []int{2, 2, 0}},
	} {
		got, err := SAMP(Input{Racks: 3, Blocks: blocks, SIR: test.sir, Reduces: 4, Preferring: []int{0, 1, 0}}, test.rule)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Racks, test.want) || math.Abs(got.Cost-test.cost) > 1e-9 || !slices.Equal(got.Reduces, test.reduces) {
			t.Errorf("%s: SAMP = %+v, want racks %v, cost %v, reduces %v", test.name, got, test.want, test.cost, test.reduces)
		}
	}
}

func TestSAMPErrors(t *testing.T) {
	_, err := SAMP(Input{Racks: 17, SIR: -1, Reduces: -1, Blocks: []Block{{-1, []int{17}}}}, BestSubset)
	if err == nil {
		t.Fatal("no error")
	}
	if got := len(err.(interface{ Unwrap() []error }).Unwrap()); got != 5 {
		t.Errorf("%d errors, want 5: %v", got, err)
	}
}

func TestSAMPProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{
			Racks:   rapid.IntRange(1, 6).Draw(t, "racks"),
			SIR:     rapid.SampledFrom([]float64{0, 0.1, 0.55, 1, 2}).Draw(t, "sir"),
			Reduces: rapid.IntRange(0, 9).Draw(t, "reduces"),
		}
		for range rapid.IntRange(0, 12).Draw(t, "blocks") {
			in.Blocks = append(in.Blocks, Block{
				units.Bytes(rapid.IntRange(0, 200).Draw(t, "size")),
				rapid.SliceOfN(rapid.IntRange(0, in.Racks-1), 1, 3).Draw(t, "replicas"),
			})
		}
		var got [3]Choice
		for rule := range got {
			got[rule], _ = SAMP(in, Rule(rule))
			sum := 0
			for _, n := range got[rule].Reduces {
				sum += n
			}
			if sum != in.Reduces {
				t.Fatalf("rule %d: %d tentative reduces of %d", rule, sum, in.Reduces)
			}
		}
		s := newSearch(in)
		if first := s.place(s.order[:1]); got[FirstIncrease].Cost > first.Cost {
			t.Fatalf("cost %v above that of the first rack, %v", got[FirstIncrease].Cost, first.Cost)
		}
		if got[BestPrefix].Cost > got[FirstIncrease].Cost || got[BestSubset].Cost > got[BestPrefix].Cost {
			t.Fatalf("costs rise: %v, %v, %v", got[0].Cost, got[1].Cost, got[2].Cost)
		}
		least := math.Inf(1)
		for m := 1; m < 1<<in.Racks; m++ {
			var set []int
			for r := range in.Racks {
				if m>>r&1 == 1 {
					set = append(set, r)
				}
			}
			least = min(least, s.place(set).Cost)
		}
		if got[BestSubset].Cost != least {
			t.Fatalf("best subset costs %v, brute force %v", got[BestSubset].Cost, least)
		}
		mixed := in
		mixed.Blocks = rapid.Permutation(in.Blocks).Draw(t, "mixed")
		for rule := range got {
			if c, _ := SAMP(mixed, Rule(rule)); c.Cost != got[rule].Cost || !slices.Equal(c.Racks, got[rule].Racks) || !slices.Equal(c.Intermediate, got[rule].Intermediate) {
				t.Fatalf("rule %d depends on the order of blocks: %+v and %+v", rule, c, got[rule])
			}
		}
	})
}

func TestSARPVectors(t *testing.T) {
	for _, test := range []struct {
		name       string
		done, maps int
		bytes      []float64
		tentative  []int
		want       []int
	}{
		{"measured", 6, 10, []float64{10, 90}, []int{5, 5}, []int{1, 9}},
		{"at the threshold", 5, 10, []float64{10, 90}, []int{5, 5}, []int{5, 5}},
		{"rounding", 10, 10, []float64{50, 30, 20}, []int{7, 0, 0}, []int{4, 2, 1}},
	} {
		if got := SARP(test.done, test.maps, DefaultMapCompletion, test.bytes, test.tentative, test.tentative[0]+test.tentative[1]); !slices.Equal(got, test.want) {
			t.Errorf("%s: SARP = %v, want %v", test.name, got, test.want)
		}
	}
	if got := crossing([]float64{10, 90}); math.Abs(got-18) > 1e-9 {
		t.Errorf("crossing = %v, want 18", got)
	}
}

func BenchmarkSAMP(b *testing.B) {
	in := Input{Racks: 10, SIR: 1, Reduces: 100}
	for i := range 10000 {
		in.Blocks = append(in.Blocks, Block{128, []int{i % 10, (i*7 + 3) % 10}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := SAMP(in, BestPrefix); err != nil {
			b.Fatal(err)
		}
	}
}
