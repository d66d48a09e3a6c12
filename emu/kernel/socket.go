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

// SocketOptions are set on a TCP socket before it connects or listens, and so
// on every connection that a listener accepts. Keep-alives are always off: a
// silent connection is silent.
type SocketOptions struct {
	// Congestion names the congestion control, such as "cubic"; empty leaves the
	// namespace's. Root may name any that the kernel has.
	Congestion string
	// SendBuffer and ReceiveBuffer fix the socket's buffers, payload and the
	// kernel's overhead together; 0 leaves them to grow by themselves.
	SendBuffer, ReceiveBuffer units.Bytes
	// NotSentLowat is how much a write may leave waiting in the kernel before it
	// blocks, beyond what is in flight; 0 leaves it unlimited.
	NotSentLowat units.Bytes
	// Nagle delays small segments while others are in flight. It is off unless
	// asked for.
	Nagle bool
	// UserTimeout is TCP_USER_TIMEOUT: how long sent bytes, or a SYN, may stay
	// unacknowledged before the connection ends with ETIMEDOUT; 0 leaves the
	// kernel's many minutes. The time that the other end keeps its window shut
	// counts, though it answers.
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
	if o.Congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion); err != nil {
			errs = append(errs, fmt.Errorf("congestion control %q: %w: /proc/sys/net/ipv4/tcp_available_congestion_control lists those this kernel has", o.Congestion, err))
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
	set("reuse address", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // ports in TIME_WAIT, from one repeat to the next
	return errors.Join(errs...)
}

// setBuffer sets a buffer, past the machine's limit where that is allowed. The
// kernel doubles what it is given, to make room for its overhead.
func setBuffer(fd int, what, limit string, size units.Bytes, force, option int) error {
	half := int(min(size/2, math.MaxInt32/2))
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, half)
	if errors.Is(err, unix.EPERM) { // root of a user namespace only
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, half)
	}
	if err != nil {
		return fmt.Errorf("%s buffer %v: %w", what, size, err)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err == nil && units.Bytes(got) < size/2*2 {
		err = fmt.Errorf("the kernel gives %v: raise net.core.%s or ask for less", units.Bytes(got), limit)
	}
	if err != nil {
		return fmt.Errorf("%s buffer %v: %w", what, size, err)
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tune sets on a connection what Go's net package changed on it.
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

// openSocket opens a non-blocking socket in the thread's namespace.
func openSocket(kind int) (int, error) {
	return unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// bindSocket prepares a socket and binds it to local, if that is valid. It closes
// one that it returns an error for.
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

func want4(what string, a netip.AddrPort) error {
	if !a.Addr().Unmap().Is4() {
		return fmt.Errorf("%s address %v: want an IPv4 address", what, a)
	}
	return nil
}

// Listen listens on a TCP address of the namespace. The listener and what it
// accepts are used like any other: no thread is tied to them. ctx bounds nothing
// but the call.
func (n *Namespace) Listen(ctx context.Context, local netip.AddrPort, o SocketOptions) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("listen on %v in %q: %w", local, n.name, err)
	}
	if err := errors.Join(context.Cause(ctx), want4("local", local)); err != nil {
		return fail(err)
	}
	fd, err := n.socket(unix.SOCK_STREAM, local, o.apply)
	if err != nil {
		return fail(err)
	}
	if err := unix.Listen(fd, 4096); err != nil { // the kernel cuts it to net.core.somaxconn
		return fail(errors.Join(err, unix.Close(fd)))
	}
	f := os.NewFile(uintptr(fd), local.String())
	l, err := net.FileListener(f) // has a descriptor of its own
	if err = errors.Join(err, f.Close()); err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return fail(err)
	}
	return &listener{l, o}, nil
}

// listener keeps Go from turning keep-alives on.
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

// Dial connects from the namespace to remote. local may be the zero AddrPort or
// have port 0, for the kernel to choose. The wait is on the runtime's poller, so
// that thousands may connect at once without a thread each; it ends with ctx.
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

// Pending is a connection that was begun.
type Pending struct {
	Local   netip.AddrPort // from which it was begun
	name    string         // of the namespace
	remote  netip.AddrPort
	o       SocketOptions
	file    *os.File // non-blocking, so on the poller
	waiting bool     // for an answer
}

// Connect begins a connection, as Dial does, and returns without waiting for an
// answer: what takes processor time is done then. Wait must follow.
func (n *Namespace) Connect(local, remote netip.AddrPort, o SocketOptions) (*Pending, error) {
	return n.connect(func() (fd int, err error) {
		err = n.do(func() (err error) {
			fd, err = openSocket(unix.SOCK_STREAM)
			return err
		})
		return fd, err
	}, local, remote, o)
}

// connect begins a connection on a new socket of the namespace, which open opens.
func (n *Namespace) connect(open func() (int, error), local, remote netip.AddrPort, o SocketOptions) (*Pending, error) {
	fail := func(err error) (*Pending, error) {
		return nil, fmt.Errorf("dial %v from %q: %w", remote, n.name, err)
	}
	if err := want4("remote", remote); err != nil {
		return fail(err)
	}
	if local.IsValid() {
		if err := want4("local", local); err != nil {
			return fail(err)
		}
	}
	fd, err := open()
	if err == nil {
		fd, err = bindSocket(fd, local, func(fd int) error {
			// A port for bind to choose is chosen by connect, when the remote is known.
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

// Wait waits until the connection stands or ctx is done.
func (p *Pending) Wait(ctx context.Context) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, fmt.Errorf("dial %v from %q: %w", p.remote, p.name, err)
	}
	if p.waiting {
		if err := connected(ctx, p.file); err != nil {
			return fail(errors.Join(err, p.file.Close()))
		}
	}
	c, err := net.FileConn(p.file) // has a descriptor of its own
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

// connected waits until a connect that was begun on f is done or ctx is.
func connected(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // fails only on a closed file, which nobody waits for
	})
	defer stop()
	var result error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err == nil {
			// No error yet may mean no answer yet.
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

// SendUDP sends one datagram from the namespace. All of a namespace's datagrams
// leave one socket, with one source port, in order.
func (n *Namespace) SendUDP(payload []byte, to netip.AddrPort) error {
	if err := want4("remote", to); err != nil {
		return fmt.Errorf("send a datagram from %q: %w", n.name, err)
	}
	conn, err := n.datagrams()
	if err == nil {
		_, err = conn.WriteToUDPAddrPort(payload, to)
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
	fd, err := n.socket(unix.SOCK_DGRAM, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), func(int) error { return nil })
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
