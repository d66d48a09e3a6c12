package tracestats

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/topo/units"
	"testbed/workloads"
)

func one(id int, cct time.Duration, width int, largest units.Bytes) Coflow {
	return Coflow{ID: workloads.CoflowID(id), Arrival: time.Duration(id) * time.Second, CCT: cct, Bound: cct / 2, Width: width, Size: largest * 2, Largest: largest}
}

func TestSummarize(t *testing.T) {
	got := Summarize([]Coflow{
		one(1, 4*time.Second, 1, units.MB),
		one(2, 2*time.Second, 51, units.MB),
		one(3, 6*time.Second, 50, 5*units.MB),
		one(4, 20*time.Second, 51, 5*units.MB+1),
		one(5, 8*time.Second, 2, 6*units.MB),
	}, DefaultBins(units.MB))
	// Sorted: 2 4 6 8 20. P90 is at rank 3.6: 8 + 0.6·12; P95 at 3.8; P99 at 3.96.
	total := float64(1 + 1 + 5 + 5 + 6)
	want := Summary{Coflows: 5, Average: 8 * time.Second, P50: 6 * time.Second, P90: 15200 * time.Millisecond, P95: 17600 * time.Millisecond, P99: 19520 * time.Millisecond,
		Makespan: 24 * time.Second, OverBound: 2, Bins: [4]Bin{
			{"SN", 2, 5 * time.Second, 6 / total}, {"LN", 1, 8 * time.Second, 6 / total}, {"SW", 1, 2 * time.Second, 1 / total}, {"LW", 1, 20 * time.Second, 5 / total}}}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(Summary{Bins: [4]Bin{{Name: "SN"}, {Name: "LN"}, {Name: "SW"}, {Name: "LW"}}}, Summarize(nil, DefaultBins(units.MB))); d != "" {
		t.Errorf("of nothing (-want +got):\n%s", d)
	}
}

func TestSizeBins(t *testing.T) {
	of := func(id, width int, size units.Bytes) Coflow {
		return Coflow{ID: workloads.CoflowID(id), CCT: time.Duration(id) * time.Second, Width: width, Size: size}
	}
	const small = 100 * units.MB
	got := DefaultSizeBins(units.MB).Split([]Coflow{of(1, 7, small), of(2, 7, small+1), of(3, 8, small), of(4, 8, small+1), of(6, 9, 2*small)})
	total := float64(6*small + 2)
	want := [4]Bin{{"small thin", 1, time.Second, float64(small) / total}, {"large thin", 1, 2 * time.Second, float64(small+1) / total},
		{"small wide", 1, 3 * time.Second, float64(small) / total}, {"large wide", 2, 5 * time.Second, float64(3*small+1) / total}}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-12)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// With an MB of 2²⁰ bytes the bounds move too: a flow of 5 MB is short.
func TestBinsOfAnotherMB(t *testing.T) {
	c := one(1, time.Second, 50, 5*units.MiB)
	if b := DefaultBins(units.MiB).Of(c); b != workloads.ShortNarrow {
		t.Errorf("5 MiB with a MB of 2²⁰ bytes is %v, want SN", b)
	}
	if b := DefaultBins(units.MB).Of(c); b != workloads.LongNarrow {
		t.Errorf("5 MiB with a MB of 10⁶ bytes is %v, want LN", b)
	}
}

func TestFaster(t *testing.T) {
	base := []Coflow{one(1, 4*time.Second, 1, 1), one(2, 9*time.Second, 1, 1), one(3, 2*time.Second, 1, 1)}
	arm := []Coflow{one(3, 2*time.Second, 1, 1), one(2, 3*time.Second, 1, 1), one(1, 2*time.Second, 1, 1)}
	got, err := Faster(base, arm)
	// Ratios 1, 2 and 3; averages 5 s over 7/3 s. P90 at rank 1.8.
	want := Speedup{Coflows: 3, Averages: 15.0 / 7, Mean: 2, P50: 2, P90: 2.8}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-12)); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, tt := range []struct {
		name      string
		base, arm []Coflow
		err       string
	}{
		{"fewer", base, arm[:2], "3 and 2 coflows"},
		{"others", base, append([]Coflow{one(4, time.Second, 1, 1)}, arm[:2]...), "coflow 4 is in only one of them"},
		{"no time", base, append([]Coflow{{ID: 1}}, arm[:2]...), "coflow 1 takes 4s and 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Faster(tt.base, tt.arm); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: want %q", err, tt.err)
			}
		})
	}
	if s, err := Faster(nil, nil); err != nil || s != (Speedup{}) || math.IsNaN(s.Averages) {
		t.Errorf("of nothing: %+v, %v", s, err)
	}
}
