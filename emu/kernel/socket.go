package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// SocketOptions are set on a TCP socket before it connects or listens, and apply to all connections
// that a listener accepts. Keep-alives are always off, so that an idle connection sends no packets.
type SocketOptions struct {
	// SendBuffer and ReceiveBuffer are the fixed sizes of the socket's buffers, payload and kernel
	// overhead together; 0 means automatic sizing.
	SendBuffer, ReceiveBuffer units.Bytes
	// NotSentLowat is the maximum amount of unsent data, in addition to data in flight, that a
	// write may leave in the kernel before it blocks; 0 means unlimited.
	NotSentLowat units.Bytes
	// Nagle delays small segments while others are in flight. The default is off.
	Nagle bool
	// UserTimeout is TCP_USER_TIMEOUT: the maximum time that sent bytes, or a SYN, may stay
	// unacknowledged before the connection fails with ETIMEDOUT; 0 means the kernel's default of
	// many minutes. It includes the time for which the peer's window is zero, even though the peer
	// answers.
	UserTimeout time.Duration
}

// apply sets the options on a socket.
func (o SocketOptions) apply(fd int) error {
	var errs []error
	set := func(what string, level, option, value int) {
		if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
			errs = append(errs, fmt.Errorf("%s %d: %w", what, value, err))
		}
	}
	if o.SendBuffer > 0 {
		errs = append(errs, setBuffer(fd, "send", "wmem_max", o.SendBuffer, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF))
	}
	if o.ReceiveBuffer > 0 {
		errs = append(errs, setBuffer(fd, "receive", "rmem_max", o.ReceiveBuffer, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF))
	}
	if o.NotSentLowat > 0 {
		set("not-sent low water mark", unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, int(o.NotSentLowat))
	}
	if o.UserTimeout > 0 {
		set("user timeout", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(min(max(o.UserTimeout.Milliseconds(), 1), math.MaxInt32)))
	}
	set("no delay", unix.IPPROTO_TCP, unix.TCP_NODELAY, btoi(!o.Nagle))
	set("reuse address", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // ports in TIME_WAIT from the previous repeat
	return errors.Join(errs...)
}

// setBuffer sets the size of a buffer, beyond the machine's limit if permitted. The kernel doubles
// the value to allow for its overhead.
func setBuffer(fd int, what, limit string, size units.Bytes, force, option int) error {
	half := int(min(size/2, math.MaxInt32/2))
	if err := enlarge(fd, half, force, option); err != nil {
		return fmt.Errorf("%s buffer %v: %w", what, size, err)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err == nil && units.Bytes(got) < size/2*2 {
		err = fmt.Errorf("the kernel grants %v: raise net.core.%s or request less", units.Bytes(got), limit)
	}
	if err != nil {
		return fmt.Errorf("%s buffer %v: %w", what, size, err)
	}
	return nil
}

// enlarge sets the size of a buffer. Root of a user namespace gets the machine's limit at most.
func enlarge(fd, size, force, option int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size)
	}
	return err
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tune restores the options that Go's net package changes on a connection.
func (o SocketOptions) tune(c *net.TCPConn) error {
	return errors.Join(c.SetKeepAlive(false), c.SetNoDelay(!o.Nagle))
}

// socket opens a non-blocking socket in the namespace and binds it.
func (n *Namespace) socket(kind int, local netip.AddrPort, prepare func(fd int) error) (fd int, err error) {
	fd = -1
	err = n.do(func() (err error) {
		fd, err = openSocket(kind)
		return err
	})
	if err != nil {
		return -1, err
	}
	return bindSocket(fd, local, prepare)
}

// openSocket opens a non-blocking socket in the namespace of the calling thread.
func openSocket(kind int) (int, error) {
	return unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// bindSocket calls prepare and binds the socket to local, if that is valid. On an error it closes
// the socket.
func bindSocket(fd int, local netip.AddrPort, prepare func(fd int) error) (int, error) {
	err := prepare(fd)
	if err == nil && local.IsValid() {
		err = unix.Bind(fd, sockaddr(local))
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().Unmap().As4(), Port: int(a.Port())}
}

func checkIPv4(what string, a netip.AddrPort) error {
	if !a.Addr().Unmap().Is4() {
		return fmt.Errorf("%s address %v: must be an IPv4 address", what, a)
	}
	return nil
}

// Listen listens on a TCP address of the namespace. The listener and its connections can be used on
// any thread. ctx bounds only the call.
func (n *Namespace) Listen(ctx context.Context, local netip.AddrPort, o SocketOptions) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("listen on %v in %q: %w", local, n.name, err)
	}
	if err := errors.Join(context.Cause(ctx), checkIPv4("local", local)); err != nil {
		return fail(err)
	}
	fd, err := n.socket(unix.SOCK_STREAM, local, o.apply)
	if err != nil {
		return fail(err)
	}
	if err := unix.Listen(fd, 4096); err != nil { // limited to net.core.somaxconn
		return fail(errors.Join(err, unix.Close(fd)))
	}
	f := os.NewFile(uintptr(fd), local.String())
	l, err := net.FileListener(f) // duplicates the descriptor
	if err = errors.Join(err, f.Close()); err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return fail(err)
	}
	return &listener{l, o}, nil
}

