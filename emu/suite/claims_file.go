package suite

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"testbed/results/safefile"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/topo/yamltree"
)

// The keys of the root of a file and of its claims, which docs/suites.md describes.
var (
	fileKeys  = []string{"paper", "tolerance", "original", "inputs", "figures", "parts", "claims"}
	claimKeys = []string{
		"id", "where", "what", "paper", "unit", "here", "measure", "on", "scale", "range", "why", "wide", "direction", "expected", "why_not",
	}
)

// Read reads the file of a suite. The error lists all errors of the file, with line and column.
func Read(path string) (*Suite, error) {
	text, err := safefile.Read(path)
	if err != nil {
		return nil, err
	}
	s := &Suite{Path: path}
	s.Claims.ran = map[string]bool{}
	d := &decoder{name: path, suite: s, places: map[string]*yaml.Node{}}
	if root := yamltree.Parse(text, "claims file", fileKeys, d.fail); root != nil {
		yamltree.Refuse(root, "", "claims files", "", d.fail)
		if len(d.errs) == 0 {
			d.file(root)
		}
	}
	return s, d.err()
}

// FileError is the error of a suite's file: a line for each error, which begins with its place.
type FileError struct{ error }

func (e FileError) Unwrap() error { return e.error }

// err returns the errors, in order of their places.
func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b placed) int { return cmp.Or(a.line-b.line, a.column-b.column) })
	var all []error
	for _, e := range slices.Compact(d.errs) {
		all = append(all, fmt.Errorf("%s:%d:%d: %s", d.name, e.line, e.column, e.text))
	}
	if all == nil {
		return nil
	}
	return FileError{errors.Join(all...)}
}

// decoder turns a tree of YAML nodes into a suite, and continues after an error.
type decoder struct {
	name   string
	suite  *Suite
	places map[string]*yaml.Node // of claims by ID
	errs   []placed
}

type placed struct {
	line, column int
	text         string
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	d.errs = append(d.errs, placed{max(1, n.Line), max(1, n.Column), text})
}

// mapping is a mapping of known keys.
type mapping struct {
	*decoder
	node   *yaml.Node
	path   string
	values map[string]*yaml.Node
}

func (d *decoder) mapping(n *yaml.Node, path string, keys []string) mapping {
	return mapping{d, n, path, yamltree.Mapping(n, path, keys, d.fail)}
}

// failAt reports an error of the value of a key.
func (m mapping) failAt(key, format string, args ...any) {
	m.fail(cmp.Or(m.values[key], m.node), yamltree.Join(m.path, key), format, args...)
}

// text returns the text of a key on one line; it is required if expected is not empty.
func (m mapping) text(key, expected string) string {
	n := m.values[key]
	switch {
	case n == nil:
		if expected != "" && m.node.Kind == yaml.MappingNode {
			m.failAt(key, "missing: expected %s", expected)
		}
	case yamltree.IsNull(n): // reported
	case n.Kind != yaml.ScalarNode || strings.TrimSpace(n.Value) == "":
		m.failAt(key, "%s: expected text", yamltree.Describe(n))
	default:
		return strings.Join(strings.Fields(n.Value), " ")
	}
	return ""
}

// choice returns the text of a key that has one of these values.
func (m mapping) choice(key string, values []string, required bool) string {
	expected := ""
	if required {
		expected = words.Or(values)
	}
	text := m.text(key, expected)
	if text != "" && !slices.Contains(values, text) {
		m.failAt(key, "%q: expected %s", units.Clip(text), words.Or(values))
		return ""
	}
	return text
}

