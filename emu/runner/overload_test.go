package runner_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/calibration/measure"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/emu/runner"
	"testbed/results/verdict"
	"testbed/topo/units"
)

const (
	overloadRate = 100 * units.Mbps
	overloadMTU  = units.Bytes(1500)
)

// carries returns the capacity of this machine in shaped packets per second: from its
// calibration, or measured now by the same code without one.
func carries(t *testing.T) (float64, error) {
	c, err := calibration.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		if at, ok := c.At(overloadMTU); ok {
			t.Logf("calibration of %s: %.0f packets a second", c.Date.Format(time.DateTime), at.Packets)
			return at.Packets, nil
		}
	}
	o := measure.Quick()
	o.Reference, o.Dir, o.StateRoot, o.Version = overloadRate, t.TempDir(), filepath.Join(t.TempDir(), "state"), "test"
	o.Progress = func(what string, _ float64) { t.Log(what) }
	start := time.Now()
	at, err := measure.Capacity(t.Context(), o, overloadMTU)
	if err != nil {
		return 0, err
	}
	t.Logf("measured in %v: %d saturated links of %v, %.0f packets a second", time.Since(start).Round(time.Millisecond), at.Links, at.Rate, at.Packets)
	return at.Packets, nil
}

// saturating returns a rack in which senders and receivers saturate every link of n hosts, and
// each receiver has two senders.
func saturating(pairs int) (string, []string) {
	text := fmt.Sprintf(`
name: saturating
fabric: {leaves: 1, spines: 0, hosts_per_leaf: %d, host_link: %v, mtu: %d, queue: 40ms}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
arms: {coflow: [fair]}
`, 4*pairs, overloadRate, int64(overloadMTU))
	var trace []string
	for i := range pairs {
		from, to := 2*i, 2*pairs+2*i
		trace = append(trace, fmt.Sprintf("%d 0 2 %d %d 2 %d:15.0 %d:15.0", i+1, from, from+1, to, to+1))
	}
	return text, trace
}

// Four times as many saturated links as the calibrated capacity.
func TestTooManyLinksAreCaught(t *testing.T) {
	longtest.Skip(t, "runs a planted fault up to 5 times, 25 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	const most = 50 // pairs: 200 hosts
	perLink := float64(overloadRate) / 8 / float64(overloadMTU+plan.EthernetHeader)
	var packets float64
	netnstest.Timing(t, func(t *testing.T) bool {
		var err error
		if packets, err = carries(t); err != nil {
			t.Log(err) // the machine was too busy to be measured
		}
		return err == nil
	})
	if t.Failed() || packets == 0 { // or the machine was disturbed each time, which Timing says
		return
	}
	pairs := int(4*packets/perLink+3) / 4
	if pairs > most {
		t.Fatalf("%d links of %v are four times what this machine carries: raise overloadRate", 4*pairs, overloadRate)
	}
	t.Logf("%d saturated links of %.0f packets a second", 4*pairs, perLink)
	text, trace := saturating(pairs)
	runner.Likely().Run(t, func(t *testing.T) bool {
		v := runner.RunClean(t, text, trace)
		runner.Show(t, v)
		return max(runner.LevelOf(v, "delivered"), runner.LevelOf(v, "packet-spacing"), runner.LevelOf(v, "scheduling-lateness")) > verdict.Pass
	})
}
