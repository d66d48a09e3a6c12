package plan

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"testbed/topo"
	"testbed/topo/units"
)

// Options are the parameters of a plan that a fabric's shape does not determine.
type Options struct {
	// Seed determines the seeds of the switches' multipath hashes and nothing else.
	Seed uint64
	// Burst returns the token bucket of a link with the given rate and MTU; nil means
	// DefaultBurst.
	Burst func(rate units.Rate, mtu units.Bytes) units.Bytes
	// Congestion is the congestion control of the hosts' TCP; "" is the machine's default. The
	// routes of the hosts state it, because they can name any that the kernel has. As a
	// parameter of a namespace, the kernel accepts only those that the machine allows to all.
	Congestion string
	// CongestionAllowed reports whether the machine allows Congestion to all. It is then the
	// parameter of hosts too.
	CongestionAllowed bool
}

// Uplink is the name of a host's device, the only one besides lo.
const Uplink = "eth0"

// Compile returns the plan that builds f. The plan may contain values that no kernel
// supports, such as a rate of 1 bit/s: Plan.Check reports them.
func Compile(name string, f *topo.Fabric, o Options) *Plan {
	if o.Burst == nil {
		o.Burst = DefaultBurst
	}
	c := compiler{f: f, o: o, mtu: f.Shape().MTU}
	return &Plan{Name: name, Shape: f.Shape(), Seed: o.Seed, Stages: []Stage{
		{"namespaces", c.namespaces()},
		{"kernel parameters", c.sysctls()},
		{"links", c.links()},
		{"shapers", c.shapers()},
		{"addresses", c.addresses()},
		{"devices up", c.up()},
		{"devices ready", c.ready()},
		{"neighbours", c.neighbours()},
		{"routes", c.routes()},
	}}
}

type compiler struct {
	f   *topo.Fabric
	o   Options
	mtu units.Bytes
}

// hosts calls do for each host in order.
func (c compiler) hosts(do func(h topo.HostID, name, leaf string)) {
	for h := range topo.HostID(c.f.Hosts()) {
		do(h, c.f.HostName(h), topo.LeafName(c.f.RackOf(h)))
	}
}

func (c compiler) uplinks(do func(r topo.RackID, s int, leaf, spine string)) {
	for r := range topo.RackID(c.f.Racks()) {
		for s := range c.f.Spines() {
			do(r, s, topo.LeafName(r), topo.SpineName(s))
		}
	}
}

func (c compiler) switches() []string {
	var names []string
	for r := range topo.RackID(c.f.Racks()) {
		names = append(names, topo.LeafName(r))
	}
	for s := range c.f.Spines() {
		names = append(names, topo.SpineName(s))
	}
	return names
}

func (c compiler) namespaces() (ops []Op) {
	c.hosts(func(_ topo.HostID, name, _ string) { ops = append(ops, Namespace{name}) })
	for _, name := range c.switches() {
		ops = append(ops, Namespace{name})
	}
	return ops
}

func (c compiler) sysctls() (ops []Op) {
	c.hosts(func(_ topo.HostID, name, _ string) {
		ops = append(ops, Sysctl{Namespace: name, Set: hostSettings}, Sysctl{Namespace: name, Set: noIPv6, Optional: true})
		if c.o.Congestion != "" && c.o.CongestionAllowed {
			ops = append(ops, Sysctl{Namespace: name, Set: []Setting{{congestionKey, c.o.Congestion}}})
		}
		if red := c.f.Shape().RED; red != nil && red.ECN {
			ops = append(ops, Sysctl{Namespace: name, Set: ecnSettings})
		}
	})
	for _, name := range c.switches() {
		ops = append(ops, Sysctl{Namespace: name, Set: switchSettings}, Sysctl{Namespace: name, Set: noIPv6, Optional: true})
		seed := []Setting{{"net.ipv4.fib_multipath_hash_seed", fmt.Sprint(hashSeed(c.o.Seed, name))}}
		ops = append(ops, Sysctl{Namespace: name, Set: seed, Optional: true})
	}
	return ops
}

// hashSeed returns a switch's multipath hash seed. It is never 0, because the kernel
// replaces 0 with a random seed.
func hashSeed(seed uint64, name string) uint32 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", seed, name)
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the finalizer of SplitMix64, because FNV mixes its last bytes poorly
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return max(1, uint32(x>>32^x))
}

