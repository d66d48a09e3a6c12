// Package catalog constructs policies from the names and parameters of a scenario. It
// is one explicit table by role: to add a policy, add an entry; to add a role, add it to All.
//
// This package holds no algorithms and no defaults: those are defined with the
// policies.
package catalog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/policies/placement"
	"testbed/policies/tasks"
	"testbed/topo/units"
	"testbed/topo/words"
)

// Catalog lists roles, in the order in which the default name of an arm joins their policies.
type Catalog []Role

// Role is a kind of decision that policies make. It is a key of the arms of a scenario.
type Role struct {
	Name     string
	Doc      string   // one line
	Required string   // Always, WritesBlocks, RunsTasks, or "" for never
	Default  string   // policy of an arm that names none where Required holds; "" if it must name one
	Examples []string // names of policies, for messages
	Policies []Entry  // in any order
	Parts    []Entry  // that its policies can be composed with, by their parameter With
	// External are the entries for policies outside of the program. The name of each, Exec or Wasm, is also
	// that of the parameter without which it is nothing.
	External []Entry
}

// The names of policies outside of the program.
const (
	Exec = "exec" // processes; the parameter is their command
	Wasm = "wasm" // WebAssembly modules; the parameter is their file
)

// With is the parameter of a policy that lists its parts.
const With = "with"

// Files is the parameter of Exec for files that its command does not name.
const Files = "files"

// IsExternal reports whether a policy of that name is outside of the program.
func IsExternal(name string) bool { return name == Exec || name == Wasm }

// The conditions under which an arm must name a policy of a role, as messages describe them.
const (
	Always       = "always"
	WritesBlocks = "the workload writes blocks"
	// RunsTasks is the condition of policies that have no effect on other workloads, where naming
	// one is an error.
	RunsTasks = "the workload has jobs of tasks"
)

// Type is the type of a parameter's value.
type Type string

// The types and their values.
const (
	Bool  Type = "bool"  // true or false
	Whole Type = "whole" // a whole number
	Size  Type = "size"  // a size such as "64MB", or a whole number of bytes
	Float Type = "float" // a number
	// Duration is a time such as "8ms".
	Duration Type = "duration"
	// Durations is a comma-separated list of times, at most Param.Most.
	Durations Type = "durations"
	// Choice is one of Param.Choices, or also a time if Param.Durations is set.
	Choice Type = "choice"
	// Hosts is a comma-separated list of host name patterns; "*" is all hosts.
	Hosts Type = "hosts"
	// Command is a list of words: a program and its arguments, or files.
	Command Type = "list"
	// Path is the path of a file, relative to the directory of the scenario.
	Path Type = "path"
	// Mapping is a mapping of any keys.
	Mapping Type = "mapping"
	// Pools is a comma-separated list of user=weight:maps:reduces; "none" is no pool.
	Pools Type = "pools"
	// Parts is a list of Param.Parts: names, or mappings of a name to the part's parameters.
	Parts Type = "parts"
)

// Param documents one parameter.
type Param struct {
	Name string
	// To is the field that the parameter sets, whose type and value are Type and Default: a pointer to a bool, an integer,
	// a units.Bytes, a float64 or a time.Duration. With Choices, a bool or an integer is an index. Set is for others.
	To        any
	Set       func(any)
	Type      Type
	Default   any      // bool, int64, units.Bytes, float64, time.Duration or string, by Type
	Unit      string   // unit of the value; empty if it has none
	Min, Max  int64    // bounds of a whole number, a size (bytes) or durations (nanoseconds)
	Low, High float64  // bounds of a float
	Choices   []string // values of a choice
	Durations bool     // a choice also accepts a duration from Min to Max
	Most      int      // elements of a list
	Parts     []Entry  // values of Parts
	Doc       string   // one line
}

// bound completes an entry whose parameters set fields of T, from their initial values on. made makes the policy.
func bound[T any](e Entry, initial T, params func(*T) []Param, made func(T, Values) any) Entry {
	defaults := initial
	for _, p := range params(&defaults) {
		e.Params = append(e.Params, p.typed())
	}
	e.New = func(v Values) any {
		x := initial
		for _, p := range params(&x) {
			p.assign(v[p.Name])
		}
		return made(x, v)
	}
	return e
}

// Fields completes the entry of a policy of type T whose parameters set its fields, from their initial values on.
func Fields[T any](e Entry, initial T, params func(*T) []Param) Entry {
	return bound(e, initial, params, func(x T, _ Values) any { return x })
}

