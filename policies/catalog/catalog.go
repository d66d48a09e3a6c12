// Package catalog turns names and parameters, as a scenario states them, into
// policies. It is one explicit table: to add a policy, add an entry.
//
// It holds no algorithm and no default of its own: those are beside the
// policies' code.
package catalog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"testbed/policies"
	"testbed/policies/placement"
	"testbed/topo/units"
)

// Role is what a policy decides.
type Role string

// The roles.
const (
	RoleCoflow    Role = "coflow"    // a policies.Scheduler
	RolePlacement Role = "placement" // a policies.Placer
)

// Type is what a parameter's value is.
type Type string

// The types, and the values they take.
const (
	Bool  Type = "bool"  // true or false
	Whole Type = "whole" // a whole number
	Size  Type = "size"  // a size such as "64MB", or a whole number of bytes
	Float Type = "float" // a number
	// Duration is a time such as "8ms".
	Duration Type = "duration"
	// Choice is one of Param.Choices, or a time where Param.Durations says so.
	Choice Type = "choice"
	// Hosts is patterns of host names with commas between them; "*" is all.
	Hosts Type = "hosts"
)

// Param documents one parameter.
type Param struct {
	Name      string
	Type      Type
	Default   any      // bool, int64, units.Bytes, float64, time.Duration or string, by Type
	Unit      string   // of the value; empty for none
	Min, Max  int64    // of a whole number, of a size in bytes, of a duration in nanoseconds
	Low, High float64  // of a float
	Choices   []string // of a choice
	Durations bool     // of a choice: a duration from Min to Max does too
	Doc       string   // one line
}

// Entry documents one policy.
type Entry struct {
	Role   Role
	Name   string
	Doc    string // one line
	Params []Param
	// Holds tells of a coflow policy that it sets ceilings, and so may hold flows back.
	Holds bool

	scheduler func(values) policies.Scheduler
	placer    func(values) policies.Placer
	check     func(values) []error // what is wrong with values together; may be nil
}

const allHosts = "*"

// values are the parameters of one policy, all of them, by name.
type values map[string]any

func (v values) bool(name string) bool              { return v[name].(bool) }
func (v values) int(name string) int                { return int(v[name].(int64)) }
func (v values) size(name string) units.Bytes       { return v[name].(units.Bytes) }
func (v values) float(name string) float64          { return v[name].(float64) }
func (v values) duration(name string) time.Duration { return v[name].(time.Duration) }
func (v values) choice(name string) string          { return v[name].(string) }

// hosts are the patterns of placement.Constraints.
func (v values) hosts(name string) string {
	if s := v[name].(string); s != allHosts {
		return s
	}
	return ""
}

