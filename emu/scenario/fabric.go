package scenario

import (
	"fmt"
	"strings"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

const kindSwitch = "switch"

// given tells whether a key is written.
func (c *checker) given(path string) bool { return c.at[path] != nil }

// shaped tells whether it is known how many hosts, leaves and spines there are.
func (c *checker) shaped() bool {
	return c.sound("fabric.kind", "fabric.leaves", "fabric.spines", "fabric.hosts_per_leaf", "fabric.ports")
}

func (c *checker) fabric() {
	f := &c.spec.Fabric
	if f.Kind != kindSwitch && c.sound("fabric.leaves", "fabric.spines") && f.Leaves > 1 && f.Spines == 0 {
		c.failAt("fabric.spines", "0 with %d leaves: want at least one, or the leaves have no way to each other", f.Leaves)
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

// uplinks finds the one key that states the rate of uplinks, and forgets the
// default of oversubscription where it is another.
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
			c.failAt(at, "given beside %s: want one of oversubscription, uplink and cross_rack", first)
		}
	}
	if first != "" && first != "oversubscription" {
		f.Oversubscription = units.Ratio{}
	}
}

// names is a fabric of the same hosts, switches and links, whatever their rates.
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

// hostLinks are the rates of hosts, and whether all patterns name some.
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

// linkChanges tells whether all patterns name links and say something about them.
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
				c.failAt(at+".queue", "%v: want a positive size or time", l.Queue)
			} else {
				c.failAt(at, "changes nothing: want a rate, a queue or a delay")
			}
			ok = false
		}
	}
	return ok
}

// uplinkRates tells whether the rates of uplinks make sense.
func (c *checker) uplinkRates(f *Fabric, hosts []units.Rate) bool {
	if f.Kind == kindSwitch || f.Spines == 0 {
		return true
	}
	switch {
	case f.Uplink > 0:
		return true // its own bounds are those
	case f.CrossRack > 0:
		if each := f.CrossRack / units.Rate(f.Spines); each < minUplink || each > maxUplink {
			c.failAt("fabric.cross_rack", "%v: %d spines make each uplink %v: want %v to %v", f.CrossRack, f.Spines, each, minUplink, maxUplink)
			return false
		}
		return true
	}
	for r := range f.Leaves {
		// In floating point first: an absurd ratio must not wrap.
		rack, alike := 0.0, true
		for _, rate := range hosts[r*f.HostsPerLeaf : (r+1)*f.HostsPerLeaf] {
			rack += float64(rate)
			alike = alike && rate == hosts[r*f.HostsPerLeaf]
		}
		each := rack / f.Oversubscription.Float() / float64(f.Spines)
		if each >= float64(minUplink) && each <= float64(maxUplink) {
			continue
		}
		what := fmt.Sprintf("%d hosts of %v", f.HostsPerLeaf, hosts[r*f.HostsPerLeaf])
		if !alike {
			what = fmt.Sprintf("%s with %d hosts of %.0f bps together", topo.LeafName(topo.RackID(r)), f.HostsPerLeaf, rack)
		}
		c.failAt("fabric.oversubscription", "%v: %s and %d spines make each uplink %.0f bps: want %v to %v",
			f.Oversubscription, what, f.Spines, each, minUplink, maxUplink)
		return false
	}
	return true
}

// queues tells of queues that hold too little or too much, each key once.
func (c *checker) queues(f *Fabric, names *topo.Fabric) {
	s := f.shape()
	s.RED = nil // checked below, where its place is known
	if s.Queue.Bytes == 0 && s.Queue.Time == 0 {
		s.Queue.Time = 1 // of no size on any link
	}
	built, err := s.Build()
	if err != nil {
		c.failAt("fabric", "%v", err)
		return
	}
	from := make([]int, len(built.Links())) // which of links states the queue, counted from 1
	for i, l := range f.Links {
		if l.Queue == (topo.Queue{}) {
			continue
		}
		ids, err := names.FindLinks(l.Link)
		if err != nil {
			continue // told above
		}
		for _, id := range ids {
			from[id] = i + 1
		}
	}
	least := 2 * (units.Bytes(f.MTU) + ethernetHeader)
	told := map[string]bool{}
	for _, l := range built.Links() {
		at, queue, what := "fabric.queue", f.Queue, "a host's link"
		if l.Kind == topo.LeafUp || l.Kind == topo.LeafDown {
			what = "an uplink"
		}
		if i := from[l.ID]; i > 0 {
			at, queue, what = fmt.Sprintf("fabric.links[%d].queue", i-1), f.Links[i-1].Queue, built.LinkName(l.ID)
		}
		if told[at] {
			continue
		}
		switch {
		case l.Queue < least:
			c.failAt(at, "%v: %d bytes ahead of %s of %v: want at least two frames, %d bytes", queue, l.Queue, what, l.Rate, least)
			told[at] = true
		case l.Queue > units.GB:
			c.failAt(at, "%v: %v ahead of %s of %v: want at most 1GB", queue, l.Queue, what, l.Rate)
			told[at] = true
		case l.Delay > 0 && l.Delay < time.Microsecond && !told["delay"]:
			c.failAt("fabric.delay", "%v on %s: want 0s, or at least 1µs", l.Delay, built.LinkName(l.ID))
			told["delay"] = true
		}
		if red := f.RED; red != nil && l.Kind != topo.HostUp && l.Queue < red.Max && !told["red"] && len(told) == 0 {
			c.failAt("fabric.red.max", "%v: more than the queue of %s, %v: want less, or a longer queue", red.Max, built.LinkName(l.ID), l.Queue)
			told["red"] = true
		}
	}
	if red := f.RED; red != nil {
		if frame := units.Bytes(f.MTU) + ethernetHeader; red.Min < frame {
			c.failAt("fabric.red.min", "%v: less than a frame of %d bytes: want more", red.Min, frame)
		}
		if red.Max <= red.Min {
			c.failAt("fabric.red.max", "%v with min %v: want more than min", red.Max, red.Min)
		}
	}
}
