package clone

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Copies for a risk of 5 %.
func TestCopies(t *testing.T) {
	sizes := []int{1, 2, 5, 10, 20, 50, 100}
	for p, want := range map[float64][]int{0.05: {1, 2, 2, 2, 2, 3, 3}, 0.1: {2, 2, 2, 3, 3, 3, 4}, 0.2: {2, 3, 3, 4, 4, 5, 5}, 0.3: {3, 4, 4, 5, 5, 6, 7}} {
		d := DefaultDolly()
		d.Straggle = p
		var got []int
		for _, n := range sizes {
			got = append(got, d.Copies(n))
		}
		if !slices.Equal(got, want) {
			t.Errorf("p %v: %v copies of %v tasks, want %v", p, got, sizes, want)
		}
	}
}

// With p = 0.1, a job of 10 tasks straggles less with copies of tasks than with copies of the job.
func TestJobStraggles(t *testing.T) {
	for c, want := range [][2]float64{{0.6513, 0.6513}, {0.4242, 0.0956}, {0.2763, 0.0100}, {0.1800, 0.0010}} {
		jobs, tasks := JobStraggles(10, c+1, 0.1)
		if math.Abs(jobs-want[0]) > 5e-5 || math.Abs(tasks-want[1]) > 5e-5 {
			t.Errorf("%d copies: %.4f and %.4f, want %v", c+1, jobs, tasks, want)
		}
	}
}

// Of 600 slots, 30 are for copies, and 480 may be in use.
func TestAdmits(t *testing.T) {
	for _, tt := range []struct {
		reserved, used, copies int
		want                   bool
	}{{0, 400, 30, true}, {30, 400, 4, false}, {0, 460, 30, false}, {0, 450, 30, true}, {0, 0, 31, false}, {26, 476, 4, true}, {26, 477, 4, false}} {
		if got := DefaultDolly().Admits(tt.reserved, tt.used, tt.copies, 600); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// The number of copies is the least that keeps the risk, and grows with the tasks and with p.
func TestCopiesKeepTheRisk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Dolly{Straggle: rapid.Float64Range(0.001, 0.9).Draw(t, "p"), Risk: rapid.Float64Range(0.001, 0.5).Draw(t, "risk")}
		n := rapid.IntRange(1, 1000).Draw(t, "tasks")
		c := d.Copies(n)
		if c < MaxCopies {
			if _, risk := JobStraggles(n, c, d.Straggle); risk > d.Risk*(1+1e-6) {
				t.Errorf("%d copies of %d tasks straggle with probability %v, at most %v", c, n, risk, d.Risk)
			}
		}
		if _, risk := JobStraggles(n, c-1, d.Straggle); c > 1 && c < MaxCopies && risk < d.Risk*(1-1e-6) {
			t.Errorf("%d copies of %d tasks are more than needed: %d straggle with probability %v", c, n, c-1, risk)
		}
		more := d
		more.Straggle = min(0.99, d.Straggle*1.1)
		if d.Copies(n+1) < c || more.Copies(n) < c {
			t.Errorf("%d copies of %d tasks, %d of one more, %d with a higher p", c, n, d.Copies(n+1), more.Copies(n))
		}
	})
}

// No input gives a panic, or less than one copy.
func TestCopiesOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Dolly{Straggle: rapid.Float64().Draw(t, "p"), Risk: rapid.Float64().Draw(t, "risk")}
		if c := d.Copies(rapid.Int().Draw(t, "tasks")); c < 1 || c > MaxCopies {
			t.Errorf("%d copies", c)
		}
	})
	for _, d := range []Dolly{{}, {Straggle: math.NaN(), Risk: 0.05}, {Straggle: 0.1, Risk: math.NaN()}, {Straggle: 1, Risk: 0.05}} {
		if c := d.Copies(10); c != 1 && d.Straggle != 0.1 {
			t.Errorf("%+v: %d copies, want no cloning", d, c)
		}
	}
}
