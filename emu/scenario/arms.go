package scenario

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/topo/yamltree"
)

// arms reads a list of arms, or a mapping that stands for all its combinations.
func (d *decoder) arms(n *yaml.Node, path string) Arms {
	var arms Arms
	switch n.Kind {
	case yaml.SequenceNode:
		d.list(n, path, field{minItems: 1, maxItems: maxArms}, func(n *yaml.Node, path string) {
			a := Arm{Policies: map[string]Policy{}}
			d.mapping(n, path, reflect.ValueOf(&a).Elem())
			changes := armChanges{place: n, path: path + ".set"}
			if set := valueOf(n, "set"); set != nil && !yamltree.IsNull(set) {
				changes.all = d.changes(set, changes.path, change{})
			}
			d.addArm(&arms, a, changes, nil)
		})
	case yaml.MappingNode:
		d.crossed(n, path, &arms)
	default:
		d.fail(n, path, "%s: %s", yamltree.Describe(n), d.expectedOf(reflect.TypeFor[Arms](), field{}))
	}
	first := map[string]int{}
	for i, a := range arms {
		at := path
		if n.Kind == yaml.SequenceNode {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		if j, ok := first[a.Name]; ok && a.Name != "" && !d.bad[at] && !d.bad[yamltree.Join(at, "name")] {
			d.fail(d.armChanges[i].place, at,
				"name %q is the name of arm %d: write arms as a list and give each a unique name", clip(a.Name), j)
		} else {
			first[a.Name] = i
		}
	}
	return arms
}

// addArm appends an arm with its changes. The default of its name consists of its policies and the labels of
// its changes or, if it has none of both, of the policies that every arm has.
func (d *decoder) addArm(arms *Arms, a Arm, changes armChanges, labels []string) {
	d.overlapping(changes.all, changes.path)
	a.Set = values(changes.all)
	var names []string
	for _, r := range d.catalog {
		if name := a.Policies[r.Name].label(); name != "" {
			names = append(names, name)
		}
	}
	if labels == nil {
		for _, c := range changes.all {
			labels = append(labels, c.label(0))
		}
	}
	names = append(names, labels...)
	for _, r := range d.catalog {
		if _, stated := a.Policies[r.Name]; !stated && r.Required == catalog.Always && r.Default != "" {
			a.Policies[r.Name] = Policy{Name: r.Default}
			if len(names) == 0 {
				names = []string{r.Default}
			}
		}
	}
	if a.Name == "" {
		a.Name = strings.Join(names, "+")
		if why := keyOf[Arm]("name").unfit(a.Name); why != "" && len(changes.all) > 0 {
			d.fail(changes.place, parent(changes.path+"."), "name %q: %s: write arms as a list and name each", clip(a.Name), why)
		}
	}
	*arms, d.armChanges = append(*arms, a), append(d.armChanges, changes)
}

// crossed reads a mapping of policies and of values of keys of the scenario. In the order of arms, policies vary in
// the order of the catalog, then keys in the order of the file, the last fastest.
func (d *decoder) crossed(n *yaml.Node, path string, arms *Arms) {
	if len(n.Content) == 0 {
		d.fail(n, path, "empty: %s", d.expectedOf(reflect.TypeFor[Arms](), field{}))
		return
	}
	cross := ArmCross{map[string][]Policy{}}
	roles := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
	type option struct {
		changes []change
		label   string
	}
	var keys [][]option
	for k, v := range yamltree.Pairs(n) {
		first, _, _ := strings.Cut(k.Value, ".")
		if slices.Contains(d.catalog.Roles(), k.Value) || !known(reflect.TypeFor[Spec](), first) {
			roles.Content = append(roles.Content, k, v)
			continue
		}
		at := yamltree.Join(path, k.Value)
		var options []option
		before := len(d.all)
		d.list(v, at, field{minItems: 1}, func(v *yaml.Node, _ string) {
			if len(d.all) > before {
				return // the key has the error, not each value
			}
			c := change{}.below(k, v)
			options = append(options, option{d.change(c, at), c.label(len(options))})
		})
		if len(options) > 0 {
			keys = append(keys, options)
		}
	}
	d.mapping(roles, path, reflect.ValueOf(&cross).Elem())
	combinations := 1
	times := func(n int) {
		if n > 0 {
			combinations = min(combinations*n, 1<<40) // no overflow, however long the next list
		}
	}
	for _, r := range d.catalog {
		times(len(cross.Policies[r.Name]))
	}
	for _, options := range keys {
		times(len(options))
	}
	if combinations > maxArms {
		d.fail(n, path, "%d combinations: must be at most %d", combinations, maxArms)
		return
	}
	for i := range combinations {
		a, changes := Arm{Policies: map[string]Policy{}}, armChanges{place: n, path: path}
		labels := make([]string, len(keys))
		for j, options := range slices.Backward(keys) {
			o := options[i%len(options)]
			i /= len(options)
			labels[j], changes.all = o.label, slices.Concat(o.changes, changes.all)
		}
		for _, r := range slices.Backward(d.catalog) {
			if list := cross.Policies[r.Name]; len(list) > 0 {
				a.Policies[r.Name] = list[i%len(list)]
				i /= len(list)
			}
		}
		d.addArm(arms, a, changes, labels)
	}
}

const maxArms = 100

var policyName = field{minLen: 1, maxLen: 31, pattern: regexp.MustCompile(policyPattern)}

const policyPattern = `^[A-Za-z0-9][A-Za-z0-9._-]*$`

// policy reads the name of a policy, or a mapping of name and parameters.
func (d *decoder) policy(n *yaml.Node, path, role string) Policy {
	var p Policy
	named := n
	before := len(d.all)
	switch {
	case n.Kind == yaml.ScalarNode && !yamltree.IsNull(n):
		p.Name = n.Value
	case n.Kind == yaml.MappingNode:
		named = nil
		for _, e := range d.entries(n, path) {
			if e.key == "name" {
				named = e.node
				if reported(e.node) {
					d.bad[path] = true
					return p
				} else if e.node.Kind != yaml.ScalarNode || yamltree.IsNull(e.node) {
					d.fail(e.node, yamltree.Join(path, "name"), "%s: expected the name of a %s policy", yamltree.Describe(e.node), role)
					return p
				}
				p.Name = e.node.Value
				continue
			}
			if p.Params == nil {
				p.Params = map[string]any{}
			}
			p.Params[e.key] = d.param(e.node, yamltree.Join(path, e.key))
		}
		for _, outside := range []string{catalog.Exec, catalog.Wasm} {
			if _, is := p.Params[outside]; named == nil && is {
				named, p.Name = n, outside
			}
		}
		if named == nil {
			d.fail(n, yamltree.Join(path, "name"), "missing: expected the name of a %s policy", role)
			return p
		}
	case reported(n):
		return p
	default:
		d.fail(n, path, "%s: expected the name of a %s policy, or a mapping with its name and parameters", yamltree.Describe(n), role)
		return p
	}
	if why := policyName.unfit(p.Name); why != "" {
		d.fail(named, path, "%q: %s", clip(p.Name), why)
		p.Name = ""
		return p
	}
	if len(d.all) > before {
		return p
	}
	errs := d.catalog.Check(role, p.Name, p.Params)
	if len(errs) == 0 {
		d.policies = append(d.policies, namedPolicy{path, role, p})
	}
	for _, err := range errs {
		where := path
		if one := (catalog.ParamError{}); errors.As(err, &one) {
			for key := range strings.SplitSeq(one.Param, ".") {
				where = yamltree.Join(where, key)
			}
		}
		if at := d.at[where]; at != nil && where != path {
			d.fail(at, where, "%v", err)
		} else {
			d.fail(n, path, "%v", err)
		}
	}
	return p
}

// label returns the part of the name of an arm that stands for the policy.
func (p Policy) label() string {
	list, _ := p.Params[catalog.Exec].([]any)
	var command []string
	if module, ok := p.Params[catalog.Wasm].(string); ok && p.Name == catalog.Wasm {
		command = []string{module}
	} else if p.Name != catalog.Exec || len(list) == 0 {
		return p.Name
	}
	for _, x := range list {
		command = append(command, fmt.Sprint(x))
	}
	return external.Name(command)
}

// param reads a parameter of a policy: an int, float64, bool or string, or a
// list or mapping of them.
func (d *decoder) param(n *yaml.Node, path string) any {
	d.at[path] = n
	switch n.Kind {
	case yaml.SequenceNode:
		list := []any{}
		for i, c := range n.Content {
			list = append(list, d.param(c, fmt.Sprintf("%s[%d]", path, i)))
		}
		return list
	case yaml.MappingNode:
		m := map[string]any{}
		for _, e := range d.entries(n, path) {
			m[e.key] = d.param(e.node, yamltree.Join(path, e.key))
		}
		return m
	}
	if reported(n) {
		return nil
	}
	if zero := yamltree.LeadingZero(n.Value); zero != "" && plain(n) {
		d.fail(n, path, "%q: expected a number%s", clip(n.Value), zero)
		return nil
	}
	switch n.Tag {
	case "!!null":
		d.fail(n, path, "no value: add one, or leave the key out")
	case "!!bool":
		return n.Value == "true"
	case "!!int":
		x, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || !yamltree.WholeNumber.MatchString(n.Value) {
			d.fail(n, path, "%q: expected a decimal whole number of at most 63 bits", clip(n.Value))
		}
		return int(x)
	case "!!float":
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			d.fail(n, path, "%q: must be finite", clip(n.Value))
		}
		return x
	}
	return n.Value
}
