package scenario

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/yamltree"
)

// sameInArms are the keys that an arm cannot change, with the remedy.
var sameInArms = []struct {
	remedy string
	keys   []string
}{
	{"state it once, for all arms", []string{"version", "name", "vars", "sweep", "arms", "repeat", "tries", "time",
		"fork_at", "limits.alone"}},
	{"sweep it instead, so that each value has a workload of its own", workKeys},
}

// workKeys are the keys that decide which work exists, and on which hosts.
var workKeys = []string{
	"workload", "seed", "scale", "fabric.kind", "fabric.leaves", "fabric.hosts_per_leaf", "fabric.ports",
	"tasks.input", "tasks.output.block", "tasks.output.replicas",
	"limits.flows", "limits.blocks", "limits.tasks", "limits.trace",
}

// fixed returns why an arm cannot set a key, or "". If that is because of keys below it, partly is true: an
// arm can set others of them.
func fixed(key string) (why string, partly bool) {
	for _, same := range sameInArms {
		for _, k := range same.keys {
			switch {
			case key == k || within(key, k):
				return "must be the same in all arms, which share workload, hosts and random draws: " + same.remedy, false
			case within(k, key):
				return fmt.Sprintf("contains %s, which must be the same in all arms: set only other keys of it", k), true
			}
		}
	}
	return "", false
}

// alternatives are keys of which a scenario has at most one: setting one removes the others.
var alternatives = [][]string{{"fabric.oversubscription", "fabric.uplink", "fabric.cross_rack"}}

// within reports whether a key is below another one.
func within(key, above string) bool { return strings.HasPrefix(key, above+".") }

// change is a value of a key that an arm sets. A value without content, null, removes the key.
type change struct {
	key   string       // with dots, such as "fabric.queue"
	names []*yaml.Node // the places of its parts
	value *yaml.Node
}

// armChanges are the changes of an arm, with the node of the arm and the path of its keys in messages.
type armChanges struct {
	place *yaml.Node
	path  string
	all   []change
}

// changes reads what an arm sets: a mapping that RFC 7396 merges into the scenario, whose keys may be
// written with dots.
func (d *decoder) changes(n *yaml.Node, path string, above change) (all []change) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		if !reported(n) {
			d.fail(n, path, "%s: %s", yamltree.Describe(n), d.expectedOf(reflect.TypeFor[map[string]any](), field{}))
		}
		return nil
	}
	for _, e := range d.entries(n, path) {
		all = append(all, d.change(above.below(e.name, e.node), yamltree.Join(path, e.key))...)
	}
	return all
}

// change returns a change or, if its value is a mapping, those of the keys in it.
func (d *decoder) change(c change, path string) []change {
	switch why, partly := fixed(c.key); {
	case c.value.Kind == yaml.MappingNode && (why == "" || partly):
		return d.changes(c.value, path, c)
	case why != "":
		d.fail(c.names[len(c.names)-1], path, "%s", why)
		return nil
	}
	return []change{c}
}

// below returns a change of a key below that of c.
func (c change) below(name, value *yaml.Node) change {
	c.key, c.names, c.value = yamltree.Join(c.key, name.Value), slices.Clone(c.names), value
	for range strings.Split(name.Value, ".") {
		c.names = append(c.names, name)
	}
	return c
}

// overlapping reports a key that an arm sets twice.
func (d *decoder) overlapping(all []change, path string) {
	for i, c := range all {
		for _, before := range all[:i] {
			if c.key == before.key || within(c.key, before.key) || within(before.key, c.key) {
				d.fail(c.names[0], path, "%s and %s overlap: set each key once", before.key, c.key)
			}
		}
	}
}

// values returns changes as a mapping, as Arm.Set has it.
func values(all []change) map[string]any {
	var set map[string]any
	for _, c := range all {
		if set == nil {
			set = map[string]any{}
		}
		in, parts := set, strings.Split(c.key, ".")
		for _, p := range parts[:len(parts)-1] {
			if in[p] == nil {
				in[p] = map[string]any{}
			}
			in = in[p].(map[string]any)
		}
		in[parts[len(parts)-1]] = nil
		if !yamltree.IsNull(c.value) {
			// Errors in the value are those of the scenario with the change.
			in[parts[len(parts)-1]] = newDecoder("", nil).param(c.value, "")
		}
	}
	return set
}

// label returns a change as a part of the name of an arm: the last part of its key, and its value if
// that is a scalar, otherwise its position among the values of the key.
func (c change) label(position int) string {
	text := fmt.Sprint(position + 1)
	switch {
	case yamltree.IsNull(c.value):
		text = "none"
	case c.value.Kind == yaml.ScalarNode:
		text = nameOf(c.value.Value)
	}
	return c.key[strings.LastIndexByte(c.key, '.')+1:] + "=" + text
}

