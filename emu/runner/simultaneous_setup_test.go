package runner

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/topo/units"
)

// startScenario is an incast of 40 senders of 16 KB each, and then lone flows of 16 KB, on one
// switch.
const startScenario = `
name: start
fabric: {kind: switch, ports: 41, host_link: 50Mbps, queue: 200ms}
setup: %s
workload:
  - {kind: trace, path: trace.txt, mb: MB}
arms:
  coflow: [fair]
`

const senders, lone = 40, 15

// begun holds the start times of the flows of a run.
type begun struct {
	spread     time.Duration   // of the first payload bytes of the incast
	setup      []time.Duration // of lone flows, ascending
	fct, fluid time.Duration   // median of lone flows
	shared     float64         // smallest part of a lone flow's setup that is in the shares of its coflow
	rep        summary.Repeat
}

func runStart(t *testing.T, mode string) begun {
	t.Helper()
	var mappers []string
	for p := range senders {
		mappers = append(mappers, fmt.Sprint(p))
	}
	trace := []string{fmt.Sprintf("1 100 %d %s 1 40:%.3f", senders, strings.Join(mappers, " "), 0.016*senders)}
	for i := range lone {
		trace = append(trace, fmt.Sprintf("%d %d 1 %d 1 40:0.016", 2+i, 500+40*i, i))
	}
	out, arms := onPackets(t, loadText(t, fmt.Sprintf(startScenario, mode), trace...))
	rep := arms["fair"]
	addsUp(t, rep)
	s := begun{rep: rep, shared: 1}
	res, err := flows.Reduce(t.Context(), filepath.Join(repeatDir(out.Dir, "fair", 0), "captures"), flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var first []time.Duration
	var fct, fluid []time.Duration
	for _, f := range res.Flows {
		if f.Coflow == 1 {
			first = append(first, f.Start)
			continue
		}
		s.setup, fct = append(s.setup, f.Setup), append(fct, f.FCT())
	}
	for _, f := range rep.Fluid.Flows {
		if f.Coflow != 1 {
			fluid = append(fluid, f.FCT())
		}
	}
	if len(first) != senders || len(fct) != lone || len(fluid) != lone {
		t.Fatalf("%d senders, %d lone flows, %d predicted", len(first), len(fct), len(fluid))
	}
	for _, list := range [][]time.Duration{s.setup, fct, fluid} {
		slices.Sort(list)
	}
	s.spread = slices.Max(first) - slices.Min(first)
	s.fct, s.fluid = fct[lone/2], fluid[lone/2]
	for _, c := range rep.Timing.Coflows {
		setup := breakdown.Total(c.Shares, breakdown.Setup)
		if c.Coflow == 1 {
			t.Logf("%s: incast of %v: %v", mode, c.CCT, c.Shares)
			continue
		}
		i := slices.IndexFunc(res.Flows, func(f flows.FlowRecord) bool { return f.Coflow == c.Coflow })
		f := res.Flows[i]
		if setup > f.Setup || f.Setup != f.Start-f.Arrival {
			t.Errorf("%s: lone coflow %d: setup is %v of its shares and %v of its flow, which starts %v after its arrival", mode, c.Coflow, setup, f.Setup, f.Start-f.Arrival)
		}
		// Marks and acknowledgements of others on its host's link count as queueing.
		s.shared = min(s.shared, float64(setup)/float64(f.Setup))
	}
	t.Logf("%s: first payload bytes of %d senders within %v, the first %v after the mark; lone flows of 16 KB: set up in %v at the median, FCT %v, fluid model %v; %.0f %% or more of setup is in the shares; verdict %v",
		mode, senders, s.spread, slices.Min(first)-res.Coflows[0].Arrival, s.setup[lone/2], s.fct, s.fluid, 100*s.shared, rep.Verdict.Level)
	for _, c := range rep.Verdict.Checks {
		if c.Level > 0 {
			t.Logf("%s: %s: %s: %s", mode, c.Name, c.Value, c.Reason)
		}
	}
	return s
}

// Under simultaneous setup the senders of an incast begin within a twentieth of the time that they take one by one. A short
// flow is set up and ends earlier, and after its setup takes the time that the fluid model predicts: 5 % more at most, and
// less by no more than the full bucket of its link sends at once. In both modes the shares of a lone coflow contain at
// least 80 % of its flow's setup.
func TestSimultaneousSetup(t *testing.T) {
	longtest.Skip(t, "starts many flows at once, 5 s")
	const rate, mtu = 50 * units.Mbps, 1500
	bucket := rate.TimeToSend(plan.DefaultBurst(rate, mtu))
	netnstest.Timing(t, func(t *testing.T) bool {
		serial, simultaneous := runStart(t, "serial"), runStart(t, "simultaneous")
		setup := func(s begun) time.Duration { return s.setup[lone/2] }
		asPredicted := func(s begun) bool {
			more := s.fct - setup(s) - s.fluid
			return -bucket <= more && more <= s.fluid/20
		}
		return simultaneous.spread <= serial.spread/20 && setup(simultaneous) < setup(serial) && simultaneous.fct < serial.fct &&
			asPredicted(serial) && asPredicted(simultaneous) && min(serial.shared, simultaneous.shared) >= 0.8
	})
}
