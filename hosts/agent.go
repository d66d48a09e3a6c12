// Package hosts implements the software of an emulated host: the sender and the receiver of shuffle
// flows, the client of block writes, and the block server with its disk. An Agent is one host. It
// runs as goroutines of this process and opens its sockets through a Network, which maps hosts to
// network namespaces.
//
// A flow is one connection to wire.ShufflePort: a wire.Header followed by the payload. A block
// write is a chain of connections to wire.BlockPort, as in HDFS: see Chain. A host may crash and
// return, be slow, or lose its disk: the pipelines of other hosts continue without it (see
// Agent.Write).
//
// The package does not decide when, where to or how fast data is sent, and opens no namespaces.
// Reports contain none of its measurements: all figures come from captured packets.
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
	"testbed/workloads/jobs"
)

// Network opens sockets on emulated hosts.
type Network interface {
	Listen(ctx context.Context, h topo.HostID, port uint16) (net.Listener, error)
	// Dial connects src to dst, which may be the same host; hash selects the spine
	// (topo.Fabric.Path).
	Dial(ctx context.Context, src, dst topo.HostID, port uint16, hash uint32) (net.Conn, error)
	// Greeted is called when the header of an accepted connection has been read, with the address
	// of the dialling end.
	Greeted(remote net.Addr)
	// Mark sends one datagram from h.
	Mark(h topo.HostID, payload []byte) error
}

// Sink receives the events of an agent. Its methods are called from many goroutines
// and must not block.
type Sink interface {
	FlowReceived(FlowReceived)
	// Problem receives an error that no method of the agent returns, such as a
	// connection of another run or a flow that broke off. The effects of a crash or
	// of Stop are not reported, nor is a broken pipeline: Write handles that.
	Problem(error)
	// ReplicaLost is called at the client, while Write continues with the other hosts.
	ReplicaLost(ReplicaLost)
}

// ReplicaLost is a host that was dropped from the pipeline of a block.
type ReplicaLost struct {
	Block workloads.BlockID
	Host  topo.HostID
	Full  bool  // its disks have no space for the block
	Err   error // the reason, as far as the pipeline knows it
}

// DefaultPeerTimeout is the default of Options.PeerTimeout. A SYN that is lost
// twice is sent for the third time after 3 s; a segment that is lost four times in
// a row is sent for the fifth time after about the same time.
const DefaultPeerTimeout = 4 * time.Second

// FlowReceived reports that the receiver has the last byte of a flow.
type FlowReceived struct {
	Flow workloads.FlowID
	At   time.Time // when the read of the last byte returned
}

// Timeouts bound the waits of the block pipeline; 0 means the default. Hosts nearer to the client
// wait longer, so that the neighbour of the fault reports it first.
type Timeouts struct {
	Connect time.Duration // of the connect of a flow, by default 30 s; for blocks see Options.PeerTimeout
	// Idle is the maximum time without progress of a pipeline whose hosts are alive, and the time
	// for which the replica of a broken pipeline is kept. The default is 60 s, as in HDFS. It does
	// not bound flows: a paused or starved flow waits until its context ends.
	Idle time.Duration
	// Header bounds the time from accepting a connection to its header, by default Idle.
	Header time.Duration
}

// Options configure an Agent.
type Options struct {
	Host     topo.HostID
	Name     func(topo.HostID) string // names hosts in errors; may be nil
	Run      uint64                   // identifier in headers; connections of other runs are refused
	Network  Network
	Pacer    *pace.Pacer   // shared by all agents; the caller runs its Run method
	Disk     *disk.Volumes // nil if the host stores no blocks
	Sink     Sink
	Timeouts Timeouts
	// PeerTimeout bounds the connect to the next host of a pipeline and the time without data from
	// it. A live host sends keep-alives four times per PeerTimeout, however slow it is. 0 means
	// DefaultPeerTimeout.
	PeerTimeout time.Duration
	CPUPeriod   time.Duration // period of SetCPU; 0 means DefaultCPUPeriod
	// Yield lets other threads that wait for a processor run. It is called before each read, write and piece of disk
	// work. Nil does nothing.
	Yield func()
	// ReceiveBuffer is the size of the receive buffers of the sockets of Network, with the kernel's
	// overhead. Those of flows that are consumed at a rate (Expect) are made smaller; 0 means that
	// the size is unknown.
	ReceiveBuffer units.Bytes
	// Later calls a function that deletes files, which takes about a millisecond each. Nil calls it at
	// once. It must not call methods of the agent.
	Later func(func())
}

// Agent is one emulated host. Its methods may be called from any goroutine.
type Agent struct {
	o      Options
	closed atomic.Bool
	cpu    *cpu

	mu          sync.RWMutex
	life        *life         // never nil
	lifeChanged chan struct{} // closed when life is replaced, and by Close
	blocks      map[workloads.BlockID]*stored
	stops       map[workloads.FlowID]*stopper
	outgoing    map[workloads.FlowID]*Sender
	incoming    map[workloads.FlowID]*Received // payload bytes received
	expected    map[workloads.FlowID]*consumer // see Expect
	attempts    map[jobs.AttemptID]*Attempt
}

