package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
)

// Op is one operation. Its String method returns the equivalent command. The set is
// closed: Namespace, Sysctl, Veth, Offloads, Delay, Shaper, RED, Address, Up,
// Ready, Neighbour and Route. All but Namespace change only the inside of the plan's
// namespaces, so removing the namespaces undoes them.
type Op interface {
	fmt.Stringer
	op()
}

// Optional reports whether a testbed works, with less precision, on a kernel that does
// not support op.
func Optional(op Op) bool {
	s, ok := op.(Sysctl)
	return ok && s.Optional
}

// Namespace creates a network namespace.
type Namespace struct {
	Name string `json:"name"`
}

// Sysctl sets kernel parameters inside a namespace, in order.
type Sysctl struct {
	Namespace string    `json:"namespace"`
	Set       []Setting `json:"set"`
	// Optional settings may be missing from a kernel; that is reported and is not an
	// error.
	Optional bool `json:"optional,omitempty"`
}

// Setting is one kernel parameter, with its name in sysctl(8).
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MarshalText returns the same text as String.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// End is one end of a link: a device in a namespace.
type End struct {
	Namespace string `json:"namespace"`
	Device    string `json:"device"`
	MAC       MAC    `json:"mac"`
}

// Veth creates both ends of a link, each directly in its own namespace: moving a device
// between namespaces afterwards costs forty times as much.
// One segment per packet (gso_max_segs 1) keeps TCP from handing the device
// packets larger than the MTU.
type Veth struct {
	A   End         `json:"a"`
	B   End         `json:"b"`
	MTU units.Bytes `json:"mtu"`
}

// Offloads turns off the features that make a device's packets differ from those on a
// wire: segmentation and receive offloads, and checksum offload to hardware that does
// not exist.
type Offloads struct {
	Namespace string `json:"namespace"`
	Device    string `json:"device"`
}

// OffloadFlags are the features that Offloads turns off, with their names in ethtool(8).
var OffloadFlags = []string{"gso", "tso", "gro", "tx", "sg"}

// Delay delays every packet before the link's shaper receives it (netem). It precedes the
// Shaper in the plan, whose Delayed is then true.
type Delay struct {
	Namespace string        `json:"namespace"`
	Device    string        `json:"device"`
	Delay     time.Duration `json:"delay_ns"` // one way
	// Packets is the maximum number of packets in the delay and the shaper's queue
	// together, large enough that only the shaper's queue drops packets.
	Packets uint32 `json:"packets"`
}

// Shaper puts a token bucket in front of a link: Rate, counted over Ethernet
// frames, with a bucket of Burst bytes and a drop-tail queue of Limit bytes. With Packets
// it is netem instead, which holds each packet for its time on the wire, and then for Delay.
type Shaper struct {
	Namespace string      `json:"namespace"`
	Device    string      `json:"device"`
	Rate      units.Rate  `json:"rate"`
	Burst     units.Bytes `json:"burst"`
	Limit     units.Bytes `json:"limit"`
	MTU       units.Bytes `json:"mtu"` // of the device: no frame is larger than this and EthernetHeader
	Delayed   bool        `json:"delayed,omitempty"`
	// Packets is the limit of netem, in packets; Burst is then a frame. 0 for a token bucket.
	Packets uint32        `json:"packets,omitempty"`
	Delay   time.Duration `json:"delay_ns,omitempty"` // of netem, one way
}

// RED puts random early detection in the place of a shaper's drop-tail queue,
// with the same limit.
type RED struct {
	Namespace string      `json:"namespace"`
	Device    string      `json:"device"`
	Limit     units.Bytes `json:"limit"`
	Min       units.Bytes `json:"min"` // of the average queue
	Max       units.Bytes `json:"max"`
	// Packet is the approximate size of a packet, used for the average queue and its
	// idle time. Burst is the number of such packets that the average tolerates.
	Packet      units.Bytes `json:"packet"`
	Burst       int         `json:"burst"`
	Probability float64     `json:"probability"`
	Rate        units.Rate  `json:"rate"` // of the shaper
	ECN         bool        `json:"ecn"`
	Delayed     bool        `json:"delayed,omitempty"` // same as the shaper's
}

