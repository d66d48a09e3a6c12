package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// maxPacket bounds what a block server sets aside for a packet.
const maxPacket = 64 * units.MiB

// Chain is one block write, to be done by the agent of Block.Client: the client
// sends to Targets[0], which may be its own host, that forwards to Targets[1] and
// so on.
//
// A hop is a connection that carries a wire.Header (Group the block, Member the
// hop from 0, Parts the replicas), wire.TargetsSize bytes that list the targets
// further down, and Size bytes of payload in packets of Block.Packet, the last
// one maybe shorter. Against it flow acknowledgements of wire.AckSize bytes: one
// when all further hops are connected, then one for each packet that this and
// all further hosts have written, wire.AckBytes in all. A host forwards a packet
// before it writes it. A failed acknowledgement (wire.Ack) ends the stream.
type Chain struct {
	Block   workloads.Block
	Targets []topo.HostID
	Hashes  []uint32 // one a hop; decides its path
}

// WriteError is a block that was not written, and the host at fault as far as
// the pipeline could tell.
type WriteError struct {
	Block  workloads.BlockID
	Host   topo.HostID
	Name   string // of the host
	Reason string
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("write block %d: %s: %s", e.Block, e.Name, e.Reason)
}

// failure is why a pipeline broke, on its way to the client.
type failure struct {
	host   topo.HostID // at fault
	reason string
}

func (f *failure) Error() string { return fmt.Sprintf("host %d: %s", f.host, f.reason) }

// Write writes a block and returns when it is durable: the client has the
// acknowledgement of the last packet. It keeps at most Block.Window packets
// un-acknowledged. What goes wrong in the pipeline is a *WriteError; when ctx
// ends, its cause is returned.
func (a *Agent) Write(ctx context.Context, c Chain) error {
	h, targets, err := a.checkChain(c)
	if err == nil {
		err = a.write(ctx, c.Block, h, targets)
	}
	var f *failure
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: write block %d: %w", a.name(), c.Block.ID, context.Cause(ctx))
	case errors.As(err, &f):
		return &WriteError{Block: c.Block.ID, Host: f.host, Name: a.o.Name(f.host), Reason: f.reason}
	}
	return fmt.Errorf("%s: write block %d: %w", a.name(), c.Block.ID, err)
}

// checkChain is the header of the first hop and the targets as they travel.
func (a *Agent) checkChain(c Chain) (wire.Header, []wire.Target, error) {
	b := c.Block
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if b.Client != a.o.Host {
		bad("its client is %s", a.o.Name(b.Client))
	}
	if b.Size < 1 {
		bad("size %d: want at least a byte", b.Size)
	}
	if b.Packet < 1 || b.Packet > maxPacket {
		bad("packet %d: want 1 to %d bytes", b.Packet, maxPacket)
	} else if wire.Packets(uint64(b.Size), uint64(b.Packet)) > 1<<32-1 {
		bad("size %v in packets of %v: too many packets", b.Size, b.Packet)
	}
	if b.Window < 1 {
		bad("window %d: want at least a packet", b.Window)
	}
	if len(c.Targets) < 1 || len(c.Targets) > 1+wire.MaxTargets {
		bad("%d targets: want 1 to %d", len(c.Targets), 1+wire.MaxTargets)
	}
	if len(c.Hashes) != len(c.Targets) {
		bad("%d hashes for %d hops: want one a hop", len(c.Hashes), len(c.Targets))
	}
	group, err := uint32Of("block", int(b.ID))
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return wire.Header{}, nil, errors.Join(errs...)
	}
	targets := make([]wire.Target, len(c.Targets))
	for i, t := range c.Targets {
		host, err := uint32Of("host", int(t))
		if err != nil {
			return wire.Header{}, nil, err
		}
		targets[i] = wire.Target{Host: host, Hash: c.Hashes[i]}
	}
	return wire.Header{
		Kind: wire.KindBlock, Run: a.o.Run, Group: group,
		Parts: uint32(len(targets)), Size: uint64(b.Size), Packet: uint32(b.Packet),
	}, targets, nil
}

