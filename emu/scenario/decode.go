package scenario

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// decoder turns a tree of YAML nodes into a Spec, and goes on after a mistake.
// It does what the yaml package's own decoding with known fields does, with the
// path, every mistake and the nearest known key in its messages.
type decoder struct {
	problems
	at          map[string]*yaml.Node // value by path
	bad         map[string]bool       // paths of which something was told
	checkPolicy func(role, name string, params map[string]any) error
}

// fail tells a mistake at a node.
func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.bad[path] = true
	d.all = append(d.all, Problem{d.file, max(1, n.Line), max(1, n.Column), path, fmt.Sprintf(format, args...)})
}

// failAt tells a mistake at a path, or where it is not written at what it would
// be in.
func (d *decoder) failAt(path, format string, args ...any) {
	for at := path; ; at = parent(at) {
		if n := d.at[at]; n != nil {
			d.fail(n, path, format, args...)
			return
		}
		if at == "" {
			d.fail(&yaml.Node{}, path, format, args...)
			return
		}
	}
}

// sound tells whether nothing is known to be wrong at or above each path.
func (d *decoder) sound(paths ...string) bool {
	for _, path := range paths {
		for at := path; ; at = parent(at) {
			if d.bad[at] {
				return false
			}
			if at == "" {
				break
			}
		}
	}
	return true
}

// badWithin tells whether something is known to be wrong below a path.
func (d *decoder) badWithin(path string) bool {
	for p := range d.bad {
		if strings.HasPrefix(p, path) {
			return true
		}
	}
	return false
}

func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "no value"
	}
	return fmt.Sprintf("%q", clip(n.Value))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func plain(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

// told tells a node of which a mistake was told already, so that nothing more
// must be said of what it holds. An alias is one; other nodes become one.
func told(n *yaml.Node) bool { return n.Kind == yaml.AliasNode }

func tell(n *yaml.Node) { n.Kind, n.Content = yaml.AliasNode, nil }

// refuse tells of what YAML has and a scenario may not: anchors, aliases, merge
// keys and tags. Without aliases a file is never larger than it looks.
func (d *decoder) refuse(n *yaml.Node, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n, path, "alias *%s: not understood in scenarios: write the value out, or give it a name under vars", clip(n.Value))
	case n.Anchor != "":
		d.fail(n, path, "anchor &%s: not understood in scenarios: leave it out, or give the value a name under vars", clip(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n, path, "tag %s: not understood in scenarios: leave it out", clip(n.Tag))
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			d.refuse(n.Content[i], path)
			d.refuse(n.Content[i+1], join(path, n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			d.refuse(c, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// entry is one key of a mapping and its value.
type entry struct {
	key        string
	name, node *yaml.Node
}

// entries are a mapping's, each key once; it tells of keys that are given twice
// or are no text.
func (d *decoder) entries(n *yaml.Node, path string) []entry {
	var all []entry
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || isNull(k) {
			if !told(k) {
				d.fail(k, path, "%s as a key: want the name of one", kindOf(k))
			}
			continue
		}
		if line, ok := first[k.Value]; ok {
			d.fail(k, join(path, k.Value), "key given again, first on line %d: keep one of them", line)
			continue
		}
		first[k.Value] = k.Line
		all = append(all, entry{k.Value, k, v})
	}
	return all
}

// mapping sets the struct v from a mapping.
func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	fields := fieldsOf(v.Type())
	kind := kindIn(n, fields)
	if kind != "" {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return f.kind != "" && f.kind != kind })
	}
	if n.Kind != yaml.MappingNode {
		if !told(n) {
			d.fail(n, path, "%s: want a mapping with the keys %s", kindOf(n), strings.Join(keysOf(fields), ", "))
		}
		d.defaults(v)
		return
	}
	given := map[string]bool{}
	for _, e := range d.entries(n, path) {
		given[e.key] = true
		known := false
		for _, f := range fieldsOf(v.Type()) {
			if f.key == e.key {
				known = true
				if kind != "" && f.kind != "" && f.kind != kind {
					d.fail(e.name, join(path, e.key), "key of kind %s in a %s of kind %s: leave it out, or change the kind; here are %s",
						f.kind, path[strings.LastIndexByte(path, '.')+1:], kind, strings.Join(keysOf(fields), ", "))
					continue
				}
				d.value(e.node, join(path, e.key), f, v.Field(f.index))
			}
		}
		if !known {
			hint := didYouMean(e.key, keysOf(fields))
			if hint == "" {
				hint = ": want one of " + strings.Join(keysOf(fields), ", ")
			}
			d.fail(e.name, join(path, clip(e.key)), "unknown key%s", hint)
		}
	}
	for _, f := range fields {
		if given[f.key] {
			continue
		}
		if f.required && (f.kind == "" || kind != "") {
			d.fail(n, join(path, f.key), "missing: %s", wantOf(v.Type().Field(f.index).Type, f))
		}
		d.byDefault(f, v.Field(f.index))
	}
}

// kindIn is the kind of a mapping whose keys depend on it, "" of one whose keys do
// not and of one that says what is no kind.
func kindIn(n *yaml.Node, fields []field) string {
	at := slices.IndexFunc(fields, func(f field) bool { return f.key == "kind" && f.initial != nil && len(f.enum) > 1 })
	if at < 0 {
		return ""
	}
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if k, v := n.Content[i], n.Content[i+1]; k.Kind == yaml.ScalarNode && k.Value == "kind" {
			if v.Kind != yaml.ScalarNode || !slices.Contains(fields[at].enum, v.Value) {
				return ""
			}
			return v.Value
		}
	}
	return *fields[at].initial
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// defaults sets what a missing mapping leaves to its defaults.
func (d *decoder) defaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		d.byDefault(f, v.Field(f.index))
	}
}

