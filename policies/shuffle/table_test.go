package shuffle

import (
	"math"
	"math/rand/v2"
	"testing"

	"testbed/topo/units"
)

// drawn returns a job whose blocks have replicas on two racks, as HDFS places them.
func drawn(r *rand.Rand, racks, blocks int, sir float64) Input {
	in := Input{Racks: racks, SIR: sir, Reduces: max(1, blocks/10)}
	for range blocks {
		first := r.IntN(racks)
		second := (first + 1 + r.IntN(racks-1)) % racks
		in.Blocks = append(in.Blocks, Block{Size: units.MB, Racks: []int{first, second}})
	}
	return in
}

// crossed returns the bytes across racks for each byte of input, averaged over drawn jobs, if all maps
// and reduces run where the rule has them, and the bound of any assignment of the maps.
func crossed(t *testing.T, rule Rule, racks, blocks int, sir float64) (cost, bound float64) {
	r := rand.New(rand.NewPCG(uint64(racks), uint64(blocks)))
	const draws = 200
	for range draws {
		in := drawn(r, racks, blocks, sir)
		c, err := SAMP(in, rule)
		if err != nil {
			t.Fatal(err)
		}
		least, err := leastCrossing(in)
		if err != nil {
			t.Fatal(err)
		}
		cost, bound = cost+c.Cost/float64(blocks)/1e6, bound+least/float64(blocks)/1e6
	}
	return cost / draws, bound / draws
}

// The bytes across racks of ShuffleWatcher's placement, from an independent simulation of it, and the bound of this
// package: for each byte of input, without limits of slots. Reduces spread over all racks have ratio × (1 − 1/racks).
func TestPlacementTable(t *testing.T) {
	blocks := []int{1, 4, 16, 64, 256}
	for _, tt := range []struct {
		racks int
		ratio float64
		rule  Rule
		want  []float64
		bound []float64 // of any assignment
	}{
		{5, 1, FirstIncrease, []float64{0, 0.26, 0.44, 0.52, 0.56}, []float64{0, 0.276, 0.439, 0.526, 0.562}},
		{5, 0.55, FirstIncrease, []float64{0, 0.26, 0.40, 0.44, 0.42}, []float64{0, 0.197, 0.311, 0.355, 0.371}},
		{10, 1, FirstIncrease, []float64{0, 0.44, 0.63, 0.72, 0.76}, []float64{0, 0.43, 0.63, 0.716, 0.759}},
		{10, 0.55, FirstIncrease, []float64{0, 0.40, 0.59, 0.71, 0.76}, []float64{0, 0.286, 0.406, 0.445, 0.460}},
		{10, 0.55, BestPrefix, []float64{0, 0.32, 0.45, 0.48, 0.49}, []float64{0, 0.286, 0.406, 0.445, 0.460}},
	} {
		for i, n := range blocks {
			got, bound := crossed(t, tt.rule, tt.racks, n, tt.ratio)
			if math.Abs(bound-tt.bound[i]) > 0.002 {
				t.Errorf("%d racks, ratio %v, %d blocks: bound %.3f, want %.3f", tt.racks, tt.ratio, n, bound, tt.bound[i])
			}
			if math.Abs(got-tt.want[i]) > 0.02 {
				t.Errorf("%d racks, ratio %v, %d blocks, rule %d: %.3f bytes across racks for each byte of input, want %.2f", tt.racks, tt.ratio, n, tt.rule, got, tt.want[i])
			}
		}
	}
}
