// Package hosts is what runs on an emulated host: the sender and the receiver of
// shuffle flows, the client of block writes, and the block server with its disk.
// An Agent is one host. It is goroutines of this process; sockets come from a
// Network, which alone knows where on the machine a host is.
//
// A flow is one connection to wire.ShufflePort: a wire.Header and then the
// payload. A block write is a chain of connections to wire.BlockPort, as in
// HDFS: see Chain. A host may crash and return, be slow, and lose its disk: the
// pipelines of others go on without it (see Agent.Write).
//
// It does not decide when, where to or how fast anything is sent, opens no
// namespaces, and measures nothing that a report shows: that is done on packets.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Network opens sockets on emulated hosts.
type Network interface {
	Listen(ctx context.Context, h topo.HostID, port uint16) (net.Listener, error)
	// Dial connects src to dst, which may be the same; hash decides the spine
	// (topo.Fabric.Path).
	Dial(ctx context.Context, src, dst topo.HostID, port uint16, hash uint32) (net.Conn, error)
	// Greeted is told of a connection, by its address at the end that dialled, when
	// its header has been read.
	Greeted(remote net.Addr)
	// Mark sends one datagram from h.
	Mark(h topo.HostID, payload []byte) error
}

// Sink is told what an agent sees. Its methods are called from many goroutines
// and must not wait.
type Sink interface {
	FlowReceived(FlowReceived)
	// Problem is an error that nobody who called the agent hears of, such as a
	// connection that is not ours or a flow that broke off. What a crash or Stop
	// ended is none, and neither is a pipeline that broke: its client hears of that.
	Problem(error)
	// ReplicaLost is told at the client, while Write goes on with the other hosts.
	ReplicaLost(ReplicaLost)
}

// ReplicaLost is a host that was dropped from the pipeline of a block.
type ReplicaLost struct {
	Block workloads.BlockID
	Host  topo.HostID
	Full  bool  // its disks have no room for the block
	Err   error // what the pipeline knows of the reason
}

// DefaultPeerTimeout is Options.PeerTimeout unless stated: a SYN that is lost
// twice is sent for the third time after 3 s, and a segment that is lost four
// times in a row for the fifth after about as long.
const DefaultPeerTimeout = 4 * time.Second

// FlowReceived tells that the receiver has the last byte of a flow.
type FlowReceived struct {
	Flow workloads.FlowID
	At   time.Time // when the read that had it returned
}

// Timeouts bound the waits of the block pipeline; a field that is 0 takes its
// default. Waits on hosts further down a chain are longer, so that the host next
// to the trouble speaks first.
type Timeouts struct {
	Connect time.Duration // to open the connection of a flow, by default 30 s; see Options.PeerTimeout for blocks
	// Idle is the longest that a pipeline may stand still though its hosts live, and
	// that a replica is kept whose pipeline broke, by default 60 s as in
	// HDFS. It does not bound flows: a paused or starved flow waits for its
	// context.
	Idle time.Duration
}

// Options are what an Agent is made of.
type Options struct {
	Host     topo.HostID
	Name     func(topo.HostID) string // names hosts in errors; may be nil
	Run      uint64                   // of headers; connections of other runs are refused
	Network  Network
	Pacer    *pace.Pacer   // whose Run the caller runs; shared by all agents
	Disk     *disk.Volumes // nil where the host stores no blocks
	Sink     Sink
	Timeouts Timeouts
	// PeerTimeout bounds connecting to the next host of a pipeline, and hearing
	// nothing from it: a host that lives speaks four times as often, however slow it
	// is. 0 is DefaultPeerTimeout.
	PeerTimeout time.Duration
	CPUPeriod   time.Duration // of SetCPU; 0 is DefaultCPUPeriod
}

// Agent is one emulated host. Its methods may be called from any goroutine.
type Agent struct {
	o      Options
	closed atomic.Bool
	cpu    cpu

	mu       sync.RWMutex
	life     *life         // never nil
	lived    chan struct{} // closed when there is another life, or none to come
	blocks   map[workloads.BlockID]*stored
	stops    map[workloads.FlowID]*stopper
	outgoing map[workloads.FlowID]*Sender
	incoming map[workloads.FlowID]*atomic.Int64 // payload bytes received
}

