package scenario

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// arms reads a list of arms, or the mapping whose combinations they are.
func (d *decoder) arms(n *yaml.Node, path string) Arms {
	var arms Arms
	var nodes []*yaml.Node
	switch n.Kind {
	case yaml.SequenceNode:
		d.list(n, path, field{minItems: 1}, func(n *yaml.Node, path string) {
			var a Arm
			d.mapping(n, path, reflect.ValueOf(&a).Elem())
			arms, nodes = append(arms, a), append(nodes, n)
		})
		if len(arms) > maxArms {
			d.fail(n, path, "%d: want at most %d arms", len(arms), maxArms)
		}
	case yaml.MappingNode:
		var cross ArmCross
		d.mapping(n, path, reflect.ValueOf(&cross).Elem())
		if len(cross.Placement) == 0 {
			cross.Placement = []Policy{{}}
		}
		if len(cross.Coflow)*len(cross.Placement) > maxArms {
			d.fail(n, path, "%d combinations: want at most %d arms", len(cross.Coflow)*len(cross.Placement), maxArms)
			break
		}
		for _, c := range cross.Coflow {
			for _, p := range cross.Placement {
				arms, nodes = append(arms, Arm{Coflow: c, Placement: p}), append(nodes, n)
			}
		}
	default:
		d.fail(n, path, "%s: want a list of arms, or a mapping such as {coflow: [fair, sebf], placement: [hdfs, sinbad]}", kindOf(n))
	}
	first := map[string]int{}
	for i := range arms {
		a := &arms[i]
		at := path
		if n.Kind == yaml.SequenceNode {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		if a.Name == "" {
			a.Name = a.Coflow.Name
			if a.Placement.Name != "" {
				a.Name += "+" + a.Placement.Name
			}
		}
		if j, ok := first[a.Name]; ok && a.Name != "" && !d.bad[at] && !d.bad[join(at, "name")] {
			d.fail(nodes[i], at, "arm %q again, arm %d has that name: write arms as a list and give each a name of its own", clip(a.Name), j)
		} else {
			first[a.Name] = i
		}
	}
	return arms
}

const maxArms = 100

var policyName = field{minLen: 1, maxLen: 31, pattern: regexp.MustCompile(policyPattern)}

const policyPattern = `^[A-Za-z0-9][A-Za-z0-9._-]*$`

// policy reads a policy's name, or a mapping of name and parameters.
func (d *decoder) policy(n *yaml.Node, path, role string) Policy {
	var p Policy
	named := n
	at := map[string]*yaml.Node{}
	before := len(d.all)
	switch {
	case n.Kind == yaml.ScalarNode && !isNull(n):
		p.Name = n.Value
	case n.Kind == yaml.MappingNode:
		named = nil
		for _, e := range d.entries(n, path) {
			if e.key == "name" {
				named = e.node
				if told(e.node) {
					d.bad[path] = true
					return p
				} else if e.node.Kind != yaml.ScalarNode || isNull(e.node) {
					d.fail(e.node, join(path, "name"), "%s: want the name of a %s policy", kindOf(e.node), role)
					return p
				}
				p.Name = e.node.Value
				continue
			}
			if p.Params == nil {
				p.Params = map[string]any{}
			}
			p.Params[e.key] = d.param(e.node, join(path, e.key))
			at[e.key] = e.node
		}
		if named == nil {
			d.fail(n, join(path, "name"), "missing: want the name of a %s policy", role)
			return p
		}
	case told(n):
		return p
	default:
		d.fail(n, path, "%s: want the name of a %s policy, or a mapping with its name and parameters", kindOf(n), role)
		return p
	}
	if why := policyName.unfit(p.Name); why != "" {
		d.fail(named, path, "%q: %s", clip(p.Name), why)
		p.Name = ""
		return p
	}
	if d.checkPolicy == nil || len(d.all) > before {
		return p
	}
	for _, err := range unjoin(d.checkPolicy(role, p.Name, p.Params)) {
		if key := blamed(err.Error(), sortedKeys(at)); key != "" {
			d.fail(at[key], join(path, key), "%s", strings.TrimPrefix(err.Error(), key+": "))
		} else {
			d.fail(n, path, "%v", err)
		}
	}
	return p
}

// blamed is the parameter that an error is about, "" where it is about none.
func blamed(text string, params []string) string {
	for _, key := range params {
		if strings.HasPrefix(text, key+": ") || strings.Contains(text, ": "+key+": ") || strings.Contains(text, fmt.Sprintf("parameter %q", key)) {
			return key
		}
	}
	return ""
}

func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	// Not errors.As: what wraps joined errors has something to add to them.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, unjoin(e)...)
		}
		return all
	}
	return []error{err}
}

// param reads a parameter of a policy: an int, float64, bool or string, or a
// list or mapping of such.
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
			m[e.key] = d.param(e.node, join(path, e.key))
		}
		return m
	}
	if told(n) {
		return nil
	}
	switch n.Tag {
	case "!!null":
		d.fail(n, path, "no value: want one, or leave the key out")
	case "!!bool":
		return n.Value == "true"
	case "!!int":
		x, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || !wholeNumber.MatchString(n.Value) {
			d.fail(n, path, "%q: want a whole number in decimal, of at most 63 bits", clip(n.Value))
		}
		return int(x)
	case "!!float":
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			d.fail(n, path, "%q: want a finite number", clip(n.Value))
		}
		return x
	}
	return n.Value
}
