package workloads

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// ReplayOptions says how a trace becomes coflows on a fabric. The zero value
// replays all of it, unscaled, with MB of 2²⁰ bytes and flows between the same
// two hosts merged.
type ReplayOptions struct {
	First int    // only so many coflows from the start; 0 is all
	Size  Factor // sizes are multiplied by it and rounded up to a byte
	Time  Factor // arrivals are multiplied by it and rounded down to a nanosecond
	// MB is the megabyte of a trace that does not say it (Trace.InBytes), units.MB
	// or units.MiB; 0 is units.MiB, which CoflowSim, the simulator published with
	// the Facebook trace, takes it for.
	MB units.Bytes
	// Split keeps the flows of a coflow apart that run between the same two hosts
	// because several ports fell to one host. Without it they are merged into
	// one, as a host's shuffle service would fetch them over one connection.
	Split bool
	// MaxFlows is how many flows may come of it, ErrTooManyFlows otherwise; 0 is
	// no bound.
	MaxFlows int
}

// ErrTooManyFlows is when a replay has more flows than ReplayOptions.MaxFlows.
var ErrTooManyFlows = errors.New("too many flows")

// ReplayReport tells what a replay left out or changed.
type ReplayReport struct {
	Ports, Hosts   int           // of the trace, of the fabric
	TraceCoflows   int           // of the trace, after First
	TraceFlows     int           // of these
	TraceSize      units.Bytes   // of these, scaled
	Coflows, Flows int           // that are replayed
	Size           units.Bytes   // of these
	Last           time.Duration // arrival of the last coflow replayed
	LocalFlows     int           // left out: both ends fall on one host
	LocalSize      units.Bytes   // of these
	Empty          []CoflowID    // left out: all their flows are local
	Merged         int           // flows of the trace that became part of another
}

func (r ReplayReport) String() string {
	s := fmt.Sprintf("%d coflows of %d flows and %v, the last at %v (%d ports on %d hosts", r.Coflows, r.Flows, r.Size, r.Last, r.Ports, r.Hosts)
	if r.LocalFlows > 0 {
		s += fmt.Sprintf("; left out %d flows of %v inside a host", r.LocalFlows, r.LocalSize)
	}
	if len(r.Empty) > 0 {
		s += fmt.Sprintf(" and with them %d coflows", len(r.Empty))
	}
	if r.Merged > 0 {
		s += fmt.Sprintf("; merged %d flows into others between the same hosts", r.Merged)
	}
	return s + ")"
}

// PortHost is the host that stands for a port of a trace: ports are dealt to
// the racks in turn, and within a rack to its hosts in turn, so that ports next
// to each other, which traces use together, fall into different racks. A trace
// with more ports than the fabric has hosts puts several on one.
func PortHost(f *topo.Fabric, port int) topo.HostID {
	racks := f.Racks()
	return f.HostIn(topo.RackID(port%racks), port/racks%f.Shape().HostsPerLeaf)
}

// Replay places the coflows of a trace on a fabric. Flows of a trace between
// ports that fall on one host never reach the network and are left out, as are
// coflows that have no others. CoflowIDs are the trace's; FlowIDs count from 0
// in order of coflow, mapper and reducer. The error tells a size or a time that
// does not fit, or options that make no sense.
func Replay(t *Trace, f *topo.Fabric, o ReplayOptions) ([]Coflow, ReplayReport, error) {
	report := ReplayReport{Ports: t.Ports, Hosts: f.Hosts()}
	if o.MB == 0 {
		o.MB = units.MiB
	}
	if o.First < 0 || o.First > len(t.Coflows) {
		return nil, report, fmt.Errorf("first %d coflows of trace %s: it has %d", o.First, t.Name, len(t.Coflows))
	}
	if o.MB != units.MB && o.MB != units.MiB {
		return nil, report, fmt.Errorf("trace %s: an MB of %d bytes: want 10⁶ or 2²⁰", t.Name, o.MB)
	}
	if err := o.Size.check(); err != nil {
		return nil, report, fmt.Errorf("scale of sizes: %w", err)
	}
	if err := o.Time.check(); err != nil {
		return nil, report, fmt.Errorf("scale of times: %w", err)
	}
	from := t.Coflows
	if o.First > 0 {
		from = from[:o.First]
	}
	r := replayer{fabric: f, mb: t.MB(o.MB), o: o, report: &report}
	var coflows []Coflow
	for _, c := range from {
		out, err := r.coflow(c)
		if err != nil {
			return nil, report, fmt.Errorf("trace %s: coflow %d: %w", t.Name, c.ID, err)
		}
		if len(out.Flows) == 0 {
			report.Empty = append(report.Empty, c.ID)
			continue
		}
		report.Coflows++
		report.Last = out.Arrival
		coflows = append(coflows, out)
	}
	return coflows, report, nil
}

