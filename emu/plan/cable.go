package plan

import (
	"testbed/topo"
	"testbed/topo/units"
)

// Cable is the cable that a directed link of the fabric runs over, as faults need
// it. It is cut by taking the end at the leaf down: a host keeps its routes, its
// captures and its sockets, and a leaf, which has several next hops, stops using
// the one that is gone.
type Cable struct {
	Leaf, Far End
	// Neighbour is what the leaf's end forgets while it is down.
	Neighbour Neighbour
}

// CableOf is the cable of a link, the same for both its directions.
func CableOf(f *topo.Fabric, id topo.LinkID) Cable {
	l := f.Link(id)
	if l.Kind == topo.HostUp || l.Kind == topo.HostDown {
		host, leaf := compiler{f: f}.hostEnds(l.Host)
		return Cable{leaf, host, Neighbour{leaf.Namespace, leaf.Device, f.HostAddr(l.Host), host.MAC}}
	}
	leaf, spine := uplinkEnds(l.Rack, l.Spine)
	_, onSpine := topo.UplinkAddrs(l.Rack, l.Spine)
	return Cable{leaf, spine, Neighbour{leaf.Namespace, leaf.Device, onSpine, spine.MAC}}
}

// FabricRoute is the route of a leaf to the rest of the fabric over some spines;
// over none it discards.
func FabricRoute(r topo.RackID, spines []int) Route {
	return Route{topo.LeafName(r), fabricPrefix, via(r, spines)}
}

// RackRoute is the route of a leaf to one other rack over some spines.
func RackRoute(r, to topo.RackID, spines []int) Route {
	return Route{topo.LeafName(r), topo.RackPrefix(to), via(r, spines)}
}

func via(r topo.RackID, spines []int) (hops []Hop) {
	for _, s := range spines {
		_, onSpine := topo.UplinkAddrs(r, s)
		hops = append(hops, Hop{onSpine, topo.SpineName(s)})
	}
	return hops
}

// ShaperOf is the shaper of a link at another rate, with the queue that it has
// and the bucket that burst says; nil is DefaultBurst.
func ShaperOf(f *topo.Fabric, id topo.LinkID, rate units.Rate, burst func(units.Rate, units.Bytes) units.Bytes) Shaper {
	ns, dev := Egress(f, id)
	mtu := f.Shape().MTU
	if burst == nil {
		burst = DefaultBurst
	}
	bucket := burst(rate, mtu)
	return Shaper{Namespace: ns, Device: dev, Rate: rate, Burst: bucket, Limit: max(f.Link(id).Queue, bucket), MTU: mtu, Delayed: f.Link(id).Delay > 0}
}
