package summary

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every figure has a key of its own, a definition and a value, and one that a table shows is in a table of its section.
func TestSections(t *testing.T) {
	for _, s := range Sections() {
		seen := map[string]bool{}
		for _, f := range s.Figures {
			if seen[f.Key] || f.Key == "" || f.Doc == "" || strings.HasSuffix(f.Doc, ".") || (f.Of == nil) != (f.List != nil) {
				t.Errorf("%s.%s: %+v", s.Key, f.Key, f)
			}
			seen[f.Key] = true
			shown := slices.ContainsFunc(s.Tables, func(t Table) bool { return t.Title == f.Table })
			if f.Table != "" && (!shown || f.Head == "" && f.List == nil) {
				t.Errorf("%s.%s: table %q, heading %q", s.Key, f.Key, f.Table, f.Head)
			}
			if f.Column != "" && seen["column "+f.Column] {
				t.Errorf("%s.%s: second column %s", s.Key, f.Key, f.Column)
			}
			seen["column "+f.Column] = true
		}
	}
	if Find("tasks.shuffle.reduces_delayed") == nil || Find("tasks.reduces_delayed") != nil || Find("") != nil {
		t.Error("figures are not found by their keys")
	}
}

func TestValues(t *testing.T) {
	v := Values{
		{Key: "jobs", X: 3}, {Key: "bytes.read", X: 1.5}, {Key: "why", Texts: []string{"a", "b"}}, {Key: "list.0.n", X: 1},
		{Key: "bytes.sent", X: 2}, {Key: "list.1.n", X: 4}, {Key: "racks.0", X: 0.25}, {Key: "racks.1"},
	}
	const want = `{"jobs":3,"bytes":{"read":1.5,"sent":2},"why":["a","b"],"list":[{"n":1},{"n":4}],"racks":[0.25,0]}`
	text, err := json.Marshal(v)
	if err != nil || string(text) != want {
		t.Fatalf("%s, %v, want %s", text, err, want)
	}
	var back Values
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != want {
		t.Errorf("read back: %s, %v", again, err)
	}
	if d := cmp.Diff([]Values{{{Key: "n", X: 1}}, {{Key: "n", X: 4}}}, back.Rows("list")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"a", "b"}, back.Texts("why")); d != "" || !back.Has("bytes") || back.Has("byte") {
		t.Error(d)
	}
	for _, bad := range []string{`{"a": true}`, `{"a": "text"}`, `{"a": [1, "text"]}`, `[`, `{"a": ["x", {"b": 1}, "y"]}`, strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)} {
		if err := json.Unmarshal([]byte(bad), &Values{}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
