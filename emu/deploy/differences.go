package deploy

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"testbed/emu/plan"
	"testbed/topo/units"
)

// Difference is a difference between a kernel and the plan.
type Difference struct {
	Namespace string
	Device    string // "" if the difference is of the whole namespace
	Subject   string // the link, such as leaf0>h0-01, or the namespace
	What      string // such as "rate"
	Planned   string // value in the plan
	Found     string // value in the kernel
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s %s in the plan, %s in the kernel", d.Subject, d.What, d.Planned, d.Found)
}

// Compare reads back what the plan created. It calls Read from as many goroutines as c allows (Parallel).
func (e *Expectation) Compare(ctx context.Context, c Checker) ([]Difference, error) {
	found, err := e.read(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []Difference
	for i, name := range e.names {
		d := e.differ(name)
		d.compare(e.found[i], found[i])
		out = append(out, d.differences...)
	}
	return out, nil
}

func (e *Expectation) differ(namespace string) differ {
	return differ{namespace: namespace, peers: e.peers, optional: e.optional[namespace]}
}

// differ collects the differences of one namespace.
type differ struct {
	namespace   string
	peers       map[string]string // namespace of the peer of namespace/device
	optional    map[string]bool   // parameters
	device      string            // of what is compared; "" for none
	differences []Difference
}

// link returns the name of a device's link, such as leaf0>h0-01, and makes the device that of the differences
// that are added.
func (d *differ) link(device string) string {
	d.device = device
	if peer := d.peers[d.namespace+"/"+device]; peer != "" {
		return d.namespace + ">" + peer
	}
	return d.namespace + " " + device
}

// whole returns the name of the namespace, and makes the differences that are added those of no device.
func (d *differ) whole() string {
	d.device = ""
	return d.namespace
}

func (d *differ) add(subject, what, want, got string) {
	if want != got {
		d.differences = append(d.differences, Difference{d.namespace, d.device, subject, what, want, got})
	}
}

func (d *differ) compare(want *Found, got Found) {
	devices := map[string]Device{}
	for _, g := range got.Devices {
		devices[g.Name] = g
	}
	for _, w := range want.Devices {
		g, ok := devices[w.Name]
		delete(devices, w.Name)
		if !ok {
			d.add(d.link(w.Name), "device", w.Name, none)
			continue
		}
		d.compareDevice(w, g)
		d.compareQdiscs(w, g)
	}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		d.add(d.link(name), "device", none, name)
	}
	list(d, "address", want.Addresses, got.Addresses, func(a plan.Address) (string, string, string) {
		return d.link(a.Device), a.Prefix.Addr().String(), a.Prefix.String()
	})
	list(d, "neighbour", want.Neighbours, got.Neighbours, func(n plan.Neighbour) (string, string, string) {
		return d.link(n.Device), n.Addr.String(), n.MAC.String()
	})
	list(d, "route", want.Routes, got.Routes, func(r Route) (string, string, string) {
		return d.whole(), destination(r.Dst), r.via()
	})
	list(d, "rule", want.Rules, got.Rules, func(r string) (string, string, string) { return d.whole(), r, yes[true] })
	for _, key := range slices.Sorted(maps.Keys(want.Parameters)) {
		value, known := got.Parameters[key]
		switch {
		case known:
			d.add(d.whole(), key, words(want.Parameters[key]), words(value))
		case !d.optional[key]:
			d.add(d.whole(), key, want.Parameters[key], none)
		}
	}
}

// words separates the values of a parameter by single spaces: the kernel separates them by tabs.
func words(value string) string { return strings.Join(strings.Fields(value), " ") }

const none = "none"

// compareDevice compares two devices without their qdiscs.
func (d *differ) compareDevice(w, g Device) {
	link := d.link(w.Name)
	if w.Name != "lo" {
		d.add(link, "address of the device", w.MAC.String(), g.MAC.String())
		d.add(link, "MTU", fmt.Sprint(int64(w.MTU)), fmt.Sprint(int64(g.MTU)))
	}
	if w.Segments != anySegments {
		d.add(link, "gso_max_segs", fmt.Sprint(w.Segments), fmt.Sprint(g.Segments))
	}
	if w.Up {
		d.add(link, "device", "up", map[bool]string{true: "up", false: "down"}[g.Up])
	}
	for _, name := range g.Offloads {
		if w.Name != "lo" && !slices.Contains(w.Offloads, name) {
			d.add(link, "offload "+name, "off", "on")
		}
	}
	d.add(link, "XDP program", yes[w.XDP], yes[g.XDP])
}

// yes are words for what is there or not.
var yes = map[bool]string{true: "one", false: none}

