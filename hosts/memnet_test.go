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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// testNet is the common part of the networks of these tests.
type testNet struct {
	greeted []string // addresses passed to Greeted
	mu      sync.Mutex
	marks   [][]byte
	dials   []dial
	keep    bool // record all bytes of connections from now on
}

// dial is a requested connection, with the bytes written to each side.
type dial struct {
	src, dst topo.HostID
	port     uint16
	hash     uint32
	conn     *tap
}

// tap counts the bytes at the dialling end of a connection and keeps the first ones.
type tap struct {
	net.Conn
	mu          sync.Mutex
	wrote, read int
	writes      []int // sizes of writes
	start       []byte
	heard       []byte // the first 64 KB
	keep        bool
	kept        []byte
}

// content returns the recorded bytes after the header.
func (c *tap) content() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[wire.Size:]
}

func (c *tap) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote += n
	c.writes = append(c.writes, n)
	if c.keep {
		c.kept = append(c.kept, p[:n]...)
	}
	if len(c.start) < 256 {
		c.start = append(c.start, p[:min(n, 256)]...)
	}
	return n, err
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read += n
	if len(c.heard) < 1<<16 {
		c.heard = append(c.heard, p[:n]...)
	}
	return n, err
}

func (c *tap) CloseWrite() error     { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }
func (c *tap) SetLinger(s int) error { return c.Conn.(interface{ SetLinger(int) error }).SetLinger(s) }

// acks returns the number of read bytes that are acknowledgements other than
// keep-alives, once all are read completely.
func (c *tap) acks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for b := c.heard; len(b) >= wire.AckSize; b = b[wire.AckSize:] {
		if ack, _, err := wire.ParseAck(b); err == nil && !ack.Alive {
			n += wire.AckSize
		}
	}
	return n
}

func (c *tap) counts() (wrote, read int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrote, c.read
}

func (n *testNet) Mark(h topo.HostID, payload []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.marks = append(n.marks, append([]byte{byte(h)}, payload...))
	return nil
}

func (n *testNet) Greeted(remote net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.greeted = append(n.greeted, remote.String())
}

func (n *testNet) dialled(src, dst topo.HostID, port uint16, hash uint32, conn net.Conn) net.Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &tap{Conn: conn, keep: n.keep}
	n.dials = append(n.dials, dial{src, dst, port, hash, t})
	return t
}

// all returns the connections so far.
func (n *testNet) all() []dial {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]dial(nil), n.dials...)
}

// hop returns the only connection between two hosts.
func (n *testNet) hop(t *testing.T, src, dst topo.HostID) *tap {
	t.Helper()
	var found *tap
	for _, d := range n.all() {
		if d.src == src && d.dst == dst {
			if found != nil {
				t.Fatalf("two connections from %d to %d", src, dst)
			}
			found = d.conn
		}
	}
	if found == nil {
		t.Fatalf("no connection from %d to %d", src, dst)
	}
	return found
}

type place struct {
	h    topo.HostID
	port uint16
}

// memNet is a network in memory, for tests in synctest bubbles. A connection buffers
// memBuffer bytes each way and has no delay. While the link of a host is down, data from
// and to it stays with the sender, as TCP retransmits it, and resets are lost.
type memNet struct {
	testNet
	listeners map[place]*memListener

	linkMu sync.Mutex
	isDown map[topo.HostID]bool
	conns  []*memConn
	room   int // of connections to come; 0 for memBuffer
}

// links sets the state of hosts' links. Data that waited for them is then delivered.
func (n *memNet) links(up bool, hosts ...topo.HostID) {
	n.linkMu.Lock()
	if n.isDown == nil {
		n.isDown = make(map[topo.HostID]bool)
	}
	for _, h := range hosts {
		n.isDown[h] = !up
	}
	conns := append([]*memConn(nil), n.conns...)
	n.linkMu.Unlock()
	for _, c := range conns {
		c.out.settle()
		c.in.settle()
	}
}

func (n *memNet) connected(a, b topo.HostID) bool {
	n.linkMu.Lock()
	defer n.linkMu.Unlock()
	return a == b || !n.isDown[a] && !n.isDown[b]
}

const memBuffer = 1 << 20

func (n *memNet) Listen(_ context.Context, h topo.HostID, port uint16) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &memListener{conns: make(chan net.Conn, 1000), closed: make(chan struct{})}
	if n.listeners == nil {
		n.listeners = make(map[place]*memListener)
	}
	n.listeners[place{h, port}] = l
	return l, nil
}

