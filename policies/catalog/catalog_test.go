package catalog

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/placement"
	"testbed/policies/policytest"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestNames(t *testing.T) {
	for role, want := range map[Role][]string{RoleCoflow: {"aalo", "aalo-oracle", "equal-share", "fair", "fifo", "lcf", "ncf", "philae", "philae-sim", "saath", "scf", "sebf", "sincronia", "srtf"}, RolePlacement: {"hdfs", "least-loaded", "oracle", "power-of-two", "sinbad", "uniform"}, "nonsense": nil} {
		if d := cmp.Diff(want, Names(role)); d != "" {
			t.Errorf("Names(%q) (-want +got):\n%s", role, d)
		}
	}
}

// Every entry is documented, its defaults are acceptable values, and what it
// makes keeps the contract.
func TestEntries(t *testing.T) {
	for _, role := range []Role{RoleCoflow, RolePlacement} {
		for _, e := range Entries(role) {
			t.Run(e.Name, func(t *testing.T) {
				if e.Doc == "" || strings.Contains(e.Doc, "\n") {
					t.Errorf("description %q: want one line", e.Doc)
				}
				defaults := map[string]any{}
				for _, p := range e.Params {
					if p.Doc == "" || strings.Contains(p.Doc, "\n") {
						t.Errorf("description of %s %q: want one line", p.Name, p.Doc)
					}
					defaults[p.Name] = p.Default
				}
				if err := Check(role, e.Name, defaults); err != nil {
					t.Errorf("its own defaults: %v", err)
				}
				switch role {
				case RoleCoflow:
					p, err := Coflow(e.Name, nil)
					if err != nil {
						t.Fatal(err)
					}
					policytest.Scheduler(t, p)
				case RolePlacement:
					p, err := Placement(e.Name, nil)
					if err != nil {
						t.Fatal(err)
					}
					policytest.Placer(t, p)
				}
			})
		}
	}
}

// variants are the ways a policy's parameters lead through its code: each value of
// a choice, switch and interval that is not the default, and 0 where that is a value of
// its own, one at a time, with what goes with it.
func variants(e Entry) []map[string]any {
	goesWith := map[string]map[string]any{
		"backfill=served":       {"allocation": "madd"},
		"backfill=fair-share":   {"allocation": "madd"},
		"backfill=proportional": {"allocation": "madd"},
		"priorities":            {"allocation": "maxmin"},
		"rejected=last":         {"deadline": 2},
		"padding":               {"deadline": 2},
		"least":                 {"deadline": 2},
		"fraction":              {"thin": 2},
		"pilots=flows":          {"thin": 2, "fraction": 0.5},
		"pilots=number":         {"thin": 2, "number": 3},
		"choose=random":         {"thin": 2, "pilots": "number"},
		"policy=A":              {"thin": 2, "first_queue": "1KB"},
		"policy=B":              {"thin": 2, "first_queue": "1KB"},
	}
	var out []map[string]any
	for _, p := range e.Params {
		var values []any
		switch p.Type {
		case Choice:
			for _, c := range p.Choices {
				values = append(values, c)
			}
			if p.Durations {
				values = append(values, "8ms")
			}
		case Bool:
			values = []any{true, false}
		case Whole, Size, Duration:
			values = []any{p.Min}
			if p.Type == Duration && p.Name == "cycle" {
				values = []any{"80ms"}
			}
			if p.Name == "priorities" {
				values = []any{int64(2)}
			}
			if p.Name == "impact" {
				values = nil
				for code := range p.Max {
					values = append(values, code)
				}
			}
		case Float:
			values = []any{p.Low}
			if p.Name == "deadline" {
				values = []any{0.0, 2.0}
			}
		}
		for _, value := range values {
			if value == p.Default {
				continue
			}
			v := map[string]any{p.Name: value}
			if p.Type != Choice {
				maps.Copy(v, goesWith[p.Name])
			} else {
				maps.Copy(v, goesWith[fmt.Sprintf("%s=%v", p.Name, value)])
			}
			out = append(out, v)
		}
	}
	return out
}

