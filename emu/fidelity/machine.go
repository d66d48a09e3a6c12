package fidelity

import (
	"fmt"
	"slices"
	"strings"

	"testbed/results/verdict"
)

// Machine is the use of the machine during the run. Shares are of the time of all
// processors.
type Machine struct {
	Known    bool
	Others   float64 // in other processes
	Own      float64 // in this one; most kernels charge it for packets and timers that it handles
	Softirq  float64 // for packets and timers
	Stolen   float64 // by the hypervisor
	Waiting  float64 // share of the time in which some task waited for a processor; < 0 if the kernel does not report it
	Testbeds int     // highest number of other testbeds, of any kind, that were up at the same time
}

func stall(s Samples, th Thresholds) verdict.Check {
	at, what := s.Stall, "a timer fired late"
	if s.Engine > at {
		at, what = s.Engine, "an event waited for the engine"
	}
	c := verdict.Check{Name: "stall", Value: fmt.Sprintf("%s at most", round(at)),
		Pass: fmt.Sprintf("≤ %v", th.StallPass), Void: fmt.Sprintf("≥ %g %% of the median CCT", 100*th.StallVoidCCT)}
	c.Level = grade(at <= th.StallPass, s.MedianCCT > 0 && float64(at) >= th.StallVoidCCT*float64(s.MedianCCT))
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("%s by %s once, %s: the testbed was stopped or preempted", what, round(at), s.medianCCT())
	}
	return c
}

func machine(s Samples, th Thresholds) verdict.Check {
	m := s.Machine
	c := verdict.Check{Name: "machine", Level: verdict.Pass, Value: "not measured", Pass: fmt.Sprintf("≤ %g %% of the processors in other processes", 100*th.OthersPass), Void: "more, and any of " + strings.Join(delayed, ", ") + " not pass"}
	if !m.Known {
		return c
	}
	c.Level = grade(m.Others <= th.OthersPass, false)
	c.Value = fmt.Sprintf("%.1f %% in other processes, %.1f %% in this one, %.1f %% for packets and timers (softirq), %.1f %% stolen", 100*m.Others, 100*m.Own, 100*m.Softirq, 100*m.Stolen)
	if m.Waiting >= 0 {
		c.Value += fmt.Sprintf(", tasks waited %.1f %% of the time", 100*m.Waiting)
	}
	switch m.Testbeds {
	case 0:
	case 1:
		c.Value += ", another testbed was up"
	default:
		c.Value += fmt.Sprintf(", up to %d other testbeds were up at the same time", m.Testbeds)
	}
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("other processes took %.0f %% of the processors%s", 100*m.Others, alone)
	}
	return c
}

// alone is the end of the reason where no other check shows an effect.
const alone = "; nothing was late, and two busy loops moved no figure of runs where that was measured (run again on a quiet machine to be sure)"

// delayed are the checks that show that packets or the program were late.
var delayed = []string{"delivered", "packet-spacing", "scheduling-lateness", "stall"}

// othersDelayed voids the check machine if other processes took more than their share and packets or the
// program were late: then the load was not only there, it moved the figures.
func othersDelayed(checks []verdict.Check) {
	at := slices.IndexFunc(checks, func(c verdict.Check) bool { return c.Name == "machine" })
	if at < 0 || checks[at].Level == verdict.Pass {
		return
	}
	for _, c := range checks {
		if c.Level != verdict.Pass && slices.Contains(delayed, c.Name) {
			checks[at].Level = verdict.Void
			checks[at].Reason = strings.TrimSuffix(checks[at].Reason, alone) + fmt.Sprintf(" (run again on a quiet machine), and %s is %s: %s", c.Name, c.Level, c.Value)
			return
		}
	}
}
