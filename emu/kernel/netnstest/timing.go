package netnstest

import (
	"fmt"
	"testing"

	"testbed/emu/longtest"
)

// attempts is the maximum number of runs of a test that judges timing: other processes may load the
// machine. Runs out of bounds on a machine that was disturbed do not count, up to disturbances.
const (
	attempts     = 3
	disturbances = 3
)

// Timing runs a test that judges durations of real packets, until f returns true, up to three times
// and up to three more for those in which the rest of the machine disturbed it. If these are used
// up, the test is not judged, which the summary of all tests says. Each attempt is a subtest with
// its own cleanup and output: with -v all of them are printed, otherwise the last one if none
// succeeded. A failure by t.Error or t.Fatal in f concerns correctness and is not retried. Where
// durations mean nothing (NotJudged), f runs once, and only such a failure counts. In virtual time f runs once too, and
// durations count.
func Timing(t *testing.T, f func(t *testing.T) (ok bool)) {
	t.Helper()
	if NotJudged(t) {
		f(t)
		return
	}
	most := attempts
	if Virtual() {
		most = 1
	}
	for judged, spent := 0, 0; judged < most; {
		ok, why := false, ""
		once := func(t *testing.T) {
			w := observe(t)
			if ok = f(t); ok {
				return
			}
			if why = disturbed(t, w); why != "" {
				spent++
			} else if judged++; judged == most {
				t.Errorf("out of bounds in all of %d attempts", most)
			}
		}
		n := judged + spent + 1
		if !t.Run(fmt.Sprintf("attempt=%d", n), once) || ok {
			return
		}
		said := fmt.Sprintf("attempt %d was out of bounds%s", n, because(why))
		if spent == disturbances {
			t.Log(said)
			notJudged(t, why)
			return
		}
		t.Log(longtest.Repeated + said)
		if why != "" {
			awaitQuiet(t)
		}
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ", which does not count: " + why
}
