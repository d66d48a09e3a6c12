package scenario

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"testbed/topo/yamltree"

	"go.yaml.in/yaml/v4"
)

var varName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substituter replaces ${name} in the values of a scenario, and records the
// replacements so that the text of the file can be edited in the same places.
type substituter struct {
	*decoder
	set    map[string]string // by --set
	vars   Vars              // in force
	used   map[string]bool
	text   string
	starts []int                // offsets of the lines of text
	edits  map[*yaml.Node]*edit // of text, by the replaced scalar
	isSet  map[*yaml.Node]bool  // values that consist of one variable, set by --set
	joined int                  // total bytes of values after substitution

	swept   map[string]bool       // variables whose value in set is that of a point
	sweptIn map[*yaml.Node]bool   // values that such a variable is part of; they have no edits
	paths   map[*yaml.Node]string // paths of files, with their names in Files
}

// edit replaces a scalar in the text of the file.
type edit struct {
	start, end int // bytes
	text       string
}

// maxSubstituted bounds the values of a file after substitution, in bytes, so
// that repeated use of a long variable cannot exhaust memory.
const maxSubstituted = 4 * maxFile

// readVars reads the variables of a file and applies the overrides.
func (s *substituter) readVars(root *yaml.Node) {
	s.vars = Vars{}
	n := valueOf(root, "vars")
	if n != nil && n.Kind != yaml.MappingNode && n.Kind != yaml.AliasNode {
		s.fail(n, "vars", "%s: expected a mapping of names to values", yamltree.Describe(n))
		n = nil
	}
	nodes := map[string]*yaml.Node{}
	if n != nil && n.Kind == yaml.MappingNode {
		for _, e := range s.entries(n, "vars") {
			path := yamltree.Join("vars", clip(e.key))
			if !varName.MatchString(e.key) {
				s.fail(e.name, path, "%q: expected a name of letters, digits and underscores", clip(e.key))
				continue
			}
			s.vars[e.key] = nil
			nodes[e.key] = e.node
			switch {
			case e.node.Kind == yaml.AliasNode:
			case e.node.Kind != yaml.ScalarNode:
				s.fail(e.node, path, "%s: expected one value", yamltree.Describe(e.node))
			case !yamltree.IsNull(e.node):
				s.vars[e.key] = &e.node.Value
			}
		}
	}
	for _, name := range sortedKeys(s.set) {
		value := s.set[name]
		how := "set by --set"
		if s.swept[name] {
			how = "swept"
		}
		if _, ok := s.vars[name]; !ok {
			at := root
			if n != nil {
				at = n
			}
			hint := cmp.Or(didYouMean(name, sortedKeys(s.vars)), ": the file declares "+cmp.Or(strings.Join(sortedKeys(s.vars), ", "), "none"))
			s.fail(at, yamltree.Join("vars", clip(name)), "%s, but not declared%s", how, hint)
			continue
		}
		if !utf8.ValidString(value) || len(value) > 4096 || strings.ContainsFunc(value, func(c rune) bool {
			return c < ' ' || c == 0x7f || c == '\u0085' || c == '\u2028' || c == '\u2029' || c == '\ufeff'
		}) {
			s.fail(nodes[name], yamltree.Join("vars", name), "%s to %q: expected at most 4096 bytes of text on one line", how, clip(value))
			continue
		}
		s.vars[name] = &value
		if node := nodes[name]; node.Kind == yaml.ScalarNode && !s.swept[name] {
			if start, end, ok := s.span(node); ok {
				text := render(value, false)
				if start == end && s.text[start-1] == ':' {
					text = " " + text
				}
				s.edits[node] = &edit{start, end, text}
			} else {
				s.fail(node, yamltree.Join("vars", name), "default over several lines or with escapes: write it on one line")
			}
		}
	}
}

