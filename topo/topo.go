// Package topo describes a leaf-spine fabric: its shape, its directed links,
// the paths flows take through it, and the names and addresses of its nodes.
// A Fabric is immutable and dense: hosts, racks and links are numbered from
// 0, so state about them lives in slices.
//
// Packages emu/plan and emu/engine, not this one, build a fabric in a kernel and keep
// its state during a run.
package topo

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
)

// HostID, RackID and LinkID number hosts, racks and directed links from 0.
type (
	HostID int
	RackID int
	LinkID int
)

// MaxDelay is the longest propagation delay of a link.
const MaxDelay = 10 * time.Second

// Limits of the addressing scheme: a rack and a host are each one octet of an
// address (10.rack.host.1), a spine seven bits of one.
const (
	MaxLeaves       = 250
	MaxHostsPerLeaf = 250
	MaxSpines       = 64
)

// LeafSpine is the shape of a fabric, as the user specifies it. A single switch is one
// leaf without spines. A LeafSpine encodes as JSON and, decoded, builds the same fabric.
type LeafSpine struct {
	Leaves       int // racks, each under one leaf switch
	Spines       int // may be 0 where there is one leaf
	HostsPerLeaf int
	HostLink     units.Rate // of each host's link, in each direction, unless HostLinks overrides it
	// Oversubscription, Uplink and CrossRack each decide the rate of the links
	// between leaves and spines; exactly one is set where there are spines, and at
	// most one where there are none.
	//
	// Oversubscription is a rack's host capacity over its uplink capacity, summed
	// over the spines. Racks whose hosts differ have different uplinks.
	Oversubscription units.Ratio   `json:",omitzero"`
	Uplink           units.Rate    `json:",omitempty"` // of each link between a leaf and a spine, in each direction
	CrossRack        units.Rate    `json:",omitempty"` // of a rack, in each direction: split evenly over the spines
	Queue            Queue         // drop-tail buffer before every link
	MTU              units.Bytes   // largest IP packet
	Delay            time.Duration `json:",omitempty"` // one-way propagation of every link
	HostLinks        []HostLink    `json:",omitempty"` // later entries take precedence
	Links            []LinkChange  `json:",omitempty"` // later entries take precedence
	RED              *RED          `json:",omitempty"` // nil for drop-tail alone
	// StoreAndForward makes every link hold each packet for the time that it takes on the wire. Without it
	// a token bucket limits the rate, and a packet on an idle link passes at once. Not with RED.
	StoreAndForward bool `json:",omitempty"`
}

// HostLink is the rate of the links of some hosts, in each direction.
type HostLink struct {
	Hosts string // a pattern for FindHosts
	Rate  units.Rate
}

// LinkChange overrides properties of some links. Zero fields change nothing.
type LinkChange struct {
	Link  string         // a pattern for FindLinks
	Rate  units.Rate     `json:",omitempty"`
	Queue Queue          `json:",omitzero"`
	Delay *time.Duration `json:",omitempty"` // one way
}

// RED is random early detection (Floyd and Jacobson 1993) on the queues of switch
// ports: packets are dropped, or marked, with a probability that grows with the
// moving average of the queue.
type RED struct {
	Min, Max    units.Bytes // of the average queue: no drops below Min, all packets above Max
	Probability float64     // at Max, in (0, 1]
	// ECN marks the packets of connections that support it (RFC 3168) instead of
	// dropping them. Hosts then negotiate it on every connection.
	ECN bool
}

// Queue is the size of the buffer before a link, either in bytes or as the time in
// which the link drains it. Exactly one is set.
type Queue struct {
	Bytes units.Bytes
	Time  time.Duration
}

// ParseQueue parses a size such as "64KB" or a drain time such as "20ms".
func ParseQueue(s string) (Queue, error) {
	if b, err := units.ParseBytes(s); err == nil {
		return Queue{Bytes: b}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return Queue{Time: d}, nil
	}
	return Queue{}, fmt.Errorf(`queue %q: expected a size such as "64KB" or a drain time such as "20ms"`, s)
}

// On returns the size of the queue in bytes before a link of the given rate.
func (q Queue) On(rate units.Rate) units.Bytes {
	if q.Bytes > 0 {
		return q.Bytes
	}
	return rate.BytesIn(q.Time)
}

func (q Queue) String() string {
	if q.Bytes > 0 || q.Time == 0 {
		return q.Bytes.String()
	}
	return q.Time.String()
}

// MarshalText returns String.
func (q Queue) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText parses text with ParseQueue.
func (q *Queue) UnmarshalText(text []byte) error {
	v, err := ParseQueue(string(text))
	if err == nil {
		*q = v
	}
	return err
}

// LinkKind is the position of a directed link in the fabric.
type LinkKind uint8

// The four kinds of link. Up is toward the spines.
const (
	HostUp   LinkKind = iota // host → its leaf
	HostDown                 // leaf → host
	LeafUp                   // leaf → spine
	LeafDown                 // spine → leaf
)

