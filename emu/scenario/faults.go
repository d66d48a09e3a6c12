package scenario

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"testbed/emu/fault"
	"testbed/topo"
)

// faultKind is one kind of fault and its place in a Fault, a pointer to a struct.
type faultKind struct {
	name  string
	field reflect.Value
}

// faultKinds reads the names of kinds from the tags of their Kind.
func faultKinds(f *Fault) []faultKind {
	v := reflect.ValueOf(f).Elem()
	kinds := make([]faultKind, v.NumField())
	for i := range kinds {
		field := v.Field(i)
		kinds[i] = faultKind{fieldsOf(field.Type().Elem())[0].enum[0], field}
	}
	return kinds
}

// fault reads one fault by its kind.
func (d *decoder) fault(n *yaml.Node, path string) Fault {
	var f Fault
	kinds := faultKinds(&f)
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	want := "want one of " + strings.Join(names, ", ")
	if n.Kind != yaml.MappingNode {
		if !told(n) {
			d.fail(n, path, "%s: want a mapping with a kind: %s", kindOf(n), want)
		}
		return f
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Value != "kind" {
			continue
		}
		for _, kind := range kinds {
			if kind.name == v.Value {
				kind.field.Set(reflect.New(kind.field.Type().Elem()))
				d.mapping(n, path, kind.field.Elem())
				return f
			}
		}
		if !told(v) {
			d.fail(v, join(path, "kind"), "%s: %s%s", kindOf(v), want, didYouMean(v.Value, names))
		}
		return f
	}
	d.fail(n, join(path, "kind"), "missing: %s", want)
	return f
}

// MarshalYAML gives the kind that is set.
func (f Fault) MarshalYAML() (any, error) {
	for _, k := range faultKinds(&f) {
		if !k.field.IsNil() {
			return k.field.Interface(), nil
		}
	}
	return nil, nil
}

// common is what a kind of fault says, whichever it is: the names in it as they
// are written.
type common struct {
	fault.Fault
	link, host, spine string
}

func (f Fault) common() common {
	c := func(kind string, at, lasts time.Duration) common {
		return common{Fault: fault.Fault{Kind: fault.Kind(kind), At: at, For: lasts}}
	}
	var out common
	switch {
	case f.LinkDown != nil:
		x := f.LinkDown
		out = c(x.Kind, x.At, x.For)
		out.link = x.Link
	case f.LinkFlap != nil:
		x := f.LinkFlap
		out = c(x.Kind, x.At, 0)
		out.link, out.Down, out.Up, out.Times = x.Link, x.Down, x.Up, x.Times
	case f.LinkRate != nil:
		x := f.LinkRate
		out = c(x.Kind, x.At, x.For)
		out.link, out.Rate = x.Link, x.Rate
	case f.HostCrash != nil:
		x := f.HostCrash
		out = c(x.Kind, x.At, x.For)
		out.host, out.DiskLost = x.Host, x.Disk == "lost"
	case f.SlowDisk != nil:
		x := f.SlowDisk
		out = c(x.Kind, x.At, x.For)
		out.host, out.Rate = x.Host, x.Rate
	case f.SlowCPU != nil:
		x := f.SlowCPU
		out = c(x.Kind, x.At, x.For)
		out.host, out.Share = x.Host, x.Share
	case f.SpineDown != nil:
		x := f.SpineDown
		out = c(x.Kind, x.At, x.For)
		out.spine = x.Spine
	case f.LostReports != nil:
		x := f.LostReports
		out = c(x.Kind, x.At, x.For)
		out.host = x.Host
	case f.LateReports != nil:
		x := f.LateReports
		out = c(x.Kind, x.At, x.For)
		out.host, out.By = x.Host, x.By
	}
	out.Name = fmt.Sprintf("%s %s at %v", out.Kind, out.link+out.host+out.spine, out.At)
	return out
}

// findSpine is the spine with the given name.
func findSpine(f *topo.Fabric, name string) (int, error) {
	for s := range f.Spines() {
		if topo.SpineName(s) == name {
			return s, nil
		}
	}
	if f.Spines() == 0 {
		return 0, fmt.Errorf("no spine %q: the fabric has none", clip(name))
	}
	return 0, fmt.Errorf("no spine %q: spines are %s to %s", clip(name), topo.SpineName(0), topo.SpineName(f.Spines()-1))
}

// resolve finds what the names of a fault stand for. key is that of a name which
// is wrong.
func (c common) resolve(f *topo.Fabric) (out fault.Fault, key string, err error) {
	out = c.Fault
	switch c.Kind {
	case fault.LinkDown, fault.LinkFlap:
		if strings.Contains(c.link, ">") && !strings.Contains(c.link, "<>") {
			return out, "link", fmt.Errorf(`%q is one direction: a cable that is cut passes nothing either way: want %q`, clip(c.link), clip(strings.Replace(c.link, ">", "<>", 1)))
		}
		out.Links, err = f.FindLinks(c.link)
		return out, "link", err
	case fault.LinkRate:
		out.Links, err = f.FindLinks(c.link)
		return out, "link", err
	case fault.LostReports, fault.LateReports:
		out.Hosts, err = f.FindHosts(c.host)
		return out, "host", err
	case fault.SpineDown:
		out.Spine, err = findSpine(f, c.spine)
		return out, "spine", err
	default:
		out.Host, err = f.FindHost(c.host)
		return out, "host", err
	}
}

// Faults are the scenario's on its fabric, in the order of the file.
func (s *Scenario) Faults(f *topo.Fabric) ([]fault.Fault, error) {
	var out []fault.Fault
	for i, x := range s.Spec.Faults {
		r, key, err := x.common().resolve(f)
		if err != nil {
			return nil, fmt.Errorf("faults[%d].%s: %w", i, key, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Detect is how long a host must be silent to be taken for lost.
func (h Heartbeat) Detect() time.Duration { return time.Duration(h.LostAfter) * h.Interval }

// synTimeout is the time after which Linux sends a SYN again, and an answer to one.
const synTimeout = time.Second

// Silence is how long a block pipeline bears with a silent host in a scenario with
// faults. It is longer than Detect by the time that a lost SYN costs, so that a full
// queue alone never costs a living host its replica.
func (h Heartbeat) Silence() time.Duration { return h.Detect() + synTimeout }

// faults checks names against the fabric, and what faults need of the rest.
func (c *checker) faults() {
	if len(c.spec.Faults) == 0 || !c.sound("fabric") || c.badWithin("fabric.") {
		return
	}
	f, err := c.spec.Fabric.shape().Build()
	if err != nil {
		return // told with the fabric
	}
	for i, x := range c.spec.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		if !c.sound(path) || c.badWithin(path+".") {
			continue
		}
		r, key, err := x.common().resolve(f)
		if err != nil {
			c.failAt(join(path, key), "%v", err)
			continue
		}
		if r.Kind == fault.SlowDisk && c.spec.Disk == nil && c.sound("disk") {
			c.failAt(join(path, "host"), "%s: the scenario has no disk: state one, or leave the fault out", x.SlowDisk.Host)
		}
	}
}
