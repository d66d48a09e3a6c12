package scenario

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"testbed/topo/yamltree"

	"go.yaml.in/yaml/v4"
)

// Value is one value of a scenario, with variables replaced and defaults filled in.
type Value struct {
	Key       string // such as "fabric.host_link" or "workload[0].blocks"
	Text      string // as in YAML; for a trace, its file and checksum
	Line, Col int    // in the scenario file; 0 for a default
	compared  string
}

// Differs is a value in which two scenarios differ. A or B is nil if its scenario does not have
// the value.
type Differs struct {
	Key  string
	A, B *Value
}

// notWorkload are the keys that affect neither the workload nor the cluster: two scenarios that
// differ only in them have the same workload.
var notWorkload = []string{"version", "name", "arms", "repeat", "tries", "capture", "limits", "disk.dir"}

// Covers reports whether a key is a named one, or within it: "fabric" covers "fabric.queue".
func Covers(named, key string) bool {
	return key == named || within(key, named) || strings.HasPrefix(key, named+"[")
}

// Unpaired returns why runs that differ in a key have no pairs, or "" if they have. Runs of different seeds have
// none: their pairs are pooled.
func Unpaired(key string) string {
	for _, named := range workKeys {
		if key != "seed" && Covers(named, key) {
			return named + " decides which work exists, and on which hosts: runs that differ in it have no pairs"
		}
	}
	return ""
}

// CanVary returns an error unless runs that differ in a key, or in keys within it, can be compared.
func CanVary(key string) error {
	if !known(reflect.TypeFor[Spec](), key) {
		return fmt.Errorf("unknown key %q of scenarios", key)
	}
	if why := Unpaired(key); why != "" {
		return fmt.Errorf("key %s: %s", key, why)
	}
	return nil
}

// WorkloadDiffers returns the values in which the workloads or clusters of two scenarios
// differ, in order of key. It ignores version, name, arms, repeat, attempts, capture, limits and
// the directory of disks. Traces are compared by content.
func WorkloadDiffers(a, b *Scenario) ([]Differs, error) {
	left, err := a.values()
	if err != nil {
		return nil, err
	}
	right, err := b.values()
	if err != nil {
		return nil, err
	}
	var out []Differs
	for key, v := range left {
		if w, ok := right[key]; !ok {
			out = append(out, Differs{key, v, nil})
		} else if v.compared != w.compared {
			out = append(out, Differs{key, v, w})
		}
	}
	for key, w := range right {
		if left[key] == nil {
			out = append(out, Differs{key, nil, w})
		}
	}
	slices.SortFunc(out, func(x, y Differs) int { return strings.Compare(x.Key, y.Key) })
	return out, nil
}

// values returns the values of the scenario's workload and cluster, by key.
func (s *Scenario) values() (map[string]*Value, error) {
	if len(s.points) > 0 {
		all := map[string]*Value{}
		for _, p := range s.points {
			values, err := p.Scenario.values()
			if err != nil {
				return nil, err
			}
			for key, v := range values {
				v.Key = p.Name() + ": " + key
				all[v.Key] = v
			}
		}
		return all, nil
	}
	resolved, err := s.Resolved()
	if err != nil {
		return nil, err
	}
	out := map[string]*Value{}
	if err := leaves(resolved, func(key string, n *yaml.Node) {
		for _, k := range notWorkload {
			if key == k || strings.HasPrefix(key, k+".") || strings.HasPrefix(key, k+"[") {
				return
			}
		}
		out[key] = &Value{Key: key, Text: n.Value, compared: n.Value}
	}); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Spec.Name, err)
	}
	for i, t := range s.traces {
		if v := out[fmt.Sprintf("workload[%d].path", i)]; v != nil && t.held() {
			v.compared = t.sum
			v.Text = fmt.Sprintf("%s (SHA-256 %.12s)", path.Base(t.file.Name), t.sum)
		}
	}
	for key, v := range out {
		if n := s.decoded.at[key]; n != nil {
			v.Line, v.Col = n.Line, n.Column
		}
	}
	return out, nil
}

// leaves calls f for each scalar of a YAML document, and each empty list or mapping.
func leaves(data []byte, f func(key string, n *yaml.Node)) error {
	var doc yaml.Node
	if err := yaml.Load(data, &doc, yaml.WithUniqueKeys(false)); err != nil {
		return err
	}
	var walk func(key string, n *yaml.Node)
	walk = func(key string, n *yaml.Node) {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		switch {
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			walk(key, n.Content[0])
		case n.Kind == yaml.MappingNode && len(n.Content) > 0:
			for k, v := range yamltree.Pairs(n) {
				walk(yamltree.Join(key, k.Value), v)
			}
		case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
			for i, c := range n.Content {
				walk(fmt.Sprintf("%s[%d]", key, i), c)
			}
		default:
			f(key, n)
		}
	}
	walk("", &doc)
	return nil
}