// Entries are all policies of a role, by name.
func Entries(role Role) []Entry {
	var out []Entry
	for _, e := range table() {
		if e.Role == role {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// table is all there is, file by file.
func table() []Entry {
	return slices.Concat(orderings(), samplings(), placements())
}

// Holds tells whether the coflow policy of that name sets ceilings.
func Holds(name string) bool {
	return slices.ContainsFunc(table(), func(e Entry) bool { return e.Role == RoleCoflow && e.Name == name && e.Holds })
}

// Names are the names of a role's policies, sorted.
func Names(role Role) []string {
	var out []string
	for _, e := range Entries(role) {
		out = append(out, e.Name)
	}
	return out
}

// Coflow is the coflow policy of that name, with its defaults where params say
// nothing. The error joins all that is wrong with the name or the parameters.
func Coflow(name string, params map[string]any) (policies.Scheduler, error) {
	e, v, err := resolve(RoleCoflow, name, params)
	if err != nil {
		return nil, err
	}
	return e.scheduler(v), nil
}

// Placement is the placement policy of that name, with its defaults where
// params say nothing. The error joins all that is wrong with the name or the
// parameters.
func Placement(name string, params map[string]any) (policies.Placer, error) {
	e, v, err := resolve(RolePlacement, name, params)
	if err != nil {
		return nil, err
	}
	return e.placer(v), nil
}

// Check tells what is wrong with a name and its parameters without making the
// policy.
func Check(role Role, name string, params map[string]any) error {
	_, _, err := resolve(role, name, params)
	return err
}

func resolve(role Role, name string, params map[string]any) (Entry, values, error) {
	entries := Entries(role)
	if len(entries) == 0 {
		return Entry{}, nil, fmt.Errorf("no policies of role %q: roles are %s and %s", role, RoleCoflow, RolePlacement)
	}
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
	if at < 0 {
		return Entry{}, nil, fmt.Errorf("no %s policy %q: %s", role, name, instead(name, Names(role)))
	}
	e := entries[at]
	v := values{}
	var known []string
	for _, p := range e.Params {
		v[p.Name] = p.Default
		known = append(known, p.Name)
	}
	slices.Sort(known)
	var errs []error
	for _, given := range slices.Sorted(maps.Keys(params)) {
		i := slices.IndexFunc(e.Params, func(p Param) bool { return p.Name == given })
		switch {
		case i < 0 && len(known) == 0:
			errs = append(errs, fmt.Errorf("%s policy %s: no parameter %q: it has none", role, name, given))
		case i < 0:
			errs = append(errs, fmt.Errorf("%s policy %s: no parameter %q: %s", role, name, given, instead(given, known)))
		default:
			value, err := e.Params[i].parse(params[given])
			if err != nil {
				errs = append(errs, fmt.Errorf("%s policy %s: %s: %w", role, name, given, err))
			}
			v[given] = value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return e, v, err
	}
	if e.check != nil {
		for _, err := range e.check(v) {
			errs = append(errs, fmt.Errorf("%s policy %s: %w", role, name, err))
		}
	}
	return e, v, errors.Join(errs...)
}

// parse turns a value as YAML or JSON has it into that of the parameter's type.
func (p Param) parse(given any) (any, error) {
	switch p.Type {
	case Bool:
		if b, ok := given.(bool); ok {
			return b, nil
		}
		return nil, fmt.Errorf("%v: want true or false", given)
	case Whole:
		if n, ok := whole(given); ok && n >= p.Min && n <= p.Max {
			return n, nil
		}
		return nil, fmt.Errorf("%v: want a whole number of %d to %d (%s)", given, p.Min, p.Max, p.Unit)
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
		if ok && int64(size) >= p.Min && int64(size) <= p.Max {
			return size, nil
		}
		return nil, fmt.Errorf(`%v: want a size such as "64MB"`, given)
	case Float:
		if x, ok := number(given); ok && x >= p.Low && x <= p.High {
			return x, nil
		}
		return nil, fmt.Errorf("%v: want a number of %v to %v%s", given, p.Low, p.High, p.unit())
	case Duration:
		if d, ok := duration(given); ok && int64(d) >= p.Min && int64(d) <= p.Max {
			return d, nil
		}
		return nil, fmt.Errorf(`%v: want a duration such as "8ms", of %v to %v`, given, time.Duration(p.Min), time.Duration(p.Max))
	case Choice:
		if s, ok := given.(string); ok && slices.Contains(p.Choices, s) {
			return s, nil
		}
		also := ""
		if p.Durations {
			if d, ok := duration(given); ok && int64(d) >= p.Min && int64(d) <= p.Max {
				return d, nil
			}
			also = fmt.Sprintf(` or a duration such as "8ms", of %v to %v`, time.Duration(p.Min), time.Duration(p.Max))
		}
		return nil, fmt.Errorf("%v: want %s%s", given, strings.Join(p.Choices, ", "), also)
	case Hosts:
		s, ok := given.(string)
		if !ok || s == "" {
			return nil, fmt.Errorf(`%v: want patterns of host names with commas between them, such as "h0-*,h1-0?", or "*" for all`, given)
		}
		if err := placement.CheckHosts(s); err != nil {
			return nil, err
		}
		return s, nil
	default:
		return nil, fmt.Errorf("parameter of unknown type %q", p.Type)
	}
}

// Values says what the parameter takes, in a few words.
func (p Param) Values() string {
	if p.Type != Choice {
		return string(p.Type)
	}
	if p.Durations {
		return strings.Join(p.Choices, ", ") + " or a duration"
	}
	return strings.Join(p.Choices, ", ")
}

func (p Param) unit() string {
	if p.Unit == "" {
		return ""
	}
	return " (" + p.Unit + ")"
}

// number is the finite number that a decoder may have made a whole one.
func number(given any) (float64, bool) {
	if n, ok := whole(given); ok {
		return float64(n), true
	}
	x, ok := given.(float64)
	return x, ok && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// duration is the time that text stands for; of numbers only 0 is one, since no
// unit goes with them.
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

// whole is the whole number that a decoder may have made an int, an unsigned or
// a float.
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

// instead suggests the nearest known name, if one is near, and lists all.
func instead(name string, known []string) string {
	list := "have " + strings.Join(known, ", ")
	best, least := "", 1+max(len(name), 3)/3
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	if best == "" {
		return list
	}
	return fmt.Sprintf("did you mean %q? %s", best, list)
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between two names.
func distance(a, b string) int {
	row := func(i int) []int {
		r := make([]int, len(b)+1)
		r[0] = i
		return r
	}
	var before []int
	prev := row(0)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := row(i)
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev = prev, cur
	}
	return prev[len(b)]
}