func (d *decoder) byDefault(f field, v reflect.Value) {
	_, quantity := quantities[v.Type()]
	switch {
	case f.initial != nil:
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: *f.initial}
		check := decoder{bad: map[string]bool{}, at: map[string]*yaml.Node{}}
		check.value(n, "default", f, v)
		if len(check.all) > 0 {
			panic(check.all[0]) // a default of this package that breaks its own bounds
		}
	case v.Kind() == reflect.Struct && !quantity && v.Type() != reflect.TypeFor[Policy]():
		d.defaults(v)
	}
}

// value sets v, the field f of a mapping, from its node.
func (d *decoder) value(n *yaml.Node, path string, f field, v reflect.Value) {
	d.at[path] = n
	if told(n) {
		d.bad[path] = true
		d.byDefault(f, v)
		return
	}
	d.set(n, path, f, v)
}

func (d *decoder) set(n *yaml.Node, path string, f field, v reflect.Value) {
	want := wantOf(v.Type(), f)
	if isNull(n) {
		if !f.required {
			want += ", or leave the key out"
		}
		d.fail(n, path, "no value: %s", want)
		d.byDefault(f, v)
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *Vars:
		return // read before substitution
	case *[]Item:
		d.list(n, path, f, func(n *yaml.Node, path string) {
			*p = append(*p, d.item(n, path))
		})
		return
	case *[]Fault:
		d.list(n, path, f, func(n *yaml.Node, path string) {
			*p = append(*p, d.fault(n, path))
		})
		return
	case *Arms:
		*p = d.arms(n, path)
		return
	case *Policy:
		role := path[strings.LastIndexByte(path, '.')+1:]
		*p = d.policy(n, path, role)
		return
	case *[]Policy:
		role := path[strings.LastIndexByte(path, '.')+1:]
		d.list(n, path, f, func(n *yaml.Node, path string) {
			*p = append(*p, d.policy(n, path, role))
		})
		return
	case *[]string:
		d.list(n, path, f, func(n *yaml.Node, path string) {
			var s string
			d.value(n, path, field{}, reflect.ValueOf(&s).Elem())
			*p = append(*p, s)
		})
		return
	}
	_, quantity := quantities[v.Type()]
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		d.list(n, path, f, func(n *yaml.Node, path string) {
			one := reflect.New(v.Type().Elem()).Elem()
			d.mapping(n, path, one)
			v.Set(reflect.Append(v, one))
		})
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() != reflect.Struct:
		v.Set(reflect.New(v.Type().Elem()))
		d.set(n, path, f, v.Elem())
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.mapping(n, path, v.Elem())
	case v.Kind() == reflect.Struct && !quantity:
		d.mapping(n, path, v)
	case n.Kind != yaml.ScalarNode:
		d.fail(n, path, "%s: %s", kindOf(n), want)
	case quantity:
		d.quantity(n, path, f, v, want)
	default:
		d.scalar(n, path, f, v, want)
	}
}

func (d *decoder) quantity(n *yaml.Node, path string, f field, v reflect.Value, want string) {
	if err := setText(v, n.Value); err != nil {
		d.fail(n, path, "%v", err)
		return
	}
	if f.least == "" {
		return
	}
	bound := func(text string) int64 {
		b := reflect.New(v.Type()).Elem()
		if err := setText(b, text); err != nil {
			panic(fmt.Sprintf("%s: bound %q: %v", path, text, err))
		}
		return b.Int()
	}
	if v.Int() < bound(f.least) || v.Int() > bound(f.most) {
		d.fail(n, path, "%q: %s", clip(n.Value), want)
	}
}

