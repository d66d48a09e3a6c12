package scenario_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/topo/units"
	"testbed/workloads"
)

// toy is a policy of a role that only this test has.
type toy struct {
	speed  int64
	window units.Bytes
}

// withToy returns the catalog of the program with one more role.
func withToy() catalog.Catalog {
	return append(catalog.All(), catalog.Role{
		Name: "toyrole", Doc: "policy that decides on toys", Required: catalog.WritesBlocks, Examples: []string{"quick", "slow"},
		Policies: []catalog.Entry{
			{Name: "slow", Doc: "toys wait", New: func(catalog.Values) any { return toy{} }},
			{Name: "quick", Doc: "toys run", Params: []catalog.Param{
				{Name: "speed", Type: catalog.Whole, Default: int64(1), Min: 1, Max: 9, Unit: "toys", Doc: "speed of a toy"},
				{Name: "window", Type: catalog.Size, Default: 4 * units.KB, Max: math.MaxInt64, Doc: "size of a toy"},
			}, New: func(v catalog.Values) any { return toy{v["speed"].(int64), v["window"].(units.Bytes)} }},
		}})
}

// A new role needs an entry in the catalog only: its policies can be named in arms, with errors,
// schema, defaults and scaling.
func TestNewRole(t *testing.T) {
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := withToy()
	before, rest, _ := strings.Cut(string(data), "arms:\n")
	_, after, _ := strings.Cut(rest, "repeat:")
	file := func(arms string) string { return before + "arms: " + arms + "\nrepeat:" + after }
	line := strings.Count(before, "\n") + 1
	parse := func(text string) (*scenario.Scenario, error) {
		return scenario.Parse("testdata/good.yaml", []byte(text), scenario.Options{Catalog: c})
	}

	if d := cmp.Diff([]string{"coflow", "placement", "tasks", "toyrole"}, c.Roles()); d != "" {
		t.Errorf("roles (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"quick", "slow"}, c.Names("toyrole")); d != "" {
		t.Errorf("policies (-want +got):\n%s", d)
	}

	schema := compiled(t, c)
	for _, arms := range []string{
		"[{coflow: fair, toyrole: slow, placement: hdfs}, {coflow: fair, placement: hdfs, toyrole: {name: quick, speed: 2}}]",
		"{toyrole: [slow, {name: quick, speed: 2}], placement: [hdfs], coflow: [fair]}",
	} {
		s, err := parse(file(arms))
		if err != nil {
			t.Fatal(err)
		}
		if places := refused(t, schema, []byte(file(arms))); places != nil {
			t.Errorf("%s: the schema refuses %q", arms, places)
		}
		want := []scenario.Arm{
			{Name: "fair+hdfs+slow", Policies: map[string]scenario.Policy{"coflow": {Name: "fair"}, "placement": {Name: "hdfs"}, "toyrole": {Name: "slow"}}},
			{Name: "fair+hdfs+quick", Policies: map[string]scenario.Policy{"coflow": {Name: "fair"}, "placement": {Name: "hdfs"}, "toyrole": {Name: "quick", Params: map[string]any{"speed": 2}}}},
		}
		if d := cmp.Diff(want, s.ArmList()); d != "" {
			t.Errorf("%s (-want +got):\n%s", arms, d)
		}
		p := s.ArmList()[1].Policies["toyrole"]
		if got, err := catalog.New[toy](c, "toyrole", p.Name, p.Params); err != nil || got != (toy{2, 4 * units.KB}) {
			t.Errorf("policy %+v, %v", got, err)
		}
		resolved, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(strings.ReplaceAll(string(resolved), "path: traces/", "path: "))
		if err != nil {
			t.Fatalf("%v in\n%s", err, resolved)
		}
		if a, b := fingerprint(t, s), fingerprint(t, again); a != b {
			t.Errorf("the resolved scenario is another one:\n%s", resolved)
		}
		half, err := s.Scaled(workloads.Factor{Num: 2, Den: 1})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]any{"speed": 2, "window": 2000}, half.ArmList()[1].Policies["toyrole"].Params); d != "" {
			t.Errorf("scaled parameters (-want +got):\n%s", d)
		}
	}

	for _, tt := range []struct{ arms, at, want string }{
		{"{coflow: [fair], placement: [hdfs], toyrole: [quik]}", "quik", `arms.toyrole[0]: unknown toyrole policy "quik" (did you mean "quick"? available: quick, slow)`},
		{"[{coflow: fair, placement: hdfs, toyrole: {name: quick, sped: 2}}]", "2}}", `arms[0].toyrole.sped: toyrole policy quick: unknown parameter "sped" (did you mean "speed"? available: speed, window)`},
		{"[{coflow: fair, placement: hdfs, toyrole: {name: quick, speed: 10}}]", "10}", `arms[0].toyrole.speed: toyrole policy quick: speed: 10: must be a whole number from 1 to 9 (toys)`},
		{"[{coflow: fair, placement: hdfs, toyrole: {speed: 2}}]", "{speed", `arms[0].toyrole.name: missing: expected the name of a toyrole policy`},
		{"[{coflow: fair, placement: hdfs, toyrol: quick, toyrole: slow}]", "toyrol:", `arms[0].toyrol: unknown key (did you mean "toyrole"?)`},
		{"[{coflow: fair, placement: hdfs}]", "{coflow", `arms[0].toyrole: missing: the workload writes blocks: add a toyrole policy such as quick`},
		{"all", "all", `arms: "all": expected a list of arms, or a mapping such as {coflow: [fair, sebf], placement: [hdfs, sinbad], tasks: [fifo, fair], toyrole: [quick, slow]}`},
	} {
		want := fmt.Sprintf("testdata/good.yaml:%d:%d: %s", line, len("arms: ")+strings.Index(tt.arms, tt.at)+1, tt.want)
		if _, err := parse(file(tt.arms)); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v\nwant\n%s", tt.arms, err, want)
		}
	}
	for arms, want := range map[string]string{
		"{coflow: [fair], toyrole: [quik]}":                      "/arms/toyrole/0",
		"[{coflow: fair, toyrole: {name: quick, sped: 2}}]":      "/arms/0/toyrole",
		"[{coflow: fair, toyrole: {name: quick, speed: 10}}]":    "/arms/0/toyrole/speed",
		"[{coflow: fair, toyrole: {name: quick, window: 1MEG}}]": "/arms/0/toyrole/window",
	} {
		if places := refused(t, schema, []byte(file(arms))); !slices.Contains(places, want) {
			t.Errorf("%s: the schema refuses %q, want %q", arms, places, want)
		}
	}
	text, err := scenario.Schema(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Policy that decides on toys. Required if the workload writes blocks.", "Lists the toyrole policies. Required if the workload writes blocks.", "Toys run.", "Speed of a toy. Unit: toys."} {
		if !strings.Contains(string(text), `"`+want+`"`) {
			t.Errorf("the schema does not contain %q", want)
		}
	}
}

func fingerprint(t *testing.T, s *scenario.Scenario) string {
	t.Helper()
	f, err := s.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	return f
}
