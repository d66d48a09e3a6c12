package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// payload is what flows and blocks carry. It is only ever read.
var payload [256 * units.KiB]byte

// Transfer is one flow of a coflow, to be sent by the agent of Flow.Src.
type Transfer struct {
	Coflow  workloads.CoflowID
	Flow    workloads.Flow
	Hash    uint32     // decides the path
	Ceiling units.Rate // of the payload: 0 pauses, pace.NoLimit frees
	// Read is a block that is stored here, of Flow.Size, whose replica is what is sent,
	// as the disk reads it; nil for a flow of anything.
	Read *workloads.BlockID
}

// Sender is one flow at its source.
type Sender struct {
	a       *Agent
	t       Transfer
	group   uint32
	member  uint32
	ceiling *pace.Ceiling

	mu   sync.Mutex
	conn net.Conn // nil before it is dialled

	stored *replicaStream // what is sent, of Transfer.Read
}

// ErrNotSending is what SetCeiling returns for a flow that is not, or no longer,
// being sent.
var ErrNotSending = errors.New("no such flow is being sent")

// Prepare makes a flow known, so that SetCeiling works on it from now on. Its
// Send must follow.
func (a *Agent) Prepare(t Transfer) (*Sender, error) {
	s := &Sender{a: a, t: t}
	wrap := func(err error) error { return fmt.Errorf("%s: send flow %d: %w", a.name(), t.Flow.ID, err) }
	var err error
	if s.group, err = uint32Of("coflow", int(t.Coflow)); err != nil {
		return nil, wrap(err)
	}
	if s.member, err = uint32Of("flow", int(t.Flow.ID)); err != nil {
		return nil, wrap(err)
	}
	if t.Flow.Size < 0 {
		return nil, wrap(fmt.Errorf("size %d: want 0 or more", t.Flow.Size))
	}
	if t.Flow.Src != a.o.Host {
		return nil, wrap(fmt.Errorf("its source is %s", a.o.Name(t.Flow.Src)))
	}
	s.ceiling = a.o.Pacer.Ceiling(t.Ceiling)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outgoing[t.Flow.ID] != nil {
		return nil, wrap(errors.New("it is being sent already"))
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

// SetCeiling changes what a flow may send, from now on: see Sender.SetCeiling.
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

// SetCeiling changes what the flow may send, from now on. When the flow is paused
// or stops being free, a write in progress is cut short: only what the socket
// holds already still leaves. Between two finite ceilings, what was granted
// before (pace.Options.Burst bounds it, and it is about one quantum) still
// leaves at once.
func (s *Sender) SetCeiling(rate units.Rate) {
	old := s.ceiling.Rate()
	s.ceiling.Set(rate)
	if rate > 0 && old != pace.NoLimit || rate >= old {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.SetWriteDeadline(past) // Send sets it right and asks for the ceiling again
	}
}

// Send sends the flow and returns when its receiver has all of it. While the
// ceiling is 0 nothing leaves: the connection is opened when it is first raised.
// It may wait as long as ctx lets it; cancelling drops what the socket holds. It
// returns ErrStopped when Stop ended the flow, and ErrCrashed when the host crashed.
func (s *Sender) Send(ctx context.Context) error {
	defer func() {
		s.a.mu.Lock()
		defer s.a.mu.Unlock()
		delete(s.a.outgoing, s.t.Flow.ID)
	}()
	l := s.a.current()
	ctx, release := l.within(ctx)
	defer release()
	ctx, release = cutShort(ctx, s.a.stopOf(s.t.Flow.ID).ctx)
	defer release()
	if err := why(ctx, s.send(ctx, l)); err != nil {
		f := s.t.Flow
		return fmt.Errorf("flow %d of %v from %s to %s: %w", f.ID, f.Size, s.a.name(), s.a.o.Name(f.Dst), err)
	}
	return nil
}

func (s *Sender) send(ctx context.Context, l *life) (err error) {
	if err := s.ceiling.Open(ctx); err != nil {
		return err
	}
	f := s.t.Flow
	conn, err := s.a.dial(ctx, l, f.Dst, wire.ShufflePort, s.t.Hash, s.a.o.Timeouts.Connect)
	if err != nil {
		return err
	}
	defer l.release(conn)
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
	if err := s.write(ctx, conn); err != nil {
		reset(conn)
		return err
	}
	defer conn.Close()
	if err := closeWrite(conn); err != nil {
		return err
	}
	// The receiver closes when it has all.
	switch _, err := conn.Read(make([]byte, 1)); {
	case err == nil:
		return errors.New("the receiver sent something")
	case errors.Is(err, io.EOF):
		return nil
	default:
		reset(conn)
		return fmt.Errorf("all is sent, but not known to be received: %w", err)
	}
}

// write writes header and payload as the ceiling allows. The header leaves
// together with the first payload.
func (s *Sender) write(ctx context.Context, conn net.Conn) error {
	left := s.t.Flow.Size
	var head []byte // header and first payload, until it has left
	for first := true; first || len(head) > 0 || left > 0; first = false {
		want := min(left, units.Bytes(len(payload)))
		if first {
			want = min(left, firstPayload)
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
			h := wire.Header{Kind: wire.KindFlow, Run: s.a.o.Run, Group: s.group, Member: s.member, Size: uint64(s.t.Flow.Size), Read: s.t.Read != nil, Sent: time.Now()}
			head = append(h.Append(make([]byte, 0, wire.Size+firstPayload)), b...)
			s.stored.skip(int(grant))
		}
		if len(head) > 0 {
			b = head
		}
		n, err := conn.Write(b)
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
		// SetCeiling cut it short. It had set the ceiling before the deadline, so
		// the next Take sees the new one.
		if err := conn.SetWriteDeadline(time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// firstPayload is how much payload leaves in one write with the header: together
// they are one segment at an MTU of 1500.
const firstPayload = 1448 - wire.Size

// dial opens a connection from the agent's host within the given time. It ends
// with the life l, which the caller releases it from.
func (a *Agent) dial(ctx context.Context, l *life, dst topo.HostID, port uint16, hash uint32, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer for %v", within))
	defer cancel()
	conn, err := a.o.Network.Dial(ctx, a.o.Host, dst, port, hash)
	if err == nil {
		err = l.hold(conn)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("connect to %s port %d: %w", a.o.Name(dst), port, err)
	}
	return conn, nil
}

// buffers are what receivers read into; nobody looks at what is in them.
var buffers = sync.Pool{New: func() any { return new([64 * units.KiB]byte) }}

// receive counts a flow in.
func (a *Agent) receive(ctx context.Context, conn net.Conn, h wire.Header) error {
	flow := workloads.FlowID(h.Member)
	ctx, release := cutShort(ctx, a.stopOf(flow).ctx)
	defer release()
	if ctx.Err() != nil { // of a flow that was stopped before it came
		return context.Cause(ctx)
	}
	count, err := a.expect(flow)
	if err != nil {
		return err
	}
	stop := onDone(ctx, func() { conn.SetReadDeadline(past) })
	defer stop()
	// The deadline of the header does not bound the flow.
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
		n, err := conn.Read(buf[:min(left, uint64(len(buf)))])
		at = time.Now()
		left -= uint64(n)
		count.Add(int64(n))
		if err != nil && left > 0 {
			return why(ctx, fmt.Errorf("flow %d of coflow %d broke off after %d of its %d bytes: %w", flow, h.Group, h.Size-left, h.Size, err))
		}
	}
	a.o.Sink.FlowReceived(FlowReceived{Flow: flow, At: at})
	return nil
}

// expect starts the count of a flow that comes in.
func (a *Agent) expect(flow workloads.FlowID) (*atomic.Int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.incoming[flow] != nil {
		return nil, fmt.Errorf("flow %d comes in a second time", flow)
	}
	count := new(atomic.Int64)
	a.incoming[flow] = count
	return count, nil
}

// Received counts the payload of a flow that this host has, finished flows included,
// and goes on counting; nil is before its header has come.
func (a *Agent) Received(flow workloads.FlowID) *atomic.Int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.incoming[flow]
}