// New is an agent that does not listen yet: see Listen and Serve.
func New(o Options) *Agent {
	if o.Name == nil {
		o.Name = func(h topo.HostID) string { return fmt.Sprintf("host %d", h) }
	}
	if o.Timeouts.Connect <= 0 {
		o.Timeouts.Connect = 30 * time.Second
	}
	if o.Timeouts.Idle <= 0 {
		o.Timeouts.Idle = time.Minute
	}
	if o.PeerTimeout <= 0 {
		o.PeerTimeout = DefaultPeerTimeout
	}
	if o.CPUPeriod <= 0 {
		o.CPUPeriod = DefaultCPUPeriod
	}
	return &Agent{
		o:        o,
		cpu:      cpu{period: o.CPUPeriod, since: time.Now()},
		life:     newLife(),
		lived:    make(chan struct{}),
		blocks:   make(map[workloads.BlockID]*stored),
		stops:    make(map[workloads.FlowID]*stopper),
		outgoing: make(map[workloads.FlowID]*Sender),
		incoming: make(map[workloads.FlowID]*atomic.Int64),
	}
}

// name is the agent's own host.
func (a *Agent) name() string { return a.o.Name(a.o.Host) }

// Listen opens the agent's ports. Others may connect once it has returned; they
// are served once Serve runs.
func (a *Agent) Listen(ctx context.Context) error {
	l, err := a.listen(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed.Load() {
		l.end(ErrCrashed)
		return errors.Join(fmt.Errorf("%s: listen: it is closed", a.name()), closeAll(l.listeners))
	}
	a.life = l
	close(a.lived)
	a.lived = make(chan struct{})
	return nil
}

// Serve accepts connections and serves them, over crashes and returns. It
// returns nil after Close, once all that were accepted are served; when ctx is
// cancelled it drops them and returns the cause. All it started has ended when it
// returns, and replicas that are not whole are deleted.
func (a *Agent) Serve(ctx context.Context) error {
	defer a.forgetReplicas()
	var done *life
	for {
		a.mu.RLock()
		l, lived := a.life, a.lived
		a.mu.RUnlock()
		if l != done && l.ctx.Err() == nil {
			done = l
			if err := a.live(ctx, l); err != nil {
				return err
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case a.closed.Load():
			return nil
		}
		select {
		case <-lived:
		case <-ctx.Done():
		}
	}
}

// live serves until l is over, by a crash or Close.
func (a *Agent) live(ctx context.Context, l *life) error {
	within, release := l.serving(ctx)
	defer release()
	g, within := errgroup.WithContext(within)
	stop := onDone(within, func() { closeAll(l.listeners) })
	defer stop()
	for _, listener := range l.listeners {
		g.Go(func() error {
			for {
				conn, err := listener.Accept()
				switch {
				case err == nil:
					l.served.Add(1)
					g.Go(func() error {
						defer l.served.Done()
						a.serve(within, l, conn)
						return nil
					})
				case within.Err() != nil:
					return context.Cause(within)
				case l.ctx.Err() != nil:
					return ErrCrashed
				case a.closed.Load():
					return nil
				default:
					return fmt.Errorf("%s: accept: %w", a.name(), err)
				}
			}
		})
	}
	if err := g.Wait(); err != nil && !errors.Is(err, ErrCrashed) {
		return err
	}
	return nil
}

// Close stops listening and lets Serve finish what it accepted. It may be called
// twice, and without Serve.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed.Swap(true) {
		return nil
	}
	close(a.lived)
	a.lived = make(chan struct{})
	return closeAll(a.life.listeners)
}

// serve reads what a connection is for and does it.
func (a *Agent) serve(ctx context.Context, l *life, conn net.Conn) {
	defer conn.Close()
	if l.hold(conn) != nil {
		return
	}
	defer l.release(conn)
	h, err := a.greet(ctx, conn)
	if err == nil {
		a.o.Network.Greeted(conn.RemoteAddr())
		switch h.Kind {
		case wire.KindFlow:
			err = a.receive(ctx, conn, h)
		case wire.KindBlock:
			err = a.store(ctx, l, conn, h)
		default:
			err = fmt.Errorf("a connection with the header of a %v", h.Kind)
		}
	}
	if err != nil {
		reset(conn)
		if ctx.Err() == nil && !errors.Is(err, ErrStopped) && !errors.Is(err, errGone) {
			a.o.Sink.Problem(fmt.Errorf("%s: from %v: %w", a.name(), conn.RemoteAddr(), err))
		}
	}
}

