package scenario

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// field is one key of a mapping: where it is in the struct and what its tags
// say of it.
type field struct {
	key      string
	index    int
	required bool
	initial  *string // default, as it would be written
	minimum  *float64
	maximum  *float64
	minLen   int
	maxLen   int
	minItems int
	pattern  *regexp.Regexp
	enum     []string
	of       string // what a whole number counts
	least    string // with its unit
	most     string
	maxItems int
	kind     string // of the mapping's that have the key; "" where all have
	optional bool   // left out where it is zero
}

// fieldsOf reads the tags of a struct of this package. It panics on a tag that
// it does not know, which a test would meet at once.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		key, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		f := field{key: key, index: i, kind: sf.Tag.Get("kind"), optional: options == "omitempty", of: sf.Tag.Get("of"), least: sf.Tag.Get("least"), most: sf.Tag.Get("most")}
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
		fields = append(fields, f)
	}
	return fields
}

// quantities are the types that are written as text with a unit of their own:
// an example for messages and a pattern for editors.
var quantities = map[reflect.Type]struct{ what, example, pattern string }{
	reflect.TypeFor[units.Rate]():       {"a rate", `"100Mbps"`, `^[0-9]+(\.[0-9]+)? ?([TGMKk]?bps|[TGMKk]?B/s)$`},
	reflect.TypeFor[units.Bytes]():      {"a size", `"256KB"`, `^[0-9]+(\.[0-9]+)? ?([TGMKk]?B|[TGMK]iB)$`},
	reflect.TypeFor[units.Ratio]():      {"a ratio", `"5:1"`, `^[0-9]+:[0-9]+$`},
	reflect.TypeFor[topo.Queue]():       {"a size or a time", `"64KB" or "20ms"`, `^[0-9]+(\.[0-9]+)? ?([TGMKk]?B|[TGMK]iB)$|` + durationPattern},
	reflect.TypeFor[time.Duration]():    {"a time", `"250ms"`, durationPattern},
	reflect.TypeFor[Span]():             {"a range", `"2-8" or 3`, `^[0-9]+(-[0-9]+)?$`},
	reflect.TypeFor[workloads.Factor](): {"a quotient or a decimal", `"1/100" or 0.01`, `^[0-9]+/[0-9]+$|^[0-9]+(\.[0-9]+)?$`},
}

const durationPattern = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`

// setText sets v, a quantity, from its text.
func setText(v reflect.Value, text string) error {
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		x, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf(`time %q: want a number followed by ns, us, ms, s, m or h, such as "250ms"`, clip(text))
		}
		*d = x
		return nil
	}
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}

// wantOf is what a field wants, for messages: "a whole number, 1 to 250".
func wantOf(t reflect.Type, f field) string {
	if t.Kind() == reflect.Pointer {
		if _, ok := quantities[t.Elem()]; ok {
			t = t.Elem()
		}
	}
	if q, ok := quantities[t]; ok {
		switch {
		case f.least != "" && f.most != "":
			return fmt.Sprintf("want %s, %s to %s", q.what, f.least, f.most)
		default:
			return fmt.Sprintf("want %s such as %s", q.what, q.example)
		}
	}
	switch t {
	case reflect.TypeFor[Arms]():
		return "want a list of arms, or a mapping such as {coflow: [fair, sebf], placement: [hdfs, sinbad]}"
	case reflect.TypeFor[Policy]():
		return "want the name of a policy, or a mapping with its name and parameters"
	}
	if len(f.enum) > 0 {
		return "want " + strings.Join(f.enum, " or ")
	}
	bounds := ""
	if f.minimum != nil && f.maximum != nil {
		bounds = fmt.Sprintf(", %s to %s", strconv.FormatFloat(*f.minimum, 'f', -1, 64), strconv.FormatFloat(*f.maximum, 'f', -1, 64))
	}
	switch t.Kind() {
	case reflect.Int, reflect.Uint64:
		if f.of != "" {
			return "want a plain whole number of " + f.of + bounds
		}
		return "want a whole number" + bounds
	case reflect.Float64:
		return "want a number" + bounds
	case reflect.Bool:
		return "want true or false"
	case reflect.Slice:
		return "want a list"
	case reflect.Struct, reflect.Pointer:
		return "want a mapping of keys to values"
	}
	if f.pattern != nil {
		return "want a text that matches " + f.pattern.String()
	}
	return "want a text"
}