// nameOf returns a value as a part of a name: with "to" for a colon, and - for other characters that names cannot have.
func nameOf(value string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("._+-", r) || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, strings.NewReplacer(":", "to", "µ", "u").Replace(value))
}

// merger applies changes to the tree of a scenario. It shares nodes with that tree and modifies none.
type merger struct {
	*decoder
	own map[*yaml.Node]bool // of the changes
}

// merge returns the tree with a change.
func (m merger) merge(n *yaml.Node, c change) *yaml.Node {
	return m.put(n, c, strings.Split(c.key, "."))
}

// put returns the mapping n, which may be missing, with a change of the last parts of its key.
func (m merger) put(n *yaml.Node, c change, parts []string) *yaml.Node {
	name := c.names[len(c.names)-len(parts)]
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: name.Line, Column: name.Column}
	if n != nil && n.Kind == yaml.MappingNode {
		out.Line, out.Column, out.Content = n.Line, n.Column, slices.Clone(n.Content)
	} else {
		m.own[out] = true
	}
	at := 0
	for at < len(out.Content) && out.Content[at].Value != parts[0] {
		at += 2
	}
	value := c.value
	switch absent := at >= len(out.Content); {
	case len(parts) > 1 && absent:
		value = m.put(nil, c, parts[1:])
	case len(parts) > 1:
		value = m.put(out.Content[at+1], c, parts[1:])
	case yamltree.IsNull(value) && absent:
		return out
	case yamltree.IsNull(value):
		out.Content = slices.Delete(out.Content, at, at+2)
		return out
	}
	if at < len(out.Content) {
		out.Content[at+1] = value
		return out
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: parts[0], Line: name.Line, Column: name.Column}
	m.own[key] = true
	out.Content = append(out.Content, key, value)
	return out
}

// mark records the nodes of a change.
func (m merger) mark(n *yaml.Node) {
	m.own[n] = true
	for _, c := range n.Content {
		m.mark(c)
	}
}

// known reports whether a struct of this package has a key, which may have dots.
func known(t reflect.Type, key string) bool {
	first, rest, more := strings.Cut(key, ".")
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for _, f := range fieldsOf(t) {
		if f.key == first {
			return !more || known(t.Field(f.index).Type, rest)
		}
	}
	return false
}

// changed returns the scenario of an arm: the file with the changes of the arm, checked as the file is, with
// the workload of s. It reports its errors to the decoder of s. Those of values that the arm does not state are
// reported at the arm, unless the file alone has errors.
func (s *Scenario) changed(root *yaml.Node, i int) *Scenario {
	arm, changes := s.Spec.Arms[i], s.decoded.armChanges[i]
	bad := len(s.decoded.all) > 0
	m := merger{newDecoder(s.decoded.file, s.catalog), map[*yaml.Node]bool{}}
	m.report = func(n *yaml.Node, path, text string) {
		at := changes.place
		switch {
		case m.own[n]:
			at, path = n, yamltree.Join(changes.path, path)
		case bad:
			return
		default:
			text = fmt.Sprintf("in arm %s, %s: %s", arm.Name, path, text)
			path = changes.path
		}
		s.decoded.failOnce(at, path, text)
	}
	for _, c := range changes.all {
		m.mark(c.value)
		if yamltree.IsNull(c.value) && !known(reflect.TypeFor[Spec](), c.key) {
			s.decoded.failOnce(c.names[len(c.names)-1], yamltree.Join(changes.path, c.key), "unknown key of the scenario")
		}
		for _, keys := range alternatives {
			if slices.Contains(keys, c.key) {
				for _, k := range keys {
					root = m.merge(root, change{k, c.names, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}})
				}
			}
		}
	}
	for _, c := range changes.all {
		root = m.merge(root, c)
	}
	arms := &yaml.Node{}
	markReported(arms) // policies are those of s
	root = m.merge(root, change{"arms", []*yaml.Node{changes.place}, arms})

	out := &Scenario{catalog: s.catalog, decoded: m.decoder, source: s.source, traces: s.traces, policies: s.policies, base: s, index: i}
	m.at[""] = root
	m.mapping(root, "", reflect.ValueOf(&out.Spec).Elem())
	c := checker{decoder: m.decoder, spec: &out.Spec}
	c.taskDefaults()
	out.rate = c.scaleRates()
	out.Spec.Vars, out.Spec.Workload = s.Spec.Vars, s.Spec.Workload
	out.Spec.Arms = Arms{{Name: arm.Name, Policies: arm.Policies}}
	for _, p := range s.decoded.policies {
		if reflect.DeepEqual(arm.Policies[p.role], p.Policy) {
			m.policies = append(m.policies, p)
		}
	}
	c.check()
	if len(s.decoded.all) == 0 {
		c.workload(out)
	}
	return out
}

