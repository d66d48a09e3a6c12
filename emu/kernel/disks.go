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

// ThrottleSlice is the time in which the kernel's throttles count (DFL_THROTL_SLICE of
// block/blk-throttle.c): they let through at the beginning of each what it allows, so
// that a disk is up to a slice ahead of its rate; and another that is left of an idle
// moment. ThrottleAhead is both together.
const (
	ThrottleSlice = 100 * time.Millisecond
	ThrottleAhead = 2 * ThrottleSlice
)

// DiskSpec is a disk to be made.
type DiskSpec struct {
	File string      // the image, which must not exist, in a directory that does
	Dir  string      // where its file system is mounted; made, and must not exist
	Size units.Bytes // that files may take; what the file system itself needs is added
	Rate units.Rate  // of direct writes
}

// Disks are file systems (ext4 without a journal) in sparse files, each on a loop device
// of its own whose writes the kernel holds to a rate: those of this process, which is in
// a cgroup for that from MakeDisks to Close.
type Disks struct {
	cgroup *Cgroup
	disks  []kernelDisk
}

type kernelDisk struct {
	spec    DiskSpec
	loop    *Loop
	made    bool // its directory
	mounted bool
}

// diskBlocks is where hosts store blocks, beside the lost+found of the file system.
const diskBlocks = "blocks"

// mkfs makes the file systems.
const mkfs = "mkfs.ext4"

// DiskThrottle is the throttle that disks are made with: io.max of cgroup version 2
// where the kernel has it, else blkio of version 1. An error names all that is missing.
func DiskThrottle() (ThrottleFact, error) {
	var missing []string
	if _, err := exec.LookPath(mkfs); err != nil {
		missing = append(missing, mkfs+" (package e2fsprogs)")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing = append(missing, "loop devices: "+err.Error()+" (modprobe loop)")
	}
	var none []string
	var found ThrottleFact
	for _, f := range Throttles() { // io.max comes last
		if f.Missing == "" {
			found = f
		} else {
			none = append(none, f.Missing)
		}
	}
	if found.Kind == "" {
		missing = append(missing, strings.Join(none, " and "))
	}
	if len(missing) > 0 {
		return ThrottleFact{}, fmt.Errorf("disks throttled by the kernel: missing are %s: get them, or let the disks of the scenario be throttled by the program (disk.throttle: bucket)", strings.Join(missing, "; "))
	}
	return found, nil
}

// MakeDisks makes disks under the throttle's cgroup of the given name, in order. The
// caller must call Close, also before it removes what the specs name; where the process
// is killed, Reaper.Release does what Close would.
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
	// Inodes, bitmaps and group descriptors take less than a sixteenth at these settings, and
	// a block is whole pages.
	loop, err := attachLoop(s.File, s.Size+s.Size/16+8*units.MiB, false)
	if err != nil {
		if !errors.Is(err, os.ErrExist) {
			err = errors.Join(err, removeIfThere(s.File))
		}
		return err
	}
	d.disks = append(d.disks, kernelDisk{spec: s, loop: loop})
	// Nothing of the file system is written later by the kernel on its own. No journal: what
	// a crash leaves is thrown away.
	format := exec.CommandContext(ctx, mkfs, "-q", "-F", "-b", "4096", "-m", "0", "-i", "65536", "-O", "^has_journal,^resize_inode",
		"-E", "lazy_itable_init=0,nodiscard", loop.Path())
	if out, err := format.CombinedOutput(); err != nil {
		return wrap(fmt.Errorf("%s: %w: %s", mkfs, err, bytes.TrimSpace(out)))
	}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return wrap(err)
	}
	d.disks[len(d.disks)-1].made = true
	if err := unix.Mount(loop.Path(), s.Dir, "ext4", unix.MS_NOATIME|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return wrap(fmt.Errorf("mount %s: %w (does the kernel have ext4?)", loop.Path(), err))
	}
	d.disks[len(d.disks)-1].mounted = true
	if err := os.Mkdir(filepath.Join(s.Dir, diskBlocks), 0o755); err != nil {
		return wrap(err)
	}
	return d.cgroup.Limit(loop, s.Rate)
}

// Dir is the directory on a disk that is its own, by its number in the specs.
func (d *Disks) Dir(i int) string { return filepath.Join(d.disks[i].spec.Dir, diskBlocks) }

// Kind is the throttle.
func (d *Disks) Kind() ThrottleKind { return d.cgroup.kind }

// SetRate changes the rate of a disk, also of writes that wait.
func (d *Disks) SetRate(i int, rate units.Rate) error {
	return d.cgroup.Limit(d.disks[i].loop, rate)
}

// unmountPatience bounds the wait for the last file of a disk to be closed.
const unmountPatience = 2 * time.Second

// Close moves this process back, unmounts the disks, detaches their devices and removes
// images and cgroup. It goes on after an error, and may be called again after one.
func (d *Disks) Close() error {
	var errs []error
	errs = append(errs, d.cgroup.Leave()) // what is written now need not wait
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
		dir = removeIfThere(k.spec.Dir)
	}
	return errors.Join(k.loop.Close(), dir, removeIfThere(k.spec.File))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// loopMajor is the major number of loop devices.
const loopMajor = 7

// unmountDisk unmounts what is mounted at a directory, if that is the file system of a
// loop device. Nothing there, or no mount, is not an error.
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
			return fmt.Errorf("unmount %s: what is mounted there is on device %d:%d, not on a loop device, so it is left alone", dir, unix.Major(here.Dev), unix.Minor(here.Dev))
		}
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EBUSY) || err != nil && (time.Since(start) > unmountPatience || ctx.Err() != nil) {
			return fmt.Errorf("unmount %s: %w%s", dir, err, privilege(err))
		}
	}
}
