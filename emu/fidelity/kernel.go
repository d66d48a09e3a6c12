package fidelity

import (
	"fmt"
	"time"

	"testbed/results/verdict"
)

// KernelChange is a difference between the kernel and the plan that came during a run.
type KernelChange struct {
	After time.Duration // from the start of the run until the kernel reported it; negative during its preparation
	For   time.Duration // until the kernel reported that it was taken back; 0 until the end
	AtEnd bool          // the kernel reported nothing: it was found at the end, and After and For are 0
	Where string        // the link, such as "leaf0>h0-01", or the namespace
	What  string        // such as "rate"
	// Planned and Found are the values in the plan and in the kernel.
	Planned, Found string
	Why            string `json:",omitempty"` // the fault of the scenario that explains it
}

func (k KernelChange) String() string {
	when := fmt.Sprintf("%s after the start", round(k.After))
	switch {
	case k.AtEnd:
		when = "at the end"
	case k.For > 0:
		when += fmt.Sprintf(" for %s", round(k.For))
	}
	return fmt.Sprintf("%s: %s %s in the plan, %s in the kernel, %s", k.Where, k.What, k.Planned, k.Found, when)
}

// outlasts reports whether a change is nearer to the state that was left than another one, which comes before it: what was there
// to the end, else what lasted longer.
func (k KernelChange) outlasts(o KernelChange) bool {
	return o.For > 0 && (k.For == 0 || k.For > o.For)
}

// Kernel judges the changes of a run. lost states that reports of the kernel are missing.
func Kernel(changes []KernelChange, lost bool) verdict.Check {
	c := verdict.Check{Name: "kernel", Level: verdict.Pass, Value: "as planned", Pass: "as planned, except for faults of the scenario", Void: "any other change"}
	var worst KernelChange
	by, others := 0, 0
	for _, k := range changes {
		if k.Why != "" {
			by++
			continue
		}
		if others == 0 || k.outlasts(worst) {
			worst = k
		}
		others++
	}
	if by > 0 {
		c.Value = fmt.Sprintf("as planned; changes by faults: %d", by)
	}
	switch {
	case others > 0:
		c.Level = verdict.Void
		c.Value = fmt.Sprintf("changes: %d", others)
		c.Reason = worst.String()
		if others > 1 {
			c.Reason += fmt.Sprintf(", and %d more (measured.json)", others-1)
		}
		c.Reason += ": find out which program changed it, and run again"
	case lost:
		c.Level = verdict.Degraded
		c.Value = "reports lost"
		c.Reason = "the kernel reported more changes than could be read: some that were taken back may be missing"
	}
	return c
}
