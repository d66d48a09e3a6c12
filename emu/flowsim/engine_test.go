package flowsim_test

import (
	"cmp"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/flowsim"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/policies/catalog"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/drawntest"
)

// ended is the time at which the last flow of a coflow ended on the engine, its possible
// difference from exact arithmetic, and the number of unfinished flows.
type ended struct {
	at, slack time.Duration
	flows     int
}

// onEngine runs coflows on the engine and the fluid backend.
func onEngine(t *rapid.T, f *topo.Fabric, p policies.CoflowScheduler, coflows []workloads.Coflow, seed uint64) (map[workloads.CoflowID]ended, error) {
	t.Helper()
	e, err := engine.New(engine.Config{Fabric: f, Coflow: p, Heartbeat: time.Hour, Alpha: 0.2, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	of := map[workloads.FlowID]workloads.Coflow{}
	left := map[workloads.CoflowID]int{}
	for _, c := range coflows {
		left[c.ID] = len(c.Flows)
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
				// A rate cap is a whole number of bits per second, so a flow has missed at most one
				// bit for every second of its life. A policy sees whole bytes, so by its plan a flow
				// lacks at most one. The flow sends both last. All later flows, of any coflow, are
				// that much later.
				const bits, whole = 1, 8 // per second, and once
				c := of[fin.Flow]
				missed := bits*(now-c.Arrival).Seconds() + whole
				late[c.ID] = max(late[c.ID], missed*1e9/float64(ceiling[fin.Flow]))
				all := 0.0
				for _, ns := range late {
					all += ns
				}
				left[c.ID]--
				finish[c.ID] = ended{now, time.Microsecond + time.Duration(1e-6*float64(now)+all), left[c.ID]}
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
	return finish, engine.Run(t.Context(), e, fluid.New(f, fluid.Config{Needs: policies.Progress}), engine.Arrivals(workloads.Workload{Coflows: coflows}), observe)
}

// anyFabric draws a big switch, or a leaf-spine with oversubscribed links.
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

// anyCoflows draws coflows of sizes without simple ratios.
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

// schedulers are policies of all kinds, of every rule and of every time of decision.
func schedulers(t testing.TB) map[string]policies.CoflowScheduler {
	all := map[string]policies.CoflowScheduler{}
	for _, name := range catalog.All().Names(catalog.RoleCoflow) {
		all[name] = policy(t, name, nil)
	}
	for _, allocation := range []coflow.Allocation{coflow.MADD, coflow.Greedy, coflow.EqualSplit, coflow.MaxMin} {
		for _, pace := range []coflow.Pace{{}, {CoflowsOnly: true}, {Every: 8 * time.Millisecond}} {
			name := map[coflow.Allocation]string{coflow.MADD: "madd", coflow.Greedy: "greedy", coflow.EqualSplit: "even", coflow.MaxMin: "maxmin"}[allocation]
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

// edges detects decisions that depend on rounding, which does not exist here. It is used
// only if the two simulations disagree. Either a flow has less than a moment left, so that
// the fluid backend lets it continue past a lower rate cap (its lastMoment), or so that it
// has ended in one of the two and not in the other; or the remaining bits of flows, rounded
// differently, lead to other rates (turns).
type edges struct {
	policies.CoflowScheduler
	seen *bool
}

func (e edges) Needs() policies.Facts {
	return e.CoflowScheduler.Needs() | policies.Sizes | policies.Flows | policies.Links
}

func (e edges) New() policies.CoflowInstance { return observed{e.CoflowScheduler.New(), e.look} }

func (e edges) look(v *policies.CoflowView, _ *policies.Schedule) {
	const moment = 20 * time.Microsecond
	for _, c := range v.Coflows {
		for _, f := range c.Flows {
			if f.Sent > 0 && f.Remaining <= min(units.Gbps.BytesIn(moment), f.Size/1000)+1 {
				*e.seen = true
			}
		}
	}
	*e.seen = *e.seen || turns(e.CoflowScheduler, v)
}

// turns reports whether rates jump when the remaining bits of the flows that have begun change
// by the size of the engine's rounding: a rate cap is a whole number of bits per second, of
// rates of 10⁵ and more, and a policy sees whole bytes. A jump is a change out of
// proportion to that.
func turns(p policies.CoflowScheduler, v *policies.CoflowView) bool {
	const (
		draws      = 32
		bytes      = 2    // absolute, or
		part       = 1e-5 // relative, if that is more
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
	random := rand.New(rand.NewPCG(1, uint64(v.Now)))
	before := ratesOf(p, v)
	for i := range draws {
		other := *v
		other.Coflows = slices.Clone(v.Coflows)
		for j := range other.Coflows {
			c := &other.Coflows[j]
			c.Links, c.Flows = slices.Clone(c.Links), slices.Clone(c.Flows)
			sign := random.IntN(3) - 1
			for k := range c.Flows {
				f := &c.Flows[k]
				if f.Sent == 0 {
					continue
				}
				if i%2 == 0 { // each flow separately, otherwise all of a coflow together
					sign = random.IntN(3) - 1
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

// ratesOf returns the rates that a decision gives to the flows of a View, in its order.
func ratesOf(p policies.CoflowScheduler, v *policies.CoflowView) []float64 {
	var s policies.Schedule
	p.New().Decide(v, &s)
	var demands []*alloc.Demand
	for _, c := range v.Coflows {
		var flows []alloc.Flow
		for _, f := range c.Flows {
			flows = append(flows, alloc.Flow{ID: f.ID, Size: f.Remaining, Links: f.Path})
		}
		d := alloc.NewDemand(flows, len(v.Capacity))
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
	var share alloc.Allocator
	if err := share.Share(&s, demands, capacity, p.Needs(), false); err != nil {
		panic(err) // the run accepted the same
	}
	var out []float64
	for _, d := range demands {
		out = append(out, d.Rates()...)
	}
	return out
}

// Coflow 1 has as many bytes from port 0 as to port 4, in flows that began together. Coflow 3
// needs capacity of port 0, and is skipped. Rounding decides whether port 4 has capacity
// left: if not, coflow 2 is skipped too, and has half of port 2. It is not skipped if port 0
// alone is coflow 1's bottleneck.
func TestTurns(t *testing.T) {
	f, err := topo.BigSwitch(6, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	p := schedulers(t)["sebf fair-share"]
	for _, tt := range []struct {
		third units.Bytes // the flow parallel to one of the two from port 0
		want  bool
	}{{5 * units.MB, true}, {2 * units.MB, false}} {
		coflows := []workloads.Coflow{
			{ID: 1, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 4, Size: 5 * units.MB}, {ID: 1, Src: 0, Dst: 5, Size: 5 * units.MB}, {ID: 2, Src: 1, Dst: 4, Size: tt.third}}},
			{ID: 2, Flows: []workloads.Flow{{ID: 3, Src: 2, Dst: 4, Size: 45 * units.MB}, {ID: 5, Src: 2, Dst: 3, Size: 45 * units.MB}}},
			{ID: 3, Arrival: 10 * time.Millisecond, Flows: []workloads.Flow{{ID: 4, Src: 2, Dst: 3, Size: 99 * units.MB}, {ID: 6, Src: 0, Dst: 3, Size: units.MB}}},
		}
		var got []bool
		decide := p.New().Decide
		watch := script{p.Needs() | visible | policies.Flows, p.Triggers(), func(v *policies.CoflowView, s *policies.Schedule) {
			decide(v, s)
			got = append(got, turns(p, v))
		}}
		run(t, flowsim.Config{Fabric: f, Scheduler: watch}, coflows)
		// At first nothing has been sent, and nothing is rounded.
		if d := gocmp.Diff([]bool{false, tt.want}, got[:2]); d != "" {
			t.Errorf("third flow of %v (-want +got):\n%s", tt.third, d)
		}
	}
}

// atMost sets the number of cases that rapid draws in the rest of a test.
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
//
// If the two disagree and a decision depends on rounding, the case counts as an edge and the
// disagreement is accepted. Of 186,000 cases, 6,000 of each policy, 33 were edges, at most 6
// of one policy. The bounds allow 1 in 1,000 of a policy's cases and 1 in 5,000 of all.
func TestSameAsEngine(t *testing.T) {
	const ofPolicy, ofAll = 1.0 / 1000, 1.0 / 5000
	edges, cases := 0, 0
	for name, p := range schedulers(t) {
		t.Run(name, func(t *testing.T) {
			var k agreement
			few(t, 40, func(t *rapid.T) { k.compare(t, p) })
			drawntest.AtMost(t, "decisions that turn on rounding", k.edges, k.cases, ofPolicy)
			switch mayStick := name == "sebf greedy 0s coflows"; {
			case !mayStick && k.stuck > 0:
				t.Errorf("%d of %d cases end in a deadlock, want none", k.stuck, k.cases)
			case mayStick:
				// A flow that has no rate while its coflow is served waits for a decision that
				// never comes. This occurred in 82 % of 6,400 cases.
				drawntest.AtMost(t, "deadlocks", k.stuck, k.cases, 0.85)
			}
			// Every case without a deadlock has at least one coflow.
			if least := k.cases - k.stuck - k.edges; k.compared < least {
				t.Errorf("%d coflows compared in %d cases, want at least %d", k.compared, k.cases, least)
			}
			edges, cases = edges+k.edges, cases+k.cases
		})
	}
	drawntest.AtMost(t, "decisions of any policy that turn on rounding", edges, cases, ofAll)
}

// agreement counts the results of comparisons of a policy on the engine and here.
type agreement struct {
	cases    int
	edges    int // disagreements in cases in which a decision depended on rounding
	stuck    int // cases that end in a deadlock in both
	compared int // coflows
}

// compare draws a case and compares when its coflows end, up to a deadlock if both have one.
func (k *agreement) compare(t *rapid.T, p policies.CoflowScheduler) {
	f := anyFabric(t)
	coflows := anyCoflows(t, f, rapid.Bool().Draw(t, "equal"))
	seed := rapid.Uint64().Draw(t, "seed")
	k.cases++
	want, wantErr := onEngine(t, f, p, coflows, seed)
	var got []time.Duration // ends of coflows
	r, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: p, Seed: seed}, coflows, func(p flowsim.Progress) {
		if p.Finished > len(got) {
			got = append(got, p.Now)
		}
	})
	deadlock := func(err error) bool { return err != nil && strings.Contains(err.Error(), "deadlock") }
	// fail fails the test unless a decision depended on rounding.
	fail := func(format string, args ...any) {
		edge := false
		watched := edges{p, &edge}
		_, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: watched, Seed: seed}, coflows, nil)
		_, wantErr := onEngine(t, f, watched, coflows, seed)
		for _, err := range []error{err, wantErr} {
			if err != nil && !deadlock(err) {
				t.Fatal(err)
			}
		}
		if !edge {
			t.Fatalf(format, args...)
		}
		k.edges++
	}
	if (err != nil || wantErr != nil) && !(deadlock(err) && deadlock(wantErr)) {
		fail("error %v, on the engine %v", err, wantErr)
		return
	}
	if err == nil {
		for _, c := range r.Coflows {
			if d := (c.Finish - want[c.ID].at).Abs(); d > want[c.ID].slack {
				fail("coflow %d ends at %v, on the engine at %v: apart by %v, want at most %v", c.ID, c.Finish, want[c.ID].at, d, want[c.ID].slack)
				return
			}
			k.compared++
		}
		return
	}
	k.stuck++
	var ends []ended // on the engine, of coflows that have ended
	for _, e := range want {
		if e.flows == 0 {
			ends = append(ends, e)
		}
	}
	slices.SortFunc(ends, func(a, b ended) int { return cmp.Compare(a.at, b.at) })
	if len(ends) != len(got) {
		fail("%d coflows end before the deadlock, on the engine %d", len(got), len(ends))
		return
	}
	for i, e := range ends {
		if d := (got[i] - e.at).Abs(); d > e.slack {
			fail("end %d before the deadlock is at %v, on the engine at %v: apart by %v, want at most %v", i, got[i], e.at, d, e.slack)
			return
		}
		k.compared++
	}
}
