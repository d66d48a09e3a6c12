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

// Rates of mean 0.006 and standard deviation 0.0027: the last task is slow by more than a third of the mean, 0.002, and the
// standard deviation does not matter. Of hosts with a mean of 20 s and a deviation of 10 s, one with more than 30 s is slow.
func TestHadoop(t *testing.T) {
	var h Hadoop
	for rate, want := range map[float64]bool{0.0039: true, 0.004: false, 0.0041: false, 0.002: true} {
		if got := h.SlowTask(rate, []float64{0.009, 0.008, 0.005, 0.002}); got != want {
			t.Errorf("a task with rate %v is slow: %v", rate, got)
		}
	}
	if h.SlowTask(0.0095, []float64{0.01, 0.01, 0.01, 0.0095}) != true {
		t.Error("a task 0.0004 below the mean is not slow, with a standard deviation of 0.0002")
	}
	if h.SlowTask(1, []float64{1, 1}) || h.SlowTask(1, nil) || h.SlowHost(1, nil) {
		t.Error("a task or host is slow without others that are faster")
	}
	for took, want := range map[float64]bool{30: false, 30.1: true, 10: false} {
		if got := h.SlowHost(took, []float64{10, 30, 10, 30}); got != want {
			t.Errorf("a host with %v s is slow: %v", took, got)
		}
	}
	for _, tt := range []struct {
		backups, slots, running int
		want                    bool
	}{{9, 0, 0, true}, {10, 100, 50, false}, {19, 2000, 0, true}, {20, 2000, 0, false}, {29, 0, 300, true}, {30, 0, 300, false}} {
		if got := h.Admits(tt.backups, tt.slots, tt.running); got != tt.want {
			t.Errorf("%+v: admitted %v", tt, got)
		}
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
