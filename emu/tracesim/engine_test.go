package tracesim_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/fluid"
	"testbed/emu/tracesim"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/coflow"
	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// ended is when a coflow ended on the engine, and by how much that may be other than
// it would be in exact arithmetic.
type ended struct{ at, slack time.Duration }

// onEngine runs coflows on the engine and the fluid backend.
func onEngine(t *rapid.T, f *topo.Fabric, p policies.Scheduler, coflows []workloads.Coflow, seed uint64) (map[workloads.CoflowID]ended, error) {
	t.Helper()
	e, err := engine.New(engine.Config{Fabric: f, Coflow: p, Heartbeat: time.Hour, Alpha: 0.2, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	of := map[workloads.FlowID]workloads.Coflow{}
	for _, c := range coflows {
		for _, fl := range c.Flows {
			of[fl.ID] = c
		}
	}
	finish := map[workloads.CoflowID]ended{}
	ceiling := map[workloads.FlowID]units.Rate{}
	late := map[workloads.CoflowID]float64{} // ns
	observe := func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		for _, ev := range evs {
			if fin, ok := ev.(engine.TransferFinished); ok {
				// A ceiling is a whole number of bits per second, so that for every second of its
				// life a flow has missed at most one bit, and a policy is told whole bytes, so
				// that by its plan a flow lacks at most one. Both it sends last. What comes
				// after it, of whatever coflow, is that much later.
				const bits, whole = 1, 8 // per second, and once
				c := of[fin.Flow]
				missed := bits*(now-c.Arrival).Seconds() + whole
				late[c.ID] = max(late[c.ID], missed*1e9/float64(ceiling[fin.Flow]))
				all := 0.0
				for _, ns := range late {
					all += ns
				}
				finish[c.ID] = ended{now, time.Microsecond + time.Duration(1e-6*float64(now)+all)}
			}
		}
		for _, cmd := range cmds {
			switch cmd := cmd.(type) {
			case engine.StartTransfer:
				ceiling[cmd.Flow.ID] = cmd.Ceiling
			case engine.SetCeiling:
				if cmd.Ceiling > 0 { // a flow in its last moment may end after it is paused
					ceiling[cmd.Flow] = cmd.Ceiling
				}
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
	all["sebf proportional"] = coflow.SEBF{Sharing: coflow.Sharing{Backfill: coflow.Proportional}}
	all["sebf proportional coflows"] = coflow.SEBF{Sharing: coflow.Sharing{Backfill: coflow.Proportional, Pace: coflow.Pace{CoflowsOnly: true}}}
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
// so that the fluid backend lets it go on past a lower ceiling (its lastMoment), or so
// that it has ended in one of the two and in the other not; or what is left of flows,
// rounded otherwise, comes to other rates (turns).
type edges struct {
	policies.Scheduler
	seen *bool
}

func (e edges) Needs() policies.Knowledge {
	return e.Scheduler.Needs() | policies.Sizes | policies.Flows
}

func (e edges) Schedule(v *policies.View, s *policies.Schedule) {
	e.Scheduler.Schedule(v, s)
	const moment = 20 * time.Microsecond
	for _, c := range v.Coflows {
		for _, f := range c.Flows {
			if f.Sent > 0 && f.Remaining <= min(units.Gbps.BytesIn(moment), f.Size/1000)+1 {
				*e.seen = true
			}
		}
	}
	*e.seen = *e.seen || turns(e.Scheduler, v)
}

// turns tells whether rates jump when what is left of the flows that have begun is
// other by as little as the engine's rounding comes to: a ceiling is a whole number of
// bits per second, of rates of 10⁵ and more, and what a policy is told whole bytes. A
// jump is a change out of proportion to that.
func turns(p policies.Scheduler, v *policies.View) bool {
	const (
		draws      = 32
		bytes      = 2    // by so many, or
		part       = 1e-5 // by so much of it, if that is more
		proportion = 10
	)
	least := units.Bytes(math.MaxInt64)
	for _, c := range v.Coflows {
		for _, f := range c.Flows {
			if f.Sent > 0 {
				least = min(least, f.Remaining)
			}
		}
	}
	if least == math.MaxInt64 {
		return false // nothing has been rounded
	}
	jump := proportion * max(bytes/float64(least), part) * float64(slices.Max(v.Capacity))
	luck := rand.New(rand.NewPCG(1, uint64(v.Now)))
	before := ratesOf(p, v)
	for i := range draws {
		other := *v
		other.Coflows = slices.Clone(v.Coflows)
		for j := range other.Coflows {
			c := &other.Coflows[j]
			c.Links, c.Flows = slices.Clone(c.Links), slices.Clone(c.Flows)
			sign := luck.IntN(3) - 1
			for k := range c.Flows {
				f := &c.Flows[k]
				if f.Sent == 0 {
					continue
				}
				if i%2 == 0 { // every flow for itself, else all of a coflow alike
					sign = luck.IntN(3) - 1
				}
				left := f.Remaining + units.Bytes(sign)*max(bytes, units.Bytes(part*float64(f.Remaining)))
				more := min(max(left, 1), f.Size) - f.Remaining
				f.Remaining, f.Sent = f.Remaining+more, f.Sent-more
				c.Remaining, c.Sent, c.MostSent = c.Remaining+more, c.Sent-more, max(c.MostSent, f.Sent)
				for l := range c.Links {
					if slices.Contains(f.Path, c.Links[l].Link) {
						c.Links[l].Remaining += more
					}
				}
			}
		}
		for j, rate := range ratesOf(p, &other) {
			if math.Abs(rate-before[j]) > jump {
				return true
			}
		}
	}
	return false
}

// ratesOf is what a decision gives the flows of a View, in its order.
func ratesOf(p policies.Scheduler, v *policies.View) []float64 {
	var s policies.Schedule
	p.Schedule(v, &s)
	var demands []*rates.Demand
	for _, c := range v.Coflows {
		var flows []rates.Flow
		for _, f := range c.Flows {
			flows = append(flows, rates.Flow{ID: f.ID, Size: f.Remaining, Links: f.Path})
		}
		d := rates.NewDemand(flows, len(v.Capacity))
		for j, f := range c.Flows {
			if f.Pilot || slices.Contains(s.Pilots, f.ID) {
				d.MakePilot(j)
			}
		}
		demands = append(demands, d)
	}
	capacity := make([]float64, len(v.Capacity))
	for l, r := range v.Capacity {
		capacity[l] = float64(r)
	}
	var share rates.Sharer
	if err := share.Share(&s, demands, capacity, p.Needs(), false); err != nil {
		panic(err) // the run went on with the same
	}
	var out []float64
	for _, d := range demands {
		out = append(out, d.Rates()...)
	}
	return out
}

// Coflow 1 has as many bytes from port 0 as to port 4, in flows that began together.
// Coflow 3 needs something of port 0, and is skipped. Whether anything is left of port 4
// rounding decides: if not, coflow 2 is skipped too, and has half of port 2. It is not
// where port 0 alone is coflow 1's bottleneck.
func TestTurns(t *testing.T) {
	f, err := topo.BigSwitch(6, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	p := schedulers(t)["sebf fair-share"]
	for _, tt := range []struct {
		third units.Bytes // the flow beside one of the two from port 0
		want  bool
	}{{5 * units.MB, true}, {2 * units.MB, false}} {
		coflows := []workloads.Coflow{
			{ID: 1, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 4, Size: 5 * units.MB}, {ID: 1, Src: 0, Dst: 5, Size: 5 * units.MB}, {ID: 2, Src: 1, Dst: 4, Size: tt.third}}},
			{ID: 2, Flows: []workloads.Flow{{ID: 3, Src: 2, Dst: 4, Size: 45 * units.MB}, {ID: 5, Src: 2, Dst: 3, Size: 45 * units.MB}}},
			{ID: 3, Arrival: 10 * time.Millisecond, Flows: []workloads.Flow{{ID: 4, Src: 2, Dst: 3, Size: 99 * units.MB}, {ID: 6, Src: 0, Dst: 3, Size: units.MB}}},
		}
		var got []bool
		watch := script{p.Needs() | policies.Flows, p.When(), func(v *policies.View, s *policies.Schedule) {
			p.Schedule(v, s)
			got = append(got, turns(p, v))
		}}
		run(t, tracesim.Config{Fabric: f, Scheduler: watch}, coflows)
		// At first nothing has been sent, and nothing rounded.
		if d := cmp.Diff([]bool{false, tt.want}, got[:2]); d != "" {
			t.Errorf("third flow of %v (-want +got):\n%s", tt.third, d)
		}
	}
}

// atMost sets how many cases rapid draws in the rest of a test.
func atMost(t *testing.T, checks int) {
	t.Helper()
	f := flag.Lookup("rapid.checks").Value
	before := f.String()
	if err := f.Set(strconv.Itoa(checks)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Set(before); err != nil {
			t.Fatal(err)
		}
	})
}

// The engine on the fluid backend is the reference: each of its flows is a fluid of its
// own, and every decision goes through whole bits per second and whole bytes.
func TestSameAsEngine(t *testing.T) {
	if !*whole {
		atMost(t, 8) // a hundred cases of each policy take a minute with -race
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
					watched := edges{p, &edge}
					_, err := tracesim.Run(t.Context(), tracesim.Config{Fabric: f, Scheduler: watched, Seed: seed}, coflows, nil)
					_, stuck := onEngine(t, f, watched, coflows, seed)
					for _, err := range []error{err, stuck} {
						if err != nil && !deadlock(err) {
							t.Fatal(err)
						}
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
					if d := (c.Finish - want[c.ID].at).Abs(); d > want[c.ID].slack {
						if onEdge() {
							t.Skip("a decision turned on rounding")
						}
						t.Errorf("coflow %d ends at %v, on the engine at %v: apart by %v, want at most %v", c.ID, c.Finish, want[c.ID].at, d, want[c.ID].slack)
					}
				}
			})
		})
	}
}
