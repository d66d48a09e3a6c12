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

// relay is the receiver of one hop of a block pipeline. It forwards each packet,
// writes it to the host's disk, and acknowledges it once it is written and the next
// host has acknowledged it.
type relay struct {
	a      *Agent
	life   *life
	up     net.Conn // toward the client
	h      wire.Header
	stored *stored
	next   *downstream // nil at the last host

	mu       sync.Mutex // guards writes to up
	lastSent time.Time  // time of the last write to up
	final    bool       // no more keep-alives
}

// lingerTime is the time for which a failed block server waits for its predecessor to close the
// connection. An earlier close would reset it, and could lose the reason.
const lingerTime = 2 * time.Second

// errUpstream is the loss of the connection toward the client. It is not reported:
// the remaining hosts detect it themselves.
var errUpstream = errors.New("connection toward the client lost")

// malformed is the error of a request that no client of this package sends.
type malformed struct{ error }

func (m malformed) Unwrap() error { return m.error }

// store serves one hop and reports a failure upstream. When a hop breaks, its replica is kept for
// the next generation of the pipeline.
func (a *Agent) store(ctx context.Context, l *life, up net.Conn, h wire.Header) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := onDone(ctx, func() { up.SetDeadline(past) })
	defer stop()
	r := &relay{a: a, life: l, up: up, h: h, lastSent: time.Now()}
	keepAliveDone := make(chan struct{})
	go func() {
		defer close(keepAliveDone)
		r.keepAlive(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-keepAliveDone
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
		l.untrack(r.next.conn)
	}
	if r.stored != nil {
		// The client drops a host that reports a failure of its own.
		ownFault := err != nil && ctx.Err() == nil && !errors.Is(err, errUpstream) && r.blame(err).host == a.o.Host
		a.releaseReplica(workloads.BlockID(h.Group), r.stored, ownFault)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUpstream) || errors.Is(context.Cause(ctx), errSuperseded):
		return errors.Join(errPeerClosed, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err2 := r.reportFailure(ctx, err); err2 != nil {
		var m malformed
		if !errors.As(err, &m) {
			return errors.Join(errPeerClosed, err, err2)
		}
		return fmt.Errorf("block %d: %w (reporting this upstream failed: %w)", h.Group, err, err2)
	}
	return nil
}

// keepAlive sends a keep-alive upstream whenever the host has sent nothing for a
// quarter of the time after which it counts as lost. The waits of the relay are
// bounded, so keepAlive is too.
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
		wait, err := r.sendKeepAlive(ctx, every)
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

// sendKeepAlive sends a keep-alive if one is due, and returns the time until the next check; 0
// means never.
func (r *relay) sendKeepAlive(ctx context.Context, every time.Duration) (time.Duration, error) {
	if err := r.a.cpu.turn(ctx); err != nil {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.final || ctx.Err() != nil {
		return 0, nil
	}
	if silent := time.Since(r.lastSent); silent < every {
		return every - silent, nil
	}
	return every, r.sendAck(ctx, wire.Ack{Alive: true}, r.a.o.Timeouts.Idle)
}

// sendAck sends an acknowledgement upstream. The caller holds r.mu.
func (r *relay) sendAck(ctx context.Context, ack wire.Ack, bound time.Duration) error {
	r.lastSent = time.Now()
	err := writeAll(ctx, r.up, ack.Append(nil), bound)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errUpstream, err)
	}
	return err
}

// blame returns err as the failure that is reported upstream.
func (r *relay) blame(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{host: r.a.o.Host, full: errors.Is(err, syscall.ENOSPC), reason: err.Error()}
}

// setUp reads the targets, reserves space or takes over the replica of an earlier
// generation, connects the next host, and then acknowledges.
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
		return malformed{fmt.Errorf("block of %d bytes in packets of %d resumes at %d", h.Size, h.Packet, h.Offset)}
	case r.a.o.Disk == nil:
		return errors.New("the host has no disk")
	}
	block := workloads.BlockID(h.Group)
	if r.stored, err = r.a.acquireReplica(ctx, block, h.Generation, cancel); err != nil {
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
		return fmt.Errorf("the host has %d bytes of the block, which resumes at %d", have, h.Offset)
	}
	if len(targets) > 0 {
		h.Member++
		if r.next, err = r.a.connect(ctx, r.life, h, targets); err != nil {
			return err
		}
	}
	return r.ack(ctx, 0)
}

// ack acknowledges packet seq upstream; the last packet ends the keep-alives.
func (r *relay) ack(ctx context.Context, seq uint32) error {
	if err := r.a.cpu.turn(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, last := packets(r.h); seq == last {
		r.final = true
	}
	if err := r.sendAck(ctx, wire.Ack{Seq: seq}, r.a.o.Timeouts.Idle); err != nil {
		return fmt.Errorf("acknowledge %s: %w", packetName(seq), err)
	}
	return nil
}

// transfer receives, writes, forwards and acknowledges the packets. The first failure ends all
// waits.
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

// receive reads the packets, forwards each, and then writes it, except the part that
// an earlier generation has written.
func (r *relay) receive(ctx context.Context, written chan<- struct{}) error {
	idle := r.a.o.Timeouts.Idle
	stalled := fmt.Errorf("the disk did not complete a write for %v", idle)
	replica := r.stored.replica
	buf := make([]byte, min(uint64(r.h.Packet), r.h.Size-r.h.Offset))
	up := newBatches(r.up)
	for at := r.h.Offset; at < r.h.Size; {
		p := buf[:min(r.h.Size-at, uint64(len(buf)))]
		if err := r.a.cpu.turn(ctx); err != nil {
			return err
		}
		// The client sends nothing while its window is full. The client and the hosts
		// behind this one must time out first.
		if err := readFull(ctx, up, p, idle+idle/4*time.Duration(1+r.h.Parts)); err != nil {
			return fmt.Errorf("%w with %d of %d bytes missing: %w", errUpstream, r.h.Size-at, r.h.Size, err)
		}
		if r.next != nil && !r.next.send(ctx, p) {
			return nil // respond returns the reason
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

// reportFailure reports err upstream and waits until upstream closes the connection.
func (r *relay) reportFailure(ctx context.Context, err error) error {
	f := r.blame(err)
	ack := wire.Ack{Failed: true, Full: f.full, Host: uint32(f.host), Reason: f.reason}
	r.mu.Lock()
	r.final = true
	err = r.sendAck(ctx, ack, lingerTime)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := closeWrite(r.up); err != nil {
		return err
	}
	if err := r.up.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return err
	}
	if ctx.Err() == nil {
		io.Copy(io.Discard, r.up) // any error ends the wait
	}
	return nil
}
