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

// probeEtherType marks the frames of Probe: the first of the two types that IEEE
// 802 leaves to local experiments.
const probeEtherType = 0x88b5

// A probe frame: Ethernet header, the run's number, which link, its name.
const (
	probeNumberAt = 14
	probeLinkAt   = probeNumberAt + 8
	probeNameAt   = probeLinkAt + 4
	probeMinSize  = 60 // of an Ethernet frame without its checksum
)

// Probe sends one frame over each link in each direction, past the shapers, and
// tells which were not seen within Settings.ProbeTimeout at the other end, where
// what listens stands behind all that could drop them on their way in (tc,
// nftables).
func (x *Executor) Probe(ctx context.Context, links []plan.Veth) (lost []deploy.Lost, err error) {
	p := prober{x: x, listeners: map[string]*probeSocket{}}
	defer func() { err = errors.Join(err, p.close(x.Settings.Closers)) }()
	if _, err := rand.Read(p.number[:]); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	for _, l := range links {
		p.frames = append(p.frames, probe{Lost: deploy.Lost{From: l.A, To: l.B}}, probe{Lost: deploy.Lost{From: l.B, To: l.A}})
	}
	for _, f := range p.frames { // all listen before anything is sent
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
				f.Why = fmt.Sprintf("it did not come within %v", x.Settings.ProbeTimeout)
			}
			lost = append(lost, f.Lost)
		}
	}
	return lost, nil
}

type prober struct {
	x         *Executor
	number    [8]byte // of this Probe, so that no other's frames are taken for its own
	frames    []probe
	listeners map[string]*probeSocket // by namespace
	order     []*probeSocket
}

// probe is one frame.
type probe struct {
	deploy.Lost
	seen bool
}

// probeSocket is a socket that hears all devices of a namespace.
type probeSocket struct {
	*building
	fd    int
	await int // frames that are to come
}

func (p *prober) listen(namespace string) error {
	if p.listeners[namespace] != nil {
		return nil
	}
	return p.x.in(namespace, func(b *building) error {
		l := &probeSocket{building: b}
		err := b.do(func() (err error) {
			l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(bigEndian(probeEtherType)))
			return err
		})
		if err != nil {
			return fmt.Errorf("probe: open a packet socket in %q: %w%s", namespace, err, privilege(err))
		}
		p.listeners[namespace], p.order = l, append(p.order, l)
		// A leaf hears all its hosts at once. The default holds some 250 frames.
		const room = 1 << 21
		if err := unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room); err != nil {
			return fmt.Errorf("probe: room for frames in %q: %w", namespace, err)
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
		f.Why = "there is no such device"
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
		f.Why = fmt.Sprintf("it cannot be sent: %v", err)
		return
	}
	to.await++
}

// receive waits for all frames, until the deadline.
func (p *prober) receive(ctx context.Context, deadline time.Time) error {
	const glance = 50 * time.Millisecond // how often ctx is looked at
	frame := make([]byte, 2048)
	for {
		var fds []unix.PollFd
		var of []*probeSocket
		for _, l := range p.order {
			if l.await > 0 {
				fds, of = append(fds, unix.PollFd{Fd: int32(l.fd), Events: unix.POLLIN}), append(of, l)
			}
		}
		left := time.Until(deadline)
		if len(fds) == 0 || left <= 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("probe: %w", context.Cause(ctx))
		}
		if _, err := unix.Poll(fds, int(max(1, min(left, glance).Milliseconds()))); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("probe: wait for frames: %w", err)
		}
		for i, l := range of {
			if fds[i].Revents == 0 {
				continue
			}
			if err := p.drain(l, frame); err != nil {
				return fmt.Errorf("probe: receive in %q: %w", l.name, err)
			}
		}
	}
}

// drain reads what has come in at a listener.
func (p *prober) drain(l *probeSocket, frame []byte) error {
	for {
		n, from, err := unix.Recvfrom(l.fd, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN): // a device that is down says so once
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
		f.Why = fmt.Sprintf("it came in at %s, device %d", l.name, at.Ifindex)
		for name, index := range l.index {
			if index == at.Ifindex {
				f.Why = fmt.Sprintf("it came in at %s of %s", name, l.name)
			}
		}
	}
}

// close closes the sockets, on threads that end with it.
func (p *prober) close(threads int) error {
	errs := make([]error, len(p.order))
	var wg sync.WaitGroup
	threads = max(1, min(threads, len(p.order)))
	for t := range threads {
		wg.Go(func() {
			onThread(func() { // idle threads would stay with the process
				for i := t; i < len(p.order); i += threads {
					errs[i] = unix.Close(p.order[i].fd)
				}
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
