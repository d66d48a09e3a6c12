package kernel

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TCPState is what a connection really uses, as the kernel reports it after the handshake (TCP_CONGESTION and the
// options of TCP_INFO). Programs attached to the kernel can change it, whatever the parameters are.
type TCPState struct {
	Congestion                           string
	Timestamps, SACK, WindowScaling, ECN bool
	RTT                                  time.Duration // minimum so far; after the handshake, from the SYN to its answer
}

// From linux/tcp.h.
const (
	tcpTimestamps = 1 << iota
	tcpSACK
	tcpWindowScaling
	tcpECN
)

// TCPStateOf returns the state of an established connection.
func TCPStateOf(c syscall.Conn) (s TCPState, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return s, fmt.Errorf("state of a connection: %w", err)
	}
	if controlErr := raw.Control(func(fd uintptr) {
		if s.Congestion, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			return
		}
		var i *unix.TCPInfo
		if i, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			has := func(option uint8) bool { return i.Options&option != 0 }
			s.Timestamps, s.SACK, s.WindowScaling, s.ECN = has(tcpTimestamps), has(tcpSACK), has(tcpWindowScaling), has(tcpECN)
			s.RTT = time.Duration(i.Min_rtt) * time.Microsecond
		}
	}); controlErr != nil {
		err = controlErr
	}
	if err != nil {
		return s, fmt.Errorf("state of a connection: %w", err)
	}
	return s, nil
}