// errGone is a connection whose other end went away before it said what it wants:
// a sender that was stopped, or the pipeline of a client that has crashed.
var errGone = errors.New("the other end has gone")

// greet reads the header of a connection.
func (a *Agent) greet(ctx context.Context, conn net.Conn) (wire.Header, error) {
	stop := onDone(ctx, func() { conn.SetReadDeadline(past) })
	defer stop()
	var b [wire.Size]byte
	if err := a.cpu.turn(ctx); err != nil {
		return wire.Header{}, err
	}
	if err := readFull(ctx, conn, b[:], a.o.Timeouts.Idle); err != nil {
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ETIMEDOUT) {
			err = errors.Join(errGone, err)
		}
		return wire.Header{}, fmt.Errorf("read header: %w", err)
	}
	h, err := wire.Parse(b[:])
	if err == nil && h.Run != a.o.Run {
		err = fmt.Errorf("%v of run %#x: this is run %#x", h.Kind, h.Run, a.o.Run)
	}
	return h, err
}

// Mark puts a mark on the wire of the host: the arrival of a coflow
// (wire.KindCoflowMark) or of a write request (wire.KindWriteMark), or the failure
// of a flow (wire.KindFlowFailed; id is the flow and parts its coflow) or a block
// (wire.KindBlockFailed).
func (a *Agent) Mark(kind wire.Kind, id, parts int, size units.Bytes) error {
	return a.mark(kind, id, parts, size, 0)
}

// MarkWrite is Mark of a write request (wire.KindWriteMark) that had waited to be
// placed.
func (a *Agent) MarkWrite(block, replicas int, size units.Bytes, waited time.Duration) error {
	return a.mark(wire.KindWriteMark, block, replicas, size, waited)
}

func (a *Agent) mark(kind wire.Kind, id, parts int, size units.Bytes, waited time.Duration) error {
	if !kind.Mark() || kind == wire.KindReplicaLost {
		return fmt.Errorf("%s: mark of kind %v: want a mark", a.name(), kind)
	}
	group, err := uint32Of("id", id)
	if err != nil {
		return fmt.Errorf("%s: %v: %w", a.name(), kind, err)
	}
	n, err := uint32Of("parts", parts)
	if err != nil {
		return fmt.Errorf("%s: %v %d: %w", a.name(), kind, id, err)
	}
	h := wire.Header{Kind: kind, Run: a.o.Run, Group: group, Parts: n, Size: uint64(size), Sent: time.Now()}
	h.Wait(waited)
	if kind == wire.KindFlowFailed {
		h.Group, h.Member, h.Parts = n, group, 1
	}
	if err := a.o.Network.Mark(a.o.Host, h.Append(nil)); err != nil {
		return fmt.Errorf("%s: send %v %d: %w", a.name(), kind, id, err)
	}
	return nil
}

// uint32Of is n as headers carry it.
func uint32Of(what string, n int) (uint32, error) {
	if n < 0 || uint64(n) > 1<<32-1 {
		return 0, fmt.Errorf("%s %d: want 0 to %d", what, n, uint32(1<<32-1))
	}
	return uint32(n), nil
}

// past is a deadline that ends a wait at once.
var past = time.Unix(1, 0)

// onDone calls f once ctx is done. The function it returns takes that back, and
// when it is too late for that waits for f to return.
func onDone(ctx context.Context, f func()) (stop func()) {
	ran := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(ran)
		f()
	})
	return func() {
		if !undo() {
			<-ran
		}
	}
}

// readFull fills b within d. Whoever calls it sees to it that a deadline in the
// past is set once ctx is done, which ends it with the cause of ctx.
func readFull(ctx context.Context, conn net.Conn, b []byte, d time.Duration) error {
	if err := conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if ctx.Err() == nil {
		if _, err := io.ReadFull(conn, b); err == nil {
			return nil
		} else if ctx.Err() == nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// writeAll writes b within d, like readFull.
func writeAll(ctx context.Context, conn net.Conn, b []byte, d time.Duration) error {
	if err := conn.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if ctx.Err() == nil {
		if _, err := conn.Write(b); err == nil {
			return nil
		} else if ctx.Err() == nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// reset closes conn so that neither side sends what it still holds.
func reset(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		c.SetLinger(0)
	}
	conn.Close()
}

// closeWrite tells the other side that no more will come.
func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
