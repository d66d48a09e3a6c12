package suite

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"testbed/emu/flowsim/comparison"
	"testbed/policies/catalog"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/topo/yamltree"
	"testbed/workloads"
)

// input is a file that the user gives (--set name=path), and how large it is for the claims about it.
type input struct {
	name, what                      string
	coflows, ports, megabytes, jobs int
}

// part is an experiment of a suite: its variants, each with all its pairs of arms.
type part struct {
	name, title, doc, original, scale string
	optional                          bool // it runs only if it is named
	variants                          []*variant
	columns                           []*figure
}

// variant is what runs: a scenario with assignments to its variables, or policies on a trace.
type variant struct {
	name, title string
	path        string // of keys, in errors
	node        *yaml.Node

	on       string            // one of backends
	scenario string            // path
	set      map[string]string // assignments to variables of the scenario
	needs    []string          // inputs
	// Repeats are times of those asked for, fluidTimes without packets, and at most most; 0 is no limit.
	times, fluidTimes, most int
	estimates               string // variant whose last estimates this one is given, or ""
	reference               *float64

	trace    string         // file or generated
	derive   map[string]int // see derivations
	policies []comparison.Policy
	interval time.Duration // of the coordinator in the flow-level simulator, which counts nothing without it

	base, arm string // one is "" if all others take its place in turn
	pairs     []pair
}

// pair is two arms that are compared; base is "" for figures of an arm alone.
type pair struct{ name, title, base, arm string }

// ofTrace reports whether a variant runs in the flow-level simulator.
func (v *variant) ofTrace() bool { return v.on == simulator }

