package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// entry is an item of a list of keys: "- `key` values: text". Its key has no backticks.
type entry struct{ key, values, text string }

// entries writes a list of keys. Consecutive keys with equal values are one item if their texts are equal, if each is a
// key, four at most, or if they have the same words around one part, which is then listed in the order of the keys.
func entries(all []entry) string {
	var b strings.Builder
	for i := 0; i < len(all); {
		n, text := 1, all[i].text
		for i+n < len(all) && all[i+n].values == all[i].values {
			joint, ok := joined(all[i : i+n+1])
			if !ok {
				break
			}
			n, text = n+1, joint
		}
		var keys []string
		for _, e := range all[i : i+n] {
			keys = append(keys, "`"+e.key+"`")
		}
		head := strings.Join(keys, ", ")
		if v := all[i].values; v != "" && !strings.HasPrefix(v, "?") && !strings.HasPrefix(v, ",") {
			head += " "
		}
		if text != "" {
			text = ": " + text
		}
		fmt.Fprintf(&b, "- %s%s%s\n", head, all[i].values, text)
		i += n
	}
	return b.String()
}

// joined returns the text of an item of several keys, and whether they can share one.
func joined(list []entry) (string, bool) {
	least := len(strings.Fields(list[0].text))
	var words [][]string
	for _, e := range list {
		words = append(words, strings.Fields(e.text))
		least = min(least, len(words[len(words)-1]))
	}
	same := func(at func(w []string) string) bool {
		return !slices.ContainsFunc(words, func(w []string) bool { return at(w) != at(words[0]) })
	}
	before, after := 0, 0
	for before < least && same(func(w []string) string { return w[before] }) {
		before++
	}
	for after < least-before && same(func(w []string) string { return w[len(w)-1-after] }) {
		after++
	}
	if before == least && after == 0 && same(func(w []string) string { return fmt.Sprint(len(w)) }) {
		return list[0].text, true // all are equal
	}
	if len(list) <= 4 && !slices.ContainsFunc(list, func(e entry) bool { return !key.MatchString(e.text) }) {
		var keys []string
		for _, e := range list {
			keys = append(keys, e.text)
		}
		return strings.Join(keys, ", "), true
	}
	if before < 2 || before+after < 3 || before+after == least {
		return "", false
	}
	if after == 1 { // rather with each part
		after = 0
	}
	var parts []string
	for _, w := range words {
		part := strings.TrimSuffix(strings.Join(w[before:len(w)-after], " "), ".")
		if clause.MatchString(part+" ") || clause.MatchString(strings.Join(w[:before], " ")) {
			return "", false
		}
		parts = append(parts, part)
	}
	text := strings.Join(words[0][:before], " ") + " " + strings.Join(parts, ", ") + " " + strings.Join(words[0][len(words[0])-after:], " ")
	text = strings.TrimSpace(text)
	if strings.HasSuffix(list[0].text, ".") && !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text, true
}

// key is a text that refers to a key.
var key = regexp.MustCompile("^`[^`]+`$")

// clause is the end of a clause or of an item of a list.
var clause = regexp.MustCompile(`[.:;,] `)

// choices writes the values of a choice and its default, in bold, or all and then the default if it is none of them.
func choices(all []string, initial ...string) string {
	all = slices.Clone(all)
	for _, name := range initial {
		i := slices.Index(all, name)
		if i < 0 {
			return fmt.Sprintf("%s (%s)", strings.Join(all, ", "), strings.Join(initial, ", "))
		}
		all[i] = "**" + name + "**"
	}
	return strings.Join(all, ", ")
}

// grouped joins consecutive keys of one mapping, such as a.b and a.c, whose texts are short, up to 45 words.
func grouped(all []entry) string {
	parent := func(line string) string {
		keys, _ := listed(line)
		if len(keys) != 1 || len(strings.Fields(line)) > 14 || strings.Contains(line, ";") {
			return ""
		}
		return "in " + keys[0][:strings.LastIndex(keys[0], ".")+1]
	}
	var b strings.Builder
	last, words := "", 0
	for line := range strings.Lines(entries(all)) {
		of := parent(line)
		if words += len(strings.Fields(line)); of != "" && of == last && words <= 45 {
			b.WriteString("; " + strings.TrimSpace(strings.TrimPrefix(line, "- ")))
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		b.WriteString(strings.TrimSpace(line))
		last, words = of, len(strings.Fields(line))
	}
	return b.String() + "\n"
}

// listed returns the keys of an item of a list, without backticks, and its values.
func listed(line string) (keys []string, values string) {
	m := item.FindStringSubmatch(strings.TrimRight(line, "\n"))
	if m == nil {
		return nil, ""
	}
	for key := range strings.SplitSeq(m[1], ", ") {
		keys = append(keys, strings.Trim(key, "`"))
	}
	values, _, _ = strings.Cut(m[2], ": ")
	return keys, strings.TrimSpace(values)
}

var item = regexp.MustCompile("^- (`[^`]+`(?:, `[^`]+`)*)(.*)$")

// lists reports whether an item of a document's lists names a key.
func lists(doc, key string) bool {
	for line := range strings.Lines(doc) {
		if keys, _ := listed(line); slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

func TestEntries(t *testing.T) {
	for _, c := range []struct {
		list []entry
		want string
	}{
		{[]entry{{"a", "(`1`)", "Bound for the one."}, {"b", "(`1`)", "Bound for the two times."}}, "- `a`, `b` (`1`): Bound for the one, two times.\n"},
		{[]entry{{"a", "(`1`)", "Bound for one."}, {"b", "(`2`)", "Bound for two."}}, "- `a` (`1`): Bound for one.\n- `b` (`2`): Bound for two.\n"},
		{[]entry{{"a", "(`1`)", "Bound for one; none."}, {"b", "(`1`)", "Bound for two."}}, "- `a` (`1`): Bound for one; none.\n- `b` (`1`): Bound for two.\n"},
		{[]entry{{"a", ", required", "Rate at which maps read input."}, {"b", ", required", "Rate at which reduces read input."}}, "- `a`, `b`, required: Rate at which maps, reduces read input.\n"},
		{[]entry{{"a", "?", "x: y"}, {"b", "?", "x: y"}, {"c", "", ""}}, "- `a`, `b`?: x: y\n- `c`\n"},
		{[]entry{{"a", "?", "`x`"}, {"b", "?", "`y`"}}, "- `a`, `b`?: `x`, `y`\n"},
		{[]entry{{"a", "", "killed attempts"}, {"b", "", "failed attempts"}}, "- `a`: killed attempts\n- `b`: failed attempts\n"},
	} {
		if got := entries(c.list); got != c.want {
			t.Errorf("entries(%q) = %q, want %q", c.list, got, c.want)
		}
		for _, e := range c.list {
			if !lists(c.want, e.key) {
				t.Errorf("%q does not list %s", c.want, e.key)
			}
		}
	}
	if got, want := grouped([]entry{{"a.b", "", "one"}, {"a.c", "bytes", "two"}, {"a.d.e", "", "three"}, {"f", "", "four"}, {"g", "", "five"}}),
		"- `a.b`: one; `a.c` bytes: two\n- `a.d.e`: three\n- `f`: four; `g`: five\n"; got != want {
		t.Errorf("grouped: %q, want %q", got, want)
	}
	if keys, values := listed("- `a`, `b` `x`, `y` (`x`), required: Bound: none\n"); !slices.Equal(keys, []string{"a", "b"}) || values != "`x`, `y` (`x`), required" {
		t.Errorf("listed: %q, %q", keys, values)
	}
}
