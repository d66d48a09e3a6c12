package kernel

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Thread is an OS thread that stays in the namespace that it entered last. Opening several sockets
// on it is cheap: without it, each one costs a goroutine and a change of namespace and back.
type Thread struct {
	in *Namespace // nil for the program's own namespace
}

// OnThread runs f on a new thread and returns its result. The thread ends after f, in whichever
// namespace it is.
func OnThread(f func(*Thread) error) (err error) {
	onThread(func() { err = f(new(Thread)) })
	return err
}

// enter moves the thread into a namespace.
func (t *Thread) enter(n *Namespace) error {
	if t.in == n {
		return nil
	}
	if err := unix.Setns(int(n.net.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %q: %w%s", n.name, err, privilege(err))
	}
	t.in = n
	return nil
}

// on runs f in the namespace, on the thread of Work if ctx is of one. Goroutines that f starts may run anywhere.
func (n *Namespace) on(ctx context.Context, f func() error) error {
	t, ok := ctx.Value(workThread{}).(*Thread)
	if !ok {
		return n.do(f)
	}
	if err := t.enter(n); err != nil {
		return err
	}
	return f()
}

// Connect is Namespace.Connect, on this thread.
func (t *Thread) Connect(n *Namespace, local, remote netip.AddrPort, o SocketOptions) (*Pending, error) {
	return n.connect(func() (int, error) {
		if err := t.enter(n); err != nil {
			return -1, err
		}
		return openSocket(unix.SOCK_STREAM)
	}, local, remote, o)
}