// variant returns a variant by name, nil for none.
func (p *part) variant(name string) *variant {
	i := slices.IndexFunc(p.variants, func(v *variant) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return p.variants[i]
}

// over returns the pairs of a variant that has these arms.
func (v *variant) over(arms []string) []pair {
	if len(v.pairs) > 0 {
		return v.pairs
	}
	if (v.base == "") == (v.arm == "") {
		return []pair{{base: v.base, arm: v.arm}}
	}
	var out []pair
	for _, name := range arms {
		if name != cmp.Or(v.base, v.arm) {
			out = append(out, v.pairOf(name))
		}
	}
	if out == nil {
		return []pair{{base: v.base, arm: v.arm}}
	}
	return out
}

// pairOf returns the pair of an arm with the one that all others are compared with.
func (v *variant) pairOf(name string) pair {
	return pair{name, name, cmp.Or(v.base, name), cmp.Or(v.arm, name)}
}

// target is what a claim measures.
type target struct {
	part       *part
	variants   []*variant // evaluated together
	pair       pair
	figure     *figure
	references bool // one of all variants: the largest difference to their references
}

type trace = workloads.Trace

// derivations derive a trace from another, in this order.
var derivations = []struct {
	name, doc string
	of        func(*trace, int) (*trace, error)
}{
	{"first", "only the first N coflows", nil},
	{"max_mb", "only coflows of at most N MB, before first", nil},
	{"low_skew", "only coflows whose largest flow is more than N times their smallest", lowSkew},
	{"wide", "only coflows of more than N flows", workloads.WideOnly},
	{"map_skew", "the skew among mappers of Mantri's clusters, from seed N", func(t *trace, n int) (*trace, error) {
		return workloads.MantriLike(t, workloads.MantriSkew, units.MB, uint64(n))
	}},
	{"replicate", "N copies of each coflow on N times the ports", workloads.Replicate},
}

// derived returns the trace of a variant.
func (v *variant) derived(t *workloads.Trace) (*workloads.Trace, error) {
	var err error
	size := workloads.Megabytes(v.derive["max_mb"]) * 1_000_000
	if first := v.derive["first"]; first > 0 || size > 0 {
		if t, err = t.Filter(workloads.TraceFilter{First: first, MaxSize: size}); err != nil {
			return nil, err
		}
	}
	for _, d := range derivations {
		if n := v.derive[d.name]; n > 0 && d.of != nil {
			if t, err = d.of(t, n); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

func lowSkew(t *trace, n int) (*trace, error) {
	return workloads.LowSkewFiltered(t, workloads.Factor{Num: int64(n), Den: 1})
}

// The keys of a suite's file, which docs/suites.md describes.
var (
	inputKeys  = []string{"what", "coflows", "ports", "megabytes", "jobs"}
	figureKeys = []string{
		"title", "of", "as", "statistic", "base", "arm", "over", "exact",
		"profiles", "least_tasks", "most_tasks", "most_maps", "bin", "all_run", "estimate",
	}
	variantKeys = []string{
		"title", "on", "scenario", "set", "needs", "repeat", "estimates", "reference",
		"trace", "derive", "policies", "interval", "base", "arm", "pairs",
	}
	partOnlyKeys = []string{"doc", "original", "scale", "optional", "columns", "variants"}
	repeatKeys   = []string{"times", "fluid_times", "most"}
	pairKeys     = []string{"title", "base", "arm"}
	measureKeys  = append([]string{"figure", "variant", "pair"}, figureKeys...)
)

var nameRule = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)

// each calls f for the names of a mapping and their values, in order.
func (d *decoder) each(n *yaml.Node, path string, f func(name string, m *yaml.Node, path string)) {
	if n == nil {
		return
	}
	var names []string
	for k := range yamltree.Pairs(n) {
		names = append(names, k.Value)
	}
	known := d.mapping(n, path, names).values
	for k, v := range yamltree.Pairs(n) {
		switch {
		case !nameRule.MatchString(k.Value):
			d.fail(k, path, "%q: expected a name of letters, digits, dots, dashes and underscores", units.Clip(k.Value))
		case known[k.Value] == v:
			f(k.Value, v, yamltree.Join(path, k.Value))
		}
	}
}

// count returns the whole number of a key, 0 without it.
func (m mapping) count(key string) int {
	text := m.text(key, "")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || !yamltree.WholeNumber.MatchString(text) {
		m.failAt(key, "%q: expected a whole number from 1", units.Clip(text))
	}
	return n
}

// list returns the texts of a key: a list, or one text.
func (m mapping) list(key string) (out []string) {
	n := m.values[key]
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.ScalarNode:
		return []string{m.text(key, "")}
	case n.Kind != yaml.SequenceNode || len(n.Content) == 0:
		m.failAt(key, "%s: expected a list", yamltree.Describe(n))
		return nil
	}
	for _, x := range n.Content {
		if x.Kind != yaml.ScalarNode || x.Value == "" {
			m.fail(x, yamltree.Join(m.path, key), "%s: expected text", yamltree.Describe(x))
			return nil
		}
		out = append(out, x.Value)
	}
	return out
}

// file returns the path of a key, relative to the file of the suite.
func (m mapping) file(key string) string {
	name := m.text(key, "")
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(m.name), name)
}

// setup reads what the file says before its claims.
func (d *decoder) setup(m mapping, original string) {
	d.each(m.values["inputs"], "inputs", func(name string, n *yaml.Node, path string) {
		i := d.mapping(n, path, inputKeys)
		d.suite.inputs = append(d.suite.inputs, input{
			name, i.text("what", "what the file is"),
			i.count("coflows"), i.count("ports"), i.count("megabytes"), i.count("jobs"),
		})
	})
	d.each(m.values["figures"], "figures", func(name string, n *yaml.Node, path string) {
		f := &figure{name: name, as: "value", statistic: "mean"}
		d.mapping(n, path, figureKeys).figure(f)
		if f.of != nil {
			d.suite.figures = append(d.suite.figures, f)
		}
	})
	d.each(m.values["parts"], "parts", func(name string, n *yaml.Node, path string) {
		d.part(name, d.mapping(n, path, append(slices.Clone(partOnlyKeys), variantKeys...)), original)
	})
	if len(d.suite.parts) == 0 && len(d.errs) == 0 {
		m.failAt("parts", "missing: expected the parts of the suite, each with a scenario or a trace")
	}
}

// figure reads the keys of a figure over those that it has.
func (m mapping) figure(f *figure) {
	if name := m.text("of", map[bool]string{true: "a quantity (testbed suite --figures)"}[f.of == nil]); name != "" {
		var names []string
		for _, q := range quantities {
			names = append(names, q.name)
		}
		if f.of = quantityOf(name); f.of == nil {
			m.failAt("of", "%q: unknown quantity%s", units.Clip(name), suggestion(name, names))
			return
		}
		if !f.of.ofTrace() && f.of.compared && f.of.job == nil {
			f.as = "compared"
		}
	}
	f.title = cmp.Or(m.text("title", ""), f.title)
	var relationNames []string
	for _, r := range relations {
		relationNames = append(relationNames, r.name)
	}
	f.as = cmp.Or(m.choice("as", relationNames, false), f.as)
	if s := m.text("statistic", ""); s != "" && !f.isStatistic(s) {
		m.failAt("statistic", "%q: expected mean, median, max, deviation, geo-mean or a percentile such as p75", units.Clip(s))
	}
	f.base, f.arm = cmp.Or(m.text("base", ""), f.base), cmp.Or(m.text("arm", ""), f.arm)
	f.over = cmp.Or(m.choice("over", []string{overFirst, overFluid}, false), f.over)
	f.exact = f.exact || m.choice("exact", []string{"true"}, false) != ""
	f.allRun = f.allRun || m.choice("all_run", []string{"true"}, false) != ""
	if list := m.list("profiles"); list != nil {
		f.profiles = list
	}
	f.leastTasks = cmp.Or(m.count("least_tasks"), f.leastTasks)
	f.mostTasks, f.mostMaps = cmp.Or(m.count("most_tasks"), f.mostTasks), cmp.Or(m.count("most_maps"), f.mostMaps)
	f.bin, f.estimate = cmp.Or(m.text("bin", ""), f.bin), cmp.Or(m.text("estimate", ""), f.estimate)
	if f.of == nil {
		return
	}
	switch {
	case f.as == "compared" && !f.of.compared,
		f.as == "paired" && f.of.job == nil,
		f.as != "compared" && f.of.compared && f.of.job == nil && f.of.coflows == nil:
		m.failAt("as", "%s: %s is not available for it (testbed suite --figures)", f.as, f.of.name)
	case f.over != "" && (f.of.repeats == nil || relationOf(f.as).of == nil):
		m.failAt("over", "%s: expected a quantity by repeat and a relation such as ratio", f.over)
	}
}

// suggestion returns the name that is similar, or all.
func suggestion(name string, names []string) string {
	if best := words.Closest(name, names); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ": expected " + words.Or(names)
}

// part reads a part.
func (d *decoder) part(name string, m mapping, original string) {
	p := &part{
		name: name, title: cmp.Or(m.text("title", ""), name), doc: m.text("doc", ""),
		original: cmp.Or(m.text("original", ""), original), scale: m.text("scale", ""),
		optional: m.choice("optional", []string{"true"}, false) != "",
	}
	all := variant{path: m.path, node: m.node, on: onFluid, times: 1, set: map[string]string{}}
	m.variant(&all)
	all.title = ""
	d.each(m.values["variants"], yamltree.Join(m.path, "variants"), func(name string, n *yaml.Node, path string) {
		v := all
		v.name, v.title, v.path, v.node = name, name, path, n
		v.set = maps.Clone(all.set)
		d.mapping(n, path, variantKeys).variant(&v)
		p.variants = append(p.variants, &v)
	})
	if p.variants == nil {
		p.variants = []*variant{&all}
	}
	for _, v := range p.variants {
		d.complete(p, v)
	}
	p.columns = d.suite.figures
	if list := m.list("columns"); list != nil {
		p.columns = nil
		for _, name := range list {
			f := d.suite.figure(name)
			if f == nil {
				m.failAt("columns", "%q: unknown figure%s", units.Clip(name), suggestion(name, d.suite.figureNames()))
				continue
			}
			p.columns = append(p.columns, f)
		}
	}
	p.columns = slices.DeleteFunc(slices.Clone(p.columns), func(f *figure) bool { return !p.variants[0].measures(f) })
	d.suite.parts = append(d.suite.parts, p)
}

// measures reports whether a variant has the quantity of a figure.
func (v *variant) measures(f *figure) bool {
	if v.ofTrace() {
		return f.of.ofTrace() && f.as != "compared"
	}
	return f.of.ofScenario() && (f.as == "compared" || f.of.coflows == nil)
}

// complete reports what a variant lacks.
func (d *decoder) complete(p *part, v *variant) {
	fail := func(format string, args ...any) { d.fail(v.node, v.path, format, args...) }
	switch {
	case v.ofTrace() && (v.trace == "" || len(v.policies) == 0):
		fail("expected a trace and policies, which a part on the flow-level simulator needs")
	case !v.ofTrace() && v.scenario == "":
		fail("expected a scenario, or on: %s with a trace and policies", simulator)
	case v.estimates != "" && (v.estimates == v.name || p.variant(v.estimates) == nil):
		fail("estimates: %q: expected another variant of the part", v.estimates)
	}
	for _, name := range v.needs {
		if d.suite.input(name) == nil {
			fail("needs: %q: expected one of the inputs of the file", units.Clip(name))
		}
	}
}

// variant reads the keys of a variant over those that it has from its part.
func (m mapping) variant(v *variant) {
	v.title = cmp.Or(m.text("title", ""), v.title)
	v.on = cmp.Or(m.choice("on", backends[:3], false), v.on)
	v.scenario = cmp.Or(m.file("scenario"), v.scenario)
	if trace := m.text("trace", ""); trace != "" && trace != generated {
		v.trace = m.file("trace")
	} else {
		v.trace = cmp.Or(trace, v.trace)
	}
	if n := m.values["set"]; n != nil {
		m.each(n, yamltree.Join(m.path, "set"), func(name string, x *yaml.Node, path string) {
			if x.Kind != yaml.ScalarNode {
				m.fail(x, path, "%s: expected one value", yamltree.Describe(x))
				return
			}
			v.set[name] = x.Value
		})
	}
	if list := m.list("needs"); list != nil {
		v.needs = list
	}
	if n := m.values["repeat"]; n != nil {
		r := m.mapping(n, yamltree.Join(m.path, "repeat"), repeatKeys)
		v.times, v.most = cmp.Or(r.count("times"), v.times), cmp.Or(r.count("most"), v.most)
		v.fluidTimes = cmp.Or(r.count("fluid_times"), v.fluidTimes)
	}
	v.estimates = cmp.Or(m.text("estimates", ""), v.estimates)
	if b, ok := m.bounds("reference", false); ok {
		v.reference = &b.Low
	}
	if n := m.values["derive"]; n != nil {
		var names []string
		for _, d := range derivations {
			names = append(names, d.name)
		}
		x := m.mapping(n, yamltree.Join(m.path, "derive"), names)
		v.derive = map[string]int{}
		for _, name := range names {
			v.derive[name] = x.count(name)
		}
	}
	if list := m.list("policies"); list != nil {
		v.policies = nil
		for _, text := range list {
			p, err := comparison.ParsePolicy(catalog.RoleCoflow, text)
			if err != nil {
				m.failAt("policies", "%v", err)
			}
			v.policies = append(v.policies, p)
		}
	}
	if text := m.text("interval", ""); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			m.failAt("interval", "%q: expected a positive duration such as 8ms", units.Clip(text))
		}
		v.interval = d
	}
	v.base, v.arm = cmp.Or(m.text("base", ""), v.base), cmp.Or(m.text("arm", ""), v.arm)
	if n := m.values["pairs"]; n != nil {
		v.pairs = nil
		m.each(n, yamltree.Join(m.path, "pairs"), func(name string, x *yaml.Node, path string) {
			p := m.mapping(x, path, pairKeys)
			title := cmp.Or(p.text("title", ""), name)
			v.pairs = append(v.pairs, pair{name, title, p.text("base", ""), p.text("arm", "an arm of the scenario")})
		})
	}
}

