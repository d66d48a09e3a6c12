package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// payload is the content of flows and blocks. It is never written.
var payload [256 * units.KiB]byte

// Transfer is one flow of a coflow. The agent of Flow.Src sends it.
type Transfer struct {
	Coflow  workloads.CoflowID
	Flow    workloads.Flow
	Hash    uint32     // selects the path
	Ceiling units.Rate // rate cap of the payload: 0 pauses, pace.NoLimit is unlimited
	// Decided is the time of the decision on Ceiling; the zero time means the time of
	// Prepare. The header of the flow carries it (wire.Header.Released).
	Decided time.Time
	// Conn is a connection to Flow.Dst from Open, which the flow takes over. If nil, the flow opens
	// a connection when its ceiling is first above 0.
	Conn net.Conn
	// First writes the header and the first payload to the connection. nil means conn.Write.
	First func(conn net.Conn, b []byte) (int, error)
	// FirstMost is the maximum size of that write, header included.
	FirstMost units.Bytes
	// Read is a block of Flow.Size bytes that this host stores: the flow sends its replica at
	// the rate that the disk reads it. nil sends zeros.
	Read *workloads.BlockID
	// Task is the task that the flow serves, for its header; the zero value means none.
	Task wire.Task
}

// Sender is one flow at its source.
type Sender struct {
	a       *Agent
	t       Transfer
	group   uint32
	member  uint32
	ceiling *pace.Ceiling

	mu       sync.Mutex
	conn     net.Conn  // nil before the dial
	released time.Time // when the ceiling was last raised from 0

	stored *replicaStream // source of the payload if Transfer.Read is set
}

// ErrNotSending is the error of SetCeiling for a flow that is not being sent.
var ErrNotSending = errors.New("flow is not being sent")

