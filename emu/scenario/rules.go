package scenario

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// field is one key of a mapping: its index in the struct and the values of its tags.
type field struct {
	key      string
	index    int
	required bool
	initial  *string // default, as a file writes it
	minimum  *float64
	maximum  *float64
	minLen   int
	maxLen   int
	minItems int
	pattern  *regexp.Regexp
	enum     []string
	of       string // unit of a whole number
	least    string // with unit
	most     string
	maxItems int
	kind     string        // of the mappings that have the key; "" for all
	optional bool          // omitted if zero
	keep     bool          // not scaled with the cluster
	role     *catalog.Role // whose name is the key, or nil
}

// fieldsOf reads the tags of a struct of this package. It panics on an unknown tag, which any
// test of the package detects. A field for the policies of all roles, inline, is one key for each
// of the given roles. Callers do not modify the result, which they share.
func fieldsOf(t reflect.Type, roles ...catalog.Role) []field {
	if fields, ok := tagged.Load(t); ok {
		return fields.([]field)
	}
	var fields []field
	ofRoles := false
	for i := range t.NumField() {
		sf := t.Field(i)
		key, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		f := field{key: key, index: i, kind: sf.Tag.Get("kind"), optional: options == "omitempty", keep: sf.Tag.Get("scale") == "keep", of: sf.Tag.Get("of"), least: sf.Tag.Get("least"), most: sf.Tag.Get("most")}
		for _, rule := range strings.Split(sf.Tag.Get("jsonschema"), ",") {
			name, value, _ := strings.Cut(rule, "=")
			number := func() float64 {
				x, err := strconv.ParseFloat(value, 64)
				if err != nil {
					panic(fmt.Sprintf("%v.%s: tag %q: %v", t, sf.Name, rule, err))
				}
				return x
			}
			switch name {
			case "":
			case "required":
				f.required = true
			case "default":
				f.initial = &value
			case "minimum":
				x := number()
				f.minimum = &x
			case "maximum":
				x := number()
				f.maximum = &x
			case "minLength":
				f.minLen = int(number())
			case "maxLength":
				f.maxLen = int(number())
			case "minItems":
				f.minItems = int(number())
			case "maxItems":
				f.maxItems = int(number())
			case "pattern":
				f.pattern = regexp.MustCompile(value)
			case "enum":
				f.enum = append(f.enum, value)
			default:
				panic(fmt.Sprintf("%v.%s: unknown rule %q", t, sf.Name, rule))
			}
		}
		if options != "inline" {
			fields = append(fields, f)
			continue
		}
		ofRoles = true
		for _, r := range roles {
			f.key, f.role, f.required = r.Name, &r, r.Required == catalog.Always && r.Default == ""
			fields = append(fields, f)
		}
	}
	if !ofRoles {
		tagged.Store(t, slices.Clip(fields))
	}
	return fields
}

// tagged has the fields of types without policies, by type: tags do not change, and reading them took a third of the time
// of a sweep with many arms.
var tagged sync.Map

// keyOf returns the field of a key of T.
func keyOf[T any](key string) field {
	fields := fieldsOf(reflect.TypeFor[T]())
	return fields[slices.IndexFunc(fields, func(f field) bool { return f.key == key })]
}

// quantities are the types that files write as text with a unit, each with a noun and an
// example for messages and a pattern for the schema.
var quantities = map[reflect.Type]struct{ what, example, pattern string }{
	reflect.TypeFor[units.Rate]():       {"a rate", `"100Mbps"`, `^[0-9]+(\.[0-9]+)? ?([TGMKk]?bps|[TGMKk]?B/s)$`},
	reflect.TypeFor[units.Bytes]():      {"a size", `"256KB"`, `^[0-9]+(\.[0-9]+)? ?([TGMKk]?B|[TGMK]iB)$`},
	reflect.TypeFor[units.Ratio]():      {"a ratio", `"5:1"`, `^[0-9]+:[0-9]+$`},
	reflect.TypeFor[topo.Queue]():       {"a size or a time", `"64KB" or "20ms"`, `^[0-9]+(\.[0-9]+)? ?([TGMKk]?B|[TGMK]iB)$|` + durationPattern},
	reflect.TypeFor[time.Duration]():    {"a time", `"250ms"`, durationPattern},
	reflect.TypeFor[Percent]():          {"a share", `"5%"`, `^[0-9]+(\.[0-9]+)? ?%$`},
	reflect.TypeFor[Span]():             {"a range", `"2-8" or 3`, `^[0-9]+(-[0-9]+)?$`},
	reflect.TypeFor[workloads.Factor](): {"a quotient or a decimal", `"1/100" or 0.01`, `^[0-9]+/[0-9]+$|^[0-9]+(\.[0-9]+)?$`},
}

