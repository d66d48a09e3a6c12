package alloc

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// A switch with four hosts: host h sends over link h and receives over link 4+h.
func link(src, dst int) []topo.LinkID { return []topo.LinkID{topo.LinkID(src), topo.LinkID(4 + dst)} }

func idle(n int, rate float64) []float64 {
	c := make([]float64, n)
	for i := range c {
		c[i] = rate
	}
	return c
}

// coflow returns flows with consecutive IDs from first and the given sizes in bytes.
func coflow(first, links int, sizes []units.Bytes, paths ...[]topo.LinkID) *Demand {
	var flows []Flow
	for i, p := range paths {
		flows = append(flows, Flow{ID: workloads.FlowID(first + i), Size: sizes[i%len(sizes)], Links: p})
	}
	return NewDemand(flows, links)
}

func all(rule policies.Rule, coflows ...int) policies.Step {
	return policies.Step{Rule: rule, Coflows: coflows}
}

func ratesOf(demands []*Demand) [][]float64 {
	var r [][]float64
	for _, d := range demands {
		d.Moving()
		r = append(r, append([]float64(nil), d.Rates()...))
	}
	return r
}

var near = cmpopts.EquateApprox(1e-9, 1e-6)

// Every rule on one switch. Coflow 0 has flows from host 0 to 1 and 2, of 100 and 300
// bytes; coflow 1 from 0 to 3 and from 1 to 3. Links carry 120 bit/s.
func TestRules(t *testing.T) {
	const pilots = 1 // the second flow of coflow 0
	for _, tc := range []struct {
		name    string
		steps   []policies.Step
		budgets []float64
		down    []int
		want    [][]float64
	}{
		{name: "nothing", want: [][]float64{{0, 0}, {0, 0}}},
		{name: "free", steps: []policies.Step{all(policies.Free, 0, 1)}, want: [][]float64{{40, 40}, {40, 80}}},
		{name: "max-min", steps: []policies.Step{all(policies.MaxMin, 1, 0)}, want: [][]float64{{40, 40}, {40, 80}}},
		{name: "even", steps: []policies.Step{all(policies.EqualSplit, 0, 1)}, want: [][]float64{{40, 40}, {40, 60}}},
		{name: "even, link down", steps: []policies.Step{all(policies.EqualSplit, 0, 1)}, down: []int{4 + 1}, want: [][]float64{{0, 60}, {60, 60}}},
		{name: "even one after the other", steps: []policies.Step{all(policies.EqualSplit, 1), all(policies.EqualSplit, 0)}, want: [][]float64{{30, 30}, {60, 60}}},
		{name: "greedy", steps: []policies.Step{all(policies.Greedy, 0, 1)}, want: [][]float64{{120, 0}, {0, 120}}},
		{name: "greedy, other order", steps: []policies.Step{all(policies.Greedy, 1, 0)}, want: [][]float64{{0, 0}, {120, 0}}},
		{name: "greedy, link down", steps: []policies.Step{all(policies.Greedy, 0, 1)}, down: []int{4 + 1}, want: [][]float64{{0, 120}, {0, 120}}},
		{name: "pilots first", steps: []policies.Step{{Rule: policies.Greedy, Coflows: []int{0, 1}, Part: policies.Pilots}, all(policies.Greedy, 0, 1)}, want: [][]float64{{0, 120}, {0, 120}}},
		{name: "others", steps: []policies.Step{{Rule: policies.MaxMin, Coflows: []int{0, 1}, Part: policies.Others}}, want: [][]float64{{60, 0}, {60, 60}}},
		{name: "madd", steps: []policies.Step{all(policies.MADD, 0, 1)}, want: [][]float64{{30, 90}, {0, 0}}},
		{name: "madd, then the skipped", steps: []policies.Step{all(policies.MADD, 0, 1), {Rule: policies.EqualSplit, Coflows: []int{0, 1}, Only: policies.Skipped}}, want: [][]float64{{30, 90}, {0, 120}}},
		{name: "madd, then the served", steps: []policies.Step{all(policies.MADD, 1, 0), {Rule: policies.Greedy, Coflows: []int{0, 1}, Only: policies.Served}}, want: [][]float64{{15, 45}, {60, 60}}},
		{name: "madd within", steps: []policies.Step{{Rule: policies.MADD, Coflows: []int{0, 1}, Within: 40 * time.Second}}, want: [][]float64{{20, 60}, {20, 20}}},
		{name: "madd within too little", steps: []policies.Step{{Rule: policies.MADD, Coflows: []int{0, 1}, Within: 20 * time.Second}}, want: [][]float64{{0, 0}, {40, 40}}},
		{name: "madd, link down", steps: []policies.Step{all(policies.MADD, 0, 1)}, down: []int{4 + 1}, want: [][]float64{{0, 0}, {60, 60}}},
		{name: "equal", steps: []policies.Step{all(policies.SlowestRate, 0, 1)}, want: [][]float64{{60, 60}, {0, 0}}},
		{name: "whole", steps: []policies.Step{all(policies.ExclusivePorts, 0, 1)}, want: [][]float64{{120, 0}, {0, 120}}},
		{name: "whole after some", steps: []policies.Step{{Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 0, Rate: 1}}}, all(policies.ExclusivePorts, 0, 1)}, want: [][]float64{{1, 0}, {0, 120}}},
		{name: "whole of a budget", budgets: []float64{0.25}, steps: []policies.Step{{Rule: policies.ExclusivePorts, Coflows: []int{0, 1}, Budget: 1}, all(policies.Greedy, 1)}, want: [][]float64{{30, 0}, {90, 30}}},
		{name: "budgets", budgets: []float64{0.75, 0.5}, steps: []policies.Step{
			{Rule: policies.Greedy, Coflows: []int{0}, Budget: 1}, {Rule: policies.Greedy, Coflows: []int{1}, Budget: 1}, {Rule: policies.MaxMin, Coflows: []int{0, 1}, Budget: 2}},
			want: [][]float64{{90 + 10, 10}, {10, 90 + 20}}},
		{name: "explicit", steps: []policies.Step{{Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 11, Rate: 100}, {Flow: 0, Rate: 20}, {Flow: 0, Rate: 5}}}, all(policies.Greedy, 1)}, want: [][]float64{{25, 0}, {20, 100}}},
		{name: "free takes what later steps leave", steps: []policies.Step{all(policies.Free, 0), all(policies.Greedy, 1)}, want: [][]float64{{0, 0}, {120, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			demands := []*Demand{coflow(0, 8, []units.Bytes{100, 300}, link(0, 1), link(0, 2)), coflow(10, 8, []units.Bytes{100}, link(0, 3), link(1, 3))}
			demands[0].MakePilot(pilots)
			capacity := idle(8, 120)
			for _, l := range tc.down {
				capacity[l] = 0
			}
			var s Allocator
			sch := &policies.Schedule{Steps: tc.steps, Budgets: tc.budgets}
			if err := s.Share(sch, demands, capacity, policies.Sizes, false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, ratesOf(demands), near); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sch   policies.Schedule
		knows policies.Facts
		want  string
	}{
		{"sizes", policies.Schedule{Steps: []policies.Step{all(policies.MADD, 0)}}, 0, "step 0 (MADD): the rule needs flow sizes"},
		{"stranger", policies.Schedule{Steps: []policies.Step{all(policies.Greedy, 0, 2)}}, 0, "coflow 2: the view has only 2"},
		{"twice", policies.Schedule{Steps: []policies.Step{all(policies.Greedy, 0, 1), all(policies.EqualSplit, 1, 0, 1)}}, 0, "step 1 (EqualSplit): coflow 1 of the view occurs twice"},
		{"unknown flow", policies.Schedule{Steps: []policies.Step{all(policies.Greedy, 0), {Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 7, Rate: 1}}}}}, 0, "no unfinished flow has this ID"},
		{"overfull", policies.Schedule{Steps: []policies.Step{all(policies.Greedy, 0), {Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 10, Rate: 1}}}}}, 0, "exceeds the residual capacity by 1 bit/s on link 0"},
		{"negative", policies.Schedule{Steps: []policies.Step{{Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 0, Rate: -1}}}}}, 0, "must be finite and 0 or more"},
		{"not a number", policies.Schedule{Steps: []policies.Step{{Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 0, Rate: math.NaN()}}}}}, 0, "must be finite and 0 or more"},
		{"budget", policies.Schedule{Steps: []policies.Step{{Rule: policies.EqualSplit, Budget: 1}}}, 0, "budget 1 of 0"},
		{"budget of more than all", policies.Schedule{Budgets: []float64{1.5}}, 0, "budget 0 is 1.5"},
		{"budget of free", policies.Schedule{Budgets: []float64{.5}, Steps: []policies.Step{{Budget: 1}}}, 0, "a budget cannot limit free flows"},
		{"rule", policies.Schedule{Steps: []policies.Step{{Rule: 99}}}, 0, "step 0 (rule 99): unknown rule"},
		{"part", policies.Schedule{Steps: []policies.Step{{Part: 9}}}, 0, "unknown part 9"},
		{"only", policies.Schedule{Steps: []policies.Step{{Only: 9}}}, 0, "unknown selection 9"},
		{"within", policies.Schedule{Steps: []policies.Step{{Within: 1}}}, 0, "or more with rule MADD"},
		{"rates", policies.Schedule{Steps: []policies.Step{{Rates: []policies.FlowRate{{}}}}}, 0, "only with rule Explicit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			demands := []*Demand{coflow(0, 8, []units.Bytes{100}, link(0, 1)), coflow(10, 8, []units.Bytes{100}, link(0, 3))}
			var s Allocator
			err := s.Share(&tc.sch, demands, idle(8, 120), tc.knows, false)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			for _, d := range demands {
				if d.Rates()[0] != 0 || len(d.Moving()) > 0 {
					t.Errorf("rate %v, moving %v after an error, want none", d.Rates(), d.Moving())
				}
			}
		})
	}
}