// typed returns the parameter with the type and the default of its field.
func (p Param) typed() Param {
	switch to := p.To.(type) {
	case nil:
		return p
	case *units.Bytes:
		p.Type, p.Default = Size, *to
	case *time.Duration:
		p.Type, p.Default = Duration, *to
	case *float64:
		p.Type, p.Default = Float, *to
	default:
		field := reflect.ValueOf(to).Elem()
		switch isBool := field.Kind() == reflect.Bool; {
		case p.Choices != nil && isBool:
			p.Type, p.Default = Choice, p.Choices[0]
			if field.Bool() {
				p.Default = p.Choices[1]
			}
		case p.Choices != nil && field.CanUint():
			p.Type, p.Default = Choice, p.Choices[field.Uint()]
		case p.Choices != nil:
			p.Type, p.Default = Choice, p.Choices[field.Int()]
		case isBool:
			p.Type, p.Default = Bool, field.Bool()
		default:
			p.Type, p.Default = Whole, field.Int()
		}
	}
	return p
}

// assign sets the field to a value that parse has returned.
func (p Param) assign(value any) {
	if p.Set != nil {
		p.Set(value)
		return
	}
	if p.To == nil {
		return
	}
	field := reflect.ValueOf(p.To).Elem()
	if p.Choices != nil {
		value = slices.Index(p.Choices, value.(string))
		if field.Kind() == reflect.Bool {
			value = value == 1
		}
	}
	field.Set(reflect.ValueOf(value).Convert(field.Type()))
}

// Entry documents one policy.
type Entry struct {
	Name   string
	Doc    string // one line
	Params []Param
	// Holds reports that a coflow policy sets rate caps, and so may hold flows back.
	Holds bool

	New   func(Values) any     // returns the policy, of the type that the role requires
	Check func(Values) []error // rejects inconsistent combinations of values; may be nil
}

const allHosts = "*"

// Values are all parameters of one policy, by name. Each has the type of its Param.Default, or
// time.Duration if Param.Durations is set. Lists are as given.
type Values map[string]any

func (v Values) bool(name string) bool              { return v[name].(bool) }
func (v Values) int(name string) int                { return int(v[name].(int64)) }
func (v Values) size(name string) units.Bytes       { return v[name].(units.Bytes) }
func (v Values) float(name string) float64          { return v[name].(float64) }
func (v Values) duration(name string) time.Duration { return v[name].(time.Duration) }
func (v Values) choice(name string) string          { return v[name].(string) }

// Roles returns the names of the roles.
func (c Catalog) Roles() (names []string) {
	for _, r := range c {
		names = append(names, r.Name)
	}
	return names
}

// Entries returns all policies of a role, sorted by name.
func (c Catalog) Entries(role string) []Entry {
	i := slices.IndexFunc(c, func(r Role) bool { return r.Name == role })
	if i < 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(c[i].Policies), func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

// Names returns the sorted names of a role's policies.
func (c Catalog) Names(role string) (names []string) {
	for _, e := range c.Entries(role) {
		names = append(names, e.Name)
	}
	return names
}

// New returns the policy of that name, as the type T that the role requires. Parameters missing
// from params have their defaults. The error joins all errors in the name and the parameters.
func New[T any](c Catalog, role, name string, params map[string]any) (policy T, err error) {
	e, v, errs := c.resolve(role, name, params)
	if len(errs) > 0 {
		return policy, errors.Join(errs...)
	}
	return e.New(v).(T), nil
}

// Check returns all errors in a policy's name and parameters, without constructing the policy.
// Those of a parameter wrap a ParamError.
func (c Catalog) Check(role, name string, params map[string]any) []error {
	_, _, errs := c.resolve(role, name, params)
	return errs
}

// ParamError is an error in one parameter.
type ParamError struct {
	Param string
	error
}

func (c Catalog) resolve(role, name string, params map[string]any) (Entry, Values, []error) {
	entries := c.Entries(role)
	for _, r := range c {
		if r.Name == role {
			entries = append(entries, r.External...)
		}
	}
	if len(entries) == 0 {
		return Entry{}, nil, []error{fmt.Errorf("unknown role %q: must be %s", role, words.Or(c.Roles()))}
	}
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
	if at < 0 {
		return Entry{}, nil, []error{fmt.Errorf("unknown %s policy %q (%s)", role, name, suggestion(name, c.Names(role)))}
	}
	v, errs := entries[at].read(params)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s policy %s: %w", role, name, err)
	}
	return entries[at], v, errs
}

