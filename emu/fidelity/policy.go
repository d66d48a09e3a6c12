package fidelity

import (
	"fmt"
	"time"

	"testbed/results/verdict"
)

// Answers are those of a policy that is a process, relative to the latency that the scenario states.
type Answers struct {
	Role  string
	Count int
	// Late is how much longer than the latency the process took, at the 99th percentile, and Most the most of all.
	Late, Most time.Duration
}

func policyLate(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{
		Name:  "policy-late",
		Level: verdict.Pass,
		Value: "no policy is a process with a stated latency",
		Pass:  fmt.Sprintf("p99 ≤ %v or %g %% of the median CCT", th.LatenessPass, 100*th.LatenessPassCCT),
		Void:  fmt.Sprintf("≥ %g %% of the median CCT", 100*th.LatenessVoidCCT),
	}
	worst := -time.Nanosecond
	for _, a := range s.Answers {
		if a.Late <= worst {
			continue
		}
		worst = a.Late
		of := float64(a.Late) / max(float64(s.MedianCCT), 1)
		some := s.MedianCCT > 0
		c.Level = grade(a.Late <= th.LatenessPass || some && of <= th.LatenessPassCCT, some && of >= th.LatenessVoidCCT)
		c.Value = fmt.Sprintf("p99 of %d answers %s, at most %s (%s)", a.Count, round(a.Late), round(a.Most), a.Role)
		c.Reason = fmt.Sprintf("the process of the %s policy answered %s after its latency at the 99th percentile, %s: "+
			"state a larger latency, or latency: measured", a.Role, round(a.Late), s.medianCCT())
	}
	if c.Level == verdict.Pass {
		c.Reason = ""
	}
	return c
}
