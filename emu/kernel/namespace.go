// Package kernel carries out plans on the Linux kernel and gives access to the namespaces that they
// create: sockets, counters, routes, captures and processes. It is the only package that uses
// netlink or makes raw system calls. It starts no ip, tc, sysctl or ethtool process and changes
// nothing in the namespace in which the program runs.
//
// Threads enter a namespace only briefly, to open a file or a socket in it. The file or socket
// stays in its namespace and any thread can then use it.
//
// The package does not decide what to build (emu/plan) or how to handle a failed build
// (emu/deploy), and keeps no record of what it created.
package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is an open network namespace. It is safe for concurrent use. The namespace exists while
// it is open, even if its pin is removed.
type Namespace struct {
	name string
	net  ns.NetNS

	mu      sync.Mutex // guards all below
	route   *nl.SocketHandle
	udp     *net.UDPConn
	devices map[int]device // by index
	closed  bool
}

// OpenNamespace opens the namespace pinned at path. The caller must close it.
func OpenNamespace(path string) (*Namespace, error) {
	name := filepath.Base(path)
	net, err := ns.GetNS(path)
	var missing ns.NSPathNotExistErr
	var empty ns.NSPathNotNSErr // the pin is not mounted yet, or no longer
	if errors.As(err, &missing) || errors.As(err, &empty) {
		return nil, fmt.Errorf("open namespace %q: %w: no namespace is pinned at %s: is the testbed up?", name, os.ErrNotExist, path)
	} else if err != nil {
		return nil, fmt.Errorf("open namespace %q: %w", name, err)
	}
	n := &Namespace{name: name, net: net}
	err = net.Do(func(ns.NetNS) (err error) {
		n.route, err = routeSocket()
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open namespace %q: %w%s", name, err, privilege(err)), net.Close())
	}
	return n, nil
}

// routeSocket opens a netlink socket in the namespace of the calling thread.
func routeSocket() (*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	timeout := unix.Timeval{Sec: 30}
	err = errors.Join(s.SetSendTimeout(&timeout), s.SetReceiveTimeout(&timeout), s.SetExtAck(true))
	if err != nil {
		s.Close()
		return nil, err
	}
	return &nl.SocketHandle{Socket: s}, nil
}

// Name returns the last element of the path at which the namespace is pinned.
func (n *Namespace) Name() string { return n.name }

// Close closes the namespace and the package's handles in it, but not the sockets, captures and
// processes that were returned to callers. A second call does nothing.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	n.route.Close()
	var errs []error
	if n.udp != nil {
		errs = append(errs, n.udp.Close())
	}
	errs = append(errs, n.net.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close namespace %q: %w", n.name, err)
	}
	return nil
}

// do runs f on a thread in the namespace. Goroutines that f starts run outside it.
func (n *Namespace) do(f func() error) error {
	return n.net.Do(func(ns.NetNS) error { return f() })
}

// request returns a route netlink request on the namespace's own socket.
func (n *Namespace) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: n.route}
	return req
}

// change executes a request whose only answer is success or an error.
func change(req *nl.NetlinkRequest) error {
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// privilege returns advice to append to an error caused by missing privilege, otherwise "".
func privilege(err error) string {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return ""
	}
	if os.Geteuid() != 0 {
		return ` (needs root: run it with sudo, or inside "unshare -rmn")`
	}
	var lacks []string
	for _, f := range capabilities() {
		if !f.Have {
			lacks = append(lacks, f.Name)
		}
	}
	if len(lacks) == 0 {
		return " (this root may not: " + inContainers + ")"
	}
	return fmt.Sprintf(" (this root lacks %s: %s)", strings.Join(lacks, ", "), inContainers)
}

// inContainers is what gives a container the privileges of a run.
const inContainers = "in a container: start it with " + withRights

// Lifetime is the time for which pinned namespaces exist. A pin is a mount, which ends with the last
// process of its mount namespace.
type Lifetime int

// The values of Lifetime.
const (
	UntilRemoved Lifetime = iota
	WithSession           // ends with the caller's mount namespace, which its parent shares
	WithProcess           // ends with this process
)

// LifetimeOf returns the lifetime of the namespace that is pinned at path. It stays until it is removed
// if the first process, that of the machine or of the container, has the mount too.
func LifetimeOf(path string) (Lifetime, error) {
	id, err := idOf(path)
	if err != nil {
		return WithProcess, err
	}
	mounts, err := os.ReadFile("/proc/1/mountinfo")
	switch {
	case os.Getpid() == 1: // of a container, which ends with this process
		return WithProcess, nil
	case err == nil && strings.Contains(string(mounts), fmt.Sprintf(" net:[%d] ", id.inode)):
		return UntilRemoved, nil
	}
	// The main thread of this process, or of its parent, may have entered another one.
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return WithProcess, err
	}
	parents, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/mnt", os.Getppid()))
	for _, path := range parents {
		if its, err := os.Readlink(path); err == nil && its == own {
			return WithSession, nil
		}
	}
	return WithProcess, err
}
