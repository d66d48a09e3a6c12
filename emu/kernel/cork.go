package kernel

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cork makes the kernel hold back data written to a connection until it fills a segment (TCP_CORK),
// for at most 200 ms. uncork sends the data. It takes less time than a write, because the segment
// already exists.
func Cork(c *net.TCPConn) (uncork func() error, err error) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = setCork(raw, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("cork the connection to %v: %w", c.RemoteAddr(), err)
	}
	return func() error {
		if err := setCork(raw, 0); err != nil {
			return fmt.Errorf("uncork the connection to %v: %w", c.RemoteAddr(), err)
		}
		return nil
	}, nil
}

func setCork(raw syscall.RawConn, on int) (err error) {
	if failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, on) }); failed != nil {
		return failed
	}
	return err
}
