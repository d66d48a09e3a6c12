package kernel

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// TCPState is what a connection really uses, as the kernel reports it (TCP_CONGESTION, other options of the socket, and
// TCP_INFO). Programs attached to the kernel, and those that share the socket, can change it, whatever the parameters are.
type TCPState struct {
	Congestion                           string
	Timestamps, SACK, WindowScaling, ECN bool
	RTT                                  time.Duration // minimum so far; after the handshake, from the SYN to its answer
	Segment                              units.Bytes   // payload of a full segment that it sends
	// Options are the values of SocketOptionNames.
	Options [len(SocketOptionNames)]uint64
	// Busy is the time with data to send or in flight. In Window of it, the receiver's window kept data back, and in
	// Buffer the size of the send buffer.
	Busy, Window, Buffer time.Duration
}

// From linux/tcp.h.
const (
	tcpTimestamps = 1 << iota
	tcpSACK
	tcpWindowScaling
	tcpECN
)

// SocketOptionNames name the options of a socket that TCPState has, besides the congestion control: those that change what a
// connection does and that the kernel does not change by itself.
var SocketOptionNames = [...]string{
	"pacing rate", "send buffer", "receive buffer", "receive low-water mark", "priority", "mark", "type of service", "time to live",
	"no delay", "not-sent low-water mark", "user timeout", "socket filter",
}

// Indexes of SocketOptionNames, and the pacing rate of a connection for which none was set.
const (
	PacingRate          = 0
	ReadBatch           = 3
	SocketFilter        = len(SocketOptionNames) - 1
	NoPacingRate uint64 = math.MaxUint64
)

var socketOptions = [len(SocketOptionNames)]struct{ level, option int }{
	{unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE},
	{unix.SOL_SOCKET, unix.SO_SNDBUF},
	{unix.SOL_SOCKET, unix.SO_RCVBUF},
	{unix.SOL_SOCKET, unix.SO_RCVLOWAT},
	{unix.SOL_SOCKET, unix.SO_PRIORITY},
	{unix.SOL_SOCKET, unix.SO_MARK},
	{unix.IPPROTO_IP, unix.IP_TOS},
	{unix.IPPROTO_IP, unix.IP_TTL},
	{unix.IPPROTO_TCP, unix.TCP_NODELAY},
	{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
	{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
	{unix.SOL_SOCKET, unix.SO_GET_FILTER},
}

// readOption returns the value of an option. Of a filter, it is the number of instructions, or 1 if the kernel does not show it.
func readOption(fd, level, option int) (uint64, error) {
	var value uint64
	size := uint32(unsafe.Sizeof(value))
	if option == unix.SO_GET_FILTER {
		size = 0
	}
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case option == unix.SO_GET_FILTER && errno == unix.EACCES: // a filter of extended BPF
		return 1, nil
	case errno != 0:
		return 0, errno
	case option == unix.SO_GET_FILTER:
		return uint64(size), nil
	}
	return value, nil
}

// TCPStateOf returns the state of an established connection, or of one that has ended and is not closed.
func TCPStateOf(c syscall.Conn) (s TCPState, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return s, fmt.Errorf("state of a connection: %w", err)
	}
	controlErr := raw.Control(func(fd uintptr) {
		if s.Congestion, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			return
		}
		for k, o := range socketOptions {
			if s.Options[k], err = readOption(int(fd), o.level, o.option); err != nil {
				err = fmt.Errorf("%s: %w", SocketOptionNames[k], err)
				return
			}
		}
		var i *unix.TCPInfo
		if i, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err != nil {
			return
		}
		has := func(option uint8) bool { return i.Options&option != 0 }
		s.Timestamps, s.SACK, s.WindowScaling, s.ECN = has(tcpTimestamps), has(tcpSACK), has(tcpWindowScaling), has(tcpECN)
		// The minimum takes a round trip of less than a microsecond for a tick of the kernel; the average does not.
		s.RTT = time.Duration(max(min(i.Min_rtt, i.Rtt), 1)) * time.Microsecond
		s.Segment = units.Bytes(i.Snd_mss)
		s.Busy = time.Duration(i.Busy_time) * time.Microsecond
		s.Window = time.Duration(i.Rwnd_limited) * time.Microsecond
		s.Buffer = time.Duration(i.Sndbuf_limited) * time.Microsecond
	})
	if err := errors.Join(controlErr, err); err != nil {
		return s, fmt.Errorf("state of a connection: %w", err)
	}
	return s, nil
}

// FlowState is how a connection sends at one moment (TCP_INFO).
type FlowState struct {
	RTT           time.Duration // smoothed, in whole microseconds
	Window        int64         // congestion window, in packets
	Delivery      units.Rate    // the kernel's estimate of the rate at which payload arrives; 0 if unknown
	Retransmitted int64         // packets sent again since the connection was begun
}

// FlowStateOf returns the state of a connection, and the time at which it was read.
func FlowStateOf(c syscall.Conn) (s FlowState, at time.Time, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return s, at, fmt.Errorf("state of a flow: %w", err)
	}
	controlErr := raw.Control(func(fd uintptr) {
		var i *unix.TCPInfo
		at = time.Now()
		if i, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err != nil {
			return
		}
		s = FlowState{time.Duration(i.Rtt) * time.Microsecond, int64(i.Snd_cwnd), 8 * units.Rate(i.Delivery_rate), int64(i.Total_retrans)}
	})
	if err := errors.Join(controlErr, err); err != nil {
		return s, at, fmt.Errorf("state of a flow: %w", err)
	}
	return s, at, nil
}

// SetReadBatch makes reads from a connection wait for n bytes, for the end of the connection, or for a full receive
// buffer (SO_RCVLOWAT), and returns the value that the kernel grants. Data is acknowledged as without it.
func SetReadBatch(c syscall.Conn, n int) (granted uint64, err error) {
	raw, err := c.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n); err == nil {
				granted, err = readOption(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT)
			}
		})
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		return 0, fmt.Errorf("wait for %d bytes of a connection: %w", n, err)
	}
	return granted, nil
}

// Queued returns the number of bytes that can be read from a connection without waiting, or 0 once it is closed.
func Queued(c syscall.Conn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	controlErr := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	if errors.Join(err, controlErr) != nil {
		return 0
	}
	return n
}
