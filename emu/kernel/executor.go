package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// Executor carries out plans. It pins each namespace in a directory, under the
// namespace's name, and keeps what it needs to go on working on it open until
// the namespace is undone or the Executor is closed. It is for one plan. Do and
// Read may be called from several goroutines where Workers and Readers say so;
// all else, from one.
type Executor struct {
	// Settings may be changed before the first call.
	Settings Settings

	pins string
	mu   sync.Mutex // guards made
	made map[string]*building
}

var (
	_ deploy.Executor = (*Executor)(nil)
	_ deploy.Parallel = (*Executor)(nil)
	_ deploy.Checker  = (*Executor)(nil)
	_ deploy.Reaper   = Reaper{}
)

// building is a namespace that is being furnished.
type building struct {
	*Namespace
	handle *netlink.Handle
	ioctl  int            // any socket of the namespace
	index  map[string]int // of its devices
	next   int            // index of its next device
}

// NewExecutor makes an executor that pins namespaces in the directory pins,
// which must exist.
func NewExecutor(pins string) *Executor {
	return &Executor{Settings: DefaultSettings(), pins: pins, made: map[string]*building{}}
}

// Do carries out op.
func (x *Executor) Do(ctx context.Context, op plan.Op) error {
	var err error
	switch op := op.(type) {
	case plan.Namespace:
		err = x.create(op.Name)
	case plan.Sysctl:
		err = x.in(op.Namespace, func(b *building) error { return b.set(op.Set) })
	case plan.Veth:
		err = x.link(op)
	case plan.Offloads:
		err = x.in(op.Namespace, func(b *building) error { return disableOffloads(b.ioctl, op.Device, plan.OffloadFlags) })
	case plan.Shaper:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error { return b.shape(index, op) })
	case plan.Delay:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error { return b.delay(index, op) })
	case plan.RED:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error { return b.red(index, op) })
	case plan.Address:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error {
			return b.handle.AddrAdd(linkAt(index), &netlink.Addr{IPNet: ipNet(op.Prefix)})
		})
	case plan.Up:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error { return b.handle.LinkSetUp(linkAt(index)) })
	case plan.Ready:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error { return b.ready(ctx, op.Device, index) })
	case plan.Neighbour:
		err = x.on(op.Namespace, op.Device, func(b *building, index int) error {
			return b.handle.NeighSet(&netlink.Neigh{LinkIndex: index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
				IP: op.Addr.AsSlice(), HardwareAddr: net.HardwareAddr(op.MAC[:])})
		})
	case plan.Route:
		err = x.in(op.Namespace, func(b *building) error { return b.route(op) })
	default:
		return fmt.Errorf("carry out %T: unknown operation", op)
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", op, err, privilege(err))
	}
	return nil
}

// Undo removes the namespace of a plan.Namespace, and so all that is in it. All
// other operations change only what is in namespaces, so it leaves them to that.
func (x *Executor) Undo(ctx context.Context, op plan.Op) error {
	o, ok := op.(plan.Namespace)
	if !ok {
		return nil
	}
	var err error
	if b := x.building(o.Name); b != nil {
		x.mu.Lock()
		delete(x.made, o.Name)
		x.mu.Unlock()
		err = b.close()
	}
	return errors.Join(err, Reaper{}.Reap(ctx, x.pins, []string{o.Name}))
}

// Close closes what the executor keeps open and leaves what it made. A second
// call does nothing.
func (x *Executor) Close() error {
	var errs []error
	for name, b := range x.made {
		errs = append(errs, b.close())
		delete(x.made, name)
	}
	return errors.Join(errs...)
}

func (x *Executor) building(namespace string) *building {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.made[namespace]
}

func (x *Executor) in(namespace string, f func(*building) error) error {
	b := x.building(namespace)
	if b == nil {
		return fmt.Errorf("namespace %q was not created by this plan", namespace)
	}
	return f(b)
}

func (x *Executor) on(namespace, device string, f func(b *building, index int) error) error {
	return x.in(namespace, func(b *building) error {
		index, ok := b.index[device]
		if !ok {
			return fmt.Errorf("namespace %q has no device %q", namespace, device)
		}
		return f(b, index)
	})
}

// create makes a namespace on a thread of its own, which is thrown away, and
// pins it.
func (x *Executor) create(name string) error {
	if x.building(name) != nil {
		return fs.ErrExist
	}
	path := filepath.Join(x.pins, name)
	pin, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := pin.Close(); err != nil {
		return err
	}
	b := &building{Namespace: &Namespace{name: name}, ioctl: -1, index: map[string]int{"lo": 1}, next: 2}
	var failed error
	onThread(func() { failed = b.born(path) })
	if failed != nil {
		return errors.Join(failed, b.close())
	}
	x.mu.Lock()
	x.made[name] = b
	x.mu.Unlock()
	return nil
}

// onThread runs f on a thread that ends with it. The process's first thread does
// not end when its goroutine does, but stays idle for good, in the namespace in
// which it was left; it is kept busy while f runs on another.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		other := make(chan struct{})
		go func() {
			defer close(other)
			runtime.LockOSThread() // never unlocked
			f()
		}()
		<-other
	}()
	<-done
}

// born moves the calling thread into a new namespace, pins that at path and
// opens what the building needs.
func (b *building) born(path string) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin it at %s: %w", path, err)
	}
	if b.net, err = ns.GetNS(path); err != nil {
		return err
	}
	if b.Namespace.route, err = routeSocket(); err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	if b.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	if b.ioctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	return nil
}

// close closes as much of the building as there is.
func (b *building) close() error {
	var errs []error
	if b.handle != nil {
		b.handle.Close()
	}
	if b.ioctl >= 0 {
		errs = append(errs, unix.Close(b.ioctl))
	}
	switch {
	case b.Namespace.route != nil:
		errs = append(errs, b.Namespace.Close())
	case b.net != nil:
		errs = append(errs, b.net.Close())
	}
	return errors.Join(errs...)
}

// set writes kernel parameters. Those of a namespace are seen only by threads in
// it.
func (b *building) set(settings []plan.Setting) error {
	return b.do(func() error {
		for _, s := range settings {
			path := "/proc/sys/" + strings.ReplaceAll(s.Key, ".", "/")
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("%s: %w", s.Key, deploy.ErrUnsupported)
			} else if err != nil {
				return fmt.Errorf("%s: %w", s.Key, err)
			}
			_, err = unix.Write(fd, []byte(s.Value))
			if err := errors.Join(err, unix.Close(fd)); err != nil {
				return fmt.Errorf("%s: %w", s.Key, err)
			}
		}
		return nil
	})
}

func (b *building) route(op plan.Route) error { return b.handle.RouteAdd(b.routeOf(op)) }

func (b *building) routeOf(op plan.Route) *netlink.Route {
	r := &netlink.Route{Dst: ipNet(op.Dst), Family: unix.AF_INET, Protocol: unix.RTPROT_STATIC}
	switch len(op.Via) {
	case 0:
		r.Type = unix.RTN_BLACKHOLE
	case 1:
		r.Gw, r.LinkIndex = op.Via[0].Addr.AsSlice(), b.index[op.Via[0].Device]
	default:
		for _, h := range op.Via {
			r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: b.index[h.Device], Gw: h.Addr.AsSlice()})
		}
	}
	return r
}

func linkAt(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
