package clone

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A task has read 20 of 100 in 40 s, and a new copy takes 25 s: it is restarted while others wait, and gets a copy on an idle
// slot. One that has read 70 goes on.
func TestMantri(t *testing.T) {
	rates := func() []float64 { return []float64{1. / 25, 1. / 25, 1. / 25, 1. / 160} }
	slow, fast := TimeLeft(0.2, 40*time.Second), TimeLeft(0.7, 40*time.Second)
	for _, tt := range []struct {
		name             string
		waiting          bool
		left             time.Duration
		copies, restarts int
		rates            []float64
		want             Action
	}{
		{"slow", true, slow, 1, 0, rates(), Restart},
		{"slow, idle slots", false, slow, 1, 0, rates(), Duplicate},
		{"fast", true, fast, 1, 0, rates(), NoAction},
		{"fast, idle slots", false, fast, 1, 0, rates(), NoAction},
		{"restarted three times", true, slow, 1, 3, rates(), Duplicate},
		{"two copies", true, slow, 2, 1, rates(), Duplicate},
		{"new copies would be as slow", true, slow, 1, 3, []float64{1. / 25, 1. / 160, 1. / 160, 1. / 160}, NoAction},
		{"saves 30 s, idle slots", false, 55 * time.Second, 1, 0, []float64{1. / 25}, NoAction},
		{"saves 31 s, idle slots", false, 56 * time.Second, 1, 0, []float64{1. / 25}, Duplicate},
		{"saves 10 s", true, 35 * time.Second, 1, 0, []float64{1. / 25}, NoAction},
		{"no rates", true, slow, 1, 0, nil, NoAction},
		{"no progress anywhere", false, slow, 1, 0, []float64{0, 0}, NoAction},
	} {
		if got := DefaultMantri().Act(tt.waiting, tt.left, tt.rates, tt.copies, tt.restarts); got != tt.want {
			t.Errorf("%s: action %d, want %d", tt.name, got, tt.want)
		}
	}
}

// While tasks wait, a copy is added only if it is expected to save slot time with some of the rates, and no task is restarted
// that would end sooner by itself.
func TestMantriSaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOf(rapid.Float64Range(0, 1)).Draw(t, "rates")
		left := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "left"))
		copies, restarts := rapid.IntRange(0, 4).Draw(t, "copies"), rapid.IntRange(0, 4).Draw(t, "restarts")
		m := DefaultMantri()
		a := m.Act(true, left, rates, copies, restarts)
		if a == NoAction {
			return
		}
		best := 0.
		for _, r := range rates {
			best = max(best, r)
		}
		if left.Seconds()*best <= 1 {
			t.Errorf("action %d on a task with %v left, at a rate of %v a new copy takes as long", a, left, best)
		}
		if a == Restart && (copies != 1 || restarts >= m.Restarts) {
			t.Errorf("restart of a task with %d copies and %d restarts", copies, restarts)
		}
	})
}

// 0.40 in the last window and 0.10 in the long term: 0.25.
func TestBlacklist(t *testing.T) {
	if got := Predict(0.4, 0.1); got != 0.25 {
		t.Errorf("prediction %v, want 0.25", got)
	}
	for _, tt := range []struct {
		above                                        float64
		lastStraggled, lastJudged, straggled, judged int
		want                                         bool
	}{{0.2, 4, 10, 10, 100, true}, {0.25, 4, 10, 10, 100, false}, {0.2, 0, 0, 50, 100, false}, {0, 10, 10, 10, 10, false}, {0.2, 0, 10, 39, 100, false}, {0.2, 0, 10, 41, 100, true}} {
		b := Blacklist{Above: tt.above}
		if got := b.Skips(tt.lastStraggled, tt.lastJudged, tt.straggled, tt.judged); got != tt.want {
			t.Errorf("%+v: skipped %v", tt, got)
		}
	}
}
