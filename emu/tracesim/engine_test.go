package tracesim_test

import (
	"flag"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/fluid"
	"testbed/emu/tracesim"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// onEngine runs coflows on the engine and the fluid backend, and returns when they
// ended.
func onEngine(t *rapid.T, f *topo.Fabric, p policies.Scheduler, coflows []workloads.Coflow, seed uint64) (map[workloads.CoflowID]time.Duration, error) {
	t.Helper()
	e, err := engine.New(engine.Config{Fabric: f, Coflow: p, Heartbeat: time.Hour, Alpha: 0.2, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	of := map[workloads.FlowID]workloads.CoflowID{}
	for _, c := range coflows {
		for _, fl := range c.Flows {
			of[fl.ID] = c.ID
		}
	}
	finish := map[workloads.CoflowID]time.Duration{}
	observe := func(now time.Duration, evs []engine.Event, _ []engine.Command) error {
		for _, ev := range evs {
			if fin, ok := ev.(engine.TransferFinished); ok {
				finish[of[fin.Flow]] = now
			}
		}
		return nil
	}
	return finish, engine.Run(t.Context(), e, fluid.New(f, fluid.Config{}), engine.Arrivals(workloads.Workload{Coflows: coflows}), observe)
}

// anyFabric draws a big switch, or a leaf-spine with links that are oversubscribed.
func anyFabric(t *rapid.T) *topo.Fabric {
	shape := topo.LeafSpine{Leaves: 1, HostsPerLeaf: rapid.IntRange(2, 8).Draw(t, "hosts"), HostLink: units.Gbps, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}
	if rapid.Bool().Draw(t, "spines") {
		shape.Leaves, shape.Spines, shape.HostsPerLeaf = 3, 2, rapid.IntRange(1, 3).Draw(t, "per leaf")
		shape.Oversubscription = units.Ratio{Num: int64(rapid.IntRange(1, 4).Draw(t, "over")), Den: 1}
	}
	f, err := shape.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// anyCoflows draws coflows of sizes that have little to do with each other.
func anyCoflows(t *rapid.T, f *topo.Fabric, equal bool) []workloads.Coflow {
	var out []workloads.Coflow
	host := rapid.IntRange(0, f.Hosts()-1)
	size := rapid.Custom(func(t *rapid.T) units.Bytes {
		return units.Bytes(1 + math.Exp(rapid.Float64Range(12, 17).Draw(t, "log size"))) // 160 kB to 24 MB
	})
	next := workloads.FlowID(0)
	for i := range rapid.IntRange(1, 5).Draw(t, "coflows") {
		c := workloads.Coflow{ID: workloads.CoflowID(i + 1), Arrival: time.Duration(rapid.IntRange(0, 300).Draw(t, "arrival")) * time.Millisecond}
		each := size.Draw(t, "size")
		for range rapid.IntRange(1, 9).Draw(t, "flows") {
			src, dst := host.Draw(t, "src"), host.Draw(t, "dst")
			if src == dst {
				dst = (dst + 1) % f.Hosts()
			}
			fl := workloads.Flow{ID: next, Src: topo.HostID(src), Dst: topo.HostID(dst), Size: each}
			if !equal {
				fl.Size = size.Draw(t, "size")
			}
			c.Flows = append(c.Flows, fl)
			next++
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b workloads.Coflow) int { return int(a.Arrival - b.Arrival) })
	return out
}

// schedulers are policies of all kinds, of every rule and of every moment.
func schedulers(t testing.TB) map[string]policies.Scheduler {
	all := map[string]policies.Scheduler{}
	for _, name := range catalog.Names(catalog.RoleCoflow) {
		all[name] = policy(t, name, nil)
	}
	for _, allocation := range []coflow.Allocation{coflow.MADD, coflow.Greedy, coflow.Even, coflow.MaxMin} {
		for _, pace := range []coflow.Pace{{}, {CoflowsOnly: true}, {Every: 8 * time.Millisecond}} {
			name := map[coflow.Allocation]string{coflow.MADD: "madd", coflow.Greedy: "greedy", coflow.Even: "even", coflow.MaxMin: "maxmin"}[allocation]
			all["sebf "+name+" "+pace.Every.String()+map[bool]string{true: " coflows"}[pace.CoflowsOnly]] = coflow.SEBF{Sharing: coflow.Sharing{Allocation: allocation, Pace: pace}}
		}
	}
	all["sebf fair-share"] = coflow.SEBF{Initial: true, Sharing: coflow.Sharing{Backfill: coflow.FairShare, Pace: coflow.Pace{CoflowsOnly: true}}}
	aalo := coflow.DefaultAalo()
	aalo.Interval = 0
	all["aalo at events"] = aalo
	aalo = coflow.DefaultAalo()
	aalo.Weighted, aalo.Fill = true, true
	all["aalo weighted"] = aalo
	return all
}

// edges watches for decisions that turn on rounding, of which there is none here. It
// is looked at only where the two disagree. Either a flow has less than a moment left,
// so that the fluid backend lets it go on past a lower ceiling (its lastMoment); or two
// coflows have as good as the same left, by which they are put in order.
type edges struct {
	policies.Scheduler
	seen *bool
}

func (e edges) Needs() policies.Knowledge {
	return e.Scheduler.Needs() | policies.Sizes | policies.Flows
}

func (e edges) Schedule(v *policies.View, s *policies.Schedule) {
	e.Scheduler.Schedule(v, s)
	const moment, same = 20 * time.Microsecond, 1e-5
	var left [3][]float64 // by coflow: bytes, and ns of the bottleneck, now and at arrival
	for _, c := range v.Coflows {
		for _, f := range c.Flows {
			if f.Sent > 0 && f.Remaining <= units.Gbps.BytesIn(moment)+1 {
				*e.seen = true
			}
		}
		longest := 0.0
		for _, l := range c.Links {
			longest = max(longest, float64(v.Capacity[l.Link].TimeToSend(l.Remaining)))
		}
		left[0], left[1], left[2] = append(left[0], float64(c.Remaining)), append(left[1], longest), append(left[2], float64(c.Bound))
	}
	for _, x := range left {
		for i := range x {
			for _, other := range x[:i] {
				if math.Abs(x[i]-other) <= same*other {
					*e.seen = true
				}
			}
		}
	}
}

// The engine on the fluid backend is the reference: each of its flows is a fluid of its
// own, and every decision goes through whole bits per second and whole bytes.
func TestSameAsEngine(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); !*whole {
		// A hundred cases of each policy take a minute with -race.
		all := checks.Value.String()
		if err := checks.Value.Set("8"); err != nil {
			t.Fatal(err)
		}
		defer checks.Value.Set(all)
	}
	for name, p := range schedulers(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				f := anyFabric(t)
				coflows := anyCoflows(t, f, rapid.Bool().Draw(t, "equal"))
				seed := rapid.Uint64().Draw(t, "seed")
				want, stuck := onEngine(t, f, p, coflows, seed)
				r, err := tracesim.Run(t.Context(), tracesim.Config{Fabric: f, Scheduler: p, Seed: seed}, coflows, nil)
				deadlock := func(err error) bool { return err != nil && strings.Contains(err.Error(), "deadlock") }
				// onEdge tells whether a decision turned on rounding.
				onEdge := func() bool {
					edge := false
					_, err := tracesim.Run(t.Context(), tracesim.Config{Fabric: f, Scheduler: edges{p, &edge}, Seed: seed}, coflows, nil)
					if err != nil && !deadlock(err) {
						t.Fatal(err)
					}
					return edge
				}
				if deadlock(err) && deadlock(stuck) {
					return // greedily, and not asked when a flow ends
				}
				if err != nil || stuck != nil {
					if (deadlock(err) || deadlock(stuck)) && onEdge() {
						t.Skip("a decision turned on rounding")
					}
					t.Fatalf("error %v, on the engine %v", err, stuck)
				}
				for _, c := range r.Coflows {
					// Ceilings are whole bits per second, of rates of no less than some 10⁵ under
					// MADD, where the smallest flow lasts as long as the largest.
					slack := time.Microsecond + time.Duration(1e-5*float64(want[c.ID]))
					if d := (c.Finish - want[c.ID]).Abs(); d > slack {
						if onEdge() {
							t.Skip("a decision turned on rounding")
						}
						t.Errorf("coflow %d ends at %v, on the engine at %v", c.ID, c.Finish, want[c.ID])
					}
				}
			})
		})
	}
}
