package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// ThrottleKind is a mechanism by which the kernel limits the rate of writes to a block device.
type ThrottleKind string

// The mechanisms. Blkio limits only direct writes: a kernel thread in another cgroup writes the
// page cache to the device.
const (
	Blkio ThrottleKind = "blkio"  // cgroup version 1
	IOMax ThrottleKind = "io.max" // cgroup version 2
)

// ThrottleFact reports whether this machine has a throttle.
type ThrottleFact struct {
	Kind    ThrottleKind
	Missing string // the reason if it is unavailable, otherwise ""
	root    string // of the cgroup hierarchy
}

const (
	blkioFile  = "blkio.throttle.write_bps_device"
	ioMaxFile  = "io.max"
	cgroupBase = "/sys/fs/cgroup"
)

// Throttles detects the throttles of the kernel. It changes nothing.
func Throttles() []ThrottleFact {
	v1 := ThrottleFact{Kind: Blkio, root: filepath.Join(cgroupBase, "blkio")}
	if _, err := os.Stat(filepath.Join(v1.root, blkioFile)); err != nil {
		v1.Missing = fmt.Sprintf("no cgroup version 1 with %s under %s", blkioFile, v1.root)
	}
	v2 := ThrottleFact{Kind: IOMax, Missing: "no cgroup version 2 with the io controller under " + cgroupBase}
	for _, root := range []string{cgroupBase, filepath.Join(cgroupBase, "unified")} {
		data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err == nil && slices.Contains(strings.Fields(string(data)), "io") {
			v2.root, v2.Missing = root, ""
			break
		} else if err == nil {
			v2.Missing = fmt.Sprintf("the cgroup version 2 at %s has no io controller (cgroup.controllers: %q)", root, strings.TrimSpace(string(data)))
		}
	}
	return []ThrottleFact{v1, v2}
}

// CgroupPath returns the path of the throttle's cgroup of the given name, so that it can be
// recorded before it is created.
func (f ThrottleFact) CgroupPath(name string) (string, error) {
	if f.Missing != "" {
		return "", fmt.Errorf("disk throttle %s: %s", f.Kind, f.Missing)
	}
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("disk throttle %s: invalid cgroup name %q", f.Kind, name)
	}
	return filepath.Join(f.root, name), nil
}

// Cgroup is a cgroup created by this process. It limits the rate at which its members write to some
// devices.
type Cgroup struct {
	kind    ThrottleKind
	path    string
	root    string
	enabled bool // this process enabled the io controller for the children of root
	limited []string
	home    string // the cgroup of this process before Enter; "" outside Enter and Leave
	closed  bool
}

