package clone

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// jobStraggles returns the probability that a job of n tasks straggles with whole copies of the job, and with copies
// of each task.
func jobStraggles(n, copies int, p float64) (jobs, tasks float64) {
	return math.Pow(1-math.Pow(1-p, float64(n)), float64(copies)), 1 - math.Pow(1-math.Pow(p, float64(copies)), float64(n))
}

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
		jobs, tasks := jobStraggles(10, c+1, 0.1)
		if math.Abs(jobs-want[0]) > 5e-5 || math.Abs(tasks-want[1]) > 5e-5 {
			t.Errorf("%d copies: %.4f and %.4f, want %v", c+1, jobs, tasks, want)
		}
	}
}

// Of 600 slots, 30 are for copies, and 480 may be in use.
func TestAdmit(t *testing.T) {
	for _, tt := range []struct {
		how                       Admission
		reserved, used, copies, n int
		each, total               int
	}{
		{AllOrNothing, 0, 400, 3, 10, 3, 30}, {AllOrNothing, 30, 400, 2, 2, 1, 0}, {AllOrNothing, 0, 460, 3, 10, 1, 0}, {AllOrNothing, 0, 450, 3, 10, 3, 30},
		{AllOrNothing, 0, 0, 1, 31, 1, 0}, {AllOrNothing, 26, 476, 2, 2, 2, 4}, {AllOrNothing, 26, 477, 2, 2, 1, 0}, {Preemption, 30, 400, 2, 2, 1, 0}, {Preemption, 0, 400, 3, 10, 3, 30},
		{Partial, 0, 0, 3, 10, 3, 30}, {Partial, 0, 0, 3, 15, 2, 30}, {Partial, 0, 0, 3, 16, 1, 0}, {Partial, 10, 0, 4, 5, 4, 20}, {Partial, 11, 0, 4, 5, 3, 15}, {Partial, 40, 0, 3, 2, 1, 0},
		{FCFS, 0, 0, 3, 10, 3, 30}, {FCFS, 0, 0, 3, 100, 3, 30}, {FCFS, 1, 0, 3, 100, 3, 29}, {FCFS, 2, 0, 3, 100, 3, 27}, {FCFS, 28, 0, 3, 100, 3, 2}, {FCFS, 29, 0, 3, 100, 1, 0}, {FCFS, 35, 0, 3, 1, 1, 0},
		{FCFS, 0, 470, 3, 100, 3, 9},
	} {
		if each, total := tt.how.Admit(DefaultDolly().Room(tt.reserved, tt.used, 600), tt.copies, tt.n); each != tt.each || total != tt.total {
			t.Errorf("%+v: %d copies each and %d in total", tt, each, total)
		}
	}
	var got []int
	for i := range 4 {
		got = append(got, CopiesOf(i, 3, 8))
	}
	if want := []int{3, 3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("8 copies, at most 3 of a task: %v, want %v", got, want)
	}
}

// No rule exceeds the room, the copies of the tasks add up to the total, and all rules give the same copies if there is room.
func TestAdmissionKeepsTheRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room, copies, n := rapid.IntRange(-5, 60).Draw(t, "room"), rapid.IntRange(1, 6).Draw(t, "copies"), rapid.IntRange(1, 20).Draw(t, "tasks")
		for how := range FCFS + 1 {
			each, total := how.Admit(room, copies, n)
			cloned := 0
			for i := range n {
				c := CopiesOf(i, each, total)
				if c > copies {
					t.Fatalf("rule %d: task %d has %d copies, at most %d", how, i, c, copies)
				}
				if c > 1 {
					cloned += c
				}
			}
			if cloned != total || total > max(room, 0) {
				t.Fatalf("rule %d: %d copies of cloned tasks, %d in total, in a room of %d", how, cloned, total, room)
			}
			if copies > 1 && copies*n <= room && (each != copies || total != copies*n) {
				t.Fatalf("rule %d: %d copies each and %d in total, with room for all", how, each, total)
			}
		}
	})
}

// The largest jobs lose their clones first, none if that is not enough, and none that is as small as the new one.
func TestVictims(t *testing.T) {
	list := []Cloned{{Tasks: 5, Frees: 10}, {Tasks: 20, Frees: 4}, {Tasks: 9, Frees: 6}, {Tasks: 20, Frees: 3}, {Tasks: 30}}
	for _, tt := range []struct {
		tasks, need int
		want        []int
	}{{5, 1, []int{3}}, {5, 3, []int{3}}, {5, 4, []int{3, 1}}, {5, 8, []int{3, 1, 2}}, {5, 13, []int{3, 1, 2}}, {5, 14, nil}, {4, 14, []int{3, 1, 2, 0}}, {20, 1, nil}} {
		if got := Victims(list, tt.tasks, tt.need); !slices.Equal(got, tt.want) {
			t.Errorf("%d slots for a job of %d tasks: victims %v, want %v", tt.need, tt.tasks, got, tt.want)
		}
	}
}

// Estimates start with the given p and approach the share that is observed.
func TestLearned(t *testing.T) {
	for _, tt := range []struct {
		straggled, judged int
		want              float64
	}{{0, 0, 0.1}, {0, 100, 0.05}, {30, 100, 0.2}, {30000, 99900, 0.3001}} {
		if got := DefaultDolly().Learned(tt.straggled, tt.judged); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%d of %d straggled: p %v, want %v", tt.straggled, tt.judged, got, tt.want)
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
			if _, risk := jobStraggles(n, c, d.Straggle); risk > d.Risk*(1+1e-6) {
				t.Errorf("%d copies of %d tasks straggle with probability %v, at most %v", c, n, risk, d.Risk)
			}
		}
		if _, risk := jobStraggles(n, c-1, d.Straggle); c > 1 && c < MaxCopies && risk < d.Risk*(1-1e-6) {
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
