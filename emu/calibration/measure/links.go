package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/emu/calibration"
	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// extras are the measured bucket sizes, in frames beyond the one that any bucket must hold.
var extras = []float64{0, 0.25, 0.5, 0.625, 0.75, 1, 2, 4, 8}

const (
	linkQueue units.Bytes = units.MB // of each shaper: none drops packets
	linkPort              = 50060
	// idle is the idle period of a link before a flow; twice the time to fill the bucket if
	// that is longer.
	idle = 10 * time.Millisecond
	// shortest is the payload of the flow whose credit is measured; shortestFrames applies
	// if that is more.
	shortest       = calibration.DefaultShortFlow
	shortestFrames = 28
	// headers are those of each frame of a flow. Longer ones have payload, except the SYN,
	// which precedes each flow.
	headers  = plan.TCPHeaders + plan.EthernetHeader
	linkRing = 8 * units.MiB
	snaplen  = 64
)

func (m *machine) links(ctx context.Context) error {
	for _, mtu := range m.o.MTUs {
		for _, rate := range m.o.Rates {
			m.step(fmt.Sprintf("link of %v at MTU %d", rate, int64(mtu)), 1)
			l, err := m.link(ctx, rate, mtu)
			if err != nil {
				return fmt.Errorf("%v at MTU %d: %w", rate, int64(mtu), err)
			}
			m.c.Links = append(m.c.Links, l)
		}
	}
	return nil
}

// link measures all buckets on the shortest path: host, leaf and host. Buckets alternate,
// so that a short disturbance of the machine affects one round of several buckets.
func (m *machine) link(ctx context.Context, rate units.Rate, mtu units.Bytes) (_ calibration.Link, err error) {
	frame := mtu + plan.EthernetHeader
	out := calibration.Link{Rate: rate, MTU: mtu, Flow: max(shortest, shortestFrames*(mtu-52))}
	for _, x := range extras {
		out.Bursts = append(out.Bursts, calibration.Burst{Size: frame + units.Bytes(x*float64(frame))})
	}
	l, err := m.openLink(ctx, rate, mtu)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, l.close(ctx)) }()
	rounds := make([][]round, len(out.Bursts))
	for range m.o.Rounds {
		for i, b := range out.Bursts {
			if err := l.shape(ctx, b.Size); err != nil {
				return out, err
			}
			r, err := l.send(ctx, out.Flow, m.o.Saturated)
			if err != nil {
				return out, err
			}
			rounds[i] = append(rounds[i], r)
		}
	}
	frames, err := l.captured()
	if err != nil {
		return out, err
	}
	for i := range out.Bursts {
		var rates, credits []float64
		for _, r := range rounds[i] {
			rateError, credit, err := r.judge(frames, rate, calibration.Wire(out.Flow, mtu))
			if err != nil {
				return out, fmt.Errorf("burst %d: %w", int64(out.Bursts[i].Size), err)
			}
			rates, credits = append(rates, rateError), append(credits, credit)
		}
		out.Bursts[i].RateError, out.Bursts[i].Credit = calibration.SpreadOf(rates), calibration.SpreadOf(credits)
	}
	return out, nil
}

// round is the time from the start of a flow until it has arrived.
type round struct{ start, end time.Time }

// arrival is a data frame at the receiver's interface.
type arrival struct {
	at   time.Time
	size int
}

// judge evaluates a round's frames: those with the first wire bytes are a short flow, the
// others a saturated link.
func (r round) judge(all []arrival, rate units.Rate, wire units.Bytes) (rateError, credit float64, err error) {
	perSecond := float64(rate) / 8
	var first, short, last time.Time
	var flow, rest units.Bytes
	for _, f := range all {
		if f.at.Before(r.start) || f.at.After(r.end) {
			continue
		}
		if first.IsZero() {
			first = f.at
		}
		if flow < wire {
			flow += units.Bytes(f.size)
			short = f.at
		} else {
			rest += units.Bytes(f.size)
			last = f.at
		}
	}
	if rest == 0 || !last.After(short) || !short.After(first) {
		return 0, 0, fmt.Errorf("the capture has %d bytes of a flow of more than %d bytes", flow+rest, wire)
	}
	credit = float64(flow) - perSecond*short.Sub(first).Seconds()
	return float64(rest)/last.Sub(short).Seconds()/perSecond - 1, credit, nil
}

// link is a path between the first host of a fabric and another that is being measured.
type link struct {
	rate     units.Rate
	mtu      units.Bytes
	fabric   *topo.Fabric
	to       topo.HostID
	x        *kernel.Executor
	d        *deploy.Deployment
	src, dst *kernel.Namespace
	listener net.Listener
	taps     []*tap
	lower    func() error // restores the priority
	burst    units.Bytes
}

// tap captures the data frames of one direction at a host.
type tap struct {
	capture *kernel.Capture
	frames  []arrival
	work    errgroup.Group
	stopped bool
}

func (m *machine) openLink(ctx context.Context, rate units.Rate, mtu units.Bytes) (*link, error) {
	l, err := m.openPath(ctx, shape(2, rate, mtu, linkQueue), 1)
	if err != nil {
		return nil, err
	}
	if err := l.tap(ctx, l.dst, false); err != nil {
		return nil, errors.Join(err, l.close(ctx))
	}
	return l, nil
}

