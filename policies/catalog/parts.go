package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// compose returns what the parts of a list make, in the order of Parts.
func (p Param) compose(given any) (any, error) {
	list, ok := given.([]any)
	if !ok {
		return nil, fmt.Errorf("%v: expected a list of parts, such as [%s]", shown(given), p.Parts[0].example())
	}
	made := make([]any, len(p.Parts))
	var errs []error
	for i, x := range list {
		at := fmt.Sprintf("%s[%d]", p.Name, i)
		fail := func(format string, args ...any) { errs = append(errs, ParamError{at, fmt.Errorf(format, args...)}) }
		name, isName := x.(string)
		var params map[string]any
		if m, isMapping := x.(map[string]any); isMapping && len(m) == 1 {
			name = slices.Collect(maps.Keys(m))[0]
			params, isName = m[name].(map[string]any)
		}
		n := slices.IndexFunc(p.Parts, func(e Entry) bool { return e.Name == name })
		switch {
		case !isName && n >= 0:
			fail("%v: expected the parameters of %s, such as %s", flow(x), name, p.Parts[n].example())
		case !isName:
			fail("%v: expected the name of a part, or one part with its parameters, such as %s", shown(flow(x)), p.Parts[0].example())
		case n < 0:
			fail("unknown part %q (%s)", name, suggestion(name, namesOf(p.Parts)))
		case made[n] != nil:
			fail("part %s is listed twice: keep one", name)
		default:
			v, bad := p.Parts[n].read(params)
			if made[n] = struct{}{}; len(bad) == 0 {
				made[n] = p.Parts[n].New(v)
			}
			for _, err := range bad {
				where := at
				if one := (ParamError{}); errors.As(err, &one) {
					where = at + "." + name + "." + one.Param
				}
				errs = append(errs, ParamError{where, fmt.Errorf("part %s: %w", name, err)})
			}
		}
	}
	return slices.DeleteFunc(made, func(x any) bool { return x == nil }), errors.Join(errs...)
}

func namesOf(entries []Entry) (names []string) {
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// example returns a part with its first parameter, as a scenario has it.
func (e Entry) example() string {
	return flow(map[string]any{e.Name: map[string]any{e.Params[0].Name: e.Params[0].Default}})
}

// composed returns how to write a policy some of whose parameters are those of its parts, and the first of these; "" if
// there is none. A parameter of a part may have the name of the part before its own, or be that name alone.
func (e Entry) composed(params map[string]any) (first, text string) {
	at := slices.IndexFunc(e.Params, func(p Param) bool { return p.Type == Parts })
	if at < 0 {
		return "", ""
	}
	own, with := map[string]any{"name": e.Name}, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		part, param := "", ""
		if e.param(name) < 0 {
			part, param = partOf(e.Params[at].Parts, name, params[name])
		}
		if part == "" {
			own[name] = params[name]
			continue
		}
		if first == "" {
			first = name
		}
		if with[part] == nil {
			with[part] = map[string]any{}
		}
		if param != "" {
			with[part].(map[string]any)[param] = params[name]
		}
	}
	if first == "" {
		return "", ""
	}
	list, _ := own[With].([]any)
	list = slices.Clone(list)
	for _, name := range slices.Sorted(maps.Keys(with)) {
		if params := with[name].(map[string]any); len(params) == 0 {
			list = append(list, name)
		} else {
			list = append(list, map[string]any{name: params})
		}
	}
	own[With] = list
	return first, flow(own)
}

// partOf returns the part to which a parameter outside of the parts belongs, and its name there; "" if it is the part
// itself, or if there is none.
func partOf(parts []Entry, name string, value any) (part, param string) {
	for _, e := range parts {
		if e.param(name) >= 0 {
			return e.Name, name
		}
	}
	for _, e := range parts {
		first := e.Params[0]
		if e.Name == name {
			if _, err := first.parse(value); err == nil {
				return name, first.Name
			}
			return name, ""
		}
		before, after, _ := strings.Cut(name, "_")
		if prefix := before == e.Name || slices.Contains(first.Choices, before) || e.Name == "cloning" && before == "clone"; prefix && e.param(after) >= 0 {
			return e.Name, after
		}
	}
	return "", ""
}

// flow returns a value as one line of YAML.
func flow(x any) string {
	switch x := x.(type) {
	case map[string]any:
		keys := slices.SortedFunc(maps.Keys(x), func(a, b string) int { return strings.Compare(order(a), order(b)) })
		for i, k := range keys {
			keys[i] = k + ": " + flow(x[k])
		}
		return "{" + strings.Join(keys, ", ") + "}"
	case []any:
		var all []string
		for _, one := range x {
			all = append(all, flow(one))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case string:
		if x == "" || strings.ContainsFunc(x, func(r rune) bool {
			return !strings.ContainsRune("-_./", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}) {
			return strconv.Quote(x)
		}
	}
	return fmt.Sprint(x)
}

// order returns a text by which the keys of a policy are sorted: its name first, and its parts last.
func order(key string) string {
	switch key {
	case "name":
		return ""
	case With:
		return "~"
	}
	return key
}
