package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"testbed/emu/plan"
	"testbed/topo/units"
)

// MaxDifferences is the number of differences that a DifferenceError prints. It counts the rest.
const MaxDifferences = 20

// Checker reads the state of a kernel.
type Checker interface {
	// Read returns the contents of a namespace, and the values of those of the parameters that
	// the kernel knows.
	Read(ctx context.Context, namespace string, parameters []string) (Found, error)
	// Probe sends one frame over each link in each direction, waits for them with a timeout, and
	// returns those that did not arrive, in order of links, A's frames first. Read is called
	// concurrently.
	Probe(ctx context.Context, links []plan.Veth) ([]Lost, error)
}

// Found is the contents of a namespace, as found or as planned. Addresses, neighbours and routes that
// the kernel makes by itself are left out.
type Found struct {
	Devices    []Device
	Addresses  []plan.Address
	Neighbours []plan.Neighbour
	Routes     []plan.Route
	Parameters map[string]string
}

// Device is a device of a namespace.
type Device struct {
	Name     string
	MAC      plan.MAC
	MTU      units.Bytes
	Up       bool
	Segments int      // of one packet, at most (gso_max_segs)
	Offloads []string // of plan.OffloadFlags, those that are on
	Qdiscs   []Qdisc  // without the kernel's defaults
}

// Qdisc is a queueing discipline. Each kind uses some of the fields.
type Qdisc struct {
	Kind   string
	Parent string      // "root", "ingress" or a class such as "1:2"
	Rate   units.Rate  // of a tbf
	Burst  units.Bytes // of a tbf
	Grain  units.Bytes // precision with which the kernel reports Burst
	Limit  units.Bytes // of a tbf and of red
	// Delay is the delay of netem, and Packets its limit. Besides lists its other effects on
	// packets, such as loss.
	Delay   time.Duration
	Packets uint32
	Besides []string
	// Min and Max are the thresholds of red for the average queue. Weight is the negative base-2
	// logarithm of the newest sample's weight. Probability and ECN are settings of red too.
	Min, Max    units.Bytes
	Weight      uint8
	Probability float64
	ECN         bool
}

// Lost is a frame that did not arrive.
type Lost struct {
	From, To plan.End
	Why      string
}

// DifferenceError lists the differences between a kernel and the plan that was carried out on it.
type DifferenceError struct {
	Plan        string
	Differences []string // each begins with the link (leaf0>h0-01) or namespace
}

func (e *DifferenceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "check %s: the kernel differs from the plan: %d differences", e.Plan, len(e.Differences))
	for i, d := range e.Differences {
		if i == MaxDifferences {
			fmt.Fprintf(&b, "\n\tand %d more", len(e.Differences)-i)
			break
		}
		b.WriteString("\n\t" + d)
	}
	return b.String()
}

// Verify reads back what p created and sends a frame over every link in each direction. Differences
// are returned as a *DifferenceError. It calls Read from as many goroutines as c allows (Parallel).
func Verify(ctx context.Context, p *plan.Plan, c Checker) error {
	want, err := expect(p)
	if err != nil {
		return err
	}
	var lost []Lost
	var probeErr error
	var wg sync.WaitGroup
	wg.Go(func() { lost, probeErr = c.Probe(ctx, want.links) }) // it waits most of the time
	found, err := want.read(ctx, c)
	wg.Wait()
	if err := errors.Join(err, probeErr); err != nil {
		return fmt.Errorf("check %s: %w", p.Name, err)
	}
	e := &DifferenceError{Plan: p.Name}
	for i, name := range want.names {
		d := differ{namespace: name, peers: want.peers, optional: want.optional[name]}
		d.compare(want.found[i], found[i])
		e.Differences = append(e.Differences, d.differences...)
	}
	for _, l := range lost {
		e.Differences = append(e.Differences, fmt.Sprintf("%s>%s: a frame from %s is lost: %s", l.From.Namespace, l.To.Namespace, l.From.Device, l.Why))
	}
	if len(e.Differences) > 0 {
		return e
	}
	return nil
}

// expectation is the planned state of each namespace, in the plan's order.
type expectation struct {
	names    []string
	found    []*Found
	at       map[string]int // index by name
	peers    map[string]string
	optional map[string]map[string]bool // parameters by namespace
	links    []plan.Veth
}