type replayer struct {
	fabric *topo.Fabric
	mb     units.Bytes
	o      ReplayOptions
	report *ReplayReport
	next   FlowID
}

// end is one sender or receiver of a coflow: a host and what of the trace it
// stands for, mappers or reducers by index.
type end struct {
	host  topo.HostID
	ports []int
}

func (r *replayer) coflow(c TraceCoflow) (Coflow, error) {
	arrival, ok := r.o.Time.Duration(c.Arrival)
	if !ok {
		return Coflow{}, fmt.Errorf("arrival %v times %v does not fit: scale times down", c.Arrival, r.o.Time)
	}
	out := Coflow{ID: c.ID, Arrival: arrival}
	var senders, receivers []end
	for i, port := range c.Mappers {
		senders = r.addEnd(senders, port, i)
	}
	for i, rd := range c.Reducers {
		receivers = r.addEnd(receivers, rd.Port, i)
	}
	r.report.TraceCoflows++
	for _, src := range senders {
		for _, dst := range receivers {
			flows, num, over := between(c, src, dst)
			if flows == 0 {
				continue
			}
			size, ok := r.size(num, over)
			if !ok || size > math.MaxInt64-r.report.TraceSize {
				return Coflow{}, fmt.Errorf("sizes times %v do not fit: scale sizes down", r.o.Size)
			}
			r.report.TraceSize += size
			r.report.TraceFlows += flows
			if src.host == dst.host {
				r.report.LocalFlows += flows
				r.report.LocalSize += size
				continue
			}
			if r.o.MaxFlows > 0 && r.report.Flows >= r.o.MaxFlows {
				return Coflow{}, fmt.Errorf("%w: more than %d up to here", ErrTooManyFlows, r.o.MaxFlows)
			}
			out.Flows = append(out.Flows, Flow{ID: r.next, Src: src.host, Dst: dst.host, Size: size})
			r.next++
			r.report.Flows++
			r.report.Size += size
			r.report.Merged += flows - 1
		}
	}
	return out, nil
}

// between is how many flows of the trace run from one end to the other, and their
// size as the sum of num[0]·num[1]/over and num[2].
func between(c TraceCoflow, src, dst end) (flows int, num [3]int64, over int64) {
	over = int64(len(c.Mappers))
	num[1] = int64(len(src.ports))
	for _, j := range dst.ports {
		rd := c.Reducers[j]
		if rd.Flows == nil {
			flows += len(src.ports)
			num[0] += int64(rd.Size)
			continue
		}
		for _, i := range src.ports {
			if f := rd.Flows[i]; f > 0 {
				flows++
				num[2] += int64(f)
			}
		}
	}
	return flows, num, over
}

// addEnd adds a port, by its index, to the end at its host or as a new end.
func (r *replayer) addEnd(ends []end, port, index int) []end {
	host := PortHost(r.fabric, port)
	if !r.o.Split {
		for i := range ends {
			if ends[i].host == host {
				ends[i].ports = append(ends[i].ports, index)
				return ends
			}
		}
	}
	return append(ends, end{host: host, ports: []int{index}})
}

// size is num[0]·num[1]/over + num[2] millionths of a MB, scaled, in bytes.
func (r *replayer) size(num [3]int64, over int64) (units.Bytes, bool) {
	f := r.o.Size.orOne()
	n := big.NewInt(num[0])
	n.Mul(n, big.NewInt(num[1]))
	n.Add(n, new(big.Int).Mul(big.NewInt(num[2]), big.NewInt(over)))
	n.Mul(n, big.NewInt(int64(r.mb))).Mul(n, big.NewInt(f.Num))
	d := big.NewInt(over)
	return ceilBytes(n, d.Mul(d, big.NewInt(int64(megabyte))).Mul(d, big.NewInt(f.Den)))
}
