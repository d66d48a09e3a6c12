package yamltree

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Each file that cannot be read has one error, with its place. What may not be used is reported each
// time.
func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"a: 1\nb: [2, x]\n", ""},
		{"a: 1\n\tb: 2\n", "2:1 tab in the indentation: use spaces"},
		{"a: 1\nb: \x00\n", "2:4 byte 0x0: expected UTF-8 text without control characters"},
		{"é: \xff\n", "1:4 byte 0xff: expected UTF-8 text without control characters"},
		{"", "1:1 empty file: expected a thing with the keys a, b"},
		{"a: 1\n---\na: 2\n", "2:1 second document: expected one thing per file"},
		{"a: [1\nb: 2\n", "not YAML: "},
		{"secret: 1\n", "1:1 not a thing: expected a mapping with the keys a, b"},
		{"secret\n", "1:1 not a thing: expected a mapping with the keys a, b"},
		{"a-: 1\n", ""},
		{"{\n\t\"a\": 1,\n\t\"b\": [\n\t\t1\n\t]\n}\n", ""},
		{"{\n\t\"a\": 1\n\t\"b\": 2\n}\n", "not YAML: "},
		{"a: &x 1\nb: [*x, {c: !!str 2}]\n", "1:4 a anchor &x: not supported in things: leave it out, or name the value|" +
			"2:5 b[0] alias *x: not supported in things: write the value out, or name it|2:13 b[1].c tag !!str: not supported in things: leave it out"},
	} {
		var errs []string
		fail := func(n *yaml.Node, path, format string, args ...any) {
			at := strings.TrimSpace(fmt.Sprintf("%d:%d %s", n.Line, n.Column, path))
			errs = append(errs, at+" "+fmt.Sprintf(format, args...))
		}
		if root := Parse([]byte(tt.text), "thing", []string{"a", "b"}, fail); root != nil {
			Refuse(root, "", "things", "name %s", fail)
		} else if len(errs) != 1 {
			t.Errorf("%q: %d errors, want one", tt.text, len(errs))
		}
		if got := strings.Join(errs, "|"); got != tt.want && (tt.want != "not YAML: " || !strings.Contains(got, tt.want)) {
			t.Errorf("%q:\ngot  %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for text, want := range map[string]string{"{a: 1}": "a mapping", "[1]": "a list", "null": "no value", "~": "no value", "x": `"x"`} {
		root := Parse([]byte("k: "+text), "thing", []string{"k"}, func(_ *yaml.Node, _, format string, args ...any) { t.Errorf(format, args...) })
		if got := Describe(root.Content[1]); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Each error of a mapping is reported at its key or value, and the other values are returned.
func TestMapping(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"{one: 1, two: 2}", "one two"},
		{"{one: 1, twoo: 2, thing: 3}", `1:10 m.twoo: unknown key (did you mean "two"?)|1:19 m.thing: unknown key: expected one of one, two|one`},
		{"{one: 1, a\n\n\n  bad key: 2}", "1:10 m.a bad key: unknown key: expected one of one, two|one"},
		{"{one: 1, one: 2}", "1:10 m.one: duplicate key: keep one of them|one"},
		{"{one: ~}", "1:7 m.one: no value: expected one, or leave the key out|one"},
		{"{one: 1, [1]: 2}", "1:10 m: a list as a key: expected a name|one"},
		{"[one]", "1:1 m: a list: expected a mapping with the keys one, two|"},
	} {
		var got []string
		fail := func(n *yaml.Node, path, format string, args ...any) {
			got = append(got, fmt.Sprintf("%d:%d %s: ", n.Line, n.Column, path)+fmt.Sprintf(format, args...))
		}
		keys := []string{"one", "two"}
		values := Mapping(Parse([]byte(tt.text), "thing", keys, fail), "m", keys, fail)
		got = append(got, strings.Join(slices.Sorted(maps.Keys(values)), " "))
		if text := strings.Join(got, "|"); text != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.text, text, tt.want)
		}
	}
}
