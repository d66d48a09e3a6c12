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

// SizeBin is a class of coflows by their size and by whether they are thin, as the
// evaluation of Philae (USENIX ATC 2019, figure 5) reports them: a thin coflow has no
// pilots, and a large one is what its learning is for.
type SizeBin uint8

// The bins: small or large, thin or wide.
const (
	SmallThin SizeBin = iota
	LargeThin
	SmallWide
	LargeWide
)

func (b SizeBin) String() string {
	return [...]string{"small thin", "large thin", "small wide", "large wide"}[b&3]
}

// SizeBins are the bounds between the bins.
type SizeBins struct {
	Small units.Bytes // the most a small coflow may have
	Thin  int         // the most flows a thin coflow may have
}

// DefaultSizeBins are those of the figure: 100 MB, read as 2²⁰ bytes as the authors'
// simulator does, and 7 flows. A workload that is scaled down needs Small scaled with
// it.
func DefaultSizeBins() SizeBins { return SizeBins{Small: 100 * units.MiB, Thin: workloads.ThinCoflow} }

// Of sorts the coflows of r into bins.
func (b SizeBins) Of(r flows.Records) map[workloads.CoflowID]SizeBin {
	bins := make(map[workloads.CoflowID]SizeBin, len(r.Coflows))
	for _, c := range r.Coflows {
		bins[c.Coflow] = b.Bin(c.Width, c.Size)
	}
	return bins
}

// Bin is the class of a coflow of so many flows and bytes.
func (b SizeBins) Bin(width int, size units.Bytes) SizeBin {
	bin := SmallThin
	if size > b.Small {
		bin |= LargeThin
	}
	if width > b.Thin {
		bin |= SmallWide
	}
	return bin
}