var (
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
	number      = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
)

func (d *decoder) scalar(n *yaml.Node, path string, f field, v reflect.Value, want string) {
	wrong := func() { d.fail(n, path, "%q: %s", clip(n.Value), want) }
	within := func(x float64) bool {
		return (f.minimum == nil || x >= *f.minimum) && (f.maximum == nil || x <= *f.maximum)
	}
	if v.Kind() != reflect.String && !plain(n) {
		d.fail(n, path, "%q in quotes: %s, without quotes", clip(n.Value), want)
		return
	}
	switch v.Kind() {
	case reflect.Int, reflect.Uint64:
		x, err := strconv.ParseInt(n.Value, 10, 64)
		if !wholeNumber.MatchString(n.Value) || err != nil || !within(float64(x)) {
			wrong()
			return
		}
		if v.Kind() == reflect.Uint64 {
			v.SetUint(uint64(x))
		} else {
			v.SetInt(x)
		}
	case reflect.Float64:
		x, err := strconv.ParseFloat(n.Value, 64)
		if !number.MatchString(n.Value) || err != nil || !within(x) {
			wrong()
			return
		}
		v.SetFloat(x)
	case reflect.Bool:
		if n.Value != "true" && n.Value != "false" {
			wrong()
			return
		}
		v.SetBool(n.Value == "true")
	case reflect.String:
		if why := f.unfit(n.Value); why != "" {
			d.fail(n, path, "%q: %s", clip(n.Value), why)
			return
		}
		v.SetString(n.Value)
	default:
		panic(fmt.Sprintf("%s: no reading of a %v", path, v.Type()))
	}
}

// unfit says what a text field wants that s is not, "" where s fits.
func (f field) unfit(s string) string {
	if len(f.enum) > 0 {
		for _, e := range f.enum {
			if s == e {
				return ""
			}
		}
		return "want " + strings.Join(f.enum, " or ") + didYouMean(s, f.enum)
	}
	length := utf8.RuneCountInString(s)
	switch {
	case length < f.minLen:
		return fmt.Sprintf("want at least %d characters", f.minLen)
	case f.maxLen > 0 && length > f.maxLen:
		return fmt.Sprintf("want at most %d characters", f.maxLen)
	case strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "want a text on one line, without control characters"
	case f.pattern != nil && !f.pattern.MatchString(s):
		return fmt.Sprintf("want what matches %s", f.pattern)
	}
	return ""
}

// list calls each for the elements of a list.
func (d *decoder) list(n *yaml.Node, path string, f field, each func(n *yaml.Node, path string)) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "%s: want a list", kindOf(n))
		return
	}
	if len(n.Content) < f.minItems {
		d.fail(n, path, "empty: want at least one")
	}
	if f.maxItems > 0 && len(n.Content) > f.maxItems {
		d.fail(n, path, "%d of them: want at most %d", len(n.Content), f.maxItems)
		return
	}
	for i, c := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.at[at] = c
		if told(c) {
			d.bad[at] = true
		}
		each(c, at)
	}
}

// itemKinds reads the names of kinds from the tags of their Kind.
func itemKinds(i *Item) []faultKind {
	v := reflect.ValueOf(i).Elem()
	kinds := make([]faultKind, v.NumField())
	for n := range kinds {
		field := v.Field(n)
		kinds[n] = faultKind{fieldsOf(field.Type().Elem())[0].enum[0], field}
	}
	return kinds
}

// item reads one part of the workload by its kind.
func (d *decoder) item(n *yaml.Node, path string) Item {
	const want = "trace, writers, readers, jobs, background or workload"
	if n.Kind != yaml.MappingNode {
		if !told(n) {
			d.fail(n, path, "%s: want a mapping with a kind, %s", kindOf(n), want)
		}
		return Item{}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k, v := n.Content[i], n.Content[i+1]; k.Kind == yaml.ScalarNode && k.Value == "kind" {
			var item Item
			var names []string
			for _, kind := range itemKinds(&item) {
				if v.Kind == yaml.ScalarNode && v.Value == kind.name {
					kind.field.Set(reflect.New(kind.field.Type().Elem()))
					d.mapping(n, path, kind.field.Elem())
					return item
				}
				names = append(names, kind.name)
			}
			if told(v) {
				return Item{}
			}
			d.fail(v, join(path, "kind"), "%s: want %s%s", kindOf(v), want, didYouMean(v.Value, names))
			return Item{}
		}
	}
	d.fail(n, join(path, "kind"), "missing: want %s", want)
	return Item{}
}
