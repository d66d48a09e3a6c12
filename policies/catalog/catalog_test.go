package catalog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/placement"
	"testbed/policies/policytest"
	"testbed/topo/units"
)

// Names are sorted, each is there once, and the examples of a role are among them.
func TestNames(t *testing.T) {
	for _, role := range All() {
		names := All().Names(role.Name)
		if len(names) != len(role.Policies) || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("Names(%q) = %q of %d policies", role.Name, names, len(role.Policies))
		}
		for _, name := range role.Examples {
			if !slices.Contains(names, name) {
				t.Errorf("Names(%q) = %q, without the example %s", role.Name, names, name)
			}
		}
	}
	if names := All().Names("nonsense"); names != nil {
		t.Errorf("names of no role: %q", names)
	}
}

// available returns the end of the error about an unknown policy.
func available(role string) string {
	return "available: " + strings.Join(All().Names(role), ", ") + ")"
}

// Every entry is documented, its defaults are valid, and its policy satisfies the
// contract.
func TestEntries(t *testing.T) {
	for _, role := range All().Roles() {
		for _, e := range All().Entries(role) {
			t.Run(e.Name, func(t *testing.T) {
				if e.Doc == "" || strings.Contains(e.Doc, "\n") {
					t.Errorf("description %q: must be one line", e.Doc)
				}
				defaults := map[string]any{}
				for _, p := range e.Params {
					if p.Doc == "" || strings.Contains(p.Doc, "\n") {
						t.Errorf("description of %s %q: must be one line", p.Name, p.Doc)
					}
					defaults[p.Name] = p.Default
				}
				if err := errors.Join(All().Check(role, e.Name, defaults)...); err != nil {
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
				case RoleTask:
					p, err := Task(e.Name, nil)
					if err != nil {
						t.Fatal(err)
					}
					policytest.Tasks(t, p)
				default:
					t.Errorf("no contract for policies of role %q", role)
				}
			})
		}
	}
}

// variants returns sets of parameters that together reach all branches of a policy: every
// non-default value of a choice, switch or interval, and 0 where it has its own meaning.
// Each set changes one parameter, plus those that it requires.
func variants(e Entry) []map[string]any {
	requires := map[string]map[string]any{
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
			if number, _ := whole(p.Default); p.Type == Whole && number == p.Min {
				values = []any{min(p.Min+2, p.Max)}
			}
			if p.Type == Duration && p.Name == "cycle" {
				values = []any{"80ms"}
			}
			if p.Name == "impact" {
				values = nil
				for code := range p.Max {
					values = append(values, code)
				}
			}
		case Float:
			values = []any{p.Low, min(p.Low+2, p.High)}
		}
		for _, value := range values {
			if value == p.Default {
				continue
			}
			v := map[string]any{p.Name: value}
			if p.Type != Choice {
				maps.Copy(v, requires[p.Name])
			} else {
				maps.Copy(v, requires[fmt.Sprintf("%s=%v", p.Name, value)])
			}
			out = append(out, v)
		}
	}
	return out
}

// Coflow policies satisfy the contract with every variant of their parameters.
func TestVariants(t *testing.T) {
	const clusters = 20 // per variant; the defaults are tested with rapid's number
	for _, e := range All().Entries(RoleCoflow) {
		t.Run(e.Name, func(t *testing.T) {
			chosen := map[string]bool{} // parameters with a tested value
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
					t.Errorf("only the default value of %s is tested", p.Name)
				}
			}
		})
	}
}

// Placement policies satisfy the contract with every variant of their parameters. With
// faults 0 the rule about racks does not apply.
func TestPlacementVariants(t *testing.T) {
	const clusters = 30 // per variant; the defaults are tested with rapid's number
	for _, e := range All().Entries(RolePlacement) {
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
					c, other := policytest.Clusters().Example(i), policytest.Clusters().Example(i+clusters)
					if err := policytest.CheckPlacer(p, c, other); err != nil && (params["faults"] != int64(0) || !strings.Contains(err.Error(), "in one rack")) {
						t.Errorf("%v, cluster %d: %v", params, i, err)
						break
					}
				}
			}
		})
	}
}