// write is the client's end of the pipeline.
func (a *Agent) write(ctx context.Context, b workloads.Block, h wire.Header, targets []wire.Target) error {
	next, err := a.connect(ctx, h, targets)
	if err != nil {
		return err
	}
	packets := wire.Packets(h.Size, uint64(h.Packet))
	window := make(chan struct{}, b.Window)
	g, gctx := errgroup.WithContext(ctx)
	stop := onDone(gctx, func() { next.conn.SetDeadline(past) })
	g.Go(func() error {
		defer next.end()
		for left := b.Size; left > 0; {
			select {
			case window <- struct{}{}:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			n := min(left, b.Packet)
			if !next.sendZeros(gctx, n) {
				return nil // the acknowledgements tell why
			}
			left -= n
		}
		return nil
	})
	g.Go(func() error {
		for seq := range packets {
			if err := next.await(gctx, uint32(seq+1)); err != nil {
				return err
			}
			<-window
		}
		return nil
	})
	err = g.Wait()
	stop()
	if err != nil {
		reset(next.conn)
		return err
	}
	return next.conn.Close()
}

// downstream is the next hop of a block pipeline, as the client or a block server
// sees it. One goroutine sends and one awaits acknowledgements.
type downstream struct {
	a     *Agent
	conn  net.Conn
	host  topo.HostID
	after int // hosts further down
	// sent holds a token for each packet that was sent and whose acknowledgement
	// nobody awaits yet. It is closed when sending ends, for good or ill.
	sent chan struct{}
	lost error // why sending failed; set before sent is closed
}

// grace is how long a host that cannot be sent to has for telling why.
const grace = time.Second

// connect opens the hop to targets[0] and waits until the pipeline behind it is
// set up. Its errors are failures, but for the cause of ctx.
func (a *Agent) connect(ctx context.Context, h wire.Header, targets []wire.Target) (_ *downstream, err error) {
	d := &downstream{a: a, host: topo.HostID(targets[0].Host), after: len(targets) - 1, sent: make(chan struct{}, 256)}
	if d.conn, err = a.dial(ctx, d.host, wire.BlockPort, targets[0].Hash); err != nil {
		return nil, d.fault("%v", err)
	}
	stop := onDone(ctx, func() { d.conn.SetDeadline(past) })
	defer func() {
		stop()
		if err != nil {
			reset(d.conn)
		}
	}()
	h.Sent = time.Now()
	b, err := wire.AppendTargets(h.Append(make([]byte, 0, wire.Size+wire.TargetsSize)), targets[1:])
	if err != nil {
		return nil, err
	}
	if err := writeAll(ctx, d.conn, b, a.o.Timeouts.Idle); err != nil {
		return nil, d.fault("send header: %v", err)
	}
	// Each host further down may take Connect to reach the next.
	if err := d.readAck(ctx, 0, a.o.Timeouts.Connect*time.Duration(1+d.after)); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *downstream) fault(format string, args ...any) error {
	return &failure{host: d.host, reason: fmt.Sprintf(format, args...)}
}

// sendZeros sends a packet of n bytes, like send.
func (d *downstream) sendZeros(ctx context.Context, n units.Bytes) bool {
	for size := units.Bytes(len(payload)); n > size; n -= size {
		if !d.put(ctx, payload[:]) {
			return false
		}
	}
	return d.send(ctx, payload[:n])
}

// send sends a packet. When it cannot, it says false, and await tells why.
func (d *downstream) send(ctx context.Context, p []byte) bool {
	if !d.put(ctx, p) {
		return false
	}
	select {
	case d.sent <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *downstream) put(ctx context.Context, p []byte) bool {
	if err := writeAll(ctx, d.conn, p, d.idle()); err != nil {
		d.lost = err
		return false
	}
	return true
}

// end tells await that no more packets will be sent.
func (d *downstream) end() { close(d.sent) }

// idle is how long this hop may stand still: longer than the ones behind it.
func (d *downstream) idle() time.Duration {
	idle := d.a.o.Timeouts.Idle
	return idle + idle/4*time.Duration(1+d.after)
}

// await waits for the acknowledgement of the packet seq, from 1.
func (d *downstream) await(ctx context.Context, seq uint32) error {
	bound := d.idle()
	select {
	case _, more := <-d.sent:
		if !more {
			return d.whyLost(ctx, seq)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.readAck(ctx, seq, bound)
}

// whyLost reads on to a failed acknowledgement after sending has failed.
func (d *downstream) whyLost(ctx context.Context, seq uint32) error {
	until := time.Now().Add(grace)
	for {
		err := d.readAck(ctx, seq, time.Until(until))
		var a *failedAck
		switch {
		case errors.As(err, &a):
			return err
		case err != nil:
			return d.fault("connection from %s lost at packet %d: %v", d.a.name(), seq, d.lost)
		}
		seq++
	}
}

// failedAck is a failure that a host further down reported.
type failedAck struct{ failure }

func (f *failedAck) Unwrap() error { return &f.failure }

// readAck reads the acknowledgement of seq within bound.
func (d *downstream) readAck(ctx context.Context, seq uint32, bound time.Duration) error {
	what := "set-up"
	if seq > 0 {
		what = fmt.Sprintf("packet %d", seq)
	}
	var b [wire.AckSize]byte
	if err := readFull(ctx, d.conn, b[:], bound); err != nil {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return d.fault("%s not acknowledged to %s for %v", what, d.a.name(), bound)
		}
		return d.fault("connection from %s lost before %s was acknowledged: %v", d.a.name(), what, err)
	}
	ack, more, err := wire.ParseAck(b[:])
	if err != nil {
		return d.fault("%v", err)
	}
	if ack.Failed {
		rest := make([]byte, more)
		if err := readFull(ctx, d.conn, rest, d.a.o.Timeouts.Idle); err != nil {
			return d.fault("failed, and was lost before it said why: %v", err)
		}
		if ack, err = ack.ParseFailure(rest); err != nil {
			return d.fault("%v", err)
		}
		return &failedAck{failure{host: topo.HostID(ack.Host), reason: ack.Reason}}
	}
	if ack.Seq != seq {
		return d.fault("acknowledged packet %d instead of %d", ack.Seq, seq)
	}
	return nil
}