// listener turns off the keep-alives that Go turns on.
type listener struct {
	net.Listener
	o SocketOptions
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.o.tune(c.(*net.TCPConn)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Dial connects from the namespace to remote. If local is the zero AddrPort or has port 0, the
// kernel selects the rest. Dial waits on the runtime's poller, so thousands of goroutines may dial
// at once without a thread each. The wait ends with ctx.
func (n *Namespace) Dial(ctx context.Context, local, remote netip.AddrPort, o SocketOptions) (net.Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("dial %v from %q: %w", remote, n.name, err)
	}
	p, err := n.Connect(local, remote, o)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// Pending is a connection in progress: see Connect.
type Pending struct {
	Local   netip.AddrPort // its local end
	name    string         // of the namespace
	remote  netip.AddrPort
	o       SocketOptions
	file    *os.File // non-blocking: uses the runtime's poller
	waiting bool     // the peer has not answered
}

// Connect starts a connection like Dial, and returns without waiting for the answer. The expensive
// part is then done. The caller must call Wait.
func (n *Namespace) Connect(local, remote netip.AddrPort, o SocketOptions) (*Pending, error) {
	return n.connect(func() (fd int, err error) {
		err = n.do(func() (err error) {
			fd, err = openSocket(unix.SOCK_STREAM)
			return err
		})
		return fd, err
	}, local, remote, o)
}

// connect starts a connection on a socket from open.
func (n *Namespace) connect(open func() (int, error), local, remote netip.AddrPort, o SocketOptions) (*Pending, error) {
	fail := func(err error) (*Pending, error) {
		return nil, fmt.Errorf("dial %v from %q: %w", remote, n.name, err)
	}
	if err := checkIPv4("remote", remote); err != nil {
		return fail(err)
	}
	if local.IsValid() {
		if err := checkIPv4("local", local); err != nil {
			return fail(err)
		}
	}
	fd, err := open()
	if err == nil {
		fd, err = bindSocket(fd, local, func(fd int) error {
			// If the kernel selects the port, it does so in connect, where the remote address is
			// known.
			return errors.Join(o.apply(fd), unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
		})
	}
	if err != nil {
		return fail(err)
	}
	err = unix.Connect(fd, sockaddr(remote))
	for errors.Is(err, unix.EINTR) {
		err = unix.Connect(fd, sockaddr(remote))
	}
	waiting := errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EALREADY)
	if err != nil && !waiting && !errors.Is(err, unix.EISCONN) {
		return fail(errors.Join(err, unix.Close(fd)))
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return fail(errors.Join(err, unix.Close(fd)))
	}
	p := &Pending{name: n.name, remote: remote, o: o, file: os.NewFile(uintptr(fd), remote.String()), waiting: waiting}
	if a, ok := at.(*unix.SockaddrInet4); ok {
		p.Local = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	}
	return p, nil
}

// Wait waits until the connection is established or ctx is done.
func (p *Pending) Wait(ctx context.Context) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, fmt.Errorf("dial %v from %q: %w", p.remote, p.name, err)
	}
	if p.waiting {
		if err := connected(ctx, p.file); err != nil {
			return fail(errors.Join(err, p.file.Close()))
		}
	}
	c, err := net.FileConn(p.file) // duplicates the descriptor
	if err = errors.Join(err, p.file.Close()); err == nil {
		err = p.o.tune(c.(*net.TCPConn))
	}
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return fail(err)
	}
	return c, nil
}

// connected waits until the connect in progress on f ends or ctx is done.
func connected(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // fails only on a closed file, which has no waiter
	})
	defer stop()
	var result error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err == nil {
			// Without an error, the connect may still be in progress.
			if _, err = unix.Getpeername(int(fd)); errors.Is(err, unix.ENOTCONN) {
				return false
			}
		}
		result = err
		return true
	})
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return result
}

// ErrQueueFull is the error of a datagram that a queue of the sender's device has dropped.
var ErrQueueFull error = unix.ENOBUFS

// SendUDP sends one datagram from the namespace. All datagrams of a namespace use one socket and
// one source port, so they stay in order. The error is ErrQueueFull if a queue of the namespace's own
// device drops the datagram; queues farther away drop without an error.
func (n *Namespace) SendUDP(payload []byte, to netip.AddrPort) error {
	if err := checkIPv4("remote", to); err != nil {
		return fmt.Errorf("send a datagram from %q: %w", n.name, err)
	}
	conn, err := n.datagrams()
	if err == nil {
		_, err = conn.WriteToUDPAddrPort(payload, to)
		for errors.Is(err, unix.ECONNREFUSED) { // the answer to an earlier one: this one was not sent
			_, err = conn.WriteToUDPAddrPort(payload, to)
		}
	}
	if err != nil {
		return fmt.Errorf("send a datagram to %v from %q: %w", to, n.name, err)
	}
	return nil
}

func (n *Namespace) datagrams() (*net.UDPConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, os.ErrClosed
	}
	if n.udp != nil {
		return n.udp, nil
	}
	fd, err := n.socket(unix.SOCK_DGRAM, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1) // report drops: udp_send_skb in net/ipv4/udp.c
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "udp")
	c, err := net.FilePacketConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, err
	}
	n.udp = c.(*net.UDPConn)
	return n.udp, nil
}