// OfArm returns the scenario of an arm: that of the file with the changes of the arm, all its values resolved, and
// with one arm, which sets nothing. Traces and workload are those of s; its Source and Files are those of s.
func (s *Scenario) OfArm(i int) *Scenario {
	out := *s
	if s.changedArms[i] != nil {
		out = *s.changedArms[i]
	}
	out.Spec.Arms = Arms{{Name: s.Spec.Arms[i].Name, Policies: s.Spec.Arms[i].Policies}}
	out.changedArms = []*Scenario{nil}
	return &out
}

// Base returns the scenario against which the workload is resolved: for one that OfArm returns, that
// without the changes of its arm. The positions of stored blocks must be drawn on its fabric.
func (s *Scenario) Base() *Scenario { return cmp.Or(s.base, s) }

// on returns the base of s and its fabric, given that of s.
func (s *Scenario) on(f *topo.Fabric) (*Scenario, *topo.Fabric, error) {
	if s.base == nil {
		return s, f, nil
	}
	f, err := s.base.Shape().Build()
	return s.base, f, err
}

// SetKeys returns the keys that arms set, with dots, in the order in which arms set them.
func (s *Scenario) SetKeys() (keys []string) {
	for _, arm := range s.decoded.armChanges {
		for _, c := range arm.all {
			if !slices.Contains(keys, c.key) {
				keys = append(keys, c.key)
			}
		}
	}
	return keys
}

// ArmValue returns the value of a key in an arm, such as that of "fabric.queue", as text: "none" if
// it is not stated and has no default. A queue that is a time is also in bytes.
func (s *Scenario) ArmValue(i int, key string) string {
	arm := s.OfArm(i)
	tree, err := arm.tree()
	if err != nil {
		return err.Error()
	}
	n := find(tree, key)
	switch {
	case n == nil:
		return "none"
	case n.Kind != yaml.ScalarNode:
		flow(n)
		text, err := yaml.Dump(n, yaml.WithLineWidth(-1))
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(text))
	case key == "fabric.queue" && arm.Spec.Fabric.Queue.Time > 0:
		return fmt.Sprintf("%s (%s)", n.Value, arm.queueBytes())
	}
	return n.Value
}

// tree returns the resolved values as a tree.
func (s *Scenario) tree() (*yaml.Node, error) {
	text, err := s.Resolved()
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Load(text, &doc); err != nil {
		return nil, err
	}
	return doc.Content[0], nil
}

// find returns the value of a key with dots, or nil.
func find(n *yaml.Node, key string) *yaml.Node {
	for part := range strings.SplitSeq(key, ".") {
		n = valueOf(n, part)
	}
	return n
}

// flow makes a tree print on one line.
func flow(n *yaml.Node) {
	n.Style |= yaml.FlowStyle
	for _, c := range n.Content {
		flow(c)
	}
}

// queueBytes describes the sizes of queues on the links of hosts and on uplinks.
func (s *Scenario) queueBytes() string {
	f, err := s.Shape().Build()
	if err != nil {
		return err.Error()
	}
	var text []string
	for _, ends := range []struct {
		kinds []topo.LinkKind
		name  string
	}{
		{[]topo.LinkKind{topo.HostUp, topo.HostDown}, "host links"},
		{[]topo.LinkKind{topo.LeafUp, topo.LeafDown}, "uplinks"},
	} {
		var sizes []units.Bytes
		for _, l := range f.Links() {
			if slices.Contains(ends.kinds, l.Kind) {
				sizes = append(sizes, l.Queue)
			}
		}
		if len(sizes) == 0 {
			continue
		}
		least, most := slices.Min(sizes), slices.Max(sizes)
		size := about(least).String()
		if least < most {
			size += " to " + about(most).String()
		}
		text = append(text, size+" on "+ends.name)
	}
	return strings.Join(text, ", ")
}

// scaledSet returns the changes of an arm with their values in another scenario, which has them.
func scaledSet(set map[string]any, resolved *yaml.Node) (map[string]any, error) {
	out := map[string]any{}
	for key, v := range set {
		n := valueOf(resolved, key)
		in, mapping := v.(map[string]any)
		var err error
		switch {
		case n == nil:
			out[key] = v // null, or without effect
		case mapping:
			out[key], err = scaledSet(in, n)
		default:
			var x any
			err = n.Decode(&x)
			out[key] = x
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