const durationPattern = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`

// decimal returns a bound as tags write it.
func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// setText parses the text of a quantity into v.
func setText(v reflect.Value, text string) error {
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		x, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf(`time %q: expected a number followed by ns, us, ms, s, m or h, such as "250ms"`, clip(text))
		}
		*d = x
		return nil
	}
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}

// limits returns the bounds of a quantity of type t.
func (f field) limits(t reflect.Type) (least, most int64) {
	parse := func(text string) int64 {
		v := reflect.New(t).Elem()
		if err := setText(v, text); err != nil {
			panic(fmt.Sprintf("%s: bound %q: %v", f.key, text, err)) // of a tag of this package
		}
		return v.Int()
	}
	return parse(f.least), parse(f.most)
}

// outside reports whether a quantity is out of its bounds, if it has any.
func (f field) outside(v reflect.Value) bool {
	if f.least == "" {
		return false
	}
	least, most := f.limits(v.Type())
	return v.Int() < least || v.Int() > most
}

// expectedOf describes the valid values of a field, for messages: "expected a whole number, 1 to
// 250".
func (d *decoder) expectedOf(t reflect.Type, f field) string {
	if t.Kind() == reflect.Pointer {
		if _, ok := quantities[t.Elem()]; ok {
			t = t.Elem()
		}
	}
	if q, ok := quantities[t]; ok {
		switch {
		case f.least != "" && f.most != "":
			return fmt.Sprintf("expected %s from %s to %s", q.what, f.least, f.most)
		default:
			return fmt.Sprintf("expected %s such as %s", q.what, q.example)
		}
	}
	switch t {
	case reflect.TypeFor[Arms]():
		var lists []string
		for _, r := range d.catalog {
			lists = append(lists, fmt.Sprintf("%s: [%s]", r.Name, strings.Join(r.Examples, ", ")))
		}
		return fmt.Sprintf("expected a list of arms, or a mapping such as {%s}", strings.Join(lists, ", "))
	case reflect.TypeFor[Repeats]():
		return "expected a whole number, or a mapping such as {at_least: 5, at_most: 30, until: {cct: 5%}}"
	case reflect.TypeFor[map[string]Policy]():
		return "expected the name of a policy, or a mapping with its name and parameters"
	case reflect.TypeFor[map[string][]Policy]():
		return "expected a list"
	case reflect.TypeFor[map[string]any]():
		return "expected a mapping of keys of the scenario to values, such as {fabric: {queue: 5ms}}"
	}
	if len(f.enum) > 0 {
		return "expected " + strings.Join(f.enum, " or ")
	}
	bounds := ""
	if f.minimum != nil && f.maximum != nil && *f.minimum == *f.maximum {
		return fmt.Sprintf("must be %v", *f.minimum)
	}
	if f.minimum != nil && f.maximum != nil {
		bounds = fmt.Sprintf(" from %s to %s", decimal(*f.minimum), decimal(*f.maximum))
	}
	switch t.Kind() {
	case reflect.Int, reflect.Uint64:
		if f.of != "" {
			return "expected a plain whole number of " + f.of + bounds
		}
		return "expected a whole number" + bounds
	case reflect.Float64:
		return "expected a number" + bounds
	case reflect.Bool:
		return "expected true or false"
	case reflect.Slice:
		return "expected a list"
	case reflect.Struct, reflect.Pointer:
		return "expected a mapping of keys to values"
	}
	if f.pattern != nil {
		return "expected a text that matches " + f.pattern.String()
	}
	return "expected a text"
}
