package scenario_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
)

// compiled returns the schema of a catalog, compiled by another library.
func compiled(t *testing.T, c catalog.Catalog) *jsonschema.Schema {
	t.Helper()
	data, err := scenario.Schema(c)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := doc.(map[string]any)["$id"].(string)
	if id != "urn:testbed:scenario:1" {
		t.Errorf("$id %q, want that of version 1", id)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(id, doc); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile(id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refused returns the places of all values of a document that the schema refuses, such as
// "/fabric/leaves", and nil if it accepts the document.
func refused(t *testing.T, s *jsonschema.Schema, text []byte) []string {
	t.Helper()
	var v any
	if err := yaml.Load(text, &v); err != nil {
		t.Fatal(err)
	}
	err := s.Validate(v)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	var places []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			places = append(places, "/"+strings.Join(e.InstanceLocation, "/"))
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(invalid)
	return places
}

// The schema knows the keys that arms can set.
func TestSchemaOfArms(t *testing.T) {
	s := compiled(t, catalog.All())
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(data), "arms:\n")
	_, after, _ := strings.Cut(rest, "repeat:")
	for arms, want := range map[string]string{
		"[{name: a}, {set: {fabric: {queue: 5ms, red: null}, tasks: {map_slots: 3}, disk: {write: 1MB/s}}}, {set: {fabric.queue: 5ms}}]": "",
		`{coflow: [fair], fabric.oversubscription: ["1:1", "5:1"], setup: [serial], fabric.red: [null, {min: 3KB, max: 9KB}]}`:           "",
		"[{set: {fabric: {quue: 5ms}}}]":                 "/arms/0/set/fabric",
		"[{set: {fabric: {leaves: 5}}}]":                 "/arms/0/set/fabric",
		"[{set: {fabric: {queue: 5}}}]":                  "/arms/0/set/fabric/queue",
		"[{set: {fabric: null}}]":                        "/arms/0/set/fabric",
		"[{set: {seed: 5}}]":                             "/arms/0/set",
		"[{set: {seed.a: 5}}]":                           "/arms/0/set",
		"{coflow: [fair], seed: [1, 2]}":                 "/arms",
		"{fabric.oversubscription: 5:1}":                 "/arms/fabric.oversubscription",
		"[{set: {disk: {write: 1MB/s, throttle: ram}}}]": "/arms/0/set/disk/throttle",
	} {
		places := refused(t, s, []byte(before+"arms: "+arms+"\nrepeat:"+after))
		if want == "" && places != nil || want != "" && !slices.Contains(places, want) {
			t.Errorf("%s: the schema refuses %q, want %q", arms, places, want)
		}
	}
}

func TestSchemaAcceptsShippedScenarios(t *testing.T) {
	s := compiled(t, catalog.All())
	files := []string{"testdata/good.yaml", "testdata/unlike.yaml", "testdata/switch.yaml", "testdata/resolved.golden", "testdata/source.golden"}
	shipped, err := filepath.Glob("../../scripts/*/*.yaml")
	if err != nil || len(shipped) < 2 {
		t.Fatalf("scenarios of scripts: %v, %v, want at least two", shipped, err)
	}
	for _, file := range append(files, shipped...) {
		if filepath.Base(file) == "claims.yaml" {
			continue // claims of a paper, next to the scenarios of its suite
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if places := refused(t, s, data); places != nil {
			t.Errorf("%s: the schema refuses %q", file, places)
		}
	}
}

// Each change of a valid scenario is refused by the schema, at one place at least, and by
// Parse.
func TestSchemaRefuses(t *testing.T) {
	s := compiled(t, catalog.All())
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const policies = "coflow: [fair, sebf]"
	for _, tt := range []struct{ old, new, want string }{
		{"name: good", "name: good\nversion: 2", "/version"},
		{"name: good", "name: good\nversion: \"1\"", "/version"},
		{"leaves: 4", "leaves: 0", "/fabric/leaves"},
		{"leaves: 4", "leafs: 4", "/fabric"},
		{"leaves: 4", "leaves: 4\n  leafs: 4", "/fabric"},
		{"leaves: 4", "leaves: 4\n  ports: 4", "/fabric"},
		{"leaves: 4", "kind: switch\n  leaves: 4", "/fabric"},
		{"leaves: 4", "kind: switch\n  ports: 4\n  leaves: 4", "/fabric"},
		{"leaves: 4", "kind: ring\n  leaves: 4", "/fabric/kind"},
		{"host_link: 50Mbps", "host_link: 50Mbps\n  host_links: [{hosts: h0-00}]", "/fabric/host_links/0"},
		{"host_link: 50Mbps", "host_link: 50Mbps\n  links: [{link: h0-00>leaf0, delay: 5}]", "/fabric/links/0/delay"},
		{"host_link: 50Mbps", "host_link: 50Mbps\n  red: {min: 10KB, max: 20KB, ecn: 1}", "/fabric/red/ecn"},
		{"host_link: 50Mbps", "host_link: 50", "/fabric/host_link"},
		{"host_link: 50Mbps", "host_link: 50Mbs", "/fabric/host_link"},
		{"queue: 20ms", "queue: 20", "/fabric/queue"},
		{"mb: MB", "mb: mb", "/workload/0/mb"},
		{"duration: 5m", "duration: 5", "/limits/duration"},
		{"first: 3", "frist: 3", "/workload/0"},
		{"kind: trace", "kind: tracer", "/workload/0/kind"},
		{"seed: 7", "seed: -7", "/seed"},
		{policies, "coflow: [fair, sebff]", "/arms/coflow/1"},
		{policies, "coflow: [fair, hdfs]", "/arms/coflow/1"},
		{policies, "coflow: [fair, {name: sebff}]", "/arms/coflow/1/name"},
		{policies, "coflow: [fair, {name: sebf, deadlines: 2}]", "/arms/coflow/1"},
		{policies, "coflow: [fair, {name: sebf, deadline: -2}]", "/arms/coflow/1/deadline"},
		{policies, "coflow: [fair, {name: sebf, backfill: some}]", "/arms/coflow/1/backfill"},
		{policies, "coflow: [fair, {name: sebf, least: 5}]", "/arms/coflow/1/least"},
		{policies, "coflow: [fair, {deadline: 2}]", "/arms/coflow/1"},
		{"tolerance: 10", "tolerance: 101", "/arms/placement/1/tolerance"},
		{"tolerance: 10", "tolerence: 10", "/arms/placement/1"},
	} {
		text := bytes.Replace(data, []byte(tt.old), []byte(tt.new), 1)
		if places := refused(t, s, text); !slices.Contains(places, tt.want) {
			t.Errorf("with %q the schema refuses %q, want %q", tt.new, places, tt.want)
		}
		if _, err := scenario.Parse("testdata/good.yaml", text, scenario.Options{Catalog: catalog.All()}); err == nil {
			t.Errorf("with %q Parse accepts what the schema refuses", tt.new)
		}
	}
	for _, ok := range []string{
		"coflow: [\"${a}\", sebf]", "coflow: [{name: \"${a}\", any: 1}]", "coflow: [{name: sebf, deadline: \"${n}\"}]",
		"coflow: [{name: fair}]", "coflow: [{name: fifo, reallocate: 8ms}]", "coflow: [{name: aalo, first_queue: 10MB, interval: 0}]",
	} {
		if places := refused(t, s, bytes.Replace(data, []byte(policies), []byte(ok), 1)); places != nil {
			t.Errorf("with %q the schema refuses %q, want it accepted", ok, places)
		}
	}
}

// The schema and the catalog agree on every parameter of every policy: on defaults, bounds and
// choices, which both accept, and on values beyond them, which the catalog refuses. The schema
// refuses those too where it can compare them, as it cannot for quantities with units.
func TestSchemaHasEveryParameter(t *testing.T) {
	s := compiled(t, catalog.All())
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Load(data, &doc); err != nil {
		t.Fatal(err)
	}
	params := 0
	type mapping = map[string]any
	for _, role := range catalog.All() {
		for i, e := range slices.Concat(role.Policies, role.Parts) {
			policy, composed := e.Name, func(params mapping) mapping { return params }
			if i >= len(role.Policies) {
				policy, composed = role.Policies[0].Name, func(params mapping) mapping { return mapping{catalog.With: []any{mapping{e.Name: params}}} }
			}
			check := func(param string, value any) error {
				return errors.Join(catalog.All().Check(role.Name, policy, composed(mapping{param: value}))...)
			}
			accepts := func(param string, value any) bool {
				arm := mapping{"coflow": "fair", "placement": "hdfs"}
				arm[role.Name] = composed(mapping{param: value})
				arm[role.Name].(mapping)["name"] = policy
				doc["arms"] = []any{arm}
				text, err := yaml.Dump(doc)
				if err != nil {
					t.Fatal(err)
				}
				return refused(t, s, text) == nil
			}
			if accepts("unknown", 1) {
				t.Errorf("%s: the schema accepts an unknown parameter", e.Name)
			}
			for _, p := range e.Params {
				params++
				low, high := p.Bounds()
				good := []any{p.Default, low, high}
				for _, c := range p.Choices {
					good = append(good, c)
				}
				for _, v := range good {
					if v == nil {
						continue
					}
					text := written(v)
					if !accepts(p.Name, text) {
						t.Errorf("%s: %s: the schema refuses %v", e.Name, p.Name, text)
					}
					// Values that do not fit the defaults of other parameters are refused without this
					// prefix.
					if err := check(p.Name, text); err != nil && strings.Contains(err.Error(), fmt.Sprintf(" %s: %s: %v", e.Name, p.Name, text)) {
						t.Errorf("the catalog refuses what the schema accepts: %v", err)
					}
				}
				var bad []any
				switch p.Type {
				case catalog.Bool:
					bad = []any{"yes", 1}
				case catalog.Whole:
					bad = []any{1.5, "many"}
					if low != nil {
						bad = append(bad, p.Min-1)
					}
					if high != nil {
						bad = append(bad, p.Max+1)
					}
				case catalog.Float:
					bad = []any{"much", p.Low - 1, p.High * 2}
				case catalog.Size:
					bad = []any{"1 MEG", p.Min - 1}
				case catalog.Duration:
					bad = []any{"soon", 5}
				case catalog.Choice:
					bad = []any{"other", 1, true}
				case catalog.Durations:
					bad = []any{"", 7}
					for _, v := range []string{"1s,", "1s,soon", "-1s", strings.Repeat("1s,", p.Most) + "1s"} {
						if check(p.Name, v) == nil {
							t.Errorf("%s: %s: the catalog accepts %q", e.Name, p.Name, v)
						}
					}
				case catalog.Hosts, catalog.Pools:
					bad = []any{"", 7}
				case catalog.Parts:
					bad = []any{e.Params[0].Name, 7, []any{"other"}}
				}
				if len(bad) == 0 {
					t.Errorf("%s: %s: no values of type %s to refuse", e.Name, p.Name, p.Type)
				}
				for _, v := range bad {
					if accepts(p.Name, v) {
						t.Errorf("%s: %s: the schema accepts %v", e.Name, p.Name, v)
					}
					if check(p.Name, v) == nil {
						t.Errorf("%s: %s: the catalog accepts %v", e.Name, p.Name, v)
					}
				}
			}
		}
	}
	if params < 100 {
		t.Errorf("%d parameters were checked, want all", params)
	}
}

// written returns a parameter's value as a scenario writes it: quantities as text.
func written(v any) any {
	if q, ok := v.(fmt.Stringer); ok {
		return q.String()
	}
	return v
}
