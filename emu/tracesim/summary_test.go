package tracesim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/tracesim"
	"testbed/results/metrics"
	"testbed/topo/units"
)

func TestSummary(t *testing.T) {
	const s = time.Second
	cs := []tracesim.Coflow{
		{Arrival: s, Finish: 3 * s, Bound: s, Width: 50, Largest: 5 * units.MB},
		{Arrival: s, Finish: 2 * s, Bound: s, Width: 50, Largest: 5*units.MB + 1},
		{Arrival: 0, Finish: 6 * s, Bound: 2 * s, Width: 51, Largest: 5*units.MB + 1},
	}
	want := tracesim.Summary{N: 3, Mean: 3 * s, P50: 2 * s, P90: 5200 * time.Millisecond, P95: 5600 * time.Millisecond, P99: 5920 * time.Millisecond, Most: 6 * s, Slowdown: 2}
	if d := cmp.Diff(want, tracesim.Summarize(cs)); d != "" {
		t.Error(d)
	}
	bins := tracesim.ByBin(cs, metrics.DefaultBins())
	if got, want := [4]int{bins[metrics.SN].N, bins[metrics.LN].N, bins[metrics.SW].N, bins[metrics.LW].N}, [4]int{1, 1, 0, 1}; got != want {
		t.Errorf("coflows in the bins: %v, want %v", got, want)
	}
}
