package metrics

import (
	"math"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Ideals returns the ideal FCT of flows between hosts of a fabric, 0 of others and of those that serve a task: the time of a flow of that size alone on the idle
// fabric, which is its payload with the headers of full frames at the rate of its path's slowest link, plus a round trip
// over the delays of the path's links. Of several spines, the one with the shortest time counts. FCT over it is the
// normalized FCT of pFabric (Alizadeh et al., SIGCOMM 2013, §5) and the slowdown of Homa (Montazeri et al., SIGCOMM 2018,
// §5): both divide by the time of the same flow on an idle network.
func Ideals(f *topo.Fabric, framing Framing, list []flows.FlowRecord) []time.Duration {
	ideals := make([]time.Duration, len(list))
	type pair struct{ src, dst string }
	type path struct {
		slowest units.Rate
		delay   time.Duration // one way
	}
	known := map[pair][]path{}
	paths := func(p pair) (out []path) {
		src, err1 := f.FindHost(p.src)
		dst, err2 := f.FindHost(p.dst)
		if err1 != nil || err2 != nil || src == dst {
			return nil
		}
		for spine := range max(1, f.Spines()) {
			one := path{slowest: math.MaxInt64, delay: f.PathDelay(src, dst, uint32(spine))}
			for _, l := range f.Path(src, dst, uint32(spine)) {
				one.slowest = min(one.slowest, f.Link(l).Rate)
			}
			if !slices.Contains(out, one) {
				out = append(out, one)
			}
		}
		return out
	}
	for i := range list {
		if list[i].Task != nil {
			continue
		}
		p := pair{list[i].Src, list[i].Dst}
		if _, ok := known[p]; !ok {
			known[p] = paths(p)
		}
		for _, path := range known[p] {
			t := path.slowest.TimeToSend(framing.Wire(list[i].Size)) + 2*path.delay
			if ideals[i] == 0 || t < ideals[i] {
				ideals[i] = t
			}
		}
	}
	return ideals
}

// sizeBounds are the upper bounds of ranges of flow sizes; a last range has none. pFabric's bounds, 100 KB and 10 MB, are
// among them.
var sizeBounds = []units.Bytes{10 * units.KB, 100 * units.KB, units.MB, 10 * units.MB}

// SlowdownOf is the slowdown of flows whose sizes are above a bound and up to another, which is 0 for none.
type SlowdownOf struct {
	Above, UpTo   units.Bytes
	N             int
	P50, P95, P99 float64
}

// Sizes returns the range in words.
func (s SlowdownOf) Sizes() string {
	name := func(b units.Bytes) string { return units.Compact(float64(b), "B") }
	switch {
	case s.UpTo == 0:
		return "above " + name(s.Above)
	case s.Above == 0:
		return "up to " + name(s.UpTo)
	}
	return name(s.Above) + " to " + name(s.UpTo)
}

// SlowdownBySize returns the slowdowns of flows by range of their sizes, without ranges that have none.
func SlowdownBySize(sizes []units.Bytes, slowdowns []float64) (out []SlowdownOf) {
	of := make([][]float64, len(sizeBounds)+1)
	for i, size := range sizes {
		k, _ := slices.BinarySearch(sizeBounds, size)
		of[k] = append(of[k], slowdowns[i])
	}
	for k, x := range of {
		if len(x) == 0 {
			continue
		}
		slices.Sort(x)
		s := SlowdownOf{N: len(x), P50: Quantile(0.50, x), P95: Quantile(0.95, x), P99: Quantile(0.99, x)}
		if k > 0 {
			s.Above = sizeBounds[k-1]
		}
		if k < len(sizeBounds) {
			s.UpTo = sizeBounds[k]
		}
		out = append(out, s)
	}
	return out
}

// FlowSlowdowns returns the sizes and slowdowns, FCT over Ideals, of the flows of FCTs whose ideal is known.
func FlowSlowdowns(r flows.Records, ideals []time.Duration) (sizes []units.Bytes, slowdowns []float64) {
	failed := failedOf(r, flows.FailedFlow, func(f flows.Failure) int { return int(f.Flow) })
	for i, ideal := range ideals {
		f := &r.Flows[i]
		if ideal > 0 && !failed[int(f.Flow)] && !f.Background && f.Task == nil {
			sizes, slowdowns = append(sizes, f.Size), append(slowdowns, float64(f.FCT())/float64(ideal))
		}
	}
	return sizes, slowdowns
}
