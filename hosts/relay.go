package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
)

// relay is one hop of a block pipeline at its receiver: it forwards each packet,
// writes it to the host's disk, and acknowledges it when that is done and the
// next host has acknowledged it.
type relay struct {
	a      *Agent
	life   *life
	up     net.Conn // toward the client
	h      wire.Header
	stored *stored
	next   *downstream // nil at the last host

	mu    sync.Mutex // of writes to up
	spoke time.Time  // the last of them
	quiet bool       // no more keep-alives
}

// linger is how long a block server that failed waits for its predecessor to
// hang up. Closing before would reset the connection, and might take the reason
// along.
const linger = 2 * time.Second

// errUpstream is the loss of the connection toward the client. Nobody needs to be
// told: who is there still has noticed.
var errUpstream = errors.New("connection toward the client lost")

// malformed is what no client of ours asks for.
type malformed struct{ error }

func (m malformed) Unwrap() error { return m.error }

// store serves one hop. A failure is told upstream. A hop that breaks leaves its
// replica to the next generation of the pipeline.
func (a *Agent) store(ctx context.Context, l *life, up net.Conn, h wire.Header) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := onDone(ctx, func() { up.SetDeadline(past) })
	defer stop()
	r := &relay{a: a, life: l, up: up, h: h, spoke: time.Now()}
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		r.keepAlive(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-spoken
	}()
	err := r.setUp(ctx, cancel)
	if err == nil {
		err = r.transfer(ctx)
	}
	if r.next != nil {
		if err == nil {
			err = r.next.conn.Close()
		} else {
			reset(r.next.conn)
		}
		l.release(r.next.conn)
	}
	if r.stored != nil {
		// The client drops a host that says itself that it is at fault.
		mine := err != nil && ctx.Err() == nil && !errors.Is(err, errUpstream) && r.blame(err).host == a.o.Host
		a.leave(workloads.BlockID(h.Group), r.stored, mine)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUpstream) || errors.Is(context.Cause(ctx), errSuperseded):
		return errors.Join(errGone, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err2 := r.refuse(ctx, err); err2 != nil {
		var m malformed
		if !errors.As(err, &m) {
			return errors.Join(errGone, err, err2)
		}
		return fmt.Errorf("block %d: %w (and this could not be told upstream: %w)", h.Group, err, err2)
	}
	return nil
}

// keepAlive tells upstream that the host lives whenever it has said nothing for a
// quarter of the time after which it counts as lost. The waits of the relay itself
// are bounded, so that this is too.
func (r *relay) keepAlive(ctx context.Context, cancel context.CancelCauseFunc) {
	every := r.a.o.PeerTimeout / 4
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wait, err := r.speakUp(ctx, every)
		switch {
		case err != nil:
			cancel(fmt.Errorf("%w: %w", errUpstream, err))
			return
		case wait == 0:
			return
		}
		timer.Reset(wait)
	}
}

// speakUp sends a keep-alive where one is due, and returns when to look again; 0 is
// never.
func (r *relay) speakUp(ctx context.Context, every time.Duration) (time.Duration, error) {
	if err := r.a.cpu.turn(ctx); err != nil {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet || ctx.Err() != nil {
		return 0, nil
	}
	if silent := time.Since(r.spoke); silent < every {
		return every - silent, nil
	}
	return every, r.tell(ctx, wire.Ack{Alive: true}, r.a.o.Timeouts.Idle)
}

// tell sends an acknowledgement upstream. r.mu is held.
func (r *relay) tell(ctx context.Context, ack wire.Ack, bound time.Duration) error {
	r.spoke = time.Now()
	err := writeAll(ctx, r.up, ack.Append(nil), bound)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errUpstream, err)
	}
	return err
}

// blame is err as it is told upstream.
func (r *relay) blame(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{host: r.a.o.Host, full: errors.Is(err, syscall.ENOSPC), reason: err.Error()}
}

