package netnstest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"testbed/emu/longtest"
)

// outcomes is the variable with what the runs of TestChild report, one letter each: y for success, n
// for none, d for none on a machine that was disturbed, e for an error. It has at least one letter
// more than runs that are needed. The rule is that of Timing, in virtual time too, or of Trials
// with 4 of 5.
const (
	outcomes = "NETNSTEST_OUTCOMES"
	rule     = "NETNSTEST_RULE"
)

func TestAttempts(t *testing.T) {
	const timing, trials, virtual = "timing", "trials", "virtual"
	for _, tt := range []struct {
		rule, letters string
		runs          int
		ok, judged    bool
	}{
		{timing, "yn", 1, true, true},
		{timing, "nnyn", 3, true, true},
		{timing, "nnnyn", 3, false, true},
		{timing, "ndndyn", 5, true, true},
		{timing, "ndndny", 5, false, true},
		{timing, "ddyn", 3, true, true},
		{timing, "nddndy", 5, false, false}, // not enough on a quiet machine, and no success
		{timing, "ney", 2, false, true},     // an error is never out of bounds only
		{timing, "edy", 1, false, true},
		{virtual, "yn", 1, true, true},
		{virtual, "ny", 1, false, true}, // nothing disturbs it
		{trials, "yyyyn", 4, true, true},
		{trials, "ynyyyy", 5, true, true},
		{trials, "nnyyyy", 2, false, true}, // 4 of 5 can no longer succeed
		{trials, "nyyyny", 5, false, true},
		{trials, "yeyyyy", 2, false, true}, // an error is no failed detection
		{trials, "ydydydyn", 7, true, true},
		{trials, "dndyny", 5, false, true},
		{trials, "ydyddydy", 7, true, false},
	} {
		c := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
		c.Env = append(os.Environ(), outcomes+"="+tt.letters, rule+"="+tt.rule)
		if tt.rule == virtual {
			c.Env = append(c.Env, longtest.VMEnv+"="+longtest.VirtualTime)
		}
		b, err := c.CombinedOutput()
		out := string(b)
		name := map[string]string{timing: "attempt", virtual: "attempt", trials: "run"}[tt.rule]
		for i := range tt.runs + 1 {
			if ran := strings.Contains(out, fmt.Sprintf("=== RUN   TestChild/%s=%d\n", name, i+1)); ran != (i < tt.runs) {
				t.Errorf("%s %s: run %d is reported: %t", tt.rule, tt.letters, i+1, ran)
			}
		}
		judged := !strings.Contains(out, "timing not judged: the machine was planted")
		// What is not judged does not fail, unless there was an error.
		if ok := tt.ok || !tt.judged; (err == nil) != ok || judged != tt.judged {
			t.Errorf("%s %s: %v, judged: %t, want success: %t\n%s", tt.rule, tt.letters, err, judged, ok, out)
		}
		before := tt.letters[:tt.runs-1]
		if want, got := len(before)-strings.Count(before, "y"), strings.Count(out, longtest.Repeated); got != want {
			t.Errorf("%s %s: %d repeats are reported, want %d\n%s", tt.rule, tt.letters, got, want, out)
		}
		if tt.rule == trials && !strings.Contains(out, "4 of 5 runs must succeed: fails in 8.1 % of all cases where 90.0 % of runs succeed") {
			t.Errorf("%s: does not print its rule\n%s", tt.letters, out)
		}
	}
}

// TestChild is started by TestAttempts.
func TestChild(t *testing.T) {
	letters := os.Getenv(outcomes)
	if letters == "" {
		return
	}
	i := -1
	waited = quietBound
	meaningless = func() string { return "" }
	disturbed = func(testing.TB, watch) string {
		if letters[i] == 'd' {
			return "the machine was planted"
		}
		return ""
	}
	f := func(t *testing.T) bool {
		i++
		if letters[i] == 'e' {
			t.Error("wrong")
		}
		return letters[i] == 'y'
	}
	if os.Getenv(rule) != "trials" {
		Timing(t, f)
	} else {
		Trials{Power: 0.9, Runs: 5, Least: 4}.Run(t, f)
	}
}
