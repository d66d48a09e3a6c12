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
)

// ErrCrashed is the end of what a host did when it crashed.
var ErrCrashed = errors.New("the host has crashed")

// ErrStopped is the end of a flow that Stop ended.
var ErrStopped = errors.New("the flow was stopped")

// life is an agent from Listen, or Return, to its next crash.
type life struct {
	ctx       context.Context // done, with ErrCrashed, once it is over
	end       context.CancelCauseFunc
	listeners []net.Listener
	served    sync.WaitGroup // connections that were accepted

	mu    sync.Mutex
	works map[*work]struct{}    // under way
	conns map[net.Conn]struct{} // nil once it is over
}

// work is something that ends with the life.
type work struct {
	end    context.CancelCauseFunc
	serves bool // connections of others; else it is of this host's own doing
}

func newLife() *life {
	l := &life{works: make(map[*work]struct{}), conns: make(map[net.Conn]struct{})}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// hold makes conn end with the life.
func (l *life) hold(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		reset(conn)
		return ErrCrashed
	}
	l.conns[conn] = struct{}{}
	return nil
}

func (l *life) release(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// within is ctx, cut short by the end of the life. stop must be called.
func (l *life) within(ctx context.Context) (_ context.Context, stop func()) {
	return l.begin(ctx, false)
}

// serving is within, for what serves the connections of others.
func (l *life) serving(ctx context.Context) (_ context.Context, stop func()) {
	return l.begin(ctx, true)
}

func (l *life) begin(ctx context.Context, serves bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &work{cancel, serves}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		cancel(ErrCrashed)
	} else {
		l.works[w] = struct{}{}
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.works, w)
		l.mu.Unlock()
		cancel(nil)
	}
}

// crash ends the life. All that goes on within it is told before any connection
// breaks: what it then hears of that it takes for its own end, and never for the
// loss of the host at the other end. What serves is told last, since it hangs up by
// itself, also on a block that its own host writes.
func (l *life) crash() {
	l.end(ErrCrashed)
	l.mu.Lock()
	works := slices.Collect(maps.Keys(l.works))
	l.mu.Unlock()
	for _, serves := range []bool{false, true} {
		for _, w := range works {
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
		l.Close() // there is nobody to tell
	}
}

// cutShort is ctx, ended also by the end of other, with the cause of that. stop
// must be called.
func cutShort(ctx, other context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	if other.Err() != nil {
		cancel(context.Cause(other)) // at once, not when AfterFunc gets to it
	}
	return ctx, func() {
		undo()
		cancel(nil)
	}
}

// current is the life the agent is in, which may be over.
func (a *Agent) current() *life {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.life
}

// Crash ends all that the host does, at once: its ports are closed, its
// connections are reset, what it sends or writes returns ErrCrashed, and replicas
// that are not whole are deleted. Whoever wants that nothing of it reaches
// another host takes the host's link down before. Serve goes on and waits for
// Return.
func (a *Agent) Crash() { a.current().crash() }

// Return makes a host that crashed listen again, as after a reboot: its disk has
// the replicas that were whole. It waits for the end of what the crash cut off.
// A host that has not crashed is refused.
func (a *Agent) Return(ctx context.Context) error {
	old := a.current()
	if old.ctx.Err() == nil {
		return fmt.Errorf("%s: return: it has not crashed", a.name())
	}
	ended := make(chan struct{})
	go func() {
		old.served.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("%s: return: wait for the end of what it did before it crashed: %w", a.name(), context.Cause(ctx))
	}
	a.forgetReplicas()
	return a.Listen(ctx)
}

// Stop ends the sending or receiving of a flow here, also of one that comes only
// later: its Send returns ErrStopped, a connection that brings it is dropped, and
// nothing of that is a Problem.
func (a *Agent) Stop(flow workloads.FlowID) { a.stopOf(flow).end(ErrStopped) }

// stopper ends a flow.
type stopper struct {
	ctx context.Context // done, with ErrStopped, once the flow is stopped
	end context.CancelCauseFunc
}

func (a *Agent) stopOf(flow workloads.FlowID) *stopper {
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

// brokeOff is how long the end of a flow whose connection broke waits for the
// reason: the other end may have been stopped, or this one be about to be.
const brokeOff = time.Second

// why is the reason for err, the end of a flow: that of ctx if it has or soon
// gets one.
func why(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	timer := time.NewTimer(brokeOff)
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
