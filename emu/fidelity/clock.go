package fidelity

import (
	"fmt"
	"time"

	"testbed/results/verdict"
)

// ClockStep is a step of the wall clock, which stamps captured packets, by another
// program.
type ClockStep struct {
	After time.Duration // from the start of the run, by the monotonic clock
	By    time.Duration // the size of the step; 0 if the clock was set and set back at once
}

func clock(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "clock", Level: verdict.Pass, Value: "not set", Pass: "the wall clock is not set", Void: fmt.Sprintf("set by > %v", th.ClockVoid)}
	if len(s.Clock) == 0 {
		return c
	}
	worst := s.Clock[0]
	for _, k := range s.Clock[1:] {
		if k.By.Abs() > worst.By.Abs() {
			worst = k
		}
	}
	times := "once"
	if n := len(s.Clock); n > 1 {
		times = fmt.Sprintf("%d times", n)
	}
	c.Level = grade(false, worst.By.Abs() > th.ClockVoid)
	c.Value = fmt.Sprintf("set %s, by %s at most", times, round(worst.By))
	c.Reason = fmt.Sprintf("the machine's wall clock was set by %s, %s after the start: packets are stamped by it, so completion times are wrong (stop the program that sets the clock, such as a time service, and run again)", round(worst.By), round(worst.After))
	return c
}