// read returns the values of all parameters. Errors in one wrap a ParamError.
func (e Entry) read(params map[string]any) (Values, []error) {
	v := Values{}
	var known []string
	for _, p := range e.Params {
		v[p.Name] = p.Default
		known = append(known, p.Name)
	}
	slices.Sort(known)
	var errs []error
	if where, text := e.composed(params); text != "" {
		return v, []error{ParamError{where, fmt.Errorf("%s: a part has this parameter: write %s", where, text)}}
	}
	for _, given := range slices.Sorted(maps.Keys(params)) {
		i := e.param(given)
		switch {
		case i < 0 && len(known) == 0:
			errs = append(errs, ParamError{given, fmt.Errorf("unknown parameter %q (it has no parameters)", given)})
		case i < 0:
			errs = append(errs, ParamError{given, fmt.Errorf("unknown parameter %q (%s)", given, suggestion(given, known))})
		default:
			value, err := e.Params[i].parse(params[given])
			for _, err := range each(err) {
				if placed := (ParamError{}); !errors.As(err, &placed) {
					err = ParamError{given, fmt.Errorf("%s: %w", given, err)}
				}
				errs = append(errs, err)
			}
			v[given] = value
		}
	}
	if len(errs) == 0 && e.Check != nil {
		errs = e.Check(v)
	}
	return v, errs
}

// param returns the index of a parameter; -1 if there is none of that name.
func (e Entry) param(name string) int {
	return slices.IndexFunc(e.Params, func(p Param) bool { return p.Name == name })
}

// each returns the errors that err joins, or err alone, or none.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// parse converts a value decoded from YAML or JSON to the parameter's type. The error can join
// several.
func (p Param) parse(given any) (any, error) {
	switch p.Type {
	case Bool:
		if b, ok := given.(bool); ok {
			return b, nil
		}
		return nil, fmt.Errorf("%v: must be true or false", shown(given))
	case Whole:
		if n, ok := whole(given); ok && p.within(n) {
			return n, nil
		}
		return nil, fmt.Errorf("%v: must be a whole number from %d to %d%s", shown(given), p.Min, p.Max, p.unit())
	case Size:
		n, ok := whole(given)
		size := units.Bytes(n)
		if s, isText := given.(string); isText {
			var err error
			if size, err = units.ParseBytes(s); err != nil {
				return nil, err
			}
			ok = true
		}
		if s, isSize := given.(units.Bytes); isSize {
			size, ok = s, true
		}
		if ok && p.within(int64(size)) {
			return size, nil
		}
		return nil, fmt.Errorf(`%v: expected a size such as "64MB"`, shown(given))
	case Float:
		if x, ok := number(given); ok && x >= p.Low && x <= p.High {
			return x, nil
		}
		return nil, fmt.Errorf("%v: must be a number from %v to %v%s", shown(given), p.Low, p.High, p.unit())
	case Duration:
		if d, ok := duration(given); ok && p.within(int64(d)) {
			return d, nil
		}
		return nil, fmt.Errorf(`%v: expected a duration such as "8ms", from %v to %v`, shown(given), time.Duration(p.Min), time.Duration(p.Max))
	case Durations:
		list, ok := durations(given)
		for _, d := range list {
			ok = ok && p.within(int64(d))
		}
		if !ok || len(list) > p.Most {
			return nil, fmt.Errorf(`%v: expected a duration from %v to %v, or up to %d such as "2s,8ms"`, shown(given), time.Duration(p.Min), time.Duration(p.Max), p.Most)
		}
		return given, nil
	case Choice:
		if s, ok := given.(string); ok && slices.Contains(p.Choices, s) {
			return s, nil
		}
		list, also := words.Or(p.Choices), ""
		if p.Durations {
			if d, ok := duration(given); ok && p.within(int64(d)) {
				return d, nil
			}
			list, also = strings.Join(p.Choices, ", "), fmt.Sprintf(` or a duration such as "8ms", from %v to %v`, time.Duration(p.Min), time.Duration(p.Max))
		}
		return nil, fmt.Errorf("%v: must be %s%s", shown(given), list, also)
	case Hosts:
		s, ok := given.(string)
		if !ok || s == "" {
			return nil, fmt.Errorf(`%v: expected comma-separated host name patterns such as "h0-*,h1-0?", or "*" for all hosts`, shown(given))
		}
		if err := placement.CheckHosts(s); err != nil {
			return nil, err
		}
		return s, nil
	case Command:
		list, ok := given.([]any)
		var words []string
		for _, x := range list {
			word, isText := x.(string)
			ok = ok && isText && word != "" && !strings.ContainsRune(word, 0)
			words = append(words, word)
		}
		if !ok || len(list) == 0 {
			return nil, fmt.Errorf("%v: expected a list of words, such as [python3, mine.py]", shown(given))
		}
		return words, nil
	case Path:
		if s, ok := given.(string); ok && s != "" && !strings.ContainsRune(s, 0) {
			return s, nil
		}
		return nil, fmt.Errorf("%v: expected the path of a file", shown(given))
	case Mapping:
		if m, ok := given.(map[string]any); ok {
			return m, nil
		}
		return nil, fmt.Errorf("%v: expected a mapping", shown(given))
	case Parts:
		return p.compose(given)
	case Pools:
		s, ok := given.(string)
		if !ok {
			return nil, fmt.Errorf(`%v: expected pools such as "prod=2:10:4,adhoc=1", or "none"`, shown(given))
		}
		if s != noPools {
			if _, err := tasks.ParsePools(s); err != nil {
				return nil, err
			}
		}
		return s, nil
	default:
		return nil, fmt.Errorf("parameter of unknown type %q", p.Type)
	}
}

