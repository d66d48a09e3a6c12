package scenario

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"testbed/policies/catalog"
	"testbed/topo/yamltree"
)

// decoder turns a tree of YAML nodes into a Spec, and continues after an error. Unlike the
// decoding of the yaml package with known fields, it reports every error, with the path and
// the nearest known key.
type decoder struct {
	problems
	at      map[string]*yaml.Node // value by path
	bad     map[string]bool       // paths with an error
	catalog catalog.Catalog
	// policies are the valid policies of arms, in order of the file.
	policies []namedPolicy
	// armChanges are the changes of each arm.
	armChanges []armChanges
	// report records an error of an arm's scenario, or is nil.
	report func(n *yaml.Node, path, text string)
}

func newDecoder(file string, c catalog.Catalog) *decoder {
	return &decoder{problems: problems{file: file}, at: map[string]*yaml.Node{}, bad: map[string]bool{}, catalog: c}
}

// namedPolicy is a policy of a role at a path of the file.
type namedPolicy struct {
	path, role string
	Policy
}

// fail records an error at a node.
func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.bad[path] = true
	text := fmt.Sprintf(format, args...)
	if d.report != nil {
		d.report(n, path, text)
		return
	}
	d.all = append(d.all, Problem{d.file, max(1, n.Line), max(1, n.Column), path, text})
}

// failOnce records an error that several arms can have, unless it is recorded already.
func (d *decoder) failOnce(n *yaml.Node, path, text string) {
	before := len(d.all)
	d.fail(n, path, "%s", text)
	if slices.Contains(d.all[:before], d.all[before]) {
		d.all = d.all[:before]
	}
}

// failAt records an error at the nearest node of a path.
func (d *decoder) failAt(path, format string, args ...any) {
	d.fail(d.nearest(path), path, format, args...)
}

// nearest returns the node of a path or, if the file does not have the path, of the nearest parent
// that exists.
func (d *decoder) nearest(path string) *yaml.Node {
	for at := path; ; at = parent(at) {
		if n := d.at[at]; n != nil {
			return n
		}
		if at == "" {
			return &yaml.Node{}
		}
	}
}

// sound reports whether no error is known at or above each path.
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

// badWithin reports whether an error is known below a path.
func (d *decoder) badWithin(path string) bool {
	for p := range d.bad {
		if strings.HasPrefix(p, path) {
			return true
		}
	}
	return false
}

func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

func plain(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

// reported reports whether an error of the node is already recorded, so that its content needs
// no further check. Aliases are always reported; markReported turns other nodes into one.
func reported(n *yaml.Node) bool { return n.Kind == yaml.AliasNode }

func markReported(n *yaml.Node) { n.Kind, n.Content = yaml.AliasNode, nil }

// refuse reports YAML features that a scenario may not use.
func (d *decoder) refuse(n *yaml.Node, path string) {
	yamltree.Refuse(n, path, "scenarios", "give %s a name under vars", d.fail)
}

// valueOf returns the value of a key of a mapping, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for k, v := range yamltree.Pairs(n) {
		if k.Kind == yaml.ScalarNode && k.Value == key {
			return v
		}
	}
	return nil
}

// entry is one key of a mapping and its value.
type entry struct {
	key        string
	name, node *yaml.Node
}

// entries returns the entries of a mapping, each key once. It reports duplicate keys and keys
// that are not text.
func (d *decoder) entries(n *yaml.Node, path string) []entry {
	var all []entry
	first := map[string]int{}
	for k, v := range yamltree.Pairs(n) {
		if k.Kind != yaml.ScalarNode || yamltree.IsNull(k) {
			if !reported(k) {
				d.fail(k, path, "%s as a key: expected a name", yamltree.Describe(k))
			}
			continue
		}
		if line, ok := first[k.Value]; ok {
			d.fail(k, yamltree.Join(path, k.Value), "duplicate key, first on line %d: keep one of them", line)
			continue
		}
		first[k.Value] = k.Line
		all = append(all, entry{k.Value, k, v})
	}
	return all
}

