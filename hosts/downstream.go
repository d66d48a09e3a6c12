package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// downstream is the next hop of a block pipeline, as the client or a block server
// sees it. One goroutine sends and one awaits acknowledgements.
type downstream struct {
	a      *Agent
	conn   net.Conn
	host   topo.HostID
	behind int // number of hosts further down

	mu             sync.Mutex
	sent           int       // packets sent
	acked          int       // acknowledgements received: packets and the set-up
	since          time.Time // of the last progress of outstanding packets
	sendErr        error     // the first error of sending
	reasonDeadline time.Time // if sendErr is set: the deadline for the host's report
}

// reasonTimeout is the time in which a host must report the reason after a send to it failed.
const reasonTimeout = time.Second

// connect opens the hop to targets[0] and waits until the pipeline behind it is
// set up. Its errors are failures, except the cause of ctx. The caller releases the
// connection from l.
func (a *Agent) connect(ctx context.Context, l *life, h wire.Header, targets []wire.Target) (_ *downstream, err error) {
	d := &downstream{a: a, host: topo.HostID(targets[0].Host), behind: len(targets) - 1}
	if d.conn, err = a.dial(ctx, l, d.host, wire.BlockPort, targets[0].Hash, a.o.PeerTimeout); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, d.fault("%v", err)
	}
	stop := onDone(ctx, func() { d.conn.SetDeadline(past) })
	defer func() {
		stop()
		if err != nil {
			l.untrack(d.conn)
			reset(d.conn)
		}
	}()
	h.Sent, d.since = time.Now(), time.Now()
	b, err := wire.AppendTargets(h.Append(make([]byte, 0, wire.Size+wire.TargetsSize)), targets[1:])
	if err != nil {
		return nil, err
	}
	if err := a.cpu.turn(ctx); err != nil {
		return nil, err
	}
	if err := writeAll(ctx, d.conn, b, a.o.PeerTimeout); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, d.fault("send header: %v", err)
	}
	if err := d.await(ctx, 0); err != nil {
		return nil, err
	}
	// The deadline of the header does not bound packets: await does.
	if err := d.conn.SetWriteDeadline(time.Time{}); err != nil {
		return nil, d.fault("%v", err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return d, nil
}

func (d *downstream) fault(format string, args ...any) error {
	return &failure{host: d.host, reason: fmt.Sprintf(format, args...)}
}

// sendZeros sends a packet of n bytes, like send.
func (d *downstream) sendZeros(ctx context.Context, n units.Bytes) bool {
	for size := units.Bytes(len(payload)); n > size; n -= size {
		if !d.write(ctx, payload[:]) {
			return false
		}
	}
	return d.send(ctx, payload[:n])
}

// send sends a packet. On failure it returns false, and await returns the reason. Only await bounds
// the time.
func (d *downstream) send(ctx context.Context, p []byte) bool {
	if !d.write(ctx, p) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent < d.acked { // nothing was outstanding
		d.since = time.Now()
	}
	d.sent++
	return true
}

func (d *downstream) write(ctx context.Context, p []byte) bool {
	err := d.a.cpu.turn(ctx)
	if err == nil {
		_, err = d.conn.Write(p)
	}
	if err == nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() == nil {
		d.sendErr, d.reasonDeadline = err, time.Now().Add(reasonTimeout)
		d.conn.SetReadDeadline(d.reasonDeadline)
	}
	return false
}

// idle returns the maximum time without progress of this hop while the host is alive. It exceeds
// that of the hops behind it.
func (d *downstream) idle() time.Duration {
	idle := d.a.o.Timeouts.Idle
	return idle + idle/4*time.Duration(1+d.behind)
}

// await waits for the acknowledgement of the packet seq, from 1; 0 is the
// pipeline's set-up. Each keep-alive extends the wait, up to idle.
func (d *downstream) await(ctx context.Context, seq uint32) error {
	for {
		ack, err := d.readAck(ctx, seq)
		if err != nil {
			return err
		}
		d.mu.Lock()
		if !ack.Alive {
			d.acked++
			d.since = time.Now()
		}
		// The set-up is outstanding from the start.
		stalled := d.sent >= d.acked && time.Since(d.since) > d.idle()
		d.mu.Unlock()
		switch {
		case ack.Alive && stalled:
			return d.fault("%s not acknowledged to %s for %v, although the host is alive", packetName(seq), d.a.name(), d.idle())
		case ack.Alive:
		case ack.Seq != seq:
			return d.fault("acknowledged packet %d instead of %d", ack.Seq, seq)
		default:
			return nil
		}
	}
}

func packetName(seq uint32) string {
	if seq == 0 {
		return "set-up"
	}
	return fmt.Sprintf("packet %d", seq)
}

// readAck reads an acknowledgement or a keep-alive, while waiting for seq.
func (d *downstream) readAck(ctx context.Context, seq uint32) (wire.Ack, error) {
	if err := d.a.cpu.turn(ctx); err != nil {
		return wire.Ack{}, err
	}
	var b [wire.AckSize]byte
	err := d.read(ctx, b[:])
	if err == nil {
		ack, more, err := wire.ParseAck(b[:])
		if err != nil {
			return wire.Ack{}, d.fault("%v", err)
		}
		if !ack.Failed {
			return ack, nil
		}
		rest := make([]byte, more)
		if err := d.read(ctx, rest); err != nil {
			if ctx.Err() != nil {
				return wire.Ack{}, context.Cause(ctx)
			}
			return wire.Ack{}, d.fault("failed, and was lost before it reported the reason: %v", err)
		}
		if ack, err = ack.ParseFailure(rest); err != nil {
			return wire.Ack{}, d.fault("%v", err)
		}
		return wire.Ack{}, &failure{host: topo.HostID(ack.Host), full: ack.Full, reason: ack.Reason}
	}
	d.mu.Lock()
	lost := d.sendErr
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return wire.Ack{}, context.Cause(ctx)
	case lost != nil:
		return wire.Ack{}, d.fault("connection from %s lost at %s: %v", d.a.name(), packetName(seq), lost)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.Ack{}, d.fault("%s not acknowledged to %s: no data for %v", packetName(seq), d.a.name(), d.a.o.PeerTimeout)
	}
	return wire.Ack{}, d.fault("connection from %s lost before %s was acknowledged: %v", d.a.name(), packetName(seq), err)
}

// read fills b. Each read that returns data restarts a wait of PeerTimeout. Its last eighth is a
// second read: if this process was itself stalled, the answer may already be in the socket.
func (d *downstream) read(ctx context.Context, b []byte) error {
	bound := d.a.o.PeerTimeout
	for again := false; len(b) > 0; {
		wait := bound - bound/8
		if again {
			wait = bound / 8
		}
		d.mu.Lock()
		deadline, last := time.Now().Add(wait), again
		if d.sendErr != nil {
			deadline, last = d.reasonDeadline, true
		}
		err := d.conn.SetReadDeadline(deadline)
		d.mu.Unlock()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := d.conn.Read(b)
		b = b[n:]
		again = n == 0
		if err != nil && (last && n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) && len(b) > 0 {
			return err
		}
	}
	return nil
}
