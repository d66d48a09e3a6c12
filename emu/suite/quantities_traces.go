package suite

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/flowsim"
	"testbed/emu/flowsim/comparison"
	"testbed/results/metrics"
	"testbed/results/tracestats"
	"testbed/topo/units"
	"testbed/workloads"
)

// traced are policies on a trace in the flow-level simulator.
type traced struct {
	trace *workloads.Trace
	out   *comparison.Outcome
}

// policy returns the run of a policy, nil for none.
func (t *traced) policy(name string) *comparison.Run {
	for i := range t.out.Runs {
		if t.out.Runs[i].Policy == name {
			return &t.out.Runs[i]
		}
	}
	return nil
}

func ccts(t *traced, r *comparison.Run, f *figure) (items []metrics.Item) {
	bins := tracestats.DefaultSizeBins(comparison.MB(t.trace, flowsim.Ports{}))
	for _, c := range r.Times() {
		if f.bin == "" || bins.Of(c).String() == f.bin {
			items = append(items, metrics.Item{ID: int(c.ID), Cluster: int(c.ID), Time: c.CCT})
		}
	}
	return items
}

// sizeError compares the sizes estimated from pilot flows with the true sizes.
func sizeError(_ *traced, r *comparison.Run, f *figure) (float64, error) {
	var signed []float64
	for _, c := range r.Coflows {
		if c.Pilots > 0 {
			estimated := float64(c.PilotSent) / float64(c.Pilots) * float64(c.Width)
			signed = append(signed, estimated/float64(c.Size)-1)
		}
	}
	if len(signed) == 0 {
		return math.NaN(), nil
	}
	if f.statistic == "deviation" {
		var mean, square float64
		for _, x := range signed {
			mean += x / float64(len(signed))
		}
		for _, x := range signed {
			square += (x - mean) * (x - mean) / float64(len(signed))
		}
		return math.Sqrt(square), nil
	}
	for i, x := range signed {
		signed[i] = math.Abs(x)
	}
	return f.statisticOf(signed), nil
}

// ofPolicy is the function of a quantity of traces, quantity.trace.
type ofPolicy = func(*traced, *comparison.Run, *figure) (float64, error)

// learning returns a statistic of shares of coflows, which depend on when a coflow has learned its size, and on the
// bytes that it has sent by then. Under policies with pilot flows, coflows without them have nothing to learn.
func learning(share func(*flowsim.Coflow, time.Duration, units.Bytes) float64) ofPolicy {
	return func(_ *traced, r *comparison.Run, f *figure) (float64, error) {
		sampled := slices.ContainsFunc(r.Coflows, func(c flowsim.Coflow) bool { return c.Pilots > 0 })
		var shares []float64
		for i := range r.Coflows {
			c := &r.Coflows[i]
			at, sent := c.Queued, c.QueuedSent
			if sampled {
				at, sent = c.Arrival, 0
				if c.Pilots > 0 && c.Width > workloads.ThinCoflow {
					at, sent = c.Sampled, c.SampledSent
				}
			}
			shares = append(shares, 100*share(c, at, sent))
		}
		if len(shares) == 0 {
			return math.NaN(), nil
		}
		return f.statisticOf(shares), nil
	}
}

func untilLearned(c *flowsim.Coflow, at time.Duration, _ units.Bytes) float64 {
	return float64(at-c.Arrival) / float64(c.CCT())
}

func sentLearned(c *flowsim.Coflow, _ time.Duration, sent units.Bytes) float64 {
	return float64(sent) / float64(c.Size)
}

// soon is 1 for a coflow that learns within 1 % of its CCT, else 0.
func soon(c *flowsim.Coflow, at time.Duration, sent units.Bytes) float64 {
	if untilLearned(c, at, sent) < 0.01 {
		return 1
	}
	return 0
}

// perInterval returns the average of a count of the coordinator over its intervals, NaN without any.
func perInterval(count func(*flowsim.Coordinator) int64) ofPolicy {
	return func(_ *traced, r *comparison.Run, f *figure) (float64, error) {
		m := &r.Coordinator
		return float64(count(m)) / float64(m.Intervals) / cmp.Or(f.of.per, 1), nil
	}
}
