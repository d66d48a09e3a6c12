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

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/placement"
	"testbed/topo/units"
)

// Role is what a policy decides.
type Role string

// The roles.
const (
	RoleCoflow    Role = "coflow"    // a policies.Allocator
	RolePlacement Role = "placement" // a policies.Placer
)

// Type is what a parameter's value is.
type Type string

// The types, and the values they take.
const (
	Bool  Type = "bool"  // true or false
	Whole Type = "whole" // a whole number
	Size  Type = "size"  // a size such as "64MB", or a whole number of bytes
)

// Param documents one parameter.
type Param struct {
	Name     string
	Type     Type
	Default  any    // bool, int64 or units.Bytes, by Type
	Unit     string // of the value; empty for none
	Min, Max int64  // of a whole number, or of a size in bytes
	Doc      string // one line
}

// Entry documents one policy.
type Entry struct {
	Role   Role
	Name   string
	Doc    string // one line
	Params []Param
	// Holds tells of a coflow policy that it sets ceilings, and so may hold flows back.
	Holds bool

	allocator func(values) policies.Allocator
	placer    func(values) policies.Placer
}

// values are the parameters of one policy, all of them, by name.
type values map[string]any

func (v values) bool(name string) bool        { return v[name].(bool) }
func (v values) int(name string) int          { return int(v[name].(int64)) }
func (v values) size(name string) units.Bytes { return v[name].(units.Bytes) }

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

func table() []Entry {
	hdfs, sinbad := placement.DefaultHDFS(), placement.DefaultSinbad()
	defaultPlacement := func(p placement.HDFS) []Param {
		return []Param{
			{Name: "consider_load", Type: Bool, Default: p.ConsiderLoad, Doc: "the default placement passes over hosts with more than twice the average number of writes"},
			{Name: "min_blocks", Type: Whole, Default: int64(p.MinBlocks), Unit: "blocks", Min: 1, Max: 1000, Doc: "room the default placement wants on a disk"},
		}
	}
	hdfsOf := func(v values) placement.HDFS {
		return placement.HDFS{ConsiderLoad: v.bool("consider_load"), MinBlocks: v.int("min_blocks")}
	}
	return []Entry{
		{Role: RoleCoflow, Name: "fair", Doc: "every flow for itself: plain TCP, max-min fair in the fluid model",
			allocator: func(values) policies.Allocator { return coflow.Fair{} }},
		{Role: RoleCoflow, Name: "sebf", Doc: "Varys (SIGCOMM 2014): smallest effective bottleneck first, flows of a coflow end together; knows sizes", Holds: true,
			allocator: func(values) policies.Allocator { return coflow.SEBF{} }},
		{Role: RolePlacement, Name: "hdfs", Doc: "HDFS default: writer, then two hosts of one random other rack",
			Params: defaultPlacement(hdfs),
			placer: func(v values) policies.Placer { return hdfsOf(v) }},
		{Role: RolePlacement, Name: "sinbad", Doc: "Sinbad (SIGCOMM 2013): writer, then the two least loaded hosts of the least loaded other rack",
			Params: append([]Param{
				{Name: "threshold", Type: Size, Default: sinbad.Threshold, Unit: "bytes", Max: math.MaxInt64, Doc: "smaller blocks get the default placement; 0B steers all"},
				{Name: "tolerance", Type: Whole, Default: int64(sinbad.Tolerance), Unit: "percent of a disk", Max: 100, Doc: "how much fuller than the average disk one may be and still get replicas"},
			}, defaultPlacement(sinbad.Fallback)...),
			placer: func(v values) policies.Placer {
				return placement.Sinbad{Threshold: v.size("threshold"), Tolerance: v.int("tolerance"), Fallback: hdfsOf(v)}
			}},
	}
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
func Coflow(name string, params map[string]any) (policies.Allocator, error) {
	e, v, err := resolve(RoleCoflow, name, params)
	if err != nil {
		return nil, err
	}
	return e.allocator(v), nil
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
	default:
		return nil, fmt.Errorf("parameter of unknown type %q", p.Type)
	}
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
