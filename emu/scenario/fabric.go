package scenario

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

const kindSwitch = "switch"

// given reports whether the file has a key.
func (c *checker) given(path string) bool { return c.at[path] != nil }

// shaped reports whether the numbers of hosts, leaves and spines are valid.
func (c *checker) shaped() bool {
	return c.sound("fabric.kind", "fabric.leaves", "fabric.spines", "fabric.hosts_per_leaf", "fabric.ports")
}

func (c *checker) fabric() {
	f := &c.spec.Fabric
	if f.Kind != kindSwitch && c.sound("fabric.leaves", "fabric.spines") && f.Leaves > 1 && f.Spines == 0 {
		c.failAt("fabric.spines", "0 with %d leaves: must be at least 1, because only spines connect leaves", f.Leaves)
		return
	}
	c.uplinks(f)
	if !c.shaped() {
		return
	}
	names := c.names()
	if names == nil {
		return
	}
	hostRate, ok := c.hostLinks(f, names)
	ok = c.linkChanges(f, names) && ok
	if !ok || !c.sound("fabric.host_link", "fabric.oversubscription", "fabric.uplink", "fabric.cross_rack") || !c.uplinkRates(f, hostRate) {
		return
	}
	if !c.sound("fabric.queue", "fabric.mtu", "fabric.delay", "fabric.red") || c.badWithin("fabric.red") {
		return
	}
	c.queues(f, names)
}

// uplinks finds the key that states the rate of uplinks. If it is not oversubscription, uplinks
// clears the default of that.
func (c *checker) uplinks(f *Fabric) {
	if f.Kind == kindSwitch {
		f.Oversubscription = units.Ratio{}
		return
	}
	first := ""
	for _, key := range []string{"oversubscription", "uplink", "cross_rack"} {
		switch at := "fabric." + key; {
		case !c.given(at):
		case first == "":
			first = key
		default:
			c.failAt(at, "excludes %s: state one of oversubscription, uplink and cross_rack", first)
		}
	}
	if first != "" && first != "oversubscription" {
		f.Oversubscription = units.Ratio{}
	}
}

// names returns a fabric with the same hosts, switches and links, with arbitrary rates.
func (c *checker) names() *topo.Fabric {
	s := c.spec.Fabric.shape()
	f, err := topo.LeafSpine{Leaves: s.Leaves, Spines: s.Spines, HostsPerLeaf: s.HostsPerLeaf, HostLink: units.Gbps,
		Uplink: units.Gbps, Queue: topo.Queue{Bytes: units.MB}, MTU: 1500}.Build()
	if err != nil {
		c.failAt("fabric", "%v", err)
		return nil
	}
	return f
}

// hostLinks returns the link rates of hosts, and whether all patterns match hosts.
func (c *checker) hostLinks(f *Fabric, names *topo.Fabric) (rates []units.Rate, ok bool) {
	rates = make([]units.Rate, names.Hosts())
	for h := range rates {
		rates[h] = f.HostLink
	}
	ok = true
	for i, hl := range f.HostLinks {
		at := fmt.Sprintf("fabric.host_links[%d]", i)
		if !c.sound(at+".hosts", at+".rate") {
			ok = false
			continue
		}
		hosts, err := names.FindHosts(hl.Hosts)
		if err != nil {
			c.failAt(at+".hosts", "%s", strings.TrimPrefix(err.Error(), "hosts "))
			ok = false
		}
		for _, h := range hosts {
			rates[h] = hl.Rate
		}
	}
	return rates, ok
}

// linkChanges reports whether all patterns match links and change them.
func (c *checker) linkChanges(f *Fabric, names *topo.Fabric) (ok bool) {
	ok = true
	for i, l := range f.Links {
		at := fmt.Sprintf("fabric.links[%d]", i)
		if !c.sound(at) || c.badWithin(at+".") {
			ok = false
			continue
		}
		if _, err := names.FindLinks(l.Link); err != nil {
			c.failAt(at+".link", "%s", strings.TrimPrefix(err.Error(), "link "))
			ok = false
		}
		if l.Rate == 0 && l.Queue == (topo.Queue{}) && l.Delay == nil {
			if c.given(at + ".queue") {
				c.failAt(at+".queue", "%v: must be a positive size or time", l.Queue)
			} else {
				c.failAt(at, "changes nothing: state a rate, a queue or a delay")
			}
			ok = false
		}
	}
	return ok
}

// uplinkBounds returns the bounds of the key uplink, which other ways to state that rate share.
func uplinkBounds() (least, most units.Rate) {
	l, m := keyOf[Fabric]("uplink").limits(reflect.TypeFor[units.Rate]())
	return units.Rate(l), units.Rate(m)
}