// Coflow policies keep the contract by whatever way their parameters lead.
func TestVariants(t *testing.T) {
	const clusters = 20 // for each variant; the defaults have rapid's
	for _, e := range Entries(RoleCoflow) {
		t.Run(e.Name, func(t *testing.T) {
			chosen := map[string]bool{} // parameters of which a value was tried
			for _, params := range variants(e) {
				s, err := Coflow(e.Name, params)
				if err != nil {
					t.Errorf("%v: %v", params, err)
					continue
				}
				for name := range params {
					chosen[name] = true
				}
				for i := range clusters {
					c, other := policytest.Clusters().Example(i), policytest.Clusters().Example(i+clusters)
					if err := policytest.CheckScheduler(s, c, other); err != nil {
						t.Errorf("%v, cluster %d: %v", params, i, err)
						break
					}
				}
			}
			for _, p := range e.Params {
				if !chosen[p.Name] {
					t.Errorf("no value of %s but its default is tried", p.Name)
				}
			}
		})
	}
}

// Placement policies keep the contract by whatever way their parameters lead. What the
// contract says of racks is not for those that are told not to mind them.
func TestPlacementVariants(t *testing.T) {
	const clusters = 30 // for each variant; the defaults have rapid's
	for _, e := range Entries(RolePlacement) {
		t.Run(e.Name, func(t *testing.T) {
			for _, params := range variants(e) {
				if params["order"] == "arrival" {
					params["interval"] = "10s"
				}
				p, err := Placement(e.Name, params)
				if err != nil {
					t.Errorf("%v: %v", params, err)
					continue
				}
				for i := range clusters {
					v, other, b := policytest.PlacerViews().Example(i), policytest.PlacerViews().Example(i+clusters), workloads.Block{ID: 1, Size: units.MB, Replicas: 2, Packet: units.KB, Window: 1}
					if err := policytest.CheckPlacer(p, v, other, b, uint64(i)); err != nil && (params["faults"] != int64(0) || !strings.Contains(err.Error(), "in one rack")) {
						t.Errorf("%v, cluster %d: %v", params, i, err)
						break
					}
				}
			}
		})
	}
}

// A policy declares no more than makes a difference to it, and its description says
// whether that is the sizes of flows.
func TestNeeds(t *testing.T) {
	const clusters = 300
	known := map[policies.Knowledge]string{policies.Sizes: "Sizes", policies.LinkLoad: "LinkLoad", policies.DiskUse: "DiskUse", policies.Flows: "Flows",
		policies.NewFlows: "NewFlows", policies.PilotFlows: "PilotFlows", policies.MostSent: "MostSent", policies.Totals: "Totals"}
	for _, e := range Entries(RoleCoflow) {
		t.Run(e.Name, func(t *testing.T) {
			p, err := Coflow(e.Name, nil)
			if err != nil {
				t.Fatal(err)
			}
			needs := p.Needs()
			if says := strings.Contains(e.Doc, "knows sizes"); says != (needs&(policies.Sizes|policies.Totals) != 0) {
				t.Errorf("description %q, but it declares %b", e.Doc, needs)
			}
			if needs&policies.Blind != 0 {
				needs &^= policies.Blind
				for i := range clusters {
					c := policytest.Clusters().Example(i)
					for more := true; more; more = c.Next() {
						var blind, sees policies.Schedule
						p.Schedule(c.View(p.Needs()), &blind)
						p.Schedule(c.View(p.Needs()&^policies.Blind), &sees)
						if a, b := decision(&blind), decision(&sees); a != b {
							t.Fatalf("it declares to be blind, and decides %s, but %s when it sees", a, b)
						}
						c.Take(&sees)
					}
				}
			}
			for fact, name := range known {
				if needs &^= fact; p.Needs()&fact == 0 {
					continue
				}
				differs := false
				for i := 0; i < clusters && !differs; i++ {
					c := policytest.Clusters().Example(i)
					for more := true; more && !differs; more = c.Next() {
						var with, without policies.Schedule
						p.Schedule(c.View(p.Needs()), &with)
						p.Schedule(c.View(p.Needs()&^fact), &without)
						a, b := decision(&with), decision(&without)
						differs = a != b
						c.Take(&with)
					}
				}
				if !differs {
					t.Errorf("it declares to need %s, and decides the same without", name)
				}
			}
			if needs != 0 {
				t.Errorf("it declares %b too, which this test does not know of", needs)
			}
		})
	}
}