// setUp reads what is wanted, sets space aside or takes over what an earlier
// generation has, connects the next host, and then acknowledges.
func (r *relay) setUp(ctx context.Context, cancel context.CancelCauseFunc) error {
	var b [wire.TargetsSize]byte
	if err := readFull(ctx, r.up, b[:], r.a.o.Timeouts.Idle); err != nil {
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ETIMEDOUT) {
			return fmt.Errorf("%w: read pipeline targets: %w", errUpstream, err)
		}
		return malformed{fmt.Errorf("read pipeline targets: %w", err)}
	}
	targets, err := wire.ParseTargets(b[:])
	if err != nil {
		return malformed{err}
	}
	h := r.h
	switch {
	case uint64(len(targets))+uint64(h.Member)+1 != uint64(h.Parts) || h.Parts > 1+wire.MaxTargets:
		return malformed{fmt.Errorf("hop %d of a block of %d replicas has %d hosts behind it", h.Member, h.Parts, len(targets))}
	case h.Packet < 1 || h.Packet > uint32(maxPacket) || h.Size < 1 || h.Size > 1<<62 || wire.Packets(h.Size, uint64(h.Packet)) > 1<<32-1:
		return malformed{fmt.Errorf("block of %d bytes in packets of %d", h.Size, h.Packet)}
	case h.Offset >= h.Size || h.Offset%uint64(h.Packet) != 0:
		return malformed{fmt.Errorf("block of %d bytes in packets of %d that goes on at %d", h.Size, h.Packet, h.Offset)}
	case r.a.o.Disk == nil:
		return errors.New("the host has no disk")
	}
	block := workloads.BlockID(h.Group)
	if r.stored, err = r.a.take(ctx, block, h.Generation, cancel); err != nil {
		return err
	}
	if r.stored.replica == nil {
		if h.Offset > 0 {
			return fmt.Errorf("the host has lost the first %d bytes of the block", h.Offset)
		}
		replica, err := r.a.o.Disk.Create(block, units.Bytes(h.Size))
		if err != nil {
			return err
		}
		r.stored.replica = replica
	}
	if have := r.stored.replica.Written(); uint64(have) < h.Offset {
		return fmt.Errorf("the host has %d bytes of the block, which goes on at %d", have, h.Offset)
	}
	if len(targets) > 0 {
		h.Member++
		if r.next, err = r.a.connect(ctx, r.life, h, targets); err != nil {
			return err
		}
	}
	return r.ack(ctx, 0)
}

// ack acknowledges upstream; after the last packet nothing follows.
func (r *relay) ack(ctx context.Context, seq uint32) error {
	if err := r.a.cpu.turn(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, last := packets(r.h); seq == last {
		r.quiet = true
	}
	if err := r.tell(ctx, wire.Ack{Seq: seq}, r.a.o.Timeouts.Idle); err != nil {
		return fmt.Errorf("acknowledge %s: %w", packetName(seq), err)
	}
	return nil
}

// transfer moves the packets. The first failure ends all its waits.
func (r *relay) transfer(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := onDone(ctx, func() {
		r.up.SetReadDeadline(past)
		if r.next != nil {
			r.next.conn.SetDeadline(past)
		}
	})
	defer stop()
	written := make(chan struct{}, 256) // a token for each packet on this host's disk
	g.Go(func() error { return r.receive(ctx, written) })
	g.Go(func() error { return r.respond(ctx, written) })
	return g.Wait()
}

// receive takes the packets in, forwards each, and then writes it, but for what an
// earlier generation has written.
func (r *relay) receive(ctx context.Context, written chan<- struct{}) error {
	idle := r.a.o.Timeouts.Idle
	stalled := fmt.Errorf("the disk has not taken a packet for %v", idle)
	replica := r.stored.replica
	buf := make([]byte, min(uint64(r.h.Packet), r.h.Size-r.h.Offset))
	for at := r.h.Offset; at < r.h.Size; {
		p := buf[:min(r.h.Size-at, uint64(len(buf)))]
		if err := r.a.cpu.turn(ctx); err != nil {
			return err
		}
		// The client is silent while its window is full: it is for it, and the
		// hosts behind this one, to lose patience first.
		if err := readFull(ctx, r.up, p, idle+idle/4*time.Duration(1+r.h.Parts)); err != nil {
			return fmt.Errorf("%w with %d of %d bytes to come: %w", errUpstream, r.h.Size-at, r.h.Size, err)
		}
		if r.next != nil && !r.next.send(ctx, p) {
			return nil // respond learns why
		}
		at += uint64(len(p))
		if missing := int64(at) - int64(replica.Written()); missing > 0 {
			diskCtx, cancel := context.WithTimeoutCause(ctx, idle, stalled)
			err := r.a.cpu.turn(ctx)
			if err == nil {
				err = replica.Write(diskCtx, p[max(0, int64(len(p))-missing):])
			}
			cancel()
			if err != nil {
				return err
			}
		}
		if at == r.h.Size {
			if err := replica.Commit(); err != nil {
				return err
			}
		}
		select {
		case written <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// respond acknowledges each packet once it is written here and acknowledged by
// the next host.
func (r *relay) respond(ctx context.Context, written <-chan struct{}) error {
	first, last := packets(r.h)
	for seq := first; ; seq++ {
		if r.next != nil {
			if err := r.next.await(ctx, seq); err != nil {
				return err
			}
		}
		select {
		case <-written:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.ack(ctx, seq); err != nil {
			return err
		}
		if seq == last {
			return nil
		}
	}
}

// refuse tells upstream what went wrong and waits for it to hang up.
func (r *relay) refuse(ctx context.Context, err error) error {
	f := r.blame(err)
	ack := wire.Ack{Failed: true, Full: f.full, Host: uint32(f.host), Reason: f.reason}
	r.mu.Lock()
	r.quiet = true
	err = r.tell(ctx, ack, linger)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := closeWrite(r.up); err != nil {
		return err
	}
	if err := r.up.SetReadDeadline(time.Now().Add(linger)); err != nil {
		return err
	}
	if ctx.Err() == nil {
		io.Copy(io.Discard, r.up) // how it ends does not matter
	}
	return nil
}