// A policy declares only the knowledge that changes its decisions, and its description
// says whether it knows sizes.
func TestNeeds(t *testing.T) {
	const clusters = 300
	for _, e := range All().Entries(RoleCoflow) {
		t.Run(e.Name, func(t *testing.T) {
			p, err := Coflow(e.Name, nil)
			if err != nil {
				t.Fatal(err)
			}
			needs := p.Needs()
			if says := strings.Contains(e.Doc, "knows sizes"); says != needs.Has(policies.Totals) {
				t.Errorf("description %q contradicts its declaration %v", e.Doc, needs)
			}
			for _, fact := range policies.AllFacts() {
				if !needs.Has(fact.Set) || included(needs, fact.Set) {
					continue
				}
				var others policies.Facts // that it declares apart from this one and its parts
				for _, x := range policies.AllFacts() {
					if needs.Has(x.Set) && !x.Set.Has(fact.Set) && !fact.Set.Has(x.Set) {
						others |= x.Set
					}
				}
				differs := false
				for i := 0; i < 10*clusters && !differs; i++ {
					blind := p.New()
					err := policytest.Clusters().Example(i).Run(p, others, func(_, hidden *policies.CoflowView, with *policies.Schedule) error {
						var without policies.Schedule
						blind.Decide(hidden, &without)
						differs = differs || decision(with) != decision(&without)
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				if !differs {
					t.Errorf("it declares %s, but decides the same without it", fact.Name)
				}
			}
		})
	}
}

// included reports whether a larger fact among those declared includes one.
func included(needs, fact policies.Facts) bool {
	return slices.ContainsFunc(policies.AllFacts(), func(x policies.Fact) bool {
		return x.Set != fact && x.Set.Has(fact) && needs.Has(x.Set)
	})
}

// decision returns the content of a schedule as text.
func decision(s *policies.Schedule) string {
	return fmt.Sprint(s.Steps, s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, s.Wake)
}

func TestCoflow(t *testing.T) {
	greedy := coflow.Sharing{Allocation: coflow.Greedy}
	for _, tt := range []struct {
		name   string
		params map[string]any
		want   policies.CoflowScheduler
	}{
		{"fair", nil, coflow.Fair{}},
		{"equal-share", nil, coflow.EqualShare{}},
		{"rack-limit", map[string]any{"limit": 0.5}, coflow.RackLimit{Share: 0.5}},
		{"fifo", nil, coflow.Ordered{Sharing: greedy}},
		{"fifo", map[string]any{"allocation": "madd", "backfill": "fair-share", "reallocate": "coflows"},
			coflow.Ordered{Sharing: coflow.Sharing{Backfill: coflow.FairShare, Pace: coflow.Pace{CoflowsOnly: true}}}},
		{"scf", nil, coflow.Ordered{By: coflow.LargestFlow}},
		{"ncf", map[string]any{"reallocate": "8ms"}, coflow.Ordered{By: coflow.Width, Sharing: coflow.Sharing{Allocation: coflow.Greedy, Pace: coflow.Pace{Every: 8 * time.Millisecond}}}},
		{"ncf", map[string]any{"reallocate": time.Second, "allocation": "even"},
			coflow.Ordered{By: coflow.Width, Sharing: coflow.Sharing{Allocation: coflow.EqualSplit, Pace: coflow.Pace{Every: time.Second}}}},
		{"lcf", map[string]any{"key": "initial", "backfill": "served"}, coflow.Ordered{By: coflow.Bytes, Initial: true, Sharing: coflow.Sharing{Backfill: coflow.TopUpServed}}},
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

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		role   string
		name   string
		params map[string]any
		want   []string
	}{
		{RoleCoflow, "sbef", nil, []string{`unknown coflow policy "sbef" (did you mean "sebf"? ` + available(RoleCoflow)}},
		{RoleCoflow, "SEBF", nil, []string{`did you mean "sebf"?`}},
		{RoleCoflow, "hdfs", nil, []string{`unknown coflow policy "hdfs" (` + available(RoleCoflow)}},
		{RoleCoflow, "", nil, []string{`unknown coflow policy "" (` + available(RoleCoflow)}},
		{RoleCoflow, "fifo", map[string]any{"allocation": "mad", "reallocate": "1us", "priorities": -1}, []string{
			`fifo: allocation: mad: must be madd, greedy, even or maxmin`,
			`fifo: reallocate: 1us: must be flows, coflows or a duration such as "8ms", from 100µs to 1h0m0s`,
			`fifo: priorities: -1: must be a whole number from 0 to 1000 (priority classes)`}},
		{RoleCoflow, "fifo", map[string]any{"reallocate": 8}, []string{`fifo: reallocate: 8: must be flows, coflows or a duration`}},
		{RoleCoflow, "fifo", map[string]any{"backfill": "served", "priorities": 2}, []string{
			`coflow policy fifo: backfill served needs allocation madd, which skips coflows, and allocation is greedy: use`,
			`coflow policy fifo: priorities 2: needs allocation maxmin, by which the coflows of a class share, and allocation is greedy: use`}},
		{RoleCoflow, "fifo", map[string]any{"backfill": "proportional"}, []string{`coflow policy fifo: backfill proportional has no effect with allocation greedy, which leaves no capacity: use`}},
		{RoleCoflow, "sebf", map[string]any{"deadline": math.NaN(), "padding": "much", "least": "-1s", "rejected": true}, []string{
			`sebf: deadline: NaN: must be a number from 0 to 1e+06 (× the coflow's minimum CCT)`,
			`sebf: padding: much: must be a number from 0 to 10 (× the estimated time)`,
			`sebf: least: -1s: expected a duration such as "8ms", from 0s to 1h0m0s`,
			`sebf: rejected: true: must be background or last`}},
		{RoleCoflow, "sebf", map[string]any{"deadline": 1.5, "backfill": "none"}, []string{
			`coflow policy sebf: deadline 1.5: works only with allocation madd and backfill greedy, not with madd and none`}},
		{RolePlacement, "sindbad", nil, []string{`did you mean "sinbad"? ` + available(RolePlacement)}},
		{"shuffle", "fifo", nil, []string{`unknown role "shuffle": must be coflow, placement or tasks`}},
		{RoleCoflow, "fair", map[string]any{"weight": 1}, []string{`coflow policy fair: unknown parameter "weight" (it has no parameters)`}},
		{RolePlacement, "sinbad", map[string]any{"treshold": "1MB", "tolerance": 101, "min_blocks": 1.5, "consider_load": "yes"}, []string{
			`unknown parameter "treshold" (did you mean "threshold"? available: consider_load, disk_cap, fallback, faults, form, grace, hosts, interval, min_blocks, min_delta, order, partitions, path, rack_load, threshold, threshold_fraction, tolerance)`,
			`sinbad: tolerance: 101: must be a whole number from 0 to 100 (percentage points of disk use)`,
			`sinbad: min_blocks: 1.5: must be a whole number from 1 to 1000 (blocks)`,
			`sinbad: consider_load: yes: must be true or false`}},
		{RolePlacement, "sinbad", map[string]any{"threshold": "1 MEG"}, []string{`sinbad: threshold: size "1 MEG"`}},
		{RolePlacement, "sinbad", map[string]any{"threshold": -1}, []string{`threshold: -1: expected a size such as "64MB"`}},
		{RolePlacement, "sinbad", map[string]any{"form": "v3", "faults": -1, "partitions": 1e9, "interval": "-1s", "grace": -0.5, "threshold_fraction": 1.5, "min_delta": 5}, []string{
			`sinbad: form: v3: must be auto, v1, v2 or ve`, `sinbad: faults: -1: must be a whole number from 0 to 1000 (racks)`, `sinbad: partitions: 1e+09: must be`,
			`sinbad: interval: -1s: expected a duration`, `sinbad: grace: -0.5: must be a number from 0 to 1000 (× the heartbeat interval)`,
			`sinbad: threshold_fraction: 1.5: must be a number from 0 to 1 (× the largest block)`, `sinbad: min_delta: 5: expected a duration`}},
		{RoleCoflow, "philae", map[string]any{"policy": "A", "dynamics": true}, []string{`coflow policy philae: dynamics has no effect under policy A: use`}},
		{RolePlacement, "sinbad", map[string]any{"order": "arrival"}, []string{`placement policy sinbad: order arrival has no effect with interval 0, because no request waits: use`}},
		{RolePlacement, "uniform", map[string]any{"hosts": "h0-*,["}, []string{`uniform: hosts: hosts "h0-*,[": pattern "[": expected comma-separated host name patterns`}},
		{RolePlacement, "hdfs", map[string]any{"hosts": ""}, []string{`hdfs: hosts: : expected comma-separated host name patterns`}},
		{RolePlacement, "hdfs", map[string]any{"hosts": 7}, []string{`hdfs: hosts: 7: expected comma-separated host name patterns`}},
		{RolePlacement, "hdfs", map[string]any{"min_blocks": nil}, []string{`min_blocks: <nil>: must be a whole number`}},
	} {
		err := errors.Join(All().Check(tt.role, tt.name, tt.params)...)
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