// openPath builds a fabric and prepares flows from its first host to another.
func (m *machine) openPath(ctx context.Context, shape topo.LeafSpine, to topo.HostID) (l *link, err error) {
	l = &link{rate: shape.HostLink, mtu: shape.MTU, to: to, x: kernel.NewExecutor(m.owned.PinDir())}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close(ctx))
			l = nil
		}
	}()
	if l.fabric, err = shape.Build(); err != nil {
		return l, err
	}
	if l.d, err = deploy.Apply(ctx, l.plan(plan.DefaultBurst(l.rate, l.mtu)), l.x); err != nil {
		return l, err
	}
	if l.src, err = kernel.OpenNamespace(filepath.Join(m.owned.PinDir(), l.fabric.HostName(0))); err != nil {
		return l, err
	}
	if l.dst, err = kernel.OpenNamespace(filepath.Join(m.owned.PinDir(), l.fabric.HostName(to))); err != nil {
		return l, err
	}
	if l.listener, err = l.dst.Listen(ctx, netip.AddrPortFrom(l.fabric.HostAddr(to), linkPort), kernel.SocketOptions{}); err != nil {
		return l, err
	}
	l.lower, _, err = kernel.Raise(kernel.RealTimeForPackets, kernel.NiceForPackets) // as in a run
	return l, err
}

// tap begins a capture of the data frames that leave a host, or that reach it.
func (l *link) tap(ctx context.Context, at *kernel.Namespace, leaving bool) error {
	t := &tap{}
	var err error
	if t.capture, err = at.Capture(kernel.CaptureOptions{Snaplen: snaplen, Ring: linkRing}); err != nil {
		return err
	}
	t.work.Go(func() error {
		return t.capture.Run(context.WithoutCancel(ctx), func(at time.Time, _ int, outgoing bool, _ []byte, size int) error {
			if outgoing == leaving && size > int(headers) {
				t.frames = append(t.frames, arrival{at, size})
			}
			return nil
		})
	})
	l.taps = append(l.taps, t)
	return nil
}

// congestion is the congestion control of a scenario that states none.
const congestion = "cubic"

func (l *link) plan(burst units.Bytes) *plan.Plan {
	return plan.Compile("calibrate", l.fabric, plan.Options{
		Burst:      func(units.Rate, units.Bytes) units.Bytes { return burst },
		Congestion: congestion,
	})
}

// shape sets the bucket of all shapers of the fabric.
func (l *link) shape(ctx context.Context, burst units.Bytes) error {
	for _, op := range l.plan(burst).Ops() {
		if s, ok := op.(plan.Shaper); ok {
			if err := l.x.Do(ctx, s); err != nil {
				return err
			}
		}
	}
	l.burst = burst
	return nil
}

// send sends a flow after an idle period, and continues for the duration more.
func (l *link) send(ctx context.Context, flow units.Bytes, more time.Duration) (r round, err error) {
	size := flow + l.rate.BytesIn(more)
	limited, cancel := context.WithTimeoutCause(ctx, 10*time.Second+4*l.rate.TimeToSend(size), errors.New("the flow did not end within its time limit"))
	defer cancel()
	src, dst := netip.AddrPortFrom(l.fabric.HostAddr(0), 0), netip.AddrPortFrom(l.fabric.HostAddr(l.to), linkPort)
	received := make(chan error, 1)
	go func() {
		c, err := l.listener.Accept()
		if err != nil {
			received <- err
			return
		}
		defer context.AfterFunc(limited, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
		_, err = io.CopyN(io.Discard, c, int64(size))
		received <- errors.Join(err, c.Close())
	}()
	c, err := l.src.Dial(limited, src, dst, kernel.SocketOptions{})
	if err != nil {
		return r, err // close ends Accept
	}
	defer context.AfterFunc(limited, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	select {
	case <-limited.Done():
	case <-time.After(max(idle, 2*l.rate.TimeToSend(l.burst))):
	}
	r.start = time.Now()
	_, err = c.Write(make([]byte, size)) // at once: each write would end with a short frame
	err = errors.Join(err, <-received)
	r.end = time.Now()
	err = errors.Join(err, c.Close())
	if limited.Err() != nil {
		err = context.Cause(limited)
	}
	return r, err
}

// captured ends the first capture and returns its data frames.
func (l *link) captured() ([]arrival, error) { return l.taps[0].captured() }

func (t *tap) captured() ([]arrival, error) {
	err := t.stop()
	s, statsErr := t.capture.Stats()
	if err = errors.Join(err, statsErr); err == nil && s.Dropped > 0 {
		err = fmt.Errorf("the capture lost %d of %d packets", s.Dropped, s.Packets)
	}
	return t.frames, err
}

func (t *tap) stop() error {
	if t.stopped {
		return nil
	}
	t.stopped = true
	return errors.Join(t.capture.Close(), t.work.Wait())
}

func (l *link) close(ctx context.Context) error {
	var errs []error
	for _, t := range l.taps {
		errs = append(errs, t.stop())
	}
	if l.listener != nil {
		errs = append(errs, l.listener.Close())
	}
	for _, n := range []*kernel.Namespace{l.src, l.dst} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	if l.d != nil {
		errs = append(errs, l.d.Destroy(context.WithoutCancel(ctx)))
	}
	if l.lower != nil {
		errs = append(errs, l.lower())
	}
	return errors.Join(append(errs, l.x.Close())...)
}