// Address gives a device an address.
type Address struct {
	Namespace string       `json:"namespace"`
	Device    string       `json:"device"`
	Prefix    netip.Prefix `json:"prefix"` // the address, with the length of its network
}

// Up sets a device up.
type Up struct {
	Namespace string `json:"namespace"`
	Device    string `json:"device"`
}

// Ready waits until a device whose peer is also up can send. The kernel updates a
// device's carrier state in the background and drops outgoing packets until then: a lost
// SYN costs a second.
type Ready struct {
	Namespace string `json:"namespace"`
	Device    string `json:"device"`
}

// Neighbour fixes the Ethernet address of a neighbour, so that no packet waits
// for address resolution and none is sent for it.
type Neighbour struct {
	Namespace string     `json:"namespace"`
	Device    string     `json:"device"`
	Addr      netip.Addr `json:"addr"`
	MAC       MAC        `json:"mac"`
}

// Hop is a next hop.
type Hop struct {
	Addr   netip.Addr `json:"addr"`
	Device string     `json:"device"`
}

// Route sends a destination to one next hop or, by a hash of addresses and
// ports, to one of several. Without a next hop it discards packets silently.
type Route struct {
	Namespace string       `json:"namespace"`
	Dst       netip.Prefix `json:"dst"`
	Via       []Hop        `json:"via,omitempty"`
	// Congestion is the congestion control of TCP connections over the route; "" states none.
	// A connection takes it when its handshake begins, whatever its socket had before.
	Congestion string `json:"congestion,omitempty"`
	// InitialWindow is the congestion window of these connections at first, in segments; 0 states none.
	InitialWindow int `json:"initial_window,omitempty"`
}

// Metrics formats what the route states of TCP connections, as ip(8) does.
func (o Route) Metrics() (words []string) {
	if o.Congestion != "" {
		words = append(words, "congctl "+o.Congestion)
	}
	if o.InitialWindow > 0 {
		words = append(words, fmt.Sprintf("initcwnd %d", o.InitialWindow))
	}
	return words
}

func (Namespace) op() {}
func (Sysctl) op()    {}
func (Veth) op()      {}
func (Offloads) op()  {}
func (Delay) op()     {}
func (Shaper) op()    {}
func (RED) op()       {}
func (Address) op()   {}
func (Up) op()        {}
func (Ready) op()     {}
func (Neighbour) op() {}
func (Route) op()     {}

func (o Namespace) String() string { return "ip netns add " + o.Name }

func (o Sysctl) String() string {
	var b strings.Builder
	b.WriteString("ip netns exec " + o.Namespace + " sysctl -qw")
	for _, s := range o.Set {
		if strings.ContainsAny(s.Value, " \t") {
			fmt.Fprintf(&b, " %s='%s'", s.Key, s.Value)
		} else {
			fmt.Fprintf(&b, " %s=%s", s.Key, s.Value)
		}
	}
	if o.Optional {
		b.WriteString(" || true")
	}
	return b.String()
}

func (o Veth) String() string {
	return fmt.Sprintf("ip -n %s link add %s address %s mtu %d gso_max_segs 1 type veth peer name %s netns %s address %s mtu %d gso_max_segs 1",
		o.A.Namespace, o.A.Device, o.A.MAC, int64(o.MTU), o.B.Device, o.B.Namespace, o.B.MAC, int64(o.MTU))
}

func (o Offloads) String() string {
	return fmt.Sprintf("ip netns exec %s ethtool -K %s %s off", o.Namespace, o.Device, strings.Join(OffloadFlags, " off "))
}

// Handles of a device's qdiscs. A qdisc that receives its packets from another is a child
// of that qdisc's class 1.
const (
	RootHandle    = 1 // of the shaper, or of the delay ahead of it
	DelayedHandle = 2 // of a shaper that is Delayed
	REDHandle     = 3
)

func (o Delay) String() string {
	return fmt.Sprintf("tc -n %s qdisc replace dev %s root handle %d: netem delay %sus limit %d",
		o.Namespace, o.Device, RootHandle, microseconds(o.Delay), o.Packets)
}

