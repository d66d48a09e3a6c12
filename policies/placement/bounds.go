package placement

import (
	"math"
	"slices"
	"time"

	"testbed/topo/units"
)

// UncongestedBound is the least time that a block takes on an idle cluster: its size
// over the slowest of a disk and the links of its pipeline. A disk of rate 0 is never
// the bottleneck. The mean of measured times over the mean of these bounds
// what any placement can improve. A link of rate 0 makes it the longest Duration.
//
// It is the first of two bounds in place of the "loose upper bound of the optimal"
// that Sinbad (SIGCOMM 2013) has figures of but does not define.
func UncongestedBound(size units.Bytes, disk units.Rate, links ...units.Rate) time.Duration {
	slowest := units.MaxRate
	if disk > 0 {
		slowest = disk
	}
	for _, l := range links {
		slowest = min(slowest, l)
	}
	return slowest.TimeToSend(size)
}

// FluidBound is the least mean time of blocks that are all asked for at one moment,
// whatever their placement: at the rate of a disk, 0 for one that is never the
// bottleneck, and together at no more than residual, which is what is left of all
// bottleneck links after traffic that placement does not change. Each block crosses
// these links crossings times: 1 with HDFS's and SameRack's two remote replicas in one
// rack, 2 with Literal. It holds for fractions of blocks and ignores constraints. Of no
// blocks it is 0.
//
// The i-th block to end does so no sooner than the i smallest have crossed, nor
// than the i-th smallest is written. Of k equal blocks that is
// (1/k) Σ max(size/disk, i·size/residual). It is the second of two bounds, and holds
// where residual is the mean over the time in which the blocks are written.
func FluidBound(sizes []units.Bytes, crossings int, disk, residual units.Rate) time.Duration {
	sizes = slices.Sorted(slices.Values(sizes))
	seconds := func(bytes float64, r units.Rate) float64 {
		if bytes == 0 {
			return 0
		}
		return bytes * 8 / float64(r) // +Inf at rate 0
	}
	sum, crossed := 0.0, 0.0
	for _, size := range sizes {
		crossed += float64(float64(size) * float64(max(crossings, 0)))
		t := seconds(crossed, residual)
		if disk > 0 {
			t = max(t, seconds(float64(size), disk))
		}
		sum += t
	}
	if len(sizes) == 0 {
		return 0
	}
	mean := sum / float64(len(sizes)) * float64(time.Second)
	if mean >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(mean)
}
