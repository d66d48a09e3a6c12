package kernel

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
)

// A connection becomes readable with the last byte of a batch, or when its peer closes.
func TestReadBatch(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const batch = 5000
	for _, c := range []struct {
		name     string
		sent     int
		closes   bool
		readable bool
	}{
		{"one byte", 1, false, false},
		{"one byte less", batch - 1, false, false},
		{"a batch", batch, false, true},
		{"one byte more", batch + 1, false, true},
		{"peer closes", 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			to := accepted.(*net.TCPConn)
			if granted, err := SetReadBatch(to, batch); err != nil || granted != batch {
				t.Fatalf("granted %d, %v", granted, err)
			}
			if _, err := from.Write(make([]byte, c.sent)); err != nil {
				t.Fatal(err)
			}
			raw, err := to.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			poll := func() int16 {
				fds := []unix.PollFd{{Events: unix.POLLIN | unix.POLLRDHUP}}
				controlErr := raw.Control(func(fd uintptr) {
					fds[0].Fd = int32(fd)
					_, err = unix.Poll(fds, 0)
				})
				if err := errors.Join(controlErr, err); err != nil {
					t.Fatal(err)
				}
				return fds[0].Revents
			}
			wait := func(what string, until func() bool) {
				for end := time.Now().Add(netnstest.Patience(5 * time.Second)); !until(); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("waited too long for %s", what)
					}
				}
			}
			wait("the bytes", func() bool { return Queued(to) == c.sent })
			if c.closes {
				if err := from.Close(); err != nil {
					t.Fatal(err)
				}
				wait("the end", func() bool { return poll()&unix.POLLRDHUP != 0 })
			}
			if got := poll()&unix.POLLIN != 0; got != c.readable {
				t.Errorf("readable: %t", got)
			}
			if err := to.Close(); err != nil || Queued(to) != 0 {
				t.Errorf("closed: %v, %d bytes", err, Queued(to))
			}
			if _, err := SetReadBatch(to, 1); err == nil {
				t.Error("a closed connection takes a batch")
			}
		})
	}
}