// decision is all that a schedule says.
func decision(s *policies.Schedule) string {
	return fmt.Sprint(s.Steps, s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, s.Wake, s.Memory)
}

func TestCoflow(t *testing.T) {
	greedy := coflow.Sharing{Allocation: coflow.Greedy}
	for _, tt := range []struct {
		name   string
		params map[string]any
		want   policies.Scheduler
	}{
		{"fair", nil, coflow.Fair{}},
		{"equal-share", nil, coflow.EqualShare{}},
		{"fifo", nil, coflow.Ordered{Sharing: greedy}},
		{"fifo", map[string]any{"allocation": "madd", "backfill": "fair-share", "reallocate": "coflows"},
			coflow.Ordered{Sharing: coflow.Sharing{Backfill: coflow.FairShare, Pace: coflow.Pace{CoflowsOnly: true}}}},
		{"scf", nil, coflow.Ordered{By: coflow.LargestFlow}},
		{"ncf", map[string]any{"reallocate": "8ms"}, coflow.Ordered{By: coflow.Width, Sharing: coflow.Sharing{Allocation: coflow.Greedy, Pace: coflow.Pace{Every: 8 * time.Millisecond}}}},
		{"ncf", map[string]any{"reallocate": time.Second, "allocation": "even"},
			coflow.Ordered{By: coflow.Width, Sharing: coflow.Sharing{Allocation: coflow.Even, Pace: coflow.Pace{Every: time.Second}}}},
		{"lcf", map[string]any{"key": "initial", "backfill": "served"}, coflow.Ordered{By: coflow.Bytes, Initial: true, Sharing: coflow.Sharing{Backfill: coflow.TopUpServed}}},
		{"srtf", nil, coflow.Ordered{By: coflow.Bottleneck, Sharing: greedy}},
		{"sebf", nil, coflow.SEBF{Deadline: coflow.DefaultDeadline()}},
		{"sebf", map[string]any{"key": "initial", "backfill": "none"}, coflow.SEBF{Initial: true, Sharing: coflow.Sharing{Backfill: coflow.None}, Deadline: coflow.DefaultDeadline()}},
		{"sebf", map[string]any{"backfill": "proportional"}, coflow.SEBF{Sharing: coflow.Sharing{Backfill: coflow.Proportional}, Deadline: coflow.DefaultDeadline()}},
		{"sebf", map[string]any{"deadline": 2, "padding": 0.5, "least": 0, "rejected": "last"}, coflow.SEBF{Deadline: coflow.Deadline{Factor: 2, Padding: 0.5, RejectedLast: true}}},
		{"sincronia", nil, coflow.DefaultSincronia()},
		{"sincronia", map[string]any{"ties": "earlier-last", "reorder": "always", "allocation": "maxmin", "priorities": 8},
			coflow.Sincronia{EarlierLast: true, Always: true, Sharing: coflow.Sharing{Allocation: coflow.MaxMin, Priorities: 8}}},
	} {
		if got, err := Coflow(tt.name, tt.params); err != nil || got != tt.want {
			t.Errorf("Coflow(%q, %v) = %#v, %v, want %#v", tt.name, tt.params, got, err, tt.want)
		}
	}
}