// file reads the root of a file.
func (d *decoder) file(root *yaml.Node) {
	m := d.mapping(root, "", fileKeys)
	claims := &d.suite.Claims
	claims.Paper = m.text("paper", "authors, venue and year of the paper")
	if b, ok := m.bounds("tolerance", true); ok {
		if claims.Tolerance = b; b.Low <= 0 || b.Low > 1 || b.High < 1 || math.IsInf(b.High, 0) {
			m.failAt("tolerance", "%s: expected factors of the paper's effects, such as [0.5, 2]", b.text(""))
		}
	}
	d.setup(m, m.text("original", ""))
	list := m.values["claims"]
	switch {
	case list == nil:
		m.text("claims", "a list of claims")
	case list.Kind != yaml.SequenceNode || len(list.Content) == 0:
		m.failAt("claims", "%s: expected a list of claims", yamltree.Describe(list))
	default:
		for i, n := range list.Content {
			d.claim(d.mapping(n, fmt.Sprintf("claims[%d]", i), claimKeys))
		}
	}
}

// claim reads a claim.
func (d *decoder) claim(m mapping) {
	c := Claim{
		ID: m.text("id", "a part, a slash and a name"), Where: m.text("where", "a section, table or figure of the paper"), What: m.text("what", "what the figure is"),
		Unit: m.text("unit", `a unit such as × or %, or none`), Direction: m.direction(), Required: m.choice("expected", levels, true), WhyNot: m.text("why_not", ""),
	}
	if c.Unit == "none" {
		c.Unit = ""
	}
	p := d.suite.part(c.part())
	c.On, c.Scale = m.choice("on", backends, false), m.text("scale", "")
	if p != nil {
		c.Original, c.Scale = p.original, cmp.Or(c.Scale, p.scale)
		c.Command = fmt.Sprintf("testbed suite %s --only %s", d.suite.Path, p.name)
	}
	if c.On != nothing {
		if c.target = d.target(m, &c); c.target != nil {
			c.On = c.target.variants[0].on
		}
		c.Here, c.Why, c.Wide = m.text("here", "what is measured"), m.text("why", "the reason for the range"), m.text("wide", "")
	}
	if c.ID != "" {
		_, name, _ := strings.Cut(c.ID, "/")
		first := d.places[c.ID]
		switch {
		case name == "" || p == nil:
			m.failAt("id", "%q: expected a part (%s), a slash and a name", units.Clip(c.ID), words.Or(d.suite.partNames()))
		case first != nil:
			m.failAt("id", "%q: first on line %d: expected another name", units.Clip(c.ID), first.Line)
		case c.Scale == "" && c.On != nothing:
			m.failAt("id", "scale: missing: expected it in the claim or in parts.%s", c.part())
		}
		d.places[c.ID] = m.node
	}
	c.Paper = m.paper(c.Unit)
	if r, ok := m.bounds("range", c.On != nothing); ok {
		c.Range = r
		m.consistent(c)
	}
	switch {
	case c.On == nothing && (c.Required != "false" || m.values["range"] != nil || m.values["here"] != nil || m.values["why"] != nil):
		m.failAt("expected", "no part measures this claim (on: nothing): expected false, and no range, why or here")
	case c.Required == mustHold && c.WhyNot != "":
		m.failAt("why_not", "given with expected: true: leave it out")
	case slices.Contains(levels[1:], c.Required) && m.values["why_not"] == nil:
		m.failAt("expected", "%s: expected why_not too, the reason", c.Required)
	case c.Required == directionSuffices && m.values["direction"] == nil:
		m.failAt("expected", "direction: expected the key direction too, such as above 1")
	}
	d.suite.Claims.Claims = append(d.suite.Claims.Claims, c)
}

