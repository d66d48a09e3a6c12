package scenario

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"testbed/topo/yamltree"
)

// Assignment is a value of a variable.
type Assignment struct{ Name, Value string }

// Point is one value of each swept variable, in the order of the sweep, and the scenario with those values. That has
// no sweep of its own. Traces that points have in common are read once.
type Point struct {
	Values   []Assignment
	Scenario *Scenario
}

// Name returns the values as the name of a directory, such as "over=1to1,load=0.2"; "" without values.
func (p Point) Name() string { return pointName(p.Values) }

func pointName(values []Assignment) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, v.Name+"="+nameOf(v.Value))
	}
	return strings.Join(parts, ",")
}

// maxPoints is the largest number of points of a sweep.
const maxPoints = 1000

// maxPointName is the longest name of a point, in bytes. File systems allow 255 bytes in the name of a directory.
const maxPointName = 200

// The keys of a sweep that are not variables.
const (
	excludeKey = "exclude"
	includeKey = "include"
)

// swept is the sweep of a file.
type swept struct {
	names  []string
	values map[string][]*yaml.Node
	points [][]Assignment
}

// sweep reads the points of a sweep. set has the variables of --set.
func (d *decoder) sweep(n, vars *yaml.Node, set map[string]string) *swept {
	s := &swept{values: map[string][]*yaml.Node{}}
	const path = "sweep"
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		if !reported(n) {
			d.fail(n, path, "%s: expected a mapping of variables to lists of values", yamltree.Describe(n))
		}
		return s
	}
	var lists []entry // exclude and include
	for _, e := range d.entries(n, path) {
		at := yamltree.Join(path, e.key)
		_, isSet := set[e.key]
		switch {
		case e.key == excludeKey || e.key == includeKey:
			lists = append(lists, e)
			continue
		case valueOf(vars, e.key) == nil:
			var names []string
			for k := range yamltree.Pairs(vars) {
				names = append(names, k.Value)
			}
			d.fail(e.name, at, "no variable: declare it under vars%s", didYouMean(e.key, names))
			continue
		case isSet:
			d.fail(e.name, at, "set by --set, but swept: choose points with --point %s=%s", e.key, clip(set[e.key]))
			continue
		}
		d.list(e.node, at, field{minItems: 1}, func(v *yaml.Node, at string) {
			if d.one(v, at) {
				s.values[e.key] = append(s.values[e.key], v)
			}
		})
		s.names = append(s.names, e.key)
	}
	if len(d.all) > 0 {
		return s
	}
	count := 1
	for _, name := range s.names {
		count = min(count*len(s.values[name]), maxPoints+1)
	}
	if count > maxPoints {
		d.fail(n, path, "more than %d points: sweep fewer values", maxPoints)
		return s
	}
	for i := range count {
		point := make([]Assignment, len(s.names))
		for j, name := range slices.Backward(s.names) { // the last variable varies fastest
			values := s.values[name]
			point[j] = Assignment{name, values[i%len(values)].Value}
			i /= len(values)
		}
		s.points = append(s.points, point)
	}
	if len(s.names) == 0 {
		s.points = nil
	}
	for _, e := range lists {
		d.list(e.node, yamltree.Join(path, e.key), field{}, func(n *yaml.Node, at string) { d.clude(s, n, at, e.key == excludeKey) })
	}
	d.named(s, n, path)
	return s
}

// one reports whether a value is one value, for a variable.
func (d *decoder) one(v *yaml.Node, path string) bool {
	if v.Kind != yaml.ScalarNode || yamltree.IsNull(v) {
		if !reported(v) {
			d.fail(v, path, "%s: expected one value", yamltree.Describe(v))
		}
		return false
	}
	return true
}

