package flowsim_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// wideCoflows draws coflows in which each of several hosts sends to each of several others.
func wideCoflows(t *rapid.T, hosts int) []workloads.Coflow {
	var out []workloads.Coflow
	next := workloads.FlowID(0)
	for i := range rapid.IntRange(2, 5).Draw(t, "coflows") {
		c := workloads.Coflow{ID: workloads.CoflowID(i + 1), Arrival: time.Duration(rapid.IntRange(0, 300).Draw(t, "gap")) * time.Millisecond}
		if i > 0 {
			c.Arrival += out[i-1].Arrival
		}
		even := rapid.Bool().Draw(t, "even")
		size := units.Bytes(1)
		for s := range rapid.IntRange(3, hosts).Draw(t, "senders") {
			for r := range hosts {
				if !even || r == 0 {
					size = 1 + units.Bytes(math.Exp(rapid.Float64Range(12, 17).Draw(t, "log size")))
				}
				if s != r {
					c.Flows = append(c.Flows, workloads.Flow{ID: next, Src: topo.HostID(s), Dst: topo.HostID(r), Size: size})
					next++
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// Coflows end at the same times, and in the same number of events, if rates of MADD are kept for
// all flows of a coflow together and if they are kept flow by flow, as for a policy that sees
// flows.
func TestJointUnderBackfill(t *testing.T) {
	f, err := topo.BigSwitch(7, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]coflow.Key{"fifo": coflow.Arrival, "scf": coflow.LargestFlow, "lcf": coflow.Bytes} {
		for _, backfill := range []coflow.Backfill{coflow.FairShare, coflow.TopUp} {
			t.Run(name+map[bool]string{true: " fair-share"}[backfill == coflow.FairShare], func(t *testing.T) {
				compared := 0
				few(t, 20, func(t *rapid.T) {
					cfg := flowsim.Config{Fabric: f, Scheduler: coflow.Ordered{By: by, Sharing: coflow.Sharing{Backfill: backfill}}}
					coflows := wideCoflows(t, 7)
					got, gotViews, err := records(t.Context(), cfg, coflows, 0)
					if err != nil {
						t.Fatal(err)
					}
					want, wantViews, err := records(t.Context(), cfg, coflows, policies.Flows)
					if err != nil {
						t.Fatal(err)
					}
					for i, c := range got.Coflows {
						if d := (c.Finish - want.Coflows[i].Finish).Abs(); d > 2*time.Nanosecond {
							t.Errorf("coflow %d ends at %v, flow by flow at %v", c.ID, c.Finish, want.Coflows[i].Finish)
						}
						compared++
					}
					if len(gotViews) != len(wantViews) {
						t.Errorf("%d decisions, flow by flow %d", len(gotViews), len(wantViews))
					}
				})
				if compared == 0 {
					t.Error("no coflow was compared")
				}
			})
		}
	}
}
