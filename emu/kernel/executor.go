package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// Executor carries out one plan. It pins each namespace in a directory, under the namespace's name,
// and keeps the namespace's handles open until the namespace is undone or the Executor is closed.
// Do and Read may be called from the number of goroutines that Workers and Readers return; all
// other methods from one goroutine at a time.
type Executor struct {
	// Settings may be changed before the first call.
	Settings Settings

	pins string
	pool procfsPool
	mu   sync.Mutex // guards made
	made map[string]*builder

	closing errgroup.Group // closes the sockets of Probe
}

var (
	_ deploy.Executor = (*Executor)(nil)
	_ deploy.Parallel = (*Executor)(nil)
	_ deploy.Checker  = (*Executor)(nil)
	_ deploy.Evictor  = (*Executor)(nil)
	_ deploy.Reaper   = Reaper{}
)

// builder configures a namespace.
type builder struct {
	*Namespace
	proc  *procfs
	index map[string]int // device indexes by name
	next  int            // index of the next device
}

// NewExecutor returns an executor that pins namespaces in the directory pins, which must exist.
func NewExecutor(pins string) *Executor {
	return &Executor{Settings: DefaultSettings(), pins: pins, made: map[string]*builder{}}
}

// Do carries out op.
func (x *Executor) Do(ctx context.Context, op plan.Op) error {
	var err error
	switch op := op.(type) {
	case plan.Namespace:
		err = x.create(ctx, op.Name)
	case plan.Sysctl:
		return x.inNamespace(op.Namespace, func(b *builder) error { return b.set(ctx, op) })
	case plan.Veth:
		err = x.link(op)
	case plan.Offloads:
		err = x.inNamespace(op.Namespace, func(b *builder) error { return b.disableOffloads(op.Device, plan.OffloadFlags) })
	case plan.Shaper:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.shape(index, op) })
	case plan.Delay:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.delay(index, op) })
	case plan.RED:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.red(index, op) })
	case plan.Address:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.address(index, op) })
	case plan.Up:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.setUp(index, true) })
	case plan.Ready:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.ready(ctx, op.Device, index) })
	case plan.Neighbour:
		err = x.onDevice(op.Namespace, op.Device, func(b *builder, index int) error { return b.neighbour(index, op) })
	case plan.Route:
		err = x.inNamespace(op.Namespace, func(b *builder) error { return b.addRoute(op, unix.NLM_F_EXCL) })
	default:
		return fmt.Errorf("carry out %T: unknown operation", op)
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", op, err, privilege(err))
	}
	return nil
}

// Undo removes the namespace of a plan.Namespace and everything in it. For all other operations it
// does nothing, since they change only the contents of namespaces.
func (x *Executor) Undo(ctx context.Context, op plan.Op) error {
	o, ok := op.(plan.Namespace)
	if !ok {
		return nil
	}
	var err error
	if b := x.builder(o.Name); b != nil {
		x.mu.Lock()
		delete(x.made, o.Name)
		x.mu.Unlock()
		err = b.close()
	}
	return errors.Join(err, unpinAll(ctx, x.pins, []string{o.Name}))
}

// Evict ends the processes in the namespaces that were created and not undone. Exec starts no
// further process until release is called.
func (x *Executor) Evict(ctx context.Context) (release func() error, err error) {
	release = func() error { return nil }
	lock, err := lockPins(ctx, x.pins, unix.LOCK_EX, lockWait)
	if err == nil {
		release = lock.Close
	}
	m, err2 := openMembers(deploy.Scope{Pins: x.pins, Names: slices.Sorted(maps.Keys(x.made))})
	if err2 != nil {
		return release, errors.Join(err, err2)
	}
	_, err2 = m.end(ctx, x.Settings.Grace)
	return release, errors.Join(err, err2, m.close(), x.closing.Wait())
}

// Close closes the executor's handles and leaves the namespaces as they are. A second call does
// nothing.
func (x *Executor) Close() error {
	errs := []error{x.closing.Wait()}
	for name, b := range x.made {
		errs = append(errs, b.close())
		delete(x.made, name)
	}
	return errors.Join(errs...)
}

func (x *Executor) builder(namespace string) *builder {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.made[namespace]
}

func (x *Executor) inNamespace(namespace string, f func(*builder) error) error {
	b := x.builder(namespace)
	if b == nil {
		return fmt.Errorf("namespace %q was not created by this plan", namespace)
	}
	return f(b)
}

func (x *Executor) onDevice(namespace, device string, f func(b *builder, index int) error) error {
	return x.inNamespace(namespace, func(b *builder) error {
		index, ok := b.index[device]
		if !ok {
			return fmt.Errorf("namespace %q has no device %q", namespace, device)
		}
		return f(b, index)
	})
}

// newBuilder returns the builder of a new namespace.
func newBuilder(name string) *builder {
	return &builder{Namespace: &Namespace{name: name}, index: map[string]int{"lo": 1}, next: 2}
}

// create makes a namespace on the thread of Work, or on one that ends afterwards, and pins it.
func (x *Executor) create(ctx context.Context, name string) error {
	if x.builder(name) != nil {
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
	b := newBuilder(name)
	if b.proc, err = x.pool.take(); err == nil {
		if t, ok := ctx.Value(workThread{}).(*Thread); ok {
			err = t.enterNew(b, path)
		} else {
			onThread(func() { err = new(Thread).enterNew(b, path) })
		}
	}
	if err != nil {
		return errors.Join(err, b.close())
	}
	x.mu.Lock()
	x.made[name] = b
	x.mu.Unlock()
	return nil
}

// onThread runs f on a thread that ends after it. The process's first thread never ends: it would
// stay idle in the namespace in which f left it. If the goroutine is on that thread, it blocks
// there while f runs on another.
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

// enterNew moves the thread into the new namespace of a builder, pins it at path and opens the builder's handles.
func (t *Thread) enterNew(b *builder, path string) (err error) {
	t.in = nil
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin the namespace at %s: %w", path, err)
	}
	if b.net, err = ns.GetNS(path); err != nil {
		return err
	}
	if b.route, err = routeSocket(); err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	t.in = b.Namespace
	return nil
}

// close closes the handles that are open.
func (b *builder) close() error {
	var errs []error
	if b.proc != nil {
		errs = append(errs, b.proc.release())
	}
	switch {
	case b.route != nil:
		errs = append(errs, b.Namespace.Close())
	case b.net != nil:
		errs = append(errs, b.net.Close())
	}
	return errors.Join(errs...)
}
