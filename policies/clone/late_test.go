package clone

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Tasks that have progressed 0.9, 0.8, 0.5 and 0.2 in 100 s have the 25th percentile 0.00425 per second. Only the last one
// is below, with 400 s left.
func TestLATE(t *testing.T) {
	l, elapsed := DefaultLATE(), 100*time.Second
	progress := []float64{0.9, 0.8, 0.5, 0.2}
	var rates []float64
	for _, p := range progress {
		rates = append(rates, ProgressRate(p, elapsed))
	}
	for i, p := range progress {
		if got, want := l.SlowTask(ProgressRate(p, elapsed), rates), i == 3; got != want {
			t.Errorf("a task with progress %v is slow: %v", p, got)
		}
	}
	if got := percentile(rates, 0.25); math.Abs(got-0.00425) > 1e-9 {
		t.Errorf("25th percentile %v, want 0.00425", got)
	}
	if got := TimeLeft(0.2, elapsed); got.Round(time.Microsecond) != 400*time.Second {
		t.Errorf("time left %v, want 400 s", got)
	}
	if !l.Admits(9, 100) || l.Admits(10, 100) || !l.Admits(0, 1) || l.Admits(0, 0) {
		t.Error("the cap of 10 % of 100 slots is not 10 backups")
	}
	if l.SlowHost(2, []float64{2, 1, 4, 8}) || !l.SlowHost(1, []float64{2, 1, 4, 8}) || l.SlowHost(0, nil) {
		t.Error("hosts with 1, 2, 4 and 8 tasks: only the first is below the 25th percentile, 1.75")
	}
}

// Percentiles are between neighbours, and no input gives a panic, or a negative time.
func TestLATEOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.Float64Range(0, 1)).Draw(t, "values")
		l := LATE{HostPercentile: rapid.Float64().Draw(t, "percentile")}
		l.TaskPercentile = l.HostPercentile
		x := rapid.Float64().Draw(t, "value")
		slower := 0
		if slow := l.SlowTask(x, values); slow != l.SlowHost(x, values) {
			t.Errorf("%v is slow among %v: %v", x, values, slow)
		}
		for _, v := range values {
			if l.SlowTask(v, values) {
				slower++
			}
		}
		if p := min(max(l.TaskPercentile, 0), 1); float64(slower) > math.Ceil(p*float64(len(values))) {
			t.Errorf("%d of %d values are below the percentile %v", slower, len(values), p)
		}
		if TimeLeft(x, time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "elapsed"))) < 0 || ProgressRate(x, 0) != 0 {
			t.Errorf("progress %v gives a negative time", x)
		}
	})
}