// mapping sets the struct v from a mapping.
func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	every := fieldsOf(v.Type(), d.catalog...)
	fields := every
	kind := kindIn(n, fields)
	if kind != "" {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return f.kind != "" && f.kind != kind })
	}
	if n.Kind != yaml.MappingNode {
		if !reported(n) {
			d.fail(n, path, "%s: expected a mapping with the keys %s", yamltree.Describe(n), strings.Join(keysOf(fields), ", "))
		}
		d.defaults(v)
		return
	}
	given := map[string]bool{}
	for _, e := range d.entries(n, path) {
		given[e.key] = true
		at := slices.IndexFunc(every, func(f field) bool { return f.key == e.key })
		switch {
		case at < 0:
			hint := cmp.Or(didYouMean(e.key, keysOf(fields)), ": expected one of "+strings.Join(keysOf(fields), ", "))
			d.fail(e.name, yamltree.Join(path, clip(e.key)), "unknown key%s", hint)
		case kind != "" && every[at].kind != "" && every[at].kind != kind:
			d.fail(e.name, yamltree.Join(path, e.key), "key of kind %s in a %s of kind %s: leave it out, or change the kind; allowed keys: %s",
				every[at].kind, path[strings.LastIndexByte(path, '.')+1:], kind, strings.Join(keysOf(fields), ", "))
		default:
			d.value(e.node, yamltree.Join(path, e.key), every[at], v.Field(every[at].index))
		}
	}
	for _, f := range fields {
		if given[f.key] {
			continue
		}
		if f.required && (f.kind == "" || kind != "") {
			d.fail(n, yamltree.Join(path, f.key), "missing: %s", d.expectedOf(v.Type().Field(f.index).Type, f))
		}
		d.byDefault(f, v.Field(f.index))
	}
}

// kindIn returns the kind of a mapping whose keys depend on it. It returns "" if the keys do not
// depend on a kind, or the kind is unknown.
func kindIn(n *yaml.Node, fields []field) string {
	at := slices.IndexFunc(fields, func(f field) bool { return f.key == "kind" && f.initial != nil && len(f.enum) > 1 })
	if at < 0 {
		return ""
	}
	kind := valueOf(n, "kind")
	switch {
	case kind == nil:
		return *fields[at].initial
	case kind.Kind == yaml.ScalarNode && slices.Contains(fields[at].enum, kind.Value):
		return kind.Value
	}
	return ""
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// defaults sets the fields of a missing mapping to their defaults.
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
		check := newDecoder("", nil)
		check.value(n, "default", f, v)
		if len(check.all) > 0 {
			panic(check.all[0]) // a default of this package is out of its own bounds
		}
	case v.Kind() == reflect.Struct && !quantity:
		d.defaults(v)
	}
}

// value sets v, the field f of a mapping, from its node.
func (d *decoder) value(n *yaml.Node, path string, f field, v reflect.Value) {
	d.at[path] = n
	if reported(n) {
		d.bad[path] = true
		d.byDefault(f, v)
		return
	}
	d.set(n, path, f, v)
}

func (d *decoder) set(n *yaml.Node, path string, f field, v reflect.Value) {
	expected := d.expectedOf(v.Type(), f)
	if element := f.key == "" && v.Kind() == reflect.Struct; yamltree.IsNull(n) && !element {
		if !f.required {
			expected += ", or leave the key out"
		}
		d.fail(n, path, "no value: %s", expected)
		d.byDefault(f, v)
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *Vars, *Sweep:
		return // read before substitution
	case *Arms:
		*p = d.arms(n, path)
		return
	case *map[string]any:
		return // read with the arm
	case *Repeats:
		if n.Kind == yaml.ScalarNode {
			d.set(n, path, f, v.FieldByName("AtMost"))
			p.AtLeast = p.AtMost
			return
		}
	case *map[string]Policy:
		(*p)[f.key] = d.policy(n, path, f.key)
		return
	case *map[string][]Policy:
		d.list(n, path, f, func(n *yaml.Node, path string) { (*p)[f.key] = append((*p)[f.key], d.policy(n, path, f.key)) })
		return
	}
	_, quantity := quantities[v.Type()]
	switch {
	case v.Kind() == reflect.Slice:
		d.list(n, path, f, func(n *yaml.Node, path string) {
			one := reflect.New(v.Type().Elem()).Elem()
			d.value(n, path, field{}, one)
			v.Set(reflect.Append(v, one))
		})
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.set(n, path, f, v.Elem())
	case isUnion(v.Type()):
		d.union(n, path, v)
	case v.Kind() == reflect.Struct && !quantity:
		d.mapping(n, path, v)
	case n.Kind != yaml.ScalarNode:
		d.fail(n, path, "%s: %s", yamltree.Describe(n), expected)
	case quantity:
		d.quantity(n, path, f, v, expected)
	default:
		d.scalar(n, path, f, v, expected)
	}
}

