package scenario

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"testbed/policies/catalog"
	"testbed/topo/units"
)

// documented are policies with a parameter of every type.
var documented = func() catalog.Catalog {
	c := withParams()
	c[0].Policies = []catalog.Entry{{Name: "fair", Doc: "max-min fair"}, {Name: "sebf", Doc: "smallest bottleneck first", Params: []catalog.Param{
		{Name: "deadline", Type: catalog.Float, Doc: "factor of the deadline", Default: 1.5, High: 1e6},
		{Name: "classes", Type: catalog.Whole, Doc: "number of classes", Unit: "classes", Default: int64(0), Max: 1000},
		{Name: "least", Type: catalog.Duration, Doc: "shortest time", Default: 8 * time.Millisecond, Max: int64(time.Hour)},
		{Name: "reallocate", Type: catalog.Choice, Doc: "moment of decisions", Default: "flows", Choices: []string{"flows", "coflows"}, Durations: true, Min: int64(100 * time.Microsecond), Max: int64(time.Hour)},
	}}}
	c[1].Policies = []catalog.Entry{{Name: "hdfs", Doc: "rack-aware", Params: []catalog.Param{
		{Name: "consider_load", Type: catalog.Bool, Doc: "skip busy hosts", Default: true},
		{Name: "threshold", Type: catalog.Size, Doc: "smallest block", Default: 10 * units.MB, Max: math.MaxInt64},
		{Name: "hosts", Type: catalog.Hosts, Doc: "allowed hosts", Default: "*"},
	}}}
	return c
}()

type schemaNode struct {
	Description          string                 `json:"description"`
	Properties           map[string]*schemaNode `json:"properties"`
	Items                *schemaNode            `json:"items"`
	OneOf                []*schemaNode          `json:"oneOf"`
	AnyOf                []*schemaNode          `json:"anyOf"`
	Defs                 map[string]*schemaNode `json:"$defs"`
	AdditionalProperties json.RawMessage        `json:"additionalProperties"`
}

func TestSchemaGolden(t *testing.T) {
	data, err := Schema(documented)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.golden", data)
}

// Every key has a description, and every mapping refuses unknown keys, except vars and
// policies that a variable names.
func TestSchemaIsDocumented(t *testing.T) {
	data, err := Schema(documented)
	if err != nil {
		t.Fatal(err)
	}
	var root schemaNode
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	keys := 0
	var walk func(s *schemaNode, path string)
	walk = func(s *schemaNode, path string) {
		if s.Properties != nil && string(s.AdditionalProperties) != "false" && !strings.HasPrefix(s.Description, "Policy that a variable names") {
			t.Errorf("%s takes unknown keys", path)
		}
		for key, p := range s.Properties {
			keys++
			if len(p.Description) < 10 || !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%s.%s: description %q", path, key, p.Description)
			}
			walk(p, path+"."+key)
		}
		for _, c := range append(s.OneOf, s.AnyOf...) {
			walk(c, path)
		}
		if s.Items != nil {
			walk(s.Items, path)
		}
		for name, d := range s.Defs {
			walk(d, name)
		}
	}
	walk(&root, "")
	if keys < 140 {
		t.Errorf("the schema has %d keys, want all", keys)
	}
}

func TestSchemaOfUnknownTypes(t *testing.T) {
	_, err := Schema(catalog.Catalog{{Name: "coflow", Policies: []catalog.Entry{{Name: "x", Params: []catalog.Param{{Name: "p", Default: math.Pi + 1i}}}}}})
	if err == nil || !strings.Contains(err.Error(), "coflow policy x: parameter p: default (3.14") {
		t.Errorf("Schema of a complex parameter: %v", err)
	}
}

func TestDescriptions(t *testing.T) {
	for _, tt := range []struct{ name, comment, want string }{
		{"Leaves", "Leaves is the number of racks.", "Number of racks."},
		{"Links", "Links are links that differ.", "Links that differ."},
		{"Merge", "Merge joins flows.", "Joins flows."},
		{"X", "Something else.", "Something else."},
	} {
		if got := description(tt.name, tt.comment); got != tt.want {
			t.Errorf("description(%q, %q) = %q, want %q", tt.name, tt.comment, got, tt.want)
		}
	}
	for text, want := range map[string]string{"a queue": "A queue.", "max-min fair": "Max-min fair.", "δ, time": "δ, time.", "mTCP": "mTCP.", "": "."} {
		if got := sentence(text); got != want {
			t.Errorf("sentence(%q) = %q, want %q", text, got, want)
		}
	}
}