// MAC addresses correspond to the devices' IP addresses. 02:00 marks them as locally
// administered. The next octets are 00 for a host link or 01 for an uplink, the rack, and
// the host's index in the rack or the spine. The last octet is the side: 1 on the host (on
// the leaf, of an uplink), 0 on the leaf (on the spine).
func hostMAC(r topo.RackID, place int, side byte) MAC {
	return MAC{2, 0, 0, byte(r), byte(place), side}
}

func uplinkMAC(r topo.RackID, spine int, side byte) MAC {
	return MAC{2, 0, 1, byte(r), byte(spine), side}
}

func (c compiler) hostEnds(h topo.HostID) (host, leaf End) {
	r := c.f.RackOf(h)
	place := int(h - c.f.HostIn(r, 0))
	name := c.f.HostName(h)
	return End{name, Uplink, hostMAC(r, place, 1)}, End{topo.LeafName(r), name, hostMAC(r, place, 0)}
}

func uplinkEnds(r topo.RackID, s int) (leaf, spine End) {
	return End{topo.LeafName(r), topo.SpineName(s), uplinkMAC(r, s, 1)}, End{topo.SpineName(s), topo.LeafName(r), uplinkMAC(r, s, 0)}
}

// ends calls do with both ends of every link and their addresses.
func (c compiler) ends(do func(a, b End, addrA, addrB netip.Addr)) {
	c.hosts(func(h topo.HostID, _, _ string) {
		a, b := c.hostEnds(h)
		do(a, b, c.f.HostAddr(h), c.f.GatewayAddr(h))
	})
	c.uplinks(func(r topo.RackID, s int, _, _ string) {
		a, b := uplinkEnds(r, s)
		addrA, addrB := topo.UplinkAddrs(r, s)
		do(a, b, addrA, addrB)
	})
}

func (c compiler) links() (ops []Op) {
	c.ends(func(a, b End, _, _ netip.Addr) {
		ops = append(ops, Veth{A: a, B: b, MTU: c.mtu}, Offloads{a.Namespace, a.Device}, Offloads{b.Namespace, b.Device})
	})
	return ops
}

func (c compiler) shapers() (ops []Op) {
	arrivals := c.arrivals()
	for _, l := range c.f.Links() {
		ns, dev := Egress(c.f, l.ID)
		if c.f.Shape().StoreAndForward {
			ops = append(ops, serializer(l, ns, dev, l.Rate, c.mtu))
			continue
		}
		delayed := l.Delay > 0
		if delayed {
			ops = append(ops, Delay{Namespace: ns, Device: dev, Delay: l.Delay, Packets: delayLimit(l, max(l.Rate, arrivals(l)))})
		}
		ops = append(ops, Shaper{Namespace: ns, Device: dev, Rate: l.Rate, Burst: c.o.Burst(l.Rate, c.mtu), Limit: l.Queue, MTU: c.mtu, Delayed: delayed})
		if r := l.RED; r != nil {
			packet := redPacket(c.mtu)
			ops = append(ops, RED{Namespace: ns, Device: dev, Limit: l.Queue, Min: r.Min, Max: r.Max, Packet: packet, Burst: redBurst(r.Min, r.Max, packet),
				Probability: r.Probability, Rate: l.Rate, ECN: r.ECN, Delayed: delayed})
		}
	}
	return ops
}

// arrivals returns a function that gives the maximum arrival rate at a link: the sum of the
// rates of all links that end at its source. No link bounds the packets that a host
// itself sends; they count as ten times the link's rate.
func (c compiler) arrivals() func(topo.Link) units.Rate {
	leaf, spine := make([]units.Rate, c.f.Racks()), make([]units.Rate, c.f.Spines())
	for _, l := range c.f.Links() {
		switch l.Kind {
		case topo.HostUp, topo.LeafDown:
			leaf[l.Rack] += l.Rate
		case topo.LeafUp:
			spine[l.Spine] += l.Rate
		}
	}
	return func(l topo.Link) units.Rate {
		switch l.Kind {
		case topo.HostUp:
			return 10 * l.Rate
		case topo.LeafDown:
			return spine[l.Spine]
		default:
			return leaf[l.Rack]
		}
	}
}

