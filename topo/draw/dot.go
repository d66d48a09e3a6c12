package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"testbed/topo"
	"testbed/topo/units"
)

// DOT writes f as a digraph in the DOT language: one row of nodes for each tier, one edge
// for a link whose directions are equal, two for one whose directions differ. "dot -Tsvg"
// draws it. Errors are those of w.
//
// It writes text directly: to implement the types and interfaces of the graph library's
// encoder takes more code than the text. Tests read the result with the library's parser.
func DOT(w io.Writer, f *topo.Fabric, o Options) error {
	b := bufio.NewWriter(w)
	b.WriteString("digraph fabric {\n")
	b.WriteString("\trankdir=BT;\n\tnode [shape=box, fontname=\"sans-serif\"];\n\tedge [fontname=\"sans-serif\", fontsize=10];\n")
	if o.Title != "" {
		fmt.Fprintf(b, "\tlabelloc=t;\n\tlabel=%s;\n", quote(o.Title))
	}
	row := func(names []string) {
		if len(names) > 0 {
			fmt.Fprintf(b, "\t{ rank=same; %s; }\n", strings.Join(names, "; "))
		}
	}
	var spines, leaves, hosts []string
	for s := range f.Spines() {
		spines = append(spines, quote(topo.SpineName(s)))
	}
	for r := range topo.RackID(f.Racks()) {
		leaves = append(leaves, quote(topo.LeafName(r)))
	}
	for h := range topo.HostID(f.Hosts()) {
		hosts = append(hosts, quote(f.HostName(h)))
	}
	row(spines)
	row(leaves)
	row(hosts)
	top := fastest(f)
	edge := func(from, to string, l topo.Link, more string) {
		label := l.Rate.Rounded().String()
		if x, ok := o.load(l.ID); ok {
			label += " " + units.Percent(x, 0)
			more += ", color=" + quote(tone(shade(x)).Light.String())
		}
		fmt.Fprintf(b, "\t%s -> %s [label=%s, penwidth=%.1f%s];\n", quote(from), quote(to), quote(label), thickness(l.Rate, top, 5), more)
	}
	for _, c := range append(hostCables(f), uplinkCables(f)...) {
		if c.alike(o) {
			edge(c.lower, c.upper, c.up, ", dir=none")
			continue
		}
		edge(c.lower, c.upper, c.up, "")
		edge(c.upper, c.lower, c.down, ", constraint=false")
	}
	b.WriteString("}\n")
	return b.Flush() // the first error of w, if any
}

// quote returns a DOT string. Only quotes are escaped, and a backslash would escape the
// next character.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}
