package netnstest

import (
	"fmt"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"testbed/emu/longtest"
)

// Trials is the decision rule of a test whose runs can differ in their result, such as one that
// plants a fault which must be detected: the test passes if at least Least of Runs independent runs
// succeed. A few runs cannot prove a power, so the rule is a compromise: Run prints the probability
// that the test fails if the power is Power, and that it passes if the power is a half or a third.
type Trials struct {
	Power float64 // share of all possible runs that must succeed, in (0, 1)
	Runs  int
	Least int // 1 to Runs
}

// weak is a power that a rule must reject more often than not: success in one run of three.
const weak = 1. / 3

// risk is the maximum probability that a rule by More fails a test whose power is as required.
const risk = 0.1

// More returns the rule for n runs: the strictest that fails in at most a tenth of all cases if the
// power is tr.Power.
func (tr Trials) More(n int) Trials {
	more := Trials{Power: tr.Power, Runs: n, Least: n}
	for more.Least > 1 && more.passes(tr.Power) < 1-risk {
		more.Least--
	}
	return more
}

// passes returns the probability that the test passes if runs succeed with probability p.
func (tr Trials) passes(p float64) float64 {
	return distuv.Binomial{N: float64(tr.Runs), P: p}.Survival(float64(tr.Least) - 0.5)
}

func (tr Trials) check() error {
	switch {
	case tr.Power <= 0 || tr.Power >= 1:
		return fmt.Errorf("power %g: must be between 0 and 1", tr.Power)
	case tr.Least < 1 || tr.Least > tr.Runs:
		return fmt.Errorf("%d of %d runs: must be 1 to %d", tr.Least, tr.Runs, tr.Runs)
	case tr.passes(weak) > 0.5:
		return fmt.Errorf("%d of %d runs: passes in %.0f %% of all cases where one run of three succeeds", tr.Least, tr.Runs, 100*tr.passes(weak))
	}
	return nil
}

func (tr Trials) String() string {
	return fmt.Sprintf("%d of %d runs must succeed: fails in %.1f %% of all cases where %.1f %% of runs succeed, passes in %.1f %% where half do, in %.1f %% where a third do",
		tr.Least, tr.Runs, 100*(1-tr.passes(tr.Power)), 100*tr.Power, 100*tr.passes(0.5), 100*tr.passes(weak))
}

// decided reports whether the runs so far decide the test, and whether it passes.
func (tr Trials) decided(succeeded, failed int) (over, ok bool) {
	return succeeded >= tr.Least || failed > tr.Runs-tr.Least, succeeded >= tr.Least
}

// spare is the number of runs that may be repeated because the machine was disturbed.
func (tr Trials) spare() int { return max(disturbances, tr.Runs/2) }

// Run calls f up to tr.Runs times, until the rule is decided. Runs that fail while the rest of the
// machine disturbs them do not count, up to max(3, tr.Runs/2) of them; beyond that the test is not
// judged, which the summary of all tests says. Each call is a subtest with its own cleanup and
// output: with -v all of them are printed, otherwise the last one if the test fails. A failure by
// t.Error or t.Fatal in f concerns correctness and ends the test, t.Skip skips it. Where durations mean nothing
// (NotJudged), f runs once, and only such a failure counts.
func (tr Trials) Run(t *testing.T, f func(t *testing.T) (ok bool)) {
	t.Helper()
	if err := tr.check(); err != nil {
		t.Fatal(err)
	}
	if NotJudged(t) {
		f(t)
		return
	}
	t.Log(tr)
	succeeded, failed, spent := 0, 0, 0
	for over := false; !over; {
		why, skipped, ok := "", false, false
		once := func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			w := observe(t)
			if ok = f(t); ok {
				succeeded++
			} else if why = disturbed(t, w); why != "" {
				spent++
			} else {
				failed++
			}
			var passed bool
			if over, passed = tr.decided(succeeded, failed); over && !passed {
				t.Errorf("%d of %d runs succeeded; %v", succeeded, succeeded+failed, tr)
			}
		}
		if !t.Run(fmt.Sprintf("run=%d", succeeded+failed+spent+1), once) && !over {
			return
		}
		if skipped {
			t.Skip("a run was skipped")
		}
		said := fmt.Sprintf("%d runs succeeded, %d failed, %d were disturbed and do not count%s", succeeded, failed, spent, because(why))
		if spent > tr.spare() {
			t.Log(said)
			notJudged(t, why)
			return
		}
		if !ok && !over {
			said = longtest.Repeated + said
		}
		t.Log(said)
		if why != "" {
			awaitQuiet(t)
		}
	}
}
