package runner

import (
	"testing"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/results/tooltest"
	"testbed/results/verdict"
)

// A queue four times as long, or a quarter as long, as planned at a leaf's port toward a host, or
// toward a spine, is found by what it held and dropped.
func TestOtherQueuesAreCaught(t *testing.T) {
	longtest.Nightly(t, "runs 4 planted queues twice on packets, 40 s")
	tooltest.Need(t, "ip", "tc")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	for _, tt := range []struct {
		name, device string
		change       func(*plan.Shaper)
	}{
		{"4 times toward a host", "h0-01", func(s *plan.Shaper) { s.Limit *= 4 }},
		{"a quarter toward a host", "h0-01", func(s *plan.Shaper) { s.Limit /= 4 }},
		{"4 times toward a spine", "spine0", func(s *plan.Shaper) { s.Limit *= 4 }},
		{"a quarter toward a spine", "spine0", func(s *plan.Shaper) { s.Limit /= 4 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trials(certain).Run(t, func(t *testing.T) bool {
				v := runJudged(t, at50, shapers("leaf0", tt.device, tt.change))
				got := level(v, "queue") >= verdict.Degraded
				show(t, v, !got)
				return got
			})
		})
	}
}
