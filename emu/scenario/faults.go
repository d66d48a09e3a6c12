package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/emu/fault"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/yamltree"
)

// MarshalYAML returns the kind that is set.
func (f Fault) MarshalYAML() (any, error) { return marshal(f) }

// common holds the values of a fault of any kind, with names as the file writes them.
type common struct {
	fault.Fault
	Link, Host, Spine, Disk string
}

// common copies the values of the kind that is set to the fields of the same names.
func (f Fault) common() common {
	var out common
	for _, x := range variants(reflect.ValueOf(f)) {
		if x.value.IsNil() {
			continue
		}
		from := x.value.Elem()
		for i := range from.NumField() {
			to := reflect.ValueOf(&out).Elem().FieldByName(from.Type().Field(i).Name)
			to.Set(from.Field(i).Convert(to.Type()))
		}
	}
	out.DiskLost = out.Disk == "lost"
	out.Name = fmt.Sprintf("%s %s at %v", out.Kind, out.Link+out.Host+out.Spine, out.At)
	return out
}

// findSpine returns the index of the spine with the given name.
func findSpine(f *topo.Fabric, name string) (int, error) {
	for s := range f.Spines() {
		if topo.SpineName(s) == name {
			return s, nil
		}
	}
	if f.Spines() == 0 {
		return 0, fmt.Errorf("unknown spine %q: the fabric has none", clip(name))
	}
	return 0, fmt.Errorf("unknown spine %q: expected %s to %s", clip(name), topo.SpineName(0), topo.SpineName(f.Spines()-1))
}

// resolve finds the links, hosts or spine that a fault names. In case of an error, key is the
// key of the wrong name.
func (c common) resolve(f *topo.Fabric) (out fault.Fault, key string, err error) {
	out = c.Fault
	switch c.Kind {
	case fault.LinkDown, fault.LinkFlap:
		if strings.Contains(c.Link, ">") && !strings.Contains(c.Link, "<>") {
			return out, "link", fmt.Errorf(`%q is one direction, and a cut cable passes nothing in both: use %q`, clip(c.Link), clip(strings.Replace(c.Link, ">", "<>", 1)))
		}
		out.Links, err = f.FindLinks(c.Link)
		return out, "link", err
	case fault.LinkRate:
		out.Links, err = f.FindLinks(c.Link)
		return out, "link", err
	case fault.LostReports, fault.LateReports:
		out.Hosts, err = f.FindHosts(c.Host)
		return out, "host", err
	case fault.SpineDown:
		out.Spine, err = findSpine(f, c.Spine)
		return out, "spine", err
	default:
		out.Host, err = f.FindHost(c.Host)
		return out, "host", err
	}
}

// Faults returns the faults of the scenario on its fabric, in the order of the file.
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

// Together is the Phase of reports at one moment.
const Together = "together"

// Detect returns the time of silence after which a host is considered lost.
func (h Heartbeat) Detect() time.Duration { return time.Duration(h.LostAfter) * h.Interval }

// synTimeout is the time after which Linux retransmits a SYN or a SYN-ACK.
const synTimeout = time.Second

// Silence returns the time for which a block pipeline tolerates a silent host in a scenario with
// faults. It is longer than Detect by the time that a lost SYN costs, so that a full
// queue alone never makes a live host lose its replica.
func (h Heartbeat) Silence() time.Duration { return h.Detect() + synTimeout }

// faults checks the names in faults against the fabric, and the other requirements of faults.
func (c *checker) faults() {
	if len(c.spec.Faults) == 0 || !c.sound("fabric") || c.badWithin("fabric.") {
		return
	}
	f, err := c.spec.Fabric.shape().Build()
	if err != nil {
		return // reported by fabric
	}
	var all []fault.Fault
	for i, x := range c.spec.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		if !c.sound(path) || c.badWithin(path+".") {
			continue
		}
		r, key, err := x.common().resolve(f)
		if err != nil {
			c.failAt(yamltree.Join(path, key), "%v", err)
			continue
		}
		all = append(all, r)
		cuts := x.LinkDown != nil || x.LinkFlap != nil || x.SpineDown != nil || x.HostCrash != nil
		if cuts && c.spec.Setup == SimultaneousSetup {
			c.failAt("setup", "%s with the fault %s at %s: must be serial, because a connection opened in advance would not use the routes that apply later", c.spec.Setup, r.Kind, path)
		}
		if r.Kind == fault.SlowDisk && c.spec.Disk == nil && c.sound("disk") {
			c.failAt(yamltree.Join(path, "host"), "%s: the scenario has no disk: add the key disk, or remove the fault", x.SlowDisk.Host)
		}
	}
	if len(all) == len(c.spec.Faults) {
		c.idleFaults(f, all)
	}
}

// idleFaults refuses faults that change nothing.
func (c *checker) idleFaults(f *topo.Fabric, all []fault.Fault) {
	idle, err := fault.Idle(f, all)
	if err != nil {
		return // reported by the compilation of the timeline
	}
	for _, i := range idle {
		path := fmt.Sprintf("faults[%d]", i)
		switch x := all[i]; x.Kind {
		case fault.LinkRate:
			c.failAt(path+".rate", "%v: already the rate of %s without the fault: state another rate", x.Rate, f.LinkName(x.Links[0]))
		case fault.SlowCPU:
			c.failAt(path+".share", "%v: must be below 1, because a host that always works is not slow", x.Share)
		default:
			c.failAt(path, "%s changes nothing: remove it", x.Kind)
		}
	}
	for i, x := range all {
		others := slices.ContainsFunc(all, func(y fault.Fault) bool { return y.Kind == x.Kind && y.Host == x.Host && y.Name != x.Name })
		if d := c.spec.Disk; x.Kind == fault.SlowDisk && d != nil && x.Rate == d.Write && !others {
			c.failAt(fmt.Sprintf("faults[%d].rate", i), "%v: already the rate of the disk without the fault: state another rate", x.Rate)
		}
	}
}

// ParseFaultRate parses the rate of a link during a fault, within the bounds of the key rate of
// faults of kind link-rate.
func ParseFaultRate(text string) (rate units.Rate, err error) {
	f, v := keyOf[LinkRateFault]("rate"), reflect.ValueOf(&rate).Elem()
	if err = setText(v, text); err == nil && f.outside(v) {
		err = fmt.Errorf("%q: %s", clip(text), new(decoder).expectedOf(v.Type(), f))
	}
	return rate, err
}
