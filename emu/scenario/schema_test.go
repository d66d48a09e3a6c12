package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

type schemaNode struct {
	Type                 string                 `json:"type"`
	Description          string                 `json:"description"`
	Properties           map[string]*schemaNode `json:"properties"`
	Items                *schemaNode            `json:"items"`
	OneOf                []*schemaNode          `json:"oneOf"`
	AnyOf                []*schemaNode          `json:"anyOf"`
	Required             []string               `json:"required"`
	Pattern              string                 `json:"pattern"`
	Enum                 []string               `json:"enum"`
	Minimum              *float64               `json:"minimum"`
	Maximum              *float64               `json:"maximum"`
	MinItems             int                    `json:"minItems"`
	AdditionalProperties json.RawMessage        `json:"additionalProperties"`
	If                   *schemaNode            `json:"if"`
	Then                 *schemaNode            `json:"then"`
	Else                 *schemaNode            `json:"else"`
	Not                  *schemaNode            `json:"not"`
	Const                string                 `json:"const"`
}

func schema(t *testing.T) *schemaNode {
	t.Helper()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s schemaNode
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestSchemaGolden(t *testing.T) {
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.golden", data)
}

// TestSchemaIsDocumented: every key has a description, and every mapping but
// vars and a policy's own parameters is closed.
func TestSchemaIsDocumented(t *testing.T) {
	keys := 0
	var walk func(s *schemaNode, path string)
	walk = func(s *schemaNode, path string) {
		if s.Properties != nil && string(s.AdditionalProperties) != "false" && !strings.HasSuffix(path, "coflow") && !strings.HasSuffix(path, "placement") {
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
	}
	walk(schema(t), "")
	if keys < 45 {
		t.Errorf("the schema has %d keys, want all", keys)
	}
}

// accepts is a small validator, enough for what this schema uses. It returns the
// path of what does not fit, "" where all does.
func accepts(s *schemaNode, v any, path string) string {
	for i, choices := range [][]*schemaNode{s.OneOf, s.AnyOf} {
		if len(choices) == 0 {
			continue
		}
		fits := 0
		worst := path
		for _, c := range choices {
			if bad := accepts(c, v, path); bad == "" {
				fits++
			} else if len(bad) > len(worst) {
				worst = bad
			}
		}
		if fits == 0 || i == 0 && fits > 1 {
			return worst
		}
	}
	bad := path
	if bad == "" {
		bad = "."
	}
	if s.Not != nil && accepts(s.Not, v, path) == "" || s.Const != "" && v != s.Const {
		return bad
	}
	if s.If != nil {
		then := s.Else
		if accepts(s.If, v, path) == "" {
			then = s.Then
		}
		if b := accepts(then, v, path); b != "" {
			return b
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != "" && s.Type != "object" {
			return bad
		}
		for _, key := range s.Required {
			if _, ok := v[key]; !ok {
				return path + "." + key
			}
		}
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			p := s.Properties[key]
			if p == nil {
				if string(s.AdditionalProperties) == "false" {
					return path + "." + key
				}
				continue
			}
			if b := accepts(p, v[key], path+"."+key); b != "" {
				return b
			}
		}
	case []any:
		if s.Type != "" && s.Type != "array" || len(v) < s.MinItems {
			return bad
		}
		for _, e := range v {
			if s.Items != nil {
				if b := accepts(s.Items, e, path+"[]"); b != "" {
					return b
				}
			}
		}
	case string:
		if s.Type != "" && s.Type != "string" || s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			return bad
		}
		for i, e := range s.Enum {
			if e == v {
				break
			} else if i == len(s.Enum)-1 {
				return bad
			}
		}
	case bool:
		if s.Type != "" && s.Type != "boolean" {
			return bad
		}
	case int:
		if s.Type != "" && s.Type != "integer" && s.Type != "number" || s.Minimum != nil && float64(v) < *s.Minimum || s.Maximum != nil && float64(v) > *s.Maximum {
			return bad
		}
	case float64:
		if s.Type != "" && s.Type != "number" || s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return bad
		}
	}
	return ""
}

func TestSchemaAcceptsShippedScenarios(t *testing.T) {
	s := schema(t)
	files := []string{"testdata/good.yaml", "testdata/unlike.yaml", "testdata/switch.yaml", "testdata/resolved.golden", "testdata/source.golden"}
	shipped, err := filepath.Glob("../../scripts/*/*.yaml")
	if err != nil || len(shipped) < 2 {
		t.Fatalf("scenarios of scripts: %v, %v, want at least two", shipped, err)
	}
	for _, file := range append(files, shipped...) {
		if filepath.Base(file) == "expected.yaml" {
			continue // what a paper reports, beside the scenarios of its suite
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := yaml.Load(data, &v); err != nil {
			t.Fatal(err)
		}
		if bad := accepts(s, v, ""); bad != "" {
			t.Errorf("%s: the schema does not accept %s", file, bad)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := schema(t)
	good := goodScenario(t)
	for _, tt := range []struct{ old, new, want string }{ // want begins the path
		// Of a choice that fits neither way, any part may be named.
		{"leaves: 4", "leaves: 0", ".fabric.leaves"},
		{"leaves: 4", "leafs: 4", ".fabric.leaves"},
		{"leaves: 4", "leaves: 4\n  leafs: 4", ".fabric.leafs"},
		{"leaves: 4", "leaves: 4\n  ports: 4", ".fabric"},
		{"leaves: 4", "kind: switch\n  leaves: 4", ".fabric"},
		{"leaves: 4", "kind: switch\n  ports: 4\n  leaves: 4", ".fabric"},
		{"leaves: 4", "kind: ring\n  leaves: 4", ".fabric.kind"},
		{"host_link: 50Mbps", "host_link: 50Mbps\n  host_links: [{hosts: h0-00}]", ".fabric.host_links[].rate"},
		{"host_link: 50Mbps", "host_link: 50Mbps\n  links: [{link: h0-00>leaf0, delay: 5}]", ".fabric.links[].delay"},
		{"host_link: 50Mbps", "host_link: 50Mbps\n  red: {min: 10KB, max: 20KB, ecn: 1}", ".fabric.red.ecn"},
		{"host_link: 50Mbps", "host_link: 50", ".fabric.host_link"},
		{"host_link: 50Mbps", "host_link: 50Mbs", ".fabric.host_link"},
		{"queue: 20ms", "queue: 20", ".fabric.queue"},
		{"mb: MB", "mb: mb", ".workload[]"},
		{"duration: 5m", "duration: 5", ".limits.duration"},
		{"first: 3", "frist: 3", ".workload[]"},
		{"seed: 7", "seed: -7", ".seed"},
	} {
		var v any
		if err := yaml.Load([]byte(strings.Replace(good, tt.old, tt.new, 1)), &v); err != nil {
			t.Fatal(err)
		}
		if got := accepts(s, v, ""); !strings.HasPrefix(got, tt.want) {
			t.Errorf("with %q the schema refuses %q, want %q", tt.new, got, tt.want)
		}
	}
}
