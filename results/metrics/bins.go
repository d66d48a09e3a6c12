package metrics

import (
	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

// Bin is a class of coflows by the size of the largest flow and the number of
// flows (Chowdhury, Zhong and Stoica, SIGCOMM 2014).
type Bin uint8

// The bins: short or long, narrow or wide.
const (
	SN Bin = iota
	LN
	SW
	LW
)

func (b Bin) String() string { return [...]string{"SN", "LN", "SW", "LW"}[b&3] }

// Bins are the bounds between the bins.
type Bins struct {
	Short  units.Bytes // the most a flow of a short coflow may have
	Narrow int         // the most flows a narrow coflow may have
}

// DefaultBins split the public trace as published; a workload that is scaled down
// needs Short scaled with it.
func DefaultBins() Bins { return Bins{Short: 5 * units.MB, Narrow: 50} }

// Of sorts the coflows of r into bins.
func (b Bins) Of(r flows.Records) map[workloads.CoflowID]Bin {
	longest := map[workloads.CoflowID]units.Bytes{}
	for _, f := range r.Flows {
		longest[f.Coflow] = max(longest[f.Coflow], f.Size)
	}
	bins := make(map[workloads.CoflowID]Bin, len(r.Coflows))
	for _, c := range r.Coflows {
		bin := SN
		if longest[c.Coflow] > b.Short {
			bin |= LN
		}
		if c.Width > b.Narrow {
			bin |= SW
		}
		bins[c.Coflow] = bin
	}
	return bins
}
