package tracesim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/tracesim"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo/units"
)

// Saath's decisions that what it watches calls needless are: without them every coflow
// ends when it does with them, to the bit, and goes through the same queues at the same
// times.
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
				cfg := tracesim.Config{Fabric: f, Scheduler: p, Seed: 1}
				got, err := tracesim.Run(t.Context(), cfg, coflows, nil)
				if err != nil {
					t.Fatal(err)
				}
				cfg.Scheduler = script{p.Needs(), p.When(), func(v *policies.View, s *policies.Schedule) {
					p.Schedule(v, s)
					s.Watch, s.WatchMost = nil, nil
				}}
				want, err := tracesim.Run(t.Context(), cfg, coflows, nil)
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

// A policy that does not declare to need what its longest flows have sent is asked at
// every interval.
func TestLongestFlowsUndeclared(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 1:10.0")
	p := coflow.DefaultSaath()
	decisions := map[policies.Knowledge]int64{}
	for _, needs := range []policies.Knowledge{0, policies.MostSent} {
		decisions[needs] = run(t, tracesim.Config{Fabric: f, Scheduler: script{needs, p.When(), func(v *policies.View, s *policies.Schedule) {
			greedily(v, s, policies.Greedy)
			s.WatchMost = append(s.WatchMost, 5_000_000)
		}}}, cs).Decisions
	}
	// 80 ms, ten intervals. It has sent 5 MB at 40 ms, and more than that from 48 ms on.
	if d := cmp.Diff(map[policies.Knowledge]int64{0: 10, policies.MostSent: 5}, decisions); d != "" {
		t.Errorf("decisions (-want +got):\n%s", d)
	}
}