// New returns an agent that does not listen yet: see Listen and Serve.
func New(o Options) *Agent {
	if o.Name == nil {
		o.Name = func(h topo.HostID) string { return fmt.Sprintf("host %d", h) }
	}
	if o.Later == nil {
		o.Later = func(f func()) { f() }
	}
	if o.Timeouts.Connect <= 0 {
		o.Timeouts.Connect = 30 * time.Second
	}
	if o.Timeouts.Idle <= 0 {
		o.Timeouts.Idle = time.Minute
	}
	if o.Timeouts.Header <= 0 {
		o.Timeouts.Header = o.Timeouts.Idle
	}
	if o.PeerTimeout <= 0 {
		o.PeerTimeout = DefaultPeerTimeout
	}
	if o.Yield == nil {
		o.Yield = func() {}
	}
	if o.CPUPeriod <= 0 {
		o.CPUPeriod = DefaultCPUPeriod
	}
	return &Agent{
		o:           o,
		cpu:         newCPU(o.CPUPeriod, o.Yield),
		life:        newLife(),
		lifeChanged: make(chan struct{}),
		blocks:      make(map[workloads.BlockID]*stored),
		stops:       make(map[workloads.FlowID]*stopper),
		outgoing:    make(map[workloads.FlowID]*Sender),
		incoming:    make(map[workloads.FlowID]*Received),
		expected:    make(map[workloads.FlowID]*consumer),
		attempts:    make(map[jobs.AttemptID]*Attempt),
	}
}

// name returns the name of the agent's host.
func (a *Agent) name() string { return a.o.Name(a.o.Host) }

// Listen opens the agent's ports. Other hosts can connect once it has returned;
// Serve serves them.
func (a *Agent) Listen(ctx context.Context) error {
	l, err := a.listen(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed.Load() {
		l.end(ErrCrashed)
		return errors.Join(fmt.Errorf("%s: listen: agent is closed", a.name()), closeAll(l.listeners))
	}
	a.life = l
	close(a.lifeChanged)
	a.lifeChanged = make(chan struct{})
	return nil
}

// Serve accepts connections and serves them, across crashes and returns. It
// returns nil after Close, once all accepted connections are served; when ctx is
// cancelled it drops them and returns the cause. When it returns, all goroutines
// that it started have ended and incomplete replicas are deleted.
func (a *Agent) Serve(ctx context.Context) error {
	defer a.forgetReplicas()
	var done *life
	for {
		a.mu.RLock()
		l, lifeChanged := a.life, a.lifeChanged
		a.mu.RUnlock()
		if l != done && l.ctx.Err() == nil {
			done = l
			if err := a.serveLife(ctx, l); err != nil {
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
		case <-lifeChanged:
		case <-ctx.Done():
		}
	}
}

// serveLife accepts and serves connections until a crash or Close ends l.
func (a *Agent) serveLife(ctx context.Context, l *life) error {
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

// Close stops listening and lets Serve finish the accepted connections. It may be
// called twice, and without Serve.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed.Swap(true) {
		return nil
	}
	close(a.lifeChanged)
	a.lifeChanged = make(chan struct{})
	return closeAll(a.life.listeners)
}

// serve reads the header of a connection and runs the service that it names.
func (a *Agent) serve(ctx context.Context, l *life, conn net.Conn) {
	defer conn.Close()
	if l.track(conn) != nil {
		return
	}
	defer l.untrack(conn)
	h, err := a.readHeader(ctx, conn)
	if err == nil {
		a.o.Network.Greeted(conn.RemoteAddr())
		switch h.Kind {
		case wire.KindFlow:
			err = a.receive(ctx, conn, h)
		case wire.KindBlock:
			err = a.store(ctx, l, conn, h)
		default:
			err = fmt.Errorf("header kind %v: expected a flow or a block", h.Kind)
		}
	}
	if err != nil {
		reset(conn)
		if ctx.Err() == nil && !errors.Is(err, ErrStopped) && !errors.Is(err, errPeerClosed) {
			a.o.Sink.Problem(fmt.Errorf("%s: from %v: %w", a.name(), conn.RemoteAddr(), err))
		}
	}
}

// errPeerClosed ends a connection whose peer closed it early: a sender that was stopped,
// or the pipeline of a client that has crashed.
var errPeerClosed = errors.New("peer closed the connection")

// readHeader reads the header of an accepted connection.
func (a *Agent) readHeader(ctx context.Context, conn net.Conn) (wire.Header, error) {
	stop := onDone(ctx, func() { conn.SetReadDeadline(past) })
	defer stop()
	var b [wire.MaxSize]byte
	if err := a.cpu.turn(ctx); err != nil {
		return wire.Header{}, err
	}
	length := wire.Size
	err := readFull(ctx, conn, b[:length], a.o.Timeouts.Header)
	if n, ok := wire.Len(b[:length]); err == nil && ok && n > length {
		if err = readFull(ctx, conn, b[length:n], a.o.Timeouts.Header); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		length = n
	}
	if err != nil {
		// A sender that is stopped while it connects closes a connection on which it has sent nothing.
		if err == io.EOF || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ETIMEDOUT) {
			err = errors.Join(errPeerClosed, err)
		}
		return wire.Header{}, fmt.Errorf("read header: %w", err)
	}
	h, err := wire.Parse(b[:length])
	if err == nil && h.Run != a.o.Run {
		err = fmt.Errorf("%v of run %#x: expected run %#x", h.Kind, h.Run, a.o.Run)
	}
	return h, err
}

