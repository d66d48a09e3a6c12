package live

import (
	"slices"
	"sync"

	"testbed/emu/kernel"
	"testbed/results/samples"
	"testbed/workloads"
)

// flowSamples samples the connections of flows at their senders, from the moment at which a flow has its connection to
// its end. Only values that changed become samples.
type flowSamples struct {
	sampler *sampler
	most    int // read at a time

	mu    sync.Mutex
	all   []*carried
	turn  int
	ticks int64
}

// carried is a connection with a flow.
type carried struct {
	*conn
	object string
	last   kernel.FlowState
	known  bool
}

// Carries implements hosts.Carrier.
func (c *conn) Carries(flow workloads.FlowID) {
	if x := c.of.flows; x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.all = append(x.all, &carried{conn: c, object: samples.FlowObject(flow)})
	}
}

// tick reads the connections, in turn if there are more than most.
func (x *flowSamples) tick() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ticks++
	if (x.ticks-1)%x.sampler.out.Every() != 0 {
		return nil
	}
	n := min(x.most, len(x.all))
	for i := range n {
		x.read(x.all[(x.turn+i)%len(x.all)])
	}
	x.turn += n
	return nil
}

// end reads a connection that is about to be closed a last time.
func (x *flowSamples) end(c *conn) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.IndexFunc(x.all, func(k *carried) bool { return k.conn == c }); i >= 0 {
		x.read(x.all[i])
		x.all = slices.Delete(x.all, i, i+1)
	}
}

// read adds samples of a connection. One that has been closed has none: its end is reported elsewhere.
func (x *flowSamples) read(c *carried) {
	is, at, err := kernel.FlowStateOf(c.TCPConn)
	if err != nil {
		return
	}
	all := make([]samples.Sample, 0, 4)
	add := func(metric string, is, was int64) {
		if is != was || !c.known {
			all = append(all, samples.Sample{At: at.Sub(x.sampler.zero), Object: c.object, Metric: metric, Value: is})
		}
	}
	add(samples.RTT, is.RTT.Microseconds(), c.last.RTT.Microseconds())
	add(samples.Window, is.Window, c.last.Window)
	add(samples.DeliveryRate, int64(is.Delivery), int64(c.last.Delivery))
	add(samples.Retransmitted, is.Retransmitted, c.last.Retransmitted)
	c.last, c.known = is, true
	x.sampler.out.Add(all...)
}