func (k LinkKind) String() string {
	switch k {
	case HostUp:
		return "host-up"
	case HostDown:
		return "host-down"
	case LeafUp:
		return "leaf-up"
	case LeafDown:
		return "leaf-down"
	}
	return fmt.Sprintf("LinkKind(%d)", k)
}

// Link is one directed link. Host is set on host links, Spine on the others, Rack on
// all.
type Link struct {
	ID    LinkID
	Kind  LinkKind
	Host  HostID
	Rack  RackID
	Spine int
	Rate  units.Rate
	Queue units.Bytes
	Delay time.Duration // one-way propagation
	RED   *RED          // of a switch port; nil for a drop-tail queue
}

// Fabric is a built leaf-spine.
type Fabric struct {
	shape LeafSpine
	links []Link
}

// Build checks the shape and lays out its links. The error joins all
// problems of the shape.
func (s LeafSpine) Build() (*Fabric, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(name string, n, lo, hi int) {
		if n < lo || n > hi {
			bad("%s: %d: must be %d to %d", name, n, lo, hi)
		}
	}
	within("leaves", s.Leaves, 1, MaxLeaves)
	within("hosts_per_leaf", s.HostsPerLeaf, 1, MaxHostsPerLeaf)
	if s.Leaves > 1 {
		within("spines", s.Spines, 1, MaxSpines)
	} else {
		within("spines", s.Spines, 0, MaxSpines)
	}
	if s.HostLink <= 0 {
		bad("host_link: %v: must be positive", s.HostLink)
	}
	if err := s.checkUplinks(); err != nil {
		errs = append(errs, err)
	}
	if s.Queue.Bytes < 0 || s.Queue.Time < 0 || (s.Queue.Bytes == 0) == (s.Queue.Time == 0) {
		bad("queue: %v: must be a positive size or time", s.Queue)
	}
	if s.MTU < 576 || s.MTU > 65000 {
		bad("mtu: %d: must be 576 to 65000 bytes", s.MTU)
	}
	if s.Delay < 0 || s.Delay > MaxDelay {
		bad("delay: %v: must be 0s to %v", s.Delay, MaxDelay)
	}
	if s.RED != nil && s.StoreAndForward {
		bad("red: a link that stores and forwards has no RED: use token buckets")
	}
	if r := s.RED; r != nil {
		if r.Min <= 0 || r.Max <= r.Min {
			bad("red: min %v and max %v: min must be positive and less than max", r.Min, r.Max)
		}
		if !(r.Probability > 0 && r.Probability <= 1) { // rejects NaN too
			bad("red: probability %v: must be more than 0 and at most 1", r.Probability)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s.build()
}

// Shape returns the shape that the fabric was built from. Its rates are those that the
// user specified; Link.Rate is the rate of a link.
func (f *Fabric) Shape() LeafSpine { return f.shape }

// Hosts returns the number of hosts.
func (f *Fabric) Hosts() int { return f.shape.Leaves * f.shape.HostsPerLeaf }

// Racks returns the number of racks.
func (f *Fabric) Racks() int { return f.shape.Leaves }

// Spines returns the number of spines.
func (f *Fabric) Spines() int { return f.shape.Spines }

// Links returns all directed links in order of ID. The caller must not modify them.
func (f *Fabric) Links() []Link { return f.links }

// Link returns the link with the given ID.
func (f *Fabric) Link(id LinkID) Link { return f.links[id] }

// RackOf returns the rack of a host.
func (f *Fabric) RackOf(h HostID) RackID { return RackID(int(h) / f.shape.HostsPerLeaf) }

// HostIn returns the i-th host of a rack.
func (f *Fabric) HostIn(r RackID, i int) HostID { return HostID(int(r)*f.shape.HostsPerLeaf + i) }

// HostUp returns the link from a host to its leaf.
func (f *Fabric) HostUp(h HostID) LinkID { return LinkID(2 * int(h)) }

// HostDown returns the link from a leaf to its host.
func (f *Fabric) HostDown(h HostID) LinkID { return LinkID(2*int(h) + 1) }

// LeafUp returns the link from a leaf to a spine.
func (f *Fabric) LeafUp(r RackID, spine int) LinkID {
	return LinkID(2*f.Hosts() + 2*(int(r)*f.shape.Spines+spine))
}

// LeafDown returns the link from a spine to a leaf.
func (f *Fabric) LeafDown(r RackID, spine int) LinkID { return f.LeafUp(r, spine) + 1 }

// SpineFor returns the spine that equal-cost multipath selects for a flow with the given
// hash; ok is false if the flow stays in its rack.
func (f *Fabric) SpineFor(src, dst HostID, hash uint32) (spine int, ok bool) {
	if f.RackOf(src) == f.RackOf(dst) {
		return 0, false
	}
	return int(hash % uint32(f.shape.Spines)), true
}

// Path returns the directed links from src to dst for a flow with the given hash: none
// from a host to itself, two inside a rack, four between racks.
func (f *Fabric) Path(src, dst HostID, hash uint32) []LinkID {
	if src == dst {
		return nil
	}
	spine, crosses := f.SpineFor(src, dst, hash)
	if !crosses {
		return []LinkID{f.HostUp(src), f.HostDown(dst)}
	}
	return []LinkID{f.HostUp(src), f.LeafUp(f.RackOf(src), spine), f.LeafDown(f.RackOf(dst), spine), f.HostDown(dst)}
}

// HostName returns the name of a host, such as "h3-07" for host 7 of rack 3.
func (f *Fabric) HostName(h HostID) string {
	return hostName(f.RackOf(h), int(h)%f.shape.HostsPerLeaf)
}

func hostName(r RackID, i int) string {
	b := strconv.AppendInt(append(make([]byte, 0, 16), 'h'), int64(r), 10)
	if b = append(b, '-'); i < 10 {
		b = append(b, '0')
	}
	return string(strconv.AppendInt(b, int64(i), 10))
}

// LeafName returns the name of a leaf, such as "leaf3".
func LeafName(r RackID) string { return "leaf" + strconv.Itoa(int(r)) }

// SpineName returns the name of a spine, such as "spine0".
func SpineName(s int) string { return "spine" + strconv.Itoa(s) }

// IsSwitch reports whether name is the name of a leaf or spine of any fabric.
func IsSwitch(name string) bool {
	for _, kind := range []string{"leaf", "spine"} {
		if number, ok := strings.CutPrefix(name, kind); ok {
			n, err := strconv.Atoi(number)
			return err == nil && n >= 0 && strconv.Itoa(n) == number
		}
	}
	return false
}

// IsSpine reports whether name is the name of a spine.
func IsSpine(name string) bool { return strings.HasPrefix(name, "spine") && IsSwitch(name) }

// LinkName returns the name of a link, such as "h3-07>leaf3" or "spine0>leaf3".
func (f *Fabric) LinkName(id LinkID) string {
	l := f.links[id]
	switch l.Kind {
	case HostUp:
		return f.HostName(l.Host) + ">" + LeafName(l.Rack)
	case HostDown:
		return LeafName(l.Rack) + ">" + f.HostName(l.Host)
	case LeafUp:
		return LeafName(l.Rack) + ">" + SpineName(l.Spine)
	default:
		return SpineName(l.Spine) + ">" + LeafName(l.Rack)
	}
}

// FindHost returns the host with the given name.
func (f *Fabric) FindHost(name string) (HostID, error) {
	for h := range f.Hosts() {
		if f.HostName(HostID(h)) == name {
			return HostID(h), nil
		}
	}
	last := HostID(f.Hosts() - 1)
	return 0, fmt.Errorf("no host %q: hosts are %s to %s", name, f.HostName(0), f.HostName(last))
}

// HostAddr returns the address of a host: 10.rack.host.1.
func (f *Fabric) HostAddr(h HostID) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(f.RackOf(h)), byte(int(h) % f.shape.HostsPerLeaf), 1})
}