// target returns what a claim measures: what its key measure says, or else what its ID is composed of: the names of a
// variant, of a pair and of a figure, with dashes or slashes between them.
func (d *decoder) target(m mapping, c *Claim) *target {
	p := d.suite.part(c.part())
	if _, name, _ := strings.Cut(c.ID, "/"); p == nil || name == "" {
		return nil // reported
	}
	t := &target{part: p}
	n := m.values["measure"]
	if n == nil {
		if !d.byID(t, c) {
			m.failAt("id", "%q: no variant, pair and figure of the part have these names: expected such, or the key measure",
				units.Clip(c.ID))
			return nil
		}
	} else if !d.measured(t, d.mapping(n, yamltree.Join(m.path, "measure"), measureKeys)) {
		return nil
	}
	f := t.figure
	switch v := t.variants[0]; {
	case !v.measures(f):
		m.failAt("id", "figure %s: %s as %s is not available on %s", f.name, f.of.name, f.as, v.on)
	case f.unit() != c.Unit:
		m.failAt("unit", "%q: the figure is in %q", c.Unit, f.unit())
	case len(t.variants) > 1 && (f.over != "" || f.as == "compared" || f.of.arm != nil || v.ofTrace()):
		m.failAt("measure", "%s is not evaluated over several variants", f.name)
	}
	return t
}