func TestPlacement(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params map[string]any
		want   policies.Placer
	}{
		{"hdfs", nil, placement.HDFS{ConsiderLoad: true, MinBlocks: 5}},
		{"hdfs", map[string]any{"consider_load": false, "min_blocks": 1}, placement.HDFS{MinBlocks: 1}},
		{"sinbad", nil, placement.DefaultSinbad()},
		{"hdfs", map[string]any{"hosts": "h0-*,h1-0?"}, placement.HDFS{ConsiderLoad: true, MinBlocks: 5, Hosts: "h0-*,h1-0?"}},
		{"least-loaded", nil, placement.DefaultLeastLoaded()},
		{"oracle", nil, placement.DefaultOracle()},
		{"power-of-two", nil, placement.DefaultPowerOfTwo()},
		{"uniform", nil, placement.DefaultUniform()},
		{"uniform", map[string]any{"form": "two-racks", "tolerance": 10, "faults": 2, "partitions": 3, "hosts": "h*"},
			placement.Uniform{TwoRacks: true, Constraints: placement.Constraints{Hosts: "h*", Tolerance: 10, Faults: 2, Partitions: 3}}},
		{"sinbad", map[string]any{"threshold": "64MB", "tolerance": 20.0, "consider_load": false, "min_blocks": uint64(2), "form": "v1", "faults": 0, "fallback": "two-racks",
			"threshold_fraction": 0, "min_delta": "2ms", "disk_cap": false, "interval": "10s", "order": "arrival", "grace": 2, "rack_load": "leaf", "hosts": "*"},
			placement.Sinbad{Threshold: 64 * units.MB, MinDelta: 2 * time.Millisecond, NoDiskCap: true, Interval: 10 * time.Second, Arrival: true,
				Estimate: placement.Estimate{Grace: 2, LeafCounters: true},
				Steering: placement.Steering{Form: placement.Literal, Fallback: placement.ToTwoRacks, HDFS: placement.HDFS{MinBlocks: 2},
					Constraints: placement.Constraints{Tolerance: 20, Partitions: 1}}}},
		{"oracle", map[string]any{"form": "ve", "fallback": "hdfs"},
			placement.Oracle{Steering: placement.Steering{Form: placement.Edge, Fallback: placement.ToHDFS, HDFS: placement.DefaultHDFS(), Constraints: placement.DefaultConstraints()}}},
	} {
		if got, err := Placement(tt.name, tt.params); err != nil || got != tt.want {
			t.Errorf("Placement(%q, %v) = %#v, %v, want %#v", tt.name, tt.params, got, err, tt.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		role   Role
		name   string
		params map[string]any
		want   []string
	}{
		{RoleCoflow, "sbef", nil, []string{`no coflow policy "sbef": did you mean "sebf"? have aalo, aalo-oracle, equal-share, fair, fifo, lcf, ncf, philae, philae-sim, saath, scf, sebf, sincronia, srtf`}},
		{RoleCoflow, "SEBF", nil, []string{`did you mean "sebf"?`}},
		{RoleCoflow, "hdfs", nil, []string{`no coflow policy "hdfs": have aalo, aalo-oracle, equal-share, fair, fifo, lcf, ncf, philae, philae-sim, saath, scf, sebf, sincronia, srtf`}},
		{RoleCoflow, "", nil, []string{`no coflow policy "": have aalo, aalo-oracle, equal-share, fair, fifo, lcf, ncf, philae, philae-sim, saath, scf, sebf, sincronia, srtf`}},
		{RoleCoflow, "fifo", map[string]any{"allocation": "mad", "reallocate": "1us", "priorities": -1}, []string{
			`fifo: allocation: mad: want even, greedy, madd, maxmin`,
			`fifo: reallocate: 1us: want flows, coflows or a duration such as "8ms", of 100µs to 1h0m0s`,
			`fifo: priorities: -1: want a whole number of 0 to 1000 (classes)`}},
		{RoleCoflow, "fifo", map[string]any{"reallocate": 8}, []string{`fifo: reallocate: 8: want flows, coflows or a duration`}},
		{RoleCoflow, "fifo", map[string]any{"backfill": "served", "priorities": 2}, []string{
			`coflow policy fifo: backfill served is about coflows that allocation madd has skipped, and allocation is greedy: want`,
			`coflow policy fifo: priorities 2: coflows of a class share by allocation maxmin, and allocation is greedy: want`}},
		{RoleCoflow, "fifo", map[string]any{"backfill": "proportional"}, []string{`coflow policy fifo: backfill proportional would find nothing left by allocation greedy: want`}},
		{RoleCoflow, "sebf", map[string]any{"deadline": math.NaN(), "padding": "much", "least": "-1s", "rejected": true}, []string{
			`sebf: deadline: NaN: want a number of 0 to 1e+06 (times the time a coflow takes alone)`,
			`sebf: padding: much: want a number of 0 to 10 (of an estimate)`,
			`sebf: least: -1s: want a duration such as "8ms", of 0s to 1h0m0s`,
			`sebf: rejected: true: want background, last`}},
		{RoleCoflow, "sebf", map[string]any{"deadline": 1.5, "backfill": "none"}, []string{
			`coflow policy sebf: deadline 1.5 goes with allocation madd and backfill greedy alone, not with madd and none`}},
		{RolePlacement, "sindbad", nil, []string{`did you mean "sinbad"? have hdfs, least-loaded, oracle, power-of-two, sinbad, uniform`}},
		{"shuffle", "fifo", nil, []string{`no policies of role "shuffle": roles are coflow and placement`}},
		{RoleCoflow, "fair", map[string]any{"weight": 1}, []string{`coflow policy fair: no parameter "weight": it has none`}},
		{RolePlacement, "sinbad", map[string]any{"treshold": "1MB", "tolerance": 101, "min_blocks": 1.5, "consider_load": "yes"}, []string{
			`no parameter "treshold": did you mean "threshold"? have consider_load, disk_cap, fallback, faults, form, grace, hosts, interval, min_blocks, min_delta, order, partitions, rack_load, threshold, threshold_fraction, tolerance`,
			`sinbad: tolerance: 101: want a whole number of 0 to 100 (percent of a disk)`,
			`sinbad: min_blocks: 1.5: want a whole number of 1 to 1000 (blocks)`,
			`sinbad: consider_load: yes: want true or false`}},
		{RolePlacement, "sinbad", map[string]any{"threshold": "1 MEG"}, []string{`sinbad: threshold: size "1 MEG"`}},
		{RolePlacement, "sinbad", map[string]any{"threshold": -1}, []string{`threshold: -1: want a size such as "64MB"`}},
		{RolePlacement, "sinbad", map[string]any{"form": "v3", "faults": -1, "partitions": 1e9, "interval": "-1s", "grace": -0.5, "threshold_fraction": 1.5, "min_delta": 5}, []string{
			`sinbad: form: v3: want auto, v1, v2, ve`, `sinbad: faults: -1: want a whole number of 0 to 1000 (racks)`, `sinbad: partitions: 1e+09: want`,
			`sinbad: interval: -1s: want a duration`, `sinbad: grace: -0.5: want a number of 0 to 1000 (of a heartbeat's interval)`,
			`sinbad: threshold_fraction: 1.5: want a number of 0 to 1 (of the largest block)`, `sinbad: min_delta: 5: want a duration`}},
		{RolePlacement, "sinbad", map[string]any{"order": "arrival"}, []string{`placement policy sinbad: order arrival is about requests that wait, and with interval 0 none does: want`}},
		{RolePlacement, "uniform", map[string]any{"hosts": "h0-*,["}, []string{`uniform: hosts: hosts "h0-*,[": pattern "[": want patterns of host names with commas between them`}},
		{RolePlacement, "hdfs", map[string]any{"hosts": ""}, []string{`hdfs: hosts: : want patterns of host names`}},
		{RolePlacement, "hdfs", map[string]any{"hosts": 7}, []string{`hdfs: hosts: 7: want patterns of host names`}},
		{RolePlacement, "hdfs", map[string]any{"min_blocks": nil}, []string{`min_blocks: <nil>: want a whole number`}},
	} {
		err := Check(tt.role, tt.name, tt.params)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Check(%q, %q, %v) = %v, want %q in it", tt.role, tt.name, tt.params, err, want)
			}
		}
	}
	if p, err := Coflow("nope", nil); p != nil || err == nil {
		t.Errorf("Coflow of an unknown name = %v, %v", p, err)
	}
	if p, err := Placement("nope", nil); p != nil || err == nil {
		t.Errorf("Placement of an unknown name = %v, %v", p, err)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"sbef", "sebf", 1}, {"treshold", "threshold", 1}, {"fair", "hdfs", 4}, {"kitten", "sitting", 3}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