// unused reports variables that are set but not used.
func (s *substituter) unused(root *yaml.Node) {
	for _, name := range sortedKeys(s.set) {
		if _, ok := s.vars[name]; ok && !s.used[name] {
			how := "set by --set"
			if s.swept[name] {
				how = "swept"
			}
			n := valueOf(valueOf(root, "vars"), name)
			s.fail(n, yamltree.Join("vars", name), "%s, but the file does not use ${%s}: leave it out", how, name)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// substitute replaces variables in all values at and below n.
func (s *substituter) substitute(n *yaml.Node, path string) {
	for k, v := range yamltree.Pairs(n) {
		if path != "" || k.Value != "vars" {
			s.substitute(v, yamltree.Join(path, k.Value))
		}
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		for _, c := range n.Content {
			s.substitute(c, path)
		}
	case n.Kind == yaml.ScalarNode && (strings.Contains(n.Value, "${") || strings.Contains(n.Value, "$$")):
		s.scalar(n, path)
	}
}

func (s *substituter) scalar(n *yaml.Node, path string) {
	start, end, ok := s.span(n)
	if !ok {
		s.fail(n, path, "${…} or $$ in a value over several lines or with escapes: write it on one line")
		markReported(n)
		return
	}
	value, ok := s.expand(n, path)
	if !ok {
		markReported(n)
		return
	}
	if s.joined += len(value); s.joined > maxSubstituted {
		s.fail(n, path, "more than %d bytes of values up to here, after substitution: use shorter variables", maxSubstituted)
		markReported(n)
		return
	}
	if name, ok := strings.CutPrefix(n.Value, "${"); ok {
		if name, ok := strings.CutSuffix(name, "}"); ok {
			_, s.isSet[n] = s.set[name]
			s.isSet[n] = s.isSet[n] && !s.swept[name]
		}
	}
	n.Value = value
	n.Style, n.Tag = yaml.DoubleQuotedStyle, "!!str"
	if plainText.MatchString(value) {
		var doc yaml.Node
		if err := yaml.Load([]byte(value), &doc); err == nil && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.ScalarNode {
			n.Style, n.Tag = 0, doc.Content[0].Tag
		}
	}
	if !s.sweptIn[n] {
		s.edits[n] = &edit{start, end, render(value, true)}
	}
}

// expand returns the value of a scalar with its variables replaced. If that fails, it reports
// the error and ok is false.
func (s *substituter) expand(n *yaml.Node, path string) (_ string, ok bool) {
	var b strings.Builder
	ok = true
	for rest := n.Value; ; {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		if !found {
			return b.String(), ok
		}
		rest = after
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			rest = rest[1:]
		case strings.HasPrefix(rest, "{"):
			name, tail, closed := strings.Cut(rest[1:], "}")
			rest = tail
			value, known := s.vars[name]
			switch {
			case !closed || !varName.MatchString(name):
				s.fail(n, path, "%q: expected ${name}, or $$ for a dollar sign", clip(n.Value))
				return "", false
			case !known:
				ok = false
				hint := cmp.Or(didYouMean(name, sortedKeys(s.vars)), ": declare it under vars")
				s.fail(n, path, "${%s}: unknown variable%s", name, hint)
			case value == nil:
				ok = false
				s.used[name] = true
				if s.sound("vars." + name) {
					s.fail(n, path, "${%s}: no value: set one with --set %s=…, or a default under vars", name, name)
				}
			default:
				s.used[name] = true
				s.sweptIn[n] = s.sweptIn[n] || s.swept[name]
				b.WriteString(*value)
			}
		default:
			b.WriteByte('$')
		}
	}
}

// plainText matches text that needs no quotes in any place of a YAML file.
var plainText = regexp.MustCompile(`^[A-Za-z0-9_./~][A-Za-z0-9_./+-]*$`)

// render returns a value as YAML, quoted if necessary.
func render(value string, escape bool) string {
	if plainText.MatchString(value) {
		return value
	}
	if escape {
		value = strings.ReplaceAll(value, "$", "$$")
	}
	text, err := json.Marshal(value) // YAML's double quotes accept all escapes of JSON
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(text)
}

// span returns the bytes of a scalar in the text; ok is false if the text does not contain
// its value literally on one line.
func (s *substituter) span(n *yaml.Node) (start, end int, ok bool) {
	if n.Line < 1 || n.Line > len(s.starts) || n.Column < 1 {
		return 0, 0, false
	}
	start = s.starts[n.Line-1]
	line, _, _ := strings.Cut(s.text[start:], "\n")
	for range n.Column - 1 {
		_, size := utf8.DecodeRuneInString(line)
		if size == 0 {
			return 0, 0, false
		}
		start, line = start+size, line[size:]
	}
	text := n.Value
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		text = `"` + text + `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		text = `'` + text + `'`
	case yamltree.IsNull(n) && n.Value == "":
		return start, start, strings.HasSuffix(strings.TrimRight(s.text[:start], " "), ":")
	}
	if !strings.HasPrefix(line, text) || strings.ContainsRune(text[min(1, len(text)):max(1, len(text)-1)], '\\') && n.Style&yaml.DoubleQuotedStyle != 0 {
		return 0, 0, false
	}
	return start, start + len(text), true
}

// edited returns the text of the file after all edits, which do not overlap.
func (s *substituter) edited() []byte {
	var edits []*edit
	for _, e := range s.edits {
		edits = append(edits, e)
	}
	slices.SortFunc(edits, func(a, b *edit) int { return cmp.Or(a.start-b.start, strings.Compare(a.text, b.text)) })
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, s.text[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, s.text[at:]...)
}

// state replaces the value of a key of the file, or adds the key to its end.
func (s *substituter) state(root *yaml.Node, key, tag, value string) {
	n := valueOf(root, key)
	if n == nil && root.Kind == yaml.MappingNode && root.Style&yaml.FlowStyle == 0 {
		n = &yaml.Node{Kind: yaml.ScalarNode, Line: 1, Column: 1}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: 1, Column: 1}, n)
		s.edits[n] = &edit{len(s.text), len(s.text), "\n" + key + ": " + value + "\n"}
	} else if n == nil || n.Kind != yaml.ScalarNode {
		s.fail(root, key, "set from outside, but the file has no place for it: write %s on a line of its own", key)
		return
	} else if e, ok := s.edits[n]; ok {
		e.text = value
	} else if start, end, ok := s.span(n); ok {
		s.edits[n] = &edit{start, end, value}
	} else {
		s.fail(n, key, "over several lines or with escapes: write it on one line")
		return
	}
	n.Value, n.Tag, n.Style = value, tag, 0
}

// lineStarts returns the offset of each line of a text.
func lineStarts(text string) []int {
	starts := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}
