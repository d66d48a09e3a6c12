package flowsim

import (
	"cmp"
	"fmt"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Ports is the network of the simulations in the coflow papers: one non-blocking switch
// with as many senders and receivers as the trace has ports. Port p sends as host p and
// receives as host Ports+p, so a flow from a port to itself is like any other. With the
// zero value 1 MB takes 8 ms on a port.
type Ports struct {
	Rate units.Rate // of a port, each direction; 0 means 1 Gbps
	// MB is the size of a megabyte in a trace that does not state it, units.MB or
	// units.MiB; 0 means workloads.DefaultMB.
	MB units.Bytes
	// DropLocal removes flows from a port to itself, and coflows that have no others.
	DropLocal bool
	// Batch admits coflows early, as two public simulators do: one that arrives at a is
	// admitted at Batch·max(0, ⌈a/Batch⌉−1) instead. CoflowSim and the Philae simulator
	// use 10.24 s. 0 keeps the arrivals of the trace.
	Batch time.Duration
}

// Coflows lays out a trace. FlowIDs count from 0 in order of coflow, sender and receiver;
// CoflowIDs are the trace's. The size of a flow is rounded up to whole bytes. The error
// names invalid options.
func (o Ports) Coflows(t *workloads.Trace) (*topo.Fabric, []workloads.Coflow, error) {
	if o.Rate == 0 {
		o.Rate = units.Gbps
	}
	o.MB = cmp.Or(o.MB, workloads.DefaultMB)
	if o.MB != units.MB && o.MB != units.MiB {
		return nil, nil, fmt.Errorf("trace %s: an MB of %d bytes: must be 10⁶ or 2²⁰", t.Name, o.MB)
	}
	if o.Batch < 0 {
		return nil, nil, fmt.Errorf("trace %s: batches of %v: must be 0 or more", t.Name, o.Batch)
	}
	f, err := topo.BigSwitch(2*t.Ports, o.Rate)
	if err != nil {
		return nil, nil, fmt.Errorf("trace %s: %w", t.Name, err)
	}
	next := workloads.FlowID(0)
	coflows := make([]workloads.Coflow, 0, len(t.Coflows))
	for _, c := range t.Coflows {
		out := workloads.Coflow{ID: c.ID, Arrival: o.Arrival(c)}
		out.Flows = make([]workloads.Flow, 0, c.Width())
		for i, src := range c.Mappers {
			for j, r := range c.Reducers {
				size := c.FlowBytes(i, j, t.MB(o.MB))
				if size == 0 || o.DropLocal && src == r.Port {
					continue
				}
				out.Flows = append(out.Flows, workloads.Flow{ID: next, Src: topo.HostID(src), Dst: topo.HostID(t.Ports + r.Port), Size: size})
				next++
			}
		}
		if len(out.Flows) > 0 {
			coflows = append(coflows, out)
		}
	}
	return f, coflows, nil
}

// Arrival returns the time at which a coflow of a trace is admitted.
func (o Ports) Arrival(c workloads.TraceCoflow) time.Duration {
	if o.Batch <= 0 {
		return c.Arrival
	}
	return max(0, (c.Arrival+o.Batch-1)/o.Batch-1) * o.Batch
}
