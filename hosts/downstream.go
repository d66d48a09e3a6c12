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
	a     *Agent
	conn  net.Conn
	host  topo.HostID
	after int // hosts further down

	mu    sync.Mutex
	sent  int       // packets
	acked int       // packets, and 1 for the set-up
	since time.Time // when what is outstanding last made progress
	lost  error     // why sending failed
	until time.Time // where sending failed, how long the reason is waited for
}

// grace is how long a host that cannot be sent to has for telling why.
const grace = time.Second

// connect opens the hop to targets[0] and waits until the pipeline behind it is
// set up. Its errors are failures, but for the cause of ctx. The caller releases
// the connection from l.
func (a *Agent) connect(ctx context.Context, l *life, h wire.Header, targets []wire.Target) (_ *downstream, err error) {
	d := &downstream{a: a, host: topo.HostID(targets[0].Host), after: len(targets) - 1}
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
			l.release(d.conn)
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
		if !d.put(ctx, payload[:]) {
			return false
		}
	}
	return d.send(ctx, payload[:n])
}

// send sends a packet. When it cannot, it says false, and await tells why. It may
// take as long as await lets it.
func (d *downstream) send(ctx context.Context, p []byte) bool {
	if !d.put(ctx, p) {
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

func (d *downstream) put(ctx context.Context, p []byte) bool {
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
		d.lost, d.until = err, time.Now().Add(grace)
		d.conn.SetReadDeadline(d.until)
	}
	return false
}

// idle is how long this hop may make no progress, however alive it is: longer
// than the ones behind it.
func (d *downstream) idle() time.Duration {
	idle := d.a.o.Timeouts.Idle
	return idle + idle/4*time.Duration(1+d.after)
}

// await waits for the acknowledgement of the packet seq, from 1; 0 is the
// pipeline's set-up. Keep-alives make it patient.
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
			return d.fault("%s not acknowledged to %s for %v, though it lives", packetName(seq), d.a.name(), d.idle())
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
	err := d.hear(ctx, b[:])
	if err == nil {
		ack, more, err := wire.ParseAck(b[:])
		if err != nil {
			return wire.Ack{}, d.fault("%v", err)
		}
		if !ack.Failed {
			return ack, nil
		}
		rest := make([]byte, more)
		if err := d.hear(ctx, rest); err != nil {
			if ctx.Err() != nil {
				return wire.Ack{}, context.Cause(ctx)
			}
			return wire.Ack{}, d.fault("failed, and was lost before it said why: %v", err)
		}
		if ack, err = ack.ParseFailure(rest); err != nil {
			return wire.Ack{}, d.fault("%v", err)
		}
		return wire.Ack{}, &failure{host: topo.HostID(ack.Host), full: ack.Full, reason: ack.Reason}
	}
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return wire.Ack{}, context.Cause(ctx)
	case lost != nil:
		return wire.Ack{}, d.fault("connection from %s lost at %s: %v", d.a.name(), packetName(seq), lost)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.Ack{}, d.fault("%s not acknowledged to %s, which heard nothing for %v", packetName(seq), d.a.name(), d.a.o.PeerTimeout)
	}
	return wire.Ack{}, d.fault("connection from %s lost before %s was acknowledged: %v", d.a.name(), packetName(seq), err)
}

// hear fills b. Each time it hears something it is ready to wait PeerTimeout for
// more. The last part of that is a second look: this process may have stood still
// itself, with the answer waiting in the socket.
func (d *downstream) hear(ctx context.Context, b []byte) error {
	bound := d.a.o.PeerTimeout
	for again := false; len(b) > 0; {
		wait := bound - bound/8
		if again {
			wait = bound / 8
		}
		d.mu.Lock()
		deadline, last := time.Now().Add(wait), again
		if d.lost != nil {
			deadline, last = d.until, true
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
