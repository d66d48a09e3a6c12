package jobs

import (
	"math"
	"slices"
	"testing"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// usual are the stragglers of the model, uniform ones with probability 0.1.
func usual() *Stragglers {
	return &Stragglers{Probability: 0.1, Factor: [2]float64{6, 10}, Spread: 0.1, MidTask: 0.5, Window: 5 * time.Minute}
}

// slowdowns returns the draws of n attempts, each on a host of its own unless hosts is positive.
func slowdowns(s *Stragglers, n, hosts int) []Slowdown {
	all := make([]Slowdown, n)
	for i := range all {
		h := i
		if hosts > 0 {
			h %= hosts
		}
		all[i] = s.Of(1, AttemptID{Task: TaskID{Job: JobID(i/100 + 1), Stage: i % 2, Index: i % 100}, N: i % 3}, topo.HostID(h), time.Duration(i)*time.Second)
	}
	return all
}

// share returns the share of draws that have a property.
func share(all []Slowdown, has func(Slowdown) bool) float64 {
	n := 0
	for _, s := range all {
		if has(s) {
			n++
		}
	}
	return float64(n) / float64(len(all))
}

func straggles(s Slowdown) bool { return s.Straggles }

// mean returns the mean of a value of the draws that have a property.
func mean(all []Slowdown, has func(Slowdown) bool, value func(Slowdown) float64) float64 {
	sum, n := 0.0, 0
	for _, s := range all {
		if has(s) {
			sum += value(s)
			n++
		}
	}
	return sum / float64(n)
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %.4f, want %.4f ± %.4f", what, got, want, tolerance)
	}
}

func TestUniformStragglers(t *testing.T) {
	all := slowdowns(usual(), 40_000, 0)
	near(t, "stragglers", share(all, straggles), 0.1, 0.006)
	near(t, "mean factor of stragglers", mean(all, straggles, func(s Slowdown) float64 { return s.Factor }), 8, 0.08)
	ordinary := func(s Slowdown) bool { return !s.Straggles }
	near(t, "mean factor of others", mean(all, ordinary, func(s Slowdown) float64 { return s.Factor }), 1, 0.002)
	near(t, "stragglers from the start", share(all, func(s Slowdown) bool { return s.Straggles && s.Onset == 0 }), 0.05, 0.005)
	mid := func(s Slowdown) bool { return s.Onset > 0 }
	near(t, "mean onset", mean(all, mid, func(s Slowdown) float64 { return s.Onset }), 0.5, 0.025)
	for _, s := range all {
		least, most := 0.9, 1.1
		if s.Straggles {
			least, most = 6, 10
		}
		if s.Factor < least || s.Factor > most || s.Onset < 0 || s.Onset >= 1 || s.Onset > 0 && !s.Straggles {
			t.Fatalf("slowdown %+v", s)
		}
	}
	exact := usual()
	exact.Spread = 0
	for i, s := range slowdowns(exact, 1000, 0) {
		if s.Straggles != all[i].Straggles || s.Straggles && s != all[i] || !s.Straggles && s.Factor != 1 {
			t.Errorf("without spread: %+v instead of %+v", s, all[i])
		}
	}
	if s := (*Stragglers)(nil).Of(1, AttemptID{}, 0, 0); s != (Slowdown{Factor: 1}) {
		t.Errorf("no stragglers: %+v", s)
	}
}

// The probability is that of an attempt, whatever share of it comes from hosts, and all attempts of a host that
// straggles do in a window.
func TestStickyStragglers(t *testing.T) {
	for _, sticky := range []float64{0.2, 1} {
		s := usual()
		s.Sticky = sticky
		const hosts = 200
		all := slowdowns(s, 200_000, hosts)
		near(t, "stragglers", share(all, straggles), 0.1, 0.02)
		s.Window = time.Hour // enough for 18 attempts on each host
		all = slowdowns(s, 200_000, hosts)
		slow, windows := map[[2]int]int{}, map[[2]int]int{}
		whole, n := 0, 0
		for i, x := range all {
			key := [2]int{i % hosts, i / 3600}
			if windows[key]++; x.Straggles {
				slow[key]++
			}
		}
		for key, of := range windows {
			if n++; slow[key] == of {
				whole++
			}
		}
		own := 0.1 * (1 - sticky)
		near(t, "hosts that straggle in a window", float64(whole)/float64(n), (0.1-own)/(1-own), 0.012)
	}
}