// clude removes the points that have all values of a mapping, or adds the point of its values.
func (d *decoder) clude(s *swept, n *yaml.Node, path string, exclude bool) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		if !reported(n) {
			d.fail(n, path, "%s: expected a mapping of swept variables to values", yamltree.Describe(n))
		}
		return
	}
	before := len(d.all)
	values := map[string]string{}
	for _, e := range d.entries(n, path) {
		at := yamltree.Join(path, e.key)
		switch {
		case !slices.Contains(s.names, e.key):
			d.fail(e.name, at, "not swept%s", cmp.Or(didYouMean(e.key, s.names), ": expected "+strings.Join(s.names, ", ")))
		case d.one(e.node, at):
			values[e.key] = e.node.Value
		}
	}
	if len(d.all) > before {
		return
	}
	if exclude {
		had := len(s.points)
		s.points = slices.DeleteFunc(s.points, func(point []Assignment) bool {
			return !slices.ContainsFunc(point, func(a Assignment) bool {
				value, stated := values[a.Name]
				return stated && value != a.Value
			})
		})
		if len(s.points) == had {
			d.fail(n, path, "excludes no point: leave it out, or write values as the sweep does")
		}
		return
	}
	var point []Assignment
	for _, name := range s.names {
		value, ok := values[name]
		if !ok {
			d.fail(n, path, "no value of %s: a point has a value of every swept variable", name)
			return
		}
		point = append(point, Assignment{name, value})
	}
	s.points = append(s.points, point)
}

// named checks the number and the names of points.
func (d *decoder) named(s *swept, n *yaml.Node, path string) {
	switch {
	case len(d.all) > 0:
		return
	case len(s.points) == 0:
		d.fail(n, path, "no points: expected at least one variable with a value that is not excluded")
	case len(s.points) > maxPoints:
		d.fail(n, path, "more than %d points: sweep fewer values", maxPoints)
	}
	first := map[string][]Assignment{}
	for _, point := range s.points {
		name := pointName(point)
		if len(name) > maxPointName {
			d.fail(n, path, "a point has the name %q of %d bytes: must be at most %d", clip(name), len(name), maxPointName)
			return
		}
		if first[name] != nil {
			d.fail(n, path, "two points have the name %s: write each point once, with values whose letters, digits or signs (._+-) differ", name)
			return
		}
		first[name] = point
	}
}

// parsePoints reads the scenario of every point. The result has the values of the first point.
func parsePoints(name string, data []byte, o Options, sw *swept) (*Scenario, error) {
	all := &Scenario{}
	var failed []*Errors
	for _, values := range sw.points {
		s, whole, err := parse(name, data, o, values)
		var invalid *Errors
		switch {
		case errors.As(err, &invalid):
			failed = append(failed, &Errors{Problems: invalid.Problems, at: pointName(values)})
			continue
		case err != nil:
			return nil, err
		case len(all.points) == 0:
			*all = *s
			all.source = whole
		}
		all.points = append(all.points, Point{values, s})
	}
	if len(failed) > 0 {
		return nil, ofPoints(name, failed, len(sw.points))
	}
	return all, all.distinctFiles()
}

// ofPoints joins the errors of points. An error of all points is reported once; others name their points.
func ofPoints(file string, failed []*Errors, points int) error {
	out := problems{file: file}
	at := map[Problem][]string{}
	for _, e := range failed {
		for _, p := range e.Problems {
			if at[p] == nil {
				out.all = append(out.all, p)
			}
			at[p] = append(at[p], e.at)
		}
	}
	for i, p := range out.all {
		if names := at[p]; len(names) < points {
			text := "point " + names[0]
			if len(names) > 1 {
				text += fmt.Sprintf(" and %d others", len(names)-1)
			}
			out.all[i].Text = text + ": " + p.Text
		}
	}
	return out.err()
}

// distinctFiles reports files of points that have one name in Files.
func (s *Scenario) distinctFiles() error {
	sums := map[string]string{}
	for _, p := range s.points {
		for i, t := range p.Scenario.traces {
			if !t.held() {
				continue
			}
			if sum := sums[t.file.Name]; sum != "" && sum != t.sum {
				at := fmt.Sprintf("workload[%d].path", i)
				return &Errors{Problems: []Problem{s.Problem(at, fmt.Sprintf("two files of the sweep are stored as %s: rename one of them", t.file.Name))}}
			}
			sums[t.file.Name] = t.sum
		}
		for _, t := range p.Scenario.policies {
			if sum := sums[t.file.Name]; sum != "" && sum != t.sum {
				return &Errors{Problems: []Problem{s.Problem("arms", fmt.Sprintf("two files of the sweep are stored as %s: rename one of them", t.file.Name))}}
			}
			sums[t.file.Name] = t.sum
		}
	}
	return nil
}

