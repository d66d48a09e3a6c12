package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	Routes     []Route
	Rules      []string // of the choice of a routing table, such as "100: table 7"
	Parameters map[string]string
}

// Route is a route with the settings that a plan never has.
type Route struct {
	plan.Route
	Besides []string // metrics, such as "mtu 1400"
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
	XDP      bool     // a program handles arriving frames
}

// Qdisc is a queueing discipline. Each kind uses some of the fields.
type Qdisc struct {
	Kind   string
	Parent string      // "root", "ingress" or a class such as "1:2"
	Rate   units.Rate  // of a tbf or netem
	Burst  units.Bytes // of a tbf
	Grain  units.Bytes // precision with which the kernel reports Burst
	Limit  units.Bytes // of a tbf and of red
	// Delay is the delay of netem, and Packets its limit. Besides lists other effects of netem on
	// packets, such as loss, and a second bucket of tbf.
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
	want, err := Expect(p)
	if err != nil {
		return err
	}
	var lost []Lost
	var probeErr error
	var wg sync.WaitGroup
	wg.Go(func() { lost, probeErr = c.Probe(ctx, want.links) }) // it waits most of the time
	differences, err := want.Compare(ctx, c)
	wg.Wait()
	if err := errors.Join(err, probeErr); err != nil {
		return fmt.Errorf("check %s: %w", p.Name, err)
	}
	e := &DifferenceError{Plan: p.Name}
	for _, d := range differences {
		e.Differences = append(e.Differences, d.String())
	}
	for _, l := range lost {
		e.Differences = append(e.Differences, fmt.Sprintf("%s>%s: a frame from %s is lost: %s", l.From.Namespace, l.To.Namespace, l.From.Device, l.Why))
	}
	if len(e.Differences) > 0 {
		return e
	}
	return nil
}

// Expectation is the planned state of each namespace, in the plan's order.
type Expectation struct {
	names    []string
	found    []*Found
	at       map[string]int // index by name
	peers    map[string]string
	optional map[string]map[string]bool // parameters by namespace
	links    []plan.Veth
}

// Expect returns the state that a kernel has once p is carried out. It returns the errors of p.Check.
func Expect(p *plan.Plan) (*Expectation, error) {
	e := &Expectation{at: map[string]int{}, peers: map[string]string{}, optional: map[string]map[string]bool{}}
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
			if op.Packets > 0 {
				d.Qdiscs = append(d.Qdiscs, Qdisc{Kind: "netem", Parent: root, Rate: 8 * units.Rate(op.Rate.BytesPerSecond()), Delay: op.Delay, Packets: op.Packets})
				continue
			}
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
			of(op.Namespace).Routes = append(of(op.Namespace).Routes, Route{Route: op})
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
func (e *Expectation) read(ctx context.Context, c Checker) ([]Found, error) {
	found := make([]Found, len(e.names))
	errs := make([]error, len(e.names))
	each(ctx, c, len(e.names), readers(c), func(ctx context.Context, i int) bool {
		if ctx.Err() != nil {
			errs[i] = fmt.Errorf("stopped before namespace %q: %w", e.names[i], context.Cause(ctx))
			return false
		}
		found[i], errs[i] = c.Read(ctx, e.names[i], slices.Sorted(maps.Keys(e.found[i].Parameters)))
		return errs[i] == nil
	})
	return found, errors.Join(errs...)
}
