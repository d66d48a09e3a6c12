package hosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"testbed/hosts/wire"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// ErrCrashed is the error of all operations that a crash of their host ended.
var ErrCrashed = errors.New("the host has crashed")

// ErrStopped is the error of a flow, attempt or block write that was stopped.
var ErrStopped = errors.New("stopped")

// life is the period of an agent from Listen or Return to its next crash.
type life struct {
	ctx       context.Context // done, with ErrCrashed, once it is over
	end       context.CancelCauseFunc
	listeners []net.Listener
	served    sync.WaitGroup // accepted connections in service

	mu    sync.Mutex
	ops   map[*operation]struct{} // in progress
	conns map[net.Conn]struct{}   // nil once it is over
}

// operation is an operation that ends with the life.
type operation struct {
	end    context.CancelCauseFunc
	serves bool // serves connections of other hosts; otherwise this host started it
}

func newLife() *life {
	l := &life{ops: make(map[*operation]struct{}), conns: make(map[net.Conn]struct{})}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// track registers conn, to be reset when the life ends.
func (l *life) track(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		reset(conn)
		return ErrCrashed
	}
	l.conns[conn] = struct{}{}
	return nil
}

func (l *life) untrack(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// within returns a context that ends with ctx or with the life. The caller must
// call stop.
func (l *life) within(ctx context.Context) (_ context.Context, stop func()) {
	return l.begin(ctx, false)
}

// serving is within, for operations that serve connections of other hosts.
func (l *life) serving(ctx context.Context) (_ context.Context, stop func()) {
	return l.begin(ctx, true)
}

func (l *life) begin(ctx context.Context, serves bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &operation{cancel, serves}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		cancel(ErrCrashed)
	} else {
		l.ops[w] = struct{}{}
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.ops, w)
		l.mu.Unlock()
		cancel(nil)
	}
}

// crash ends the life. It cancels all operations before it resets any connection, so that none
// reports the reset as the loss of its peer. It cancels serving operations last: they close their
// connections, including those of blocks that this host writes.
func (l *life) crash() {
	l.end(ErrCrashed)
	l.mu.Lock()
	ops := slices.Collect(maps.Keys(l.ops))
	l.mu.Unlock()
	for _, serves := range []bool{false, true} {
		for _, w := range ops {
			if w.serves == serves {
				w.end(ErrCrashed)
			}
		}
	}
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for conn := range conns {
		reset(conn)
	}
	for _, l := range l.listeners {
		l.Close() // no caller can handle the error
	}
}

// withEnd returns a context that ends with ctx, or with other and its cause. The caller must call
// stop.
func withEnd(ctx, other context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	if other.Err() != nil {
		cancel(context.Cause(other)) // at once: AfterFunc runs in its own goroutine
	}
	return ctx, func() {
		undo()
		cancel(nil)
	}
}

// current returns the agent's latest life, which may be over.
func (a *Agent) current() *life {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.life
}

// Crash ends all operations of the host at once: its ports are closed, its connections are reset,
// Send and Write return ErrCrashed, and incomplete replicas are deleted. To prevent the resets from
// reaching other hosts, the caller first takes the host's link down. Serve continues and waits for
// Return.
func (a *Agent) Crash() { a.current().crash() }

// Return makes a crashed host listen again, as after a reboot: its disk has the
// replicas that were complete, and no output of an attempt. It waits until all incoming connections have ended.
// It returns an error when the host has not crashed.
func (a *Agent) Return(ctx context.Context) error {
	old := a.current()
	if old.ctx.Err() == nil {
		return fmt.Errorf("%s: return: host has not crashed", a.name())
	}
	ended := make(chan struct{})
	go func() {
		old.served.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("%s: return: wait for the operations from before the crash: %w", a.name(), context.Cause(ctx))
	}
	a.forgetReplicas()
	a.dropAttempts(func(jobs.AttemptID) bool { return true })
	return a.Listen(ctx)
}

// Stop ends the sending or receiving of a flow at this host, even if it starts later: its Send
// returns ErrStopped, its incoming connection is dropped, and neither is reported as a Problem.
func (a *Agent) Stop(flow workloads.FlowID) {
	a.stopperOf(flow).end(ErrStopped)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.expected, flow)
}

// stopper is the cancellation of a flow.
type stopper struct {
	ctx context.Context // done, with ErrStopped, once the flow is stopped
	end context.CancelCauseFunc
}

func (a *Agent) stopperOf(flow workloads.FlowID) *stopper {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stops[flow]
	if s == nil {
		s = new(stopper)
		s.ctx, s.end = context.WithCancelCause(context.Background())
		a.stops[flow] = s
	}
	return s
}

// breakGrace is the time for which a flow with a broken connection waits for cancellation: its peer
// may have been stopped, and this end may be stopped soon.
const breakGrace = time.Second

// causeOr returns the cause of ctx if ctx ends within breakGrace, otherwise err.
func causeOr(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	timer := time.NewTimer(breakGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return err
	}
}

// listen opens the ports of a new life.
func (a *Agent) listen(ctx context.Context) (*life, error) {
	l := newLife()
	for _, port := range []uint16{wire.ShufflePort, wire.BlockPort} {
		listener, err := a.o.Network.Listen(ctx, a.o.Host, port)
		if err != nil {
			l.end(ErrCrashed)
			return nil, errors.Join(fmt.Errorf("%s: listen on port %d: %w", a.name(), port, err), closeAll(l.listeners))
		}
		l.listeners = append(l.listeners, listener)
	}
	return l, nil
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