// Points returns the points of the sweep in its order, in which the last variable varies fastest, and then those that
// include adds. Without a sweep it returns one point without values and with s.
//
// The other methods of a scenario with a sweep, and its Spec, are those of its first point, except for Source, Files,
// Resolved, Fingerprint and WorkloadDiffers, which are of all points.
func (s *Scenario) Points() []Point {
	if len(s.points) == 0 {
		return []Point{{Scenario: s}}
	}
	return slices.Clone(s.points)
}

// Choose returns the points that have all values of a mapping of swept variables; all points if that is empty.
func (s *Scenario) Choose(values map[string]string) ([]Point, error) {
	points := s.Points()
	for _, name := range sortedKeys(values) {
		var names, known []string
		var have []Point
		for _, p := range points {
			for _, v := range p.Values {
				if !slices.Contains(names, v.Name) {
					names = append(names, v.Name)
				}
				if v.Name != name {
					continue
				}
				if !slices.Contains(known, v.Value) {
					known = append(known, v.Value)
				}
				if v.Value == values[name] {
					have = append(have, p)
				}
			}
		}
		switch {
		case len(names) == 0:
			return nil, fmt.Errorf("point %s=%s: scenario %s has no sweep", name, clip(values[name]), s.Spec.Name)
		case len(known) == 0:
			hint := cmp.Or(didYouMean(name, names), ": expected "+strings.Join(names, ", "))
			return nil, fmt.Errorf("point %s=%s: %s is not swept%s", name, clip(values[name]), name, hint)
		case len(have) == 0:
			return nil, fmt.Errorf("point %s=%s: no such value: expected %s",
				name, clip(values[name]), strings.Join(known, ", "))
		}
		points = have
	}
	return points, nil
}

// resolvedPoints returns a document for each point, after a comment with its name.
func (s *Scenario) resolvedPoints() ([]byte, error) {
	var docs [][]byte
	for _, p := range s.points {
		text, err := p.Scenario.Resolved()
		if err != nil {
			return nil, err
		}
		docs = append(docs, append([]byte("# point "+p.Name()+"\n"), text...))
	}
	return bytes.Join(docs, []byte("---\n")), nil
}

// fingerprintOfPoints returns a SHA-256, in hex, of the names and the fingerprints of the points.
func (s *Scenario) fingerprintOfPoints() (string, error) {
	sum := sha256.New()
	for _, p := range s.points {
		f, err := p.Scenario.Fingerprint()
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, p.Name(), f)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// pointSource returns the file of a point: without variables and sweep, and with the names of Files as paths.
func (s *substituter) pointSource(root *yaml.Node) ([]byte, error) {
	for n, name := range s.paths {
		n.Value, n.Style, n.Tag = name, yaml.DoubleQuotedStyle, "!!str"
	}
	var escape func(n *yaml.Node)
	escape = func(n *yaml.Node) {
		n.Value = strings.ReplaceAll(n.Value, "$", "$$")
		for _, c := range n.Content {
			escape(c)
		}
	}
	escape(root)
	for i := 0; i < len(root.Content); {
		if key := root.Content[i].Value; key == "vars" {
			root.Content = slices.Delete(root.Content, i, i+2)
			continue
		}
		i += 2
	}
	return yaml.Dump(root, yaml.WithLineWidth(-1))
}

// sweptName returns the name in Files of a file whose path a swept variable is part of: the path itself, as the
// variable stays in Source.
func sweptName(name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", fmt.Errorf("%s: a path with a swept variable must be below the directory of the scenario file",
			clip(name))
	}
	return path.Clean(filepath.ToSlash(name)), nil
}
