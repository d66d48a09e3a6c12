package summary

import (
	"testbed/results/metrics"
	"testbed/topo/units"
)

// FlowSlowdown is the slowdown of the flows of all repeats whose sizes are above a bound and up to another.
type FlowSlowdown struct {
	Above int     `json:"above_bytes" unit:"bytes"`
	UpTo  int     `json:"up_to_bytes,omitempty" unit:"bytes"` // 0 for no bound
	Sizes string  `json:"-" head:"flow size" left:"true"`
	N     int     `json:"n" head:"flows"`
	P50   float64 `json:"p50" unit:"times" head:"P50"`
	P95   float64 `json:"p95" unit:"times" head:"P95"`
	P99   float64 `json:"p99" unit:"times" head:"P99"`
}

// flowSlowdownsOf returns the slowdowns of an arm's flows by size; nil if no flow has one.
func flowSlowdownsOf(repeats []Repeat) (out []FlowSlowdown) {
	var sizes []units.Bytes
	var slowdowns []float64
	for _, r := range repeats {
		s, x := metrics.FlowSlowdowns(r.Records, r.Ideals)
		sizes, slowdowns = append(sizes, s...), append(slowdowns, x...)
	}
	for _, s := range metrics.SlowdownBySize(sizes, slowdowns) {
		out = append(out, FlowSlowdown{
			Above: int(s.Above), UpTo: int(s.UpTo), Sizes: s.Sizes(), N: s.N,
			P50: metrics.Round6(s.P50), P95: metrics.Round6(s.P95), P99: metrics.Round6(s.P99),
		})
	}
	return out
}
