package scenario

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

var varName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substituter replaces ${name} in the values of a scenario, and remembers what
// it replaced so that the text of the file can be changed in the same places.
type substituter struct {
	*decoder
	set    map[string]string // by --set
	vars   Vars              // in force
	used   map[string]bool
	text   string
	starts []int                // of each line of text
	edits  map[*yaml.Node]*edit // of text, by the scalar they replace
	isSet  map[*yaml.Node]bool  // values that are one variable, set by --set
	joined int                  // bytes of values after substitution
}

// edit replaces a scalar in the text of the file.
type edit struct {
	start, end int // bytes
	text       string
}

// maxSubstituted bounds the values of a file after substitution, in bytes, so
// that a long variable used often cannot fill the memory.
const maxSubstituted = 4 * maxFile

// readVars reads the vars of a file and overrides them.
func (s *substituter) readVars(root *yaml.Node) {
	s.vars = Vars{}
	n := valueOf(root, "vars")
	if n != nil && n.Kind != yaml.MappingNode && n.Kind != yaml.AliasNode {
		s.fail(n, "vars", "%s: want a mapping of names to values", kindOf(n))
		n = nil
	}
	nodes := map[string]*yaml.Node{}
	if n != nil && n.Kind == yaml.MappingNode {
		for _, e := range s.entries(n, "vars") {
			path := join("vars", clip(e.key))
			if !varName.MatchString(e.key) {
				s.fail(e.name, path, "%q: want a name of letters, digits and underscores", clip(e.key))
				continue
			}
			s.vars[e.key] = nil
			nodes[e.key] = e.node
			switch {
			case e.node.Kind == yaml.AliasNode:
			case e.node.Kind != yaml.ScalarNode:
				s.fail(e.node, path, "%s: want one value", kindOf(e.node))
			case !isNull(e.node):
				s.vars[e.key] = &e.node.Value
			}
		}
	}
	for _, name := range sortedKeys(s.set) {
		value := s.set[name]
		if _, ok := s.vars[name]; !ok {
			at := root
			if n != nil {
				at = n
			}
			hint := didYouMean(name, sortedKeys(s.vars))
			if hint == "" {
				hint = ": this file declares " + orNone(sortedKeys(s.vars))
			}
			s.fail(at, join("vars", clip(name)), "set by --set, but no such variable%s", hint)
			continue
		}
		if !utf8.ValidString(value) || len(value) > 4096 || strings.ContainsFunc(value, func(c rune) bool {
			return c < ' ' || c == 0x7f || c == '\u0085' || c == '\u2028' || c == '\u2029' || c == '\ufeff'
		}) {
			s.fail(nodes[name], join("vars", name), "set by --set to %q: want at most 4096 bytes of text on one line", clip(value))
			continue
		}
		s.vars[name] = &value
		if node := nodes[name]; node.Kind == yaml.ScalarNode {
			if start, end, ok := s.span(node); ok {
				text := render(value, false)
				if start == end && s.text[start-1] == ':' {
					text = " " + text
				}
				s.edits[node] = &edit{start, end, text}
			} else {
				s.fail(node, join("vars", name), "default over several lines or with escapes: write it on one line")
			}
		}
	}
}

// unused tells of variables that were set for nothing.
func (s *substituter) unused(root *yaml.Node) {
	for _, name := range sortedKeys(s.set) {
		if _, ok := s.vars[name]; ok && !s.used[name] {
			n := valueOf(valueOf(root, "vars"), name)
			s.fail(n, join("vars", name), "set by --set, but nothing in the file uses ${%s}: leave it out", name)
		}
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// valueOf is the value of a key of a mapping, nil where there is none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// substitute replaces variables in all values at and below n.
func (s *substituter) substitute(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i].Value; path != "" || key != "vars" {
				s.substitute(n.Content[i+1], join(path, key))
			}
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			s.substitute(c, path)
		}
	case yaml.ScalarNode:
		if strings.Contains(n.Value, "${") || strings.Contains(n.Value, "$$") {
			s.scalar(n, path)
		}
	}
}

func (s *substituter) scalar(n *yaml.Node, path string) {
	start, end, ok := s.span(n)
	if !ok {
		s.fail(n, path, "${…} or $$ in a value over several lines or with escapes: write it on one line")
		tell(n)
		return
	}
	value, ok := s.expand(n, path)
	if !ok {
		tell(n)
		return
	}
	if s.joined += len(value); s.joined > maxSubstituted {
		s.fail(n, path, "more than %d bytes of values up to here, after substitution: use shorter variables", maxSubstituted)
		tell(n)
		return
	}
	if name, ok := strings.CutPrefix(n.Value, "${"); ok {
		if name, ok := strings.CutSuffix(name, "}"); ok {
			_, s.isSet[n] = s.set[name]
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
	s.edits[n] = &edit{start, end, render(value, true)}
}

// expand is the value of a scalar with its variables replaced; ok is false where
// that cannot be, which it tells.
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
				s.fail(n, path, "%q: want ${name}, or $$ for a dollar sign", clip(n.Value))
				return "", false
			case !known:
				ok = false
				hint := didYouMean(name, sortedKeys(s.vars))
				if hint == "" {
					hint = ": declare it under vars"
				}
				s.fail(n, path, "${%s}: no such variable%s", name, hint)
			case value == nil:
				ok = false
				s.used[name] = true
				if s.sound("vars." + name) {
					s.fail(n, path, "${%s}: no value: give one with --set %s=…, or a default under vars", name, name)
				}
			default:
				s.used[name] = true
				b.WriteString(*value)
			}
		default:
			b.WriteByte('$')
		}
	}
}

// plainText is what needs no quotes anywhere in a YAML file.
var plainText = regexp.MustCompile(`^[A-Za-z0-9_./~][A-Za-z0-9_./+-]*$`)

// render is a value as YAML, in quotes where it needs them.
func render(value string, escape bool) string {
	if plainText.MatchString(value) {
		return value
	}
	if escape {
		value = strings.ReplaceAll(value, "$", "$$")
	}
	text, err := json.Marshal(value) // YAML's double quotes take all of JSON's escapes
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(text)
}

// span is where in the text a scalar stands; ok is false where it is not written
// there literally, on one line, as it reads.
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
	case isNull(n) && n.Value == "":
		return start, start, strings.HasSuffix(strings.TrimRight(s.text[:start], " "), ":")
	}
	if !strings.HasPrefix(line, text) || strings.ContainsRune(text[min(1, len(text)):max(1, len(text)-1)], '\\') && n.Style&yaml.DoubleQuotedStyle != 0 {
		return 0, 0, false
	}
	return start, start + len(text), true
}

// edited is the text of the file with all edits made. They do not overlap.
func (s *substituter) edited() []byte {
	var edits []*edit
	for _, e := range s.edits {
		edits = append(edits, e)
	}
	slices.SortFunc(edits, func(a, b *edit) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, s.text[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, s.text[at:]...)
}

// lineStarts is where each line of a text starts.
func lineStarts(text string) []int {
	starts := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}
