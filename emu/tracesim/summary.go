package tracesim

import (
	"math"
	"slices"
	"time"

	"testbed/results/metrics"
)

// Summary describes the completion times of coflows as the papers do. With N 0 the
// rest is 0 and means nothing.
type Summary struct {
	N                        int
	Mean                     time.Duration
	P50, P90, P95, P99, Most time.Duration // metrics.Quantile: linearly interpolated
	// Slowdown is the average over the coflows of their CCT over their Bound.
	Slowdown float64
}

// Summarize describes the coflows.
func Summarize(coflows []Coflow) Summary {
	if len(coflows) == 0 {
		return Summary{}
	}
	s := Summary{N: len(coflows)}
	ccts := make([]float64, len(coflows))
	sum := 0.0
	for i, c := range coflows {
		ccts[i] = float64(c.CCT())
		sum += ccts[i]
		s.Slowdown += ccts[i] / float64(c.Bound)
	}
	slices.Sort(ccts)
	at := func(p float64) time.Duration { return time.Duration(math.Round(metrics.Quantile(p, ccts))) }
	s.Mean = time.Duration(math.Round(sum / float64(s.N)))
	s.P50, s.P90, s.P95, s.P99, s.Most = at(0.50), at(0.90), at(0.95), at(0.99), at(1)
	s.Slowdown /= float64(s.N)
	return s
}

// ByBin describes the coflows of each bin, by metrics.Bin.
func ByBin(coflows []Coflow, bins metrics.Bins) [4]Summary {
	var in [4][]Coflow
	for _, c := range coflows {
		b := metrics.SN
		if c.Largest > bins.Short {
			b |= metrics.LN
		}
		if c.Width > bins.Narrow {
			b |= metrics.SW
		}
		in[b] = append(in[b], c)
	}
	var out [4]Summary
	for b := range in {
		out[b] = Summarize(in[b])
	}
	return out
}