func (n *memNet) Dial(ctx context.Context, src, dst topo.HostID, port uint16, hash uint32) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[place{dst, port}]
	n.mu.Unlock()
	for !n.connected(src, dst) { // retransmit the SYN
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	a, b := memPipe(func() bool { return n.connected(src, dst) })
	n.linkMu.Lock()
	if n.room > 0 {
		a.out.room = n.room
	}
	n.conns = append(n.conns, a)
	n.linkMu.Unlock()
	select {
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	default:
	}
	select {
	case l.conns <- b:
		return n.dialled(src, dst, port, hash, a), nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memListener) Addr() net.Addr { return memAddr{} }

type memAddr struct{}

func (memAddr) Network() string { return "mem" }
func (memAddr) String() string  { return "mem" }

// stream is one direction of a connection.
type stream struct {
	connected func() bool
	pair      *stream // the other direction
	mu        sync.Mutex
	changed   *sync.Cond
	sent      []byte // by the writer, in flight
	buf       []byte // at the reader
	deadline  [2]time.Time
	room      int // bytes sent and not read
	// The actions of the two ends, and whether the other end has seen them.
	ended, sawEnd bool // the writer has finished
	gone, sawGone bool // the reader has closed
	reset         bool // an end closed, and data in flight is lost
	sawReset      [2]bool
	silent        bool // the reset was lost with the link
}

func newStream(connected func() bool) *stream {
	s := &stream{connected: connected, room: memBuffer}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// settle moves all data that can move. The caller does not hold s.mu.
func (s *stream) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move()
}

func (s *stream) move() {
	if s.connected() {
		if s.silent && len(s.sent) > 0 { // the other end does not know this connection
			s.silent = false
			go s.pair.lose()
		}
		if !s.silent {
			s.sawEnd, s.sawGone = s.ended, s.gone
			if s.reset {
				s.sent, s.sawReset = nil, [2]bool{true, true}
			}
		}
		s.buf, s.sent = append(s.buf, s.sent...), nil
	}
	s.changed.Broadcast()
}

func (s *stream) setDeadline(i int, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline[i] = t
	// A time in the past needs no timer. More than one timer in the past at once, under
	// synctest and the race detector, crashes the runtime of Go 1.26.
	if d := time.Until(t); !t.IsZero() && d > 0 {
		time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
	}
	s.changed.Broadcast()
}

func (s *stream) late(i int) bool {
	return !s.deadline[i].IsZero() && !time.Now().Before(s.deadline[i])
}

type memConn struct {
	in, out *stream
	once    sync.Once
	abrupt  atomic.Bool
}

func memPipe(connected func() bool) (a, b *memConn) {
	x, y := newStream(connected), newStream(connected)
	x.pair, y.pair = y, x
	return &memConn{in: x, out: y}, &memConn{in: y, out: x}
}

func (c *memConn) Read(p []byte) (int, error) {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.gone:
			return 0, net.ErrClosed
		case s.late(0):
			return 0, os.ErrDeadlineExceeded
		case len(s.buf) > 0:
			n := copy(p, s.buf)
			s.buf = s.buf[n:]
			s.changed.Broadcast()
			return n, nil
		case s.sawReset[0]:
			return 0, syscall.ECONNRESET
		case s.sawEnd:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (c *memConn) Write(p []byte) (n int, err error) {
	s := c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.ended:
			return n, net.ErrClosed
		case s.sawReset[1]:
			return n, syscall.ECONNRESET
		case s.sawGone:
			return n, syscall.EPIPE
		case s.late(1):
			return n, os.ErrDeadlineExceeded
		}
		m := min(len(p), max(0, s.room-len(s.buf)-len(s.sent)))
		s.sent = append(s.sent, p[:m]...)
		n, p = n+m, p[m:]
		if m > 0 {
			s.move()
		}
		if len(p) == 0 {
			return n, nil
		}
		s.changed.Wait()
	}
}

// lose resets the stream.
func (s *stream) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf, s.sent, s.reset, s.silent, s.sawReset = nil, nil, true, false, [2]bool{true, true}
	s.changed.Broadcast()
}

func (c *memConn) CloseWrite() error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.ended = true
	c.out.move()
	return nil
}

func (c *memConn) Close() error {
	c.once.Do(func() {
		up := c.in.connected()
		c.in.mu.Lock()
		abrupt := c.abrupt.Load() || len(c.in.buf) > 0
		c.in.gone = true
		if abrupt && !up {
			c.in.reset, c.in.silent = true, true
		}
		c.in.move()
		c.in.mu.Unlock()
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		c.out.ended = true
		if abrupt { // the worst case of a TCP reset: data in flight in the other direction is lost
			c.out.sent, c.out.reset, c.out.silent = nil, true, !up
			if up {
				c.out.buf = nil
			}
		}
		c.out.move()
	})
	return nil
}