// byID sets the target of a claim without a key measure.
func (d *decoder) byID(t *target, c *Claim) bool {
	_, rest, _ := strings.Cut(c.ID, "/")
	plain := strings.ReplaceAll(rest, "/", "-")
	longest := -1
	for _, v := range t.part.variants {
		for _, f := range d.suite.figures {
			before, ok := strings.CutSuffix(plain, f.name)
			if !ok || len(f.name) < longest {
				continue
			}
			middle, ok := strings.CutPrefix(before, strings.ReplaceAll(v.name, "/", "-"))
			if !ok {
				continue
			}
			name := strings.Trim(middle, "-")
			if before != join(v.name, name)+map[bool]string{true: "-"}[before != ""] && before != "" {
				continue
			}
			for _, p := range v.over([]string{name}) {
				if strings.ReplaceAll(p.name, "/", "-") == name {
					longest = len(f.name)
					t.variants, t.pair, t.figure = []*variant{v}, p, f
				}
			}
		}
	}
	return t.figure != nil
}

// join joins names that are not empty, as in the IDs of claims.
func join(names ...string) string {
	names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
	return strings.ReplaceAll(strings.Join(names, "-"), "/", "-")
}

// measured reads the key measure of a claim.
func (d *decoder) measured(t *target, m mapping) bool {
	before := len(d.errs)
	f := figure{as: "value", statistic: "mean"}
	if name := m.text("figure", ""); name != "" {
		of := d.suite.figure(name)
		if of == nil {
			m.failAt("figure", "%q: unknown figure%s", units.Clip(name), suggestion(name, d.suite.figureNames()))
			return false
		}
		f = *of
	}
	m.figure(&f)
	t.figure = &f
	var names []string
	for _, v := range t.part.variants {
		names = append(names, v.name)
	}
	for _, name := range m.list("variant") {
		v := t.part.variant(name)
		if v == nil {
			m.failAt("variant", "%q: unknown variant%s", units.Clip(name), suggestion(name, names))
			return false
		}
		t.variants = append(t.variants, v)
	}
	if t.references = f.as == "difference"; t.references && t.variants == nil {
		t.variants = t.part.variants
	}
	if t.variants == nil {
		if t.variants = t.part.variants[:1]; len(t.part.variants) > 1 {
			m.failAt("variant", "missing: expected one of %s", words.Or(names))
		}
	}
	v := t.variants[0]
	if name := m.text("pair", ""); name != "" {
		for _, p := range v.over([]string{name}) {
			if p.name == name {
				t.pair = p
			}
		}
		if t.pair.name == "" {
			m.failAt("pair", "%q: unknown pair", units.Clip(name))
		}
	} else if len(v.pairs) > 0 {
		t.pair = v.pairs[0]
	} else {
		t.pair = pair{base: v.base, arm: v.arm}
	}
	return len(d.errs) == before
}

// arms returns the arms of a figure of a pair.
func (f *figure) arms(p pair) (base, arm string) {
	base, arm = cmp.Or(f.base, p.base), cmp.Or(f.arm, p.arm)
	if f.as == "base" {
		arm = base
	}
	if r := relationOf(f.as); r.of == nil && f.as != "paired" && f.as != "compared" || f.over != "" {
		base = ""
	}
	return base, arm
}

// reference returns the distance of a value to the reference of a variant.
func (v *variant) distance(r result) float64 {
	if v.reference == nil || r.none {
		return math.NaN()
	}
	return math.Abs(r.Value - *v.reference)
}

// repeats returns the number of repeats of a variant if n are asked for.
func (v *variant) repeats(n int, packets bool) int {
	if v.on == onPackets && !packets && v.fluidTimes > 0 {
		return n * v.fluidTimes
	}
	if n *= v.times; v.most > 0 {
		n = min(n, v.most)
	}
	return n
}
