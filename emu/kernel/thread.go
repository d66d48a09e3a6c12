package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Thread is a thread that stays in the namespace that it last entered, so that
// opening one socket after the other costs little: other threads start a goroutine,
// enter and leave for each.
type Thread struct {
	in *Namespace // nil for that of the program
}

// OnThread runs f on a thread of its own, which ends with it, in whatever namespace
// it is then, and returns what it returns.
func OnThread(f func(*Thread) error) (err error) {
	onThread(func() { err = f(new(Thread)) })
	return err
}

// enter takes the thread into a namespace.
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

// Connect is Namespace.Connect, on this thread.
func (t *Thread) Connect(n *Namespace, local, remote netip.AddrPort, o SocketOptions) (*Pending, error) {
	return n.connect(func() (int, error) {
		if err := t.enter(n); err != nil {
			return -1, err
		}
		return openSocket(unix.SOCK_STREAM)
	}, local, remote, o)
}