func (c *memConn) SetLinger(s int) error {
	c.abrupt.Store(s == 0)
	return nil
}

// SetReadBuffer leaves data that is in the buffer there.
func (c *memConn) SetReadBuffer(n int) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.room = n
	return nil
}
func (c *memConn) LocalAddr() net.Addr  { return memAddr{} }
func (c *memConn) RemoteAddr() net.Addr { return memAddr{} }
func (c *memConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *memConn) SetReadDeadline(t time.Time) error  { c.in.setDeadline(0, t); return nil }
func (c *memConn) SetWriteDeadline(t time.Time) error { c.out.setDeadline(1, t); return nil }

// loopNet is the loopback interface: each pair of host and port is a separate port.
type loopNet struct {
	testNet
	ports map[place]string
}

func (n *loopNet) Listen(ctx context.Context, h topo.HostID, port uint16) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ports == nil {
		n.ports = make(map[place]string)
	}
	n.ports[place{h, port}] = l.Addr().String()
	return l, nil
}

func (n *loopNet) Dial(ctx context.Context, src, dst topo.HostID, port uint16, hash uint32) (net.Conn, error) {
	n.mu.Lock()
	addr, ok := n.ports[place{dst, port}]
	n.mu.Unlock()
	if !ok {
		return nil, syscall.ECONNREFUSED
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", addr)
	if err != nil {
		return nil, err
	}
	return n.dialled(src, dst, port, hash, conn), nil
}

// notes is a Sink.
type notes struct {
	mu       sync.Mutex
	received []FlowReceived
	problems []error
	lost     []ReplicaLost
}

func (s *notes) FlowReceived(f FlowReceived) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = append(s.received, f)
}

func (s *notes) Problem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, err)
}

func (s *notes) ReplicaLost(l ReplicaLost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, l)
}

// losses returns the hosts that were dropped, in order.
func (s *notes) losses() []topo.HostID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hosts []topo.HostID
	for _, l := range s.lost {
		hosts = append(hosts, l.Host)
	}
	return hosts
}

func (s *notes) get() ([]FlowReceived, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]FlowReceived(nil), s.received...), append([]error(nil), s.problems...)
}

const testRun = 0xfeed

// cluster is a set of hosts that serve.
type cluster struct {
	agents []*Agent
	disks  []*disk.Disk
	stop   []context.CancelFunc // of each agent's Serve
	notes  notes
	finish func()
}

// newCluster starts one host per disk options; rate 0 means a host without a disk. The
// caller must call finish.
func newCluster(t *testing.T, n Network, disks ...disk.Options) *cluster {
	t.Helper()
	c := new(cluster)
	ctx, cancel := context.WithCancel(t.Context())
	pacer := pace.New(pace.Options{})
	var wg sync.WaitGroup
	wg.Go(func() { pacer.Run(ctx) })
	dir := t.TempDir()
	for i, o := range disks {
		name := func(h topo.HostID) string { return fmt.Sprintf("h%d", h) }
		var d *disk.Disk
		var v *disk.Volumes
		if o.Rate > 0 {
			o.Host = name(topo.HostID(i))
			var err error
			if d, err = disk.Open(fmt.Sprintf("%s/%d", dir, i), o); err != nil {
				t.Fatal(err)
			}
			v = disk.NewVolumes(d)
		}
		a := New(Options{
			Host: topo.HostID(i), Name: name, Run: testRun,
			Network: n, Pacer: pacer, Disk: v, Sink: &c.notes,
		})
		if err := a.Listen(ctx); err != nil {
			t.Fatal(err)
		}
		own, stop := context.WithCancel(ctx)
		wg.Go(func() {
			if err := a.Serve(own); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Serve of host %d: %v", i, err)
			}
		})
		c.agents, c.disks, c.stop = append(c.agents, a), append(c.disks, d), append(c.stop, stop)
	}
	c.finish = func() {
		cancel()
		wg.Wait()
		for _, d := range c.disks {
			if d != nil {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	return c
}

// inMemory runs f in a synctest bubble on a cluster in memory.
func inMemory(t *testing.T, disks []disk.Options, f func(t *testing.T, n *memNet, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := new(memNet)
		c := newCluster(t, n, disks...)
		defer c.finish()
		f(t, n, c)
	})
}

// hosts returns the options of n unlimited disks.
func hosts(n int) []disk.Options {
	o := make([]disk.Options, n)
	for i := range o {
		o[i].Rate = units.MaxRate
	}
	return o
}