// Figures of the model by simulation, for jobs of 10 tasks: those of its description.
func TestSlowestToMedian(t *testing.T) {
	early := usual()
	early.MidTask = 0
	more := usual()
	more.Probability, more.Factor = 0.12, [2]float64{6, 12}
	for _, tt := range []struct {
		name         string
		s            *Stragglers
		median, mean float64
	}{
		{"p 0.1, factor 6-10", usual(), 5.5, 4.8},
		{"all from the start", early, 7.2, 5.7},
		{"p 0.12, factor 6-12", more, 6.6, 5.9},
		{"pareto without a limit", &Stragglers{Shape: 1.26, Most: math.Inf(1)}, 4.6, math.NaN()},
	} {
		median, mean := tt.s.SlowestToMedian(1, 10)
		near(t, tt.name+": median", median, tt.median, 0.25)
		if !math.IsNaN(tt.mean) {
			near(t, tt.name+": mean", mean, tt.mean, 0.15)
		}
		t.Logf("%s: slowest to median: median %.2f, mean %.2f", tt.name, median, mean)
	}
	all := slowdowns(more, 40_000, 0)
	half := func(s Slowdown) bool { return s.Onset+(1-s.Onset)*s.Factor > 2 }
	near(t, "p 0.12: slower than half the median rate", share(all, half), 0.11, 0.006)
}

func TestParetoStragglers(t *testing.T) {
	s := &Stragglers{Shape: 1.26, Most: 20}
	all := slowdowns(s, 40_000, 0)
	for _, x := range []float64{1.5, 2, 4, 10} {
		near(t, "factors above a value", share(all, func(s Slowdown) bool { return s.Factor > x }), math.Pow(x, -1.26), 0.008)
	}
	near(t, "factors at the limit", share(all, func(s Slowdown) bool { return s.Factor == 20 }), math.Pow(20, -1.26), 0.003)
	factors := make([]float64, len(all))
	for i, x := range all {
		factors[i] = x.Factor
	}
	slices.Sort(factors)
	median := factors[len(factors)/2]
	near(t, "stragglers", share(all, straggles), share(all, func(s Slowdown) bool { return s.Factor > 2*median }), 0.01)
	if factors[0] < 1 || factors[len(factors)-1] > 20 {
		t.Errorf("factors from %v to %v", factors[0], factors[len(factors)-1])
	}
}

// The parts of the work of an attempt take what they do together, and shares of time are those of work.
func TestSlowdownOfParts(t *testing.T) {
	const sec = time.Second
	s := Slowdown{Factor: 8, Onset: 0.25}
	for _, x := range []struct{ done, part, takes time.Duration }{
		{0, 1 * sec, 1 * sec}, {1 * sec, 3 * sec, 24 * sec}, {0, 4 * sec, 25 * sec}, {0, 2 * sec, 9 * sec}, {2 * sec, 2 * sec, 16 * sec}, {1 * sec, 0, 0},
	} {
		if got := s.Takes(x.done, x.part, 4*sec); got != x.takes {
			t.Errorf("Takes(%v, %v) = %v, want %v", x.done, x.part, got, x.takes)
		}
	}
	// Half of 4 s takes 9 of 25 s, and the first second 1.
	for passed, want := range map[float64]float64{0: 0, 0.04: 0.25, 0.36: 0.5, 1: 1} {
		near(t, "share of work", s.Share(passed, 0, 4*sec, 4*sec), want, 1e-9)
	}
	if got := (Slowdown{Factor: 1}).Takes(sec, 2*sec, 4*sec); got != 2*sec {
		t.Errorf("without a factor: %v", got)
	}
	if r := s.Rate(100 * units.Mbps); r != 12_500*units.Kbps || s.Rate(3) != 1 {
		t.Errorf("rates %v and %v", r, s.Rate(3))
	}
}
