package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// ThrottleSlice is the accounting interval of the kernel's throttles (DFL_THROTL_SLICE of
// block/blk-throttle.c). They admit the amount of a whole slice at its beginning, so a disk is up
// to one slice ahead of its rate. A slice left over from an idle period adds another. ThrottleAhead
// is the sum of both.
const (
	ThrottleSlice = 100 * time.Millisecond
	ThrottleAhead = 2 * ThrottleSlice
)

// DiskSpec describes a disk to create.
type DiskSpec struct {
	File string      // the image: must not exist; its directory must
	Dir  string      // the mount point: created, must not exist
	Size units.Bytes // space for files; the overhead of the file system is added
	Rate units.Rate  // limit of direct writes
}

// Disks are file systems (ext4 without a journal) in sparse files, each on its own loop device. The
// kernel limits the rate at which this process writes to each device: the process is in a cgroup
// for that from MakeDisks to Close.
type Disks struct {
	cgroup *Cgroup
	disks  []kernelDisk
}

type kernelDisk struct {
	spec    DiskSpec
	loop    *Loop
	made    bool // the mount point exists
	mounted bool
}

// diskBlocks is the directory in which hosts store blocks, next to lost+found of the file system.
const diskBlocks = "blocks"

// mkfs is the program that creates the file systems.
const mkfs = "mkfs.ext4"

// DiskThrottle returns the throttle for disks: io.max of cgroup version 2 if available, otherwise
// blkio of version 1. The error lists everything that is missing.
func DiskThrottle() (ThrottleFact, error) {
	var missing []string
	if _, err := exec.LookPath(mkfs); err != nil {
		missing = append(missing, mkfs+" (package e2fsprogs)")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing = append(missing, "loop devices: "+err.Error()+" (modprobe loop)")
	}
	var unavailable []string
	var found ThrottleFact
	for _, f := range Throttles() { // io.max comes last
		if f.Missing == "" {
			found = f
		} else {
			unavailable = append(unavailable, f.Missing)
		}
	}
	if found.Kind == "" {
		missing = append(missing, strings.Join(unavailable, " and "))
	}
	if len(missing) > 0 {
		return ThrottleFact{}, fmt.Errorf("disks throttled by the kernel: missing %s: install them, or set disk.throttle: bucket to throttle disks in the program", strings.Join(missing, "; "))
	}
	return found, nil
}

// MakeDisks creates disks in order, limited by the throttle's cgroup of the given name. The caller
// must call Close before it removes the paths in specs. If the process is killed, Reaper.Release
// does the work of Close.
func (f ThrottleFact) MakeDisks(ctx context.Context, name string, specs []DiskSpec) (_ *Disks, err error) {
	c, err := f.NewCgroup(name)
	if err != nil {
		return nil, err
	}
	d := &Disks{cgroup: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	for _, s := range specs {
		if err := d.make(ctx, s); err != nil {
			return nil, err
		}
	}
	return d, c.Enter()
}

func (d *Disks) make(ctx context.Context, s DiskSpec) error {
	wrap := func(err error) error { return fmt.Errorf("disk %s: %w%s", s.Dir, err, privilege(err)) }
	if ctx.Err() != nil {
		return wrap(context.Cause(ctx))
	}
	// Inodes, bitmaps and group descriptors take less than 1/16 with these settings, and blocks are
	// rounded up to whole pages.
	loop, err := attachLoop(s.File, s.Size+s.Size/16+8*units.MiB, false)
	if err != nil {
		if !errors.Is(err, os.ErrExist) {
			err = errors.Join(err, removeIfExists(s.File))
		}
		return err
	}
	d.disks = append(d.disks, kernelDisk{spec: s, loop: loop})
	// The kernel writes no part of the file system later in the background. No journal: the
	// contents are discarded after a crash.
	format := exec.CommandContext(ctx, mkfs, "-q", "-F", "-b", "4096", "-m", "0", "-i", "65536", "-O", "^has_journal,^resize_inode",
		"-E", "lazy_itable_init=0,nodiscard", loop.Path())
	if out, err := format.CombinedOutput(); err != nil {
		return wrap(fmt.Errorf("%s: %w: %s%s", mkfs, err, bytes.TrimSpace(out), spaceLeft(s.File)))
	}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return wrap(err)
	}
	d.disks[len(d.disks)-1].made = true
	if err := unix.Mount(loop.Path(), s.Dir, "ext4", unix.MS_NOATIME|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return wrap(fmt.Errorf("mount %s: %w (does the kernel support ext4?)", loop.Path(), err))
	}
	d.disks[len(d.disks)-1].mounted = true
	if err := os.Mkdir(filepath.Join(s.Dir, diskBlocks), 0o755); err != nil {
		return wrap(err)
	}
	return d.cgroup.Limit(loop, s.Rate)
}

// spaceLeft returns a note for a failed write to a sparse file: the free space of its file system
// if that is less than 1 MiB, otherwise "".
func spaceLeft(file string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(file), &fs); err != nil {
		return ""
	}
	if free := units.Bytes(fs.Bfree) * units.Bytes(fs.Bsize); free < units.MiB {
		return fmt.Sprintf(" (the file system of %s is full, %v left: free space there, or set disk.dir to a directory with more)", filepath.Dir(file), free)
	}
	return ""
}

// Dir returns the directory for blocks on disk i of the specs.
func (d *Disks) Dir(i int) string { return filepath.Join(d.disks[i].spec.Dir, diskBlocks) }

// Kind returns the kind of the throttle.
func (d *Disks) Kind() ThrottleKind { return d.cgroup.kind }

// SetRate changes the rate of a disk, including for waiting writes.
func (d *Disks) SetRate(i int, rate units.Rate) error {
	return d.cgroup.Limit(d.disks[i].loop, rate)
}

// unmountTimeout bounds the wait until the last file of a disk is closed.
const unmountTimeout = 2 * time.Second

// Close moves this process back, unmounts the disks, detaches their devices and removes images and
// cgroup. It continues after an error, and may then be called again.
func (d *Disks) Close() error {
	var errs []error
	errs = append(errs, d.cgroup.Leave()) // later writes are not throttled
	d.disks = slices.DeleteFunc(d.disks, func(k kernelDisk) bool {
		err := k.close()
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(append(errs, d.cgroup.Close())...)
}

func (k kernelDisk) close() error {
	if k.mounted {
		if err := unmountDisk(context.Background(), k.spec.Dir); err != nil {
			return err
		}
	}
	var dir error
	if k.made {
		dir = removeIfExists(k.spec.Dir)
	}
	return errors.Join(k.loop.Close(), dir, removeIfExists(k.spec.File))
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// loopMajor is the major number of loop devices.
const loopMajor = 7

// unmountDisk unmounts the file system at a directory if it is on a loop device. A missing
// directory, or one without a mount, is not an error.
func unmountDisk(ctx context.Context, dir string) error {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var here, above unix.Stat_t
		if err := unix.Lstat(dir, &here); errors.Is(err, unix.ENOENT) {
			return nil
		} else if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		if here.Dev == above.Dev {
			return nil // no mount
		}
		if unix.Major(here.Dev) != loopMajor {
			return fmt.Errorf("unmount %s: the file system there is on device %d:%d, not on a loop device: left mounted", dir, unix.Major(here.Dev), unix.Minor(here.Dev))
		}
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EBUSY) || err != nil && (time.Since(start) > unmountTimeout || ctx.Err() != nil) {
			return fmt.Errorf("unmount %s: %w%s", dir, err, privilege(err))
		}
	}
}