// within reports whether a number is within the bounds.
func (p Param) within(n int64) bool { return n >= p.Min && n <= p.Max }

// Values returns a short description of the parameter's values.
func (p Param) Values() string {
	if p.Type != Choice {
		return string(p.Type)
	}
	if p.Durations {
		return strings.Join(p.Choices, ", ") + " or a duration"
	}
	return strings.Join(p.Choices, ", ")
}

// Bounds returns the least and the largest value of a number, size or duration, in the type of
// its values. nil is no bound. The durations of a Choice have bounds too.
func (p Param) Bounds() (low, high any) {
	switch p.Type {
	case Whole:
		low, high = p.Min, p.Max
	case Size:
		low, high = units.Bytes(p.Min), units.Bytes(p.Max)
	case Float:
		return p.Low, p.High
	case Duration:
		return time.Duration(p.Min), time.Duration(p.Max)
	case Choice:
		if p.Durations {
			return time.Duration(p.Min), time.Duration(p.Max)
		}
		return nil, nil
	default:
		return nil, nil
	}
	if p.Min == math.MinInt64 {
		low = nil
	}
	if p.Max == math.MaxInt64 {
		high = nil
	}
	return low, high
}

func (p Param) unit() string {
	if p.Unit == "" {
		return ""
	}
	return " (" + p.Unit + ")"
}

// number returns given as a finite number, which a decoder may have stored as an integer.
func number(given any) (float64, bool) {
	if n, ok := whole(given); ok {
		return float64(n), true
	}
	x, ok := given.(float64)
	return x, ok && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// duration returns the duration that given stands for. The only number it accepts is 0,
// because other numbers need a unit.
func duration(given any) (time.Duration, bool) {
	switch d := given.(type) {
	case time.Duration:
		return d, true
	case string:
		x, err := time.ParseDuration(d)
		return x, err == nil
	}
	n, ok := whole(given)
	return 0, ok && n == 0
}

// durations returns the elements of a list of durations.
func durations(given any) (list []time.Duration, ok bool) {
	s, isText := given.(string)
	if !isText {
		d, ok := duration(given)
		return []time.Duration{d}, ok
	}
	for part := range strings.SplitSeq(s, ",") {
		d, ok := duration(strings.TrimSpace(part))
		if !ok {
			return nil, false
		}
		list = append(list, d)
	}
	return list, true
}

// whole returns given as an integer, which a decoder may have stored as an int, a uint64
// or a float64.
func whole(given any) (int64, bool) {
	switch n := given.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case uint64:
		return int64(n), n <= math.MaxInt64
	case float64:
		return int64(n), n == math.Trunc(n) && math.Abs(n) < 1<<53
	default:
		return 0, false
	}
}

// suggestion lists the known names, after the one closest to name if it is similar.
func suggestion(name string, known []string) string {
	list := "available: " + strings.Join(known, ", ")
	if best := words.Closest(name, known); best != "" {
		return fmt.Sprintf("did you mean %q? %s", best, list)
	}
	return list
}

// shown returns a value as error messages quote it, shortened if it is long.
func shown(given any) string { return units.Clip(fmt.Sprint(given)) }