// Prepare registers a flow, so that SetCeiling applies to it. The caller must call Send of the
// returned Sender.
func (a *Agent) Prepare(t Transfer) (*Sender, error) {
	s := &Sender{a: a, t: t}
	wrap := func(err error) error { return fmt.Errorf("%s: send flow %d: %w", a.name(), t.Flow.ID, err) }
	var err error
	if s.group, err = toUint32("coflow", int(t.Coflow)); err != nil {
		return nil, wrap(err)
	}
	if s.member, err = toUint32("flow", int(t.Flow.ID)); err != nil {
		return nil, wrap(err)
	}
	if t.Flow.Size < 0 {
		return nil, wrap(fmt.Errorf("size %d: must not be negative", t.Flow.Size))
	}
	if t.Flow.Src != a.o.Host {
		return nil, wrap(fmt.Errorf("source is %s, not this host", a.o.Name(t.Flow.Src)))
	}
	s.ceiling, s.released = a.o.Pacer.Ceiling(t.Ceiling), t.Decided
	if s.released.IsZero() {
		s.released = time.Now()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outgoing[t.Flow.ID] != nil {
		return nil, wrap(errors.New("flow is already being sent"))
	}
	a.outgoing[t.Flow.ID] = s
	return s, nil
}

// Send is Prepare and Sender.Send.
func (a *Agent) Send(ctx context.Context, t Transfer) error {
	s, err := a.Prepare(t)
	if err != nil {
		return err
	}
	return s.Send(ctx)
}

// SetCeiling changes the rate cap of a flow: see Sender.SetCeiling.
func (a *Agent) SetCeiling(flow workloads.FlowID, rate units.Rate) error {
	a.mu.RLock()
	s := a.outgoing[flow]
	a.mu.RUnlock()
	if s == nil {
		return fmt.Errorf("%s: set the ceiling of flow %d: %w", a.name(), flow, ErrNotSending)
	}
	s.SetCeiling(rate)
	return nil
}

// SetCeiling changes the rate cap of the flow. If it pauses the flow or ends pace.NoLimit, a write
// in progress is interrupted: only the data in the socket buffer is still sent. Between two finite
// ceilings, bytes already granted (about one quantum, at most pace.Options.Burst) are still sent at
// once.
func (s *Sender) SetCeiling(rate units.Rate) {
	old := s.ceiling.Rate()
	if old == 0 && rate > 0 {
		s.mu.Lock()
		s.released = time.Now()
		s.mu.Unlock()
	}
	s.ceiling.Set(rate)
	if rate > 0 && old != pace.NoLimit || rate >= old {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.SetWriteDeadline(past) // Send clears it and reads the ceiling again
	}
}

// Send sends the flow and returns when its receiver has all of it. While the
// ceiling is 0 nothing is sent: the connection is opened when it is first raised.
// Only ctx bounds the wait; cancelling it discards the socket buffer. Send returns
// ErrStopped when Stop ended the flow, and ErrCrashed when the host crashed.
func (s *Sender) Send(ctx context.Context) error {
	defer func() {
		s.a.mu.Lock()
		defer s.a.mu.Unlock()
		delete(s.a.outgoing, s.t.Flow.ID)
	}()
	l := s.a.current()
	ctx, release := l.within(ctx)
	defer release()
	ctx, release = withEnd(ctx, s.a.stopperOf(s.t.Flow.ID).ctx)
	defer release()
	if err := causeOr(ctx, s.send(ctx, l)); err != nil {
		f := s.t.Flow
		return fmt.Errorf("flow %d of %v from %s to %s: %w", f.ID, f.Size, s.a.name(), s.a.o.Name(f.Dst), err)
	}
	return nil
}

func (s *Sender) send(ctx context.Context, l *life) (err error) {
	f, conn := s.t.Flow, s.t.Conn
	err = s.ceiling.Open(ctx)
	switch {
	case err == nil && conn == nil:
		conn, err = s.a.dial(ctx, l, f.Dst, wire.ShufflePort, s.t.Hash, s.a.o.Timeouts.Connect)
	case err != nil && conn != nil:
		l.untrack(conn)
		reset(conn)
	}
	if err != nil {
		return err
	}
	defer l.untrack(conn)
	stop := onDone(ctx, func() { conn.SetDeadline(past) })
	defer stop()
	if s.t.Read != nil {
		if s.stored, err = s.a.readReplica(ctx, *s.t.Read, f.Size); err != nil {
			reset(conn)
			return err
		}
		defer func() { err = errors.Join(err, s.stored.close()) }()
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	if c, ok := conn.(Carrier); ok {
		c.Carries(f.ID)
	}
	if err := s.write(ctx, conn); err != nil {
		reset(conn)
		return err
	}
	defer conn.Close()
	if err := closeWrite(conn); err != nil {
		return err
	}
	// The receiver closes the connection when it has all bytes.
	switch _, err := conn.Read(make([]byte, 1)); {
	case err == nil:
		return errors.New("the receiver sent unexpected data")
	case errors.Is(err, io.EOF):
		return nil
	default:
		reset(conn)
		return fmt.Errorf("all bytes sent, but the receiver did not confirm: %w", err)
	}
}

// write writes header and payload within the ceiling. The header leaves together
// with the first payload.
func (s *Sender) write(ctx context.Context, conn net.Conn) error {
	left := s.t.Flow.Size
	h := wire.Header{Kind: wire.KindFlow, Run: s.a.o.Run, Group: s.group, Member: s.member, Parts: s.t.Hash, Size: uint64(s.t.Flow.Size), Read: s.t.Read != nil, Task: s.t.Task}
	length := units.Bytes(h.Len())
	var head []byte // header and first payload, until it has left
	for first := true; first || len(head) > 0 || left > 0; first = false {
		want := min(left, units.Bytes(len(payload)))
		if first {
			want = min(left, firstSegment-length)
			if s.t.First != nil {
				want = min(want, s.t.FirstMost-length)
			}
		} else if len(head) > 0 {
			want = 0
		}
		from := payload[:]
		if s.stored != nil && want > 0 {
			var err error
			if from, err = s.stored.peek(ctx); err != nil {
				return err
			}
			want = min(want, units.Bytes(len(from)))
		}
		err := s.a.cpu.turn(ctx)
		if err != nil {
			return err
		}
		grant, err := s.ceiling.Take(ctx, want)
		if err != nil {
			return err
		}
		left -= grant
		b := from[:grant]
		if first {
			h.Sent = time.Now()
			s.mu.Lock()
			h.Release(s.released)
			s.mu.Unlock()
			head = append(h.Append(make([]byte, 0, firstSegment)), b...)
			s.stored.skip(int(grant))
		}
		if len(head) > 0 {
			b = head
		}
		send := conn.Write
		if first && s.t.First != nil {
			send = func(b []byte) (int, error) { return s.t.First(conn, b) }
		}
		n, err := send(b)
		unsent := units.Bytes(len(b) - n)
		if len(head) > 0 {
			head = head[n:] // already granted
		} else {
			s.stored.skip(n)
			if unsent > 0 {
				left += unsent
				s.ceiling.Refund(unsent)
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return fmt.Errorf("after %v: %w", s.t.Flow.Size-left, err)
		}
		// SetCeiling interrupted the write. It set the ceiling before the deadline, so the next
		// Take uses the new one.
		if err := conn.SetWriteDeadline(time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// firstSegment is the size of the write of the header, with payload: one segment at an MTU of 1500.
const firstSegment = 1448

// Open opens a connection for a later flow: see Transfer.Conn. If the flow is never sent, the
// caller resets the connection with SetLinger(0) and Close.
func (a *Agent) Open(ctx context.Context, dst topo.HostID, hash uint32) (net.Conn, error) {
	return a.dial(ctx, a.current(), dst, wire.ShufflePort, hash, a.o.Timeouts.Connect)
}

// dial opens a connection from the agent's host within the given time. The
// connection ends with the life l; the caller releases it from l.
func (a *Agent) dial(ctx context.Context, l *life, dst topo.HostID, port uint16, hash uint32, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer for %v", within))
	defer cancel()
	conn, err := a.o.Network.Dial(ctx, a.o.Host, dst, port, hash)
	if err == nil {
		err = l.track(conn)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("connect to %s port %d: %w", a.o.Name(dst), port, err)
	}
	return conn, nil
}

// buffers are the read buffers of receivers; their contents are discarded.
var buffers = sync.Pool{New: func() any { return new([64 * units.KiB]byte) }}

// receive reads a flow, counts its bytes and reports it to the Sink.
func (a *Agent) receive(ctx context.Context, conn net.Conn, h wire.Header) error {
	flow := workloads.FlowID(h.Member)
	ctx, release := withEnd(ctx, a.stopperOf(flow).ctx)
	defer release()
	if ctx.Err() != nil { // the flow was stopped before it arrived
		return context.Cause(ctx)
	}
	c := a.consumerOf(flow)
	received, in := new(Received), conn
	if c == nil { // an attempt that consumes its input at a rate reads when it is due
		in = newBatches(conn)
		received.queue, _ = conn.(Batched)
	}
	if err := a.registerIncoming(flow, received); err != nil {
		return err
	}
	if err := c.bound(conn, a.o.ReceiveBuffer); err != nil {
		return err
	}
	stop := onDone(ctx, func() { conn.SetReadDeadline(past) })
	defer stop()
	// Clear the deadline of the header: it must not bound the flow.
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	buf := buffers.Get().(*[64 * units.KiB]byte)
	defer buffers.Put(buf)
	at := time.Now()
	for left := h.Size; left > 0; {
		if err := a.cpu.turn(ctx); err != nil {
			return err
		}
		n, err := in.Read(buf[:min(left, uint64(len(buf)), c.chunk())])
		left -= uint64(n)
		if err := c.consume(ctx, units.Bytes(n), left == 0); err != nil {
			return err
		}
		at = time.Now()
		received.read.Add(int64(n))
		if err != nil && left > 0 {
			return causeOr(ctx, fmt.Errorf("flow %d of coflow %d broke off after %d of its %d bytes: %w", flow, h.Group, h.Size-left, h.Size, err))
		}
	}
	a.o.Sink.FlowReceived(FlowReceived{Flow: flow, At: at})
	return a.markConsumed(c, units.Bytes(h.Size), at)
}

// registerIncoming registers the counter of an incoming flow.
func (a *Agent) registerIncoming(flow workloads.FlowID, r *Received) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.incoming[flow] != nil {
		return fmt.Errorf("flow %d arrived a second time", flow)
	}
	a.incoming[flow] = r
	return nil
}

// Received returns the live counter of the payload bytes that this host has received
// of a flow, also of a finished one. It is nil before the header has arrived.
func (a *Agent) Received(flow workloads.FlowID) *Received {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.incoming[flow]
}
