package kernel

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// probeEtherType marks the frames of Probe: the first of the two types that IEEE 802 reserves for
// local experiments.
const probeEtherType = 0x88b5

// Layout of a probe frame: Ethernet header, number of the probe, index of the frame, names of both
// ends.
const (
	probeNumberAt = 14
	probeLinkAt   = probeNumberAt + 8
	probeNameAt   = probeLinkAt + 4
	probeMinSize  = 60 // minimum Ethernet frame without its checksum
)

// Probe sends one frame over each link in each direction, bypassing the shapers. It returns the
// frames that did not arrive at the other end within Settings.ProbeTimeout. The listener is behind
// all filters of incoming frames (tc, nftables). Probe returns before its sockets
// are closed; Evict and Close wait for that.
func (x *Executor) Probe(ctx context.Context, links []plan.Veth) (lost []deploy.Lost, err error) {
	p := prober{x: x, listeners: map[string]*probeSocket{}}
	defer func() { x.closing.Go(func() error { return p.close(x.Settings.Closers) }) }()
	if _, err := rand.Read(p.number[:]); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	for _, l := range links {
		p.frames = append(p.frames, probe{Lost: deploy.Lost{From: l.A, To: l.B}}, probe{Lost: deploy.Lost{From: l.B, To: l.A}})
	}
	for _, f := range p.frames { // all sockets listen before the first frame is sent
		if err := errors.Join(p.listen(f.To.Namespace), p.listen(f.From.Namespace)); err != nil {
			return nil, err
		}
	}
	for i := range p.frames {
		p.send(i)
	}
	if err := p.receive(ctx, time.Now().Add(x.Settings.ProbeTimeout)); err != nil {
		return nil, err
	}
	for _, f := range p.frames {
		if !f.seen {
			if f.Why == "" {
				f.Why = fmt.Sprintf("no arrival within %v", x.Settings.ProbeTimeout)
			}
			lost = append(lost, f.Lost)
		}
	}
	return lost, nil
}

type prober struct {
	x         *Executor
	number    [8]byte // random number of this probe, to ignore frames of others
	frames    []probe
	listeners map[string]*probeSocket // by namespace
	order     []*probeSocket
}

// probe is one frame.
type probe struct {
	deploy.Lost
	seen bool
}

// probeSocket is a socket that receives from all devices of a namespace.
type probeSocket struct {
	*builder
	fd    int
	await int // frames expected and not received
}

func (p *prober) listen(namespace string) error {
	if p.listeners[namespace] != nil {
		return nil
	}
	return p.x.inNamespace(namespace, func(b *builder) error {
		l := &probeSocket{builder: b}
		err := b.do(func() (err error) {
			l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(bigEndian(probeEtherType)))
			return err
		})
		if err != nil {
			return fmt.Errorf("probe: open a packet socket in %q: %w%s", namespace, err, privilege(err))
		}
		p.listeners[namespace], p.order = l, append(p.order, l)
		// A leaf receives from all its hosts at once. The default buffer fits about 250 frames.
		const buffer = 1 << 21
		if err := enlarge(l.fd, buffer, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF); err != nil {
			return fmt.Errorf("probe: set the receive buffer in %q: %w", namespace, err)
		}
		return nil
	})
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

func (p *prober) send(i int) {
	f := &p.frames[i]
	from, to := p.listeners[f.From.Namespace], p.listeners[f.To.Namespace]
	index, ok := from.index[f.From.Device]
	if !ok {
		f.Why = "the device does not exist"
		return
	}
	frame := append(f.To.MAC[:], f.From.MAC[:]...)
	frame = binary.BigEndian.AppendUint16(frame, probeEtherType)
	frame = append(frame, p.number[:]...)
	frame = binary.BigEndian.AppendUint32(frame, uint32(i))
	frame = append(frame, f.From.Namespace+">"+f.To.Namespace...)
	frame = append(frame, make([]byte, max(0, probeMinSize-len(frame)))...)
	err := unix.Sendto(from.fd, frame, 0, &unix.SockaddrLinklayer{Protocol: bigEndian(probeEtherType), Ifindex: index, Halen: 6})
	if err != nil {
		f.Why = fmt.Sprintf("send failed: %v", err)
		return
	}
	to.await++
}

// receive waits for all frames until the deadline.
func (p *prober) receive(ctx context.Context, deadline time.Time) error {
	const ctxInterval = 50 * time.Millisecond // between checks of ctx
	frame := make([]byte, 2048)
	for {
		var fds []unix.PollFd
		var polled []*probeSocket
		for _, l := range p.order {
			if l.await > 0 {
				fds, polled = append(fds, unix.PollFd{Fd: int32(l.fd), Events: unix.POLLIN}), append(polled, l)
			}
		}
		left := time.Until(deadline)
		if len(fds) == 0 || left <= 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("probe: %w", context.Cause(ctx))
		}
		if _, err := unix.Poll(fds, int(max(1, min(left, ctxInterval).Milliseconds()))); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("probe: wait for frames: %w", err)
		}
		for i, l := range polled {
			if fds[i].Revents == 0 {
				continue
			}
			if err := p.drain(l, frame); err != nil {
				return fmt.Errorf("probe: receive in %q: %w", l.name, err)
			}
		}
	}
}

// drain reads all frames that have arrived at a listener.
func (p *prober) drain(l *probeSocket, frame []byte) error {
	for {
		n, from, err := unix.Recvfrom(l.fd, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN): // a device that is down returns this once
			continue
		case err != nil:
			return err
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if !ok || n < probeNameAt || !bytes.Equal(frame[probeNumberAt:probeLinkAt], p.number[:]) {
			continue
		}
		i := binary.BigEndian.Uint32(frame[probeLinkAt:])
		if int(i) >= len(p.frames) {
			continue
		}
		f := &p.frames[i]
		if l.name == f.To.Namespace && at.Ifindex == l.index[f.To.Device] {
			if !f.seen {
				l.await--
			}
			f.seen = true
			continue
		}
		f.Why = fmt.Sprintf("arrived at %s, device %d", l.name, at.Ifindex)
		for name, index := range l.index {
			if index == at.Ifindex {
				f.Why = fmt.Sprintf("arrived at %s of %s", name, l.name)
			}
		}
	}
}

// close closes the sockets on temporary threads.
func (p *prober) close(threads int) error {
	errs := make([]error, len(p.order))
	var wg sync.WaitGroup
	threads = max(1, min(threads, len(p.order)))
	for t := range threads {
		wg.Go(func() {
			onThread(func() { // otherwise the threads would stay idle in the process
				for i := t; i < len(p.order); i += threads {
					errs[i] = unix.Close(p.order[i].fd)
				}
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