// Egress returns the namespace and device where a directed link begins. Their shaper and
// transmit counters are those of the link.
func Egress(f *topo.Fabric, id topo.LinkID) (namespace, device string) {
	l := f.Link(id)
	switch l.Kind {
	case topo.HostUp:
		return f.HostName(l.Host), Uplink
	case topo.HostDown:
		return topo.LeafName(l.Rack), f.HostName(l.Host)
	case topo.LeafUp:
		return topo.LeafName(l.Rack), topo.SpineName(l.Spine)
	default:
		return topo.SpineName(l.Spine), topo.LeafName(l.Rack)
	}
}

func (c compiler) addresses() (ops []Op) {
	c.ends(func(a, b End, addrA, addrB netip.Addr) {
		ops = append(ops, Address{a.Namespace, a.Device, netip.PrefixFrom(addrA, 31)}, Address{b.Namespace, b.Device, netip.PrefixFrom(addrB, 31)})
	})
	return ops
}

func (c compiler) up() (ops []Op) {
	c.hosts(func(_ topo.HostID, name, _ string) { ops = append(ops, Up{name, "lo"}) })
	c.ends(func(a, b End, _, _ netip.Addr) {
		ops = append(ops, Up{a.Namespace, a.Device}, Up{b.Namespace, b.Device})
	})
	return ops
}

func (c compiler) ready() (ops []Op) {
	c.ends(func(a, b End, _, _ netip.Addr) {
		ops = append(ops, Ready{a.Namespace, a.Device}, Ready{b.Namespace, b.Device})
	})
	return ops
}

func (c compiler) neighbours() (ops []Op) {
	c.ends(func(a, b End, addrA, addrB netip.Addr) {
		ops = append(ops, Neighbour{a.Namespace, a.Device, addrB, b.MAC}, Neighbour{b.Namespace, b.Device, addrA, a.MAC})
	})
	return ops
}

// fabricPrefix contains the addresses of all hosts.
var fabricPrefix = netip.MustParsePrefix("10.0.0.0/8")

// initialWindow returns how many segments of an MTU a host sends at first, or 0 for the kernel's default, which is 10
// (RFC 6928). A SYN announces a window of 65,535 bytes at most (RFC 7323, section 2.2): what does not fit in it would
// wait for the receiver for a round trip, and not for the network.
func initialWindow(mtu units.Bytes) int {
	const segments, window, headers = 10, 65535, 20 + 20 + 12 // of IPv4 and of TCP with time stamps
	if fit := window / int(mtu-headers); fit < segments {
		return fit
	}
	return 0
}

// routes returns the routes of all nodes. A leaf reaches its hosts by their links'
// addresses and the rest of the fabric over the spines. It discards marks, and packets to
// hosts that do not exist in its rack, which would otherwise loop between leaf and spine.
func (c compiler) routes() (ops []Op) {
	c.hosts(func(h topo.HostID, name, _ string) {
		ops = append(ops, Route{
			Namespace:  name,
			Dst:        netip.MustParsePrefix("0.0.0.0/0"),
			Via:        []Hop{{c.f.GatewayAddr(h), Uplink}},
			Congestion: c.o.Congestion, InitialWindow: initialWindow(c.f.Shape().MTU),
		})
	})
	for r := range topo.RackID(c.f.Racks()) {
		leaf := topo.LeafName(r)
		ops = append(ops, Route{Namespace: leaf, Dst: netip.PrefixFrom(topo.MarkAddr(), 32)}, Route{Namespace: leaf, Dst: topo.RackPrefix(r)})
		var via []Hop
		for s := range c.f.Spines() {
			_, onSpine := topo.UplinkAddrs(r, s)
			via = append(via, Hop{onSpine, topo.SpineName(s)})
		}
		if len(via) > 0 {
			ops = append(ops, Route{Namespace: leaf, Dst: fabricPrefix, Via: via})
		}
	}
	for s := range c.f.Spines() {
		for r := range topo.RackID(c.f.Racks()) {
			onLeaf, _ := topo.UplinkAddrs(r, s)
			ops = append(ops, Route{
				Namespace: topo.SpineName(s),
				Dst:       topo.RackPrefix(r),
				Via:       []Hop{{onLeaf, topo.LeafName(r)}},
			})
		}
	}
	return ops
}
