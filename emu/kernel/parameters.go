package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// namespacesPerProcfs is the number of namespaces that share a procfs. The mount of one takes as long as looking
// up a name among about 100 namespaces.
const namespacesPerProcfs = 32

// procfsPool gives out mounts of procfs. For each name below /proc/sys/net, a procfs has a list of the namespaces
// in which it was looked up, and a look-up walks the list: with one procfs, the parameters of N namespaces cost N².
// Each procfs of the pool therefore serves namespacesPerProcfs namespaces. It is in no tree of mounts and ends with
// its last user.
type procfsPool struct {
	mu     sync.Mutex // guards all below, and users of the procfs
	newest *procfs
	given  int // users that newest was given to
}

// procfs is an open mount. Threads find the parameters of their own network namespace in it.
type procfs struct {
	pool  *procfsPool
	dir   int
	users int
}

// take returns a procfs for a namespace, which must release it.
func (p *procfsPool) take() (*procfs, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil || p.newest.users == 0 || p.given == namespacesPerProcfs {
		dir, err := mountProcfs()
		if err != nil {
			return nil, fmt.Errorf("open /proc: %w", err)
		}
		p.newest, p.given = &procfs{pool: p, dir: dir}, 0
	}
	p.given++
	p.newest.users++
	return p.newest, nil
}

// release closes the procfs after its last user.
func (p *procfs) release() error {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.users--
	if p.users > 0 {
		return nil
	}
	return unix.Close(p.dir)
}

// mountProcfs returns a new mount of procfs. It returns /proc where the kernel refuses the mount, as to a user
// namespace without a PID namespace, and where /proc/sys is read-only, which a new mount would bypass.
func mountProcfs() (int, error) {
	var sys unix.Statfs_t
	if err := unix.Statfs("/proc/sys", &sys); err != nil {
		return -1, err
	}
	if sys.Flags&unix.ST_RDONLY == 0 {
		if dir, err := mountDetached("proc"); err == nil {
			return dir, nil
		}
	}
	return unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// mountDetached returns a new mount of a file system that is in no tree of mounts and ends when it is closed.
func mountDetached(system string) (int, error) {
	context, err := unix.Fsopen(system, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	mount := -1
	if err = unix.FsconfigCreate(context); err == nil {
		mount, err = unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	}
	return mount, errors.Join(err, unix.Close(context))
}

// parameterPath returns the path of a parameter in a procfs.
func parameterPath(key string) string { return "sys/" + strings.ReplaceAll(key, ".", "/") }

// write sets a parameter of the namespace of the calling thread.
func (p *procfs) write(s plan.Setting) error {
	fd, err := unix.Openat(p.dir, parameterPath(s.Key), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return deploy.ErrUnsupported
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (as root, make it writable: %s)", err, writableSys)
	case err != nil:
		return fmt.Errorf("%w%s", err, privilege(err))
	}
	_, err = unix.Write(fd, []byte(s.Value))
	return errors.Join(err, unix.Close(fd))
}

// read returns the value of the parameter at a path, with one space between its fields.
func (p *procfs) read(path string, buffer []byte) (string, error) {
	fd, err := unix.Openat(p.dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	n, err := unix.Read(fd, buffer)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return string(bytes.Join(bytes.Fields(buffer[:n]), []byte(" "))), nil
}

// set writes kernel parameters. Only threads inside a namespace see its parameters.
func (b *builder) set(ctx context.Context, op plan.Sysctl) error {
	return b.on(ctx, func() error {
		for _, s := range op.Set {
			one := plan.Sysctl{Namespace: op.Namespace, Set: []plan.Setting{s}, Optional: op.Optional}
			if err := b.proc.write(s); err != nil {
				return fmt.Errorf("%s: %w", one, err)
			}
		}
		return nil
	})
}

// readParameters returns the values of those of the keys that the kernel knows.
func (b *builder) readParameters(ctx context.Context, keys []string) (map[string]string, error) {
	values := make(map[string]string, len(keys))
	buffer := make([]byte, 256)
	err := b.on(ctx, func() error {
		for _, key := range keys {
			value, err := b.proc.read(parameterPath(key), buffer)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			values[key] = value
		}
		return nil
	})
	return values, err
}
