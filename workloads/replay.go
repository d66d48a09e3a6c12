package workloads

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// ReplayOptions specify how to replay a trace on a fabric. The zero value replays all of
// it, unscaled, with a MB of DefaultMB, and merges flows between the same two hosts.
type ReplayOptions struct {
	First int    // number of coflows to replay, from the start; 0 for all
	Size  Factor // sizes are multiplied by it and rounded up to a byte
	Time  Factor // arrivals are multiplied by it and rounded down to a nanosecond
	// MB is the megabyte of a trace that does not define it (Trace.InBytes), units.MB
	// or units.MiB; 0 means DefaultMB.
	MB units.Bytes
	// Split keeps flows of a coflow separate that run between the same two hosts because
	// several ports map to one host. Without Split they are merged, since the shuffle
	// service of a host would fetch them over one connection.
	Split bool
	// MaxFlows is the maximum number of flows, ErrTooManyFlows above it; 0 for no
	// limit.
	MaxFlows int
}

// ErrTooManyFlows is the error of a replay with more flows than ReplayOptions.MaxFlows.
var ErrTooManyFlows = errors.New("too many flows")

// ReplayReport counts the flows that a replay omitted or changed.
type ReplayReport struct {
	Ports, Hosts   int           // of the trace, of the fabric
	TraceCoflows   int           // of the trace, up to First
	TraceFlows     int           // of these
	TraceSize      units.Bytes   // of these, scaled
	Coflows, Flows int           // replayed
	Size           units.Bytes   // of these
	Last           time.Duration // arrival of the last coflow replayed
	LocalFlows     int           // omitted: both ends map to one host
	LocalSize      units.Bytes   // of these
	Empty          []CoflowID    // omitted: all their flows are local
	Merged         int           // flows of the trace that were merged into others
	MB             units.Bytes   // of the trace; 0 if its sizes are in bytes
}

func (r ReplayReport) String() string {
	s := fmt.Sprintf("%d coflows of %d flows and %v, the last at %v (%d ports on %d hosts", r.Coflows, r.Flows, r.Size, r.Last, r.Ports, r.Hosts)
	if r.LocalFlows > 0 {
		s += fmt.Sprintf("; omitted %d flows of %v inside a host", r.LocalFlows, r.LocalSize)
	}
	if len(r.Empty) > 0 {
		s += fmt.Sprintf(" and %d coflows without other flows", len(r.Empty))
	}
	if r.Merged > 0 {
		s += fmt.Sprintf("; merged %d flows into others between the same hosts", r.Merged)
	}
	if r.MB != 0 {
		s += "; " + MBNote(r.MB)
	}
	return s + ")"
}

// PortHost returns the host for a port of a trace. Ports are assigned to racks round-robin,
// and within a rack to its hosts round-robin, so that adjacent ports, which traces use
// together, are in different racks. If a trace has more ports than the fabric has hosts,
// several ports map to one host.
func PortHost(f *topo.Fabric, port int) topo.HostID {
	racks := f.Racks()
	return f.HostIn(topo.RackID(port%racks), port/racks%f.Shape().HostsPerLeaf)
}

// Replay maps the coflows of a trace to a fabric. It omits flows between ports that map to
// one host, since they never reach the network, and coflows without other flows. CoflowIDs
// are those of the trace; FlowIDs count from 0 in order of coflow, mapper and reducer. An
// error reports a size or time out of range, or invalid options.
func Replay(t *Trace, f *topo.Fabric, o ReplayOptions) ([]Coflow, ReplayReport, error) {
	report := ReplayReport{Ports: t.Ports, Hosts: f.Hosts()}
	o.MB = cmp.Or(o.MB, DefaultMB)
	if o.First < 0 || o.First > len(t.Coflows) {
		return nil, report, fmt.Errorf("first %d coflows of trace %s: it has %d", o.First, t.Name, len(t.Coflows))
	}
	if o.MB != units.MB && o.MB != units.MiB {
		return nil, report, fmt.Errorf("trace %s: a MB of %d bytes: must be 10⁶ or 2²⁰", t.Name, o.MB)
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
	if !t.InBytes {
		report.MB = o.MB
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

// end is a sender or receiver of a coflow: a host with its mappers or reducers of the
// trace, by index.
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
				return Coflow{}, fmt.Errorf("%w: more than %d up to this coflow", ErrTooManyFlows, r.o.MaxFlows)
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

// between returns the number of flows of the trace from one end to the other, and their
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

// addEnd adds a port, by its index, to the end of its host, or as a new end.
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

// size returns num[0]·num[1]/over + num[2] millionths of a MB, scaled, in bytes.
func (r *replayer) size(num [3]int64, over int64) (units.Bytes, bool) {
	f := r.o.Size.orOne()
	n := big.NewInt(num[0])
	n.Mul(n, big.NewInt(num[1]))
	n.Add(n, new(big.Int).Mul(big.NewInt(num[2]), big.NewInt(over)))
	n.Mul(n, big.NewInt(int64(r.mb))).Mul(n, big.NewInt(f.Num))
	d := big.NewInt(over)
	return ceilBytes(n, d.Mul(d, big.NewInt(int64(megabyte))).Mul(d, big.NewInt(f.Den)))
}