// Two racks of two hosts, with uplinks of 60 bit/s and host links of 120. Flows 0 and 2
// leave the rack from hosts 0 and 1; flow 1 stays in it, from 1 to 0.
func TestRulesOnUplink(t *testing.T) {
	net := network{2, 2}
	for _, tc := range []struct {
		rule policies.Rule
		want []float64
	}{
		{policies.Free, []float64{30, 90, 30}},
		{policies.MaxMin, []float64{30, 90, 30}},
		{policies.EqualSplit, []float64{30, 60, 30}},
		{policies.Greedy, []float64{60, 120, 0}},
		{policies.MADD, []float64{40, 40, 20}},
		{policies.SlowestRate, []float64{30, 30, 30}},
		{policies.ExclusivePorts, []float64{60, 120, 0}},
	} {
		t.Run(tc.rule.String(), func(t *testing.T) {
			for _, grid := range []bool{true, false} {
				d := coflow(0, net.links(), []units.Bytes{200, 200, 100}, net.path(0, 2), net.path(1, 0), net.path(1, 3))
				if d.grid == nil {
					t.Fatal("flows in order of sender and receiver have no grid")
				}
				if !grid {
					d.grid = nil
				}
				capacity := idle(net.links(), 120)
				capacity[8], capacity[11] = 60, 120
				var s Allocator
				if err := s.Share(&policies.Schedule{Steps: []policies.Step{all(tc.rule, 0)}}, []*Demand{d}, capacity, policies.Sizes, false); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, d.Rates(), near); diff != "" {
					t.Errorf("grid %v, -want +got:\n%s", grid, diff)
				}
			}
		})
	}
}

// ExclusivePorts requires unused ports, not an unused core: a core link carries several flows.
func TestWholeSharesTheCore(t *testing.T) {
	net := network{2, 4}
	capacity := idle(net.links(), 100)
	for l := 16; l < len(capacity); l++ {
		capacity[l] = 250 // two and a half flows
	}
	d := coflow(0, net.links(), []units.Bytes{1}, net.path(0, 4), net.path(1, 5), net.path(2, 6), net.path(3, 7))
	var s Allocator
	if err := s.Share(&policies.Schedule{Steps: []policies.Step{all(policies.ExclusivePorts, 0)}}, []*Demand{d}, capacity, 0, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{100, 100, 0, 0}, d.Rates()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