// NewCgroup creates the cgroup at CgroupPath(name).
func (f ThrottleFact) NewCgroup(name string) (c *Cgroup, err error) {
	path, err := f.CgroupPath(name)
	if err != nil {
		return nil, err
	}
	c = &Cgroup{kind: f.Kind, path: path, root: f.root}
	fail := func(err error) (*Cgroup, error) {
		return nil, errors.Join(fmt.Errorf("disk throttle %s: create cgroup %s: %w%s", f.Kind, path, err, privilege(err)), c.disable())
	}
	if f.Kind == IOMax {
		control := filepath.Join(f.root, "cgroup.subtree_control")
		have, err := os.ReadFile(control)
		if err != nil {
			return fail(err)
		}
		if !slices.Contains(strings.Fields(string(have)), "io") {
			if err := writeControl(control, "+io"); err != nil {
				return fail(err)
			}
			c.enabled = true
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return fail(err)
	}
	return c, nil
}

// Limit limits writes of the cgroup's processes to a device to rate.
func (c *Cgroup) Limit(l *Loop, rate units.Rate) error {
	n := rate.BytesPerSecond()
	if n < 1 {
		return fmt.Errorf("disk throttle %s: %v: must be 8bps or more", c.kind, rate)
	}
	if err := c.set(l.Number(), strconv.FormatInt(n, 10)); err != nil {
		return err
	}
	if !slices.Contains(c.limited, l.Number()) {
		c.limited = append(c.limited, l.Number())
	}
	return nil
}

func (c *Cgroup) set(number, value string) error {
	file, text := blkioFile, number+" "+value
	if c.kind == IOMax {
		file, text = ioMaxFile, number+" wbps="+value
	}
	if err := writeControl(filepath.Join(c.path, file), text); err != nil {
		return fmt.Errorf("disk throttle %s: device %s: %w%s", c.kind, number, err, privilege(err))
	}
	return nil
}

// Enter moves this process with all its threads into the cgroup, until Leave or Close: goroutines
// change threads, and io.max applies to preallocate processes.
func (c *Cgroup) Enter() error {
	if c.home != "" {
		return nil
	}
	home, err := c.currentCgroup()
	if err != nil {
		return fmt.Errorf("disk throttle %s: %w", c.kind, err)
	}
	if err := c.move(c.path); err != nil {
		return err
	}
	c.home = home
	return nil
}

// Leave moves this process back to its previous cgroup.
func (c *Cgroup) Leave() error {
	if c.home == "" {
		return nil
	}
	if err := c.move(c.home); err != nil {
		return err
	}
	c.home = ""
	return nil
}

func (c *Cgroup) move(to string) error {
	if err := writeControl(filepath.Join(to, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
		return fmt.Errorf("disk throttle %s: move into cgroup %s: %w%s", c.kind, to, err, privilege(err))
	}
	return nil
}

// currentCgroup returns this process's cgroup in the hierarchy.
func (c *Cgroup) currentCgroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(part) < 3 {
			continue
		}
		if c.kind == IOMax && part[0] == "0" || c.kind == Blkio && slices.Contains(strings.Split(part[1], ","), "blkio") {
			return filepath.Join(c.root, part[2]), nil
		}
	}
	return "", fmt.Errorf("/proc/self/cgroup has no cgroup under %s", c.root)
}

// Close moves this process out, resets all limits, which would otherwise apply to the next device
// with the same number, and removes the cgroup. Other processes must have left it. A second call
// does nothing.
func (c *Cgroup) Close() error {
	if c.closed {
		return nil
	}
	errs := []error{c.Leave()}
	for _, number := range c.limited {
		errs = append(errs, c.set(number, map[ThrottleKind]string{Blkio: "0", IOMax: "max"}[c.kind]))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := removeCgroup(context.Background(), c.path); err != nil {
		return err
	}
	c.closed = true
	return c.disable()
}

// disable disables the io controller for the children of the root if this process enabled it and no
// other child uses it.
func (c *Cgroup) disable() error {
	if !c.enabled {
		return nil
	}
	c.enabled = false
	err := writeControl(filepath.Join(c.root, "cgroup.subtree_control"), "-io")
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// cgroupTimeout bounds the wait for a cgroup to become removable after its last process has ended.
const cgroupTimeout = 2 * time.Second

// checkCgroup returns an error if a path is not in a cgroup hierarchy.
func checkCgroup(path string) error {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	if err == nil && st.Type != unix.CGROUP_SUPER_MAGIC && st.Type != unix.CGROUP2_SUPER_MAGIC {
		err = errors.New("not a cgroup")
	}
	return err
}

// removeCgroup removes an empty cgroup. A missing cgroup is not an error.
func removeCgroup(ctx context.Context, path string) error {
	err := checkCgroup(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	for start := time.Now(); err == nil; {
		err = unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if errors.Is(err, unix.EBUSY) && time.Since(start) < cgroupTimeout && ctx.Err() == nil {
			err = nil
			time.Sleep(10 * time.Millisecond)
		}
	}
	procs, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) // only for the error text
	if ids := strings.Fields(string(procs)); len(ids) > 0 {
		return fmt.Errorf("remove cgroup %s: %w: processes %s are in it: end them first", path, err, strings.Join(ids, ", "))
	}
	return fmt.Errorf("remove cgroup %s: %w%s", path, err, privilege(err))
}

// writeControl writes a control file in a single write, as the kernel requires.
func writeControl(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Loop is a loop device over a file. The kernel detaches it when its last open file is closed, also
// when the process is killed.
type Loop struct {
	dev  *os.File
	file string
	path string
}

// maxLoopAttempts bounds the attempts to attach a free device that another process may attach
// first.
const maxLoopAttempts = 16

// AttachLoop creates a file of the given size, allocates its space, and attaches a loop device to
// it, with direct I/O if the file system supports it. The caller must call Close and remove the
// file.
func AttachLoop(file string, size units.Bytes) (*Loop, error) { return attachLoop(file, size, true) }

// attachLoop is AttachLoop. Unless preallocate is set, the file is sparse.
func attachLoop(file string, size units.Bytes, preallocate bool) (_ *Loop, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("loop device over %s: %w%s", file, err, privilege(err))
		}
	}()
	if file, err = filepath.Abs(file); err != nil {
		return nil, err
	}
	if file, err = resolve(file); err != nil {
		return nil, err
	}
	back, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, back.Close()) }()
	err = unix.EOPNOTSUPP
	if preallocate {
		err = unix.Fallocate(int(back.Fd()), 0, 0, int64(size))
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = back.Truncate(int64(size))
	}
	if err != nil {
		return nil, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w (does the kernel support loop devices? run: modprobe loop)", err)
	}
	defer control.Close() // no data to lose
	for range maxLoopAttempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		dev, err := openLoop(fmt.Sprintf("/dev/loop%d", n))
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(back.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], file)
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if errors.Is(err, unix.EINVAL) { // the file system does not support direct I/O
			config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
			err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		}
		if err == nil {
			return &Loop{dev: dev, file: file, path: dev.Name()}, nil
		}
		err = errors.Join(err, dev.Close())
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("other processes attached the free device first, %d times", maxLoopAttempts)
}