func (d *differ) compareQdiscs(w, g Device) {
	link := d.link(w.Name)
	qdiscs := map[string]Qdisc{}
	for _, q := range g.Qdiscs {
		qdiscs[q.Parent] = q
	}
	for _, q := range w.Qdiscs {
		h, ok := qdiscs[q.Parent]
		delete(qdiscs, q.Parent)
		switch {
		case !ok:
			d.add(link, "qdisc", q.Kind+" at "+q.Parent, none)
		case q.Kind != h.Kind:
			d.add(link, "qdisc", q.Kind+" at "+q.Parent, h.Kind)
		default:
			d.qdisc(link, q, h)
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(qdiscs)) {
		d.add(link, "qdisc", none, qdiscs[parent].Kind+" at "+parent)
	}
}

// probabilityGrain is the precision with which the kernel stores a probability.
const probabilityGrain = 1.0 / (1 << 31)

// qdisc compares two qdiscs of the same kind and parent.
func (d *differ) qdisc(link string, w, g Qdisc) {
	bytes := func(what string, w, g units.Bytes) {
		d.add(link, what, fmt.Sprintf("%d bytes", int64(w)), fmt.Sprintf("%d bytes", int64(g)))
	}
	switch w.Kind {
	case "tbf":
		d.add(link, "rate", w.Rate.String(), g.Rate.String())
		bytes("queue", w.Limit, g.Limit)
		if off := w.Burst - g.Burst; off > g.Grain || -off > g.Grain {
			bytes("burst", w.Burst, g.Burst)
		}
		for _, b := range g.Besides {
			d.add(link, "shaper's "+b, none, b)
		}
	case "netem":
		rate := func(q Qdisc) string {
			if q.Rate == 0 {
				return none
			}
			return q.Rate.String()
		}
		name := "rate" // as a fault explains it
		if w.Rate == 0 {
			name = "delay's rate"
		}
		d.add(link, name, rate(w), rate(g))
		d.add(link, "delay", w.Delay.String(), g.Delay.String())
		d.add(link, "delay's limit", fmt.Sprintf("%d packets", w.Packets), fmt.Sprintf("%d packets", g.Packets))
		for _, b := range g.Besides {
			d.add(link, "delay's "+b, none, b)
		}
	case "red":
		bytes("red's limit", w.Limit, g.Limit)
		bytes("red's min", w.Min, g.Min)
		bytes("red's max", w.Max, g.Max)
		d.add(link, "red's weight", fmt.Sprintf("2^-%d", w.Weight), fmt.Sprintf("2^-%d", g.Weight))
		if math.Abs(w.Probability-g.Probability) > probabilityGrain {
			d.add(link, "red's probability", fmt.Sprintf("%.6g", w.Probability), fmt.Sprintf("%.6g", g.Probability))
		}
		onOff := map[bool]string{true: "on", false: "off"}
		d.add(link, "red's ecn", onOff[w.ECN], onOff[g.ECN])
	}
}

// list compares two lists of objects that each have a subject, a key and a value.
func list[T any](d *differ, what string, want, got []T, parts func(T) (subject, key, value string)) {
	type id struct{ subject, key string }
	have := map[id]string{}
	for _, g := range got {
		subject, key, value := parts(g)
		have[id{subject, key}] = value
	}
	for _, w := range want {
		subject, key, value := parts(w)
		g, ok := have[id{subject, key}]
		delete(have, id{subject, key})
		if !ok {
			g = none
		}
		d.add(subject, what+" "+key, value, g)
	}
	left := slices.SortedFunc(maps.Keys(have), func(a, b id) int {
		return strings.Compare(a.subject+" "+a.key, b.subject+" "+b.key)
	})
	for _, i := range left {
		d.add(i.subject, what+" "+i.key, none, have[i])
	}
}

func destination(p netip.Prefix) string {
	if p.Bits() == 0 {
		return "default"
	}
	return p.String()
}

// via formats a route's next hops and what it has besides.
func (r Route) via() string {
	return strings.Join(slices.Concat([]string{hops(r.Via)}, r.Metrics(), r.Besides), ", ")
}

// hops formats next hops as ip(8) does, in the kernel's order: a multipath hash refers to it.
func hops(via []plan.Hop) string {
	if len(via) == 0 {
		return "blackhole"
	}
	words := make([]string, len(via))
	for i, h := range via {
		words[i] = "dev " + h.Device
		if h.Addr.IsValid() {
			words[i] = fmt.Sprintf("via %v dev %s", h.Addr, h.Device)
		}
	}
	return strings.Join(words, ", ")
}
