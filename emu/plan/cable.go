package plan

import (
	"math"

	"testbed/topo"
	"testbed/topo/units"
)

// Cable is the cable of a directed link of the fabric, as used by faults. A fault cuts it
// by setting the leaf's end down: a host keeps its routes, captures and sockets, and a
// leaf, which has several next hops, stops using the next hop behind the cable.
type Cable struct {
	Leaf, Far End
	// Neighbour is the entry that the leaf's end loses while it is down.
	Neighbour Neighbour
}

// CableOf returns the cable of a link, the same for both directions.
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

// FabricRoute returns the route of a leaf to the rest of the fabric over the given spines.
// Without spines it discards packets.
func FabricRoute(r topo.RackID, spines []int) Route {
	return Route{Namespace: topo.LeafName(r), Dst: fabricPrefix, Via: via(r, spines)}
}

// RackRoute returns the route of a leaf to one other rack over the given spines.
func RackRoute(r, to topo.RackID, spines []int) Route {
	return Route{Namespace: topo.LeafName(r), Dst: topo.RackPrefix(to), Via: via(r, spines)}
}

func via(r topo.RackID, spines []int) (hops []Hop) {
	for _, s := range spines {
		_, onSpine := topo.UplinkAddrs(r, s)
		hops = append(hops, Hop{onSpine, topo.SpineName(s)})
	}
	return hops
}

// ShaperOf returns the shaper of a link at another rate. The link keeps its queue; burst
// sizes the bucket, and nil means DefaultBurst.
func ShaperOf(f *topo.Fabric, id topo.LinkID, rate units.Rate, burst func(units.Rate, units.Bytes) units.Bytes) Shaper {
	ns, dev := Egress(f, id)
	mtu := f.Shape().MTU
	if f.Shape().StoreAndForward {
		return serializer(f.Link(id), ns, dev, rate, mtu)
	}
	if burst == nil {
		burst = DefaultBurst
	}
	bucket := burst(rate, mtu)
	return Shaper{Namespace: ns, Device: dev, Rate: rate, Burst: bucket, Limit: max(f.Link(id).Queue, bucket), MTU: mtu, Delayed: f.Link(id).Delay > 0}
}

// serializer returns the shaper of a link that stores and forwards. Its limit is the queue, and what the delay
// holds, in full frames.
func serializer(l topo.Link, namespace, device string, rate units.Rate, mtu units.Bytes) Shaper {
	frame := mtu + EthernetHeader
	return Shaper{Namespace: namespace, Device: device, Rate: rate, Burst: frame, Limit: l.Queue, MTU: mtu,
		Packets: uint32(min(max((l.Queue+l.Rate.BytesIn(l.Delay))/frame, 1), math.MaxInt32)), Delay: l.Delay}
}