func (d *decoder) quantity(n *yaml.Node, path string, f field, v reflect.Value, expected string) {
	if zero := yamltree.LeadingZero(n.Value); zero != "" && plain(n) {
		d.fail(n, path, "%q: %s%s", clip(n.Value), expected, zero)
		return
	}
	if err := setText(v, n.Value); err != nil {
		d.fail(n, path, "%v", err)
		return
	}
	if f.outside(v) {
		d.fail(n, path, "%q: %s", clip(n.Value), expected)
	}
}

func (d *decoder) scalar(n *yaml.Node, path string, f field, v reflect.Value, expected string) {
	wrong := func() {
		d.fail(n, path, "%q: %s%s", clip(n.Value), expected, yamltree.LeadingZero(n.Value))
	}
	within := func(x float64) bool {
		return (f.minimum == nil || x >= *f.minimum) && (f.maximum == nil || x <= *f.maximum)
	}
	if v.Kind() != reflect.String && !plain(n) {
		d.fail(n, path, "%q in quotes: %s, without quotes", clip(n.Value), expected)
		return
	}
	switch v.Kind() {
	case reflect.Int, reflect.Uint64:
		x, err := strconv.ParseInt(n.Value, 10, 64)
		if !yamltree.WholeNumber.MatchString(n.Value) || err != nil || !within(float64(x)) {
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
		if !yamltree.Decimal.MatchString(n.Value) || err != nil || !within(x) {
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
		panic(fmt.Sprintf("%s: cannot decode a %v", path, v.Type()))
	}
}

// unfit returns why s is no valid value of a text field, or "".
func (f field) unfit(s string) string {
	if len(f.enum) > 0 {
		if slices.Contains(f.enum, s) {
			return ""
		}
		return "expected " + strings.Join(f.enum, " or ") + didYouMean(s, f.enum)
	}
	length := utf8.RuneCountInString(s)
	switch {
	case length < f.minLen:
		return fmt.Sprintf("must have at least %d characters", f.minLen)
	case f.maxLen > 0 && length > f.maxLen:
		return fmt.Sprintf("must have at most %d characters", f.maxLen)
	case strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "expected text on one line, without control characters"
	case f.pattern != nil && !f.pattern.MatchString(s):
		return fmt.Sprintf("must match %s", f.pattern)
	}
	return ""
}

// list calls each for every element of a list.
func (d *decoder) list(n *yaml.Node, path string, f field, each func(n *yaml.Node, path string)) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "%s: expected a list", yamltree.Describe(n))
		return
	}
	if len(n.Content) < f.minItems {
		d.fail(n, path, "empty: expected at least one element")
	}
	if f.maxItems > 0 && len(n.Content) > f.maxItems {
		d.fail(n, path, "%d elements: must be at most %d", len(n.Content), f.maxItems)
		return
	}
	for i, c := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.at[at] = c
		if reported(c) {
			d.bad[at] = true
		}
		each(c, at)
	}
}

// A union is a struct of pointers, one for each kind of a mapping. Exactly one of them is set.
func isUnion(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Field(0).Type.Kind() == reflect.Pointer && t.Field(0).Tag == ""
}

// variant is one kind of a union and its pointer.
type variant struct {
	kind  string
	value reflect.Value
}

// variants reads the names of kinds from the tags of their Kind fields.
func variants(union reflect.Value) []variant {
	all := make([]variant, union.NumField())
	for i := range all {
		v := union.Field(i)
		all[i] = variant{fieldsOf(v.Type().Elem())[0].enum[0], v}
	}
	return all
}

// marshal returns the variant that is set.
func marshal(union any) (any, error) {
	for _, x := range variants(reflect.ValueOf(union)) {
		if !x.value.IsNil() {
			return x.value.Interface(), nil
		}
	}
	return nil, nil
}

// union sets the variant that the kind of a mapping names.
func (d *decoder) union(n *yaml.Node, path string, v reflect.Value) {
	kind := valueOf(n, "kind")
	var names []string
	for _, x := range variants(v) {
		if kind != nil && kind.Kind == yaml.ScalarNode && kind.Value == x.kind {
			x.value.Set(reflect.New(x.value.Type().Elem()))
			d.mapping(n, path, x.value.Elem())
			return
		}
		names = append(names, x.kind)
	}
	all := strings.Join(names, ", ")
	switch {
	case n.Kind != yaml.MappingNode:
		d.fail(n, path, "%s: expected a mapping with a kind: %s", yamltree.Describe(n), all)
	case kind == nil:
		d.fail(n, yamltree.Join(path, "kind"), "missing: expected one of %s", all)
	case !reported(kind):
		d.fail(kind, yamltree.Join(path, "kind"), "%s: expected one of %s%s", yamltree.Describe(kind), all, didYouMean(kind.Value, names))
	}
}