// Mark sends a mark from the host, for the captures: the arrival of a coflow
// (wire.KindCoflowMark) or of a write request (wire.KindWriteMark), or the failure
// or stop of a flow (wire.KindFlowFailed, wire.KindFlowStopped; id is the flow and parts its
// coflow) or a block (wire.KindBlockFailed, wire.KindBlockStopped), or the end of an open coflow
// (wire.KindCoflowClosed).
func (a *Agent) Mark(kind wire.Kind, id, parts int, size units.Bytes, note wire.Note) error {
	return a.markTransfer(kind, id, parts, size, 0, note)
}

// MarkWrite is Mark for a write request (wire.KindWriteMark), with the time from its arrival to its
// placement.
func (a *Agent) MarkWrite(block, replicas int, size units.Bytes, waited time.Duration, note wire.Note) error {
	return a.markTransfer(wire.KindWriteMark, block, replicas, size, waited, note)
}

func (a *Agent) markTransfer(kind wire.Kind, id, parts int, size units.Bytes, waited time.Duration, note wire.Note) error {
	if !kind.Mark() || kind == wire.KindReplicaLost || kind >= wire.KindTaskMark {
		return fmt.Errorf("%s: kind %v is not a mark of a transfer", a.name(), kind)
	}
	group, err := toUint32("id", id)
	if err != nil {
		return fmt.Errorf("%s: %v: %w", a.name(), kind, err)
	}
	n, err := toUint32("parts", parts)
	if err != nil {
		return fmt.Errorf("%s: %v %d: %w", a.name(), kind, id, err)
	}
	h := wire.Header{Kind: kind, Group: group, Parts: n, Size: uint64(size)}
	h.Wait(waited)
	if kind == wire.KindFlowFailed || kind == wire.KindFlowStopped {
		h.Group, h.Member, h.Parts = n, group, 1
	}
	return a.mark(h, note)
}

// MarkTask sends a mark of a moment of a job or an attempt. The moment is that of task, reads reports
// whether the attempt reads a block, and parts are the tasks of the job at wire.JobSubmitted. The
// note's host is that of the agent.
func (a *Agent) MarkTask(task wire.Task, reads bool, parts int, size units.Bytes, note wire.Note) error {
	n, err := toUint32("tasks", parts)
	if err != nil {
		return fmt.Errorf("%s: mark of job %d: %w", a.name(), task.Job, err)
	}
	note.Host = a.name()
	return a.mark(wire.Header{Kind: wire.KindTaskMark, Group: task.Job, Parts: n, Size: uint64(size), Read: reads, Task: task}, note)
}

// mark sends a mark of this run, and of the current time if Sent is not set.
func (a *Agent) mark(h wire.Header, note wire.Note) error {
	if h.Run = a.o.Run; h.Sent.IsZero() {
		h.Sent = time.Now()
	}
	if err := a.o.Network.Mark(a.o.Host, h.AppendMark(nil, note)); err != nil {
		return fmt.Errorf("%s: send %v %d: %w", a.name(), h.Kind, h.Group, err)
	}
	return nil
}

// toUint32 returns n as a header field. what is its name in errors.
func toUint32(what string, n int) (uint32, error) {
	if n < 0 || uint64(n) > 1<<32-1 {
		return 0, fmt.Errorf("%s %d: must be 0 to %d", what, n, uint32(1<<32-1))
	}
	return uint32(n), nil
}

// past is a deadline that ends reads and writes at once.
var past = time.Unix(1, 0)

// onDone calls f once ctx is done. stop cancels the call; if f has started, stop
// waits until it returns.
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

// readFull fills b within d. When ctx is done, the caller must set a deadline in the past: readFull
// then returns the cause of ctx.
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

// reset closes conn with a TCP reset, which discards the buffers of both sides.
func reset(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		c.SetLinger(0)
	}
	conn.Close()
}

// closeWrite closes the sending direction of conn.
func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
