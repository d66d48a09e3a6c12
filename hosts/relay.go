package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/hosts/disk"
	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
)

// relay is one hop of a block pipeline at its receiver: it forwards each packet,
// writes it to the host's disk, and acknowledges it when that is done and the
// next host has acknowledged it.
type relay struct {
	a       *Agent
	up      net.Conn // toward the client
	h       wire.Header
	replica *disk.Replica
	next    *downstream // nil at the last host
}

// linger is how long a block server that failed waits for its predecessor to
// hang up. Closing before would reset the connection, and might take the reason
// along.
const linger = 2 * time.Second

// store serves one hop. A failure is told upstream; what it returns could not be.
func (a *Agent) store(ctx context.Context, up net.Conn, h wire.Header) error {
	stop := onDone(ctx, func() { up.SetDeadline(past) })
	defer stop()
	r := &relay{a: a, up: up, h: h}
	err := r.setUp(ctx)
	if err == nil {
		err = r.transfer(ctx)
	}
	if r.next != nil {
		if err == nil {
			err = r.next.conn.Close()
		} else {
			reset(r.next.conn)
		}
	}
	if err == nil {
		return nil
	}
	if r.replica != nil {
		err = r.withCleanup(err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err2 := r.refuse(ctx, err); err2 != nil {
		return fmt.Errorf("block %d: %w (and this could not be told upstream: %w)", h.Group, err, err2)
	}
	return nil
}

// withCleanup deletes the replica and adds what goes wrong in that to err.
func (r *relay) withCleanup(err error) error {
	if err2 := r.replica.Abort(); err2 != nil {
		f := r.blame(err)
		return &failure{host: f.host, reason: fmt.Sprintf("%s; then %v", f.reason, err2)}
	}
	return err
}

// blame is err as it is told upstream.
func (r *relay) blame(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{host: r.a.o.Host, reason: err.Error()}
}

// setUp reads what is wanted, sets space aside, connects the next host, and then
// acknowledges.
func (r *relay) setUp(ctx context.Context) error {
	var b [wire.TargetsSize]byte
	if err := readFull(ctx, r.up, b[:], r.a.o.Timeouts.Idle); err != nil {
		return fmt.Errorf("read pipeline targets: %w", err)
	}
	targets, err := wire.ParseTargets(b[:])
	if err != nil {
		return err
	}
	h := r.h
	switch {
	case uint64(len(targets))+uint64(h.Member)+1 != uint64(h.Parts) || h.Parts > 1+wire.MaxTargets:
		return fmt.Errorf("hop %d of a block of %d replicas has %d hosts behind it", h.Member, h.Parts, len(targets))
	case h.Packet < 1 || h.Packet > uint32(maxPacket) || h.Size < 1 || h.Size > 1<<62:
		return fmt.Errorf("block of %d bytes in packets of %d", h.Size, h.Packet)
	case r.a.o.Disk == nil:
		return errors.New("the host has no disk")
	}
	if r.replica, err = r.a.o.Disk.Create(workloads.BlockID(h.Group), units.Bytes(h.Size)); err != nil {
		return err
	}
	if len(targets) > 0 {
		h.Member++
		if r.next, err = r.a.connect(ctx, h, targets); err != nil {
			return err
		}
	}
	return r.ack(ctx, 0)
}

// ack acknowledges upstream.
func (r *relay) ack(ctx context.Context, seq uint32) error {
	var b [wire.AckSize]byte
	if err := writeAll(ctx, r.up, wire.Ack{Seq: seq}.Append(b[:0]), r.a.o.Timeouts.Idle); err != nil {
		return fmt.Errorf("acknowledge packet %d: %w", seq, err)
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

// receive takes the packets in, forwards each, and then writes it.
func (r *relay) receive(ctx context.Context, written chan<- struct{}) error {
	if r.next != nil {
		defer r.next.end()
	}
	idle := r.a.o.Timeouts.Idle
	stalled := fmt.Errorf("the disk has not taken a packet for %v", idle)
	buf := make([]byte, min(uint64(r.h.Packet), r.h.Size))
	for left := r.h.Size; left > 0; {
		p := buf[:min(left, uint64(len(buf)))]
		// The client is silent while its window is full: it is for it, and the
		// hosts behind this one, to lose patience first.
		if err := readFull(ctx, r.up, p, idle+idle/4*time.Duration(1+r.h.Parts)); err != nil {
			return fmt.Errorf("connection toward the client lost with %d of %d bytes to come: %w", left, r.h.Size, err)
		}
		if r.next != nil && !r.next.send(ctx, p) {
			return nil // respond learns why
		}
		diskCtx, cancel := context.WithTimeoutCause(ctx, idle, stalled)
		err := r.replica.Write(diskCtx, p)
		cancel()
		if err != nil {
			return err
		}
		left -= uint64(len(p))
		if left == 0 {
			if err := r.replica.Commit(); err != nil {
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
	for i := range wire.Packets(r.h.Size, uint64(r.h.Packet)) {
		seq := uint32(i + 1)
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
	}
	return nil
}

// refuse tells upstream what went wrong and waits for it to hang up.
func (r *relay) refuse(ctx context.Context, err error) error {
	f := r.blame(err)
	ack := wire.Ack{Failed: true, Host: uint32(f.host), Reason: f.reason}
	if err := writeAll(ctx, r.up, ack.Append(nil), linger); err != nil {
		return err
	}
	if err := closeWrite(r.up); err != nil {
		return err
	}
	if err := r.up.SetReadDeadline(time.Now().Add(linger)); err != nil {
		return err
	}
	io.Copy(io.Discard, r.up) // how it ends does not matter
	return nil
}
