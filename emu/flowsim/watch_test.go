package flowsim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Saath's watches skip decisions that are needless: without them every coflow ends at the same
// time as with them, to the bit, and goes through the same queues at the same times.
func TestLongestFlowsWatched(t *testing.T) {
	for name, change := range map[string]func(*coflow.Saath){
		"default":     func(*coflow.Saath) {},
		"by arrival":  func(p *coflow.Saath) { p.FIFO = true },
		"static":      func(p *coflow.Saath) { p.Dynamics = false },
		"no deadline": func(p *coflow.Saath) { p.Deadline = 0 },
		"all or none": func(p *coflow.Saath) { p.Conserve = false },
	} {
		t.Run(name, func(t *testing.T) {
			needless := int64(0)
			few(t, 60, func(t *rapid.T) {
				p := coflow.DefaultSaath()
				p.First = units.Bytes(rapid.Int64Range(100_000, 4_000_000).Draw(t, "first"))
				p.Growth = rapid.Float64Range(1.2, 4).Draw(t, "growth")
				change(&p)
				f := anyFabric(t)
				coflows := anyCoflows(t, f, rapid.Bool().Draw(t, "equal"))
				cfg := flowsim.Config{Fabric: f, Scheduler: p, Seed: 1}
				got, err := flowsim.Run(t.Context(), cfg, coflows, nil)
				if err != nil {
					t.Fatal(err)
				}
				decide := p.New().Decide
				cfg.Scheduler = script{p.Needs(), p.Triggers(), func(v *policies.CoflowView, s *policies.Schedule) {
					decide(v, s)
					s.Watch, s.WatchMost = nil, nil
				}}
				want, err := flowsim.Run(t.Context(), cfg, coflows, nil)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want.Coflows, got.Coflows); d != "" {
					t.Errorf("asked at every interval, and where it matters (-every +matters):\n%s", d)
				}
				needless += want.Decisions - got.Decisions
			})
			if needless <= 0 {
				t.Errorf("%d decisions were left out, want some", needless)
			}
		})
	}
}

// A policy that does not declare to need the bytes of its longest flows is called at every
// interval.
func TestLongestFlowsUndeclared(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 1:10.0")
	p := coflow.DefaultSaath()
	decisions := map[policies.Facts]int64{}
	for _, needs := range []policies.Facts{policies.Progress, policies.MostSent} {
		decisions[needs] = run(t, flowsim.Config{Fabric: f, Scheduler: script{needs, p.Triggers(), func(v *policies.CoflowView, s *policies.Schedule) {
			greedily(v, s, policies.Greedy)
			s.WatchMost = append(s.WatchMost, 5_000_000)
		}}}, cs).Decisions
	}
	// 80 ms, ten intervals. It has sent 5 MB at 40 ms, and more than that from 48 ms on.
	if d := cmp.Diff(map[policies.Facts]int64{policies.Progress: 10, policies.MostSent: 5}, decisions); d != "" {
		t.Errorf("decisions (-want +got):\n%s", d)
	}
}

// Flows of n at a port that end at a multiple of the interval in exact arithmetic may, after
// thousands of steps, end just before or just after it by rounding; flows that wait for them
// then start an interval later. The result must equal that of a run with every decision.
func TestEndsAtMultiples(t *testing.T) {
	f, err := topo.BigSwitch(32, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	starts := map[bool]bool{} // late or not
	for n := 2; n < 16; n++ {
		for _, size := range []units.Bytes{100 * units.MB, 700 * units.MB, 1100 * units.MB} {
			first := workloads.Coflow{ID: 1}
			for i := range n {
				first.Flows = append(first.Flows, workloads.Flow{ID: workloads.FlowID(i), Src: 0, Dst: topo.HostID(1 + i), Size: size})
			}
			second := workloads.Coflow{ID: 2, Flows: []workloads.Flow{{ID: 100, Src: 0, Dst: 31, Size: units.MB}}}
			p := coflow.DefaultSaath()
			p.FIFO, p.Count, p.Deadline = true, 2, 0
			p.First = 1 << 60
			cfg := flowsim.Config{Fabric: f, Scheduler: p}
			got := run(t, cfg, []workloads.Coflow{first, second})
			decide := p.New().Decide
			cfg.Scheduler = script{p.Needs(), p.Triggers(), func(v *policies.CoflowView, s *policies.Schedule) {
				decide(v, s)
				s.Watch, s.WatchMost = nil, nil
			}}
			want := run(t, cfg, []workloads.Coflow{first, second})
			if d := cmp.Diff(want.Coflows, got.Coflows); d != "" {
				t.Errorf("%d flows of %v (-every +matters):\n%s", n, size, d)
			}
			starts[got.Coflows[1].Start > got.Coflows[0].Finish.Round(p.Interval)] = true
		}
	}
	if len(starts) != 2 {
		t.Errorf("rounding turns on nothing: starts an interval late %v, want some and some not", starts)
	}
}
