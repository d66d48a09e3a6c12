package shuffle

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/topo/units"
)

// cheapest returns the least cost of all assignments of blocks to racks, one by one.
func cheapest(in Input) float64 {
	load, least := make([]float64, in.Racks), math.Inf(1)
	var assign func(next int, remote float64)
	assign = func(next int, remote float64) {
		if next == len(in.Blocks) {
			cost := remote
			if in.Reduces > 0 {
				cost += in.SIR * crossing(load)
			}
			least = min(least, cost)
			return
		}
		b := in.Blocks[next]
		for r := range load {
			far := float64(b.Size)
			for _, at := range b.Racks {
				if at == r {
					far = 0
				}
			}
			load[r] += float64(b.Size)
			assign(next+1, remote+far)
			load[r] -= float64(b.Size)
		}
	}
	assign(0, 0)
	return least
}

// SAMP spreads the blocks of a set evenly over its racks, which the ratio of the shuffle makes expensive.
func TestBoundVectors(t *testing.T) {
	paper := []Block{{100, []int{0, 1}}, {100, []int{0, 2}}, {100, []int{0, 1}}, {100, []int{1, 2}}} // of TestSAMPVectors
	both, a, b := Block{100, []int{0, 1}}, Block{100, []int{0}}, Block{100, []int{1}}
	for _, tt := range []struct {
		name        string
		blocks      []Block
		sir         float64
		samp, bound float64
	}{
		// A takes its three blocks and reads the last one. Two blocks on each of A and B shuffle 200.
		{"all on one rack", paper, 1, 100, 100},
		// Two blocks on each of A and B shuffle 200 × 0.1, three and one 150 × 0.1.
		{"one rack takes what it can", paper, 0.1, 20, 15},
		// Either rack alone reads three blocks. Six blocks on each of A and B shuffle 600 × 0.5, nine and three 450 × 0.5.
		{"choices", []Block{a, a, a, b, b, b, both, both, both, both, both, both}, 0.5, 300, 225},
	} {
		in := Input{Racks: 3, Blocks: tt.blocks, SIR: tt.sir, Reduces: 4}
		c, err := SAMP(in, BestSubset)
		if err != nil {
			t.Fatal(err)
		}
		got, err := leastCrossing(in)
		if err != nil || math.Abs(got-tt.bound) > 1e-9 || math.Abs(c.Cost-tt.samp) > 1e-9 {
			t.Errorf("%s: best subset costs %v, bound %v, %v: want %v and %v", tt.name, c.Cost, got, err, tt.samp, tt.bound)
		}
	}
}

func TestBoundProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{
			Racks:   rapid.IntRange(1, 4).Draw(t, "racks"),
			SIR:     rapid.SampledFrom([]float64{0, 0.1, 0.55, 1, 2}).Draw(t, "sir"),
			Reduces: rapid.IntRange(0, 2).Draw(t, "reduces"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "blocks") {
			in.Blocks = append(in.Blocks, Block{
				units.Bytes(rapid.IntRange(0, 200).Draw(t, "size")),
				rapid.SliceOfN(rapid.IntRange(0, in.Racks-1), 0, 3).Draw(t, "replicas"),
			})
		}
		got, err := leastCrossing(in)
		if err != nil {
			t.Fatal(err)
		}
		if want := cheapest(in); math.Abs(got-want) > 1e-6 {
			t.Fatalf("bound %v, all assignments %v", got, want)
		}
		if c, _ := SAMP(in, BestSubset); got > c.Cost+1e-6 {
			t.Fatalf("bound %v above the cost of the best subset, %v", got, c.Cost)
		}
	})
}
