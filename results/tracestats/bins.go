package tracestats

import (
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Bins are the bounds of the four classes by which coflow schedulers are reported
// (workloads.Bin).
type Bins struct {
	Short  units.Bytes // the largest flow of a short coflow
	Narrow int         // the largest number of flows of a narrow coflow
}

// DefaultBins returns the bins that split the public trace as published, where an MB has mb
// bytes. A scaled workload needs Short scaled by the same factor.
func DefaultBins(mb units.Bytes) Bins { return Bins{Short: 5 * mb, Narrow: workloads.NarrowCoflow} }

// Of returns the class of a coflow.
func (b Bins) Of(c Coflow) workloads.Bin {
	bin := workloads.ShortNarrow
	if c.Largest > b.Short {
		bin = workloads.LongNarrow
	}
	if c.Width > b.Narrow {
		bin += workloads.ShortWide
	}
	return bin
}

// SizeBin is a class of coflows by their size and width, as in the evaluation of Philae
// (USENIX ATC 2019, figure 5): a thin coflow has no pilot flows, and large coflows benefit
// from its learning.
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

// SizeBins are the bounds of the size bins.
type SizeBins struct {
	Small units.Bytes // the largest size of a small coflow
	Thin  int         // the largest number of flows of a thin coflow
}

// DefaultSizeBins returns those of the figure, 100 MB and 7 flows, where an MB has mb bytes.
func DefaultSizeBins(mb units.Bytes) SizeBins {
	return SizeBins{Small: 100 * mb, Thin: workloads.ThinCoflow}
}

// Of returns the class of a coflow.
func (b SizeBins) Of(c Coflow) SizeBin {
	bin := SmallThin
	if c.Size > b.Small {
		bin |= LargeThin
	}
	if c.Width > b.Thin {
		bin |= SmallWide
	}
	return bin
}

// Split describes the coflows of each SizeBin.
func (b SizeBins) Split(all []Coflow) [4]Bin {
	return split(all, func(c Coflow) int { return int(b.Of(c)) }, func(i int) string { return SizeBin(i).String() })
}

// Bin describes the coflows of one class.
type Bin struct {
	Name    string        `json:"bin"`
	Coflows int           `json:"coflows"`
	Average time.Duration `json:"average_ns"`  // average CCT
	Bytes   float64       `json:"bytes_share"` // share of all bytes, 0 to 1
}

// split describes coflows by four classes.
func split(all []Coflow, of func(Coflow) int, name func(int) string) (out [4]Bin) {
	var ccts, sizes [4]float64
	bytes := 0.0
	for _, c := range all {
		b := of(c)
		out[b].Coflows++
		ccts[b] += float64(c.CCT)
		sizes[b] += float64(c.Size)
		bytes += float64(c.Size)
	}
	for b := range out {
		out[b].Name = name(b)
		if n := out[b].Coflows; n > 0 {
			out[b].Average = nearest(ccts[b] / float64(n))
		}
		if bytes > 0 {
			out[b].Bytes = sizes[b] / bytes
		}
	}
	return out
}