// resolve resolves symbolic links in the directory of a file, so that the path equals the one the
// kernel reports. The file need not exist.
func resolve(file string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	return filepath.Join(dir, filepath.Base(file)), err
}

// openLoop opens a loop device. Its node appears shortly after the device is created.
func openLoop(path string) (*os.File, error) {
	const timeout = 2 * time.Second
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		dev, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || time.Since(start) > timeout {
			return dev, err
		}
	}
}

// Path returns the path of the device.
func (l *Loop) Path() string { return l.path }

// Number returns the device number, such as "7:0".
func (l *Loop) Number() string {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.dev.Fd()), &st); err != nil {
		return "0:0" // no device: setting a limit on it fails
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// Close closes the device. The kernel detaches it once no process has it open. A second call does
// nothing.
func (l *Loop) Close() error {
	if l.dev == nil {
		return nil
	}
	dev := l.dev
	l.dev = nil
	if err := dev.Close(); err != nil {
		return fmt.Errorf("detach %s: %w", l.path, err)
	}
	return nil
}

// Release unmounts the file systems of loop devices at the given directories, and removes the loop
// devices over the given files and the given cgroups. Missing ones are skipped.
func (Reaper) Release(ctx context.Context, mounts, loops, cgroups []string) error {
	var errs []error
	for _, dir := range mounts {
		errs = append(errs, unmountDisk(ctx, dir))
	}
	for _, path := range cgroups {
		errs = append(errs, removeCgroup(ctx, path))
	}
	if len(loops) == 0 {
		return errors.Join(errs...)
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	errs = append(errs, err)
	for _, path := range backing {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // detached meanwhile
		}
		file := string(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte(" (deleted)")))
		if slices.Contains(loops, file) {
			errs = append(errs, detach("/dev/"+strings.Split(path, "/")[3]))
		}
	}
	return errors.Join(errs...)
}

func detach(device string) error {
	dev, err := os.OpenFile(device, os.O_RDWR, 0)
	if err == nil {
		err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
		if errors.Is(err, unix.ENXIO) {
			err = nil // no longer attached
		}
		err = errors.Join(err, dev.Close())
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w%s", device, err, privilege(err))
	}
	return nil
}
