package netnstest

import (
	"fmt"
	"testing"
)

// attempts is the maximum number of runs of a test that judges timing: other processes may load the
// machine.
const attempts = 3

// Timing runs a test that judges durations of real packets, up to three times, until f returns
// true. Each attempt is a subtest with its own cleanup and output: with -v all of them are printed,
// otherwise the last one if none succeeded. A failure by t.Error or t.Fatal in f concerns
// correctness and is not retried. If processors are emulated, f runs once, and only such a failure
// counts.
func Timing(t *testing.T, f func(t *testing.T) (ok bool)) {
	t.Helper()
	if NotJudged(t) {
		f(t)
		return
	}
	for i := range attempts {
		ok := false
		once := func(t *testing.T) {
			if ok = f(t); !ok && i == attempts-1 {
				t.Errorf("out of bounds in all of %d attempts", attempts)
			}
		}
		if !t.Run(fmt.Sprintf("attempt=%d", i+1), once) || ok {
			return
		}
		t.Logf("attempt %d of %d was out of bounds", i+1, attempts)
	}
}