// microseconds formats a delay: tc accepts no nanoseconds.
func microseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Nanoseconds())/1e3, 'f', -1, 64)
}

// Handle returns the shaper's handle and the handle of its parent among the qdiscs of its
// device. A parent of 0 is the root.
func (o Shaper) Handle() (handle, parent uint16) {
	if o.Delayed {
		return DelayedHandle, RootHandle
	}
	return RootHandle, 0
}

func (o Shaper) String() string {
	handle, parent := o.Handle()
	place := fmt.Sprintf("root handle %d:", handle)
	if parent > 0 {
		place = fmt.Sprintf("parent %d:1 handle %d:", parent, handle)
	}
	if o.Packets > 0 {
		delay := ""
		if o.Delay > 0 {
			delay = " delay " + microseconds(o.Delay) + "us"
		}
		return fmt.Sprintf("tc -n %s qdisc replace dev %s %s netem%s rate %dbit limit %d",
			o.Namespace, o.Device, place, delay, kernelRate(o.Rate), o.Packets)
	}
	return fmt.Sprintf("tc -n %s qdisc replace dev %s %s tbf rate %dbit burst %db limit %db",
		o.Namespace, o.Device, place, kernelRate(o.Rate), int64(o.Burst), int64(o.Limit))
}

// kernelRate returns a rate in bit/s as the kernel has it, which counts whole bytes.
func kernelRate(r units.Rate) int64 { return 8 * r.BytesPerSecond() }

// Parent returns the handle of the shaper.
func (o RED) Parent() uint16 {
	handle, _ := Shaper{Delayed: o.Delayed}.Handle()
	return handle
}

func (o RED) String() string {
	ecn := ""
	if o.ECN {
		ecn = " ecn"
	}
	return fmt.Sprintf("tc -n %s qdisc replace dev %s parent %d:1 handle %d: red limit %d min %d max %d avpkt %d burst %d probability %g bandwidth %dbit%s",
		o.Namespace, o.Device, o.Parent(), REDHandle, int64(o.Limit), int64(o.Min), int64(o.Max), int64(o.Packet), o.Burst, o.Probability, kernelRate(o.Rate), ecn)
}

func (o Address) String() string {
	return fmt.Sprintf("ip -n %s addr add %s dev %s", o.Namespace, o.Prefix, o.Device)
}

func (o Up) String() string { return fmt.Sprintf("ip -n %s link set %s up", o.Namespace, o.Device) }

func (o Ready) String() string {
	return fmt.Sprintf("ip -n %s link show dev %s up", o.Namespace, o.Device) // querying the link makes the kernel update its carrier state
}

func (o Neighbour) String() string {
	return fmt.Sprintf("ip -n %s neigh replace %s lladdr %s nud permanent dev %s", o.Namespace, o.Addr, o.MAC, o.Device)
}

func (o Route) String() string {
	to := o.Dst.String()
	if o.Dst.Bits() == 0 {
		to = "default"
	}
	switch len(o.Via) {
	case 0:
		return fmt.Sprintf("ip -n %s route add blackhole %s", o.Namespace, to)
	case 1:
		words := []string{fmt.Sprintf("ip -n %s route add %s via %s dev %s", o.Namespace, to, o.Via[0].Addr, o.Via[0].Device)}
		return strings.Join(append(words, o.Metrics()...), " ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ip -n %s route add %s", o.Namespace, to)
	for _, h := range o.Via {
		fmt.Fprintf(&b, " nexthop via %s dev %s weight 1", h.Addr, h.Device)
	}
	return b.String()
}

// NamespaceOf returns the only namespace in which an operation acts, or "".
func NamespaceOf(op Op) string {
	switch op := op.(type) {
	case Namespace:
		return op.Name
	case Sysctl:
		return op.Namespace
	case Offloads:
		return op.Namespace
	case Delay:
		return op.Namespace
	case Shaper:
		return op.Namespace
	case RED:
		return op.Namespace
	case Address:
		return op.Namespace
	case Up:
		return op.Namespace
	case Ready:
		return op.Namespace
	case Neighbour:
		return op.Namespace
	case Route:
		return op.Namespace
	}
	return ""
}
