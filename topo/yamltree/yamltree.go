// Package yamltree reads a YAML file as a tree of nodes, and reports what testbed's files may not
// contain, each error with its line and column.
//
// It knows no keys: the packages whose files they are decode the tree, and name the keys of a mapping.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"testbed/topo/units"
	"testbed/topo/words"
)

// Fail reports an error at a node, of which only Line and Column count, and at the path of its value.
type Fail func(n *yaml.Node, path, format string, args ...any)

// Parse returns the root of the one document of a file, which is text (see magic.Plain); nil after an
// error, which it reports. What names the kind of file in errors, and keys lists the keys of its root.
// Nothing is quoted of a file without any of them: it is another file, and may be a secret one.
func Parse(data []byte, what string, keys []string, fail Fail) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		at := &yaml.Node{Line: n}
		for i := 0; i < len(line); {
			r, size := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError && size == 1 || r < ' ' && r != '\t' && r != '\r' && r != '\n' || r == 0x7f {
				at.Column = utf8.RuneCount(line[:i]) + 1
				fail(at, "", "byte %#x: expected UTF-8 text without control characters", line[i])
				return nil
			}
			i += size
		}
	}
	var docs []yaml.Node
	if err := yaml.Load(data, &docs, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false)); err != nil {
		at, text := start, err.Error()
		var one *yaml.LoadError
		if errors.As(err, &one) {
			at = &yaml.Node{Line: one.Mark.Line, Column: one.Mark.Column}
			text = one.Message
			if tabAt(data, one.Mark.Line) && tabError.MatchString(text) {
				fail(at, "", "tab in the indentation: use spaces")
				return nil
			}
			if one.ContextMsg != "" && one.ContextMark.Line > 0 {
				text += fmt.Sprintf(" %s that starts at %d:%d", one.ContextMsg, one.ContextMark.Line, one.ContextMark.Column)
			}
		}
		fail(at, "", "not YAML: %s", text)
		return nil
	}
	switch {
	case len(docs) == 0:
		fail(start, "", "empty file: expected a %s with the keys %s", what, strings.Join(keys, ", "))
		return nil
	case len(docs) > 1:
		fail(&docs[1], "", "second document: expected one %s per file", what)
		return nil
	}
	root := &docs[0]
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if !ours(root, keys) {
		fail(root, "", "not a %s: expected a mapping with the keys %s", what, strings.Join(keys, ", "))
		return nil
	}
	return root
}

// ours reports whether a root has one of the keys, or one that is near to it.
func ours(root *yaml.Node, keys []string) bool {
	if root.Kind != yaml.MappingNode {
		return root.Kind != yaml.ScalarNode || IsNull(root) // errors of others quote nothing
	}
	for i := 0; i < len(root.Content); i += 2 {
		if k := root.Content[i].Value; slices.Contains(keys, k) || words.Closest(k, keys) != "" {
			return true
		}
	}
	return len(root.Content) == 0
}

// tabError matches the errors of the YAML package at a tab.
var tabError = regexp.MustCompile(`\btab character\b|cannot start any token`)

// tabAt reports whether a line, counted from 1, is indented by a tab. Flow collections, such as all
// of JSON, may contain tabs. Elsewhere the YAML package fails at them, and names neither the tab nor
// the remedy.
func tabAt(data []byte, line int) bool {
	for text := range bytes.Lines(data) {
		if line--; line == 0 {
			return bytes.HasPrefix(bytes.TrimLeft(text, " "), []byte("\t"))
		}
	}
	return false
}

// WholeNumber matches the whole numbers of all files. Others are read differently by readers of
// YAML 1.1 and 1.2: of 010 they make 8 and 10. Decimal matches numbers with or without a point.
var (
	WholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	Decimal     = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
)

// LeadingZero returns the remedy for a number with leading zeros, to be appended to an error; ""
// for other text.
func LeadingZero(text string) string {
	digits := strings.TrimLeft(text, "+-")
	if len(digits) < 2 || digits[0] != '0' || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return ", without leading zeros: readers of YAML 1.1 take " + units.Clip(text) + " as octal"
}

// Refuse reports YAML features that no file may use: anchors, aliases, merge keys and tags. Without
// aliases, a file cannot expand to more than its size. What is the kind of files, in the plural, and
// or what to do in place of writing the value out; it may be empty.
func Refuse(n *yaml.Node, path, what, or string, fail Fail) {
	switch {
	case n.Kind == yaml.AliasNode:
		fail(n, path, "alias *%s: not supported in %s: write the value out%s", units.Clip(n.Value), what, alternative(or, "it"))
	case n.Anchor != "":
		fail(n, path, "anchor &%s: not supported in %s: leave it out%s", units.Clip(n.Anchor), what, alternative(or, "the value"))
	case n.Style&yaml.TaggedStyle != 0:
		fail(n, path, "tag %s: not supported in %s: leave it out", units.Clip(n.Tag), what)
	}
	for k, v := range Pairs(n) {
		Refuse(k, path, what, or, fail)
		Refuse(v, Join(path, k.Value), what, or, fail)
	}
	if n.Kind == yaml.SequenceNode {
		for i, c := range n.Content {
			Refuse(c, fmt.Sprintf("%s[%d]", path, i), what, or, fail)
		}
	}
}

// alternative returns another remedy, a format with the object of its sentence.
func alternative(or, object string) string {
	if or == "" {
		return ""
	}
	return ", or " + fmt.Sprintf(or, object)
}

// Join returns the path of the value at a key of a mapping. Keys of bad files can be long and have several
// lines: they are shown clipped, on one line.
func Join(path, key string) string {
	key = units.Clip(strings.Join(strings.Fields(key), " "))
	if path == "" {
		return key
	}
	return path + "." + key
}

// Pairs returns the keys and values of a mapping, in order; none if n is not a mapping.
func Pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// Mapping returns the values of a mapping by key. It reports keys that are unknown or duplicate or
// have no value.
func Mapping(n *yaml.Node, path string, keys []string, fail Fail) map[string]*yaml.Node {
	values := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		fail(n, path, "%s: expected a mapping with the keys %s", Describe(n), strings.Join(keys, ", "))
		return values
	}
	for k, v := range Pairs(n) {
		switch {
		case k.Kind != yaml.ScalarNode || IsNull(k):
			fail(k, path, "%s as a key: expected a name", Describe(k))
		case !slices.Contains(keys, k.Value):
			hint := ": expected one of " + strings.Join(keys, ", ")
			if best := words.Closest(k.Value, keys); best != "" {
				hint = fmt.Sprintf(" (did you mean %q?)", best)
			}
			fail(k, Join(path, k.Value), "unknown key%s", hint)
		case values[k.Value] != nil:
			fail(k, Join(path, k.Value), "duplicate key: keep one of them")
		default:
			values[k.Value] = v
			if IsNull(v) {
				fail(v, Join(path, k.Value), "no value: expected one, or leave the key out")
			}
		}
	}
	return values
}

// IsNull reports whether a value is left out, or null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Describe names a value in errors: its text, or what it is.
func Describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case IsNull(n):
		return "no value"
	}
	return strconv.Quote(units.Clip(n.Value))
}
