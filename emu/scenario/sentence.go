package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"testbed/topo/words"
)

// mostArms is the number of arms that Sentence names.
const mostArms = 8

// Sentence states what a run of the scenario compares: arms, fabric, workload, repeats and seed. It names files as Files.
func (s *Scenario) Sentence() (string, error) {
	var arms, items []string
	for _, a := range s.Spec.Arms {
		arms = append(arms, a.Name)
	}
	for _, item := range s.withPaths(func(t loadedTrace) string { return t.file.Name }).Spec.Workload {
		text, err := item.sentence()
		if err != nil {
			return "", err
		}
		items = append(items, text)
	}
	repeats := words.Plural(s.Spec.Repeat.AtMost, "repeat", "repeats")
	if least := s.Spec.Repeat.AtLeast; least < s.Spec.Repeat.AtMost {
		repeats = fmt.Sprintf("%d to %s", least, repeats)
	}
	return fmt.Sprintf("%s (%s) on %v; workload: %s; %s, seed %d.", words.Plural(len(arms), "arm", "arms"),
		words.First(arms, mostArms), s.Shape(), strings.Join(items, ", "), repeats, s.Spec.Seed), nil
}

// sentence returns the kind of the item and those of its keys that do not have their defaults.
func (i Item) sentence() (string, error) {
	value, err := marshal(i)
	if err != nil {
		return "", err
	}
	var n yaml.Node
	if err := n.Encode(value); err != nil {
		return "", err
	}
	fields := fieldsOf(reflect.TypeOf(value).Elem())
	kind := ""
	var keys []string
	for k := 0; k+1 < len(n.Content); k += 2 {
		key, value := n.Content[k].Value, n.Content[k+1]
		at := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		switch {
		case key == "kind":
			kind = value.Value
		case value.Kind != yaml.ScalarNode:
			keys = append(keys, fmt.Sprintf("%s: %d", key, len(value.Content)))
		case at < 0 || fields[at].initial == nil || *fields[at].initial != value.Value:
			keys = append(keys, key+" "+value.Value)
		}
	}
	if len(keys) == 0 {
		return kind, nil
	}
	return kind + " (" + strings.Join(keys, ", ") + ")", nil
}