func expect(p *plan.Plan) (*expectation, error) {
	e := &expectation{at: map[string]int{}, peers: map[string]string{}, optional: map[string]map[string]bool{}}
	devices := map[string]*Device{} // by namespace/name
	var order []string
	device := func(namespace, name string) *Device {
		key := namespace + "/" + name
		if devices[key] == nil {
			devices[key] = &Device{Name: name}
			order = append(order, key)
		}
		return devices[key]
	}
	of := func(namespace string) *Found { return e.found[e.at[namespace]] }
	if err := p.Check(); err != nil {
		return nil, err
	}
	for _, op := range p.Ops() {
		switch op := op.(type) {
		case plan.Namespace:
			e.at[op.Name] = len(e.names)
			e.names, e.found = append(e.names, op.Name), append(e.found, &Found{Parameters: map[string]string{}})
			e.optional[op.Name] = map[string]bool{}
			device(op.Name, "lo").Segments = anySegments
		case plan.Sysctl:
			for _, s := range op.Set {
				of(op.Namespace).Parameters[s.Key] = s.Value
				e.optional[op.Namespace][s.Key] = op.Optional
			}
		case plan.Veth:
			e.links = append(e.links, op)
			for _, end := range []plan.End{op.A, op.B} {
				d := device(end.Namespace, end.Device)
				d.MAC, d.MTU, d.Segments = end.MAC, op.MTU, 1
				d.Offloads = slices.Clone(plan.OffloadFlags) // until they are turned off
			}
			e.peers[op.A.Namespace+"/"+op.A.Device] = op.B.Namespace
			e.peers[op.B.Namespace+"/"+op.B.Device] = op.A.Namespace
		case plan.Offloads:
			device(op.Namespace, op.Device).Offloads = nil
		case plan.Delay:
			d := device(op.Namespace, op.Device)
			d.Qdiscs = append(d.Qdiscs, Qdisc{Kind: "netem", Parent: root, Delay: op.Delay, Packets: op.Packets})
		case plan.Shaper:
			d := device(op.Namespace, op.Device)
			_, parent := op.Handle()
			d.Qdiscs = append(d.Qdiscs, Qdisc{Kind: "tbf", Parent: below(parent), Rate: 8 * units.Rate(op.Rate.BytesPerSecond()), Burst: op.Burst, Limit: op.Limit})
		case plan.RED:
			d := device(op.Namespace, op.Device)
			weight, ok := plan.REDWeight(op.Min, op.Burst, op.Packet)
			if !ok {
				return nil, fmt.Errorf("check %s: %s: no weight lets this burst pass", p.Name, op) // Check refuses it earlier
			}
			d.Qdiscs = append(d.Qdiscs, Qdisc{Kind: "red", Parent: below(op.Parent()), Limit: op.Limit, Min: op.Min, Max: op.Max,
				Weight: weight, Probability: op.Probability, ECN: op.ECN})
		case plan.Address:
			of(op.Namespace).Addresses = append(of(op.Namespace).Addresses, op)
		case plan.Up:
			device(op.Namespace, op.Device).Up = true
		case plan.Ready: // checked by Probe
		case plan.Neighbour:
			of(op.Namespace).Neighbours = append(of(op.Namespace).Neighbours, op)
		case plan.Route:
			of(op.Namespace).Routes = append(of(op.Namespace).Routes, op)
		default:
			return nil, fmt.Errorf("check %s: %T cannot be compared with the kernel", p.Name, op)
		}
	}
	for _, key := range order {
		namespace, _, _ := strings.Cut(key, "/")
		of(namespace).Devices = append(of(namespace).Devices, *devices[key])
	}
	return e, nil
}

const root = "root"

// below returns the parent of the qdisc below a handle; 0 is the device.
func below(parent uint16) string {
	if parent == 0 {
		return root
	}
	return fmt.Sprintf("%x:1", parent)
}

// anySegments is the Segments of a device for which the plan sets none.
const anySegments = 0

// read calls Read for all namespaces.
func (e *expectation) read(ctx context.Context, c Checker) ([]Found, error) {
	found := make([]Found, len(e.names))
	errs := make([]error, len(e.names))
	each(len(e.names), readers(c), func(i int) bool {
		if ctx.Err() != nil {
			errs[i] = fmt.Errorf("stopped before namespace %q: %w", e.names[i], context.Cause(ctx))
			return false
		}
		found[i], errs[i] = c.Read(ctx, e.names[i], slices.Sorted(maps.Keys(e.found[i].Parameters)))
		return errs[i] == nil
	})
	return found, errors.Join(errs...)
}

// differ collects the differences of one namespace.
type differ struct {
	namespace   string
	peers       map[string]string // namespace of the peer of namespace/device
	optional    map[string]bool   // parameters
	differences []string
}

// link returns the name of a device's link, such as leaf0>h0-01.
func (d *differ) link(device string) string {
	if peer := d.peers[d.namespace+"/"+device]; peer != "" {
		return d.namespace + ">" + peer
	}
	return d.namespace + " " + device
}

func (d *differ) add(subject, what, want, got string) {
	if want != got {
		d.differences = append(d.differences, fmt.Sprintf("%s: %s %s in the plan, %s in the kernel", subject, what, want, got))
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
		d.device(w, g)
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
	list(d, "route", want.Routes, got.Routes, func(r plan.Route) (string, string, string) {
		return d.namespace, destination(r.Dst), hops(r.Via)
	})
	for _, key := range slices.Sorted(maps.Keys(want.Parameters)) {
		value, known := got.Parameters[key]
		switch {
		case known:
			// The kernel separates the values of a parameter by tabs.
			d.add(d.namespace, key, strings.Join(strings.Fields(want.Parameters[key]), " "), strings.Join(strings.Fields(value), " "))
		case !d.optional[key]:
			d.add(d.namespace, key, want.Parameters[key], none)
		}
	}
}

const none = "none"

func (d *differ) device(w, g Device) {
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
	case "netem":
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
