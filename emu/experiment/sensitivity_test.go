package experiment

import (
	"fmt"
	"testing"

	"testbed/emu/kernel/netnstest"
	"testbed/results/verdict"
)

// The scenario of all that follows: about three seconds in which flows within and
// between racks saturate an uplink, a host's downlink and uplinks, while blocks are
// written to disks. Trace port p is host p/2 of rack p%2.
const judged = `
name: judged
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: %s, oversubscription: "3:1", queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 1, block: 3MB, replicas: 2, packet: 32KB, window: 4}
arms: {coflow: [fair], placement: [hdfs]}
`

// Coflow 1: h0-00 and h0-01 to h1-00 over the uplink of rack 0. Coflow 2: h1-01 and
// h1-02 to h0-02 over that of rack 1. Coflow 3: h0-00 and h0-02 to h0-01 within rack 0.
var judgedTrace = []string{
	"1 0 2 0 2 1 1:%g",
	"2 100 2 3 5 1 4:%g",
	"3 200 2 0 4 1 2:%g",
}

// runJudged runs the scenario once and returns its verdict.
func runJudged(t *testing.T, s func() (string, []string), lie tamper) verdict.Verdict {
	t.Helper()
	text, trace := s()
	o := options(t)
	o.tamper = lie
	out, err := Execute(t.Context(), loadText(t, text, trace...), o)
	if err != nil {
		t.Fatal(err)
	}
	return out.Report.Summary.Arms[0].Verdicts[0]
}

// judgedAt is the scenario with links of a rate, in Mbps, and coflows to match.
func judgedAt(rate float64) (text string, trace []string) {
	for i, mb := range []float64{18, 14, 14} {
		trace = append(trace, fmt.Sprintf(judgedTrace[i], mb*rate/50))
	}
	return fmt.Sprintf(judged, fmt.Sprintf("%gMbps", rate)), trace
}

func at50() (string, []string)  { return judgedAt(50) }
func at100() (string, []string) { return judgedAt(100) }

func level(v verdict.Verdict, name string) verdict.Level {
	for _, c := range v.Checks {
		if c.Name == name {
			return c.Level
		}
	}
	return 0
}

// show prints the checks that are not a pass, or all.
func show(t *testing.T, v verdict.Verdict, all bool) {
	t.Helper()
	t.Logf("verdict %v", v.Level)
	for _, c := range v.Checks {
		if all || c.Level != verdict.Pass {
			t.Logf("  %-20s %-9v %s. %s", c.Name, c.Level, c.Value, c.Reason)
		}
	}
}

// A clean run passes, five times of five.
func TestCleanRunsPass(t *testing.T) {
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	netnstest.Timing(t, func(t *testing.T) bool {
		passed := 0
		for i := range 5 {
			v := runJudged(t, at50, tamper{})
			if v.Level == verdict.Pass {
				passed++
			}
			t.Logf("run %d of 5", i+1)
			show(t, v, true)
			for _, name := range []string{"capture-drops", "captured-bytes", "records", "frames", "loss"} {
				if l := level(v, name); l > verdict.Pass {
					t.Errorf("%s is %v on a clean run", name, l)
				}
			}
		}
		t.Logf("%d of 5 clean runs pass", passed)
		return passed == 5
	})
}
