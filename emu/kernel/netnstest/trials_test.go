package netnstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// passes equals the sum over all outcomes.
func TestTrialsPass(t *testing.T) {
	for runs := 1; runs <= 10; runs++ {
		for least := 1; least <= runs; least++ {
			for _, p := range []float64{0.05, 1. / 3, 0.5, 0.9, 0.99} {
				want := 0.
				for outcome := range 1 << runs {
					of, succeeded := 1., 0
					for i := range runs {
						if outcome>>i&1 == 1 {
							of, succeeded = of*p, succeeded+1
						} else {
							of *= 1 - p
						}
					}
					if succeeded >= least {
						want += of
					}
				}
				tr := Trials{Runs: runs, Least: least}
				if got := tr.passes(p); math.Abs(got-want) > 1e-12 {
					t.Errorf("%d of %d at %g: %g, want %g", least, runs, p, got, want)
				}
			}
		}
	}
}

// Ending as soon as the rule is decided does not change the result.
func TestTrialsEndEarly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		tr := Trials{Runs: 1 + random.IntN(9)}
		tr.Least = 1 + random.IntN(tr.Runs)
		ran, succeeded, all := 0, 0, 0
		over, ok := false, false
		for range tr.Runs {
			good := random.IntN(2)
			all += good
			if !over {
				ran, succeeded = ran+1, succeeded+good
				over, ok = tr.decided(succeeded, ran-succeeded)
			}
		}
		if !over || ok != (all >= tr.Least) {
			t.Fatalf("%d of %d succeed, %d must: over %t after %d runs, passed %t", all, tr.Runs, tr.Least, over, ran, ok)
		}
	}
}

func TestTrialsMore(t *testing.T) {
	for _, tt := range []struct {
		power       float64
		runs, least int
	}{{0.9, 5, 4}, {0.9, 30, 25}, {0.99, 30, 29}, {0.99, 1, 1}, {0.5, 30, 11}} {
		want := Trials{tt.power, tt.runs, tt.least}
		if got := (Trials{Power: tt.power}).More(tt.runs); got != want {
			t.Errorf("%d runs for %g: %+v, want %+v", tt.runs, tt.power, got, want)
		}
	}
}

// docs/testing.md states the rules that tests use and their risks.
func TestTrialsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(b)), " ")
	for _, tr := range []Trials{{0.99, 2, 2}, {0.9, 5, 4}, {14. / 15, 15, 14}} {
		row := fmt.Sprintf("| %d of %d | %.1f %% | %.1f %% | %.1f %% |", tr.Least, tr.Runs, 100*(1-tr.passes(tr.Power)), 100*tr.passes(0.5), 100*tr.passes(weak))
		if !strings.Contains(page, row) {
			t.Errorf("docs/testing.md has no row %q", row)
		}
	}
	for _, tt := range []struct {
		tr     Trials
		at     float64
		passes bool
		text   string
	}{
		{Trials{Runs: 5, Least: 4}, 0.99, false, "4 of 5 fails in %.1f %%"},
		{Trials{Runs: 15, Least: 14}, 0.99, false, "14 of 15 in %.1f %%"},
		{Trials{Runs: 30, Least: 29}, 0.99, false, "(fails in %.1f %% at 99 %%)"},
		{Trials{Runs: 30, Least: 25}, 0.9, false, "(fails in %.1f %% at 90 %%"},
		{Trials{Runs: 30, Least: 25}, 0.7, true, "passes in %.1f %% at 70 %%)"},
		{Trials{Runs: 90, Least: 84}, 29. / 30, false, "(fails in %.1f %% at one false alarm in 30 runs)"},
	} {
		p := tt.tr.passes(tt.at)
		if !tt.passes {
			p = 1 - p
		}
		if want := fmt.Sprintf(tt.text, 100*p); !strings.Contains(page, want) {
			t.Errorf("docs/testing.md does not state %q", want)
		}
	}
}

func TestTrialsRefuse(t *testing.T) {
	for _, bad := range []Trials{{0.9, 3, 1}, {0.9, 5, 0}, {0.9, 5, 6}, {0.9, 0, 0}, {0, 5, 4}, {1, 5, 4}} {
		if bad.check() == nil {
			t.Errorf("%+v is not refused", bad)
		}
	}
	if err := (Trials{0.9, 5, 4}).check(); err != nil {
		t.Error(err)
	}
}

// A run that is skipped skips the test, whose rule would never be decided.
func TestTrialsSkip(t *testing.T) {
	ran, skipped := 0, false
	t.Run("trials", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		Trials{Power: 0.99, Runs: 3, Least: 3}.Run(t, func(t *testing.T) bool {
			if ran++; ran == 1 {
				t.Skip("a program is missing")
			}
			return false
		})
	})
	if ran != 1 || !skipped {
		t.Errorf("%d runs, skipped %t", ran, skipped)
	}
}