// uplinkRates reports whether the rates of uplinks are within bounds.
func (c *checker) uplinkRates(f *Fabric, hosts []units.Rate) bool {
	if f.Kind == kindSwitch || f.Spines == 0 {
		return true
	}
	least, most := uplinkBounds()
	switch {
	case f.Uplink > 0:
		return true // within its bounds
	case f.CrossRack > 0:
		if each := f.CrossRack / units.Rate(f.Spines); each < least || each > most {
			c.failAt("fabric.cross_rack", "%v: %d spines make each uplink %v: must be %v to %v", f.CrossRack, f.Spines, each, least, most)
			return false
		}
		return true
	}
	for r := range f.Leaves {
		// In floating point: an extreme ratio must not overflow.
		rack, alike := 0.0, true
		for _, rate := range hosts[r*f.HostsPerLeaf : (r+1)*f.HostsPerLeaf] {
			rack += float64(rate)
			alike = alike && rate == hosts[r*f.HostsPerLeaf]
		}
		each := rack / f.Oversubscription.Float() / float64(f.Spines)
		if each >= float64(least) && each <= float64(most) {
			continue
		}
		what := fmt.Sprintf("%d hosts of %v", f.HostsPerLeaf, hosts[r*f.HostsPerLeaf])
		if !alike {
			what = fmt.Sprintf("%s with %d hosts of %.0f bps together", topo.LeafName(topo.RackID(r)), f.HostsPerLeaf, rack)
		}
		c.failAt("fabric.oversubscription", "%v: %s and %d spines make each uplink %.0f bps: must be %v to %v",
			f.Oversubscription, what, f.Spines, each, least, most)
		return false
	}
	return true
}

// queues reports queues that are too small or too large, once for each key.
func (c *checker) queues(f *Fabric, names *topo.Fabric) {
	s := f.shape()
	s.RED = nil // checked below, with its path
	if s.Queue.Bytes == 0 && s.Queue.Time == 0 {
		s.Queue.Time = 1 // no bytes on any link
	}
	built, err := s.Build()
	if err != nil {
		c.failAt("fabric", "%v", err)
		return
	}
	from := make([]int, len(built.Links())) // index in f.Links that states the queue, counted from 1
	for i, l := range f.Links {
		if l.Queue == (topo.Queue{}) {
			continue
		}
		ids, err := names.FindLinks(l.Link)
		if err != nil {
			continue // reported above
		}
		for _, id := range ids {
			from[id] = i + 1
		}
	}
	least := 2 * (units.Bytes(f.MTU) + ethernetHeader)
	reported := map[string]bool{}
	for _, l := range built.Links() {
		at, queue, what := "fabric.queue", f.Queue, "a host's link"
		if l.Kind == topo.LeafUp || l.Kind == topo.LeafDown {
			what = "an uplink"
		}
		if i := from[l.ID]; i > 0 {
			at, queue, what = fmt.Sprintf("fabric.links[%d].queue", i-1), f.Links[i-1].Queue, built.LinkName(l.ID)
		}
		if reported[at] {
			continue
		}
		switch {
		case l.Queue < least:
			c.failAt(at, "%v: %d bytes at %s of %v: must hold at least two frames, %d bytes", queue, l.Queue, what, l.Rate, least)
			reported[at] = true
		case l.Queue > units.GB:
			c.failAt(at, "%v: %v at %s of %v: must be at most 1GB", queue, l.Queue, what, l.Rate)
			reported[at] = true
		case l.Delay > 0 && l.Delay < time.Microsecond && !reported["delay"]:
			c.failAt("fabric.delay", "%v on %s: must be 0s or at least 1µs", l.Delay, built.LinkName(l.ID))
			reported["delay"] = true
		}
		if red := f.RED; red != nil && l.Kind != topo.HostUp && l.Queue < red.Max && !reported["red"] && len(reported) == 0 {
			c.failAt("fabric.red.max", "%v: larger than the queue of %s, %v: use a smaller value, or a larger queue", red.Max, built.LinkName(l.ID), l.Queue)
			reported["red"] = true
		}
	}
	if red := f.RED; red != nil {
		if s.StoreAndForward {
			c.failAt("fabric.red", "links that store and forward have no RED: remove it, or use link_model: token-bucket")
		}
		if frame := units.Bytes(f.MTU) + ethernetHeader; red.Min < frame {
			c.failAt("fabric.red.min", "%v: must be at least a frame of %d bytes", red.Min, frame)
		}
		if red.Max <= red.Min {
			c.failAt("fabric.red.max", "%v with min %v: must be more than min", red.Max, red.Min)
		}
	}
}