// consistent reports a claim that cannot be reproduced, and one that cannot fail.
func (m mapping) consistent(c Claim) {
	switch d := c.Direction; {
	case d != nil && c.Unit == "×" && d.Than <= 0:
		m.failAt("direction", "%v: a factor has an effect relative to a positive value: expected such as above 1", *d)
	case d != nil && c.Required != "false" && !d.reaches(c.Range):
		m.failAt("range", "%s: expected values %v too, the direction", c.Range.text(c.Unit), *d)
	case d != nil && c.Paper != nil && !d.reaches(*c.Paper):
		m.failAt("paper", "%s: expected a figure %v, the direction", c.Paper.text(c.Unit), *d)
	}
	switch none := (Bounds{1, 1}); {
	case c.Wide != "":
	case c.Range.wide():
		m.failAt("range", "%s: the ends are more than a factor of 2 apart: expected a narrower range, or the reason in the key wide", c.Range.text(c.Unit))
	case c.Unit == "×" && c.Direction == nil && c.Paper != nil && c.Range.overlaps(none) && !c.Paper.overlaps(none):
		m.failAt("range", "%s: it includes 1, no effect, and the paper's figure is %s: expected a range on one side, a direction, or the reason in the key wide",
			c.Range.text(c.Unit), c.Paper.text(c.Unit))
	}
}

// as is the word before the ID of an earlier claim, whose figure of the paper it is.
const as = "as "

// paper returns the paper's figure, nil for none.
func (m mapping) paper(unit string) *Bounds {
	n := m.values["paper"]
	if n != nil && n.Kind == yaml.ScalarNode && n.Value == "none" {
		return nil
	}
	if n != nil && n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Value, as) {
		other := m.suite.Claims.find(strings.TrimSpace(strings.TrimPrefix(n.Value, as)))
		switch {
		case other == nil || other.Paper == nil:
			m.failAt("paper", "%q: expected an earlier claim with a figure of the paper", units.Clip(n.Value))
		case other.Unit != unit:
			m.failAt("paper", "%q: a figure in %q, and this claim has %q: expected the same unit", units.Clip(n.Value), other.Unit, unit)
		default:
			return other.Paper
		}
		return nil
	}
	b, ok := m.bounds("paper", true)
	if !ok {
		return nil
	}
	return &b
}

var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

const boundsRule = "expected a number, or a list of the lower and the upper bound, one of which can be -inf or inf"

// bounds returns the number or the bounds of a key.
func (m mapping) bounds(key string, required bool) (Bounds, bool) {
	n := m.values[key]
	if n == nil || yamltree.IsNull(n) {
		if n == nil && required && m.node.Kind == yaml.MappingNode {
			m.failAt(key, "missing: %s", boundsRule)
		}
		return Bounds{}, false
	}
	ends := []*yaml.Node{n, n}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 2 {
		ends = n.Content
	}
	var b Bounds
	for i, end := range []*float64{&b.Low, &b.High} {
		x, err := strconv.ParseFloat(ends[i].Value, 64)
		switch open := []string{"-inf", "inf"}[i]; {
		case ends[i].Kind == yaml.ScalarNode && n.Kind == yaml.SequenceNode && ends[i].Value == open:
			x = math.Inf(2*i - 1)
		case ends[i].Kind != yaml.ScalarNode || !decimal.MatchString(ends[i].Value) || err != nil:
			m.fail(ends[i], yamltree.Join(m.path, key), "%s: %s", yamltree.Describe(ends[i]), boundsRule)
			return Bounds{}, false
		}
		*end = x
	}
	if b.Low > b.High || math.IsInf(b.Low, 0) && math.IsInf(b.High, 0) {
		m.failAt(key, "%v to %v: expected a lower bound that is at most the upper one, and a number among them", b.Low, b.High)
		return Bounds{}, false
	}
	return b, true
}

// direction returns the direction of a claim, nil for none.
func (m mapping) direction() *Direction {
	text := m.text("direction", "")
	if text == "" {
		return nil
	}
	side, value, _ := strings.Cut(text, " ")
	x, err := strconv.ParseFloat(value, 64)
	if side != "above" && side != "below" || !decimal.MatchString(value) || err != nil {
		m.failAt("direction", `%q: expected above or below and a number, such as "above 1"`, units.Clip(text))
		return nil
	}
	return &Direction{side == "above", x}
}
