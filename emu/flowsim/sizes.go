package flowsim

import (
	"slices"

	"testbed/topo/units"
	"testbed/workloads"
)

// sizes tracks the median size of the flows that have ended.
type sizes struct {
	values []units.Bytes // different sizes of the coflow's flows, ascending
	ended  []int32       // number of ended flows of each size
	below  int           // number of ended flows with a size before at
	total  int
	at     int // of the median
}

func newSizes(flows []workloads.Flow) *sizes {
	z := &sizes{}
	seen := map[units.Bytes]bool{}
	for _, f := range flows {
		if !seen[f.Size] {
			seen[f.Size] = true
			z.values = append(z.values, f.Size)
		}
	}
	slices.Sort(z.values)
	z.ended = make([]int32, len(z.values))
	return z
}

// end adds one flow and returns the median, the smaller of two.
func (z *sizes) end(size units.Bytes) units.Bytes {
	i, _ := slices.BinarySearch(z.values, size)
	z.ended[i]++
	z.total++
	if i < z.at {
		z.below++
	}
	middle := (z.total - 1) / 2 // rank, from 0
	for middle < z.below {
		z.at--
		z.below -= int(z.ended[z.at])
	}
	for middle >= z.below+int(z.ended[z.at]) {
		z.below += int(z.ended[z.at])
		z.at++
	}
	return z.values[z.at]
}
