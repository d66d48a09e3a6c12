package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reaper removes pinned namespaces that other processes made.
type Reaper struct{}

// Reap unpins the namespaces named that are pinned in dir and removes the pins.
// A namespace that no process and no open file holds then ends, with all that is
// in it; the kernel does that on its own time. One that is not there is not an
// error.
func (Reaper) Reap(ctx context.Context, dir string, names []string) error {
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		if name != filepath.Base(name) {
			errs = append(errs, fmt.Errorf("remove namespace %q: not a name", name))
			continue
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
		if errors.Is(err, unix.EINVAL) { // not, or no longer, a mount
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
