package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/plan"
	"testbed/results/metrics"
	"testbed/topo"
	"testbed/topo/units"
)

// flowRounds is the most measurements of a size.
const flowRounds = 3

// flows measures flows that have their path to themselves, after an idle period: between two hosts of a
// rack, which two links connect, and of two racks, which four links of the same rate connect.
// The buckets are those that runs use.
func (m *machine) flows(ctx context.Context) error {
	for _, l := range m.c.Links {
		m.step(fmt.Sprintf("flows at %v, MTU %d", l.Rate, int64(l.MTU)), 1)
		for _, to := range []topo.HostID{1, 2} {
			all, err := m.flowsTo(ctx, twoRacks(l.Rate, l.MTU), usedBucket(l), to)
			if err != nil {
				return fmt.Errorf("%v at MTU %d: %w", l.Rate, int64(l.MTU), err)
			}
			m.c.Flows = append(m.c.Flows, all...)
		}
	}
	return nil
}

// twoRacks returns a fabric of two racks of two hosts, all of whose links have one rate.
func twoRacks(rate units.Rate, mtu units.Bytes) topo.LeafSpine {
	s := shape(2, rate, mtu, linkQueue)
	s.Leaves, s.Spines, s.Oversubscription = 2, 1, units.Ratio{Num: 2, Den: 1}
	return s
}

func (m *machine) flowsTo(ctx context.Context, shape topo.LeafSpine, bucket units.Bytes, to topo.HostID) (out []calibration.Flow, err error) {
	l, err := m.openPath(ctx, shape, to)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close(ctx)) }()
	if err := errors.Join(l.tap(ctx, l.src, true), l.tap(ctx, l.dst, false), l.shape(ctx, bucket)); err != nil {
		return nil, err
	}
	var path []metrics.Hop
	for _, id := range l.fabric.Path(0, to, 0) {
		path = append(path, metrics.Hop{Rate: l.fabric.Link(id).Rate, Bucket: l.burst})
	}
	rounds := make([][]round, len(metrics.FlowErrorSizes))
	for range min(m.o.Rounds, flowRounds) {
		for i, size := range metrics.FlowErrorSizes {
			r, err := l.send(ctx, size, 0)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], r)
		}
	}
	sent, err := l.taps[0].captured()
	if err != nil {
		return nil, err
	}
	received, err := l.taps[1].captured()
	if err != nil {
		return nil, err
	}
	framing := calibration.Framing(l.mtu)
	for i, size := range metrics.FlowErrorSizes {
		whole := framing.StoreAndForward(size, path)
		var found []float64
		for _, r := range rounds[i] {
			took, err := r.took(sent, received, size)
			if err != nil {
				return nil, err
			}
			if shape.StoreAndForward { // the first frame is captured when it has left its link
				took += l.rate.TimeToSend(min(size, framing.Payload) + framing.Headers)
			}
			found = append(found, relative(took, whole))
		}
		out = append(out, calibration.Flow{Rate: l.rate, MTU: l.mtu, Links: len(path), Bucket: l.burst, Size: size,
			Error: calibration.SpreadOf(found), Computed: relative(framing.FullBuckets(size, path), whole)})
	}
	return out, nil
}

func relative(took, whole time.Duration) float64 { return float64(took)/float64(whole) - 1 }

// usedBucket returns the bucket that runs use for a link: that of the shortest flows for which
// there is one.
func usedBucket(l calibration.Link) units.Bytes {
	for _, short := range calibration.ShortFlows {
		if w := l.Window(short); !w.Empty() {
			return w.Pick()
		}
	}
	return plan.DefaultBurst(l.Rate, l.MTU)
}

// took returns the time from a round's first frame at the sender until size bytes of payload have
// arrived.
func (r round) took(sent, received []arrival, size units.Bytes) (time.Duration, error) {
	during := func(f arrival) bool { return !f.at.Before(r.start) && !f.at.After(r.end) }
	first := slices.IndexFunc(sent, during)
	if first < 0 {
		return 0, errors.New("the capture of the sender has no frame of a flow")
	}
	var got units.Bytes
	for _, f := range received {
		if !during(f) {
			continue
		}
		if got += units.Bytes(f.size) - headers; got >= size {
			return f.at.Sub(sent[first].at), nil
		}
	}
	return 0, fmt.Errorf("the capture of the receiver has %d of %d bytes of a flow", int64(got), int64(size))
}
