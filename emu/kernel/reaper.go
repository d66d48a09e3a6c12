package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
)

// Reaper removes pinned namespaces that other processes created.
type Reaper struct {
	// Grace is the time between SIGTERM and SIGKILL for processes in the namespaces. 0 sends
	// SIGKILL at once.
	Grace time.Duration
	// Keep refuses to remove namespaces with processes in them (ErrInUse).
	Keep bool
}

// ErrInUse is wrapped by the error of a Reaper with Keep.
var ErrInUse = errors.New("processes are in the testbed")

// Reap ends the processes of a testbed, unmounts and removes the pins of its namespaces, and returns
// the processes that it ended. The kernel then removes each namespace and
// its contents in the background, unless an open file refers to it. A missing namespace is not an
// error.
func (r Reaper) Reap(ctx context.Context, s deploy.Scope) (ended []deploy.Process, err error) {
	for _, name := range s.Names {
		if name != filepath.Base(name) {
			return nil, fmt.Errorf("remove namespace %q: must be a name without a directory", name)
		}
	}
	lock, err := lockPins(ctx, s.Pins, unix.LOCK_EX, lockWait)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, endCgroup(ctx, s.Cgroup)
	} else if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	m, err := openMembers(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if r.Keep {
		if found, _, err := m.list(); err != nil || len(found) > 0 {
			return nil, errors.Join(err, inUse(found))
		}
	}
	if ended, err = m.end(ctx, r.Grace); err != nil {
		return ended, err
	}
	if err := unpinAll(ctx, s.Pins, s.Names); err != nil {
		return ended, err
	}
	// Processes that other programs have moved into a namespace since: m still has the namespaces
	// open.
	late, err := m.end(ctx, r.Grace)
	if ended = append(ended, late...); err != nil {
		return ended, err
	}
	return ended, endCgroup(ctx, s.Cgroup)
}

func inUse(found []deploy.Process) error {
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %v", ErrInUse, joinProcesses(found))
}

func unpinAll(ctx context.Context, dir string, names []string) error {
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		if err := unpin(filepath.Join(dir, name)); err != nil {
			errs = append(errs, fmt.Errorf("remove namespace %q: %w%s", name, err, privilege(err)))
		}
	}
	return errors.Join(errs...)
}

func unpin(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) && !isNamespace(path) { // not, or no longer, a mount
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isNamespace reports whether a namespace is pinned at path.
func isNamespace(path string) bool {
	var fsys unix.Statfs_t
	return unix.Statfs(path, &fsys) == nil && fsys.Type == unix.NSFS_MAGIC
}