// GatewayAddr returns the address of the leaf on a host's link: 10.rack.host.0, the
// other end of the host's /31.
func (f *Fabric) GatewayAddr(h HostID) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(f.RackOf(h)), byte(int(h) % f.shape.HostsPerLeaf), 0})
}

// RackPrefix returns the prefix of all hosts of a rack: 10.rack.0.0/16.
func RackPrefix(r RackID) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r), 0, 0}), 16)
}

// UplinkAddrs returns the addresses of the link between a leaf and a spine, a /31:
// 172.16.leaf.2·spine on the spine, and the next one on the leaf.
func UplinkAddrs(r RackID, spine int) (leaf, onSpine netip.Addr) {
	return netip.AddrFrom4([4]byte{172, 16, byte(r), byte(2*spine + 1)}), netip.AddrFrom4([4]byte{172, 16, byte(r), byte(2 * spine)})
}

// MarkAddr returns the destination of arrival marks: an address of the documentation
// range (RFC 5737) that every leaf discards, so that a mark crosses only the interface
// of its host.
func MarkAddr() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) }

// HostNameOf returns the name of the host with an address, without its fabric, for
// readers of captures. ok is false if the address is not that of a host.
func HostNameOf(a netip.Addr) (name string, ok bool) {
	if !a.Is4() {
		return "", false
	}
	b := a.As4()
	if b[0] != 10 || b[3] != 1 {
		return "", false
	}
	return hostName(RackID(b[1]), int(b[2])), true
}

// ParseHostName is the inverse of HostName: it returns the rack and the index of the
// host in it.
func ParseHostName(name string) (r RackID, i int, ok bool) {
	rack, place, found := strings.Cut(strings.TrimPrefix(name, "h"), "-")
	rn, err1 := strconv.Atoi(rack)
	in, err2 := strconv.Atoi(place)
	if !found || err1 != nil || err2 != nil || rn < 0 || in < 0 || hostName(RackID(rn), in) != name {
		return 0, 0, false
	}
	return RackID(rn), in, true
}
